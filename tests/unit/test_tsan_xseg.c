/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ring and request core as threads of one process, so that the thread sanitizer sees both
 * sides (configure --enable-sanitizers=thread); without it, a small stress test.
 *
 * What TSan cannot see: it knows no fences, and the bell's order rests on two (bell.h). But what
 * is handed over is ordered by the release and acquire of ring slots and state words alone, never
 * by the bell, so nothing here needs a suppression: a report is a bug. That no wake-up is lost is
 * shown by tests/model/bell.pml instead.
 */
#include <pthread.h>
#include <string.h>
#include <xseg/lane.h>
#include <xseg/stats.h>

#include "tests/lib/unit.h"

#define MESSAGES 100000u
#define REQUESTS 6000u
#define DEPTH 300u /* more than a ring takes */

static struct xseg seg;

/* --- ring -------------------------------------------------------------------- */

static void *produce(void *arg)
{
	struct xseg_ring_tx tx;
	xseg_ring_tx_attach(&tx, arg);
	for (uint32_t i = 0; i < MESSAGES; i++)
		while (!xseg_ring_put(&tx, i, ~i))
			cpu_relax();
	return NULL;
}

UNIT(test_ring)
{
	pthread_t thread;
	struct xseg_ring_rx rx;
	struct xseg_hint_message m;
	scratch_segment(&seg, 0, 2, 64);
	xseg_ring_rx_attach(&rx, &seg.rings[1]);
	ck_assert_int_eq(pthread_create(&thread, NULL, produce, &seg.rings[1]), 0);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		while (!xseg_ring_get(&rx, &m))
			cpu_relax();
		ck_assert_uint_eq(m.request, i);
		ck_assert_uint_eq(m.kind, ~i);
	}
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	scratch_segment_end(&seg);
}

/* --- requests: clients -> middle (forwards) -> server (answers) ----------------- */

struct role {
	const char *name, *next;
	pthread_t thread;
	_Atomic bool stop, ready;
	uint64_t done;
};

static uint32_t port_of(const char *name)
{
	uint32_t port;
	must(xseg_port_reserve(&seg, name, &port) == 0);
	return port;
}

static void serve(struct xseg_lane *lane, struct role *role, uint32_t slot)
{
	unsigned frame;
	if (xseg_accept(lane, slot, &frame) != 0)
		return;
	struct xseg_request *r = xseg_at(lane, slot);
	role->done++;
	if (role->next) {
		struct xseg_frame down = r->frame[frame];
		down.offset++;
		must(xseg_forward(lane, slot, port_of(role->next), &down) == 0);
		return;
	}
	/* plain reads and writes of the data: what TSan is here for */
	uint8_t *data = xseg_page_address(&seg, r->extents[0].page);
	must(data[7] == (uint8_t)r->cookie);
	data[9] = (uint8_t)~r->cookie;
	r->result = 0;
	r->value = r->frame[frame].offset;
	xseg_respond(lane, slot);
}

static void *server(void *arg)
{
	struct role *role = arg;
	struct xseg_lane *lane;
	struct xseg_hint_message m[32];
	uint32_t peer, port;
	uint16_t epoch;
	must(xseg_lane_join(&seg, false, &lane) == 0);
	uint8_t index = (uint8_t)lane->index;
	must(xseg_peer_join(&seg, role->name, "test", 1ull << index, &peer, &epoch) == 0);
	must(xseg_port_bind(&seg, role->name, peer, epoch, &index, 1, &port) == 0);
	atomic_store(&role->ready, true);
	while (!atomic_load(&role->stop)) {
		uint32_t n = xseg_poll(lane, m, 32);
		for (uint32_t i = 0; i < n; i++)
			serve(lane, role, m[i].request);
		xseg_turn_end(lane);
		if (n == 0)
			xseg_wait(lane, 1000000);
	}
	xseg_lane_leave(lane);
	return NULL;
}

