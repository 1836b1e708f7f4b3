/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the sweep and of fsck share: volumes written by a composer of a few lines. */
#ifndef SKERRY_TESTS_UNIT_MAP_SWEEP_RIG_H
#define SKERRY_TESTS_UNIT_MAP_SWEEP_RIG_H

#include <base/crc32c.h>
#include <errno.h>
#include <string.h>

#include "peers/map/map_sweep.h"
#include "tests/lib/map_memory.h"
#include "tests/lib/unit.h"

#define OBJECT (4 * MAP_CLUSTER)
#define A 0xa1ull
#define B 0xb2ull
#define SNAP 0x51ull
#define REPORTS 256u

static struct map_memory *memory;
static struct map_store *store;
static struct map_sweep sweep;
static struct map_report reports[REPORTS];
static unsigned reported;

static inline void on_report(struct map_sweep *s, const struct map_report *report)
{
	(void)s;
	ck_assert_uint_lt(reported, REPORTS);
	reports[reported++] = *report;
}

static inline void setup(void)
{
	memory = map_memory_create();
	store = &memory->store;
}

static inline void teardown(void) { map_memory_destroy(memory); }

/* --- volumes ---------------------------------------------------------------------------------- */

static inline struct map_create create_of(uint64_t id, uint64_t objects, const char *name)
{
	return (struct map_create){.id = id,
		.size = objects * OBJECT,
		.created_ns = 1,
		.object_size = OBJECT,
		.state = XSEG_VOLUME_READY,
		.name = name};
}

static inline void create(uint64_t id, uint64_t objects, const char *name)
{
	struct map_create what = create_of(id, objects, name);
	struct map_head head;
	ck_assert_int_eq(map_create(store, &what, &head), 0);
}

static inline void snapshot(uint64_t id, uint64_t snap, const char *name)
{
	struct map_create what = create_of(snap, 0, name);
	struct map_head head;
	ck_assert_int_eq(map_create_snapshot(store, id, &what, &head), 0);
}

static inline void clone(uint64_t id, uint64_t new, const char *name)
{
	struct map_create what = create_of(new, 0, name);
	struct map_head head;
	ck_assert_int_eq(map_create_clone(store, id, &what, &head), 0);
}

static inline void remove_volume(uint64_t id)
{
	uint64_t child = 0;
	ck_assert_int_eq(map_remove(store, id, &child), 0);
}

static inline struct map_head head_of(uint64_t id)
{
	struct map_head head;
	ck_assert_int_eq(map_head_read(store, id, &head, NULL), 0);
	return head;
}

static inline void put_data(struct xseg_key key, uint32_t cluster)
{
	uint8_t bytes[MAP_CLUSTER];
	memset(bytes, (int)(key.epoch + cluster + 1), sizeof(bytes));
	ck_assert_int_eq(store->write(store, key, cluster * MAP_CLUSTER, bytes, sizeof(bytes)), 0);
	ck_assert_int_eq(store->flush(store, key.volume), 0);
}

static inline struct map_entry entry_of(uint64_t id, uint32_t object)
{
	struct map_head head = head_of(id);
	struct map_entry entry;
	ck_assert_int_eq(map_tree_entry(store, &head.volume, object, &entry), 0);
	return entry;
}

/* Where a volume's object is. */
static inline struct xseg_key place_of(uint64_t id, uint32_t object)
{
	struct map_head head = head_of(id);
	struct map_entry entry = entry_of(id, object);
	return (struct xseg_key){head.volume.owners[entry.owner], entry.epoch, object};
}

/* As a composer: a new object, told to the map. */
static inline struct xseg_key write_whole(uint64_t id, uint32_t object)
{
	struct map_head head = head_of(id);
	struct map_delta deltas = {.object = object, .epoch = head.volume.epoch};
	put_data((struct xseg_key){id, deltas.epoch, object}, 0);
	ck_assert_int_eq(map_update(store, id, &deltas, 1, &head), 0);
	return place_of(id, object);
}

