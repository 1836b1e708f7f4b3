/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs as the keeper sees them: its own long operations, and those of xsegctl's processes, whose
 * deaths it notices. What a killed one has left is tidied up by 'xsegctl job tidy'.
 *
 * Errors: -enum fault_code. Threads: the loop's. Blocking: small files.
 */
#ifndef SKERRY_TOOLS_KEEPER_JOB_H
#define SKERRY_TOOLS_KEEPER_JOB_H

#include "tools/keeper/keeper.h"

/* Watches the folder from now on; looks through it at once. */
void keeper_job_open(struct keeper *keeper);
/* `sweep`: the segment goes, and with it what is known of jobs that have ended. */
void keeper_job_close(struct keeper *keeper, bool sweep);
/* The operation under way is a job now. */
void keeper_job_begin(struct keeper *keeper, const char *kind, const char *object);
void keeper_job_end(struct keeper *keeper, const json_t *result, const struct fault *fault);

int keeper_job_list(struct keeper *keeper, json_t **result, struct fault *fault);
int keeper_job_show(struct keeper *keeper, json_int_t id, json_t **result, struct fault *fault);
int keeper_job_cancel(
	struct keeper *keeper, json_int_t id, bool dry_run, json_t **result, struct fault *fault);

#endif
