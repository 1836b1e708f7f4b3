/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of a bridge: frames to the kernel, straight out of pages, and from it into them. */
#include "peers/synapse/conn.h"

#include <base/clock.h>
#include <base/crc32c.h>
#include <base/must.h>
#include <errno.h>
#include <peer/tls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What comes behind a header, so that small frames come many at once; more of one frame's data goes
   to its pages without a copy. */
#define CONN_BUFFER 32768u
#define CONN_WATER (256u << 10)
#define CONN_AHEAD (512u << 10) /* bytes whose turn has come */
#define CONN_QUANTUM (128u << 10)
#define CONN_ACTIVE_NS 200000u
#define CONN_TURN (1u << 20) /* bytes read in one turn: others have one, too */

/* --- bytes ------------------------------------------------------------------------------------ */

static ssize_t receive(struct conn *conn, struct iovec *iov, int count)
{
	struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)count};
	ssize_t got = conn->tls ? tls_receive(conn->tls, iov, count)
				: recvmsg(conn->fd, &message, MSG_DONTWAIT);
	if (conn->tls && got < 0)
		return got;
	return got < 0 ? (errno == EINTR ? -EAGAIN : -errno) : got == 0 ? -ECONNRESET : got;
}

static ssize_t transmit(struct conn *conn, struct iovec *iov, int count)
{
	if (conn->tls)
		return tls_send(conn->tls, iov, count);
	struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)count};
	ssize_t sent = sendmsg(conn->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	return sent < 0 ? (errno == EINTR || errno == ENOBUFS ? -EAGAIN : -errno) : sent;
}

/* --- the end ---------------------------------------------------------------------------------- */

static uint64_t cost_of(const struct conn_out *out) { return WIRE_HEADER + (uint64_t)out->data; }

static void leave_queue(struct conn *conn, struct conn_out *out, bool lost)
{
	TAILQ_REMOVE(&conn->queue, out, link);
	conn->queued -= cost_of(out);
	free(out->packed);
	out->packed = NULL;
	out->queued = false;
	out->sent(out, lost);
}

static void next_of(struct conn *conn, struct conn_flow *flow, struct conn_out *out)
{
	TAILQ_REMOVE(&flow->queue, out, link);
	TAILQ_INSERT_TAIL(&conn->queue, out, link);
	conn->queued += cost_of(out);
	if (TAILQ_EMPTY(&flow->queue)) {
		TAILQ_REMOVE(&conn->flows, flow, link);
		flow->credit = 0;
	}
}

static void lose_queue(struct conn *conn)
{
	struct conn_flow *flow;
	struct conn_out *out;
	while ((flow = TAILQ_FIRST(&conn->flows)))
		next_of(conn, flow, TAILQ_FIRST(&flow->queue));
	while ((out = TAILQ_FIRST(&conn->queue)))
		leave_queue(conn, out, true);
}

void conn_close(struct conn *conn)
{
	if (conn->fd < 0)
		return;
	conn->dead = true;
	lose_queue(conn);
	if (conn->readable)
		event_free(conn->readable);
	if (conn->writable)
		event_free(conn->writable);
	tls_close(conn->tls);
	close(conn->fd);
	free(conn->buffer);
	free(conn->packed);
	conn->packed = NULL;
	conn->fd = -1;
	conn->readable = conn->writable = NULL;
	conn->tls = NULL;
	conn->buffer = NULL;
	conn->in_frame = false;
}

void conn_fail(struct conn *conn, int error, const char *why)
{
	if (!conn_is_open(conn))
		return;
	conn_close(conn);
	conn->ops->lost(conn, error, why);
}

/* --- out -------------------------------------------------------------------------------------- */

static void want_write(struct conn *conn, bool wants)
{
	if (conn->wants_write == wants)
		return;
	conn->wants_write = wants;
	if (wants)
		event_add(conn->writable, NULL);
	else
		event_del(conn->writable);
}

/* Of what goes over the wire. */
static int pieces_of(struct conn_out *out, uint32_t at, struct iovec *iov, int max)
{
	if (!out->packed)
		return out->pieces(out, at, iov, max);
	iov[0] = (struct iovec){out->packed + at, out->size - at};
	return 1;
}

