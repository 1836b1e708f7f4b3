/* SPDX-License-Identifier: Apache-2.0 */
/* What has two halves: the record of a volume, and bitmaps of partial objects. */
#include <errno.h>
#include <string.h>

#include "tests/unit/map_tree_rig.h"

static void forget_counts(void) { map_memory_heal(memory); }

/* --- heads -------------------------------------------------------------------------------- */

UNIT_WITHIN(test_head_halves, setup, teardown)
{
	struct map_head head = make(ID, 10), read;
	bool damaged = true;
	ck_assert_uint_eq(head.volume.generation, 1);
	for (unsigned i = 2; i < 9; i++) {
		head.volume.parent = i;
		ck_assert_int_eq(map_head_put(store, &head), 0);
		ck_assert_uint_eq(head.volume.generation, i);
		ck_assert_uint_eq(head.version[i % 2], i % 2 + i / 2);
		ck_assert_int_eq(map_head_read(store, ID, &read, &damaged), 0);
		ck_assert(!damaged);
		ck_assert_uint_eq(read.volume.parent, i);
		ck_assert_mem_eq(read.version, head.version, sizeof(head.version));
	}
	ck_assert_int_eq(map_head_read(store, ID + 1, &read, &damaged), -ENOENT);
	ck_assert(!damaged);
}

UNIT_WITHIN(test_head_stale, setup, teardown)
{
	struct map_head a = make(ID, 10), b = a, first = {.volume = a.volume};
	ck_assert_int_eq(map_head_put(store, &a), 0);
	ck_assert(map_head_is_current(&b));
	ck_assert_int_eq(map_head_put(store, &b), -ESTALE);
	ck_assert(!map_head_is_current(&b));
	ck_assert_uint_eq(b.volume.generation, 1);
	/* not even when what it expects is there again */
	struct map_change change = {1, {.epoch = 1}};
	forget_counts();
	ck_assert_int_eq(map_head_put(store, &b), -ESTALE);
	ck_assert_int_eq(map_tree_update(store, &b, &change, 1), -ESTALE);
	ck_assert_int_eq(map_tree_resize(store, &b, OBJECTS(1)), -ESTALE);
	ck_assert_uint_eq(memory->mutations, 0);
	/* two make the same volume */
	first.volume.generation = 0;
	ck_assert_int_eq(map_head_put(store, &first), -ESTALE);
	/* two generations behind is not fresh again */
	ck_assert_int_eq(map_head_read(store, ID, &b, NULL), 0);
	ck_assert_int_eq(map_head_put(store, &a), 0);
	ck_assert_int_eq(map_head_put(store, &a), 0);
	ck_assert_int_eq(map_head_put(store, &b), -ESTALE);
}

UNIT_WITHIN(test_head_invalid, setup, teardown)
{
	struct map_head head = make(ID, 10);
	head.volume.frozen = head.volume.epoch;
	forget_counts();
	ck_assert_int_eq(map_head_put(store, &head), -EINVAL);
	ck_assert_uint_eq(memory->mutations, 0);
	ck_assert(map_head_is_current(&head));
	head.volume.frozen = 0;
	ck_assert_int_eq(map_head_put(store, &head), 0);
}

UNIT_WITHIN(test_head_damaged, setup, teardown)
{
	struct map_head head = make(ID, 10), read;
	bool damaged;
	head.volume.parent = 5;
	ck_assert_int_eq(map_head_put(store, &head), 0); /* generation 2, half 0 */
	map_memory_corrupt(memory, map_volume_key(ID, 0), 100, 1);
	ck_assert_int_eq(map_head_read(store, ID, &read, &damaged), 0);
	ck_assert(damaged);
	ck_assert_uint_eq(read.volume.generation, 1);
	ck_assert_uint_eq(read.volume.parent, 0);
	/* what is put next goes over the damaged one */
	ck_assert_int_eq(map_head_put(store, &read), 0);
	ck_assert_int_eq(map_head_read(store, ID, &read, &damaged), 0);
	ck_assert(!damaged);
	ck_assert_uint_eq(read.volume.generation, 2);
	map_memory_corrupt(memory, map_volume_key(ID, 0), 100, 1);
	map_memory_corrupt(memory, map_volume_key(ID, 1), 4095, 0x80);
	ck_assert_int_eq(map_head_read(store, ID, &read, &damaged), -EILSEQ);
	ck_assert(damaged);
}

