/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Write-back: which epoch may go, what becomes of those that have gone.
 *
 *   dirty, waiting --run--> WRITING --answered--> WRITTEN --flush of the store--> clean
 *     ^                        |                     |
 *     `------- failed ---------'----- failed --------'
 *
 * An entry stays dirty until the store has been flushed: a flush that fails may have lost what was
 * written before it, so all of that is written again. Epoch e is sent when no shard has anything
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

static uint32_t low_of(const struct cache_flow *flow)
{
	const struct cache_epoch *epoch;
	TAILQ_FOREACH (epoch, &flow->epochs, link)
		if (epoch->dirty.count + epoch->writing > 0)
			return epoch->number;
	return CACHE_NO_EPOCH;
}

static uint32_t written_low_of(const struct cache_flow *flow)
{
	const struct cache_epoch *epoch;
	TAILQ_FOREACH (epoch, &flow->epochs, link)
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
static void publish(struct peer *peer, struct cache_flow *flow, bool written_first)
{
	struct cache_volume *volume = flow->volume;
	uint32_t low = low_of(flow), written = written_low_of(flow);
	bool moved = load(&volume->low[peer->shard]) != low ||
		     load(&volume->written_low[peer->shard]) != written;
	if (!moved)
		return;
	if (written_first)
		atomic_store(&volume->written_low[peer->shard], written);
	atomic_store(&volume->low[peer->shard], low);
	atomic_store(&volume->written_low[peer->shard], written);
	if (peer->shards > 1 && others_wait(peer, volume))
		cache_wake_others(peer);
}

/* --- failures ---------------------------------------------------------------------------- */

static void flow_back_off(struct peer *peer, struct cache_flow *flow)
{
	flow->backoff_ns *= 2;
	if (flow->backoff_ns < FLUSH_BACKOFF_MIN_NS)
		flow->backoff_ns = FLUSH_BACKOFF_MIN_NS;
	if (flow->backoff_ns > FLUSH_BACKOFF_MAX_NS)
		flow->backoff_ns = FLUSH_BACKOFF_MAX_NS;
	flow->retry_ns = peer_now_ns(peer) + flow->backoff_ns;
}

void cache_flush_failed(struct peer *peer, struct cache_flow *flow, int error)
{
	struct cache *cache = cache_of(peer);
	struct cache_volume *volume = flow->volume;
	if (atomic_exchange(&volume->error, error) == 0)
		log_warning("cache_flush",
			"%s: the store fails for volume %llx: %s; what is dirty is kept and tried "
			"again",
			peer->name, (unsigned long long)atomic_load(&volume->id), strerror(-error));
	atomic_store(&cache_shared(peer)->error, error);
	peer_count(peer, CACHE_RETRIES, 1);
	if (peer_now_ns(peer) >= flow->retry_ns)
		flow_back_off(peer, flow);
	if (cache->stopping && ++cache->writeback.stop_failures >= FLUSH_STOP_FAILURES)
		cache->writeback.gave_up = true;
	cache->hurry = true;
	atomic_fetch_add(&volume->failures, 1);
	cache_wake_others(peer);
}

void cache_flush_worked(struct cache_flow *flow) { flow->backoff_ns = flow->retry_ns = 0; }

/* A flush of the store has failed since: what was written before it has to be written again. */
static bool flow_redo(struct peer *peer, struct cache_flow *flow)
{
	struct cache *cache = cache_of(peer);
	struct cache_volume *volume = flow->volume;
	uint32_t redo = load(&volume->redo);
	struct cache_epoch *epoch;
	if (likely(load(&volume->redone[peer->shard]) == redo))
		return false;
	TAILQ_FOREACH (epoch, &flow->epochs, link)
		while (epoch->written.count > 0) {
			uint32_t entry = epoch->written.head;
			cache_epoch_unlink(cache, &epoch->written, entry);
			xcache_entry(cache->index, entry)->flags &= (uint16_t)~CACHE_E_WRITTEN;
			cache_epoch_link(cache, &epoch->dirty, entry, true);
		}
	publish(peer, flow, false);
	atomic_store(&volume->redone[peer->shard], redo);
	return true;
}

/* --- clean ------------------------------------------------------------------------------- */

static uint32_t epoch_clean(struct peer *peer, struct cache_flow *flow, struct cache_epoch *epoch)
{
	struct cache *cache = cache_of(peer);
	uint32_t count = 0;
	while (epoch->written.count > 0 && count < FLUSH_CLEAN_MAX) {
		uint32_t entry = epoch->written.head;
		cache_epoch_unlink(cache, &epoch->written, entry);
		cache_epoch_forget(peer, flow, entry);
		crash_point("cache.flush.cleaning");
		cache_bucket_cleaned(peer, entry);
		count++;
	}
	return count;
}

/* What the store has, flushed. */
static bool flow_clean(struct peer *peer, struct cache_flow *flow)
{
	uint32_t stored = load(&flow->volume->stored), count = 0;
	struct cache_epoch *epoch;
	TAILQ_FOREACH (epoch, &flow->epochs, link) {
		if (cache_epoch_before(stored, epoch->number) || count >= FLUSH_CLEAN_MAX)
			break;
		count += epoch_clean(peer, flow, epoch);
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

static uint64_t hurry_ns(struct peer *peer, const struct cache_flow *flow)
{
	const struct cache_shared *shared = cache_shared(peer);
	struct cache_volume *volume = flow->volume;
	if (is_waited_for(peer))
		return 0;
	if (!atomic_load_explicit(&shared->pressed, memory_order_relaxed) &&
		!cache_dirty_over(peer, cache_options(peer)->dirty_soft, 0))
		return CALM;
	bool bypass = atomic_load_explicit(&volume->ack, memory_order_relaxed) == CACHE_ACK_BLOCKER;
	return bypass ? atomic_load_explicit(&volume->calm_ns, memory_order_relaxed) : 0;
}

static uint64_t earlier(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* The open one, when its time has come; what waits for it alone goes on. */
static void flow_close(struct peer *peer, struct cache_flow *flow)
{
	struct cache *cache = cache_of(peer);
	struct cache_volume *volume = flow->volume;
	uint32_t open = load(&volume->open);
	const struct cache_epoch *last = TAILQ_LAST(&flow->epochs, cache_epoch_queue);
	bool asked = !cache_epoch_before(load(&volume->wanted), open) &&
		     !cache_epoch_before(load(&volume->stored), open - 1);
	if (last && last->number == open && last->dirty.count > 0) {
		uint64_t until = last->since_ns + cache_options(peer)->epoch;
		if (low_of(flow) == open)
			until = earlier(until, hurry_ns(peer, flow));
		asked |= peer_now_ns(peer) >= until || last->dirty.count >= FLUSH_EPOCH_BUCKETS;
		if (!asked)
			wake_at(cache, until);
	}
	if (asked)
		cache_epoch_close(peer, flow);
}

/* Has everything that is older left all shards? */
static bool epoch_is_next(struct peer *peer, struct cache_flow *flow, uint32_t number)
{
	struct cache_volume *volume = flow->volume;
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

static bool epoch_due(struct peer *peer, struct cache_flow *flow, const struct cache_epoch *epoch)
{
	struct cache *cache = cache_of(peer);
	uint64_t now = peer_now_ns(peer), until = epoch->since_ns + cache_options(peer)->age;
	if (flow->retry_ns > now) {
		wake_at(cache, flow->retry_ns);
		return false;
	}
	uint64_t hurry = hurry_ns(peer, flow);
	if (!cache_epoch_before(load(&flow->volume->wanted), epoch->number) || now >= hurry)
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

static bool flow_write(struct peer *peer, struct cache_flow *flow)
{
	struct cache *cache = cache_of(peer);
	struct cache_epoch *epoch = TAILQ_FIRST(&flow->epochs);
	bool moved = false;
	while (epoch && epoch->dirty.count == 0)
		epoch = TAILQ_NEXT(epoch, link);
	if (!epoch || !epoch_is_next(peer, flow, epoch->number))
		return false;
	while (epoch->dirty.count > 0 && !epoch->journaling &&
		cache->writeback.runs_out < CACHE_RUNS && epoch_due(peer, flow, epoch)) {
		uint64_t bytes = cache_run_start(peer, flow, epoch);
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
static bool flush_candidate(struct peer *peer, struct cache_flow *flow, uint32_t *epoch)
{
	struct cache_volume *volume = flow->volume;
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
static bool flush_wanted(struct peer *peer, struct cache_flow *flow, uint32_t *epoch)
{
	struct cache_volume *volume = flow->volume;
	if (!flush_candidate(peer, flow, epoch))
		return false;
	if (cache_epoch_before(load(&volume->stored), *epoch))
		return true;
	*epoch = load(&volume->stored);
	bool waited_for = !TAILQ_EMPTY(&flow->syncs) || !TAILQ_EMPTY(&flow->barriers);
	return (waited_for || cache_of(peer)->stopping) &&
	       atomic_load(&volume->through_flushed) < atomic_load(&volume->through);
}

static void flush_stored(struct peer *peer, struct cache_flow *flow)
{
	struct cache *cache = cache_of(peer);
	struct cache_volume *volume = flow->volume;
	crash_point("cache.flush.stored");
	uint64_t now = peer_now_ns(peer);
	atomic_store(&volume->calm_ns, now + FLUSH_CALM * (now - flow->flush_ns));
	cache_epoch_raise(&volume->wanted, flow->sent_epoch);
	atomic_store(&volume->stored, flow->sent_epoch);
	atomic_store(&volume->through_flushed, flow->sent_through);
	atomic_store(&volume->error, 0);
	atomic_store(&cache_shared(peer)->error, 0);
	atomic_store(&volume->flushing, 0);
	cache->writeback.calls_out--;
	cache->hurry = true;
	cache_flow_list(peer, flow);
	cache_wake_others(peer);
}

static void flush_marked(struct cache_journal_batch *batch, int error)
{
	struct cache_flow *flow = batch->context;
	(void)error; /* the journal goes on trying */
	flush_stored(batch->peer, flow);
}

/* What the journal has of it is not to be replayed any more: it must know before anybody acts. */
static void flush_succeeded(struct peer *peer, struct cache_flow *flow)
{
	struct cache_shared *shared = cache_shared(peer);
	flow->mark = (struct cache_journal_batch){.peer = peer,
		.volume = atomic_load(&flow->volume->id),
		.epoch = flow->sent_epoch,
		.done = flush_marked,
		.context = flow};
	cache_flush_worked(flow);
	if (!shared->journal || cache_journal_stored(shared->journal, &flow->mark))
		flush_stored(peer, flow);
}

static void flush_done(struct call *call)
{
	struct peer *peer = call->peer;
	struct cache_flow *flow = call->context;
	int error = call->result;
	call_end(call);
	if (!error) {
		flush_succeeded(peer, flow);
		return;
	}
	atomic_fetch_add(&flow->volume->redo, 1);
	cache_of(peer)->writeback.calls_out--;
	atomic_store(&flow->volume->flushing, 0);
	cache_flow_list(peer, flow);
	cache_flush_failed(peer, flow, error);
}

static bool flush_send(struct peer *peer, struct cache_flow *flow)
{
	struct cache *cache = cache_of(peer);
	struct cache_volume *volume = flow->volume;
	struct call *call;
	if (call_begin(peer, &call)) {
		wake_at(cache, peer_now_ns(peer) + FLUSH_SLOTS_NS);
		return false;
	}
	call->op = XSEG_OP_FLUSH;
	call->key.volume = atomic_load(&volume->id);
	call->context = flow;
	cache->writeback.calls_out++;
	flow->flush_ns = peer_now_ns(peer);
	crash_point("cache.flush.before_store");
	call_submit(call, CACHE_STORE, flush_done);
	return true;
}

static bool flow_flush(struct peer *peer, struct cache_flow *flow)
{
	struct cache_volume *volume = flow->volume;
	uint32_t none = 0, epoch;
	if (load(&volume->flushing) || !flush_wanted(peer, flow, &epoch))
		return false;
	if (flow->retry_ns > peer_now_ns(peer)) {
		wake_at(cache_of(peer), flow->retry_ns);
		return false;
	}
	if (!atomic_compare_exchange_strong(&volume->flushing, &none, 1))
		return false;
	/* only now nobody else's flush can fail in between */
	uint64_t through = atomic_load(&volume->through);
	flow->sent_through = through;
	if (flush_wanted(peer, flow, &epoch)) {
		flow->sent_epoch = epoch;
		if (flush_send(peer, flow))
			return true;
	}
	atomic_store(&volume->flushing, 0);
	return false;
}

/* --- who waits --------------------------------------------------------------------------- */

static bool flow_barriers(struct peer *peer, struct cache_flow *flow)
{
	struct cache_barrier *barrier, *next;
	uint32_t stored = load(&flow->volume->stored);
	const struct cache_epoch *oldest = TAILQ_FIRST(&flow->epochs);
	bool moved = false;
	for (barrier = TAILQ_FIRST(&flow->barriers); barrier; barrier = next) {
		next = TAILQ_NEXT(barrier, link);
		if (cache_epoch_before(stored, barrier->epoch) ||
			atomic_load(&flow->volume->through_flushed) < barrier->through ||
			(oldest && !cache_epoch_before(barrier->epoch, oldest->number)))
			continue;
		TAILQ_REMOVE(&flow->barriers, barrier, link);
		moved = true;
		barrier->done(peer, barrier);
		/* whatever that has changed */
		cache_of(peer)->hurry = true;
	}
	return moved;
}

void cache_flush_want(struct peer *peer, struct cache_flow *flow, uint32_t epoch)
{
	struct cache_volume *volume = flow->volume;
	cache_flow_list(peer, flow);
	cache_of(peer)->hurry = true;
	if (!cache_epoch_before(load(&volume->wanted), epoch))
		return;
	cache_epoch_raise(&volume->wanted, epoch);
	if (peer->shards > 1 && others_wait(peer, volume))
		cache_wake_others(peer);
}

void cache_flush_barrier(struct peer *peer, struct cache_flow *flow, struct cache_barrier *barrier)
{
	barrier->flow = flow;
	barrier->epoch = cache_epoch_goal(flow);
	TAILQ_INSERT_TAIL(&flow->barriers, barrier, link);
	cache_flush_want(peer, flow, barrier->epoch);
	/* it is the only one, as a rule, and nothing may be dirty */
	if (TAILQ_FIRST(&flow->barriers) == barrier)
		flow_barriers(peer, flow);
}

/* --- the turn ---------------------------------------------------------------------------- */

static void flow_settle(struct peer *peer, struct cache_flow *flow)
{
	struct cache *cache = cache_of(peer);
	struct cache_epoch *epoch, *next;
	for (epoch = TAILQ_FIRST(&flow->epochs); epoch; epoch = next) {
		next = TAILQ_NEXT(epoch, link);
		if (epoch->dirty.count || epoch->writing || epoch->written.count ||
			epoch->journaling)
			continue;
		TAILQ_REMOVE(&flow->epochs, epoch, link);
		cache_pool_put(&cache->pools.epochs, epoch);
	}
	epoch = TAILQ_FIRST(&flow->epochs);
	atomic_store_explicit(&flow->volume->since_ns[peer->shard], epoch ? epoch->since_ns : 0,
		memory_order_relaxed);
	publish(peer, flow, true);
	bool through = cache->stopping && atomic_load(&flow->volume->through_flushed) <
						  atomic_load(&flow->volume->through);
	if (!TAILQ_EMPTY(&flow->epochs) || !TAILQ_EMPTY(&flow->syncs) ||
		!TAILQ_EMPTY(&flow->barriers) || through)
		return;
	TAILQ_REMOVE(&cache->writeback.flows, flow, link);
	flow->listed = false;
}

bool cache_flush_flow(struct peer *peer, struct cache_flow *flow)
{
	struct cache *cache = cache_of(peer);
	if (cache->writeback.in_flow) {
		/* whoever was waited for has asked for more: the next turn sees to that */
		cache->hurry = true;
		return false;
	}
	cache->writeback.in_flow = true;
	bool moved = cache_sync_failures(peer, flow);
	moved |= flow_redo(peer, flow);
	moved |= flow_clean(peer, flow);
	flow_settle(peer, flow);
	flow_close(peer, flow);
	moved |= cache_sync_journal(peer, flow);
	moved |= flow_write(peer, flow);
	moved |= flow_flush(peer, flow);
	moved |= cache_sync_answer(peer, flow);
	moved |= flow_barriers(peer, flow);
	cache->writeback.in_flow = false;
	return moved;
}

static void pressure(struct peer *peer)
{
	struct cache_shared *shared = cache_shared(peer);
	if (atomic_load_explicit(&shared->pressed, memory_order_relaxed) &&
		!cache_dirty_over(peer, cache_options(peer)->dirty_soft, 0))
		atomic_store(&shared->pressed, false);
}

bool cache_flush_turn(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	struct cache_flow *flow, *next;
	cache_flow_tell(peer);
	uint32_t pulse = load(&cache_shared(peer)->pulse);
	bool due = cache->writeback.due_ns && peer_now_ns(peer) >= cache->writeback.due_ns,
	     moved = false;
	if (!cache->hurry && !due && pulse == cache->pulse_seen)
		return false;
	cache->hurry = false;
	cache->pulse_seen = pulse;
	cache->writeback.due_ns = 0;
	pressure(peer);
	for (flow = TAILQ_FIRST(&cache->writeback.flows); flow; flow = next) {
		next = TAILQ_NEXT(flow, link);
		moved |= cache_flush_flow(peer, flow);
	}
	/* another one is first the next time */
	flow = TAILQ_FIRST(&cache->writeback.flows);
	if (flow && TAILQ_NEXT(flow, link)) {
		TAILQ_REMOVE(&cache->writeback.flows, flow, link);
		TAILQ_INSERT_TAIL(&cache->writeback.flows, flow, link);
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
	struct cache_flow *flow;
	if (cache->writeback.runs_out || cache->writeback.calls_out)
		return false;
	if (!cache->writeback.gave_up)
		return TAILQ_EMPTY(&cache->writeback.flows);
	TAILQ_FOREACH (flow, &cache->writeback.flows, link)
		if (flow->batch && !cache_sync_cancel(peer, flow))
			return false;
	return true;
}
