/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data path: a request becomes a request to the object that has its data. Where that is known
 * and one object has all of it, it is handed on as it is; else it is fanned out, part by part.
 */
#include <base/crash.h>
#include <errno.h>
#include <stdlib.h>

#include "peers/volume/volume_flush.h"
#include "peers/volume/volume_intent.h"
#include "peers/volume/volume_map.h"
#include "peers/volume/volume_overlay_priv.h"
#include "peers/volume/volume_span.h"

/* What an operation does about objects that are not there, or read as zeros. */
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
	uint64_t size = atomic_load_explicit(&volume->size, memory_order_relaxed);
	return job->offset < size && job->length <= size - job->offset;
}

/* What it has made is to be published before it is answered. */
static inline bool is_published(const struct volume *volume, const struct job *job)
{
	return (job->flags & XSEG_F_FUA) && volume->pages && job->op != XSEG_OP_READ &&
	       job->op != XSEG_OP_PREFETCH;
}

/* --- in parts -------------------------------------------------------------------- */

static void parts_done(struct job *job, int error)
{
	struct peer *peer = job->peer;
	const struct volume *volume = volume_table_lookup(peer, job->key.volume);
	if (error != 0)
		job_fail(job, error);
	else if (volume && is_published(volume, job))
		volume_flush_then(peer, job, answer_length(job));
	else
		job_complete(job, answer_length(job));
}

/* How far the parts have come; the job's own word while it is under way. */
static uint32_t parts_at(const struct job *job) { return (uint32_t)(uintptr_t)job->context; }
static void parts_set(struct job *job, uint32_t at) { job->context = (void *)(uintptr_t)at; }

/* One object's part. Its data is a piece of the job's, so the answer cannot be in other pages; and
   where all is published in the end, the store is flushed then anyway. */
static int part_send(struct peer *peer, struct job *job, const struct volume *volume,
	const struct volume_span *span, const struct xseg_key *key)
{
	struct call *call;
	int rc = call_begin(peer, &call);
	if (rc != 0)
		return rc;
	call_as(call, job);
	call->flags &= ~(unsigned)XSEG_F_PIN;
	if (is_published(volume, job))
		call->flags &= ~(unsigned)XSEG_F_FUA;
	call->key = *key;
	call->offset = span->offset;
	call->length = span->length;
	rc = has_data(job) ? call_borrow(call, job, span->at, span->length) : 0;
	if (rc != 0) {
		call_end(call);
		return rc;
	}
	call_submit_part(call, job, VOLUME_STORE, NULL);
	crash_point("volume.split.sent");
	return 0;
}

struct volume_part *volume_io_part_new(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	uint32_t number;
	struct volume_part *part = slab_get(&shard->part_slab, &number);
	if (part)
		*part = (struct volume_part){.step.peer = peer, .number = number};
	return part;
}

/* The stretch as something that the fan waits for; NULL: try again. */
static struct volume_part *part_new(struct peer *peer, struct job *job, const struct volume *volume,
	const struct volume_span *span)
{
	struct volume_part *part = volume_io_part_new(peer);
	if (!part)
		return NULL;
	part->job = job;
	part->id = volume->id;
	part->object = span->object;
	part->offset = span->offset;
	part->length = span->length;
	part->at = span->at;
	job_fan_hold(job);
	return part;
}

static int part_hole(
	struct peer *peer, struct job *job, struct volume *volume, const struct volume_span *span)
{
	if (absent_of(job) == ABSENT_IS_MADE) {
		struct volume_part *part = part_new(peer, job, volume, span);
		if (!part)
			return -EAGAIN;
		volume_first_write(part);
		return 0;
	}
	peer_count(peer, VOLUME_HOLES, 1);
	if (job->op == XSEG_OP_READ)
		job_zero_bytes(job, span->at, span->length);
	return 0;
}

/* A hint: what is known is passed on, the rest is not worth a question. */
static int part_prefetch(struct peer *peer, struct job *job, const struct volume *volume,
	const struct volume_span *span)
{
	struct xseg_key top;
	struct overlay_run run;
	uint32_t end = span->offset + span->length;
	struct volume_span piece = *span;
	if (volume_where(volume, span->object, &top) != VOLUME_PARTIAL)
		return 0;
	for (; piece.offset < end; piece.offset += piece.length) {
		uint32_t first = piece.offset / MAP_CLUSTER, last = (end - 1) / MAP_CLUSTER;
		if (overlay_known(peer, &top, first, last - first + 1, &run) != 0)
			return 0;
		piece.length = (first + run.count) * MAP_CLUSTER - piece.offset;
		if (piece.length > end - piece.offset)
			piece.length = end - piece.offset;
		if (run.key.volume != 0 && part_send(peer, job, volume, &piece, &run.key) != 0)
			return 0;
	}
	return 0;
}

static int part_overlay(
	struct peer *peer, struct job *job, struct volume *volume, const struct volume_span *span)
{
	if (job->op == XSEG_OP_PREFETCH)
		return part_prefetch(peer, job, volume, span);
	struct volume_part *part = part_new(peer, job, volume, span);
	if (!part)
		return -EAGAIN;
	if (job->op == XSEG_OP_READ)
		volume_overlay_read(part);
	else
		volume_copy_write(part);
	return 0;
}

void volume_io_part_end(struct volume_part *part, int error)
{
	struct volume_flattened *whole = part->whole;
	struct job *job = part->job;
	struct volume_shard *shard = part->step.peer->state;
	slab_put(&shard->part_slab, part->number);
	if (whole)
		whole->done(whole, error);
	else
		job_fan_release(job, error);
}

