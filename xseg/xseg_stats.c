/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of counters and histograms: given to a peer's shard, named for whoever reads them. */
#include <base/clock.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xseg/registry.h>
#include <xseg/stats.h>

/* A block is free when it says so or when the peer it counts for has gone. */
static bool reusable(const struct xseg *seg, uint64_t word)
{
	struct xseg_peer_view view;
	if (xseg_life_of(word) == XSEG_LIFE_FREE)
		return true;
	return !xseg_peer_view(seg, xseg_owner_of(word), &view) || view.life == XSEG_LIFE_DEAD ||
	       view.epoch != xseg_epoch_of(word);
}

static void fill(struct xseg_stats_block *block, const struct xseg_counter *counters,
	const char *const *histograms)
{
	memset(block->names, 0, sizeof(block->names));
	for (unsigned i = 0; i < XSEG_COUNTERS; i++)
		atomic_store_explicit(&block->counters[i], 0, memory_order_relaxed);
	for (unsigned i = 0; i < block->counter_count; i++) {
		if (!counters[i].name)
			continue;
		snprintf(
			block->names[i].name, sizeof(block->names[i].name), "%s", counters[i].name);
		snprintf(
			block->names[i].unit, sizeof(block->names[i].unit), "%s", counters[i].unit);
	}
	for (unsigned i = 0; i < XSEG_HISTOGRAMS; i++) {
		struct xseg_histogram *h = &block->histograms[i];
		memset(h->name, 0, sizeof(h->name));
		if (i < block->histogram_count)
			snprintf(h->name, sizeof(h->name), "%s", histograms[i]);
		atomic_store_explicit(&h->sum, 0, memory_order_relaxed);
		for (unsigned k = 0; k < HISTOGRAM_BUCKETS; k++)
			atomic_store_explicit(&h->counts[k], 0, memory_order_relaxed);
	}
}

int xseg_stats_open(const struct xseg *seg, uint32_t peer, uint16_t epoch, uint32_t lane,
	const struct xseg_counter *counters, uint32_t counter_count, const char *const *histograms,
	uint32_t histogram_count, struct xseg_stats_block **block)
{
	if (counter_count > XSEG_COUNTERS || histogram_count > XSEG_HISTOGRAMS)
		return -EINVAL;
	for (unsigned i = 0; i < XSEG_STATS_BLOCKS; i++) {
		struct xseg_stats_block *b = &seg->stats[i];
		uint64_t word = atomic_load_explicit(&b->word, memory_order_acquire);
		if (!reusable(seg, word) ||
			!atomic_compare_exchange_strong_explicit(&b->word, &word,
				xseg_life_word(XSEG_LIFE_JOINING, epoch, peer),
				memory_order_acq_rel, memory_order_relaxed))
			continue;
		b->lane = lane;
		b->counter_count = counter_count;
		b->histogram_count = histogram_count;
		fill(b, counters, histograms);
		atomic_store_explicit(&b->word, xseg_life_word(XSEG_LIFE_ALIVE, epoch, peer),
			memory_order_release);
		*block = b;
		return 0;
	}
	return -ENOSPC;
}

void xseg_stats_close(struct xseg_stats_block *block)
{
	atomic_store_explicit(&block->word, 0, memory_order_release);
}
