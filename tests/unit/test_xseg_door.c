/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The door: whatever lies in the segment, a lane that looks at it refuses or ignores it and
 * goes on. Somebody scribbles over rings, requests, ports and words between two honest lanes.
 */
#include <errno.h>
#include <string.h>
#include <xseg/lane.h>

#include "tests/lib/unit.h"

static struct xseg seg;
static struct xseg_lane *client, *server;
static uint32_t port;
static uint64_t seed;

static uint64_t wild(void)
{
	static const uint64_t favourites[] = {0, 1, ~0ull, 1ull << 63, 0xffffffff, 0x7fffffff,
		0x80000000, XSEG_NONE, XSEG_RING_SLOTS, XSEG_LANES_MAX, XSEG_FRAMES, XSEG_EXTENTS};
	uint64_t r = random_next(&seed);
	if (r % 3 == 0)
		return favourites[(r >> 8) % countof(favourites)];
	return random_next(&seed) >> (r % 64);
}

static void setup(uint64_t seed_value)
{
	uint32_t peer;
	uint16_t epoch;
	seed = seed_value;
	scratch_segment(&seg, 0, 4, 256);
	ck_assert_int_eq(xseg_lane_join(&seg, false, &client), 0);
	ck_assert_int_eq(xseg_lane_join(&seg, false, &server), 0);
	uint8_t lane = (uint8_t)server->index;
	ck_assert_int_eq(xseg_peer_join(&seg, "server", "test", 2, &peer, &epoch), 0);
	ck_assert_int_eq(xseg_port_bind(&seg, "server", peer, epoch, &lane, 1, &port), 0);
}

static void teardown(void) { scratch_segment_end(&seg); }

static struct xseg_ring *ring(uint32_t from, uint32_t to)
{
	return &seg.rings[(uint64_t)to * seg.lane_count + from];
}

/* Everything a lane does with a hint; how many were honest. */
static unsigned handle_all(struct xseg_lane *lane, unsigned rounds)
{
	struct xseg_hint_message m[16];
	unsigned honest = 0, frame;
	for (unsigned r = 0; r < rounds; r++) {
		uint32_t n = xseg_poll(lane, m, 16);
		ck_assert_uint_le(n, 16);
		for (uint32_t i = 0; i < n; i++) {
			if (xseg_accept(lane, m[i].request, &frame) == 0) {
				ck_assert_uint_lt(m[i].request, seg.request_count);
				ck_assert_uint_lt(frame, XSEG_FRAMES);
				honest++;
				xseg_respond(lane, m[i].request);
			} else if (xseg_receive(lane, m[i].request) == 0) {
				ck_assert_uint_lt(m[i].request, seg.request_count);
				honest++;
				xseg_put(lane, m[i].request);
			}
		}
		xseg_turn_end(lane);
		xseg_pending(lane);
	}
	return honest;
}

/* An honest request goes through, whatever happened before. */
static void still_works(void)
{
	uint32_t slot;
	ck_assert_int_eq(xseg_get(client, &slot), 0);
	xseg_at(client, slot)->frame[0] =
		(struct xseg_frame){.op = XSEG_OP_READ, .lane = XSEG_LANE_ANY};
	ck_assert_int_eq(xseg_submit(client, slot, port), 0);
	xseg_turn_end(client);
	ck_assert_uint_eq(handle_all(server, 40), 1);
	ck_assert_uint_eq(handle_all(client, 40), 1);
}

UNIT(test_wild_requests_in_ring)
{
	setup(1);
	still_works();
	struct xseg_ring_tx tx;
	xseg_ring_tx_attach(&tx, ring(client->index, server->index));
	for (unsigned i = 0; i < 20000; i++) {
		xseg_ring_put(&tx, (uint32_t)wild(), (uint32_t)wild());
		if (i % 50 == 0)
			ck_assert_uint_eq(handle_all(server, 10), 0);
	}
	ck_assert_uint_eq(handle_all(server, 40), 0);
	client->tx[server->index] = tx; /* the scribbler used up positions of the honest one */
	still_works();
	teardown();
}

UNIT(test_wild_rings)
{
	setup(2);
	still_works();
	for (unsigned i = 0; i < 2000; i++) {
		struct xseg_ring *r = ring((uint32_t)wild() % 4, (uint32_t)wild() % 4);
		struct xseg_slot *slot = &r->slots[wild() % XSEG_RING_SLOTS];
		atomic_store(&slot->sequence, wild());
		slot->request = (uint32_t)wild();
		slot->kind = (uint32_t)wild();
		if (i % 3 == 0)
			atomic_store(&r->head, wild());
		if (i % 5 == 0)
			atomic_store(&seg.lanes[wild() % 4].producers, wild());
		handle_all(server, 3);
		handle_all(client, 3);
		xseg_wait(server, 1);
	}
	teardown();
}

