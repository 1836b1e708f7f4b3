/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the store into buckets. A fill holds its part of the object with others that read; nothing
 * in it is evicted meanwhile, so what a bucket has is never older than what the fill brings, and
 * the fill only adds what is missing. Who misses the same waits for it.
 *
 * Where there is no room the job goes past us, or, when a part of its range is only here, is read
 * into its own pages and what we have is laid over it.
 */
#include <base/container.h>
#include <base/crash.h>
#include <base/must.h>
#include <errno.h>
#include <peer/keep.h>
#include <string.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_work.h"

#define FILL_TRIES 2u /* that were overtaken by a change, before the job is passed on */

static struct cache_work *fill_of(struct cache_range *range)
{
	return container_of(range, struct cache_work, range);
}

static uint32_t job_first(const struct job *job) { return (uint32_t)job->offset / XSEG_PAGE; }

static uint32_t job_count(const struct job *job)
{
	return ((uint32_t)job->offset + job->length - 1) / XSEG_PAGE - job_first(job) + 1;
}

/* --- past us ---------------------------------------------------------------------- */

void cache_fill_pass(struct peer *peer, struct cache_local *local, struct job *job)
{
	uint32_t count = job_count(job);
	local->tally.bypasses += count;
	cache_tally(cache_of(peer), local);
	peer_count(peer, CACHE_BYPASSES, count);
	job_forward(job, CACHE_STORE);
}

static bool fill_may_pass(
	struct peer *peer, const struct cache_object *object, const struct job *job)
{
	return !cache_bucket_any_dirty(peer, object, job_first(job), job_count(job));
}

/* --- the answer ---------------------------------------------------------------------- */

/* Sectors that the bucket has, over what is in the job's data already. */
static void fill_overlay(struct peer *peer, const struct cache_object *object, struct job *job,
	uint32_t at, uint32_t size)
{
	struct cache *cache = cache_of(peer);
	uint32_t offset = (uint32_t)job->offset + at;
	uint32_t entry = xcache_lookup(cache->index, object->index, offset / XSEG_PAGE);
	if (entry == XCACHE_NONE)
		return;
	const struct xcache_entry *e = xcache_entry(cache->index, entry);
	const uint8_t *memory = peer_page_memory(peer, e->page);
	for (uint32_t done = 0; done < size; done += XSEG_SECTOR) {
		uint32_t in = (offset + done) % XSEG_PAGE;
		if (e->valid >> in / XSEG_SECTOR & 1u)
			job_put_bytes(job, at + done, memory + in, XSEG_SECTOR);
	}
}

static uint32_t fill_piece(const struct job *job, uint32_t at)
{
	uint32_t size = XSEG_PAGE - (uint32_t)(job->offset + at) % XSEG_PAGE;
	return size < job->length - at ? size : job->length - at;
}

/* What this fill has brought of the job; the pages of those that are not in the index are still
   ours. */
static void fill_copy(struct peer *peer, struct cache_work *work, struct job *job)
{
	uint32_t at = job->progress, size;
	uint32_t end = work->range.first + work->range.count;
	for (; at < job->length; at += size) {
		uint32_t offset = (uint32_t)job->offset + at, bucket = offset / XSEG_PAGE;
		if (bucket >= end)
			break;
		size = fill_piece(job, at);
		uint32_t page = work->pages[bucket - work->range.first];
		if (page != XSEG_NONE)
			job_put_bytes(
				job, at, peer_page_memory(peer, page) + offset % XSEG_PAGE, size);
		fill_overlay(peer, work->object, job, at, size);
	}
	job->progress = at;
}

static void fill_copy_borrowed(struct peer *peer, struct cache_work *work, struct job *job)
{
	uint32_t at = job->progress, size;
	for (; at < job->length; at += size)
		fill_overlay(peer, work->object, job, at, size = fill_piece(job, at));
	job->progress = at;
}

/* --- into the index --------------------------------------------------------------------- */

