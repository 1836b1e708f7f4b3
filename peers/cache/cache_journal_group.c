/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal's worker: takes all that waits, writes it, syncs once, says how it went. One group
 * after the other until nothing waits, then the worker is given back.
 */
#include "peers/cache/cache_journal_group.h"

#include <base/clock.h>
#include <base/container.h>
#include <base/log.h>
#include <errno.h>
#include <peer/keep.h>
#include <string.h>

#define ROOM "cache_journal"
#define BACKOFF_MIN_NS 10000000u
#define BACKOFF_MAX_NS 5000000000u
#define WALK_STEP 1024u /* records looked at before others get the mutex */

void journal_group_unhook(struct cache_journal *journal, struct cache_journal_batch *batch)
{
	struct journal_volume *volume = batch->at;
	batch->at = NULL;
	if (!volume)
		return;
	volume->batches--;
	journal_volume_put(&journal->volumes, volume);
}

void journal_group_end(struct cache_journal *journal, struct cache_journal_batch *batch, int error)
{
	struct journal_end *end = &journal->ends[batch->peer->shard];
	struct peer *peer = batch->peer;
	batch->state = BATCH_ENDED;
	batch->error = error;
	journal_group_unhook(journal, batch);
	TAILQ_INSERT_TAIL(&end->batches, batch, link);
	atomic_fetch_add_explicit(&end->count, 1, memory_order_release);
	peer_wake(peer, peer->shard);
}

/* --- the worker: a group ------------------------------------------------------------------- */

/* The marks that are unsynced, and all batches that wait. False: nothing. */
static bool group_take(struct cache_journal *journal)
{
	struct journal_volume *volume;
	struct cache_journal_batch *batch, *next;
	journal->marks_count = 0;
	TAILQ_FOREACH (volume, &journal->volumes.unsynced, link) {
		if (journal->marks_count == JOURNAL_MARKS_MAX)
			break;
		journal->marks[journal->marks_count++] =
			(struct journal_mark){.volume = volume->id, .epoch = volume->mark};
	}
	for (batch = TAILQ_FIRST(&journal->waiting); batch; batch = next) {
		next = TAILQ_NEXT(batch, link);
		if (!batch->at &&
			(batch->at = journal_volume_get(&journal->volumes, batch->volume)))
			batch->at->batches++;
		if (batch->mark || !batch->at)
			continue;
		TAILQ_REMOVE(&journal->waiting, batch, link);
		TAILQ_INSERT_TAIL(&journal->writing, batch, link);
		batch->state = BATCH_WRITING;
		batch->at->writing++;
	}
	return journal->marks_count || !TAILQ_EMPTY(&journal->writing);
}

void journal_group_release(struct cache_journal *journal)
{
	const struct journal_span *span;
	pthread_mutex_lock(&journal->mutex);
	for (uint32_t n = 1; (span = journal_log_stale(&journal->log)); n++) {
		const struct journal_volume *volume =
			span->volume ? journal_volume_find(&journal->volumes, span->volume) : NULL;
		if (span->volume && !(volume && journal_volume_covers(volume, span->epoch)))
			break;
		journal_log_stale_next(&journal->log);
		if (n % WALK_STEP == 0) {
			pthread_mutex_unlock(&journal->mutex);
			pthread_mutex_lock(&journal->mutex);
		}
	}
	pthread_mutex_unlock(&journal->mutex);
}

/* The records from `at` to the tail are no more. */
static void log_forget(struct cache_journal *journal, struct journal_at at)
{
	struct journal_log *log = &journal->log;
	pthread_mutex_lock(&journal->mutex);
	while (at.lsn != log->stale.lsn) {
		const struct journal_span *span = &log->spans[at.offset / JOURNAL_BLOCK];
		struct journal_volume *volume =
			span->volume ? journal_volume_find(&journal->volumes, span->volume) : NULL;
		if (volume) {
			volume->records--;
			journal_volume_put(&journal->volumes, volume);
		}
		at.offset =
			journal_log_next(log, at.offset, (uint64_t)span->blocks * JOURNAL_BLOCK);
		at.lsn++;
	}
	pthread_mutex_unlock(&journal->mutex);
}

