/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store has to do itself: zeroes and discards of more than a little, deleting, copying,
 * and questions about objects. All that is dirty goes before it, so that nothing comes after it
 * which is older; meanwhile nobody else has that part of the object.
 */
#include <base/crash.h>
#include <errno.h>
#include <peer/store.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_object.h"

struct barrier_op {
	struct cache_range range;
	struct cache_barrier own, source;
	struct peer *peer;
	struct job *job;
	struct cache_object *object;
	struct cache_local *local;
	unsigned pending; /* barriers */
};
fixed(sizeof(struct barrier_op) <= CACHE_BARRIER_SIZE);

/* Records, and all while the cache passes on and has nothing in it. */
static bool barrier_is_passed(struct peer *peer, const struct job *job)
{
	return job->key.epoch > XSEG_EPOCH_DATA_MAX || job->key.volume == 0 ||
	       (cache_phase_now(peer) == CACHE_PASSING && xcache_count(cache_of(peer)->index) == 0);
}

static struct barrier_op *barrier_new(struct peer *peer, struct job *job, struct cache_local *local)
{
	struct barrier_op *op = slab_take(&cache_of(peer)->pools.barriers);
	must(op); /* there are as many as requests */
	*op = (struct barrier_op){.peer = peer, .job = job, .local = local};
	return op;
}

/* --- changes ----------------------------------------------------------------------------- */

static void barrier_end(struct barrier_op *op)
{
	struct peer *peer = op->peer;
	uint32_t index = op->object->index;
	cache_range_unlock(peer, &op->range);
	xcache_unref_object(cache_of(peer)->index, index);
	slab_give(&cache_of(peer)->pools.barriers, op);
}

static void barrier_answered(struct call *call)
{
	struct barrier_op *op = call->context;
	struct job *job = op->job;
	int error = call->result;
	uint32_t length = call->answer_length;
	uint64_t value = call->value;
	cache_sync_wrote(op->peer, op->local);
	call_end(call);
	barrier_end(op);
	if (error)
		job_fail_value(job, error, value);
	else
		job_complete_value(job, length, value);
}

static bool barrier_send(struct peer *peer, void *context)
{
	struct barrier_op *op = context;
	const struct job *job = op->job;
	struct call *call;
	if (call_begin(peer, &call))
		return false;
	call_as(call, job);
	call->context = op;
	crash_point("cache.op.before_store");
	call_submit(call, CACHE_STORE, barrier_answered);
	return true;
}

/* Nothing that is older than the job is on its way. */
static void barrier_go(struct barrier_op *op)
{
	struct peer *peer = op->peer;
	if (--op->pending > 0)
		return;
	cache_bucket_forget(peer, op->object, op->range.first, op->range.count);
	op->object->changes++;
	crash_point("cache.op.forgotten");
	if (!barrier_send(peer, op))
		peer_retry(peer, barrier_send, op);
}

static void barrier_flushed(struct peer *peer, struct cache_barrier *barrier)
{
	(void)peer;
	barrier_go(barrier->context);
}

static void barrier_held(struct peer *peer, struct cache_range *range)
{
	struct barrier_op *op = range->context;
	struct cache_local *source = NULL;
	if (op->job->op == XSEG_OP_COPY && op->job->arg1 != op->job->key.volume)
		source = cache_volume_local_get(peer, op->job->arg1);
	op->own = (struct cache_barrier){.done = barrier_flushed, .context = op};
	op->source = op->own;
	op->pending = 2 + (source != NULL);
	cache_flush_barrier(peer, op->local, &op->own);
	if (source)
		cache_flush_barrier(peer, source, &op->source);
	barrier_go(op);
}

static bool barrier_try(struct peer *peer, void *context)
{
	struct job *job = context;
	struct cache_object *object;
	int error = cache_object_get(peer, &job->key, &object);
	if (error == -EMFILE) {
		job_forward(job, CACHE_STORE);
		return true;
	}
	if (error)
		return false;
	xcache_ref_object(cache_of(peer)->index, object->index);
	struct barrier_op *op = barrier_new(peer, job, object->local);
	bool whole = job->op == XSEG_OP_DELETE;
	uint32_t first = whole ? 0 : (uint32_t)job->offset / XSEG_PAGE;
	uint32_t end = whole ? XCACHE_BUCKETS
			     : ((uint32_t)job->offset + job->length + XSEG_PAGE - 1) / XSEG_PAGE;
	op->object = object;
	op->range = (struct cache_range){.object = object,
		.first = first,
		.count = end - first,
		.exclusive = true,
		.go = barrier_held,
		.context = op};
	if (cache_range_lock(peer, object, &op->range))
		barrier_held(peer, &op->range);
	return true;
}

