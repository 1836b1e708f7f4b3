/* SPDX-License-Identifier: Apache-2.0 */
/* Trees and what differs between them, rule by rule; theory_map_tree.c does it at random. */
#include <errno.h>
#include <string.h>

#include "tests/unit/map_tree_rig.h"

#define DIRECTORY (MAP_ENTRIES * MAP_DIRECTORY_REFS)

/* A snapshot as map_create.c makes it: the same top, and the volume is frozen. */
static struct map_head freeze(struct map_head *head, uint64_t id)
{
	struct map_head copy = {.volume = head->volume};
	copy.volume.id = id;
	copy.volume.generation = 0;
	copy.volume.flags = MAP_SNAPSHOT;
	copy.volume.self = MAP_OWNERS_MAX;
	copy.volume.frozen = copy.volume.epoch;
	head->volume.frozen = head->volume.epoch++;
	ck_assert_int_eq(map_head_put(store, head), 0);
	ck_assert_int_eq(map_head_put(store, &copy), 0);
	return copy;
}

static struct map_entry entry_of(const struct map_head *head)
{
	return (struct map_entry){.epoch = head->volume.epoch, .owner = head->volume.self};
}

static void set(struct map_head *head, uint32_t object)
{
	struct map_change change = {object, entry_of(head)};
	ck_assert_int_eq(map_tree_update(store, head, &change, 1), 0);
}

static void set_hole(struct map_head *head, uint32_t object)
{
	struct map_change change = {.object = object};
	ck_assert_int_eq(map_tree_update(store, head, &change, 1), 0);
}

static struct map_entry look(const struct map_head *head, uint32_t object)
{
	struct map_entry entry;
	ck_assert_int_eq(map_tree_entry(store, &head->volume, object, &entry), 0);
	return entry;
}

static void ck_epoch(const struct map_head *head, uint32_t object, uint32_t epoch)
{
	ck_assert_uint_eq(look(head, object).epoch, epoch);
}

static void forget_counts(void) { map_memory_heal(memory); }

static void ck_counts(uint64_t reads, uint64_t writes, uint64_t flushes, uint64_t puts)
{
	ck_assert_uint_eq(memory->count[MAP_MEMORY_READ], reads);
	ck_assert_uint_eq(memory->count[MAP_MEMORY_WRITE], writes);
	ck_assert_uint_eq(memory->count[MAP_MEMORY_FLUSH], flushes);
	ck_assert_uint_eq(memory->count[MAP_MEMORY_PUT], puts);
	ck_assert_uint_eq(memory->mutations, writes + flushes + puts);
}

/* --- trees -------------------------------------------------------------------------------- */

UNIT_WITHIN(test_update_and_look, setup, teardown)
{
	static const uint32_t objects[] = {0, 511, 512, 65535, 65536, 131071, 131072, 16777215};
	struct map_head head = make(ID, MAP_OBJECTS_MAX), read;
	ck_assert(map_entry_is_hole(look(&head, 5)));
	for (unsigned i = 0; i < 8; i++)
		set(&head, objects[i]);
	ck_assert_int_eq(map_head_read(store, ID, &read, NULL), 0);
	for (unsigned i = 0; i < 8; i++) {
		ck_epoch(&read, objects[i], 1);
		ck_epoch(&read, objects[i] ^ 1, 0);
	}
	ck_assert_uint_eq(read.volume.top[0].count, 6);
	ck_assert_uint_eq(read.volume.top[127].count, 1);
	/* beyond all that a map can have: a hole, and no reading */
	forget_counts();
	ck_epoch(&read, UINT32_MAX, 0);
	ck_counts(0, 0, 0, 0);
}

