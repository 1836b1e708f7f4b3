/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sweep that goes on where one was cut off: what need not be done again, what must be, and that
 * nothing goes for the sake of what stands in the store alone.
 */
#include "peers/map/map_kept.h"
#include "tests/unit/map_sweep_rig.h"

#define WASTED 300u

static unsigned calls, cut_at;

static int on_pace(struct map_sweep *s)
{
	(void)s;
	return ++calls == cut_at ? -EINTR : 0;
}

/* cut: at that call, one before each request; 0: not. Each family is a batch of its own. */
static int gc_kept(unsigned cut)
{
	sweep = (struct map_sweep){.repair = true,
		.keeps = true,
		.batch = 1,
		.pace = on_pace,
		.pace_every = 1,
		.report = NULL};
	calls = 0;
	cut_at = cut;
	memset(memory->count, 0, sizeof(memory->count));
	return map_sweep_run(store, &sweep);
}

static uint64_t kept_objects(void) { return map_memory_objects(memory, MAP_KEPT_ID); }

/* With pages to be read, and objects that nobody needs. */
static void make_waste(uint64_t id, const char *name)
{
	struct map_head head;
	create(id, 20 * MAP_ENTRIES, name);
	for (uint32_t i = 0; i < 20; i++)
		write_whole(id, i * MAP_ENTRIES);
	for (uint32_t i = 0; i < WASTED; i++)
		put_data((struct xseg_key){id, head_of(id).volume.epoch, i * 10 + 1}, 0);
	ck_assert_int_eq(map_epoch(store, id, false, &head), 0);
}

static unsigned wasted(uint64_t id)
{
	unsigned count = 0;
	for (uint32_t i = 0; i < WASTED; i++)
		count += exists((struct xseg_key){id, 1, i * 10 + 1});
	return count;
}

static void ck_whole(uint64_t id)
{
	for (uint32_t i = 0; i < 20; i++)
		ck_assert(exists(place_of(id, i * MAP_ENTRIES)));
}

/* The call at which so many have been deleted. */
static unsigned call_of_deleted(uint64_t id, unsigned deleted)
{
	struct map_memory *all = memory;
	unsigned low = 1, high = 100000;
	while (low < high) {
		unsigned middle = (low + high) / 2;
		memory = map_memory_copy(all);
		store = &memory->store;
		(void)gc_kept(middle);
		if (WASTED - wasted(id) >= deleted)
			high = middle;
		else
			low = middle + 1;
		map_memory_destroy(memory);
	}
	memory = all;
	store = &memory->store;
	return low;
}

START_TEST(test_whole)
{
	make_waste(A, "a");
	make_waste(B, "b");
	ck_assert_int_eq(gc_kept(0), 0);
	ck_assert_uint_eq(sweep.deleted, 2 * WASTED);
	ck_assert_uint_eq(sweep.known, 0);
	ck_assert_uint_eq(sweep.skipped, 0);
	ck_assert_uint_eq(sweep.settles, 2);
	ck_assert_uint_eq(kept_objects(), 0);
	ck_assert_uint_eq(wasted(A) + wasted(B), 0);
	ck_clean();
}
END_TEST

/* In the middle of deleting: what is gone is not deleted again, what is left needs one look. */
START_TEST(test_goes_on_in_a_family)
{
	make_waste(A, "a");
	ck_assert_int_eq(gc_kept(call_of_deleted(A, 100)), -EINTR);
	ck_assert_uint_eq(wasted(A), WASTED - 100);
	ck_assert_uint_gt(kept_objects(), 0);
	uint64_t looked = memory->count[MAP_MEMORY_READ];
	if (_i == 1) /* the power fails */
		map_memory_lose(memory, 0);
	unsigned left = wasted(A);
	ck_assert_int_eq(gc_kept(0), 0);
	ck_assert_uint_eq(sweep.deleted, left);
	ck_assert_uint_eq(sweep.known, left);
	ck_assert_uint_eq(sweep.pass, 1);
	ck_assert_uint_eq(sweep.settles, 1); /* before it: what was under way must have ended */
	ck_assert_uint_eq(memory->count[MAP_MEMORY_DISCARD], left + 2);	   /* and what was kept */
	ck_assert_uint_lt(memory->count[MAP_MEMORY_READ], looked * 2 / 3); /* one of two */
	ck_assert_uint_eq(wasted(A), 0);
	ck_assert_uint_eq(kept_objects(), 0);
	ck_whole(A);
	ck_clean();
}
END_TEST

static uint64_t reads_of_a;

static int count_reads(struct map_memory *m, enum map_memory_kind kind, struct xseg_key key)
{
	(void)m;
	reads_of_a += kind == MAP_MEMORY_READ && key.volume == A;
	return 0;
}

