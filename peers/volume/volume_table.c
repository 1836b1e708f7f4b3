/* SPDX-License-Identifier: Apache-2.0 */
/* Which volumes this process has loaded, the shards' shortcuts to them, and who has them open. */
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xseg/registry.h>

#include "peers/volume/volume.h"

/*
 *   IMPORTING --import done--> READY
 *       `---.        .-----------'  ^ ^
 *      remove      remove           | |
 *            v     v                | |  (nothing was
 *            REMOVING --------------'-'   changed yet)
 *               |
 *               `--record and name deleted--> GONE
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

static struct volume_shared *shared_of(const struct peer *peer) { return peer->shared; }

static struct volume_list *bucket_of(struct volume_shared *shared, uint64_t id)
{
	return &shared->buckets[(id * 0x9e3779b97f4a7c15ull) >> 32 & (VOLUME_BUCKETS - 1)];
}

static struct volume *table_find(struct volume_shared *shared, uint64_t id)
{
	struct volume *volume;
	LIST_FOREACH(volume, bucket_of(shared, id), link)
	if (volume->record.id == id)
		return volume;
	return NULL;
}

static uint64_t object_count(const struct volume_record *record)
{
	return (record->size - 1) / record->object_size + 1;
}

static size_t present_size(const struct volume_record *record)
{
	return (size_t)((object_count(record) + 63) / 64 * 8);
}

static void volume_free(struct volume *volume)
{
	if (volume->present)
		munmap(volume->present, present_size(&volume->record));
	free(volume);
}

static struct volume *volume_new(const struct volume_record *record, _Atomic uint64_t *present)
{
	struct volume *volume = calloc(1, sizeof(*volume));
	if (!volume)
		return NULL;
	volume->record = *record;
	volume->size = record->size;
	volume->object_shift = (unsigned)__builtin_ctz(record->object_size);
	volume->read_only = record->flags & XSEG_VOLUME_READ_ONLY;
	volume->state = (uint8_t)record->state;
	volume->present = present;
	return volume;
}

int volume_table_open(struct volume_shared *shared)
{
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

int volume_table_add_fixed(struct volume_shared *shared, const struct volume_record *record)
{
	if (table_find(shared, record->id))
		return -EEXIST;
	struct volume *volume = volume_new(record, NULL);
	if (!volume)
		return -ENOMEM;
	volume->fixed
	= true;
	LIST_INSERT_HEAD(bucket_of(shared, record->id), volume, link);
	shared->count++;
	return 0;
}

/* Two shards may load one volume at once; what the later one saw is true of the first's, too. */
static void merge_present(struct volume *volume, const _Atomic uint64_t *present)
{
	for (size_t i = 0; i < present_size(&volume->record) / 8; i++)
		if (present[i])
			atomic_fetch_or_explicit(
				&volume->present[i], present[i], memory_order_relaxed);
}

static int table_insert(struct volume_shared *shared, const struct volume_record *record,
	_Atomic uint64_t **present, uint64_t gone)
{
	if (gone != atomic_load_explicit(&shared->gone, memory_order_relaxed))
		return -EAGAIN;
	struct volume *volume = table_find(shared, record->id);
	if (volume) {
		if (volume->present && present_size(&volume->record) == present_size(record))
			merge_present(volume, *present);
		return 0;
	}
	if (shared->count >= VOLUME_COUNT_MAX)
		return -ENFILE;
	volume = volume_new(record, *present);
	if (!volume)
		return -ENOMEM;
	*present = NULL;
	LIST_INSERT_HEAD(bucket_of(shared, record->id), volume, link);
	shared->count++;
	return 0;
}

int volume_table_insert(struct volume_shared *shared, const struct volume_record *record,
	_Atomic uint64_t *present, uint64_t gone)
{
	pthread_mutex_lock(&shared->lock);
	int rc = table_insert(shared, record, &present, gone);
	pthread_mutex_unlock(&shared->lock);
	if (present)
		munmap(present, present_size(record));
	return rc;
}