UNIT_WITHIN(test_update_cost, setup, teardown)
{
	struct map_change changes[MAP_ENTRIES];
	for (unsigned deep = 0; deep < 2; deep++) {
		struct map_head head = make(ID + deep, deep ? MAP_OBJECTS_MAX : 5000);
		for (uint32_t i = 0; i < MAP_ENTRIES; i++)
			changes[i] = (struct map_change){1024 + i, entry_of(&head)};
		/* k objects of one page */
		forget_counts();
		ck_assert_int_eq(map_tree_update(store, &head, changes, 100), 0);
		ck_counts(0, 1 + deep, 1, 1);
		forget_counts();
		ck_assert_int_eq(map_tree_update(store, &head, changes, MAP_ENTRIES), 0);
		ck_counts(1 + deep, 1 + deep, 1, 1);
		/* said again: nothing */
		forget_counts();
		ck_assert_int_eq(map_tree_update(store, &head, changes, MAP_ENTRIES), 0);
		ck_counts(1 + deep, 0, 0, 0);
		/* two pages, one directory */
		changes[0].object = 3000;
		changes[1].object = 4000;
		forget_counts();
		ck_assert_int_eq(map_tree_update(store, &head, changes, 2), 0);
		ck_counts(deep, 2 + deep, 1, 1);
		/* to a hole, and no page is left: nothing but the directory is written */
		changes[0].entry = changes[1].entry = (struct map_entry){0};
		forget_counts();
		ck_assert_int_eq(map_tree_update(store, &head, changes, 2), 0);
		ck_counts(2 + deep, deep, deep, 1);
	}
}

/* Cold: 1 read per 512 objects, and one per 131072 with two levels. */
UNIT_WITHIN(test_look_cost, setup, teardown)
{
	static struct map_change changes[70];
	for (unsigned deep = 0; deep < 2; deep++) {
		struct map_head head = make(ID + deep, deep ? MAP_OBJECTS_MAX : MAP_OBJECTS_FLAT);
		for (uint32_t i = 0; i < 70; i++)
			changes[i] = (struct map_change){i * MAP_ENTRIES, entry_of(&head)};
		ck_assert_int_eq(map_tree_update(store, &head, changes, 70), 0);
		forget_counts();
		look(&head, 700);
		ck_counts(1 + deep, 0, 0, 0);
		struct map_ref refs[MAP_DIRECTORY_REFS];
		struct map_entry entries[MAP_ENTRIES];
		forget_counts();
		ck_assert_int_eq(map_tree_directory(store, &head.volume, 0, refs), 0);
		for (uint32_t page = 0; page < MAP_DIRECTORY_REFS; page++) {
			ck_assert_int_eq(
				map_tree_leaf(store, &head.volume, page, refs[page], entries), 0);
			ck_assert_uint_eq(entries[0].epoch, page < 70);
		}
		ck_counts(70 + deep, 0, 0, 0);
	}
}

UNIT_WITHIN(test_update_order, setup, teardown)
{
	struct map_head head = make(ID, 5000);
	struct map_entry one = entry_of(&head), zero = {.epoch = 1, .flags = MAP_ZERO};
	struct map_change changes[] = {{3000, one}, {7, one}, {3000, zero}, {8, zero}, {8, one}};
	forget_counts();
	ck_assert_int_eq(map_tree_update(store, &head, changes, 5), 0);
	ck_counts(0, 2, 1, 1);
	ck_assert(map_format_entry_same(look(&head, 3000), zero)); /* the last one counts */
	ck_assert(map_format_entry_same(look(&head, 7), one));
	ck_assert(map_format_entry_same(look(&head, 8), one));
}

UNIT_WITHIN(test_update_refused, setup, teardown)
{
	struct map_head head = make(ID, 10);
	struct map_change bad[] = {
		{10, {.epoch = 1}},
		{UINT32_MAX, {.epoch = 1}},
		{1, {.epoch = 2}},
		{1, {.epoch = 1, .owner = 1}},
		{1, {.owner = 1}},
		{1, {.flags = MAP_PARTIAL}},
		{1, {.epoch = 1, .flags = MAP_PARTIAL | MAP_ZERO}},
		{1, {.epoch = 1, .flags = 4}},
	};
	forget_counts();
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_int_eq(map_tree_update(store, &head, &bad[i], 1), -EINVAL);
	ck_assert_uint_eq(memory->mutations, 0);
	struct map_head copy = freeze(&head, 9);
	struct map_change change = {1, {.epoch = 1}};
	forget_counts();
	ck_assert_int_eq(map_tree_update(store, &copy, &change, 1), -EPERM);
	ck_assert_int_eq(map_tree_resize(store, &copy, OBJECTS(1)), -EPERM);
	ck_assert_uint_eq(memory->mutations, 0);
	ck_assert_int_eq(map_tree_update(store, &head, &change, 0), 0);
	ck_assert_uint_eq(memory->mutations, 0);
}

