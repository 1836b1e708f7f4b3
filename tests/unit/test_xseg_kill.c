/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One word is the truth: producer, consumer, server, client or reaper is killed at any instant and
 * started again; no request is lost, none is answered twice, nobody else stops, and in the end
 * every slot and every page is free. Nobody here looks for lost hints: that is the reaper's.
 */
#include <base/hash.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <xseg/lane.h>
#include <xseg/reap.h>

#include "tests/lib/unit.h"

#define DEPTH 48u
#define ROUNDS 120u

static struct xseg seg;

struct board {
	_Alignas(128) _Atomic uint64_t applied; /* ring: next number expected */
	_Alignas(128) _Atomic uint64_t replayed, lost, wrong;
	_Alignas(128) _Atomic uint64_t answered, stop_client, stop_server;
};

static struct board *the_board;

static struct board *board(void) { return the_board; }

static void setup(uint32_t requests)
{
	scratch_segment(&seg, 0, 4, requests);
	the_board = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(the_board, MAP_FAILED);
}

static void nap(uint64_t *random) { usleep((useconds_t)(random_next(random) % 2500)); }

/* --- rings alone ------------------------------------------------------------- */

_Noreturn static int ring_producer(void *arg)
{
	(void)arg;
	struct xseg_ring_tx tx;
	xseg_ring_tx_attach(&tx, &seg.rings[0]);
	for (;;)
		while (!xseg_ring_put(&tx, (uint32_t)tx.position, (uint32_t)tx.position * 3))
			cpu_relax();
}

/*
 * Each message carries its position: an old one beyond the replay limit is wrong. A consumer that
 * is killed after it has published the head, before it has noted the message, loses that one.
 */
_Noreturn static int ring_consumer(void *arg)
{
	(void)arg;
	struct board *b = board();
	struct xseg_ring_rx rx;
	struct xseg_hint_message m;
	xseg_ring_rx_attach(&rx, &seg.rings[0]);
	for (;;) {
		uint64_t position = rx.position;
		if (!xseg_ring_get(&rx, &m)) {
			cpu_relax();
			continue;
		}
		uint64_t next = atomic_load(&b->applied);
		if (m.request != (uint32_t)position || m.kind != (uint32_t)position * 3 ||
			position > next + 1 || position + XSEG_RING_SLOTS < next) {
			atomic_fetch_add(&b->wrong, 1);
		} else if (position < next) {
			atomic_fetch_add(&b->replayed, 1);
		} else {
			atomic_fetch_add(&b->lost, position - next);
			atomic_store(&b->applied, position + 1);
		}
	}
}

UNIT(test_ring)
{
	uint64_t random = 17;
	setup(64);
	int (*const run[2])(void *) = {ring_producer, ring_consumer};
	pid_t pid[2] = {child_start(run[0], NULL), child_start(run[1], NULL)};
	for (unsigned i = 0; i < 2 * ROUNDS; i++) {
		unsigned victim = random_next(&random) % 2;
		nap(&random);
		child_kill(pid[victim]);
		pid[victim] = child_start(run[victim], NULL);
	}
	uint64_t before = atomic_load(&board()->applied);
	for (unsigned i = 0; i < 120000 && atomic_load(&board()->applied) < before + 1000; i++)
		usleep(1000);
	child_kill(pid[0]);
	child_kill(pid[1]);
	ck_assert_uint_eq(atomic_load(&board()->wrong), 0);
	ck_assert_uint_le(atomic_load(&board()->lost), 2 * ROUNDS);
	ck_assert_uint_ge(atomic_load(&board()->applied), before + 1000);
	scratch_segment_end(&seg);
}

/* --- requests ------------------------------------------------------------------ */

static uint64_t answer_to(uint64_t cookie) { return hash_u64(cookie) + 1; }

/* What the server keeps: the last page written, and readers look at it where it lies. */
struct shelf {
	struct xseg_lane *lane;
	uint32_t page;
};

static void serve_write(struct shelf *shelf, uint32_t slot, struct xseg_request *r)
{
	uint32_t page = r->extents[0].page, old = shelf->page;
	if (r->extent_count == 0 || xseg_take_page(shelf->lane, slot, page) != 0)
		return;
	shelf->page = page;
	if (old != XSEG_NONE)
		xseg_page_retire(&shelf->lane->pages, old);
}

