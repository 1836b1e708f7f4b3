/* SPDX-License-Identifier: Apache-2.0 */
/* STATUS: what of a volume is there. Absent objects are known here, the store tells the rest. */
#include <errno.h>
#include <stdlib.h>

#include "peers/volume/volume.h"
#include "peers/volume/volume_extent.h"
#include "peers/volume/volume_span.h"

#define ASKED_MAX 64u /* objects in one request; the answer ends there */
#define ANSWER_BYTES 4096u
#define ANSWER_MAX (ANSWER_BYTES / sizeof(struct xseg_status_extent))
#define EXTENTS_MAX 4096u /* in one answer to the client */

struct status {
	struct peer *peer;
	struct job *job;
	struct call_queue calls; /* in order; context2 = where it begins in the request */
	uint32_t pending;
	uint32_t end; /* what was looked at */
	struct volume_extents extents;
	struct xseg_status_extent answer[ANSWER_MAX];
	struct xseg_status_extent list[]; /* as many as the client has room for */
};

static uint32_t at_of(const struct call *call) { return (uint32_t)(uintptr_t)call->context2; }

static bool add_hole(struct status *status, uint32_t from, uint32_t to)
{
	return volume_extent_add(&status->extents, to - from, XSEG_STATUS_HOLE | XSEG_STATUS_ZERO);
}

/* Adds one store's answer: whether it was whole. */
static bool add_answer(struct status *status, const struct call *call)
{
	uint32_t count = call->answer_length / sizeof(struct xseg_status_extent);
	if (count > ANSWER_MAX)
		count = ANSWER_MAX;
	call_get_bytes(call, 0, status->answer, count * sizeof(struct xseg_status_extent));
	return volume_extent_add_answer(&status->extents, call->length, status->answer, count) ==
	       call->length;
}

/* An answer may be short, but not empty: only then does an error count. */
static int join(struct status *status)
{
	uint32_t at = 0;
	struct call *call;
	TAILQ_FOREACH (call, &status->calls, link) {
		if (!add_hole(status, at, at_of(call)))
			return 0;
		if (call->result != 0)
			return status->extents.count > 0 ? 0 : call->result;
		if (!add_answer(status, call))
			return status->extents.count > 0 ? 0 : -EIO;
		at = at_of(call) + call->length;
	}
	add_hole(status, at, status->end);
	return 0;
}

static void finish(struct status *status)
{
	struct job *job = status->job;
	int rc = join(status);
	struct call *call;
	while ((call = TAILQ_FIRST(&status->calls))) {
		TAILQ_REMOVE(&status->calls, call, link);
		call_end(call);
	}
	if (rc != 0) {
		job_fail(job, rc);
	} else {
		uint32_t bytes = status->extents.count * sizeof(struct xseg_status_extent);
		job_put_bytes(job, 0, status->list, bytes);
		job_complete_value(job, bytes, status->extents.count);
	}
	free(status);
}

static void answered(struct call *call)
{
	struct status *status = call->context;
	if (--status->pending == 0)
		finish(status);
}

static int ask(struct status *status, const struct volume_span *span)
{
	struct call *call;
	int rc = call_begin(status->peer, &call);
	if (rc != 0)
		return rc;
	call->op = XSEG_OP_STATUS;
	call->key = (struct xseg_key){.volume = status->job->key.volume, .object = span->object};
	call->offset = span->offset;
	call->length = span->length;
	call->context = status;
	call->context2 = (void *)(uintptr_t)span->at;
	rc = call_pages(call, ANSWER_BYTES);
	if (rc != 0) {
		call_end(call);
		return rc;
	}
	TAILQ_INSERT_TAIL(&status->calls, call, link);
	status->pending++;
	call_submit(call, VOLUME_STORE, answered);
	return 0;
}

/* Asks about as many objects as there is room for; the answer is about those. */
static void ask_all(struct status *status, const struct volume *volume)
{
	const struct job *job = status->job;
	struct volume_span span;
	for (status->end = 0;
		volume_span_at(job->offset, job->length, volume->object_shift, status->end, &span);
		status->end += span.length) {
		if (!volume_is_present(volume, span.object))
			continue;
		if (status->pending > ASKED_MAX || ask(status, &span) != 0)
			break;
	}
}

static bool begin(struct peer *peer, struct job *job, const struct volume *volume)
{
	uint32_t room = job->data_size / sizeof(struct xseg_status_extent);
	if (room > EXTENTS_MAX)
		room = EXTENTS_MAX;
	struct status *status = malloc(sizeof(*status) + room * sizeof(status->list[0]));
	if (!status) {
		job_fail(job, -ENOMEM);
		return true;
	}
	status->peer = peer;
	status->job = job;
	status->extents = (struct volume_extents){.list = status->list, .max = room};
	TAILQ_INIT(&status->calls);
	status->pending = 1; /* ours, so that nothing ends while we ask */
	ask_all(status, volume);
	if (status->end == 0) {
		free(status);
		return false;
	}
	if (--status->pending == 0)
		finish(status);
	return true;
}

static bool begin_again(struct peer *peer, void *context)
{
	struct job *job = context;
	const struct volume *volume = volume_find(peer, job->key.volume);
	if (volume)
		return begin(peer, job, volume);
	job_fail(job, -ENOENT);
	return true;
}

/* What almost every request is about; nothing to join. */
static void one_object(struct peer *peer, struct job *job, const struct volume *volume)
{
	uint32_t object = (uint32_t)(job->offset >> volume->object_shift);
	if (volume_is_present(volume, object)) {
		job->key.object = object;
		job->offset &= (1ull << volume->object_shift) - 1;
		peer_count(peer, VOLUME_FORWARDED, 1);
		job_forward(job, VOLUME_STORE);
		return;
	}
	struct xseg_status_extent hole = {
		.length = job->length, .flags = XSEG_STATUS_HOLE | XSEG_STATUS_ZERO};
	peer_count(peer, VOLUME_HOLES, 1);
	job_put_bytes(job, 0, &hole, sizeof(hole));
	job_complete_value(job, sizeof(hole), 1);
}

void volume_status(struct peer *peer, struct job *job)
{
	const struct volume *volume = volume_io_enter(peer, job);
	if (!volume)
		return;
	bool inside = job->offset < volume->size && job->length <= volume->size - job->offset;
	if (!inside || job->length == 0 || (job->key.epoch | job->key.object) != 0) {
		job_fail(job, -EINVAL);
		return;
	}
	if (volume_span_single(job->offset, job->length, volume->object_shift))
		one_object(peer, job, volume);
	else if (!begin(peer, job, volume))
		peer_retry(peer, begin_again, job);
}