/* Own and young: the other half of the same object. Shared: an object of its own. */
UNIT_WITHIN(test_page_places, setup, teardown)
{
	struct map_head head = make(ID, 1000);
	set(&head, 1);
	ck_assert_uint_eq(head.volume.top[0].half, 0);
	set(&head, 2);
	ck_assert_uint_eq(head.volume.top[0].half, 1);
	head.volume.epoch = 5; /* opened again */
	set(&head, 3);
	ck_assert_uint_eq(head.volume.top[0].half, 0);
	ck_assert_uint_eq(head.volume.top[0].epoch, 1);
	ck_assert_uint_eq(map_memory_objects(memory, ID), 1);
	struct map_head copy = freeze(&head, 9);
	set(&head, 3);
	ck_assert_uint_eq(head.volume.top[0].epoch, 6);
	ck_assert_uint_eq(head.volume.top[0].half, 0);
	ck_assert_uint_eq(map_memory_objects(memory, ID), 2);
	ck_epoch(&copy, 3, 5);
	ck_epoch(&head, 3, 6);
	ck_epoch(&head, 2, 1);
	/* a clone, with an index of its own, does not touch what it was given */
	struct map_head clone = {.volume = copy.volume};
	clone.volume.id = clone.volume.owners[1] = 88;
	clone.volume.flags = clone.volume.generation = 0;
	clone.volume.owner_count = 2;
	clone.volume.self = 1;
	clone.volume.frozen = 0;
	clone.volume.epoch = 1;
	set(&clone, 3);
	ck_assert_uint_eq(map_memory_objects(memory, ID), 2);
	ck_assert_uint_eq(map_memory_objects(memory, 88), 1);
	ck_assert_uint_eq(look(&clone, 3).owner, 1);
	ck_assert_uint_eq(look(&clone, 2).owner, 0);
	ck_epoch(&copy, 3, 5);
	ck_epoch(&head, 3, 6);
}

/* The put was done and the answer lost: whoever went on with the old head would write into pages
   that are in use by now. */
UNIT_WITHIN(test_answer_lost, setup, teardown)
{
	struct map_head head = make(ID, 1000), read;
	set(&head, 1);
	struct map_change change = {2, entry_of(&head)};
	forget_counts();
	memory->fail_at = 3; /* page, flush, put */
	memory->fail_done = true;
	ck_assert_int_eq(map_tree_update(store, &head, &change, 1), -EIO);
	ck_assert(!map_head_is_current(&head));
	change.object = 3;
	ck_assert_int_eq(map_tree_update(store, &head, &change, 1), -ESTALE);
	ck_assert_int_eq(map_head_read(store, ID, &read, NULL), 0);
	ck_epoch(&read, 2, 1);
	/* an error before the put leaves it as it was */
	forget_counts();
	memory->fail_at = 1;
	memory->fail_error = -ENOSPC;
	ck_assert_int_eq(map_tree_update(store, &read, &change, 1), -ENOSPC);
	ck_assert_int_eq(map_tree_update(store, &read, &change, 1), 0);
	ck_epoch(&read, 3, 1);
}

/* --- sizes -------------------------------------------------------------------------------- */

static void resize(struct map_head *head, uint64_t objects)
{
	ck_assert_int_eq(map_tree_resize(store, head, OBJECTS(objects)), 0);
	head->volume.epoch++;
	ck_assert_int_eq(map_head_put(store, head), 0);
	ck_assert_int_eq(map_head_read(store, head->volume.id, head, NULL), 0);
	ck_assert_uint_eq(map_objects(&head->volume), objects);
}

