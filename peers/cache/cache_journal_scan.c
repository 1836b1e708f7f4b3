/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal at a start: its records are followed from the tail to the first that is not whole.
 * That is the end, cut off by a crash, unless a later record says that what is missing was durable
 * once: then the file was damaged, and nothing is made of it.
 */
#include <base/bytes.h>
#include <base/crc32c.h>
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xseg/layout.h>

#include "peers/cache/cache_journal_log.h"

/* How far a start looks behind the end for a record that ought to be reachable; a replay, which has
   more to lose and more time, looks everywhere. */
#define SCAN_BEYOND (16u << 20)

#define SCAN_DAMAGED \
	"is damaged before its end, at byte %llu; restore it, or move it away and accept the " \
	"loss " \
	"of what only it had"

/* Where a walk is. */
struct walk {
	const struct journal_log *log;
	struct journal_at at;
	uint64_t generation; /* of the record before */
	uint8_t *buffer;     /* JOURNAL_RECORD_MAX */
};

static uint64_t items_size(const struct journal_record *record)
{
	return sizeof(*record) + (uint64_t)record->count * sizeof(struct journal_item);
}

static uint32_t data_size(const struct journal_item *item)
{
	return (uint32_t)__builtin_popcount(item->sectors) * XSEG_SECTOR;
}

/* The header's own numbers; the rest of it has not been looked at. */
static bool header_makes_sense(const struct journal_log *log, const struct journal_record *record)
{
	return memcmp(record->magic, JOURNAL_RECORD_MAGIC, 4) == 0 &&
	       record->version == JOURNAL_VERSION &&
	       memcmp(record->identity, log->identity, sizeof(record->identity)) == 0 &&
	       record->kind >= JOURNAL_DATA && record->kind <= JOURNAL_PAD &&
	       record->size >= JOURNAL_BLOCK && record->size % JOURNAL_BLOCK == 0 &&
	       record->size <= JOURNAL_RECORD_MAX && items_size(record) <= record->size;
}

static bool crc_is_right(const struct journal_record *record)
{
	struct journal_record copy = *record;
	copy.crc = 0;
	uint32_t crc = crc32c(0, &copy, sizeof(copy));
	return record->crc == crc32c(crc, record + 1, items_size(record) - sizeof(*record));
}

/* Header and items at an offset of the ring: 1 whole, 0 not, or -errno. */
static int read_header(const struct journal_log *log, uint64_t offset, uint8_t *buffer)
{
	const struct journal_record *record = (const void *)buffer;
	int error = journal_file_read(log->fd, buffer, JOURNAL_BLOCK, JOURNAL_RING_AT + offset);
	if (error)
		return error;
	if (!header_makes_sense(log, record) || record->size > log->ring - offset)
		return 0;
	if (items_size(record) > JOURNAL_BLOCK)
		error = journal_file_read(log->fd, buffer + JOURNAL_BLOCK,
			items_size(record) - JOURNAL_BLOCK,
			JOURNAL_RING_AT + offset + JOURNAL_BLOCK);
	return error ? error : crc_is_right(record);
}

/* What follows the items: their data, then zeros. */
static bool data_is_right(const struct journal_record *record)
{
	const struct journal_item *items = (const void *)(record + 1);
	uint64_t at = items_size(record);
	for (uint32_t i = 0; record->kind == JOURNAL_DATA && i < record->count; i++) {
		uint32_t size = data_size(&items[i]);
		if (size > record->size - at ||
			crc32c(0, (const uint8_t *)record + at, size) != items[i].crc)
			return false;
		at += size;
	}
	return bytes_are_zero((const uint8_t *)record + at, record->size - at);
}

/* The record that is due here: 1 whole, 0 not, or -errno. */
static int walk_read(struct walk *walk, bool data)
{
	const struct journal_log *log = walk->log;
	const struct journal_record *record = (const void *)walk->buffer;
	int got = read_header(log, walk->at.offset, walk->buffer);
	if (got <= 0)
		return got;
	if (record->lsn != walk->at.lsn || record->generation < walk->generation ||
		record->size > log->ring - walk->at.used)
		return 0;
	if (!data)
		return 1;
	int error = journal_file_read(
		log->fd, walk->buffer, record->size, JOURNAL_RING_AT + walk->at.offset);
	return error ? error : crc_is_right(record) && data_is_right(record);
}

static void walk_on(struct walk *walk, uint64_t size)
{
	walk->at.offset = journal_log_next(walk->log, walk->at.offset, size);
	walk->at.used += size;
	walk->at.lsn++;
}

/* Does this block begin a record of before this opening that knows `lsn` to have been durable? */
static int knows(const struct journal_log *log, uint64_t offset, uint64_t lsn, uint8_t *buffer)
{
	const struct journal_record *record = (const void *)buffer;
	int got = read_header(log, offset, buffer);
	return got <= 0 ? got
			: record->lsn > lsn && record->synced > lsn &&
				  (!log->generation || record->generation < log->known);
}

