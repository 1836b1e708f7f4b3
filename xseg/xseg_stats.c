/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of counters and histograms: given to a peer's shard or to a volume that it serves. */
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

/* Ours, and seen by nobody until it says ALIVE. */
static bool claim(const struct xseg *seg, _Atomic uint64_t *place, uint32_t peer, uint16_t epoch)
{
	uint64_t word = atomic_load_explicit(place, memory_order_acquire);
	return reusable(seg, word) && atomic_compare_exchange_strong_explicit(place, &word,
					      xseg_life_word(XSEG_LIFE_JOINING, epoch, peer),
					      memory_order_acq_rel, memory_order_relaxed);
}

static void histogram_begin(struct xseg_histogram *h, const char *name)
{
	snprintf(h->name, sizeof(h->name), "%s", name);
	atomic_store_explicit(&h->sum, 0, memory_order_relaxed);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		atomic_store_explicit(&h->counts[i], 0, memory_order_relaxed);
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
		snprintf(
			block->names[i].help, sizeof(block->names[i].help), "%s", counters[i].help);
	}
	for (unsigned i = 0; i < XSEG_HISTOGRAMS; i++)
		histogram_begin(
			&block->histograms[i], i < block->histogram_count ? histograms[i] : "");
}

int xseg_stats_open(const struct xseg *seg, uint32_t peer, uint16_t epoch, uint32_t lane,
	const struct xseg_counter *counters, uint32_t counter_count, const char *const *histograms,
	uint32_t histogram_count, struct xseg_stats_block **block)
{
	if (counter_count > XSEG_COUNTERS || histogram_count > XSEG_HISTOGRAMS)
		return -EINVAL;
	for (unsigned i = 0; i < XSEG_STATS_BLOCKS; i++) {
		struct xseg_stats_block *b = &seg->stats[i];
		if (!claim(seg, &b->word, peer, epoch))
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

/* --- volumes ---------------------------------------------------------------------- */

static void volume_fill(struct xseg_volume_block *block, uint32_t lane, uint64_t volume)
{
	static const char *const names[XSEG_VOLUME_OPS] = {
		"read_ns", "write_ns", "flush_ns", "other_ns"};
	block->volume = volume;
	block->lane = lane;
	atomic_store_explicit(&block->named, 0, memory_order_relaxed);
	atomic_store_explicit(&block->errors, 0, memory_order_relaxed);
	memset(block->name, 0, sizeof(block->name));
	for (unsigned i = 0; i < XSEG_VOLUME_OPS; i++) {
		atomic_store_explicit(&block->bytes[i], 0, memory_order_relaxed);
		histogram_begin(&block->latency[i], names[i]);
	}
}

int xseg_volume_open(const struct xseg *seg, uint32_t peer, uint16_t epoch, uint32_t lane,
	uint64_t volume, struct xseg_volume_block **block)
{
	for (uint32_t i = 0; i < seg->volume_count; i++) {
		struct xseg_volume_block *b = &seg->volumes[i];
		if (!claim(seg, &b->word, peer, epoch))
			continue;
		volume_fill(b, lane, volume);
		atomic_store_explicit(&b->word, xseg_life_word(XSEG_LIFE_ALIVE, epoch, peer),
			memory_order_release);
		*block = b;
		return 0;
	}
	return -ENOSPC;
}

void xseg_volume_close(struct xseg_volume_block *block)
{
	atomic_store_explicit(&block->word, 0, memory_order_release);
}

void xseg_volume_name(struct xseg_volume_block *block, const char *name)
{
	if (atomic_load_explicit(&block->named, memory_order_relaxed))
		return;
	snprintf(block->name, sizeof(block->name), "%s", name);
	atomic_store_explicit(&block->named, 1, memory_order_release);
}

bool xseg_volume_view(const struct xseg *seg, uint32_t index, struct xseg_volume_view *view)
{
	if (index >= seg->volume_count)
		return false;
	const struct xseg_volume_block *b = &seg->volumes[index];
	uint64_t word = atomic_load_explicit(&b->word, memory_order_acquire);
	if (xseg_life_of(word) != XSEG_LIFE_ALIVE || xseg_owner_of(word) >= XSEG_PEERS_MAX)
		return false;
	memset(view, 0, sizeof(*view));
	view->peer = xseg_owner_of(word);
	view->epoch = (uint16_t)xseg_epoch_of(word);
	view->lane = b->lane;
	view->volume = b->volume;
	view->errors = atomic_load_explicit(&b->errors, memory_order_relaxed);
	for (unsigned i = 0; i < XSEG_VOLUME_OPS; i++)
		view->bytes[i] = atomic_load_explicit(&b->bytes[i], memory_order_relaxed);
	if (atomic_load_explicit(&b->named, memory_order_acquire))
		memcpy(view->name, b->name, sizeof(view->name) - 1);
	atomic_thread_fence(memory_order_acquire);
	return atomic_load_explicit(&b->word, memory_order_relaxed) == word;
}