static void ask(struct xseg_lane *lane, uint32_t port, uint64_t number)
{
	uint32_t slot;
	must(xseg_get(lane, &slot) == 0);
	struct xseg_request *r = xseg_at(lane, slot);
	must(xseg_attach_pages(lane, slot, 0, XSEG_PAGE) == 0);
	xseg_page_address(&seg, r->extents[0].page)[7] = (uint8_t)number;
	r->cookie = number;
	r->frame[0] = (struct xseg_frame){
		.op = XSEG_OP_WRITE, .lane = XSEG_LANE_ANY, .offset = number * 10};
	must(xseg_submit(lane, slot, port) == 0);
}

static void *client(void *arg)
{
	struct role *role = arg;
	struct xseg_lane *lane;
	struct xseg_hint_message m[32];
	uint64_t asked = 0;
	must(xseg_lane_join(&seg, false, &lane) == 0);
	uint32_t port = port_of(role->next);
	while (role->done < REQUESTS) {
		while (asked < REQUESTS && asked - role->done < DEPTH)
			ask(lane, port, asked++);
		xseg_turn_end(lane);
		uint32_t n = xseg_poll(lane, m, 32);
		for (uint32_t i = 0; i < n; i++) {
			must(xseg_receive(lane, m[i].request) == 0);
			struct xseg_request *r = xseg_at(lane, m[i].request);
			must(r->value == r->cookie * 10 + 1);
			must(xseg_page_address(&seg, r->extents[0].page)[9] == (uint8_t)~r->cookie);
			xseg_put(lane, m[i].request);
			role->done++;
		}
		if (n == 0)
			xseg_wait(lane, 1000000);
	}
	xseg_lane_leave(lane);
	return NULL;
}

static void start(struct role *role, void *(*run)(void *))
{
	ck_assert_int_eq(pthread_create(&role->thread, NULL, run, role), 0);
}

UNIT(test_requests)
{
	struct role last = {.name = "last"}, middle = {.name = "middle", .next = "last"};
	struct role clients[2] = {{.next = "middle"}, {.next = "middle"}};
	scratch_segment(&seg, 0, 6, 1024);
	start(&last, server);
	start(&middle, server);
	while (!atomic_load(&last.ready) || !atomic_load(&middle.ready))
		usleep(100);
	for (unsigned i = 0; i < 2; i++)
		start(&clients[i], client);
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_join(clients[i].thread, NULL), 0);
	atomic_store(&middle.stop, true);
	atomic_store(&last.stop, true);
	ck_assert_int_eq(pthread_join(middle.thread, NULL), 0);
	ck_assert_int_eq(pthread_join(last.thread, NULL), 0);
	ck_assert_uint_eq(middle.done, 2 * REQUESTS);
	ck_assert_uint_eq(last.done, 2 * REQUESTS);
	struct xseg_usage usage;
	xseg_segment_usage(&seg, &usage);
	ck_assert_uint_eq(usage.requests_by_state[XSEG_REQUEST_FREE], usage.requests);
	ck_assert_uint_eq(usage.pages_free, usage.pages);
	scratch_segment_end(&seg);
}

/* --- pool: lanes give pages to one another -------------------------------------- */

struct trader {
	pthread_t thread;
	uint16_t lane;
};

static void *trade(void *arg)
{
	struct trader *t = arg;
	struct xseg_magazine mag;
	struct xseg_extent e[64];
	uint32_t n;
	uint64_t random = t->lane + 1u;
	xseg_magazine_init(&mag, &seg, t->lane, 1);
	for (unsigned i = 0; i < 3000; i++) {
		uint32_t count = 1 + (uint32_t)(random_next(&random) % 40);
		if (xseg_page_alloc(&mag, count, e, 64, &n) != 0)
			continue;
		for (uint32_t k = 0; k < n; k++)
			memset(xseg_page_address(&seg, e[k].page), (int)t->lane, 64);
		for (uint32_t k = 0; k < n; k++)
			must(xseg_page_address(&seg, e[k].page)[5] == (uint8_t)t->lane);
		xseg_page_free(&mag, e, n);
	}
	xseg_magazine_fini(&mag);
	return NULL;
}