UNIT_WITHIN(test_resize, setup, teardown)
{
	static const uint32_t objects[] = {0, 599, 600, 1023, 1024, 140000, 150000, 400000};
	struct map_head head = make(ID, 600000);
	for (unsigned i = 0; i < 8; i++)
		set(&head, objects[i]);
	struct map_head copy = freeze(&head, 9);
	static const struct {
		uint64_t to;
		unsigned left;
	} step[] = {{150001, 7}, {150000, 6}, {131073, 5}, {131072, 5}, {1024, 4}, {1023, 3},
		{600, 2}, {1, 1}, {0, 0}};
	for (unsigned i = 0; i < 9; i++) {
		resize(&head, step[i].to);
		resize(&head, 600000);
		for (unsigned j = 0; j < 8; j++)
			ck_epoch(&head, objects[j], j < step[i].left);
	}
	for (unsigned i = 0; i < MAP_TOP_REFS; i++)
		ck_assert(map_ref_is_hole(head.volume.top[i]));
	for (unsigned j = 0; j < 8; j++)
		ck_epoch(&copy, objects[j], 1);
}

UNIT_WITHIN(test_resize_deeper, setup, teardown)
{
	struct map_head head = make(ID, 1000);
	set(&head, 999);
	resize(&head, MAP_OBJECTS_FLAT);
	ck_assert_uint_eq(head.volume.depth, 1);
	set(&head, MAP_OBJECTS_FLAT - 1);
	struct map_head copy = freeze(&head, 9);
	resize(&head, MAP_OBJECTS_FLAT + 1);
	ck_assert_uint_eq(head.volume.depth, 2);
	ck_assert_uint_eq(head.volume.top[0].count, 2);
	set(&head, MAP_OBJECTS_FLAT);
	for (unsigned i = 0; i < 2; i++) {
		ck_epoch(&head, 999, 1);
		ck_epoch(&head, MAP_OBJECTS_FLAT - 1, 2);
		ck_assert(!map_entry_is_hole(look(&head, MAP_OBJECTS_FLAT)));
		resize(&head, MAP_OBJECTS_MAX);
	}
	ck_epoch(&copy, 999, 1);
	ck_assert_int_eq(map_tree_resize(store, &head, OBJECTS(MAP_OBJECTS_MAX) + 512), -EFBIG);
	ck_assert_int_eq(map_tree_resize(store, &head, 513), -EINVAL);
	ck_assert_uint_eq(map_objects(&head.volume), MAP_OBJECTS_MAX);
	/* an empty one has nothing to write */
	struct map_head empty = make(ID + 1, 5);
	forget_counts();
	resize(&empty, MAP_OBJECTS_MAX);
	ck_counts(0, 0, 0, 1);
}

/* --- walks and damage --------------------------------------------------------------------- */

struct seen {
	uint32_t objects[16];
	unsigned count, pages, damaged;
	uint32_t first, range;
	unsigned stop_at;
};

static int see(struct map_walk *walk, uint32_t object, struct map_entry entry)
{
	struct seen *seen = walk->context;
	ck_assert(!map_entry_is_hole(entry));
	ck_assert_uint_lt(seen->count, 16);
	seen->objects[seen->count++] = object;
	return seen->count == seen->stop_at ? 42 : 0;
}

static int see_damage(struct map_walk *walk, struct xseg_key key, uint32_t first, uint32_t count)
{
	struct seen *seen = walk->context;
	ck_assert_uint_eq(key.volume, ID);
	seen->damaged++;
	seen->first = first;
	seen->range = count;
	return 0;
}

static int see_page(struct map_walk *walk, struct xseg_key key)
{
	struct seen *seen = walk->context;
	ck_assert(map_memory_exists(memory, key));
	seen->pages++;
	return 0;
}

static int walk_from(const struct map_head *head, uint32_t from, struct seen *seen)
{
	struct map_walk walk = {see, see_damage, see_page, seen};
	return map_tree_walk(store, &head->volume, from, &walk);
}

