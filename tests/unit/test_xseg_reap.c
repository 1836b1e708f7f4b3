/* SPDX-License-Identifier: Apache-2.0 */
/* What a reaper does with each thing that the dead can leave behind, one by one. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xseg/lane.h>
#include <xseg/reap.h>

#include "tests/lib/unit.h"

#define REQUESTS 64u

static struct xseg seg;
static struct xseg_lane *lane; /* ours: the living */
static uint32_t port;

static void setup(void)
{
	scratch_segment(&seg, 0, 4, REQUESTS);
	ck_assert_int_eq(xseg_lane_join(&seg, false, &lane), 0);
	ck_assert_int_eq(xseg_port_reserve(&seg, "below", &port), 0);
}

static void teardown(void)
{
	xseg_lane_leave(lane);
	scratch_segment_end(&seg);
}

/* A process that does something to the segment and is killed: nothing is tidied up. */
static void die_doing(void (*work)(struct xseg_lane *mine))
{
	pid_t pid = fork();
	if (pid == 0) {
		struct xseg_lane *mine;
		child_check(xseg_lane_join(&seg, false, &mine) == 0);
		work(mine);
		raise(SIGKILL);
	}
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static struct xseg_reap_report reap(void)
{
	struct xseg_reap_report report;
	ck_assert_int_eq(xseg_reap(&seg, &report), 0);
	return report;
}

static unsigned state_of(uint32_t slot)
{
	return xseg_word_state(atomic_load(&seg.requests[slot].word));
}

static void check_all_free(uint32_t but_requests, uint32_t but_pages)
{
	struct xseg_usage usage;
	xseg_segment_usage(&seg, &usage);
	ck_assert_uint_eq(
		usage.requests_by_state[XSEG_REQUEST_FREE], usage.requests - but_requests);
	ck_assert_uint_eq(usage.pages_free, usage.pages - but_pages);
}

static uint32_t ask(struct xseg_lane *mine, unsigned op, uint32_t pages)
{
	uint32_t slot;
	child_check(xseg_get(mine, &slot) == 0);
	if (pages)
		child_check(xseg_attach_pages(mine, slot, 0, pages * XSEG_PAGE) == 0);
	xseg_at(mine, slot)->frame[0] =
		(struct xseg_frame){.op = (uint8_t)op, .lane = XSEG_LANE_ANY};
	return slot;
}

/* --- of dead clients -------------------------------------------------------------------- */

static void leave_everything(struct xseg_lane *mine)
{
	struct xseg_extent runs[4];
	uint32_t count;
	child_check(xseg_page_alloc(&mine->pages, 9, runs, 4, &count) == 0); /* in hand */
	child_check(xseg_page_alloc(&mine->pages, 1, runs, 1, &count) == 0); /* and a magazine */
	xseg_page_store(&mine->pages, runs[0].page);
	ask(mine, XSEG_OP_WRITE, 300);						/* owned */
	child_check(xseg_submit(mine, ask(mine, XSEG_OP_WRITE, 3), port) == 0); /* nobody there */
}

UNIT(test_client)
{
	setup();
	die_doing(leave_everything);
	ck_assert(xseg_reap_due(&seg));
	struct xseg_reap_report report = reap();
	ck_assert_uint_eq(report.lanes, 1);
	ck_assert_uint_eq(report.freed, 2);
	ck_assert_uint_eq(report.pending, 0);
	ck_assert_uint_ge(report.pages, 313);
	check_all_free(0, 0);
	ck_assert(!xseg_reap_due(&seg));
	report = reap();
	ck_assert_uint_eq(report.lanes + report.freed + report.pages + report.resubmitted, 0);
	teardown();
}

static void submit_one(struct xseg_lane *mine)
{
	child_check(xseg_submit(mine, ask(mine, XSEG_OP_WRITE, 2), port) == 0);
}

/* We serve it still: it stays, with its pages, and goes when we have answered. */
UNIT(test_client_served)
{
	setup();
	uint32_t peer, slot = 0;
	uint16_t epoch;
	uint8_t index = (uint8_t)lane->index;
	unsigned frame;
	ck_assert_int_eq(xseg_peer_join(&seg, "below", "test", 1ull << index, &peer, &epoch), 0);
	ck_assert_int_eq(xseg_port_bind(&seg, "below", peer, epoch, &index, 1, &port), 0);
	die_doing(submit_one);
	struct xseg_hint_message hint;
	ck_assert_uint_eq(xseg_poll(lane, &hint, 1), 1);
	slot = hint.request;
	ck_assert_int_eq(xseg_accept(lane, slot, &frame), 0);
	struct xseg_reap_report report = reap();
	ck_assert_uint_ge(report.pending, 1);
	ck_assert_uint_eq(report.freed, 0);
	ck_assert_uint_eq(state_of(slot), XSEG_REQUEST_TAKEN);
	ck_assert_int_eq(xseg_reap_fail_port(&seg, port, -EIO), -EAGAIN);
	ck_assert_int_eq(xseg_reap_wait(&seg, 1000000, NULL), -ETIME);
	uint32_t page = seg.requests[slot].extents[0].page;
	ck_assert_uint_eq(
		xseg_page_state(atomic_load(&seg.descriptors[page].word)), XSEG_PAGE_HELD);
	xseg_respond(lane, slot);
	ck_assert_int_eq(xseg_reap_wait(&seg, 120000000000u, &report), 0);
	ck_assert_uint_eq(report.freed, 1);
	check_all_free(0, 0);
	xseg_port_unbind(&seg, port);
	xseg_peer_leave(&seg, peer);
	teardown();
}

/* A reader's pins die with it, one by one; those of others stay. */
static uint32_t pinned_page;

/* A stored page with so many pins, of the dead and of others. */
static uint32_t lend(unsigned pins)
{
	struct xseg_extent run;
	uint32_t count;
	ck_assert_int_eq(xseg_page_alloc(&lane->pages, 1, &run, 1, &count), 0);
	xseg_page_store(&lane->pages, run.page);
	while (pins-- > 0)
		xseg_page_pin(&seg, run.page);
	return run.page;
}

static void take_back(unsigned pins)
{
	uint64_t word = atomic_load(&seg.descriptors[pinned_page].word);
	ck_assert_uint_eq(xseg_page_pins(word), pins);
	ck_assert_uint_eq(xseg_page_state(word), XSEG_PAGE_STORED);
	while (pins-- > 0)
		xseg_page_unpin(&lane->pages, pinned_page);
	xseg_page_retire(&lane->pages, pinned_page);
}

static struct xseg_request *ask_pinned(struct xseg_lane *mine)
{
	uint32_t slot = ask(mine, XSEG_OP_READ, 0);
	struct xseg_request *r = xseg_at(mine, slot);
	r->answer[0] = (struct xseg_extent){.page = pinned_page, .count = 1};
	r->answer[1] = (struct xseg_extent){.page = pinned_page, .count = 1};
	r->answer_count = 2;
	return r;
}

static void read_pinned(struct xseg_lane *mine) { ask_pinned(mine); }

UNIT(test_pins)
{
	setup();
	pinned_page = lend(3);
	die_doing(read_pinned);
	ck_assert_uint_eq(reap().freed, 1);
	take_back(1);
	teardown();
}

/* Killed while it dropped a run of them: that one has no pages any more, the other has its pin. */
static void read_half_dropped(struct xseg_lane *mine) { ask_pinned(mine)->answer[1].count = 0; }

UNIT(test_pins_half_dropped)
{
	setup();
	pinned_page = lend(2);
	die_doing(read_half_dropped);
	ck_assert_uint_eq(reap().freed, 1);
	take_back(1);
	teardown();
}

/* --- of dead servers ---------------------------------------------------------------------- */

static bool outlives; /* its pages: KEPT by the port, not STORED by the lane */

static void take_and_keep(struct xseg_lane *mine)
{
	uint32_t peer, bound;
	uint16_t epoch;
	uint8_t index = (uint8_t)mine->index;
	struct xseg_hint_message hints[8];
	unsigned frame;
	child_check(xseg_peer_join(&seg, "below", "test", 1ull << index, &peer, &epoch) == 0);
	child_check(xseg_port_bind(&seg, "below", peer, epoch, &index, 1, &bound) == 0);
	child_check(xseg_rehint_port(mine, bound) == 2);
	child_check(xseg_poll(mine, hints, 8) == 2);
	for (unsigned i = 0; i < 2; i++) {
		uint32_t slot = hints[i].request;
		child_check(xseg_accept(mine, slot, &frame) == 0);
		struct xseg_request *r = xseg_at(mine, slot);
		uint32_t page = r->extents[0].page + 1;
		child_check((outlives ? xseg_keep_page(mine, slot, page, bound)
				      : xseg_take_page(mine, slot, page)) == 0);
	}
	xseg_respond(mine, hints[0].request);
}

/* One was answered, its hint is lost with the ring; the other is whole again and waits. */
UNIT_LOOP(test_server, 2)
{
	setup();
	uint32_t slot[2];
	outlives = _i;
	for (unsigned i = 0; i < 2; i++) {
		slot[i] = ask(lane, XSEG_OP_WRITE, 3);
		ck_assert_int_eq(xseg_submit(lane, slot[i], port), 0);
	}
	die_doing(take_and_keep);
	struct xseg_reap_report report = reap();
	ck_assert_uint_eq(report.resubmitted, 1);
	ck_assert_uint_eq(report.freed, 0);
	ck_assert_uint_eq(state_of(slot[0]), XSEG_REQUEST_DONE);
	ck_assert_uint_eq(state_of(slot[1]), XSEG_REQUEST_SUBMITTED);
	const struct xseg_request *r = &seg.requests[slot[1]];
	ck_assert_uint_eq(r->flags & XSEG_R_DONATED, 0);
	uint64_t word = atomic_load(&seg.descriptors[r->extents[0].page + 1].word);
	ck_assert_uint_eq(xseg_page_state(word), XSEG_PAGE_HELD);
	ck_assert_uint_eq(xseg_page_owner(word), lane->index);
	/* what was answered is the server's: gone with it, or there for its successor */
	uint32_t given = seg.requests[slot[0]].extents[0].page + 1;
	word = atomic_load(&seg.descriptors[given].word);
	ck_assert_uint_eq(xseg_page_state(word), outlives ? XSEG_PAGE_KEPT : XSEG_PAGE_RETIRED);
	if (outlives)
		ck_assert_uint_eq(xseg_page_owner(word), port);
	/* given up: it is answered, and we are told without a ring */
	ck_assert_int_eq(xseg_reap_fail_port(&seg, port, -EIO), 1);
	struct xseg_hint_message hints[8];
	uint32_t count = xseg_poll(lane, hints, 8), got = 0;
	for (uint32_t i = 0; i < count; i++)
		if (xseg_receive(lane, hints[i].request) == 0) {
			got++;
			xseg_put(lane, hints[i].request);
		}
	ck_assert_uint_eq(got, 2);
	ck_assert_int_eq(seg.requests[slot[1]].result, -EIO);
	xseg_lane_leave(lane);
	reap();
	check_all_free(0, outlives); /* that one waits for a successor */
	scratch_segment_end(&seg);
}

/* It had lent a page that outlives it, and was killed before it said so: read again, lent again. */
static void take_and_lend(struct xseg_lane *mine)
{
	uint32_t peer, bound;
	uint16_t epoch;
	uint8_t index = (uint8_t)mine->index;
	struct xseg_hint_message hint;
	unsigned frame;
	child_check(xseg_peer_join(&seg, "below", "test", 1ull << index, &peer, &epoch) == 0);
	child_check(xseg_port_bind(&seg, "below", peer, epoch, &index, 1, &bound) == 0);
	child_check(xseg_rehint_port(mine, bound) == 1);
	child_check(xseg_poll(mine, &hint, 1) == 1);
	child_check(xseg_accept(mine, hint.request, &frame) == 0);
	struct xseg_request *r = xseg_at(mine, hint.request);
	xseg_page_pin(&seg, pinned_page);
	r->answer[0] = (struct xseg_extent){.page = pinned_page, .count = 1};
	r->answer_count = 1;
}

UNIT(test_server_lent)
{
	setup();
	pinned_page = lend(0);
	xseg_page_keep(&seg, pinned_page, port);
	xseg_page_pin(&seg, pinned_page); /* another reader's */
	uint32_t slot = ask(lane, XSEG_OP_READ, 1);
	ck_assert_int_eq(xseg_submit(lane, slot, port), 0);
	die_doing(take_and_lend);
	ck_assert_uint_eq(reap().resubmitted, 1);
	ck_assert_uint_eq(state_of(slot), XSEG_REQUEST_SUBMITTED);
	ck_assert_uint_eq(seg.requests[slot].answer_count, 0);
	uint64_t word = atomic_load(&seg.descriptors[pinned_page].word);
	ck_assert_uint_eq(xseg_page_state(word), XSEG_PAGE_KEPT);
	ck_assert_uint_eq(xseg_page_pins(word), 1);
	xseg_page_unpin(&lane->pages, pinned_page);
	xseg_page_retire(&lane->pages, pinned_page);
	ck_assert_int_eq(xseg_reap_fail_port(&seg, port, -EIO), 1);
	teardown();
}

UNIT(test_move_port)
{
	setup();
	uint32_t other, slot = ask(lane, XSEG_OP_READ, 1);
	ck_assert_int_eq(xseg_port_reserve(&seg, "other", &other), 0);
	ck_assert_int_eq(xseg_submit(lane, slot, port), 0);
	uint64_t ours = 1ull << lane->index;
	ck_assert_int_eq(xseg_reap_move_port(&seg, ~ours, port, other), 0);
	ck_assert_int_eq(xseg_reap_move_port(&seg, ours, port, other), 1);
	ck_assert_int_eq(xseg_reap_move_port(&seg, ours, port, other), 0);
	ck_assert_uint_eq(xseg_word_owner(atomic_load(&seg.requests[slot].word)), other);
	ck_assert_uint_eq(seg.requests[slot].frame[0].port, other);
	ck_assert_int_eq(xseg_reap_fail_port(&seg, other, -ENXIO), 1);
	teardown();
}

/* --- the reaper itself ---------------------------------------------------------------------- */

UNIT(test_one_at_a_time)
{
	setup();
	pid_t other = fork();
	if (other == 0) {
		pause();
		_exit(0);
	}
	uint64_t word =
		xseg_process_start_time(other) << 32 | (uint32_t)other; /* it reaps, and lives */
	atomic_store(&seg.super->reaper, word);
	ck_assert_int_eq(xseg_reap(&seg, NULL), -EBUSY);
	kill(other, SIGKILL);
	ck_assert_int_eq(waitpid(other, NULL, 0), other);
	ck_assert_int_eq(xseg_reap(&seg, NULL), 0); /* its lock died with it */
	ck_assert_uint_eq(atomic_load(&seg.super->reaper), 0);
	teardown();
}

/* Words that say nothing sensible: whoever reaps gets past them and nobody's page is freed. */
UNIT(test_damaged)
{
	setup();
	struct xseg_extent run;
	uint32_t count;
	ck_assert_int_eq(xseg_page_alloc(&lane->pages, 1, &run, 1, &count), 0);
	for (uint32_t slot = 0; slot < REQUESTS; slot++) {
		struct xseg_request *r = &seg.requests[slot];
		memset(r, 0xff, sizeof(*r));
		atomic_store(&r->word, 0x1111111111111111ull * (slot % 16));
	}
	reap();
	for (uint32_t slot = 0; slot < REQUESTS; slot++)
		ck_assert_msg(state_of(slot) == XSEG_REQUEST_FREE, "slot %u: state %u", slot,
			state_of(slot));
	uint64_t word = atomic_load(&seg.descriptors[run.page].word);
	ck_assert_uint_eq(xseg_page_state(word), XSEG_PAGE_HELD);
	xseg_page_free(&lane->pages, &run, 1);
	teardown();
}
