/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of volumes have in common: a store in memory, and volumes made in few words. */
#ifndef SKERRY_TESTS_UNIT_MAP_VOLUME_RIG_H
#define SKERRY_TESTS_UNIT_MAP_VOLUME_RIG_H

#include <errno.h>
#include <string.h>

#include "peers/map/map_volume.h"
#include "tests/lib/map_memory.h"
#include "tests/lib/unit.h"

#define SIZE (64u << 20)
#define OBJECT (1u << 20) /* four words of bitmap */

static struct map_memory *memory;
static struct map_store *store;
static struct map_head head;
static uint64_t child, deleted;

static inline void setup(void)
{
	memory = map_memory_create();
	store = &memory->store;
}

static inline void teardown(void) { map_memory_destroy(memory); }

static inline struct map_create create_of(uint64_t id, const char *name)
{
	return (struct map_create){.id = id,
		.size = SIZE,
		.created_ns = 100,
		.object_size = OBJECT,
		.state = XSEG_VOLUME_READY,
		.name = name};
}

static inline int create(uint64_t id, const char *name, uint64_t size)
{
	struct map_create create = create_of(id, name);
	create.size = size;
	return map_create(store, &create, &head);
}

static inline int snapshot(uint64_t id, uint64_t made, const char *name)
{
	struct map_create create = create_of(made, name);
	return map_create_snapshot(store, id, &create, &head);
}

static inline int clone_of(uint64_t id, uint64_t made, const char *name, uint64_t size)
{
	struct map_create create = create_of(made, name);
	create.size = size;
	return map_create_clone(store, id, &create, &head);
}

static inline uint64_t find(const char *name)
{
	uint64_t id = 0;
	int rc = map_name_find(store, name, &id);
	ck_assert(rc == 0 || rc == -ENOENT);
	return rc == 0 ? id : 0;
}

static inline struct map_volume *volume(uint64_t id)
{
	ck_assert_int_eq(map_record_open(store, id, &head), 0);
	return &head.volume;
}

static inline void put_name(const char *name, uint64_t id)
{
	struct map_name record = {.id = id};
	uint8_t bytes[MAP_NAME_RECORD_SIZE];
	uint64_t version = 0;
	strcpy(record.name, name);
	map_format_name_encode(&record, bytes);
	ck_assert_int_eq(store->put(store, map_name_key(name), bytes, sizeof(bytes), &version), 0);
}

#endif