/* How much of `size` bytes there begins before the file's end, in whole blocks. */
static uint64_t in_file(const struct stat *about, uint64_t offset, uint64_t size)
{
	uint64_t end =
		((uint64_t)about->st_size + JOURNAL_BLOCK - 1) / JOURNAL_BLOCK * JOURNAL_BLOCK;
	uint64_t at = JOURNAL_RING_AT + offset;
	if (end <= at)
		return 0;
	return size < end - at ? size : end - at;
}

/* Does any in `limit` bytes from there? 1 yes, 0 no, or -errno. */
static int look_beyond(const struct journal_log *log, struct journal_at at, uint64_t limit)
{
	uint8_t *buffer = malloc(2 * JOURNAL_RECORD_MAX);
	struct stat about;
	int found = !buffer ? -ENOMEM : fstat(log->fd, &about) ? -errno : 0;
	while (!found && limit) {
		uint8_t *blocks = buffer + JOURNAL_RECORD_MAX;
		uint64_t size = limit < JOURNAL_RECORD_MAX ? limit : JOURNAL_RECORD_MAX;
		if (size > log->ring - at.offset)
			size = log->ring - at.offset;
		uint64_t there = in_file(&about, at.offset, size);
		found = journal_file_read(log->fd, blocks, there, JOURNAL_RING_AT + at.offset);
		for (uint64_t i = 0; !found && i < there; i += JOURNAL_BLOCK)
			if (memcmp(blocks + i, JOURNAL_RECORD_MAGIC, 4) == 0)
				found = knows(log, at.offset + i, at.lsn, buffer);
		at.offset = journal_log_next(log, at.offset, size);
		limit -= size;
	}
	free(buffer);
	return found;
}

/* --- at open ------------------------------------------------------------------------------- */

/* Headers only, from the tail on. *synced: as the last of them says. */
static int scan_headers(struct journal_log *log, struct walk *walk, uint64_t *synced)
{
	const struct journal_record *record = (const void *)walk->buffer;
	int got = 0;
	while (walk->at.used < log->ring && (got = walk_read(walk, false)) == 1) {
		log->spans[walk->at.offset / JOURNAL_BLOCK] = journal_span_of(record);
		walk->generation = record->generation;
		*synced = record->synced;
		walk_on(walk, record->size);
	}
	return got < 0 ? got : 0;
}

/* The data of those that may not have been synced: the first that is torn is the end. */
static int scan_tail(struct journal_log *log, struct walk *walk, uint64_t synced)
{
	struct walk again = {.log = log, .at = log->head, .buffer = walk->buffer};
	while (again.at.lsn != walk->at.lsn) {
		const struct journal_span *span = &log->spans[again.at.offset / JOURNAL_BLOCK];
		if (again.at.lsn >= synced) {
			int got = walk_read(&again, true);
			if (got < 0)
				return got;
			if (got == 0) {
				walk->at = again.at;
				return 0;
			}
		}
		walk_on(&again, (uint64_t)span->blocks * JOURNAL_BLOCK);
	}
	return 0;
}

static int read_marks(struct walk *walk, struct journal_volumes *volumes, uint32_t count)
{
	int got = walk_read(walk, true);
	if (got <= 0)
		return got < 0 ? got : -EILSEQ;
	const struct journal_mark *marks =
		(const void *)(walk->buffer + sizeof(struct journal_record));
	for (uint32_t i = 0; i < count; i++) {
		struct journal_volume *volume = journal_volume_find(volumes, marks[i].volume);
		if (volume)
			journal_volume_mark(volume, marks[i].epoch);
	}
	return 0;
}

/* What is there of each volume. A mark without data before it says nothing any more. */
static int scan_volumes(struct journal_log *log, struct walk *walk, struct journal_volumes *volumes)
{
	struct journal_at end = walk->at;
	walk->at = log->head;
	walk->generation = 0;
	while (walk->at.lsn != end.lsn) {
		struct journal_span span = log->spans[walk->at.offset / JOURNAL_BLOCK];
		struct journal_volume *volume;
		int error = 0;
		if (span.volume == 0 && span.count)
			error = read_marks(walk, volumes, span.count);
		else if (span.volume && !(volume = journal_volume_get(volumes, span.volume)))
			error = -ENOSPC;
		else if (span.volume)
			journal_volume_see(volume, span.epoch);
		if (error)
			return error;
		walk_on(walk, (uint64_t)span.blocks * JOURNAL_BLOCK);
	}
	return 0;
}

/* Marks come after what they are about, so items can only be counted now. */
static void scan_found(struct journal_log *log, struct journal_volumes *volumes)
{
	for (uint32_t i = 0; i < volumes->touched; i++) {
		struct journal_volume *volume = &volumes->items[i];
		volume->was_found = volume->has_durable = volume->marked;
		volume->found = volume->durable = volume->mark;
	}
	struct walk walk = {.log = log, .at = log->found_tail};
	while (walk.at.lsn != log->found_head.lsn) {
		const struct journal_span *span = &log->spans[walk.at.offset / JOURNAL_BLOCK];
		struct journal_volume *volume = NULL;
		if (span->volume)
			volume = journal_volume_find(volumes, span->volume);
		if (volume && !journal_volume_covers(volume, span->epoch))
			log->found_items += span->count;
		walk_on(&walk, (uint64_t)span->blocks * JOURNAL_BLOCK);
	}
}

