/* SPDX-License-Identifier: Apache-2.0 */
/* The five verbs: on one lane, between lanes, between processes, and when things go wrong. */
#include <errno.h>
#include <string.h>
#include <sys/select.h>

#include "tests/lib/lane_rig.h"
#include "tests/lib/unit.h"

/* Client and server on one lane: the local queue. */
UNIT(test_one_lane)
{
	rig_setup();
	struct xseg_lane *lane = rig_join();
	uint32_t port = rig_serve(lane, "self");
	for (unsigned i = 0; i < 3000; i++) {
		uint32_t slot = rig_get(lane, XSEG_OP_READ, i);
		ck_assert_uint_eq(rig_state_of(slot), XSEG_REQUEST_OWNED);
		ck_assert_int_eq(xseg_submit(lane, slot, port), 0);
		ck_assert_uint_eq(rig_state_of(slot), XSEG_REQUEST_SUBMITTED);
		ck_assert(xseg_pending(lane));
		ck_assert_uint_eq(rig_expect_submit(lane, 0), slot);
		ck_assert_uint_eq(rig_state_of(slot), XSEG_REQUEST_TAKEN);
		rig_answer(lane, slot, -(int)(i % 5), i * 3);
		ck_assert_uint_eq(rig_state_of(slot), XSEG_REQUEST_DONE);
		ck_assert_uint_eq(rig_expect_reply(lane), slot);
		struct xseg_request *r = xseg_at(lane, slot);
		ck_assert_int_eq(r->result, -(int)(i % 5));
		ck_assert_uint_eq(r->value, i * 3);
		ck_assert_uint_eq(r->length, 4096);
		ck_assert_uint_eq(r->cookie, i);
		ck_assert(!xseg_pending(lane));
		xseg_put(lane, slot);
	}
	xseg_lane_leave(lane);
	rig_teardown();
}

/* Two lanes of one process; data travels by page, not by copy. */
UNIT(test_two_lanes)
{
	rig_setup();
	struct xseg_lane *client = rig_join(), *server = rig_join();
	uint32_t port = rig_serve(server, "server");
	for (unsigned i = 0; i < 2000; i++) {
		uint32_t slot = rig_get(client, XSEG_OP_WRITE, i);
		struct xseg_request *r = xseg_at(client, slot);
		ck_assert_int_eq(xseg_attach_pages(client, slot, 0, 4096 * (i % 7 + 1)), 0);
		memset(xseg_page_address(&rig_seg, r->extents[0].page), (int)i, 4096);
		ck_assert_int_eq(xseg_submit(client, slot, port), 0);
		xseg_turn_end(client);
		ck_assert_uint_eq(rig_expect_submit(server, 0), slot);
		ck_assert_uint_eq(r->frame[0].from, client->index);
		ck_assert_uint_eq(r->frame[0].port, port);
		ck_assert_uint_gt(r->frame[0].time_ns, 0);
		uint8_t *data = xseg_page_address(&rig_seg, r->extents[0].page);
		ck_assert_uint_eq(data[4095], i % 256);
		data[0] = (uint8_t)~i;
		rig_answer(server, slot, 0, 0);
		ck_assert_uint_eq(rig_expect_reply(client), slot);
		ck_assert_uint_eq(data[0], (uint8_t)~i);
		xseg_put(client, slot);
	}
	xseg_lane_leave(server);
	xseg_lane_leave(client);
	rig_teardown();
}

struct server {
	const char *name;
	unsigned count;
};

static int server_process(void *arg)
{
	struct server *s = arg;
	struct xseg_lane *lane = rig_join();
	rig_serve(lane, s->name);
	for (unsigned i = 0; i < s->count; i++) {
		struct xseg_hint_message m;
		unsigned frame;
		child_check(rig_next_hint(lane, &m));
		child_check(m.kind == XSEG_HINT_SUBMIT);
		child_check(xseg_accept(lane, m.request, &frame) == 0);
		struct xseg_request *r = xseg_at(lane, m.request);
		child_check(r->cookie * 4096 == r->frame[frame].offset);
		rig_answer(lane, m.request, 0, r->cookie + 1);
	}
	xseg_lane_leave(lane);
	return 0;
}

