/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long commands as jobs: done by a process of their own that goes on when its client leaves, and
 * of which a killed one's traces are tidied up (see job.h).
 *
 * Units: bytes. Errors: as ctl.h. Ownership: body's context is the caller's; body runs in the
 * child, so what it changes there is not seen here but for the result. Threads: one. Blocking:
 * until the job ends, unless --detach.
 */
#ifndef SKERRY_TOOLS_CTL_WORK_H
#define SKERRY_TOOLS_CTL_WORK_H

#include "tools/ctl/ctl_output.h"
#include "tools/ctl/ctl_progress.h"
#include "tools/report/job.h"

struct ctl_work {
	struct ctl *ctl;
	const char *kind, *object; /* "volume.import", the volume */
	bool here;		   /* in this process: its stdin or stdout is part of it */
	bool keeper_only;	   /* it needs no composer */
	int (*body)(struct ctl_work *work, void *context);
	void *context;
	const struct ctl_column *columns; /* of the result */
	size_t column_count;
	/* body's */
	struct job job;
	json_t *result;
	uint64_t done;
	struct ctl_progress progress; /* start_ns, and with `here` what is shown */
};

extern const struct ctl_option ctl_option_detach;

/* Runs it and prints its result. `detail` is stolen. */
int ctl_work_run(struct ctl_work *work, json_t *detail);
/* From body. */
void ctl_work_progress(struct ctl_work *work, uint64_t done, uint64_t total);
/* Undoes what a killed job left and ends it; 0 when there is nothing to do (any more). */
int ctl_work_tidy(struct ctl *ctl, const char *segment, unsigned id);
/* All that were killed; the first error. */
int ctl_work_tidy_all(struct ctl *ctl, const char *segment);

/* ctl_import.c: what a killed import has made stays; *whole: it was complete; *left: what to
   say. */
int ctl_import_tidy(struct ctl *ctl, const json_t *detail, bool *whole, const char **left);

#endif
