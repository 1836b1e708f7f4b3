/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Law of the request table: any calls of the verbs, in any order and by any lane, move a word
 * only along its table; and no slot is ever lost or given to two.
 */
#include <criterion/criterion.h>
#include <criterion/theories.h>
#include <errno.h>
#include <string.h>
#include <xseg/lane.h>

#include "tests/lib/fixture.h"

#define LANES 3u
#define SLOTS 128u

/* Beside each slot: where it should be. */
struct slot_model {
	unsigned state, frame, owner; /* owner: lane or port by state */
	unsigned client;
	uint32_t generation;
};

struct model {
	struct xseg seg;
	struct xseg_lane *lane[LANES];
	uint32_t port[LANES];
	struct slot_model slot[SLOTS];
	uint64_t random;
};

static unsigned any(struct model *m, unsigned below)
{
	return (unsigned)(random_next(&m->random) % below);
}

static void model_make(struct model *m, uint64_t seed)
{
	static const char *const names[LANES] = {"p0", "p1", "p2"};
	memset(m, 0, sizeof(*m));
	m->random = seed;
	scratch_segment_unnamed(&m->seg, XSEG_SIZE_MIN, LANES, SLOTS);
	for (unsigned i = 0; i < LANES; i++) {
		uint32_t peer;
		uint16_t epoch;
		cr_assert_eq(xseg_lane_join(&m->seg, false, &m->lane[i]), 0);
		uint8_t index = (uint8_t)m->lane[i]->index;
		cr_assert_eq(index, i);
		cr_assert_eq(xseg_peer_join(&m->seg, names[i], "test", 1, &peer, &epoch), 0);
		cr_assert_eq(
			xseg_port_bind(&m->seg, names[i], peer, epoch, &index, 1, &m->port[i]), 0);
	}
}

static uint64_t word_of(struct model *m, uint32_t slot)
{
	return atomic_load(&m->seg.requests[slot].word);
}

/* The word says what the model says; every move since the last look was along the table. */
static void check_slot(struct model *m, uint32_t slot)
{
	uint64_t word = word_of(m, slot);
	struct slot_model *s = &m->slot[slot];
	cr_assert_eq(xseg_word_state(word), s->state, "slot %u: %u, not %u", slot,
		xseg_word_state(word), s->state);
	cr_assert_eq(xseg_word_generation(word), s->generation);
	if (s->state == XSEG_REQUEST_FREE)
		return;
	cr_assert_eq(xseg_word_frame(word), s->frame);
	cr_assert_eq(xseg_word_owner(word), s->owner);
}

static void expect(struct model *m, uint32_t slot, unsigned to, unsigned frame, unsigned owner)
{
	struct slot_model *s = &m->slot[slot];
	cr_assert(sm_may(xseg_request_states, s->state, to), "%s -> %s",
		xseg_request_states[s->state].name, xseg_request_states[to].name);
	s->state = to;
	s->frame = frame;
	s->owner = owner;
	check_slot(m, slot);
}

static void do_get(struct model *m, unsigned l)
{
	uint32_t slot;
	if (xseg_get(m->lane[l], &slot) != 0)
		return;
	cr_assert_lt(slot, SLOTS);
	m->slot[slot].client = l;
	m->slot[slot].generation++;
	expect(m, slot, XSEG_REQUEST_OWNED, 0, l);
}

/* A slot that lane l may hand on by the model, or XSEG_NONE. */
static uint32_t pick(struct model *m, unsigned state, unsigned owner)
{
	uint32_t start = any(m, SLOTS);
	for (uint32_t i = 0; i < SLOTS; i++) {
		uint32_t slot = (start + i) % SLOTS;
		if (m->slot[slot].state == state && m->slot[slot].owner == owner)
			return slot;
	}
	return XSEG_NONE;
}

static void do_submit(struct model *m, unsigned l, unsigned to)
{
	uint32_t slot = pick(m, XSEG_REQUEST_OWNED, l);
	if (slot == XSEG_NONE)
		return;
	xseg_at(m->lane[l], slot)->frame[0] =
		(struct xseg_frame){.op = XSEG_OP_READ, .lane = XSEG_LANE_ANY, .offset = slot};
	cr_assert_eq(xseg_submit(m->lane[l], slot, m->port[to]), 0);
	expect(m, slot, XSEG_REQUEST_SUBMITTED, 0, m->port[to]);
}

/* Any slot at all, right or wrong: done when the model allows it, refused and unmoved else. */
static void try_accept(struct model *m, unsigned l)
{
	uint32_t slot = any(m, SLOTS + 3);
	unsigned frame = 99;
	int rc = xseg_accept(m->lane[l], slot, &frame);
	if (slot >= SLOTS) {
		cr_assert_eq(rc, -ESTALE);
		return;
	}
	struct slot_model *s = &m->slot[slot];
	if (s->state == XSEG_REQUEST_SUBMITTED && s->owner == m->port[l]) {
		cr_assert_eq(rc, 0);
		cr_assert_eq(frame, s->frame);
		expect(m, slot, XSEG_REQUEST_TAKEN, s->frame, l);
	} else {
		cr_assert_eq(rc, -ESTALE);
		check_slot(m, slot);
	}
}

static void try_receive(struct model *m, unsigned l)
{
	uint32_t slot = any(m, SLOTS + 3);
	int rc = xseg_receive(m->lane[l], slot);
	if (slot >= SLOTS) {
		cr_assert_eq(rc, -ESTALE);
		return;
	}
	struct slot_model *s = &m->slot[slot];
	if (s->state == XSEG_REQUEST_DONE && s->owner == l) {
		cr_assert_eq(rc, 0);
		expect(m, slot, XSEG_REQUEST_OWNED, 0, l);
	} else {
		cr_assert_eq(rc, -ESTALE);
		check_slot(m, slot);
	}
}

