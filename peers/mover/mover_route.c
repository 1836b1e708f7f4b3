/* SPDX-License-Identifier: Apache-2.0 */
/* Which store a request goes to. Most are handed on at once; who must wait is served again. */
#include "peers/mover/mover.h"

static bool is_change(const struct job *job)
{
	return job->op == XSEG_OP_WRITE || job->op == XSEG_OP_ZERO || job->op == XSEG_OP_DISCARD ||
	       job->op == XSEG_OP_DELETE || job->op == XSEG_OP_COPY;
}

/* May the object be gone when it is answered? */
static bool may_delete(const struct job *job)
{
	return job->op == XSEG_OP_DELETE || job->op == XSEG_OP_DISCARD || job->op == XSEG_OP_ZERO;
}

/* --- waiting ---------------------------------------------------------------------------------- */

void mover_route_wait(struct mover *mover, struct job *job)
{
	peer_count(mover->peer, MOVER_C_WAITS, 1);
	TAILQ_INSERT_TAIL(&mover->waiting, job, link);
}

void mover_route_wake(struct mover *mover)
{
	struct job_queue waiting = TAILQ_HEAD_INITIALIZER(waiting);
	struct job *job;
	TAILQ_CONCAT(&waiting, &mover->waiting, link);
	while ((job = TAILQ_FIRST(&waiting))) {
		TAILQ_REMOVE(&waiting, job, link);
		mover_route_serve(mover->peer, job);
	}
}

static bool retry(struct peer *peer, void *context)
{
	mover_route_serve(peer, context);
	return true;
}

void mover_route_retry(struct job *job) { peer_retry(job->peer, retry, job); }

/* --- counted ------------------------------------------------------------------------------ */

void mover_route_ended(struct mover *mover, struct mover_object *object, bool change)
{
	if (change)
		object->changes--;
	else
		object->reads--;
	if (object->member || object->group->counting || object->reads + object->changes > 0)
		return;
	mover_group_object_forget(mover, object);
	mover_step_settled(mover);
}

static void counted_done(struct call *call)
{
	struct job *job = call->context;
	struct mover_object *object = call->context2;
	struct mover *mover = mover_of(job->peer);
	mover_route_ended(mover, object, is_change(job));
	if (call->result)
		job_fail_value(job, call->result, call->value);
	else
		job_complete_value(job, call->answer_length, call->value);
	call_end(call);
}

static void counted_send(struct job *job, struct mover_object *object, unsigned store)
{
	struct call *call = NULL;
	int rc = call_begin(job->peer, &call);
	if (rc == 0) {
		call_as(call, job);
		call->context = job;
		call->context2 = object;
		rc = job->data_size > 0 ? call_borrow(call, job, 0, job->data_size) : 0;
	}
	if (rc != 0) {
		if (call)
			call_end(call);
		mover_route_retry(job);
		return;
	}
	if (is_change(job))
		object->changes++;
	else
		object->reads++;
	call_submit(call, store, counted_done);
}

/* --- objects ------------------------------------------------------------------------------ */

static bool must_wait(const struct mover_object *object, bool changes, bool deletes)
{
	return object->closing || (object->busy && changes) || (object->litter && deletes);
}

/* Where an object is; *object: it is counted. False: no memory to count it. */
static bool locate(struct mover *mover, const struct xseg_key *key, unsigned *store,
	struct mover_object **object)
{
	struct mover_group *group = mover_group_find(mover, key->volume);
	*object = NULL;
	*store = group ? mover_group_rest(group) : MOVER_OLD;
	if (!group || (!group->counting && group->phase != MOVER_COPYING))
		return true;
	*object = group->counting ? mover_group_object_get(mover, group, key)
				  : mover_group_object(mover, key);
	if (*object && (*object)->member)
		*store = !group->to;
	return *object || !group->counting;
}

static void wait_for(struct mover *mover, const struct mover_object *object, struct job *job)
{
	if (object->litter && !object->busy)
		mover_step_want(mover, object);
	mover_route_wait(mover, job);
}

static void serve_object(struct mover *mover, struct job *job)
{
	struct mover_object *object;
	unsigned store;
	if (!locate(mover, &job->key, &store, &object))
		mover_route_retry(job);
	else if (!object)
		job_forward(job, store);
	else if (must_wait(object, is_change(job), may_delete(job)))
		wait_for(mover, object, job);
	else
		counted_send(job, object, store);
}

