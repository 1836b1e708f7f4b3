/* SPDX-License-Identifier: Apache-2.0 */
/* Has a segment's dead reaped, and says what that came to. */
#include <string.h>
#include <xseg/lane.h>
#include <xseg/reap.h>
#include <xseg/registry.h>

#include "tools/report/report.h"

static unsigned dead_lanes(const struct xseg *seg)
{
	unsigned count = 0;
	for (uint32_t i = 0; i < seg->lane_count; i++) {
		uint64_t word = atomic_load_explicit(&seg->lanes[i].word, memory_order_acquire);
		bool claimed = xseg_life_of(word) == XSEG_LIFE_ALIVE;
		if (claimed && !xseg_lane_alive(seg, i, (uint16_t)xseg_epoch_of(word)))
			count++;
	}
	return count;
}

int report_reap(const struct xseg *seg, bool dry_run, json_t **result, struct fault *fault)
{
	struct xseg_reap_report report = {0};
	report.lanes = dry_run ? dead_lanes(seg) : 0;
	int rc = dry_run ? 0 : xseg_reap(seg, &report);
	if (rc)
		return fault_set(fault, fault_code_of_errno(rc), seg->name, "try again in a moment",
			"segment '%s' cannot be reaped: %s", seg->name,
			fault_code_of_errno(rc) == FAULT_BUSY ? "another process is at it"
							      : strerror(-rc));
	bool changed = report.lanes || report.freed || report.resubmitted || report.pages;
	*result = json_pack("{s:i, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:b, s:b}",
		"schema_version", REPORT_SCHEMA_VERSION, "segment", seg->name, "lanes",
		(int)report.lanes, "freed", (int)report.freed, "resubmitted",
		(int)report.resubmitted, "refused", (int)report.refused, "pages", (int)report.pages,
		"hints", (int)report.hints, "pending", (int)report.pending, "kept",
		(int)report.kept, "took_ns", (json_int_t)report.took_ns, "changed",
		changed && !dry_run, "dry_run", dry_run);
	return 0;
}
