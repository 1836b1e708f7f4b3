/* SPDX-License-Identifier: Apache-2.0 */
/* The table of volumes: shards' caches, who has what open, and the way out. */
#include <errno.h>
#include <string.h>
#include <xseg/registry.h>

#include "peers/volume/volume_quiesce.h"
#include "tests/lib/unit.h"

#define SHARDS 3

static struct xseg seg;
static struct volume_shared shared;
static const struct peer_list keep;
static struct volume_shard shards[SHARDS];
static struct peer peers[SHARDS];

/* The core's and others', for a table that stands alone. */
uint64_t peer_now_ns(const struct peer *peer)
{
	(void)peer;
	return 0;
}

void volume_quiesce_aside(struct peer *peer, const struct job *job, bool aside)
{
	(void)peer, (void)job, (void)aside;
}

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
	ck_assert_int_eq(volume_table_open(&shared, &keep), 0);
	for (int i = 0; i < SHARDS; i++) {
		peers[i] = (struct peer){.state = &shards[i], .shared = &shared};
		TAILQ_INIT(&shards[i].loads);
		ck_assert_int_eq(volume_table_cache_open(&shards[i]), 0);
	}
}

static void table_teardown(void)
{
	for (int i = 0; i < SHARDS; i++)
		volume_table_cache_close(&peers[i]);
	volume_table_close(&shared);
	xseg_segment_leave(&seg);
}

static struct map_head_info head_of(uint64_t id)
{
	struct map_head_info head = {.id = id,
		.size = 1000 * 4096 + 512,
		.object_size = 4096,
		.epoch = 5,
		.frozen = 3,
		.owner_count = 1,
		.owners = {id},
		.state = XSEG_VOLUME_READY};
	snprintf(head.name, sizeof(head.name), "v%llu", (unsigned long long)id);
	return head;
}

/* As one that somebody has open for writing. */
static void insert(uint64_t id)
{
	struct map_head_info head = head_of(id);
	ck_assert_int_eq(volume_table_insert(&shared, &head, shared.gone), 0);
	struct volume *volume = volume_table_find(&shared, id);
	volume->acquired = true;
	LIST_INSERT_HEAD(&shared.acquired, volume, lease);
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
	struct volume *volume = volume_table_lookup(peer, id);
	ck_assert_ptr_nonnull(volume);
	ck_assert_int_eq(volume_table_remove_begin(peer, volume), 0);
	volume_table_remove_end(peer, id);
}

UNIT_WITHIN(test_find, table_setup, table_teardown)
{
	ck_assert_ptr_null(volume_table_lookup(&peers[0], 0));
	ck_assert_ptr_null(volume_table_lookup(&peers[0], 5));
	insert(5);
	struct volume *volume = volume_table_lookup(&peers[0], 5);
	ck_assert_ptr_nonnull(volume);
	ck_assert_ptr_eq(volume, volume_table_lookup(&peers[1], 5));
	ck_assert_ptr_eq(volume, volume_cached(&shards[0], 5));
	ck_assert_uint_eq(volume->refs, 2);
	ck_assert_uint_eq(volume->object_shift, 12);
	/* not in this one's cache, and nobody admits nobody */
	ck_assert_uint_eq(volume_cached(&shards[2], 5)->admitted, 0);
	ck_assert_uint_eq(volume_cached(&shards[2], 0)->admitted, 0);
}

/* Many volumes, ids that collide in the cache: each is found, by each shard. */
UNIT_WITHIN(test_many, table_setup, table_teardown)
{
	uint64_t seed = 3, ids[3000];
	for (unsigned i = 0; i < countof(ids); i++) {
		ids[i] = i % 3 == 0 ? random_next(&seed) : i % 3 == 1 ? (i + 1ull) << 32 : i + 1;
		insert(ids[i]);
		ck_assert_ptr_nonnull(volume_table_lookup(&peers[i % SHARDS], ids[i]));
	}
	for (unsigned i = 0; i < countof(ids); i++)
		for (int j = 0; j < SHARDS; j++) {
			struct volume *volume = volume_table_lookup(&peers[j], ids[i]);
			ck_assert_ptr_nonnull(volume);
			ck_assert_uint_eq(volume->id, ids[i]);
			ck_assert_ptr_eq(volume, volume_cached(&shards[j], ids[i]));
		}
	/* half of them go: the others stay, and the caches shrink with the next miss */
	for (unsigned i = 0; i < countof(ids); i += 2)
		remove_volume(&peers[0], ids[i]);
	for (unsigned i = 0; i < countof(ids); i++)
		for (int j = 0; j < SHARDS; j++)
			ck_assert((volume_table_lookup(&peers[j], ids[i]) != NULL) == (i % 2 == 1));
	insert(77777);
	for (int j = 0; j < SHARDS; j++) {
		ck_assert_ptr_nonnull(volume_table_lookup(&peers[j], 77777));
		ck_assert_uint_eq(shards[j].used, countof(ids) / 2 + 1);
	}
	ck_assert_uint_eq(shared.count, countof(ids) / 2 + 1);
}

