/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads: out of buckets as far as they have it, as pinned pages or as a copy. What is missing is
 * fetched run by run; each run is copied as soon as it is there, so that they need not all be in
 * the cache at once.
 *
 * job->progress: the bytes that have been copied; job->tries: how often what was fetched for it
 * had been overtaken by a change.
 */
#include <base/clock.h>
#include <peer/keep.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_work.h"

static inline unsigned read_mask(const struct job *job, uint32_t bucket)
{
	uint32_t begin = (uint32_t)job->offset, end = begin + job->length;
	uint32_t low = bucket * XSEG_PAGE, high = low + XSEG_PAGE;
	unsigned first = low < begin ? (begin - low) / XSEG_SECTOR : 0;
	unsigned last = (high < end ? XSEG_PAGE : end - low) / XSEG_SECTOR;
	return ((1u << last) - 1) & ~((1u << first) - 1);
}

static inline bool read_has(const struct xcache_entry *e, unsigned mask)
{
	return (e->valid & mask) == mask;
}

static void read_copy_pages(struct peer *peer, struct job *job, const uint32_t *pages)
{
	uint32_t from = (uint32_t)job->offset % XSEG_PAGE, size;
	for (uint32_t at = 0; at < job->length; at += size, from = 0) {
		size = XSEG_PAGE - from;
		if (size > job->length - at)
			size = job->length - at;
		job_put_bytes(job, at, peer_page_memory(peer, *pages++) + from, size);
	}
}

/* Somebody wants to know when a bucket is read for the first time. */
#define READ_FIRST (CACHE_E_AHEAD | CACHE_E_FILLED | CACHE_E_THROUGH)

/* The pages of all of it; false: something is missing. */
static inline bool read_find(struct cache *cache, const struct cache_object *object,
	const struct job *job, uint32_t *count, bool *ahead)
{
	uint32_t first = (uint32_t)job->offset / XSEG_PAGE;
	uint32_t last = ((uint32_t)job->offset + job->length - 1) / XSEG_PAGE;
	for (uint32_t bucket = first; bucket <= last; bucket++) {
		uint32_t entry = xcache_lookup(cache->index, object->index, bucket);
		if (entry == XCACHE_NONE)
			return false;
		struct xcache_entry *e = xcache_entry(cache->index, entry);
		if (!read_has(e, read_mask(job, bucket)))
			return false;
		/* the client's CPU has had it last, for its unpin */
		cpu_prefetch_own(&cache->descriptors[e->page]);
		if (unlikely(e->marks & READ_FIRST) && !cache->filling) {
			*ahead |= (e->marks & CACHE_E_AHEAD) != 0;
			object->local->reads.read += (e->marks & CACHE_E_FILLED) != 0;
			if (e->marks & CACHE_E_THROUGH)
				cache_volume_write_known(object->local, true);
			e->marks &= (uint8_t)~READ_FIRST;
		}
		xcache_hit(cache->index, entry);
		cache->scratch.pages[bucket - first] = e->page;
	}
	*count = last - first + 1;
	return true;
}

/* The whole answer from buckets, if they have it. */
bool cache_read_whole(struct peer *peer, struct cache_object *object, struct job *job)
{
	struct cache *cache = cache_of(peer);
	struct cache_local *local = object->local;
	uint32_t count = 0;
	bool ahead = false;
	if (!read_find(cache, object, job, &count, &ahead))
		return false;
	local->tally.hits += count;
	cache_tally(cache, local);
	peer_count(peer, CACHE_HITS, count);
	if (unlikely(ahead))
		cache_stream_follow(peer, object, job);
	if ((job->flags & XSEG_F_PIN) && cache_pin_allowed(peer, job, count) &&
		job_answer_pages(job, cache->scratch.pages, count) == 0)
		cache_pin_add(peer, job, count);
	else
		read_copy_pages(peer, job, cache->scratch.pages);
	job_complete(job, job->length);
	return true;
}

/* Bytes of the job that lie in that bucket, `at` being the first of them. */
static uint32_t read_size(const struct job *job, uint32_t at)
{
	uint32_t size = XSEG_PAGE - (uint32_t)(job->offset + at) % XSEG_PAGE;
	return size < job->length - at ? size : job->length - at;
}

/* From `at` on, as far as buckets have it. */
static uint32_t read_copy(
	struct peer *peer, const struct cache_object *object, struct job *job, uint32_t at)
{
	struct cache *cache = cache_of(peer);
	for (uint32_t size; at < job->length; at += size) {
		uint32_t offset = (uint32_t)job->offset + at, bucket = offset / XSEG_PAGE;
		uint32_t entry = xcache_lookup(cache->index, object->index, bucket);
		if (entry == XCACHE_NONE)
			break;
		const struct xcache_entry *e = xcache_entry(cache->index, entry);
		if (!read_has(e, read_mask(job, bucket)))
			break;
		size = read_size(job, at);
		job_put_bytes(job, at, peer_page_memory(peer, e->page) + offset % XSEG_PAGE, size);
	}
	return at;
}

/* How many buckets from the one at `at` on to the last that is missing. */
static uint32_t read_missing(
	struct peer *peer, const struct cache_object *object, const struct job *job, uint32_t at)
{
	struct cache *cache = cache_of(peer);
	uint32_t first = ((uint32_t)job->offset + at) / XSEG_PAGE, count = 1;
	uint32_t last = ((uint32_t)job->offset + job->length - 1) / XSEG_PAGE;
	for (uint32_t bucket = first + 1; bucket <= last && bucket - first < CACHE_FILL_PAGES;
		bucket++) {
		uint32_t entry = xcache_lookup(cache->index, object->index, bucket);
		if (entry == XCACHE_NONE ||
			!read_has(xcache_entry(cache->index, entry), read_mask(job, bucket)))
			count = bucket - first + 1;
	}
	return count;
}

void cache_read(struct peer *peer, struct cache_object *object, struct job *job)
{
	if (likely(!job->progress && !job->tries) && likely(cache_read_whole(peer, object, job)))
		return;
	uint32_t next = read_copy(peer, object, job, job->progress);
	if (next == job->length) {
		job_complete(job, job->length);
		return;
	}
	job->progress = next;
	cache_fill_read(peer, object, job, ((uint32_t)job->offset + next) / XSEG_PAGE,
		read_missing(peer, object, job, next));
}
