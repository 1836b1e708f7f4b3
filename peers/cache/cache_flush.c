/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Write-back: which epoch may go, what becomes of those that have gone.
 *
 * The states of an entry are drawn in cache_object.h. Epoch e is sent when no shard has anything
 * older that is not clean: were we killed now, the successor writes again what is not clean, and
 * must not put something older over what the store has of e.
 *
 * Who flushes the store: any shard that sees that all shards have written, by `flushing`. It looks
 * at `open`, then at written_low, then at low: each shard moves them so that an entry which is
 * not stored shows in one of them in this order.
 */

#include "peers/cache/cache_flush.h"

#include <base/crash.h>
#include <base/log.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_object.h"

#define FLUSH_EPOCH_BUCKETS 65536u /* an open epoch is closed then */
#define FLUSH_CLEAN_MAX 4096u	   /* entries made clean in one turn */
#define FLUSH_BACKOFF_MIN_NS 10000000u
#define FLUSH_BACKOFF_MAX_NS 5000000000u
#define FLUSH_STOP_FAILURES 5u /* then a stop leaves the rest to the successor */
#define FLUSH_CALM 16u /* flushes for want of room take at most one part of the time in so many */
#define FLUSH_SLOTS_NS 200000u /* no free request: look again */

static uint32_t load(_Atomic uint32_t *place) { return atomic_load(place); }

static void wake_at(struct cache *cache, uint64_t time_ns)
{
	if (cache->writeback.due_ns == 0 || time_ns < cache->writeback.due_ns)
		cache->writeback.due_ns = time_ns;
}

/* --- what the others see of us ----------------------------------------------------------- */

static uint32_t low_of(const struct cache_local *local)
{
	const struct cache_epoch *epoch;
	TAILQ_FOREACH (epoch, &local->epochs, link)
		if (epoch->dirty.count + epoch->writing > 0)
			return epoch->number;
	return CACHE_NO_EPOCH;
}

static uint32_t written_low_of(const struct cache_local *local)
{
	const struct cache_epoch *epoch;
	TAILQ_FOREACH (epoch, &local->epochs, link)
		if (epoch->written.count > 0)
			return epoch->number;
	return CACHE_NO_EPOCH;
}

static bool others_wait(const struct peer *peer, struct cache_volume *volume)
{
	for (unsigned i = 0; i < peer->shards; i++)
		if (i != peer->shard && (load(&volume->low[i]) != CACHE_NO_EPOCH ||
						load(&volume->written_low[i]) != CACHE_NO_EPOCH))
			return true;
	return false;
}

/* Says where this shard is. `written_first`: entries go from waiting to written, else back. */
static void publish(struct peer *peer, struct cache_local *local, bool written_first)
{
	struct cache_volume *volume = local->volume;
	uint32_t low = low_of(local), written = written_low_of(local);
	bool moved = load(&volume->low[peer->shard]) != low ||
		     load(&volume->written_low[peer->shard]) != written;
	if (!moved)
		return;
	if (written_first)
		atomic_store(&volume->written_low[peer->shard], written);
	atomic_store(&volume->low[peer->shard], low);
	atomic_store(&volume->written_low[peer->shard], written);
	if (peer->shards > 1 && others_wait(peer, volume))
		cache_volume_wake_others(peer);
}

/* --- failures ---------------------------------------------------------------------------- */

static void local_back_off(struct peer *peer, struct cache_local *local)
{
	local->backoff_ns *= 2;
	if (local->backoff_ns < FLUSH_BACKOFF_MIN_NS)
		local->backoff_ns = FLUSH_BACKOFF_MIN_NS;
	if (local->backoff_ns > FLUSH_BACKOFF_MAX_NS)
		local->backoff_ns = FLUSH_BACKOFF_MAX_NS;
	local->retry_ns = peer_now_ns(peer) + local->backoff_ns;
}

