/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal between the shards and its file: batches wait in one queue, one worker at a time
 * takes all that is there, writes it, syncs once, and hands each back to its lane.
 *
 *   FREE --append--> WAITING --worker--> WRITING --synced--> ENDED --turn--> FREE, done()
 *                     |  ^-- failed, no room --'                ^
 *                     |---- cancel --> FREE                     |
 *                     '---- the store has it (a mark) ----------'
 */
#include <base/log.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <string.h>

#include "peers/cache/cache_journal_group.h"

#define ROOM "cache_journal"

/* --- batches come and go; all under the mutex ---------------------------------------------- */

static void batch_wait(struct cache_journal *journal, struct cache_journal_batch *batch,
	struct journal_volume *volume, bool mark)
{
	must(batch->state == BATCH_FREE && batch->done);
	batch->state = BATCH_WAITING;
	batch->mark = mark;
	batch->error = 0;
	batch->next = batch->reached = 0;
	batch->at = volume;
	if (volume)
		volume->batches++;
	TAILQ_INSERT_TAIL(&journal->waiting, batch, link);
}

/* What the store has need not be written. */
static void batches_moot(struct cache_journal *journal, const struct journal_volume *volume)
{
	struct cache_journal_batch *batch = TAILQ_FIRST(&journal->waiting);
	while (batch) {
		struct cache_journal_batch *next = TAILQ_NEXT(batch, link);
		if (batch->at == volume && !batch->mark &&
			journal_volume_covers(volume, batch->epoch)) {
			TAILQ_REMOVE(&journal->waiting, batch, link);
			journal_group_end(journal, batch, 0);
		}
		batch = next;
	}
}

static void mark_later(struct cache_journal *journal, struct journal_volume *volume)
{
	if (!volume->unsynced)
		TAILQ_INSERT_TAIL(&journal->volumes.unsynced, volume, link);
	volume->unsynced = true;
}

/* --- for the shards ------------------------------------------------------------------------ */

void cache_journal_append(struct cache_journal *journal, struct cache_journal_batch *batch)
{
	must(batch->volume != 0);
	pthread_mutex_lock(&journal->mutex);
	struct journal_volume *volume = journal_volume_get(&journal->volumes, batch->volume);
	batch_wait(journal, batch, volume, false);
	if (volume && journal_volume_covers(volume, batch->epoch)) {
		TAILQ_REMOVE(&journal->waiting, batch, link);
		journal_group_end(journal, batch, 0);
	}
	journal_group_go(journal, batch->peer);
	pthread_mutex_unlock(&journal->mutex);
}

/* Does the file hold, or will it, what a replay would take for newer than the store's? */
static bool mark_is_needed(const struct journal_volume *volume)
{
	if (volume->writing)
		return true;
	return volume->records &&
	       !(volume->has_durable && !journal_before(volume->durable, volume->newest));
}

bool cache_journal_durable(struct cache_journal *journal, struct cache_journal_batch *batch)
{
	bool broken = cache_journal_error(journal) != 0, at_once = true;
	pthread_mutex_lock(&journal->mutex);
	/* a write that failed may have left behind what is counted no more */
	struct journal_volume *volume =
		broken ? journal_volume_get(&journal->volumes, batch->volume)
		       : journal_volume_find(&journal->volumes, batch->volume);
	if (volume) {
		journal_volume_mark(volume, batch->epoch);
		volume->batches++; /* stays */
		batches_moot(journal, volume);
		volume->batches--;
		at_once = broken || !mark_is_needed(volume);
		if (broken || !at_once)
			mark_later(journal, volume);
		if (!at_once)
			batch_wait(journal, batch, volume, true);
		else if (!broken)
			journal_volume_put(&journal->volumes, volume);
		journal->stuck = false;
		journal_group_go(journal, batch->peer);
	}
	pthread_mutex_unlock(&journal->mutex);
	return at_once;
}

bool cache_journal_cancel(struct cache_journal *journal, struct cache_journal_batch *batch)
{
	pthread_mutex_lock(&journal->mutex);
	bool waits = batch->state == BATCH_WAITING;
	if (waits) {
		TAILQ_REMOVE(&journal->waiting, batch, link);
		batch->state = BATCH_FREE;
		journal_group_unhook(journal, batch);
		journal->stuck = false;
		journal_group_go(journal, batch->peer);
	}
	pthread_mutex_unlock(&journal->mutex);
	return waits;
}

bool cache_journal_turn(struct cache_journal *journal, struct peer *peer)
{
	struct journal_end *end = &journal->ends[peer->shard];
	uint64_t due_ns = cache_journal_due_ns(journal);
	bool due = due_ns && peer_now_ns(peer) >= due_ns;
	if (!due && atomic_load_explicit(&end->count, memory_order_acquire) == 0)
		return false;
	struct batch_queue ended = TAILQ_HEAD_INITIALIZER(ended);
	struct cache_journal_batch *batch;
	pthread_mutex_lock(&journal->mutex);
	TAILQ_CONCAT(&ended, &end->batches, link);
	atomic_store_explicit(&end->count, 0, memory_order_relaxed);
	if (due)
		journal_group_go(journal, peer);
	pthread_mutex_unlock(&journal->mutex);
	bool moved = !TAILQ_EMPTY(&ended);
	while ((batch = TAILQ_FIRST(&ended))) {
		TAILQ_REMOVE(&ended, batch, link);
		batch->state = BATCH_FREE;
		batch->done(batch, batch->error);
	}
	return moved;
}

