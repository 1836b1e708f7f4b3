/* SPDX-License-Identifier: Apache-2.0 */
/* What every blocker that stores objects keeps to, one law at a time. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/blocker_rig.h"

#define SECTOR XSEG_SECTOR
#define PAGE XSEG_PAGE
#define MAX XSEG_OBJECT_MAX

static const struct span spans[] = {
	{0, SECTOR},
	{0, PAGE},
	{SECTOR, SECTOR},
	{7 * SECTOR, 2 * SECTOR},
	{3 * PAGE - SECTOR, PAGE + 2 * SECTOR},
	{64 * 1024, 64 * 1024},
	{1024 * 1024 + SECTOR, 1024 * 1024},
	{MAX - PAGE, PAGE},
	{MAX - SECTOR, SECTOR},
	{0, MAX},
};

/* The span holds the pattern of this seed; and what is around it (a page each side) zeros. */
static void expect_pattern(struct rig *rig, struct xseg_key key, struct span span, uint64_t seed)
{
	memset(rig->in, 0xee, span.length);
	expect_int(rig, rig_read(rig, key, span, rig->in), 0);
	expect_int(rig, pattern_check(rig->in, key, span, seed), -1);
}

static void expect_zeros(struct rig *rig, struct xseg_key key, struct span span)
{
	if (span.length == 0)
		return;
	memset(rig->in, 0xee, span.length);
	expect_int(rig, rig_read(rig, key, span, rig->in), 0);
	expect_int(rig, zeros_check(rig->in, span.length), -1);
}

static void expect_zeros_around(struct rig *rig, struct xseg_key key, struct span span)
{
	uint32_t before = span.offset < PAGE ? (uint32_t)span.offset : PAGE;
	uint64_t end = span.offset + span.length;
	uint32_t behind = MAX - end < PAGE ? (uint32_t)(MAX - end) : PAGE;
	expect_zeros(rig, key, (struct span){span.offset - before, before});
	expect_zeros(rig, key, (struct span){end, behind});
}

static void put_pattern(struct rig *rig, struct xseg_key key, struct span span, uint64_t seed)
{
	pattern_fill(rig->out, key, span, seed);
	expect_int(rig, rig_write(rig, key, span, rig->out, 0), 0);
}

static void delete_object(struct rig *rig, struct xseg_key key)
{
	expect_int(rig, rig_do(rig, XSEG_OP_DELETE, key, (struct span){0, 0}, 0), 0);
}

static void law_absent(struct rig *rig)
{
	struct xseg_object_info info;
	for (size_t i = 0; i < countof(spans); i++)
		expect_zeros(rig, rig_key(rig, 0, 77), spans[i]);
	expect_int(rig, rig_info(rig, rig_key(rig, 0, 77), &info), -ENOENT);
	delete_object(rig, rig_key(rig, 0, 77));
	struct xseg_status_extent extent[4];
	struct span all = {0, MAX};
	expect_int(rig, rig_status(rig, rig_key(rig, 0, 77), all, extent, 4), 1);
	expect_int(rig, extent[0].length, MAX);
	expect_int(rig, extent[0].flags, XSEG_STATUS_HOLE | XSEG_STATUS_ZERO);
}

static void law_read_back(struct rig *rig)
{
	for (uint32_t i = 0; i < countof(spans); i++) {
		struct xseg_key key = rig_key(rig, 1, i);
		put_pattern(rig, key, spans[i], 1);
		expect_pattern(rig, key, spans[i], 1);
		expect_zeros_around(rig, key, spans[i]);
		put_pattern(rig, key, spans[i], 2);
		expect_pattern(rig, key, spans[i], 2);
		expect_zeros_around(rig, key, spans[i]);
	}
}

/* A sector in the middle changes; its neighbours in the page do not. */
static void law_partial(struct rig *rig)
{
	struct xseg_key key = rig_key(rig, 2, 0);
	struct span all = {0, 64 * 1024};
	put_pattern(rig, key, all, 1);
	for (uint32_t at = 0; at + 5 * SECTOR <= all.length; at += 5 * SECTOR) {
		put_pattern(rig, key, (struct span){at, SECTOR}, 2);
		expect_pattern(rig, key, (struct span){at, SECTOR}, 2);
		expect_pattern(rig, key, (struct span){at + SECTOR, 4 * SECTOR}, 1);
	}
}

