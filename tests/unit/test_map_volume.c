/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Volumes, snapshots and clones at their limits: names, sizes, chains, damage, and what is refused.
 * What they do in any order, cut off anywhere, is in tests/property/theory_map_volume.c.
 */
#include <peer/mover.h>

#include "peers/map/map_home.h"
#include "tests/unit/map_volume_rig.h"

static int tell(uint64_t id, uint32_t object, uint32_t epoch, uint32_t flags)
{
	struct map_delta deltas = {.object = object, .epoch = epoch, .flags = flags};
	return map_update(store, id, &deltas, 1, &head);
}

static struct map_entry entry(uint64_t id, uint32_t object)
{
	struct map_entry entry;
	ck_assert_int_eq(map_tree_entry(store, volume(id), object, &entry), 0);
	return entry;
}

/* --- names ------------------------------------------------------------------------------------ */

UNIT(test_names)
{
	setup();
	char longest[VOLUME_PART_MAX + 2];
	memset(longest, 'n', sizeof(longest));
	longest[VOLUME_PART_MAX + 1] = 0;
	static const char *const bad[] = {
		"", "a/b", "-a", "a\n", "a\x7f", "\xff", "\xc3", "\xc0\x80"};
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		ck_assert_int_eq(create(1 + i, bad[i], SIZE), -EINVAL);
		ck_assert_int_eq(map_name_find(store, bad[i], &child), -EINVAL);
	}
	ck_assert_int_eq(create(20, longest, SIZE), -EINVAL);
	longest[VOLUME_PART_MAX] = 0;
	ck_assert_int_eq(create(20, longest, SIZE), 0);
	ck_assert_int_eq(create(21, "\xe7\xa3\x81\xe7\x9b\x98 1", SIZE), 0);
	ck_assert_uint_eq(find(longest), 20);
	ck_assert_uint_eq(find("\xe7\xa3\x81\xe7\x9b\x98 1"), 21);
	ck_assert_uint_eq(find("n"), 0);
	ck_assert_int_eq(map_rename(store, 21, "a/b"), -EINVAL);
	ck_assert_int_eq(map_rename(store, 21, longest), -EEXIST);
	ck_assert_int_eq(map_rename(store, 20, longest), 0);
	ck_assert_int_eq(create(22, longest, SIZE), -EEXIST);
	ck_assert_int_eq(map_record_open(store, 22, &head), -ENOENT);
	ck_assert_int_eq(map_rename(store, 21, "short"), 0);
	ck_assert_uint_eq(find("\xe7\xa3\x81\xe7\x9b\x98 1"), 0);
	ck_assert_uint_eq(find("short"), 21);
	teardown();
}

#define PRIME1 0x9e3779b185ebca87ull
#define PRIME2 0xc2b2ae3d27d4eb4full

static uint64_t hash_round(uint64_t state, uint64_t in)
{
	state += in * PRIME2;
	return (state << 31 | state >> 33) * PRIME1;
}

static bool is_plain(uint64_t eight)
{
	for (int i = 0; i < 8; i++, eight >>= 8)
		if ((eight & 0xff) < 0x21 || (eight & 0xff) > 0x7e || (eight & 0xff) == '/')
			return false;
	return true;
}

/* XXH64 takes 32 bytes at a time into four states: what the first eight bytes do to one is undone
   by the eight of the next round. */
static void same_hash(char a[65], char b[65])
{
	uint64_t inverse = PRIME2, random = 5, x, y;
	for (int i = 0; i < 6; i++)
		inverse *= 2 - PRIME2 * inverse;
	memset(a, 'a', 64);
	a[64] = 0;
	memcpy(b, a, 65);
	memcpy(&x, a, 8);
	uint64_t first = hash_round(PRIME1 + PRIME2, x);
	do {
		do
			x = random_next(&random) & 0x7f7f7f7f7f7f7f7full;
		while (!is_plain(x));
		memcpy(&y, a + 32, 8);
		y += (first - hash_round(PRIME1 + PRIME2, x)) * inverse;
	} while (!is_plain(y));
	memcpy(b, &x, 8);
	memcpy(b + 32, &y, 8);
}

