/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes: to the far store, and to the near one where that has something of it. Until both have
 * answered, whoever changes the same bytes waits, so that both stores have the same in the end.
 *
 * job->progress: 0, or what it ends with when the log says what is not present any more:
 * CHANGE_DONE, or an error. job->guess: CHANGE_*.
 */
#include "peers/tier/tier.h"

#define CHANGE_DONE UINT32_MAX
enum { CHANGE_NEAR = 1, CHANGE_NEAR_FAILED = 2, CHANGE_COPIES = 4 };

static bool is_whole_object(const struct job *job) { return job->op == XSEG_OP_DELETE; }

uint64_t tier_change_mask(const struct job *job)
{
	return is_whole_object(job) ? UINT64_MAX : tier_touched(job->offset, job->length);
}

void tier_change_spoil(struct tier_object *object)
{
	struct job *job;
	TAILQ_FOREACH (job, &object->writes, link)
		job->guess |= CHANGE_NEAR_FAILED;
}

/* The chunks that are present when it has been done near. */
static uint64_t covered(const struct job *job)
{
	return is_whole_object(job) ? 0 : tier_whole(job->offset, job->length);
}

static bool overlap(const struct job *a, const struct job *b)
{
	return is_whole_object(a) || is_whole_object(b) ||
	       (a->offset < b->offset + b->length && b->offset < a->offset + a->length);
}

static bool is_in_the_way(const struct tier_object *object, const struct job *job)
{
	const struct job *other;
	TAILQ_FOREACH (other, &object->writes, link)
		if (overlap(job, other))
			return true;
	return object->copies > 0 || tier_fill_stores(object, tier_change_mask(job));
}

static void block(struct tier_object *object, struct job *job)
{
	TAILQ_INSERT_TAIL(&object->blocked, job, link);
}

/* Of a COPY: its source, when the near store has all that is copied. */
static struct tier_object *near_source(const struct tier *tier, const struct job *job)
{
	struct xseg_key key = store_copy_source(job);
	struct tier_object *source = tier_object_find(tier, &key);
	bool whole = source && !(tier_touched(job->offset, job->length) & ~source->present);
	return whole && !source->evicting && TAILQ_EMPTY(&source->writes) ? source : NULL;
}

static bool goes_near(const struct tier *tier, const struct tier_object *object,
	const struct job *job, const struct tier_object *source)
{
	if (tier->state != TIER_STATE_ON || !tier_object_may_be_kept(object))
		return false;
	if (job->op == XSEG_OP_COPY)
		return source != NULL;
	if (is_whole_object(job))
		return object->present != 0 || object->logged != 0;
	return (object->present & tier_change_mask(job)) || covered(job);
}

/* --- the end -------------------------------------------------------------------------------- */

static void finish(struct tier *tier, struct tier_object *object, struct job *job)
{
	uint64_t missing = tier_change_mask(job) & ~object->present;
	if (job->progress == CHANGE_DONE) {
		if (!is_whole_object(job))
			tier_pull_want(tier, object, missing, TIER_WANT_ALL);
		job_complete(job, job->tries);
	} else {
		job_fail(job, -(int)job->progress);
	}
}

static bool log_is_behind(const struct tier_object *object)
{
	return (object->logged & ~object->present) != 0;
}

static void changed(struct job *job, int error)
{
	struct tier *tier = tier_of(job->peer);
	struct tier_object *object = job->context;
	uint64_t mask = tier_change_mask(job), present = object->present;
	TAILQ_REMOVE(&object->writes, job, link);
	if (job->guess & CHANGE_COPIES) {
		struct xseg_key key = store_copy_source(job);
		struct tier_object *source = tier_object_find(tier, &key);
		if (--source->copies == 0)
			tier_object_wake(tier, source);
	}
	if (error || !(job->guess & CHANGE_NEAR) || (job->guess & CHANGE_NEAR_FAILED))
		present &= ~mask;
	else
		present = (is_whole_object(job) ? 0 : present) | covered(job);
	tier_object_present(tier, object, present);
	if (error == -ESTALE && !object->volume->lost) {
		object->volume->lost = true; /* another host may have written to all of it */
		tier_object_drop(tier, object->volume);
	}
	job->progress = error ? (uint32_t)-error : CHANGE_DONE;
	if (log_is_behind(object)) {
		tier_log_urgent(tier, object);
		block(object, job);
	} else {
		finish(tier, object, job);
	}
	tier_object_wake(tier, object);
}

static void look_far(struct call *call) { call->job->tries = call->answer_length; }

static void look_near(struct call *call)
{
	if (!call->result)
		return;
	call->job->guess |= CHANGE_NEAR_FAILED;
	peer_count(call->peer, TIER_C_ERRORS, 1);
	call->result = 0;
}

/* --- the way there ---------------------------------------------------------------------------- */

static int prepare(struct job *job, bool near, struct call **out)
{
	int error = call_begin(job->peer, out);
	if (error)
		return error;
	struct call *call = *out;
	call_as(call, job);
	if (near) {
		call->flags &= ~(unsigned)(XSEG_F_FUA | XSEG_F_FAST_ONLY);
		if (job->op != XSEG_OP_COPY)
			call->arg1 = 0; /* the near store knows of no terms */
	}
	return job->op == XSEG_OP_WRITE ? call_borrow(call, job, 0, job->length) : 0;
}

static void send(struct tier_object *object, struct job *job, bool near, struct tier_object *source)
{
	struct call *far_call = NULL, *near_call = NULL;
	int error = prepare(job, false, &far_call);
	if (!error && near)
		error = prepare(job, true, &near_call);
	if (error) {
		if (far_call)
			call_end(far_call);
		if (near_call)
			call_end(near_call);
		tier_serve_retry(job);
		return;
	}
	job->context = object;
	job->guess = near ? CHANGE_NEAR : 0;
	if (near && source) {
		job->guess |= CHANGE_COPIES;
		source->copies++; /* it stays as it is meanwhile */
	}
	uint32_t end = (uint32_t)((job->offset + job->length + TIER_CHUNK - 1) / TIER_CHUNK);
	if (object->grown < end)
		object->grown = end;
	if (object->extent != 0 && object->extent < end)
		object->extent = end;
	tier_fill_poison(object, tier_change_mask(job));
	object->doubt &= ~tier_change_mask(job);
	object->written = true;
	tier_log_changed(tier_of(job->peer), object);
	TAILQ_INSERT_TAIL(&object->writes, job, link);
	job_fan(job, changed);
	call_submit_part(far_call, job, TIER_FAR, look_far);
	if (near_call)
		call_submit_part(near_call, job, TIER_NEAR, look_near);
	job_fan_ready(job);
}

void tier_change(struct tier *tier, struct tier_object *object, struct job *job)
{
	if (job->progress != 0) {
		if (log_is_behind(object))
			block(object, job);
		else
			finish(tier, object, job);
		return;
	}
	struct tier_object *source = job->op == XSEG_OP_COPY ? near_source(tier, job) : NULL;
	bool near = goes_near(tier, object, job, source);
	/* what was present is not, when only the far store gets it: that too must be durable */
	bool unsure = object->logged != 0 && !object->unstable;
	if (is_in_the_way(object, job)) {
		block(object, job);
	} else if (unsure && (near || (object->logged & tier_change_mask(job)))) {
		tier_log_urgent(tier, object);
		block(object, job);
	} else {
		send(object, job, near, source);
	}
}