static void do_forward(struct model *m, unsigned l, unsigned to)
{
	uint32_t slot = pick(m, XSEG_REQUEST_TAKEN, l);
	if (slot == XSEG_NONE)
		return;
	unsigned frame = m->slot[slot].frame;
	struct xseg_frame next = m->seg.requests[slot].frame[frame];
	int rc = xseg_forward(m->lane[l], slot, m->port[to], &next);
	cr_assert_eq(rc, frame + 1 < XSEG_FRAMES ? 0 : -ELOOP);
	if (rc == 0)
		expect(m, slot, XSEG_REQUEST_SUBMITTED, frame + 1, m->port[to]);
	else
		check_slot(m, slot);
}

static void do_respond(struct model *m, unsigned l)
{
	uint32_t slot = pick(m, XSEG_REQUEST_TAKEN, l);
	if (slot == XSEG_NONE)
		return;
	xseg_respond(m->lane[l], slot);
	expect(m, slot, XSEG_REQUEST_DONE, m->slot[slot].frame, m->slot[slot].client);
}

static void do_put(struct model *m, unsigned l)
{
	uint32_t slot = pick(m, XSEG_REQUEST_OWNED, l);
	if (slot == XSEG_NONE)
		return;
	xseg_put(m->lane[l], slot);
	expect(m, slot, XSEG_REQUEST_FREE, 0, 0);
}

/* Hints as they really come: each is honest or stale, and a stale one moves nothing. */
static void do_poll(struct model *m, unsigned l)
{
	struct xseg_hint_message h[8];
	uint32_t n = xseg_poll(m->lane[l], h, 1 + any(m, 8));
	for (uint32_t i = 0; i < n; i++) {
		cr_assert_lt(h[i].request, SLOTS);
		check_slot(m, h[i].request);
	}
	xseg_turn_end(m->lane[l]);
}

static void check_all(struct model *m)
{
	struct xseg_usage usage;
	uint32_t count[XSEG_REQUEST_STATES] = {0};
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		check_slot(m, slot);
		count[m->slot[slot].state]++;
	}
	xseg_segment_usage(&m->seg, &usage);
	for (unsigned i = 0; i < XSEG_REQUEST_STATES; i++)
		cr_assert_eq(usage.requests_by_state[i], count[i]);
}

static void step(struct model *m)
{
	unsigned l = any(m, LANES), to = any(m, LANES);
	switch (any(m, 9)) {
	case 0:
	case 1: do_get(m, l); break;
	case 2: do_submit(m, l, to); break;
	case 3: try_accept(m, l); break;
	case 4: try_receive(m, l); break;
	case 5: do_forward(m, l, to); break;
	case 6: do_respond(m, l); break;
	case 7: do_poll(m, l); break;
	default: do_put(m, l);
	}
}

/* Brings every slot home; then all of them can be had again. */
static void drain(struct model *m)
{
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		struct slot_model *s = &m->slot[slot];
		unsigned frame;
		for (unsigned l = 0; l < LANES && s->state == XSEG_REQUEST_SUBMITTED; l++)
			if (s->owner == m->port[l]) {
				cr_assert_eq(xseg_accept(m->lane[l], slot, &frame), 0);
				expect(m, slot, XSEG_REQUEST_TAKEN, s->frame, l);
			}
		if (s->state == XSEG_REQUEST_TAKEN) {
			xseg_respond(m->lane[s->owner], slot);
			expect(m, slot, XSEG_REQUEST_DONE, s->frame, s->client);
		}
		if (s->state == XSEG_REQUEST_DONE) {
			cr_assert_eq(xseg_receive(m->lane[s->owner], slot), 0);
			expect(m, slot, XSEG_REQUEST_OWNED, 0, s->owner);
		}
		if (s->state == XSEG_REQUEST_OWNED) {
			xseg_put(m->lane[s->owner], slot);
			expect(m, slot, XSEG_REQUEST_FREE, 0, 0);
		}
	}
	check_all(m);
}

TheoryDataPoints(request, any_history) = {
	DataPoints(unsigned, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
	DataPoints(unsigned, 200, 5000, 30000),
};

Theory((unsigned seed, unsigned steps), request, any_history)
{
	static struct model m;
	model_make(&m, seed * 7919u + steps);
	for (unsigned i = 0; i < steps; i++) {
		step(&m);
		if (i % 1000 == 0)
			check_all(&m);
	}
	drain(&m);
	for (unsigned i = 0; i < LANES; i++)
		xseg_lane_leave(m.lane[i]);
	/* all slots can be had by one, in the end */
	struct xseg_slot_cache cache;
	uint32_t slot, got = 0;
	xseg_slot_cache_init(&cache, &m.seg, 0, 1);
	while (xseg_request_alloc(&cache, &slot) == 0)
		got++;
	cr_assert_eq(got, SLOTS);
	xseg_segment_leave(&m.seg);
}

TheoryDataPoints(request, table) = {
	DataPoints(unsigned, 0, 1, 2, 3, 4),
	DataPoints(unsigned, 0, 1, 2, 3, 4),
};

/* The table is what the picture in layout.h shows. */
Theory((unsigned from, unsigned to), request, table)
{
	static const char picture[XSEG_REQUEST_STATES][XSEG_REQUEST_STATES + 1] = {
		"01000", /* FREE: alloc */
		"10100", /* OWNED: put, submit */
		"00010", /* SUBMITTED: accept */
		"00101", /* TAKEN: forward, respond */
		"01000", /* DONE: receive */
	};
	cr_assert_eq(sm_may(xseg_request_states, from, to), picture[from][to] == '1');
}