static uint32_t data_crc(struct conn_out *out)
{
	struct iovec iov[CONN_PIECES];
	uint32_t at = 0, crc = 0;
	while (at < out->size) {
		int count = pieces_of(out, at, iov, CONN_PIECES);
		for (int i = 0; i < count && at < out->size; i++) {
			size_t size = iov[i].iov_len;
			if (size > out->size - at)
				size = out->size - at;
			crc = crc32c(crc, iov[i].iov_base, size);
			at += (uint32_t)size;
		}
	}
	return crc;
}

void conn_send(struct conn *conn, struct conn_out *out, struct wire_frame *frame)
{
	must(!out->queued && conn_is_open(conn));
	out->frame = *frame;
	out->data = frame->data;
	out->done = 0;
	out->begun = false;
	out->queued = true;
	struct conn_flow *flow = &conn->flow[conn_flow_of(out->volume)];
	if (TAILQ_EMPTY(&flow->queue))
		TAILQ_INSERT_TAIL(&conn->flows, flow, link);
	TAILQ_INSERT_TAIL(&flow->queue, out, link);
}

/* Each volume sends so much in its turn (deficit round robin): one that wants all there is does not
   keep others waiting, whatever the sizes of their requests are. */
static void take_turns(struct conn *conn)
{
	struct conn_flow *flow;
	while (conn->queued < CONN_AHEAD && (flow = TAILQ_FIRST(&conn->flows))) {
		struct conn_out *out = TAILQ_FIRST(&flow->queue);
		if (flow->credit < cost_of(out)) {
			flow->credit += CONN_QUANTUM;
			TAILQ_REMOVE(&conn->flows, flow, link);
			TAILQ_INSERT_TAIL(&conn->flows, flow, link);
			continue;
		}
		flow->credit -= cost_of(out);
		next_of(conn, flow, out);
	}
}

static int raw_pieces(void *from, uint32_t at, struct iovec *iov, int max)
{
	struct conn_out *out = from;
	return out->pieces(out, at, iov, max);
}

static bool may_be_packed(const struct wire_frame *frame)
{
	return frame->type == WIRE_TYPE_ANSWER ||
	       (frame->type == WIRE_TYPE_REQUEST && frame->op == XSEG_OP_WRITE);
}

/* Its turn has come. */
static void begin_frame(struct conn *conn, struct conn_out *out)
{
	struct wire_frame *frame = &out->frame;
	enum pack_method method = PACK_NONE;
	out->begun = true;
	out->size = out->data;
	frame->packed = 0;
	if (conn->pack.methods && may_be_packed(frame))
		method = pack_choose(&conn->pack, out->data, raw_pieces, out);
	if (method != PACK_NONE)
		out->packed =
			pack_make(&conn->pack, method, out->data, raw_pieces, out, &frame->packed);
	if (out->packed)
		out->size = frame->packed;
	frame->data_crc = conn->checks && out->size ? data_crc(out) : 0;
	wire_pack(frame, out->header);
}

/* The next pieces of this frame. */
static int gather(struct conn *conn, struct conn_out *out, struct iovec *iov, int max)
{
	int count = 0;
	if (!out->begun)
		begin_frame(conn, out);
	if (out->done < WIRE_HEADER)
		iov[count++] = (struct iovec){out->header + out->done, WIRE_HEADER - out->done};
	uint32_t at = out->done > WIRE_HEADER ? out->done - WIRE_HEADER : 0;
	if (at == out->size || count == max)
		return count;
	int pieces = pieces_of(out, at, iov + count, max - count);
	must(pieces > 0);
	uint32_t left = out->size - at;
	for (int i = count; i < count + pieces; i++) {
		if (iov[i].iov_len > left)
			iov[i].iov_len = left;
		left -= (uint32_t)iov[i].iov_len;
	}
	return count + pieces;
}

