/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Volumes whose composer is gone: given back after a lease's time, but never while one that lives
 * holds them, or has not been heard.
 */
#include <errno.h>
#include <string.h>
#include <xseg/port.h>
#include <xseg/registry.h>

#include "tests/unit/mapper_rig.h"

static struct mrig m;
#define MIB (1u << 20)
#define LEASE ",lease=1s"
#define WAITS 60000u /* ms */

#define UNTIL(cond) \
	do { \
		for (unsigned until_i = 0; until_i < WAITS && !(cond); until_i++) \
			usleep(1000); \
		ck_assert(cond); \
	} while (0)

static uint64_t make(const char *name)
{
	uint64_t id = 0;
	ck_assert_int_eq(mrig_create(&m, name, 10 * MIB, &id), 0);
	return id;
}

static struct map_head_info acquire(struct client *client, uint64_t id)
{
	struct map_head_info head = {0};
	ck_assert_int_eq(mrig_ask_at(client, &m, MAP_ACQUIRE, id, 0, NULL, 0), 0);
	memcpy(&head, m.out, sizeof(head));
	return head;
}

static int holds(const uint64_t *ids, unsigned count)
{
	return mrig_control(&m, MAP_LEASES, 0, count, ids, count * (uint32_t)sizeof(*ids));
}

/* So many renewals from now on: more than a lease's time. */
static void renewals(unsigned count)
{
	uint64_t before = mrig_counter(&m, MAPPER_RENEWALS);
	UNTIL(mrig_counter(&m, MAPPER_RENEWALS) >= before + count);
}

UNIT(what_the_dead_had_is_given_back)
{
	struct client other;
	struct map_home home;
	mrig_begin(&m, 1, LEASE);
	uint64_t a = make("a"), b = make("b");
	mrig_client(&m, &other);
	struct map_head_info head = acquire(&other, a);
	acquire(&m.rig.client, b);
	renewals(9);
	ck_assert_uint_ne(mrig_home(a).owner, 0); /* both live */
	client_close(&other);
	UNTIL(mrig_home(a).owner == 0);
	UNTIL(mrig_counter(&m, MAPPER_LEFT) == 1);
	renewals(4);
	ck_assert_uint_ne(mrig_home(b).owner, 0);
	ck_assert_int_eq(mrig_other_acquire(b, false, &home), -EBUSY);
	/* nobody else had it: what is still to be told of it can be */
	ck_assert_int_eq(mrig_publish(&m, a, 3, head.epoch), 0);
	ck_assert_uint_ne(mrig_home(a).owner, 0);
	ck_assert_uint_eq(mrig_home(a).line, head.line);
	ck_assert_uint_eq(mrig_counter(&m, MAPPER_LEFT), 1);
	mrig_end(&m);
}

UNIT(what_another_had_since_is_not_told)
{
	struct client other;
	struct map_home home;
	mrig_begin(&m, 1, LEASE);
	uint64_t a = make("a");
	mrig_client(&m, &other);
	struct map_head_info head = acquire(&other, a);
	client_close(&other);
	UNTIL(mrig_home(a).owner == 0);
	ck_assert_int_eq(mrig_other_acquire(a, false, &home), 0);
	ck_assert_int_eq(mrig_publish(&m, a, 3, head.epoch), -ESTALE);
	struct map_store *store = &mrig_lock()->store;
	ck_assert_int_eq(map_home_release(store, a, home.owner, home.term), 0);
	mrig_unlock();
	ck_assert_int_eq(mrig_publish(&m, a, 3, head.epoch), -ESTALE);
	ck_assert_uint_eq(mrig_home(a).owner, 0);
	mrig_end(&m);
}

/* A mapper that was started anew does not know who had them: whoever says it, holds them. */
UNIT(a_successor_is_told)
{
	mrig_begin(&m, 2, LEASE);
	uint64_t a = make("a"), b = make("b"), c = make("c");
	acquire(&m.rig.client, a);
	acquire(&m.rig.client, b);
	mrig_again(&m, LEASE);
	const uint64_t ids[] = {b, c, 4711};
	ck_assert_int_eq(holds(ids, 3), 0); /* perhaps before it has looked through the records */
	ck_assert_uint_gt(m.value, 0);
	ck_assert_uint_le(m.value, 1000000000u);
	while (mrig_home(a).owner != 0) {
		ck_assert_int_eq(holds(ids, 3), 0);
		usleep(20000);
	}
	ck_assert_uint_ne(mrig_home(b).owner, 0);
	renewals(4);
	ck_assert_uint_ne(mrig_home(b).owner, 0);
	ck_assert_int_eq(holds(ids, 0), 0);
	ck_assert_int_eq(mrig_control(&m, MAP_LEASES, 0, 1u << 30, ids, sizeof(ids)), -EINVAL);
	mrig_end(&m);
}

/* A composer that lives, and has not been heard since: it may be the one that has it. */
UNIT(a_silent_composer_is_waited_for)
{
	struct client other;
	uint32_t peer, port, edge;
	uint16_t epoch;
	mrig_begin(&m, 1, LEASE);
	struct xseg *seg = &m.rig.seg;
	uint64_t a = make("a"), b = make("b");
	uint64_t lanes = 1ull << m.rig.client.lane->index;
	ck_assert_int_eq(xseg_peer_join(seg, "vol9", "volume", lanes, &peer, &epoch), 0);
	ck_assert_int_eq(xseg_edge_reserve(seg, "vol9:map", &edge), 0);
	ck_assert_int_eq(xseg_port_find(seg, "map", &port), 0);
	xseg_edge_set(seg, edge, port);
	mrig_client(&m, &other);
	acquire(&other, a);
	acquire(&m.rig.client, b);
	client_close(&other);
	renewals(18); /* of two volumes: three times a lease */
	ck_assert_uint_ne(mrig_home(a).owner, 0);
	ck_assert_int_eq(holds(&b, 1), 0);
	UNTIL(mrig_home(a).owner == 0);
	ck_assert_uint_ne(mrig_home(b).owner, 0);
	xseg_peer_leave(seg, peer);
	mrig_end(&m);
}
