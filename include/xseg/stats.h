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
	const char *unit; /* "" count, "B", "ns"; "now": of this moment, goes up and down */
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

/* --- one volume, on one lane of a front ------------------------------------------- */

/* A block for it, its name still unknown; -ENOSPC: it is not counted on its own. */
int xseg_volume_open(const struct xseg *seg, uint32_t peer, uint16_t epoch, uint32_t lane,
	uint64_t volume, struct xseg_volume_block **block);
void xseg_volume_close(struct xseg_volume_block *block);
/* Once; later names of the same volume are not taken. */
void xseg_volume_name(struct xseg_volume_block *block, const char *name);

/* A checked copy of what a block says; false when it is free or was given away meanwhile. */
struct xseg_volume_view {
	uint32_t peer, lane;
	uint16_t epoch;
	uint64_t volume, errors, bytes[XSEG_VOLUME_OPS];
	char name[VOLUME_NAME_LENGTH_MAX + 1]; /* "": not known */
};
bool xseg_volume_view(const struct xseg *seg, uint32_t index, struct xseg_volume_view *view);

/* One writer, as xseg_record(). */
static inline void xseg_volume_record(
	struct xseg_volume_block *block, unsigned op, uint32_t bytes, uint64_t ns)
{
	struct xseg_histogram *h = &block->latency[op];
	_Atomic uint64_t *const cells[] = {
		&h->counts[histogram_index(ns)], &h->sum, &block->bytes[op]};
	const uint64_t amounts[] = {1, ns, bytes};
	for (unsigned i = 0; i < 3; i++) {
		uint64_t value = atomic_load_explicit(cells[i], memory_order_relaxed);
		atomic_store_explicit(cells[i], value + amounts[i], memory_order_relaxed);
	}
}

#endif
