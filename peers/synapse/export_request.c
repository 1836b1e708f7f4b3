/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of importers as calls down the edge. An answer is kept until the importer has said that
 * it is there, so one that is asked again after a cut is not done again.
 */
#include <base/clock.h>
#include <base/container.h>
#include <base/must.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/synapse/export.h"

#define FENCE_NS 10000000000u /* others' writes are waited for so long */

/* --- answers ---------------------------------------------------------------------------------- */

static int answer_pieces(struct conn_out *out, uint32_t at, struct iovec *iov, int max)
{
	const struct export_request *request = container_of(out, struct export_request, out);
	uint32_t left = out->data - at;
	if (request->saved) {
		iov[0] = (struct iovec){request->saved + at, left};
		return 1;
	}
	return conn_pieces(call_iov, request->call, at, left, iov, max);
}

static void release(struct export_request *request)
{
	if (request->call)
		call_end(request->call);
	free(request->saved);
	request->call = NULL;
	request->saved = NULL;
	request->state = EXPORT_STATE_FREE;
	request->orphan = false;
}

/* What only this call can say is kept without its pages. */
static void keep(struct export_request *request)
{
	bool again = request->result == 0 && wire_is_repeatable(request->op, request->arg1);
	if (again || request->orphan) {
		release(request);
		return;
	}
	if (request->data > 0 && !request->saved) {
		request->saved = malloc(request->data);
		if (!request->saved) {
			release(request); /* it will be done again, if it is asked for */
			return;
		}
		call_get_bytes(request->call, 0, request->saved, request->data);
	}
	if (request->call)
		call_end(request->call);
	request->call = NULL;
	request->state = EXPORT_STATE_DONE;
}

static void answer_sent(struct conn_out *out, bool lost)
{
	(void)lost;
	keep(container_of(out, struct export_request, out));
}

static void answer(struct export_request *request)
{
	struct export_session *session = request->session;
	struct export_conn *conn = session->conn[request->class];
	/* it is not known yet whether the importer still asks for it */
	if (!conn || !conn->greeted || request->generation != session->generation) {
		keep(request);
		return;
	}
	struct wire_frame frame = {
		.type = WIRE_TYPE_ANSWER,
		.sequence = request->sequence,
		.length = request->length,
		.data = request->data,
		.value = request->value,
		.result = request->result,
	};
	request->state = EXPORT_STATE_ANSWERING;
	request->out.pieces = answer_pieces;
	request->out.sent = answer_sent;
	request->out.volume = request->volume;
	conn_send(&conn->conn, &request->out, &frame);
}

static void answer_error(struct export_request *request, int error)
{
	request->result = error;
	request->length = request->data = 0;
	request->value = 0;
	answer(request);
}

static bool is_control(const struct export_request *request, uint64_t what)
{
	const struct call *call = request->call;
	return request->op == XSEG_OP_CONTROL && call && call->arg0 == what;
}

static bool is_fence(const struct export_request *request)
{
	return is_control(request, XSEG_CONTROL_FENCE);
}

/* A composer knows itself who may write: it is asked for volumes, and fences what is below it. */
static bool tells_apart(const struct export *export) { return export->edge == EXPORT_EDGE_STORE; }

/* The home record goes with its volume, whose number is never used again. */
static bool is_removal(const struct call *call)
{
	return call->op == XSEG_OP_CAS && call->arg1 == XSEG_CAS_DELETE &&
	       call->key.epoch == XSEG_EPOCH_HOME;
}

/* --- digests ---------------------------------------------------------------------------------- */

/* What is behind needs to know of reads only. */
static uint32_t digest_of(const struct wire_frame *frame)
{
	uint64_t each = frame->arg1, length = frame->length;
	bool good = frame->op == XSEG_OP_CONTROL && frame->value == XSEG_CONTROL_DIGEST &&
		    each >= XSEG_PAGE && each <= XSEG_OBJECT_MAX && length > 0 &&
		    length <= XSEG_OBJECT_MAX &&
		    (length + each - 1) / each * XSEG_DIGEST <= frame->room;
	return good ? (uint32_t)each : 0;
}

static void digest(struct export_request *request, const struct call *call)
{
	request->saved = calloc(1, request->room);
	if (!request->saved) {
		request->result = -ENOMEM;
		return;
	}
	uint8_t *out = request->saved;
	for (uint32_t at = 0; at < call->length; at += request->digest, out += XSEG_DIGEST) {
		uint32_t left = call->length - at;
		call_digest(call, at, left < request->digest ? left : request->digest, out);
	}
}

