/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters and histograms by table, in the segment: one writer lane, any readers.
 *
 * Errors: -ENOSPC. Threads: add/record by the lane that opened the block; reading by any.
 * Blocking: none.
 */
#ifndef SKERRY_XSEG_STATS_H
#define SKERRY_XSEG_STATS_H

#include <xseg/segment.h>

struct xseg_counter {
	const char *name; /* "reads" */
	const char *unit; /* "" count, "B", "ns" */
	const char *help; /* one line, for manual and metrics page */
};

int xseg_stats_open(const struct xseg *seg, uint32_t peer, uint16_t epoch, uint32_t lane,
	const struct xseg_counter *counters, uint32_t counter_count, const char *const *histograms,
	uint32_t histogram_count, struct xseg_stats_block **block);
void xseg_stats_close(struct xseg_stats_block *block);

/* One writer: a plain add, published without a locked instruction. */
static inline void xseg_count(struct xseg_stats_block *block, unsigned counter, uint64_t amount)
{
	uint64_t value = atomic_load_explicit(&block->counters[counter], memory_order_relaxed);
	atomic_store_explicit(&block->counters[counter], value + amount, memory_order_relaxed);
}

static inline void xseg_record(struct xseg_stats_block *block, unsigned histogram, uint64_t value)
{
	struct xseg_histogram *h = &block->histograms[histogram];
	unsigned i = histogram_index(value);
	uint64_t n = atomic_load_explicit(&h->counts[i], memory_order_relaxed);
	atomic_store_explicit(&h->counts[i], n + 1, memory_order_relaxed);
	uint64_t s = atomic_load_explicit(&h->sum, memory_order_relaxed);
	atomic_store_explicit(&h->sum, s + value, memory_order_relaxed);
}

#endif
