/* SPDX-License-Identifier: Apache-2.0 */
/* Ports outlive their peers; edges are switched by one word. */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <xseg/port.h>
#include <xseg/registry.h>

#include "tests/lib/unit.h"

static struct xseg seg;

static void setup(void) { scratch_segment(&seg, 0, 4, 64); }

static void peer_of(const char *name, uint32_t *peer, uint16_t *epoch)
{
	ck_assert_int_eq(xseg_peer_join(&seg, name, "test", 1, peer, epoch), 0);
}

UNIT(test_bind_find)
{
	setup();
	uint32_t peer, port, found;
	uint16_t epoch;
	const uint8_t lanes[] = {2, 3};
	ck_assert_int_eq(xseg_port_find(&seg, "cache0", &found), -ENOENT);
	peer_of("cache0", &peer, &epoch);
	ck_assert_int_eq(xseg_port_bind(&seg, "cache0", peer, epoch, lanes, 2, &port), 0);
	ck_assert_int_eq(xseg_port_find(&seg, "cache0", &found), 0);
	ck_assert_uint_eq(found, port);
	struct xseg_frame frame = {.lane = 0};
	ck_assert_uint_eq(xseg_port_lane(&seg, port, &frame), 2);
	frame.lane = 1;
	ck_assert_uint_eq(xseg_port_lane(&seg, port, &frame), 3);
	/* bound to the living: not again */
	ck_assert(xseg_port_served(&seg, port));
	ck_assert_int_eq(xseg_port_bind(&seg, "cache0", peer, epoch, lanes, 1, &found), -EEXIST);
	xseg_port_unbind(&seg, port);
	ck_assert(!xseg_port_served(&seg, port));
	ck_assert(!xseg_port_served(&seg, XSEG_NONE));
	ck_assert_uint_eq(xseg_port_lane(&seg, port, &frame), XSEG_NONE);
	ck_assert_int_eq(xseg_port_find(&seg, "cache0", &found), 0);
	/* the same record again */
	ck_assert_int_eq(xseg_port_bind(&seg, "cache0", peer, epoch, lanes, 1, &found), 0);
	ck_assert_uint_eq(found, port);
	xseg_port_unbind(&seg, port);
	xseg_peer_leave(&seg, peer);
	scratch_segment_end(&seg);
}

static int bind_and_die(void *context)
{
	uint32_t peer, *port = context;
	uint16_t epoch;
	const uint8_t lane = 0;
	child_check(xseg_peer_join(&seg, "gone", "test", 1, &peer, &epoch) == 0);
	child_check(xseg_port_bind(&seg, "gone", peer, epoch, &lane, 1, port) == 0);
	return 0; /* without leaving */
}

UNIT(test_successor)
{
	setup();
	uint32_t port, mine, peer;
	uint16_t epoch;
	const uint8_t lane = 1;
	ck_assert_int_eq(child_end(child_start(bind_and_die, &port)), 0);
	ck_assert_int_eq(xseg_port_find(&seg, "gone", &port), 0);
	peer_of("gone", &peer, &epoch);
	ck_assert_int_eq(xseg_port_bind(&seg, "gone", peer, epoch, &lane, 1, &mine), 0);
	ck_assert_uint_eq(mine, port);
	struct xseg_frame frame = {.lane = 0};
	ck_assert_uint_eq(xseg_port_lane(&seg, port, &frame), 1);
	scratch_segment_end(&seg);
}

UNIT(test_bad_names)
{
	setup();
	uint32_t port;
	static const char *const bad[] = {
		"", "a b", "-a", ".a", "a/b", "a:b", "a12345678901234567890123456789012"};
	for (unsigned i = 0; i < countof(bad); i++)
		ck_assert_int_eq(xseg_port_reserve(&seg, bad[i], &port), -EINVAL);
	static const char *const bad_edges[] = {"", "a", ":", "a:", ":b", "a:b:c", "a b:c", "-a:b"};
	for (unsigned i = 0; i < countof(bad_edges); i++)
		ck_assert_msg(xseg_edge_reserve(&seg, bad_edges[i], &port) == -EINVAL, "'%s'",
			bad_edges[i]);
	const uint8_t lanes[XSEG_PORT_LANES_MAX + 1] = {0};
	ck_assert_int_eq(xseg_port_bind(&seg, "x", 0, 1, lanes, 0, &port), -EINVAL);
	ck_assert_int_eq(
		xseg_port_bind(&seg, "x", 0, 1, lanes, XSEG_PORT_LANES_MAX + 1, &port), -EINVAL);
	scratch_segment_end(&seg);
}

