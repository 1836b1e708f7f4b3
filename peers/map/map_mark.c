/* SPDX-License-Identifier: Apache-2.0 */
/* A set of objects, and a walk over a map that somebody may be changing. */
#include "peers/map/map_mark.h"

#include <base/crc32c.h>
#include <base/hash.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GROUP 512u /* objects of a cell */
#define CAPACITY_FIRST 1024u
#define PATIENCE 64u /* that a page is read anew */

/* --- the set ---------------------------------------------------------------------------------- */

void map_mark_init(struct map_marks *marks, uint64_t memory)
{
	size_t limit = CAPACITY_FIRST;
	while (limit * 2 * sizeof(struct map_mark_cell) <= memory)
		limit *= 2;
	*marks = (struct map_marks){.limit = limit, .slices = 1};
}

void map_mark_fini(struct map_marks *marks)
{
	free(marks->cells);
	*marks = (struct map_marks){0};
}

void map_mark_begin(struct map_marks *marks, unsigned slice, unsigned slices)
{
	must(slice < slices);
	if (marks->cells)
		memset(marks->cells, 0, marks->capacity * sizeof(*marks->cells));
	marks->count = 0;
	marks->objects = 0;
	marks->slice = slice;
	marks->slices = slices;
}

static uint64_t hash_of(uint64_t owner, uint32_t epoch, uint32_t group)
{
	uint64_t x = hash_u64(owner) ^ ((uint64_t)epoch << 32 | group);
	x = (x ^ x >> 33) * 0xff51afd7ed558ccdull;
	x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 33;
}

/* The cell, or the free one where it would be. There is always a free one. */
static struct map_mark_cell *cell_of(
	struct map_mark_cell *cells, size_t capacity, struct xseg_key key)
{
	uint32_t group = key.object / GROUP;
	size_t at = hash_of(key.volume, key.epoch, group) & (capacity - 1);
	while (cells[at].owner != 0 &&
		(cells[at].owner != key.volume || cells[at].epoch != key.epoch ||
			cells[at].group != group))
		at = (at + 1) & (capacity - 1);
	return &cells[at];
}

static int grow(struct map_marks *marks)
{
	size_t capacity = marks->capacity ? 2 * marks->capacity : CAPACITY_FIRST;
	if (capacity > marks->limit)
		return -E2BIG;
	struct map_mark_cell *cells = calloc(capacity, sizeof(*cells));
	if (!cells)
		return -ENOMEM;
	for (size_t i = 0; i < marks->capacity; i++) {
		const struct map_mark_cell *old = &marks->cells[i];
		struct xseg_key key = {
			.volume = old->owner, .epoch = old->epoch, .object = old->group * GROUP};
		if (old->owner != 0)
			*cell_of(cells, capacity, key) = *old;
	}
	free(marks->cells);
	marks->cells = cells;
	marks->capacity = capacity;
	return 0;
}

bool map_mark_in_slice(const struct map_marks *marks, struct xseg_key key)
{
	uint64_t hash = hash_of(key.volume, key.epoch, key.object / GROUP);
	return (hash >> 40) % marks->slices == marks->slice;
}

/* The key's cell, made if need be. */
static int cell_make(struct map_marks *marks, struct xseg_key key, struct map_mark_cell **out)
{
	int rc = marks->capacity == 0 ? grow(marks) : 0;
	if (rc != 0)
		return rc;
	struct map_mark_cell *cell = cell_of(marks->cells, marks->capacity, key);
	if (cell->owner == 0 && marks->count >= marks->capacity / 4 * 3) {
		rc = grow(marks);
		if (rc != 0)
			return rc;
		cell = cell_of(marks->cells, marks->capacity, key);
	}
	if (cell->owner == 0) {
		cell->owner = key.volume;
		cell->epoch = key.epoch;
		cell->group = key.object / GROUP;
		marks->count++;
	}
	*out = cell;
	return 0;
}

