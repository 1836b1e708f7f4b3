/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Write-through: answered when the store has it; then buckets take it over. Nobody else reads or
 * writes that part of the object meanwhile.
 *
 * To keep it costs a call of our own, a copy, and a page. Where that is not worth it
 * (cache_admit.h) most writes are forwarded as they are instead (cache_bypass.c), as all are that
 * are to leave nothing behind.
 */
#include <base/container.h>
#include <base/crash.h>
#include <errno.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_work.h"

#define THROUGH_BYPASS_AGAIN_NS 100000000u /* no write past a store that has refused one */

bool cache_mode_writethrough_forwards(struct cache_local *local, uint32_t mode)
{
	if (mode != CACHE_WRITETHROUGH)
		return mode == CACHE_WRITEAROUND;
	return !cache_admit(&local->writes);
}

static void through_end(struct peer *peer, struct cache_work *work)
{
	cache_range_unlock(peer, &work->range);
	slab_give(&cache_of(peer)->pools.works, work);
}

/* Failed: nobody knows what the store has of it. */
static void through_finalize(struct peer *peer, struct cache_work *work, int error)
{
	struct cache_object *object = work->object;
	cache_sync_wrote(peer, object->local);
	/* what went past says nothing of what keeping costs */
	if (!work->bypass)
		cache_admit_call(&object->local->writes, cache_of(peer)->idle_ns - work->idle_ns);
	if (error || work->around || work->job->op != XSEG_OP_WRITE)
		cache_bucket_forget(peer, object, work->range.first, work->range.count);
	else
		cache_write_clean(peer, object, work->job, !work->bypass);
}

/* Who is not to hear of it waits: the write-back it then becomes is tried again and again. */
static void through_refused(struct peer *peer, struct cache_work *work)
{
	struct job *job = work->job;
	work->object->local->bypass_ns = peer_now_ns(peer) + THROUGH_BYPASS_AGAIN_NS;
	through_end(peer, work);
	cache_wait(peer, job);
}

static void through_done(struct call *call)
{
	struct peer *peer = call->peer;
	struct cache_work *work = call->context;
	struct job *job = work->job;
	int error = call->result;
	call_end(call);
	cache_of(peer)->writes_through--;
	crash_point("cache.through.written");
	through_finalize(peer, work, error);
	crash_point("cache.through.settled");
	if (error && work->bypass) {
		through_refused(peer, work);
		return;
	}
	if (error)
		job_fail(job, error);
	else
		job_complete(job, job->length);
	through_end(peer, work);
}

static bool through_send(struct peer *peer, void *context)
{
	struct cache_work *work = context;
	struct job *job = work->job;
	struct call *call;
	if (call_begin(peer, &call))
		return false;
	call_as(call, job);
	call->context = work;
	if (job->op == XSEG_OP_WRITE && call_borrow(call, job, 0, job->length)) {
		call_end(call);
		return false;
	}
	cache_of(peer)->writes_through++;
	call_submit(call, CACHE_STORE, through_done);
	return true;
}

/* Nothing of it is dirty any more. */
static void through_go(struct peer *peer, struct cache_work *work)
{
	struct cache_range *range = &work->range;
	work->idle_ns = cache_of(peer)->idle_ns;
	/* which of both the store has in the end nobody could say */
	work->around |= cache_bypass_overlaps(peer, work->object, range->first, range->count);
	if (work->around || work->job->op != XSEG_OP_WRITE)
		cache_bucket_forget(peer, work->object, range->first, range->count);
	else
		cache_write_invalidate(peer, work->object, work->job);
	if (!through_send(peer, work))
		peer_retry(peer, through_send, work);
}

static void through_is_durable(struct peer *peer, struct cache_barrier *barrier)
{
	through_go(peer, barrier->context);
}

/* What is dirty from before, in another mode, has to be there first. */
static void through_enter(struct peer *peer, struct cache_range *range)
{
	struct cache_work *work = container_of(range, struct cache_work, range);
	if (likely(!cache_bucket_any_dirty(peer, work->object, range->first, range->count))) {
		through_go(peer, work);
		return;
	}
	work->barrier = (struct cache_barrier){.done = through_is_durable, .context = work};
	cache_flush_barrier(peer, work->object->local, &work->barrier);
}

static void through_begin(
	struct peer *peer, struct cache_object *object, struct job *job, bool around, bool bypass)
{
	struct cache_work *work = slab_take(&cache_of(peer)->pools.works);
	uint32_t first = (uint32_t)job->offset / XSEG_PAGE;
	if (unlikely(!work)) {
		cache_wait(peer, job);
		return;
	}
	work->range = (struct cache_range){.first = first,
		.count = ((uint32_t)job->offset + job->length - 1) / XSEG_PAGE - first + 1,
		.exclusive = true,
		.go = through_enter};
	work->object = object;
	work->job = job;
	work->around = around;
	work->bypass = bypass;
	if (cache_range_lock(peer, object, &work->range))
		through_enter(peer, &work->range);
}

void cache_mode_writethrough_write(
	struct peer *peer, struct cache_object *object, struct job *job, bool around)
{
	through_begin(peer, object, job, around, false);
}

void cache_mode_writethrough_bypass(struct peer *peer, struct cache_object *object, struct job *job)
{
	uint32_t count = ((uint32_t)job->offset + job->length - 1) / XSEG_PAGE -
			 (uint32_t)job->offset / XSEG_PAGE + 1;
	object->local->tally.bypasses += count;
	cache_tally(cache_of(peer), object->local);
	peer_count(peer, CACHE_BYPASSES, count);
	through_begin(peer, object, job, false, true);
}

static void writethrough_write(struct peer *peer, struct cache_object *object, struct job *job)
{
	cache_mode_writethrough_write(peer, object, job, false);
}

const struct cache_mode_ops cache_mode_writethrough = {
	.name = "writethrough",
	.write = writethrough_write,
};
