/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job: a peer's private, checked view of one request. Every field was read once from the
 * segment and checked: ops are known, extents lie in the segment and hold length bytes,
 * length is at most XSEG_OBJECT_MAX, offset + length does not wrap, READ and WRITE data start
 * at offset % XSEG_PAGE of their first page.
 *
 * A job ends exactly once: job_complete(), job_fail() or job_forward(). After that it is gone.
 *
 * Units: bytes; `at` is a position within the job's data, 0 first. Errors: 0 or -errno.
 * Ownership: the peer's from its handler until it ends. Threads: the shard's lane; data may be
 * read and written by a worker while the job waits. Blocking: none.
 */
#ifndef SKERRY_PEER_JOB_H
#define SKERRY_PEER_JOB_H

#include <peer/peer.h>
#include <sys/queue.h>
#include <sys/uio.h>
#include <xseg/layout.h>

struct job {
	enum xseg_op op;
	unsigned flags; /* XSEG_F_* */
	struct xseg_key key;
	uint64_t offset;
	uint32_t length;
	uint64_t arg0, arg1;
	TAILQ_ENTRY(job) link; /* the peer's, for queues of its own */
	void *context;	       /* the peer's */
	uint32_t guess;	       /* the peer's, of expect(): may be wrong by the time it is served */
	uint32_t progress;     /* the peer's: how far it has come; 0 at first */
	uint32_t tries;	       /* the peer's: how often it began anew; 0 at first */
	/* the core's */
	struct peer *peer;
	uint32_t slot;
	uint32_t index;
	uint16_t frame;
	uint16_t client;
	uint32_t data_offset;
	uint32_t data_size; /* bytes of data behind the extents, from data_offset on */
	uint32_t extent_count;
	const struct xseg_extent *extents; /* private copy */
	uint32_t fan_pending;
	int fan_error;
	void (*fan_done)(struct job *job, int error);
	uint64_t taken_ns;
	bool live;
	struct xseg_extent inline_extents[XSEG_EXTENTS];
};
TAILQ_HEAD(job_queue, job);

/* length: bytes of answer in the data pages (READ, WRITE: pass job->length). */
void job_complete(struct job *job, uint32_t length);
void job_complete_value(struct job *job, uint32_t length, uint64_t value);
/* error: negative errno. */
void job_fail(struct job *job, int error);
void job_fail_value(struct job *job, int error, uint64_t value);
/* Its client has died: nobody waits for the answer. */
bool job_is_abandoned(const struct job *job);
/*
 * Further down `edge` (index into ops->edges); the answer goes to the first asker. What is sent
 * is job's op, flags, key, offset, length, args as they are now: change them before. The data
 * is handed on as it is, so offset may only change by multiples of XSEG_PAGE when there is data,
 * and length may not grow.
 */
void job_forward(struct job *job, unsigned edge);

/* The data as memory: at most `max` pieces of [at, at + length); how many, or -E2BIG. */
int job_iov(const struct job *job, uint32_t at, uint32_t length, struct iovec *iov, int max);
/* Most pieces job_iov() can need for this job. */
int job_iov_max(const struct job *job);
/*
 * Into the data, out of it, zeros over it. [at, at + length) must lie within data_size: the handler
 * checks how much room its client gave. READ and WRITE have room for length; OPEN, CREATE and
 * UPDATE have room for one xseg_volume_info.
 */
void job_put_bytes(struct job *job, uint32_t at, const void *from, uint32_t length);
void job_get_bytes(const struct job *job, uint32_t at, void *to, uint32_t length);
void job_zero_bytes(struct job *job, uint32_t at, uint32_t length);

/* --- pages: reads without a copy, writes that are kept ---------------------- */

/* The pool page that is [at, at + XSEG_PAGE) of the data; XSEG_NONE when no whole page is. */
uint32_t job_whole_page(const struct job *job, uint32_t at);
/*
 * WRITE with XSEG_F_DONATE: takes that page out of the request; it is STORED and the shard's, until
 * peer_page_drop(). Everything else is freed by the client as usual. -ENOENT: its client has
 * changed the request meanwhile, the page is not ours.
 */
int job_take_page(struct job *job, uint32_t page);
/*
 * READ with XSEG_F_PIN: answers with the shard's stored pages instead of copying: pins each and
 * notes them for the client; call once, with the pages of [offset, offset + length) in order (the
 * first holds byte offset % XSEG_PAGE). -E2BIG: it takes more than XSEG_EXTENTS runs, so copy.
 */
int job_answer_pages(struct job *job, const uint32_t *pages, uint32_t count);

/* Pages of the shard's own, STORED: all or nothing, -EAGAIN when the pool is low. */
int peer_page_take(struct peer *peer, uint32_t *pages, uint32_t count);
void peer_page_drop(struct peer *peer, uint32_t page);
uint8_t *peer_page_memory(struct peer *peer, uint32_t page);
/* May it be written in place? Not while a reader looks at it. */
bool peer_page_pinned(struct peer *peer, uint32_t page);
/* The pool is low: what is left is for requests on their way. Do not keep more pages then, neither
   taken nor donated; peer_page_take() refuses by itself. Cheap. */
bool peer_pages_low(const struct peer *peer);

/* --- fan-out and join -------------------------------------------------------- */

/*
 * job_fan() begins; then any number of call_submit_part(); then job_fan_ready(). When the last
 * part has answered (never before job_fan_ready()), done(job, first error or 0) ends the job.
 */
void job_fan(struct job *job, void (*done)(struct job *job, int error));
void job_fan_ready(struct job *job);
/* Joins one more or one less thing that is not a call (a worker, say). */
void job_fan_hold(struct job *job);
void job_fan_release(struct job *job, int error);

#endif
