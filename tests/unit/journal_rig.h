/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache's journal without a cache: this program is the worker, the lanes and the clock, so that
 * each step happens when the test says so; and fdatasync() fails when it is told to.
 *
 * Threads: one, unless rig_threads_begin() was called. Errors: the test fails. Blocking: files.
 */
#ifndef SKERRY_TESTS_UNIT_JOURNAL_RIG_H
#define SKERRY_TESTS_UNIT_JOURNAL_RIG_H

#include <peer/peer.h>

#include "peers/cache/cache_journal.h"
#include "tests/lib/unit.h"

#define RIG_SIZE CACHE_JOURNAL_SIZE_MIN
#define RIG_OWNER "segment/cache0"
#define RIG_SHARDS 4u

extern struct peer rig_shards[RIG_SHARDS];
extern unsigned rig_syncs;   /* so far */
extern int rig_sync_error;   /* of the next ones */
extern uint64_t rig_time_ns; /* of the lanes */

/* A path in the scratch folder that no other test has. */
const char *rig_path(void);
struct cache_journal *rig_open(const char *path);
/* -errno, and the sentence. */
int rig_refused(const char *path, const char *owner, uint64_t size, char why[256]);
/* Lets the worker run if it was asked for, then all lanes; until nothing moves. */
void rig_pump(struct cache_journal *journal);
/* The worker only. */
void rig_work(void);

/* The same with threads: a worker, and as many lanes as the test makes; each calls its turn. */
void rig_threads_begin(void);
void rig_threads_end(void);
void rig_lane_turn(struct cache_journal *journal, unsigned shard);

/* A batch with items of its own; data follow from (volume, epoch, item). */
struct rig_batch {
	struct cache_journal_batch batch;
	struct cache_journal_item *items;
	uint8_t *pages;
	unsigned done;
	int error;
};

/* sectors: of each item. */
void rig_batch(struct rig_batch *out, unsigned shard, uint64_t volume, uint32_t epoch,
	uint32_t count, uint8_t sectors);
void rig_batch_free(struct rig_batch *batch);
/* Appended, written, done. */
void rig_append(struct cache_journal *journal, unsigned shard, uint64_t volume, uint32_t epoch,
	uint32_t count, uint8_t sectors);
/* The store has it, and so it is noted. */
void rig_stored(struct cache_journal *journal, uint64_t volume, uint32_t epoch);

/* What a replay gives, in order; each item's data have been looked at. */
struct rig_seen {
	uint64_t volume;
	uint32_t epoch, object;
};
struct rig_replay {
	struct rig_seen seen[65536];
	uint32_t count;
};
/* 0 or -errno; the result lies in a static. */
int rig_replay(struct cache_journal *journal, const struct rig_replay **replay);
/* The journal, not opened for writing: scanned and replayed. -errno of the first that refused. */
int rig_look(const char *path, const struct rig_replay **replay);

#endif
