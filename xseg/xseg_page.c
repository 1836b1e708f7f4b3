/* SPDX-License-Identifier: Apache-2.0 */
/* The page pool: who has which page. */
#include <base/bits.h>
#include <base/must.h>
#include <errno.h>
#include <string.h>
#include <xseg/page.h>

static uint64_t page_word(unsigned state, uint32_t pins, uint16_t owner, uint16_t epoch)
{
	return (uint64_t)state | (uint64_t)pins << 4 | (uint64_t)owner << 32 |
	       (uint64_t)epoch << 48;
}

static uint32_t hint_words(const struct xseg *seg) { return (seg->page_count + 63) / 64; }

static void set_hint(const struct xseg *seg, uint32_t page)
{
	atomic_fetch_or_explicit(
		&seg->page_hints[page / 64], 1ull << page % 64, memory_order_release);
}

/* The truth about one page: ours now? A hint without a free page behind it is just dropped. */
static bool claim(const struct xseg_magazine *mag, uint32_t page)
{
	uint64_t expected = 0; /* FREE, nobody */
	if (page >= mag->seg->page_count)
		return false;
	return atomic_compare_exchange_strong_explicit(&mag->seg->descriptors[page].word, &expected,
		mag->held_word, memory_order_acquire, memory_order_relaxed);
}

static void release(const struct xseg *seg, uint32_t page)
{
	atomic_store_explicit(&seg->descriptors[page].word, 0, memory_order_release);
	set_hint(seg, page);
}

/* A run of `want` ones (or the longest shorter one) in a word; its length, *start its place. */
static uint32_t find_run(uint64_t word, uint32_t want, uint32_t *start)
{
	uint64_t runs = word, last = word;
	uint32_t length = 0;
	while (runs && length < want) {
		last = runs;
		runs &= runs >> 1;
		length++;
	}
	if (length == 0)
		return 0;
	*start = (uint32_t)__builtin_ctzll(last);
	return length;
}

/*
 * Which hinted pages of one word to take for `need` more: one whole run; with `any`, when the
 * pool is in pieces, whatever there is.
 */
static uint64_t choose(uint64_t hints, uint32_t need, bool any)
{
	uint32_t start = 0, run = find_run(hints, need, &start);
	if (run == need)
		return (run == 64 ? ~0ull : (1ull << run) - 1) << start;
	if (!any)
		return 0;
	uint64_t rest = hints;
	for (; rest && need; need--)
		rest &= rest - 1;
	return hints & ~rest;
}

/* Takes those of the hint bits that are still there. */
static uint64_t take_hints(const struct xseg *seg, uint32_t word, uint64_t bits)
{
	return bits &
	       atomic_fetch_and_explicit(&seg->page_hints[word], ~bits, memory_order_acquire);
}

/* Appends a page to the runs; false when there is no run left for it. */
static bool append(struct xseg_extent *extents, uint32_t max, uint32_t *count, uint32_t page)
{
	if (*count && extents[*count - 1].page + extents[*count - 1].count == page) {
		extents[*count - 1].count++;
		return true;
	}
	if (*count == max)
		return false;
	extents[(*count)++] = (struct xseg_extent){.page = page, .count = 1};
	return true;
}

/* Claims the pages behind some taken hint bits; gives back what does not fit any more. */
static uint32_t claim_bits(const struct xseg_magazine *mag, uint32_t word, uint64_t bits,
	struct xseg_extent *extents, uint32_t max, uint32_t *count)
{
	uint32_t got = 0;
	while (bits) {
		uint32_t page = word * 64 + (uint32_t)__builtin_ctzll(bits);
		bits &= bits - 1;
		if (!claim(mag, page))
			continue;
		if (append(extents, max, count, page))
			got++;
		else
			release(mag->seg, page);
	}
	return got;
}

static void release_extents(
	const struct xseg *seg, const struct xseg_extent *extents, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t k = 0; k < extents[i].count; k++)
			release(seg, extents[i].page + k);
}

/* In a pool in pieces, whole runs are looked for in so many hint words, not in all: 16 MiB. */
#define POOL_LOOK 64u

/*
 * From the pool itself: first whole runs, on a second way round whatever there is. The
 * cursor stays where pages were found, so neighbours in time are neighbours in place.
 */
