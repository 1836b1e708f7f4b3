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
	uint64_t timeout_ns; /* of each request; CLIENT_TIMEOUT_NS after client_open() */
	/* the client's own */
	struct client_request **by_slot;      /* NULL: not ours, or given up */
	struct client_request *waiting;	      /* in flight, any order */
	struct client_request *first, **last; /* answered, not yet collected */
};
#define CLIENT_TIMEOUT_NS 30000000000u

/*
 * Joins the segment and reaches the port of peer `peer`: -ENOENT when there is none of that name. A
 * port that nobody serves is waited for like an answer. timeout_ns may be changed at any time.
 */
int client_open(
	struct client *client, const char *segment, const char *peer, char why[XSEG_WHY_SIZE]);
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
	/* the client's own */
	uint32_t slot;
	struct client_request *next, **back;
	uint64_t until_ns;
	bool answered;
};
int client_do(struct client *client, struct client_request *request);

/* A CONTROL: what is said lies at 0 of its data, what is answered behind it. */
struct client_control {
	uint64_t what, volume, number; /* arg0, key.volume, arg1 */
	const void *in;
	uint32_t in_size;
	uint32_t answer_at; /* at least in_size */
	void *out;
	uint32_t out_size;
	/* the answer */
	uint32_t got; /* bytes of `out` */
	uint64_t value;
};
int client_control(struct client *client, struct client_control *control);
/* Opened, asked and closed again. */
int client_control_once(
	const char *segment, const char *peer, uint64_t timeout_ns, struct client_control *control);

/* Many in flight: start (waits while the segment is full), then collect any finished one. */
int client_start(struct client *client, struct client_request *request);
int client_collect(
	struct client *client, struct client_request **request); /* -ENOENT: none in flight */

#endif
