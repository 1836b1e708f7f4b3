/* SPDX-License-Identifier: Apache-2.0 */
/* The table of volumes: shards' caches, presence, who has what open, and the way out. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <xseg/registry.h>

#include "peers/volume/volume.h"
#include "tests/lib/unit.h"

#define SHARDS 3

static struct xseg seg;
static struct volume_shared shared;
static struct volume_shard shards[SHARDS];
static struct peer peers[SHARDS];

/* The core's, for a table that stands alone. */
const struct xseg *peer_segment(const struct peer *peer)
{
	(void)peer;
	return &seg;
}

static void table_setup(void)
{
	scratch_segment_unnamed(&seg, 0, 0, 0);
	memset(&shared, 0, sizeof(shared));
	memset(shards, 0, sizeof(shards));
	ck_assert_int_eq(volume_table_open(&shared), 0);
	for (int i = 0; i < SHARDS; i++) {
		peers[i] = (struct peer){.state = &shards[i], .shared = &shared};
		TAILQ_INIT(&shards[i].loads);
		ck_assert_int_eq(volume_cache_open(&shards[i]), 0);
	}
}

static void table_teardown(void)
{
	for (int i = 0; i < SHARDS; i++)
		volume_cache_close(&peers[i]);
	volume_table_close(&shared);
	xseg_segment_leave(&seg);
}

static struct volume_record record_of(uint64_t id)
{
	struct volume_record record = {.id = id,
		.size = 1000 * 4096 + 512,
		.object_size = 4096,
		.state = XSEG_VOLUME_READY};
	snprintf(record.name, sizeof(record.name), "v%llu", (unsigned long long)id);
	return record;
}

static _Atomic uint64_t *bitmap(void)
{
	void *map = mmap(NULL, 128, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(map, MAP_FAILED);
	return map;
}

static void insert(uint64_t id)
{
	struct volume_record record = record_of(id);
	ck_assert_int_eq(volume_table_insert(&shared, &record, bitmap(), shared.gone), 0);
}

static struct volume_client living_client(void)
{
	struct volume_client client;
	uint32_t lane;
	ck_assert_int_eq(xseg_lane_claim(&seg, &lane, &client.epoch), 0);
	client.lane = (uint16_t)lane;
	return client;
}

static void remove_volume(struct peer *peer, uint64_t id)
{
	struct volume_client nobody = {.lane = 63, .epoch = 9};
	unsigned before;
	struct volume *volume = volume_find(peer, id);
	ck_assert_ptr_nonnull(volume);
	ck_assert_int_eq(volume_remove_begin(peer, volume, nobody, &before), 0);
	volume_remove_end(peer, id);
}

START_TEST(test_find)
{
	ck_assert_ptr_null(volume_find(&peers[0], 0));
	ck_assert_ptr_null(volume_find(&peers[0], 5));
	insert(5);
	struct volume *volume = volume_find(&peers[0], 5);
	ck_assert_ptr_nonnull(volume);
	ck_assert_ptr_eq(volume, volume_find(&peers[1], 5));
	ck_assert_ptr_eq(volume, volume_cached(&shards[0], 5));
	ck_assert_uint_eq(volume->refs, 2);
	ck_assert_uint_eq(volume->object_shift, 12);
	/* not in this one's cache, and nobody admits nobody */
	ck_assert_uint_eq(volume_cached(&shards[2], 5)->admitted, 0);
	ck_assert_uint_eq(volume_cached(&shards[2], 0)->admitted, 0);
}
END_TEST

/* Many volumes, ids that collide in the cache: each is found, by each shard. */
START_TEST(test_many)
{
	uint64_t seed = 3, ids[3000];
	for (unsigned i = 0; i < countof(ids); i++) {
		ids[i] = i % 3 == 0 ? random_next(&seed) : i % 3 == 1 ? (i + 1ull) << 32 : i + 1;
		insert(ids[i]);
		ck_assert_ptr_nonnull(volume_find(&peers[i % SHARDS], ids[i]));
	}
	for (unsigned i = 0; i < countof(ids); i++)
		for (int j = 0; j < SHARDS; j++) {
			struct volume *volume = volume_find(&peers[j], ids[i]);
			ck_assert_ptr_nonnull(volume);
			ck_assert_uint_eq(volume->record.id, ids[i]);
			ck_assert_ptr_eq(volume, volume_cached(&shards[j], ids[i]));
		}
	/* half of them go: the others stay, and the caches shrink with the next miss */
	for (unsigned i = 0; i < countof(ids); i += 2)
		remove_volume(&peers[0], ids[i]);
	for (unsigned i = 0; i < countof(ids); i++)
		for (int j = 0; j < SHARDS; j++)
			ck_assert((volume_find(&peers[j], ids[i]) != NULL) == (i % 2 == 1));
	insert(77777);
	for (int j = 0; j < SHARDS; j++) {
		ck_assert_ptr_nonnull(volume_find(&peers[j], 77777));
		ck_assert_uint_eq(shards[j].used, countof(ids) / 2 + 1);
	}
	ck_assert_uint_eq(shared.count, countof(ids) / 2 + 1);
}
END_TEST

START_TEST(test_presence)
{
	struct volume_record record = record_of(6);
	insert(6);
	struct volume *volume = volume_find(&peers[0], 6);
	for (uint32_t object = 0; object <= 1000; object++)
		ck_assert(!volume_is_present(volume, object));
	volume_set_present(volume, 1000);
	volume_set_present(volume, 64);
	volume_set_present(volume, 64);
	/* a second shard has loaded it, too, and saw other objects */
	_Atomic uint64_t *seen = bitmap();
	seen[0] = 1;
	ck_assert_int_eq(volume_table_insert(&shared, &record, seen, 0), 0);
	ck_assert_ptr_eq(volume_find(&peers[1], 6), volume);
	struct xseg_volume_info info;
	volume_describe(&peers[0], volume, &info);
	ck_assert_uint_eq(info.objects, 3);
	ck_assert_uint_eq(info.size, record.size);
	ck_assert_str_eq(info.name, "v6");
	for (uint32_t object = 0; object <= 1000; object++)
		ck_assert(volume_is_present(volume, object) ==
			  (object == 0 || object == 64 || object == 1000));
}
END_TEST

/* What was read before a removal may be about the removed: it is not believed. */
START_TEST(test_stale_load)
{
	struct volume_record record = record_of(8);
	insert(8);
	uint64_t gone = shared.gone;
	remove_volume(&peers[0], 8);
	ck_assert_int_eq(volume_table_insert(&shared, &record, bitmap(), gone), -EAGAIN);
	ck_assert_ptr_null(volume_find(&peers[1], 8));
}
END_TEST

/* A client that was there before says how often it has it open; it may be asked twice. */
START_TEST(test_opened_again)
{
	struct volume_client a = living_client(), b = living_client();
	struct xseg_volume_info info;
	unsigned before;
	insert(9);
	struct volume *volume = volume_find(&peers[0], 9);
	ck_assert_int_eq(volume_admit(&peers[0], volume, a), 0); /* it works on, first */
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(volume_opened(&peers[0], volume, a, true, 3), 0);
	ck_assert_int_eq(volume_opened(&peers[0], volume, a, true, 0), 0);
	volume_describe(&peers[0], volume, &info);
	ck_assert_uint_eq(info.opens, 4);
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(volume_remove_begin(&peers[0], volume, b, &before), -EBUSY);
		volume_closed(&peers[0], volume, a);
	}
	ck_assert_int_eq(volume_remove_begin(&peers[0], volume, b, &before), 0);
}
END_TEST