UNIT(test_names_with_one_hash)
{
	setup();
	char a[65], b[65];
	same_hash(a, b);
	ck_assert_str_ne(a, b);
	ck_assert_uint_eq(map_format_name_hash(a), map_format_name_hash(b));
	ck_assert_int_eq(create(1, a, SIZE), 0);
	ck_assert_uint_eq(find(a), 1);
	ck_assert_uint_eq(find(b), 0);
	ck_assert_int_eq(create(2, b, SIZE), -ENOTUNIQ);
	ck_assert_int_eq(map_record_open(store, 2, &head), -ENOENT);
	ck_assert_int_eq(snapshot(1, 3, b), -ENOTUNIQ);
	ck_assert_int_eq(map_rename(store, 1, b), -ENOTUNIQ);
	ck_assert_uint_eq(find(a), 1);
	ck_assert_int_eq(map_rename(store, 1, "other"), 0);
	ck_assert_int_eq(create(2, b, SIZE), 0);
	ck_assert_uint_eq(find(a), 0);
	ck_assert_uint_eq(find(b), 2);
	ck_assert_int_eq(map_cleanup(store, 1000, &deleted), 0);
	ck_assert_uint_eq(deleted, 0);
	teardown();
}

UNIT(test_names_as_people_say_them)
{
	static const char *const nobody[] = {"disk@friday", "other@monday", "000000000000000b"};
	char stored[MAP_NAME_ROOM], shown[MAP_NAME_ROOM];
	uint64_t id = 0;
	setup();
	ck_assert_int_eq(create(10, "disk", SIZE), 0);
	ck_assert_int_eq(map_shown_store(store, "disk@monday", stored), 0);
	ck_assert_str_eq(stored, "000000000000000a@monday");
	ck_assert_int_eq(map_shown_store(store, "other@monday", stored), -ENOENT);
	ck_assert_int_eq(snapshot(10, 11, "000000000000000a@monday"), 0);
	ck_assert_int_eq(map_rename(store, 10, "plate"), 0);
	map_shown_name(store, volume(11), shown);
	ck_assert_str_eq(shown, "plate@monday");
	ck_assert_int_eq(map_shown_find(store, "disk@monday", &id), -ENOENT);
	ck_assert_int_eq(map_shown_find(store, "plate@monday", &id), 0);
	ck_assert_uint_eq(id, 11);
	ck_assert_int_eq(map_shown_find(store, "000000000000000a@monday", &id), 0);
	for (size_t i = 0; i < countof(nobody); i++)
		ck_assert_int_eq(map_shown_find(store, nobody[i], &id), -ENOENT);

	/* as an older store may have it */
	ck_assert_int_eq(snapshot(10, 12, "plate@old"), 0);
	ck_assert_int_eq(map_shown_find(store, "plate@old", &id), 0);
	ck_assert_uint_eq(id, 12);
	teardown();
}

/* --- sizes, states, flags --------------------------------------------------------------------- */

UNIT(test_sizes)
{
	setup();
	const uint64_t tib = (uint64_t)1 << 40;
	struct map_create huge = create_of(9, "huge");
	huge.object_size = XSEG_OBJECT_MAX;
	huge.size = 16 * tib;
	ck_assert_int_eq(map_create(store, &huge, &head), 0);
	ck_assert_uint_eq(head.volume.depth, 2);
	ck_assert_int_eq(map_change_resize(store, 9, 64 * tib, &head), 0);
	ck_assert_int_eq(map_change_resize(store, 9, 64 * tib + 512, &head), -EFBIG);
	huge.id = 10;
	huge.name = "larger";
	huge.size = 64 * tib + 512;
	ck_assert_int_eq(map_create(store, &huge, &head), -EFBIG);
	huge.size = 512;
	huge.object_size = 12288;
	ck_assert_int_eq(map_create(store, &huge, &head), -EINVAL);
	ck_assert_int_eq(create(1, "empty", 0), 0);
	ck_assert_int_eq(tell(1, 0, 1, 0), -EINVAL);
	ck_assert_int_eq(create(2, "odd", 3 * OBJECT + 512), 0);
	ck_assert_int_eq(tell(2, 3, 1, 0), 0);
	ck_assert_int_eq(tell(2, 4, 1, 0), -EINVAL);
	ck_assert_int_eq(create(3, "torn", 513), -EINVAL);
	ck_assert_int_eq(create(0, "nobody", 512), -EINVAL);
	ck_assert_int_eq(map_change_resize(store, 2, 513, &head), -EINVAL);
	ck_assert_int_eq(map_change_resize(store, 2, OBJECT, &head), 0);
	ck_assert_int_eq(map_change_resize(store, 2, 4 * OBJECT, &head), 0);
	ck_assert(map_entry_is_hole(entry(2, 3)));
	ck_assert_uint_gt(volume(2)->epoch, 1);
	/* a clone may be larger, not smaller */
	ck_assert_int_eq(clone_of(2, 4, "small", OBJECT), -EINVAL);
	ck_assert_int_eq(clone_of(2, 5, "deep", (uint64_t)70000 * OBJECT), 0);
	ck_assert_uint_eq(volume(5)->depth, 2);
	ck_assert_int_eq(map_record_open(store, 4, &head), -ENOENT);
	teardown();
}

