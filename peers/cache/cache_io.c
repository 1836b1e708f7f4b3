/* SPDX-License-Identifier: Apache-2.0 */
/* A request comes in: is it for the buckets at all, may it go on now, which way does it go? */
#include <base/clock.h>
#include <base/container.h>
#include <errno.h>
#include <xseg/page.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_work.h"

#define IO_ZERO_MAX 65536u /* bytes */

/* Not for the buckets: records, what makes no sense (the store says so), and all while the cache
   passes on and nothing is left in it. */
static bool io_is_passed(struct peer *peer, const struct job *job)
{
	return job->key.epoch > XSEG_EPOCH_DATA_MAX || job->length == 0 ||
	       job->offset + job->length > XSEG_OBJECT_MAX ||
	       (cache_phase_now(peer) == CACHE_PASSING && xcache_count(cache_of(peer)->index) == 0);
}

static uint32_t io_buckets(const struct job *job)
{
	return ((uint32_t)job->offset + job->length - 1) / XSEG_PAGE -
	       (uint32_t)job->offset / XSEG_PAGE + 1;
}

/* Of an object that nothing is cached of. NULL: without a place to keep it, or when that is not
   worth another object's, it is passed on. */
static struct cache_object *io_read_object(struct peer *peer, struct job *job)
{
	struct cache_object *object;
	struct cache_local *local = NULL;
	if (cache_phase_now(peer) == CACHE_CACHING)
		local = cache_volume_local_get(peer, job->key.volume);
	if (unlikely(!local)) {
		job_forward(job, CACHE_STORE);
		return NULL;
	}
	if (!cache_stream_skips(cache_of(peer), local) &&
		cache_object_get(peer, &job->key, &object) == 0)
		return object;
	local->tally.misses += io_buckets(job);
	peer_count(peer, CACHE_MISSES, io_buckets(job));
	cache_fill_pass(peer, local, job);
	return NULL;
}

void cache_io_read(struct peer *peer, struct job *job)
{
	struct cache_object *object;
	if (unlikely(io_is_passed(peer, job))) {
		job_forward(job, CACHE_STORE);
		return;
	}
	object = cache_object_find(peer, &job->key);
	if (likely(object && !cache_object_is_bypassing(object)) ||
		(object = io_read_object(peer, job)))
		cache_read(peer, object, job);
}

/* --- writes ----------------------------------------------------------------------- */

static struct cache_work *work_of(struct cache_range *range)
{
	return container_of(range, struct cache_work, range);
}

/* It goes through before the range is unlocked, so nobody who came later is in its way. */
static void io_admit(struct peer *peer, struct cache_range *range)
{
	struct cache *cache = cache_of(peer);
	struct cache_work *work = work_of(range);
	struct job *job = work->job;
	const struct job *before = cache->admitted;
	cache->admitted = job;
	cache_again(peer, job);
	cache->admitted = before;
	cache_range_unlock(peer, range);
	slab_give(&cache->pools.works, work);
}

static void io_wait_for_range(struct peer *peer, struct cache_object *object, struct job *job,
	uint32_t first, uint32_t count)
{
	struct cache_work *work = slab_take(&cache_of(peer)->pools.works);
	if (!work) {
		cache_wait(peer, job);
		return;
	}
	work->range = (struct cache_range){.first = first, .count = count, .go = io_admit};
	work->job = job;
	must(!cache_range_lock(peer, object, &work->range));
}

static void io_write(struct peer *peer, struct cache_object *object, struct job *job)
{
	uint32_t first = (uint32_t)job->offset / XSEG_PAGE;
	uint32_t count = ((uint32_t)job->offset + job->length - 1) / XSEG_PAGE - first + 1;
	if (unlikely(!TAILQ_EMPTY(&object->ranges)) && cache_of(peer)->admitted != job &&
		!cache_range_is_free(object, first, count, false)) {
		io_wait_for_range(peer, object, job, first, count);
		return;
	}
	uint32_t mode = atomic_load_explicit(&object->local->volume->mode, memory_order_relaxed);
	unsigned past = XSEG_F_FUA | XSEG_F_NO_CACHE; /* the store itself is to have it */
	if (unlikely(cache_phase_now(peer) != CACHE_CACHING || mode >= countof(cache_modes) ||
		     (job->flags & past) == past))
		mode = CACHE_WRITETHROUGH;
	/* in another mode, so that it is not at the store before what was asked for earlier */
	if (mode == CACHE_WRITEBACK && unlikely(cache_bypass_any(peer)) &&
		cache_bypass_overlaps(peer, object, first, count))
		mode = CACHE_WRITEAROUND;
	cache_modes[mode]->write(peer, object, job);
}

