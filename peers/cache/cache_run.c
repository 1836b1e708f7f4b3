/* SPDX-License-Identifier: Apache-2.0 */
/* One write-back: neighbours of an epoch, straight from their pages to the store. */
#include <base/crash.h>
#include <errno.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_flush.h"
#include "peers/cache/cache_object.h"

#define RUN_CALLS (CACHE_SECTORS / 2u) /* most stretches of dirty sectors in one bucket */
#define RUN_NEAR_NS 1000000u	       /* a store that takes longer is far away */
#define RUN_GATHER 128u		       /* entries that are put beside each other in one turn */

/* What stays the same while neighbours are looked for. */
struct run_place {
	struct peer *peer;
	const struct cache_epoch *epoch;
	uint32_t object; /* in the index; XCACHE_NONE: not there (any more) */
	uint32_t record;
};

static struct xcache_entry *entry_at(struct peer *peer, uint32_t entry)
{
	return xcache_entry(cache_of(peer)->index, entry);
}

static struct xseg_page_descriptor *about(struct peer *peer, uint32_t entry)
{
	return peer_page_about(peer, entry_at(peer, entry)->page);
}

static uint8_t dirty_of(struct peer *peer, uint32_t entry)
{
	return atomic_load_explicit(&about(peer, entry)->dirty, memory_order_relaxed);
}

/* --- which ------------------------------------------------------------------------------- */

static bool fits(const struct run_place *place, uint32_t entry, uint32_t bucket)
{
	if (entry == XCACHE_NONE)
		return false;
	const struct xcache_entry *e = entry_at(place->peer, entry);
	return e->bucket_state == BUCKET_DIRTY && e->word == place->epoch->number &&
	       e->bucket == bucket && dirty_of(place->peer, entry) == CACHE_ALL_SECTORS &&
	       about(place->peer, entry)->object == place->record;
}

/* The one beside it: in the object, or (an older version, which is in none) beside it in the queue,
   where it was put by the same write. */
static uint32_t beside(const struct run_place *place, uint32_t entry, int step)
{
	const struct xcache_entry *e = entry_at(place->peer, entry);
	uint32_t bucket = e->bucket + (uint32_t)step, found = XCACHE_NONE;
	if (bucket >= XCACHE_BUCKETS)
		return XCACHE_NONE;
	if (place->object != XCACHE_NONE)
		found = xcache_lookup(cache_of(place->peer)->index, place->object, bucket);
	if (fits(place, found, bucket))
		return found;
	found = step > 0 ? e->next : e->prev;
	return fits(place, found, bucket) ? found : XCACHE_NONE;
}

/* How many. */
static uint32_t run_collect(
	const struct run_place *place, uint32_t entry, uint32_t entries[CACHE_RUN_BUCKETS])
{
	uint32_t first = entry, count = 1, before, next;
	if (dirty_of(place->peer, entry) == CACHE_ALL_SECTORS)
		while (count < CACHE_RUN_BUCKETS &&
			(before = beside(place, first, -1)) != XCACHE_NONE) {
			first = before;
			count++;
		}
	entries[0] = first;
	count = 1;
	if (dirty_of(place->peer, first) != CACHE_ALL_SECTORS)
		return count;
	while (count < CACHE_RUN_BUCKETS &&
		(next = beside(place, entries[count - 1], 1)) != XCACHE_NONE)
		entries[count++] = next;
	return count;
}

/* Those beside the first in the queue, to its end, side by side. */
static uint32_t gather_run(struct peer *peer, struct cache_epoch *epoch)
{
	struct cache *cache = cache_of(peer);
	uint32_t entry = epoch->dirty.head, entries[CACHE_RUN_BUCKETS];
	struct run_place place = {.peer = peer,
		.epoch = epoch,
		.object = entry_at(peer, entry)->object,
		.record = about(peer, entry)->object};
	uint32_t count = run_collect(&place, entry, entries);
	for (uint32_t i = 0; i < count; i++) {
		cache_epoch_unlink(cache, &epoch->dirty, entries[i]);
		cache_epoch_link(cache, &epoch->dirty, entries[i], false);
	}
	return count;
}

bool cache_run_gather(struct peer *peer, struct cache_epoch *epoch)
{
	uint32_t left = RUN_GATHER;
	if (epoch->scattered > epoch->dirty.count)
		epoch->scattered = epoch->dirty.count;
	while (epoch->scattered > 0 && left > 0) {
		uint32_t count = gather_run(peer, epoch);
		epoch->scattered -= count < epoch->scattered ? count : epoch->scattered;
		left -= count < left ? count : left;
	}
	return epoch->scattered == 0;
}