/* All states, owners, frames, generations there can be, before accept and receive. */
UNIT(test_wild_words)
{
	setup(3);
	unsigned frame;
	for (unsigned i = 0; i < 200000; i++) {
		uint32_t slot = (uint32_t)(wild() % seg.request_count);
		uint64_t word =
			i % 2 ? wild()
			      : xseg_word((unsigned)wild() % 16, (unsigned)wild() % 16,
					(uint16_t)wild(), (uint16_t)wild(), (uint32_t)wild());
		atomic_store(&seg.requests[slot].word, word);
		seg.requests[slot].frame[wild() % XSEG_FRAMES].lane = (uint8_t)wild();
		seg.requests[slot].client = (uint16_t)wild();
		if (xseg_accept(server, slot, &frame) == 0) {
			ck_assert_uint_eq(xseg_word_state(word), XSEG_REQUEST_SUBMITTED);
			ck_assert_uint_eq(xseg_word_owner(word), port);
			xseg_respond(server, slot); /* to a client that may not exist */
		}
		if (xseg_receive(client, slot) == 0)
			ck_assert_uint_eq(xseg_word_state(atomic_load(&seg.requests[slot].word)),
				XSEG_REQUEST_OWNED);
	}
	xseg_rehint_port(server, port);
	xseg_request_rehint(&seg);
	struct xseg_usage usage;
	xseg_segment_usage(&seg, &usage);
	teardown();
}

/* A server scribbles over the answer: the client frees nothing that lies outside. */
UNIT(test_wild_extents)
{
	setup(4);
	for (unsigned i = 0; i < 20000; i++) {
		uint32_t slot;
		ck_assert_int_eq(xseg_get(client, &slot), 0);
		struct xseg_request *r = xseg_at(client, slot);
		r->extent_count = (uint16_t)(wild() % 40);
		r->answer_count = (uint16_t)(wild() % 40);
		r->flags = (uint16_t)wild();
		for (unsigned k = 0; k < XSEG_EXTENTS; k++) {
			/* outside the segment, at least by one page */
			r->extents[k].page = seg.page_count + (uint32_t)(wild() % (1u << 30));
			r->extents[k].count = (uint32_t)wild();
			r->answer[k].page = seg.page_count + (uint32_t)(wild() % (1u << 30));
			r->answer[k].count = (uint32_t)wild();
		}
		r->list[0] = i % 2 ? XSEG_NONE : seg.page_count + (uint32_t)(wild() % (1u << 30));
		r->list[1] = XSEG_NONE;
		xseg_put(client, slot);
	}
	struct xseg_usage usage;
	xseg_segment_usage(&seg, &usage);
	ck_assert_uint_eq(usage.pages_free, usage.pages);
	teardown();
}

static uint8_t mix(uint8_t old)
{
	return random_next(&seed) % 4 ? old : (uint8_t)random_next(&seed);
}

static void scribble(void *at, size_t size)
{
	uint8_t *bytes = at;
	for (size_t i = 0; i < size; i++)
		bytes[i] = mix(bytes[i]);
}

/* Ports, edges, lanes, peers, stats: looked up and used after a scribbler has been there. */
UNIT(test_wild_tables)
{
	setup(5);
	for (unsigned i = 0; i < 300; i++) {
		scribble(seg.ports, XSEG_PORTS_MAX * sizeof(*seg.ports));
		scribble(seg.edges, XSEG_EDGES_MAX * sizeof(*seg.edges));
		struct xseg_frame f = {
			.op = XSEG_OP_READ, .lane = (uint8_t)wild(), .offset = wild()};
		uint32_t found;
		xseg_port_find(&seg, "server", &found);
		xseg_edge_find(&seg, "server:x", &found);
		for (uint32_t p = 0; p < XSEG_PORTS_MAX; p++) {
			uint32_t lane = xseg_port_lane(&seg, p, &f);
			ck_assert(lane == XSEG_NONE || lane < seg.lane_count);
		}
		for (uint32_t e = 0; e < XSEG_EDGES_MAX; e++) {
			uint32_t p = xseg_edge_port(&seg, e);
			ck_assert(p == XSEG_NONE || p < XSEG_PORTS_MAX);
		}
		uint32_t slot;
		if (xseg_get(client, &slot) == 0)
			xseg_submit(client, slot, (uint32_t)(wild() % XSEG_PORTS_MAX));
		handle_all(server, 4);
		handle_all(client, 4);
	}
	teardown();
}

/* Bells of any kind and state: ringing them does no harm. */
UNIT(test_wild_bells)
{
	setup(6);
	struct xseg_ringer ringer;
	xseg_ringer_init(&ringer, &seg);
	for (unsigned i = 0; i < 3000; i++) {
		uint32_t lane = (uint32_t)(wild() % 4);
		seg.lanes[lane].bell.kind = (uint32_t)wild();
		atomic_store(&seg.lanes[lane].bell.asleep, (uint32_t)wild());
		xseg_bell_ring(&ringer, lane);
	}
	xseg_ringer_fini(&ringer);
	teardown();
}
