/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs as requests of a session. Each has a sequence, and is sent again with the same one when
 * the session's connections were lost, until its answer is here: so the exporter knows what it has
 * done.
 */
#include <base/container.h>
#include <base/must.h>
#include <errno.h>
#include <string.h>

#include "peers/synapse/import.h"

static struct import_request *request_of(const struct import *import, uint64_t sequence)
{
	return &import->table[sequence % WIRE_WINDOW];
}

/* --- out -------------------------------------------------------------------------------------- */

static int request_pieces(struct conn_out *out, uint32_t at, struct iovec *iov, int max)
{
	const struct import_request *request = container_of(out, struct import_request, out);
	uint32_t left = out->data - at;
	return conn_pieces(job_iov, request->job, at, left, iov, max);
}

static void request_sent(struct conn_out *out, bool lost)
{
	struct import_request *request = container_of(out, struct import_request, out);
	if (!lost)
		request->sent = true;
}

static void ask(struct import *import, struct import_request *request)
{
	const struct job *job = request->job;
	unsigned flags = job->flags & ~(unsigned)(XSEG_F_PIN | XSEG_F_DONATE);
	struct wire_frame frame = {
		.type = WIRE_TYPE_REQUEST,
		.op = (uint8_t)job->op,
		.flags = (uint16_t)flags,
		.sequence = request->sequence,
		.key = job->key,
		.offset = job->offset,
		.length = job->length,
		.data = request->data,
		.value = job->arg0,
		.arg1 = job->arg1,
		.room = request->room,
		.behind = (uint32_t)(request->sequence - import->lowest),
	};
	enum wire_class class = wire_class_of(request->data, request->room);
	if (request->sent)
		peer_count(import->peer, IMPORT_REPLAYS, 1);
	conn_send(&import->link[class].conn, &request->out, &frame);
}

static uint32_t data_of(const struct job *job)
{
	return wire_data_of(job->op, job->length, job->arg1, job->data_size);
}

static uint32_t room_of(const struct job *job)
{
	return wire_room_of(job->op, job->length, job->arg1, job->data_size);
}

void import_job_take(struct peer *peer, struct job *job)
{
	struct import *import = peer->state;
	enum wire_class class = wire_class_of(data_of(job), room_of(job));
	TAILQ_INSERT_TAIL(&import->waiting[class][conn_flow_of(job->key.volume)], job, link);
	import->waiting_count++;
}

static struct job *waiting_take(struct import *import, struct job_queue *queue, struct job *job)
{
	TAILQ_REMOVE(queue, job, link);
	import->waiting_count--;
	return job;
}

/* Of each second that nothing was sent in a tenth may be made up for. */
#define BURST_NS 100000000u

static void pay(struct import *import, uint64_t bytes)
{
	uint64_t rate = import_options_of(import)->rate, now = peer_now_ns(import->peer);
	if (rate == 0)
		return;
	if (import->paid_ns + BURST_NS < now)
		import->paid_ns = now - BURST_NS;
	import->paid_ns += bytes * 1000000000u / rate;
}

/* May this one go now? Of bulk data at least one always may, however large it is; what is urgent
   does not wait for it. */
static bool has_room(const struct import *import, enum wire_class class, uint32_t bytes)
{
	if (import->requests >= import->requests_max ||
		import->next - import->lowest >= WIRE_WINDOW)
		return false;
	if (class == WIRE_URGENT)
		return true;
	return peer_now_ns(import->peer) >= import->paid_ns &&
	       (import->bytes == 0 || import->bytes + bytes <= import->bytes_max);
}

static bool begin(struct import *import, struct job *job)
{
	uint32_t data = data_of(job), room = room_of(job);
	enum wire_class class = wire_class_of(data, room);
	if (!has_room(import, class, data + room))
		return false;
	struct import_request *request = request_of(import, import->next);
	must(!request->live && !request->out.queued);
	*request = (struct import_request){
		.out = {.pieces = request_pieces, .sent = request_sent, .volume = job->key.volume},
		.job = job,
		.sequence = import->next++,
		.data = data,
		.room = room,
		.live = true,
		.sent = job->tries > 0,
	};
	import->requests++;
	import->bytes += class == WIRE_BULK ? data + room : 0;
	pay(import, data + room);
	ask(import, request);
	return true;
}

/* One request of each volume in turn, so that none waits for all of another one's. */
static bool begin_waiting(struct import *import, enum wire_class class)
{
	bool moved = false;
	for (unsigned idle = 0; idle < CONN_FLOWS && import->state == IMPORT_STATE_READY;) {
		struct job_queue *queue = &import->waiting[class][import->turn[class]];
		struct job *job = TAILQ_FIRST(queue);
		if (job && !begin(import, job))
			return moved; /* it is this one's turn when there is room */
		import->turn[class] = (import->turn[class] + 1) % CONN_FLOWS;
		idle = job ? 0 : idle + 1;
		if (job)
			waiting_take(import, queue, job);
		moved |= job != NULL;
	}
	return moved;
}

static bool begin_fences(struct import *import)
{
	bool moved = false;
	struct job *job;
	while (import->untold && has_room(import, WIRE_URGENT, 0) &&
		(job = import_fence_next(import)))
		moved |= begin(import, job);
	return moved;
}

bool import_job_turn(struct import *import)
{
	bool moved = import->state == IMPORT_STATE_READY && begin_fences(import);
	for (unsigned i = 0; i < WIRE_CONNS && import->waiting_count > 0 && !import->untold; i++)
		moved |= begin_waiting(import, i);
	for (unsigned i = 0; i < WIRE_CONNS && import->state == IMPORT_STATE_READY; i++)
		moved |= conn_flush(&import->link[i].conn);
	return moved;
}

