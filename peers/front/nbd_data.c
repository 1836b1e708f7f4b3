/* SPDX-License-Identifier: Apache-2.0 */
/* READ, WRITE and FLUSH as calls: cut at objects, joined again for the reply. */
#include <base/crash.h>
#include <errno.h>

#include "peers/front/nbd.h"

static unsigned nbd_call_flags(const struct nbd_request *request, enum xseg_op op)
{
	unsigned fua = request->command.flags & NBD_CMD_FLAG_FUA ? XSEG_F_FUA : 0;
	switch (op) {
	case XSEG_OP_READ: return XSEG_F_PIN;
	case XSEG_OP_WRITE: return XSEG_F_DONATE | fua;
	case XSEG_OP_ZERO:
	case XSEG_OP_DISCARD: return fua;
	default: return 0;
	}
}

struct call *nbd_data_call(struct nbd_request *request, enum xseg_op op, uint64_t offset,
	uint32_t length, uint32_t data)
{
	const uint64_t in_sector = XSEG_SECTOR - 1;
	struct call *call;
	if (call_begin(request->conn->nbd->peer, &call))
		return NULL;
	call->op = op;
	call->flags = nbd_call_flags(request, op);
	call->key = (struct xseg_key){.volume = request->conn->session.volume};
	if (op != XSEG_OP_READ)
		call->arg1 = request->conn->session.term;
	call->offset = offset & ~in_sector;
	call->length = (uint32_t)(((offset + length + in_sector) & ~in_sector) - call->offset);
	call->context = request;
	if (data && call_pages(call, data == length ? call->length : data)) {
		call_end(call);
		return NULL;
	}
	return call;
}

/* --- READ ------------------------------------------------------------------------ */

#define NBD_STREAM_MIN (1u << 20)

static void nbd_read_done(struct call *call)
{
	struct nbd_request *request = call->context;
	nbd_request_note(request, call->result);
	if (--request->pending)
		return;
	if (unlikely(request->queued)) /* read again: see nbd_overload.c */
		nbd_conn_mark(request->conn);
	else
		nbd_request_finish(request);
}

bool nbd_data_read_part(struct nbd_request *request)
{
	uint32_t step = front_read_step(request->command.length);
	uint32_t length = front_cut(request->next, request->end, step);
	struct call *call = nbd_data_call(request, XSEG_OP_READ, request->next, length, length);
	if (!call)
		return false;
	TAILQ_INSERT_TAIL(&request->parts, call, link);
	request->next += length;
	return true;
}

void nbd_data_read_submit(struct nbd_request *request, struct call *first)
{
	struct call *next;
	for (struct call *call = first; call; call = next) {
		next = TAILQ_NEXT(call, link);
		request->pending++;
		call_submit(call, FRONT_EDGE_VOLUME, nbd_read_done);
	}
}

static void nbd_read_drop(struct nbd_request *request)
{
	struct call *call;
	while ((call = TAILQ_FIRST(&request->parts))) {
		TAILQ_REMOVE(&request->parts, call, link);
		call_end(call);
	}
	request->next = request->command.offset;
}

/*
 * All pages or none: requests that hold some and wait for more could wait for each other. One that
 * is too long for a pool that low goes out piece by piece as if it had been dropped; then an error
 * in the middle costs the connection, but there is always a way on.
 */
int nbd_data_read(struct nbd_request *request)
{
	while (request->next < request->end) {
		if (nbd_data_read_part(request))
			continue;
		nbd_read_drop(request);
		if (request->command.length < NBD_STREAM_MIN)
			return nbd_conn_starve(request->conn);
		request->dropped = true;
		nbd_request_finish(request);
		return 0;
	}
	nbd_data_read_submit(request, TAILQ_FIRST(&request->parts));
	return 0;
}

/* --- WRITE ----------------------------------------------------------------------- */

/* Pages for so much payload at once: the store begins while the rest arrives, and a client that
   stops in the middle holds no more. What has to be durable is not made so piece by piece. */
#define NBD_WRITE_STEP (256u << 10)
#define NBD_FILL_BYTE_NS 8000u /* a payload comes no slower than 125 kB/s, after stall-timeout */

static uint32_t nbd_write_step(const struct nbd_request *request)
{
	return request->command.flags & NBD_CMD_FLAG_FUA ? XSEG_OBJECT_MAX : NBD_WRITE_STEP;
}

static void nbd_write_done(struct call *call)
{
	struct nbd_request *request = call->context;
	nbd_request_note(request, call->result);
	call_end(call);
	request->pending--;
	if (unlikely(request->conn->waits & NBD_WAIT_PATCH) && request->range == NBD_RANGE_ALONE)
		nbd_conn_wake(request->conn, NBD_WAIT_PATCH);
	nbd_range_unlock(request);
	nbd_request_check(request);
}

int nbd_data_write_part(struct nbd_request *request)
{
	uint64_t at = request->next;
	if (unlikely(request->error)) {
		/* nothing more is written, but the payload must go somewhere */
		request->fill_size = (uint32_t)(request->end - at);
		request->next = request->end;
		request->filled = 0;
		return 0;
	}
	uint32_t length = front_cut(at, request->end, nbd_write_step(request));
	struct call *call = nbd_data_call(request, XSEG_OP_WRITE, at, length, length);
	if (!call)
		return nbd_conn_starve(request->conn);
	request->filling = call;
	request->fill_at = (uint32_t)(at - call->offset);
	request->fill_size = length;
	request->filled = 0;
	request->next = at + length;
	return 0;
}

int nbd_data_write(struct nbd_request *request)
{
	struct nbd_conn *conn = request->conn;
	int error = nbd_data_write_part(request);
	if (error)
		return error;
	conn->filling = request;
	conn->checked_ns = nbd_now(conn->nbd);
	conn->fill_left_ns =
		conn->nbd->options->stall_ns + (uint64_t)request->command.length * NBD_FILL_BYTE_NS;
	return 0;
}

void nbd_data_write_filled(struct nbd_request *request)
{
	struct nbd_conn *conn = request->conn;
	struct call *call = request->filling;
	bool odd = nbd_is_odd(request->fill_at, request->fill_size);
	if (likely(call != NULL) &&
		unlikely(nbd_range_lock(request, odd ? NBD_RANGE_ALONE : NBD_RANGE_SHARED)))
		return; /* it is called again when the range lock is open */
	crash_point("front_nbd.write.filled");
	request->filling = NULL;
	if (likely(call != NULL)) {
		request->pending++;
		if (unlikely(odd)) {
			nbd_conn_wait(conn, NBD_WAIT_PATCH);
			nbd_patch_begin(request, call, request->fill_at, request->fill_size,
				nbd_write_done);
		} else {
			call_submit(call, FRONT_EDGE_VOLUME, nbd_write_done);
		}
	}
	if (unlikely(request->next < request->end)) {
		nbd_data_write_part(request); /* or waits are set, and the parser tries again */
		return;
	}
	conn->filling = NULL;
	nbd_request_check(request);
}

/* --- FLUSH ----------------------------------------------------------------------- */

static void nbd_flush_done(struct call *call)
{
	struct nbd_request *request = call->context;
	nbd_request_note(request, call->result);
	call_end(call);
	request->pending--;
	nbd_request_finish(request);
}

int nbd_data_flush(struct nbd_request *request)
{
	struct call *call = nbd_data_call(request, XSEG_OP_FLUSH, 0, 0, 0);
	if (!call)
		return nbd_conn_starve(request->conn);
	request->pending = 1;
	call_submit(call, FRONT_EDGE_VOLUME, nbd_flush_done);
	return 0;
}