static int gather_queue(struct conn *conn, struct iovec *iov)
{
	struct conn_out *out;
	int count = 0;
	TAILQ_FOREACH (out, &conn->queue, link) {
		uint32_t before = 0;
		int pieces = gather(conn, out, iov + count, CONN_PIECES - count);
		for (int i = count; i < count + pieces; i++)
			before += (uint32_t)iov[i].iov_len;
		count += pieces;
		/* the next one follows only what is there whole */
		if (count == CONN_PIECES || before < WIRE_HEADER + out->size - out->done)
			break;
	}
	return count;
}

static void advance(struct conn *conn, size_t sent)
{
	conn->bytes_out += sent;
	while (sent > 0) {
		struct conn_out *out = TAILQ_FIRST(&conn->queue);
		size_t left = WIRE_HEADER + out->size - out->done;
		size_t part = sent < left ? sent : left;
		out->done += (uint32_t)part;
		sent -= part;
		if (part < left)
			return;
		leave_queue(conn, out, false);
	}
}

static const char *reason_of(const struct conn *conn, ssize_t error)
{
	const char *reason = tls_reason(conn->tls);
	return reason ? reason : strerror((int)-error);
}

/* The sentence may lie in what is freed. */
static void fail_socket(struct conn *conn, ssize_t error)
{
	char why[192];
	snprintf(why, sizeof(why), "%s", reason_of(conn, error));
	conn_fail(conn, (int)error, why);
}

bool conn_flush(struct conn *conn)
{
	struct iovec iov[CONN_PIECES];
	bool moved = false;
	while (conn_is_open(conn) && (take_turns(conn), !TAILQ_EMPTY(&conn->queue))) {
		ssize_t sent = transmit(conn, iov, gather_queue(conn, iov));
		if (sent == -EAGAIN) {
			if (conn->pack.methods)
				pack_link_full(&conn->pack, clock_now_ns());
			want_write(conn, true);
			return moved;
		}
		if (sent < 0) {
			fail_socket(conn, sent);
			return true;
		}
		advance(conn, (size_t)sent);
		conn->active_ns = peer_now_ns(conn->peer);
		if (conn->pack.methods)
			pack_link_took(&conn->pack, clock_now_ns(), (uint64_t)sent,
				TAILQ_EMPTY(&conn->queue) && TAILQ_EMPTY(&conn->flows));
		moved = true;
	}
	if (conn_is_open(conn) && !tls_wants_write(conn->tls))
		want_write(conn, false);
	return moved;
}

/* Also when it is connected, or could not be. */
static void on_writable(evutil_socket_t fd, short what, void *context)
{
	(void)fd, (void)what;
	conn_flush(context);
}

/* --- in --------------------------------------------------------------------------------------- */

/* Bytes of data that have come, into their places or out of the buffer. */
static void count_data(struct conn *conn, const void *bytes, size_t size)
{
	if (conn->checks)
		conn->crc = crc32c(conn->crc, bytes, size);
	conn->at += (uint32_t)size;
}

/* Where the next data go: pieces of pages, or a place for what nobody wants. */
static int places(struct conn *conn, struct iovec *iov, int max)
{
	static uint8_t nowhere[65536];
	uint32_t left = conn->size - conn->at;
	if (conn->frame.packed) {
		iov[0] = (struct iovec){conn->packed + conn->at, left};
		return 1;
	}
	int count = conn->ops->place(conn, conn->at, iov, max);
	if (count <= 0) {
		iov[0] = (struct iovec){nowhere, sizeof(nowhere)};
		count = 1;
	}
	for (int i = 0; i < count; i++) {
		if (iov[i].iov_len > left)
			iov[i].iov_len = left;
		left -= (uint32_t)iov[i].iov_len;
		if (left == 0)
			return i + 1;
	}
	return count;
}

static void take_from_buffer(struct conn *conn)
{
	struct iovec iov[8];
	while (conn->from < conn->to && conn->at < conn->size) {
		places(conn, iov, 8);
		size_t size = conn->to - conn->from;
		size = size < iov[0].iov_len ? size : iov[0].iov_len;
		memcpy(iov[0].iov_base, conn->buffer + conn->from, size);
		count_data(conn, conn->buffer + conn->from, size);
		conn->from += (uint32_t)size;
	}
}