/* --- the end of one --------------------------------------------------------------------------- */

static struct job *retire(struct import *import, struct import_request *request)
{
	struct job *job = request->job;
	must(request->live);
	request->live = false;
	request->job = NULL;
	import->requests--;
	if (wire_class_of(request->data, request->room) == WIRE_BULK)
		import->bytes -= request->data + request->room;
	while (import->lowest < import->next && !request_of(import, import->lowest)->live)
		import->lowest++;
	return job;
}

/* To an exporter that does not know the session all are new: they get new sequences, after those of
   what it hears first. */
static void take_back(struct import *import, struct import_request *request)
{
	struct job *job = retire(import, request);
	enum wire_class class = wire_class_of(request->data, request->room);
	job->tries += request->sent;
	TAILQ_INSERT_HEAD(&import->waiting[class][conn_flow_of(job->key.volume)], job, link);
	import->waiting_count++;
}

void import_job_replay(struct import *import)
{
	for (uint64_t at = import->lowest; at < import->next && !import->untold; at++)
		if (request_of(import, at)->live)
			ask(import, request_of(import, at));
	for (uint64_t at = import->next; at > import->lowest && import->untold; at--)
		if (request_of(import, at - 1)->live)
			take_back(import, request_of(import, at - 1));
}

void import_job_cut(struct import *import)
{
	for (uint64_t at = import->lowest; at < import->next; at++)
		if (request_of(import, at)->live && import_fence_is(request_of(import, at)->job))
			retire(import, request_of(import, at));
	import_fence_cut(import);
}

/* The connections have ended, so nothing points to a job's pages. */
void import_job_fail(struct import *import, int error)
{
	struct job *job;
	for (uint64_t at = import->lowest; at < import->next; at++)
		if (request_of(import, at)->live)
			job_fail(retire(import, request_of(import, at)), error);
	for (unsigned i = 0; i < WIRE_CONNS * CONN_FLOWS; i++) {
		struct job_queue *queue = &import->waiting[i / CONN_FLOWS][i % CONN_FLOWS];
		while ((job = TAILQ_FIRST(queue)))
			job_fail(waiting_take(import, queue, job), error);
	}
}

/* Who asks does not want to wait for the link. */
static bool is_fast_only(const struct job *job)
{
	return (job->flags & XSEG_F_FAST_ONLY) &&
	       (job->op == XSEG_OP_CONTROL || job->op == XSEG_OP_PREFETCH);
}

/* Nobody waits for it, and it cannot have changed anything. */
static bool is_over(const struct job *job, bool sent)
{
	return is_fast_only(job) ||
	       (job_is_abandoned(job) && (!sent || wire_is_repeatable(job->op, job->arg1)));
}

void import_job_sweep(struct import *import)
{
	for (uint64_t at = import->lowest; at < import->next; at++) {
		struct import_request *request = request_of(import, at);
		if (request->live && is_over(request->job, true))
			job_fail(retire(import, request), -ENOTCONN);
	}
	for (unsigned i = 0; i < WIRE_CONNS * CONN_FLOWS; i++) {
		struct job_queue *queue = &import->waiting[i / CONN_FLOWS][i % CONN_FLOWS];
		struct job *job, *next;
		for (job = TAILQ_FIRST(queue); job; job = next) {
			next = TAILQ_NEXT(job, link);
			if (is_over(job, job->tries > 0))
				job_fail(waiting_take(import, queue, job), -ENOTCONN);
		}
	}
}

/* --- answers ---------------------------------------------------------------------------------- */

int import_job_answer_begin(struct import_link *link, const struct wire_frame *frame)
{
	struct import *import = link->import;
	link->answer = NULL;
	if (frame->sequence >= import->next)
		return -EPROTO;
	struct import_request *request = request_of(import, frame->sequence);
	/* one that was asked twice, and has been answered */
	if (frame->sequence < import->lowest || !request->live ||
		request->sequence != frame->sequence)
		return 0;
	bool read = request->job->op == XSEG_OP_READ;
	if (frame->data > request->room || frame->result > 0 ||
		(read && frame->result == 0 && frame->data != request->room))
		return -EPROTO;
	/* it would be sent again and again, out of pages that are its client's by then */
	if (request->out.queued)
		return -EPROTO;
	link->answer = request;
	return 0;
}

int import_job_answer_place(struct import_link *link, uint32_t at, struct iovec *iov, int max)
{
	const struct import_request *request = link->answer;
	if (!request || !request->live)
		return 0;
	uint32_t left = request->room - at;
	return conn_pieces(job_iov, request->job, at, left, iov, max);
}

int import_job_answer_end(struct import_link *link, const struct wire_frame *frame)
{
	struct import_request *request = link->answer;
	link->answer = NULL;
	/* the same answer came on the other connection meanwhile */
	if (!request || !request->live || request->sequence != frame->sequence)
		return 0;
	struct job *job = retire(link->import, request);
	link->import->proven = true;
	if (import_fence_answered(link->import, job, frame->result))
		return 0;
	uint32_t length = frame->length < XSEG_OBJECT_MAX ? frame->length : XSEG_OBJECT_MAX;
	if (frame->result)
		job_fail_value(job, frame->result, frame->value);
	else
		job_complete_value(job, length, frame->value);
	return 0;
}
