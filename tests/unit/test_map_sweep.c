/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sweep, rule by rule: what goes, what stays, and what others may do meanwhile.
 * theory_map_sweep.c does it at random, test_map_fsck.c has what is damaged.
 */
#include "peers/map/map_mark.h"
#include "tests/unit/map_sweep_rig.h"

UNIT_WITHIN(test_nothing, setup, teardown)
{
	gc();
	ck_assert_uint_eq(sweep.volumes, 0);
	create(A, 2000, "a");
	write_whole(A, 0);
	write_whole(A, 1999);
	ck_clean();
	gc();
	ck_assert_uint_eq(sweep.volumes, 1);
	ck_assert_uint_eq(sweep.pages, 2);
	ck_assert_uint_eq(sweep.objects, 4);
	ck_assert_uint_eq(sweep.marked, 4);
	ck_assert_uint_eq(sweep.deleted, 0);
}

UNIT_WITHIN(test_what_a_snapshot_had, setup, teardown)
{
	create(A, 100, "a");
	struct xseg_key old = write_whole(A, 7);
	snapshot(A, SNAP, "a@1");
	struct xseg_key new = write_whole(A, 7);
	gc();
	ck_assert_uint_eq(sweep.deleted, 0);
	remove_volume(SNAP);
	gc();
	ck_assert(!exists(old) && exists(new));
	ck_assert_uint_eq(sweep.deleted, 2); /* and the page of the map */
	ck_assert_uint_eq(sweep.bytes_freed, MAP_CLUSTER + MAP_PAGE_SIZE);
	ck_assert_uint_eq(sweep.pass, 2);
	ck_clean();
}

/* Written, and the map not told yet. */
UNIT_WITHIN(test_what_is_being_written, setup, teardown)
{
	create(A, 100, "a");
	write_whole(A, 0);
	struct map_head head = head_of(A);
	struct xseg_key fresh = {A, head.volume.epoch, 50};
	struct xseg_key page = map_page_key(A, head.volume.epoch, 3);
	put_data(fresh, 0);
	put_data(page, 0);
	gc();
	ck_assert(exists(fresh) && exists(page));
	ck_assert_int_eq(map_change_epoch(store, A, false, &head), 0);
	gc();
	ck_assert(!exists(fresh) && !exists(page));
	ck_assert_uint_eq(sweep.deleted, 2);
	/* of another version, or of a volume that has no map */
	fresh.epoch = 0;
	put_data(fresh, 0);
	gc();
	ck_assert(exists(fresh));
}

UNIT_WITHIN(test_chain_of_parents, setup, teardown)
{
	create(A, 10, "a");
	struct xseg_key root = write_whole(A, 3);
	struct xseg_key last = root;
	for (unsigned i = 0; i < 64; i++) {
		char name[16];
		snprintf(name, sizeof(name), "a@%u", i);
		snapshot(A, SNAP + i, name);
		last = write_part(A, 3, i % 3);
	}
	for (unsigned i = 0; i < 64; i++)
		remove_volume(SNAP + i);
	gc();
	ck_assert(exists(root) && exists(last));
	ck_assert_uint_eq(map_memory_objects(memory, A), 65 + 64 + 1);
	ck_clean();
}

/* Whose record is gone, found through the tables of those who inherited from it. */
UNIT_WITHIN(test_owner_without_record, setup, teardown)
{
	create(A, 10, "a");
	struct xseg_key kept = write_whole(A, 1), left = write_whole(A, 2);
	snapshot(A, SNAP, "a@1");
	clone(SNAP, B, "b");
	write_whole(B, 2);
	ck_assert_int_eq(map_head_drop(store, SNAP), 0);
	ck_assert_int_eq(map_head_drop(store, A), 0);
	struct xseg_key young = {A, 1000, 5}; /* nobody writes it any more */
	put_data(young, 0);
	gc();
	ck_assert(exists(kept) && !exists(left) && !exists(young));
}