/* The server is another process; up to 700 in flight, more than a ring holds. */
UNIT(test_fork)
{
	enum { COUNT = 20000, DEPTH = 700 };
	rig_setup();
	struct xseg_lane *client = rig_join();
	struct server s = {.name = "other", .count = COUNT};
	uint32_t port, sent = 0, done = 0;
	bool seen[COUNT] = {false};
	ck_assert_int_eq(xseg_port_reserve(&rig_seg, s.name, &port), 0);
	pid_t child = child_start(server_process, &s);
	struct xseg_frame any = {.lane = XSEG_LANE_ANY};
	while (xseg_port_lane(&rig_seg, port, &any) == XSEG_NONE)
		usleep(1000);
	while (done < COUNT) {
		while (sent < COUNT && sent - done < DEPTH) {
			uint32_t slot = rig_get(client, XSEG_OP_READ, sent++);
			ck_assert_int_eq(xseg_submit(client, slot, port), 0);
		}
		xseg_turn_end(client);
		uint32_t slot = rig_expect_reply(client);
		struct xseg_request *r = xseg_at(client, slot);
		ck_assert_uint_eq(r->value, r->cookie + 1);
		ck_assert(!seen[r->cookie]);
		seen[r->cookie] = true;
		xseg_put(client, slot);
		done++;
	}
	ck_assert_int_eq(child_end(child), 0);
	xseg_lane_leave(client);
	rig_teardown();
}

/* Forwarded through all hops there are; one more is refused; the answer goes to the first asker. */
UNIT(test_forward)
{
	rig_setup();
	struct xseg_lane *lane[3] = {rig_join(), rig_join(), rig_join()};
	uint32_t port[3] = {
		rig_serve(lane[0], "a"), rig_serve(lane[1], "b"), rig_serve(lane[2], "c")};
	for (unsigned round = 0; round < 200; round++) {
		uint32_t slot = rig_get(lane[0], XSEG_OP_READ, round);
		struct xseg_request *r = xseg_at(lane[0], slot);
		ck_assert_int_eq(xseg_submit(lane[0], slot, port[0]), 0);
		xseg_turn_end(lane[0]);
		for (unsigned hop = 0; hop + 1 < XSEG_FRAMES; hop++) {
			struct xseg_lane *at = lane[hop % 3];
			ck_assert_uint_eq(rig_expect_submit(at, hop), slot);
			struct xseg_frame next = r->frame[hop];
			next.offset = 1000 + hop;
			next.op = (uint8_t)(hop % 2 ? XSEG_OP_READ : XSEG_OP_INFO);
			next.lane = XSEG_LANE_ANY;
			at->now_ns = r->frame[hop].time_ns - 1; /* a turn begun before it came */
			ck_assert_int_eq(xseg_forward(at, slot, port[(hop + 1) % 3], &next), 0);
			xseg_turn_end(at);
		}
		struct xseg_lane *last = lane[(XSEG_FRAMES - 1) % 3];
		ck_assert_uint_eq(rig_expect_submit(last, XSEG_FRAMES - 1), slot);
		struct xseg_frame more = r->frame[XSEG_FRAMES - 1];
		ck_assert_int_eq(xseg_forward(last, slot, port[0], &more), -ELOOP);
		ck_assert_uint_eq(rig_state_of(slot), XSEG_REQUEST_TAKEN);
		/* what the hops before wrote is still there */
		ck_assert_uint_eq(r->frame[0].offset, round * 4096ull);
		for (unsigned hop = 1; hop < XSEG_FRAMES; hop++) {
			ck_assert_uint_eq(r->frame[hop].offset, 999 + hop);
			ck_assert_uint_eq(r->frame[hop].from, lane[(hop - 1) % 3]->index);
			ck_assert_uint_eq(r->frame[hop].port, port[hop % 3]);
			ck_assert_uint_ge(r->frame[hop].time_ns, r->frame[hop - 1].time_ns);
		}
		rig_answer(last, slot, -ELOOP, 0);
		ck_assert_uint_eq(rig_expect_reply(lane[0]), slot);
		ck_assert_int_eq(r->result, -ELOOP);
		xseg_put(lane[0], slot);
	}
	for (unsigned i = 0; i < 3; i++)
		xseg_lane_leave(lane[i]);
	rig_teardown();
}

