/* SPDX-License-Identifier: Apache-2.0 */
/* Units: nanoseconds. Threads: any. Blocking: none (vdso). */
#ifndef SKERRY_BASE_CLOCK_H
#define SKERRY_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Monotonic time, the same for every process of one boot. */
static inline uint64_t clock_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