uint64_t cache_journal_due_ns(const struct cache_journal *journal)
{
	return atomic_load_explicit(&journal->due_ns, memory_order_relaxed);
}

bool cache_journal_hurry(const struct cache_journal *journal)
{
	return atomic_load_explicit(&journal->hurry, memory_order_relaxed);
}

int cache_journal_error(const struct cache_journal *journal)
{
	return atomic_load_explicit(&journal->error, memory_order_acquire);
}

uint64_t cache_journal_used(const struct cache_journal *journal)
{
	return atomic_load_explicit(&journal->used, memory_order_relaxed);
}

uint64_t cache_journal_size(const struct cache_journal *journal) { return journal->size; }

/* --- begin and end ------------------------------------------------------------------------- */

/* The size that is asked for, if nothing has to be kept. */
static int settle(struct cache_journal *journal, const struct cache_journal_config *config,
	const struct journal_why *why)
{
	struct journal_log *log = &journal->log;
	uint64_t size = config->size ? config->size : CACHE_JOURNAL_SIZE_DEFAULT;
	size = size / JOURNAL_BLOCK * JOURNAL_BLOCK;
	int error = journal_file_start(log);
	if (!error && size != log->super.size && log->head.used == 0)
		error = journal_file_resize(log, size);
	return error ? journal_file_refuse(why, error, "cannot be written: %s", strerror(-error))
		     : 0;
}

static void journal_free(struct cache_journal *journal)
{
	journal_file_close(&journal->log);
	free(journal->log.path);
	free(journal->volumes.items);
	pthread_mutex_destroy(&journal->mutex);
	free(journal);
}

int cache_journal_open(struct cache_journal **out, const struct cache_journal_config *config,
	char *why, size_t why_size)
{
	struct journal_why reason = {why, why_size, config->path};
	struct cache_journal *journal = aligned_alloc(64, sizeof(*journal));
	if (!journal)
		return journal_file_refuse(&reason, -ENOMEM, "cannot be opened: out of memory");
	memset(journal, 0, sizeof(*journal));
	must(pthread_mutex_init(&journal->mutex, NULL) == 0);
	TAILQ_INIT(&journal->waiting);
	TAILQ_INIT(&journal->writing);
	for (unsigned i = 0; i < countof(journal->ends); i++)
		TAILQ_INIT(&journal->ends[i].batches);
	journal->log.fd = -1;
	journal->log.path = strdup(config->path);
	int error = journal_volume_open(&journal->volumes);
	if (error || !journal->log.path)
		error = journal_file_refuse(&reason, -ENOMEM, "cannot be opened: out of memory");
	error = error ? error : journal_file_open(&journal->log, config, &reason);
	error = error ? error : journal_scan(&journal->log, &journal->volumes, &reason);
	error = error ? error : settle(journal, config, &reason);
	if (error) {
		journal_free(journal);
		return error;
	}
	journal->size = journal->log.super.size;
	memcpy(journal->identity, journal->log.identity, sizeof(journal->identity));
	atomic_store(&journal->used, journal->log.head.used);
	*out = journal;
	return 0;
}

/* A journal that holds nothing any more is left empty: the next start has nothing to read. */
void cache_journal_close(struct cache_journal *journal)
{
	must(!journal->running && TAILQ_EMPTY(&journal->waiting));
	journal_group_release(journal);
	if (journal->log.stale.used) {
		int error = journal_group_checkpoint(journal);
		if (error)
			log_warning(ROOM, "journal '%s' cannot be written: %s", journal->log.path,
				strerror(-error));
	}
	journal_free(journal);
}

const uint8_t *cache_journal_identity(const struct cache_journal *journal)
{
	return journal->identity;
}

int cache_journal_replay(struct cache_journal *journal, cache_journal_take_f *take, void *context)
{
	return journal_scan_replay(&journal->log, &journal->volumes, take, context);
}

void cache_journal_found(const struct cache_journal *journal, uint64_t *items, bool *cut)
{
	*items = journal->log.found_items;
	*cut = journal->log.cut;
}

bool cache_journal_newest(struct cache_journal *journal, uint64_t volume, uint32_t *epoch)
{
	pthread_mutex_lock(&journal->mutex);
	const struct journal_volume *at = journal_volume_find(&journal->volumes, volume);
	bool known = at && at->has_newest;
	if (known)
		*epoch = at->newest;
	pthread_mutex_unlock(&journal->mutex);
	return known;
}
