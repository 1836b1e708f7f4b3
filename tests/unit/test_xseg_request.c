/* SPDX-License-Identifier: Apache-2.0 */
/* The request table: slots are given out once, come back once, and hints can be made again. */
#include <errno.h>
#include <string.h>
#include <xseg/request.h>

#include "tests/lib/unit.h"

#define SLOTS 512u

static uint32_t in_state(const struct xseg *seg, unsigned state)
{
	struct xseg_usage usage;
	xseg_segment_usage(seg, &usage);
	uint32_t sum = 0;
	for (unsigned i = 0; i < XSEG_REQUEST_STATES; i++)
		sum += usage.requests_by_state[i];
	ck_assert_uint_eq(sum, seg->request_count);
	return usage.requests_by_state[state];
}

UNIT(test_word)
{
	for (unsigned state = 0; state < XSEG_REQUEST_STATES; state++) {
		uint64_t w = xseg_word(state, 7, 0xabcd, 0x1234, 0xfedcba);
		ck_assert_uint_eq(xseg_word_state(w), state);
		ck_assert_uint_eq(xseg_word_frame(w), 7);
		ck_assert_uint_eq(xseg_word_owner(w), 0xabcd);
		ck_assert_uint_eq(xseg_word_epoch(w), 0x1234);
		ck_assert_uint_eq(xseg_word_generation(w), 0xfedcba);
	}
	/* a generation that overflows its 24 bits starts again and spoils nothing */
	uint64_t w = xseg_word(1, 0, 2, 3, 0x1000000);
	ck_assert_uint_eq(xseg_word_generation(w), 0);
	ck_assert_uint_eq(xseg_word_owner(w), 2);
}

UNIT(test_table)
{
	static const unsigned may[][2] = {{XSEG_REQUEST_FREE, XSEG_REQUEST_OWNED},
		{XSEG_REQUEST_OWNED, XSEG_REQUEST_SUBMITTED},
		{XSEG_REQUEST_OWNED, XSEG_REQUEST_FREE},
		{XSEG_REQUEST_SUBMITTED, XSEG_REQUEST_TAKEN},
		{XSEG_REQUEST_TAKEN, XSEG_REQUEST_SUBMITTED},
		{XSEG_REQUEST_TAKEN, XSEG_REQUEST_DONE}, {XSEG_REQUEST_DONE, XSEG_REQUEST_OWNED}};
	static const unsigned never[][2] = {{XSEG_REQUEST_FREE, XSEG_REQUEST_SUBMITTED},
		{XSEG_REQUEST_FREE, XSEG_REQUEST_TAKEN}, {XSEG_REQUEST_FREE, XSEG_REQUEST_DONE},
		{XSEG_REQUEST_OWNED, XSEG_REQUEST_TAKEN}, {XSEG_REQUEST_OWNED, XSEG_REQUEST_DONE},
		{XSEG_REQUEST_SUBMITTED, XSEG_REQUEST_DONE},
		{XSEG_REQUEST_DONE, XSEG_REQUEST_SUBMITTED},
		{XSEG_REQUEST_DONE, XSEG_REQUEST_TAKEN}};
	for (unsigned i = 0; i < countof(may); i++)
		ck_assert(sm_may(xseg_request_states, may[i][0], may[i][1]));
	for (unsigned i = 0; i < countof(never); i++)
		ck_assert(!sm_may(xseg_request_states, never[i][0], never[i][1]));
	for (unsigned i = 0; i < XSEG_REQUEST_STATES; i++) {
		ck_assert_ptr_nonnull(xseg_request_states[i].name);
		ck_assert_uint_gt(strlen(xseg_request_states[i].name), 0);
	}
}

