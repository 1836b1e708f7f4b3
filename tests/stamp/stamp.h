/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sector-stamp checker. Every sector that is written says where it belongs and which write it
 * is; every sector that is read must be one that could have been there at that moment.
 *
 * Units: sectors of 512 bytes, ticks (one for each event the checker sees), ns where it says so.
 * Errors: 0 or -errno. Threads: one. Blocking: only where it says so.
 */
#ifndef SKERRY_TESTS_STAMP_H
#define SKERRY_TESTS_STAMP_H

#include <base/histogram.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define STAMP_SECTOR 512u

/* --- sector.c: what a sector says ----------------------------------------------------------- */

struct stamp {
	uint64_t volume; /* stamp_volume_id() of its name */
	uint64_t sector;
	uint64_t sequence; /* of the write; never 0, never used twice */
	uint32_t writer;
};

enum stamp_look {
	STAMP_GOOD,
	STAMP_BLANK,	 /* all zeros: never written */
	STAMP_TORN,	 /* not one whole stamp */
	STAMP_MISPLACED, /* a whole stamp of another place */
};

uint64_t stamp_volume_id(const char *name);
void stamp_make(uint8_t memory[STAMP_SECTOR], const struct stamp *stamp);
/* Fills in what was found, as far as it could be read. */
enum stamp_look stamp_read(
	const uint8_t memory[STAMP_SECTOR], uint64_t volume, uint64_t sector, struct stamp *found);

/* --- history.c: which versions of a sector may be read -------------------------------------- */

#define HISTORY_NEVER UINT64_MAX

/*
 * One version of a sector: when the first operation on it (its write, or a read that returned it)
 * ended, and when the last one began. Two versions contradict each other when an operation on
 * either ended before one on the other began: no single order of writes can explain that.
 */
struct version {
	uint64_t sequence;
	uint64_t first_end;
	uint64_t last_start;
	uint64_t acked; /* the end of its write; HISTORY_NEVER so far */
};

struct history {
	uint64_t sectors;
	struct history_cell *cells;
};

enum history_verdict {
	HISTORY_FINE,
	/*
	 * A write that nobody had acknowledged took effect, was replaced, and took effect again: a
	 * client or a successor repeated it. A disk may do that, a register may not.
	 */
	HISTORY_TWICE,
	HISTORY_OLD,   /* another version had replaced it before the read began */
	HISTORY_ALIEN, /* nobody wrote this, or it was forgotten because it is far too old */
};

int history_open(struct history *history, uint64_t sectors);
void history_close(struct history *history);
void history_write_begin(struct history *history, uint64_t sector, uint64_t sequence, uint64_t now);
/* Was a write of it on its way at `start` or later? */
bool history_busy(const struct history *history, uint64_t sector, uint64_t start);
/* `oldest`: no operation that has not ended, this one neither, began before it. */
void history_write_end(
	struct history *history, uint64_t sector, uint64_t sequence, uint64_t now, uint64_t oldest);
/*
 * A read that began at `start` ended at `now` with that version; 0: blank. On HISTORY_OLD *newer is
 * the version that rules it out.
 */
enum history_verdict history_read(struct history *history, uint64_t sector, uint64_t sequence,
	uint64_t start, uint64_t now, uint64_t oldest, uint64_t *newer);

/* --- journal.c: what was acknowledged, for the next run ------------------------------------- */

enum journal_kind {
	JOURNAL_RUN = 1,
	JOURNAL_VOLUME,
	JOURNAL_BEGIN,
	JOURNAL_END,
	/* sequence: a number of its own; only good answers have an end */
	JOURNAL_FLUSH_BEGIN,
	JOURNAL_FLUSH_END,
};

#define JOURNAL_FUA 1u

struct journal_record {
	uint32_t crc; /* of the rest */
	uint16_t kind;
	uint16_t volume;   /* index */
	uint32_t count;	   /* sectors */
	uint32_t flags;	   /* JOURNAL_FUA */
	uint64_t sector;   /* VOLUME: how many it has */
	uint64_t sequence; /* VOLUME: its id; RUN: its number */
	uint64_t time_ns;
};

struct journal {
	int fd; /* -1: none is kept */
	bool sync;
};

/* Calls each() for all records in order; a last one that is not whole is dropped. Blocks. */
int journal_open(struct journal *journal, const char *path, bool sync,
	void (*each)(void *context, const struct journal_record *record), void *context);
void journal_close(struct journal *journal);
/* Returns when it is as safe as was asked for: written, or on the disk. */
void journal_put(struct journal *journal, enum journal_kind kind, unsigned volume, uint64_t sector,
	uint32_t count, uint64_t sequence);
void journal_put_flags(struct journal *journal, enum journal_kind kind, unsigned volume,
	uint64_t sector, uint32_t count, uint64_t sequence, uint32_t flags);

/* --- load.c, conn.c: the operations --------------------------------------------------------- */

#define STAMP_VOLUMES 8
#define STAMP_ERRNOS 134

struct options {
	const char *uris[STAMP_VOLUMES];
	unsigned volumes;
	unsigned connections; /* to each volume */
	unsigned depth;	      /* of each connection */
	double seconds;
	uint64_t ops;	      /* 0: as long as `seconds` says */
	unsigned read_share;  /* of 100 */
	unsigned sectors_max; /* of one operation */
	uint64_t hot;	      /* sectors where half of all operations go */
	uint64_t seed;
	double reconnect_s; /* a connection that is not back after that is given up */
	double hang_s;	    /* an operation that takes longer is an error of its own */
	double progress_s;  /* 0: say nothing meanwhile */
	const char *journal;
	const char *map; /* which version each sector has, as found by the last pass */
	bool sync;
	bool verify_only;
	bool mixes;   /* a read and a write at once may mix, as in a page cache */
	bool replays; /* a write may take effect more than once before it is acknowledged */
	bool final_pass;
	bool allowed[STAMP_ERRNOS];
};

struct results {
	uint64_t reads, writes, flushes, bytes_read, bytes_written, sectors_checked;
	uint64_t errors[STAMP_ERRNOS]; /* guest errors by errno */
	uint64_t old, torn, misplaced, alien, lost;
	uint64_t mixed; /* torn, while a write to the sector was on its way */
	uint64_t twice; /* reads that show a write taking effect again before it was acknowledged */
	uint64_t reconnects, repeated;
	uint64_t hung;	       /* operations that took longer than hang_s */
	uint64_t pause_ns_max; /* between two answers while some were due */
	uint64_t latency_ns_max;
	uint64_t latency[HISTOGRAM_BUCKETS]; /* ns */
	int given_up;			     /* -errno: a connection did not come back */
};

/* Runs all of it. Blocks. `stop` may be set by a signal: the rest is finished and checked. */
int load_run(const struct options *options, struct results *results, volatile int *stop);

#endif