/* Whose fault it is stands beside the error (<peer/map.h>). */
static bool blames(const struct export_request *request)
{
	return (request->op == XSEG_OP_OPEN || request->op == XSEG_OP_CONTROL) &&
	       request->result < 0 && request->value == 1;
}

static void done(struct call *call)
{
	struct export_request *request = call->context;
	must(request->state == EXPORT_STATE_RUNNING);
	request->session->running--;
	request->result = call->result;
	if (request->digest && call->result == 0)
		digest(request, call);
	/* what tells importers apart is here: the store need not know of others */
	if (call->result == -EOPNOTSUPP && tells_apart(request->session->export) &&
		(is_fence(request) || is_control(request, XSEG_CONTROL_LEAVE)))
		request->result = 0;
	if (is_removal(call) && call->result == 0)
		export_fence_forget(request->session->export, request->volume);
	export_rights_answered(request, call);
	request->value = call->value;
	request->length = call->answer_length;
	request->data = request->result == 0 || blames(request) ? request->room : 0;
	answer(request);
}

/* --- fences ----------------------------------------------------------------------------------- */

static bool changes(enum xseg_op op)
{
	return op == XSEG_OP_WRITE || op == XSEG_OP_ZERO || op == XSEG_OP_DISCARD ||
	       op == XSEG_OP_COPY;
}

static bool is_of_data(enum xseg_op op) { return op == XSEG_OP_READ || changes(op); }

/* Is a change of this volume on its way that comes from another segment? */
static bool others_change(const struct export *export, const struct export_request *fence)
{
	const struct export_session *session;
	TAILQ_FOREACH (session, &export->sessions, link) {
		if (session->running == 0 ||
			(memcmp(session->hello.writer, fence->session->hello.writer, 16) == 0 &&
				session->who == fence->session->who))
			continue;
		for (unsigned i = 0; i < WIRE_WINDOW; i++) {
			const struct export_request *other = &session->table[i];
			if (other->state == EXPORT_STATE_RUNNING && changes(other->op) &&
				other->volume == fence->volume)
				return true;
		}
	}
	return false;
}

static void submit(struct export_request *request)
{
	request->state = EXPORT_STATE_RUNNING;
	call_submit(request->call, request->session->export->edge, done);
}

static void wait_begin(struct export_request *request)
{
	request->session->running++;
	request->state = EXPORT_STATE_WAITING;
	request->waits_until_ns = clock_now_ns() + FENCE_NS;
	request->session->export->fencing++;
}

static void fence_begin(struct export_request *request)
{
	struct export_session *session = request->session;
	struct export *export = session->export;
	const struct call *call = request->call;
	struct export_fence claim = {.volume = request->volume,
		.term = call->arg1,
		.line = call->offset,
		.who = session->who,
		.nobody = (call->flags & XSEG_F_READ_ONLY) != 0};
	memcpy(claim.writer, session->hello.writer, sizeof(claim.writer));
	bool good = claim.volume != 0 && claim.term != 0;
	int error = good ? export_fence_claim(export, &claim) : -EINVAL;
	if (error) {
		answer_error(request, error);
		return;
	}
	wait_begin(request);
}

/* The end of WAITING. */
static void wait_ends(struct export_request *request, int error)
{
	struct export_session *session = request->session;
	session->export->fencing--;
	if (!error) {
		submit(request);
		return;
	}
	session->running--;
	answer_error(request, error);
}

static void flushed(struct call *call)
{
	struct export_request *request = call->context;
	int error = call->result;
	call_end(call);
	request->flushing = false;
	if (!error)
		export_fence_paid(request->session->export, request->volume);
	wait_ends(request, error);
}

/* Who has the volume now may build on what it reads, so that must not be lost any more; and a cache
   below drops what it has from before the term. */
static bool flush(struct export_request *request)
{
	struct call *call;
	if (call_begin(request->session->export->peer, &call))
		return false; /* at the next turn */
	call->op = XSEG_OP_FLUSH;
	call->key.volume = request->volume;
	call->context = request;
	request->flushing = true;
	call_submit(call, request->session->export->edge, flushed);
	return true;
}

