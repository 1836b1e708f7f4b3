/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: long work that its client may leave. Each has a record, RUN_DIR/SEGMENT/jobs/N.json, that
 * is written before anything is done, so whoever finds it knows what a killed process has left
 * half done; how far it is lies beside it, N.progress. Records need no keeper; a keeper watches
 * the folder and tidies up after those who were killed.
 *
 *   running --> done | failed | cancelled
 *      `------> lost (its process is gone; found by reading, never written) --> done | failed
 *
 * Units: bytes or steps, ns of the wall clock. Errors: 0 or -errno. Ownership: JSON is new.
 * Threads: one for each job. Blocking: small files.
 */
#ifndef SKERRY_TOOLS_JOB_H
#define SKERRY_TOOLS_JOB_H

#include <base/name.h>
#include <base/path.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/report/fault.h"

#define JOBS_KEPT 100u /* older ones that have ended are forgotten */

struct job {
	char segment[NAME_LENGTH_MAX + 1];
	unsigned id;
	int progress; /* fd; -1: none */
	uint64_t shown_ns, total;
	json_t *record;
};

/*
 * A new job of this process, running. `unit`: "bytes" or "steps"; `detail` (stolen, may be NULL):
 * what a successor must know to tidy up.
 */
int job_begin(struct job *job, const char *segment, const char *kind, const char *object,
	const char *unit, json_t *detail);
/* Written at most five times a second. */
void job_progress(struct job *job, uint64_t done, uint64_t total);
/* More of the detail, durable before it is done. */
int job_note(struct job *job, const char *key, json_t *value);
/* Its state, and what came of it: `result` is stolen; fault or NULL. Then job is empty. */
void job_end(
	struct job *job, uint64_t done, json_t *result, const struct fault *fault, bool cancelled);
/* A job that another process began; -EBUSY when somebody has taken it, -ENOENT, -EALREADY when it
   has ended or its process lives. To be ended by job_end(). */
int job_take(struct job *job, const char *segment, unsigned id);
void job_drop(struct job *job); /* taken, and left as it was */

/* The record as users see it, with state, done, total, percent; NULL when there is none. */
json_t *job_view(const char *segment, unsigned id);
/* All, the oldest first. */
json_t *job_list(const char *segment);
/* pidfd of a running job's process; -ESRCH when it has none. */
int job_pidfd(const char *segment, unsigned id);
/* Forgets all that have ended, and the folder if nothing is left. */
void job_sweep(const char *segment);
bool job_folder(char out[PATH_LENGTH_MAX], const char *segment);

#endif
