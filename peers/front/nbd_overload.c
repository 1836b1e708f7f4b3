/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client that does not take its replies must not sit on pages that others need: the data of READs
 * that cannot leave is given back, and read again when the client goes on. What comes next in the
 * stream is kept: it may be half on its way.
 */
#include <errno.h>

#include "peers/front/nbd.h"

#define NBD_OVERLOAD_KEEP 65536 /* bytes of the stream; more than a TLS record */
#define NBD_RESTORE_PARTS 8u

/* Parts that begin `keep` bytes into the data or behind. */
static void nbd_overload_parts(struct nbd_request *request, int64_t keep)
{
	uint64_t begin = request->command.offset;
	struct call *call;
	while ((call = TAILQ_LAST(&request->parts, call_queue))) {
		/* the first part's call may begin in front of the request, at a sector */
		uint64_t at = call->offset > begin ? call->offset : begin;
		if ((int64_t)(at - begin) < keep)
			break;
		request->next = at;
		request->dropped = true;
		TAILQ_REMOVE(&request->parts, call, link);
		call_end(call);
	}
}

void nbd_overload_drop(struct nbd_conn *conn, uint64_t since_ns)
{
	int64_t ahead = -(int64_t)conn->sent; /* bytes of the stream in front of this reply */
	struct nbd_request *request;
	if (!conn->blocked || nbd_now(conn->nbd) - conn->blocked_ns < since_ns)
		return;
	TAILQ_FOREACH (request, &conn->queue, link) {
		ahead += request->header_size;
		if (!request->pending)
			nbd_overload_parts(request, NBD_OVERLOAD_KEEP - ahead);
		ahead += nbd_send_body_size(request);
	}
}

/* Nothing of it was sent, so an error can be told; else only the end of the connection says it. */
static void nbd_overload_failed(struct nbd_conn *conn, struct nbd_request *request)
{
	if (conn->sent) {
		nbd_conn_fail(conn, "waits for the rest of a read that has failed");
		return;
	}
	TAILQ_REMOVE(&conn->queue, request, link);
	request->queued = request->dropped = false;
	nbd_request_finish(request);
}

bool nbd_overload_restore(struct nbd_conn *conn)
{
	struct nbd_request *request = TAILQ_FIRST(&conn->queue);
	if (request->pending)
		return false;
	if (request->error && !request->refused) {
		nbd_overload_failed(conn, request);
		return false;
	}
	if (!request->dropped || !TAILQ_EMPTY(&request->parts))
		return true;
	for (unsigned i = 0; i < NBD_RESTORE_PARTS && request->next < request->end; i++)
		if (!nbd_data_read_part(request))
			break;
	request->dropped = request->next < request->end;
	if (TAILQ_EMPTY(&request->parts))
		nbd_conn_starve(conn);
	else
		nbd_data_read_submit(request, TAILQ_FIRST(&request->parts));
	return false;
}
