/* SPDX-License-Identifier: Apache-2.0 */
/* The page pool: who has a page, runs, pins, lost hints, and a pool in pieces. */
#include <errno.h>
#include <string.h>
#include <xseg/page.h>

#include "tests/lib/unit.h"

static struct xseg seg;
static struct xseg_magazine mag, other;

static void setup(void)
{
	scratch_segment(&seg, XSEG_SIZE_MIN, 2, 64);
	xseg_magazine_init(&mag, &seg, 0, 11);
	xseg_magazine_init(&other, &seg, 1, 12);
}

static unsigned state_of(uint32_t page)
{
	return xseg_page_state(atomic_load(&seg.descriptors[page].word));
}

static uint32_t count_state(unsigned state)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < seg.page_count; i++)
		count += state_of(i) == state;
	return count;
}

static void teardown(void)
{
	xseg_magazine_fini(&mag);
	xseg_magazine_fini(&other);
	ck_assert_uint_eq(count_state(XSEG_PAGE_FREE), seg.page_count);
	ck_assert_uint_eq(xseg_page_free_count(&seg), seg.page_count);
	scratch_segment_end(&seg);
}

static uint32_t take_one(struct xseg_magazine *m)
{
	struct xseg_extent e;
	uint32_t n = 0;
	ck_assert_int_eq(xseg_page_alloc(m, 1, &e, 1, &n), 0);
	ck_assert_uint_eq(n, 1);
	ck_assert_uint_eq(e.count, 1);
	ck_assert_uint_lt(e.page, seg.page_count);
	return e.page;
}

static void free_one(struct xseg_magazine *m, uint32_t page)
{
	struct xseg_extent e = {.page = page, .count = 1};
	xseg_page_free(m, &e, 1);
}

/* The pages of these runs, each HELD by lane 0, none twice; their sum. */
static uint32_t runs_check(const struct xseg_extent *e, uint32_t n, bool *seen)
{
	uint32_t sum = 0;
	ck_assert(xseg_extents_check(&seg, e, n));
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < e[i].count; k++, sum++) {
			uint32_t page = e[i].page + k;
			ck_assert(!seen[page]);
			seen[page] = true;
			uint64_t w = atomic_load(&seg.descriptors[page].word);
			ck_assert_uint_eq(xseg_page_state(w), XSEG_PAGE_HELD);
			ck_assert_uint_eq(xseg_page_owner(w), 0);
			ck_assert_uint_eq(xseg_page_epoch(w), 11);
		}
	return sum;
}

UNIT(test_single)
{
	setup();
	uint32_t a = take_one(&mag), b = take_one(&mag), c = take_one(&other);
	ck_assert_uint_ne(a, b);
	ck_assert_uint_ne(a, c);
	ck_assert_uint_ne(b, c);
	uint64_t w = atomic_load(&seg.descriptors[a].word);
	ck_assert_uint_eq(xseg_page_state(w), XSEG_PAGE_HELD);
	ck_assert_uint_eq(xseg_page_owner(w), 0);
	ck_assert_uint_eq(xseg_page_epoch(w), 11);
	ck_assert_uint_eq(xseg_page_pins(w), 0);
	/* what one lane took the other may give back */
	free_one(&other, a);
	free_one(&mag, b);
	free_one(&other, c);
	teardown();
}

UNIT(test_runs)
{
	setup();
	static const uint32_t counts[] = {2, 3, 63, 64, 65, 128, 500, 1024};
	for (unsigned i = 0; i < countof(counts); i++) {
		bool *seen = calloc(seg.page_count, 1);
		struct xseg_extent e[64];
		uint32_t n;
		ck_assert_int_eq(xseg_page_alloc(&mag, counts[i], e, 64, &n), 0);
		ck_assert_uint_eq(runs_check(e, n, seen), counts[i]);
		/* contiguous where possible: a fresh pool gives at most a run per 64 pages */
		ck_assert_uint_le(n, (counts[i] + 63) / 64 + 1);
		xseg_page_free(&mag, e, n);
		free(seen);
	}
	teardown();
}

