/* SPDX-License-Identifier: Apache-2.0 */
/* The out queue: all replies that are ready leave with one send, data straight from the pages. */
#include <base/crash.h>
#include <errno.h>

#include "peers/front/nbd.h"

uint32_t nbd_send_body_size(const struct nbd_request *request)
{
	if (request->refused)
		return 0;
	if (request->command.type == NBD_CMD_READ)
		return request->command.length;
	return request->status ? request->status->size : 0;
}

/* As much of [at, at + length) of a call's data as `max` pieces hold; 0: none. */
static int nbd_gather_call(
	const struct call *call, uint32_t at, uint32_t *length, struct iovec *iov, int max)
{
	int count = call_iov(call, at, *length, iov, max);
	if (count >= 0)
		return count;
	must(count == -E2BIG);
	if (max < 2)
		return 0;
	*length = ((uint32_t)max - 1) * XSEG_PAGE;
	count = call_iov(call, at, *length, iov, max);
	must(count > 0);
	return count;
}

/* Data of a READ from byte `from` of its body on; *all: nothing is left. */
static int nbd_gather_parts(
	const struct nbd_request *request, uint32_t from, struct iovec *iov, int max, bool *all)
{
	uint64_t begin = request->command.offset, end = begin + request->command.length;
	const struct call *call;
	int count = 0;
	TAILQ_FOREACH (call, &request->parts, link) {
		uint64_t part_end = call->offset + call->length;
		uint64_t at = begin + from;
		part_end = part_end < end ? part_end : end;
		if (at >= part_end)
			continue;
		uint32_t length = (uint32_t)(part_end - at), taken = length;
		int pieces = nbd_gather_call(
			call, (uint32_t)(at - call->offset), &taken, iov + count, max - count);
		count += pieces;
		from += pieces ? taken : 0;
		if (!pieces || taken < length)
			break;
	}
	*all = from == request->command.length; /* else no room is left, or it was dropped */
	return count;
}

static int nbd_gather_body(
	struct nbd_request *request, uint32_t from, struct iovec *iov, int max, bool *all)
{
	uint32_t size = nbd_send_body_size(request);
	*all = true;
	if (from >= size)
		return 0;
	if (!request->status)
		return nbd_gather_parts(request, from, iov, max, all);
	*all = max > 0;
	if (*all)
		iov[0] = (struct iovec){request->status->wire + from, size - from};
	return *all;
}

/* What is to be sent now; how many pieces. */
static int nbd_gather(struct nbd_conn *conn, struct iovec *iov)
{
	struct nbd_request *request;
	uint64_t sent = conn->sent;
	int count = 0;
	TAILQ_FOREACH (request, &conn->queue, link) {
		bool away = request->dropped && TAILQ_EMPTY(&request->parts);
		if (count >= NBD_IOV_MAX - 2 || request->pending || away)
			break;
		if (sent < request->header_size)
			iov[count++] =
				(struct iovec){request->header + sent, request->header_size - sent};
		uint32_t from =
			sent > request->header_size ? (uint32_t)(sent - request->header_size) : 0;
		bool all;
		count += nbd_gather_body(request, from, iov + count, NBD_IOV_MAX - count, &all);
		if (!all)
			break;
		sent = 0;
	}
	return count;
}

/* Parts of the first reply that have left completely. */
static void nbd_sent_parts(struct nbd_conn *conn, struct nbd_request *request)
{
	struct call *call;
	if (conn->sent <= request->header_size)
		return;
	uint64_t at = request->command.offset + (conn->sent - request->header_size);
	while ((call = TAILQ_FIRST(&request->parts)) && call->offset + call->length <= at) {
		TAILQ_REMOVE(&request->parts, call, link);
		call_end(call);
	}
}

static void nbd_sent(struct nbd_conn *conn, uint64_t size)
{
	struct nbd_request *request;
	peer_count(conn->nbd->peer, NBD_COUNT_SENDS, 1);
	peer_count(conn->nbd->peer, NBD_COUNT_BYTES_OUT, size);
	conn->bytes_out += size;
	while ((request = TAILQ_FIRST(&conn->queue))) {
		uint64_t left =
			request->header_size + (uint64_t)nbd_send_body_size(request) - conn->sent;
		if (size < left)
			break;
		size -= left;
		conn->sent = 0;
		TAILQ_REMOVE(&conn->queue, request, link);
		nbd_request_release(request);
	}
	conn->sent += size;
	if (request && conn->sent)
		nbd_sent_parts(conn, request);
}

static bool nbd_send_failed(struct nbd_conn *conn, ssize_t error)
{
	if (error == -EAGAIN) {
		nbd_conn_block(conn);
		return false;
	}
	nbd_conn_fail(conn, error == -EPIPE || error == -ECONNRESET ? NULL : strerror((int)-error));
	return true;
}

bool nbd_send(struct nbd_conn *conn)
{
	struct iovec *iov = conn->nbd->iov;
	bool moved = false;
	while (!TAILQ_EMPTY(&conn->queue)) {
		uint64_t asked = 0;
		if (unlikely(!nbd_overload_restore(conn)))
			break;
		int count = nbd_gather(conn, iov);
		for (int i = 0; i < count; i++)
			asked += iov[i].iov_len;
		crash_point("front_nbd.reply.before_send");
		ssize_t sent = conn->transport->send(conn, iov, count);
		if (sent < 0)
			return nbd_send_failed(conn, sent) || moved;
		moved = true;
		conn->blocked = false;
		nbd_sent(conn, (uint64_t)sent);
		if ((uint64_t)sent < asked) {
			nbd_conn_block(conn);
			break;
		}
	}
	return moved;
}
