/* SPDX-License-Identifier: Apache-2.0 */
/* Conservation: a sound segment is clean, also under load; each kind of damage is told by name. */
#include <base/must.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <xseg/registry.h>
#include <xseg/stats.h>

#include "tests/lib/lane_rig.h"
#include "tests/lib/unit.h"
#include "tools/report/fsck.h"
#include "tools/report/metrics.h"
#include "tools/report/report.h"
#include "tools/report/report_trace.h"

#define LIMIT_NS 120000000000u

static uint64_t problems(struct fsck *fsck)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < FSCK_KINDS; i++)
		sum += fsck->by_kind[i];
	return sum;
}

static void say_all(const struct fsck *fsck)
{
	for (uint32_t i = 0; i < fsck->problem_count && i < 10; i++)
		fprintf(stderr, "# %s %u: %s\n", fsck_kind_names[fsck->problems[i].kind],
			fsck->problems[i].index, fsck->problems[i].text);
}

static void expect_clean(void)
{
	struct fsck fsck;
	ck_assert_int_eq(fsck_run(&rig_seg, 0, &fsck), 0);
	say_all(&fsck);
	ck_assert_uint_eq(problems(&fsck), 0);
	uint32_t pages = 0, requests = 0;
	for (unsigned i = 0; i < XSEG_PAGE_STATES; i++)
		pages += fsck.pages[i];
	for (unsigned i = 0; i < XSEG_REQUEST_STATES; i++)
		requests += fsck.requests[i];
	ck_assert_uint_eq(pages, rig_seg.page_count);
	ck_assert_uint_eq(requests, rig_seg.request_count);
	fsck_free(&fsck);
}

/* Just this, and nothing else. */
static void expect_found(enum fsck_kind kind, uint64_t count)
{
	struct fsck fsck;
	ck_assert_int_eq(fsck_run(&rig_seg, 0, &fsck), 0);
	if (fsck.by_kind[kind] != count || problems(&fsck) != count)
		say_all(&fsck);
	ck_assert_msg(fsck.by_kind[kind] == count, "%s: %llu of %llu", fsck_kind_names[kind],
		(unsigned long long)fsck.by_kind[kind], (unsigned long long)count);
	ck_assert_uint_eq(problems(&fsck), count);
	ck_assert_uint_eq(fsck.problem_count, count);
	ck_assert_uint_gt(fsck.looks, 1);
	fsck_free(&fsck);
}

/* A word is damaged, found, and as it was again. */
static void with_word(_Atomic uint64_t *place, uint64_t word, enum fsck_kind kind)
{
	uint64_t was = atomic_exchange(place, word);
	expect_found(kind, 1);
	atomic_store(place, was);
	expect_clean();
}

static uint32_t first_free_page(void)
{
	for (uint32_t i = 0; i < rig_seg.page_count; i++)
		if (atomic_load(&rig_seg.descriptors[i].word) == 0)
			return i;
	ck_abort_msg("no page is free");
}

/* --- sound ------------------------------------------------------------------------------ */

UNIT(test_sound)
{
	rig_setup();
	expect_clean();
	struct xseg_lane *a = rig_join(), *b = rig_join();
	uint32_t port = rig_serve(b, "b");
	expect_clean();
	rig_seg.lanes[b->index].bell.asleep = 1; /* then a hint in no ring would be told */
	uint32_t slot = rig_get(a, XSEG_OP_WRITE, 1);
	ck_assert_int_eq(xseg_attach_pages(a, slot, 0, 3 * XSEG_PAGE), 0);
	expect_clean(); /* owned */
	ck_assert_int_eq(xseg_submit(a, slot, port), 0);
	expect_clean(); /* submitted, its hint is in the ring */
	rig_seg.lanes[b->index].bell.asleep = 0;
	xseg_turn_end(a);
	rig_expect_submit(b, 0);
	expect_clean(); /* taken */
	ck_assert_int_eq(xseg_take_page(b, slot, xseg_at(b, slot)->extents[0].page), 0);
	expect_clean(); /* one page is stored */
	uint32_t kept = xseg_at(b, slot)->extents[0].page;
	rig_answer(b, slot, 0, 0);
	expect_clean(); /* done */
	ck_assert_uint_eq(rig_expect_reply(a), slot);
	xseg_put(a, slot);
	expect_clean();
	xseg_page_retire(&b->pages, kept);
	xseg_lane_leave(a);
	xseg_lane_leave(b);
	rig_teardown();
}

/* --- pages ------------------------------------------------------------------------------ */

