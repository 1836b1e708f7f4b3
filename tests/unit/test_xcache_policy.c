/* SPDX-License-Identifier: Apache-2.0 */
/* Each policy misses as often as its published model, within 0.5 %, at two sizes. */
#include <math.h>

#include "bench/traces.h"
#include "tests/lib/unit.h"

#define OFF_MAX 0.005 /* of the reference */

static const unsigned sizes[] = {1, 3}; /* .05 and .20 of the footprint */

static void check_trace(enum trace_name name)
{
	struct trace trace;
	char why[600];
	if (!trace_open(&trace, name, why, sizeof(why))) {
		printf("# %s is left out: %s\n", trace_names[name], why);
		return;
	}
	for (unsigned p = 0; p < TRACE_POLICIES; p++)
		for (unsigned i = 0; i < countof(sizes); i++) {
			double reference = trace_reference(name, p, sizes[i]);
			double ratio = trace_miss_ratio(
				&trace, trace_policies[p], trace_entries(&trace, sizes[i]));
			printf("# %s, %s, %.2f: %.4f, model %.4f\n", trace_names[name],
				trace_policies[p]->name, trace_shares[sizes[i]], ratio, reference);
			ck_assert_double_le(fabs(ratio / reference - 1), OFF_MAX);
		}
	trace_close(&trace);
}

UNIT(zipf) { check_trace(TRACE_ZIPF); }
UNIT(cloudphysics_io) { check_trace(TRACE_IO); }
UNIT(cloudphysics_w106) { check_trace(TRACE_W106); }
