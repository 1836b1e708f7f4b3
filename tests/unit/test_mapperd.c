/* SPDX-License-Identifier: Apache-2.0 */
/* Each thing that a mapper can be asked, over a store in memory. */
#include <errno.h>
#include <string.h>

#include "tests/unit/mapper_rig.h"

static struct mrig m;
#define MIB (1u << 20)

static uint64_t make(const char *name, uint64_t size)
{
	uint64_t id = 0;
	ck_assert_int_eq(mrig_create(&m, name, size, &id), 0);
	ck_assert_uint_ne(id, 0);
	return id;
}

static struct map_head_info acquire(uint64_t id)
{
	struct map_head_info head = {0};
	ck_assert_int_eq(mrig_acquire(&m, id, &head), 0);
	ck_assert_uint_eq(head.id, id);
	return head;
}

/* --- volumes as such ------------------------------------------------------------------------ */

UNIT(created_listed_removed)
{
	struct xseg_volume_info info;
	char names[256];
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 10 * MIB), again;
	ck_assert_int_eq(mrig_info(&m, a, NULL, &info), 0);
	ck_assert_uint_eq(info.size, 10 * MIB);
	ck_assert_uint_eq(info.object_size, MRIG_OBJECT);
	ck_assert_uint_eq(info.state, XSEG_VOLUME_READY);
	ck_assert_str_eq(info.name, "a");
	ck_assert_int_eq(mrig_info(&m, 0, "a", &info), 0);
	ck_assert_uint_eq(info.id, a);
	ck_assert_int_eq(mrig_info(&m, 0, "b", &info), -ENOENT);
	ck_assert_int_eq(mrig_info(&m, 77, NULL, &info), -ENOENT);
	ck_assert_int_eq(mrig_create(&m, "a", MIB, &again), -EEXIST);
	ck_assert_int_eq(mrig_create(&m, "x/y", MIB, &again), -EINVAL);
	ck_assert_int_eq(mrig_create(&m, "odd", 1000, &again), -EINVAL);
	ck_assert_uint_eq(mrig_list(&m, 4, names, sizeof(names)), 1);
	ck_assert_str_eq(names, "a");
	ck_assert_int_eq(mrig_remove(&m, a), 0);
	ck_assert_int_eq(mrig_remove(&m, a), 0); /* by its id: it has been done */
	ck_assert_int_eq(mrig_info(&m, a, NULL, &info), -ENOENT);
	ck_assert_uint_eq(mrig_list(&m, 4, names, sizeof(names)), 0);
	mrig_end(&m);
}

UNIT(acquired_told_looked_up)
{
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 100 * MIB);
	ck_assert_int_eq(mrig_publish(&m, a, 3, 1), -ESTALE); /* nobody has acquired it */
	struct map_head_info head = acquire(a), once;
	ck_assert_uint_ge(head.term, 1);
	ck_assert_uint_eq(head.owners[head.self], a);
	ck_assert_int_eq(mrig_publish(&m, a, 3, head.epoch), 0);
	ck_assert_int_eq(mrig_publish(&m, a, 1000, head.epoch), 0);
	ck_assert_uint_eq(mrig_word(&m, a, 3), map_word(head.epoch, head.self, 0));
	ck_assert_uint_eq(mrig_word(&m, a, 1000), map_word(head.epoch, head.self, 0));
	ck_assert_uint_eq(mrig_word(&m, a, 4), 0);
	once = acquire(a); /* said again: the term stays, the epoch is fresh */
	ck_assert_uint_eq(once.term, head.term);
	ck_assert_uint_gt(once.epoch, head.epoch);
	ck_assert_int_eq(mrig_control(&m, MAP_RELEASE, a, 0, NULL, 0), 0);
	ck_assert_int_eq(mrig_control(&m, MAP_RELEASE, a, 0, NULL, 0), 0);
	/* nobody else has had it since: it is ours again for that */
	ck_assert_int_eq(mrig_publish(&m, a, 5, once.epoch), 0);
	ck_assert_uint_eq(mrig_counter(&m, MAPPER_PUBLISHED), 3);
	ck_assert_uint_eq(mrig_counter(&m, MAPPER_ACQUIRES), 2);
	/* handed over to another segment, which does not come for it */
	struct map_home_info home;
	ck_assert_int_eq(mrig_control(&m, MAP_HOME, a + 1, 0, NULL, 0), -ENOENT);
	ck_assert_int_eq(mrig_control(&m, MAP_RELEASE, a, 77, NULL, 0), 0);
	ck_assert_int_eq(mrig_control(&m, MAP_RELEASE, a, 78, NULL, 0), -ESTALE);
	ck_assert_int_eq(mrig_control(&m, MAP_HOME, a, 0, NULL, 0), 0);
	ck_assert_uint_eq(m.size, sizeof(home));
	memcpy(&home, m.out, sizeof(home));
	ck_assert_uint_eq(home.owner, 0);
	ck_assert_uint_eq(home.next, 77);
	ck_assert_uint_eq(home.last, home.self);
	uint64_t term = home.term;
	ck_assert_uint_eq(acquire(a).term, term + 1);
	ck_assert_int_eq(mrig_control(&m, MAP_HOME, a, 0, NULL, 0), 0);
	memcpy(&home, m.out, sizeof(home));
	ck_assert_uint_eq(home.owner, home.self);
	ck_assert_uint_eq(home.next, 0);
	ck_assert_uint_eq(home.line, 1);
	mrig_end(&m);
}