/* A bucket that has some sectors: they stay, around them comes what the store has. */
static void fill_complete(struct peer *peer, struct cache_work *work, uint32_t i, uint32_t entry)
{
	struct xcache_entry *e = xcache_entry(cache_of(peer)->index, entry);
	struct cache_local *local = work->object->local;
	bool dirty = cache_entry_is_dirty(e);
	unsigned valid = e->valid;
	/* one of a closed epoch may be on its way: it stays as it is */
	if (valid == CACHE_ALL_SECTORS || (dirty && cache_epoch_is_closed(local, e->word)))
		return;
	uint32_t page = work->pages[i], old = e->page;
	uint8_t *to = peer_page_memory(peer, page);
	const uint8_t *from = peer_page_memory(peer, old);
	for (uint32_t at = 0; at < XSEG_PAGE; at += XSEG_SECTOR)
		if (valid >> at / XSEG_SECTOR & 1u)
			memcpy(to + at, from + at, XSEG_SECTOR);
	unsigned mask = dirty ? atomic_load_explicit(
					&peer_page_about(peer, old)->dirty, memory_order_relaxed)
			      : 0;
	cache_bucket_describe(
		peer, work->object, e->bucket, page, CACHE_ALL_SECTORS, mask, dirty ? e->word : 0);
	peer_page_keep(peer, page);
	crash_point("cache.fill.completed");
	e->page = page;
	e->valid = CACHE_ALL_SECTORS;
	work->pages[i] = XSEG_NONE;
	peer_page_drop(peer, old);
}

static void fill_merge(struct peer *peer, struct cache_work *work, uint32_t i)
{
	struct cache *cache = cache_of(peer);
	uint32_t bucket = work->range.first + i, object = work->object->index;
	uint32_t entry = xcache_lookup(cache->index, object, bucket);
	if (entry != XCACHE_NONE) {
		fill_complete(peer, work, i, entry);
		return;
	}
	if (xcache_insert(cache->index, object, bucket, &entry))
		return;
	struct xcache_entry *e = xcache_entry(cache->index, entry);
	cache_bucket_describe(peer, work->object, bucket, work->pages[i], CACHE_ALL_SECTORS, 0, 0);
	peer_page_keep(peer, work->pages[i]);
	crash_point("cache.fill.kept");
	e->page = work->pages[i];
	e->valid = CACHE_ALL_SECTORS;
	e->marks = work->ahead ? CACHE_E_AHEAD : CACHE_E_FILLED;
	work->pages[i] = XSEG_NONE;
	cache_volume_use(peer, work->object->local, 1);
}

/* --- the end of a fill --------------------------------------------------------------------- */

static void fill_let_go(struct peer *peer, struct cache_work *work)
{
	for (uint32_t i = 0; i < work->count; i++)
		if (work->pages[i] != XSEG_NONE)
			peer_page_let_go(peer, work->pages[i]);
	work->count = 0;
}

/* Those who waited go on while this part of the object is still held: nobody empties it before. */
static void fill_leave(struct peer *peer, struct cache_work *work)
{
	struct job *job;
	fill_let_go(peer, work);
	work->range.go = NULL; /* not to be joined any more */
	cache_of(peer)->filling = true;
	while ((job = TAILQ_FIRST(&work->joined))) {
		TAILQ_REMOVE(&work->joined, job, link);
		cache_again(peer, job);
	}
	cache_of(peer)->filling = false;
	cache_range_unlock(peer, &work->range);
	slab_give(&cache_of(peer)->pools.works, work);
}

static void fill_count(struct peer *peer, struct cache_work *work, uint32_t bytes)
{
	uint32_t count = work->count;
	struct cache_local *local = work->object->local;
	peer_count(peer, CACHE_FILL_BYTES, bytes);
	if (!count)
		return;
	if (!work->ahead)
		cache_stream_paid(
			cache_of(peer), local, count, cache_of(peer)->idle_ns - work->idle_ns);
	local->tally.fills += count;
	cache_tally(cache_of(peer), local);
	peer_count(peer, work->ahead ? CACHE_AHEAD : CACHE_FILLS, count);
}

static void fill_answer(struct peer *peer, struct cache_work *work, struct job *job)
{
	if (!work->count)
		fill_copy_borrowed(peer, work, job);
	else if (!job->progress && !job->tries && cache_read_whole(peer, work->object, job))
		return;
	else
		fill_copy(peer, work, job);
	if (job->progress == job->length)
		job_complete(job, job->length);
	else
		cache_read(peer, work->object, job);
}