UNIT(test_states_and_flags)
{
	setup();
	struct map_create create = create_of(1, "import");
	create.state = XSEG_VOLUME_REMOVING;
	ck_assert_int_eq(map_create(store, &create, &head), -EINVAL);
	create.state = XSEG_VOLUME_IMPORTING;
	ck_assert_int_eq(map_create(store, &create, &head), 0);
	ck_assert_int_eq(snapshot(1, 2, "snap"), -EBUSY);
	ck_assert_int_eq(clone_of(1, 2, "snap", 0), -EBUSY);
	ck_assert_int_eq(map_change_state(store, 1, XSEG_VOLUME_REMOVING), -EINVAL);
	ck_assert_int_eq(map_change_state(store, 1, XSEG_VOLUME_READY), 0);
	ck_assert_int_eq(map_change_state(store, 1, XSEG_VOLUME_READY), 0);
	ck_assert_int_eq(map_change_state(store, 1, XSEG_VOLUME_IMPORTING), -EINVAL);
	ck_assert_int_eq(map_change_flags(store, 1, MAP_SNAPSHOT, 0), -EINVAL);
	ck_assert_int_eq(map_change_flags(store, 1, MAP_PROTECTED, MAP_PROTECTED), -EINVAL);
	ck_assert_int_eq(map_change_flags(store, 1, MAP_PROTECTED, 0), 0);
	ck_assert_int_eq(map_change_limits(store, 1, 100, 200, 300), 0);
	uint64_t generation = volume(1)->generation;
	ck_assert_int_eq(map_change_flags(store, 1, MAP_PROTECTED, 0), 0);
	ck_assert_int_eq(map_change_limits(store, 1, 100, 200, 300), 0);
	ck_assert_uint_eq(volume(1)->generation, generation);
	ck_assert_uint_eq(head.volume.limit_iops, 100);
	ck_assert_uint_eq(head.volume.limit_bytes, 200);
	ck_assert_uint_eq(head.volume.limit_burst_ms, 300);
	ck_assert_int_eq(map_remove(store, 1, &child), -EPERM);
	ck_assert_int_eq(map_change_flags(store, 1, 0, MAP_PROTECTED), 0);
	ck_assert_int_eq(map_remove(store, 1, &child), 0);
	ck_assert_int_eq(map_remove(store, 1, &child), 0); /* it has been */
	ck_assert_int_eq(map_change_flags(store, 1, MAP_PROTECTED, 0), -ENOENT);
	teardown();
}

/* What was made is found, whatever has become of it; another thing under its id is not it. */
UNIT(test_said_again)
{
	setup();
	ck_assert_int_eq(create(1, "a", SIZE), 0);
	ck_assert_int_eq(snapshot(1, 2, "s"), 0);
	ck_assert_int_eq(clone_of(2, 3, "c", 0), 0);
	uint32_t epoch = volume(1)->epoch;
	ck_assert_int_eq(map_rename(store, 1, "b"), 0);
	ck_assert_int_eq(map_rename(store, 3, "d"), 0);
	ck_assert_int_eq(create(1, "a", SIZE), 0);
	ck_assert_str_eq(head.volume.name, "b");
	ck_assert_int_eq(snapshot(1, 2, "s"), 0);
	ck_assert_uint_eq(head.volume.id, 1);
	ck_assert_uint_eq(head.volume.epoch, epoch);
	ck_assert_int_eq(clone_of(2, 3, "c", 0), 0);
	ck_assert_str_eq(head.volume.name, "d");
	ck_assert_uint_eq(find("a"), 0);
	ck_assert_uint_eq(find("c"), 0);
	ck_assert_int_eq(snapshot(1, 3, "x"), -EEXIST);
	ck_assert_int_eq(clone_of(1, 2, "x", 0), -EEXIST);
	ck_assert_int_eq(create(3, "x", SIZE), -EEXIST);
	ck_assert_int_eq(snapshot(1, 1, "x"), -EINVAL);
	ck_assert_int_eq(snapshot(2, 4, "x"), -EPERM);
	ck_assert_int_eq(snapshot(77, 4, "x"), -ENOENT);
	ck_assert_int_eq(map_change_rollback(store, 1, 3, &head), -EINVAL);
	ck_assert_int_eq(map_change_rollback(store, 3, 2, &head), -EINVAL);
	ck_assert_int_eq(map_change_rollback(store, 2, 2, &head), -EPERM);
	ck_assert_int_eq(map_remove(store, 1, &child), -ENOTEMPTY);
	ck_assert_uint_eq(child, 2);
	ck_assert_int_eq(map_remove(store, 2, &child), -ENOTEMPTY);
	ck_assert_uint_eq(child, 3);
	teardown();
}