UNIT(test_pool)
{
	struct trader t[3];
	scratch_segment(&seg, XSEG_SIZE_MIN, 4, 64);
	for (uint16_t i = 0; i < 3; i++) {
		t[i].lane = i;
		ck_assert_int_eq(pthread_create(&t[i].thread, NULL, trade, &t[i]), 0);
	}
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_join(t[i].thread, NULL), 0);
	ck_assert_uint_eq(xseg_page_free_count(&seg), seg.page_count);
	scratch_segment_end(&seg);
}

/* Pins from two threads while the holder retires: the last one frees, whoever that is. */
struct reader {
	pthread_t thread;
	uint32_t page;
	uint16_t lane;
};

static void *unpin_all(void *arg)
{
	struct reader *r = arg;
	struct xseg_magazine mag;
	xseg_magazine_init(&mag, &seg, r->lane, 1);
	for (unsigned i = 0; i < 500; i++) {
		must(xseg_page_address(&seg, r->page)[0] == 0x5a);
		xseg_page_unpin(&mag, r->page);
	}
	xseg_magazine_fini(&mag);
	return NULL;
}

UNIT(test_pins)
{
	scratch_segment(&seg, XSEG_SIZE_MIN, 4, 64);
	struct xseg_magazine mag;
	xseg_magazine_init(&mag, &seg, 0, 1);
	for (unsigned round = 0; round < 30; round++) {
		struct xseg_extent e;
		uint32_t n;
		ck_assert_int_eq(xseg_page_alloc(&mag, 1, &e, 1, &n), 0);
		xseg_page_address(&seg, e.page)[0] = 0x5a;
		xseg_page_store(&mag, e.page);
		for (unsigned i = 0; i < 1000; i++)
			xseg_page_pin(&seg, e.page);
		struct reader r[2] = {{.page = e.page, .lane = 1}, {.page = e.page, .lane = 2}};
		for (unsigned i = 0; i < 2; i++)
			ck_assert_int_eq(pthread_create(&r[i].thread, NULL, unpin_all, &r[i]), 0);
		xseg_page_retire(&mag, e.page);
		for (unsigned i = 0; i < 2; i++)
			ck_assert_int_eq(pthread_join(r[i].thread, NULL), 0);
		/* free again, in whose magazine or in the pool; this write is after all reads */
		ck_assert_uint_ne(xseg_page_state(atomic_load(&seg.descriptors[e.page].word)),
			XSEG_PAGE_RETIRED);
	}
	xseg_magazine_fini(&mag);
	ck_assert_uint_eq(xseg_page_free_count(&seg), seg.page_count);
	scratch_segment_end(&seg);
}

/* --- stats: one writes, another reads -------------------------------------------- */

static void *count_up(void *arg)
{
	for (unsigned i = 0; i < 50000; i++) {
		xseg_count(arg, 0, 1);
		xseg_record(arg, 0, i);
	}
	return NULL;
}

UNIT(test_stats)
{
	static const struct xseg_counter counters[] = {{"a", "", "a"}};
	static const char *const histograms[] = {"h"};
	struct xseg_stats_block *block;
	uint32_t peer;
	uint16_t epoch;
	pthread_t thread;
	scratch_segment(&seg, 0, 2, 64);
	ck_assert_int_eq(xseg_peer_join(&seg, "p", "role", 1, &peer, &epoch), 0);
	ck_assert_int_eq(
		xseg_stats_open(&seg, peer, epoch, 0, counters, 1, histograms, 1, &block), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, count_up, block), 0);
	for (uint64_t last = 0, now; last < 50000; last = now) {
		now = atomic_load_explicit(&block->counters[0], memory_order_relaxed);
		ck_assert_uint_ge(now, last);
	}
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	scratch_segment_end(&seg);
}