/* --- the answer -------------------------------------------------------------------------- */

static uint64_t runs_most(const struct cache_writeback *writeback)
{
	uint64_t most = CACHE_RUNS_LEAST + CACHE_RUNS_LEAST * (writeback->alone_ns / RUN_NEAR_NS);
	return most < writeback->runs_max ? most : writeback->runs_max;
}

bool cache_run_may_start(const struct cache *cache)
{
	const struct cache_writeback *writeback = &cache->writeback;
	if (writeback->runs_out < CACHE_RUNS_LEAST)
		return true;
	return writeback->runs_out < runs_most(writeback) &&
	       writeback->writing < CACHE_RUNS_BUCKETS;
}

/*
 * Beside others it would say how busy the store is, and more on their way would make it busier. The
 * shorter one of two, as a machine that is busy holds up any of them; one that had to be durable
 * says no more than that the store is nearer.
 */
static void measure(struct cache_writeback *writeback, const struct cache_run *run)
{
	uint64_t took = peer_now_ns(run->peer) - run->alone_ns;
	uint64_t other = run->flags ? writeback->alone_ns : writeback->took_ns;
	writeback->alone_ns = took < other ? took : other;
	if (!run->flags)
		writeback->took_ns = took;
}

/* Stored, or to be tried again. */
static void run_finalize(struct cache_run *run, uint32_t entry)
{
	struct peer *peer = run->peer;
	struct cache *cache = cache_of(peer);
	struct xcache_entry *e = entry_at(peer, entry);
	if (e->marks & CACHE_E_DOOMED) {
		cache_epoch_forget(peer, run->local, entry);
		cache_bucket_cleaned(peer, entry);
	} else if (run->error) {
		cache_bucket_move(e, BUCKET_DIRTY);
		cache_epoch_link(cache, &run->epoch->dirty, entry, true);
	} else {
		cache_bucket_move(e, BUCKET_WRITTEN);
		cache_epoch_link(cache, &run->epoch->written, entry, true);
	}
}

static void run_end(struct cache_run *run)
{
	struct peer *peer = run->peer;
	struct cache *cache = cache_of(peer);
	struct cache_local *local = run->local;
	int error = run->error;
	/* a flush that failed meanwhile may have lost it */
	if (!error && atomic_load(&local->volume->redo) != run->redo)
		run->error = -EAGAIN;
	crash_point("cache.flush.written");
	if (run->alone_ns && !error)
		measure(&cache->writeback, run);
	cache->writeback.runs_out--;
	cache->writeback.writing -= run->count;
	run->epoch->writing -= run->count;
	for (uint32_t i = run->count; i-- > 0;)
		run_finalize(run, run->entries[i]);
	slab_give(&cache->pools.runs, run);
	cache->hurry = true;
	if (error)
		cache_flush_failed(peer, local, error);
	else
		cache_flush_worked(local);
}

static void run_answered(struct call *call)
{
	struct cache_run *run = call->context;
	if (call->result && call->op == XSEG_OP_WRITE)
		run->error = call->result;
	call_end(call);
	if (--run->pending == 0)
		run_end(run);
}

/*
 * Somebody else has had the volume since: what was written before is not to be seen any more. A
 * hint in place of the write, so that all goes the way it always goes.
 */
static bool is_discarded(const struct cache_run *run)
{
	const struct cache_volume *volume = run->local->volume;
	return unlikely(atomic_load(&volume->discards)) &&
	       !cache_epoch_before(atomic_load(&volume->discard_epoch), run->epoch->number);
}

/* --- the calls --------------------------------------------------------------------------- */

/*
 * Where somebody waits for the epoch, the store is far away, and all can be on its way at once,
 * each write is durable when it is answered: one round trip, in place of one for the writes and one
 * for the flush. NO_CACHE: of a journal on the way, too.
 */
static unsigned run_flags(
	const struct cache *cache, struct cache_volume *volume, const struct cache_epoch *epoch)
{
	uint64_t most = runs_most(&cache->writeback);
	if (most == CACHE_RUNS_LEAST || epoch->dirty.count > most ||
		cache_epoch_before(atomic_load(&volume->wanted), epoch->number) ||
		!cache_epoch_before(atomic_load(&volume->plain), epoch->number))
		return 0;
	return XSEG_F_FUA | (atomic_load(&volume->settling) > 0 ? XSEG_F_NO_CACHE : 0u);
}