/* A record that is whole, but another's, or of the other half. */
UNIT_WITHIN(test_head_elsewhere, setup, teardown)
{
	struct map_head head = make(ID, 10), read;
	uint8_t bytes[MAP_RECORD_SIZE];
	uint64_t version = 0;
	bool damaged;
	map_format_volume_encode(&head.volume, bytes);
	store->put(store, map_volume_key(ID + 1, 1), bytes, sizeof(bytes), &version);
	ck_assert_int_eq(map_head_read(store, ID + 1, &read, &damaged), -EILSEQ);
	head.volume.generation = 3;
	map_format_volume_encode(&head.volume, bytes);
	version = 0;
	store->put(store, map_volume_key(ID, 0), bytes, sizeof(bytes), &version);
	ck_assert_int_eq(map_head_read(store, ID, &read, &damaged), 0);
	ck_assert(damaged);
	ck_assert_uint_eq(read.volume.generation, 1);
}

/* One of a newer program: the older half may be long untrue. */
UNIT_WITHIN(test_head_version, setup, teardown)
{
	uint8_t other[20] = "SKVOLUME\x03\0\0\0\0\0\0\0\x00\x00\x00\x00";
	struct map_head read;
	uint64_t version = 0;
	make(ID, 10);
	/* CRC-32C of the 16 bytes, by hand */
	memcpy(other + 16, "\xd7\x86\x5d\x9e", 4);
	store->put(store, map_volume_key(ID, 0), other, sizeof(other), &version);
	ck_assert_int_eq(map_head_read(store, ID, &read, NULL), -EPROTO);
	forget_counts();
	ck_assert_int_eq(map_head_drop(store, ID), -EPROTO);
	ck_assert_uint_eq(memory->mutations, 0);
}

static int dropped[2];
static int note_drop(struct map_memory *of, enum map_memory_kind kind, struct xseg_key key)
{
	(void)of;
	if (kind == MAP_MEMORY_DROP)
		dropped[dropped[0] != -1] = (int)key.object;
	return 0;
}

UNIT_WITHIN(test_head_drop, setup, teardown)
{
	struct map_head read;
	for (unsigned generation = 1; generation < 4; generation++) {
		struct map_head head = make(ID, 10);
		while (head.volume.generation < generation)
			ck_assert_int_eq(map_head_put(store, &head), 0);
		dropped[0] = dropped[1] = -1;
		memory->before = note_drop;
		ck_assert_int_eq(map_head_drop(store, ID), 0);
		forget_counts();
		/* the younger last */
		ck_assert_int_eq(dropped[generation > 1], generation % 2);
		ck_assert_int_eq(map_head_read(store, ID, &read, NULL), -ENOENT);
		ck_assert_int_eq(map_head_drop(store, ID), 0);
	}
}

/* Somebody else drops it, too, and is faster with one half. */
static int drop_first(struct map_memory *of, enum map_memory_kind kind, struct xseg_key key)
{
	if (kind != MAP_MEMORY_DROP)
		return 0;
	of->before = NULL;
	uint64_t version = 1;
	ck_assert_int_eq(store->drop(store, key, &version), 0);
	return 0;
}

UNIT_WITHIN(test_head_drop_race, setup, teardown)
{
	struct map_head head = make(ID, 10), read;
	ck_assert_int_eq(map_head_put(store, &head), 0);
	memory->before = drop_first;
	ck_assert_int_eq(map_head_drop(store, ID), 0);
	ck_assert_int_eq(map_head_read(store, ID, &read, NULL), -ENOENT);
	/* but what was put meanwhile is not dropped unseen */
	head = make(ID, 10);
	memory->fail_at = memory->mutations + 1;
	memory->fail_error = -ESTALE;
	ck_assert_int_eq(map_head_drop(store, ID), -ESTALE);
	ck_assert_int_eq(map_head_read(store, ID, &read, NULL), 0);
}

/* --- bitmaps ---------------------------------------------------------------------------- */

static struct map_bitmap sample_bitmap(uint32_t object)
{
	return (struct map_bitmap){.owner = ID,
		.epoch = 3,
		.object = object,
		.parent_owner = 5,
		.parent_epoch = 2,
		.has = {1}};
}

