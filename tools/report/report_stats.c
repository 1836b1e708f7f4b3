/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up the counters and histograms that a peer's shards keep in the segment. */
#include <base/histogram.h>
#include <base/must.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/registry.h>

#include "tools/report/report.h"

struct counter_sum {
	char name[sizeof(((struct xseg_counter_name *)0)->name) + 1];
	char unit[sizeof(((struct xseg_counter_name *)0)->unit) + 1];
	uint64_t value;
};

struct histogram_sum {
	char name[sizeof(((struct xseg_histogram *)0)->name) + 1];
	uint64_t sum, count;
	uint64_t counts[HISTOGRAM_BUCKETS];
};

/* All shards of one peer. */
struct sums {
	struct counter_sum counters[XSEG_COUNTERS];
	struct histogram_sum histograms[XSEG_HISTOGRAMS];
	uint32_t counter_count, histogram_count;
};

static uint32_t at_most(uint32_t value, uint32_t max) { return value < max ? value : max; }

static void add_counters(struct sums *sums, const struct xseg_stats_block *block)
{
	uint32_t count = at_most(block->counter_count, XSEG_COUNTERS);
	for (uint32_t i = 0; i < count; i++) {
		struct counter_sum *sum = &sums->counters[i];
		memcpy(sum->name, block->names[i].name, sizeof(sum->name) - 1);
		memcpy(sum->unit, block->names[i].unit, sizeof(sum->unit) - 1);
		sum->value += atomic_load_explicit(&block->counters[i], memory_order_relaxed);
	}
	if (count > sums->counter_count)
		sums->counter_count = count;
}

static void add_histograms(struct sums *sums, const struct xseg_stats_block *block)
{
	uint32_t count = at_most(block->histogram_count, XSEG_HISTOGRAMS);
	for (uint32_t i = 0; i < count; i++) {
		const struct xseg_histogram *from = &block->histograms[i];
		struct histogram_sum *sum = &sums->histograms[i];
		memcpy(sum->name, from->name, sizeof(sum->name) - 1);
		sum->sum += atomic_load_explicit(&from->sum, memory_order_relaxed);
		for (unsigned j = 0; j < HISTOGRAM_BUCKETS; j++) {
			uint64_t n = atomic_load_explicit(&from->counts[j], memory_order_relaxed);
			sum->counts[j] += n;
			sum->count += n;
		}
	}
	if (count > sums->histogram_count)
		sums->histogram_count = count;
}

static json_t *quantile(const struct histogram_sum *sum, double share)
{
	return json_integer((json_int_t)histogram_quantile(sum->counts, share));
}

static json_t *histogram_report(const struct histogram_sum *sum)
{
	json_int_t mean = sum->count ? (json_int_t)(sum->sum / sum->count) : 0;
	return json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o}", "unit", "ns", "count",
		(json_int_t)sum->count, "mean", mean, "p50", quantile(sum, 0.5), "p90",
		quantile(sum, 0.9), "p99", quantile(sum, 0.99), "p99_9", quantile(sum, 0.999));
}

static json_t *sums_report(const struct sums *sums, const struct xseg_peer_view *view)
{
	json_t *counters = json_object(), *units = json_object(), *histograms = json_object();
	for (uint32_t i = 0; i < sums->counter_count; i++) {
		const struct counter_sum *sum = &sums->counters[i];
		if (!sum->name[0])
			continue;
		json_object_set_new(counters, sum->name, json_integer((json_int_t)sum->value));
		if (sum->unit[0])
			json_object_set_new(units, sum->name, json_string(sum->unit));
	}
	for (uint32_t i = 0; i < sums->histogram_count; i++)
		if (sums->histograms[i].name[0])
			json_object_set_new(histograms, sums->histograms[i].name,
				histogram_report(&sums->histograms[i]));
	return json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", view->name, "role", view->role,
		"counters", counters, "units", units, "histograms", histograms);
}

static void add_block(struct sums *sums, const struct xseg_stats_block *block, uint32_t peer)
{
	uint64_t word = atomic_load_explicit(&block->word, memory_order_acquire);
	if (xseg_life_of(word) != XSEG_LIFE_ALIVE || xseg_owner_of(word) != peer)
		return;
	add_counters(sums, block);
	add_histograms(sums, block);
}

json_t *report_stats(const struct xseg *seg, const char *peer)
{
	json_t *peers = json_array();
	struct sums *sums = malloc(sizeof(*sums));
	must(sums);
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++) {
		struct xseg_peer_view view;
		if (!xseg_peer_view(seg, i, &view) || (peer && strcmp(peer, view.name)))
			continue;
		memset(sums, 0, sizeof(*sums));
		for (uint32_t j = 0; j < XSEG_STATS_BLOCKS; j++)
			add_block(sums, &seg->stats[j], i);
		json_array_append_new(peers, sums_report(sums, &view));
	}
	free(sums);
	return peers;
}

json_int_t report_counter(const json_t *stats, const char *name)
{
	return json_integer_value(json_object_get(json_object_get(stats, "counters"), name));
}
