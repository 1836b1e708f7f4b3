/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does each policy of the index miss as often as its published model? Recorded traces from the
 * folder that SKERRY_TRACES names, and one made here, at five sizes.
 */
#include <math.h>

#include "bench/common.h"
#include "bench/traces.h"

#define OFF_MAX 0.005 /* of the reference */

/* True: it is near enough. */
static bool measure(struct bench *bench, const struct trace *trace, enum trace_name name,
	unsigned policy, unsigned size)
{
	char what[64], beside[48];
	double reference = trace_reference(name, policy, size);
	double ratio = trace_miss_ratio(trace, trace_policies[policy], trace_entries(trace, size));
	double off = ratio / reference - 1;
	snprintf(what, sizeof(what), "%s, %s, %.2f", trace_names[name],
		trace_policies[policy]->name, trace_shares[size]);
	snprintf(beside, sizeof(beside), "model %.4f, off by %+.3f %%%s", reference, 100 * off,
		fabs(off) <= OFF_MAX ? "" : ": TOO MUCH");
	bench_row(bench, what, ratio, "misses", reference, beside);
	return fabs(off) <= OFF_MAX;
}

static unsigned measure_all(struct bench *bench, const struct trace *trace, enum trace_name name)
{
	unsigned off = 0;
	for (unsigned policy = 0; policy < TRACE_POLICIES; policy++)
		for (unsigned size = 0; size < TRACE_SIZES; size += bench_pick(bench, 1, 4))
			off += !measure(bench, trace, name, policy, size);
	return off;
}

int main(int argc, char **argv)
{
	struct bench bench;
	unsigned off = 0;
	bench_begin(&bench, "bench_policy: who has to go, in shares of the footprint", argc, argv);
	for (unsigned name = 0; name < TRACES; name++) {
		struct trace trace;
		char why[600];
		if (!trace_open(&trace, name, why, sizeof(why))) {
			printf("%s is left out: %s\n", trace_names[name], why);
			continue;
		}
		printf("%s: %u accesses, %u buckets\n", trace_names[name], trace.count,
			trace.footprint);
		off += measure_all(&bench, &trace, name);
		trace_close(&trace);
	}
	printf("%u of %u figures are more than %g %% off their model's\n\n", off, bench.count,
		100 * OFF_MAX);
	return bench_end(&bench);
}
