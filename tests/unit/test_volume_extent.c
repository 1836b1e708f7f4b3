/* SPDX-License-Identifier: Apache-2.0 */
/* Joining what is known about stretches of a volume. */
#include <string.h>

#include "peers/volume/volume_extent.h"
#include "tests/lib/unit.h"

#define HOLE (XSEG_STATUS_HOLE | XSEG_STATUS_ZERO)

static struct xseg_status_extent list[64];

static struct volume_extents fresh(uint32_t max)
{
	memset(list, 0xee, sizeof(list));
	return (struct volume_extents){.list = list, .max = max};
}

UNIT(test_neighbours_join)
{
	struct volume_extents e = fresh(8);
	ck_assert(volume_extent_add(&e, 4096, 0));
	ck_assert(volume_extent_add(&e, 0, HOLE)); /* nothing does not part them */
	ck_assert(volume_extent_add(&e, 512, 0));
	ck_assert(volume_extent_add(&e, 1024, HOLE));
	ck_assert(volume_extent_add(&e, 1024, XSEG_STATUS_ZERO));
	ck_assert_uint_eq(e.count, 3);
	ck_assert_uint_eq(list[0].length, 4608);
	ck_assert_uint_eq(list[0].flags, 0);
	ck_assert_uint_eq(list[1].length, 1024);
	ck_assert_uint_eq(list[1].flags, HOLE);
	ck_assert_uint_eq(list[2].flags, XSEG_STATUS_ZERO);
	ck_assert_uint_eq(list[2].reserved, 0);
}

UNIT(test_full)
{
	struct volume_extents e = fresh(2);
	ck_assert(volume_extent_add(&e, 512, 0));
	ck_assert(volume_extent_add(&e, 512, HOLE));
	ck_assert(!volume_extent_add(&e, 512, 0));
	ck_assert(volume_extent_add(&e, 512, HOLE)); /* more of the last still fits */
	ck_assert_uint_eq(e.count, 2);
	ck_assert_uint_eq(list[1].length, 1024);
}

UNIT(test_answers)
{
	const struct xseg_status_extent store[] = {{4096, 0, 0}, {4096, HOLE, 0}, {1u << 20, 0, 0}};
	struct volume_extents e = fresh(8);
	/* a store that says more than it was asked */
	ck_assert_uint_eq(volume_extent_add_answer(&e, 10240, store, 3), 10240);
	ck_assert_uint_eq(e.count, 3);
	ck_assert_uint_eq(list[2].length, 2048);
	/* one that says less */
	ck_assert_uint_eq(volume_extent_add_answer(&e, 16384, store, 2), 8192);
	/* or nothing */
	ck_assert_uint_eq(volume_extent_add_answer(&e, 16384, store, 0), 0);
	/* flags that nobody knows are not passed on */
	const struct xseg_status_extent odd = {512, 0xf0 | XSEG_STATUS_ZERO, 0};
	ck_assert_uint_eq(volume_extent_add_answer(&e, 512, &odd, 1), 512);
	ck_assert_uint_eq(list[e.count - 1].flags, XSEG_STATUS_ZERO);
}

UNIT(test_answer_meets_a_full_list)
{
	const struct xseg_status_extent store[] = {{512, 0, 0}, {512, HOLE, 0}, {512, 0, 0}};
	struct volume_extents e = fresh(2);
	ck_assert_uint_eq(volume_extent_add_answer(&e, 1536, store, 3), 1024);
	ck_assert_uint_eq(e.count, 2);
}

/* Against a map with one byte a sector: the list says the same, and nothing twice in a row. */
UNIT(test_law)
{
	static uint8_t map[4096];
	uint64_t seed = 99;
	for (unsigned round = 0; round < 500; round++) {
		struct volume_extents e = fresh(1 + (uint32_t)(random_next(&seed) % 64));
		uint32_t sectors = 0;
		for (unsigned i = 0; i < 100; i++) {
			uint32_t n = (uint32_t)(random_next(&seed) % 20);
			uint32_t flags = (uint32_t)(random_next(&seed) % 4);
			if (!volume_extent_add(&e, n * XSEG_SECTOR, flags))
				break;
			memset(map + sectors, (int)flags, n);
			sectors += n;
		}
		uint32_t at = 0, wrong = 0;
		for (uint32_t i = 0; i < e.count; i++) {
			ck_assert(i == 0 || list[i].flags != list[i - 1].flags);
			for (uint32_t j = 0; j < list[i].length / XSEG_SECTOR; j++)
				wrong += map[at++] != list[i].flags;
		}
		ck_assert_uint_eq(wrong, 0);
		ck_assert_uint_eq(at, sectors);
		ck_assert_uint_le(e.count, e.max);
	}
}
