/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store has to do itself: zeroes and discards of more than a little, deleting, copying,
 * and questions about objects. All that is dirty goes before it, so that nothing comes after it
 * which is older; meanwhile nobody else has that part of the object.
 */
#include <base/crash.h>
#include <errno.h>

#include "peers/cache/cache_flush.h"

#define BAR_ZERO_MAX 65536u /* bytes: fewer are written like any others */

struct bar {
	struct cache_hold hold;
	struct cache_barrier own, source;
	struct peer *peer;
	struct job *job;
	struct cache_object *object;
	struct cache_flow *flow;
	unsigned pending; /* barriers */
};
fixed(sizeof(struct bar) <= CACHE_BAR_SIZE);

/* Records, and all while the cache passes on and has nothing in it. */
static bool bar_is_passed(struct peer *peer, const struct job *job)
{
	return job->key.epoch > XSEG_EPOCH_DATA_MAX || job->key.volume == 0 ||
	       (cache_phase_now(peer) == CACHE_PASSING && xcache_count(cache_of(peer)->index) == 0);
}

static struct bar *bar_new(struct peer *peer, struct job *job, struct cache_flow *flow)
{
	struct bar *bar = cache_pool_get(&cache_of(peer)->bars);
	must(bar); /* there are as many as requests */
	*bar = (struct bar){.peer = peer, .job = job, .flow = flow};
	return bar;
}

/* --- changes ----------------------------------------------------------------------------- */

static void bar_end(struct bar *bar)
{
	struct peer *peer = bar->peer;
	uint32_t index = bar->object->index;
	cache_gate_leave(peer, &bar->hold);
	xcache_unref_object(cache_of(peer)->index, index);
	cache_pool_put(&cache_of(peer)->bars, bar);
}

static void bar_answered(struct call *call)
{
	struct bar *bar = call->context;
	struct job *job = bar->job;
	int error = call->result;
	uint32_t length = call->answer_length;
	uint64_t value = call->value;
	cache_sync_wrote(bar->peer, bar->flow);
	call_end(call);
	bar_end(bar);
	if (error)
		job_fail_value(job, error, value);
	else
		job_complete_value(job, length, value);
}

static bool bar_send(struct peer *peer, void *context)
{
	struct bar *bar = context;
	const struct job *job = bar->job;
	struct call *call;
	if (call_begin(peer, &call))
		return false;
	call_as(call, job);
	call->context = bar;
	crash_point("cache.bar.before_store");
	call_submit(call, CACHE_STORE, bar_answered);
	return true;
}

/* Nothing that is older than the job is on its way. */
static void bar_go(struct bar *bar)
{
	struct peer *peer = bar->peer;
	if (--bar->pending > 0)
		return;
	cache_bucket_forget(peer, bar->object, bar->hold.first, bar->hold.count);
	bar->object->changes++;
	crash_point("cache.bar.forgotten");
	if (!bar_send(peer, bar))
		peer_retry(peer, bar_send, bar);
}

static void bar_flushed(struct peer *peer, struct cache_barrier *barrier)
{
	(void)peer;
	bar_go(barrier->context);
}

static void bar_held(struct peer *peer, struct cache_hold *hold)
{
	struct bar *bar = hold->context;
	struct cache_flow *source = NULL;
	if (bar->job->op == XSEG_OP_COPY && bar->job->arg1 != bar->job->key.volume)
		source = cache_flow_get(peer, bar->job->arg1);
	bar->own = (struct cache_barrier){.done = bar_flushed, .context = bar};
	bar->source = bar->own;
	bar->pending = 2 + (source != NULL);
	cache_flush_barrier(peer, bar->flow, &bar->own);
	if (source)
		cache_flush_barrier(peer, source, &bar->source);
	bar_go(bar);
}