/* What was put is durable, and counted. */
static int log_commit(struct cache_journal *journal)
{
	struct journal_log *log = &journal->log;
	struct journal_at at = log->begin;
	bool anything = log->head.lsn != at.lsn;
	int error = journal_log_commit(log);
	if (error || !anything)
		return error;
	journal->wrote = true;
	pthread_mutex_lock(&journal->mutex);
	while (at.lsn != log->head.lsn) {
		const struct journal_span *span = &log->spans[at.offset / JOURNAL_BLOCK];
		if (span->volume)
			journal_volume_see(
				journal_volume_find(&journal->volumes, span->volume), span->epoch);
		at.offset =
			journal_log_next(log, at.offset, (uint64_t)span->blocks * JOURNAL_BLOCK);
		at.lsn++;
	}
	pthread_mutex_unlock(&journal->mutex);
	return 0;
}

/* The tail goes as far as it may; what was put is committed first. */
int journal_group_checkpoint(struct cache_journal *journal)
{
	struct journal_log *log = &journal->log;
	struct journal_at tail = {.offset = log->super.tail, .lsn = log->super.tail_lsn};
	int error = log_commit(journal);
	error = error ? error : journal_file_checkpoint(log);
	if (!error) {
		log_forget(journal, tail);
		journal->wrote = true;
	}
	return error;
}

/* When all that is in the file is the store's, an empty file says so better than marks. */
static int group_marks(struct cache_journal *journal)
{
	struct journal_log *log = &journal->log;
	journal_group_release(journal);
	bool all = log->stale.lsn == log->begin.lsn;
	if (log->stale.used && (all || log->stale.used >= log->ring / 4)) {
		int error = journal_group_checkpoint(journal);
		if (error || all)
			return error;
	}
	if (!journal->marks_count)
		return 0;
	int error = journal_log_put_marks(log, journal->marks, journal->marks_count);
	if (error == -ENOSPC && log->stale.used) {
		error = journal_group_checkpoint(journal);
		error = error ? error
			      : journal_log_put_marks(log, journal->marks, journal->marks_count);
	}
	if (error == -ENOSPC)
		journal->marks_count = 0;
	return error;
}

static int group_batch(struct cache_journal *journal, struct cache_journal_batch *batch)
{
	struct journal_log *log = &journal->log;
	uint32_t taken;
	while (batch->reached < batch->count) {
		int error = journal_log_put(log, batch, &taken);
		if (error == -ENOSPC && log->stale.used) {
			error = journal_group_checkpoint(journal);
			taken = 0;
		}
		if (error)
			return error;
		batch->reached += taken;
	}
	return 0;
}

/* After a failure: whatever it left at the head is to be out of the way first. */
static int group_probe(struct cache_journal *journal)
{
	int error = journal_log_put_pad(&journal->log);
	return error == -ENOSPC ? journal_group_checkpoint(journal) : error;
}

static int group_write(struct cache_journal *journal)
{
	struct cache_journal_batch *batch;
	journal->full = journal->wrote = false;
	bool broken = atomic_load_explicit(&journal->error, memory_order_relaxed) != 0;
	int error = broken ? group_probe(journal) : 0;
	error = error ? error : group_marks(journal);
	TAILQ_FOREACH (batch, &journal->writing, link) {
		if (error)
			break;
		error = group_batch(journal, batch);
	}
	if (error == -ENOSPC) {
		journal->full = true;
		error = 0;
	}
	if (error)
		journal_log_rollback(&journal->log);
	return error ? error : log_commit(journal);
}

/* --- the worker: how it went; all under the mutex ------------------------------------------ */

/* Those that are written go home; the others wait again, in their order, before all others. */
static void group_batches_end(struct cache_journal *journal, int error)
{
	struct cache_journal_batch *batch = TAILQ_FIRST(&journal->writing);
	while (batch) {
		struct cache_journal_batch *next = TAILQ_NEXT(batch, link);
		batch->at->writing--;
		if (!error)
			batch->next = batch->reached;
		batch->reached = batch->next;
		if (!error && batch->next == batch->count) {
			TAILQ_REMOVE(&journal->writing, batch, link);
			journal_group_end(journal, batch, 0);
		}
		batch = next;
	}
	while ((batch = TAILQ_LAST(&journal->writing, batch_queue))) {
		TAILQ_REMOVE(&journal->writing, batch, link);
		TAILQ_INSERT_HEAD(&journal->waiting, batch, link);
		batch->state = BATCH_WAITING;
	}
}

