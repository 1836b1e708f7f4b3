/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes of the process, each shard's part of them, and what they take of the cache. */
#include <base/hash.h>
#include <errno.h>
#include <sys/mman.h>

#include "peers/cache/cache.h"

#define VOLUME_MASK (CACHE_VOLUME_SLOTS - 1u)

static uint32_t volume_hash(uint64_t id) { return (uint32_t)(hash_u64(id) >> 40); }

/* Its slot, or the free one where it would be. */
static struct cache_volume *volume_slot(const struct cache_shared *shared, uint64_t id)
{
	for (uint32_t i = volume_hash(id);; i++) {
		struct cache_volume *volume = &shared->volumes[i & VOLUME_MASK];
		uint64_t found = atomic_load_explicit(&volume->id, memory_order_acquire);
		if (found == id || found == 0)
			return volume;
	}
}

/* `through` is ahead of what was flushed: what a predecessor has written may not be on the disk. */
static void volume_init(const struct cache_shared *shared, struct cache_volume *volume)
{
	atomic_store(&volume->mode, atomic_load(&shared->mode));
	atomic_store(&volume->ack, atomic_load(&shared->ack));
	atomic_store(&volume->share, atomic_load(&shared->share));
	atomic_store(&volume->open, 1);
	atomic_store(&volume->forwarded, 1);
	for (unsigned i = 0; i < XSEG_PORT_LANES_MAX; i++) {
		atomic_store(&volume->low[i], CACHE_NO_EPOCH);
		atomic_store(&volume->written_low[i], CACHE_NO_EPOCH);
	}
}

struct cache_volume *cache_volume_find(const struct peer *peer, uint64_t id)
{
	struct cache_volume *volume = volume_slot(cache_shared(peer), id);
	return atomic_load_explicit(&volume->id, memory_order_acquire) == id ? volume : NULL;
}

struct cache_volume *cache_volume_get(struct peer *peer, uint64_t id)
{
	struct cache_shared *shared = cache_shared(peer);
	struct cache_volume *volume = cache_volume_find(peer, id);
	uint32_t epoch;
	if (volume || id == 0)
		return volume;
	must(pthread_mutex_lock(&shared->lock) == 0);
	volume = volume_slot(shared, id);
	if (atomic_load(&volume->id) == 0) {
		if (atomic_load(&shared->volume_count) == CACHE_VOLUMES_MAX) {
			volume = NULL;
		} else {
			volume_init(shared, volume);
			if (shared->journal && cache_journal_newest(shared->journal, id, &epoch)) {
				atomic_store(&volume->durable, epoch);
				atomic_store(&volume->open, epoch + 1);
				atomic_store(&volume->touched, epoch);
				atomic_store(&volume->plain, epoch);
				atomic_store(&volume->unsettled, epoch);
			}
			atomic_store_explicit(&volume->id, id, memory_order_release);
			atomic_fetch_add(&shared->volume_count, 1);
		}
	}
	must(pthread_mutex_unlock(&shared->lock) == 0);
	return volume;
}

