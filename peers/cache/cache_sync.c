/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FLUSH and FUA: who waits for which epoch, and when that is true. A job that waits has its epoch
 * in arg0 and in arg1 how many writes past the epochs there were.
 *
 *   ack blocker    the store has all up to the epoch, flushed
 *   ack journal    the journal has it, or the store: this shard's part; a FLUSH asks all shards
 *   ack volatile   at once
 *
 * In all of them but the last, what was written past the epochs is flushed by the store. FLUSH with
 * FUA, LEAVE and FENCE wait for the blocker whatever the ack.
 */
#include <base/crash.h>
#include <errno.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_flush.h"

void cache_sync_fenced(struct peer *peer, struct job *job)
{
	struct cache *cache = cache_of(peer);
	TAILQ_INSERT_TAIL(&cache->asked.fences, job, link);
	cache->hurry = true;
}

uint64_t cache_sync_sign(uint32_t epoch, uint64_t forwarded) { return epoch + forwarded; }

static bool settles(const struct job *job)
{
	return job->op == XSEG_OP_FLUSH && job->flags & XSEG_F_FUA;
}

static bool by_store(const struct job *job) { return job->op == XSEG_OP_CONTROL || settles(job); }

/* Those that came as controls go on from here; only a FENCE has an offset: since which term. */
static void sync_control(struct peer *peer, struct job *job)
{
	const struct cache_volume *volume = cache_volume_find(peer, job->key.volume);
	job->arg0 = job->offset == 0 ? XSEG_CONTROL_LEAVE : XSEG_CONTROL_FENCE;
	job->arg1 = volume ? atomic_load(&volume->next_term) : 0;
	if (job->offset == 0)
		job_forward(job, CACHE_STORE);
	else
		cache_sync_fenced(peer, job);
}

static void sync_end(struct cache_local *local, struct job *job)
{
	TAILQ_REMOVE(&local->syncs, job, link);
	if (settles(job))
		atomic_fetch_sub(&local->volume->settling, 1);
}

static void sync_complete(struct peer *peer, struct job *job)
{
	crash_point("cache.sync.answer");
	if (unlikely(job->op == XSEG_OP_CONTROL))
		sync_control(peer, job);
	else
		job_complete(job, job->op == XSEG_OP_WRITE ? job->length : 0);
}

static bool durable(const struct cache_local *local, uint32_t epoch)
{
	return !cache_epoch_before(atomic_load(&local->volume->durable), epoch);
}

static bool ack_is(const struct cache_local *local, enum cache_ack ack)
{
	return atomic_load_explicit(&local->volume->ack, memory_order_relaxed) == (uint32_t)ack;
}

static bool journal_acks(struct peer *peer, const struct cache_local *local)
{
	return cache_shared(peer)->journal && ack_is(local, CACHE_ACK_JOURNAL);
}

/* Everything that this shard has up to the epoch is in the journal. */
static bool journaled(const struct cache_local *local, uint32_t number)
{
	const struct cache_epoch *epoch = TAILQ_FIRST(&local->epochs);
	if (!cache_epoch_is_closed(local, number))
		return false;
	for (; epoch && !cache_epoch_before(number, epoch->number); epoch = TAILQ_NEXT(epoch, link))
		if (!epoch->journaled)
			return false;
	return true;
}

static bool sync_is_true(struct peer *peer, const struct cache_local *local, const struct job *job)
{
	uint32_t epoch = (uint32_t)job->arg0;
	if (atomic_load(&local->volume->forwarded_flushed) < job->arg1)
		return false;
	return durable(local, epoch) ||
	       (!by_store(job) && journal_acks(peer, local) && journaled(local, epoch));
}

bool cache_sync_answer(struct peer *peer, struct cache_local *local)
{
	struct job *job, *next;
	bool moved = false;
	for (job = TAILQ_FIRST(&local->syncs); job; job = next) {
		next = TAILQ_NEXT(job, link);
		if (!sync_is_true(peer, local, job))
			continue;
		sync_end(local, job);
		sync_complete(peer, job);
		moved = true;
	}
	return moved;
}

/* What the store has refused since; who waits for it hears of it, and the data stays dirty. */
bool cache_sync_failures(struct peer *peer, struct cache_local *local)
{
	struct cache_volume *volume = local->volume;
	uint32_t failures = atomic_load(&volume->failures);
	struct job *job, *next;
	if (likely(failures == local->failures_seen))
		return false;
	int error = atomic_load(&volume->error);
	local->failures_seen = failures;
	for (job = TAILQ_FIRST(&local->syncs); job; job = next) {
		next = TAILQ_NEXT(job, link);
		bool stored = by_store(job) || atomic_load(&volume->forwarded_flushed) < job->arg1;
		if (sync_is_true(peer, local, job) || (journal_acks(peer, local) && !stored))
			continue;
		sync_end(local, job);
		job_fail(job, error ? error : -EIO);
	}
	return true;
}

