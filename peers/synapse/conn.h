/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection: frames out of pages and into pages, over a socket or TLS on one, never waiting.
 *
 * Units: bytes, ns. Errors: 0 or -errno. Ownership: a frame to be sent is its sender's, who hears
 * by sent() that it is on its way or lost. Threads: the shard's lane. Blocking: none.
 */
#ifndef SKERRY_SYNAPSE_CONN_H
#define SKERRY_SYNAPSE_CONN_H

#include <base/hash.h>
#include <errno.h>
#include <event2/event.h>
#include <peer/peer.h>
#include <sys/queue.h>
#include <sys/uio.h>

#include "peers/synapse/pack.h"
#include "peers/synapse/wire.h"

#define CONN_PIECES 64
#define CONN_WHO 96
#define CONN_FLOWS 16u /* volumes have turns, by their numbers' hashes */

struct conn;
struct tls_link; /* <peer/tls.h> */

/* A frame on its way out, embedded in something of its sender's. */
struct conn_out {
	TAILQ_ENTRY(conn_out) link;
	uint64_t volume; /* whose turn it takes */
	struct wire_frame frame;
	uint8_t header[WIRE_HEADER];
	uint32_t data, size, done; /* bytes; size: of the data on the wire; done: and the header */
	uint8_t *packed;	   /* the data, made smaller */
	/* [at, at + length) of its data, in at most `max` pieces that need not be all of it. */
	int (*pieces)(struct conn_out *out, uint32_t at, struct iovec *iov, int max);
	/* Handed to the kernel, or the connection has ended (lost). */
	void (*sent)(struct conn_out *out, bool lost);
	bool queued, begun; /* begun: its header is made */
};
TAILQ_HEAD(conn_queue, conn_out);

/* What one volume, or a few that share it, have to send. */
struct conn_flow {
	TAILQ_ENTRY(conn_flow) link;
	struct conn_queue queue;
	uint64_t credit; /* bytes */
};
TAILQ_HEAD(conn_flows, conn_flow);

struct conn_ops {
	/* A frame's header is here. -EAGAIN: no room, until conn_resume(). */
	int (*begin)(struct conn *conn, const struct wire_frame *frame);
	/* Where its data go from `at` on; nowhere (0 pieces): they are thrown away. */
	int (*place)(struct conn *conn, uint32_t at, struct iovec *iov, int max);
	/* All of it is here. */
	int (*end)(struct conn *conn, const struct wire_frame *frame);
	/* It has ended, whoever did it. Its frames were lost first. */
	void (*lost)(struct conn *conn, int error, const char *why);
};

struct conn {
	struct peer *peer;
	const struct conn_ops *ops;
	void *owner;
	int fd; /* -1: none */
	bool paused, dead;
	bool checks; /* data have checksums */
	struct tls_link *tls;
	struct event *readable, *writable;
	bool wants_write;
	int water;
	struct conn_queue queue; /* next ones */
	uint64_t queued;	 /* bytes of them */
	struct conn_flow flow[CONN_FLOWS];
	struct conn_flows flows; /* those that have something, in turn */

	uint64_t heard_ns;  /* when something came last */
	uint64_t active_ns; /* the same, or when something was sent */
	uint64_t bytes_in, bytes_out;
	/* the frame that is coming */
	bool in_frame;
	struct wire_frame frame;
	uint32_t size, at, crc; /* of its data on the wire */
	uint8_t *packed;	/* those, when they are packed */
	uint8_t *buffer;
	uint32_t buffer_size, from, to;
	struct pack pack;
	char who[CONN_WHO];
};

/* fd: a socket that does not block, connected or about to be; the connection's from here on, also
   when this fails. tls: NULL for clear text. */
int conn_open(struct conn *conn, struct peer *peer, int fd, struct tls_link *tls,
	const struct conn_ops *ops, void *owner);
/* Ends it, without lost(). May be called from its own ops. */
void conn_close(struct conn *conn);
static inline bool conn_is_open(const struct conn *conn) { return conn->fd >= 0 && !conn->dead; }
static inline unsigned conn_flow_of(uint64_t volume)
{
	return (unsigned)(hash_u64(volume) % CONN_FLOWS);
}
/* Queues a frame of out->volume. Its data are packed, if that pays, and get their checksum when its
   turn comes. */
void conn_send(struct conn *conn, struct conn_out *out, struct wire_frame *frame);
/* What is queued goes to the kernel; true: something did. */
bool conn_flush(struct conn *conn);
/* Looks for frames without the event loop, which is asked less often than a lane turns, while
   something was on its way a moment ago. True: there were some. */
bool conn_poll(struct conn *conn);
void conn_resume(struct conn *conn);
/* As many pieces of [at, at + left) as there is room for, of job_iov() or call_iov(), which give
   all of them or -E2BIG. */
#define conn_pieces(iov_of, whose, at, left, iov, max) \
	({ \
		uint32_t size_ = (left); \
		int count_; \
		while ((count_ = iov_of(whose, at, size_, iov, max)) == -E2BIG) \
			size_ = size_ > XSEG_PAGE ? size_ / 2 : size_; \
		count_; \
	})
/* What has gone and come since the last time, into these counters of the role. */
void conn_count(struct conn *conn, unsigned sent, unsigned received, unsigned saved);
/* Ends it with lost(). */
void conn_fail(struct conn *conn, int error, const char *why);

#endif