UNIT_WITHIN(test_walk, setup, teardown)
{
	static const uint32_t objects[] = {0, 511, 512, 131071, 131072, 16777215};
	struct map_head head = make(ID, MAP_OBJECTS_MAX);
	for (unsigned i = 0; i < 6; i++)
		set(&head, objects[i]);
	for (unsigned i = 0; i < 6; i++) {
		struct seen seen = {0};
		ck_assert_int_eq(walk_from(&head, objects[i], &seen), 0);
		ck_assert_uint_eq(seen.count, 6 - i);
		ck_assert_mem_eq(seen.objects, objects + i, (6 - i) * 4);
		if (i < 5) {
			seen = (struct seen){0};
			ck_assert_int_eq(walk_from(&head, objects[i] + 1, &seen), 0);
			ck_assert_uint_eq(seen.count, 5 - i);
		}
	}
	struct seen seen = {.stop_at = 2};
	ck_assert_int_eq(walk_from(&head, 0, &seen), 42);
	ck_assert_uint_eq(seen.count, 2);
	/* pages 0, 1, 255, 256, 32767 and three directories */
	seen = (struct seen){0};
	forget_counts();
	ck_assert_int_eq(walk_from(&head, 0, &seen), 0);
	ck_assert_uint_eq(seen.pages, 8);
	ck_counts(8, 0, 0, 0);
}

UNIT_WITHIN(test_damaged_page, setup, teardown)
{
	struct map_head head = make(ID, MAP_OBJECTS_MAX);
	struct map_change change = {520, entry_of(&head)};
	struct map_entry entry;
	struct seen seen = {0};
	set(&head, 1);
	set(&head, 513);
	set(&head, 1024);
	set(&head, DIRECTORY);
	map_memory_corrupt(memory, map_page_key(ID, 1, 1), 4000, 0x10);
	ck_assert_int_eq(map_tree_entry(store, &head.volume, 513, &entry), -EILSEQ);
	ck_assert_int_eq(map_tree_entry(store, &head.volume, 1023, &entry), -EILSEQ);
	ck_epoch(&head, 1, 1);
	ck_epoch(&head, 1024, 1);
	ck_assert_int_eq(walk_from(&head, 0, &seen), 0);
	ck_assert_uint_eq(seen.count, 3);
	ck_assert_uint_eq(seen.damaged, 1);
	ck_assert_uint_eq(seen.first, 512);
	ck_assert_uint_eq(seen.range, 512);
	struct map_walk walk = {.visit = see, .context = &seen};
	ck_assert_int_eq(map_tree_walk(store, &head.volume, 0, &walk), -EILSEQ);
	/* it is not changed, and the others are */
	forget_counts();
	ck_assert_int_eq(map_tree_update(store, &head, &change, 1), -EILSEQ);
	ck_assert_uint_eq(memory->mutations, 0);
	set(&head, 2);
	/* a directory */
	unsigned half = head.volume.top[0].half;
	map_memory_corrupt(memory, map_directory_key(ID, 1, 0), half * 4096 + 9, 1);
	ck_assert_int_eq(map_tree_entry(store, &head.volume, 1, &entry), -EILSEQ);
	ck_epoch(&head, DIRECTORY, 1);
	seen = (struct seen){0};
	ck_assert_int_eq(walk_from(&head, 5, &seen), 0);
	ck_assert_uint_eq(seen.count, 1);
	ck_assert_uint_eq(seen.first, 0);
	ck_assert_uint_eq(seen.range, DIRECTORY);
}

/* Every bit of a page counts. */
UNIT_WITHIN(test_damaged_bits, setup, teardown)
{
	struct map_head head = make(ID, 100);
	struct map_entry entry;
	set(&head, 3);
	for (uint32_t bit = 0; bit < MAP_PAGE_SIZE * 8; bit += 7) {
		map_memory_corrupt(
			memory, map_page_key(ID, 1, 0), bit / 8, (uint8_t)(1 << bit % 8));
		ck_assert_int_eq(map_tree_entry(store, &head.volume, 3, &entry), -EILSEQ);
		map_memory_corrupt(
			memory, map_page_key(ID, 1, 0), bit / 8, (uint8_t)(1 << bit % 8));
	}
	ck_epoch(&head, 3, 1);
}

/* --- differences -------------------------------------------------------------------------- */