static int scan(struct journal_log *log, struct journal_volumes *volumes, struct walk *walk)
{
	uint64_t synced = 0;
	log->found_tail = log->head;
	int error = scan_headers(log, walk, &synced);
	struct journal_at headers = walk->at;
	uint64_t generation = walk->generation;
	error = error ? error : scan_tail(log, walk, synced);
	if (error)
		return error;
	log->found_head = walk->at;
	log->cut = headers.lsn != walk->at.lsn;
	uint64_t beyond = log->ring - walk->at.used;
	int damaged = look_beyond(log, walk->at, beyond < SCAN_BEYOND ? beyond : SCAN_BEYOND);
	if (damaged)
		return damaged < 0 ? damaged : -EILSEQ;
	error = scan_volumes(log, walk, volumes);
	if (error)
		return error;
	scan_found(log, volumes);
	log->head = log->begin = log->found_head;
	log->known = generation;
	return 0;
}

int journal_scan(
	struct journal_log *log, struct journal_volumes *volumes, const struct journal_why *why)
{
	struct walk walk = {.log = log, .at = log->head, .buffer = log->stage};
	int error = scan(log, volumes, &walk);
	if (error == -EILSEQ)
		return journal_file_refuse(why, error, SCAN_DAMAGED,
			(unsigned long long)(JOURNAL_RING_AT + walk.at.offset));
	return error ? journal_file_refuse(why, error, "cannot be read: %s", strerror(-error)) : 0;
}

/* --- replay -------------------------------------------------------------------------------- */

struct replay {
	cache_journal_take_f *take;
	void *context;
	uint8_t *page;
};

static int replay_record(const struct replay *replay, const struct journal_record *record)
{
	const struct journal_item *items = (const void *)(record + 1);
	const uint8_t *data = (const uint8_t *)(items + record->count);
	const struct cache_journal_from from = {
		.volume = record->volume, .term = record->term, .epoch = record->epoch};
	int error = 0;
	for (uint32_t i = 0; !error && i < record->count; i++) {
		struct cache_journal_item item = {.object = items[i].object,
			.key_epoch = items[i].key_epoch,
			.bucket = items[i].bucket,
			.sectors = items[i].sectors,
			.data = replay->page};
		memset(replay->page, 0, XSEG_PAGE);
		for (unsigned s = 0; s < XSEG_PAGE / XSEG_SECTOR; s++) {
			if (!(item.sectors >> s & 1))
				continue;
			memcpy(replay->page + s * XSEG_SECTOR, data, XSEG_SECTOR);
			data += XSEG_SECTOR;
		}
		error = replay->take(replay->context, &from, &item);
	}
	return error;
}

static bool is_wanted(struct journal_volumes *volumes, const struct journal_span *span)
{
	const struct journal_volume *volume =
		span->volume ? journal_volume_find(volumes, span->volume) : NULL;
	return volume && !(volume->was_found && !journal_before(volume->found, span->epoch));
}

/* Without `replay`: is all that is wanted whole? Half a replay is worse than none. */
static int replay_all(
	struct walk *walk, struct journal_volumes *volumes, const struct replay *replay)
{
	const struct journal_log *log = walk->log;
	walk->at = log->found_tail;
	while (walk->at.lsn != log->found_head.lsn) {
		struct journal_span span = log->spans[walk->at.offset / JOURNAL_BLOCK];
		if (is_wanted(volumes, &span)) {
			int got = walk_read(walk, true);
			if (got <= 0)
				return got < 0 ? got : -EILSEQ;
			int error = replay ? replay_record(replay, (const void *)walk->buffer) : 0;
			if (error)
				return error;
		}
		walk_on(walk, (uint64_t)span.blocks * JOURNAL_BLOCK);
	}
	return 0;
}

int journal_scan_replay(const struct journal_log *log, struct journal_volumes *volumes,
	cache_journal_take_f *take, void *context)
{
	uint8_t *buffer = malloc(JOURNAL_RECORD_MAX + XSEG_PAGE);
	if (!buffer)
		return -ENOMEM;
	struct walk walk = {.log = log, .at = log->found_head, .buffer = buffer};
	struct replay replay = {take, context, buffer + JOURNAL_RECORD_MAX};
	int error = look_beyond(log, log->found_head, log->ring - log->found_head.used);
	if (error > 0)
		error = -EILSEQ;
	error = error ? error : replay_all(&walk, volumes, NULL);
	error = error ? error : replay_all(&walk, volumes, &replay);
	free(buffer);
	if (error == -EILSEQ)
		log_error("cache_journal", "journal '%s' " SCAN_DAMAGED, log->path,
			(unsigned long long)(JOURNAL_RING_AT + walk.at.offset));
	return error;
}
