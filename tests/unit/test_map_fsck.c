/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsck: each kind of damage is found and named, what is safe is repaired, and what cannot be read
 * holds what it may need.
 */
#include <peer/mover.h>

#include "tests/unit/map_sweep_rig.h"

/* --- what is held ---------------------------------------------------------------------------- */

UNIT_WITHIN(test_damaged_page_holds_its_family, setup, teardown)
{
	struct xseg_key waste[2];
	make_families(waste);
	struct map_ref ref = head_of(A).volume.top[0];
	struct xseg_key page = map_page_key(A, ref.epoch, 0);
	map_memory_corrupt(memory, page, ref.half * MAP_PAGE_SIZE + 9, 1);
	gc();
	ck_assert(exists(waste[0]) && !exists(waste[1]));
	ck_assert_uint_eq(sweep.found[MAP_FOUND_BAD_PAGE], 1);
	ck_assert_uint_eq(sweep.found[MAP_FOUND_UNREACHABLE], 1);
	fsck(true);
	const struct map_report *report = ck_found(MAP_FOUND_BAD_PAGE, false);
	ck_assert_uint_eq(report->volume, A);
	ck_assert_mem_eq(&report->key, &page, sizeof(page));
	ck_assert(exists(waste[0]));
	fsck(true);
	ck_found(MAP_FOUND_BAD_PAGE, false);
	/* given up: then what it held may go */
	struct map_head head = head_of(A);
	head.volume.top[0] = (struct map_ref){0};
	ck_assert_int_eq(map_head_put(store, &head), 0);
	gc();
	ck_assert(!exists(waste[0]));
}

UNIT_WITHIN(test_damaged_directory, setup, teardown)
{
	create(A, MAP_OBJECTS_FLAT * 2, "a");
	write_whole(A, 0);
	write_whole(A, MAP_OBJECTS_FLAT + 5);
	ck_clean();
	struct map_ref ref = head_of(A).volume.top[0];
	map_memory_corrupt(memory, map_directory_key(A, ref.epoch, 0), ref.half * MAP_PAGE_SIZE, 4);
	fsck(true);
	const struct map_report *report = ck_found(MAP_FOUND_BAD_PAGE, false);
	ck_assert_uint_eq(report->key.object, MAP_NUMBER_DIRECTORY);
}

UNIT_WITHIN(test_bad_record, setup, teardown)
{
	struct xseg_key waste[2];
	make_families(waste);
	map_memory_corrupt(memory, map_volume_key(A, 0), 100, 1);
	map_memory_corrupt(memory, map_volume_key(A, 1), 100, 1);
	gc();
	ck_assert(exists(waste[0]) && exists(waste[1]));
	ck_found(MAP_FOUND_BAD_RECORD, false);
	fsck(true);
	ck_assert_uint_eq(ck_found(MAP_FOUND_BAD_RECORD, false)->volume, A);
	ck_assert(exists(waste[0]) && exists(waste[1]));
}

/* Either half: the whole one counts, and the family is left alone until both are. */
UNIT_LOOP_WITHIN(test_half_record, 2, setup, teardown)
{
	struct xseg_key waste[2];
	make_families(waste);
	struct xseg_key half = map_volume_key(A, (unsigned)_i);
	map_memory_corrupt(memory, half, 100, 1);
	gc();
	ck_assert(exists(waste[0]) && !exists(waste[1]));
	fsck(false);
	ck_assert_mem_eq(&ck_found(MAP_FOUND_HALF_RECORD, false)->key, &half, sizeof(half));
	fsck(true);
	ck_found(MAP_FOUND_HALF_RECORD, true);
	fsck(true);
	ck_assert_uint_eq(sweep.found[MAP_FOUND_HALF_RECORD], 0);
	ck_clean();
}

/* --- fsck, finding by finding ----------------------------------------------------------------- */

UNIT_WITHIN(test_unreachable, setup, teardown)
{
	struct xseg_key waste[2];
	make_families(waste);
	fsck(false);
	ck_assert_uint_eq(reported, 2);
	ck_assert_uint_eq(sweep.found[MAP_FOUND_UNREACHABLE], 2);
	ck_assert(!reports[0].repaired && exists(waste[0]) && exists(waste[1]));
	fsck(true);
	ck_assert_uint_eq(reported, 2);
	ck_assert(reports[0].repaired && !exists(waste[0]) && !exists(waste[1]));
	ck_clean();
}

