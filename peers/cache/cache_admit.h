/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Admission: is what comes into the cache worth its place? One rule, for what a read fetches and
 * for what a write through leaves behind, for each volume on each shard.
 *
 * Of a window of buckets that came, some are read again before they go. Each of those saves what
 * the store takes: not until its answer is there, that may be our own queue, but for how long the
 * lane had nothing else to do meanwhile. Where less than a quarter are read again, and what they
 * save is less than what all of them cost, requests bypass the cache; one in CACHE_ADMIT_SAMPLE
 * does not, and shows when that changes. `xsegctl cache stats NAME --volumes` says what is
 * bypassed.
 *
 * Units: buckets, ns. Errors: none. Ownership: the volume's, on its shard. Threads: the shard's
 * lane; `lanes` is shared. Blocking: none.
 */
#ifndef SKERRY_CACHE_ADMIT_H
#define SKERRY_CACHE_ADMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define CACHE_ADMIT_SAMPLE 64u

struct cache_admission {
	uint32_t came, read; /* of this window */
	uint32_t calls;
	uint64_t idle_ns; /* of the lane, while it waited for the calls */
	uint32_t asked;
	bool bypasses;
};

/* May this request bring something in? */
static inline bool cache_admit(struct cache_admission *admission)
{
	return !admission->bypasses || admission->asked++ % CACHE_ADMIT_SAMPLE == 0;
}

/* The store was asked for what came. */
static inline void cache_admit_call(struct cache_admission *admission, uint64_t idle_ns)
{
	admission->calls++;
	admission->idle_ns += idle_ns;
}

/* `count` more are known: that they came, or whether they were read. When the window is full, it is
   judged; `lanes` counts those that bypass. */
void cache_admit_came(struct cache_admission *admission, uint32_t count, uint32_t window,
	_Atomic uint32_t *lanes);

#endif