/* --- chains ----------------------------------------------------------------------------------- */

UNIT(test_chain_of_snapshots)
{
	setup();
	char name[16];
	ck_assert_int_eq(create(1, "disk", SIZE), 0);
	for (unsigned i = 0; i < 64; i++) {
		ck_assert_int_eq(tell(1, i % 8, head.volume.epoch, 0), 0);
		snprintf(name, sizeof(name), "s%u", i);
		ck_assert_int_eq(snapshot(1, 100 + i, name), 0);
	}
	for (unsigned i = 0; i < 64; i++)
		for (unsigned object = 0; object < 8; object++) {
			/* the last write at or before the snapshot */
			unsigned last =
				object <= i % 8 ? i - i % 8 + object : i - i % 8 + object - 8;
			struct map_entry at = entry(100 + i, object);
			ck_assert_uint_eq(at.epoch, object > i ? 0 : last + 1);
		}
	ck_assert_int_eq(map_change_rollback(store, 1, 100, &head), 0);
	ck_assert_uint_eq(head.volume.epoch, 66);
	ck_assert_uint_eq(head.volume.frozen, 65);
	ck_assert_uint_eq(entry(1, 0).epoch, 1);
	ck_assert(map_entry_is_hole(entry(1, 1)));
	for (unsigned i = 0; i < 64; i++)
		ck_assert_int_eq(map_remove(store, 100 + i, &child), 0);
	ck_assert_int_eq(map_remove(store, 1, &child), 0);
	ck_assert_uint_eq(map_memory_objects(memory, 1), 0);
	teardown();
}

UNIT(test_clones_of_clones)
{
	setup();
	char name[16];
	ck_assert_int_eq(create(1, "c1", SIZE), 0);
	for (unsigned id = 2; id <= MAP_OWNERS_MAX + 1; id++) {
		ck_assert_int_eq(tell(id - 1, (id - 1) % 64, 1, 0), 0);
		snprintf(name, sizeof(name), "c%u", id);
		ck_assert_int_eq(clone_of(id - 1, id, name, 0), id <= MAP_OWNERS_MAX ? 0 : -EMLINK);
	}
	for (uint32_t object = 0; object < 64; object++) {
		unsigned id = object == 0 ? 128 : 64 + object; /* the last that wrote it */
		struct map_entry at = entry(MAP_OWNERS_MAX, object);
		ck_assert_uint_eq(head.volume.owners[at.owner], id);
	}
	ck_assert_uint_eq(find("c129"), 0);
	ck_assert_int_eq(snapshot(MAP_OWNERS_MAX, 500, "leaf"), 0);
	ck_assert_int_eq(map_cleanup(store, 1000, &deleted), 0);
	ck_assert_uint_eq(deleted, 0);
	teardown();
}

/* --- who needs whom --------------------------------------------------------------------------- */

