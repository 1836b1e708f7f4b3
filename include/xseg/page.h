/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page pool. A page in the pool is an I/O buffer; a page that a peer stores is a
 * bucket; going from one to the other is a change of one word, not a copy.
 *
 * The descriptor's word is the truth; the hint bitmap only says where to look. A claim
 * clears hint bits, then moves each word FREE -> HELD by CAS: a double hint is harmless, a
 * lost one is re-made from the descriptors.
 *
 * Units: pages. Errors: -EAGAIN when the pool is (nearly) empty: wait, never fail the guest.
 * Ownership: pages from alloc are HELD by the lane of the magazine until freed, donated or
 * handed on in a request. Threads: a magazine belongs to one lane; page_* on descriptors: any.
 * Blocking: none.
 */
#ifndef SKERRY_XSEG_PAGE_H
#define SKERRY_XSEG_PAGE_H

#include <stdbool.h>
#include <xseg/segment.h>

#define XSEG_MAGAZINE_PAGES 256u
#define XSEG_MAGAZINE_BATCH 64u

/* Single pages that this lane holds ready: alloc and free touch nothing shared. */
struct xseg_magazine {
	const struct xseg *seg;
	uint64_t held_word; /* what a page word looks like when we hold it */
	uint32_t cursor;    /* hint word to look at next */
	uint32_t
		keep; /* at most: all lanes together never sit on more than an eighth of the pool */
	uint32_t count;
	uint32_t page[XSEG_MAGAZINE_PAGES];
};

void xseg_magazine_init(
	struct xseg_magazine *mag, const struct xseg *seg, uint16_t lane, uint16_t epoch);
/* Gives everything back to the pool. */
void xseg_magazine_fini(struct xseg_magazine *mag);

/*
 * `count` pages in at most `extents_max` runs, as long as the pool allows; how many runs
 * in *extents_count. All or nothing: 0 or -EAGAIN. 1 <= count <= 1024.
 */
int xseg_page_alloc(struct xseg_magazine *mag, uint32_t count, struct xseg_extent *extents,
	uint32_t extents_max, uint32_t *extents_count);
/* HELD pages, whichever lane claimed them, by who has them now. */
void xseg_page_free(struct xseg_magazine *mag, const struct xseg_extent *extents, uint32_t count);

/* HELD -> STORED by this lane: a page from alloc, or one taken by xseg_take_page(). */
void xseg_page_store(struct xseg_magazine *mag, uint32_t page);
/*
 * HELD -> KEPT: from now on it belongs to the port, and outlives this process. What the descriptor
 * says of it must be there before.
 */
void xseg_page_keep(const struct xseg *seg, uint32_t page, uint32_t port);
/* A stored or kept page is dropped by its holder: free now, or when the last pin goes. */
void xseg_page_retire(struct xseg_magazine *mag, uint32_t page);
/* A reader may look at a STORED or KEPT page until it unpins. Only the holder pins. */
void xseg_page_pin(const struct xseg *seg, uint32_t page);
/* Any lane; frees a RETIRED page with the last pin. */
void xseg_page_unpin(struct xseg_magazine *mag, uint32_t page);
/* Are there pins? A stored page without may be written in place by its holder. */
bool xseg_page_pinned(const struct xseg *seg, uint32_t page);

/* Gives back all that a port keeps; for whoever knows that nobody serves it. How many; what is
   still read goes with its last reader. */
uint32_t xseg_page_free_kept(const struct xseg *seg, uint32_t port);

/* Probably free pages, by the hints. */
uint32_t xseg_page_free_count(const struct xseg *seg);
/* Sets the hint of every FREE page that lost it; returns how many. Any time, any process. */
uint32_t xseg_page_rehint(const struct xseg *seg);

/* The door: do these extents lie in the segment? */
bool xseg_extents_check(const struct xseg *seg, const struct xseg_extent *extents, uint32_t count);

static inline unsigned xseg_page_state(uint64_t word) { return word & 0xfu; }
static inline uint32_t xseg_page_pins(uint64_t word) { return (uint32_t)(word >> 4) & 0xfffffffu; }
static inline uint16_t xseg_page_owner(uint64_t word) { return (uint16_t)(word >> 32); }
static inline uint16_t xseg_page_epoch(uint64_t word) { return (uint16_t)(word >> 48); }

/* So far ahead, descriptors are asked for that are looked at in a row: memory takes that long. */
#define XSEG_PAGE_AHEAD 128u

/*
 * The next page from *cursor (0 first) on that `port` keeps, XSEG_NONE: that any port keeps.
 * *cursor goes behind it; XSEG_NONE: that was all. All descriptors in a row: the memory takes the
 * time, a millisecond or two per GiB.
 */
static inline uint32_t xseg_page_next_kept(const struct xseg *seg, uint32_t port, uint32_t *cursor)
{
	while (*cursor < seg->page_count) {
		uint32_t page = (*cursor)++;
		__builtin_prefetch(&seg->descriptors[page + XSEG_PAGE_AHEAD]);
		uint64_t word =
			atomic_load_explicit(&seg->descriptors[page].word, memory_order_acquire);
		if (xseg_page_state(word) == XSEG_PAGE_KEPT &&
			(port == XSEG_NONE || xseg_page_owner(word) == port))
			return page;
	}
	return XSEG_NONE;
}

#endif
