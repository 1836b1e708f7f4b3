/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal's file: two copies of a first block, then a ring of records, each a multiple of 4 KiB
 * (docs/format-cache-journal.md). And the volumes that are in it.
 *
 * Units: bytes; offsets count from the ring's begin. Errors: 0 or -errno. Ownership: a log is its
 * opener's. Threads: one at a time for each log; a replay's reading excludes nobody. Blocking: yes.
 */
#ifndef SKERRY_CACHE_JOURNAL_LOG_H
#define SKERRY_CACHE_JOURNAL_LOG_H

#include <base/must.h>
#include <stdarg.h>

#include "peers/cache/cache_journal.h"

#define JOURNAL_BLOCK 4096u
#define JOURNAL_RING_AT (2 * JOURNAL_BLOCK)
#define JOURNAL_RECORD_MAX (1u << 20)
#define JOURNAL_VERSION 1u
#define JOURNAL_MAGIC "SKJOURNL"
#define JOURNAL_RECORD_MAGIC "SKJR"
#define JOURNAL_MARKS_MAX 250u /* in one record of one block */
#define JOURNAL_VOLUMES 8192u

struct journal_super {
	char magic[8];
	uint32_t version;
	uint32_t crc; /* of the block, this field 0 */
	uint8_t identity[16];
	uint64_t size;	     /* of the file */
	uint64_t sequence;   /* one more at each writing; copy sequence % 2 */
	uint64_t generation; /* one more at each opening */
	uint64_t tail;	     /* the oldest record that counts */
	uint64_t tail_lsn;
	char owner[CACHE_JOURNAL_OWNER_MAX];
	uint8_t zero[JOURNAL_BLOCK - 72 - CACHE_JOURNAL_OWNER_MAX];
};
fixed(sizeof(struct journal_super) == JOURNAL_BLOCK);

enum journal_kind { JOURNAL_DATA = 1, JOURNAL_MARKS, JOURNAL_PAD };

struct journal_record {
	char magic[4];
	uint16_t version, kind;
	uint64_t lsn;	     /* one more than the record's before */
	uint64_t generation; /* never less than the record's before */
	uint64_t synced;     /* all records before that one were durable when this was written */
	uint8_t identity[16];
	uint64_t volume; /* of marks and pads: 0 */
	uint32_t epoch;
	uint32_t count; /* of items */
	uint32_t size;	/* of it all */
	uint32_t crc;	/* of the header and the items, this field 0 */
	uint64_t term;	/* of data: the volume's; 0: not known */
};
fixed(sizeof(struct journal_record) == 80);

struct journal_item {
	uint32_t object, key_epoch;
	uint16_t bucket;
	uint8_t sectors, zero;
	uint32_t crc; /* of its data */
};
fixed(sizeof(struct journal_item) == 16);

struct journal_mark {
	uint64_t volume;
	uint32_t epoch, zero;
};
fixed(sizeof(struct journal_mark) == sizeof(struct journal_item));

/* --- volumes ------------------------------------------------------------------------------- */

struct journal_volume {
	uint64_t id;
	uint32_t mark;	  /* the store has it up to this epoch */
	uint32_t durable; /* so the file says too */
	uint32_t found;	  /* the file said when it was opened */
	uint32_t newest;  /* in the file */
	bool marked, has_durable, was_found, has_newest;
	bool unsynced;	  /* mark is to be written */
	uint32_t records; /* of its data between tail and head */
	uint32_t batches; /* waiting or being written */
	uint32_t writing;
	LIST_ENTRY(journal_volume) chain;
	TAILQ_ENTRY(journal_volume) link; /* of those unsynced */
};

struct journal_volumes {
	struct journal_volume *items;
	uint32_t touched;
	LIST_HEAD(journal_chain, journal_volume) chains[1024], free;
	TAILQ_HEAD(, journal_volume) unsynced;
};

static inline bool journal_before(uint32_t a, uint32_t b) { return (int32_t)(a - b) < 0; }

