/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that concern both stores: lists, names, what is flushed, what is copied across. */
#include <base/bytes.h>

#include "peers/mover/mover.h"

/* --- the same to both ----------------------------------------------------------------------- */

static void both_look(struct call *call)
{
	struct job *job = call->job;
	if (call->result == -EOPNOTSUPP && job->op == XSEG_OP_CONTROL) {
		job->progress++;
		call->result = 0;
	}
}

static void both_done(struct job *job, int error)
{
	if (error != 0 || job->progress == 2)
		job_fail(job, error ? error : -EOPNOTSUPP);
	else
		job_complete(job, 0);
}

void mover_ask_both(struct job *job)
{
	struct call *calls[2] = {NULL, NULL};
	for (unsigned store = 0; store < 2; store++)
		if (call_begin(job->peer, &calls[store]) != 0) {
			if (calls[0])
				call_end(calls[0]);
			mover_route_retry(job);
			return;
		}
	job->progress = 0;
	job_fan(job, both_done);
	for (unsigned store = 0; store < 2; store++) {
		call_as(calls[store], job);
		call_submit_part(calls[store], job, store, both_look);
	}
	job_fan_ready(job);
}

/* --- lists -------------------------------------------------------------------------------- */

struct list {
	struct job *job;
	struct call *calls[2];
	unsigned pending;
};

/* As cursors count: <peer/store.h>. */
static uint64_t place_of(const struct xseg_key *key)
{
	return store_record_is(key) ? key->volume : (uint64_t)key->object << 32 | key->epoch;
}

/* What a mapper may see of it. False: nothing. */
static bool list_show(struct mover *mover, unsigned store, struct xseg_key *key)
{
	if (!store_record_is(key)) {
		const struct mover_object *object = mover_group_object(mover, key);
		/* a copy of one that counts in the other store */
		return !object || !object->member || store == !object->group->to;
	}
	if (key->epoch == XSEG_EPOCH_VOLUME && key->object & MOVER_GROUP_OBJECT)
		return false;
	if (key->epoch != XSEG_EPOCH_NAME)
		key->object &= ~MOVER_HIDDEN;
	return true;
}

static int compare(const void *a, const void *b) { return store_key_compare(a, b); }

static void list_answer(struct mover *mover, struct list *ask)
{
	struct store_list list = {.job = ask->job};
	struct mover_keys keys = {0};
	uint64_t value, limit = UINT64_MAX;
	for (unsigned store = 0; store < 2; store++)
		if (ask->calls[store]->value != 0 && ask->calls[store]->value < limit)
			limit = ask->calls[store]->value;
	for (unsigned store = 0; store < 2; store++) {
		struct call *call = ask->calls[store];
		uint32_t count = call->answer_length / (uint32_t)sizeof(struct xseg_key);
		for (uint32_t i = 0; i < count; i++) {
			struct xseg_key key;
			call_get_bytes(call, i * (uint32_t)sizeof(key), &key, sizeof(key));
			if (place_of(&key) < limit && list_show(mover, store, &key))
				mover_group_keys_add(&keys, key);
		}
	}
	if (keys.count > 0)
		qsort(keys.all, keys.count, sizeof(*keys.all), compare);
	for (size_t i = 0; i < keys.count; i++)
		if (i == 0 || store_key_compare(&keys.all[i - 1], &keys.all[i]) != 0)
			store_list_add(&list, keys.all[i]);
	free(keys.all);
	int bytes = store_list_end(&list, &value);
	if (value == 0 && limit != UINT64_MAX)
		value = limit;
	store_answer(ask->job, bytes, value);
}

static void list_done(struct call *call)
{
	struct list *ask = call->context;
	if (--ask->pending > 0)
		return;
	int error = ask->calls[0]->result ? ask->calls[0]->result : ask->calls[1]->result;
	if (error)
		job_fail(ask->job, error);
	else
		list_answer(mover_of(call->peer), ask);
	call_end(ask->calls[0]);
	call_end(ask->calls[1]);
	free(ask);
}

static bool list_begin(struct list *ask, unsigned store)
{
	const struct job *job = ask->job;
	if (call_begin(job->peer, &ask->calls[store]) != 0)
		return false;
	call_as(ask->calls[store], job);
	ask->calls[store]->context = ask;
	return call_pages(ask->calls[store], job->length) == 0;
}

void mover_ask_list(struct mover *mover, struct job *job)
{
	struct mover_group *group = mover_group_find(mover, job->key.volume);
	if (!store_record_is(&job->key) &&
		(!group || (!group->counting && group->phase != MOVER_COPYING))) {
		job_forward(job, group ? mover_group_rest(group) : MOVER_OLD);
		return;
	}
	struct list *ask = calloc(1, sizeof(*ask));
	if (ask)
		*ask = (struct list){.job = job, .pending = 2};
	if (!ask || !list_begin(ask, MOVER_OLD) || !list_begin(ask, MOVER_NEW)) {
		for (unsigned store = 0; ask && store < 2; store++)
			if (ask->calls[store])
				call_end(ask->calls[store]);
		free(ask);
		mover_route_retry(job);
		return;
	}
	call_submit(ask->calls[MOVER_OLD], MOVER_OLD, list_done);
	call_submit(ask->calls[MOVER_NEW], MOVER_NEW, list_done);
}

/* --- names -------------------------------------------------------------------------------- */

static void name_look(struct mover *mover, unsigned store);

static void name_next(struct mover *mover)
{
	if (!TAILQ_EMPTY(&mover->names))
		name_look(mover, MOVER_OLD);
}