void cache_flush_failed(struct peer *peer, struct cache_local *local, int error)
{
	struct cache *cache = cache_of(peer);
	struct cache_volume *volume = local->volume;
	if (atomic_exchange(&volume->error, error) == 0)
		log_warning("cache_flush",
			"%s: the store fails for volume %llx: %s; what is dirty is kept and tried "
			"again",
			peer->name, (unsigned long long)atomic_load(&volume->id), strerror(-error));
	atomic_store(&cache_shared(peer)->error, error);
	peer_count(peer, CACHE_RETRIES, 1);
	if (peer_now_ns(peer) >= local->retry_ns)
		local_back_off(peer, local);
	if (cache->stopping && ++cache->writeback.stop_failures >= FLUSH_STOP_FAILURES)
		cache->writeback.gave_up = true;
	cache->hurry = true;
	atomic_fetch_add(&volume->failures, 1);
	cache_volume_wake_others(peer);
}

void cache_flush_worked(struct cache_local *local) { local->backoff_ns = local->retry_ns = 0; }

/* A flush of the store has failed since: what was written before it has to be written again. */
static bool local_redo(struct peer *peer, struct cache_local *local)
{
	struct cache *cache = cache_of(peer);
	struct cache_volume *volume = local->volume;
	uint32_t redo = load(&volume->redo);
	struct cache_epoch *epoch;
	if (likely(load(&volume->redone[peer->shard]) == redo))
		return false;
	TAILQ_FOREACH (epoch, &local->epochs, link)
		while (epoch->written.count > 0) {
			uint32_t entry = epoch->written.head;
			cache_epoch_unlink(cache, &epoch->written, entry);
			cache_bucket_move(xcache_entry(cache->index, entry), BUCKET_DIRTY);
			cache_epoch_link(cache, &epoch->dirty, entry, true);
		}
	publish(peer, local, false);
	atomic_store(&volume->redone[peer->shard], redo);
	return true;
}

/* --- clean ------------------------------------------------------------------------------- */

static uint32_t epoch_clean(struct peer *peer, struct cache_local *local, struct cache_epoch *epoch)
{
	struct cache *cache = cache_of(peer);
	uint32_t count = 0;
	while (epoch->written.count > 0 && count < FLUSH_CLEAN_MAX) {
		uint32_t entry = epoch->written.head;
		cache_epoch_unlink(cache, &epoch->written, entry);
		cache_epoch_forget(peer, local, entry);
		crash_point("cache.flush.cleaning");
		cache_bucket_cleaned(peer, entry);
		count++;
	}
	return count;
}

/* What the store has, flushed. */
static bool local_clean(struct peer *peer, struct cache_local *local)
{
	uint32_t durable = load(&local->volume->durable), count = 0;
	struct cache_epoch *epoch;
	TAILQ_FOREACH (epoch, &local->epochs, link) {
		if (cache_epoch_before(durable, epoch->number) || count >= FLUSH_CLEAN_MAX)
			break;
		count += epoch_clean(peer, local, epoch);
		if (epoch->written.count > 0)
			cache_of(peer)->hurry = true;
	}
	return count > 0;
}

/* --- when -------------------------------------------------------------------------------- */

/* Somebody waits until there is room, here or on another shard. */
static bool is_waited_for(struct peer *peer)
{
	const struct cache *cache = cache_of(peer);
	struct cache_shared *shared = cache_shared(peer);
	if (cache->stopping || cache->waiting.count > 0 || cache->asked.shrinking ||
		cache_phase_now(peer) != CACHE_CACHING ||
		(shared->journal && cache_journal_hurry(shared->journal)))
		return true;
	for (unsigned i = 0; i < peer->shards; i++)
		if (atomic_load_explicit(&shared->waiting[i], memory_order_relaxed))
			return true;
	return false;
}

/*
 * When write-back has to hurry: 0: now, CALM: it need not. Little room alone is no reason to flush
 * the store again and again, where writes go past meanwhile.
 */
#define CALM UINT64_MAX

static uint64_t hurry_ns(struct peer *peer, const struct cache_local *local)
{
	const struct cache_shared *shared = cache_shared(peer);
	struct cache_volume *volume = local->volume;
	if (is_waited_for(peer))
		return 0;
	if (!atomic_load_explicit(&shared->pressed, memory_order_relaxed) &&
		!cache_epoch_dirty_over(peer, cache_options(peer)->dirty_soft, 0))
		return CALM;
	bool bypass = atomic_load_explicit(&volume->ack, memory_order_relaxed) == CACHE_ACK_BLOCKER;
	return bypass ? atomic_load_explicit(&volume->calm_ns, memory_order_relaxed) : 0;
}

static uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The open one, when its time has come; what waits for it alone goes on. */
static void local_close(struct peer *peer, struct cache_local *local)
{
	struct cache *cache = cache_of(peer);
	struct cache_volume *volume = local->volume;
	uint32_t open = load(&volume->open);
	const struct cache_epoch *last = TAILQ_LAST(&local->epochs, cache_epoch_queue);
	bool asked = !cache_epoch_before(load(&volume->wanted), open) &&
		     !cache_epoch_before(load(&volume->durable), open - 1);
	if (last && last->number == open && last->dirty.count > 0) {
		uint64_t until = last->since_ns + cache_options(peer)->epoch;
		if (low_of(local) == open)
			until = earlier(until, hurry_ns(peer, local));
		asked |= peer_now_ns(peer) >= until || last->dirty.count >= FLUSH_EPOCH_BUCKETS;
		if (!asked)
			wake_at(cache, until);
	}
	if (asked)
		cache_epoch_close(peer, local);
}

/* Has everything that is older left all shards? */
static bool epoch_is_next(struct peer *peer, struct cache_local *local, uint32_t number)
{
	struct cache_volume *volume = local->volume;
	bool strict = cache_options(peer)->strict;
	if (!cache_epoch_before(number, load(&volume->open)))
		return false;
	for (unsigned i = 0; i < peer->shards; i++) {
		uint32_t written = load(&volume->written_low[i]);
		if (strict && written != CACHE_NO_EPOCH && cache_epoch_before(written, number))
			return false;
		uint32_t low = load(&volume->low[i]);
		if (low != CACHE_NO_EPOCH && cache_epoch_before(low, number))
			return false;
	}
	return true;
}

static bool epoch_due(struct peer *peer, struct cache_local *local, const struct cache_epoch *epoch)
{
	struct cache *cache = cache_of(peer);
	uint64_t now = peer_now_ns(peer), until = epoch->since_ns + cache_options(peer)->age;
	if (local->retry_ns > now) {
		wake_at(cache, local->retry_ns);
		return false;
	}
	uint64_t hurry = hurry_ns(peer, local);
	if (!cache_epoch_before(load(&local->volume->wanted), epoch->number) || now >= hurry)
		return true;
	if (now < until || now < cache->writeback.rate_ns) {
		wake_at(cache, earlier(hurry, now < until ? until : cache->writeback.rate_ns));
		return false;
	}
	return true;
}

static void rate_spend(struct peer *peer, uint64_t bytes)
{
	struct cache *cache = cache_of(peer);
	uint64_t rate = cache_options(peer)->rate, now = peer_now_ns(peer);
	if (rate == 0)
		return;
	if (cache->writeback.rate_ns < now)
		cache->writeback.rate_ns = now;
	cache->writeback.rate_ns += bytes * 1000000000u / rate;
}

static bool local_write(struct peer *peer, struct cache_local *local)
{
	struct cache *cache = cache_of(peer);
	struct cache_epoch *epoch = TAILQ_FIRST(&local->epochs);
	bool moved = false;
	while (epoch && epoch->dirty.count == 0)
		epoch = TAILQ_NEXT(epoch, link);
	if (!epoch || !cache_epoch_is_closed(local, epoch->number))
		return false;
	if (!epoch->journaling && !cache_run_gather(peer, epoch)) {
		cache->hurry = true;
		return true;
	}
	if (!epoch_is_next(peer, local, epoch->number))
		return false;
	while (epoch->dirty.count > 0 && !epoch->journaling && cache_run_may_start(cache) &&
		epoch_due(peer, local, epoch)) {
		uint64_t bytes = cache_run_start(peer, local, epoch);
		if (bytes == 0) {
			wake_at(cache, peer_now_ns(peer) + FLUSH_SLOTS_NS);
			break;
		}
		rate_spend(peer, bytes);
		moved = true;
	}
	return moved;
}

/* --- the store's own flush --------------------------------------------------------------- */