/* In the second family: the first is left out, unless something has changed in it. */
START_TEST(test_goes_on_behind_a_family)
{
	bool changed = _i == 1, removed = _i == 2;
	make_waste(A, "a");
	snapshot(A, SNAP, "a@1");
	make_waste(B, "b");
	ck_assert_int_eq(gc_kept(call_of_deleted(B, 10)), -EINTR);
	ck_assert_uint_eq(wasted(A), 0);
	struct map_news hole = {.object = 0, .flags = MAP_NEWS_HOLE};
	struct map_head head;
	if (changed) /* the snapshot has it still */
		ck_assert_int_eq(map_update(store, A, &hole, 1, &head), 0);
	if (removed)
		remove_volume(SNAP);
	reads_of_a = 0;
	memory->before = count_reads;
	ck_assert_int_eq(gc_kept(0), 0);
	memory->before = NULL;
	ck_assert_uint_eq(sweep.skipped, changed || removed ? 0 : 2);
	ck_assert(changed || removed ? reads_of_a >= 20 : reads_of_a == 0);
	ck_assert_uint_eq(sweep.deleted, WASTED - 10);
	ck_assert_uint_eq(sweep.known, WASTED - 10);
	ck_assert_uint_eq(wasted(B), 0);
	ck_assert(changed || exists(place_of(A, 0)));
	ck_whole(B);
	ck_clean();
}
END_TEST

/* Not done with: a page could not be read, and can be again. No record has been written. */
START_TEST(test_held_family)
{
	make_waste(A, "a");
	make_waste(B, "b");
	struct map_ref ref = head_of(A).volume.top[1];
	struct xseg_key page = map_page_key(A, ref.epoch, 1);
	map_memory_corrupt(memory, page, ref.half * MAP_PAGE_SIZE + 9, 1);
	ck_assert_int_eq(gc_kept(call_of_deleted(B, 10)), -EINTR);
	ck_assert_uint_eq(wasted(A), WASTED);
	map_memory_corrupt(memory, page, ref.half * MAP_PAGE_SIZE + 9, 1);
	ck_assert_int_eq(gc_kept(0), 0);
	ck_assert_uint_eq(wasted(A) + wasted(B), 0);
	ck_assert_uint_eq(sweep.skipped, 0);
	ck_whole(A);
	ck_clean();
}
END_TEST

/* Found by the next sweep as if nothing had been kept: what has become waste since. */
START_TEST(test_waste_since)
{
	make_waste(A, "a");
	snapshot(A, SNAP, "a@1");
	ck_assert_int_eq(gc_kept(call_of_deleted(A, 100)), -EINTR);
	struct xseg_key old = place_of(A, 0), new = write_whole(A, 0);
	remove_volume(SNAP);
	ck_assert_int_eq(gc_kept(0), 0);
	ck_assert(!exists(old) && exists(new));
	ck_assert_uint_eq(sweep.known, WASTED - 100);
	ck_assert_uint_eq(sweep.deleted, WASTED - 100 + 2);
	ck_assert_uint_eq(sweep.settles, 2);
	ck_whole(A);
	ck_clean();
}
END_TEST

/* Cut off anywhere, and again: all goes, each once, and nothing else. */
START_TEST(test_cut_anywhere)
{
	uint64_t deleted = 0;
	unsigned runs = 0;
	make_waste(A, "a");
	make_waste(B, "b");
	for (unsigned at = 150;; at += _i % 7, runs++) {
		int rc = gc_kept(at + 1);
		deleted += sweep.deleted;
		ck_whole(A);
		ck_whole(B);
		if (rc == 0)
			break;
		ck_assert_int_eq(rc, -EINTR);
		if (_i % 3 == 0)
			map_memory_lose(memory, (uint64_t)_i * 100 + runs);
		if (_i % 7 == 0)
			at += 13;
	}
	ck_assert_uint_gt(runs, 1);
	if (_i % 3) /* the power brings back what was deleted just then */
		ck_assert_uint_eq(deleted, 2 * WASTED);
	gc();
	ck_assert_uint_eq(wasted(A) + wasted(B), 0);
	ck_clean();
}
END_TEST

static void forge(const struct xseg_key *keys, unsigned count)
{
	struct map_kept kept;
	map_kept_init(&kept, 8 << 20);
	for (unsigned i = 0; i < count; i++)
		ck_assert_int_ge(map_marks_set(&kept.suspects, keys[i]), 0);
	map_kept_save(&kept, store, &kept.suspects);
	map_kept_fini(&kept);
}

/* What stands there may be old, or a lie: what a volume has, or makes, stays. */
START_TEST(test_lies)
{
	make_waste(A, "a");
	snapshot(A, SNAP, "a@1");
	struct xseg_key fresh = {A, head_of(A).volume.epoch, 7};
	put_data(fresh, 0);
	struct xseg_key lies[] = {place_of(A, 0), place_of(A, MAP_ENTRIES), map_page_key(A, 1, 0),
		fresh, {B, 1, 1}, {A, 0, 1}, {A, 1, 11}};
	put_data(lies[4], 0);
	put_data(lies[5], 0);
	forge(lies, countof(lies));
	ck_assert_int_eq(gc_kept(0), 0);
	ck_assert_uint_eq(sweep.known, 1);
	ck_assert_uint_eq(sweep.deleted, WASTED);
	for (unsigned i = 0; i + 1 < countof(lies); i++)
		ck_assert_msg(exists(lies[i]), "lie %u", i);
	ck_whole(A);
	ck_clean();
}
END_TEST

