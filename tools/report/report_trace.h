/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request, copied out of the table without stopping anybody.
 *
 * Units: ns since boot. Errors: -ENOENT the slot is free, -EAGAIN it changes too fast to be
 * copied. Ownership: JSON is a new reference. Threads: any. Blocking: reads /proc for names.
 */
#ifndef SKERRY_TOOLS_REPORT_TRACE_H
#define SKERRY_TOOLS_REPORT_TRACE_H

#include <jansson.h>
#include <xseg/registry.h>
#include <xseg/request.h>
#include <xseg/stats.h>

struct trace {
	uint32_t slot;
	uint64_t word, now_ns;
	struct xseg_request copy;
};

int report_trace_take(const struct xseg *seg, uint32_t slot, struct trace *trace);
/* Since it was submitted; 0 for one that is not under way. */
uint64_t report_trace_age_ns(const struct trace *trace);
json_t *report_trace(const struct xseg *seg, const struct trace *trace);
/* With all that lies in the slot. */
json_t *report_trace_details(const struct xseg *seg, const struct trace *trace);
/* Its name where a front has it open, else its id in hex. */
void report_trace_volume_name(const struct xseg *seg, uint64_t volume, char *out, size_t out_size);
/* Peers that run on this lane: "vol0,mem0". */
void report_trace_lane_peers(const struct xseg *seg, uint32_t lane, char *out, size_t out_size);

#endif
