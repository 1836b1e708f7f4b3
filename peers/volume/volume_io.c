/* SPDX-License-Identifier: Apache-2.0 */
/* The data path: a request becomes a request to the object it lies in, or several of them. */
#include <base/crash.h>
#include <errno.h>

#include "peers/volume/volume.h"
#include "peers/volume/volume_span.h"

/* What an operation does about objects that are not there. */
enum absent {
	ABSENT_READS_ZERO, /* READ: zeros, made here */
	ABSENT_IS_DONE,	   /* ZERO, DISCARD, PREFETCH: nothing is left to do */
	ABSENT_IS_MADE,	   /* WRITE, ZERO that keeps its space: it will be there */
};

static inline enum absent absent_of(const struct job *job)
{
	if (job->op == XSEG_OP_READ)
		return ABSENT_READS_ZERO;
	if (job->op == XSEG_OP_WRITE)
		return ABSENT_IS_MADE;
	return job->op == XSEG_OP_ZERO && (job->flags & XSEG_F_NO_HOLE) ? ABSENT_IS_MADE
									: ABSENT_IS_DONE;
}

static inline bool has_data(const struct job *job)
{
	return job->op == XSEG_OP_READ || job->op == XSEG_OP_WRITE;
}

static inline uint32_t answer_length(const struct job *job)
{
	return has_data(job) ? job->length : 0;
}

static inline bool is_inside(const struct volume *volume, const struct job *job)
{
	return job->offset < volume->size && job->length <= volume->size - job->offset;
}

struct volume *volume_io_enter_slow(struct peer *peer, struct job *job)
{
	if (job->key.volume == 0) {
		job_fail(job, -EINVAL);
		return NULL;
	}
	struct volume *volume = volume_find(peer, job->key.volume);
	if (!volume) {
		volume_load_job(peer, job);
		return NULL;
	}
	int rc = volume_admit(peer, volume, volume_client_of(peer, job));
	if (rc == 0)
		return volume;
	job_fail(job, rc);
	return NULL;
}

/* --- several objects ------------------------------------------------------------- */

static void split_done(struct job *job, int error)
{
	if (error != 0)
		job_fail(job, error);
	else
		job_complete(job, answer_length(job));
}

/* How far the split has come; the job's own word while it is under way. */
static uint32_t split_at(const struct job *job) { return (uint32_t)(uintptr_t)job->context; }
static void split_set(struct job *job, uint32_t at) { job->context = (void *)(uintptr_t)at; }

/* One object's part. Its data is a piece of the job's, so the answer cannot be in other pages. */
static int split_send(struct peer *peer, struct job *job, const struct volume_span *span)
{
	struct call *call;
	int rc = call_begin(peer, &call);
	if (rc != 0)
		return rc;
	call->op = job->op;
	call->flags = job->flags & ~(unsigned)XSEG_F_PIN;
	call->key = (struct xseg_key){.volume = job->key.volume, .object = span->object};
	call->offset = span->offset;
	call->length = span->length;
	call->arg0 = job->arg0;
	call->arg1 = job->arg1;
	rc = has_data(job) ? call_borrow(call, job, span->at, span->length) : 0;
	if (rc != 0) {
		call_end(call);
		return rc;
	}
	call_submit_part(call, job, VOLUME_STORE, NULL);
	crash_point("volume.split.sent");
	return 0;
}

static int split_part(
	struct peer *peer, struct job *job, struct volume *volume, const struct volume_span *span)
{
	if (absent_of(job) == ABSENT_IS_MADE) {
		volume_set_present(volume, span->object);
	} else if (!volume_is_present(volume, span->object)) {
		peer_count(peer, VOLUME_HOLES, 1);
		if (job->op == XSEG_OP_READ)
			job_zero_bytes(job, span->at, span->length);
		return 0;
	}
	return split_send(peer, job, span);
}

/* Ends the fan early: its parts that are under way are waited for, then it fails. */
static void split_break(struct job *job, int error)
{
	job_fan_hold(job);
	job_fan_release(job, error);
}