UNIT(test_no_such_port)
{
	rig_setup();
	struct xseg_lane *lane = rig_join();
	uint32_t port = rig_serve(lane, "self");
	uint32_t slot = rig_get(lane, XSEG_OP_READ, 0);
	ck_assert_int_eq(xseg_submit(lane, slot, XSEG_PORTS_MAX), -ENXIO);
	ck_assert_int_eq(xseg_submit(lane, slot, XSEG_NONE), -ENXIO);
	ck_assert_uint_eq(rig_state_of(slot), XSEG_REQUEST_OWNED);
	ck_assert_int_eq(xseg_submit(lane, slot, port), 0);
	rig_expect_submit(lane, 0);
	struct xseg_frame next = xseg_at(lane, slot)->frame[0];
	ck_assert_int_eq(xseg_forward(lane, slot, XSEG_NONE, &next), -ENXIO);
	ck_assert_uint_eq(rig_state_of(slot), XSEG_REQUEST_TAKEN);
	rig_answer(lane, slot, -ENXIO, 0);
	rig_expect_reply(lane);
	xseg_put(lane, slot);
	xseg_lane_leave(lane);
	rig_teardown();
}

/* Submitted before anybody serves the port: kept, and found by who binds it. */
UNIT(test_rehint_port)
{
	rig_setup();
	struct xseg_lane *client = rig_join(), *server = rig_join();
	uint32_t port, slots[20];
	ck_assert_int_eq(xseg_port_reserve(&rig_seg, "later", &port), 0);
	for (unsigned i = 0; i < 20; i++) {
		slots[i] = rig_get(client, XSEG_OP_READ, i);
		ck_assert_int_eq(xseg_submit(client, slots[i], port), 0);
	}
	xseg_turn_end(client);
	ck_assert_uint_eq(xseg_rehint_port(server, port), 0); /* nobody to hint yet */
	ck_assert_uint_eq(rig_serve(server, "later"), port);
	ck_assert_uint_eq(xseg_rehint_port(server, port), 20);
	ck_assert_uint_eq(xseg_rehint_port(server, port), 20); /* doubled: harmless */
	for (unsigned i = 0; i < 20; i++)
		rig_answer(server, rig_expect_submit(server, 0), 0, 0);
	struct xseg_hint_message m;
	unsigned frame;
	while (xseg_poll(server, &m, 1) == 1)
		ck_assert_int_eq(xseg_accept(server, m.request, &frame), -ESTALE);
	for (unsigned i = 0; i < 20; i++)
		xseg_put(client, rig_expect_reply(client));
	xseg_lane_leave(server);
	xseg_lane_leave(client);
	rig_teardown();
}