UNIT_WITHIN(test_lost, setup, teardown)
{
	create(A, 10, "a");
	struct xseg_key key = write_whole(A, 4);
	write_whole(A, 5);
	ck_assert_int_eq(store->discard(store, key), 0);
	fsck(true);
	const struct map_report *report = ck_found(MAP_FOUND_LOST, false);
	ck_assert_uint_eq(report->volume, A);
	ck_assert_uint_eq(report->object, 4);
	ck_assert_mem_eq(&report->key, &key, sizeof(key));
	fsck(true);
	ck_found(MAP_FOUND_LOST, false);
}

UNIT_WITHIN(test_bad_bitmap, setup, teardown)
{
	struct xseg_key waste[2];
	make_families(waste);
	struct xseg_key part = write_part(A, 0, 1);
	struct xseg_key key = map_bitmap_key(part.volume, part.epoch, 0);
	ck_assert_int_eq(store->discard(store, key), 0);
	fsck(true);
	ck_assert_uint_eq(sweep.found[MAP_FOUND_BAD_BITMAP], 1);
	ck_assert_uint_eq(sweep.found[MAP_FOUND_UNREACHABLE], 1);
	ck_assert_uint_eq(reported, 2);
	ck_assert(exists(waste[0]) && !exists(waste[1]));
	ck_assert_mem_eq(&reports[0].key, &key, sizeof(key));
	fsck(true);
	ck_found(MAP_FOUND_BAD_BITMAP, false);
}

UNIT_WITHIN(test_overlap, setup, teardown)
{
	create(A, 10, "a");
	write_whole(A, 1);
	clone(A, B, "b");
	ck_clean();
	/* as if A had not been frozen for it */
	struct map_head head = head_of(A);
	uint32_t frozen = head.volume.frozen;
	head.volume.frozen = 0;
	ck_assert_int_eq(map_head_put(store, &head), 0);
	fsck(true);
	ck_assert_uint_eq(reported, 2); /* the page, and the object */
	ck_assert_uint_eq(sweep.found[MAP_FOUND_OVERLAP], 2);
	ck_assert_uint_eq(reports[0].volume, B);
	ck_assert(!reports[0].repaired && !reports[1].repaired);
	head = head_of(A);
	head.volume.frozen = frozen;
	ck_assert_int_eq(map_head_put(store, &head), 0);
	ck_clean();
}

static const struct map_entry bad_entries[] = {
	{.epoch = 999},		  /* not yet given */
	{.epoch = 1, .owner = 1}, /* not in the table */
	{.epoch = 1, .flags = 0}, /* beyond the end, where the test puts it */
	{.epoch = 999, .flags = MAP_ZERO},
};

UNIT_LOOP_WITHIN(test_bad_entry, countof(bad_entries), setup, teardown)
{
	struct map_entry entries[MAP_ENTRIES];
	create(A, 10, "a");
	write_whole(A, 1);
	get_entries(A, 0, entries);
	unsigned at = _i == 2 ? 10 : 3;
	entries[at] = bad_entries[_i];
	put_entries(A, 0, entries);
	fsck(false);
	ck_assert_uint_eq(ck_found(MAP_FOUND_BAD_ENTRY, false)->object, at);
	fsck(true);
	ck_found(MAP_FOUND_BAD_ENTRY, true);
	ck_clean();
	get_entries(A, 0, entries);
	ck_assert(map_entry_is_hole(entries[at]));
	ck_assert_uint_eq(head_of(A).volume.top[0].count, 1);
}

/* Nobody writes to a snapshot: it stays, and is told again. */
UNIT_WITHIN(test_bad_entry_of_snapshot, setup, teardown)
{
	struct map_entry entries[MAP_ENTRIES];
	create(A, 10, "a");
	write_whole(A, 1);
	get_entries(A, 0, entries);
	entries[3] = (struct map_entry){.epoch = 999};
	put_entries(A, 0, entries);
	snapshot(A, SNAP, "a@1");
	fsck(true);
	ck_assert_uint_ge(sweep.found[MAP_FOUND_BAD_ENTRY], 1);
	fsck(true);
	ck_assert_uint_eq(ck_found(MAP_FOUND_BAD_ENTRY, false)->volume, SNAP);
}