static void law_independent(struct rig *rig)
{
	struct span span = {PAGE, 2 * PAGE};
	struct xseg_key keys[4] = {
		rig_key(rig, 3, 5), rig_key(rig, 3, 6), rig_key(rig, 4, 5), rig_key(rig, 3, 5)};
	keys[3].epoch = 9;
	for (size_t i = 0; i < countof(keys); i++)
		put_pattern(rig, keys[i], span, i);
	for (size_t i = 0; i < countof(keys); i++)
		expect_pattern(rig, keys[i], span, i);
	delete_object(rig, keys[0]);
	expect_zeros(rig, keys[0], span);
	for (size_t i = 1; i < countof(keys); i++)
		expect_pattern(rig, keys[i], span, i);
}

static void check_zeroed(struct rig *rig, struct xseg_key key, enum xseg_op op, unsigned flags)
{
	struct span all = {0, 256 * 1024};
	static const struct span holes[] = {{SECTOR, SECTOR}, {2 * PAGE, PAGE},
		{5 * PAGE - SECTOR, 2 * SECTOR}, {8 * PAGE + SECTOR, 7 * PAGE},
		{40 * PAGE, 24 * PAGE}};
	put_pattern(rig, key, all, 3);
	for (size_t i = 0; i < countof(holes); i++) {
		struct span hole = holes[i];
		int error = rig_do(rig, op, key, hole, flags);
		if (error == -EOPNOTSUPP && (flags & XSEG_F_FAST_ONLY)) {
			expect_pattern(rig, key, hole, 3);
			continue;
		}
		expect_int(rig, error, 0);
		expect_zeros(rig, key, hole);
		uint64_t end = hole.offset + hole.length;
		expect_pattern(rig, key, (struct span){hole.offset - SECTOR, SECTOR}, 3);
		if (end < all.length)
			expect_pattern(rig, key, (struct span){end, SECTOR}, 3);
	}
}

static void law_zero(struct rig *rig)
{
	check_zeroed(rig, rig_key(rig, 5, 0), XSEG_OP_ZERO, 0);
	check_zeroed(rig, rig_key(rig, 5, 1), XSEG_OP_ZERO, XSEG_F_NO_HOLE);
	check_zeroed(rig, rig_key(rig, 5, 2), XSEG_OP_ZERO, XSEG_F_FAST_ONLY);
	check_zeroed(rig, rig_key(rig, 5, 3), XSEG_OP_ZERO, XSEG_F_FAST_ONLY | XSEG_F_NO_HOLE);
	check_zeroed(rig, rig_key(rig, 5, 4), XSEG_OP_ZERO, XSEG_F_FUA);
	check_zeroed(rig, rig_key(rig, 5, 5), XSEG_OP_DISCARD, 0);
	check_zeroed(rig, rig_key(rig, 5, 6), XSEG_OP_DISCARD, XSEG_F_FUA);
}

/* A store that cannot tell says so each time, and does not make anything up. */
static void expect_space_unknown(struct rig *rig, struct xseg_key key)
{
	struct xseg_object_info info;
	expect_int(rig, rig_info(rig, key, &info), 0);
	expect_true(rig, !rig->space_known);
	expect_int(rig, info.allocated, info.size);
}