/* --- snapshots, clones, changes ------------------------------------------------------------- */

static struct map_ask ask_of(const char *name, uint64_t id)
{
	struct map_ask ask = {.id = id};
	snprintf(ask.name, sizeof(ask.name), "%s", name);
	return ask;
}

static struct map_head_info head_out(void)
{
	struct map_head_info head;
	ck_assert_uint_eq(m.size, sizeof(head));
	memcpy(&head, m.out, sizeof(head));
	return head;
}

UNIT(snapshots_and_clones)
{
	struct xseg_volume_info info;
	char names[256];
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 10 * MIB);
	struct map_head_info head = acquire(a);
	ck_assert_int_eq(mrig_publish(&m, a, 3, head.epoch), 0);
	struct map_ask snap = ask_of("a@1", 1001);
	ck_assert_int_eq(mrig_ask(&m, MAP_SNAP, a, &snap), 0);
	struct map_head_info after = head_out();
	ck_assert_uint_gt(after.epoch, head.epoch);
	ck_assert_uint_ge(after.frozen, head.epoch);
	ck_assert_uint_eq(after.term, head.term);
	ck_assert_int_eq(mrig_ask(&m, MAP_SNAP, a, &snap), 0); /* said again */
	snap.id = 1002;
	ck_assert_int_eq(mrig_ask(&m, MAP_SNAP, a, &snap), -EEXIST);
	ck_assert_int_eq(mrig_publish(&m, a, 3, after.epoch), 0);
	ck_assert_uint_eq(mrig_word(&m, 1001, 3), map_word(head.epoch, head.self, 0));
	ck_assert_uint_eq(mrig_word(&m, a, 3), map_word(after.epoch, head.self, 0));
	struct map_ask clone = ask_of("c", 1003);
	snprintf(clone.other, sizeof(clone.other), "a@1");
	clone.size = 20 * MIB;
	ck_assert_int_eq(mrig_ask(&m, MAP_CLONE, 0, &clone), 0);
	struct map_head_info cloned = head_out();
	ck_assert_uint_eq(cloned.id, 1003);
	ck_assert_uint_eq(cloned.size, 20 * MIB);
	ck_assert_uint_eq(cloned.owners[0], a);
	ck_assert_uint_eq(mrig_word(&m, 1003, 3), map_word(head.epoch, head.self, 0));
	ck_assert_int_eq(mrig_info(&m, 1001, NULL, &info), 0);
	ck_assert_uint_eq(info.flags & XSEG_VOLUME_SNAPSHOT, XSEG_VOLUME_SNAPSHOT);
	ck_assert_int_eq(mrig_acquire(&m, 1001, &head), -EPERM);
	ck_assert_int_eq(mrig_control(&m, MAP_ACQUIRE, 1001, MAP_READ_ONLY, NULL, 0), 0);
	ck_assert_uint_eq(head_out().term, 0);
	ck_assert_uint_eq(mrig_list(&m, 2, names, sizeof(names)), 3);
	ck_assert_int_eq(mrig_remove(&m, 1001), -ENOTEMPTY);
	ck_assert_int_eq(mrig_remove(&m, 1003), 0);
	ck_assert_int_eq(mrig_remove(&m, 1001), 0);
	mrig_end(&m);
}