static void name_forward(struct mover *mover, struct job *job, unsigned store)
{
	TAILQ_REMOVE(&mover->names, job, link);
	if (mover->names_held)
		mover_route_wait(mover, job);
	else
		job_forward(job, store);
	name_next(mover);
}

/* One that is nowhere yet goes where its volume's other records will look for it. */
static unsigned name_place(const struct mover *mover, const struct job *job)
{
	uint64_t id = 0;
	if (job->arg1 == XSEG_CAS_PUT && job->data_size >= MOVER_NAME_ID + sizeof(id))
		job_get_bytes(job, MOVER_NAME_ID, &id, sizeof(id));
	const struct mover_group *group = id ? mover_group_find(mover, id) : NULL;
	return !group ? MOVER_OLD : group->phase == MOVER_DONE ? group->to : !group->to;
}

static void name_found(struct call *call)
{
	struct mover *mover = mover_of(call->peer);
	struct job *job = TAILQ_FIRST(&mover->names);
	unsigned store = call->context ? MOVER_NEW : MOVER_OLD;
	bool absent = call->result == -ENOENT;
	call_end(call);
	if (absent && store == MOVER_OLD)
		name_look(mover, MOVER_NEW);
	else
		name_forward(mover, job, absent ? name_place(mover, job) : store);
}

static bool name_again(struct peer *peer, void *context)
{
	name_look(mover_of(peer), context ? MOVER_NEW : MOVER_OLD);
	return true;
}

/* Is the first one's there? The old store comes first: the new one may have had a volume of the
   same name all along. */
static void name_look(struct mover *mover, unsigned store)
{
	const struct job *job = TAILQ_FIRST(&mover->names);
	void *is_new = store == MOVER_NEW ? mover : NULL;
	struct call *call = NULL;
	int rc = call_begin(mover->peer, &call);
	if (rc == 0) {
		call->op = XSEG_OP_CAS;
		call->key = job->key;
		call->arg1 = XSEG_CAS_GET;
		call->length = XSEG_RECORD_MAX;
		call->context = is_new;
		rc = call_pages(call, XSEG_RECORD_MAX);
	}
	if (rc == 0) {
		call_submit(call, store, name_found);
		return;
	}
	if (call)
		call_end(call);
	peer_retry(mover->peer, name_again, is_new);
}

void mover_ask_name(struct mover *mover, struct job *job)
{
	if (mover->names_held) {
		mover_route_wait(mover, job);
		return;
	}
	bool first = TAILQ_EMPTY(&mover->names);
	TAILQ_INSERT_TAIL(&mover->names, job, link);
	if (first)
		name_look(mover, MOVER_OLD);
}

/* --- copies from store to store ------------------------------------------------------------- */

struct across {
	struct job *job;
	struct call *read, *write;
	struct mover_object *source, *object; /* NULL: not counted */
	unsigned from, to;
	char bytes[];
};

static void across_end(struct across *across, int error)
{
	struct mover *mover = mover_of(across->job->peer);
	if (across->source)
		mover_route_ended(mover, across->source, false);
	if (across->object)
		mover_route_ended(mover, across->object, true);
	if (across->read)
		call_end(across->read);
	if (across->write)
		call_end(across->write);
	if (error)
		job_fail(across->job, error);
	else
		job_complete(across->job, 0);
	free(across);
}

static void across_written(struct call *call) { across_end(call->context, call->result); }

static bool across_write(struct peer *peer, void *context)
{
	struct across *across = context;
	const struct job *job = across->job;
	uint32_t length = job->length;
	bool zero = bytes_are_zero(across->bytes, length);
	if (!across->write && call_begin(peer, &across->write) != 0)
		return false;
	struct call *call = across->write;
	call->op = zero ? XSEG_OP_ZERO : XSEG_OP_WRITE;
	call->flags = job->flags & XSEG_F_FUA;
	call->key = job->key;
	call->offset = job->offset;
	call->length = length;
	call->context = across;
	if (!zero && call_pages(call, length) != 0)
		return false;
	if (!zero)
		call_put_bytes(call, 0, across->bytes, length);
	call_submit(call, across->to, across_written);
	return true;
}

static void across_read(struct call *call)
{
	struct across *across = call->context;
	if (call->result) {
		across_end(across, call->result);
		return;
	}
	call_get_bytes(call, 0, across->bytes, across->job->length);
	call_end(call);
	across->read = NULL;
	peer_retry(across->job->peer, across_write, across);
}

void mover_ask_copy(struct mover *mover, struct job *job, unsigned from,
	struct mover_object *source, unsigned to, struct mover_object *object)
{
	struct across *across = calloc(1, sizeof(*across) + job->length);
	struct call *call = NULL;
	int rc = store_range_check(job);
	if (rc != 0 || job->length == 0) {
		free(across);
		job_fail(job, -EINVAL);
		return;
	}
	rc = across ? call_begin(mover->peer, &call) : -EAGAIN;
	if (rc == 0) {
		call->op = XSEG_OP_READ;
		call->key = store_copy_source(job);
		call->offset = job->offset;
		call->length = job->length;
		call->context = across;
		rc = call_pages(call, job->length);
	}
	if (rc != 0) {
		if (call)
			call_end(call);
		free(across);
		mover_route_retry(job);
		return;
	}
	*across = (struct across){.job = job,
		.read = call,
		.source = source,
		.object = object,
		.from = from,
		.to = to};
	if (source)
		source->reads++;
	if (object)
		object->changes++;
	call_submit(call, from, across_read);
}