UNIT(test_alloc_all)
{
	struct xseg seg;
	struct xseg_slot_cache a;
	uint32_t slots[SLOTS], one;
	bool seen[SLOTS] = {false};
	scratch_segment(&seg, 0, 2, SLOTS);
	xseg_slot_cache_init(&a, &seg, 1, 9);
	for (unsigned i = 0; i < SLOTS; i++) {
		ck_assert_int_eq(xseg_request_alloc(&a, &slots[i]), 0);
		ck_assert_uint_lt(slots[i], SLOTS);
		ck_assert(!seen[slots[i]]);
		seen[slots[i]] = true;
		uint64_t w = atomic_load(&seg.requests[slots[i]].word);
		ck_assert_uint_eq(xseg_word_state(w), XSEG_REQUEST_OWNED);
		ck_assert_uint_eq(xseg_word_owner(w), 1);
		ck_assert_uint_eq(xseg_word_epoch(w), 9);
	}
	ck_assert_int_eq(xseg_request_alloc(&a, &one), -EAGAIN);
	ck_assert_int_eq(xseg_request_alloc(&a, &one), -EAGAIN);
	xseg_request_free(&a, slots[3]);
	ck_assert_int_eq(xseg_request_alloc(&a, &one), 0);
	ck_assert_uint_eq(one, slots[3]);
	for (unsigned i = 0; i < SLOTS; i++)
		xseg_request_free(&a, slots[i]);
	xseg_slot_cache_fini(&a);
	ck_assert_uint_eq(in_state(&seg, XSEG_REQUEST_FREE), SLOTS);
	scratch_segment_end(&seg);
}

/* What is left from the last use of a slot is not seen in the next. */
UNIT(test_reset)
{
	struct xseg seg;
	struct xseg_slot_cache a;
	uint32_t slot;
	scratch_segment(&seg, 0, 2, 64);
	xseg_slot_cache_init(&a, &seg, 0, 1);
	for (unsigned i = 0; i < 200; i++) {
		ck_assert_int_eq(xseg_request_alloc(&a, &slot), 0);
		struct xseg_request *r = &seg.requests[slot];
		ck_assert_int_eq(r->result, 0);
		ck_assert_uint_eq(r->extent_count, 0);
		ck_assert_uint_eq(r->answer_count, 0);
		ck_assert_uint_eq(r->flags, 0);
		ck_assert_uint_eq(r->length, 0);
		ck_assert_uint_eq(r->value, 0);
		ck_assert_uint_eq(r->list[0], XSEG_NONE);
		ck_assert_uint_eq(r->list[1], XSEG_NONE);
		r->result = -5;
		r->extent_count = r->answer_count = r->flags = 3;
		r->length = 7;
		r->value = 9;
		r->list[0] = r->list[1] = 0;
		xseg_request_free(&a, slot);
	}
	xseg_slot_cache_fini(&a);
	scratch_segment_end(&seg);
}

UNIT(test_generation)
{
	struct xseg seg;
	struct xseg_slot_cache a;
	uint32_t slot, last[64] = {0};
	bool used[64] = {false};
	scratch_segment(&seg, 0, 2, 64);
	xseg_slot_cache_init(&a, &seg, 0, 1);
	for (unsigned i = 0; i < 500; i++) {
		ck_assert_int_eq(xseg_request_alloc(&a, &slot), 0);
		uint32_t g = xseg_word_generation(atomic_load(&seg.requests[slot].word));
		if (used[slot])
			ck_assert_uint_ne(g, last[slot]);
		used[slot] = true;
		last[slot] = g;
		xseg_request_free(&a, slot);
	}
	xseg_slot_cache_fini(&a);
	scratch_segment_end(&seg);
}

