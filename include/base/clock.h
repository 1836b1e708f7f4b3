/* SPDX-License-Identifier: Apache-2.0 */
/* Units: nanoseconds. Threads: any. Blocking: none (vdso). */
#ifndef SKERRY_BASE_CLOCK_H
#define SKERRY_BASE_CLOCK_H

#include <base/time.h>

/* Monotonic time, the same for every process of one boot. */
static inline uint64_t clock_now_ns(void) { return time_now_ns(CLOCK_MONOTONIC); }

#if defined(__x86_64__) || defined(__i386__)
#define CPU_RELAX() __builtin_ia32_pause()
/* __builtin_prefetch(p, 1) is prefetcht0 without -mprfchw, which costs 5 of 6 messages */
#define CPU_PREFETCH_OWN(p) __asm__ volatile("prefetchw %0" : : "m"(*(const char *)(p)))
#elif defined(__aarch64__)
#define CPU_RELAX() __asm__ volatile("yield")
#define CPU_PREFETCH_OWN(p) __builtin_prefetch(p, 1)
#else
#define CPU_RELAX() ((void)0)
#define CPU_PREFETCH_OWN(p) __builtin_prefetch(p, 1)
#endif

/* In a loop that waits for another CPU. */
static inline void cpu_relax(void) { CPU_RELAX(); }
/* The line at `p` will be written soon: fetch it as our own, not as a shared copy. */
static inline void cpu_prefetch_own(const void *p) { CPU_PREFETCH_OWN(p); }

#endif
