/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buckets from what a job writes. A page is never written again once it is kept: a reader may look
 * at it, and a kill would tear it. So each write makes a new page, the request's own or one with
 * what was there around it, and that takes the old one's place.
 *
 * First everything that can fail: entries and pages for the whole request, or none. Entries are
 * parked for that, so that one does not go to make room for the other.
 */
#include <base/clock.h>
#include <base/crash.h>
#include <base/must.h>
#include <errno.h>
#include <peer/keep.h>
#include <string.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_work.h"

struct write {
	struct peer *peer;
	struct cache *cache;
	struct cache_object *object;
	struct job *job;
	uint32_t epoch, first, count;
	uint32_t made, older; /* entries: new ones, and such that are dirty in an epoch before */
	uint32_t donated, copied, partial;
	bool donate;
};

/* What one bucket gets of the job's data. */
struct write_piece {
	uint32_t at;	       /* in the data */
	uint32_t from, length; /* in the bucket */
	unsigned mask;	       /* sectors */
};

static inline struct write_piece write_piece(const struct write *w, uint32_t i)
{
	uint32_t begin = (uint32_t)w->job->offset, end = begin + w->job->length;
	uint32_t low = (w->first + i) * XSEG_PAGE, high = low + XSEG_PAGE;
	struct write_piece piece = {
		.at = low < begin ? 0 : low - begin, .from = low < begin ? begin - low : 0};
	piece.length = (high < end ? high : end) - low - piece.from;
	piece.mask = ((1u << piece.length / XSEG_SECTOR) - 1) << piece.from / XSEG_SECTOR;
	return piece;
}

static struct write write_begin(struct peer *peer, struct cache_object *object, struct job *job)
{
	uint32_t first = (uint32_t)job->offset / XSEG_PAGE;
	return (struct write){.peer = peer,
		.cache = cache_of(peer),
		.object = object,
		.job = job,
		.first = first,
		.count = ((uint32_t)job->offset + job->length - 1) / XSEG_PAGE - first + 1};
}

/* --- what can fail ------------------------------------------------------------------ */

/* The first `count` entries are as they were. */
static void write_undo_entries(struct write *w, uint32_t count)
{
	struct xcache *index = w->cache->index;
	while (count-- > 0) {
		uint32_t entry = w->cache->scratch.entries[count];
		const struct xcache_entry *e = xcache_entry(index, entry);
		if (e->page == XCACHE_NONE)
			xcache_remove(index, entry);
		else if (!cache_entry_is_dirty(e))
			xcache_unpark(index, entry);
	}
}

/* An entry for the bucket, parked. */
static inline int write_entry(struct write *w, uint32_t i)
{
	struct xcache *index = w->cache->index;
	uint32_t entry = xcache_lookup(index, w->object->index, w->first + i);
	if (entry == XCACHE_NONE) {
		if (unlikely(xcache_insert(index, w->object->index, w->first + i, &entry)))
			return -EAGAIN;
		w->made++;
		xcache_park(index, entry);
	} else {
		const struct xcache_entry *e = xcache_entry(index, entry);
		/* it is dropped, and by then here */
		cpu_prefetch_own(&w->cache->descriptors[e->page]);
		xcache_hit(index, entry);
		if (!cache_entry_is_dirty(e))
			xcache_park(index, entry);
		else
			w->older += e->word != w->epoch;
	}
	w->cache->scratch.entries[i] = entry;
	return 0;
}

static int write_entries(struct write *w)
{
	for (uint32_t i = 0; i < w->count; i++)
		if (unlikely(write_entry(w, i))) {
			write_undo_entries(w, i);
			return -EAGAIN;
		}
	/* those that are dirty in an epoch before go on by themselves, and need another entry */
	uint32_t room = w->older ? xcache_room(w->cache->index) : 0;
	if (unlikely(w->older > room)) {
		xcache_evict(w->cache->index, w->older - room);
		if (xcache_room(w->cache->index) < w->older) {
			write_undo_entries(w, w->count);
			return -EAGAIN;
		}
	}
	return 0;
}

static inline bool write_is_given(const struct write *w, uint32_t i)
{
	return w->cache->scratch.given[i];
}

static void write_undo_pages(struct write *w, uint32_t count)
{
	while (count-- > 0)
		if (!write_is_given(w, count))
			peer_page_let_go(w->peer, w->cache->scratch.pages[count]);
}

/* The request's own page where it may be kept, else one of ours. */
static inline int write_page(struct write *w, uint32_t i)
{
	uint32_t page = XSEG_NONE;
	if (w->donate) {
		struct write_piece piece = write_piece(w, i);
		if (piece.mask == CACHE_ALL_SECTORS)
			page = job_whole_page(w->job, piece.at);
	}
	w->cache->scratch.given[i] = page != XSEG_NONE;
	if (page == XSEG_NONE && peer_page_hold(w->peer, &page, 1))
		return -EAGAIN;
	w->cache->scratch.pages[i] = page;
	return 0;
}