UNIT(test_page_words)
{
	rig_setup();
	uint32_t page = first_free_page();
	_Atomic uint64_t *word = &rig_seg.descriptors[page].word;
	with_word(word, 9, FSCK_PAGE_BAD);				 /* no state */
	with_word(word, 1ull << 32, FSCK_PAGE_BAD);			 /* free, but owned */
	with_word(word, 3u << 4, FSCK_PAGE_BAD);			 /* free, but pinned */
	with_word(word, XSEG_PAGE_HELD | 77ull << 48, FSCK_PAGE_LEAKED); /* by a lane of old */
	with_word(word, XSEG_PAGE_STORED | 1ull << 32 | 77ull << 48, FSCK_PAGE_LEAKED);
	rig_teardown();
}

UNIT(test_page_pins)
{
	rig_setup();
	struct xseg_lane *lane = rig_join();
	struct xseg_extent run;
	uint32_t count;
	ck_assert_int_eq(xseg_page_alloc(&lane->pages, 1, &run, 1, &count), 0);
	_Atomic uint64_t *word = &rig_seg.descriptors[run.page].word;
	with_word(word, atomic_load(word) | 1u << 4, FSCK_PAGE_PINS); /* held, and pinned */
	xseg_page_store(&lane->pages, run.page);
	expect_clean();
	xseg_page_pin(&rig_seg, run.page);
	expect_found(FSCK_PAGE_PINS, 1); /* nobody reads it */
	/* with a reader it is right, with two it is not */
	uint32_t slot = rig_get(lane, XSEG_OP_READ, 1);
	xseg_at(lane, slot)->answer[0] = (struct xseg_extent){.page = run.page, .count = 1};
	xseg_at(lane, slot)->answer_count = 1;
	expect_clean();
	xseg_at(lane, slot)->answer[1] = (struct xseg_extent){.page = run.page, .count = 1};
	xseg_at(lane, slot)->answer_count = 2;
	expect_found(FSCK_PAGE_PINS, 1);
	xseg_at(lane, slot)->answer_count = 1;
	/* retired while it is read is right, after the last reader it is leaked */
	xseg_page_retire(&lane->pages, run.page);
	expect_clean();
	xseg_at(lane, slot)->answer_count = 0;
	atomic_store(word, atomic_load(word) - (1u << 4));
	expect_found(FSCK_PAGE_LEAKED, 1);
	atomic_store(word, 0);
	xseg_page_rehint(&rig_seg);
	xseg_put(lane, slot);
	xseg_lane_leave(lane);
	rig_teardown();
}

UNIT(test_page_of_two)
{
	rig_setup();
	struct xseg_lane *lane = rig_join();
	uint32_t a = rig_get(lane, XSEG_OP_WRITE, 1), b = rig_get(lane, XSEG_OP_WRITE, 2);
	ck_assert_int_eq(xseg_attach_pages(lane, a, 0, XSEG_PAGE), 0);
	struct xseg_request *second = xseg_at(lane, b);
	second->extents[0] = xseg_at(lane, a)->extents[0];
	second->extent_count = 1;
	expect_found(FSCK_PAGE_TWICE, 1);
	second->flags |= XSEG_R_BORROWED; /* lent: one owner again */
	expect_clean();
	second->flags = 0;
	second->extents[0].page = first_free_page();
	expect_found(FSCK_PAGE_UNHELD, 1);
	second->extents[0].page = rig_seg.page_count;
	expect_found(FSCK_REQUEST_BAD, 1);
	second->extent_count = 0;
	expect_clean();
	xseg_put(lane, a);
	xseg_put(lane, b);
	xseg_lane_leave(lane);
	rig_teardown();
}

UNIT(test_hints)
{
	rig_setup();
	struct fsck fsck;
	struct fsck_repair repair;
	uint64_t was = atomic_exchange(&rig_seg.page_hints[1], ~0ull & ~(5ull << 7));
	expect_found(FSCK_PAGE_HINT, 2);
	atomic_store(&rig_seg.page_hints[1], was);
	was = atomic_exchange(&rig_seg.request_hints[2], 0);
	expect_found(FSCK_SLOT_HINT, 1);
	/* while a lane lives a few may be kept by it, but not so many */
	struct xseg_lane *lane = rig_join();
	expect_clean();
	atomic_store(&rig_seg.request_hints[3], 0);
	expect_found(FSCK_SLOT_HINT, 1);
	ck_assert_int_eq(fsck_run(&rig_seg, 0, &fsck), 0);
	ck_assert_int_eq(fsck_repair(&rig_seg, &fsck, LIMIT_NS, &repair), 0);
	ck_assert_uint_eq(repair.hints, 128);
	fsck_free(&fsck);
	expect_clean();
	xseg_lane_leave(lane);
	expect_clean();
	rig_teardown();
}