/* Needs no place of its own: it is not made only for that. Whoever ends another phase waits for all
   that was handed on, so in those nothing is. */
static bool io_hands_on(struct peer *peer, struct job *job)
{
	struct cache_local *local = cache_volume_local_get(peer, job->key.volume);
	if (unlikely(!local))
		return false;
	uint32_t mode = atomic_load_explicit(&local->volume->mode, memory_order_relaxed);
	return mode != CACHE_WRITEBACK && cache_phase_now(peer) == CACHE_CACHING &&
	       cache_mode_writethrough_forwards(local, mode) &&
	       cache_bypass_write(peer, local, cache_object_find(peer, &job->key), job);
}

void cache_io_write(struct peer *peer, struct job *job)
{
	struct cache *cache = cache_of(peer);
	struct cache_object *object;
	if (unlikely(io_is_passed(peer, job))) {
		job_forward(job, CACHE_STORE);
		return;
	}
	if (unlikely(cache->waiting.count) && cache->waiting.retried != job &&
		cache->admitted != job) {
		cache_wait(peer, job);
		return;
	}
	if (io_hands_on(peer, job))
		return;
	int error = cache_object_get(peer, &job->key, &object);
	if (unlikely(error == -EMFILE)) {
		job_forward(job, CACHE_STORE);
	} else if (unlikely(error) && cache_object_bypassing(peer, &job->key, &object)) {
		cache_wait(peer, job);
	} else {
		/* to make room for it all of its buckets may go */
		uint32_t index = object->index;
		if (likely(!error))
			xcache_ref_object(cache->index, index);
		io_write(peer, object, job);
		xcache_unref_object(cache->index, index);
	}
}

/* Few zeroes, written like any other data where that stays here: less than to make the store do it.
   */
void cache_io_zero(struct peer *peer, struct job *job)
{
	struct cache_local *local = NULL;
	bool plain = !(job->flags & (XSEG_F_NO_HOLE | XSEG_F_FAST_ONLY)) &&
		     job->length <= IO_ZERO_MAX && !io_is_passed(peer, job);
	if (plain && job->key.volume && cache_phase_now(peer) == CACHE_CACHING)
		local = cache_volume_local_get(peer, job->key.volume);
	if (local && atomic_load(&local->volume->mode) == CACHE_WRITEBACK)
		cache_io_write(peer, job);
	else
		cache_barrier_zero(peer, job);
}

void cache_io_prefetch(struct peer *peer, struct job *job)
{
	struct cache_object *object;
	if (io_is_passed(peer, job) || cache_phase_now(peer) != CACHE_CACHING) {
		job_forward(job, CACHE_STORE);
		return;
	}
	uint32_t first = (uint32_t)job->offset / XSEG_PAGE;
	uint32_t end = ((uint32_t)job->offset + job->length - 1) / XSEG_PAGE + 1;
	bool begins = job->tries++ == 0 && cache_object_get(peer, &job->key, &object) == 0;
	if (!begins || !cache_fill_ahead(peer, object, job, first, end - first))
		job_complete(job, 0);
}

/* Where its first bucket's entry lies. */
static void io_expect_entry(struct cache *cache, struct job *job)
{
	job->guess = XCACHE_NONE;
	if (job->op > XSEG_OP_WRITE || job->offset >= XSEG_OBJECT_MAX)
		return;
	if (job->op == XSEG_OP_WRITE && job->extent_count)
		cpu_prefetch_own(&cache->descriptors[job->extents[0].page]);
	uint32_t object = xcache_find_object(cache->index, &job->key);
	if (object == XCACHE_NONE)
		return;
	job->guess = xcache_lookup(cache->index, object, (uint32_t)job->offset / XSEG_PAGE);
	if (job->guess != XCACHE_NONE)
		__builtin_prefetch(xcache_entry(cache->index, job->guess));
}