int journal_volume_open(struct journal_volumes *volumes);
struct journal_volume *journal_volume_find(struct journal_volumes *volumes, uint64_t id);
/* Made if need be; NULL: too many. */
struct journal_volume *journal_volume_get(struct journal_volumes *volumes, uint64_t id);
/* Forgotten when nothing holds it. */
void journal_volume_put(struct journal_volumes *volumes, struct journal_volume *volume);
/* A record of it was written, or found. */
void journal_volume_see(struct journal_volume *volume, uint32_t epoch);
void journal_volume_mark(struct journal_volume *volume, uint32_t epoch);
/* Is the store known to have it? */
bool journal_volume_covers(const struct journal_volume *volume, uint32_t epoch);

/* --- the file ------------------------------------------------------------------------------ */

/* What begins at a block of the ring, kept for who moves the tail. */
struct journal_span {
	uint64_t volume; /* 0: marks or a pad */
	uint32_t epoch;
	uint16_t blocks, count;
};

struct journal_at {
	uint64_t offset, used, lsn; /* used: from the tail on */
};

struct journal_log {
	int fd;
	struct journal_super super; /* as last written */
	uint8_t identity[16];
	uint64_t ring;
	uint64_t reserve; /* kept for marks */
	uint64_t known;	  /* while scanning: the last record's generation; then: our first */
	uint64_t generation;
	struct journal_at head, begin; /* begin: of the group that is not synced yet */
	struct journal_at stale;       /* all before it is the store's: the tail may go there */
	struct journal_span *spans;
	uint8_t *stage; /* JOURNAL_RECORD_MAX bytes: what is to be written */
	uint32_t staged;
	uint64_t stage_at;
	/* found at open */
	struct journal_at found_tail, found_head;
	uint64_t found_items;
	bool cut;
	char *path;
};

/* A sentence for the user. */
struct journal_why {
	char *text;
	size_t size;
	const char *path;
};
__attribute__((format(printf, 3, 4))) int journal_file_refuse(
	const struct journal_why *why, int error, const char *format, ...);

int journal_file_open(struct journal_log *log, const struct cache_journal_config *config,
	const struct journal_why *why);
void journal_file_close(struct journal_log *log);
/* After the scan: what was cut off is overwritten from here on. */
int journal_file_start(struct journal_log *log);

/* One record of as many items of the batch, from the first not reached on, as there is room for:
   *taken. -ENOSPC: none. */
int journal_log_put(
	struct journal_log *log, const struct cache_journal_batch *batch, uint32_t *taken);
int journal_log_put_marks(
	struct journal_log *log, const struct journal_mark *marks, uint32_t count);
/* A record of one block that says nothing. */
int journal_log_put_pad(struct journal_log *log);
/* All that was put is durable, or (after an error) nothing of it was ever put. */
int journal_log_commit(struct journal_log *log);
void journal_log_rollback(struct journal_log *log);
/* The record at log->stale, NULL: none that is durable; and on to the next. */
const struct journal_span *journal_log_stale(const struct journal_log *log);
void journal_log_stale_next(struct journal_log *log);
/* The tail goes to log->stale; nothing may be put and not committed. */
int journal_file_checkpoint(struct journal_log *log);
/* Another size, for a log with nothing in it. */
int journal_file_resize(struct journal_log *log, uint64_t size);

static inline uint64_t journal_log_next(const struct journal_log *log, uint64_t offset, uint64_t by)
{
	return offset + by == log->ring ? 0 : offset + by;
}
static inline struct journal_span journal_span_of(const struct journal_record *record)
{
	return (struct journal_span){record->volume, record->epoch,
		(uint16_t)(record->size / JOURNAL_BLOCK), (uint16_t)record->count};
}
void journal_log_crc(struct journal_record *record);
int journal_file_read(int fd, void *out, size_t size, uint64_t offset);

/* --- cache_journal_scan.c ------------------------------------------------------------------ */

/* From the tail on: head, spans, cut; volumes are noted. -EILSEQ: damaged before its end. */
int journal_scan(
	struct journal_log *log, struct journal_volumes *volumes, const struct journal_why *why);
/* -EILSEQ with a sentence in the log. */
int journal_scan_replay(const struct journal_log *log, struct journal_volumes *volumes,
	cache_journal_take_f *take, void *context);

#endif