/* --- requests --------------------------------------------------------------------------- */

UNIT(test_request_words)
{
	rig_setup();
	_Atomic uint64_t *word = &rig_seg.requests[500].word;
	with_word(word, xseg_word(7, 0, 0, 0, 1), FSCK_REQUEST_BAD);
	with_word(word, xseg_word(XSEG_REQUEST_OWNED, XSEG_FRAMES, 0, 0, 1), FSCK_REQUEST_BAD);
	with_word(word, xseg_word(XSEG_REQUEST_OWNED, 0, 2, 9, 1), FSCK_REQUEST_DEAD);
	with_word(word, xseg_word(XSEG_REQUEST_TAKEN, 0, 2, 9, 1), FSCK_REQUEST_DEAD);
	with_word(word, xseg_word(XSEG_REQUEST_DONE, 0, 2, 9, 1), FSCK_REQUEST_DEAD);
	with_word(word, xseg_word(XSEG_REQUEST_OWNED, 0, 999, 9, 1), FSCK_REQUEST_DEAD);
	with_word(word, xseg_word(XSEG_REQUEST_SUBMITTED, 0, 3, 0, 1), FSCK_REQUEST_DEAD);
	with_word(
		word, xseg_word(XSEG_REQUEST_SUBMITTED, 0, XSEG_PORTS_MAX, 0, 1), FSCK_REQUEST_BAD);
	rig_teardown();
}

static int turn(void *lane)
{
	for (;;)
		atomic_fetch_add(&rig_seg.lanes[((struct xseg_lane *)lane)->index].heartbeat, 1);
	return 0;
}

/* A hint that is lost: the lane sleeps, or goes on and on, and does not know. */
UNIT(test_request_hint)
{
	rig_setup();
	struct xseg_lane *a = rig_join(), *b = rig_join();
	uint32_t port = rig_serve(b, "b"), slot = rig_get(a, XSEG_OP_WRITE, 1);
	struct xseg_request *request = xseg_at(a, slot);
	uint64_t word = atomic_load(&request->word);
	request->frame[0].port = (uint16_t)port;
	atomic_store(&request->word, xseg_word(XSEG_REQUEST_SUBMITTED, 0, (uint16_t)port, 0,
					     xseg_word_generation(word)));
	expect_clean(); /* b neither sleeps nor moves: it may have it in its own queue */
	atomic_store(&rig_seg.lanes[b->index].bell.asleep, 1);
	expect_found(FSCK_REQUEST_HINT, 1);
	atomic_store(&rig_seg.lanes[b->index].bell.asleep, 0);
	pid_t pid = child_start(turn, b);
	expect_found(FSCK_REQUEST_HINT, 1);
	child_kill(pid);
	atomic_store(&request->word,
		xseg_word(XSEG_REQUEST_DONE, 0, a->index, a->epoch, xseg_word_generation(word)));
	atomic_store(&rig_seg.lanes[a->index].bell.asleep, 1);
	expect_found(FSCK_REQUEST_HINT, 1);
	atomic_store(&rig_seg.lanes[a->index].bell.asleep, 0);
	atomic_store(&request->word, word);
	expect_clean();
	xseg_put(a, slot);
	xseg_lane_leave(a);
	xseg_lane_leave(b);
	rig_teardown();
}

/* --- tables ----------------------------------------------------------------------------- */

