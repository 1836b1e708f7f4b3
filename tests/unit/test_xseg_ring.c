/* SPDX-License-Identifier: Apache-2.0 */
/* Slot rings: order, fullness, wrap, and a position found again after either side has died. */
#include <string.h>
#include <xseg/ring.h>

#include "tests/lib/unit.h"

struct pair {
	struct xseg_ring *ring;
	struct xseg_ring_tx tx;
	struct xseg_ring_rx rx;
};

static void pair_make(struct pair *p)
{
	p->ring = aligned_alloc(128, sizeof(struct xseg_ring));
	ck_assert_ptr_nonnull(p->ring);
	memset(p->ring, 0xee, sizeof(*p->ring));
	xseg_ring_init(p->ring);
	xseg_ring_tx_attach(&p->tx, p->ring);
	xseg_ring_rx_attach(&p->rx, p->ring);
}

static void get_is(struct pair *p, uint32_t request)
{
	struct xseg_hint_message m;
	ck_assert(xseg_ring_get(&p->rx, &m));
	ck_assert_uint_eq(m.request, request);
	ck_assert_uint_eq(m.kind, request & 1);
}

static void put_is(struct pair *p, uint32_t request)
{
	ck_assert(xseg_ring_put(&p->tx, request, request & 1));
}

UNIT(test_order)
{
	struct pair p;
	struct xseg_hint_message m;
	pair_make(&p);
	ck_assert(xseg_ring_empty(&p.rx));
	ck_assert(!xseg_ring_get(&p.rx, &m));
	for (uint32_t i = 0; i < 10 * XSEG_RING_SLOTS; i++) {
		put_is(&p, i);
		ck_assert(!xseg_ring_empty(&p.rx));
		get_is(&p, i);
	}
	ck_assert(xseg_ring_empty(&p.rx));
	free(p.ring);
}

UNIT(test_full)
{
	struct pair p;
	pair_make(&p);
	uint32_t in = 0, out = 0;
	for (unsigned round = 0; round < 5; round++) {
		while (xseg_ring_put(&p.tx, in, in & 1))
			in++;
		ck_assert_uint_eq(in - out, XSEG_RING_SLOTS);
		ck_assert(!xseg_ring_put(&p.tx, in, in & 1));
		for (unsigned i = 0; i < 37 * (round + 1); i++)
			get_is(&p, out++);
		xseg_ring_publish(&p.rx);
	}
	while (out < in)
		get_is(&p, out++);
	ck_assert(xseg_ring_empty(&p.rx));
	free(p.ring);
}

/* Room is told half a ring at a time, and at once by publish. */
UNIT(test_publish)
{
	struct pair p;
	pair_make(&p);
	for (uint32_t i = 0; i < XSEG_RING_SLOTS; i++)
		put_is(&p, i);
	get_is(&p, 0);
	ck_assert_uint_eq(atomic_load(&p.ring->head), 0);
	ck_assert(!xseg_ring_put(&p.tx, 1, 1));
	xseg_ring_publish(&p.rx);
	ck_assert_uint_eq(atomic_load(&p.ring->head), 1);
	put_is(&p, XSEG_RING_SLOTS);
	for (uint32_t i = 1; i <= XSEG_RING_SLOTS / 2; i++)
		get_is(&p, i);
	ck_assert_uint_ge(atomic_load(&p.ring->head), XSEG_RING_SLOTS / 2);
	free(p.ring);
}

/* The producer dies and a new one attaches: it goes on where the slots say. */
UNIT(test_tx_attach)
{
	for (uint32_t filled = 0; filled <= XSEG_RING_SLOTS; filled += 16) {
		struct pair p;
		pair_make(&p);
		uint32_t in = 0, out = 0;
		for (unsigned i = 0; i < 300; i++) {
			put_is(&p, in++);
			get_is(&p, out++);
		}
		xseg_ring_publish(&p.rx);
		while (in - out < filled)
			put_is(&p, in++);
		xseg_ring_tx_attach(&p.tx, p.ring);
		ck_assert_uint_eq(p.tx.position, in);
		if (filled < XSEG_RING_SLOTS)
			put_is(&p, in++);
		else
			ck_assert(!xseg_ring_put(&p.tx, in, 0));
		while (out < in)
			get_is(&p, out++);
		ck_assert(xseg_ring_empty(&p.rx));
		free(p.ring);
	}
}