int map_mark_set(struct map_marks *marks, struct xseg_key key)
{
	struct map_mark_cell *cell;
	must(key.volume != 0);
	if (!map_mark_in_slice(marks, key))
		return 0;
	int rc = cell_make(marks, key, &cell);
	if (rc != 0)
		return rc;
	uint64_t *bits = &cell->bits[key.object % GROUP / 64], bit = 1ull << key.object % 64;
	if (*bits & bit)
		return 0;
	*bits |= bit;
	marks->objects++;
	return 1;
}

bool map_mark_has(const struct map_marks *marks, struct xseg_key key)
{
	if (marks->capacity == 0 || key.volume == 0)
		return false;
	const struct map_mark_cell *cell = cell_of(marks->cells, marks->capacity, key);
	return cell->owner != 0 && (cell->bits[key.object % GROUP / 64] >> key.object % 64 & 1);
}

bool map_mark_next(const struct map_marks *marks, size_t *cell, unsigned *bit, struct xseg_key *key)
{
	for (; *cell < marks->capacity; (*cell)++, *bit = 0) {
		const struct map_mark_cell *at = &marks->cells[*cell];
		while (at->owner != 0 && *bit < GROUP) {
			unsigned i = (*bit)++;
			if (!(at->bits[i / 64] >> i % 64 & 1))
				continue;
			*key = (struct xseg_key){.volume = at->owner,
				.epoch = at->epoch,
				.object = at->group * GROUP + i};
			return true;
		}
	}
	return false;
}

/* --- the walk --------------------------------------------------------------------------------- */

/* As it lies in the store: -EILSEQ when it is not what the reference says. */
static int read_page(struct map_scan *scan, struct xseg_key key, const struct map_ref *ref,
	uint8_t bytes[MAP_PAGE_SIZE])
{
	int rc = scan->store->read(
		scan->store, key, ref->half * MAP_PAGE_SIZE, bytes, MAP_PAGE_SIZE);
	if (rc < 0)
		return rc == -EIO || rc == -ENOENT ? -EILSEQ : rc;
	return crc32c(0, bytes, MAP_PAGE_SIZE) == ref->crc ? 0 : -EILSEQ;
}

static uint32_t pages_end(const struct map_volume *volume)
{
	return volume->depth == 1 ? MAP_TOP_REFS : MAP_TOP_REFS * MAP_DIRECTORY_REFS;
}

/* Nobody writes there again: it is another's, or frozen. */
static bool is_shared(const struct map_volume *volume, const struct map_ref *ref)
{
	return ref->owner != volume->self || ref->epoch <= volume->frozen;
}

int map_mark_scan_moved(struct map_scan *scan)
{
	struct map_head head;
	int rc = map_head_read(scan->store, scan->head.volume.id, &head, NULL);
	return rc < 0 ? rc : head.volume.generation != scan->head.volume.generation;
}

/* It could not be read: is that because the map has moved on? Then again, else over it. */
static int page_lost(struct map_scan *scan, struct xseg_key key, uint32_t page)
{
	int moved = map_mark_scan_moved(scan);
	if (moved != 0)
		return moved < 0 ? moved : -EAGAIN;
	return scan->bad(scan, key, page);
}

/* 0: its references are in scan->refs; 1: there is nothing to be seen. */
static int directory_load(struct map_scan *scan, uint32_t number)
{
	const struct map_volume *volume = &scan->head.volume;
	const struct map_ref *ref = &volume->top[number];
	if (scan->loaded == number + 1)
		return scan->skipped;
	scan->loaded = number + 1;
	scan->skipped = true;
	if (map_ref_is_hole(*ref))
		return 1;
	struct xseg_key key = map_directory_key(volume->owners[ref->owner], ref->epoch, number);
	int rc = scan->enter(scan, key, is_shared(volume, ref));
	if (rc != 0)
		return rc;
	uint8_t bytes[MAP_PAGE_SIZE];
	rc = read_page(scan, key, ref, bytes);
	if (rc == 0)
		rc = map_format_directory_decode(bytes, volume->owner_count, scan->refs);
	if (rc == -EILSEQ) {
		rc = page_lost(scan, key, number * MAP_DIRECTORY_REFS);
		return rc == 0 ? 1 : rc;
	}
	if (rc == 0 && scan->directory)
		rc = scan->directory(scan, number * MAP_DIRECTORY_REFS, ref, scan->refs);
	scan->skipped = rc != 0;
	return rc;
}