UNIT(rolled_back_resized_renamed)
{
	struct xseg_volume_info info;
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 10 * MIB);
	struct map_head_info head = acquire(a);
	ck_assert_int_eq(mrig_publish(&m, a, 3, head.epoch), 0);
	ck_assert_int_eq(mrig_control(&m, MAP_RELEASE, a, 0, NULL, 0), 0);
	struct map_ask snap = ask_of("a@1", 1001), ask = {.size = 30 * MIB};
	ck_assert_int_eq(mrig_ask(&m, MAP_SNAP, a, &snap), 0);
	ck_assert_uint_eq(head_out().term, 0); /* it was ours for that time only */
	snprintf(ask.name, sizeof(ask.name), "a");
	ck_assert_int_eq(mrig_ask(&m, MAP_RESIZE, 0, &ask), 0);
	ck_assert_uint_eq(head_out().size, 30 * MIB);
	snprintf(ask.other, sizeof(ask.other), "a@1");
	ck_assert_int_eq(mrig_ask(&m, MAP_ROLLBACK, 0, &ask), 0);
	ck_assert_uint_eq(head_out().size, 10 * MIB);
	ask = ask_of("b", 0);
	snprintf(ask.other, sizeof(ask.other), "a");
	ck_assert_int_eq(mrig_ask(&m, MAP_RENAME, 0, &ask), 0);
	ck_assert_int_eq(mrig_info(&m, 0, "b", &info), 0);
	ck_assert_uint_eq(info.id, a);
	ck_assert_int_eq(mrig_info(&m, 0, "a", &info), -ENOENT);
	ck_assert_int_eq(mrig_info(&m, 0, "b@1", &info), 0); /* it went along */
	ck_assert_uint_eq(info.id, 1001);
	ck_assert_str_eq(info.name, "b@1");
	ask = ask_of("b", 0);
	ck_assert_int_eq(mrig_ask(&m, MAP_RENAME, 1001, &ask), -EXDEV);
	snap = ask_of("b@2", 1002);
	ck_assert_int_eq(mrig_ask(&m, MAP_SNAP, a, &snap), 0);
	ck_assert_int_eq(mrig_ask(&m, MAP_RENAME, 1001, &snap), -EEXIST);
	uint64_t c = make("c", 10 * MIB);
	snap = ask_of("b@3", 1003);
	ck_assert_int_eq(mrig_ask(&m, MAP_SNAP, c, &snap), -EINVAL); /* another's */
	snap = ask_of("c@2", 1003);
	ck_assert_int_eq(mrig_ask(&m, MAP_SNAP, c, &snap), 0);
	ck_assert_int_eq(mrig_ask(&m, MAP_RENAME, c, &snap), -EINVAL); /* a snapshot's */
	struct map_home home;
	ck_assert_int_eq(mrig_other_acquire(a, false, &home), 0); /* nobody has it */
	mrig_end(&m);
}

UNIT(protected_and_limited)
{
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 10 * MIB);
	ck_assert_int_eq(mrig_named(&m, MAP_FLAGS, "a", XSEG_VOLUME_PROTECTED), 0);
	ck_assert_int_eq(mrig_remove(&m, a), -EPERM);
	struct map_ask ask = {.limits = {.iops = 100, .bytes = 1 << 20, .burst_ms = 5}};
	ck_assert_int_eq(mrig_ask(&m, MAP_LIMITS, a, &ask), 0);
	ck_assert_int_eq(mrig_control(&m, MAP_FLAGS, a, 1, NULL, 0), -EINVAL);
	struct map_head_info head = acquire(a);
	ck_assert_uint_eq(head.limits.iops, 100);
	ck_assert_uint_eq(head.limits.bytes, 1 << 20);
	ck_assert_uint_eq(head.limits.burst_ms, 5);
	ck_assert_int_eq(
		mrig_control(&m, MAP_FLAGS, a, (uint64_t)XSEG_VOLUME_PROTECTED << 32, NULL, 0), 0);
	ck_assert_int_eq(mrig_control(&m, MAP_RELEASE, a, 0, NULL, 0), 0);
	ck_assert_int_eq(mrig_remove(&m, a), 0);
	mrig_end(&m);
}

/* Clusters 0 and 2 of object 3 of the clone are its own. */
static struct map_head_info make_partial(uint64_t *clone, struct map_head_info *parent)
{
	uint64_t a = make("a", 10 * MIB);
	*parent = acquire(a);
	ck_assert_int_eq(mrig_publish(&m, a, 3, parent->epoch), 0);
	ck_assert_int_eq(mrig_publish(&m, a, 7, parent->epoch), 0);
	struct map_ask ask = ask_of("c", 1003);
	ck_assert_int_eq(mrig_ask(&m, MAP_CLONE, a, &ask), 0);
	struct map_head_info head = acquire(*clone = 1003);
	struct map_update new = {.object = 3,
		.flags = MAP_PARTIAL,
		.epoch = head.epoch,
		.parent_epoch = parent->epoch,
		.parent_owner = a,
		.has = {5}};
	struct xseg_key key = {.volume = *clone, .epoch = head.epoch, .object = 3};
	uint8_t bytes[MAP_CLUSTER];
	memset(bytes, 99, sizeof(bytes));
	struct map_store *store = &mrig_lock()->store;
	store->write(store, key, 0, bytes, sizeof(bytes));
	store->write(store, key, 2 * MAP_CLUSTER, bytes, sizeof(bytes));
	mrig_unlock();
	ck_assert_int_eq(mrig_control(&m, MAP_PUBLISH, *clone, 1, &new, sizeof(new)), 0);
	return head;
}

