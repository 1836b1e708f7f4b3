/* SPDX-License-Identifier: Apache-2.0 */
/* Write-back: answered when the data is in buckets, which are dirty in the open epoch. */
#include <base/crash.h>
#include <errno.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_work.h"

/* Room for `count` more of its share; what it has and is clean goes first. */
static bool writeback_has_share(struct peer *peer, struct cache_local *local, uint32_t count)
{
	return likely(cache_volume_allows(peer, local, count)) ||
	       (cache_bucket_evict_local(peer, local, count) >= count &&
		       cache_volume_allows(peer, local, count));
}

/* A small cache could not hold it beside what is on its way. */
static bool writeback_is_large(const struct peer *peer, uint32_t count)
{
	uint64_t size =
		atomic_load_explicit(&cache_shared(peer)->size, memory_order_relaxed) / XSEG_PAGE;
	return unlikely(count > 64) && (uint64_t)count * peer->shards > size / 2;
}

/* What cannot be kept as the request's page is copied: FUA is answered later. */
static int writeback_try(struct peer *peer, struct cache_object *object, struct job *job)
{
	struct cache_local *local = object->local;
	bool fua = job->flags & XSEG_F_FUA;
	uint32_t epoch = cache_epoch_enter(peer, local);
	int error = cache_write_buckets(
		peer, object, job, epoch, !fua && (job->flags & XSEG_F_DONATE) != 0);
	if (unlikely(error == -EAGAIN)) {
		cache_epoch_leave(peer);
		return error;
	}
	if (unlikely(error))
		cache_epoch_leave(peer); /* it may have added nothing */
	if (unlikely(error))
		job_fail(job, error);
	else if (unlikely(fua))
		cache_sync_write(peer, local, job, epoch);
	else
		job_complete(job, job->length);
	crash_point("cache.writeback.answered");
	cache_write_end(peer);
	return 0;
}

/*
 * When there is no room, a write that finds nothing dirty in its place may overtake what is dirty
 * elsewhere: had anybody flushed in between, that would be at the store. Where a FLUSH is answered
 * before that (ack), it may not; nor to a store that fails.
 */
static bool writeback_may_pass(
	struct peer *peer, const struct cache_object *object, uint32_t first, uint32_t count)
{
	const struct cache_local *local = object->local;
	uint32_t ack = atomic_load_explicit(&local->volume->ack, memory_order_relaxed);
	return ack == CACHE_ACK_BLOCKER && local->retry_ns == 0 &&
	       local->bypass_ns <= peer_now_ns(peer) &&
	       atomic_load_explicit(&local->volume->error, memory_order_relaxed) == 0 &&
	       !cache_bucket_any_dirty(peer, object, first, count);
}

static void writeback_write(struct peer *peer, struct cache_object *object, struct job *job)
{
	uint32_t first = (uint32_t)job->offset / XSEG_PAGE;
	uint32_t count = ((uint32_t)job->offset + job->length - 1) / XSEG_PAGE - first + 1;
	if (unlikely(writeback_is_large(peer, count)) ||
		unlikely(!writeback_has_share(peer, object->local, count))) {
		cache_mode_writethrough_write(peer, object, job, false);
		return;
	}
	enum cache_room room = CACHE_ROOM_NONE;
	if (likely(!cache_object_is_bypassing(object)))
		room = cache_epoch_room(peer, count);
	bool bypass = unlikely(room != CACHE_ROOM_ENOUGH) &&
		      writeback_may_pass(peer, object, first, count);
	if (likely(room != CACHE_ROOM_NONE) && likely(!bypass) &&
		likely(writeback_try(peer, object, job) == 0))
		return;
	if (bypass || writeback_may_pass(peer, object, first, count)) {
		cache_mode_writethrough_bypass(peer, object, job);
		return;
	}
	/* the pool is low: clean buckets are the first to go */
	if (peer_pages_low(peer))
		xcache_evict(cache_of(peer)->index, 2 * count);
	cache_wait(peer, job);
}

const struct cache_mode_ops cache_mode_writeback = {
	.name = "writeback",
	.write = writeback_write,
};