UNIT_WITHIN(test_bad_entry_below_directories, setup, teardown)
{
	create(A, MAP_OBJECTS_FLAT * 2, "a");
	write_whole(A, 1);
	struct map_head head = head_of(A);
	struct map_ref refs[MAP_DIRECTORY_REFS], *top = &head.volume.top[0];
	struct map_entry entries[MAP_ENTRIES];
	uint8_t bytes[MAP_PAGE_SIZE];
	ck_assert_int_eq(map_tree_directory(store, &head.volume, 0, refs), 0);
	get_entries(A, 0, entries);
	entries[9] = (struct map_entry){.epoch = 999};
	map_format_page_encode(entries, bytes);
	refs[0].crc = crc32c(0, bytes, sizeof(bytes));
	refs[0].half = 1;
	refs[0].count = 7; /* wrong, too */
	struct xseg_key key = map_page_key(A, refs[0].epoch, 0);
	ck_assert_int_eq(store->write(store, key, MAP_PAGE_SIZE, bytes, sizeof(bytes)), 0);
	map_format_directory_encode(refs, bytes);
	top->crc = crc32c(0, bytes, sizeof(bytes));
	top->half = !top->half;
	key = map_directory_key(A, top->epoch, 0);
	uint32_t offset = top->half * MAP_PAGE_SIZE;
	ck_assert_int_eq(store->write(store, key, offset, bytes, sizeof(bytes)), 0);
	ck_assert_int_eq(map_head_put(store, &head), 0);
	fsck(true);
	ck_assert_uint_eq(sweep.found[MAP_FOUND_BAD_ENTRY], 1);
	ck_assert_uint_eq(sweep.found[MAP_FOUND_BAD_COUNT], 2);
	ck_assert_uint_eq(reported, 3);
	for (unsigned i = 0; i < reported; i++)
		ck_assert(reports[i].repaired);
	ck_clean();
	ck_assert_uint_eq(head_of(A).volume.top[0].count, 1);
}

UNIT_WITHIN(test_bad_count, setup, teardown)
{
	create(A, 10, "a");
	write_whole(A, 1);
	struct map_head head = head_of(A);
	head.volume.top[0].count = 5;
	ck_assert_int_eq(map_head_put(store, &head), 0);
	snapshot(A, SNAP, "a@1"); /* what lies in a record can be put right in a snapshot, too */
	fsck(false);
	ck_assert_uint_ge(sweep.found[MAP_FOUND_BAD_COUNT], 1);
	for (unsigned i = 0; i < 2; i++)
		fsck(true); /* a page that is shared is looked at once */
	ck_clean();
	ck_assert_uint_eq(head_of(A).volume.top[0].count + head_of(SNAP).volume.top[0].count, 6);
}

static void put_name(const char *name, uint64_t id)
{
	struct map_name record = {.id = id};
	uint8_t bytes[MAP_NAME_RECORD_SIZE];
	uint64_t version = 0;
	strcpy(record.name, name);
	map_format_name_encode(&record, bytes);
	ck_assert_int_eq(store->put(store, map_name_key(name), bytes, sizeof(bytes), &version), 0);
}

static void drop_name(const char *name)
{
	uint8_t bytes[XSEG_RECORD_MAX];
	uint64_t version = 0;
	ck_assert_int_ge(store->get(store, map_name_key(name), bytes, &version), 0);
	ck_assert_int_eq(store->drop(store, map_name_key(name), &version), 0);
}

UNIT_WITHIN(test_bad_name, setup, teardown)
{
	create(A, 10, "a");
	put_name("nobody", 0x999);
	put_name("other", A);
	/* a mover has the record of this one, and will bring it back, or its name to where it is */
	struct xseg_key hidden = map_volume_key(0x998, 1);
	uint64_t version = 0;
	hidden.object |= MOVER_HIDDEN;
	ck_assert_int_eq(store->put(store, hidden, "record", 6, &version), 0);
	put_name("moves", 0x998);
	fsck(false);
	ck_assert_uint_eq(reported, 2);
	ck_assert_uint_eq(sweep.found[MAP_FOUND_BAD_NAME], 2);
	ck_assert(exists(map_name_key("nobody")) && exists(map_name_key("other")));
	fsck(true);
	ck_assert_uint_eq(reported, 2);
	ck_assert(!exists(map_name_key("nobody")) && !exists(map_name_key("other")));
	ck_assert(exists(map_name_key("moves")));
	ck_clean();
	uint64_t id = 0;
	ck_assert_int_eq(map_name_find(store, "a", &id), 0);
	ck_assert_uint_eq(id, A);
}

