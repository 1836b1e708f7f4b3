/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BLOCK_STATUS: what of the volume is data, zero, hole; what has changed since a snapshot. Asked
 * for piece by piece, joined; one context after the other.
 */
#include <errno.h>
#include <stdlib.h>

#include "peers/front/nbd.h"

#define NBD_STATUS_FLAGS (XSEG_STATUS_HOLE | XSEG_STATUS_ZERO) /* as NBD's STATE_HOLE, STATE_ZERO */
#define NBD_STATUS_LENGTH_MAX 0xfffffe00u
#define NBD_STATUS_EXTENTS (XSEG_PAGE / sizeof(struct xseg_status_extent))

static struct nbd_status *nbd_status_get(struct nbd *nbd)
{
	struct nbd_status *status = nbd->free_status;
	if (status)
		nbd->free_status = status->next;
	else
		status = malloc(sizeof(*status));
	if (status)
		status->size = 0;
	return status;
}

void nbd_status_put(struct nbd *nbd, struct nbd_status *status)
{
	status->next = nbd->free_status;
	nbd->free_status = status;
}

void nbd_status_free_all(struct nbd *nbd)
{
	while (nbd->free_status) {
		struct nbd_status *status = nbd->free_status;
		nbd->free_status = status->next;
		free(status);
	}
}

/* One more stretch, joined to the last when it is alike; false: full. */
static bool nbd_status_add(struct nbd_status *status, uint32_t length, uint32_t flags)
{
	uint8_t *last = status->wire + status->size - 8;
	if (status->count && nbd_get32(last + 4) == flags &&
		nbd_get32(last) <= NBD_STATUS_LENGTH_MAX - length) {
		nbd_put32(last, nbd_get32(last) + length);
		return true;
	}
	if (status->count == NBD_STATUS_MAX)
		return false;
	nbd_put32(nbd_put32(last + 8, length), flags);
	status->size += 8;
	status->count++;
	return true;
}

bool nbd_status_add_to(struct nbd_request *request, uint64_t to, uint32_t flags)
{
	to = to < request->end ? to : request->end;
	while (request->next < to) {
		uint64_t left = to - request->next;
		uint32_t length =
			left < NBD_STATUS_LENGTH_MAX ? (uint32_t)left : NBD_STATUS_LENGTH_MAX;
		if (!nbd_status_add(request->status, length, flags))
			return false;
		request->next += length;
	}
	return true;
}

/* --- contexts -------------------------------------------------------------------- */

static void nbd_status_begin_context(struct nbd_request *request, uint32_t context)
{
	struct nbd_status *status = request->status;
	status->context = context;
	status->begin = status->size;
	status->size += NBD_STATUS_HEADER;
	status->count = 0;
	request->next = request->command.offset;
}

/* False: that was the last one. */
static bool nbd_status_next_context(struct nbd_request *request)
{
	struct nbd_status *status = request->status;
	uint32_t next = status->context + 1;
	bool last = next == NBD_CONTEXT_DIRTY + request->conn->session.dirty_count;
	nbd_reply_status(status->wire + status->begin, request->command.cookie, status->context,
		status->count, last);
	if (!last)
		nbd_status_begin_context(request, next);
	return !last;
}

/* --- base:allocation ------------------------------------------------------------- */

/* Stretches as the volume tells them, cut to the request; false: no more are wanted. */
static bool nbd_status_take(struct nbd_request *request, const struct call *call)
{
	uint64_t at = call->offset, end = call->offset + call->length;
	uint64_t count = call->value < NBD_STATUS_EXTENTS ? call->value : NBD_STATUS_EXTENTS;
	end = end < request->end ? end : request->end;
	for (uint64_t i = 0; i < count && at < end; i++) {
		struct xseg_status_extent extent;
		call_get_bytes(call, (uint32_t)(i * sizeof(extent)), &extent, sizeof(extent));
		uint64_t to = extent.length < end - at ? at + extent.length : end;
		uint64_t from = at > request->next ? at : request->next;
		if (to > from && !nbd_status_add(request->status, (uint32_t)(to - from),
					 extent.flags & NBD_STATUS_FLAGS))
			return false;
		if (to > from)
			request->next = to;
		at = to;
	}
	return true;
}

/* "Data" is always true, and the answer of stores that know nothing better. */
static bool nbd_status_unknown(struct nbd_request *request)
{
	uint64_t left = request->end - request->next;
	nbd_status_add(request->status,
		left < NBD_STATUS_LENGTH_MAX ? (uint32_t)left : NBD_STATUS_LENGTH_MAX, 0);
	return false;
}

static bool nbd_status_done(struct nbd_request *request, struct call *call)
{
	uint64_t before = request->next;
	bool more = false;
	if (request->status->context != NBD_CONTEXT_ALLOCATION)
		more = nbd_dirty_take(request, call);
	else if (call->result == -EOPNOTSUPP)
		more = nbd_status_unknown(request);
	else if (call->result)
		nbd_request_note(request, call->result);
	else
		more = nbd_status_take(request, call) &&
		       (request->next > before || nbd_status_unknown(request));
	call_end(call);
	request->pending--;
	if (request->command.flags & NBD_CMD_FLAG_REQ_ONE && request->status->count > 1) {
		request->status->size -= 8 * (request->status->count - 1);
		request->status->count = 1;
		more = false;
	}
	return more && request->next < request->end;
}

static void nbd_status_finish(struct nbd_request *request)
{
	request->next = request->end;
	nbd_request_finish(request);
}

static bool nbd_status_go_on(struct peer *peer, void *context)
{
	struct nbd_request *request = context;
	(void)peer;
	struct call *call =
		request->status->context != NBD_CONTEXT_ALLOCATION
			? nbd_dirty_call(request)
			: nbd_data_call(request, XSEG_OP_STATUS, request->next,
				  front_cut(request->next, request->end, XSEG_OBJECT_MAX),
				  XSEG_PAGE);
	if (!call)
		return false;
	request->pending++;
	call_submit(call, FRONT_EDGE_VOLUME, request->status->done);
	return true;
}

static void nbd_status_answered(struct call *call)
{
	struct nbd_request *request = call->context;
	struct peer *peer = request->conn->nbd->peer;
	bool more = nbd_status_done(request, call);
	if (!more && !request->error)
		more = nbd_status_next_context(request);
	if (!more)
		nbd_status_finish(request);
	else if (!nbd_status_go_on(peer, request))
		peer_retry(peer, nbd_status_go_on, request);
}

int nbd_status_begin(struct nbd_request *request)
{
	struct nbd *nbd = request->conn->nbd;
	request->status = nbd_status_get(nbd);
	if (request->status) {
		request->status->done = nbd_status_answered;
		nbd_status_begin_context(request,
			request->conn->session.meta ? NBD_CONTEXT_ALLOCATION : NBD_CONTEXT_DIRTY);
	}
	if (request->status && nbd_status_go_on(nbd->peer, request))
		return 0;
	if (request->status)
		nbd_status_put(nbd, request->status);
	request->status = NULL;
	return nbd_conn_starve(request->conn);
}