static int pool_take(struct xseg_magazine *mag, uint32_t want, struct xseg_extent *extents,
	uint32_t max, uint32_t *count)
{
	const struct xseg *seg = mag->seg;
	uint32_t words = hint_words(seg), got = 0;
	*count = 0;
	for (uint32_t pass = 0; pass < 2; pass++) {
		uint32_t limit = pass == 0 && words > POOL_LOOK ? POOL_LOOK : words;
		for (uint32_t seen = 0; seen < limit && got < want; seen++) {
			uint32_t w = mag->cursor % words;
			uint64_t hints =
				atomic_load_explicit(&seg->page_hints[w], memory_order_relaxed);
			uint32_t need = want - got < 64 ? want - got : 64;
			uint64_t bits = choose(hints, need, pass == 1);
			if (bits == 0) {
				mag->cursor = (w + 1) % words;
				continue;
			}
			bits = take_hints(seg, w, bits);
			got += claim_bits(mag, w, bits, extents, max, count);
			if (got < want && *count == max)
				goto out;
			if (need == 64 || pass == 1)
				mag->cursor = (w + 1) % words;
		}
	}
out:
	if (got == want)
		return 0;
	release_extents(seg, extents, *count);
	*count = 0;
	return -EAGAIN;
}

static void refill(struct xseg_magazine *mag)
{
	struct xseg_extent extents[XSEG_MAGAZINE_BATCH];
	uint32_t count;
	uint32_t most = mag->keep < XSEG_MAGAZINE_BATCH ? mag->keep : XSEG_MAGAZINE_BATCH;
	/* a last try is for one: whatever `most` is, the pool can be used up */
	for (uint32_t batch = most; batch; batch = batch > 1 && batch < 8 ? 1 : batch / 8) {
		if (pool_take(mag, batch, extents, XSEG_MAGAZINE_BATCH, &count) != 0)
			continue;
		/* the lowest page last: a stack then hands them out in rising order */
		for (uint32_t i = count; i-- > 0;)
			for (uint32_t k = extents[i].count; k-- > 0;)
				mag->page[mag->count++] = extents[i].page + k;
		return;
	}
}

void xseg_magazine_init(
	struct xseg_magazine *mag, const struct xseg *seg, uint16_t lane, uint16_t epoch)
{
	mag->seg = seg;
	mag->held_word = page_word(XSEG_PAGE_HELD, 0, lane, epoch);
	mag->count = 0;
	mag->keep = seg->page_count / (8 * seg->lane_count);
	if (mag->keep == 0)
		mag->keep = 1;
	if (mag->keep > XSEG_MAGAZINE_PAGES)
		mag->keep = XSEG_MAGAZINE_PAGES;
	/* lanes begin at different places, so they rarely meet on a hint word */
	mag->cursor = (uint32_t)((uint64_t)hint_words(seg) * lane / XSEG_LANES_MAX);
}

void xseg_magazine_fini(struct xseg_magazine *mag)
{
	while (mag->count)
		release(mag->seg, mag->page[--mag->count]);
}

int xseg_page_alloc(struct xseg_magazine *mag, uint32_t count, struct xseg_extent *extents,
	uint32_t extents_max, uint32_t *extents_count)
{
	must(count > 0 && extents_max > 0);
	if (count > 1)
		return pool_take(mag, count, extents, extents_max, extents_count);
	if (unlikely(mag->count == 0))
		refill(mag);
	if (unlikely(mag->count == 0))
		return -EAGAIN;
	extents[0] = (struct xseg_extent){.page = mag->page[--mag->count], .count = 1};
	*extents_count = 1;
	return 0;
}

/* One page that this lane may keep ready, or that goes back to the pool. */
static void free_page(struct xseg_magazine *mag, uint32_t page)
{
	_Atomic uint64_t *place = &mag->seg->descriptors[page].word;
	if (mag->count < mag->keep) {
		/* the truth must name us before we hand it out as ours */
		if (atomic_load_explicit(place, memory_order_relaxed) != mag->held_word)
			atomic_store_explicit(place, mag->held_word, memory_order_relaxed);
		mag->page[mag->count++] = page;
		return;
	}
	release(mag->seg, page);
}

/* Whole runs go back at once: words first, then the hints of up to 64 pages in one go. */
static void free_run(const struct xseg *seg, uint32_t page, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		atomic_store_explicit(&seg->descriptors[page + i].word, 0, memory_order_release);
	while (count) {
		uint32_t start = page % 64, n = count < 64 - start ? count : 64 - start;
		uint64_t bits = (n == 64 ? ~0ull : (1ull << n) - 1) << start;
		atomic_fetch_or_explicit(&seg->page_hints[page / 64], bits, memory_order_release);
		page += n;
		count -= n;
	}
}

void xseg_page_free(struct xseg_magazine *mag, const struct xseg_extent *extents, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (extents[i].count == 1)
			free_page(mag, extents[i].page);
		else
			free_run(mag->seg, extents[i].page, extents[i].count);
	}
}