/* Space: given back by discard, kept by NO_HOLE, taken by NO_HOLE where there was nothing. */
static void law_space(struct rig *rig)
{
	struct xseg_key key = rig_key(rig, 6, 0);
	struct span all = {0, 1024 * 1024}, half = {0, 512 * 1024};
	struct xseg_object_info full, kept, less, made;
	put_pattern(rig, key, all, 1);
	expect_int(rig, rig_do(rig, XSEG_OP_FLUSH, key, (struct span){0, 0}, 0), 0);
	expect_int(rig, rig_info(rig, key, &full), 0);
	expect_int(rig, full.size, 1024 * 1024);
	expect_true(rig, full.allocated >= 1024 * 1024);
	expect_int(rig, rig_do(rig, XSEG_OP_ZERO, key, half, XSEG_F_NO_HOLE), 0);
	expect_int(rig, rig_info(rig, key, &kept), 0);
	expect_true(rig, kept.allocated >= 1024 * 1024);
	expect_int(rig, rig_do(rig, XSEG_OP_DISCARD, key, half, 0), 0);
	if (!rig->space_known) {
		expect_space_unknown(rig, key);
		return;
	}
	expect_int(rig, rig_info(rig, key, &less), 0);
	expect_true(rig, less.allocated <= full.allocated - 512 * 1024);
	key = rig_key(rig, 6, 1);
	expect_int(rig, rig_do(rig, XSEG_OP_ZERO, key, half, XSEG_F_NO_HOLE), 0);
	expect_int(rig, rig_info(rig, key, &made), 0);
	expect_true(rig, made.allocated >= 512 * 1024);
	expect_zeros(rig, key, half);
}

/* Of the store as a whole; what it may not know. */
static void law_room(struct rig *rig)
{
	struct xseg_space space;
	int error = rig_space(rig, &space);
	if (error == -EOPNOTSUPP || error == -ENOENT)
		return;
	expect_int(rig, error, 0);
	expect_true(rig, space.total > 0);
	expect_true(rig, space.free <= space.total);
}

static void law_delete(struct rig *rig)
{
	struct xseg_key key = rig_key(rig, 7, 1000);
	struct span span = {PAGE, 4 * PAGE};
	struct xseg_object_info info;
	for (uint64_t round = 0; round < 5; round++) {
		put_pattern(rig, key, span, round);
		expect_int(rig, rig_info(rig, key, &info), 0);
		expect_int(rig, info.size, 5 * PAGE);
		delete_object(rig, key);
		expect_int(rig, rig_info(rig, key, &info), -ENOENT);
		expect_zeros(rig, key, span);
		delete_object(rig, key);
	}
	put_pattern(rig, key, span, 9);
	expect_int(rig, rig_do(rig, XSEG_OP_DELETE, key, (struct span){0, 0}, XSEG_F_FUA), 0);
	expect_zeros(rig, key, span);
}

/* Stretches lie without gaps, holes read as zeros, data is where it was written. */
static void check_status(struct rig *rig, struct xseg_key key, struct span span, int room)
{
	struct xseg_status_extent extents[64];
	uint64_t at = span.offset, end = span.offset + span.length;
	for (unsigned turns = 0; at < end && turns < 2000; turns++) {
		struct span rest = {at, (uint32_t)(end - at)};
		int count = rig_status(rig, key, rest, extents, room);
		if (count <= 0) {
			rig_broken(rig, __FILE__, __LINE__, "status answers %d", count);
			return;
		}
		for (int i = 0; i < count; i++) {
			struct span piece = {at, (uint32_t)extents[i].length};
			expect_true(rig, extents[i].length > 0 && extents[i].length <= end - at);
			if (extents[i].flags & XSEG_STATUS_ZERO)
				expect_zeros(rig, key, piece);
			else
				expect_int(rig, extents[i].flags, 0);
			at += extents[i].length;
		}
	}
	expect_int(rig, at, end);
}

static void law_status(struct rig *rig)
{
	struct xseg_key key = rig_key(rig, 8, 0);
	struct xseg_status_extent extents[64];
	for (uint32_t i = 0; i < 32; i++)
		put_pattern(rig, key, (struct span){i * 128 * 1024, 64 * 1024}, i);
	struct span all = {0, MAX};
	int count = rig_status(rig, key, all, extents, 64);
	expect_int(rig, count, 64);
	for (int i = 0; i < count && !rig->failed; i++) {
		expect_int(rig, extents[i].length, 64 * 1024);
		expect_int(rig, extents[i].flags, i % 2 ? XSEG_STATUS_HOLE | XSEG_STATUS_ZERO : 0);
	}
	check_status(rig, key, all, 64);
	check_status(rig, key, all, 1);
	check_status(rig, key, all, 3);
	check_status(rig, key, (struct span){64 * 1024 - SECTOR, 2 * SECTOR}, 4);
	check_status(rig, key, (struct span){100 * SECTOR, 1000 * SECTOR}, 2);
}

