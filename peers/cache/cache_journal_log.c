/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal's ring: records are put together in memory, written at the head, and synced as a
 * group. What a group wrote before it failed is written again, with a later generation, so that
 * what the first try may have left behind cannot be taken for a continuation.
 */
#include "peers/cache/cache_journal_log.h"

#include <base/crash.h>
#include <base/crc32c.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <xseg/layout.h>

/* The largest record of one item. */
#define LOG_LEAST (2 * JOURNAL_BLOCK)

static uint64_t blocks_of(uint64_t size)
{
	return (size + JOURNAL_BLOCK - 1) / JOURNAL_BLOCK * JOURNAL_BLOCK;
}

void journal_log_crc(struct journal_record *record)
{
	record->crc = 0;
	record->crc =
		crc32c(0, record, sizeof(*record) + record->count * sizeof(struct journal_item));
}

static int write_out(struct journal_log *log)
{
	uint32_t done = 0;
	while (done < log->staged) {
		ssize_t put = pwrite(log->fd, log->stage + done, log->staged - done,
			(off_t)(JOURNAL_RING_AT + log->stage_at + done));
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put < 0 ? -errno : -EIO;
		done += (uint32_t)put;
	}
	log->staged = 0;
	return 0;
}

/* Room in the stage for `size` bytes that lie at the head. */
static int stage_reserve(struct journal_log *log, uint32_t size)
{
	int error = 0;
	bool behind = log->stage_at + log->staged == log->head.offset;
	if (log->staged && (!behind || JOURNAL_RECORD_MAX - log->staged < size))
		error = write_out(log);
	if (!log->staged)
		log->stage_at = log->head.offset;
	return error;
}

/* A header at the head, zeroed up to `size`. */
static struct journal_record *record_begin(
	struct journal_log *log, enum journal_kind kind, uint32_t size)
{
	struct journal_record *record = (void *)(log->stage + log->staged);
	memset(record, 0, size);
	memcpy(record->magic, JOURNAL_RECORD_MAGIC, sizeof(record->magic));
	record->version = JOURNAL_VERSION;
	record->kind = (uint16_t)kind;
	record->lsn = log->head.lsn;
	record->generation = log->generation;
	record->synced = log->begin.lsn;
	record->size = size;
	memcpy(record->identity, log->identity, sizeof(record->identity));
	return record;
}

static void record_end(struct journal_log *log, struct journal_record *record)
{
	journal_log_crc(record);
	log->spans[log->head.offset / JOURNAL_BLOCK] = journal_span_of(record);
	log->staged += record->size;
	log->head.offset = journal_log_next(log, log->head.offset, record->size);
	log->head.used += record->size;
	log->head.lsn++;
}

int journal_log_put_pad(struct journal_log *log)
{
	if (log->ring - log->head.used < JOURNAL_BLOCK)
		return -ENOSPC;
	int error = stage_reserve(log, JOURNAL_BLOCK);
	if (!error)
		record_end(log, record_begin(log, JOURNAL_PAD, JOURNAL_BLOCK));
	return error;
}

/* A record does not wrap: the last block of the ring stays empty if it must. */
static int wrap(struct journal_log *log)
{
	return log->ring - log->head.offset >= LOG_LEAST ? 0 : journal_log_put_pad(log);
}

static uint32_t item_size(const struct cache_journal_item *item)
{
	return (uint32_t)__builtin_popcount(item->sectors) * XSEG_SECTOR;
}

/* How many items fit, and the record's size. */
static uint32_t fit(
	const struct cache_journal_item *items, uint32_t count, uint64_t limit, uint32_t *size)
{
	uint64_t bytes = sizeof(struct journal_record);
	uint32_t n = 0;
	for (; n < count; n++) {
		uint64_t more = bytes + sizeof(struct journal_item) + item_size(&items[n]);
		if (blocks_of(more) > limit)
			break;
		bytes = more;
	}
	*size = (uint32_t)blocks_of(bytes);
	return n;
}