/* The last page below it has been visited. */
static void directory_leave(struct map_scan *scan, uint32_t number)
{
	const struct map_volume *volume = &scan->head.volume;
	const struct map_ref *ref = &volume->top[number];
	if (scan->leave && is_shared(volume, ref))
		scan->leave(
			scan, map_directory_key(volume->owners[ref->owner], ref->epoch, number));
}

static int page_visit(struct map_scan *scan, uint32_t page, const struct map_ref *ref)
{
	const struct map_volume *volume = &scan->head.volume;
	struct xseg_key key = map_page_key(volume->owners[ref->owner], ref->epoch, page);
	int rc = scan->enter(scan, key, is_shared(volume, ref));
	if (rc != 0)
		return rc < 0 ? rc : 0;
	uint8_t bytes[MAP_PAGE_SIZE];
	struct map_entry entries[MAP_ENTRIES];
	rc = read_page(scan, key, ref, bytes);
	if (rc == -EILSEQ)
		return page_lost(scan, key, page);
	if (rc < 0)
		return rc;
	/* all of them are there, also those that cannot be: the visitor looks at each */
	(void)map_format_page_decode(bytes, volume->owner_count, entries);
	bool shared = is_shared(volume, ref);
	rc = scan->page(scan, page, ref, entries);
	if (rc == 0 && shared && scan->leave)
		scan->leave(scan, key);
	return rc;
}

/* Visits what is at *page, and goes on to the next. */
static int step(struct map_scan *scan, uint32_t *page)
{
	const struct map_ref *ref = &scan->head.volume.top[*page % MAP_TOP_REFS];
	if (scan->head.volume.depth == 2) {
		int rc = directory_load(scan, *page / MAP_DIRECTORY_REFS);
		if (rc == 1)
			*page = (*page / MAP_DIRECTORY_REFS + 1) * MAP_DIRECTORY_REFS;
		if (rc != 0)
			return rc < 0 ? rc : 0;
		ref = &scan->refs[*page % MAP_DIRECTORY_REFS];
	}
	int rc = map_ref_is_hole(*ref) ? 0 : page_visit(scan, *page, ref);
	if (rc != 0)
		return rc;
	(*page)++;
	if (scan->head.volume.depth == 2 && *page % MAP_DIRECTORY_REFS == 0)
		directory_leave(scan, *page / MAP_DIRECTORY_REFS - 1);
	return 0;
}

/*
 * The record as it is by now. With the same epoch what an object's entry leads to has only become
 * less, but for new objects, so pages of both maps make one walk; else it begins again.
 */
static int renew(struct map_scan *scan, uint32_t *page)
{
	uint32_t epoch = scan->head.volume.epoch;
	int rc = map_head_read(scan->store, scan->head.volume.id, &scan->head, NULL);
	if (rc < 0)
		return rc;
	scan->loaded = 0;
	if (scan->head.volume.epoch != epoch)
		*page = 0;
	return 0;
}

int map_mark_scan(struct map_scan *scan)
{
	uint32_t page = 0, before = 0;
	unsigned tries = 0;
	scan->loaded = 0;
	while (page < pages_end(&scan->head.volume)) {
		int rc = step(scan, &page);
		if (rc == -EAGAIN) {
			tries = page > before ? 1 : tries + 1;
			before = page > before ? page : before;
			rc = tries > PATIENCE ? -EBUSY : renew(scan, &page);
		}
		if (rc < 0)
			return rc;
	}
	return 0;
}
