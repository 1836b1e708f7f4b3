/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that wait for room: for buckets, objects, pages. In order, and none is ever refused. */
#include "peers/cache/cache.h"

/* What is dirty here may have to wait for what is dirty on other shards, which are in no hurry. */
static void wait_ask_others(struct peer *peer)
{
	struct cache_local *local;
	TAILQ_FOREACH (local, &cache_of(peer)->writeback.locals, link)
		cache_epoch_raise(&local->volume->wanted, cache_epoch_goal(local));
	cache_volume_wake_others(peer);
}

void cache_wait(struct peer *peer, struct job *job)
{
	struct cache *cache = cache_of(peer);
	if (cache->waiting.count++ == 0 && cache->waiting.retried != job && peer->shards > 1)
		wait_ask_others(peer);
	cache->hurry = true; /* what is dirty holds the room that is waited for */
	if (cache->waiting.retried == job) {
		TAILQ_INSERT_HEAD(&cache->waiting.jobs, job, link);
		return;
	}
	TAILQ_INSERT_TAIL(&cache->waiting.jobs, job, link);
	peer_count(peer, CACHE_WAITS, 1);
}

/* At most those that wait now: one that has to wait once more is at the head again. */
bool cache_wait_turn(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	bool moved = false;
	for (uint32_t left = cache->waiting.count; unlikely(left > 0); left--) {
		struct job *job = TAILQ_FIRST(&cache->waiting.jobs);
		TAILQ_REMOVE(&cache->waiting.jobs, job, link);
		cache->waiting.count--;
		cache->waiting.retried = job;
		cache_again(peer, job);
		cache->waiting.retried = NULL;
		if (TAILQ_FIRST(&cache->waiting.jobs) == job)
			break;
		moved = true;
	}
	return moved;
}