static int differs(void *context, uint32_t object, struct map_entry before, struct map_entry after)
{
	struct seen *seen = context;
	ck_assert(!map_format_entry_same(before, after) || before.owner != 0);
	ck_assert_uint_lt(seen->count, 16);
	seen->objects[seen->count++] = object;
	return seen->count == seen->stop_at ? 42 : 0;
}

static void ck_diff(const struct map_head *a, const struct map_head *b, uint32_t from,
	const uint32_t *objects, unsigned count)
{
	struct seen seen = {0};
	ck_assert_int_eq(map_diff_trees(store, &a->volume, &b->volume, from, differs, &seen), 0);
	ck_assert_uint_eq(seen.count, count);
	if (count > 0)
		ck_assert_mem_eq(seen.objects, objects, count * 4);
}

UNIT_WITHIN(test_diff, setup, teardown)
{
	static const uint32_t changed[] = {3, 599, 131072, 500000};
	struct map_head head = make(ID, 600000);
	for (uint32_t object = 0; object < 600000; object += 599)
		set(&head, object);
	struct map_head copy = freeze(&head, 9);
	forget_counts();
	ck_diff(&copy, &head, 0, NULL, 0);
	ck_counts(0, 0, 0, 0); /* all is shared: nothing is read */
	set_hole(&head, 599);
	set(&head, 3);
	set(&head, 131072);
	set(&head, 500000);
	forget_counts();
	ck_diff(&copy, &head, 0, changed, 4);
	/* 3 directories and 4 pages of each side, but for page 256 + 0 of the first, a hole */
	ck_assert_uint_le(memory->count[MAP_MEMORY_READ], 2 * (3 + 4));
	ck_diff(&head, &copy, 0, changed, 4);
	ck_diff(&copy, &head, 4, changed + 1, 3);
	ck_diff(&copy, &head, 131072, changed + 2, 2);
	ck_diff(&copy, &head, 500001, NULL, 0);
	struct seen seen = {.stop_at = 2};
	ck_assert_int_eq(map_diff_trees(store, &copy.volume, &head.volume, 0, differs, &seen), 42);
	/* a page that was written in place differs, too */
	struct map_head before = head;
	set(&head, 4);
	ck_diff(&before, &head, 0, &(uint32_t){4}, 1);
	/* and an entry of which nothing differs but the flags */
	struct map_change zero = {4, entry_of(&head)};
	zero.entry.flags = MAP_ZERO;
	before = head;
	ck_assert_int_eq(map_tree_update(store, &head, &zero, 1), 0);
	ck_diff(&before, &head, 0, &(uint32_t){4}, 1);
	struct map_head other = make(5, 10);
	ck_assert_int_eq(
		map_diff_trees(store, &copy.volume, &other.volume, 0, differs, &seen), -EXDEV);
}

/* Of one level and of two; and two clones, each of whom calls itself owner 1. */
UNIT_WITHIN(test_diff_depth_and_clones, setup, teardown)
{
	static const uint32_t grown[] = {140000}, both[] = {7}, one[] = {7, 9};
	struct map_head head = make(ID, 1000);
	set(&head, 1);
	set(&head, 900);
	struct map_head copy = freeze(&head, 9);
	resize(&head, MAP_OBJECTS_MAX);
	set(&head, 140000);
	ck_diff(&copy, &head, 0, grown, 1);
	ck_diff(&head, &copy, 600, grown, 1);
	struct map_head clone[2];
	for (unsigned i = 0; i < 2; i++) {
		clone[i] = (struct map_head){.volume = copy.volume};
		clone[i].volume.id = clone[i].volume.owners[1] = 88 + i;
		clone[i].volume.flags = clone[i].volume.generation = 0;
		clone[i].volume.owner_count = 2;
		clone[i].volume.self = 1;
		clone[i].volume.frozen = 0;
		set(&clone[i], 7);
	}
	ck_assert(map_format_entry_same(look(&clone[0], 7), look(&clone[1], 7)));
	ck_diff(&clone[0], &clone[1], 0, both, 1);
	set(&clone[1], 9);
	ck_diff(&clone[0], &clone[1], 0, one, 2);
}