/* --- packed data ------------------------------------------------------------------------------ */

static void put(struct conn *conn, uint32_t at, const uint8_t *bytes, uint32_t size)
{
	struct iovec iov[CONN_PIECES];
	while (size > 0) {
		int count = conn->ops->place(conn, at, iov, CONN_PIECES);
		if (count <= 0)
			return; /* nobody wants them */
		for (int i = 0; i < count && size > 0; i++) {
			uint32_t part = iov[i].iov_len < size ? (uint32_t)iov[i].iov_len : size;
			memcpy(iov[i].iov_base, bytes, part);
			bytes += part;
			at += part;
			size -= part;
		}
	}
}

static int unpack(struct conn *conn)
{
	uint8_t block[PACK_BLOCK];
	uint32_t from = 0;
	for (uint32_t at = 0, part; at < conn->frame.data; at += part) {
		part = conn->frame.data - at < PACK_BLOCK ? conn->frame.data - at : PACK_BLOCK;
		int took = pack_undo(conn->packed + from, conn->size - from, block, part);
		if (took < 0)
			return took;
		put(conn, at, block, part);
		from += (uint32_t)took;
	}
	return from == conn->size ? 0 : -EBADMSG;
}

/* --- frames ----------------------------------------------------------------------------------- */

static int begin_data(struct conn *conn)
{
	conn->from += WIRE_HEADER;
	conn->in_frame = true;
	conn->at = conn->crc = 0;
	conn->size = conn->frame.packed ? conn->frame.packed : conn->frame.data;
	if (!conn->frame.packed || conn->packed)
		return 0;
	conn->packed = malloc(pack_bound(XSEG_OBJECT_MAX));
	return conn->packed ? 0 : -ENOMEM;
}

/* All of it is here. */
static const char *end_data(struct conn *conn)
{
	conn->in_frame = false;
	if (conn->checks && conn->size && conn->crc != conn->frame.data_crc)
		return "data with a wrong checksum";
	if (conn->frame.packed && unpack(conn))
		return "data that cannot be unpacked";
	return NULL;
}

/* As far as the buffer has them. 1: more is to be read. */
static int parse(struct conn *conn)
{
	const char *why;
	for (;;) {
		if (!conn->in_frame) {
			if (conn->to - conn->from < WIRE_HEADER)
				return 1;
			int error = wire_unpack(conn->buffer + conn->from, &conn->frame, &why);
			if (error) {
				conn_fail(conn, error, why);
				return error;
			}
			error = conn->ops->begin(conn, &conn->frame);
			if (error || !conn_is_open(conn)) {
				conn->paused = error == -EAGAIN;
				return -EAGAIN;
			}
			if (begin_data(conn)) {
				conn_fail(conn, -ENOMEM, "out of memory");
				return -ENOMEM;
			}
		}
		take_from_buffer(conn);
		if (conn->at < conn->size)
			return 1;
		why = end_data(conn);
		if (why) {
			conn_fail(conn, -EBADMSG, why);
			return -EBADMSG;
		}
		if (conn->ops->end(conn, &conn->frame) || !conn_is_open(conn))
			return -EAGAIN;
	}
}

/* One read: the rest of a frame's data into its pages, and what is behind into the buffer. */
static ssize_t read_some(struct conn *conn)
{
	struct iovec iov[CONN_PIECES];
	int count = 0;
	uint32_t data = 0;
	if (conn->from == conn->to) {
		conn->from = conn->to = 0;
	} else if (conn->from > 0) {
		memmove(conn->buffer, conn->buffer + conn->from, conn->to - conn->from);
		conn->to -= conn->from;
		conn->from = 0;
	}
	if (conn->in_frame)
		count = places(conn, iov, CONN_PIECES - 1);
	for (int i = 0; i < count; i++)
		data += (uint32_t)iov[i].iov_len;
	if (!conn->in_frame || conn->at + data == conn->size)
		iov[count++] =
			(struct iovec){conn->buffer + conn->to, conn->buffer_size - conn->to};
	ssize_t got = receive(conn, iov, count), left = got;
	for (int i = 0; i < count && left > 0; i++) {
		size_t part = (size_t)left < iov[i].iov_len ? (size_t)left : iov[i].iov_len;
		if (iov[i].iov_base == conn->buffer + conn->to)
			conn->to += (uint32_t)part;
		else
			count_data(conn, iov[i].iov_base, part);
		left -= (ssize_t)part;
	}
	return got;
}