/* Up to which epoch all shards have written all; in doubt: false. `flushing` is ours. */
static bool flush_candidate(struct peer *peer, struct cache_local *local, uint32_t *epoch)
{
	struct cache_volume *volume = local->volume;
	uint32_t redo = load(&volume->redo);
	*epoch = load(&volume->open) - 1;
	for (unsigned i = 0; i < peer->shards; i++)
		if (load(&volume->written_low[i]) != CACHE_NO_EPOCH &&
			load(&volume->redone[i]) != redo)
			return false;
	for (unsigned i = 0; i < peer->shards; i++) {
		uint32_t low = load(&volume->low[i]);
		if (low != CACHE_NO_EPOCH && cache_epoch_before(low - 1, *epoch))
			*epoch = low - 1;
	}
	return true;
}

/* Is there anything that a flush of the store would make true? */
static bool flush_wanted(struct peer *peer, struct cache_local *local, uint32_t *epoch)
{
	struct cache_volume *volume = local->volume;
	if (!flush_candidate(peer, local, epoch))
		return false;
	if (cache_epoch_before(load(&volume->durable), *epoch))
		return true;
	*epoch = load(&volume->durable);
	bool waited_for = !TAILQ_EMPTY(&local->syncs) || !TAILQ_EMPTY(&local->barriers);
	return (waited_for || cache_of(peer)->stopping) &&
	       atomic_load(&volume->forwarded_flushed) < atomic_load(&volume->forwarded);
}

static void flush_durable(struct peer *peer, struct cache_local *local)
{
	struct cache *cache = cache_of(peer);
	struct cache_volume *volume = local->volume;
	crash_point("cache.flush.stored");
	uint64_t now = peer_now_ns(peer);
	atomic_store(&volume->calm_ns, now + FLUSH_CALM * (now - local->flush_ns));
	cache_epoch_raise(&volume->wanted, local->sent_epoch);
	atomic_store(&volume->durable, local->sent_epoch);
	atomic_store(&volume->forwarded_flushed, local->sent_forwarded);
	if (local->sent_sign)
		atomic_store(&volume->settled, local->sent_sign);
	atomic_store(&volume->error, 0);
	atomic_store(&cache_shared(peer)->error, 0);
	atomic_store(&volume->flushing, 0);
	cache->writeback.calls_out--;
	cache->hurry = true;
	cache_epoch_enqueue(peer, local);
	cache_volume_wake_others(peer);
}

static void flush_marked(struct cache_journal_batch *batch, int error)
{
	struct cache_local *local = batch->context;
	(void)error; /* the journal goes on trying */
	flush_durable(batch->peer, local);
}

/* What the journal has of it is not to be replayed any more: it must know before anybody acts. */
static void flush_succeeded(struct peer *peer, struct cache_local *local)
{
	struct cache_shared *shared = cache_shared(peer);
	local->mark = (struct cache_journal_batch){.peer = peer,
		.volume = atomic_load(&local->volume->id),
		.epoch = local->sent_epoch,
		.done = flush_marked,
		.context = local};
	cache_flush_worked(local);
	if (!shared->journal || cache_journal_durable(shared->journal, &local->mark))
		flush_durable(peer, local);
}

static void flush_done(struct call *call)
{
	struct peer *peer = call->peer;
	struct cache_local *local = call->context;
	int error = call->result;
	call_end(call);
	if (!error) {
		flush_succeeded(peer, local);
		return;
	}
	atomic_fetch_add(&local->volume->redo, 1);
	cache_of(peer)->writeback.calls_out--;
	atomic_store(&local->volume->flushing, 0);
	cache_epoch_enqueue(peer, local);
	cache_flush_failed(peer, local, error);
}

static bool flush_send(struct peer *peer, struct cache_local *local)
{
	struct cache *cache = cache_of(peer);
	struct cache_volume *volume = local->volume;
	struct call *call;
	if (call_begin(peer, &call)) {
		wake_at(cache, peer_now_ns(peer) + FLUSH_SLOTS_NS);
		return false;
	}
	bool settles = load(&volume->settling) > 0;
	local->sent_sign = settles ? cache_sync_sign(local->sent_epoch, local->sent_forwarded) : 0;
	call->op = XSEG_OP_FLUSH;
	call->flags = settles ? XSEG_F_FUA : 0;
	call->key.volume = atomic_load(&volume->id);
	call->context = local;
	cache->writeback.calls_out++;
	local->flush_ns = peer_now_ns(peer);
	crash_point("cache.flush.before_store");
	call_submit(call, CACHE_STORE, flush_done);
	return true;
}

