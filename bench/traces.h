/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Traces of block requests, and what published policies make of them: the index's policies have
 * to do the same.
 *
 * Units: an access is one bucket of 4 KiB. Errors: must(), but for a trace that is not there.
 * Threads: one. Blocking: reading a file, through xz.
 */
#ifndef SKERRY_BENCH_TRACES_H
#define SKERRY_BENCH_TRACES_H

#include <stdbool.h>
#include <stdint.h>

#include "peers/cache/xcache.h"

enum trace_name { TRACE_ZIPF, TRACE_IO, TRACE_W106, TRACES };
enum { TRACE_POLICIES = 3, TRACE_SIZES = 5 };

struct trace {
	uint32_t *bucket; /* numbers of them, in order */
	uint32_t count;
	uint32_t bucket_max;
	uint32_t footprint; /* different ones */
};

extern const char *const trace_names[TRACES];
extern const struct xcache_policy *const trace_policies[TRACE_POLICIES];
extern const double trace_shares[TRACE_SIZES]; /* of the footprint */

/* False: `why` says in a sentence why it is not there. */
bool trace_open(struct trace *trace, enum trace_name name, char *why, size_t why_size);
void trace_close(struct trace *trace);

/* Misses by accesses, in an index that holds so many entries. */
double trace_miss_ratio(
	const struct trace *trace, const struct xcache_policy *policy, uint32_t entries);
uint32_t trace_entries(const struct trace *trace, unsigned size);
double trace_reference(enum trace_name name, unsigned policy, unsigned size);

#endif
