/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What everybody in a segment has done so far, copied out of it without stopping anybody; two such
 * copies, one after the other, say what happens now. `top`, `stats --watch` and the metrics page
 * are made of it.
 *
 * Units: ns, bytes. Ownership: watch_free() what watch_take() made. Threads: any. Blocking: reads
 * /proc to tell the living from the dead.
 */
#ifndef SKERRY_TOOLS_WATCH_H
#define SKERRY_TOOLS_WATCH_H

#include <base/histogram.h>
#include <xseg/registry.h>
#include <xseg/stats.h>

struct watch_histogram {
	char name[24];
	uint64_t sum, count;
	uint64_t counts[HISTOGRAM_BUCKETS];
};

struct watch_counter {
	char name[41], unit[9], help[65];
	uint64_t value;
};

struct watch_peer {
	struct xseg_peer_view view;
	uint32_t counter_count, histogram_count;
	struct watch_counter counters[XSEG_COUNTERS];
	struct watch_histogram histograms[XSEG_HISTOGRAMS];
	/* in the request table now: waiting at its port, being served by it, sent by it */
	uint32_t queued, served, sent;
};

/* All lanes of all fronts. */
struct watch_volume {
	uint64_t volume, errors;
	char name[VOLUME_NAME_LENGTH_MAX + 1];
	uint64_t bytes[XSEG_VOLUME_OPS];
	struct watch_histogram latency[XSEG_VOLUME_OPS];
	uint32_t sent; /* requests of it in the table now */
};

struct watch_lane {
	uint32_t lane;
	pid_t pid;
	uint16_t epoch;
	bool asleep;
	uint64_t turns, busy_ns, asleep_ns, sleeps;
};

struct watch {
	uint64_t time_ns;
	uint32_t peer_count, volume_count, lane_count;
	struct watch_peer *peers;
	struct watch_volume *volumes;
	struct watch_lane lanes[XSEG_LANES_MAX];
	struct xseg_usage usage;
};

void watch_take(const struct xseg *seg, struct watch *watch);
void watch_free(struct watch *watch);

/* What was added since `before`; one that began anew in between counts from zero. */
struct watch_histogram watch_since(
	const struct watch_histogram *now, const struct watch_histogram *before);
/* The same of one peer, volume or lane of that other copy; NULL: it was not there. */
const struct watch_peer *watch_peer_before(
	const struct watch *before, const struct watch_peer *now);
const struct watch_volume *watch_volume_before(
	const struct watch *before, const struct watch_volume *now);
const struct watch_lane *watch_lane_before(
	const struct watch *before, const struct watch_lane *now);

const struct watch_counter *watch_counter(const struct watch_peer *peer, const char *name);
const struct watch_histogram *watch_histogram(const struct watch_peer *peer, const char *name);

/* What kinds of request peers count, by the names of their counters. */
struct watch_op {
	const char *op;
	const char *counters[2], *bytes, *histogram;
};
#define WATCH_OPS 4u
extern const struct watch_op watch_ops[WATCH_OPS];
extern const char *const watch_volume_ops[XSEG_VOLUME_OPS];

#endif