static void serve_read(struct shelf *shelf, struct xseg_request *r)
{
	if (shelf->page == XSEG_NONE)
		return;
	xseg_page_pin(&seg, shelf->page);
	r->answer[0] = (struct xseg_extent){.page = shelf->page, .count = 1};
	r->answer_count = 1;
}

static void serve(struct shelf *shelf, uint32_t slot)
{
	unsigned frame;
	if (xseg_accept(shelf->lane, slot, &frame) != 0)
		return;
	struct xseg_request *r = xseg_at(shelf->lane, slot);
	if (r->frame[frame].op == XSEG_OP_WRITE)
		serve_write(shelf, slot, r);
	else
		serve_read(shelf, r);
	r->result = 0;
	r->value = answer_to(r->frame[frame].offset);
	xseg_respond(shelf->lane, slot);
}

static int server(void *arg)
{
	struct shelf shelf = {.page = XSEG_NONE};
	struct xseg_hint_message m[16];
	uint32_t peer, port;
	uint16_t epoch;
	(void)arg;
	child_check(xseg_reap_wait(&seg, 120000000000u, NULL) == 0);
	child_check(xseg_lane_join(&seg, false, &shelf.lane) == 0);
	uint8_t index = (uint8_t)shelf.lane->index;
	child_check(xseg_peer_join(&seg, "server", "test", 1ull << index, &peer, &epoch) == 0);
	child_check(xseg_port_bind(&seg, "server", peer, epoch, &index, 1, &port) == 0);
	xseg_rehint_port(shelf.lane, port);
	while (!atomic_load(&board()->stop_server)) {
		uint32_t n = xseg_poll(shelf.lane, m, 16);
		for (uint32_t i = 0; i < n; i++)
			serve(&shelf, m[i].request);
		xseg_turn_end(shelf.lane);
		if (n == 0)
			xseg_wait(shelf.lane, 50000000);
	}
	if (shelf.page != XSEG_NONE)
		xseg_page_retire(&shelf.lane->pages, shelf.page);
	xseg_port_unbind(&seg, port);
	xseg_peer_leave(&seg, peer);
	xseg_lane_leave(shelf.lane);
	return 0;
}

struct flight {
	struct xseg_lane *lane;
	uint32_t port, slot[DEPTH], count;
	uint64_t next, seen;
	uint64_t cookie[DEPTH];
};

static void take_off(struct flight *f)
{
	uint32_t slot;
	if (xseg_get(f->lane, &slot) != 0)
		return;
	struct xseg_request *r = xseg_at(f->lane, slot);
	/* the dead keep their pages until somebody reaps, so the pool may have run dry */
	if (f->next % 3 == 0)
		xseg_attach_pages(f->lane, slot, 0, 3 * XSEG_PAGE);
	r->cookie = f->next;
	r->frame[0] = (struct xseg_frame){.op = f->next % 3 == 0 ? XSEG_OP_WRITE : XSEG_OP_READ,
		.lane = XSEG_LANE_ANY,
		.offset = f->next};
	f->slot[f->count] = slot;
	f->cookie[f->count++] = f->next++;
	child_check(xseg_submit(f->lane, slot, f->port) == 0);
}

/* An answer: to a request in flight, the right one, and never again to the same. */
static void land(struct flight *f, uint32_t slot)
{
	struct xseg_request *r = xseg_at(f->lane, slot);
	for (uint32_t i = 0; i < f->count; i++) {
		if (f->slot[i] != slot)
			continue;
		child_check(r->cookie == f->cookie[i]);
		child_check(r->result == 0 && r->value == answer_to(r->cookie));
		f->count--;
		f->slot[i] = f->slot[f->count];
		f->cookie[i] = f->cookie[f->count];
		f->seen++;
		atomic_fetch_add(&board()->answered, 1);
		xseg_put(f->lane, slot);
		return;
	}
	child_check(!"answered twice");
}