/* The client fills more than a ring while nobody looks; nothing is lost, order is kept. */
UNIT(test_overflow)
{
	enum { COUNT = 1000 };
	rig_setup();
	struct xseg_lane *client = rig_join(), *server = rig_join();
	uint32_t port = rig_serve(server, "slow");
	for (unsigned i = 0; i < COUNT; i++)
		ck_assert_int_eq(xseg_submit(client, rig_get(client, XSEG_OP_READ, i), port), 0);
	xseg_turn_end(client);
	struct xseg_hint_message m[64];
	unsigned taken = 0, frame, idle = 0;
	while (taken < COUNT && idle < 1000) {
		uint32_t n = xseg_poll(server, m, 64);
		idle = n ? 0 : idle + 1;
		for (uint32_t i = 0; i < n; i++) {
			ck_assert_int_eq(xseg_accept(server, m[i].request, &frame), 0);
			ck_assert_uint_eq(xseg_at(server, m[i].request)->cookie, taken++);
			xseg_respond(server, m[i].request);
		}
		xseg_turn_end(server);
		if (n == 0) {
			xseg_wait(server, 1); /* tells the room there is */
			xseg_turn_end(client);
		}
	}
	ck_assert_uint_eq(taken, COUNT);
	for (unsigned i = 0, turn = 0; i < COUNT && turn < 1000 * COUNT; turn++) {
		if (xseg_poll(client, m, 1) == 1) {
			ck_assert_int_eq(xseg_receive(client, m[0].request), 0);
			ck_assert_uint_eq(xseg_at(client, m[0].request)->cookie, i++);
			xseg_put(client, m[0].request);
			continue;
		}
		xseg_wait(client, 1);
		xseg_turn_end(server);
	}
	xseg_lane_leave(server);
	xseg_lane_leave(client);
	rig_teardown();
}

/* A server that leaves cleanly with answers that did not fit: its client gets them all. */
static int burst_server(void *arg)
{
	struct xseg_lane *lane = rig_join();
	rig_serve(lane, "burst");
	for (unsigned i = 0; i < *(unsigned *)arg; i++) {
		struct xseg_hint_message m;
		unsigned frame;
		child_check(rig_next_hint(lane, &m));
		child_check(xseg_accept(lane, m.request, &frame) == 0);
		xseg_respond(lane, m.request);
	}
	xseg_lane_leave(lane);
	return 0;
}

UNIT(test_leave_with_overflow)
{
	unsigned count = 600;
	rig_setup();
	struct xseg_lane *client = rig_join();
	uint32_t port;
	ck_assert_int_eq(xseg_port_reserve(&rig_seg, "burst", &port), 0);
	pid_t child = child_start(burst_server, &count);
	struct xseg_frame any = {.lane = XSEG_LANE_ANY};
	while (xseg_port_lane(&rig_seg, port, &any) == XSEG_NONE)
		usleep(1000);
	for (unsigned i = 0; i < count; i++) {
		ck_assert_int_eq(xseg_submit(client, rig_get(client, XSEG_OP_READ, i), port), 0);
		xseg_turn_end(client);
	}
	for (unsigned i = 0; i < 600000 && rig_state_of(0) != XSEG_REQUEST_DONE; i++) {
		xseg_turn_end(client);
		usleep(100);
	}
	for (unsigned i = 0; i < count; i++)
		xseg_put(client, rig_expect_reply(client));
	ck_assert_int_eq(child_end(child), 0);
	xseg_lane_leave(client);
	rig_teardown();
}

/* Hints that are double, late, for somebody else, or for nothing: refused, nothing moves. */
UNIT(test_stale_hints)
{
	rig_setup();
	struct xseg_lane *client = rig_join(), *server = rig_join(), *third = rig_join();
	uint32_t port = rig_serve(server, "server");
	unsigned frame;
	uint32_t slot = rig_get(client, XSEG_OP_READ, 1);
	ck_assert_int_eq(xseg_accept(server, slot, &frame), -ESTALE); /* still OWNED */
	ck_assert_int_eq(xseg_receive(client, slot), -ESTALE);
	ck_assert_int_eq(xseg_submit(client, slot, port), 0);
	xseg_turn_end(client);
	ck_assert_int_eq(xseg_receive(client, slot), -ESTALE);	     /* SUBMITTED */
	ck_assert_int_eq(xseg_accept(third, slot, &frame), -ESTALE); /* not its port */
	ck_assert_uint_eq(rig_expect_submit(server, 0), slot);
	ck_assert_int_eq(xseg_accept(server, slot, &frame), -ESTALE); /* TAKEN already */
	ck_assert_int_eq(xseg_receive(client, slot), -ESTALE);
	rig_answer(server, slot, 0, 0);
	ck_assert_int_eq(xseg_accept(server, slot, &frame), -ESTALE); /* DONE */
	ck_assert_int_eq(xseg_receive(third, slot), -ESTALE);	      /* not its request */
	ck_assert_uint_eq(rig_expect_reply(client), slot);
	ck_assert_int_eq(xseg_receive(client, slot), -ESTALE); /* OWNED again */
	xseg_put(client, slot);
	ck_assert_int_eq(xseg_receive(client, slot), -ESTALE); /* FREE */
	ck_assert_int_eq(xseg_accept(server, slot, &frame), -ESTALE);
	static const uint32_t wild[] = {1024, 1025, 1u << 20, 1u << 31, XSEG_NONE};
	for (unsigned i = 0; i < countof(wild); i++) {
		ck_assert_int_eq(xseg_accept(server, wild[i], &frame), -ESTALE);
		ck_assert_int_eq(xseg_receive(client, wild[i]), -ESTALE);
	}
	xseg_lane_leave(third);
	xseg_lane_leave(server);
	xseg_lane_leave(client);
	rig_teardown();
}

