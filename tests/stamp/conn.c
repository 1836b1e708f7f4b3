/* SPDX-License-Identifier: Apache-2.0 */
/* NBD connections over libnbd's asynchronous calls, made again when they break. */
#include "tests/stamp/conn.h"

#include <base/clock.h>
#include <base/must.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define RETRY_NS 2000000u

/* libnbd answers what a broken connection leaves behind with ENOTCONN: nobody answered that. */
static int answered(void *context, int *error)
{
	struct op *op = context;
	if (op->state != OP_SENT)
		return 1;
	if (*error == ENOTCONN) {
		op->state = OP_WAITING;
		return 1;
	}
	op->error = *error;
	op->state = OP_ANSWERED;
	return 1;
}

static int64_t send_op(struct conn *conn, struct op *op)
{
	nbd_completion_callback done = {.callback = answered, .user_data = op};
	uint64_t offset = op->sector * STAMP_SECTOR;
	size_t size = (size_t)op->count * STAMP_SECTOR;
	switch (op->kind) {
	case OP_READ: return nbd_aio_pread(conn->nbd, op->memory, size, offset, done, 0);
	case OP_WRITE:
		return nbd_aio_pwrite(conn->nbd, op->memory, size, offset, done,
			op->fua ? LIBNBD_CMD_FLAG_FUA : 0);
	case OP_FLUSH: return nbd_aio_flush(conn->nbd, done, 0);
	}
	return -1;
}

static void drop(struct conn *conn, uint64_t now_ns)
{
	nbd_close(conn->nbd); /* calls answered() for what was sent */
	conn->nbd = NULL;
	if (conn->ready || conn->broken_ns == 0)
		conn->broken_ns = now_ns;
	conn->ready = false;
	conn->retry_ns = now_ns + RETRY_NS;
	for (unsigned i = 0; i < conn->depth; i++)
		if (conn->ops[i].state == OP_SENT)
			conn->ops[i].state = OP_WAITING;
}

static void dial(struct conn *conn, uint64_t now_ns)
{
	conn->nbd = nbd_create();
	must(conn->nbd);
	if (nbd_aio_connect_uri(conn->nbd, conn->uri) == -1)
		drop(conn, now_ns);
}

static void become_ready(struct conn *conn, struct results *results)
{
	conn->ready = true;
	conn->broken_ns = 0;
	if (conn->was_ready)
		results->reconnects++;
	conn->was_ready = true;
	for (unsigned i = 0; i < conn->depth; i++)
		if (conn->ops[i].state == OP_WAITING) {
			results->repeated++;
			conn_send(conn, &conn->ops[i]);
		}
}

/* One attempt, until `end`. */
static int64_t ask_size(struct nbd_handle *nbd, const char *uri, uint64_t end)
{
	if (nbd_aio_connect_uri(nbd, uri) == -1)
		return -1;
	while (!nbd_aio_is_ready(nbd)) {
		if (nbd_aio_is_dead(nbd) || nbd_aio_is_closed(nbd) || clock_now_ns() > end)
			return -1;
		if (nbd_poll(nbd, 10) == -1)
			return -1;
	}
	return nbd_get_size(nbd);
}

int conn_size(const char *uri, double limit_s, uint64_t *size, bool *fua)
{
	uint64_t end = clock_now_ns() + (uint64_t)(limit_s * 1e9);
	for (;;) {
		struct nbd_handle *nbd = nbd_create();
		must(nbd);
		int64_t got = ask_size(nbd, uri, end);
		*fua = got >= 0 && nbd_can_fua(nbd) == 1;
		nbd_close(nbd);
		*size = (uint64_t)got;
		if (got >= 0)
			return 0;
		if (clock_now_ns() > end)
			return -ENOTCONN;
		usleep(RETRY_NS / 1000);
	}
}

int conn_open(struct conn *conn, const char *uri, unsigned depth, size_t op_bytes)
{
	conn->uri = uri;
	conn->depth = depth;
	conn->ops = calloc(depth, sizeof(*conn->ops));
	if (!conn->ops)
		return -ENOMEM;
	for (unsigned i = 0; i < depth; i++) {
		conn->ops[i].memory = malloc(op_bytes);
		if (!conn->ops[i].memory)
			return -ENOMEM;
	}
	dial(conn, clock_now_ns());
	return 0;
}

void conn_close(struct conn *conn)
{
	if (conn->nbd)
		nbd_close(conn->nbd);
	for (unsigned i = 0; conn->ops && i < conn->depth; i++)
		free(conn->ops[i].memory);
	free(conn->ops);
	*conn = (struct conn){.nbd = NULL};
}

void conn_send(struct conn *conn, struct op *op)
{
	op->state = conn->ready ? OP_SENT : OP_WAITING;
	if (conn->ready && send_op(conn, op) < 0)
		op->state = OP_WAITING; /* broken, conn_turn() will see it */
}

struct pollfd conn_poll(const struct conn *conn)
{
	struct pollfd p = {.fd = -1};
	if (!conn->nbd || (p.fd = nbd_aio_get_fd(conn->nbd)) < 0)
		return (struct pollfd){.fd = -1};
	unsigned direction = nbd_aio_get_direction(conn->nbd);
	if (direction & LIBNBD_AIO_DIRECTION_READ)
		p.events |= POLLIN;
	if (direction & LIBNBD_AIO_DIRECTION_WRITE)
		p.events |= POLLOUT;
	return p;
}

void conn_turn(struct conn *conn, short revents, uint64_t now_ns, struct results *results)
{
	if (!conn->nbd && now_ns >= conn->retry_ns)
		dial(conn, now_ns);
	if (!conn->nbd)
		return;
	unsigned direction = nbd_aio_get_direction(conn->nbd);
	if (revents & (POLLIN | POLLHUP | POLLERR) && direction & LIBNBD_AIO_DIRECTION_READ)
		nbd_aio_notify_read(conn->nbd);
	else if (revents & (POLLOUT | POLLHUP | POLLERR) && direction & LIBNBD_AIO_DIRECTION_WRITE)
		nbd_aio_notify_write(conn->nbd);
	if (nbd_aio_is_dead(conn->nbd) || nbd_aio_is_closed(conn->nbd))
		drop(conn, now_ns);
	else if (!conn->ready && nbd_aio_is_ready(conn->nbd))
		become_ready(conn, results);
}