static void fill_update(struct map_update *update, uint32_t object, uint32_t epoch, uint64_t owner,
	uint32_t parent_epoch, uint64_t has)
{
	*update = (struct map_update){.object = object,
		.flags = MAP_PARTIAL,
		.epoch = epoch,
		.parent_epoch = parent_epoch,
		.parent_owner = owner,
		.has = {has}};
}

/* However many objects change, their pages and bitmaps are read at once, and written at once. */
UNIT(many_partial_objects)
{
	enum { COUNT = 100, APART = 40, ASKED = 10 }; /* in eight pages of the map */
	static struct map_update news[COUNT];
	static struct map_object objects[ASKED];
	static struct map_bitmap_info infos[ASKED];
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", (uint64_t)COUNT * APART * MRIG_OBJECT), waits, c = 1003;
	struct map_head_info parent = acquire(a);
	for (uint32_t i = 0; i < COUNT; i++)
		ck_assert_int_eq(mrig_publish(&m, a, i * APART, parent.epoch), 0);
	struct map_ask ask = ask_of("c", c);
	ck_assert_int_eq(mrig_ask(&m, MAP_CLONE, a, &ask), 0);
	struct map_head_info head = acquire(c);
	for (unsigned round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < COUNT; i++)
			fill_update(&news[i], i * APART, head.epoch, a, parent.epoch, 1u << round);
		waits = mrig_counter(&m, MAPPER_WAITS);
		ck_assert_int_eq(mrig_control(&m, MAP_PUBLISH, c, COUNT, news, sizeof(news)), 0);
		ck_assert_uint_lt(mrig_counter(&m, MAPPER_WAITS) - waits, 15);
	}
	for (uint32_t i = 0; i < COUNT; i += ASKED) {
		for (uint32_t k = 0; k < ASKED; k++)
			objects[k] = (struct map_object){c, head.epoch, (i + k) * APART};
		waits = mrig_counter(&m, MAPPER_WAITS);
		ck_assert_int_eq(
			mrig_control(&m, MAP_BITMAP, c, ASKED, objects, sizeof(objects)), 0);
		ck_assert_uint_eq(mrig_counter(&m, MAPPER_WAITS) - waits, 1);
		memcpy(infos, m.out, sizeof(infos));
		for (uint32_t k = 0; k < ASKED; k++) {
			ck_assert_int_eq(infos[k].error, 0);
			ck_assert_uint_eq(infos[k].has[0], 7);
		}
	}
	mrig_end(&m);
}

