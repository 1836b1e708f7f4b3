/* SPDX-License-Identifier: Apache-2.0 */
/* Fixed pools: each thing once, all of them, and memory only for what was needed. */
#include <base/slab.h>
#include <string.h>

#include "tests/lib/unit.h"

struct thing {
	uint32_t link, value;
	uint8_t bulk[4088];
};

static uint64_t resident_pages(void)
{
	unsigned long long total, resident = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	ck_assert_int_eq(fscanf(file, "%llu %llu", &total, &resident), 2);
	fclose(file);
	return resident;
}

UNIT(test_each_once)
{
	enum { COUNT = 500 };
	struct slab slab;
	struct thing *things[COUNT];
	uint32_t index[COUNT], one;
	ck_assert_int_eq(slab_init(&slab, sizeof(struct thing), COUNT), 0);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < COUNT; i++) {
			things[i] = slab_get(&slab, &index[i]);
			ck_assert_ptr_nonnull(things[i]);
			ck_assert_ptr_eq(things[i], slab_at(&slab, index[i]));
			things[i]->value = 7000 + i;
		}
		ck_assert_ptr_null(slab_get(&slab, &one));
		for (unsigned i = 0; i < COUNT; i++)
			ck_assert_uint_eq(things[i]->value, 7000 + i);
		for (unsigned i = 0; i < COUNT; i++)
			slab_put(&slab, index[(i * 37) % COUNT]);
	}
	slab_fini(&slab);
}

UNIT(test_last_in_first_out)
{
	struct slab slab;
	uint32_t a, b, c;
	ck_assert_int_eq(slab_init(&slab, sizeof(struct thing), 8), 0);
	ck_assert_ptr_nonnull(slab_get(&slab, &a));
	ck_assert_ptr_nonnull(slab_get(&slab, &b));
	slab_put(&slab, a);
	ck_assert_ptr_nonnull(slab_get(&slab, &c)); /* what is warm comes first */
	ck_assert_uint_eq(c, a);
	ck_assert_uint_eq(slab.touched, 2);
	slab_fini(&slab);
}

UNIT(test_memory_when_needed)
{
	struct slab slab;
	uint32_t index;
	uint64_t before = resident_pages();
	ck_assert_int_eq(slab_init(&slab, sizeof(struct thing), 100000), 0);
	for (unsigned i = 0; i < 10; i++)
		((struct thing *)slab_get(&slab, &index))->value = i;
	ck_assert_uint_lt(resident_pages() - before, 100);
	slab_fini(&slab);
	slab_fini(&slab); /* twice does no harm */
}