static int read_bitmap(uint32_t object, struct map_bitmap *bitmap)
{
	return map_bitmap_read(store, ID, 3, object, bitmap);
}

UNIT_WITHIN(test_bitmap, setup, teardown)
{
	struct map_bitmap bitmap, read;
	ck_assert_int_eq(read_bitmap(128, &read), -ENOENT);
	for (uint32_t object = 127; object < 130; object++) {
		bitmap = sample_bitmap(object);
		for (unsigned i = 1; i < 5; i++) {
			bitmap.has[0] |= 1u << i;
			forget_counts();
			ck_assert_int_eq(map_bitmap_write(store, &bitmap), 0);
			ck_assert_uint_eq(memory->mutations, 1);
			ck_assert_int_eq(read_bitmap(object, &read), 0);
			ck_assert_uint_eq(read.sequence, i);
			ck_assert_uint_eq(read.has[0], bitmap.has[0]);
			ck_assert_uint_eq(memory->count[MAP_MEMORY_READ], 1);
		}
	}
	ck_assert_uint_eq(map_memory_objects(memory, ID), 2);
	ck_assert_int_eq(map_bitmap_read(store, ID, 4, 128, &read), -ENOENT);
	/* the younger half is damaged: the other; both: an error, of this object alone */
	struct xseg_key key = map_bitmap_key(ID, 3, 128);
	map_memory_corrupt(memory, key, map_bitmap_offset(128, 0) + 50, 1);
	ck_assert_int_eq(read_bitmap(128, &read), 0);
	ck_assert_uint_eq(read.sequence, 3);
	map_memory_corrupt(memory, key, map_bitmap_offset(128, 1) + 50, 1);
	ck_assert_int_eq(read_bitmap(128, &read), -EILSEQ);
	ck_assert_int_eq(read_bitmap(129, &read), 0);
}

/* Cut off, or the power lost, in the middle of a writing: the one or the other. */
UNIT_WITHIN(test_bitmap_cut, setup, teardown)
{
	struct map_bitmap bitmap = sample_bitmap(5), read;
	for (unsigned i = 1; i < 60; i++) {
		bitmap.has[0] = i;
		ck_assert_int_eq(map_bitmap_write(store, &bitmap), 0);
		map_memory_lose(memory, i);
		int rc = read_bitmap(5, &read);
		ck_assert(rc == 0 || (i == 1 && rc == -ENOENT));
		if (rc == 0)
			ck_assert(read.has[0] == i || read.has[0] == i - 1);
		bitmap.sequence = rc == 0 ? read.sequence : 0;
		bitmap.has[0] = i;
		forget_counts();
		memory->fail_at = 1;
		uint64_t sequence = bitmap.sequence;
		ck_assert_int_eq(map_bitmap_write(store, &bitmap), -EIO);
		ck_assert_uint_eq(bitmap.sequence, sequence);
		ck_assert_int_eq(map_bitmap_write(store, &bitmap), 0);
		ck_assert_int_eq(store->flush(store, ID), 0);
	}
}

/* One that is whole, but of another object. */
UNIT_WITHIN(test_bitmap_elsewhere, setup, teardown)
{
	struct map_bitmap bitmap = sample_bitmap(5), read;
	uint8_t bytes[MAP_BITMAP_SIZE];
	bitmap.sequence = 2;
	map_format_bitmap_encode(&bitmap, bytes);
	struct xseg_key key = map_bitmap_key(ID, 3, 0);
	store->write(store, key, map_bitmap_offset(6, 0), bytes, sizeof(bytes));
	ck_assert_int_eq(read_bitmap(6, &read), -EILSEQ);
	store->write(store, key, map_bitmap_offset(5, 1), bytes, sizeof(bytes));
	ck_assert_int_eq(read_bitmap(5, &read), -EILSEQ);
	store->write(store, key, map_bitmap_offset(5, 0), bytes, sizeof(bytes));
	ck_assert_int_eq(read_bitmap(5, &read), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct map_bitmap other = bitmap;
		other.owner += i;
		other.epoch += !i;
		map_format_bitmap_encode(&other, bytes);
		store->write(store, key, map_bitmap_offset(5, 0), bytes, sizeof(bytes));
		ck_assert_int_eq(read_bitmap(5, &read), -EILSEQ);
	}
}