UNIT(partial_objects_flattened)
{
	struct map_head_info parent;
	uint64_t c, word;
	mrig_begin(&m, 1, "");
	struct map_head_info head = make_partial(&c, &parent);
	struct map_object objects[2] = {{c, head.epoch, 3}, {c, head.epoch, 4}};
	struct map_bitmap_info infos[2];
	ck_assert_int_eq(mrig_control(&m, MAP_BITMAP, c, 2, objects, sizeof(objects)), 0);
	ck_assert_uint_eq(m.size, sizeof(infos));
	memcpy(infos, m.out, sizeof(infos));
	ck_assert_int_eq(infos[0].error, 0);
	ck_assert_uint_eq(infos[0].has[0], 5);
	ck_assert_uint_eq(infos[0].parent_owner, parent.id);
	ck_assert_uint_eq(infos[0].parent_epoch, parent.epoch);
	ck_assert_int_eq(infos[1].error, -ENOENT);
	ck_assert_int_eq(mrig_control(&m, MAP_BITMAP, c, MAP_BITMAP_MAX + 1, NULL, 0), -EINVAL);
	struct map_detail detail;
	ck_assert_int_eq(mrig_control(&m, MAP_DETAIL, c, 0, NULL, 0), 0);
	ck_assert_uint_eq(m.size, sizeof(detail));
	memcpy(&detail, m.out, sizeof(detail));
	ck_assert_uint_eq(detail.objects, 2);
	ck_assert_uint_eq(detail.own, 1);
	ck_assert_uint_eq(detail.shared, 1);
	ck_assert_uint_eq(detail.allocated, 2 * MAP_CLUSTER);
	ck_assert_str_eq(detail.parent_name, "a");
	ck_assert_uint_ne(detail.home.owner, 0);
	word = mrig_word(&m, c, 3);
	ck_assert_int_eq(mrig_control(&m, MAP_FLATTEN, c, MAP_FLATTEN_LOOK, NULL, 0), 0);
	ck_assert_uint_eq(m.value, 0); /* there is something to copy, and that is all */
	ck_assert_uint_eq(mrig_word(&m, c, 3), word);
	ck_assert_int_eq(mrig_control(&m, MAP_FLATTEN, c, MAP_FLATTEN_LOOK + 1, NULL, 0), -EINVAL);
	ck_assert_int_eq(mrig_control(&m, MAP_FLATTEN, c, 0, NULL, 0), 0);
	ck_assert_uint_eq(m.value, UINT64_MAX);
	ck_assert_uint_eq(mrig_word(&m, c, 3), map_word(head.epoch, head.self, 0));
	word = mrig_word(&m, c, 7);
	ck_assert_uint_eq(map_word_owner(word), head.self);
	ck_assert_int_eq(mrig_byte(c, head.epoch, 3, 0), 99);
	ck_assert_int_eq(mrig_byte(c, head.epoch, 3, MAP_CLUSTER), 4);
	ck_assert_int_eq(mrig_byte(c, head.epoch, 3, 2 * MAP_CLUSTER), 99);
	ck_assert_int_eq(mrig_byte(c, head.epoch, 3, MRIG_OBJECT - XSEG_SECTOR), 4);
	ck_assert_int_eq(mrig_byte(c, map_word_epoch(word), 7, MRIG_OBJECT - XSEG_SECTOR), 8);
	ck_assert_int_eq(mrig_control(&m, MAP_DETAIL, c, 0, NULL, 0), 0);
	memcpy(&detail, m.out, sizeof(detail));
	ck_assert_uint_eq(detail.parent, 0);
	ck_assert_int_eq(mrig_control(&m, MAP_FLATTEN, c, MAP_FLATTEN_LOOK, NULL, 0), 0);
	ck_assert_uint_eq(m.value, UINT64_MAX);
	ck_assert_int_eq(mrig_control(&m, MAP_FLATTEN, c, 0, NULL, 0), 0); /* said again */
	ck_assert_uint_eq(m.value, UINT64_MAX);
	mrig_end(&m);
}

/* Of an owner, epoch or object that cannot be: the store is not asked for what lies there. */
UNIT(bitmaps_of_nothing)
{
	const struct map_object objects[] = {{0, 1, 1}, {7, 0, 1}, {7, MAP_EPOCH_MAX + 1, 1},
		{7, XSEG_EPOCH_NAME - MAP_EPOCH_MAP, 0}, {7, 1, MAP_OBJECTS_MAX}};
	struct map_bitmap_info infos[countof(objects)];
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", MIB);
	ck_assert_int_eq(
		mrig_control(&m, MAP_BITMAP, a, countof(objects), objects, sizeof(objects)), 0);
	ck_assert_uint_eq(m.size, sizeof(infos));
	memcpy(infos, m.out, sizeof(infos));
	for (unsigned i = 0; i < countof(objects); i++)
		ck_assert_int_eq(infos[i].error, -EINVAL);
	mrig_end(&m);
}

/* More objects than one request flattens. */
UNIT(flattened_some_at_a_time)
{
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 10 * MIB), next = 0;
	struct map_head_info head = acquire(a);
	for (uint32_t i = 0; i < 40; i++)
		ck_assert_int_eq(mrig_publish(&m, a, i, head.epoch), 0);
	struct map_ask ask = ask_of("c", 1003);
	ck_assert_int_eq(mrig_ask(&m, MAP_CLONE, a, &ask), 0);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_uint_ne(next, UINT64_MAX);
		ck_assert_int_eq(mrig_control(&m, MAP_FLATTEN, 1003, next, NULL, 0), 0);
		ck_assert_uint_ne(m.value, next);
		next = m.value;
	}
	ck_assert_uint_eq(next, UINT64_MAX);
	for (uint32_t i = 0; i < 40; i++) {
		uint64_t word = mrig_word(&m, 1003, i);
		ck_assert_int_eq(mrig_byte(1003, map_word_epoch(word), i, 0), (uint8_t)(i + 1));
	}
	ck_assert_uint_eq(mrig_counter(&m, MAPPER_FLATTENED), 40);
	mrig_end(&m);
}

