/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crash points: places where a kill hurts. Nothing at all is left of them unless configured with
 * --enable-crash-points; then SKERRY_CRASH=NAME[:HIT[:ACTION]] in the environment makes the
 * process end at the HITth passing (1 when not given) of points of that name. ACTION is kill
 * (the default: SIGKILL, nothing is tidied up), abort, overflow (of the stack) or exit (status 3).
 *
 * Names are part.step.place. Threads: any. Blocking: none.
 */
#ifndef SKERRY_BASE_CRASH_H
#define SKERRY_BASE_CRASH_H

#include <stdbool.h>
#include <stdio.h>

/* Were any compiled in? */
bool crash_points_there(void);
/* The names in this program and the modules it has loaded, sorted, one a line. */
void crash_points_list(FILE *out);
void crash_point_hit(const char *name);
void crash_points_register(const char *const *begin, const char *const *end);

#ifdef SKERRY_CRASH_POINTS

#define crash_point(text) \
	do { \
		static const char *const crash_name \
			__attribute__((section("skerry_crash"), used)) = text; \
		crash_point_hit(crash_name); \
	} while (0)

/* Each program or module has a section of its own; whoever is loaded says where it lies. */
extern const char *const __start_skerry_crash[] __attribute__((weak, visibility("hidden")));
extern const char *const __stop_skerry_crash[] __attribute__((weak, visibility("hidden")));
static __attribute__((constructor)) void crash_points_announce(void)
{
	crash_points_register(__start_skerry_crash, __stop_skerry_crash);
}

#else
#define crash_point(text) ((void)0)
#endif

#endif
