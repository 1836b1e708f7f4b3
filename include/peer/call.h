/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call: a request of one's own. Fronts make all of theirs so; others only when they must
 * look at an answer or join several.
 *
 *   struct call *call;
 *   call_begin(peer, &call)           0 or -EAGAIN: wait (peer_retry)
 *   call->op = XSEG_OP_READ; ...
 *   call_pages(call, length)          or call_borrow(call, job, at, length)
 *   call_submit(call, edge, done)     done(call) runs on this lane, later
 *   ... in done: call->result, call->length, call->value, call_iov(...)
 *   call_end(call)                    when the answer's pages are no longer needed
 *
 * Units: bytes. Errors: 0 or -errno. Ownership: the peer's from begin to submit and from done to
 * end; in between nobody's. Threads: the shard's lane. Blocking: none.
 */
#ifndef SKERRY_PEER_CALL_H
#define SKERRY_PEER_CALL_H

#include <peer/job.h>

typedef void call_done_f(struct call *call);

struct call {
	/* to be filled in */
	enum xseg_op op;
	unsigned flags;
	struct xseg_key key;
	uint64_t offset;
	uint32_t length;
	unsigned shard; /* of the port below, or XSEG_LANE_ANY (default): steered */
	uint64_t arg0, arg1;
	void *context;		/* the peer's */
	void *context2;		/* the peer's */
	TAILQ_ENTRY(call) link; /* the peer's */
	/* the answer */
	int result; /* 0 or -errno */
	uint32_t answer_length;
	uint64_t value;
	/* the core's */
	struct peer *peer;
	uint32_t slot;
	uint32_t index;
	struct job *job; /* part of this job's fan */
	call_done_f *done;
	struct call *next; /* of those that failed at once */
	uint64_t submitted_ns;
	uint32_t data_offset;
	uint32_t data_size; /* bytes of data behind the extents, from data_offset on */
	uint32_t extent_count;
	uint32_t generation;
	const struct xseg_extent *extents; /* private copy */
	bool live, submitted;
	bool borrowed; /* its pages are not its own */
	struct xseg_extent inline_extents[XSEG_EXTENTS];
};
TAILQ_HEAD(call_queue, call);

int call_begin(struct peer *peer, struct call **call);
/* The call asks what the job does. */
static inline void call_as(struct call *call, const struct job *job)
{
	call->op = job->op;
	call->flags = job->flags;
	call->key = job->key;
	call->offset = job->offset;
	call->length = job->length;
	call->arg0 = job->arg0;
	call->arg1 = job->arg1;
}
/* Pages for `bytes` of data at call->offset % XSEG_PAGE (data ops) or 0. -EAGAIN: pool low. Set
   op and offset first. */
int call_pages(struct call *call, uint32_t bytes);
/* Uses [at, at+length) of a job's data; that job must stay until this call has ended. -E2BIG. */
int call_borrow(struct call *call, const struct job *job, uint32_t at, uint32_t length);
/* The same of another call's, which has been answered and must stay. */
int call_borrow_call(struct call *call, const struct call *from, uint32_t at, uint32_t length);
/* The data: before submit what will be written, after done the answer (pinned pages or own). */
int call_iov(const struct call *call, uint32_t at, uint32_t length, struct iovec *iov, int max);
void call_put_bytes(struct call *call, uint32_t at, const void *from, uint32_t length);
void call_get_bytes(const struct call *call, uint32_t at, void *to, uint32_t length);
/* What XSEG_CONTROL_DIGEST says of these bytes of its data. */
void call_digest(const struct call *call, uint32_t at, uint32_t length, uint8_t out[XSEG_DIGEST]);
/* The same of bytes of one's own. */
void call_digest_bytes(const void *bytes, uint32_t length, uint8_t out[XSEG_DIGEST]);

/* Down edge number `edge` of the role. An edge that leads nowhere: done with -ENXIO. */
void call_submit(struct call *call, unsigned edge, call_done_f *done);
/* The same as part of a fan; the core ends the call and counts its error. `look` (may be NULL) sees
   the answer first and may change call->result. */
void call_submit_part(struct call *call, struct job *job, unsigned edge, call_done_f *look);
void call_end(struct call *call);

/*
 * Something was -EAGAIN: `again(peer, context)` is called at a later turn, in order of asking, when
 * pages or slots may be there; it returns false to be asked again.
 */
typedef bool retry_f(struct peer *peer, void *context);
void peer_retry(struct peer *peer, retry_f *again, void *context);

/* Small requests that a lane may have on their way at once to a store that is far away: as many as
   may be written to a database while one goes there, and not all that the segment has. */
#define CALL_FAR_MIN 256u
#define CALL_FAR_MAX 1024u
static inline uint32_t call_far_most(const struct xseg *seg)
{
	uint32_t part = seg->request_count / 4;
	return part < CALL_FAR_MIN ? CALL_FAR_MIN : part > CALL_FAR_MAX ? CALL_FAR_MAX : part;
}

#endif
