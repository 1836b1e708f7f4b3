/* SPDX-License-Identifier: Apache-2.0 */
/* Which volumes this process has loaded, and the shards' shortcuts to them. */
#include <base/hash.h>
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xseg/registry.h>
#include <xxhash.h>

#include "peers/volume/volume_limit.h"
#include "peers/volume/volume_map.h"

/*
 *   IMPORTING --import done--> READY
 *       `---.        .-----------'  ^ ^
 *      remove      remove           | |
 *            v     v                | |  (nothing was
 *            REMOVING --------------'-'   changed yet)
 *               |
 *               `--its record is deleted--> GONE
 */
static const struct sm_state volume_states[] = {
	[XSEG_VOLUME_READY] = {"ready", SM(XSEG_VOLUME_READY) | SM(XSEG_VOLUME_REMOVING)},
	[XSEG_VOLUME_IMPORTING] = {"importing",
		SM(XSEG_VOLUME_IMPORTING) | SM(XSEG_VOLUME_READY) | SM(XSEG_VOLUME_REMOVING)},
	[XSEG_VOLUME_REMOVING] = {"removing", SM(XSEG_VOLUME_READY) | SM(XSEG_VOLUME_IMPORTING) |
						      SM(XSEG_VOLUME_REMOVING) | SM(VOLUME_GONE)},
	[VOLUME_GONE] = {"gone", 0},
};

/* What an empty slot of a cache points to: it admits nobody, so its finder looks closer. */
static struct volume volume_nobody;

static struct volume_list *bucket_of(struct volume_shared *shared, uint64_t id)
{
	return &shared->buckets[hash_u64(id) >> 32 & (VOLUME_BUCKETS - 1)];
}

struct volume *volume_table_find(struct volume_shared *shared, uint64_t id)
{
	struct volume *volume;
	LIST_FOREACH (volume, bucket_of(shared, id), link)
		if (volume->id == id)
			return volume;
	return NULL;
}

/* --- one volume -------------------------------------------------------------------- */

static const size_t pages_size = VOLUME_PAGES_MAX * sizeof(struct volume_page *);