/* --- the journal ------------------------------------------------------------------------- */

/* The epoch's waiting buckets, as many as go at once. */
static void batch_fill(struct peer *peer, struct cache_batch *batch)
{
	struct cache *cache = cache_of(peer);
	uint32_t count = 0;
	while (batch->cursor != XCACHE_NONE && count < CACHE_BATCH_ITEMS) {
		const struct xcache_entry *e = xcache_entry(cache->index, batch->cursor);
		const struct xseg_page_descriptor *about = peer_page_about(peer, e->page);
		struct xseg_key key;
		must(cache_meta_key(peer, about->object, &key));
		batch->items[count++] = (struct cache_journal_item){.object = key.object,
			.key_epoch = key.epoch,
			.bucket = e->bucket,
			.sectors = atomic_load(&about->dirty),
			.data = peer_page_memory(peer, e->page)};
		batch->cursor = e->next;
	}
	batch->batch.count = count;
}

static void batch_end(struct cache_batch *batch, bool journaled_all)
{
	struct cache_local *local = batch->local;
	struct peer *peer = batch->batch.peer;
	batch->epoch->journaling = false;
	batch->epoch->journaled = journaled_all;
	local->batch = NULL;
	slab_give(&cache_of(peer)->pools.batches, batch);
	cache_of(peer)->hurry = true;
}

static void batch_done(struct cache_journal_batch *written, int error)
{
	struct cache_batch *batch = written->context;
	struct peer *peer = written->peer;
	crash_point("cache.sync.journaled");
	if (error || batch->cursor == XCACHE_NONE) {
		batch_end(batch, error == 0);
		return;
	}
	batch_fill(peer, batch);
	cache_journal_append(cache_shared(peer)->journal, written);
}

static void batch_begin(struct peer *peer, struct cache_local *local, struct cache_epoch *epoch)
{
	struct cache_batch *batch = slab_take(&cache_of(peer)->pools.batches);
	if (!batch)
		return; /* when another volume's is done */
	batch->local = local;
	batch->epoch = epoch;
	batch->cursor = epoch->dirty.head;
	batch->batch = (struct cache_journal_batch){.peer = peer,
		.volume = atomic_load(&local->volume->id),
		.term = atomic_load(&local->volume->term),
		.epoch = epoch->number,
		.items = batch->items,
		.done = batch_done,
		.context = batch};
	epoch->journaling = true;
	local->batch = batch;
	batch_fill(peer, batch);
	cache_journal_append(cache_shared(peer)->journal, &batch->batch);
}

/* The highest epoch that somebody waits for; CACHE_NO_EPOCH: nobody does. */
static uint32_t journal_goal(const struct cache_local *local)
{
	const struct job *job;
	uint32_t goal = CACHE_NO_EPOCH;
	TAILQ_FOREACH (job, &local->syncs, link)
		if (goal == CACHE_NO_EPOCH || cache_epoch_before(goal, (uint32_t)job->arg0))
			goal = (uint32_t)job->arg0;
	return goal;
}

bool cache_sync_cancel(struct peer *peer, struct cache_local *local)
{
	if (!cache_journal_cancel(cache_shared(peer)->journal, &local->batch->batch))
		return false;
	batch_end(local->batch, false);
	return true;
}

/* The journal has no room or no disk: then the store has to do it. */
static void journal_refused(struct peer *peer, struct cache_local *local)
{
	uint32_t number = local->batch->epoch->number;
	if (cache_journal_hurry(cache_shared(peer)->journal) && cache_sync_cancel(peer, local))
		cache_flush_want(peer, local, number);
}