UNIT(test_tables)
{
	rig_setup();
	struct xseg_lane *lane = rig_join();
	uint32_t port = rig_serve(lane, "p"), edge;
	ck_assert_int_eq(xseg_edge_reserve(&rig_seg, "p:down", &edge), 0);
	xseg_edge_set(&rig_seg, edge, port);
	expect_clean();
	with_word(&rig_seg.edges[edge].word, (uint64_t)60 << 32, FSCK_EDGE_BAD);
	with_word(&rig_seg.edges[edge].word, (uint64_t)1000 << 32, FSCK_EDGE_BAD);
	with_word(&rig_seg.lanes[3].word, 9, FSCK_LANE_BAD);
	with_word(&rig_seg.lanes[3].word, xseg_life_word(XSEG_LIFE_ALIVE, 5, 0x7ffffff),
		FSCK_LANE_DEAD);
	with_word(&rig_seg.peers[9].word, 200, FSCK_PEER_BAD);
	with_word(&rig_seg.ports[port].word, 77, FSCK_PORT_BAD);
	with_word(
		&rig_seg.ports[port].word, xseg_life_word(XSEG_LIFE_ALIVE, 999, 1), FSCK_PORT_DEAD);
	with_word(&rig_seg.stats[3].word, 99, FSCK_STATS_BAD);
	with_word(&rig_seg.volumes[3].word, 99, FSCK_STATS_BAD);
	rig_seg.ports[port].lane[0] = 3;
	expect_found(FSCK_PORT_BAD, 1);
	rig_seg.ports[port].lane[0] = (uint8_t)lane->index;
	memcpy(&rig_seg.ports[port + 1], &rig_seg.ports[port], sizeof(rig_seg.ports[0]));
	expect_found(FSCK_NAME_TWICE, 1);
	memset(&rig_seg.ports[port + 1], 0, sizeof(rig_seg.ports[0]));
	rig_seg.super->created_ns ^= 1;
	expect_found(FSCK_SUPERBLOCK, 1);
	rig_seg.super->created_ns ^= 1;
	expect_clean();
	xseg_lane_leave(lane);
	xseg_segment_leave(&rig_seg);
}

UNIT(test_rings)
{
	rig_setup();
	struct xseg_ring *ring = &rig_seg.rings[2 * rig_seg.lane_count + 1];
	with_word(&ring->slots[4].sequence, 4, FSCK_RING_BAD); /* not its place */
	with_word(&ring->head, 1, FSCK_RING_BAD);	       /* nothing was put */
	ring->slots[0].request = rig_seg.request_count;
	with_word(&ring->slots[0].sequence, 1, FSCK_RING_BAD); /* of no request */
	ring->slots[0].request = 0;
	with_word(&ring->head, 1ull << 60, FSCK_RING_BAD);
	atomic_store(&ring->head, 1ull << 60);
	struct fsck fsck;
	struct fsck_repair repair;
	ck_assert_int_eq(fsck_run(&rig_seg, 0, &fsck), 0);
	ck_assert_int_eq(fsck_repair(&rig_seg, &fsck, LIMIT_NS, &repair), 0);
	ck_assert_uint_eq(repair.repaired, 1);
	fsck_free(&fsck);
	expect_clean();
	rig_teardown();
}

/* --- wild ------------------------------------------------------------------------------- */

static void look_everywhere(void)
{
	struct fsck fsck;
	struct trace trace;
	size_t size;
	ck_assert_int_eq(fsck_run(&rig_seg, 1, &fsck), 0);
	fsck_free(&fsck);
	free(metrics_text(&rig_seg, METRICS_OPEN, &size));
	for (uint32_t slot = 0; slot < rig_seg.request_count; slot++)
		if (report_trace_take(&rig_seg, slot, &trace) == 0)
			json_decref(report_trace_details(&rig_seg, &trace));
	json_decref(report_stats(&rig_seg, NULL));
}

/* Whatever lies in the tables, who looks at them lives; and a segment as it was is clean. */
UNIT(test_wild)
{
	uint64_t random = 20261120;
	rig_setup();
	struct xseg_lane *lane = rig_join();
	rig_serve(lane, "p");
	uint32_t slot = rig_get(lane, XSEG_OP_WRITE, 1);
	ck_assert_int_eq(xseg_attach_pages(lane, slot, 0, 3 * XSEG_PAGE), 0);
	uint64_t *tables = (uint64_t *)(void *)(rig_seg.base + XSEG_PAGE);
	size_t count = (size_t)(rig_seg.pages - rig_seg.base - XSEG_PAGE) / sizeof(*tables);
	uint64_t *was = malloc(count * sizeof(*was));
	ck_assert_ptr_nonnull(was);
	memcpy(was, tables, count * sizeof(*was));
	for (unsigned round = 0; round < 60; round++) {
		for (unsigned i = 0; i < 300; i++) {
			uint64_t word = random_next(&random);
			size_t at = random_next(&random) % count;
			/* half of them where the small tables are */
			at = i % 2 ? at : at % (1u << 17);
			tables[at] = i % 3 ? word : tables[at] ^ 1ull << word % 64;
		}
		look_everywhere();
	}
	memcpy(tables, was, count * sizeof(*was));
	free(was);
	expect_clean();
	xseg_put(lane, slot);
	xseg_lane_leave(lane);
	xseg_segment_leave(&rig_seg);
}

/* --- the dead --------------------------------------------------------------------------- */