#define LISTED 700u

/* Reads a whole list, `room` keys at a time; how many, or -errno. */
static int list_all(struct rig *rig, struct xseg_key of, int room, uint8_t seen[LISTED])
{
	struct xseg_key keys[128];
	uint64_t cursor = 0;
	int total = 0;
	memset(seen, 0, LISTED);
	do {
		int count = rig_list(rig, of, &cursor, keys, room);
		if (count < 0)
			return count;
		for (int i = 0; i < count; i++) {
			expect_int(rig, keys[i].volume, of.volume);
			expect_true(rig, keys[i].object % 3 == 0 && keys[i].object / 3 < LISTED);
			seen[keys[i].object / 3 % LISTED]++;
		}
		total += count;
	} while (cursor && total < 10 * (int)LISTED);
	return total;
}

static void law_list(struct rig *rig)
{
	uint8_t seen[LISTED];
	struct span span = {0, SECTOR};
	expect_int(rig, list_all(rig, rig_key(rig, 9, 0), 16, seen), 0);
	for (uint32_t i = 0; i < LISTED; i++)
		put_pattern(rig, rig_key(rig, 9, i * 3), span, i);
	put_pattern(rig, rig_key(rig, 10, 1), span, 1);
	struct xseg_key key;
	uint64_t cursor = 0;
	memset(seen, 0, sizeof(seen));
	for (uint32_t i = 0; i < 20; i++) {
		expect_int(rig, rig_list(rig, rig_key(rig, 9, 0), &cursor, &key, 1), 1);
		expect_true(rig, cursor != 0 && key.object % 3 == 0 && key.object / 3 < LISTED);
		expect_int(rig, seen[key.object / 3 % LISTED]++, 0);
	}
	static const int rooms[] = {13, 64, 128};
	for (size_t r = 0; r < countof(rooms); r++) {
		expect_int(rig, list_all(rig, rig_key(rig, 9, 0), rooms[r], seen), LISTED);
		for (uint32_t i = 0; i < LISTED; i++)
			expect_int(rig, seen[i], 1);
	}
}

/* Objects come and go between two pages of a list: what stays is listed once all the same. */
static void law_list_changing(struct rig *rig)
{
	struct xseg_key keys[10];
	uint8_t seen[LISTED] = {0};
	uint64_t cursor = 0;
	struct xseg_key of = rig_key(rig, 9, 0);
	uint32_t gone = 0;
	do {
		int count = rig_list(rig, of, &cursor, keys, 10);
		expect_true(rig, count >= 0);
		for (int i = 0; i < count; i++)
			seen[keys[i].object / 3 % LISTED]++;
		if (count > 0 && gone < LISTED / 10)
			delete_object(rig, rig_key(rig, 9, gone++ * 10 * 3));
	} while (cursor && !rig->failed);
	for (uint32_t i = 0; i < LISTED; i++)
		expect_true(rig, seen[i] == 1 || (i % 10 == 0 && seen[i] == 0));
	for (uint32_t i = 0; i < LISTED; i++)
		delete_object(rig, rig_key(rig, 9, i * 3));
	expect_int(rig, list_all(rig, of, 16, seen), 0);
}

