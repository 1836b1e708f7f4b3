/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One NBD connection that comes back: what was not answered when it broke is sent again.
 *
 * Units: ns, sectors. Threads: one. Blocking: none but conn_size().
 */
#ifndef SKERRY_TESTS_STAMP_CONN_H
#define SKERRY_TESTS_STAMP_CONN_H

#include <libnbd.h>
#include <poll.h>

#include "tests/stamp/stamp.h"

enum op_kind { OP_READ, OP_WRITE, OP_FLUSH };

enum op_state {
	OP_IDLE,
	OP_WAITING, /* for a connection */
	OP_SENT,
	OP_ANSWERED,
};

struct op {
	enum op_state state;
	enum op_kind kind;
	int error; /* errno of the answer, 0: done */
	bool fua;
	uint32_t count;
	uint64_t sector, sequence;
	uint64_t begin_tick, begin_ns;
	uint8_t *memory;
};

struct conn {
	struct nbd_handle *nbd;
	const char *uri;
	unsigned volume; /* index */
	uint32_t writer;
	bool ready;
	bool was_ready;
	uint64_t broken_ns, retry_ns; /* since when it is gone; when to try again */
	struct op *ops;
	unsigned depth;
};

/* Opens one to ask for the size in bytes. Waits for it as long as that. */
int conn_size(const char *uri, double limit_s, uint64_t *size, bool *fua);

int conn_open(struct conn *conn, const char *uri, unsigned depth, size_t op_bytes);
void conn_close(struct conn *conn);
/* Sends it now, or as soon as there is a connection. */
void conn_send(struct conn *conn, struct op *op);
/* What poll() should wait for; an fd of -1: nothing. */
struct pollfd conn_poll(const struct conn *conn);
/* Moves data, finds out that it is broken, makes it again. */
void conn_turn(struct conn *conn, short revents, uint64_t now_ns, struct results *results);

#endif