/* Two lanes share the table; neither takes what the other has, both can use it all up. */
UNIT(test_two_lanes)
{
	struct xseg seg;
	struct xseg_slot_cache c[2];
	uint8_t owner[SLOTS];
	uint32_t count[2] = {0}, slot;
	memset(owner, 0xff, sizeof(owner));
	scratch_segment(&seg, 0, 2, SLOTS);
	for (uint16_t i = 0; i < 2; i++)
		xseg_slot_cache_init(&c[i], &seg, i, 1);
	for (unsigned i = 0; i < 2 * SLOTS; i++) {
		if (xseg_request_alloc(&c[i % 2], &slot) != 0)
			continue;
		ck_assert_uint_eq(owner[slot], 0xff);
		owner[slot] = (uint8_t)(i % 2);
		count[i % 2]++;
	}
	/* what one keeps in its cache the other cannot have, but no more than that */
	ck_assert_uint_ge(count[0] + count[1] + XSEG_SLOT_CACHE, SLOTS);
	for (uint32_t s = 0; s < SLOTS; s++)
		if (owner[s] != 0xff)
			xseg_request_free(&c[owner[s]], s);
	for (unsigned i = 0; i < 2; i++)
		xseg_slot_cache_fini(&c[i]);
	ck_assert_uint_eq(in_state(&seg, XSEG_REQUEST_FREE), SLOTS);
	scratch_segment_end(&seg);
}

/* Lost hints: nothing is found until they are made again; doubled hints do no harm. */
UNIT(test_rehint)
{
	struct xseg seg;
	struct xseg_slot_cache a;
	uint32_t slot, got = 0;
	bool seen[SLOTS] = {false};
	scratch_segment(&seg, 0, 2, SLOTS);
	for (uint32_t i = 0; i < SLOTS / 64; i++)
		atomic_store(&seg.request_hints[i], 0);
	xseg_slot_cache_init(&a, &seg, 0, 1);
	ck_assert_uint_eq(xseg_request_rehint(&seg), SLOTS);
	ck_assert_uint_eq(xseg_request_rehint(&seg), 0);
	while (xseg_request_alloc(&a, &slot) == 0) {
		ck_assert(!seen[slot]);
		seen[slot] = true;
		got++;
		for (uint32_t i = 0; i < SLOTS / 64; i++) /* all hints lie now */
			atomic_store(&seg.request_hints[i], ~0ull);
		ck_assert_uint_le(got, SLOTS);
	}
	ck_assert_uint_eq(got, SLOTS);
	for (slot = 0; slot < SLOTS; slot++)
		xseg_request_free(&a, slot);
	xseg_slot_cache_fini(&a);
	ck_assert_uint_eq(in_state(&seg, XSEG_REQUEST_FREE), SLOTS);
	scratch_segment_end(&seg);
}

/* A count that is no multiple of 64: hints beyond the table lead nowhere. */
UNIT(test_ragged)
{
	struct xseg seg;
	struct xseg_slot_cache a;
	uint32_t slot, got = 0;
	scratch_segment(&seg, 0, 2, 100);
	atomic_store(&seg.request_hints[1], ~0ull);
	xseg_slot_cache_init(&a, &seg, 0, 1);
	while (xseg_request_alloc(&a, &slot) == 0) {
		ck_assert_uint_lt(slot, 100);
		ck_assert_uint_le(++got, 100);
	}
	ck_assert_uint_eq(got, 100);
	scratch_segment_end(&seg);
}

static int take_some(void *arg)
{
	struct xseg *seg = arg;
	struct xseg_slot_cache c;
	uint32_t slot[40];
	xseg_slot_cache_init(&c, seg, (uint16_t)(getpid() % 2), 3);
	for (unsigned round = 0; round < 5000; round++) {
		for (unsigned i = 0; i < 40; i++) {
			child_check(xseg_request_alloc(&c, &slot[i]) == 0);
			struct xseg_request *r = &seg->requests[slot[i]];
			r->cookie = (uint64_t)getpid();
		}
		for (unsigned i = 0; i < 40; i++) {
			child_check(seg->requests[slot[i]].cookie == (uint64_t)getpid());
			xseg_request_free(&c, slot[i]);
		}
	}
	xseg_slot_cache_fini(&c);
	return 0;
}

UNIT(test_processes)
{
	struct xseg seg;
	scratch_segment(&seg, 0, 2, SLOTS);
	pid_t a = child_start(take_some, &seg), b = child_start(take_some, &seg);
	ck_assert_int_eq(child_end(a), 0);
	ck_assert_int_eq(child_end(b), 0);
	ck_assert_uint_eq(in_state(&seg, XSEG_REQUEST_FREE), SLOTS);
	scratch_segment_end(&seg);
}
