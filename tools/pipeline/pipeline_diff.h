/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must be done so that a pipeline that runs becomes another: the fewest steps, in an order
 * in which nobody loses a request.
 *
 *   1. new processes start, the lowest first
 *   2. processes whose options changed are stopped and started, one after the other; what is
 *      sent to them meanwhile waits in their ports
 *   3. processes that hand a peer, or what only one can have (a socket), to another: all are
 *      stopped, then started
 *   4. edges are switched, each when that closes no circle
 *   5. processes that are not wanted any more stop, the topmost first
 *
 * Errors: -enum fault_code. Ownership: the caller's. Threads: one. Blocking: none.
 */
#ifndef SKERRY_TOOLS_PIPELINE_DIFF_H
#define SKERRY_TOOLS_PIPELINE_DIFF_H

#include <xseg/layout.h>

#include "tools/pipeline/pipeline.h"

enum pipeline_action {
	PIPELINE_START,
	PIPELINE_RESTART,
	PIPELINE_STOP,
	PIPELINE_EDGE,
	PIPELINE_SETTINGS, /* how the keeper keeps it; the process stays */
	PIPELINE_SEGMENT,  /* differs, and cannot be changed while it runs */
	PIPELINE_ACTIONS
};

#define PIPELINE_STEPS_MAX (3 * PIPELINE_HOSTS_MAX + PIPELINE_PEERS_MAX * 4 + 4)

struct pipeline_step {
	enum pipeline_action action;
	char object[2 * NAME_LENGTH_MAX + 4]; /* a host, PEER:EDGE, or a key of [segment] */
	char to[NAME_LENGTH_MAX + 1];	      /* where the edge shall lead */
	char reason[160];
	bool last; /* STOP: and is not started again */
};

struct pipeline_plan {
	struct pipeline_step steps[PIPELINE_STEPS_MAX];
	unsigned count;
};

/* `have` runs (hosts with `down` do not, but should), `want` is the file; both resolved. */
int pipeline_diff(const struct pipeline *have, const struct pipeline *want,
	struct pipeline_plan *plan, struct fault *fault);
/* "start" */
const char *pipeline_diff_action_name(enum pipeline_action action);

#endif
