/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a volume is that is on no way of ours: another host's mover may have taken it to the other
 * store since we looked, or be about to. Its records are found at one of four places, and asked for
 * in the order in which they go through them, so that one that moves meanwhile is not missed.
 */
#include "peers/mover/mover.h"

#define PLACES 4u
#define KNOWN_SHIFT 8u /* of job->progress: where it was known to be; below: how many were asked */

static unsigned store_of(const struct job *job)
{
	unsigned known = job->progress >> KNOWN_SHIFT;
	return (job->progress & 3u) < PLACES / 2 ? known : !known;
}

static bool is_hidden(const struct job *job)
{
	unsigned at = job->progress & 3u;
	return at == 1 || at == 2;
}

/* With whoever it shares objects with: volumes that are gone have no record of their own. */
static void found(struct mover *mover, const struct job *job, uint32_t length)
{
	uint64_t ids[2 + MOVER_OWNERS_COUNT] = {job->key.volume};
	bool hidden = is_hidden(job);
	if (job->key.epoch == XSEG_EPOCH_VOLUME && length == XSEG_RECORD_MAX &&
		job->data_size >= length) {
		job_get_bytes(job, MOVER_PARENT, ids + 1, sizeof(*ids));
		job_get_bytes(job, MOVER_OWNERS, ids + 2, MOVER_OWNERS_COUNT * sizeof(*ids));
	}
	for (unsigned i = 0; i < 2 + MOVER_OWNERS_COUNT; i++)
		if (ids[i] != 0 && !mover_group_is_ours(mover, mover_group_find(mover, ids[i])))
			mover_group_found(mover, ids[i], store_of(job), hidden);
}

static void look(struct mover *mover, struct job *job);

static void looked(struct call *call)
{
	struct job *job = call->context;
	struct mover *mover = mover_of(job->peer);
	uint64_t id = job->key.volume, value = call->value;
	int result = call->result;
	uint32_t length = call->answer_length;
	call_end(call);
	if (mover_group_is_ours(mover, mover_group_find(mover, id))) { /* begun meanwhile */
		mover_route_serve(job->peer, job);
		return;
	}
	if (result == -ENOENT && (job->progress & 3u) < PLACES - 1) {
		job->progress++;
		look(mover, job);
		return;
	}
	if (result) {
		job_fail_value(job, result, value);
		return;
	}
	found(mover, job, length);
	job_complete_value(job, length, value);
}

static void look(struct mover *mover, struct job *job)
{
	struct call *call = NULL;
	int rc = call_begin(mover->peer, &call);
	if (rc == 0) {
		call_as(call, job);
		call->context = job;
		if (is_hidden(job))
			call->key.object |= MOVER_HIDDEN;
		rc = job->data_size > 0 ? call_borrow(call, job, 0, job->data_size) : 0;
	}
	if (rc == 0) {
		call_submit(call, store_of(job), looked);
		return;
	}
	if (call)
		call_end(call);
	mover_route_retry(job);
}

void mover_find(struct mover *mover, struct job *job)
{
	const struct mover_group *group = mover_group_find(mover, job->key.volume);
	job->progress = (group ? mover_group_rest(group) : MOVER_OLD) << KNOWN_SHIFT;
	look(mover, job);
}