static void law_copy(struct rig *rig)
{
	struct span all = {0, 1024 * 1024}, data = {64 * 1024, 128 * 1024};
	struct span part = {100 * SECTOR, 300 * SECTOR};
	for (uint32_t i = 0; i < 8; i++) { /* some of these on another lane than their source */
		struct xseg_key from = rig_key(rig, 11, i), to = rig_key(rig, 12, i * 17);
		put_pattern(rig, from, data, 5);
		expect_int(rig, rig_copy(rig, to, from, all), 0);
		expect_int(rig, rig_read(rig, to, data, rig->in), 0);
		expect_int(rig, pattern_check(rig->in, from, data, 5), -1);
		expect_zeros_around(rig, to, data);
		expect_pattern(rig, from, data, 5);
		/* over what was there, holes too */
		put_pattern(rig, to, all, 6);
		expect_int(rig, rig_copy(rig, to, from, part), 0);
		expect_pattern(rig, to, (struct span){0, 100 * SECTOR}, 6);
		expect_zeros(rig, to, (struct span){100 * SECTOR, 28 * SECTOR});
		expect_pattern(rig, to, (struct span){400 * SECTOR, 100 * SECTOR}, 6);
		/* from nothing */
		expect_int(rig, rig_copy(rig, to, rig_key(rig, 11, 1000), all), 0);
		expect_zeros(rig, to, all);
		expect_int(rig, rig_copy(rig, from, from, all), 0);
		expect_pattern(rig, from, data, 5);
	}
}

/* Data of any epoch, and what maps are made of: the whole number tells one object from another. */
static const uint32_t epochs[] = {1, 2, 0x102, 0x7ffffff0, 0x80000001, 0x80000002, 0xfffffff0};

static struct xseg_key key_of_epoch(const struct rig *rig, size_t i)
{
	struct xseg_key key = rig_key(rig, 15, 7);
	key.epoch = epochs[i];
	return key;
}

static void law_epochs(struct rig *rig)
{
	struct span span = {PAGE, 2 * PAGE};
	struct xseg_key keys[16], of = rig_key(rig, 15, 0);
	uint64_t cursor;
	for (size_t i = 0; i < countof(epochs); i++)
		put_pattern(rig, key_of_epoch(rig, i), span, i);
	for (size_t i = 0; i < countof(epochs); i++)
		expect_pattern(rig, key_of_epoch(rig, i), span, i);
	for (int room = 1; room <= 16; room += 5) {
		unsigned seen = 0;
		cursor = 0;
		do {
			int count = rig_list(rig, of, &cursor, keys, room);
			expect_true(rig, count >= 0);
			for (int k = 0; k < count; k++)
				for (size_t i = 0; i < countof(epochs); i++)
					seen ^= (keys[k].epoch == epochs[i]) << i;
		} while (cursor && !rig->failed);
		expect_int(rig, seen, (1u << countof(epochs)) - 1);
	}
	struct xseg_key from = key_of_epoch(rig, 3), to = key_of_epoch(rig, 1);
	expect_int(rig, rig_copy(rig, to, from, span), 0);
	expect_int(rig, rig_read(rig, to, span, rig->in), 0);
	expect_int(rig, pattern_check(rig->in, from, span, 3), -1);
	expect_pattern(rig, key_of_epoch(rig, 0), span, 0);
	for (size_t i = 0; i < countof(epochs); i++) {
		delete_object(rig, key_of_epoch(rig, i));
		expect_zeros(rig, key_of_epoch(rig, i), span);
		if (i + 1 < countof(epochs) && i + 1 != 1)
			expect_pattern(rig, key_of_epoch(rig, i + 1), span, i + 1);
	}
	cursor = 0;
	expect_int(rig, rig_list(rig, of, &cursor, keys, 16), 0);
}

static void law_bad_input(struct rig *rig)
{
	struct xseg_key key = rig_key(rig, 13, 0);
	static const struct span bad[] = {{MAX, SECTOR}, {MAX - SECTOR, 2 * SECTOR}, {SECTOR, MAX},
		{1ull << 40, PAGE}, {~0ull - 4 * SECTOR + 1, SECTOR}};
	put_pattern(rig, key, (struct span){0, PAGE}, 1);
	for (size_t i = 0; i < countof(bad); i++) {
		expect_int(rig, rig_write(rig, key, bad[i], rig->out, 0), -EINVAL);
		expect_int(rig, rig_read(rig, key, bad[i], rig->in), -EINVAL);
		expect_int(rig, rig_do(rig, XSEG_OP_ZERO, key, bad[i], 0), -EINVAL);
		expect_int(rig, rig_do(rig, XSEG_OP_DISCARD, key, bad[i], 0), -EINVAL);
		expect_int(rig, rig_copy(rig, key, rig_key(rig, 13, 1), bad[i]), -EINVAL);
	}
	expect_pattern(rig, key, (struct span){0, PAGE}, 1);
}

