/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flush epochs: what is dirty of a volume on one shard, in the order in which it reaches the store,
 * and who waits for that.
 *
 * Units: buckets; epochs are serial numbers, compare with cache_epoch_before(). Errors: none.
 * Ownership: the shard's. Threads: the shard's lane. Blocking: none.
 */
#ifndef SKERRY_CACHE_EPOCH_H
#define SKERRY_CACHE_EPOCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "peers/cache/xcache.h"

#define CACHE_NO_EPOCH 0xffffffffu

struct cache;
struct cache_local;
struct job;
struct peer;

static inline bool cache_epoch_before(uint32_t a, uint32_t b) { return (int32_t)(a - b) < 0; }

/* Entries, PARKED or LOOSE, linked by prev and next. */
struct cache_list {
	uint32_t head, tail, count;
};

/* What is dirty of one epoch. */
struct cache_epoch {
	uint32_t number;
	struct cache_list dirty;   /* waiting to be written */
	uint32_t scattered;	   /* so many at its front are not beside their neighbours yet */
	uint32_t writing;	   /* on their way, in no list */
	struct cache_list written; /* at the store, not flushed there yet */
	bool journaled;		   /* all of it, on this shard */
	bool journaling;	   /* on its way to the journal: not to be written back meanwhile */
	uint64_t since_ns;	   /* its first write */
	TAILQ_ENTRY(cache_epoch) link;
};
TAILQ_HEAD(cache_epoch_queue, cache_epoch);

/* See cache_flush_barrier(). */
struct cache_barrier {
	void (*done)(struct peer *peer, struct cache_barrier *barrier);
	void *context;
	uint64_t forwarded; /* 0, or so many writes past the epochs are to be flushed, too */
	struct cache_local *local;
	uint32_t epoch;
	TAILQ_ENTRY(cache_barrier) link;
};
TAILQ_HEAD(cache_barrier_queue, cache_barrier);

/* The epoch for a write that is about to be made on this shard; others cannot pass it by now. */
uint32_t cache_epoch_enter(struct peer *peer, struct cache_local *local);
/* The entry (PARKED or LOOSE, page kept and described) is dirty in that epoch. */
void cache_epoch_add(struct peer *peer, struct cache_local *local, uint32_t entry, uint32_t epoch);
/* Many at once: `list` of them, linked by cache_epoch_link(), their page and state (BUCKET_DIRTY)
   and word (the epoch) filled in. It is empty afterwards. */
void cache_epoch_join(
	struct peer *peer, struct cache_local *local, struct cache_list *list, uint32_t epoch);
/* Entered, and nothing was added after all (no room): cache_epoch_add() needs to be called within
   the same turn as cache_epoch_enter(), or this. */
void cache_epoch_leave(struct peer *peer);
/* Is no longer: overwritten in the same epoch, or forgotten. Not while BUCKET_WRITING. */
void cache_epoch_remove(struct peer *peer, struct cache_local *local, uint32_t entry);
/* Is there an epoch older than the open one with something dirty, or is this one's closed? */
bool cache_epoch_is_closed(const struct cache_local *local, uint32_t epoch);
/* Closes the open epoch if it has anything in it; the last closed one. */
uint32_t cache_epoch_close(struct peer *peer, struct cache_local *local);
/* May `count` more buckets become dirty? CACHE_ROOM_LITTLE: what can do without had better (half
   way from the soft to the hard limit); CACHE_ROOM_NONE: wait. Write-back is told to hurry. */
enum cache_room { CACHE_ROOM_NONE, CACHE_ROOM_LITTLE, CACHE_ROOM_ENOUGH };
enum cache_room cache_epoch_room(struct peer *peer, uint32_t count);

/* For cache_flush.c: the lists of an epoch, and its numbers. */
void cache_epoch_link(struct cache *cache, struct cache_list *list, uint32_t entry, bool first);
void cache_epoch_unlink(struct cache *cache, struct cache_list *list, uint32_t entry);
/* An entry that is in no list any more is not dirty any more. */
void cache_epoch_forget(struct peer *peer, struct cache_local *local, uint32_t entry);
void cache_epoch_raise(_Atomic uint32_t *place, uint32_t number);
/* The epoch up to which all that has been written so far lies: the open one, if there is
   anything in it. */
uint32_t cache_epoch_goal(const struct cache_local *local);
/* Is more dirty than that share of the cache? */
bool cache_epoch_dirty_over(const struct peer *peer, uint64_t percent, uint32_t more);

/* --- cache_flush.c */
/* Each turn: starts write-backs that are due, sees to waiting syncs, errors, rates. True when
   something moved. */
bool cache_flush_turn(struct peer *peer);
/* When it wants to be woken at the latest; 0: no need. */
uint64_t cache_flush_due_ns(struct peer *peer);
/* Calls barrier->done() when all of the volume that is dirty now, on all shards, is at the blocker
   and flushed, and clean here; that may be at once, before it returns. Failed write-backs are tried
   again, not reported. The barrier is the caller's and stays until then. */
void cache_flush_barrier(
	struct peer *peer, struct cache_local *local, struct cache_barrier *barrier);

/* --- cache_sync.c */
void cache_sync_flush(struct peer *peer, struct job *job); /* serves XSEG_OP_FLUSH */
/* A FUA write whose buckets are dirty in `epoch`: completes the job when they are where the
   volume's ack wants them. The job must not have donated pages. */
void cache_sync_write(
	struct peer *peer, struct cache_local *local, struct job *job, uint32_t epoch);
/* Something was written past the buckets: the store needs a flush. */
void cache_sync_wrote(struct peer *peer, struct cache_local *local);
/* A flush is asked for: what is handed on and may have been answered has to be covered by it. */
void cache_sync_needs_flush(struct peer *peer, struct cache_local *local);
/* XSEG_CONTROL_LEAVE and _FENCE: the job goes on when the store has all there is, or fails. */
void cache_sync_leave(struct peer *peer, struct job *job);
/* A FENCE that has waited for that: what is clean is dropped, and it is handed on. */
void cache_sync_fenced(struct peer *peer, struct job *job);

#endif
