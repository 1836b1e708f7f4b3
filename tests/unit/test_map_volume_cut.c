/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places at which an operation is cut off, or another comes in between, that are worth a test of
 * their own. All places are tried in tests/property/theory_map_volume.c.
 */
#include "tests/unit/map_volume_rig.h"

/* Before change number `cut`. */
static void cut_at(uint64_t cut)
{
	map_memory_heal(memory);
	memory->cut_after = cut;
}

static uint32_t raw_flags(uint64_t id)
{
	ck_assert_int_eq(map_head_read(store, id, &head, NULL), 0);
	return head.volume.flags;
}

UNIT(test_in_the_making)
{
	setup();
	ck_assert_int_eq(create(1, "base", SIZE), 0);
	/* a clone that is not named yet hinders nobody */
	cut_at(3);
	ck_assert_int_eq(clone_of(1, 2, "clone", 0), -EIO);
	map_memory_heal(memory);
	ck_assert_uint_eq(raw_flags(2), MAP_NEW);
	ck_assert_int_eq(map_remove(store, 1, &child), 0);
	ck_assert_int_eq(map_head_read(store, 2, &head, NULL), -ENOENT);
	ck_assert_int_eq(clone_of(1, 2, "clone", 0), -ENOENT);
	/* one that is named is there, and cleaned up */
	cut_at(4);
	ck_assert_int_eq(create(3, "named", SIZE), 0);
	map_memory_heal(memory);
	ck_assert_uint_eq(raw_flags(3), MAP_NEW);
	ck_assert_uint_eq(find("named"), 3);
	ck_assert_int_eq(map_cleanup(store, 1000, &deleted), 0);
	ck_assert_uint_eq(deleted, 0);
	ck_assert_uint_eq(raw_flags(3), 0);
	/* made anew after a cut, nothing has a name that it had before */
	cut_at(5);
	ck_assert_int_eq(clone_of(3, 4, "deep", (uint64_t)70000 * OBJECT), -EIO);
	map_memory_heal(memory);
	ck_assert_int_eq(clone_of(3, 4, "deep", (uint64_t)70000 * OBJECT), 0);
	ck_assert_uint_eq(volume(4)->epoch, 2);
	/* whose undoing was cut off is not there, whatever its name says */
	cut_at(3);
	ck_assert_int_eq(create(5, "undone", SIZE), -EIO);
	map_memory_heal(memory);
	ck_assert_uint_eq(raw_flags(5), MAP_NEW);
	head.volume.state = XSEG_VOLUME_REMOVING;
	ck_assert_int_eq(map_head_put(store, &head), 0);
	put_name("undone", 5);
	ck_assert_uint_eq(find("undone"), 0);
	ck_assert_int_eq(map_record_open(store, 5, &head), -ENOENT);
	ck_assert_int_eq(create(6, "undone", SIZE), 0);
	ck_assert_int_eq(create(5, "again", SIZE), 0);
	ck_assert_uint_eq(find("undone"), 6);
	teardown();
}

/* Nobody says it again: it is shown, holds its name and its parent, and a cleanup ends it. */
UNIT(test_half_removed)
{
	setup();
	ck_assert_int_eq(create(1, "a", SIZE), 0);
	ck_assert_int_eq(snapshot(1, 2, "s"), 0);
	cut_at(2);
	ck_assert_int_eq(map_remove(store, 2, &child), -EIO);
	map_memory_heal(memory);
	ck_assert_int_eq(map_record_open(store, 2, &head), 0);
	ck_assert_uint_eq(head.volume.state, XSEG_VOLUME_REMOVING);
	ck_assert_int_eq(map_remove(store, 1, &child), -ENOTEMPTY);
	ck_assert_uint_eq(child, 2);
	ck_assert_int_eq(create(3, "s", SIZE), -EEXIST);
	ck_assert_int_eq(map_cleanup(store, 0, &deleted), 0);
	ck_assert_uint_eq(deleted, 1);
	ck_assert_int_eq(map_head_read(store, 2, &head, NULL), -ENOENT);
	ck_assert_int_eq(create(3, "s", SIZE), 0);
	ck_assert_int_eq(map_remove(store, 1, &child), 0);
	teardown();
}

UNIT(test_what_is_left_behind)
{
	setup();
	ck_assert_int_eq(create(1, "a", SIZE), 0);
	ck_assert_int_eq(map_rename(store, 1, "b"), 0);
	ck_assert(!map_memory_exists(memory, map_name_key("a")));
	/* who rolls back to a snapshot that goes has read a record that is not there any more */
	ck_assert_int_eq(snapshot(1, 2, "s"), 0);
	uint64_t generation = volume(1)->generation;
	ck_assert_int_eq(map_remove(store, 2, &child), 0);
	ck_assert_uint_gt(volume(1)->generation, generation);
	ck_assert(!map_memory_exists(memory, map_name_key("s")));
	ck_assert(!map_memory_exists(memory, map_volume_key(2, 0)));
	ck_assert(!map_memory_exists(memory, map_volume_key(2, 1)));
	teardown();
}

