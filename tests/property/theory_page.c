/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Law of the page pool: after any history of alloc, free, store, keep, retire, pin and unpin by
 * several lanes, every page is in exactly one state and place, and the sums are right.
 */
#include <criterion/criterion.h>
#include <criterion/theories.h>
#include <string.h>
#include <xseg/page.h>

#include "tests/lib/fixture.h"

#define LANES 4u
#define RUNS 512u

enum place { FREE, HELD, STORED, RETIRED, KEPT };

/* What should be: the model beside the pool. */
struct model {
	struct xseg seg;
	struct xseg_magazine mag[LANES];
	uint8_t *place; /* enum place, by page */
	uint8_t *pins;
	uint8_t *holder;
	struct xseg_extent run[RUNS]; /* held */
	uint8_t run_lane[RUNS];
	uint32_t runs;
	uint32_t count[5];
	uint64_t random;
};

static unsigned any(struct model *m, unsigned below)
{
	return (unsigned)(random_next(&m->random) % below);
}

static void model_make(struct model *m, uint64_t seed)
{
	memset(m, 0, sizeof(*m));
	m->random = seed;
	scratch_segment_unnamed(&m->seg, XSEG_SIZE_MIN, 2, 64);
	for (uint16_t i = 0; i < LANES; i++)
		xseg_magazine_init(&m->mag[i], &m->seg, i, (uint16_t)(100 + i));
	m->place = calloc(m->seg.page_count, 1);
	m->pins = calloc(m->seg.page_count, 1);
	m->holder = calloc(m->seg.page_count, 1);
	m->count[FREE] = m->seg.page_count;
}

static void move(struct model *m, uint32_t page, enum place to)
{
	m->count[m->place[page]]--;
	m->count[to]++;
	m->place[page] = (uint8_t)to;
}

static void do_alloc(struct model *m, unsigned lane, unsigned most)
{
	struct xseg_extent e[64];
	uint32_t n, count = 1 + any(m, most), got = 0;
	if (m->runs + 64 > RUNS || xseg_page_alloc(&m->mag[lane], count, e, 64, &n) != 0)
		return;
	cr_assert_leq(n, 64);
	cr_assert(xseg_extents_check(&m->seg, e, n));
	for (uint32_t i = 0; i < n; i++) {
		m->run[m->runs] = e[i];
		m->run_lane[m->runs++] = (uint8_t)lane;
		for (uint32_t k = 0; k < e[i].count; k++, got++) {
			cr_assert_eq(m->place[e[i].page + k], FREE, "page %u twice", e[i].page + k);
			move(m, e[i].page + k, HELD);
		}
	}
	cr_assert_eq(got, count);
}

/* By any lane: pages change hands in requests. */
static void do_free(struct model *m, unsigned lane)
{
	if (m->runs == 0)
		return;
	unsigned i = any(m, m->runs);
	struct xseg_extent e = m->run[i];
	for (uint32_t k = 0; k < e.count; k++)
		move(m, e.page + k, FREE);
	xseg_page_free(&m->mag[lane], &e, 1);
	m->run[i] = m->run[--m->runs];
	m->run_lane[i] = m->run_lane[m->runs];
}

/* A run of one becomes a stored or kept page; longer ones stay buffers. */
static void do_store(struct model *m, unsigned lane)
{
	for (unsigned i = 0; i < m->runs; i++) {
		if (m->run[i].count != 1)
			continue;
		uint32_t page = m->run[i].page;
		bool keep = any(m, 2);
		if (keep)
			xseg_page_keep(&m->seg, page, lane);
		else
			xseg_page_store(&m->mag[lane], page);
		m->holder[page] = (uint8_t)lane;
		move(m, page, keep ? KEPT : STORED);
		m->run[i] = m->run[--m->runs];
		m->run_lane[i] = m->run_lane[m->runs];
		return;
	}
}

static uint32_t pick(struct model *m, enum place place)
{
	uint32_t start = any(m, m->seg.page_count);
	for (uint32_t i = 0; i < m->seg.page_count; i++) {
		uint32_t page = (start + i) % m->seg.page_count;
		if (m->place[page] == place)
			return page;
	}
	return XSEG_NONE;
}

static void do_retire(struct model *m)
{
	uint32_t page = pick(m, any(m, 2) ? STORED : KEPT);
	if (page == XSEG_NONE)
		return;
	xseg_page_retire(&m->mag[m->holder[page]], page);
	move(m, page, m->pins[page] ? RETIRED : FREE);
}