static void group_marks_durable(struct cache_journal *journal)
{
	for (uint32_t i = 0; i < journal->marks_count; i++) {
		struct journal_volume *volume =
			journal_volume_find(&journal->volumes, journal->marks[i].volume);
		if (!volume)
			continue;
		volume->durable = journal->marks[i].epoch;
		volume->has_durable = true;
		if (volume->unsynced && volume->durable == volume->mark) {
			TAILQ_REMOVE(&journal->volumes.unsynced, volume, link);
			volume->unsynced = false;
			journal_volume_put(&journal->volumes, volume);
		}
	}
}

/* Marks whose epoch is written, or cannot be now. */
static void group_marks_end(struct cache_journal *journal, int error)
{
	struct cache_journal_batch *batch = TAILQ_FIRST(&journal->waiting);
	while (batch) {
		struct cache_journal_batch *next = TAILQ_NEXT(batch, link);
		const struct journal_volume *volume = batch->at;
		if (batch->mark &&
			(error || (volume->has_durable &&
					  !journal_before(volume->durable, batch->epoch)))) {
			TAILQ_REMOVE(&journal->waiting, batch, link);
			journal_group_end(journal, batch, error);
		}
		batch = next;
	}
}

static void group_failed(struct cache_journal *journal, int error)
{
	uint64_t backoff = journal->backoff_ns * 2;
	if (!atomic_load_explicit(&journal->error, memory_order_relaxed))
		log_error(ROOM, "journal '%s' cannot be written: %s; flushes wait for the store",
			journal->log.path, strerror(-error));
	backoff = backoff < BACKOFF_MIN_NS ? BACKOFF_MIN_NS : backoff;
	journal->backoff_ns = backoff > BACKOFF_MAX_NS ? BACKOFF_MAX_NS : backoff;
	journal->retry_ns = clock_now_ns() + journal->backoff_ns;
	atomic_store_explicit(&journal->due_ns, journal->retry_ns, memory_order_relaxed);
	atomic_store_explicit(&journal->error, error, memory_order_release);
}

static void group_worked(struct cache_journal *journal)
{
	if (!journal->wrote)
		return;
	if (atomic_load_explicit(&journal->error, memory_order_relaxed))
		log_info(ROOM, "journal '%s' can be written again", journal->log.path);
	journal->backoff_ns = 0;
	journal->retry_ns = 0;
	atomic_store_explicit(&journal->error, 0, memory_order_release);
}

static void group_end(struct cache_journal *journal, int error)
{
	const struct journal_log *log = &journal->log;
	group_batches_end(journal, error);
	if (!error)
		group_marks_durable(journal);
	group_marks_end(journal, error);
	if (error)
		group_failed(journal, error);
	else
		group_worked(journal);
	journal->stuck = journal->full && !journal->wrote;
	atomic_store_explicit(&journal->used, log->head.used, memory_order_relaxed);
	atomic_store_explicit(&journal->hurry,
		error || journal->full || log->head.used > log->ring / 4 * 3, memory_order_relaxed);
}

/* Is there something to do now? After a failure: to see whether it works again. */
static bool journal_due(const struct cache_journal *journal)
{
	if (journal->retry_ns)
		return clock_now_ns() >= journal->retry_ns;
	return !journal->stuck &&
	       !(TAILQ_EMPTY(&journal->waiting) && TAILQ_EMPTY(&journal->volumes.unsynced));
}

static void journal_run(struct worker_item *item)
{
	struct cache_journal *journal = container_of(item, struct cache_journal, worker);
	pthread_mutex_lock(&journal->mutex);
	while (journal_due(journal) && (group_take(journal) || atomic_load_explicit(&journal->error,
								       memory_order_relaxed))) {
		pthread_mutex_unlock(&journal->mutex);
		int error = group_write(journal);
		pthread_mutex_lock(&journal->mutex);
		group_end(journal, error);
	}
	pthread_mutex_unlock(&journal->mutex);
}

static void journal_ran(struct worker_item *item)
{
	struct cache_journal *journal = container_of(item, struct cache_journal, worker);
	pthread_mutex_lock(&journal->mutex);
	journal->running = false;
	journal_group_go(journal, item->post.peer);
	pthread_mutex_unlock(&journal->mutex);
}

void journal_group_go(struct cache_journal *journal, struct peer *peer)
{
	if (journal->running || !journal_due(journal))
		return;
	journal->running = true;
	atomic_store_explicit(&journal->due_ns, 0, memory_order_relaxed);
	worker_run(peer, &journal->worker, journal_run, journal_ran);
}
