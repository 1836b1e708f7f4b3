/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters and histograms of a segment as OpenMetrics text: names, units and help come from the
 * tables of counters that lie in the segment. Labels are peer, volume and op, no others.
 *
 * Units: as the format wants them, seconds and bytes. Ownership: the text is the caller's, free().
 * Threads: any. Blocking: reads /proc.
 */
#ifndef SKERRY_TOOLS_METRICS_H
#define SKERRY_TOOLS_METRICS_H

#include <xseg/segment.h>

#define METRICS_CONTENT_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

char *metrics_text(const struct xseg *seg, size_t *size);

#endif