/* All pages go out, none twice; then -EAGAIN; then they come back. */
UNIT(test_exhaust)
{
	setup();
	bool *seen = calloc(seg.page_count, 1);
	uint32_t *page = calloc(seg.page_count, sizeof(*page)), count = 0;
	struct xseg_extent e;
	uint32_t n = 0;
	while (xseg_page_alloc(&mag, 1, &e, 1, &n) == 0) {
		ck_assert(!seen[e.page]);
		seen[e.page] = true;
		page[count++] = e.page;
	}
	ck_assert_uint_eq(count, seg.page_count);
	ck_assert_int_eq(xseg_page_alloc(&mag, 1, &e, 1, &n), -EAGAIN);
	ck_assert_int_eq(xseg_page_alloc(&mag, 7, &e, 1, &n), -EAGAIN);
	ck_assert_int_eq(xseg_page_alloc(&other, 1, &e, 1, &n), -EAGAIN);
	free_one(&mag, page[--count]);
	ck_assert_int_eq(xseg_page_alloc(&mag, 1, &e, 1, &n), 0);
	free_one(&mag, e.page);
	while (count)
		free_one(&mag, page[--count]);
	free(page);
	free(seen);
	teardown();
}

/* All or nothing: what cannot be had in full leaves the pool as it was. */
UNIT(test_all_or_nothing)
{
	setup();
	struct xseg_extent *e = calloc(2048, sizeof(*e)), more[1024];
	uint32_t n, total = 0, m;
	while (xseg_page_alloc(&mag, 64, e + total, 2048 - total, &n) == 0)
		total += n;
	uint32_t left = count_state(XSEG_PAGE_FREE);
	ck_assert_uint_lt(left, 64);
	ck_assert_int_eq(xseg_page_alloc(&mag, left + 1, more, 1024, &m), -EAGAIN);
	ck_assert_uint_eq(count_state(XSEG_PAGE_FREE), left);
	ck_assert_uint_eq(xseg_page_free_count(&seg), left);
	xseg_page_free(&mag, e, total);
	free(e);
	teardown();
}

/* Every other page is taken: what is left is enough, in runs of one. */
UNIT(test_fragmented)
{
	setup();
	uint32_t *page = calloc(seg.page_count, sizeof(*page)), count = 0;
	struct xseg_extent e, *many = calloc(1024, sizeof(*many));
	uint32_t n;
	bool *seen = calloc(seg.page_count, 1);
	while (xseg_page_alloc(&mag, 1, &e, 1, &n) == 0)
		page[count++] = e.page;
	for (uint32_t i = 0; i < count; i++)
		if (page[i] % 2)
			free_one(&mag, page[i]);
	xseg_magazine_fini(&mag); /* the magazine's share goes back to the pool */
	uint32_t want = count / 2 < 1024 ? count / 2 : 1024;
	ck_assert_uint_ge(want, 512);
	ck_assert_int_eq(xseg_page_alloc(&mag, want, many, 1024, &n), 0);
	ck_assert_uint_eq(runs_check(many, n, seen), want);
	xseg_page_free(&mag, many, n);
	/* too few runs for it: -EAGAIN, and nothing is lost */
	ck_assert_int_eq(xseg_page_alloc(&mag, 100, many, 16, &n), -EAGAIN);
	for (uint32_t i = 0; i < count; i++)
		if (page[i] % 2 == 0)
			free_one(&mag, page[i]);
	free(seen);
	free(many);
	free(page);
	teardown();
}

UNIT(test_store_retire)
{
	setup();
	uint32_t page = take_one(&mag);
	xseg_page_store(&mag, page);
	uint64_t w = atomic_load(&seg.descriptors[page].word);
	ck_assert_uint_eq(xseg_page_state(w), XSEG_PAGE_STORED);
	ck_assert_uint_eq(xseg_page_owner(w), 0);
	ck_assert_uint_eq(xseg_page_epoch(w), 11);
	ck_assert(!xseg_page_pinned(&seg, page));
	xseg_page_retire(&mag, page);
	ck_assert_uint_ne(state_of(page), XSEG_PAGE_STORED);
	ck_assert_uint_ne(state_of(page), XSEG_PAGE_RETIRED);
	teardown();
}

/* A reader's pin keeps a retired page until the last one lets go, whoever that is. */
UNIT(test_pins)
{
	setup();
	uint32_t page = take_one(&mag);
	xseg_page_store(&mag, page);
	for (unsigned i = 0; i < 3; i++)
		xseg_page_pin(&seg, page);
	ck_assert(xseg_page_pinned(&seg, page));
	xseg_page_retire(&mag, page);
	ck_assert_uint_eq(state_of(page), XSEG_PAGE_RETIRED);
	ck_assert_uint_eq(xseg_page_pins(atomic_load(&seg.descriptors[page].word)), 3);
	xseg_page_unpin(&other, page);
	xseg_page_unpin(&mag, page);
	ck_assert_uint_eq(state_of(page), XSEG_PAGE_RETIRED);
	xseg_page_unpin(&other, page);
	ck_assert_uint_ne(state_of(page), XSEG_PAGE_RETIRED);
	/* pin and unpin without a retire leave it stored */
	page = take_one(&mag);
	xseg_page_store(&mag, page);
	xseg_page_pin(&seg, page);
	xseg_page_unpin(&other, page);
	ck_assert_uint_eq(state_of(page), XSEG_PAGE_STORED);
	ck_assert(!xseg_page_pinned(&seg, page));
	xseg_page_retire(&mag, page);
	teardown();
}