/* What the mapper says is looked at before it is believed. */
UNIT_WITHIN(test_head, table_setup, table_teardown)
{
	struct map_head_info head = head_of(6), bad;
	struct xseg_volume_info info;
	insert(6);
	struct volume *volume = volume_table_lookup(&peers[0], 6);
	ck_assert_uint_eq(volume->epoch, 5);
	ck_assert_uint_eq(volume->frozen, 3);
	ck_assert_ptr_nonnull(volume->pages);
	head.size = 8192;
	head.epoch = 7;
	head.state = XSEG_VOLUME_REMOVING;
	strcpy(head.name, "other");
	ck_assert_int_eq(volume_table_head_set(&peers[0], volume, &head, false), 0);
	ck_assert_uint_eq(volume->epoch, 5); /* somebody may be at work on it */
	ck_assert_uint_eq(volume->size, 1000 * 4096 + 512);
	ck_assert_uint_eq(volume->state, XSEG_VOLUME_REMOVING);
	ck_assert_int_eq(volume_table_head_set(&peers[0], volume, &head, true), 0);
	ck_assert_uint_eq(volume->epoch, 7);
	volume_open_describe(&peers[0], volume, &info);
	ck_assert_uint_eq(info.size, 8192);
	ck_assert_str_eq(info.name, "other");
#define REFUSED(change) \
	do { \
		bad = head; \
		change; \
		ck_assert_int_eq(volume_table_head_check(&bad), -EILSEQ); \
		ck_assert_int_eq(volume_table_head_set(&peers[0], volume, &bad, true), -EILSEQ); \
		ck_assert_int_eq(volume_table_insert(&shared, &bad, shared.gone), -EILSEQ); \
	} while (0)
	REFUSED(bad.id = 0);
	REFUSED(bad.size = 4097);
	REFUSED(bad.size = (1ull << 24) * 4096 + 512);
	REFUSED(bad.object_size = 2048);
	REFUSED(bad.object_size = 5000);
	REFUSED(bad.object_size = 8u << 20);
	REFUSED(bad.state = 0);
	REFUSED(bad.state = VOLUME_GONE);
	REFUSED(bad.owner_count = MAP_OWNERS + 1);
	REFUSED(bad.self = 1);
	REFUSED(bad.owners[0] = 7);
	REFUSED(memset(bad.name, 'x', sizeof(bad.name)));
	bad = head;
	bad.object_size = 8192;
	ck_assert_int_eq(volume_table_head_set(&peers[0], volume, &bad, true), -EILSEQ);
}

/* Who is let in at once may write, too: so not into what is not ours, quiesced, limited or lost. */
UNIT_WITHIN(test_admitted, table_setup, table_teardown)
{
	struct volume_client a = living_client();
	struct map_head_info head = head_of(7);
	insert(7);
	struct volume *volume = volume_table_lookup(&peers[0], 7);
	uint64_t bit = 1ull << a.lane;
	volume_open_admit(volume, a);
	ck_assert_uint_eq(volume->admitted, bit);
	head.limits.iops = 10;
	ck_assert_int_eq(volume_table_head_set(&peers[0], volume, &head, false), 0);
	ck_assert_uint_eq(volume->admitted, 0);
	volume_open_admit(volume, a);
	ck_assert_int_eq(volume_open_add(&peers[0], volume, a, true, 0), 0);
	ck_assert_uint_eq(volume->admitted, 0);
	head.limits.iops = 0;
	ck_assert_int_eq(volume_table_head_set(&peers[0], volume, &head, false), 0);
	volume->acquired = false;
	volume_open_admit(volume, a);
	ck_assert_uint_eq(volume->admitted, 0);
	volume->acquired = true;
	volume->lost = true;
	volume_open_admit(volume, a);
	ck_assert_uint_eq(volume->admitted, 0);
	volume->lost = false;
	volume->quiesce = (struct volume_quiesce *)volume;
	volume_open_admit(volume, a);
	ck_assert_uint_eq(volume->admitted, 0);
	volume->quiesce = NULL;
	volume_open_admit(volume, a);
	ck_assert_uint_eq(volume->admitted, bit);
	ck_assert(!volume_open_is_unused(&peers[0], volume));
	xseg_lane_release(&seg, a.lane);
	ck_assert(volume_open_is_unused(&peers[0], volume));
}