static int run_call(struct cache_run *run, const struct xseg_key *key, uint32_t at, uint32_t length,
	const uint32_t *pages, uint32_t count, struct call **out)
{
	int error = call_begin(run->peer, out);
	if (error)
		return error;
	struct call *call = *out;
	call->op = is_discarded(run) ? XSEG_OP_PREFETCH : XSEG_OP_WRITE;
	call->flags = run->flags;
	/* the store may know before us that another has had the volume; 1: of no known term */
	uint64_t term = atomic_load_explicit(&run->local->volume->term, memory_order_relaxed);
	call->arg1 = term ? term : 1;
	call->key = *key;
	call->offset = at;
	call->length = length;
	call->context = run;
	error = call_lend(call, pages, count);
	if (error)
		call_end(call);
	return error;
}

/* One for each stretch of dirty sectors. How many, or -EAGAIN. */
static int run_sectors(struct cache_run *run, const struct xseg_key *key, struct call **calls)
{
	struct peer *peer = run->peer;
	const struct xcache_entry *e = entry_at(peer, run->entries[0]);
	uint8_t dirty = dirty_of(peer, run->entries[0]);
	int count = 0;
	for (uint32_t first = 0, end; first < CACHE_SECTORS; first = end) {
		end = first + 1;
		if (!((dirty >> first) & 1u))
			continue;
		while (end < CACHE_SECTORS && ((dirty >> end) & 1u))
			end++;
		int error = run_call(run, key, e->bucket * XSEG_PAGE + first * XSEG_SECTOR,
			(end - first) * XSEG_SECTOR, &e->page, 1, &calls[count]);
		if (error) {
			while (count > 0)
				call_end(calls[--count]);
			return error;
		}
		count++;
	}
	must(count > 0);
	return count;
}

static int run_whole(struct cache_run *run, const struct xseg_key *key, struct call **calls)
{
	uint32_t pages[CACHE_RUN_BUCKETS];
	uint32_t at = entry_at(run->peer, run->entries[0])->bucket * XSEG_PAGE;
	for (uint32_t i = 0; i < run->count; i++)
		pages[i] = entry_at(run->peer, run->entries[i])->page;
	int error = run_call(run, key, at, run->count * XSEG_PAGE, pages, run->count, &calls[0]);
	return error ? error : 1;
}

static void run_mark(struct cache_run *run)
{
	struct cache *cache = cache_of(run->peer);
	for (uint32_t i = 0; i < run->count; i++) {
		cache_epoch_unlink(cache, &run->epoch->dirty, run->entries[i]);
		cache_bucket_move(entry_at(run->peer, run->entries[i]), BUCKET_WRITING);
	}
	run->epoch->writing += run->count;
	run->redo = atomic_load(&run->local->volume->redo);
	cache->writeback.writing += run->count;
	run->alone_ns = cache->writeback.runs_out == 0 ? peer_now_ns(run->peer) : 0;
	cache->writeback.runs_out++;
	if (!(run->flags & XSEG_F_FUA))
		cache_epoch_raise(&run->local->volume->plain, run->epoch->number);
	if (!(run->flags & XSEG_F_NO_CACHE))
		cache_epoch_raise(&run->local->volume->unsettled, run->epoch->number);
}

uint64_t cache_run_start(struct peer *peer, struct cache_local *local, struct cache_epoch *epoch)
{
	struct cache *cache = cache_of(peer);
	struct cache_run *run = slab_take(&cache->pools.runs);
	struct run_place place = {.peer = peer, .epoch = epoch};
	struct call *calls[RUN_CALLS];
	struct xseg_key key;
	uint64_t bytes = 0;
	must(run && epoch->dirty.count > 0);
	run->peer = peer;
	run->local = local;
	run->epoch = epoch;
	run->error = 0;
	run->flags = run_flags(cache, local->volume, epoch);
	place.record = about(peer, epoch->dirty.head)->object;
	must(cache_meta_key(peer, place.record, &key));
	place.object = xcache_find_object(cache->index, &key);
	run->count = run_collect(&place, epoch->dirty.head, run->entries);
	bool whole = dirty_of(peer, run->entries[0]) == CACHE_ALL_SECTORS;
	int count = whole ? run_whole(run, &key, calls) : run_sectors(run, &key, calls);
	if (count < 0) {
		slab_give(&cache->pools.runs, run);
		return 0;
	}
	run_mark(run);
	run->pending = (uint32_t)count;
	crash_point("cache.flush.before_write");
	for (int i = 0; i < count; i++) {
		bytes += calls[i]->length;
		call_submit(calls[i], CACHE_STORE, run_answered);
	}
	peer_count(peer, CACHE_WRITTEN_BYTES, bytes);
	peer_count(peer, CACHE_WRITE_CALLS, (uint64_t)count);
	atomic_fetch_add(&local->volume->written, bytes);
	atomic_fetch_add(&local->volume->write_calls, (uint64_t)count);
	return bytes;
}
