/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times: as the kernel has them, as people write them ("10s", "1.5ms", "2m"; a bare number is
 * seconds), and the wall's.
 *
 * Units: ns. Errors: -EINVAL: not a time; -ERANGE: does not fit 63 bits. Threads: any.
 * Blocking: time_nap() only.
 */
#ifndef SKERRY_BASE_TIME_H
#define SKERRY_BASE_TIME_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull

static inline uint64_t time_of(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_nsec;
}

static inline struct timespec time_spec(uint64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
}

static inline uint64_t time_now_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return time_of(&t);
}

/* As a calendar has it: may jump. */
static inline uint64_t time_wall_ns(void) { return time_now_ns(CLOCK_REALTIME); }

/* A signal may end it earlier. */
static inline void time_nap(uint64_t ns)
{
	struct timespec t = time_spec(ns);
	nanosleep(&t, NULL);
}

int time_parse(const char *text, uint64_t *ns);
/* 0 is no time, either. */
static inline int time_parse_positive(const char *text, uint64_t *ns)
{
	uint64_t parsed;
	int error = time_parse(text, &parsed);
	if (error || parsed == 0)
		return error ? error : -EINVAL;
	*ns = parsed;
	return 0;
}
/* In the largest unit that leaves no rest: "90s", "2m"; returns buffer. */
const char *time_format(uint64_t ns, char *buffer, size_t size);

#endif