static int client(void *arg)
{
	struct flight f = {.count = 0};
	struct xseg_hint_message m[16];
	(void)arg;
	child_check(xseg_lane_join(&seg, false, &f.lane) == 0);
	child_check(xseg_port_reserve(&seg, "server", &f.port) == 0);
	while (!atomic_load(&board()->stop_client) || f.count) {
		while (!atomic_load(&board()->stop_client) && f.count < DEPTH)
			take_off(&f);
		uint32_t n = xseg_poll(f.lane, m, 16);
		for (uint32_t i = 0; i < n; i++)
			if (xseg_receive(f.lane, m[i].request) == 0)
				land(&f, m[i].request);
		xseg_turn_end(f.lane);
		if (n == 0)
			xseg_wait(f.lane, 50000000);
	}
	child_check(f.seen == f.next);
	xseg_lane_leave(f.lane);
	return 0;
}

_Noreturn static int reaper(void *arg)
{
	(void)arg;
	for (;;)
		xseg_reap(&seg, NULL);
}

static void walk(void)
{
	struct xseg_reap_report report;
	int error = xseg_reap_wait(&seg, 120000000000u, &report);
	ck_assert_msg(error == 0, "reaping: %d, pending %u", error, report.pending);
}

static void check_all_free(void)
{
	struct xseg_usage usage;
	walk();
	xseg_segment_usage(&seg, &usage);
	ck_assert_uint_eq(usage.requests_by_state[XSEG_REQUEST_FREE], usage.requests);
	ck_assert_uint_eq(usage.pages_free, usage.pages);
	ck_assert_uint_eq(xseg_page_free_count(&seg), usage.pages);
	ck_assert_uint_eq(xseg_request_rehint(&seg), 0);
}

static void wait_answered(uint64_t more)
{
	uint64_t before = atomic_load(&board()->answered);
	for (unsigned i = 0; i < 120000 && atomic_load(&board()->answered) < before + more; i++)
		usleep(1000);
	ck_assert_msg(atomic_load(&board()->answered) >= before + more,
		"nothing moves any more after %lu answers", (unsigned long)before);
}

UNIT(test_server_killed)
{
	uint64_t random = 23;
	setup(256);
	pid_t c = child_start(client, NULL), s = child_start(server, NULL);
	for (unsigned i = 0; i < ROUNDS; i++) {
		nap(&random);
		child_kill(s);
		walk();
		s = child_start(server, NULL);
		if (i % 8 == 0)
			wait_answered(500);
	}
	wait_answered(500);
	/* the client ends well only when all it asked was answered, each once */
	atomic_store(&board()->stop_client, 1);
	ck_assert_int_eq(child_end(c), 0);
	atomic_store(&board()->stop_server, 1);
	ck_assert_int_eq(child_end(s), 0);
	check_all_free();
	scratch_segment_end(&seg);
}

UNIT(test_client_killed)
{
	uint64_t random = 29;
	setup(256);
	pid_t s = child_start(server, NULL), c = child_start(client, NULL);
	for (unsigned i = 0; i < ROUNDS; i++) {
		nap(&random);
		child_kill(c);
		walk();
		c = child_start(client, NULL);
		if (i % 8 == 0)
			wait_answered(500);
	}
	wait_answered(500);
	child_kill(c);
	atomic_store(&board()->stop_server, 1);
	ck_assert_int_eq(child_end(s), 0);
	check_all_free();
	scratch_segment_end(&seg);
}

/* Clients and servers die while reapers die over them. */
UNIT(test_all_killed)
{
	uint64_t random = 31;
	setup(256);
	int (*const run[3])(void *) = {server, client, reaper};
	pid_t pid[3];
	for (unsigned i = 0; i < 3; i++)
		pid[i] = child_start(run[i], NULL);
	for (unsigned i = 0; i < 2 * ROUNDS; i++) {
		unsigned victim = random_next(&random) % 3;
		nap(&random);
		child_kill(pid[victim]);
		pid[victim] = child_start(run[victim], NULL);
		if (i % 8 == 0)
			wait_answered(100);
	}
	wait_answered(500);
	child_kill(pid[2]);
	atomic_store(&board()->stop_client, 1);
	ck_assert_int_eq(child_end(pid[1]), 0);
	atomic_store(&board()->stop_server, 1);
	ck_assert_int_eq(child_end(pid[0]), 0);
	check_all_free();
	scratch_segment_end(&seg);
}