UNIT(differences_by_cluster)
{
	struct map_head_info parent;
	struct map_stretch stretches[4];
	uint64_t c;
	mrig_begin(&m, 1, "");
	struct map_head_info head = make_partial(&c, &parent);
	ck_assert_int_eq(mrig_publish(&m, c, 9, head.epoch), 0);
	struct map_update hole = {.object = 7, .flags = MAP_UPDATE_HOLE, .epoch = head.epoch};
	ck_assert_int_eq(mrig_control(&m, MAP_PUBLISH, c, 1, &hole, sizeof(hole)), 0);
	struct map_ask ask = {.id = parent.id};
	ck_assert_int_eq(mrig_ask(&m, MAP_DIFF, c, &ask), 0);
	ck_assert_uint_eq(m.size, sizeof(stretches));
	ck_assert_uint_eq(m.value, UINT64_MAX);
	memcpy(stretches, m.out, sizeof(stretches));
	uint64_t third = 3 * MRIG_OBJECT;
	ck_assert_uint_eq(stretches[0].offset, third);
	ck_assert_uint_eq(stretches[0].length, MAP_CLUSTER);
	ck_assert_uint_eq(stretches[1].offset, third + 2 * MAP_CLUSTER);
	ck_assert_uint_eq(stretches[1].length, MAP_CLUSTER);
	ck_assert_uint_eq(stretches[2].offset, 7 * MRIG_OBJECT);
	ck_assert_uint_eq(stretches[2].length, MRIG_OBJECT);
	ck_assert_uint_eq(stretches[2].flags, XSEG_STATUS_ZERO);
	ck_assert_uint_eq(stretches[3].offset, 9 * MRIG_OBJECT);
	ck_assert_uint_eq(stretches[3].flags, 0);
	uint64_t b = make("other", 10 * MIB);
	ck_assert_int_eq(mrig_ask(&m, MAP_DIFF, b, &ask), -EXDEV);
	mrig_end(&m);
}

/* What lies behind the new end must not come back when the volume grows. */
UNIT(cut_in_the_middle_of_an_object)
{
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 10 * MIB);
	struct map_head_info head = acquire(a);
	ck_assert_int_eq(mrig_publish(&m, a, 3, head.epoch), 0);
	struct map_ask snap = ask_of("a@1", 1001), ask = {.size = 3 * MRIG_OBJECT + 1024};
	ck_assert_int_eq(mrig_ask(&m, MAP_SNAP, a, &snap), 0);
	ck_assert_int_eq(mrig_ask(&m, MAP_RESIZE, a, &ask), 0);
	uint64_t word = mrig_word(&m, a, 3);
	ck_assert_uint_gt(map_word_epoch(word), head.epoch); /* the snapshot's is left as it is */
	ck_assert_int_eq(mrig_byte(a, map_word_epoch(word), 3, 512), 4);
	ck_assert_int_eq(mrig_byte(a, map_word_epoch(word), 3, 1024), 0);
	ck_assert_int_eq(mrig_byte(a, map_word_epoch(word), 3, MAP_CLUSTER), 0);
	ck_assert_int_eq(mrig_byte(a, head.epoch, 3, 1024), 4);
	ask.size = 3 * MRIG_OBJECT + 512; /* now it is its own: in place */
	ck_assert_int_eq(mrig_ask(&m, MAP_RESIZE, a, &ask), 0);
	ck_assert_uint_eq(mrig_word(&m, a, 3), word);
	ck_assert_int_eq(mrig_byte(a, map_word_epoch(word), 3, 0), 4);
	ck_assert_int_eq(mrig_byte(a, map_word_epoch(word), 3, 512), 0);
	mrig_end(&m);
}

/* --- questions that make no sense ----------------------------------------------------------- */