int cache_volume_open(struct peer *first)
{
	struct cache_shared *shared = cache_shared(first);
	void *memory = mmap(NULL, CACHE_VOLUME_SLOTS * sizeof(struct cache_volume),
		PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	shared->volumes = memory;
	must(pthread_mutex_init(&shared->lock, NULL) == 0);
	return 0;
}

void cache_volume_close(struct peer *first)
{
	struct cache_shared *shared = cache_shared(first);
	if (!shared->volumes)
		return;
	munmap(shared->volumes, CACHE_VOLUME_SLOTS * sizeof(struct cache_volume));
	shared->volumes = NULL;
	must(pthread_mutex_destroy(&shared->lock) == 0);
}

/* --- a shard's part ---------------------------------------------------------------------- */

static struct cache_local_list *local_chain(struct cache *cache, uint64_t volume)
{
	return &cache->locals[volume_hash(volume) % CACHE_LOCAL_CHAINS];
}

static struct cache_local *local_make(struct peer *peer, uint64_t id)
{
	struct cache *cache = cache_of(peer);
	struct cache_volume *volume = cache_volume_get(peer, id);
	if (!volume)
		return NULL;
	struct cache_local *local = slab_take(&cache->pools.locals);
	must(local); /* there are as many as volumes */
	*local = (struct cache_local){.volume = volume};
	local->failures_seen = atomic_load(&volume->failures);
	TAILQ_INIT(&local->epochs);
	TAILQ_INIT(&local->syncs);
	TAILQ_INIT(&local->barriers);
	LIST_INSERT_HEAD(local_chain(cache, id), local, chain);
	return local;
}

struct cache_local *cache_volume_local_find(struct peer *peer, uint64_t volume)
{
	struct cache_local *local;
	LIST_FOREACH (local, local_chain(cache_of(peer), volume), chain)
		if (atomic_load_explicit(&local->volume->id, memory_order_relaxed) == volume)
			return local;
	return NULL;
}

struct cache_local *cache_volume_local_get(struct peer *peer, uint64_t volume)
{
	struct cache *cache = cache_of(peer);
	struct cache_local *local = cache->last_local;
	if (likely(local &&
		    atomic_load_explicit(&local->volume->id, memory_order_relaxed) == volume))
		return local;
	local = cache_volume_local_find(peer, volume);
	if (!local)
		local = local_make(peer, volume);
	if (local)
		cache->last_local = local;
	return local;
}

/* --- what they take ---------------------------------------------------------------------- */

bool cache_volume_allows(const struct peer *peer, const struct cache_local *local, uint32_t count)
{
	const struct cache_volume *volume = local->volume;
	uint32_t share = atomic_load_explicit(&volume->share, memory_order_relaxed);
	if (likely(share == 0 || share >= 100))
		return true;
	uint64_t size = atomic_load_explicit(&cache_shared(peer)->size, memory_order_relaxed);
	uint64_t used = atomic_load_explicit(&volume->used, memory_order_relaxed);
	return used == 0 || used + count <= size / XSEG_PAGE * share / 100;
}

/* Other shards are told once a turn, not for each bucket: their lines are not ours. */
void cache_volume_changed(struct peer *peer, struct cache_local *local)
{
	if (local->unpublished)
		return;
	local->unpublished = true;
	LIST_INSERT_HEAD(&cache_of(peer)->unpublished, local, unpublished_link);
}

void cache_volume_use(struct peer *peer, struct cache_local *local, int32_t count)
{
	local->used += (uint32_t)count;
	cache_volume_changed(peer, local);
}

static void local_tell(struct peer *peer, struct cache_local *local)
{
	struct cache_shared *shared = cache_shared(peer);
	int64_t used = (int64_t)local->used - local->used_published;
	int64_t dirty = (int64_t)local->dirty - local->dirty_published;
	local->used_published = local->used;
	local->dirty_published = local->dirty;
	if (used) {
		atomic_fetch_add(&local->volume->used, (uint64_t)used);
		atomic_fetch_add(&shared->used, (uint32_t)used);
		peer_count(peer, CACHE_USED, (uint64_t)(used * XSEG_PAGE));
	}
	if (dirty) {
		cache_of(peer)->writeback.dirty_published += (uint32_t)dirty;
		atomic_fetch_add(&local->volume->dirty, (uint64_t)dirty);
		atomic_fetch_add(&shared->dirty, (uint32_t)dirty);
		peer_count(peer, CACHE_DIRTY, (uint64_t)(dirty * XSEG_PAGE));
	}
}

void cache_volume_publish(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	struct cache_local *local;
	while ((local = LIST_FIRST(&cache->unpublished))) {
		LIST_REMOVE(local, unpublished_link);
		local->unpublished = false;
		local_tell(peer, local);
	}
}

void cache_volume_wake_others(struct peer *peer)
{
	atomic_fetch_add(&cache_shared(peer)->pulse, 1);
	for (unsigned i = 0; i < peer->shards; i++)
		if (i != peer->shard)
			peer_wake(peer, i);
}