START_TEST(test_opens)
{
	struct volume_client a = living_client(), b = living_client(), dead = {40, 3};
	struct xseg_volume_info info;
	unsigned before;
	insert(9);
	struct volume *volume = volume_find(&peers[0], 9);
	ck_assert_int_eq(volume_opened(&peers[0], volume, a, true, 0), 0);
	ck_assert_int_eq(volume_opened(&peers[1], volume, a, false, 0), 0);
	ck_assert_int_eq(volume_opened(&peers[2], volume, dead, true, 0), 0);
	ck_assert((volume->admitted >> a.lane) & 1);
	ck_assert((volume->admitted >> 40) & 1);
	volume_describe(&peers[0], volume, &info);
	ck_assert_uint_eq(info.opens, 2); /* the dead do not count */
	ck_assert(!((volume->admitted >> 40) & 1));
	ck_assert_int_eq(volume_remove_begin(&peers[0], volume, b, &before), -EBUSY);
	ck_assert_int_eq(volume_remove_begin(&peers[0], volume, a, &before), -EBUSY);
	volume_closed(&peers[0], volume, a);
	ck_assert_int_eq(volume_remove_begin(&peers[0], volume, b, &before), -EBUSY);
	volume_closed(&peers[0], volume, a);
	ck_assert_int_eq(volume_remove_begin(&peers[0], volume, b, &before), 0);
	ck_assert_uint_eq(before, XSEG_VOLUME_READY);
	ck_assert_uint_eq(volume->admitted, 0);
	ck_assert_int_eq(volume_admit(&peers[0], volume, a), -ENOENT);
	ck_assert_int_eq(volume_opened(&peers[0], volume, a, false, 0), -EBUSY);
	ck_assert_int_eq(volume_remove_begin(&peers[0], volume, b, &before), -EBUSY);
}
END_TEST

/* A client at work that we never saw opening: it opened before we were restarted. */
START_TEST(test_implied)
{
	struct volume_client a = living_client(), b = living_client();
	struct xseg_volume_info info;
	unsigned before;
	insert(10);
	struct volume *volume = volume_find(&peers[0], 10);
	ck_assert_int_eq(volume_admit(&peers[0], volume, a), 0);
	volume_describe(&peers[0], volume, &info);
	ck_assert_uint_eq(info.opens, 1);
	ck_assert_int_eq(volume_remove_begin(&peers[0], volume, b, &before), -EBUSY);
	volume_closed(&peers[0], volume, a);
	ck_assert_uint_eq(volume->admitted, 0); /* another connection of his shows itself again */
	ck_assert_int_eq(volume_admit(&peers[0], volume, a), 0);
	ck_assert_int_eq(volume_remove_begin(&peers[0], volume, a, &before), 0);
}
END_TEST