UNIT(nonsense_refused)
{
	struct map_ask ask = {0};
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 10 * MIB);
	ck_assert_int_eq(mrig_control(&m, MAP_CONTROLS, a, 0, NULL, 0), -EOPNOTSUPP);
	ck_assert_int_eq(mrig_control(&m, MAP_PAGE, a, 1000000, NULL, 0), -EINVAL);
	ck_assert_int_eq(mrig_control(&m, MAP_PAGE, a, UINT64_MAX, NULL, 0), -EINVAL);
	ck_assert_int_eq(mrig_control(&m, MAP_PAGE, 77, 0, NULL, 0), -ENOENT);
	ck_assert_int_eq(mrig_control(&m, MAP_PUBLISH, a, UINT64_MAX, NULL, 0), -EINVAL);
	ck_assert_int_eq(mrig_control(&m, MAP_PUBLISH, a, 0, NULL, 0), -EINVAL);
	ck_assert_int_eq(mrig_control(&m, MAP_RELEASE, 0, 0, NULL, 0), -EINVAL);
	ck_assert_int_eq(mrig_ask(&m, MAP_SNAP, a, &ask), -EINVAL);	/* no name */
	ck_assert_int_eq(mrig_ask(&m, MAP_RESIZE, 0, &ask), -EINVAL);	/* of which? */
	ck_assert_int_eq(mrig_ask(&m, MAP_ROLLBACK, a, &ask), -EINVAL); /* to which? */
	ask.size = 1000;						/* no sectors */
	ck_assert_int_eq(mrig_ask(&m, MAP_RESIZE, a, &ask), -EINVAL);
	ck_assert_int_eq(mrig_ask(&m, MAP_SWEEP, 0, &ask), -EINVAL);
	ck_assert_int_eq(mrig_control(&m, MAP_FLATTEN, a, UINT64_MAX, NULL, 0), -EINVAL);
	memset(ask.name, 0, sizeof(ask.name));
	memset(ask.name, 'x', VOLUME_PART_MAX);
	ck_assert_int_eq(mrig_ask(&m, MAP_RESIZE, 0, &ask), -ENOENT);
	struct map_head_info head = acquire(a);
	struct map_update twice[2] = {
		{.object = 1, .epoch = head.epoch}, {.object = 1, .epoch = head.epoch}};
	ck_assert_int_eq(mrig_control(&m, MAP_PUBLISH, a, 2, twice, sizeof(twice)), -EINVAL);
	twice[1].object = 100000;
	ck_assert_int_eq(mrig_control(&m, MAP_PUBLISH, a, 2, twice, sizeof(twice)), -EINVAL);
	ck_assert_uint_eq(mrig_word(&m, a, 1), 0);
	mrig_end(&m);
}

/* Both orders of deltas, and a whole request full of them. */
UNIT(much_news_at_once)
{
	enum { COUNT = 2000 };
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 1024 * MIB);
	struct map_head_info head = acquire(a);
	struct map_update *deltas = calloc(COUNT, sizeof(*deltas));
	must(deltas);
	for (uint32_t i = 0; i < COUNT; i++)
		deltas[i] = (struct map_update){.object = (COUNT - i) * 3, .epoch = head.epoch};
	ck_assert_int_eq(
		mrig_control(&m, MAP_PUBLISH, a, COUNT, deltas, COUNT * sizeof(*deltas)), 0);
	free(deltas);
	for (uint32_t i = 0; i < 3 * COUNT; i += 512)
		ck_assert_uint_eq(mrig_word(&m, a, i) != 0, i > 0 && i % 3 == 0);
	ck_assert_uint_eq(mrig_counter(&m, MAPPER_PUBLISHED), COUNT);
	mrig_end(&m);
}

static struct map_sweep_state sweep_state(void)
{
	struct map_sweep_state state;
	ck_assert_int_eq(mrig_control(&m, MAP_SWEEP_STATE, 0, 0, NULL, 0), 0);
	ck_assert_uint_ge(m.size, sizeof(state));
	memcpy(&state, m.out, sizeof(state));
	return state;
}

static int sweep(uint64_t flags, uint64_t rate)
{
	struct map_ask ask = {.size = rate};
	return mrig_control(&m, MAP_SWEEP, 0, flags, &ask, sizeof(ask));
}

/* A look into a map costs one read, deltas no GET. */
UNIT(little_is_asked_of_the_store)
{
	mrig_begin(&m, 1, "");
	/* what the mapper looks at when it begins it has looked at before it sweeps */
	ck_assert_int_eq(sweep(MAP_SWEEP_START, 0), 0);
	RIG_UNTIL(!sweep_state().running);
	uint64_t a = make("a", 1024 * MIB);
	struct map_head_info head = acquire(a);
	ck_assert_int_eq(mrig_publish(&m, a, 3, head.epoch), 0);
	struct map_memory *memory = mrig_lock();
	memset(memory->count, 0, sizeof(memory->count));
	mrig_unlock();
	for (unsigned i = 0; i < 10; i++)
		mrig_word(&m, a, 3);
	memory = mrig_lock();
	ck_assert_uint_eq(memory->count[MAP_MEMORY_READ], 10);
	ck_assert_uint_eq(memory->count[MAP_MEMORY_GET], 0);
	memset(memory->count, 0, sizeof(memory->count));
	mrig_unlock();
	for (unsigned i = 0; i < 10; i++) {
		struct map_update new = {.object = 512 + i, .epoch = head.epoch};
		ck_assert_int_eq(mrig_control(&m, MAP_PUBLISH, a, 1, &new, sizeof(new)), 0);
	}
	memory = mrig_lock();
	ck_assert_uint_eq(memory->count[MAP_MEMORY_GET], 0);
	ck_assert_uint_eq(memory->count[MAP_MEMORY_PUT], 10);
	mrig_unlock();
	mrig_end(&m);
}

