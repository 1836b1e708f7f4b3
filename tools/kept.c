/* SPDX-License-Identifier: Apache-2.0 */
/* Counts and frees the pages that ports keep, by their descriptors. */
#include "tools/kept.h"

#include <base/name.h>
#include <stdbool.h>
#include <string.h>
#include <xseg/page.h>

static bool kept_word(const struct xseg *seg, uint32_t page, uint64_t *word)
{
	*word = atomic_load_explicit(&seg->descriptors[page].word, memory_order_acquire);
	return xseg_page_state(*word) == XSEG_PAGE_KEPT;
}

static bool is_dirty(const struct xseg *seg, uint32_t page)
{
	return atomic_load_explicit(&seg->descriptors[page].dirty, memory_order_relaxed) != 0;
}

void kept_count(const struct xseg *seg, uint32_t port, struct kept *kept)
{
	uint64_t word;
	*kept = (struct kept){0};
	for (uint32_t page = 0; page < seg->page_count; page++) {
		if (!kept_word(seg, page, &word))
			continue;
		if (port != XSEG_NONE && xseg_page_owner(word) != port)
			continue;
		kept->pages++;
		kept->dirty += is_dirty(seg, page) ? XSEG_PAGE : 0;
	}
}

uint32_t kept_orphan(const struct xseg *seg, bool (*known)(void *context, const char *peer),
	void *context, struct kept *kept)
{
	uint64_t word, seen = 0;
	for (uint32_t page = 0; page < seg->page_count; page++) {
		char name[NAME_LENGTH_MAX + 1] = "";
		if (!kept_word(seg, page, &word) || !is_dirty(seg, page))
			continue;
		uint32_t port = xseg_page_owner(word);
		if (port >= XSEG_PORTS_MAX || (seen >> port) & 1u)
			continue;
		seen |= 1ull << port;
		memcpy(name, seg->ports[port].name, NAME_LENGTH_MAX);
		if (known(context, name))
			continue;
		kept_count(seg, port, kept);
		return port;
	}
	return XSEG_NONE;
}

static bool free_page(const struct xseg *seg, uint32_t page, uint64_t word)
{
	uint64_t next;
	do {
		if (xseg_page_state(word) != XSEG_PAGE_KEPT)
			return false;
		next = xseg_page_pins(word) ? word - XSEG_PAGE_KEPT + XSEG_PAGE_RETIRED : 0;
	} while (!atomic_compare_exchange_weak_explicit(&seg->descriptors[page].word, &word, next,
		memory_order_acq_rel, memory_order_acquire));
	if (next == 0)
		atomic_fetch_or_explicit(
			&seg->page_hints[page / 64], 1ull << page % 64, memory_order_release);
	return true;
}

uint32_t kept_free(const struct xseg *seg, uint32_t port)
{
	uint64_t word;
	uint32_t count = 0;
	for (uint32_t page = 0; page < seg->page_count; page++)
		if (kept_word(seg, page, &word) && xseg_page_owner(word) == port)
			count += free_page(seg, page, word);
	return count;
}