/* An answer for a lane's earlier life is not its successor's. */
UNIT(test_old_epoch)
{
	rig_setup();
	struct xseg_lane *server = rig_join(), *client = rig_join();
	uint32_t port = rig_serve(server, "server");
	uint16_t index = client->index;
	uint32_t slot = rig_get(client, XSEG_OP_READ, 1);
	ck_assert_int_eq(xseg_submit(client, slot, port), 0);
	xseg_turn_end(client);
	xseg_lane_leave(client); /* with a request out: its answer finds nobody */
	client = rig_join();
	ck_assert_uint_eq(client->index, index);
	ck_assert_uint_eq(rig_expect_submit(server, 0), slot);
	rig_answer(server, slot, 0, 0);
	struct xseg_hint_message m;
	while (xseg_poll(client, &m, 1) == 1)
		ck_assert_int_eq(xseg_receive(client, m.request), -ESTALE);
	ck_assert_uint_eq(rig_state_of(slot), XSEG_REQUEST_DONE);
	xseg_lane_leave(client);
	xseg_lane_leave(server);
	scratch_segment_end(&rig_seg); /* the slot is for the reaper, of the next issue */
}

/* The pool runs dry: -EAGAIN, the slot stays as it was, and works once there are pages. */
/* A pool in pieces: more runs than a slot holds go to list pages, and come back. */
/* A donated page is the server's; a borrowed extent is not freed with the borrower. */
/* A read is answered with pinned pages; put drops the pins. */
/* One loud neighbour, be it the lane itself, does not silence the others. */
UNIT(test_fair)
{
	rig_setup();
	struct xseg_lane *server = rig_join(), *client[3] = {rig_join(), rig_join(), rig_join()};
	uint32_t port = rig_serve(server, "fair"), sent[4] = {0}, served[4] = {0};
	struct xseg_hint_message m[32];
	for (unsigned turn = 0; turn < 400; turn++) {
		for (unsigned c = 0; c < 4; c++) {
			struct xseg_lane *from = c < 3 ? client[c] : server;
			for (; sent[c] - served[c] < 100; sent[c]++)
				ck_assert_int_eq(
					xseg_submit(from, rig_get(from, XSEG_OP_READ, c), port), 0);
			xseg_turn_end(from);
		}
		uint32_t n = xseg_poll(server, m, 32);
		for (uint32_t i = 0; i < n; i++) {
			struct xseg_request *r = xseg_at(server, m[i].request);
			unsigned frame;
			if (m[i].kind == XSEG_HINT_REPLY) {
				ck_assert_int_eq(xseg_receive(server, m[i].request), 0);
				xseg_put(server, m[i].request);
				continue;
			}
			served[r->cookie]++;
			ck_assert_int_eq(xseg_accept(server, m[i].request, &frame), 0);
			xseg_respond(server, m[i].request);
		}
		xseg_turn_end(server);
		for (unsigned c = 0; c < 3; c++)
			while (xseg_poll(client[c], m, 1) == 1 &&
				xseg_receive(client[c], m[0].request) == 0)
				xseg_put(client[c], m[0].request);
	}
	for (unsigned c = 0; c < 4; c++)
		ck_assert_msg(served[c] > 400, "client %u got %u of %u %u %u %u", c, served[c],
			served[0], served[1], served[2], served[3]);
	for (unsigned c = 0; c < 3; c++)
		xseg_lane_leave(client[c]);
	xseg_lane_leave(server);
	scratch_segment_end(&rig_seg);
}