UNIT(many_are_listed_in_pieces)
{
	char names[8192], name[16];
	mrig_begin(&m, 2, "");
	for (unsigned i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "v%u", i);
		make(name, MIB);
	}
	for (unsigned room = 1; room <= 1000; room *= 10)
		ck_assert_uint_eq(mrig_list(&m, room, names, sizeof(names)), 200);
	for (unsigned i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "v%u", i);
		ck_assert_ptr_nonnull(strstr(names, name));
	}
	mrig_end(&m);
}

/* --- sweeping ------------------------------------------------------------------------------- */

UNIT(swept_while_asked_for_other_things)
{
	char name[16];
	mrig_begin(&m, 1, "");
	for (unsigned i = 0; i < 50; i++) {
		snprintf(name, sizeof(name), "v%u", i);
		make(name, MIB);
	}
	uint64_t a = make("a", 10 * MIB);
	struct map_head_info head = acquire(a);
	ck_assert_int_eq(mrig_publish(&m, a, 3, head.epoch), 0);
	struct map_update hole = {.object = 3, .flags = MAP_UPDATE_HOLE, .epoch = head.epoch};
	ck_assert_int_eq(mrig_control(&m, MAP_PUBLISH, a, 1, &hole, sizeof(hole)), 0);
	head = acquire(a); /* the epoch is over: what it left may go */
	ck_assert_int_eq(mrig_control(&m, MAP_RELEASE, a, 0, NULL, 0), 0);
	ck_assert_uint_eq(sweep_state().running, 0);
	ck_assert_int_eq(sweep(MAP_SWEEP_START | MAP_SWEEP_REPAIR, 1), 0); /* for a minute */
	ck_assert_int_eq(sweep(MAP_SWEEP_START | MAP_SWEEP_EXPLAIN, 0), -EBUSY);
	mrig_word(&m, a, 3);
	ck_assert_uint_eq(sweep_state().running, 1);
	ck_assert_int_eq(sweep(MAP_SWEEP_START | MAP_SWEEP_REPAIR, 0), 0); /* the same, faster */
	RIG_UNTIL(!sweep_state().running);
	struct map_sweep_state state = sweep_state();
	ck_assert_int_eq(state.error, 0);
	ck_assert_uint_ge(state.deleted, 1);
	struct xseg_key gone = {.volume = a, .epoch = 2, .object = 3};
	ck_assert(!map_memory_exists(mrig_lock(), gone));
	mrig_unlock();
	mrig_end(&m);
}

/* Its map moves on under who looks at it, and nothing is wrong with it. */
UNIT(checked_while_written)
{
	mrig_begin(&m, 1, "");
	uint64_t a = make("a", 100ull * 512 * MRIG_OBJECT);
	struct map_head_info head = acquire(a);
	for (unsigned page = 0; page < 100; page++)
		ck_assert_int_eq(mrig_publish(&m, a, page * 512, head.epoch), 0);
	for (unsigned round = 0; round < 10; round++) {
		ck_assert_int_eq(sweep(MAP_SWEEP_START | MAP_SWEEP_EXPLAIN, 10000), 0);
		for (unsigned i = 1; i == 1 || sweep_state().running; i++)
			ck_assert_int_eq(mrig_publish(&m, a, 99 * 512 + i % 500, head.epoch), 0);
		ck_assert_int_eq(sweep_state().error, 0);
		ck_assert_uint_eq(sweep_state().findings, 0);
	}
	mrig_end(&m);
}

UNIT(a_sweep_is_ended)
{
	char name[16];
	mrig_begin(&m, 1, "");
	for (unsigned i = 0; i < 50; i++) {
		snprintf(name, sizeof(name), "v%u", i);
		make(name, MIB);
	}
	ck_assert_int_eq(sweep(MAP_SWEEP_START, 1), 0); /* for minutes */
	ck_assert_uint_eq(sweep_state().running, 1);
	ck_assert_int_eq(sweep(MAP_SWEEP_STOP, 0), 0);
	RIG_UNTIL(!sweep_state().running);
	ck_assert_int_eq(sweep_state().error, -ECANCELED);
	ck_assert_int_eq(sweep(MAP_SWEEP_STOP, 0), 0);
	ck_assert_int_eq(sweep(MAP_SWEEP_START, 10), 0);
	mrig_end(&m); /* a stop of the peer ends it, too */
}