UNIT(test_flat_reads_little)
{
	setup();
	bool flat = true;
	ck_assert_int_eq(create(1, "deep", (uint64_t)70000 * OBJECT), 0);
	for (uint32_t object = 0; object < 70000; object += 4096)
		ck_assert_int_eq(tell(1, object, 1, 0), 0);
	ck_assert_int_eq(map_change_is_flat(store, volume(1), &flat), 0);
	ck_assert(flat);
	ck_assert_int_eq(clone_of(1, 2, "clone", 0), 0);
	struct map_volume clone = *volume(2);
	map_memory_heal(memory);
	ck_assert_int_eq(map_change_is_flat(store, &clone, &flat), 0);
	ck_assert(!flat);
	ck_assert_uint_eq(memory->count[MAP_MEMORY_READ], 0);
	/* its own directory leads to the parent's page: that is enough */
	ck_assert_int_eq(tell(2, 65536, 1, 0), 0);
	ck_assert_int_eq(tell(2, 5, 1, 0), 0);
	clone = *volume(2);
	map_memory_heal(memory);
	ck_assert_int_eq(map_change_is_flat(store, &clone, &flat), 0);
	ck_assert(!flat);
	ck_assert_uint_le(memory->count[MAP_MEMORY_READ], 2);
	ck_assert_int_eq(map_change_detach(store, 2), -ENOTEMPTY);
	for (uint32_t object = 0; object < 70000; object += 4096)
		ck_assert_int_eq(tell(2, object, 1, 0), 0);
	ck_assert_int_eq(map_change_detach(store, 2), 0);
	ck_assert_uint_eq(volume(2)->parent, 0);
	ck_assert_int_eq(map_remove(store, 1, &child), 0);
	teardown();
}

/* A snapshot that outlives its clone's detaching holds on to objects of volumes that are gone; who
   takes the last of it away takes them, too. */
UNIT(test_objects_of_the_dead)
{
	setup();
	uint8_t data[XSEG_SECTOR] = {1};
	ck_assert_int_eq(create(1, "base", SIZE), 0);
	ck_assert_int_eq(store->write(store, (struct xseg_key){1, 1, 0}, 0, data, sizeof(data)), 0);
	ck_assert_int_eq(tell(1, 0, 1, 0), 0);
	ck_assert_int_eq(clone_of(1, 2, "clone", 0), 0);
	ck_assert_int_eq(snapshot(2, 3, "snap"), 0);
	ck_assert_int_eq(tell(2, 0, head.volume.epoch, 0), 0);
	ck_assert_int_eq(map_change_detach(store, 2), 0);
	ck_assert_int_eq(map_remove(store, 1, &child), 0);
	ck_assert(map_memory_exists(memory, (struct xseg_key){1, 1, 0}));
	ck_assert_uint_eq(volume(3)->owners[entry(3, 0).owner], 1);
	ck_assert_int_eq(map_remove(store, 3, &child), 0);
	ck_assert(map_memory_exists(memory, (struct xseg_key){1, 1, 0})); /* it is in the table */
	ck_assert_int_eq(map_remove(store, 2, &child), 0);
	ck_assert_uint_eq(map_memory_objects(memory, 1), 0);
	ck_assert_uint_eq(map_memory_objects(memory, 2), 0);
	teardown();
}

/* --- deltas -------------------------------------------------------------------------------------
   */

static int tell_partial(uint64_t id, uint32_t epoch, uint64_t has)
{
	struct map_delta deltas = {.object = 0,
		.epoch = epoch,
		.flags = MAP_PARTIAL,
		.parent_owner = 1,
		.parent_epoch = 1,
		.has = {has, 0, UINT64_MAX, UINT64_MAX}};
	return map_update(store, id, &deltas, 1, &head);
}

static uint64_t has_of(uint64_t id, uint32_t epoch)
{
	struct map_bitmap bitmap;
	ck_assert_int_eq(map_bitmap_read(store, id, epoch, 0, &bitmap), 0);
	ck_assert_uint_eq(bitmap.parent_owner, 1);
	ck_assert_uint_eq(bitmap.has[2], UINT64_MAX);
	return bitmap.has[0];
}

