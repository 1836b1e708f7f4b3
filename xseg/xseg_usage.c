/* SPDX-License-Identifier: Apache-2.0 */
/* How full a segment is: a count over all tables, from what their words say. */
#include <string.h>
#include <xseg/page.h>
#include <xseg/request.h>

void xseg_segment_usage(const struct xseg *seg, struct xseg_usage *usage)
{
	memset(usage, 0, sizeof(*usage));
	usage->size = seg->size;
	usage->pages = seg->page_count;
	usage->overhead = seg->size - ((uint64_t)seg->page_count << XSEG_PAGE_SHIFT);
	uint32_t by_state[16] = {0};
	for (uint32_t i = 0; i < seg->page_count; i++)
		by_state[xseg_page_state(
			atomic_load_explicit(&seg->descriptors[i].word, memory_order_relaxed))]++;
	usage->pages_free = by_state[XSEG_PAGE_FREE];
	usage->pages_held = by_state[XSEG_PAGE_HELD];
	usage->pages_stored = by_state[XSEG_PAGE_STORED];
	usage->pages_kept = by_state[XSEG_PAGE_KEPT];
	usage->pages_retired = by_state[XSEG_PAGE_RETIRED];
	usage->requests = seg->request_count;
	for (uint32_t i = 0; i < seg->request_count; i++) {
		unsigned state = xseg_word_state(
			atomic_load_explicit(&seg->requests[i].word, memory_order_relaxed));
		if (state < XSEG_REQUEST_STATES)
			usage->requests_by_state[state]++;
	}
}