void xseg_page_store(struct xseg_magazine *mag, uint32_t page)
{
	_Atomic uint64_t *place = &mag->seg->descriptors[page].word;
	uint64_t stored = mag->held_word - XSEG_PAGE_HELD + XSEG_PAGE_STORED;
	atomic_store_explicit(place, stored, memory_order_release);
}

void xseg_page_keep(const struct xseg *seg, uint32_t page, uint32_t port)
{
	atomic_store_explicit(&seg->descriptors[page].word,
		page_word(XSEG_PAGE_KEPT, 0, (uint16_t)port, 0), memory_order_release);
}

void xseg_page_retire(struct xseg_magazine *mag, uint32_t page)
{
	_Atomic uint64_t *place = &mag->seg->descriptors[page].word;
	uint64_t word = atomic_load_explicit(place, memory_order_acquire);
	const uint64_t owner = mag->held_word >> 32 << 32;
	for (;;) {
		unsigned state = xseg_page_state(word);
		if (state != XSEG_PAGE_STORED && state != XSEG_PAGE_KEPT)
			return; /* corrupted: must not free what others hold */
		if (xseg_page_pins(word) == 0) {
			/* only the holder pins, and that is us: nobody can come in between */
			atomic_store_explicit(place, mag->held_word, memory_order_relaxed);
			free_page(mag, page);
			return;
		}
		uint64_t retired = owner | ((uint32_t)word & ~0xfu) | XSEG_PAGE_RETIRED;
		if (atomic_compare_exchange_weak_explicit(
			    place, &word, retired, memory_order_acq_rel, memory_order_acquire))
			return;
	}
}

void xseg_page_pin(const struct xseg *seg, uint32_t page)
{
	atomic_fetch_add_explicit(&seg->descriptors[page].word, 1u << 4, memory_order_acquire);
}

void xseg_page_unpin(struct xseg_magazine *mag, uint32_t page)
{
	_Atomic uint64_t *place = &mag->seg->descriptors[page].word;
	uint64_t word = atomic_load_explicit(place, memory_order_relaxed);
	for (;;) {
		if (xseg_page_pins(word) == 0)
			return; /* wild: never let the count run into the state's neighbours */
		uint64_t next = word - (1u << 4);
		if (xseg_page_state(next) == XSEG_PAGE_RETIRED && xseg_page_pins(next) == 0)
			next = mag->held_word;
		if (atomic_compare_exchange_weak_explicit(
			    place, &word, next, memory_order_acq_rel, memory_order_relaxed)) {
			if (next == mag->held_word)
				free_page(mag, page);
			return;
		}
	}
}

bool xseg_page_pinned(const struct xseg *seg, uint32_t page)
{
	return xseg_page_pins(atomic_load_explicit(
		       &seg->descriptors[page].word, memory_order_acquire)) != 0;
}

static bool free_kept(const struct xseg *seg, uint32_t page)
{
	_Atomic uint64_t *place = &seg->descriptors[page].word;
	uint64_t word = atomic_load_explicit(place, memory_order_acquire), next;
	do {
		if (xseg_page_state(word) != XSEG_PAGE_KEPT)
			return false;
		next = xseg_page_pins(word) ? word - XSEG_PAGE_KEPT + XSEG_PAGE_RETIRED : 0;
	} while (!atomic_compare_exchange_weak_explicit(
		place, &word, next, memory_order_acq_rel, memory_order_acquire));
	if (next == 0)
		set_hint(seg, page);
	return true;
}

uint32_t xseg_page_free_kept(const struct xseg *seg, uint32_t port)
{
	uint32_t cursor = 0, count = 0, page;
	while ((page = xseg_page_next_kept(seg, port, &cursor)) != XSEG_NONE)
		count += free_kept(seg, page);
	return count;
}

uint32_t xseg_page_free_count(const struct xseg *seg)
{
	return bits_count(seg->page_hints, hint_words(seg));
}

uint32_t xseg_page_rehint(const struct xseg *seg)
{
	uint32_t lost = 0;
	for (uint32_t page = 0; page < seg->page_count; page++) {
		uint64_t hints =
			atomic_load_explicit(&seg->page_hints[page / 64], memory_order_acquire);
		if ((hints >> page % 64) & 1u)
			continue;
		uint64_t word =
			atomic_load_explicit(&seg->descriptors[page].word, memory_order_acquire);
		if (xseg_page_state(word) != XSEG_PAGE_FREE)
			continue;
		set_hint(seg, page);
		lost++;
	}
	return lost;
}

bool xseg_extents_check(const struct xseg *seg, const struct xseg_extent *extents, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (extents[i].count == 0 || extents[i].page >= seg->page_count ||
			extents[i].count > seg->page_count - extents[i].page)
			return false;
	return true;
}