/* The store was changed past the buckets meanwhile. */
static void fill_overtaken(struct peer *peer, struct cache_work *work)
{
	struct job *job = work->job;
	if (!job)
		return;
	work->range.go = NULL; /* it must not join this one */
	if (++job->tries > FILL_TRIES && fill_may_pass(peer, work->object, job))
		cache_fill_pass(peer, work->object->local, job);
	else
		cache_read(peer, work->object, job);
}

/* While all is passed on nobody tells us of writes. */
static bool fill_is_kept(const struct peer *peer, const struct cache_work *work)
{
	return cache_phase_now(peer) == CACHE_CACHING && work->passed == cache_of(peer)->passed;
}

static void fill_done(struct call *call)
{
	struct peer *peer = call->peer;
	struct cache_work *work = call->context;
	int error = call->result;
	uint32_t bytes = call->length;
	call_end(call);
	crash_point("cache.fill.answered");
	if (error) {
		if (work->job)
			job_fail(work->job, error);
	} else if (work->changes != work->object->changes) {
		fill_overtaken(peer, work);
	} else {
		fill_count(peer, work, bytes);
		for (uint32_t i = 0; i < work->count && fill_is_kept(peer, work); i++)
			fill_merge(peer, work, i);
		work->range.go = NULL;
		cache_of(peer)->filling = true;
		if (work->job)
			fill_answer(peer, work, work->job);
		cache_of(peer)->filling = false;
	}
	fill_leave(peer, work);
}

/* --- its beginning ---------------------------------------------------------------------------- */

static int fill_data(struct cache_work *work, struct call *call)
{
	struct job *job = work->job;
	if (work->count) {
		call->offset = (uint64_t)work->range.first * XSEG_PAGE;
		call->length = work->count * XSEG_PAGE;
		return call_lend(call, work->pages, work->count);
	}
	uint32_t at = job->progress;
	call->offset = job->offset + at;
	call->length = job->length - at;
	return call_borrow(call, job, at, job->length - at);
}

static bool fill_send(struct peer *peer, void *context)
{
	struct cache_work *work = context;
	struct call *call;
	if (call_begin(peer, &call))
		return false;
	call->op = XSEG_OP_READ;
	call->flags = work->job ? work->job->flags & XSEG_F_URGENT : 0;
	call->key = xcache_object(cache_of(peer)->index, work->object->index)->key;
	call->context = work;
	if (fill_data(work, call)) {
		call_end(call);
		return false;
	}
	call_submit(call, CACHE_STORE, fill_done);
	return true;
}

static int fill_pages(struct peer *peer, struct cache_work *work, uint32_t count)
{
	int error = peer_page_hold(peer, work->pages, count);
	if (unlikely(error) && xcache_evict(cache_of(peer)->index, 2 * count))
		error = peer_page_hold(peer, work->pages, count);
	work->count = error ? 0 : count;
	return error;
}

static void fill_start(struct peer *peer, struct cache_work *work)
{
	work->changes = work->object->changes;
	work->idle_ns = cache_of(peer)->idle_ns;
	work->passed = cache_of(peer)->passed;
	if (!fill_send(peer, work))
		peer_retry(peer, fill_send, work);
}

static void fill_go(struct peer *peer, struct cache_range *range)
{
	fill_start(peer, fill_of(range));
}

/* A fill that brings all of these buckets, and has not been answered yet. */
static struct cache_work *fill_under_way(
	struct cache_object *object, uint32_t first, uint32_t count)
{
	struct cache_range *range;
	TAILQ_FOREACH (range, &object->ranges, link) {
		if (range->go == fill_go && fill_of(range)->count && range->first <= first &&
			first + count <= range->first + range->count)
			return fill_of(range);
	}
	return NULL;
}

static struct cache_work *fill_begin(struct peer *peer, struct cache_object *object,
	struct job *job, uint32_t first, uint32_t count)
{
	struct cache_work *work = slab_take(&cache_of(peer)->pools.works);
	if (!work)
		return NULL;
	work->range = (struct cache_range){.first = first, .count = count, .go = fill_go};
	work->object = object;
	work->job = job;
	work->count = 0;
	work->ahead = !job;
	TAILQ_INIT(&work->joined);
	return work;
}