UNIT(test_partial)
{
	setup();
	ck_assert_int_eq(create(1, "base", SIZE), 0);
	ck_assert_int_eq(tell(1, 0, 1, 0), 0);
	ck_assert_int_eq(clone_of(1, 2, "clone", 0), 0);
	ck_assert_int_eq(tell_partial(2, 1, 5), 0);
	ck_assert_int_eq(tell_partial(2, 1, 2), 0); /* added */
	ck_assert_uint_eq(has_of(2, 1), 7);
	uint64_t generation = volume(2)->generation;
	map_memory_heal(memory);
	ck_assert_int_eq(tell_partial(2, 1, 2), 0); /* said again */
	ck_assert_uint_eq(memory->count[MAP_MEMORY_WRITE], 0);
	ck_assert_uint_eq(memory->count[MAP_MEMORY_FLUSH], 1); /* who knows whether it is durable */
	ck_assert_uint_eq(volume(2)->generation, generation);
	/* shared with a snapshot it gets no more bits, and what it has may be said again */
	ck_assert_int_eq(snapshot(2, 3, "snap"), 0);
	ck_assert_int_eq(tell_partial(2, 1, 3), 0);
	ck_assert_int_eq(tell_partial(2, 1, 8), -ESTALE);
	ck_assert_int_eq(tell(2, 0, 1, 0), -ESTALE);
	ck_assert_uint_eq(has_of(2, 1), 7);
	/* a child of ours over it; whole in the end, and partial no more */
	struct map_delta deltas = {.epoch = 2,
		.flags = MAP_PARTIAL,
		.parent_owner = 2,
		.parent_epoch = 1,
		.parent_flags = MAP_PARTIAL,
		.has = {1}};
	ck_assert_int_eq(map_update(store, 2, &deltas, 1, &head), 0);
	ck_assert_uint_eq(entry(2, 0).flags, MAP_PARTIAL);
	memset(deltas.has, 0xff, sizeof(deltas.has));
	ck_assert_int_eq(map_update(store, 2, &deltas, 1, &head), 0);
	ck_assert_uint_eq(entry(2, 0).flags, 0);
	deltas.has[0] = 1;
	ck_assert_int_eq(map_update(store, 2, &deltas, 1, &head), 0);
	ck_assert_uint_eq(entry(2, 0).flags, 0);
	ck_assert_uint_eq(entry(3, 0).flags, MAP_PARTIAL);
	ck_assert_uint_eq(entry(3, 0).epoch, 1);
	teardown();
}

UNIT(test_refused_deltas)
{
	setup();
	ck_assert_int_eq(create(1, "base", SIZE), 0);
	ck_assert_int_eq(tell(1, 0, 1, 0), 0);
	ck_assert_int_eq(tell(1, 0, 0, 0), -EINVAL);
	ck_assert_int_eq(tell(1, 0, 2, 0), -EINVAL); /* an epoch that is not yet */
	ck_assert_int_eq(tell(1, 0, 1, 8), -EINVAL);
	ck_assert_int_eq(tell(1, SIZE / OBJECT, 1, 0), -EINVAL);
	ck_assert_int_eq(map_change_epoch(store, 1, false, &head), 0);
	ck_assert_int_eq(tell(1, 0, 1, 0), 0);	     /* the map knows it */
	ck_assert_int_eq(tell(1, 1, 1, 0), -ESTALE); /* it may be swept by now */
	ck_assert_int_eq(tell(1, 1, 1, MAP_ZERO), 0);
	ck_assert_int_eq(tell(1, 1, 1, 0), -ESTALE);
	ck_assert_int_eq(tell(1, 1, 0, MAP_UPDATE_HOLE), 0);
	ck_assert(map_entry_is_hole(entry(1, 1)));
	ck_assert_int_eq(clone_of(1, 2, "clone", 0), 0);
	struct map_delta deltas = {
		.epoch = 1, .flags = MAP_PARTIAL, .parent_owner = 7, .parent_epoch = 1};
	ck_assert_int_eq(map_update(store, 2, &deltas, 1, &head), -EINVAL); /* of a stranger */
	deltas.parent_owner = 2;
	ck_assert_int_eq(map_update(store, 2, &deltas, 1, &head), -EINVAL); /* of itself */
	deltas.parent_owner = 1;
	deltas.parent_flags = MAP_ZERO;
	ck_assert_int_eq(map_update(store, 2, &deltas, 1, &head), -EINVAL);
	deltas.parent_flags = 0;
	ck_assert_int_eq(map_update(store, 2, &deltas, 1, &head), 0);
	deltas.parent_epoch = 2;
	ck_assert_int_eq(
		map_update(store, 2, &deltas, 1, &head), -EINVAL); /* another than before */
	ck_assert_int_eq(snapshot(1, 3, "snap"), 0);
	ck_assert_int_eq(tell(3, 0, 1, 0), -EPERM);
	ck_assert_int_eq(tell(77, 0, 1, 0), -ENOENT);
	ck_assert_int_eq(map_update(store, 1, NULL, 0, &head), 0);
	teardown();
}

