/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Law of the ring: whatever the batches and wherever it wraps, what goes in comes out in
 * order, none lost, none doubled, never more inside than there are slots; also over restarts.
 */
#include <criterion/criterion.h>
#include <criterion/theories.h>
#include <string.h>
#include <xseg/ring.h>

#include "tests/lib/fixture.h"

struct rig {
	struct xseg_ring *ring;
	struct xseg_ring_tx tx;
	struct xseg_ring_rx rx;
	uint64_t in, out;
};

static void rig_make(struct rig *rig, uint64_t position)
{
	rig->ring = aligned_alloc(128, sizeof(*rig->ring));
	cr_assert_not_null(rig->ring);
	xseg_ring_init(rig->ring);
	xseg_ring_tx_attach(&rig->tx, rig->ring);
	xseg_ring_rx_attach(&rig->rx, rig->ring);
	rig->in = rig->out = 0;
	/* travels to the position where the law is to be tried */
	struct xseg_hint_message m;
	for (; rig->in < position; rig->in++, rig->out++)
		cr_assert(xseg_ring_put(&rig->tx, 0, 0) && xseg_ring_get(&rig->rx, &m));
	xseg_ring_publish(&rig->rx);
}

static void put_up_to(struct rig *rig, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		if (!xseg_ring_put(&rig->tx, (uint32_t)rig->in, (uint32_t)~rig->in))
			return;
		rig->in++;
		cr_assert_leq(rig->in - rig->out, XSEG_RING_SLOTS);
	}
}

static void get_up_to(struct rig *rig, unsigned count)
{
	struct xseg_hint_message m;
	for (unsigned i = 0; i < count && xseg_ring_get(&rig->rx, &m); i++) {
		cr_assert_lt(rig->out, rig->in);
		cr_assert_eq(m.request, (uint32_t)rig->out);
		cr_assert_eq(m.kind, (uint32_t)~rig->out);
		rig->out++;
	}
}

TheoryDataPoints(ring, fill_patterns) = {
	DataPoints(unsigned, 1, 2, 7, 63, 64, 65, 255, 256, 300),
	DataPoints(unsigned, 1, 3, 8, 64, 127, 128, 129, 256),
	DataPoints(unsigned, 0, 1, 127, 128, 200, 255, 256, 1000),
};

Theory((unsigned batch_in, unsigned batch_out, unsigned position), ring, fill_patterns)
{
	struct rig rig;
	rig_make(&rig, position);
	for (unsigned turn = 0; turn < 60; turn++) {
		put_up_to(&rig, batch_in);
		get_up_to(&rig, batch_out);
		if (turn % 5 == 0)
			xseg_ring_publish(&rig.rx);
	}
	while (rig.out < rig.in)
		get_up_to(&rig, 1);
	cr_assert(xseg_ring_empty(&rig.rx));
	/* an empty ring takes all its slots, once the room was told */
	xseg_ring_publish(&rig.rx);
	uint64_t before = rig.in;
	put_up_to(&rig, XSEG_RING_SLOTS + 1);
	cr_assert_eq(rig.in - before, XSEG_RING_SLOTS);
	free(rig.ring);
}

TheoryDataPoints(ring, restarts) = {
	DataPoints(unsigned, 0, 1, 100, 255, 256),
	DataPoints(unsigned, 0, 1, 64, 128, 255),
	DataPoints(unsigned, 0, 5, 128, 250, 511),
};

/* Filled and drained partly, then both sides are new: a replay perhaps, but no gap. */
Theory((unsigned filled, unsigned drained, unsigned position), ring, restarts)
{
	cr_assume(drained <= filled);
	struct rig rig;
	rig_make(&rig, position);
	put_up_to(&rig, filled);
	get_up_to(&rig, drained);
	xseg_ring_tx_attach(&rig.tx, rig.ring);
	xseg_ring_rx_attach(&rig.rx, rig.ring);
	cr_assert_eq(rig.tx.position, rig.in);
	cr_assert_leq(rig.rx.position, rig.out);
	cr_assert_leq(rig.out - rig.rx.position, XSEG_RING_SLOTS / 2);
	rig.out = rig.rx.position;
	struct xseg_hint_message m;
	while (rig.out < position && xseg_ring_get(&rig.rx, &m))
		rig.out++; /* of the journey */
	get_up_to(&rig, XSEG_RING_SLOTS);
	cr_assert_eq(rig.out, rig.in);
	put_up_to(&rig, 10);
	get_up_to(&rig, 10);
	cr_assert_eq(rig.out, rig.in);
	free(rig.ring);
}

TheoryDataPoints(ring, random_walk) = {
	DataPoints(unsigned, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
	DataPoints(unsigned, 16, 200, 600),
};

Theory((unsigned seed, unsigned stride), ring, random_walk)
{
	struct rig rig;
	uint64_t random = seed;
	rig_make(&rig, 0);
	for (unsigned step = 0; step < 3000; step++) {
		unsigned count = (unsigned)(random_next(&random) % stride);
		switch (random_next(&random) % 8) {
		case 0: xseg_ring_publish(&rig.rx); break;
		case 1:
			xseg_ring_tx_attach(&rig.tx, rig.ring);
			cr_assert_eq(rig.tx.position, rig.in);
			break;
		case 2:
		case 3:
		case 4: get_up_to(&rig, count); break;
		default: put_up_to(&rig, count);
		}
	}
	get_up_to(&rig, XSEG_RING_SLOTS);
	cr_assert_eq(rig.out, rig.in);
	free(rig.ring);
}