static unsigned rival_at;
static int (*rival)(void);
static int rival_rc;

static int rival_acts(struct map_memory *at, enum map_memory_kind kind, struct xseg_key key)
{
	(void)kind;
	(void)key;
	if (rival_at-- != 0)
		return 0;
	at->before = NULL;
	rival_rc = rival();
	return 0;
}

static int rename_to_b(void) { return map_rename(store, 1, "b"); }
static int rename_to_a(void) { return map_rename(store, 1, "a"); }
static int create_b(void)
{
	struct map_head unused;
	struct map_create create = create_of(2, "b");
	return map_create(store, &create, &unused);
}
static int cleanup(void) { return map_cleanup(store, 1000, &deleted); }

/* One of them has the name, and nobody has none. */
static void check_names(int rc_a, int rc_b)
{
	struct map_head other;
	ck_assert_str_eq(volume(1)->name, rc_a == 0 ? "b" : "a");
	ck_assert_uint_eq(find(head.volume.name), 1);
	ck_assert_int_eq(map_record_open(store, 2, &other), rc_b == 0 ? 0 : -ENOENT);
	ck_assert(rc_a == 0 ? rc_b == -EEXIST : rc_a == -EEXIST && rc_b == 0);
	ck_assert_uint_eq(find("b"), rc_a == 0 ? 1 : 2);
}

UNIT(test_race_for_a_name)
{
	bool raced = true;
	for (unsigned at = 0; raced; at++) {
		for (unsigned first = 0; first < 2; first++) {
			setup();
			ck_assert_int_eq(create(1, "a", SIZE), 0);
			rival_at = at;
			rival = first ? rename_to_b : create_b;
			memory->before = rival_acts;
			rival_rc = -EEXIST;
			int rc = first ? create_b() : rename_to_b();
			raced = !memory->before;
			memory->before = NULL;
			if (raced)
				check_names(first ? rival_rc : rc, first ? rc : rival_rc);
			teardown();
		}
	}
}

UNIT(test_race_of_a_rename)
{
	static int (*const rivals[])(void) = {cleanup, rename_to_a, rename_to_b};
	bool raced = true;
	for (unsigned i = 0; i < 3; i++, raced = true)
		for (unsigned at = 0; raced; at++) {
			setup();
			ck_assert_int_eq(create(1, "a", SIZE), 0);
			rival_at = at;
			rival = rivals[i];
			memory->before = rival_acts;
			ck_assert_int_eq(rename_to_b(), 0);
			raced = !memory->before;
			memory->before = NULL;
			ck_assert_int_eq(raced ? rival_rc : 0, 0);
			ck_assert_uint_eq(find(volume(1)->name), 1);
			ck_assert(i == 1 || strcmp(head.volume.name, "b") == 0);
			teardown();
		}
}

static int remove_2(void)
{
	uint64_t unused;
	return map_remove(store, 2, &unused);
}

/* That pages are gone because their volume is, is not damage. */
UNIT(test_race_with_a_removal)
{
	bool raced = true;
	for (unsigned at = 0; raced; at++) {
		struct map_delta deltas = {.epoch = 1};
		setup();
		ck_assert_int_eq(create(1, "a", SIZE), 0);
		ck_assert_int_eq(clone_of(1, 2, "b", 0), 0);
		ck_assert_int_eq(map_update(store, 2, &deltas, 1, &head), 0);
		rival_at = at;
		rival = remove_2;
		memory->before = rival_acts;
		int rc = map_change_detach(store, 2);
		raced = !memory->before;
		memory->before = NULL;
		ck_assert(rc == 0 || (raced && rc == -ENOENT));
		ck_assert_int_eq(raced ? rival_rc : 0, 0);
		ck_assert_uint_eq(find("b"), raced ? 0 : 2);
		teardown();
	}
}

/* The name is put and the answer lost: it is there, and somebody may have seen it. */
UNIT(test_lost_answer)
{
	setup();
	memory->fail_at = 3;
	memory->fail_done = true;
	ck_assert_int_eq(create(1, "a", SIZE), -EIO);
	map_memory_heal(memory);
	ck_assert_uint_eq(find("a"), 1);
	ck_assert_int_eq(create(1, "a", SIZE), 0);
	ck_assert_uint_eq(find("a"), 1);
	teardown();
}