static int write_pages(struct write *w)
{
	/* what is given is gone from the pool as well, unless it takes the place of another */
	if (unlikely(peer_pages_low(w->peer)) && (w->made + w->older) > 0)
		return -EAGAIN;
	for (uint32_t i = 0; i < w->count; i++)
		if (unlikely(write_page(w, i))) {
			write_undo_pages(w, i);
			return -EAGAIN;
		}
	return 0;
}

static int write_reserve(struct write *w)
{
	int error = write_entries(w);
	if (unlikely(error))
		return error;
	error = write_pages(w);
	if (unlikely(error))
		write_undo_entries(w, w->count);
	return error;
}

/* --- what cannot ----------------------------------------------------------------------- */

/* What was valid before lies around what is new. */
static void write_build(struct write *w, const struct write_piece *piece, uint32_t page,
	uint32_t old, unsigned keep)
{
	uint8_t *to = peer_page_memory(w->peer, page);
	if (keep & ~piece->mask)
		memcpy(to, peer_page_memory(w->peer, old), XSEG_PAGE);
	if (w->job->op == XSEG_OP_WRITE)
		job_get_bytes(w->job, piece->at, to + piece->from, piece->length);
	else
		memset(to + piece->from, 0, piece->length);
}

/* The page is KEPT; -errno: the client has taken it back, the bucket stays as it was. */
static inline int write_publish(struct write *w, uint32_t i, const struct write_piece *piece,
	uint32_t old, unsigned valid, unsigned dirty)
{
	uint32_t page = w->cache->scratch.pages[i];
	if (likely(write_is_given(w, i))) {
		cache_bucket_describe(
			w->peer, w->object, w->first + i, page, CACHE_ALL_SECTORS, dirty, w->epoch);
		w->donated++;
		return peer_page_keep_job(w->job, page);
	}
	write_build(w, piece, page, old, valid);
	cache_bucket_describe(
		w->peer, w->object, w->first + i, page, valid | piece->mask, dirty, w->epoch);
	crash_point("cache.write.described");
	peer_page_keep(w->peer, page);
	w->copied += piece->mask == CACHE_ALL_SECTORS;
	w->partial += piece->mask != CACHE_ALL_SECTORS;
	return 0;
}

static void write_failed(struct write *w, uint32_t entry)
{
	const struct xcache_entry *e = xcache_entry(w->cache->index, entry);
	if (e->page == XCACHE_NONE) {
		xcache_remove(w->cache->index, entry);
		w->made--;
	} else if (!cache_entry_is_dirty(e)) {
		xcache_unpark(w->cache->index, entry);
	}
}

/* The old version goes on by itself; a new entry for the bucket. There is room for it. */
static uint32_t write_anew(struct write *w, uint32_t i, uint32_t entry)
{
	struct xcache *index = w->cache->index;
	cache_bucket_loosen(w->peer, w->object, entry);
	int error = xcache_insert(index, w->object->index, w->first + i, &entry);
	must(!error);
	xcache_park(index, entry);
	return entry;
}

static inline int write_bucket(struct write *w, uint32_t i)
{
	struct cache_scratch *scratch = &w->cache->scratch;
	struct write_piece piece = write_piece(w, i);
	uint32_t entry = scratch->entries[i];
	struct xcache_entry *e = xcache_entry(w->cache->index, entry);
	uint32_t old = e->page;
	unsigned valid = e->valid, dirty = piece.mask;
	bool was_dirty = cache_entry_is_dirty(e), again = was_dirty && e->word == w->epoch;
	must(!again || e->bucket_state == BUCKET_DIRTY); /* an open epoch is not written back */
	if (again && dirty != CACHE_ALL_SECTORS)
		dirty |= atomic_load_explicit(
			&w->cache->descriptors[old].dirty, memory_order_relaxed);
	if (unlikely(write_publish(w, i, &piece, old, valid, dirty))) {
		write_failed(w, entry);
		return -EBADMSG;
	}
	crash_point("cache.write.kept");
	if (unlikely(was_dirty && !again)) {
		e = xcache_entry(w->cache->index, entry = write_anew(w, i, entry));
		old = XCACHE_NONE;
	}
	e->page = scratch->pages[i];
	e->valid = (uint8_t)(valid | piece.mask);
	e->marks = 0;
	if (old != XCACHE_NONE)
		scratch->drops[scratch->drop_count++] = old;
	if (!again)
		cache_epoch_add(w->peer, w->object->local, entry, w->epoch);
	return 0;
}

