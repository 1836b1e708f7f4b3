/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of write-back say to each other: cache_flush.c decides, cache_run.c writes,
 * cache_sync.c answers those who wait.
 *
 * Units: bytes, buckets. Errors: as noted. Ownership: runs belong to cache_run.c. Threads: the
 * shard's lane. Blocking: none.
 */
#ifndef SKERRY_CACHE_FLUSH_H
#define SKERRY_CACHE_FLUSH_H

#include <string.h>

#include "peers/cache/cache.h"

/*
 * Write-backs of a shard on their way: what is asked for goes between. As many more as a store that
 * is far away takes in the time that it needs for one (call_far_most()); of no more bytes than the
 * least number may have.
 */
#define CACHE_RUNS_LEAST 16u
#define CACHE_RUNS_BUCKETS (CACHE_RUNS_LEAST * CACHE_RUN_BUCKETS)
#define CACHE_RUN_BUCKETS (CACHE_RUN_MAX / XSEG_PAGE)

/* Neighbours of one epoch in one object that are written as one; or the sectors of one bucket. */
struct cache_run {
	struct peer *peer;
	struct cache_local *local;
	struct cache_epoch *epoch;
	uint32_t count;	   /* entries */
	uint32_t pending;  /* calls */
	uint32_t redo;	   /* the volume's, when it was sent */
	unsigned flags;	   /* of its writes */
	uint64_t alone_ns; /* since when, if none was on its way; else 0 */
	int error;
	uint32_t entries[CACHE_RUN_BUCKETS];
};

/* A part of an epoch on its way to the journal. */
#define CACHE_BATCH_ITEMS 1024u
#define CACHE_BATCHES 16u
struct cache_batch {
	struct cache_journal_batch batch;
	struct cache_local *local;
	struct cache_epoch *epoch;
	uint32_t cursor; /* the entry that comes next */
	struct cache_journal_item items[CACHE_BATCH_ITEMS];
};

/*
 * Puts neighbours of a closed epoch side by side in its queue, some at a time; false: go on in the
 * next turn. Those that are overwritten from then on leave the index, and the queue alone knows
 * what was beside them.
 */
bool cache_run_gather(struct peer *peer, struct cache_epoch *epoch);
/* Would one more be too many? */
bool cache_run_may_start(const struct cache *cache);
/* Writes the first waiting bucket of the epoch and its neighbours; bytes, 0: no request free. */
uint64_t cache_run_start(struct peer *peer, struct cache_local *local, struct cache_epoch *epoch);

/* The store has refused something of the volume's on this shard, or has taken something. */
void cache_flush_failed(struct peer *peer, struct cache_local *local, int error);
void cache_flush_worked(struct cache_local *local);
/* Somebody waits until everything up to that epoch is stored. */
void cache_flush_want(struct peer *peer, struct cache_local *local, uint32_t epoch);
/* All that can be done for a volume on this shard now. */
bool cache_flush_local(struct peer *peer, struct cache_local *local);
/* Nothing on its way and, unless the store has failed since stop(), nothing dirty. */
bool cache_flush_idle(struct peer *peer);

/* The jobs that wait: for an epoch, for the journal. True when one was answered. */
bool cache_sync_failures(struct peer *peer, struct cache_local *local);
bool cache_sync_answer(struct peer *peer, struct cache_local *local);
bool cache_sync_journal(struct peer *peer, struct cache_local *local);
/* What was written up to there, in one number: it is another one after any write, as all that it is
   made of only grows. */
uint64_t cache_sync_sign(uint32_t epoch, uint64_t forwarded);
/* What waits in the journal is taken back; false: it is being written. */
bool cache_sync_cancel(struct peer *peer, struct cache_local *local);

#endif
