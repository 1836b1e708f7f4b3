/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: a thread's place in a segment, and the five verbs that move a request.
 *
 *   client:  xseg_submit()  ...  xseg_receive()
 *   server:  xseg_accept()  then xseg_forward() or xseg_respond()
 *
 * Units: slots are indices of requests. Errors: 0 or -errno, nothing is done on error.
 * Ownership: after submit, forward or respond the giver does not touch the slot.
 * Threads: a lane belongs to the one thread that joined it. Blocking: wait only.
 */
#ifndef SKERRY_XSEG_LANE_H
#define SKERRY_XSEG_LANE_H

#include <base/clock.h>
#include <xseg/bell.h>
#include <xseg/page.h>
#include <xseg/port.h>
#include <xseg/registry.h>
#include <xseg/request.h>
#include <xseg/ring.h>

/* First in, first out, of at most all requests; private. */
struct xseg_hint_queue {
	struct xseg_hint_message *item;
	uint32_t mask, head, tail;
};

struct xseg_lane {
	struct xseg *seg;
	uint16_t index, epoch;
	uint64_t now_ns; /* of this turn; stamps come from it */
	struct xseg_magazine pages;
	struct xseg_slot_cache slots;
	struct xseg_ringer ringer;
	struct xseg_spin spin;
	uint64_t sent;					 /* lanes that know of us */
	uint64_t dirty_bells;				 /* lanes to ring at the end of the turn */
	uint64_t producers;				 /* lanes we listen to */
	uint32_t first;					 /* whom the next poll asks first */
	struct xseg_hint_queue local;			 /* for ourselves */
	struct xseg_hint_queue overflow[XSEG_LANES_MAX]; /* rings that were full; made on demand */
	uint64_t overflowing;				 /* bit per lane with overflow */
	struct xseg_ring_tx tx[XSEG_LANES_MAX];
	struct xseg_ring_rx rx[XSEG_LANES_MAX];
	int bell_fd;	    /* -1: futex bell */
	uint32_t rescanned; /* the record's `rescan` when we last looked through the table */
};

/* fd_bell: the lane sleeps in an event loop of its own, on lane->bell_fd. */
int xseg_lane_join(struct xseg *seg, bool fd_bell, struct xseg_lane **lane);
/* Waits up to a second for room for hints of ours that found none. */
void xseg_lane_leave(struct xseg_lane *lane);

/* --- client --------------------------------------------------------------- */

/* A slot to fill: write frame[0] (op, flags, key, offset, length, args), then submit. */
int xseg_get(struct xseg_lane *lane, uint32_t *slot);
static inline struct xseg_request *xseg_at(const struct xseg_lane *lane, uint32_t slot)
{
	return &lane->seg->requests[slot];
}
/* Data pages for an OWNED request: bytes at data_offset (< XSEG_PAGE). -EAGAIN, -E2BIG. */
int xseg_attach_pages(struct xseg_lane *lane, uint32_t slot, uint32_t data_offset, uint32_t bytes);
/*
 * Out of my hands, to `port` (or down an edge: xseg_edge_port()). XSEG_LANE_ANY in frame[0].lane
 * steers. A port that is not bound keeps it until somebody binds. -ENXIO: no such port.
 */
int xseg_submit(struct xseg_lane *lane, uint32_t slot, uint32_t port);
/* Out of my reply box: 0 and the request is OWNED by us again; -ESTALE: a stale hint. */
int xseg_receive(struct xseg_lane *lane, uint32_t slot);
/* Drops pins, frees pages, frees the slot. */
void xseg_put(struct xseg_lane *lane, uint32_t slot);

/* --- server --------------------------------------------------------------- */

/* Out of my inbox: TAKEN by us; -ESTALE: a stale or repeated hint. *frame: which hop it is at. */
int xseg_accept(struct xseg_lane *lane, uint32_t slot, unsigned *frame);
/*
 * Further down; the answer goes to the client. `next` is copied into the next frame.
 * -ENXIO; -ELOOP: XSEG_FRAMES hops already.
 */