static int part_go(
	struct peer *peer, struct job *job, struct volume *volume, const struct volume_span *span)
{
	struct xseg_key key;
	switch (volume_where(volume, span->object, &key)) {
	case VOLUME_OWN: return part_send(peer, job, volume, span, &key);
	case VOLUME_SHARED:
		if (job->op == XSEG_OP_READ || job->op == XSEG_OP_PREFETCH)
			return part_send(peer, job, volume, span, &key);
		return part_overlay(peer, job, volume, span);
	case VOLUME_PARTIAL: return part_overlay(peer, job, volume, span);
	case VOLUME_HOLE:
	case VOLUME_ZERO: return part_hole(peer, job, volume, span);
	case VOLUME_UNKNOWN:
	default: return -EIO; /* parts_begin() has seen to it */
	}
}

static void part_again(struct volume_step *step)
{
	struct volume_part *part = (struct volume_part *)step;
	struct volume_span span = {.object = part->object,
		.offset = part->offset,
		.at = part->at,
		.length = part->length};
	int rc = overlay_volume(part) ? part_go(step->peer, part->job, part->volume, &span)
				      : -ENOENT;
	if (rc == -EAGAIN)
		overlay_wait(part, part_again);
	else
		volume_io_part_end(part, rc);
}

void volume_io_part_again(struct volume_part *part) { part_again(&part->step); }

/* Ends the fan early: its parts that are under way are waited for, then it fails. */
static void parts_break(struct job *job, int error)
{
	job_fan_hold(job);
	job_fan_release(job, error);
}

static bool parts_go(struct peer *peer, void *context)
{
	struct job *job = context;
	struct volume *volume = volume_table_lookup(peer, job->key.volume);
	struct volume_span span;
	int rc = volume ? 0 : -ENOENT;
	while (rc == 0 && volume_span_at(job->offset, job->length, volume->object_shift,
				  parts_at(job), &span)) {
		rc = part_go(peer, job, volume, &span);
		if (rc == -EAGAIN)
			return false;
		parts_set(job, span.at + span.length);
	}
	if (rc != 0)
		parts_break(job, rc);
	job_fan_ready(job);
	return true;
}

/* All that has to be known of the map is asked for before the first part goes: then none of them
   can meet what is not known, and the job can simply be dispatched again. */
static void parts_begin(struct peer *peer, struct job *job, struct volume *volume)
{
	struct volume_span span;
	struct xseg_key key;
	for (uint32_t at = 0;
		volume_span_at(job->offset, job->length, volume->object_shift, at, &span);
		at += span.length) {
		if (volume_where(volume, span.object, &key) == VOLUME_UNKNOWN) {
			volume_map_want(peer, volume, span.object, job);
			return;
		}
	}
	if (!volume_span_single(job->offset, job->length, volume->object_shift))
		peer_count(peer, VOLUME_SPLIT, 1);
	parts_set(job, 0);
	job_fan(job, parts_done);
	if (!parts_go(peer, job))
		peer_retry(peer, parts_go, job);
}

/* --- one object -------------------------------------------------------------------- */

static inline void send_down(
	struct peer *peer, struct job *job, const struct xseg_key *key, unsigned shift)
{
	job->key = *key;
	job->offset &= (1ull << shift) - 1;
	peer_count(peer, VOLUME_FORWARDED, 1);
	job_forward(job, VOLUME_STORE);
}

/* Why a request is not for a volume, or not for this one. */
static void refuse(const struct volume *volume, struct job *job, bool writes)
{
	uint64_t size = atomic_load_explicit(&volume->size, memory_order_relaxed);
	if ((job->key.epoch | job->key.object) != 0)
		job_fail(job, -EINVAL);
	else if (is_inside(volume, job))
		job_fail(job, -EROFS);
	else
		job_fail(job, writes && job->offset + job->length > size ? -ENOSPC : -EINVAL);
}

/* One object, but not simply there. */
static void elsewhere(
	struct peer *peer, struct job *job, struct volume *volume, enum volume_where where)
{
	unsigned shift = volume->object_shift;
	uint32_t object = (uint32_t)(job->offset >> shift);
	uint32_t offset = (uint32_t)(job->offset & ((1ull << shift) - 1));
	struct xseg_key key;
	if (where == VOLUME_UNKNOWN) {
		volume_map_want(peer, volume, object, job);
	} else if (where == VOLUME_PARTIAL && job->op == XSEG_OP_READ &&
		   volume_overlay_source(peer, volume, object, offset, job->length, &key)) {
		send_down(peer, job, &key, shift);
	} else {
		parts_begin(peer, job, volume);
	}
}

/* A write that is to be durable when it is answered, while not all is published. */
static inline bool must_tell(struct peer *peer, const struct volume *volume, const struct job *job)
{
	return (job->flags & XSEG_F_FUA) && volume_intent_any(peer, volume->id);
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
		parts_begin(peer, job, volume);
		return;
	}
	struct xseg_key key;
	enum volume_where where = volume_where(volume, (uint32_t)(job->offset >> shift), &key);
	if (unlikely(where != VOLUME_OWN && (writes || where != VOLUME_SHARED)))
		elsewhere(peer, job, volume, where);
	else if (unlikely(writes && must_tell(peer, volume, job)))
		parts_begin(peer, job, volume);
	else
		send_down(peer, job, &key, shift);
}

void volume_io_read(struct peer *peer, struct job *job) { io(peer, job, false); }
void volume_io_write(struct peer *peer, struct job *job) { io(peer, job, true); }
void volume_io_zero(struct peer *peer, struct job *job) { io(peer, job, true); }
void volume_io_prefetch(struct peer *peer, struct job *job) { io(peer, job, false); }

/*
 * The discard of a whole own object goes down as a discard, too, not as DELETE: a write that is in
 * flight beside it may have opened the object already, and would be lost with it.
 */
void volume_io_discard(struct peer *peer, struct job *job) { io(peer, job, true); }