static void do_pin(struct model *m)
{
	uint32_t page = pick(m, any(m, 2) ? STORED : KEPT);
	if (page == XSEG_NONE || m->pins[page] == 200)
		return;
	xseg_page_pin(&m->seg, page);
	m->pins[page]++;
}

static void do_unpin(struct model *m, unsigned lane)
{
	static const enum place places[] = {STORED, KEPT, RETIRED};
	uint32_t page = pick(m, places[any(m, 3)]);
	if (page == XSEG_NONE || m->pins[page] == 0)
		return;
	xseg_page_unpin(&m->mag[lane], page);
	m->pins[page]--;
	if (m->place[page] == RETIRED && m->pins[page] == 0)
		move(m, page, FREE);
}

/* Pages that are free for the world may lie in magazines, named as held by their lane. */
static void check(struct model *m)
{
	bool *ready = calloc(m->seg.page_count, sizeof(*ready));
	uint32_t in_magazines = 0, in_pool = 0;
	for (unsigned l = 0; l < LANES; l++)
		for (uint32_t i = 0; i < m->mag[l].count; i++) {
			uint32_t page = m->mag[l].page[i];
			cr_assert_lt(page, m->seg.page_count);
			cr_assert(!ready[page], "page %u lies in two magazines", page);
			ready[page] = true;
			in_magazines++;
			uint64_t word = atomic_load(&m->seg.descriptors[page].word);
			cr_assert_eq(xseg_page_owner(word), l);
			cr_assert_eq(xseg_page_epoch(word), 100 + l);
		}
	for (uint32_t page = 0; page < m->seg.page_count; page++) {
		uint64_t word = atomic_load(&m->seg.descriptors[page].word);
		unsigned want = m->place[page] == FREE && ready[page] ? HELD : m->place[page];
		cr_assert_eq(xseg_page_state(word), want, "page %u", page);
		cr_assert_eq(xseg_page_pins(word), m->pins[page]);
		cr_assert(!ready[page] || m->place[page] == FREE);
		in_pool += xseg_page_state(word) == XSEG_PAGE_FREE;
	}
	cr_assert_eq(in_pool + in_magazines, m->count[FREE]);
	cr_assert_eq(xseg_page_free_count(&m->seg), in_pool, "hints do not match the pool");
	free(ready);
}

static void model_end(struct model *m)
{
	while (m->runs)
		do_free(m, any(m, LANES));
	for (uint32_t page = 0; page < m->seg.page_count; page++) {
		while (m->pins[page]) {
			xseg_page_unpin(&m->mag[any(m, LANES)], page);
			m->pins[page]--;
		}
		if (m->place[page] == STORED || m->place[page] == KEPT)
			xseg_page_retire(&m->mag[m->holder[page]], page);
		if (m->place[page] != FREE)
			move(m, page, FREE);
	}
	check(m);
	for (unsigned l = 0; l < LANES; l++)
		xseg_magazine_fini(&m->mag[l]);
	cr_assert_eq(xseg_page_free_count(&m->seg), m->seg.page_count);
	xseg_segment_leave(&m->seg);
	free(m->place);
	free(m->pins);
	free(m->holder);
}

TheoryDataPoints(page, conservation) = {
	DataPoints(unsigned, 1, 2, 3, 4, 5, 6),
	DataPoints(unsigned, 1, 3, 16, 100, 700), /* pages asked for at once, at most */
	DataPoints(unsigned, 2, 5, 9),		  /* allocs for each free */
};

Theory((unsigned seed, unsigned most, unsigned greed), page, conservation)
{
	static struct model m;
	model_make(&m, seed * 1000003u + most * 101u + greed);
	for (unsigned step = 0; step < 3000; step++) {
		unsigned lane = any(&m, LANES), what = any(&m, greed + 5);
		switch (what) {
		case 0: do_store(&m, lane); break;
		case 1: do_pin(&m); break;
		case 2: do_unpin(&m, lane); break;
		case 3: do_retire(&m); break;
		case 4: do_free(&m, lane); break;
		default: do_alloc(&m, lane, most);
		}
		if (step % 250 == 0)
			check(&m);
		if (step % 1000 == 999) /* hints that got lost are made again, and only those */
			cr_assert_eq(xseg_page_rehint(&m.seg), 0);
	}
	check(&m);
	model_end(&m);
}