static bool fence_turn(struct export_request *request, uint64_t now)
{
	struct export *export = request->session->export;
	bool others = others_change(export, request);
	if (request->flushing || (others && now < request->waits_until_ns))
		return false;
	if (!others && export_fence_owes(export, request->volume))
		return flush(request);
	wait_ends(request, others ? -ETIMEDOUT : 0);
	return true;
}

/* --- telling whose a volume is ---------------------------------------------------------------- */

static void told(struct call *call)
{
	struct export *export = call->context;
	struct export_session *session;
	uint64_t volume = call->key.volume, term = call->arg1;
	int error = call->result == -EOPNOTSUPP ? 0 : call->result;
	call_end(call);
	export->fencing--;
	/* those that wait are told of the next term, too */
	if (!export_fence_told(export, volume, term, error == 0))
		error = 0;
	TAILQ_FOREACH (session, &export->sessions, link)
		for (unsigned i = 0; error && i < WIRE_WINDOW && session->running > 0; i++) {
			struct export_request *request = &session->table[i];
			if (request->state == EXPORT_STATE_WAITING && !is_fence(request) &&
				request->volume == volume)
				wait_ends(request, error);
		}
}

/* False: what is below knows. It is told when it is used, not of all volumes that ever were. */
static bool tell(struct export *export, uint64_t volume)
{
	struct export_fence *fence = export_fence_untold(export, volume);
	struct call *call;
	if (!fence)
		return false;
	if (fence->told == EXPORT_TELLING || call_begin(export->peer, &call))
		return true;
	call->op = XSEG_OP_CONTROL;
	call->key.volume = volume;
	call->arg0 = XSEG_CONTROL_FENCE;
	call->arg1 = fence->term;
	call->offset = fence->line;
	call->context = export;
	fence->told = EXPORT_TELLING;
	export->fencing++;
	call_submit(call, export->edge, told);
	return true;
}

/* Another may have taken the volume meanwhile. */
static bool told_turn(struct export_request *request)
{
	const struct export_session *session = request->session;
	struct export *export = session->export;
	if (tell(export, request->volume))
		return false;
	bool allowed = export_fence_allows(export, session, request->volume, request->arg1);
	if (!allowed)
		peer_count(export->peer, EXPORT_FENCED, 1);
	wait_ends(request, allowed ? 0 : -ESTALE);
	return true;
}

bool export_request_turn(struct export *export)
{
	struct export_session *session;
	uint64_t now = peer_now_ns(export->peer);
	bool moved = false;
	if (export->fencing == 0)
		return false;
	TAILQ_FOREACH (session, &export->sessions, link)
		for (unsigned i = 0; i < WIRE_WINDOW && session->running > 0; i++)
			if (session->table[i].state == EXPORT_STATE_WAITING)
				moved |= is_fence(&session->table[i])
						 ? fence_turn(&session->table[i], now)
						 : told_turn(&session->table[i]);
	return moved;
}

/* --- coming in -------------------------------------------------------------------------------- */

/* What stands below has been answered, and the importer has it. */
static void acknowledge(struct export_session *session, uint64_t lowest)
{
	if (lowest > session->lowest + WIRE_WINDOW) /* there are no more than that */
		session->lowest = lowest - WIRE_WINDOW;
	for (; session->lowest < lowest; session->lowest++) {
		struct export_request *request = &session->table[session->lowest % WIRE_WINDOW];
		if (request->sequence != session->lowest)
			continue;
		if (request->state == EXPORT_STATE_DONE)
			release(request);
		else if (request->state != EXPORT_STATE_FREE)
			request->orphan = true;
	}
}

static int fill(struct export_request *request, const struct wire_frame *frame)
{
	struct call *call;
	int error = call_begin(request->session->export->peer, &call);
	if (error)
		return error;
	call->op = (enum xseg_op)frame->op;
	call->flags = frame->flags & ~(unsigned)(XSEG_F_PIN | XSEG_F_DONATE);
	if (call->op == XSEG_OP_READ)
		call->flags |= XSEG_F_PIN;
	if (call->op == XSEG_OP_WRITE)
		call->flags |= XSEG_F_DONATE;
	call->key = frame->key;
	call->offset = frame->offset;
	call->length = frame->length;
	call->arg0 = frame->value;
	call->arg1 = frame->arg1;
	call->context = request;
	uint32_t pages = frame->data > frame->room ? frame->data : frame->room;
	if (request->digest) {
		call->op = XSEG_OP_READ;
		call->arg0 = call->arg1 = 0;
		pages = pages > call->length ? pages : call->length;
	}
	error = call_pages(call, pages);
	if (error) {
		call_end(call);
		return error;
	}
	request->call = call;
	return 0;
}