int xseg_forward(
	struct xseg_lane *lane, uint32_t slot, uint32_t port, const struct xseg_frame *next);
/*
 * WRITE with XSEG_F_DONATE: keeps that page of the request, which is STORED by us from now on. The
 * client is told by a bit in taken[] and does not free it. -ENOENT: the request has no such page.
 */
int xseg_take_page(struct xseg_lane *lane, uint32_t slot, uint32_t page);
/*
 * The same, but it is KEPT by `port`, the one that the request was accepted at. The request must be
 * answered before the page that this one takes the place of is retired, and before anything else
 * is done with either: of a request that is served again the pages are its client's once more.
 */
int xseg_keep_page(struct xseg_lane *lane, uint32_t slot, uint32_t page, uint32_t port);
/* Back to the client, with result, length, value already in the slot. */
void xseg_respond(struct xseg_lane *lane, uint32_t slot);

/* --- the turn ------------------------------------------------------------- */

/* Up to `max` hints, from all rings and the local queue in turn; how many. */
uint32_t xseg_poll(struct xseg_lane *lane, struct xseg_hint_message *out, uint32_t max);
/* Rings the bells that this turn's messages need; retries full rings. Call once per turn. */
void xseg_turn_end(struct xseg_lane *lane);
/*
 * Lines of requests that hints name, fetched before they are looked at; nothing is changed, and a
 * stale hint costs a fetch. Lines that will be written come as our own: a request's header by both
 * sides, what lies behind it by the client, who fills it again and drops what was answered.
 */
static inline void xseg_prefetch(const struct xseg_lane *lane, const struct xseg_hint_message *hint)
{
	if (unlikely(hint->request >= lane->seg->request_count))
		return;
	const struct xseg_request *request = xseg_at(lane, hint->request);
	cpu_prefetch_own(request);
	if (hint->kind == XSEG_HINT_REPLY) {
		cpu_prefetch_own(&request->answer[0]);
		cpu_prefetch_own(&request->frame[0]);
		cpu_prefetch_own(&request->extents[0]);
	} else {
		__builtin_prefetch(&request->frame[0]);
		__builtin_prefetch(&request->extents[0]);
	}
}
/* Later, when those are there: an answer's first page, which xseg_put() will unpin. */
static inline void xseg_prefetch_answer(
	const struct xseg_lane *lane, const struct xseg_hint_message *hint)
{
	if (unlikely(hint->request >= lane->seg->request_count))
		return;
	const struct xseg_request *request = xseg_at(lane, hint->request);
	uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
	if (unlikely(xseg_word_state(word) != XSEG_REQUEST_DONE ||
		     xseg_word_owner(word) != lane->index) ||
		request->answer_count == 0)
		return;
	uint32_t page = request->answer[0].page;
	if (likely(page < lane->seg->page_count))
		cpu_prefetch_own(&lane->seg->descriptors[page]);
}
/* Anything to do? (rings, local queue, overflow) */
bool xseg_pending(struct xseg_lane *lane);
/*
 * About to sleep in an event loop of its own (fd bell): tells producers of the room there is, arms
 * the bell, looks once more. false: there is something to do, do not sleep (the bell is disarmed).
 * After sleeping: xseg_bell_disarm() and xseg_bell_drain_fd().
 */
bool xseg_arm(struct xseg_lane *lane);
/* Spins, then sleeps on the futex bell until rung or timeout_ns. Not for fd bells. */
void xseg_wait(struct xseg_lane *lane, uint64_t timeout_ns);

/*
 * Looks through the table for requests SUBMITTED to `port` and hints them to ourselves: what a
 * peer does when it binds a port that others have written to. Returns how many.
 */
uint32_t xseg_rehint_port(struct xseg_lane *lane, uint32_t port);

#endif