/* Waiting: returns at the time limit, and at once when a message comes. */
UNIT(test_wait)
{
	rig_setup();
	struct xseg_lane *lane = rig_join();
	uint64_t start = clock_now_ns();
	xseg_wait(lane, 30000000);
	uint64_t took = clock_now_ns() - start;
	ck_assert_uint_ge(took, 29000000);
	ck_assert_uint_lt(took, 120000000000ull);
	ck_assert_uint_eq(atomic_load(&rig_seg.lanes[lane->index].bell.asleep), 0);
	uint32_t port = rig_serve(lane, "self");
	uint32_t slot = rig_get(lane, XSEG_OP_READ, 0);
	ck_assert_int_eq(xseg_submit(lane, slot, port), 0);
	start = clock_now_ns();
	xseg_wait(lane, 250000000000ull);
	ck_assert_uint_lt(clock_now_ns() - start, 120000000000ull);
	rig_expect_submit(lane, 0);
	rig_answer(lane, slot, 0, 0);
	rig_expect_reply(lane);
	xseg_put(lane, slot);
	xseg_lane_leave(lane);
	rig_teardown();
}

/* One lane with an fd bell arms, sleeps on the fd, and is woken by another process. */
static int fd_client(void *arg)
{
	uint32_t port = *(uint32_t *)arg;
	struct xseg_lane *lane = rig_join();
	for (unsigned i = 0; i < 200; i++) {
		usleep(i % 10 * 100);
		uint32_t slot = rig_get(lane, XSEG_OP_READ, i);
		child_check(xseg_submit(lane, slot, port) == 0);
		xseg_turn_end(lane);
		struct xseg_hint_message m;
		child_check(rig_next_hint(lane, &m));
		child_check(xseg_receive(lane, m.request) == 0);
		xseg_put(lane, m.request);
	}
	xseg_lane_leave(lane);
	return 0;
}

UNIT(test_fd_lane)
{
	rig_setup();
	struct xseg_lane *server;
	ck_assert_int_eq(xseg_lane_join(&rig_seg, true, &server), 0);
	ck_assert_int_ge(server->bell_fd, 0);
	uint32_t port = rig_serve(server, "events");
	pid_t child = child_start(fd_client, &port);
	for (unsigned served = 0; served < 200;) {
		struct xseg_hint_message m;
		unsigned frame;
		while (xseg_poll(server, &m, 1) == 1) {
			ck_assert_int_eq(xseg_accept(server, m.request, &frame), 0);
			rig_answer(server, m.request, 0, 0);
			served++;
		}
		xseg_turn_end(server);
		if (served == 200 || !xseg_arm(server))
			continue;
		fd_set set;
		struct timeval limit = {.tv_sec = 20};
		FD_ZERO(&set);
		FD_SET(server->bell_fd, &set);
		ck_assert_int_eq(select(server->bell_fd + 1, &set, NULL, NULL, &limit), 1);
		xseg_bell_disarm(&rig_seg, server->index);
		xseg_bell_drain_fd(server->bell_fd);
	}
	ck_assert_int_eq(child_end(child), 0);
	xseg_lane_leave(server);
	rig_teardown();
}

