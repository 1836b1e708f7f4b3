/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cache_journal.c (the shards' side) and cache_journal_group.c (the worker) share.
 *
 * Threads: all under the mutex but the log, which is the worker's, and what is atomic.
 */
#ifndef SKERRY_CACHE_JOURNAL_GROUP_H
#define SKERRY_CACHE_JOURNAL_GROUP_H

#include <peer/worker.h>
#include <pthread.h>
#include <stdatomic.h>
#include <xseg/layout.h>

#include "peers/cache/cache_journal_log.h"

enum { BATCH_FREE, BATCH_WAITING, BATCH_WRITING, BATCH_ENDED };
TAILQ_HEAD(batch_queue, cache_journal_batch);

struct journal_end {
	_Alignas(64) _Atomic uint32_t count;
	struct batch_queue batches;
};

struct cache_journal {
	pthread_mutex_t mutex; /* all but the log, which is the worker's */
	struct worker_item worker;
	bool running; /* the item is out */
	bool stuck;   /* nothing fits until the store has more */
	uint8_t identity[16];
	uint64_t size;
	struct journal_log log;
	struct journal_volumes volumes;
	struct batch_queue waiting, writing;
	struct journal_end ends[XSEG_PORT_LANES_MAX];
	/* of the group that is being written */
	struct journal_mark marks[JOURNAL_MARKS_MAX];
	uint32_t marks_count;
	bool full, wrote;
	uint64_t backoff_ns;
	uint64_t retry_ns;	 /* after a failure: not before */
	_Atomic uint64_t due_ns; /* the same, for the lanes; 0 while it is tried */
	_Atomic uint64_t used;
	_Atomic int error;
	_Atomic bool hurry;
};

/* --- all under the mutex ------------------------------------------------------------------- */

/* Has left its queue: to be told on its lane. */
void journal_group_end(struct cache_journal *journal, struct cache_journal_batch *batch, int error);
/* The volume does not count it any more. */
void journal_group_unhook(struct cache_journal *journal, struct cache_journal_batch *batch);
/* Starts the worker if there is something to do, and none is at it. */
void journal_group_go(struct cache_journal *journal, struct peer *peer);

/* --- by whoever may write the log, without the mutex --------------------------------------- */

/* How far the tail may go, as of now; and there it goes. */
void journal_group_release(struct cache_journal *journal);
int journal_group_checkpoint(struct cache_journal *journal);

#endif