/* One cluster of an object that is another's, or frozen. */
static inline struct xseg_key write_part(uint64_t id, uint32_t object, uint32_t cluster)
{
	struct map_head head = head_of(id);
	struct map_entry below = entry_of(id, object);
	struct map_delta deltas = {
		.object = object,
		.flags = MAP_PARTIAL,
		.epoch = head.volume.epoch,
		.parent_owner = head.volume.owners[below.owner],
		.parent_epoch = below.epoch,
		.parent_flags = below.flags,
		.has = {1ull << cluster},
	};
	put_data((struct xseg_key){id, deltas.epoch, object}, cluster);
	ck_assert_int_eq(map_update(store, id, &deltas, 1, &head), 0);
	return place_of(id, object);
}

/* A page of a map as the map's own code would never write it. */
static inline void put_entries(
	uint64_t id, uint32_t page, const struct map_entry entries[MAP_ENTRIES])
{
	struct map_head head = head_of(id);
	struct map_ref *ref = &head.volume.top[page];
	uint8_t bytes[MAP_PAGE_SIZE];
	map_format_page_encode(entries, bytes);
	*ref = (struct map_ref){.epoch = head.volume.epoch,
		.crc = crc32c(0, bytes, sizeof(bytes)),
		.owner = head.volume.self,
		.half = !ref->half};
	for (unsigned i = 0; i < MAP_ENTRIES; i++)
		ref->count += entries[i].epoch != 0;
	struct xseg_key key = map_page_key(id, ref->epoch, page);
	uint32_t offset = ref->half * MAP_PAGE_SIZE;
	ck_assert_int_eq(store->write(store, key, offset, bytes, sizeof(bytes)), 0);
	ck_assert_int_eq(store->flush(store, id), 0);
	ck_assert_int_eq(map_head_put(store, &head), 0);
}

static inline void get_entries(uint64_t id, uint32_t page, struct map_entry entries[MAP_ENTRIES])
{
	struct map_head head = head_of(id);
	ck_assert_int_eq(map_tree_page(store, &head.volume, page, entries, NULL), 0);
}

static inline bool exists(struct xseg_key key) { return map_memory_exists(memory, key); }

/* --- sweeps ----------------------------------------------------------------------------------- */

static inline void gc(void)
{
	sweep = (struct map_sweep){.repair = true, .report = on_report};
	reported = 0;
	ck_assert_int_eq(map_sweep_run(store, &sweep), 0);
	ck_assert_uint_eq(sweep.deleted, sweep.unreachable);
}

static inline void fsck(bool repair)
{
	sweep = (struct map_sweep){.explain = true, .repair = repair, .report = on_report};
	reported = 0;
	ck_assert_int_eq(map_sweep_run(store, &sweep), 0);
}

/* Exactly one thing was found. */
static inline const struct map_report *ck_found(enum map_finding finding, bool repaired)
{
	ck_assert_uint_eq(reported, 1);
	ck_assert_str_eq(map_fsck_finding_name(reports[0].finding), map_fsck_finding_name(finding));
	ck_assert_uint_eq(sweep.found[finding], 1);
	ck_assert_int_eq(reports[0].repaired, repaired);
	return &reports[0];
}

static inline void ck_clean(void)
{
	fsck(false);
	if (reported > 0)
		ck_abort_msg("%s of %llx", map_fsck_finding_name(reports[0].finding),
			(unsigned long long)reports[0].volume);
}

/* Two families, each with an object that nobody needs. */
static inline void make_families(struct xseg_key waste[2])
{
	struct map_head head;
	create(A, 10, "a");
	create(B, 10, "b");
	for (unsigned i = 0; i < 2; i++) {
		uint64_t id = i == 0 ? A : B;
		write_whole(id, 0);
		waste[i] = (struct xseg_key){id, head_of(id).volume.epoch, 5};
		put_data(waste[i], 0);
		ck_assert_int_eq(map_change_epoch(store, id, true, &head), 0);
	}
}

#endif