UNIT_WITHIN(test_volume_without_name, setup, teardown)
{
	uint64_t id = 0;
	create(A, 10, "a");
	drop_name("a");
	fsck(false);
	ck_assert_uint_eq(ck_found(MAP_FOUND_BAD_NAME, false)->volume, A);
	fsck(true);
	ck_found(MAP_FOUND_BAD_NAME, true);
	ck_clean();
	/* damaged: it goes, and comes back whole */
	map_memory_corrupt(memory, map_name_key("a"), 30, 2);
	fsck(true);
	ck_assert_uint_eq(sweep.found[MAP_FOUND_BAD_NAME], 2);
	ck_clean();
	ck_assert_int_eq(map_name_find(store, "a", &id), 0);
	/* taken by somebody else: left */
	drop_name("a");
	create(B, 10, "a");
	fsck(true);
	ck_assert_uint_eq(ck_found(MAP_FOUND_BAD_NAME, false)->volume, A);
}

UNIT_WITHIN(test_bad_parent_volume, setup, teardown)
{
	create(A, 10, "a");
	snapshot(A, SNAP, "a@1");
	clone(SNAP, B, "b");
	ck_clean();
	ck_assert_int_eq(map_head_drop(store, SNAP), 0);
	drop_name("a@1");
	fsck(true);
	const struct map_report *report = ck_found(MAP_FOUND_BAD_PARENT, false);
	ck_assert_uint_eq(report->volume, B);
	ck_assert_uint_eq(report->key.volume, SNAP);
}

UNIT_WITHIN(test_bad_parent_object, setup, teardown)
{
	create(A, 10, "a");
	struct xseg_key parent = write_whole(A, 1);
	clone(A, B, "b");
	write_part(B, 1, 2);
	write_whole(A, 1);
	gc();
	ck_assert_uint_eq(sweep.deleted, 1); /* the page that both have left behind */
	ck_clean();
	ck_assert_int_eq(store->discard(store, parent), 0);
	fsck(true);
	const struct map_report *report = ck_found(MAP_FOUND_BAD_PARENT, false);
	ck_assert_uint_eq(report->volume, B);
	ck_assert_mem_eq(&report->key, &parent, sizeof(parent));
}

UNIT_WITHIN(test_one_volume, setup, teardown)
{
	struct xseg_key waste[2];
	make_families(waste);
	struct xseg_key lost[2] = {place_of(A, 0), place_of(B, 0)};
	for (unsigned i = 0; i < 2; i++)
		ck_assert_int_eq(store->discard(store, lost[i]), 0);
	sweep = (struct map_sweep){
		.explain = true, .repair = true, .volume = B, .report = on_report};
	reported = 0;
	ck_assert_int_eq(map_sweep_run(store, &sweep), 0);
	ck_assert_uint_eq(ck_found(MAP_FOUND_LOST, false)->volume, B);
	ck_assert(exists(waste[0]) && exists(waste[1]));
	sweep.volume = 0x999;
	ck_assert_int_eq(map_sweep_run(store, &sweep), -ENOENT);
}

UNIT_WITHIN(test_names_of_findings, setup, teardown)
{
	for (unsigned i = 0; i < MAP_FINDINGS; i++) {
		ck_assert_uint_gt(strlen(map_fsck_finding_meaning(i)), 30);
		for (unsigned j = 0; j < i; j++)
			ck_assert_str_ne(map_fsck_finding_name(i), map_fsck_finding_name(j));
	}
	ck_assert_str_eq(map_fsck_finding_name(MAP_FINDINGS), "unknown");
	ck_assert_str_eq(map_fsck_finding_name(MAP_FOUND_UNREACHABLE), "unreachable");
}