UNIT_WITHIN(test_removing_and_importing, setup, teardown)
{
	create(A, 10, "a");
	struct xseg_key old = write_whole(A, 1);
	snapshot(A, SNAP, "a@1");
	write_whole(A, 1);
	struct map_head head = head_of(SNAP);
	head.volume.state = XSEG_VOLUME_REMOVING;
	ck_assert_int_eq(map_head_put(store, &head), 0);
	gc();
	ck_assert(exists(old));
	head.volume.state = XSEG_VOLUME_IMPORTING;
	ck_assert_int_eq(map_head_put(store, &head), 0);
	gc();
	ck_assert(exists(old));
	remove_volume(SNAP);
	gc();
	ck_assert(!exists(old));
}

/* --- others meanwhile ------------------------------------------------------------------------- */

static unsigned calls, act_at;
static void (*act)(void);
static int stop_with;

static int on_pace(struct map_sweep *s)
{
	(void)s;
	if (++calls != act_at)
		return 0;
	if (act)
		act();
	return stop_with;
}

static int gc_paced(unsigned at, void (*what)(void), int stop)
{
	sweep = (struct map_sweep){.repair = true, .pace = on_pace, .pace_every = 1};
	calls = 0;
	act_at = at;
	act = what;
	stop_with = stop;
	return map_sweep_run(store, &sweep);
}

/* What only the snapshot had is the volume's again, and the snapshot gone. */
static void roll_back_and_remove(void)
{
	struct map_head head;
	ck_assert_int_eq(map_change_rollback(store, A, SNAP, &head), 0);
	remove_volume(SNAP);
}

/* Handed on to a volume that the list did not have, from one that it had. */
static void hand_on(void)
{
	clone(SNAP, B, "b");
	snapshot(B, SNAP + 1, "b@1");
	struct map_head head;
	struct map_delta deltas = {.object = 1, .flags = MAP_UPDATE_HOLE};
	ck_assert_int_eq(map_update(store, B, &deltas, 1, &head), 0);
	ck_assert_int_eq(map_change_detach(store, B), 0);
	remove_volume(SNAP);
}

static void write_much(void)
{
	for (uint32_t i = 2; i < 5; i++)
		write_whole(A, i);
}

static void (*const meanwhile[])(void) = {roll_back_and_remove, hand_on, write_much};

UNIT_LOOP_WITHIN(test_others_meanwhile, countof(meanwhile), setup, teardown)
{
	teardown();
	for (unsigned at = 1;; at++) {
		setup();
		create(A, 10, "a");
		struct xseg_key key = write_whole(A, 1);
		snapshot(A, SNAP, "a@1");
		struct map_delta deltas = {.object = 1, .flags = MAP_UPDATE_HOLE};
		struct map_head head;
		ck_assert_int_eq(map_update(store, A, &deltas, 1, &head), 0);
		write_whole(A, 7);
		ck_assert_int_eq(gc_paced(at, meanwhile[_i], 0), 0);
		ck_assert_msg(exists(key), "call %u", at);
		bool over = calls < at;
		gc();
		ck_assert_msg(exists(key), "call %u, again", at);
		ck_clean();
		if (over)
			break;
		teardown();
	}
	ck_assert_uint_gt(calls, 20);
}

/* A volume that is written all the time: its pages are overwritten while they are read. */
static int write_always(struct map_sweep *s)
{
	(void)s;
	struct map_head head;
	calls++;
	for (uint32_t i = 5; calls % 7 == 0 && i < 8; i++) {
		struct map_delta deltas = {.object = i, .flags = MAP_UPDATE_HOLE};
		if (map_entry_is_hole(entry_of(A, i)))
			write_whole(A, i);
		else
			ck_assert_int_eq(map_update(store, A, &deltas, 1, &head), 0);
	}
	return 0;
}

UNIT_WITHIN(test_written_all_the_time, setup, teardown)
{
	create(A, 10, "a");
	struct xseg_key old = write_whole(A, 1);
	snapshot(A, SNAP, "a@1");
	write_whole(A, 1);
	remove_volume(SNAP);
	calls = 0;
	sweep = (struct map_sweep){
		.repair = true, .pace = write_always, .pace_every = 1, .report = on_report};
	reported = 0;
	int rc = map_sweep_run(store, &sweep);
	ck_assert(rc == 0 || rc == -EBUSY);
	ck_assert_uint_eq(reported, sweep.deleted); /* nothing is taken for damage */
	gc();
	ck_assert(!exists(old));
	ck_clean();
}