UNIT(test_table_full)
{
	setup();
	uint32_t port;
	char name[NAME_LENGTH_MAX + 1];
	for (unsigned i = 0; i < XSEG_PORTS_MAX; i++) {
		snprintf(name, sizeof(name), "p%u", i);
		ck_assert_int_eq(xseg_port_reserve(&seg, name, &port), 0);
	}
	ck_assert_int_eq(xseg_port_reserve(&seg, "one-more", &port), -ENOSPC);
	ck_assert_int_eq(xseg_port_reserve(&seg, "p5", &port), 0);
	for (unsigned i = 0; i < XSEG_EDGES_MAX; i++) {
		snprintf(name, sizeof(name), "p%u:store", i);
		ck_assert_int_eq(xseg_edge_reserve(&seg, name, &port), 0);
	}
	ck_assert_int_eq(xseg_edge_reserve(&seg, "x:store", &port), -ENOSPC);
	ck_assert_int_eq(xseg_edge_reserve(&seg, "p7:store", &port), 0);
	scratch_segment_end(&seg);
}

UNIT(test_edges)
{
	setup();
	uint32_t edge, again, a, b;
	char longest[XSEG_EDGE_NAME_MAX];
	ck_assert_int_eq(xseg_edge_find(&seg, "vol0:store", &edge), -ENOENT);
	ck_assert_int_eq(xseg_edge_reserve(&seg, "vol0:store", &edge), 0);
	ck_assert_uint_eq(xseg_edge_port(&seg, edge), XSEG_NONE);
	ck_assert_int_eq(xseg_edge_reserve(&seg, "vol0:store", &again), 0);
	ck_assert_uint_eq(edge, again);
	ck_assert_int_eq(xseg_port_reserve(&seg, "mem0", &a), 0);
	ck_assert_int_eq(xseg_port_reserve(&seg, "mem1", &b), 0);
	uint64_t word = atomic_load(&seg.edges[edge].word);
	for (unsigned i = 0; i < 100; i++) {
		xseg_edge_set(&seg, edge, i % 2 ? a : b);
		ck_assert_uint_eq(xseg_edge_port(&seg, edge), i % 2 ? a : b);
		ck_assert_uint_ne(atomic_load(&seg.edges[edge].word), word);
		word = atomic_load(&seg.edges[edge].word);
	}
	xseg_edge_set(&seg, edge, XSEG_NONE);
	ck_assert_uint_eq(xseg_edge_port(&seg, edge), XSEG_NONE);
	/* a wild word leads nowhere, not out of the table */
	atomic_store(&seg.edges[edge].word, ~0ull >> 1);
	ck_assert_uint_eq(xseg_edge_port(&seg, edge), XSEG_NONE);
	atomic_store(&seg.edges[edge].word, (uint64_t)XSEG_PORTS_MAX << 32);
	ck_assert_uint_eq(xseg_edge_port(&seg, edge), XSEG_NONE);
	/* the longest names there are fit, without running into one another */
	memset(longest, 'a', sizeof(longest));
	longest[NAME_LENGTH_MAX] = ':';
	longest[2 * NAME_LENGTH_MAX + 1] = 0;
	ck_assert_int_eq(xseg_edge_reserve(&seg, longest, &edge), 0);
	ck_assert_int_eq(xseg_edge_find(&seg, longest, &again), 0);
	ck_assert_uint_eq(edge, again);
	longest[2 * NAME_LENGTH_MAX] = 'b';
	ck_assert_int_eq(xseg_edge_find(&seg, longest, &again), -ENOENT);
	scratch_segment_end(&seg);
}

/* An object always goes to the same lane; many objects go to all of them. */
UNIT(test_steering)
{
	setup();
	uint32_t peer, port, count[4] = {0};
	uint16_t epoch;
	const uint8_t lanes[] = {0, 1, 2, 3};
	peer_of("steer", &peer, &epoch);
	ck_assert_int_eq(xseg_port_bind(&seg, "steer", peer, epoch, lanes, 4, &port), 0);
	for (uint32_t object = 0; object < 4000; object++) {
		struct xseg_frame f = {.op = XSEG_OP_READ,
			.lane = XSEG_LANE_ANY,
			.key = {.volume = 1 + object / 1000, .object = object % 1000}};
		uint32_t lane = xseg_port_lane(&seg, port, &f);
		ck_assert_uint_lt(lane, 4);
		count[lane]++;
		for (f.offset = 0; f.offset < XSEG_OBJECT_MAX; f.offset += XSEG_OBJECT_MAX / 8)
			for (f.op = XSEG_OP_READ; f.op <= XSEG_OP_DISCARD; f.op++)
				ck_assert_uint_eq(xseg_port_lane(&seg, port, &f), lane);
	}
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_gt(count[i], 500);
	scratch_segment_end(&seg);
}

