/* SPDX-License-Identifier: Apache-2.0 */
/* The table of pages: random changes against a plain array, and what it costs to ask it. */

#include "peers/blocker/pagemap.h"
#include "tests/lib/unit.h"

#define OBJECTS 64u
#define PAGES 1024u
#define PAGES_MAX 5000u
#define LOOKUPS 200000u

static uint32_t model[OBJECTS][PAGES];

static struct xseg_key key_of(uint32_t object)
{
	/* neighbours in each field, so that a hash that ignores one is found out */
	return (struct xseg_key){
		.volume = 1 + object % 4, .epoch = object / 4 % 2, .object = object / 8};
}

static void check_same(struct pagemap *map)
{
	for (uint32_t o = 0; o < OBJECTS; o++) {
		struct xseg_key key = key_of(o);
		struct pagemap_object *object = pagemap_find(map, &key);
		uint32_t count = 0;
		ck_assert_ptr_eq(pagemap_look(map, &key), object);
		for (uint32_t p = 0; p < PAGES; p++) {
			ck_assert_uint_eq(pagemap_get(map, object, p), model[o][p] - 1);
			count += model[o][p] != 0;
		}
		ck_assert_uint_eq(object ? object->count : 0, count);
		ck_assert_int_eq(object != NULL, count != 0);
	}
}

static void check_walk(struct pagemap *map)
{
	uint32_t cursor = 0, walked = 0, there = 0;
	struct pagemap_object *object;
	while ((object = pagemap_next(map, &cursor))) {
		ck_assert_ptr_eq(pagemap_find(map, &object->key), object);
		walked++;
	}
	for (uint32_t o = 0; o < OBJECTS; o++) {
		struct xseg_key key = key_of(o);
		there += pagemap_find(map, &key) != NULL;
	}
	ck_assert_uint_eq(walked, there);
}

/* Fills to the last page it was made for, and empties: groups and objects are used again. */
UNIT(random_changes)
{
	struct pagemap map;
	uint64_t seed = 42;
	uint32_t used = 0;
	memset(model, 0, sizeof(model));
	ck_assert_int_eq(pagemap_init(&map, PAGES_MAX), 0);
	for (uint32_t step = 0; step < 200000; step++) {
		uint64_t r = random_next(&seed);
		uint32_t o = (uint32_t)(r % OBJECTS), p = (uint32_t)((r >> 16) % PAGES);
		bool growing = step / 20000 % 2 == 0;
		bool put = (r >> 40) % 8 < (growing ? 7 : 1);
		if (put && !model[o][p] && used == PAGES_MAX)
			continue;
		struct xseg_key key = key_of(o);
		uint32_t page = put ? (uint32_t)(r >> 44) & 0xfffff : XSEG_NONE;
		used += put && !model[o][p];
		used -= !put && model[o][p];
		model[o][p] = page + 1;
		pagemap_set(&map, &key, p, page);
		if (step % 20000 == 19999) {
			check_same(&map);
			check_walk(&map);
		}
	}
	pagemap_fini(&map);
}

/* One page for each object is the worst there is. */
UNIT(sparse)
{
	struct pagemap map;
	ck_assert_int_eq(pagemap_init(&map, PAGES_MAX), 0);
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < PAGES_MAX; i++) {
			struct xseg_key key = {.volume = 7, .object = i * 1000};
			pagemap_set(&map, &key, i % PAGES, i);
		}
		for (uint32_t i = 0; i < PAGES_MAX; i++) {
			struct xseg_key key = {.volume = 7, .object = i * 1000};
			const struct pagemap_object *object = pagemap_find(&map, &key);
			ck_assert_uint_eq(pagemap_get(&map, object, i % PAGES), i);
			ck_assert_uint_eq(pagemap_get(&map, object, (i + 1) % PAGES), XSEG_NONE);
			pagemap_set(&map, &key, i % PAGES, XSEG_NONE);
			ck_assert_ptr_null(pagemap_find(&map, &key));
		}
	}
	ck_assert_uint_le(map.objects.touched, PAGES_MAX);
	ck_assert_uint_le(map.groups.touched, PAGES_MAX);
	pagemap_fini(&map);
}

/* Of 256 objects, full: a GiB of data. What a look-up costs is bench/bench_port's to say. */
UNIT(dense)
{
	struct pagemap map;
	uint64_t seed = 1;
	const uint32_t objects = 256;
	ck_assert_int_eq(pagemap_init(&map, objects * PAGES), 0);
	for (uint32_t i = 0; i < objects * PAGES; i++) {
		struct xseg_key key = {.volume = 3, .object = i / PAGES};
		pagemap_set(&map, &key, i % PAGES, i);
	}
	for (uint32_t i = 0; i < LOOKUPS; i++) {
		uint64_t r = seed += 0x9e3779b97f4a7c15ull;
		uint32_t object = (uint32_t)(r >> 40) % objects, page = (uint32_t)(r >> 20) % PAGES;
		struct xseg_key key = {.volume = 3, .object = object};
		must(pagemap_get(&map, pagemap_find(&map, &key), page) == object * PAGES + page);
	}
	pagemap_fini(&map);
}