/* What was read before a removal may be about the removed: it is not believed. */
UNIT_WITHIN(test_stale_load, table_setup, table_teardown)
{
	struct map_head_info head = head_of(8);
	insert(8);
	uint64_t gone = shared.gone;
	remove_volume(&peers[0], 8);
	ck_assert_int_eq(volume_table_insert(&shared, &head, gone), -EAGAIN);
	ck_assert_ptr_null(volume_table_lookup(&peers[1], 8));
}

/* A client that was there before says how often it has it open; it may be asked twice. */
UNIT_WITHIN(test_opened_again, table_setup, table_teardown)
{
	struct volume_client a = living_client(), b = living_client();
	struct xseg_volume_info info;
	insert(9);
	struct volume *volume = volume_table_lookup(&peers[0], 9);
	volume_open_admit(volume, a); /* it works on, first */
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(volume_open_add(&peers[0], volume, a, true, 3), 0);
	ck_assert_int_eq(volume_open_add(&peers[0], volume, a, true, 0), 0);
	volume_open_describe(&peers[0], volume, &info);
	ck_assert_uint_eq(info.opens, 4);
	for (unsigned i = 4; i > 0; i--) {
		ck_assert_uint_eq(volume_open_count(&peers[0], volume, b), i);
		ck_assert(volume_open_remove(&peers[0], volume, a) == (i == 1));
	}
	ck_assert_uint_eq(volume_open_count(&peers[0], volume, b), 0);
}

UNIT_WITHIN(test_opens, table_setup, table_teardown)
{
	struct volume_client a = living_client(), b = living_client(), dead = {40, 3};
	struct xseg_volume_info info;
	insert(9);
	struct volume *volume = volume_table_lookup(&peers[0], 9);
	ck_assert_int_eq(volume_open_add(&peers[0], volume, a, true, 0), 0);
	ck_assert_int_eq(volume_open_add(&peers[1], volume, a, false, 0), 0);
	ck_assert_int_eq(volume_open_add(&peers[2], volume, dead, true, 0), 0);
	ck_assert((volume->admitted >> a.lane) & 1);
	ck_assert((volume->admitted >> 40) & 1);
	volume_open_describe(&peers[0], volume, &info);
	ck_assert_uint_eq(info.opens, 2); /* the dead do not count */
	ck_assert(!((volume->admitted >> 40) & 1));
	ck_assert_uint_eq(volume_open_count(&peers[0], volume, a), 2);
	ck_assert(!volume_open_remove(&peers[0], volume, a));
	ck_assert_uint_eq(volume_open_count(&peers[0], volume, b), 1);
	ck_assert(volume_open_remove(&peers[0], volume, a));
	ck_assert_uint_eq(volume_open_count(&peers[0], volume, b), 0);
	ck_assert_int_eq(volume_table_remove_begin(&peers[0], volume), 0);
	ck_assert_uint_eq(volume->admitted, 0);
	ck_assert(volume_open_is_leaving(volume));
	ck_assert_int_eq(volume_open_add(&peers[0], volume, a, false, 0), -EBUSY);
	ck_assert_int_eq(volume_table_remove_begin(&peers[0], volume), -EBUSY);
}

/* A client at work that we never saw opening: it opened before we were restarted. */
UNIT_WITHIN(test_implied, table_setup, table_teardown)
{
	struct volume_client a = living_client(), b = living_client();
	struct xseg_volume_info info;
	insert(10);
	struct volume *volume = volume_table_lookup(&peers[0], 10);
	volume_open_admit(volume, a);
	volume_open_describe(&peers[0], volume, &info);
	ck_assert_uint_eq(info.opens, 1);
	ck_assert_uint_eq(volume_open_count(&peers[0], volume, b), 1);
	volume_open_remove(&peers[0], volume, a);
	ck_assert_uint_eq(volume->admitted, 0); /* another connection of his shows itself again */
	volume_open_admit(volume, a);
	ck_assert_uint_eq(
		volume_open_count(&peers[0], volume, a), 0); /* he himself may remove it */
	ck_assert_uint_eq(volume_open_count(&peers[0], volume, b), 1);
}