/* While a large frame comes, one wake-up for each of its parts is one too many. */
static void set_low_water(struct conn *conn)
{
	uint32_t left = conn->in_frame ? conn->size - conn->at : 0;
	int water = left >= 2 * CONN_WATER ? (int)CONN_WATER : 1;
	if (water == conn->water || conn->tls)
		return;
	conn->water = water;
	setsockopt(conn->fd, SOL_SOCKET, SO_RCVLOWAT, &water, sizeof(water));
}

static void receive_frames(struct conn *conn)
{
	ssize_t got = 0, sum = 0;
	while (conn_is_open(conn) && !conn->paused && parse(conn) == 1 && sum < CONN_TURN) {
		got = read_some(conn);
		if (got <= 0)
			break;
		sum += got;
	}
	if (sum > 0) {
		conn->heard_ns = conn->active_ns = clock_now_ns();
		conn->bytes_in += (uint64_t)sum;
	}
	if (!conn_is_open(conn))
		return;
	set_low_water(conn);
	if (got < 0 && got != -EAGAIN)
		fail_socket(conn, got);
	else if (conn->paused)
		event_del(conn->readable);
	else if (got != -EAGAIN && conn->tls) /* it has what no event will speak of */
		event_active(conn->readable, EV_READ, 0);
	if (conn_is_open(conn) && tls_wants_write(conn->tls))
		want_write(conn, true);
}

bool conn_poll(struct conn *conn)
{
	uint64_t before = conn->heard_ns;
	if (!conn_is_open(conn) || conn->paused ||
		peer_now_ns(conn->peer) > conn->active_ns + CONN_ACTIVE_NS)
		return false;
	receive_frames(conn);
	return !conn_is_open(conn) || conn->heard_ns != before;
}

static void on_readable(evutil_socket_t fd, short what, void *context)
{
	(void)fd, (void)what;
	receive_frames(context);
}

void conn_resume(struct conn *conn)
{
	if (!conn_is_open(conn) || !conn->paused)
		return;
	conn->paused = false;
	event_add(conn->readable, NULL);
	event_active(conn->readable, EV_READ, 0); /* what is in the buffer */
}

void conn_count(struct conn *conn, unsigned sent, unsigned received, unsigned saved)
{
	peer_count(conn->peer, saved, conn->pack.saved);
	conn->pack.saved = 0;
	peer_count(conn->peer, sent, conn->bytes_out);
	peer_count(conn->peer, received, conn->bytes_in);
	conn->bytes_out = conn->bytes_in = 0;
}

/* --- the beginning ---------------------------------------------------------------------------- */

int conn_open(struct conn *conn, struct peer *peer, int fd, struct tls_link *tls,
	const struct conn_ops *ops, void *owner)
{
	struct event_base *base = peer_event_base(peer);
	char who[CONN_WHO];
	memcpy(who, conn->who, sizeof(who));
	*conn = (struct conn){.peer = peer,
		.ops = ops,
		.owner = owner,
		.fd = fd,
		.tls = tls,
		.buffer_size = CONN_BUFFER,
		.heard_ns = clock_now_ns()};
	memcpy(conn->who, who, sizeof(who));
	TAILQ_INIT(&conn->queue);
	TAILQ_INIT(&conn->flows);
	for (unsigned i = 0; i < CONN_FLOWS; i++)
		TAILQ_INIT(&conn->flow[i].queue);
	conn->buffer = malloc(conn->buffer_size);
	conn->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, conn);
	conn->writable = event_new(base, fd, EV_WRITE | EV_PERSIST, on_writable, conn);
	if (!conn->buffer || !conn->readable || !conn->writable ||
		event_add(conn->readable, NULL)) {
		conn_close(conn);
		return -ENOMEM;
	}
	return 0;
}