/* Its record changes while a page of it turns out to be damaged: it is held all the same. */
static void touch_snapshot(void)
{
	ck_assert_int_eq(map_change_flags(store, SNAP, MAP_PROTECTED, 0), 0);
}

UNIT_WITHIN(test_damaged_and_changed, setup, teardown)
{
	teardown();
	for (unsigned at = 1, over = 0; !over; at++) {
		struct xseg_key waste[2];
		setup();
		make_families(waste);
		snapshot(A, SNAP, "a@1");
		write_whole(A, 0);
		struct map_ref ref = head_of(SNAP).volume.top[0];
		struct xseg_key page = map_page_key(A, ref.epoch, 0);
		map_memory_corrupt(memory, page, ref.half * MAP_PAGE_SIZE + 9, 1);
		ck_assert_int_eq(gc_paced(at, touch_snapshot, 0), 0);
		ck_assert_msg(exists(waste[0]) && !exists(waste[1]), "call %u", at);
		over = calls < at;
		teardown();
	}
	setup();
}

/*
 * A snapshot that was begun and never finished shows a page as it was before its volume wrote on.
 * What is seen there says nothing of the page as the volume has it now.
 */
UNIT_WITHIN(test_snapshot_in_the_making, setup, teardown)
{
	struct map_head young = {.volume = {.id = SNAP,
					 .size = 10 * OBJECT,
					 .object_size = OBJECT,
					 .state = XSEG_VOLUME_READY,
					 .flags = MAP_SNAPSHOT | MAP_NEW,
					 .parent = A,
					 .epoch = 1,
					 .frozen = 1,
					 .owner_count = 1,
					 .self = MAP_OWNERS_MAX,
					 .depth = 1,
					 .owners = {A},
					 .name = "young"}};
	ck_assert_int_eq(map_head_put(store, &young), 0); /* listed first */
	create(A, 10, "a");
	struct xseg_key first = write_whole(A, 1);
	memcpy(young.volume.top, head_of(A).volume.top, sizeof(young.volume.top));
	ck_assert_int_eq(map_head_put(store, &young), 0);
	struct xseg_key second = write_whole(A, 2);
	snapshot(A, SNAP + 1, "a@1");
	gc();
	ck_assert(exists(first) && exists(second));
	ck_clean();
}

static int (*all_records)(
	struct map_store *s, uint32_t epoch, uint64_t *cursor, struct xseg_key *keys, uint32_t max);
static bool hiding;

/* A was made just after the list came by its place. */
static int records_without_a(
	struct map_store *s, uint32_t epoch, uint64_t *cursor, struct xseg_key *keys, uint32_t max)
{
	int count = all_records(s, epoch, cursor, keys, max), kept = 0;
	for (int i = 0; i < count; i++)
		if (!hiding || keys[i].volume != A)
			keys[kept++] = keys[i];
	hiding = hiding && *cursor != 0;
	return count < 0 ? count : kept;
}

UNIT_WITHIN(test_list_read_too_early, setup, teardown)
{
	create(A, 10, "a");
	struct xseg_key key = write_whole(A, 1);
	snapshot(A, SNAP, "a@1");
	struct xseg_key fresh = {A, head_of(A).volume.epoch, 2};
	put_data(fresh, 0);
	all_records = store->records;
	store->records = records_without_a;
	hiding = true;
	gc();
	ck_assert(!hiding && exists(key) && exists(fresh));
}

static void waste_some(void)
{
	struct map_head head;
	create(A, 3000, "a");
	for (uint32_t i = 0; i < 3000; i += 10)
		put_data((struct xseg_key){A, 1, i}, 0);
	ck_assert_int_eq(map_change_epoch(store, A, true, &head), 0);
}

UNIT_WITHIN(test_cut_anywhere, setup, teardown)
{
	uint64_t before = 0;
	waste_some();
	for (unsigned at = 1;; at += 7) {
		int rc = gc_paced(at, NULL, -EINTR);
		before += sweep.deleted;
		if (rc == 0)
			break;
		ck_assert_int_eq(rc, -EINTR);
		ck_assert_uint_eq(calls, at); /* and nothing was asked any more */
	}
	ck_assert_uint_eq(before, 300);
	ck_assert_uint_eq(map_memory_objects(memory, A), 0);
	ck_clean();
}

