/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters and histograms of a segment as OpenMetrics text, or as the text that Prometheus read
 * before: names, units and help come from the tables of counters that lie in the segment. Labels
 * are segment, peer, volume and op, no others.
 *
 * Units: as the format wants them, seconds and bytes. Ownership: the text is the caller's, free().
 * Threads: any. Blocking: reads /proc.
 */
#ifndef SKERRY_TOOLS_METRICS_H
#define SKERRY_TOOLS_METRICS_H

#include <xseg/segment.h>

enum metrics_format { METRICS_OPEN, METRICS_PROMETHEUS };
#define METRICS_OPEN_TYPE "application/openmetrics-text"

char *metrics_text(const struct xseg *seg, enum metrics_format format, size_t *size);

#endif