static void serve_copy(struct mover *mover, struct job *job)
{
	struct xseg_key from = store_copy_source(job);
	struct mover_object *object, *source;
	unsigned to_store, from_store;
	if (!locate(mover, &job->key, &to_store, &object) ||
		!locate(mover, &from, &from_store, &source))
		mover_route_retry(job);
	else if (!object && !source && to_store == from_store)
		job_forward(job, to_store);
	else if (object && must_wait(object, true, true))
		wait_for(mover, object, job);
	else if (source && must_wait(source, false, false))
		mover_route_wait(mover, job);
	else
		mover_ask_copy(mover, job, from_store, source, to_store, object);
}

/* --- records -------------------------------------------------------------------------------- */

/* Of a volume that has something of one in a group: a snapshot or clone that is being made. */
struct mover_group *mover_route_joins(const struct mover *mover, const struct job *job)
{
	uint64_t owners[MOVER_OWNERS_COUNT + 1];
	if (job->key.epoch != XSEG_EPOCH_VOLUME || job->arg1 != XSEG_CAS_PUT ||
		job->data_size < XSEG_RECORD_MAX)
		return NULL;
	job_get_bytes(job, MOVER_PARENT, owners, sizeof(*owners));
	job_get_bytes(job, MOVER_OWNERS, owners + 1, MOVER_OWNERS_COUNT * sizeof(*owners));
	for (unsigned i = 0; i <= MOVER_OWNERS_COUNT; i++) {
		struct mover_group *group = owners[i] ? mover_group_find(mover, owners[i]) : NULL;
		if (group)
			return group;
	}
	return NULL;
}

/* While a group is on its way its records are in the new store, under other numbers. */
static void serve_record(struct mover *mover, struct job *job)
{
	struct mover_group *group = mover_group_find(mover, job->key.volume);
	if (job->key.epoch == XSEG_EPOCH_NAME) {
		mover_ask_name(mover, job);
		return;
	}
	struct mover_group *joins = group ? NULL : mover_route_joins(mover, job);
	if (joins && mover_group_is_astray(mover, joins)) {
		job_fail(job, -EBUSY);
		return;
	}
	if (joins && !mover_group_is_resident(mover, joins)) {
		mover_step_join(mover, job);
		return;
	}
	if (joins) {
		mover_group_reside(mover, job->key.volume);
		group = joins;
	}
	if (group && group->held) {
		mover_route_wait(mover, job);
		return;
	}
	if (job->arg1 == XSEG_CAS_GET && !mover_group_is_ours(mover, group)) {
		mover_find(mover, job);
		return;
	}
	if (mover_group_is_astray(mover, group)) {
		job_fail(job, -EBUSY);
		return;
	}
	bool hidden = group && group->phase == MOVER_COPYING;
	if (hidden)
		job->key.object |= MOVER_HIDDEN;
	job_forward(job, hidden ? MOVER_NEW : group ? mover_group_rest(group) : MOVER_OLD);
}

/* --- volumes ------------------------------------------------------------------------------ */

/* FLUSH, FENCE and LEAVE concern all places where the volume may have something. What we copy
   afterwards is durable when it is answered, as LEAVE wants it. */
static void serve_volume(struct mover *mover, struct job *job)
{
	struct mover_group *group = mover_group_find(mover, job->key.volume);
	if (group && group->held && job->op == XSEG_OP_CONTROL)
		mover_route_wait(mover, job);
	else if (group && (group->counting || group->phase == MOVER_COPYING))
		mover_ask_both(job);
	else
		job_forward(job, group ? mover_group_rest(group) : MOVER_OLD);
}

void mover_route_serve(struct peer *peer, struct job *job)
{
	struct mover *mover = mover_of(peer);
	if (unlikely(!mover->loaded)) {
		mover_route_wait(mover, job);
		return;
	}
	switch (job->op) {
	case XSEG_OP_CAS: serve_record(mover, job); break;
	case XSEG_OP_LIST: mover_ask_list(mover, job); break;
	case XSEG_OP_COPY: serve_copy(mover, job); break;
	case XSEG_OP_FLUSH: serve_volume(mover, job); break;
	case XSEG_OP_CONTROL:
		if (job->arg0 >= MOVER_BEGIN && job->arg0 <= MOVER_ROOM)
			mover_step_control(mover, job);
		else
			serve_volume(mover, job);
		break;
	default: serve_object(mover, job);
	}
}