/* The producer dies between filling a slot and publishing it: the slot is used again. */
UNIT(test_tx_torn)
{
	struct pair p;
	pair_make(&p);
	put_is(&p, 0);
	p.ring->slots[1].request = 0xdead;
	p.ring->slots[1].kind = 0xbeef;
	xseg_ring_tx_attach(&p.tx, p.ring);
	put_is(&p, 1);
	get_is(&p, 0);
	get_is(&p, 1);
	ck_assert(xseg_ring_empty(&p.rx));
	free(p.ring);
}

/*
 * The consumer dies: its successor begins at the published head or where the ring's own slots
 * prove that they were read; what it sees twice is at most half a ring, and nothing is lost.
 */
UNIT(test_rx_attach)
{
	for (uint32_t taken = 0; taken <= 3 * XSEG_RING_SLOTS; taken += 29) {
		struct pair p;
		pair_make(&p);
		uint32_t in = 0, out = 0;
		while (out < taken) {
			put_is(&p, in++);
			get_is(&p, out++);
		}
		for (unsigned i = 0; i < 40; i++)
			put_is(&p, in++);
		xseg_ring_rx_attach(&p.rx, p.ring);
		ck_assert_uint_le(p.rx.position, out);
		ck_assert_uint_ge(p.rx.position + XSEG_RING_SLOTS / 2, out);
		for (uint32_t i = (uint32_t)p.rx.position; i < in; i++)
			get_is(&p, i);
		ck_assert(xseg_ring_empty(&p.rx));
		free(p.ring);
	}
}

/* Both die, again and again, at every position of the ring. */
UNIT(test_both_attach)
{
	struct pair p;
	pair_make(&p);
	uint32_t in = 0, out = 0;
	for (unsigned round = 0; round < 1000; round++) {
		for (unsigned i = 0; i < round % 7; i++)
			put_is(&p, in++);
		xseg_ring_tx_attach(&p.tx, p.ring);
		ck_assert_uint_eq(p.tx.position, in);
		while (in - out > round % 3)
			get_is(&p, out++);
		xseg_ring_publish(&p.rx);
		xseg_ring_rx_attach(&p.rx, p.ring);
		ck_assert_uint_eq(p.rx.position, out);
	}
	free(p.ring);
}

/* A wild head neither stops the consumer nor lets the producer overwrite what is unread. */
UNIT(test_wild_head)
{
	static const uint64_t heads[] = {1ull << 63, ~0ull, 1u << 20, XSEG_RING_SLOTS + 1};
	for (unsigned h = 0; h < countof(heads); h++) {
		struct pair p;
		pair_make(&p);
		for (uint32_t i = 0; i < XSEG_RING_SLOTS; i++)
			put_is(&p, i);
		atomic_store(&p.ring->head, heads[h]);
		for (unsigned i = 0; i < 3; i++)
			ck_assert(!xseg_ring_put(&p.tx, 999, 1));
		for (uint32_t i = 0; i < XSEG_RING_SLOTS; i++)
			get_is(&p, i);
		xseg_ring_publish(&p.rx);
		put_is(&p, 2000);
		get_is(&p, 2000);
		/* whoever attaches to a wild ring may lose hints, never crash or hang */
		atomic_store(&p.ring->head, heads[h]);
		xseg_ring_tx_attach(&p.tx, p.ring);
		xseg_ring_rx_attach(&p.rx, p.ring);
		struct xseg_hint_message m;
		unsigned got = 0;
		xseg_ring_put(&p.tx, 5, 1);
		while (got <= 2 * XSEG_RING_SLOTS && xseg_ring_get(&p.rx, &m))
			got++;
		ck_assert_uint_le(got, 2 * XSEG_RING_SLOTS);
		free(p.ring);
	}
}

/* Random bytes for a ring: attach and use end, within bounds (run under ASan too). */
UNIT(test_wild_slots)
{
	uint64_t seed = 42;
	for (unsigned round = 0; round < 200; round++) {
		struct pair p;
		pair_make(&p);
		uint64_t *word = (uint64_t *)(void *)p.ring;
		for (size_t i = 0; i < sizeof(*p.ring) / 8; i++)
			word[i] = random_next(&seed) >> (random_next(&seed) % 64);
		xseg_ring_tx_attach(&p.tx, p.ring);
		xseg_ring_rx_attach(&p.rx, p.ring);
		struct xseg_hint_message m;
		for (unsigned i = 0; i < 600; i++) {
			xseg_ring_put(&p.tx, i, 0);
			xseg_ring_get(&p.rx, &m);
		}
		free(p.ring);
	}
}