/* Each write after `durable` was durable when it was answered: the store need not be asked. */
static bool flush_needless(struct peer *peer, struct cache_local *local)
{
	struct cache_volume *volume = local->volume;
	uint32_t from = load(&volume->durable);
	if (cache_epoch_before(from, load(&volume->plain)) ||
		atomic_load(&volume->forwarded_flushed) < local->sent_forwarded)
		return false;
	bool settled =
		!cache_epoch_before(from, load(&volume->unsettled)) &&
		atomic_load(&volume->settled) == cache_sync_sign(from, local->sent_forwarded);
	if (!settled && load(&volume->settling) > 0)
		return false;
	local->sent_sign = settled ? cache_sync_sign(local->sent_epoch, local->sent_forwarded) : 0;
	cache_of(peer)->writeback.calls_out++;
	local->flush_ns = peer_now_ns(peer);
	flush_succeeded(peer, local);
	return true;
}

static bool local_flush(struct peer *peer, struct cache_local *local)
{
	struct cache_volume *volume = local->volume;
	uint32_t none = 0, epoch;
	if (load(&volume->flushing) || !flush_wanted(peer, local, &epoch))
		return false;
	if (local->retry_ns > peer_now_ns(peer)) {
		wake_at(cache_of(peer), local->retry_ns);
		return false;
	}
	if (!atomic_compare_exchange_strong(&volume->flushing, &none, 1))
		return false;
	/* only now nobody else's flush can fail in between */
	uint64_t forwarded = atomic_load(&volume->forwarded);
	local->sent_forwarded = forwarded;
	if (flush_wanted(peer, local, &epoch)) {
		local->sent_epoch = epoch;
		if (flush_needless(peer, local) || flush_send(peer, local))
			return true;
	}
	atomic_store(&volume->flushing, 0);
	return false;
}

/* --- who waits --------------------------------------------------------------------------- */

static bool local_barriers(struct peer *peer, struct cache_local *local)
{
	struct cache_barrier *barrier, *next;
	uint32_t durable = load(&local->volume->durable);
	const struct cache_epoch *oldest = TAILQ_FIRST(&local->epochs);
	bool moved = false;
	for (barrier = TAILQ_FIRST(&local->barriers); barrier; barrier = next) {
		next = TAILQ_NEXT(barrier, link);
		if (cache_epoch_before(durable, barrier->epoch) ||
			atomic_load(&local->volume->forwarded_flushed) < barrier->forwarded ||
			(oldest && !cache_epoch_before(barrier->epoch, oldest->number)))
			continue;
		TAILQ_REMOVE(&local->barriers, barrier, link);
		moved = true;
		barrier->done(peer, barrier);
		/* whatever that has changed */
		cache_of(peer)->hurry = true;
	}
	return moved;
}

void cache_flush_want(struct peer *peer, struct cache_local *local, uint32_t epoch)
{
	struct cache_volume *volume = local->volume;
	cache_epoch_enqueue(peer, local);
	cache_of(peer)->hurry = true;
	if (!cache_epoch_before(load(&volume->wanted), epoch))
		return;
	cache_epoch_raise(&volume->wanted, epoch);
	if (peer->shards > 1 && others_wait(peer, volume))
		cache_volume_wake_others(peer);
}

void cache_flush_barrier(
	struct peer *peer, struct cache_local *local, struct cache_barrier *barrier)
{
	barrier->local = local;
	barrier->epoch = cache_epoch_goal(local);
	TAILQ_INSERT_TAIL(&local->barriers, barrier, link);
	cache_flush_want(peer, local, barrier->epoch);
	/* it is the only one, as a rule, and nothing may be dirty */
	if (TAILQ_FIRST(&local->barriers) == barrier)
		local_barriers(peer, local);
}