/* The lane's number is given to another: what the dead one had open is nobody's. */
START_TEST(test_lane_again)
{
	struct volume_client a = living_client(), b;
	struct xseg_volume_info info;
	insert(11);
	struct volume *volume = volume_find(&peers[0], 11);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(volume_opened(&peers[0], volume, a, true, 0), 0);
	xseg_lane_release(&seg, a.lane);
	b = living_client();
	ck_assert_uint_eq(b.lane, a.lane);
	ck_assert_uint_ne(b.epoch, a.epoch);
	ck_assert_int_eq(volume_opened(&peers[0], volume, b, true, 0), 0);
	volume_describe(&peers[0], volume, &info);
	ck_assert_uint_eq(info.opens, 1);
}
END_TEST

START_TEST(test_states)
{
	struct volume_client nobody = {.lane = 63, .epoch = 9};
	unsigned before;
	insert(12);
	struct volume *volume = volume_find(&peers[0], 12);
	ck_assert_int_eq(volume_state_set(&peers[0], volume, XSEG_VOLUME_READY), 0);
	ck_assert_int_eq(volume_state_set(&peers[0], volume, XSEG_VOLUME_IMPORTING), -EINVAL);
	ck_assert_int_eq(volume_state_set(&peers[0], volume, XSEG_VOLUME_REMOVING), -EINVAL);
	ck_assert(volume_state_may(XSEG_VOLUME_IMPORTING, XSEG_VOLUME_READY));
	ck_assert(!volume_state_may(XSEG_VOLUME_REMOVING, XSEG_VOLUME_READY));
	/* a removal that could not even begin */
	ck_assert_int_eq(volume_remove_begin(&peers[0], volume, nobody, &before), 0);
	volume_remove_stop(&peers[0], 12, before);
	ck_assert_uint_eq(volume->state, XSEG_VOLUME_READY);
	/* one that failed halfway may be tried again */
	ck_assert_int_eq(volume_remove_begin(&peers[0], volume, nobody, &before), 0);
	volume_remove_stop(&peers[0], 12, XSEG_VOLUME_REMOVING);
	ck_assert_int_eq(volume_admit(&peers[0], volume, nobody), -ENOENT);
	ck_assert_int_eq(volume_remove_begin(&peers[0], volume, nobody, &before), 0);
	ck_assert_uint_eq(before, XSEG_VOLUME_REMOVING);
	volume_remove_end(&peers[0], 12);
	ck_assert_ptr_null(volume_find(&peers[0], 12));
}
END_TEST

START_TEST(test_fixed)
{
	struct volume_record record = record_of(volume_name_hash("v13"));
	struct volume_client a = living_client();
	unsigned before;
	strcpy(record.name, "v13");
	ck_assert_int_eq(volume_table_add_fixed(&shared, &record), 0);
	ck_assert_int_eq(volume_table_add_fixed(&shared, &record), -EEXIST);
	ck_assert_uint_eq(volume_table_fixed_id(&shared, "v13"), record.id);
	ck_assert_uint_eq(volume_table_fixed_id(&shared, "v14"), 0);
	struct volume *volume = volume_find(&peers[0], record.id);
	ck_assert(volume_is_present(volume, 1000));
	ck_assert_int_eq(volume_remove_begin(&peers[0], volume, a, &before), -EPERM);
}
END_TEST

START_TEST(test_read_only)
{
	struct volume_client a = living_client();
	struct volume_record record = record_of(14);
	record.flags = XSEG_VOLUME_READ_ONLY;
	ck_assert_int_eq(volume_table_insert(&shared, &record, bitmap(), 0), 0);
	struct volume *volume = volume_find(&peers[0], 14);
	ck_assert(volume->read_only);
	ck_assert_int_eq(volume_opened(&peers[0], volume, a, true, 0), -EROFS);
	ck_assert_int_eq(volume_opened(&peers[0], volume, a, false, 0), 0);
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *test)
{
	TCase *unit_case = tcase_create(name);
	tcase_set_timeout(unit_case, 60);
	tcase_add_checked_fixture(unit_case, table_setup, table_teardown);
	tcase_add_test(unit_case, test);
	suite_add_tcase(suite, unit_case);
}

int main(void)
{
	Suite *suite = suite_create("volume_table");
	add(suite, "find", test_find);
	add(suite, "many", test_many);
	add(suite, "presence", test_presence);
	add(suite, "stale_load", test_stale_load);
	add(suite, "opens", test_opens);
	add(suite, "opened_again", test_opened_again);
	add(suite, "implied", test_implied);
	add(suite, "lane_again", test_lane_again);
	add(suite, "states", test_states);
	add(suite, "fixed", test_fixed);
	add(suite, "read_only", test_read_only);
	return unit_main(suite);
}