UNIT(test_rehint)
{
	setup();
	struct xseg_extent e;
	uint32_t n;
	for (uint32_t i = 0; i < (seg.page_count + 63) / 64; i++)
		atomic_store(&seg.page_hints[i], 0);
	ck_assert_uint_eq(xseg_page_free_count(&seg), 0);
	ck_assert_int_eq(xseg_page_alloc(&mag, 1, &e, 1, &n), -EAGAIN);
	ck_assert_uint_eq(xseg_page_rehint(&seg), seg.page_count);
	ck_assert_uint_eq(xseg_page_rehint(&seg), 0);
	uint32_t page = take_one(&mag);
	/* hints for everything, also for what is held and what does not exist */
	for (uint32_t i = 0; i < (seg.page_count + 63) / 64; i++)
		atomic_store(&seg.page_hints[i], ~0ull);
	bool *seen = calloc(seg.page_count, 1);
	seen[page] = true;
	uint32_t got = 1;
	while (xseg_page_alloc(&other, 1, &e, 1, &n) == 0) {
		ck_assert_uint_lt(e.page, seg.page_count);
		ck_assert(!seen[e.page]);
		seen[e.page] = true;
		got++;
	}
	ck_assert_uint_ge(got + XSEG_MAGAZINE_PAGES, seg.page_count);
	for (uint32_t i = 0; i < seg.page_count; i++)
		if (seen[i])
			free_one(&mag, i);
	free(seen);
	teardown();
}

UNIT(test_extents_check)
{
	setup();
	uint32_t last = seg.page_count - 1;
	const struct xseg_extent good[] = {{0, 1}, {last, 1}, {0, seg.page_count}, {5, last - 4}};
	for (unsigned i = 0; i < countof(good); i++)
		ck_assert(xseg_extents_check(&seg, &good[i], 1));
	ck_assert(xseg_extents_check(&seg, good, countof(good)));
	ck_assert(xseg_extents_check(&seg, good, 0));
	const struct xseg_extent bad[] = {{last, 2}, {last + 1, 1}, {XSEG_NONE, 1},
		{0, seg.page_count + 1}, {1, XSEG_NONE}, {XSEG_NONE, XSEG_NONE}, {0, 0},
		{last + 1, 0x80000000u}, {0x80000000u, 0x80000000u}, {5, (uint32_t)-5}};
	for (unsigned i = 0; i < countof(bad); i++) {
		ck_assert_msg(!xseg_extents_check(&seg, &bad[i], 1), "bad %u", i);
		struct xseg_extent two[2] = {good[0], bad[i]};
		ck_assert(!xseg_extents_check(&seg, two, 2));
	}
	teardown();
}

/* Words that nobody can have written: no helper crashes or frees what others hold. */
UNIT(test_wild_words)
{
	setup();
	uint64_t seed = 5;
	for (unsigned i = 0; i < 20000; i++) {
		uint32_t page = (uint32_t)(random_next(&seed) % seg.page_count);
		_Atomic uint64_t *word = &seg.descriptors[page].word;
		uint64_t wild = random_next(&seed) >> (random_next(&seed) % 64);
		if (xseg_page_state(wild) == XSEG_PAGE_FREE)
			continue;
		uint64_t before = atomic_load(word);
		if (before != 0)
			continue;
		atomic_store(word, wild);
		xseg_page_pinned(&seg, page);
		struct xseg_extent e;
		uint32_t n;
		if (xseg_page_alloc(&mag, 1, &e, 1, &n) == 0) {
			ck_assert_uint_ne(e.page, page);
			free_one(&mag, e.page);
		}
		if (xseg_page_state(wild) > XSEG_PAGE_RETIRED || xseg_page_pins(wild) == 0)
			xseg_page_unpin(&mag, page);
		atomic_store(word, 0);
		xseg_page_rehint(&seg);
		struct xseg_usage usage;
		xseg_segment_usage(&seg, &usage);
	}
	teardown();
}