bool cache_sync_journal(struct peer *peer, struct cache_local *local)
{
	struct cache_shared *shared = cache_shared(peer);
	if (likely(!shared->journal || TAILQ_EMPTY(&local->syncs)))
		return false;
	if (local->batch) {
		journal_refused(peer, local);
		return false;
	}
	uint32_t goal = journal_goal(local);
	if (goal == CACHE_NO_EPOCH || !ack_is(local, CACHE_ACK_JOURNAL))
		return false;
	if (!cache_epoch_is_closed(local, goal))
		cache_epoch_close(peer, local);
	struct cache_epoch *epoch;
	TAILQ_FOREACH (epoch, &local->epochs, link) {
		if (cache_epoch_before(goal, epoch->number))
			return false;
		if (epoch->journaled)
			continue;
		if (epoch->writing || epoch->written.count || cache_journal_hurry(shared->journal))
			cache_flush_want(peer, local, epoch->number);
		else if (epoch->dirty.count)
			batch_begin(peer, local, epoch);
		return true;
	}
	return false;
}

/* --- asked ------------------------------------------------------------------------------- */

static void sync_wait(struct peer *peer, struct cache_local *local, struct job *job, uint32_t epoch)
{
	/* what failed before it was asked is not its business */
	cache_sync_failures(peer, local);
	bool all = job->op == XSEG_OP_FLUSH || job->op == XSEG_OP_CONTROL;
	if (all)
		cache_sync_needs_flush(peer, local);
	job->arg0 = epoch;
	job->arg1 = all ? atomic_load(&local->volume->forwarded) : 0;
	TAILQ_INSERT_TAIL(&local->syncs, job, link);
	cache_epoch_enqueue(peer, local);
	cache_of(peer)->hurry = true;
	if (!journal_acks(peer, local) || by_store(job))
		cache_flush_want(peer, local, epoch);
	cache_flush_local(peer, local);
}

/* A store that is a journal itself may have some of it only there, unless nothing was written since
   it was flushed with FUA last. Where nothing is to be written it is flushed for that alone. */
static void settle(struct peer *peer, struct cache_local *local, struct job *job)
{
	struct cache_volume *volume = local->volume;
	uint32_t epoch = cache_epoch_goal(local);
	bool over = durable(local, epoch) || atomic_load(&volume->flushing);
	atomic_fetch_add(&volume->settling, 1);
	if (over && atomic_load(&volume->settled) !=
			    cache_sync_sign(epoch, atomic_load(&volume->forwarded)))
		cache_sync_wrote(peer, local);
	sync_wait(peer, local, job, epoch);
}

/* Not safe, but in order: what is written after it reaches the store after it. */
static void sync_at_once(struct peer *peer, struct cache_local *local, struct job *job)
{
	cache_epoch_close(peer, local);
	sync_complete(peer, job);
}

void cache_sync_flush(struct peer *peer, struct job *job)
{
	struct cache_local *local = NULL;
	if (job->key.volume && job->key.epoch <= XSEG_EPOCH_DATA_MAX)
		local = cache_volume_local_get(peer, job->key.volume);
	/* what was passed on is not known here; what is dirty would not be there */
	bool passing = local && cache_phase_now(peer) == CACHE_PASSING && local->dirty == 0 &&
		       atomic_load(&local->volume->dirty) == 0;
	if (!local || passing)
		job_forward(job, CACHE_STORE);
	else if (settles(job))
		settle(peer, local, job);
	else if (ack_is(local, CACHE_ACK_VOLATILE) && cache_phase_now(peer) == CACHE_CACHING)
		sync_at_once(peer, local, job);
	else
		sync_wait(peer, local, job, cache_epoch_goal(local));
}

void cache_sync_leave(struct peer *peer, struct job *job)
{
	struct cache_local *local = cache_volume_local_get(peer, job->key.volume);
	if (local)
		sync_wait(peer, local, job, cache_epoch_goal(local));
	else
		job_forward(job, CACHE_STORE);
}

void cache_sync_write(struct peer *peer, struct cache_local *local, struct job *job, uint32_t epoch)
{
	if (ack_is(local, CACHE_ACK_VOLATILE) && cache_phase_now(peer) == CACHE_CACHING)
		sync_at_once(peer, local, job);
	else
		sync_wait(peer, local, job, epoch);
}

void cache_sync_wrote(struct peer *peer, struct cache_local *local)
{
	(void)peer;
	atomic_fetch_add(&local->volume->forwarded, 1);
}

/* While all is passed on, nothing of it is counted. */
void cache_sync_needs_flush(struct peer *peer, struct cache_local *local)
{
	struct cache_volume *volume = local->volume;
	uint32_t phases = atomic_load(&cache_shared(peer)->phases);
	if (!atomic_load(&volume->bypass) && cache_phase_now(peer) != CACHE_PASSING &&
		atomic_load(&volume->phases) == phases)
		return;
	cache_sync_wrote(peer, local);
	atomic_store(&volume->phases, phases); /* last: whoever sees it sees the count */
}