/* The lane's number is given to another: what the dead one had open is nobody's. */
UNIT_WITHIN(test_lane_again, table_setup, table_teardown)
{
	struct volume_client a = living_client(), b;
	struct xseg_volume_info info;
	insert(11);
	struct volume *volume = volume_table_lookup(&peers[0], 11);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(volume_open_add(&peers[0], volume, a, true, 0), 0);
	xseg_lane_release(&seg, a.lane);
	b = living_client();
	ck_assert_uint_eq(b.lane, a.lane);
	ck_assert_uint_ne(b.epoch, a.epoch);
	ck_assert_int_eq(volume_open_add(&peers[0], volume, b, true, 0), 0);
	volume_open_describe(&peers[0], volume, &info);
	ck_assert_uint_eq(info.opens, 1);
}

UNIT_WITHIN(test_states, table_setup, table_teardown)
{
	struct map_head_info head = head_of(12);
	insert(12);
	struct volume *volume = volume_table_lookup(&peers[0], 12);
	/* a removal that could not even begin */
	ck_assert_int_eq(volume_table_remove_begin(&peers[0], volume), 0);
	ck_assert_int_eq(volume_table_head_set(&peers[0], volume, &head, true), 0);
	ck_assert_uint_eq(volume->state, XSEG_VOLUME_REMOVING);
	volume_table_remove_stop(&peers[0], 12, XSEG_VOLUME_READY);
	ck_assert_uint_eq(volume->state, XSEG_VOLUME_READY);
	/* one that failed halfway may be tried again */
	ck_assert_int_eq(volume_table_remove_begin(&peers[0], volume), 0);
	volume_table_remove_stop(&peers[0], 12, XSEG_VOLUME_REMOVING);
	ck_assert_int_eq(volume_table_remove_begin(&peers[0], volume), 0);
	volume_table_remove_end(&peers[0], 12);
	ck_assert_ptr_null(volume_table_lookup(&peers[0], 12));
	ck_assert(LIST_EMPTY(&shared.acquired));
}

UNIT_WITHIN(test_configured, table_setup, table_teardown)
{
	ck_assert_int_eq(volume_table_add_configured(&shared, "v13", 10 * 4096, 4096), 0);
	ck_assert_int_eq(volume_table_add_configured(&shared, "v13", 10 * 4096, 4096), -EEXIST);
	ck_assert_int_eq(volume_table_add_configured(&shared, "v14", 0, 4096), -EINVAL);
	ck_assert_int_eq(volume_table_add_configured(&shared, "v14", 4097, 4096), -EINVAL);
	ck_assert_int_eq(volume_table_add_configured(&shared, "a/b", 4096, 4096), -EINVAL);
	uint64_t id = volume_table_configured_id(&shared, "v13");
	ck_assert_uint_ne(id, 0);
	ck_assert_uint_eq(volume_table_configured_id(&shared, "v14"), 0);
	struct volume *volume = volume_table_lookup(&peers[0], id);
	ck_assert_ptr_null(volume->pages);
	ck_assert_int_eq(volume_table_remove_begin(&peers[0], volume), -EPERM);
	struct xseg_volume_info info;
	volume_open_describe(&peers[0], volume, &info);
	ck_assert_uint_eq(info.flags, XSEG_VOLUME_FIXED);
	ck_assert_uint_eq(info.objects, 10);
}

UNIT_WITHIN(test_read_only, table_setup, table_teardown)
{
	struct volume_client a = living_client();
	struct map_head_info head = head_of(14);
	head.flags = XSEG_VOLUME_SNAPSHOT;
	head.self = MAP_OWNERS; /* it has no objects of its own */
	ck_assert_int_eq(volume_table_insert(&shared, &head, 0), 0);
	struct volume *volume = volume_table_lookup(&peers[0], 14);
	ck_assert(volume->read_only);
	ck_assert_int_eq(volume_open_add(&peers[0], volume, a, true, 0), -EROFS);
	ck_assert_int_eq(volume_open_add(&peers[0], volume, a, false, 0), 0);
	ck_assert_uint_ne(volume->admitted, 0); /* nobody can write to it anyway */
}