/* Everything that one lane can do to pages and requests, on and on. */
static void busy_turn(struct xseg_lane *lane, uint32_t port, uint32_t *stored)
{
	struct xseg_hint_message m;
	unsigned frame;
	uint32_t write = rig_get(lane, XSEG_OP_WRITE, 1), read = rig_get(lane, XSEG_OP_READ, 2);
	must(xseg_attach_pages(lane, write, 0, XSEG_PAGE) == 0);
	must(xseg_attach_pages(lane, read, 0, XSEG_PAGE) == 0);
	must(xseg_submit(lane, write, port) == 0 && xseg_submit(lane, read, port) == 0);
	while (xseg_poll(lane, &m, 1) == 1) {
		struct xseg_request *request = xseg_at(lane, m.request);
		if (m.kind == XSEG_HINT_REPLY) {
			must(xseg_receive(lane, m.request) == 0);
			xseg_put(lane, m.request);
			continue;
		}
		must(xseg_accept(lane, m.request, &frame) == 0);
		if (request->frame[0].op == XSEG_OP_WRITE) {
			uint32_t page = request->extents[0].page;
			must(xseg_take_page(lane, m.request, page) == 0);
			if (*stored != XSEG_NONE)
				xseg_page_retire(&lane->pages, *stored);
			*stored = page;
		} else {
			xseg_page_pin(&rig_seg, *stored);
			request->answer[0] = (struct xseg_extent){.page = *stored, .count = 1};
			request->answer_count = 1;
		}
		rig_answer(lane, m.request, 0, 0);
	}
	xseg_turn_end(lane);
}

static int busy(void *arg)
{
	struct xseg_lane *lane = rig_join();
	uint32_t port = rig_serve(lane, "busy"), stored = XSEG_NONE;
	for (;;) {
		busy_turn(lane, port, &stored);
		atomic_fetch_add(&rig_seg.lanes[lane->index].heartbeat, 1);
		*(volatile uint64_t *)arg += 1;
	}
	return 0;
}

/* What changes all the time is no damage; what is left when it is killed is, until repaired. */
UNIT(test_busy_then_dead)
{
	struct fsck fsck;
	struct fsck_repair repair;
	uint64_t ignored = 0, deaths_found = 0;
	rig_setup();
	for (unsigned round = 0; round < 5; round++) {
		pid_t pid = child_start(busy, &ignored);
		while (xseg_life_of(atomic_load(&rig_seg.lanes[0].word)) != XSEG_LIFE_ALIVE ||
			atomic_load(&rig_seg.lanes[0].heartbeat) < 1000)
			usleep(1000);
		for (unsigned i = 0; i < 10; i++)
			expect_clean();
		child_kill(pid);
		ck_assert_int_eq(fsck_run(&rig_seg, 0, &fsck), 0);
		ck_assert_uint_eq(fsck.by_kind[FSCK_LANE_DEAD], 1);
		ck_assert_uint_ge(fsck.by_kind[FSCK_PAGE_LEAKED], 1);
		ck_assert_uint_eq(fsck.by_kind[FSCK_PORT_DEAD], 1);
		deaths_found += fsck.by_kind[FSCK_REQUEST_DEAD];
		ck_assert_int_eq(fsck_repair(&rig_seg, &fsck, LIMIT_NS, &repair), 0);
		ck_assert_uint_ge(repair.pages, 1);
		fsck_free(&fsck);
		expect_clean();
	}
	fprintf(stderr, "# %llu requests of the dead\n", (unsigned long long)deaths_found);
	rig_teardown();
}

/* Words that nobody can have are repaired; what has no state is nobody's, and is the reaper's. */
UNIT(test_repair)
{
	struct fsck fsck;
	struct fsck_repair repair;
	rig_setup();
	struct xseg_lane *lane = rig_join();
	uint32_t page = first_free_page();
	atomic_store(&rig_seg.descriptors[page].word, 3ull << 32);
	atomic_store(&rig_seg.descriptors[page + 1].word,
		XSEG_PAGE_RETIRED | (uint64_t)lane->index << 32 | (uint64_t)lane->epoch << 48);
	atomic_store(&rig_seg.descriptors[page + 2].word, 9);
	ck_assert_int_eq(fsck_run(&rig_seg, 0, &fsck), 0);
	ck_assert_uint_eq(fsck.by_kind[FSCK_PAGE_BAD], 2);
	ck_assert_uint_eq(fsck.by_kind[FSCK_PAGE_LEAKED], 1);
	ck_assert_int_eq(fsck_repair(&rig_seg, &fsck, LIMIT_NS, &repair), 0);
	ck_assert_uint_eq(repair.repaired, 2);
	fsck_free(&fsck);
	expect_clean();
	xseg_lane_leave(lane);
	rig_teardown();
}