static void write_account(struct write *w)
{
	uint32_t more = w->made + w->older;
	if (more)
		cache_volume_use(w->peer, w->object->local, (int32_t)more);
	if (w->donated)
		peer_count(w->peer, CACHE_DONATED, w->donated);
	if (w->copied)
		peer_count(w->peer, CACHE_COPIED, w->copied);
	if (w->partial)
		peer_count(w->peer, CACHE_PARTIAL, w->partial);
}

int cache_write_buckets(struct peer *peer, struct cache_object *object, struct job *job,
	uint32_t epoch, bool donate)
{
	struct write w = write_begin(peer, object, job);
	w.epoch = epoch;
	w.donate = donate;
	must(epoch != CACHE_NO_EPOCH && w.cache->scratch.drop_count == 0);
	must(!cache_object_is_bypassing(object));
	int error = write_reserve(&w);
	if (unlikely(error))
		return error;
	for (uint32_t i = 0; i < w.count; i++) {
		int failed = write_bucket(&w, i);
		error = error ? error : failed;
	}
	write_account(&w);
	crash_point("cache.write.indexed");
	return error;
}

void cache_write_end(struct peer *peer)
{
	struct cache_scratch *scratch = &cache_of(peer)->scratch;
	for (uint32_t i = 0; i < scratch->drop_count; i++) {
		crash_point("cache.write.drop");
		peer_page_drop(peer, scratch->drops[i]);
	}
	scratch->drop_count = 0;
}

/* --- what the store has already ---------------------------------------------------------- */

/* The new contents take the old ones' place; there is a page for them. */
static void clean_replace(
	struct write *w, uint32_t i, const struct write_piece *piece, uint32_t entry, uint32_t page)
{
	struct xcache_entry *e = xcache_entry(w->cache->index, entry);
	unsigned valid = e->valid | piece->mask;
	uint32_t old = e->page;
	write_build(w, piece, page, old, e->valid);
	cache_bucket_describe(w->peer, w->object, w->first + i, page, valid, 0, 0);
	peer_page_keep(w->peer, page);
	e->page = page;
	if (e->marks & CACHE_E_THROUGH)
		cache_volume_write_known(w->object->local, false);
	e->valid = (uint8_t)valid;
	e->marks = (uint8_t)((e->marks & CACHE_E_AHEAD) | CACHE_E_THROUGH);
	crash_point("cache.write.through_kept");
	peer_page_drop(w->peer, old);
}

static void clean_insert(struct write *w, uint32_t i, const struct write_piece *piece)
{
	uint32_t page, entry;
	if (piece->mask != CACHE_ALL_SECTORS || cache_object_is_bypassing(w->object) ||
		cache_phase_now(w->peer) != CACHE_CACHING || (w->job->flags & XSEG_F_NO_CACHE) ||
		!cache_volume_allows(w->peer, w->object->local, 1) ||
		peer_page_hold(w->peer, &page, 1))
		return;
	if (xcache_insert(w->cache->index, w->object->index, w->first + i, &entry)) {
		peer_page_let_go(w->peer, page);
		return;
	}
	write_build(w, piece, page, XCACHE_NONE, 0);
	cache_bucket_describe(w->peer, w->object, w->first + i, page, piece->mask, 0, 0);
	peer_page_keep(w->peer, page);
	struct xcache_entry *e = xcache_entry(w->cache->index, entry);
	e->page = page;
	e->valid = (uint8_t)piece->mask;
	e->marks = CACHE_E_THROUGH;
	cache_volume_use(w->peer, w->object->local, 1);
}

void cache_write_clean(struct peer *peer, struct cache_object *object, struct job *job, bool insert)
{
	struct write w = write_begin(peer, object, job);
	for (uint32_t i = 0; i < w.count; i++) {
		struct write_piece piece = write_piece(&w, i);
		uint32_t entry = xcache_lookup(w.cache->index, object->index, w.first + i), page;
		if (entry == XCACHE_NONE && insert)
			clean_insert(&w, i, &piece);
		else if (entry == XCACHE_NONE)
			continue;
		else if (cache_entry_is_dirty(xcache_entry(w.cache->index, entry)) ||
			 peer_page_hold(peer, &page, 1))
			cache_bucket_forget(peer, object, w.first + i, 1);
		else
			clean_replace(&w, i, &piece, entry, page);
	}
}

void cache_write_invalidate(struct peer *peer, struct cache_object *object, struct job *job)
{
	struct write w = write_begin(peer, object, job);
	for (uint32_t i = 0; i < w.count; i++) {
		uint32_t entry = xcache_lookup(w.cache->index, object->index, w.first + i);
		if (entry == XCACHE_NONE)
			continue;
		const struct xcache_entry *e = xcache_entry(w.cache->index, entry);
		unsigned valid = e->valid & ~write_piece(&w, i).mask;
		atomic_store_explicit(&peer_page_about(peer, e->page)->valid, (uint8_t)valid,
			memory_order_relaxed);
	}
	crash_point("cache.write.invalidated");
}
