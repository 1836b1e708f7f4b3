/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A segment's client outside xsegpeer (xsegctl, tests, benches): a lane and one way down, with
 * calls that wait. Slow and simple beside <peer/call.h>; up to `depth` data requests at once.
 *
 * Units: bytes. Errors: 0 or -errno; -ETIMEDOUT when nobody answers within the time limit; the
 * request is then left to its server and never reused. Ownership: caller's buffers. Threads: one
 * client, one thread. Blocking: all calls.
 */
#ifndef SKERRY_PEER_CLIENT_H
#define SKERRY_PEER_CLIENT_H

#include <stdbool.h>
#include <xseg/lane.h>

struct client {
	struct xseg seg;
	struct xseg_lane *lane;
	uint32_t port;
	uint64_t timeout_ns;
};

/* Joins the segment and reaches the port of peer `peer`. */
int client_open(struct client *client, const char *segment, const char *peer, char why[XSEG_WHY_SIZE]);
void client_close(struct client *client);

/* One request: `out`/`in` may be the same buffer; sizes up to XSEG_OBJECT_MAX. */
struct client_request {
	enum xseg_op op;
	unsigned flags;
	struct xseg_key key;
	uint64_t offset;
	uint32_t length;
	uint64_t arg0, arg1;
	const void *send; /* copied into the pages */
	uint32_t send_size;
	void *receive; /* copied out of them */
	uint32_t receive_size;
	/* the answer */
	uint32_t answer_length;
	uint64_t value;
	int result;
	void *context;
	uint32_t slot; /* client's */
};
int client_do(struct client *client, struct client_request *request);

/* Many in flight: start (waits while the segment is full), then collect any finished one. */
int client_start(struct client *client, struct client_request *request);
int client_collect(struct client *client, struct client_request **request); /* -ENOENT: none in flight */

#endif
