/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline as it runs: options from the command lines of processes, edges from the segment.
 * What a process was started with is the truth, whatever the file says by now.
 *
 * Errors: -errno. Threads: one. Blocking: reads /proc.
 */
#ifndef SKERRY_TOOLS_PIPELINE_RUNNING_H
#define SKERRY_TOOLS_PIPELINE_RUNNING_H

#include <sys/types.h>
#include <xseg/segment.h>

#include "tools/pipeline/pipeline.h"

/* Adds host `name` and its peers, as process `pid` was started; nothing is added on an error. */
int pipeline_running_host(struct pipeline *pipeline, pid_t pid, const char *name);
/* The same from its arguments, without argv[0]. */
int pipeline_running_arguments(
	struct pipeline *pipeline, char *const *argv, unsigned argc, const char *name);
/* Is it an option of how a process begins, which says nothing of one that runs? */
bool pipeline_running_begin(const char *role, const char *key);
/* Takes such options out. */
void pipeline_running_begun(struct pipeline *pipeline);
/* Every edge of its peers as it leads now; one that leads nowhere is left out. */
void pipeline_running_edges(struct pipeline *pipeline, const struct xseg *seg);
/* Only those that name a peer of that host, which is about to go. */
void pipeline_running_part(struct pipeline *pipeline, const struct xseg *seg, unsigned host);

#endif
