/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the socket into the receive buffer, and from the receive buffer into requests. One receive
 * takes all that is there; large payloads go straight into the pages of their write.
 */
#include <errno.h>
#include <stdlib.h>

#include "peers/front/nbd.h"

#define NBD_BUFFERS_KEPT 4u
#define NBD_FILL_IOV 66 /* as much of a payload as one receive asks for: 256 KiB and two edges */
#define NBD_FILL_MAX ((NBD_FILL_IOV - 2u) * XSEG_PAGE)

/* --- receive buffers: a few hot buffers, lent out while they hold something --------------- */

static uint8_t *receive_buffer_get(struct nbd *nbd)
{
	uint8_t *buffer = nbd->buffers;
	if (!buffer)
		return malloc(NBD_STAGE_SIZE);
	memcpy(&nbd->buffers, buffer, sizeof(nbd->buffers));
	nbd->buffer_count--;
	return buffer;
}

static void receive_buffer_put(struct nbd *nbd, uint8_t *buffer)
{
	if (nbd->buffer_count == NBD_BUFFERS_KEPT) {
		free(buffer);
		return;
	}
	memcpy(buffer, &nbd->buffers, sizeof(nbd->buffers));
	nbd->buffers = buffer;
	nbd->buffer_count++;
}

void nbd_receive_free(struct nbd *nbd)
{
	while (nbd->buffers)
		free(receive_buffer_get(nbd));
}

/* Room for a receive, what was left over in front; false: no memory. */
static bool receive_open(struct nbd_conn *conn)
{
	if (!conn->buffer) {
		conn->buffer = receive_buffer_get(conn->nbd);
		if (!conn->buffer)
			return false;
		memcpy(conn->buffer, conn->carry, conn->carried);
		conn->head = 0;
		conn->tail = conn->carried;
		conn->carried = 0;
	} else if (conn->head) {
		memmove(conn->buffer, conn->buffer + conn->head, conn->tail - conn->head);
		conn->tail -= conn->head;
		conn->head = 0;
	}
	return true;
}

/* Little is left: it is kept aside and the receive buffer goes to whoever receives next. */
static void receive_close(struct nbd_conn *conn)
{
	uint32_t left = conn->tail - conn->head;
	if (!conn->buffer || left > sizeof(conn->carry))
		return;
	memcpy(conn->carry, conn->buffer + conn->head, left);
	conn->carried = left;
	receive_buffer_put(conn->nbd, conn->buffer);
	conn->buffer = NULL;
	conn->head = conn->tail = 0;
}

void nbd_receive_reset(struct nbd_conn *conn)
{
	conn->head = conn->tail = conn->carried = 0;
	receive_close(conn);
}

/* --- parsing --------------------------------------------------------------------- */

/* Payload out of the receive buffer; false: more bytes are needed first. */
static bool nbd_parse_payload(struct nbd_conn *conn)
{
	struct nbd_request *request = conn->filling;
	if (unlikely(!request->filling && request->filled == request->fill_size))
		return !nbd_data_write_part(request); /* had no pages for it before */
	uint32_t size = conn->tail - conn->head;
	uint32_t left = request->fill_size - request->filled;
	size = size < left ? size : left;
	if (request->filling && size)
		call_put_bytes(request->filling, request->fill_at + request->filled,
			conn->buffer + conn->head, size);
	conn->head += size;
	request->filled += size;
	if (size < left)
		return false;
	if (request->refused) {
		conn->filling = NULL;
		nbd_request_finish(request);
	} else {
		nbd_data_write_filled(request);
	}
	return true;
}

static bool nbd_parse_header(struct nbd_conn *conn)
{
	if (conn->tail - conn->head < NBD_REQUEST_HEADER)
		return false;
	int error = nbd_request_take(conn, conn->buffer + conn->head);
	if (error == -EPROTO)
		nbd_conn_fail(conn, "sent something that is no request");
	if (error)
		return false;
	conn->head += NBD_REQUEST_HEADER;
	if (conn->filling)
		conn->narrow = conn->filling->command.length >= NBD_LARGE;
	return true;
}

static void nbd_parse(struct nbd_conn *conn)
{
	bool more = true;
	while (more && !conn->waits && conn->state == NBD_CONN_SERVING)
		more = conn->filling ? nbd_parse_payload(conn) : nbd_parse_header(conn);
}

static void nbd_parse_all(struct nbd_conn *conn)
{
	conn->reparse = false;
	if (conn->state == NBD_CONN_NEGOTIATING)
		nbd_negotiate_parse(conn);
	if (conn->state == NBD_CONN_SERVING)
		nbd_parse(conn);
	if (conn->filling)
		conn->nbd->timed = true;
	receive_close(conn);
}

