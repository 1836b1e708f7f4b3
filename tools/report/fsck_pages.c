/* SPDX-License-Identifier: Apache-2.0 */
/* Checks every page's word against who has it and who reads it. */
#include <xseg/page.h>
#include <xseg/request.h>

#include "tools/report/fsck.h"

/* A pin comes and goes within the time of a look: a surplus is believed after so many counts. */
#define COUNTS 8u
#define COUNTS_MAX 200u
#define SLOTS_BETWEEN 64u

static uint64_t word_of(const struct xseg *seg, uint32_t page)
{
	return atomic_load_explicit(&seg->descriptors[page].word, memory_order_acquire);
}

/* Readers of one page now; false: its word has changed while we counted. */
static bool count_readers(const struct xseg *seg, uint32_t page, uint64_t word, uint32_t *readers)
{
	*readers = 0;
	for (uint32_t slot = 0; slot < seg->request_count; slot++) {
		const struct xseg_request *r = &seg->requests[slot];
		if (slot % SLOTS_BETWEEN == 0 && word_of(seg, page) != word)
			return false;
		uint64_t state = atomic_load_explicit(&r->word, memory_order_acquire);
		uint32_t count = r->answer_count;
		if (xseg_word_state(state) == XSEG_REQUEST_FREE || (r->flags & XSEG_R_DONATED))
			continue;
		for (uint32_t i = 0; i < count && i < XSEG_EXTENTS; i++) {
			struct xseg_extent run = r->answer[i];
			*readers += page >= run.page && page - run.page < run.count;
		}
	}
	return word_of(seg, page) == word;
}

static bool pins_wrong(const struct xseg *seg, uint32_t page, uint64_t word)
{
	unsigned wrong = 0;
	for (unsigned i = 0; i < COUNTS_MAX && wrong < COUNTS; i++) {
		uint32_t readers;
		if (!count_readers(seg, page, word, &readers))
			continue;
		if (readers == xseg_page_pins(word))
			return false;
		wrong++;
	}
	return wrong == COUNTS;
}

static void check_pins(
	const struct xseg *seg, uint32_t page, uint64_t word, uint32_t readers, struct fsck *fsck)
{
	uint32_t pins = xseg_page_pins(word);
	fsck->pins += pins;
	if (pins != readers && pins_wrong(seg, page, word))
		fsck_look_say(fsck, FSCK_PAGE_PINS, page, word,
			"page %u has %u pins, but %u readers", page, pins, readers);
}

static void check_free(const struct xseg *seg, uint32_t page, uint64_t word, struct fsck *fsck)
{
	if (word != 0) {
		fsck_look_say(fsck, FSCK_PAGE_BAD, page, word,
			"page %u is free, but its word names an owner or pins (%016llx)", page,
			(unsigned long long)word);
		return;
	}
	uint64_t hints = atomic_load_explicit(&seg->page_hints[page / 64], memory_order_relaxed);
	if (!((hints >> page % 64) & 1u) && word_of(seg, page) == 0)
		fsck_look_say(
			fsck, FSCK_PAGE_HINT, page, word, "page %u is free, but has no hint", page);
}

/* It waits for whoever serves that port, so it is never in nobody's hands. */
static void check_kept(const struct xseg *seg, uint32_t page, uint64_t word,
	const struct fsck_refs *refs, struct fsck *fsck)
{
	uint32_t port = xseg_page_owner(word);
	if (port >= XSEG_PORTS_MAX || seg->ports[port].name[0] == '\0')
		fsck_look_say(fsck, FSCK_PAGE_BAD, page, word,
			"page %u is kept by port %u, which there is not", page, port);
	check_pins(seg, page, word, refs->readers[page], fsck);
}

static void check_used(const struct xseg *seg, uint32_t page, uint64_t word,
	const struct fsck_refs *refs, struct fsck *fsck)
{
	static const char *const states[] = {"free", "held", "stored", "retired"};
	unsigned state = xseg_page_state(word);
	uint32_t lane = xseg_page_owner(word);
	bool dead = fsck_look_lane_dead(fsck, lane, xseg_page_epoch(word));
	bool needed = refs->held[page] || refs->readers[page];
	if (dead && !needed) {
		fsck_look_say(fsck, FSCK_PAGE_LEAKED, page, word,
			"page %u is %s by lane %u epoch %u, which is gone", page, states[state],
			lane, xseg_page_epoch(word));
		return;
	}
	if (state != XSEG_PAGE_HELD)
		check_pins(seg, page, word, refs->readers[page], fsck);
	else if (xseg_page_pins(word))
		fsck_look_say(fsck, FSCK_PAGE_PINS, page, word, "page %u is held, but has %u pins",
			page, xseg_page_pins(word));
	if (state == XSEG_PAGE_RETIRED && xseg_page_pins(word) == 0)
		fsck_look_say(fsck, FSCK_PAGE_LEAKED, page, word,
			"page %u is retired, but nobody reads it", page);
	if (dead)
		return;
	struct fsck_owner *owner = &fsck->owners[lane];
	if (state == XSEG_PAGE_HELD && refs->held[page])
		owner->held_in_requests++;
	else if (state == XSEG_PAGE_HELD)
		owner->held_privately++; /* its magazine, and what it works on */
	else if (state == XSEG_PAGE_STORED)
		owner->stored++;
	else
		owner->retired++;
}

void fsck_pages(const struct xseg *seg, const struct fsck_refs *refs, struct fsck *fsck)
{
	for (uint32_t page = 0; page < seg->page_count; page++) {
		uint64_t word = word_of(seg, page);
		unsigned state = xseg_page_state(word);
		if (state >= XSEG_PAGE_STATES) {
			fsck->pages_bad++;
			fsck_look_say(fsck, FSCK_PAGE_BAD, page, word,
				"page %u is in no state (%016llx)", page, (unsigned long long)word);
			continue;
		}
		fsck->pages[state]++;
		if (state == XSEG_PAGE_FREE)
			check_free(seg, page, word, fsck);
		else if (state == XSEG_PAGE_KEPT)
			check_kept(seg, page, word, refs, fsck);
		else
			check_used(seg, page, word, refs, fsck);
	}
}