static bool split_go(struct peer *peer, void *context)
{
	struct job *job = context;
	struct volume *volume = volume_find(peer, job->key.volume);
	struct volume_span span;
	int rc = volume ? 0 : -ENOENT;
	while (rc == 0 && volume_span_at(job->offset, job->length, volume->object_shift,
				  split_at(job), &span)) {
		rc = split_part(peer, job, volume, &span);
		if (rc == -EAGAIN)
			return false;
		split_set(job, span.at + span.length);
	}
	if (rc != 0)
		split_break(job, rc);
	job_fan_ready(job);
	return true;
}

static void split_begin(struct peer *peer, struct job *job)
{
	peer_count(peer, VOLUME_SPLIT, 1);
	split_set(job, 0);
	job_fan(job, split_done);
	if (!split_go(peer, job))
		peer_retry(peer, split_go, job);
}

/* --- one object --------------------------------------------------------------------- */

static void hole_answer(struct peer *peer, struct job *job)
{
	peer_count(peer, VOLUME_HOLES, 1);
	if (job->op == XSEG_OP_READ)
		job_zero_bytes(job, 0, job->length);
	job_complete(job, answer_length(job));
}

static inline void send_down(struct peer *peer, struct job *job, uint32_t object, unsigned shift)
{
	job->key.object = object;
	job->offset &= (1ull << shift) - 1;
	peer_count(peer, VOLUME_FORWARDED, 1);
	job_forward(job, VOLUME_STORE);
}

/* Why a request is not for a volume, or not for this one. */
static void refuse(const struct volume *volume, struct job *job, bool writes)
{
	if ((job->key.epoch | job->key.object) != 0)
		job_fail(job, -EINVAL);
	else if (is_inside(volume, job))
		job_fail(job, -EROFS);
	else
		job_fail(job,
			writes && job->offset + job->length > volume->size ? -ENOSPC : -EINVAL);
}

/* `writes` is known where this is called: each handler is a copy with only its own tests in it. */
static inline __attribute__((always_inline)) void io(
	struct peer *peer, struct job *job, bool writes)
{
	struct volume *volume = volume_io_enter(peer, job);
	if (unlikely(!volume))
		return;
	if (unlikely(!is_inside(volume, job) || (job->key.epoch | job->key.object) != 0 ||
		     (writes && volume->read_only))) {
		refuse(volume, job, writes);
		return;
	}
	unsigned shift = volume->object_shift;
	if (unlikely(!volume_span_single(job->offset, job->length, shift))) {
		split_begin(peer, job);
		return;
	}
	uint32_t object = (uint32_t)(job->offset >> shift);
	if (unlikely(!volume_is_present(volume, object))) {
		if (absent_of(job) != ABSENT_IS_MADE) {
			hole_answer(peer, job);
			return;
		}
		volume_set_present(volume, object);
	}
	send_down(peer, job, object, shift);
}

void volume_io_read(struct peer *peer, struct job *job) { io(peer, job, false); }
void volume_io_write(struct peer *peer, struct job *job) { io(peer, job, true); }
void volume_io_zero(struct peer *peer, struct job *job) { io(peer, job, true); }
void volume_io_prefetch(struct peer *peer, struct job *job) { io(peer, job, false); }

/*
 * The discard of a whole object goes down as a discard, too, not as DELETE: a write that is in
 * flight beside it may have opened the object already, and would be lost with it.
 */
void volume_io_discard(struct peer *peer, struct job *job) { io(peer, job, true); }

/*
 * The store's flush is per volume, so one goes down as it is. Whoever asks is not noted as somebody
 * who has the volume open: on several lanes it is asked by our own, part by part.
 */
void volume_io_flush(struct peer *peer, struct job *job)
{
	if (job->key.volume == 0) {
		job_fail(job, -EINVAL);
		return;
	}
	if (!volume_find(peer, job->key.volume)) {
		volume_load_job(peer, job);
		return;
	}
	job->key.epoch = 0;
	job->key.object = 0;
	job->offset = 0;
	job->length = 0;
	peer_count(peer, VOLUME_FORWARDED, 1);
	job_forward(job, VOLUME_STORE);
}
