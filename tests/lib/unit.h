/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frame of a Check program. A test is a function that says so itself; main() is in unit.c, runs
 * all of a program's tests in the order in which they stand, and gives them a scratch folder.
 *
 *   UNIT(name) { ... }                                  once
 *   UNIT_LOOP(name, count) { ... }                      for each _i from 0 to count - 1
 *   UNIT_WITHIN(name, setup, teardown) { ... }          between the two functions
 *   UNIT_LOOP_WITHIN(name, count, setup, teardown) { ... }
 */
#ifndef SKERRY_TESTS_LIB_UNIT_H
#define SKERRY_TESTS_LIB_UNIT_H

#include <check.h>

#include "tests/lib/fixture.h"

/* Check writes each assertion that holds into a pipe, to tell the last one before a crash: that is
   millions of system calls here, and a sanitizer or a debugger tells more. */
#define _mark_point(file, line) ((void)0)

struct unit {
	const TTest *test;
	int count;
	void (*setup)(void), (*teardown)(void);
	struct unit *next;
};
void unit_add(struct unit *unit);

#define UNIT_LOOP_WITHIN(name, times, before, after) \
	static void name(int _i); \
	static const TTest name##_test = {#name, name, __FILE__, __LINE__}; \
	static struct unit name##_unit = {&name##_test, (int)(times), before, after, NULL}; \
	__attribute__((constructor)) static void name##_add(void) { unit_add(&name##_unit); } \
	static void name(int _i CK_ATTRIBUTE_UNUSED)
#define UNIT_WITHIN(name, before, after) UNIT_LOOP_WITHIN(name, 1, before, after)
#define UNIT_LOOP(name, times) UNIT_LOOP_WITHIN(name, times, NULL, NULL)
#define UNIT(name) UNIT_LOOP_WITHIN(name, 1, NULL, NULL)

#endif