/* What a cut-off attempt has left of another object's bitmap is not taken for this one's. */
UNIT(test_leftover_bitmap)
{
	setup();
	ck_assert_int_eq(create(1, "base", SIZE), 0);
	ck_assert_int_eq(clone_of(1, 2, "clone", 0), 0);
	struct map_bitmap left = {.owner = 2,
		.epoch = 1,
		.sequence = 8,
		.parent_owner = 1,
		.parent_epoch = 9,
		.has = {0xf0}};
	ck_assert_int_eq(map_bitmap_write(store, &left), 0);
	ck_assert_int_eq(tell_partial(2, 1, 1), 0);
	ck_assert_uint_eq(has_of(2, 1), 1);
	/* both halves damaged: of one that the map knows nothing is guessed */
	map_memory_corrupt(memory, map_bitmap_key(2, 1, 0), 40, 1);
	map_memory_corrupt(memory, map_bitmap_key(2, 1, 0), MAP_BITMAP_SIZE + 40, 1);
	ck_assert_int_eq(tell_partial(2, 1, 1), -EILSEQ);
	teardown();
}

/* --- damage, cleaning up, listing ------------------------------------------------------------- */

struct seen {
	unsigned good, bad;
	uint64_t bad_id;
};

static int see(void *context, uint64_t id, int error, const struct map_head *at)
{
	struct seen *seen = context;
	ck_assert_uint_eq(at->volume.id, id);
	seen->good += error == 0;
	seen->bad += error == -EILSEQ;
	seen->bad_id = error ? id : seen->bad_id;
	return 0;
}

static int stop(void *context, uint64_t id, int error, const struct map_head *at)
{
	(void)context;
	(void)error;
	(void)at;
	return (int)id;
}

UNIT(test_list_and_damage)
{
	setup();
	char name[16];
	struct seen seen = {0};
	for (unsigned id = 1; id <= 150; id++) {
		snprintf(name, sizeof(name), "v%u", id);
		ck_assert_int_eq(create(id, name, SIZE), 0);
	}
	map_memory_heal(memory);
	ck_assert_int_eq(map_record_each(store, see, &seen), 0);
	ck_assert_uint_eq(seen.good, 150);
	ck_assert_uint_le(memory->count[MAP_MEMORY_GET], 150 * 3); /* no names are read */
	ck_assert_int_gt(map_record_each(store, stop, NULL), 0);
	map_memory_corrupt(memory, map_volume_key(7, 1), 100, 1);
	ck_assert_int_eq(map_record_open(store, 7, &head), 0); /* the other half */
	map_memory_corrupt(memory, map_volume_key(7, 0), 100, 1);
	ck_assert_int_eq(map_record_open(store, 7, &head), -EILSEQ);
	seen = (struct seen){0};
	ck_assert_int_eq(map_record_each(store, see, &seen), 0);
	ck_assert_uint_eq(seen.good, 149);
	ck_assert_uint_eq(seen.bad, 1);
	ck_assert_uint_eq(seen.bad_id, 7);
	ck_assert_int_eq(map_name_find(store, "v7", &child), -EILSEQ);
	ck_assert_int_eq(create(500, "v7", SIZE), -EILSEQ); /* its name stays its own */
	ck_assert_int_eq(map_cleanup(store, 1000, &deleted), 0);
	ck_assert_uint_eq(deleted, 0);
	/* who knows what the damaged one needs */
	ck_assert_int_eq(tell(8, 0, volume(8)->epoch, 0), 0);
	ck_assert_int_eq(map_remove(store, 8, &child), 0);
	ck_assert_uint_ne(map_memory_objects(memory, 8), 0);
	teardown();
}

