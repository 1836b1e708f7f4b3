/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a long command is, on stderr: a bar on a terminal, a line a second or JSON elsewhere.
 *
 * Units: bytes. Threads: one. Blocking: writes to stderr at most ten times a second.
 */
#ifndef SKERRY_TOOLS_CTL_PROGRESS_H
#define SKERRY_TOOLS_CTL_PROGRESS_H

#include "tools/ctl/ctl.h"

struct ctl_progress {
	enum ctl_progress_mode mode;
	const char *operation, *object;
	uint64_t total; /* 0: not known */
	uint64_t start_ns, shown_ns;
};

/* Reads --progress. */
void ctl_progress_begin(struct ctl_progress *progress, const struct ctl *ctl, const char *operation,
	const char *object, uint64_t total);
void ctl_progress_show(struct ctl_progress *progress, uint64_t done);
/* The last word, and the bar's line is free again. */
void ctl_progress_end(struct ctl_progress *progress, uint64_t done);
/* MB/s since begin. */
double ctl_progress_rate(const struct ctl_progress *progress, uint64_t done);

#endif