/* --- the turn ---------------------------------------------------------------------------- */

static void local_finalize(struct peer *peer, struct cache_local *local)
{
	struct cache *cache = cache_of(peer);
	struct cache_epoch *epoch, *next;
	for (epoch = TAILQ_FIRST(&local->epochs); epoch; epoch = next) {
		next = TAILQ_NEXT(epoch, link);
		if (epoch->dirty.count || epoch->writing || epoch->written.count ||
			epoch->journaling)
			continue;
		TAILQ_REMOVE(&local->epochs, epoch, link);
		slab_give(&cache->pools.epochs, epoch);
	}
	epoch = TAILQ_FIRST(&local->epochs);
	atomic_store_explicit(&local->volume->since_ns[peer->shard], epoch ? epoch->since_ns : 0,
		memory_order_relaxed);
	publish(peer, local, true);
	bool forwarded = cache->stopping && atomic_load(&local->volume->forwarded_flushed) <
						    atomic_load(&local->volume->forwarded);
	if (!TAILQ_EMPTY(&local->epochs) || !TAILQ_EMPTY(&local->syncs) ||
		!TAILQ_EMPTY(&local->barriers) || forwarded)
		return;
	TAILQ_REMOVE(&cache->writeback.locals, local, link);
	local->listed = false;
}

bool cache_flush_local(struct peer *peer, struct cache_local *local)
{
	struct cache *cache = cache_of(peer);
	if (cache->writeback.in_local) {
		/* whoever was waited for has asked for more: the next turn sees to that */
		cache->hurry = true;
		return false;
	}
	cache->writeback.in_local = true;
	bool moved = cache_sync_failures(peer, local);
	moved |= local_redo(peer, local);
	moved |= local_clean(peer, local);
	local_finalize(peer, local);
	local_close(peer, local);
	moved |= cache_sync_journal(peer, local);
	moved |= local_write(peer, local);
	moved |= local_flush(peer, local);
	moved |= cache_sync_answer(peer, local);
	moved |= local_barriers(peer, local);
	cache->writeback.in_local = false;
	return moved;
}

static void pressure(struct peer *peer)
{
	struct cache_shared *shared = cache_shared(peer);
	if (atomic_load_explicit(&shared->pressed, memory_order_relaxed) &&
		!cache_epoch_dirty_over(peer, cache_options(peer)->dirty_soft, 0))
		atomic_store(&shared->pressed, false);
}

bool cache_flush_turn(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	struct cache_local *local, *next;
	cache_volume_publish(peer);
	uint32_t pulse = load(&cache_shared(peer)->pulse);
	bool due = cache->writeback.due_ns && peer_now_ns(peer) >= cache->writeback.due_ns,
	     moved = false;
	if (!cache->hurry && !due && pulse == cache->pulse_seen)
		return false;
	cache->hurry = false;
	cache->pulse_seen = pulse;
	cache->writeback.due_ns = 0;
	pressure(peer);
	for (local = TAILQ_FIRST(&cache->writeback.locals); local; local = next) {
		next = TAILQ_NEXT(local, link);
		moved |= cache_flush_local(peer, local);
	}
	/* another one is first the next time */
	local = TAILQ_FIRST(&cache->writeback.locals);
	if (local && TAILQ_NEXT(local, link)) {
		TAILQ_REMOVE(&cache->writeback.locals, local, link);
		TAILQ_INSERT_TAIL(&cache->writeback.locals, local, link);
	}
	return moved;
}

uint64_t cache_flush_due_ns(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	if (cache->hurry || load(&cache_shared(peer)->pulse) != cache->pulse_seen)
		return peer_now_ns(peer);
	return cache->writeback.due_ns;
}

bool cache_flush_idle(struct peer *peer)
{
	const struct cache *cache = cache_of(peer);
	struct cache_local *local;
	if (cache->writeback.runs_out || cache->writeback.calls_out)
		return false;
	if (!cache->writeback.gave_up)
		return TAILQ_EMPTY(&cache->writeback.locals);
	TAILQ_FOREACH (local, &cache->writeback.locals, link)
		if (local->batch && !cache_sync_cancel(peer, local))
			return false;
	return true;
}