UNIT(test_cleanup)
{
	setup();
	struct map_claim claim = {.owner = 5, .now_ns = 1, .lease_ns = 1, .host = "h"};
	struct map_home home;
	ck_assert_int_eq(create(1, "a", SIZE), 0);
	put_name("nobody", 99);
	put_name("former", 1);
	ck_assert_int_eq(map_home_acquire(store, 1, &claim, false, &home), 0);
	ck_assert_int_eq(map_home_acquire(store, 98, &claim, false, &home), 0);
	ck_assert_uint_eq(find("nobody"), 0);
	ck_assert_uint_eq(find("former"), 0);
	ck_assert_int_eq(map_cleanup(store, 1000, &deleted), 0);
	ck_assert_uint_eq(deleted, 3);
	ck_assert(!map_memory_exists(memory, map_name_key("nobody")));
	ck_assert(!map_memory_exists(memory, map_name_key("former")));
	ck_assert_int_eq(map_home_read(store, 98, &home), -ENOENT);
	ck_assert_int_eq(map_home_read(store, 1, &home), 0);
	/* a volume whose name is gone gets it back */
	uint64_t version = 1;
	ck_assert_int_eq(store->drop(store, map_name_key("a"), &version), 0);
	ck_assert_uint_eq(find("a"), 0);
	ck_assert_int_eq(map_cleanup(store, 1000, &deleted), 0);
	ck_assert_uint_eq(find("a"), 1);
	/* one in the making is left until it is old */
	map_memory_heal(memory);
	memory->cut_after = 2;
	ck_assert_int_eq(create(2, "b", SIZE), -EIO);
	map_memory_heal(memory);
	ck_assert_int_eq(map_record_open(store, 2, &head), -ENOENT);
	ck_assert_int_eq(map_cleanup(store, 100, &deleted), 0);
	ck_assert_uint_eq(deleted, 0);
	ck_assert(map_memory_exists(memory, map_volume_key(2, 1)));
	ck_assert_int_eq(map_cleanup(store, 101, &deleted), 0);
	ck_assert_uint_eq(deleted, 1);
	ck_assert(!map_memory_exists(memory, map_volume_key(2, 1)));
	/* names that nobody bears can be taken as they are; the home goes with its volume */
	put_name("nobody", 99);
	put_name("former", 1);
	ck_assert_int_eq(create(3, "nobody", SIZE), 0);
	ck_assert_int_eq(map_rename(store, 3, "former"), 0);
	ck_assert_uint_eq(find("former"), 3);
	ck_assert_int_eq(map_remove(store, 1, &child), 0);
	ck_assert_int_eq(map_home_read(store, 1, &home), -ENOENT);
	teardown();
}

/* As a mover does it, of whom others know nothing who look into the store. */
static void hide(uint64_t id)
{
	for (unsigned half = 0; half < 2; half++) {
		struct xseg_key key = map_volume_key(id, half), hidden = key;
		uint8_t bytes[XSEG_RECORD_MAX];
		uint64_t version, none = 0;
		int size = store->get(store, key, bytes, &version);
		ck_assert_int_gt(size, 0);
		hidden.object |= MOVER_HIDDEN;
		ck_assert_int_eq(store->put(store, hidden, bytes, (uint32_t)size, &none), 0);
		ck_assert_int_eq(store->drop(store, key, &version), 0);
	}
}

UNIT(test_hidden)
{
	setup();
	struct map_claim claim = {.owner = 5, .now_ns = 1, .lease_ns = 1, .host = "h"};
	struct map_home home;
	ck_assert_int_eq(create(1, "a", SIZE), 0);
	ck_assert_int_eq(map_home_acquire(store, 1, &claim, false, &home), 0);
	hide(1);
	ck_assert_int_eq(map_record_open(store, 1, &head), -ENOENT);
	ck_assert_int_eq(map_cleanup(store, 1000, &deleted), 0);
	ck_assert_uint_eq(deleted, 0);
	ck_assert_int_eq(create(2, "a", SIZE), -EEXIST);
	ck_assert_int_eq(map_home_read(store, 1, &home), 0);
	teardown();
}

/* As many changes for a volume of 8 TiB that is full of objects as for an empty one of 1 MiB. */
UNIT(test_cost_of_a_snapshot)
{
	setup();
	uint64_t mutations[2];
	ck_assert_int_eq(create(1, "small", OBJECT), 0);
	ck_assert_int_eq(create(2, "large", (uint64_t)8 << 40), 0);
	for (uint32_t object = 0; object < 8u << 20; object += 100000)
		ck_assert_int_eq(tell(2, object, 1, 0), 0);
	for (unsigned i = 0; i < 2; i++) {
		map_memory_heal(memory);
		ck_assert_int_eq(snapshot(1 + i, 10 + i, i ? "s2" : "s1"), 0);
		mutations[i] = memory->mutations;
		ck_assert_uint_eq(memory->count[MAP_MEMORY_READ], 0);
		ck_assert_int_eq(clone_of(10 + i, 20 + i, i ? "c2" : "c1", 0), 0);
		ck_assert_uint_eq(memory->count[MAP_MEMORY_READ], 0);
		ck_assert_uint_eq(memory->count[MAP_MEMORY_WRITE], 0);
	}
	ck_assert_uint_eq(mutations[0], mutations[1]);
	ck_assert_uint_eq(mutations[0], 5);
	teardown();
}