uint64_t volume_table_fixed_id(struct volume_shared *shared, const char *name)
{
	uint64_t id = volume_name_hash(name);
	pthread_mutex_lock(&shared->lock);
	struct volume *volume = table_find(shared, id);
	bool found = volume && volume->fixed
	&&strcmp(volume->record.name, name) == 0;
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
	uint32_t i = volume_slot_of(shard, volume->record.id);
	while (shard->slots[i].id != 0)
		i = (i + 1) & shard->mask;
	shard->slots[i] = (struct volume_slot){volume->record.id, volume};
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

int volume_cache_open(struct volume_shard *shard) { return cache_reset(shard, 16); }

void volume_cache_close(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	pthread_mutex_lock(&shared_of(peer)->lock);
	for (uint32_t i = 0; i <= shard->mask; i++)
		if (shard->slots[i].id != 0)
			volume_unref(shard->slots[i].volume);
	pthread_mutex_unlock(&shared_of(peer)->lock);
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
	struct volume *volume = table_find(shared, id);
	if (volume) {
		volume->refs++;
		cache_put(shard, volume);
	}
	return volume;
}

struct volume *volume_find(struct peer *peer, uint64_t id)
{
	struct volume_shared *shared = shared_of(peer);
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

/* --- who has it open -------------------------------------------------------------- */

struct volume_client volume_client_of(const struct peer *peer, const struct job *job)
{
	const struct xseg *seg = peer_segment(peer);
	uint16_t epoch = *(const volatile uint16_t *)&seg->requests[job->slot].client_epoch;
	return (struct volume_client){.lane = job->client % XSEG_LANES_MAX, .epoch = epoch};
}

/* With the mutex. The client's own entry; a lane of that number before it is dead. */
static struct volume_opener *opener_of(struct volume *volume, struct volume_client client)
{
	struct volume_opener *opener = &volume->opener[client.lane];
	if (opener->epoch != client.epoch)
		*opener = (struct volume_opener){.epoch = client.epoch};
	return opener;
}

static void admit_set(struct volume *volume, struct volume_client client)
{
	atomic_fetch_or_explicit(&volume->admitted, 1ull << client.lane, memory_order_relaxed);
}

static void admit_clear(struct volume *volume, unsigned lane)
{
	atomic_fetch_and_explicit(&volume->admitted, ~(1ull << lane), memory_order_relaxed);
}

static bool is_leaving(const struct volume *volume)
{
	return volume->state == XSEG_VOLUME_REMOVING || volume->state == VOLUME_GONE;
}

int volume_admit(struct peer *peer, struct volume *volume, struct volume_client client)
{
	int rc = -ENOENT;
	pthread_mutex_lock(&shared_of(peer)->lock);
	if (!is_leaving(volume)) {
		struct volume_opener *opener = opener_of(volume, client);
		if (opener->count == 0)
			opener->implied = true;
		admit_set(volume, client);
		rc = 0;
	}
	pthread_mutex_unlock(&shared_of(peer)->lock);
	return rc;
}

int volume_opened(struct peer *peer, struct volume *volume, struct volume_client client,
	bool writes, uint64_t again)
{
	int rc = 0;
	pthread_mutex_lock(&shared_of(peer)->lock);
	if (is_leaving(volume)) {
		rc = -EBUSY;
	} else if (writes && volume->read_only) {
		rc = -EROFS;
	} else {
		struct volume_opener *opener = opener_of(volume, client);
		uint64_t count = again != 0 ? again : opener->count + 1u;
		if (count > opener->count && count < UINT32_MAX)
			opener->count = (uint32_t)count;
		opener->implied &= again == 0; /* it tells us all that it has open */
		admit_set(volume, client);
	}
	pthread_mutex_unlock(&shared_of(peer)->lock);
	return rc;
}

/*
 * More closes than opens: they were opened before this process began. Whoever works on without
 * is noticed again at his next request.
 */
void volume_closed(struct peer *peer, struct volume *volume, struct volume_client client)
{
	pthread_mutex_lock(&shared_of(peer)->lock);
	struct volume_opener *opener = opener_of(volume, client);
	if (opener->count > 0) {
		opener->count--;
	} else {
		opener->implied = false;
		admit_clear(volume, client.lane);
	}
	pthread_mutex_unlock(&shared_of(peer)->lock);
}

/* With the mutex. Forgets the dead; `but` alone may be at work without having opened it. */
static uint32_t count_opens(struct peer *peer, struct volume *volume, struct volume_client but)
{
	uint32_t count = 0;
	for (unsigned lane = 0; lane < XSEG_LANES_MAX; lane++) {
		struct volume_opener *opener = &volume->opener[lane];
		if (opener->count == 0 && !opener->implied)
			continue;
		if (!xseg_lane_alive(peer_segment(peer), lane, opener->epoch)) {
			*opener = (struct volume_opener){0};
			admit_clear(volume, lane);
			continue;
		}
		bool own = lane == but.lane && opener->epoch == but.epoch;
		count += opener->count + (opener->implied && opener->count == 0 && !own);
	}
	return count;
}

static uint64_t count_objects(const struct volume *volume)
{
	if (!volume->present)
		return object_count(&volume->record);
	uint64_t count = 0;
	for (size_t i = 0; i < present_size(&volume->record) / 8; i++)
		count += (uint64_t)__builtin_popcountll(volume->present[i]);
	return count;
}

void volume_describe(struct peer *peer, struct volume *volume, struct xseg_volume_info *info)
{
	const struct volume_record *record = &volume->record;
	memset(info, 0, sizeof(*info));
	pthread_mutex_lock(&shared_of(peer)->lock);
	info->id = record->id;
	info->size = record->size;
	info->object_size = record->object_size;
	info->state = volume->state == VOLUME_GONE ? XSEG_VOLUME_REMOVING : volume->state;
	info->objects = count_objects(volume);
	info->created_ns = record->created_ns;
	info->opens = count_opens(peer, volume, (struct volume_client){.lane = UINT16_MAX});
	info->flags = record->flags | (volume->fixed ? XSEG_VOLUME_FIXED : 0);
	memcpy(info->name, record->name, sizeof(info->name));
	pthread_mutex_unlock(&shared_of(peer)->lock);
}

/* --- its state --------------------------------------------------------------------- */

bool volume_state_may(unsigned from, unsigned to)
{
	return from != XSEG_VOLUME_REMOVING && to != XSEG_VOLUME_REMOVING &&
	       sm_may(volume_states, from, to);
}

int volume_state_set(struct peer *peer, struct volume *volume, unsigned state)
{
	pthread_mutex_lock(&shared_of(peer)->lock);
	bool may = volume_state_may(volume->state, state);
	if (may)
		sm_move(volume_states, &volume->state, state);
	pthread_mutex_unlock(&shared_of(peer)->lock);
	return may ? 0 : -EINVAL;
}

int volume_remove_begin(
	struct peer *peer, struct volume *volume, struct volume_client client, unsigned *before)
{
	int rc = 0;
	pthread_mutex_lock(&shared_of(peer)->lock);
	*before = volume->state;
	if (volume->fixed) {
		rc = -EPERM;
	} else if (volume->state == VOLUME_GONE) {
		rc = -ENOENT;
	} else if (volume->removing || count_opens(peer, volume, client) > 0) {
		rc = -EBUSY;
	} else {
		sm_move(volume_states, &volume->state, XSEG_VOLUME_REMOVING);
		volume->removing = true;
		atomic_store_explicit(&volume->admitted, 0, memory_order_relaxed);
	}
	pthread_mutex_unlock(&shared_of(peer)->lock);
	return rc;
}

void volume_remove_stop(struct peer *peer, uint64_t id, unsigned state)
{
	pthread_mutex_lock(&shared_of(peer)->lock);
	struct volume *volume = table_find(shared_of(peer), id);
	if (volume && volume->removing) {
		sm_move(volume_states, &volume->state, state);
		volume->removing = false;
	}
	pthread_mutex_unlock(&shared_of(peer)->lock);
}

/* Whoever loads just now may have read the records before they went: `gone` tells him. */
void volume_remove_end(struct peer *peer, uint64_t id)
{
	struct volume_shared *shared = shared_of(peer);
	pthread_mutex_lock(&shared->lock);
	atomic_fetch_add_explicit(&shared->gone, 1, memory_order_relaxed);
	struct volume *volume = table_find(shared, id);
	if (volume && volume->state == XSEG_VOLUME_REMOVING) {
		sm_move(volume_states, &volume->state, VOLUME_GONE);
		LIST_REMOVE(volume, link);
		shared->count--;
		if (volume->refs == 0)
			volume_free(volume);
	}
	pthread_mutex_unlock(&shared->lock);
}

static void dump_one(struct peer *peer, const struct volume *volume, FILE *out)
{
	const struct volume_record *record = &volume->record;
	fprintf(out, "  %016llx %s: %llu bytes in objects of %u, %s%s, %u caches",
		(unsigned long long)record->id, record->name, (unsigned long long)record->size,
		record->object_size, volume_states[volume->state].name,
		volume->fixed ? ", fixed" : "", volume->refs);
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
	struct volume_shared *shared = shared_of(peer);
	struct volume_shard *shard = peer->state;
	fprintf(out, "  shard %u: %u volumes in its cache\n", peer->shard, shard->used);
	if (peer->shard != 0)
		return;
	pthread_mutex_lock(&shared->lock);
	for (unsigned i = 0; i < VOLUME_BUCKETS; i++) {
		const struct volume *volume;
		LIST_FOREACH(volume, &shared->buckets[i], link)
		dump_one(peer, volume, out);
	}
	pthread_mutex_unlock(&shared->lock);
}
