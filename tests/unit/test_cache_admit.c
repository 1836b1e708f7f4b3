/* SPDX-License-Identifier: Apache-2.0 */
/* Admission: when requests bypass the cache, when they come back, and what others see of it. */
#include "peers/cache/cache_admit.h"
#include "tests/lib/unit.h"

#define WINDOW 128u

static struct cache_admission admission;
static _Atomic uint32_t lanes;

/* A window, of which so many buckets were read again, each call having cost that much idle time. */
static void window(uint32_t read, uint32_t calls, uint64_t idle_ns)
{
	admission.read += read;
	for (uint32_t i = 0; i < calls; i++)
		cache_admit_call(&admission, idle_ns);
	for (uint32_t i = 0; i < WINDOW; i++)
		cache_admit_came(&admission, 1, WINDOW, &lanes);
}

static void check(bool bypasses)
{
	ck_assert_int_eq(admission.bypasses, bypasses);
	ck_assert_uint_eq(atomic_load(&lanes), bypasses);
	ck_assert_uint_eq(admission.came + admission.read + admission.calls, 0);
}

UNIT(test_judged)
{
	static const struct {
		uint32_t read;
		uint64_t idle_ns;
		bool bypasses;
	} cases[] = {
		{WINDOW / 4, 0, false},	       /* a quarter is always worth it */
		{WINDOW / 4 - 1, 0, true},     /* fewer are not, where the store costs nothing */
		{8, 4000 * WINDOW / 8, false}, /* eight pay for all others */
		{8, 4000 * WINDOW / 8 - 8, true},
		{0, 1000000000, true}, /* what nobody reads saves nothing, however slow the store */
	};
	for (unsigned i = 0; i < countof(cases); i++) {
		admission = (struct cache_admission){0};
		atomic_store(&lanes, 0);
		window(cases[i].read, 16, cases[i].idle_ns);
		check(cases[i].bypasses);
	}
}

UNIT(test_changes)
{
	admission = (struct cache_admission){0};
	atomic_store(&lanes, 0);
	window(0, 0, 0);
	check(false); /* the store was never asked: nothing is known of it */
	window(0, 1, 0);
	check(true);
	window(0, 0, 0);
	check(true); /* nothing new about it */
	unsigned admitted = 0;
	for (unsigned i = 0; i < 10 * CACHE_ADMIT_SAMPLE; i++)
		admitted += cache_admit(&admission);
	ck_assert_uint_eq(admitted, 10);
	window(WINDOW / 2, 1, 0);
	check(false);
	ck_assert(cache_admit(&admission));
}