static bool bar_try(struct peer *peer, void *context)
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
	struct bar *bar = bar_new(peer, job, object->flow);
	bool whole = job->op == XSEG_OP_DELETE;
	uint32_t first = whole ? 0 : (uint32_t)job->offset / XSEG_PAGE;
	uint32_t end = whole ? XCACHE_BUCKETS
			     : ((uint32_t)job->offset + job->length + XSEG_PAGE - 1) / XSEG_PAGE;
	bar->object = object;
	bar->hold = (struct cache_hold){.object = object,
		.first = first,
		.count = end - first,
		.exclusive = true,
		.go = bar_held,
		.context = bar};
	if (cache_gate_enter(peer, object, &bar->hold))
		bar_held(peer, &bar->hold);
	return true;
}

static void bar_change(struct peer *peer, struct job *job)
{
	bool in_object = job->op == XSEG_OP_DELETE ||
			 (job->length && job->offset + job->length <= XSEG_OBJECT_MAX);
	if (bar_is_passed(peer, job) || !in_object)
		job_forward(job, CACHE_STORE);
	else if (!bar_try(peer, job))
		peer_retry(peer, bar_try, job);
}

void cache_bar_discard(struct peer *peer, struct job *job) { bar_change(peer, job); }
void cache_bar_delete(struct peer *peer, struct job *job) { bar_change(peer, job); }
void cache_bar_copy(struct peer *peer, struct job *job) { bar_change(peer, job); }

void cache_bar_zero(struct peer *peer, struct job *job)
{
	struct cache_flow *flow = NULL;
	bool plain = !(job->flags & (XSEG_F_NO_HOLE | XSEG_F_FAST_ONLY)) &&
		     job->length <= BAR_ZERO_MAX && !bar_is_passed(peer, job);
	if (plain && cache_phase_now(peer) == CACHE_CACHING)
		flow = cache_flow_get(peer, job->key.volume);
	if (flow && atomic_load(&flow->volume->mode) == CACHE_WRITEBACK)
		cache_io_write(peer, job);
	else
		bar_change(peer, job);
}

/* --- questions --------------------------------------------------------------------------- */

static void bar_pass(struct peer *peer, struct cache_barrier *barrier)
{
	struct bar *bar = barrier->context;
	struct job *job = bar->job;
	cache_pool_put(&cache_of(peer)->bars, bar);
	job_forward(job, CACHE_STORE);
}

/* The store knows when it has all that we have. */
static void bar_ask(struct peer *peer, struct job *job, struct cache_flow *flow)
{
	struct bar *bar = bar_new(peer, job, flow);
	bar->own = (struct cache_barrier){.done = bar_pass, .context = bar};
	cache_flush_barrier(peer, flow, &bar->own);
}

/* Who cannot wait hears that there is such an object; how large it is the store will know. */
static void bar_there(struct job *job)
{
	const struct xseg_object_info info = {.size = XSEG_SECTOR, .allocated = XSEG_SECTOR};
	job_put_bytes(job, 0, &info, sizeof(info));
	job_complete(job, sizeof(info));
}

static void bar_question(struct peer *peer, struct job *job)
{
	struct cache_object *object =
		bar_is_passed(peer, job) ? NULL : cache_object_find(peer, &job->key);
	bool dirty = object && cache_bucket_any_dirty(peer, object, 0, XCACHE_BUCKETS);
	if (dirty && job->op == XSEG_OP_INFO && (job->flags & XSEG_F_FAST_ONLY) &&
		job->data_size >= sizeof(struct xseg_object_info))
		bar_there(job);
	else if (dirty)
		bar_ask(peer, job, object->flow);
	else
		job_forward(job, CACHE_STORE);
}

void cache_bar_info(struct peer *peer, struct job *job) { bar_question(peer, job); }
void cache_bar_status(struct peer *peer, struct job *job) { bar_question(peer, job); }

/* Objects that only we know of are at the store before it begins; the list is its own. */
void cache_bar_list(struct peer *peer, struct job *job)
{
	struct cache_flow *flow = NULL;
	if (!bar_is_passed(peer, job) && job->arg0 == 0)
		flow = cache_flow_get(peer, job->key.volume);
	if (flow)
		bar_ask(peer, job, flow);
	else
		job_forward(job, CACHE_STORE);
}
