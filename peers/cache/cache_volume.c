/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes of the process, each shard's part of them, and what they take of the cache. */
#include <errno.h>
#include <sys/mman.h>

#include "peers/cache/cache.h"

#define VOLUME_MASK (CACHE_VOLUME_SLOTS - 1u)

static uint32_t volume_hash(uint64_t id) { return (uint32_t)(id * 0x9e3779b97f4a7c15ull >> 40); }

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
	atomic_store(&volume->through, 1);
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
				atomic_store(&volume->stored, epoch);
				atomic_store(&volume->open, epoch + 1);
				atomic_store(&volume->touched, epoch);
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

static struct cache_flow_list *flow_chain(struct cache *cache, uint64_t volume)
{
	return &cache->flows[volume_hash(volume) % CACHE_FLOW_CHAINS];
}

static struct cache_flow *flow_make(struct peer *peer, uint64_t id)
{
	struct cache *cache = cache_of(peer);
	struct cache_volume *volume = cache_volume_get(peer, id);
	if (!volume)
		return NULL;
	struct cache_flow *flow = cache_pool_get(&cache->pools.flows);
	must(flow); /* there are as many as volumes */
	*flow = (struct cache_flow){.volume = volume};
	flow->failures_seen = atomic_load(&volume->failures);
	TAILQ_INIT(&flow->epochs);
	TAILQ_INIT(&flow->syncs);
	TAILQ_INIT(&flow->barriers);
	LIST_INSERT_HEAD(flow_chain(cache, id), flow, chain);
	return flow;
}

struct cache_flow *cache_flow_find(struct peer *peer, uint64_t volume)
{
	struct cache_flow *flow;
	LIST_FOREACH (flow, flow_chain(cache_of(peer), volume), chain)
		if (atomic_load_explicit(&flow->volume->id, memory_order_relaxed) == volume)
			return flow;
	return NULL;
}

struct cache_flow *cache_flow_get(struct peer *peer, uint64_t volume)
{
	struct cache *cache = cache_of(peer);
	struct cache_flow *flow = cache->last_flow;
	if (likely(flow && atomic_load_explicit(&flow->volume->id, memory_order_relaxed) == volume))
		return flow;
	flow = cache_flow_find(peer, volume);
	if (!flow)
		flow = flow_make(peer, volume);
	if (flow)
		cache->last_flow = flow;
	return flow;
}

/* --- what they take ---------------------------------------------------------------------- */

bool cache_flow_allowed(const struct peer *peer, const struct cache_flow *flow, uint32_t count)
{
	const struct cache_volume *volume = flow->volume;
	uint32_t share = atomic_load_explicit(&volume->share, memory_order_relaxed);
	if (likely(share == 0 || share >= 100))
		return true;
	uint64_t size = atomic_load_explicit(&cache_shared(peer)->size, memory_order_relaxed);
	uint64_t used = atomic_load_explicit(&volume->used, memory_order_relaxed);
	return used == 0 || used + count <= size / XSEG_PAGE * share / 100;
}

/* Other shards are told once a turn, not for each bucket: their lines are not ours. */
void cache_flow_changed(struct peer *peer, struct cache_flow *flow)
{
	if (flow->untold)
		return;
	flow->untold = true;
	LIST_INSERT_HEAD(&cache_of(peer)->untold, flow, untold_link);
}

void cache_flow_used(struct peer *peer, struct cache_flow *flow, int32_t count)
{
	flow->used += (uint32_t)count;
	cache_flow_changed(peer, flow);
}

static void flow_tell(struct peer *peer, struct cache_flow *flow)
{
	struct cache_shared *shared = cache_shared(peer);
	int64_t used = (int64_t)flow->used - flow->used_told;
	int64_t dirty = (int64_t)flow->dirty - flow->dirty_told;
	flow->used_told = flow->used;
	flow->dirty_told = flow->dirty;
	if (used) {
		atomic_fetch_add(&flow->volume->used, (uint64_t)used);
		atomic_fetch_add(&shared->used, (uint32_t)used);
		peer_count(peer, CACHE_USED, (uint64_t)(used * XSEG_PAGE));
	}
	if (dirty) {
		cache_of(peer)->writeback.dirty_told += (uint32_t)dirty;
		atomic_fetch_add(&flow->volume->dirty, (uint64_t)dirty);
		atomic_fetch_add(&shared->dirty, (uint32_t)dirty);
		peer_count(peer, CACHE_DIRTY, (uint64_t)(dirty * XSEG_PAGE));
	}
}

void cache_flow_tell(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	struct cache_flow *flow;
	while ((flow = LIST_FIRST(&cache->untold))) {
		LIST_REMOVE(flow, untold_link);
		flow->untold = false;
		flow_tell(peer, flow);
	}
}

void cache_wake_others(struct peer *peer)
{
	atomic_fetch_add(&cache_shared(peer)->pulse, 1);
	for (unsigned i = 0; i < peer->shards; i++)
		if (i != peer->shard)
			peer_wake(peer, i);
}