static void fill_enter(struct peer *peer, struct cache_work *work)
{
	if (cache_range_lock(peer, work->object, &work->range))
		fill_start(peer, work);
}

/* Room for them in buckets, and will they be what the store has? */
static bool fill_keeps(struct peer *peer, struct cache_object *object, const struct job *job,
	uint32_t first, uint32_t count)
{
	struct cache_local *local = object->local;
	if ((job->flags & XSEG_F_NO_CACHE) || cache_phase_now(peer) != CACHE_CACHING ||
		cache_bypass_overlaps(peer, object, first, count))
		return false;
	return cache_volume_allows(peer, local, count) ||
	       (cache_bucket_evict_local(peer, local, count) >= count &&
		       cache_volume_allows(peer, local, count));
}

/* A part of it is only here: past the index, into the job's own pages. */
static void fill_through(struct peer *peer, struct cache_object *object, struct job *job)
{
	uint32_t first = ((uint32_t)job->offset + job->progress) / XSEG_PAGE;
	if (fill_may_pass(peer, object, job)) {
		cache_fill_pass(peer, object->local, job);
		return;
	}
	struct cache_work *work =
		fill_begin(peer, object, job, first, job_first(job) + job_count(job) - first);
	if (work)
		fill_enter(peer, work);
	else
		cache_wait(peer, job);
}

static void fill_job(struct peer *peer, struct cache_object *object, struct job *job,
	uint32_t first, uint32_t count)
{
	struct cache_work *work = NULL;
	if (fill_keeps(peer, object, job, first, count)) {
		work = fill_begin(peer, object, job, first, count);
		if (!work) {
			cache_wait(peer, job);
			return;
		}
	}
	if (work && fill_pages(peer, work, count) == 0) {
		fill_enter(peer, work);
		return;
	}
	if (work)
		slab_give(&cache_of(peer)->pools.works, work);
	fill_through(peer, object, job);
}

void cache_fill_read(struct peer *peer, struct cache_object *object, struct job *job,
	uint32_t first, uint32_t count)
{
	struct cache_work *other = fill_under_way(object, first, count);
	struct cache *cache = cache_of(peer);
	uint32_t index = object->index;
	object->local->tally.misses += count;
	cache_tally(cache, object->local);
	peer_count(peer, CACHE_MISSES, count);
	if (other) {
		TAILQ_INSERT_TAIL(&other->joined, job, link);
		return;
	}
	/* the last bucket of it may go to make room */
	xcache_ref_object(cache->index, index);
	bool alone = !job->progress && !job->tries && count == job_count(job);
	bool pass =
		cache_stream_read(peer, object, job) || cache_stream_skips(cache, object->local);
	if (pass && alone && fill_may_pass(peer, object, job))
		cache_fill_pass(peer, object->local, job);
	else
		fill_job(peer, object, job, first, count);
	xcache_unref_object(cache->index, index);
}

static bool fill_is_there(struct peer *peer, const struct cache_object *object, uint32_t bucket)
{
	return xcache_lookup(cache_of(peer)->index, object->index, bucket) != XCACHE_NONE;
}

bool cache_fill_ahead(struct peer *peer, struct cache_object *object, struct job *job,
	uint32_t first, uint32_t count)
{
	struct cache *cache = cache_of(peer);
	uint32_t end = first + (count < CACHE_FILL_PAGES ? count : CACHE_FILL_PAGES);
	end = end < XCACHE_BUCKETS ? end : XCACHE_BUCKETS;
	while (first < end && fill_is_there(peer, object, first))
		first++;
	while (first < end && fill_is_there(peer, object, end - 1))
		end--;
	if (first >= end || cache->waiting.count || peer_pages_low(peer) ||
		!cache_range_is_free(object, first, end - first, true) ||
		cache_bypass_overlaps(peer, object, first, end - first) ||
		!cache_volume_allows(peer, object->local, end - first))
		return false;
	struct cache_work *work = fill_begin(peer, object, NULL, first, end - first);
	if (!work)
		return false;
	if (fill_pages(peer, work, end - first)) {
		slab_give(&cache->pools.works, work);
		return false;
	}
	if (job)
		TAILQ_INSERT_TAIL(&work->joined, job, link);
	fill_enter(peer, work);
	return true;
}