/* With memory for few of them, the whole is done in parts. */
UNIT_WITHIN(test_little_memory, setup, teardown)
{
	struct map_head head;
	create(A, 100, "a");
	for (uint32_t epoch = 1; epoch <= 2000; epoch++)
		put_data((struct xseg_key){A, epoch, epoch % 100}, 0);
	head = head_of(A);
	head.volume.epoch = 3000;
	head.volume.frozen = 2999;
	ck_assert_int_eq(map_head_put(store, &head), 0);
	struct xseg_key kept = write_whole(A, 1);
	sweep = (struct map_sweep){.memory = 1, .explain = true, .report = NULL};
	ck_assert_int_eq(map_sweep_run(store, &sweep), 0);
	ck_assert_uint_eq(sweep.unreachable, 2000);
	ck_assert_uint_eq(sweep.objects, 2002);
	ck_assert_uint_eq(sweep.marked, 2);
	ck_assert_uint_eq(sweep.found[MAP_FOUND_LOST], 0);
	ck_assert_uint_gt(sweep.passes, 2 * 2 * 2);
	sweep.repair = true;
	ck_assert_int_eq(map_sweep_run(store, &sweep), 0);
	ck_assert_uint_eq(sweep.deleted, 2000);
	ck_assert(exists(kept));
	ck_clean();
}

/* --- the set of marks ------------------------------------------------------------------------- */

UNIT_WITHIN(test_marks, setup, teardown)
{
	struct map_marks marks;
	uint64_t state = 5;
	unsigned set = 0, again = 0;
	map_mark_init(&marks, 8u << 20);
	ck_assert(!map_mark_has(&marks, (struct xseg_key){1, 1, 1}));
	for (unsigned i = 0; i < 20000; i++) {
		uint64_t r = random_next(&state);
		struct xseg_key key = {1 + r % 3, 1 + (r >> 8) % 40, (r >> 16) % 3000};
		bool had = map_mark_has(&marks, key);
		int rc = map_mark_set(&marks, key);
		ck_assert_int_eq(rc, !had);
		ck_assert(map_mark_has(&marks, key));
		set += rc == 1;
		again += rc == 0;
	}
	ck_assert_uint_gt(again, 100);
	ck_assert_uint_eq(marks.objects, set);
	size_t cell = 0;
	unsigned bit = 0, seen = 0;
	struct xseg_key key;
	for (; map_mark_next(&marks, &cell, &bit, &key); seen++)
		ck_assert(map_mark_has(&marks, key));
	ck_assert_uint_eq(seen, set);
	map_mark_begin(&marks, 0, 1);
	ck_assert(!map_mark_has(&marks, key));
	map_mark_fini(&marks);
}

/* Each object is of one slice, and the two halves of a slice are it. */
UNIT_WITHIN(test_slices, setup, teardown)
{
	struct map_marks one, two[2];
	map_mark_init(&one, 1 << 20);
	map_mark_begin(&one, 3, 4);
	for (unsigned i = 0; i < 2; i++) {
		map_mark_init(&two[i], 1 << 20);
		map_mark_begin(&two[i], 3 + 4 * i, 8);
	}
	unsigned in = 0;
	for (uint32_t i = 0; i < 4000; i++) {
		struct xseg_key key = {9, i, i};
		bool is_in = map_mark_in_slice(&one, key);
		in += is_in;
		ck_assert_int_eq(map_mark_set(&one, key), is_in);
		ck_assert_int_eq(is_in, map_mark_set(&two[0], key) + map_mark_set(&two[1], key));
	}
	ck_assert_uint_gt(in, 800);
	ck_assert_uint_lt(in, 1200);
	map_mark_begin(&one, 0, 1);
	int rc = 0;
	for (uint32_t i = 0; rc >= 0; i++)
		rc = map_mark_set(&one, (struct xseg_key){9, i + 1, i});
	ck_assert_int_eq(rc, -E2BIG);
	ck_assert_uint_le(one.capacity * sizeof(*one.cells), 1 << 20);
	map_mark_fini(&one);
	map_mark_fini(&two[0]);
	map_mark_fini(&two[1]);
}