static bool is_suspect(struct xseg_key key)
{
	struct map_kept kept;
	map_kept_init(&kept, 8 << 20);
	map_kept_load(&kept, store);
	bool is = map_marks_has(&kept.suspects, key);
	map_kept_fini(&kept);
	return is;
}

/* A record that somebody has put back from a copy needs again what was not needed any more. */
START_TEST(test_record_put_back)
{
	create(A, 10, "a");
	struct xseg_key key = write_whole(A, 1);
	struct map_news hole = {.object = 1, .flags = MAP_NEWS_HOLE};
	struct map_head copy = head_of(A), head;
	ck_assert_int_eq(map_update(store, A, &hole, 1, &head), 0);
	ck_assert_int_eq(map_epoch(store, A, false, &head), 0);
	for (unsigned at = 1; !is_suspect(key); at++)
		ck_assert_int_eq(gc_kept(at), -EINTR);
	ck_assert(exists(key));
	head = head_of(A);
	copy.volume.generation = head.volume.generation;
	copy.volume.epoch = head.volume.epoch + 1;
	for (unsigned i = 0; i < 2; i++)
		copy.version[i] = head.version[i];
	ck_assert_int_eq(map_head_put(store, &copy), 0);
	ck_assert_int_eq(gc_kept(0), 0);
	ck_assert(exists(key));
	ck_clean();
}
END_TEST

/* --- what is kept ----------------------------------------------------------------------------- */

static void ck_kept(uint64_t states, uint64_t suspects)
{
	struct map_kept kept;
	map_kept_init(&kept, 8 << 20);
	map_kept_load(&kept, store);
	ck_assert_uint_eq(kept.state_count, states);
	ck_assert_uint_eq(kept.suspects.objects, suspects);
	for (uint64_t i = 0; i < states; i++)
		ck_assert(map_kept_has_state(&kept, i * 77));
	ck_assert(!map_kept_has_state(&kept, 76));
	for (uint32_t i = 0; i < suspects; i++)
		ck_assert(map_marks_has(&kept.suspects, (struct xseg_key){A, 1 + i % 9, i * 3}));
	map_kept_fini(&kept);
}

static void save(uint64_t states, uint32_t suspects)
{
	struct map_kept kept;
	map_kept_init(&kept, 8 << 20);
	map_kept_load(&kept, store);
	kept.state_count = 0;
	map_marks_begin(&kept.suspects, 0, 1);
	for (uint64_t i = states; i-- > 0;)
		map_kept_add_state(&kept, i * 77);
	for (uint32_t i = 0; i < suspects; i++)
		map_marks_set(&kept.suspects, (struct xseg_key){A, 1 + i % 9, i * 3});
	map_kept_save(&kept, store, &kept.suspects);
	map_kept_fini(&kept);
}

START_TEST(test_kept)
{
	ck_kept(0, 0);
	save(3, 0);
	ck_kept(3, 0);
	save(30000, 200000); /* several chunks */
	ck_kept(30000, 200000);
	save(1, 5);
	map_memory_lose(memory, 0);
	ck_kept(1, 5);
}
END_TEST

/* Cut off while it is written: as it was before, or all of it. */
START_TEST(test_kept_is_cut)
{
	save(9, 2000);
	for (unsigned at = 1;; at++) {
		memory->cut_after = at;
		save(20, 3000);
		bool cut = memory->cut;
		map_memory_lose(memory, at);
		if (!cut)
			break;
		ck_kept(9, 2000);
	}
	ck_kept(20, 3000);
}
END_TEST

/* Any bit: nothing is kept. */
START_TEST(test_kept_is_damaged)
{
	static const struct xseg_key places[] = {
		{MAP_KEPT_ID, MAP_KEPT_EPOCH, 0}, {MAP_KEPT_ID, MAP_KEPT_EPOCH, 0x10001}};
	save(9, 50);
	for (uint32_t at = 0; at < XSEG_SECTOR; at++)
		for (unsigned i = 0; i < countof(places); i++) {
			map_memory_corrupt(memory, places[i], at, 1 << at % 8);
			ck_kept(0, 0);
			map_memory_corrupt(memory, places[i], at, 1 << at % 8);
		}
	ck_kept(9, 50);
}
END_TEST

/* A store that is full keeps nothing, and is swept. */
START_TEST(test_no_room)
{
	make_waste(A, "a");
	memory->space_max = memory->space;
	ck_assert_int_eq(gc_kept(0), 0);
	ck_assert_uint_eq(sweep.deleted, WASTED);
	ck_assert_uint_eq(kept_objects(), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("map_kept");
	TEST(test_whole, 1);
	TEST(test_goes_on_in_a_family, 2);
	TEST(test_goes_on_behind_a_family, 3);
	TEST(test_held_family, 1);
	TEST(test_waste_since, 1);
	TEST(test_cut_anywhere, 21);
	TEST(test_lies, 1);
	TEST(test_record_put_back, 1);
	TEST(test_kept, 1);
	TEST(test_kept_is_cut, 1);
	TEST(test_kept_is_damaged, 1);
	TEST(test_no_room, 1);
	return unit_main(suite);
}