/* A reader's CPU has had the descriptor last, for its unpin; so has that of a page that comes. */
void cache_io_expect(struct peer *peer, struct job *job, unsigned step)
{
	struct cache *cache = cache_of(peer);
	if (step == 0) {
		io_expect_entry(cache, job);
	} else if (likely(job->guess != XCACHE_NONE)) {
		uint32_t page = xcache_entry(cache->index, job->guess)->page;
		if (likely(page != XCACHE_NONE))
			cpu_prefetch_own(&cache->descriptors[page]);
	}
}

/* --- the pool ------------------------------------------------------------------------ */

#define POOL_LOOK_NS 1000000u
#define POOL_COUNT_PAGES 262144u /* counting takes a microsecond for so many */
#define POOL_EVICT_MAX 1024u	 /* buckets at once */

/*
 * Whoever stores pages leaves an eighth of the pool to requests on their way (peer_pages_low()).
 * A blocker that is at this mark waits, and what it waits for is with us: so we give clean buckets
 * back a little earlier than that.
 */
static void io_look_at_pool(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	const struct xseg *seg = peer_segment(peer);
	uint64_t now = peer_now_ns(peer);
	if (likely(now - cache->pool_seen_ns < POOL_LOOK_NS))
		return;
	cache->pool_seen_ns = now;
	cache_bypass_turn(peer);
	if (likely(now < cache->pool_count_ns))
		return;
	uint32_t want = seg->page_count / 8 + seg->page_count / 64;
	uint32_t there = xseg_page_free_count(seg);
	/* far from the mark a thousandth of the time is enough for it */
	if (there >= 2 * want)
		cache->pool_count_ns = now + POOL_LOOK_NS * (seg->page_count / POOL_COUNT_PAGES);
	if (likely(there >= want))
		return;
	uint32_t evict = (want - there) / peer->shards + 64;
	xcache_evict(cache->index, evict < POOL_EVICT_MAX ? evict : POOL_EVICT_MAX);
}

uint64_t cache_io_due_ns(const struct peer *peer)
{
	const struct cache *cache = cache_of(peer);
	bool looks = cache->writeback.writing || cache->writes_through || cache_bypass_any(peer);
	return looks ? peer_now_ns(peer) + POOL_LOOK_NS : 0;
}

/* --- figures of volumes ------------------------------------------------------------- */

static void io_add(_Atomic uint64_t *to, uint32_t *from)
{
	if (*from)
		atomic_fetch_add_explicit(to, *from, memory_order_relaxed);
	*from = 0;
}

void cache_io_turn(struct peer *peer)
{
	struct cache *cache = cache_of(peer);
	struct cache_local *local;
	cache->passed += cache_phase_now(peer) == CACHE_PASSING;
	if (LIST_EMPTY(&cache->tallied))
		cache->idle_ns += peer_now_ns(peer) - cache->turn_ns;
	cache->turn_ns = peer_now_ns(peer);
	while (unlikely((local = LIST_FIRST(&cache->tallied)) != NULL)) {
		struct cache_volume *volume = local->volume;
		LIST_REMOVE(local, tallied);
		local->tally.listed = false;
		io_add(&volume->hits, &local->tally.hits);
		io_add(&volume->misses, &local->tally.misses);
		io_add(&volume->fills, &local->tally.fills);
		io_add(&volume->bypasses, &local->tally.bypasses);
		io_add(&volume->evictions, &local->tally.evictions);
	}
	io_look_at_pool(peer);
	uint32_t pinned = cache_pin_count(peer);
	if (unlikely(pinned != cache->pinned_shown))
		atomic_store_explicit(&peer->stats->counters[PEER_COUNTER(CACHE_PINNED)],
			cache->pinned_shown = pinned, memory_order_relaxed);
}
