/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a segment says of itself, as JSON: the same from the keeper and, while it is away, from
 * xsegctl. Everything is read once and checked; a corrupt entry is left out.
 *
 * Units: bytes, ns. Ownership: new references. Threads: one. Blocking: reads /proc.
 */
#ifndef SKERRY_TOOLS_REPORT_H
#define SKERRY_TOOLS_REPORT_H

#include <jansson.h>
#include <xseg/segment.h>

#include "tools/report/fault.h"

#define REPORT_SCHEMA_VERSION 1

/* [{name, role, pid, state, lanes, inflight, health, reason}] */
json_t *report_peers(const struct xseg *seg);
/* [{name, peer, edge, to, generation, state}] */
json_t *report_edges(const struct xseg *seg);
/* {name, path, size, uuid, ..., pages{}, requests{}} */
json_t *report_segment(const struct xseg *seg);
/* [{name, role, counters{}, units{}, histograms{}}]; peer: only this one, or NULL */
json_t *report_stats(const struct xseg *seg, const char *peer);
/* A counter of one of those; 0: it has none of that name. Borrows; NULL will do. */
json_int_t report_counter(const json_t *stats, const char *name);

/*
 * {schema_version, healthy, segment, keeper, peers, edges}; steals `keeper` and `peers`. Peers
 * whose edges do not lead to a served peer get health "failed" and a reason here.
 */
json_t *report_status(const struct xseg *seg, json_t *keeper, json_t *peers);
/* health: "ok", "starting" or "failed" */
void report_set_health(json_t *peer, const char *health, const char *reason);

/* Reaps the dead, or with `dry_run` only counts them; -enum fault_code. */
int report_reap(const struct xseg *seg, bool dry_run, json_t **result, struct fault *fault);

#endif