static void law_flush(struct rig *rig)
{
	struct xseg_key key = rig_key(rig, 14, 0);
	struct span span = {0, 2 * PAGE};
	expect_int(rig, rig_do(rig, XSEG_OP_FLUSH, rig_key(rig, 15, 0), (struct span){0, 0}, 0), 0);
	for (uint32_t i = 0; i < 40; i++) {
		key.object = i;
		pattern_fill(rig->out, key, span, i);
		expect_int(rig, rig_write(rig, key, span, rig->out, i % 2 ? XSEG_F_FUA : 0), 0);
		if (i % 7 == 0)
			expect_int(rig, rig_do(rig, XSEG_OP_FLUSH, key, (struct span){0, 0}, 0), 0);
	}
	expect_int(rig, rig_do(rig, XSEG_OP_FLUSH, key, (struct span){0, 0}, 0), 0);
	for (uint32_t i = 0; i < 40; i++) {
		key.object = i;
		expect_pattern(rig, key, span, i);
	}
	expect_int(rig, rig_do(rig, XSEG_OP_PREFETCH, key, span, 0), 0);
	expect_int(rig, rig_do(rig, XSEG_OP_PREFETCH, rig_key(rig, 15, 0), span, 0), 0);
}

/* A store has no cache, and does not look for what one might have; a cache above it knows. */
static void law_cached(struct rig *rig)
{
	struct xseg_status_extent extent = {0};
	struct client_request request = {.op = XSEG_OP_STATUS,
		.flags = XSEG_F_FAST_ONLY,
		.key = rig_key(rig, 14, 0),
		.length = PAGE,
		.receive = &extent,
		.receive_size = sizeof(extent)};
	int result = client_do(&rig->client, &request);
	if (result == 0) {
		expect_int(rig, (int)request.value, 1);
		expect_int(rig, (int)(extent.flags & ~XSEG_STATUS_CACHED), 0);
	} else {
		expect_int(rig, result, -EOPNOTSUPP);
	}
}

/* What was written earlier in the run is there still, and what goes leaves nothing behind. */
static void law_tidy(struct rig *rig)
{
	struct xseg_key keys[128];
	for (unsigned volume = 0; volume < 16; volume++) {
		uint64_t cursor = 0;
		do {
			int count = rig_list(rig, rig_key(rig, volume, 0), &cursor, keys, 128);
			expect_true(rig, count >= 0);
			for (int i = 0; i < count; i++)
				delete_object(rig, keys[i]);
		} while (cursor && !rig->failed);
		cursor = 0;
		expect_int(rig, rig_list(rig, rig_key(rig, volume, 0), &cursor, keys, 128), 0);
	}
}

void blocker_laws(struct rig *rig)
{
	rig_law(rig, "an absent object reads as zeros", law_absent);
	rig_law(rig, "what is written is read back, and nothing else changes", law_read_back);
	rig_law(rig, "a sector changes without its neighbours", law_partial);
	rig_law(rig, "objects, volumes and epochs are independent", law_independent);
	rig_law(rig, "zero and discard read as zeros", law_zero);
	rig_law(rig, "space is given back, or kept", law_space);
	rig_law(rig, "a store knows its own size, or says that it does not", law_room);
	rig_law(rig, "delete", law_delete);
	rig_law(rig, "status tells data from holes", law_status);
	rig_law(rig, "list", law_list);
	rig_law(rig, "list while objects go", law_list_changing);
	rig_law(rig, "copy", law_copy);
	rig_law(rig, "epochs tell objects apart", law_epochs);
	rig_law(rig, "ranges that no object has are refused", law_bad_input);
	rig_law(rig, "flush, FUA, prefetch", law_flush);
	rig_law(rig, "what a cache has", law_cached);
	rig_law(rig, "nothing is left of what is deleted", law_tidy);
}
