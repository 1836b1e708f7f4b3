/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the C tests and benches share: a private place for segments, and children that say where
 * they failed.
 *
 * Threads: one. Blocking: segment creation. Errors: every helper aborts with must().
 */
#ifndef SKERRY_TESTS_LIB_FIXTURE_H
#define SKERRY_TESTS_LIB_FIXTURE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
#include <xseg/segment.h>

/* A folder of our own for SKERRY_SHM_DIR and SKERRY_RUN_DIR; end removes it, whole. */
void scratch_begin(void);
void scratch_end(void);
const char *scratch_dir(void);

/* A name no other test has. */
void scratch_name(char name[NAME_LENGTH_MAX + 1]);
/* Creates and joins a small segment; 0 = default for each. */
void scratch_segment(struct xseg *seg, uint64_t size, uint32_t lanes, uint32_t requests);
/* The same, with the file and its folder gone at once: nothing is left, however the test ends. */
void scratch_segment_unnamed(struct xseg *seg, uint64_t size, uint32_t lanes, uint32_t requests);
/* Leaves and destroys. */
void scratch_segment_end(struct xseg *seg);

/* Runs f in a child; its result is the child's exit status. */
pid_t child_start(int (*f)(void *), void *argument);
/* Waits: exit status, or 128 + signal; 255 when it took longer than 30 s (then it was killed). */
int child_end(pid_t pid);
void child_kill(pid_t pid);

/* In a child: says what was false and leaves. */
#define child_check(cond) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			_exit(1); \
		} \
	} while (0)

/* Deterministic, seeded: a test that failed fails again. */
uint64_t random_next(uint64_t *state);

#endif