/* Touched where pages of the map are known only: a volume that is not used costs no memory. */
static int pages_open(struct volume *volume)
{
	void *map = mmap(NULL, pages_size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return -errno;
	volume->pages = map;
	return 0;
}

static void volume_free(struct volume *volume)
{
	for (uint32_t i = 0; volume->pages && i < VOLUME_PAGES_MAX; i++)
		free(atomic_load_explicit(&volume->pages[i], memory_order_relaxed));
	if (volume->pages)
		munmap(volume->pages, pages_size);
	volume_limit_free(volume->limit);
	free(volume);
}

static bool is_power_of_two(uint32_t n) { return n != 0 && (n & (n - 1)) == 0; }

/* Size 0 is none that could be made, but one may be cut down to it. */
static bool geometry_check(uint64_t size, uint32_t object_size)
{
	return size % XSEG_SECTOR == 0 && is_power_of_two(object_size) &&
	       object_size >= XSEG_PAGE && object_size <= XSEG_OBJECT_MAX &&
	       (size == 0 || (size - 1) / object_size <= UINT32_MAX);
}

int volume_table_head_check(const struct map_head_info *head)
{
	uint64_t objects_max = (uint64_t)VOLUME_PAGES_MAX * MAP_PAGE_ENTRIES;
	bool snapshot = head->flags & XSEG_VOLUME_SNAPSHOT;
	if (head->id == 0 || !geometry_check(head->size, head->object_size) ||
		(head->size != 0 && (head->size - 1) / head->object_size >= objects_max))
		return -EILSEQ;
	if (head->state < XSEG_VOLUME_READY || head->state > XSEG_VOLUME_REMOVING)
		return -EILSEQ;
	if (!memchr(head->name, 0, sizeof(head->name)) || head->owner_count > MAP_OWNERS)
		return -EILSEQ;
	if (snapshot)
		return 0;
	return head->self < head->owner_count && head->owners[head->self] == head->id ? 0 : -EILSEQ;
}

/* What was read without the mutex is changed only where it differs: nobody looks just then. */
static void take_place(struct volume *volume, const struct map_head_info *head)
{
	atomic_store_explicit(&volume->size, head->size, memory_order_relaxed);
	atomic_store_explicit(&volume->epoch, head->epoch, memory_order_relaxed);
	atomic_store_explicit(&volume->frozen, head->frozen, memory_order_relaxed);
	volume->self = head->self;
	for (unsigned i = 0; i < MAP_OWNERS; i++)
		if (volume->owners[i] != head->owners[i])
			volume->owners[i] = head->owners[i];
}

bool volume_table_keeps(const struct volume_shared *shared, const char *name)
{
	for (size_t i = 0; i < shared->keep->count; i++)
		if (strcmp(shared->keep->item[i], name) == 0)
			return true;
	return false;
}

/* With the mutex. */
static int head_set(struct volume *volume, const struct map_head_info *head, bool all)
{
	int rc = volume_limit_set(&volume->limit, &head->limits);
	if (rc != 0)
		return rc;
	if (volume->limit)
		atomic_store_explicit(&volume->admitted, 0, memory_order_relaxed);
	if (all)
		take_place(volume, head);
	volume->head = *head;
	if (volume->state == 0)
		volume->state = (uint8_t)head->state;
	else if (!volume->removing && sm_may(volume_states, volume->state, head->state))
		sm_move(volume_states, &volume->state, head->state);
	return 0;
}

int volume_table_head_set(
	struct peer *peer, struct volume *volume, const struct map_head_info *head, bool all)
{
	struct volume_shared *shared = volume_shared(peer);
	int rc = volume_table_head_check(head);
	if (rc == 0 && (head->id != volume->id || head->object_size != 1u << volume->object_shift))
		rc = -EILSEQ;
	if (rc != 0)
		return rc;
	pthread_mutex_lock(&shared->lock);
	rc = head_set(volume, head, all);
	if (rc == 0)
		volume->keep = volume_table_keeps(shared, head->name);
	pthread_mutex_unlock(&shared->lock);
	return rc;
}

static struct volume *volume_new(const struct map_head_info *head, bool configured)
{
	struct volume *volume = calloc(1, sizeof(*volume));
	if (!volume)
		return NULL;
	volume->id = head->id;
	volume->object_shift = (unsigned)__builtin_ctz(head->object_size);
	volume->read_only = head->flags & (XSEG_VOLUME_READ_ONLY | XSEG_VOLUME_SNAPSHOT);
	volume->configured = configured;
	if (head_set(volume, head, true) == 0 && (configured || pages_open(volume) == 0))
		return volume;
	volume_free(volume);
	return NULL;
}

/* --- the table ---------------------------------------------------------------------- */

int volume_table_open(struct volume_shared *shared, const struct peer_list *keep)
{
	shared->keep = keep;
	for (unsigned i = 0; i < countof(shared->barriers); i++)
		TAILQ_INIT(&shared->barriers[i]);
	return -pthread_mutex_init(&shared->lock, NULL);
}

void volume_table_close(struct volume_shared *shared)
{
	for (unsigned i = 0; i < VOLUME_BUCKETS; i++) {
		struct volume *volume;
		while ((volume = LIST_FIRST(&shared->buckets[i]))) {
			LIST_REMOVE(volume, link);
			volume_free(volume);
		}
	}
	pthread_mutex_destroy(&shared->lock);
}

static int table_add(
	struct volume_shared *shared, const struct map_head_info *head, bool configured)
{
	if (shared->count >= VOLUME_COUNT_MAX)
		return -ENFILE;
	struct volume *volume = volume_new(head, configured);
	if (!volume)
		return -ENOMEM;
	volume->keep = !configured && volume_table_keeps(shared, head->name);
	LIST_INSERT_HEAD(bucket_of(shared, head->id), volume, link);
	shared->count++;
	return 0;
}

static uint64_t name_hash(const char *name)
{
	uint64_t hash = XXH64(name, strlen(name), 0);
	return hash != 0 ? hash : 1;
}

int volume_table_add_configured(
	struct volume_shared *shared, const char *name, uint64_t size, uint32_t object_size)
{
	struct map_head_info head = {
		.id = 1, .size = size, .object_size = object_size, .state = XSEG_VOLUME_READY};
	if (!name_check_volume(name) || size == 0 || !geometry_check(size, object_size))
		return -EINVAL;
	head.id = name_hash(name);
	head.owners[0] = head.id;
	head.owner_count = 1;
	snprintf(head.name, sizeof(head.name), "%s", name);
	if (volume_table_find(shared, head.id))
		return -EEXIST;
	return table_add(shared, &head, true);
}

int volume_table_insert(
	struct volume_shared *shared, const struct map_head_info *head, uint64_t gone)
{
	int rc = volume_table_head_check(head);
	if (rc != 0)
		return rc;
	pthread_mutex_lock(&shared->lock);
	if (gone != atomic_load_explicit(&shared->gone, memory_order_relaxed))
		rc = -EAGAIN;
	else if (!volume_table_find(shared, head->id))
		rc = table_add(shared, head, false);
	pthread_mutex_unlock(&shared->lock);
	return rc;
}

uint64_t volume_table_configured_id(struct volume_shared *shared, const char *name)
{
	uint64_t id = name_hash(name);
	pthread_mutex_lock(&shared->lock);
	struct volume *volume = volume_table_find(shared, id);
	bool found = volume && volume->configured && strcmp(volume->head.name, name) == 0;
	pthread_mutex_unlock(&shared->lock);
	return found ? id : 0;
}

/* --- a shard's cache ------------------------------------------------------------- */

static int cache_reset(struct volume_shard *shard, uint32_t slots)
{
	struct volume_slot *array = malloc(slots * sizeof(*array));
	if (!array)
		return -ENOMEM;
	for (uint32_t i = 0; i < slots; i++)
		array[i] = (struct volume_slot){.volume = &volume_nobody};
	shard->slots = array;
	shard->mask = slots - 1;
	shard->used = 0;
	return 0;
}

static void cache_put(struct volume_shard *shard, struct volume *volume)
{
	uint32_t i = volume_slot_of(shard, volume->id);
	while (shard->slots[i].id != 0)
		i = (i + 1) & shard->mask;
	shard->slots[i] = (struct volume_slot){volume->id, volume};
	shard->used++;
}

/* With the mutex. */
static void volume_unref(struct volume *volume)
{
	must(volume->refs > 0);
	if (--volume->refs == 0 && volume->state == VOLUME_GONE)
		volume_free(volume);
}

/* With the mutex. Room for one more, and nothing that is gone; on -ENOMEM all stays as it is. */
static int cache_rebuild(struct volume_shard *shard)
{
	struct volume_slot *old = shard->slots;
	uint32_t count = shard->mask + 1, used = shard->used;
	int rc = cache_reset(shard, used * 2 + 2 > count ? count * 2 : count);
	if (rc != 0)
		return rc;
	for (uint32_t i = 0; i < count; i++) {
		if (old[i].id == 0)
			continue;
		if (old[i].volume->state == VOLUME_GONE)
			volume_unref(old[i].volume);
		else
			cache_put(shard, old[i].volume);
	}
	free(old);
	return 0;
}

int volume_table_cache_open(struct volume_shard *shard) { return cache_reset(shard, 16); }

void volume_table_cache_close(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	pthread_mutex_lock(&volume_shared(peer)->lock);
	for (uint32_t i = 0; i <= shard->mask; i++)
		if (shard->slots[i].id != 0)
			volume_unref(shard->slots[i].volume);
	pthread_mutex_unlock(&volume_shared(peer)->lock);
	free(shard->slots);
}

/* With the mutex. */
static struct volume *cache_fill(
	struct volume_shared *shared, struct volume_shard *shard, uint64_t id)
{
	uint64_t gone = atomic_load_explicit(&shared->gone, memory_order_relaxed);
	bool full = shard->used * 2 + 2 > shard->mask + 1;
	if ((full || gone != shard->gone_seen) && cache_rebuild(shard) != 0 && full)
		return NULL;
	shard->gone_seen = gone;
	struct volume *volume = volume_table_find(shared, id);
	if (volume) {
		volume->refs++;
		cache_put(shard, volume);
	}
	return volume;
}

struct volume *volume_table_lookup(struct peer *peer, uint64_t id)
{
	struct volume_shared *shared = volume_shared(peer);
	struct volume_shard *shard = peer->state;
	if (id == 0)
		return NULL;
	struct volume *volume = volume_cached(shard, id);
	pthread_mutex_lock(&shared->lock);
	if (volume == &volume_nobody)
		volume = cache_fill(shared, shard, id);
	else if (volume->state == VOLUME_GONE)
		volume = NULL;
	pthread_mutex_unlock(&shared->lock);
	return volume;
}

/* --- its state --------------------------------------------------------------------- */

int volume_table_remove_begin(struct peer *peer, struct volume *volume)
{
	int rc = 0;
	pthread_mutex_lock(&volume_shared(peer)->lock);
	if (volume->configured) {
		rc = -EPERM;
	} else if (volume->state == VOLUME_GONE) {
		rc = -ENOENT;
	} else if (volume->removing) {
		rc = -EBUSY;
	} else {
		sm_move(volume_states, &volume->state, XSEG_VOLUME_REMOVING);
		volume->removing = true;
		atomic_store_explicit(&volume->admitted, 0, memory_order_relaxed);
	}
	pthread_mutex_unlock(&volume_shared(peer)->lock);
	return rc;
}

void volume_table_remove_stop(struct peer *peer, uint64_t id, unsigned state)
{
	pthread_mutex_lock(&volume_shared(peer)->lock);
	struct volume *volume = volume_table_find(volume_shared(peer), id);
	if (volume && volume->removing) {
		sm_move(volume_states, &volume->state, state);
		volume->removing = false;
	}
	pthread_mutex_unlock(&volume_shared(peer)->lock);
}

/* Whoever loads just now may have read the records before they went: `gone` tells him. */
void volume_table_remove_end(struct peer *peer, uint64_t id)
{
	struct volume_shared *shared = volume_shared(peer);
	pthread_mutex_lock(&shared->lock);
	atomic_fetch_add_explicit(&shared->gone, 1, memory_order_relaxed);
	struct volume *volume = volume_table_find(shared, id);
	if (volume && volume->state == XSEG_VOLUME_REMOVING) {
		sm_move(volume_states, &volume->state, VOLUME_GONE);
		LIST_REMOVE(volume, link);
		if (volume->acquired)
			LIST_REMOVE(volume, lease);
		volume->acquired = false;
		shared->count--;
		if (volume->refs == 0)
			volume_free(volume);
	}
	pthread_mutex_unlock(&shared->lock);
}

static void dump_one(struct peer *peer, const struct volume *volume, FILE *out)
{
	const struct map_head_info *head = &volume->head;
	fprintf(out,
		"  %016llx %s: %llu bytes in objects of %u, %s%s%s%s%s, epoch %u, frozen %u, "
		"%u caches",
		(unsigned long long)volume->id, head->name,
		(unsigned long long)atomic_load_explicit(&volume->size, memory_order_relaxed),
		1u << volume->object_shift, volume_states[volume->state].name,
		volume->configured ? ", configured" : "", volume->acquired ? ", lease held" : "",
		volume_is_lost(volume) ? ", lost" : "", volume->quiesce ? ", quiesced" : "",
		atomic_load_explicit(&volume->epoch, memory_order_relaxed),
		atomic_load_explicit(&volume->frozen, memory_order_relaxed), volume->refs);
	for (unsigned lane = 0; lane < XSEG_LANES_MAX; lane++) {
		const struct volume_opener *opener = &volume->opener[lane];
		if (opener->count == 0 && !opener->implied)
			continue;
		fprintf(out, ", lane %u has it open %u times%s%s", lane, opener->count,
			opener->implied ? " and before" : "",
			xseg_lane_alive(peer_segment(peer), lane, opener->epoch) ? "" : " (dead)");
	}
	fputc('\n', out);
}

void volume_table_dump(struct peer *peer, FILE *out)
{
	struct volume_shared *shared = volume_shared(peer);
	struct volume_shard *shard = peer->state;
	fprintf(out, "  shard %u: %u volumes in its cache\n", peer->shard, shard->used);
	if (peer->shard != 0)
		return;
	pthread_mutex_lock(&shared->lock);
	for (unsigned i = 0; i < VOLUME_BUCKETS; i++) {
		const struct volume *volume;
		LIST_FOREACH (volume, &shared->buckets[i], link)
			dump_one(peer, volume, out);
	}
	pthread_mutex_unlock(&shared->lock);
}
