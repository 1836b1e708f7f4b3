/* SPDX-License-Identifier: Apache-2.0 */
/*
 * STATUS: what of a volume is there. Holes and zeros are known here; about the rest the store is
 * asked, by the key of who has it. An answer may be short, never empty.
 */
#include <errno.h>
#include <stdlib.h>

#include "peers/volume/volume_extent.h"
#include "peers/volume/volume_overlay_priv.h"
#include "peers/volume/volume_span.h"

#define ASKED_MAX 64u /* questions to the store for one request; the answer ends there */
#define ANSWER_BYTES 4096u
#define ANSWER_MAX (ANSWER_BYTES / sizeof(struct xseg_status_extent))
#define EXTENTS_MAX 4096u /* in one answer to the client */

struct status {
	struct volume_part part; /* first; for bitmaps that have to be waited for */
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

/* Only where nothing is known yet does an error count. */
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
	struct job *job = status->part.job;
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

/* What lies at status->end is an object's. */
static int ask(struct status *status, const struct xseg_key *key, uint32_t offset, uint32_t length)
{
	struct call *call;
	if (status->pending > ASKED_MAX)
		return -EAGAIN;
	int rc = call_begin(status->part.step.peer, &call);
	if (rc != 0)
		return rc;
	call->op = XSEG_OP_STATUS;
	call->flags = status->part.job->flags & XSEG_F_FAST_ONLY;
	call->key = *key;
	call->offset = offset;
	call->length = length;
	call->context = status;
	call->context2 = (void *)(uintptr_t)status->end;
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

/* Run by run. */
static int look_partial(
	struct status *status, const struct volume_span *span, const struct xseg_key *key)
{
	uint32_t offset = span->offset, end = span->offset + span->length;
	int rc = 0;
	while (rc == 0 && offset < end) {
		struct overlay_run run;
		uint32_t first = offset / MAP_CLUSTER, last = (end - 1) / MAP_CLUSTER;
		rc = overlay_resolve(&status->part, key, false, first, last - first + 1, &run);
		if (rc != 0)
			break;
		uint32_t length = (first + run.count) * MAP_CLUSTER - offset;
		if (length > end - offset)
			length = end - offset;
		if (run.key.volume != 0)
			rc = ask(status, &run.key, offset, length);
		if (rc != 0)
			break;
		offset += length;
		status->end += length;
	}
	return rc;
}

/* From status->end on, as far as there is room and it is known. */
static int look(struct status *status, const struct volume *volume)
{
	const struct job *job = status->part.job;
	struct volume_span span;
	int rc = 0;
	while (rc == 0 && volume_span_at(job->offset, job->length, volume->object_shift,
				  status->end, &span)) {
		struct xseg_key key;
		switch (volume_where(volume, span.object, &key)) {
		case VOLUME_OWN:
		case VOLUME_SHARED: rc = ask(status, &key, span.offset, span.length); break;
		case VOLUME_PARTIAL: rc = look_partial(status, &span, &key); continue;
		case VOLUME_HOLE:
		case VOLUME_ZERO: break;
		case VOLUME_UNKNOWN:
		default: rc = -ENODATA; break;
		}
		if (rc == 0)
			status->end += span.length;
	}
	return rc;
}

static void begin(struct volume_step *step)
{
	struct status *status = (struct status *)step;
	struct job *job = status->part.job;
	struct peer *peer = step->peer;
	struct volume *volume = volume_table_lookup(peer, job->key.volume);
	status->pending = 1; /* ours, so that nothing ends while we ask */
	int rc = volume ? look(status, volume) : -ENOENT;
	if (status->end > 0) {
		overlay_wait_not(&status->part);
		if (--status->pending == 0)
			finish(status);
	} else if (rc == -EAGAIN || rc == -EINPROGRESS) {
		overlay_wait(&status->part, begin);
	} else {
		free(status);
		if (rc == -ENODATA)
			volume_map_want(
				peer, volume, (uint32_t)(job->offset >> volume->object_shift), job);
		else
			job_fail(job, rc);
	}
}

static void several(struct peer *peer, struct job *job)
{
	uint32_t room = job->data_size / sizeof(struct xseg_status_extent);
	if (room > EXTENTS_MAX)
		room = EXTENTS_MAX;
	struct status *status = calloc(1, sizeof(*status) + room * sizeof(status->list[0]));
	if (!status) {
		job_fail(job, -ENOMEM);
		return;
	}
	status->part.step.peer = peer;
	status->part.job = job;
	status->extents = (struct volume_extents){.list = status->list, .max = room};
	TAILQ_INIT(&status->calls);
	begin(&status->part.step);
}

static void absent(struct peer *peer, struct job *job)
{
	struct xseg_status_extent hole = {
		.length = job->length, .flags = XSEG_STATUS_HOLE | XSEG_STATUS_ZERO};
	peer_count(peer, VOLUME_HOLES, 1);
	job_put_bytes(job, 0, &hole, sizeof(hole));
	job_complete_value(job, sizeof(hole), 1);
}

/* What almost every request is about; nothing to join. */
static void one_object(struct peer *peer, struct job *job, const struct volume *volume)
{
	struct xseg_key key;
	switch (volume_where(volume, (uint32_t)(job->offset >> volume->object_shift), &key)) {
	case VOLUME_OWN:
	case VOLUME_SHARED:
		job->key = key;
		job->offset &= (1ull << volume->object_shift) - 1;
		peer_count(peer, VOLUME_FORWARDED, 1);
		job_forward(job, VOLUME_STORE);
		break;
	case VOLUME_HOLE:
	case VOLUME_ZERO: absent(peer, job); break;
	case VOLUME_PARTIAL:
	case VOLUME_UNKNOWN:
	default: several(peer, job); break;
	}
}

void volume_status(struct peer *peer, struct job *job)
{
	const struct volume *volume = volume_io_enter(peer, job);
	if (!volume)
		return;
	uint64_t size = atomic_load_explicit(&volume->size, memory_order_relaxed);
	bool inside = job->offset < size && job->length <= size - job->offset;
	if (!inside || job->length == 0 || (job->key.epoch | job->key.object) != 0) {
		job_fail(job, -EINVAL);
		return;
	}
	if (volume_span_single(job->offset, job->length, volume->object_shift))
		one_object(peer, job, volume);
	else
		several(peer, job);
}