/* --- receiving ------------------------------------------------------------------- */

/* As much as the receive buffer may take now. When the connection is to be passed on: what belongs
   to the request that has begun to come, and not a byte of the next. */
static uint32_t nbd_receive_room(const struct nbd_conn *conn, bool narrow)
{
	const struct nbd_request *request = conn->filling;
	uint32_t room = narrow ? NBD_STAGE_NARROW : NBD_STAGE_SIZE;
	uint32_t staged = conn->tail - conn->head, need;
	if (room > NBD_STAGE_SIZE - conn->tail || conn->state == NBD_CONN_NEGOTIATING)
		room = NBD_STAGE_SIZE - conn->tail;
	if (likely(!conn->parting))
		return room;
	if (request)
		need = request->filling ? 0 : request->fill_size - request->filled;
	else
		need = staged ? NBD_REQUEST_HEADER : 0;
	need = need > staged ? need - staged : 0;
	return need < room ? need : room;
}

/* Pages that wait for payload, then the receive buffer; how many pieces, *filling bytes of them
   pages. */
static int nbd_receive_plan(struct nbd_conn *conn, struct iovec *iov, uint32_t *filling)
{
	struct nbd_request *request = conn->filling;
	uint32_t left = request && request->filling ? request->fill_size - request->filled : 0;
	uint32_t size = left < NBD_FILL_MAX ? left : NBD_FILL_MAX;
	int count = 0;
	*filling = size;
	if (size)
		count = call_iov(request->filling, request->fill_at + request->filled, size, iov,
			NBD_FILL_IOV);
	must(count >= 0);
	if (size < left)
		return count;
	uint32_t room = nbd_receive_room(conn, size || (conn->narrow && !request));
	if (unlikely(room == 0))
		return count;
	iov[count] = (struct iovec){conn->buffer + conn->tail, room};
	return count + 1;
}

static void nbd_receive_ended(struct nbd_conn *conn)
{
	conn->ended = true;
	if (conn->state == NBD_CONN_NEGOTIATING || conn->filling)
		nbd_conn_fail(conn, conn->filling ? "left in the middle of a request" : NULL);
	else
		nbd_conn_drain(conn);
}

static bool nbd_receive_failed(struct nbd_conn *conn, ssize_t got)
{
	receive_close(conn);
	if (got == -EAGAIN) {
		conn->dry = true;
		peer_count(conn->nbd->peer, NBD_COUNT_RECEIVES_EMPTY, 1);
		return false;
	}
	if (got == 0)
		nbd_receive_ended(conn);
	else
		nbd_conn_fail(
			conn, got == -ECONNRESET || got == -EPIPE ? NULL : strerror((int)-got));
	return true;
}

static void nbd_receive_took(struct nbd_conn *conn, uint32_t got, uint32_t filling)
{
	struct peer *peer = conn->nbd->peer;
	peer_count(peer, NBD_COUNT_RECEIVES, 1);
	peer_count(peer, NBD_COUNT_BYTES_IN, got);
	conn->bytes_in += got;
	conn->heard_ns = nbd_now(conn->nbd);
	uint32_t payload = got < filling ? got : filling;
	if (payload)
		conn->filling->filled += payload;
	conn->tail += got - payload;
}

static bool nbd_receive_once(struct nbd_conn *conn)
{
	struct iovec iov[NBD_FILL_IOV + 1];
	uint32_t filling, asked = 0;
	conn->tried_ns = nbd_now(conn->nbd);
	if (!receive_open(conn))
		return false;
	int count = nbd_receive_plan(conn, iov, &filling);
	for (int i = 0; i < count; i++)
		asked += (uint32_t)iov[i].iov_len;
	ssize_t got = asked ? conn->transport->receive(conn, iov, count) : -EAGAIN;
	if (got <= 0)
		return nbd_receive_failed(conn, got);
	conn->dry = (uint32_t)got < asked && !conn->transport->buffers;
	nbd_receive_took(conn, (uint32_t)got, filling);
	nbd_parse_all(conn);
	return true;
}

bool nbd_receive(struct nbd_conn *conn)
{
	if (conn->waits || conn->state >= NBD_CONN_DRAINING)
		return false;
	if (unlikely(conn->reparse)) {
		if (!receive_open(conn))
			return false;
		nbd_parse_all(conn);
		if (conn->waits || conn->state >= NBD_CONN_DRAINING)
			return true;
	}
	return nbd_receive_once(conn);
}
