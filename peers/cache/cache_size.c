/* SPDX-License-Identifier: Apache-2.0 */
/* How much the cache may hold: in all, and on each shard. */
#include "peers/cache/cache.h"

#define SIZE_BUCKETS_MIN 256u /* of a shard: what one write-back, or one fill, takes */
#define SIZE_OBJECTS_MIN 64u

uint64_t cache_size_max(const struct peer *peer)
{
	uint64_t pages = peer_segment(peer)->page_count;
	return (pages - pages / 4) * XSEG_PAGE;
}

uint64_t cache_size_min(const struct peer *peer)
{
	return (uint64_t)SIZE_BUCKETS_MIN * XSEG_PAGE * peer->shards;
}

uint32_t cache_size_objects_of(const struct peer *peer, uint64_t buckets)
{
	uint64_t all = cache_options(peer)->objects;
	if (all == 0)
		all = buckets / 16 < 1024 ? 1024 : buckets / 16;
	all = (all + peer->shards - 1) / peer->shards;
	return (uint32_t)(all < SIZE_OBJECTS_MIN ? SIZE_OBJECTS_MIN : all);
}

uint32_t cache_size_objects(const struct peer *peer)
{
	return cache_size_objects_of(peer, atomic_load(&cache_shared(peer)->size) / XSEG_PAGE);
}

void cache_size_apply(struct peer *peer)
{
	cache_of(peer)->asked.shrinking = true;
	uint64_t buckets = atomic_load(&cache_shared(peer)->size) / XSEG_PAGE;
	cache_of(peer)->objects_max = cache_size_objects_of(peer, buckets);
	xcache_limit(cache_of(peer)->index, cache_of(peer)->objects_max,
		(uint32_t)(buckets / peer->shards));
	if (peer->shard == 0)
		atomic_store_explicit(&peer->stats->counters[PEER_COUNTER(CACHE_SIZE)],
			buckets * XSEG_PAGE, memory_order_relaxed);
}

void cache_size_fit(struct peer *first)
{
	struct cache_shared *shared = cache_shared(first);
	uint64_t size = atomic_load(&shared->size);
	if (size == 0)
		size = cache_size_max(first) / 3 * 2;
	if (size > cache_size_max(first))
		size = cache_size_max(first);
	if (size < cache_size_min(first))
		size = cache_size_min(first);
	atomic_store(&shared->size, size / XSEG_PAGE * XSEG_PAGE);
	if (!shared->journal && atomic_load(&shared->ack) == CACHE_ACK_JOURNAL)
		atomic_store(&shared->ack, CACHE_ACK_BLOCKER);
}