static int accept_request(
	struct export_request *request, struct export_conn *conn, const struct wire_frame *frame)
{
	struct export_session *session = conn->session;
	*request = (struct export_request){
		.session = session,
		.class = conn->class,
		.op = (enum xseg_op)frame->op,
		.sequence = frame->sequence,
		.arg1 = frame->arg1,
		.volume = frame->key.volume,
		.generation = session->generation,
		.room = frame->room,
		.digest = digest_of(frame),
	};
	int error = fill(request, frame);
	if (error)
		return error;
	request->state = EXPORT_STATE_ARRIVING;
	conn->request = request;
	return 0;
}

static bool resume(struct peer *peer, void *context)
{
	struct export *export = context;
	struct export_conn *conn;
	(void)peer;
	export->retrying = false;
	TAILQ_FOREACH (conn, &export->conns, link)
		conn_resume(&conn->conn);
	return true;
}

static int wait_for_room(struct export *export, int error)
{
	if (error == -EAGAIN && !export->retrying) {
		export->retrying = true;
		peer_retry(export->peer, resume, export);
	}
	return error;
}

int export_request_begin(struct export_conn *conn, const struct wire_frame *frame)
{
	struct export_session *session = conn->session;
	uint64_t lowest = frame->sequence - frame->behind;
	struct export_request *request = &session->table[frame->sequence % WIRE_WINDOW];
	conn->request = NULL;
	conn->resends = false;
	if (frame->sequence < session->lowest || frame->sequence >= lowest + WIRE_WINDOW)
		return -EPROTO;
	acknowledge(session, lowest);
	bool same = request->state != EXPORT_STATE_FREE && request->sequence == frame->sequence;
	if (request->state == EXPORT_STATE_FREE)
		return wait_for_room(session->export, accept_request(request, conn, frame));
	if (!same)
		return wait_for_room(session->export, -EAGAIN); /* one that was given up runs on */
	if (request->state == EXPORT_STATE_ARRIVING || request->state == EXPORT_STATE_ANSWERING ||
		request->generation == session->generation)
		return -EPROTO;
	peer_count(session->export->peer, EXPORT_REPLAYS, 1);
	request->generation = session->generation;
	request->class = conn->class;
	conn->resends = request->state == EXPORT_STATE_DONE;
	conn->request = conn->resends ? request : NULL;
	return 0;
}

int export_request_place(struct export_conn *conn, uint32_t at, struct iovec *iov, int max)
{
	const struct export_request *request = conn->request;
	if (!request || conn->resends)
		return 0;
	uint32_t left = conn->conn.frame.data - at;
	return conn_pieces(call_iov, request->call, at, left, iov, max);
}

int export_request_end(struct export_conn *conn)
{
	struct export_request *request = conn->request;
	conn->request = NULL;
	if (!request)
		return 0;
	if (conn->resends) {
		conn->resends = false;
		answer(request);
		return 0;
	}
	struct export_session *session = request->session;
	struct export *export = session->export;
	if (!export_rights_allow(request)) {
		peer_count(export->peer, EXPORT_DENIED, 1);
		answer_error(request, -EPERM);
	} else if (is_fence(request) && tells_apart(export)) {
		fence_begin(request);
	} else if (tells_apart(export) && changes(request->op) &&
		   !export_fence_allows(export, session, request->volume, request->arg1)) {
		peer_count(export->peer, EXPORT_FENCED, 1);
		answer_error(request, -ESTALE);
	} else if (tells_apart(export) && is_of_data(request->op) &&
		   tell(export, request->volume) && changes(request->op)) {
		wait_begin(request);
	} else {
		session->running++;
		submit(request);
	}
	return 0;
}

/* --- the end ---------------------------------------------------------------------------------- */

void export_request_cut(struct export_session *session)
{
	for (unsigned i = 0; i < WIRE_WINDOW; i++)
		if (session->table[i].state == EXPORT_STATE_ARRIVING)
			release(&session->table[i]);
}

void export_request_forget(struct export_session *session)
{
	must(session->running == 0);
	for (unsigned i = 0; i < WIRE_WINDOW; i++) {
		release(&session->table[i]);
		session->table[i] = (struct export_request){0};
	}
}
