/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at a segment again and again and shows what happened in between.
 *
 * Units: ns. Errors: as run() of a verb. Threads: one. Blocking: until ^C, or `count` times.
 */
#ifndef SKERRY_TOOLS_CTL_WATCH_H
#define SKERRY_TOOLS_CTL_WATCH_H

#include "tools/ctl/ctl.h"
#include "tools/report/watch.h"

struct ctl_watch {
	uint64_t every_ns;
	uint64_t count; /* 0: until ^C */
	bool live;	/* a screen that is drawn over */
	void (*show)(struct ctl *ctl, const struct watch *before, const struct watch *now,
		double seconds);
};

int ctl_watch_run(struct ctl *ctl, const struct xseg *seg, const struct ctl_watch *watch);
/* Sleeps so long; false: ^C. */
bool ctl_watch_nap(uint64_t ns);
/* --interval, or `otherwise`. */
int ctl_watch_time(struct ctl *ctl, const char *name, uint64_t *ns);

extern const struct ctl_option ctl_option_interval, ctl_option_once, ctl_option_count;

#endif