/* One process, two mappings: client in one, server in the other. */
UNIT(test_two_addresses)
{
	rig_setup();
	struct xseg second;
	ck_assert_int_eq(xseg_segment_join(rig_seg.name, &second, NULL), 0);
	ck_assert_ptr_ne(second.base, rig_seg.base);
	struct xseg_lane *client = rig_join(), *server;
	ck_assert_int_eq(xseg_lane_join(&second, false, &server), 0);
	uint32_t port = rig_serve(server, "there");
	for (unsigned i = 0; i < 1000; i++) {
		uint32_t slot = rig_get(client, XSEG_OP_WRITE, i);
		ck_assert_int_eq(xseg_attach_pages(client, slot, 0, 2 * XSEG_PAGE), 0);
		uint32_t page = xseg_at(client, slot)->extents[0].page;
		memset(xseg_page_address(&rig_seg, page), (int)i, XSEG_PAGE);
		ck_assert_int_eq(xseg_submit(client, slot, port), 0);
		xseg_turn_end(client);
		ck_assert_uint_eq(rig_expect_submit(server, 0), slot);
		ck_assert_uint_eq(xseg_page_address(&second, page)[100], i % 256);
		rig_answer(server, slot, 0, i);
		ck_assert_uint_eq(rig_expect_reply(client), slot);
		ck_assert_uint_eq(xseg_at(client, slot)->value, i);
		xseg_put(client, slot);
	}
	xseg_lane_leave(server);
	xseg_lane_leave(client);
	xseg_segment_leave(&second);
	rig_teardown();
}

/* The port changes hands all the time, lanes too; nobody looks twice but who binds. */
#define REBINDS 400u

static int restless_server(void *arg)
{
	uint32_t total = *(uint32_t *)arg, served = 0;
	struct xseg_lane *last = NULL;
	for (unsigned life = 0; served < total; life++) {
		struct xseg_lane *lane = rig_join();
		if (last) /* kept until now, so that each life has another lane */
			xseg_lane_leave(last);
		last = lane;
		uint32_t peer, port, until = life < REBINDS ? served + life % 40 : total;
		uint16_t epoch;
		uint8_t index = (uint8_t)lane->index;
		child_check(xseg_peer_join(&rig_seg, "restless", "test", 1, &peer, &epoch) == 0);
		child_check(
			xseg_port_bind(&rig_seg, "restless", peer, epoch, &index, 1, &port) == 0);
		xseg_rehint_port(lane, port);
		while (served < until && served < total) {
			struct xseg_hint_message m;
			unsigned frame;
			child_check(rig_next_hint(lane, &m));
			if (xseg_accept(lane, m.request, &frame) != 0)
				continue;
			rig_answer(lane, m.request, 0, 0);
			served++;
		}
		xseg_port_unbind(&rig_seg, port);
		xseg_peer_leave(&rig_seg, peer);
	}
	xseg_lane_leave(last);
	return 0;
}

UNIT(test_rebind)
{
	uint32_t total = 20000, port, sent = 0, done = 0;
	rig_setup();
	struct xseg_lane *client = rig_join();
	ck_assert_int_eq(xseg_port_reserve(&rig_seg, "restless", &port), 0);
	pid_t child = child_start(restless_server, &total);
	while (done < total) {
		while (sent < total && sent - done < 16)
			ck_assert_int_eq(
				xseg_submit(client, rig_get(client, XSEG_OP_READ, sent++), port),
				0);
		xseg_turn_end(client);
		xseg_put(client, rig_expect_reply(client));
		done++;
	}
	ck_assert_int_eq(child_end(child), 0);
	xseg_lane_leave(client);
	rig_teardown();
}

UNIT(test_lanes_run_out)
{
	rig_setup();
	struct xseg_lane *lane[4], *more;
	for (unsigned i = 0; i < 4; i++)
		lane[i] = rig_join();
	ck_assert_int_eq(xseg_lane_join(&rig_seg, false, &more), -ENOSPC);
	xseg_lane_leave(lane[1]);
	ck_assert_int_eq(xseg_lane_join(&rig_seg, false, &more), 0);
	xseg_lane_leave(more);
	xseg_lane_leave(lane[0]);
	xseg_lane_leave(lane[2]);
	xseg_lane_leave(lane[3]);
	rig_teardown();
}
