/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline as a whole while it runs: what it is, what a file would change, and changing it
 * step by step (see pipeline_diff.h). One at a time; who asked may leave.
 *
 * Units: ns. Errors: -enum fault_code. Ownership: borrows text. Threads: the loop's. Blocking:
 * reads /proc.
 */
#ifndef SKERRY_TOOLS_KEEPER_CONFIG_H
#define SKERRY_TOOLS_KEEPER_CONFIG_H

#include "tools/keeper/keeper.h"

struct keeper_config_wish {
	const char *text;  /* a pipeline file */
	const char *path;  /* where it lies, or NULL; from then on the keeper's file */
	const char *hash;  /* of it, as `up` compares it */
	uint64_t limit_ns; /* of each start and stop; 0: the keeper's own */
};

/* {segment, text}: a file that says what runs. */
int keeper_config_get(struct keeper *keeper, json_t **result, struct fault *fault);
/* {same, steps}: what `apply` would do. */
int keeper_config_diff(
	struct keeper *keeper, const char *text, json_t **result, struct fault *fault);
/* 0 and a result when there is nothing to do; else KEEPER_LATER, and turns do it. */
int keeper_config_apply(struct keeper *keeper, const struct keeper_config_wish *wish,
	json_t **result, struct fault *fault);
/* A stopped process and its peers: no part of the pipeline any more. */
void keeper_config_forget(struct keeper *keeper, struct keeper_host *host);
void keeper_config_turn(struct keeper *keeper);
/* What is under way ends where it is. */
void keeper_config_drop(struct keeper *keeper);
/* After the step under way nothing more is begun, and what was stopped is put back. */
void keeper_config_cancel(struct keeper *keeper);
/* How far: steps done and in all; 0 of 0 when nothing is under way. */
void keeper_config_progress(const struct keeper *keeper, unsigned *done, unsigned *total);

#endif