/* Wild records: lanes beyond the segment, more lanes than fit. */
UNIT(test_wild_port)
{
	setup();
	uint32_t peer, port;
	uint16_t epoch;
	const uint8_t lanes[] = {0, 1};
	peer_of("wild", &peer, &epoch);
	ck_assert_int_eq(xseg_port_bind(&seg, "wild", peer, epoch, lanes, 2, &port), 0);
	struct xseg_frame f = {.op = XSEG_OP_READ, .lane = XSEG_LANE_ANY};
	uint64_t seed = 3;
	for (unsigned i = 0; i < 10000; i++) {
		uint64_t r = random_next(&seed);
		seg.ports[port].lane_count = i % 3 ? (uint32_t)(r % 20) : (uint32_t)(r >> (r % 64));
		for (unsigned k = 0; k < XSEG_PORT_LANES_MAX; k++)
			seg.ports[port].lane[k] = (uint8_t)random_next(&seed);
		f.lane = (uint8_t)random_next(&seed);
		f.key.volume = random_next(&seed);
		f.offset = random_next(&seed);
		uint32_t lane = xseg_port_lane(&seg, port, &f);
		ck_assert(lane < seg.lane_count || lane == XSEG_NONE);
	}
	memset(seg.ports[port].name, 'x', sizeof(seg.ports[port].name)); /* no end */
	ck_assert_int_eq(xseg_port_find(&seg, "wild", &port), -ENOENT);
	scratch_segment_end(&seg);
}
#define RACERS 3u
#define RACE_NAMES 40u

/* In a page of the segment: where each racer found each name. */
struct race {
	_Atomic uint32_t arrived[RACE_NAMES];
	uint32_t port[RACERS][RACE_NAMES], edge[RACERS][RACE_NAMES];
};

static struct race *race(void) { return (void *)xseg_page_address(&seg, seg.page_count - 1); }

static int reserve_many(void *arg)
{
	uint32_t racer = *(uint32_t *)arg;
	struct race *r = race();
	char name[NAME_LENGTH_MAX + 1], edge_name[XSEG_EDGE_NAME_MAX];
	for (unsigned i = 0; i < RACE_NAMES; i++) {
		snprintf(name, sizeof(name), "race%u", i);
		snprintf(edge_name, sizeof(edge_name), "race%u:down", i);
		atomic_fetch_add(&r->arrived[i], 1);
		while (atomic_load(&r->arrived[i]) < RACERS)
			sched_yield();
		child_check(xseg_port_reserve(&seg, name, &r->port[racer][i]) == 0);
		child_check(xseg_edge_reserve(&seg, edge_name, &r->edge[racer][i]) == 0);
	}
	return 0;
}

/* Several processes make the same names at once: all get the same record, and there is one. */
UNIT(test_race)
{
	for (unsigned round = 0; round < 20; round++) {
		setup();
		memset(race(), 0, sizeof(struct race));
		pid_t child[RACERS];
		for (uint32_t i = 0; i < RACERS; i++)
			child[i] = child_start(reserve_many, &i);
		for (unsigned i = 0; i < RACERS; i++)
			ck_assert_int_eq(child_end(child[i]), 0);
		unsigned ports = 0, edges = 0;
		for (unsigned i = 0; i < XSEG_PORTS_MAX; i++)
			ports += atomic_load(&seg.ports[i].word) != 0;
		for (unsigned i = 0; i < XSEG_EDGES_MAX; i++)
			edges += atomic_load(&seg.edges[i].life) != XSEG_LIFE_FREE;
		ck_assert_uint_eq(ports, RACE_NAMES);
		ck_assert_uint_eq(edges, RACE_NAMES);
		for (unsigned i = 0; i < RACE_NAMES; i++)
			for (unsigned k = 1; k < RACERS; k++) {
				ck_assert_uint_eq(race()->port[k][i], race()->port[0][i]);
				ck_assert_uint_eq(race()->edge[k][i], race()->edge[0][i]);
			}
		scratch_segment_end(&seg);
	}
}

/* Killed while it wrote a name: the record is used again, and nobody waits for the dead. */
static int die_naming(void *arg)
{
	(void)arg;
	atomic_store(&seg.ports[0].word, xseg_life_word(XSEG_LIFE_JOINING, 0, (uint32_t)getpid()));
	atomic_store(&seg.edges[0].life, XSEG_LIFE_JOINING | (uint32_t)getpid() << 8);
	return 0;
}

UNIT(test_killed_naming)
{
	setup();
	uint32_t port, edge;
	ck_assert_int_eq(child_end(child_start(die_naming, NULL)), 0);
	ck_assert_int_eq(xseg_port_find(&seg, "x", &port), -ENOENT);
	ck_assert_int_eq(xseg_port_reserve(&seg, "x", &port), 0);
	ck_assert_uint_eq(port, 0);
	ck_assert_int_eq(xseg_edge_reserve(&seg, "x:y", &edge), 0);
	ck_assert_uint_eq(edge, 0);
	scratch_segment_end(&seg);
}
