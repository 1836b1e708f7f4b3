/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of records and trees have in common: a store in memory, and volumes in it. */
#ifndef SKERRY_TESTS_UNIT_MAP_TREE_RIG_H
#define SKERRY_TESTS_UNIT_MAP_TREE_RIG_H

#include "peers/map/map_tree.h"
#include "tests/lib/map_memory.h"
#include "tests/lib/unit.h"

#define ID 77ull
#define OBJECT 4096u
#define OBJECTS(n) ((uint64_t)(n)*OBJECT)

static struct map_memory *memory;
static struct map_store *store;

static inline void setup(void)
{
	memory = map_memory_create();
	store = &memory->store;
}

static inline void teardown(void) { map_memory_destroy(memory); }

static inline struct map_head make(uint64_t id, uint64_t objects)
{
	struct map_head head = {.volume = {.id = id,
					.size = OBJECTS(objects),
					.object_size = OBJECT,
					.state = XSEG_VOLUME_READY,
					.epoch = 1,
					.owner_count = 1,
					.depth = objects > MAP_OBJECTS_FLAT ? 2 : 1,
					.owners = {id},
					.name = "v"}};
	ck_assert_int_eq(map_head_put(store, &head), 0);
	return head;
}

#endif