static void barrier_change(struct peer *peer, struct job *job)
{
	bool in_object = job->op == XSEG_OP_DELETE ||
			 (job->length && job->offset + job->length <= XSEG_OBJECT_MAX);
	if (barrier_is_passed(peer, job) || !in_object)
		job_forward(job, CACHE_STORE);
	else if (!barrier_try(peer, job))
		peer_retry(peer, barrier_try, job);
}

void cache_barrier_discard(struct peer *peer, struct job *job) { barrier_change(peer, job); }
void cache_barrier_delete(struct peer *peer, struct job *job) { barrier_change(peer, job); }
void cache_barrier_copy(struct peer *peer, struct job *job) { barrier_change(peer, job); }

void cache_barrier_zero(struct peer *peer, struct job *job) { barrier_change(peer, job); }

/* --- questions --------------------------------------------------------------------------- */

static void barrier_pass(struct peer *peer, struct cache_barrier *barrier)
{
	struct barrier_op *op = barrier->context;
	struct job *job = op->job;
	slab_give(&cache_of(peer)->pools.barriers, op);
	job_forward(job, CACHE_STORE);
}

/* The store knows when it has all that we have. */
static void barrier_ask(struct peer *peer, struct job *job, struct cache_local *local)
{
	struct barrier_op *op = barrier_new(peer, job, local);
	op->own = (struct cache_barrier){.done = barrier_pass, .context = op};
	cache_flush_barrier(peer, local, &op->own);
}

/* Who cannot wait hears that there is such an object; how large it is the store will know. */
static void barrier_there(struct job *job)
{
	const struct xseg_object_info info = {.size = XSEG_SECTOR, .allocated = XSEG_SECTOR};
	job_put_bytes(job, 0, &info, sizeof(info));
	job_complete(job, sizeof(info));
}

static void barrier_question(struct peer *peer, struct job *job)
{
	struct cache_object *object =
		barrier_is_passed(peer, job) ? NULL : cache_object_find(peer, &job->key);
	bool dirty = object && cache_bucket_any_dirty(peer, object, 0, XCACHE_BUCKETS);
	if (dirty && job->op == XSEG_OP_INFO && (job->flags & XSEG_F_FAST_ONLY) &&
		job->data_size >= sizeof(struct xseg_object_info))
		barrier_there(job);
	else if (dirty)
		barrier_ask(peer, job, object->local);
	else
		job_forward(job, CACHE_STORE);
}

void cache_barrier_info(struct peer *peer, struct job *job) { barrier_question(peer, job); }

/* What we have of it. */
static void barrier_cached(struct peer *peer, struct job *job)
{
	const struct cache_object *object = cache_object_find(peer, &job->key);
	struct store_status status = {.job = job};
	uint64_t value;
	STORE_FOREACH (piece, job) {
		bool is_here = object && xcache_lookup(cache_of(peer)->index, object->index,
						 piece.page) != XCACHE_NONE;
		if (!store_status_flags(&status, piece.size, is_here ? XSEG_STATUS_CACHED : 0))
			break;
	}
	int answer = store_status_end(&status, &value);
	store_answer(job, answer, value);
}

void cache_barrier_status(struct peer *peer, struct job *job)
{
	bool is_ours = (job->flags & XSEG_F_FAST_ONLY) && !barrier_is_passed(peer, job) &&
		       job->length && job->offset + job->length <= XSEG_OBJECT_MAX;
	if (is_ours)
		barrier_cached(peer, job);
	else
		barrier_question(peer, job);
}

/* Objects that only we know of are at the store before it begins; the list is its own. */
void cache_barrier_list(struct peer *peer, struct job *job)
{
	struct cache_local *local = NULL;
	if (!barrier_is_passed(peer, job) && job->arg0 == 0)
		local = cache_volume_local_get(peer, job->key.volume);
	if (local)
		barrier_ask(peer, job, local);
	else
		job_forward(job, CACHE_STORE);
}
