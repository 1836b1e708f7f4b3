/* SPDX-License-Identifier: Apache-2.0 */
/* Is what comes into the cache worth its place? */
#include "peers/cache/cache_admit.h"

#define ADMIT_SHARE 4u	    /* read again: one of so many is always worth it */
#define ADMIT_COST_NS 4000u /* of a bucket: copied, another one evicted */

void cache_admit_came(
	struct cache_admission *admission, uint32_t count, uint32_t window, _Atomic uint32_t *lanes)
{
	struct cache_admission *a = admission;
	a->came += count;
	if (a->came < window)
		return;
	uint64_t saved_ns = a->calls ? a->idle_ns / a->calls * a->read : 0;
	bool bypasses = a->read * ADMIT_SHARE < a->came;
	if (a->calls)
		bypasses = bypasses && saved_ns < (uint64_t)a->came * ADMIT_COST_NS;
	else /* nothing new about the store */
		bypasses = bypasses && a->bypasses;
	if (bypasses && !a->bypasses)
		atomic_fetch_add_explicit(lanes, 1, memory_order_relaxed);
	if (!bypasses && a->bypasses)
		atomic_fetch_sub_explicit(lanes, 1, memory_order_relaxed);
	a->bypasses = bypasses;
	a->came = a->read = a->calls = 0;
	a->idle_ns = 0;
}