/* The sectors that count, one behind the other. The page is read once: it may be anybody's. */
static uint32_t pack(uint8_t *to, const struct cache_journal_item *item)
{
	uint32_t size = 0;
	for (unsigned i = 0; i < XSEG_PAGE / XSEG_SECTOR; i++) {
		if (!(item->sectors >> i & 1))
			continue;
		memcpy(to + size, (const uint8_t *)item->data + i * XSEG_SECTOR, XSEG_SECTOR);
		size += XSEG_SECTOR;
	}
	return size;
}

static void fill(struct journal_record *record, const struct cache_journal_item *items)
{
	struct journal_item *out = (void *)(record + 1);
	uint8_t *data = (uint8_t *)(out + record->count);
	for (uint32_t i = 0; i < record->count; i++) {
		uint32_t size = pack(data, &items[i]);
		out[i].object = items[i].object;
		out[i].key_epoch = items[i].key_epoch;
		out[i].bucket = items[i].bucket;
		out[i].sectors = items[i].sectors;
		out[i].crc = crc32c(0, data, size);
		data += size;
	}
}

int journal_log_put(
	struct journal_log *log, const struct cache_journal_batch *batch, uint32_t *taken)
{
	const struct cache_journal_item *items = batch->items + batch->reached;
	uint32_t size, count = batch->count - batch->reached;
	*taken = 0;
	if (log->ring - log->head.used < log->reserve + LOG_LEAST + JOURNAL_BLOCK)
		return -ENOSPC;
	int error = wrap(log);
	error = error ? error : stage_reserve(log, JOURNAL_RECORD_MAX / 8);
	if (error)
		return error;
	uint64_t limit = log->ring - log->head.used - log->reserve;
	if (limit > log->ring - log->head.offset)
		limit = log->ring - log->head.offset;
	if (limit > JOURNAL_RECORD_MAX - log->staged)
		limit = JOURNAL_RECORD_MAX - log->staged;
	uint32_t n = fit(items, count, limit, &size);
	must(n > 0 || count == 0);
	struct journal_record *record = record_begin(log, JOURNAL_DATA, size);
	record->volume = batch->volume;
	record->term = batch->term;
	record->epoch = batch->epoch;
	record->count = n;
	fill(record, items);
	record_end(log, record);
	*taken = n;
	return 0;
}

int journal_log_put_marks(struct journal_log *log, const struct journal_mark *marks, uint32_t count)
{
	must(count > 0 && count <= JOURNAL_MARKS_MAX);
	if (log->ring - log->head.used < 2 * JOURNAL_BLOCK)
		return -ENOSPC;
	int error = wrap(log);
	error = error ? error : stage_reserve(log, JOURNAL_BLOCK);
	if (error)
		return error;
	struct journal_record *record = record_begin(log, JOURNAL_MARKS, JOURNAL_BLOCK);
	record->count = count;
	memcpy(record + 1, marks, count * sizeof(*marks));
	record_end(log, record);
	return 0;
}

int journal_log_commit(struct journal_log *log)
{
	int error = write_out(log);
	crash_point("cache_journal.write.before_sync");
	if (!error && log->head.lsn != log->begin.lsn && fdatasync(log->fd))
		error = -errno;
	if (error) {
		journal_log_rollback(log);
		return error;
	}
	crash_point("cache_journal.write.synced");
	log->begin = log->head;
	return 0;
}

void journal_log_rollback(struct journal_log *log)
{
	log->staged = 0;
	log->head = log->begin;
	log->generation++;
}

const struct journal_span *journal_log_stale(const struct journal_log *log)
{
	return log->stale.lsn == log->begin.lsn ? NULL
						: &log->spans[log->stale.offset / JOURNAL_BLOCK];
}

void journal_log_stale_next(struct journal_log *log)
{
	const struct journal_span *span = journal_log_stale(log);
	uint64_t size = (uint64_t)span->blocks * JOURNAL_BLOCK;
	log->stale.offset = journal_log_next(log, log->stale.offset, size);
	log->stale.used += size;
	log->stale.lsn++;
}
