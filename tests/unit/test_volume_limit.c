/* SPDX-License-Identifier: Apache-2.0 */
/* So much in a second and no more: the arithmetic of it, with a clock of the test's own. */
#include <errno.h>

#include "peers/volume/volume_limit.h"
#include "peers/volume/volume_quiesce.h"
#include "tests/lib/unit.h"

#define MS 1000000ull
#define SECOND (1000 * MS)

static struct volume_limit *limit;
static uint64_t when;

/* The core's and others', for limits that stand alone. */
uint64_t peer_now_ns(const struct peer *peer)
{
	(void)peer;
	return 0;
}

struct volume *volume_table_lookup(struct peer *peer, uint64_t id)
{
	(void)peer, (void)id;
	return NULL;
}

void volume_quiesce_aside(struct peer *peer, const struct job *job, bool aside)
{
	(void)peer, (void)job, (void)aside;
}

static void set(uint64_t iops, uint64_t bytes, uint64_t burst_ms)
{
	struct map_change_limits limits = {.iops = iops, .bytes = bytes, .burst_ms = burst_ms};
	ck_assert_int_eq(volume_limit_set(&limit, &limits), 0);
}

/* How many of that size go from `from` to `to`, when each waits as long as it is published. */
static uint64_t count_taken(uint64_t from, uint64_t to, uint64_t bytes)
{
	uint64_t count = 0;
	for (uint64_t now = from; now < to;) {
		if (volume_limit_take(limit, bytes, now, &when)) {
			count++;
			continue;
		}
		ck_assert_uint_gt(when, now);
		now = when;
	}
	return count;
}

static void setup(void) { limit = NULL; }
static void teardown(void) { volume_limit_free(limit); }

UNIT_WITHIN(test_none, setup, teardown)
{
	set(0, 0, 0);
	ck_assert_ptr_null(limit);
	set(1, 0, 0);
	ck_assert_ptr_nonnull(limit);
	set(0, 0, 50);
	ck_assert_ptr_null(limit);
}

UNIT_WITHIN(test_requests, setup, teardown)
{
	set(1000, 0, 100);
	/* a burst of 100, then one each millisecond, whatever their size */
	ck_assert_uint_eq(count_taken(SECOND, SECOND + 1, 1 << 20), 100);
	uint64_t more = count_taken(SECOND + 1, 11 * SECOND, 4096);
	ck_assert_uint_ge(more, 9990);
	ck_assert_uint_le(more, 10010);
	/* idle for a long time: a burst and no more */
	ck_assert_uint_eq(count_taken(100 * SECOND, 100 * SECOND + 1, 512), 100);
}

UNIT_WITHIN(test_bytes, setup, teardown)
{
	set(0, 1 << 20, 1000);
	uint64_t count = count_taken(SECOND, 11 * SECOND, 65536);
	ck_assert_uint_ge(count, 16 * 11 - 1); /* ten seconds, and the burst */
	ck_assert_uint_le(count, 16 * 11 + 1);
	/* what is larger than a burst goes, too, and those behind it pay */
	set(0, 0, 0);
	set(0, 1 << 20, 100);
	ck_assert(volume_limit_take(limit, 4 << 20, SECOND, &when));
	ck_assert(!volume_limit_take(limit, 512, SECOND, &when));
	ck_assert_uint_ge(when, SECOND + 3900 * MS);
	ck_assert_uint_le(when, SECOND + 4000 * MS);
	ck_assert(!volume_limit_take(limit, 512, when - MS, &when));
	ck_assert(volume_limit_take(limit, 512, when, &when));
}

/* Both at once: the slower one counts; a clock that stands still or goes back gives nothing. */
UNIT_WITHIN(test_both, setup, teardown)
{
	set(100, 1 << 20, 100);
	uint64_t small = count_taken(SECOND, 11 * SECOND, 512);
	ck_assert_uint_ge(small, 1000);
	ck_assert_uint_le(small, 1012);
	uint64_t large = count_taken(100 * SECOND, 110 * SECOND, 1 << 18);
	ck_assert_uint_ge(large, 40);
	ck_assert_uint_le(large, 42);
	while (volume_limit_take(limit, 512, 200 * SECOND, &when))
		;
	for (int i = 0; i < 100; i++)
		ck_assert(!volume_limit_take(limit, 512, 199 * SECOND, &when));
}

/* Less than one in a burst: one goes all the same, and slowly. */
UNIT_WITHIN(test_slow, setup, teardown)
{
	set(1, 0, 1);
	uint64_t count = count_taken(SECOND, 61 * SECOND, 512);
	ck_assert_uint_ge(count, 60);
	ck_assert_uint_le(count, 61);
	/* a new rate counts from now on: nobody gets a new burst for it */
	set(1000, 0, 1000);
	ck_assert_uint_le(count_taken(61 * SECOND, 61 * SECOND + 1, 512), 1);
	/* the largest numbers there are */
	set(UINT64_MAX, UINT64_MAX, UINT64_MAX);
	ck_assert(!volume_limit_take(limit, UINT32_MAX, UINT64_MAX / 2, &when));
	ck_assert(volume_limit_take(limit, UINT32_MAX, when, &when));
}
