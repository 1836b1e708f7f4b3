/* SPDX-License-Identifier: Apache-2.0 */
/* After a start: the pages that this port keeps become entries again. */
#include <errno.h>
#include <peer/keep.h>
#include <xseg/page.h>

#include "peers/cache/cache.h"

struct adopt {
	struct peer *peer;
	struct cache *cache;
	const struct xseg *seg;
	uint64_t count;
	bool passing;
	struct cache_object *last; /* held */
	uint32_t last_record;
	int error;
	char *why;
	size_t why_size;
};

/* What a descriptor says, read once. */
struct adopt_page {
	uint32_t page, bucket, record, epoch;
	unsigned valid, dirty;
	uint64_t sequence;
};

static inline struct adopt_page adopt_look(const struct xseg *seg, uint32_t page)
{
	const struct xseg_page_descriptor *about = &seg->descriptors[page];
	struct adopt_page found = {.page = page,
		.bucket = about->bucket,
		.record = about->object,
		.epoch = about->epoch,
		.valid = atomic_load_explicit(&about->valid, memory_order_relaxed),
		.dirty = atomic_load_explicit(&about->dirty, memory_order_relaxed),
		.sequence = about->sequence};
	found.dirty &= found.valid;
	return found;
}

static void adopt_fail(struct adopt *adopt, int error, const char *what)
{
	if (!adopt->error)
		snprintf(adopt->why, adopt->why_size,
			"peer '%s' cannot take over what it has kept: %s", adopt->peer->name, what);
	adopt->error = error;
}

/* The record that the object goes by; as a rule that is what the page says. */
static inline void adopt_name(
	struct adopt *adopt, const struct cache_object *object, const struct adopt_page *page)
{
	if (unlikely(page->record != object->record))
		adopt->seg->descriptors[page->page].object = object->record;
}

static void adopt_entry(struct adopt *adopt, struct cache_object *object, uint32_t entry,
	const struct adopt_page *page)
{
	struct xcache_entry *e = xcache_entry(adopt->cache->index, entry);
	e->page = page->page;
	e->flags = (uint16_t)(page->valid << 8);
	adopt_name(adopt, object, page);
	cache_flow_used(adopt->peer, object->flow, 1);
	adopt->count++;
	if (!page->dirty)
		return;
	xcache_park(adopt->cache->index, entry);
	cache_epoch_add(adopt->peer, object->flow, entry, page->epoch);
}

/* An older version, which has to reach the store before the one that is there. */
static void adopt_loose(
	struct adopt *adopt, struct cache_object *object, const struct adopt_page *page)
{
	uint32_t entry;
	if (xcache_loose(adopt->cache->index, &entry)) {
		adopt_fail(adopt, -ENOSPC,
			"more is dirty than its size allows; give it a larger size");
		return;
	}
	struct xcache_entry *e = xcache_entry(adopt->cache->index, entry);
	xcache_ref_object(adopt->cache->index, object->index);
	e->page = page->page;
	e->bucket = (uint16_t)page->bucket;
	e->flags = (uint16_t)(page->valid << 8);
	adopt_name(adopt, object, page);
	cache_flow_used(adopt->peer, object->flow, 1);
	adopt->count++;
	cache_epoch_add(adopt->peer, object->flow, entry, page->epoch);
}

static void adopt_take(struct adopt *adopt, struct cache_object *object, int error, uint32_t entry,
	const struct adopt_page *page)
{
	if (likely(!error))
		adopt_entry(adopt, object, entry, page);
	else if (page->dirty)
		adopt_fail(adopt, -ENOSPC,
			"more is dirty than its size allows; give it a larger size");
	else
		peer_page_drop(adopt->peer, page->page);
}

/* Its bucket is free. */
static void adopt_insert(
	struct adopt *adopt, struct cache_object *object, const struct adopt_page *page)
{
	uint32_t entry;
	int error = xcache_insert(adopt->cache->index, object->index, page->bucket, &entry);
	adopt_take(adopt, object, error, entry, page);
}

/*
 * Two pages for one bucket. Both dirty, of different epochs: the newer epoch is the bucket, the
 * older one goes to the store before it. Else we were killed between putting one in the place of
 * the other and dropping that one: the later counts.
 */
static void adopt_second(struct adopt *adopt, struct cache_object *object, uint32_t entry,
	const struct adopt_page *page)
{
	struct peer *peer = adopt->peer;
	const struct xcache_entry *e = xcache_entry(adopt->cache->index, entry);
	struct adopt_page there = adopt_look(adopt->seg, e->page);
	bool versions = page->dirty && there.dirty && page->epoch != there.epoch;
	bool newer = versions ? cache_epoch_before(there.epoch, page->epoch)
			      : there.sequence < page->sequence;
	if (!newer && versions) {
		adopt_loose(adopt, object, page);
	} else if (!newer) {
		peer_page_drop(peer, page->page);
	} else if (versions) {
		cache_bucket_loosen(peer, object, entry);
		adopt_insert(adopt, object, page);
	} else {
		xcache_ref_object(adopt->cache->index, object->index);
		if (there.dirty)
			cache_epoch_remove(peer, object->flow, entry);
		cache_bucket_remove(peer, entry);
		adopt->count--;
		adopt_insert(adopt, object, page);
		xcache_unref_object(adopt->cache->index, object->index);
	}
}

static void adopt_mine(
	struct adopt *adopt, struct cache_object *object, const struct adopt_page *page)
{
	uint32_t entry;
	int error = xcache_insert(adopt->cache->index, object->index, page->bucket, &entry);
	if (unlikely(error == -EEXIST))
		adopt_second(adopt, object, entry, page);
	else
		adopt_take(adopt, object, error, entry, page);
}

/* The object that a record names, if it is ours. Neighbours are of one object, as a rule. */
static struct cache_object *adopt_object(struct adopt *adopt, const struct adopt_page *page)
{
	struct peer *peer = adopt->peer;
	struct xcache *index = adopt->cache->index;
	struct cache_object *object;
	struct xseg_key key;
	if (!cache_meta_key(peer, page->record, &key)) {
		/* nobody can say whose it is; one shard is to drop it */
		if (peer->shard == 0)
			peer_page_drop(peer, page->page);
		return NULL;
	}
	if (!cache_key_is_mine(peer, &key))
		return NULL;
	int error = cache_object_adopt(peer, &key, page->record, &object);
	if (error && page->dirty)
		adopt_fail(adopt, error,
			"it has dirty data of more objects or volumes than its options allow; give "
			"it more");
	else if (error)
		peer_page_drop(peer, page->page);
	if (error)
		return NULL;
	xcache_ref_object(index, object->index);
	if (adopt->last)
		xcache_unref_object(index, adopt->last->index);
	adopt->last = object;
	adopt->last_record = page->record;
	return object;
}

static void adopt_page(struct adopt *adopt, uint32_t number)
{
	struct peer *peer = adopt->peer;
	struct adopt_page page = adopt_look(adopt->seg, number);
	if (page.bucket == CACHE_META_BUCKET)
		return;
	if (page.sequence > adopt->cache->sequence)
		adopt->cache->sequence = page.sequence;
	if (page.bucket >= XCACHE_BUCKETS || !page.valid || (!page.dirty && adopt->passing)) {
		if (peer->shard == 0)
			peer_page_drop(peer, number);
		return;
	}
	struct cache_object *object = adopt->last;
	if (!object || page.record != adopt->last_record)
		object = adopt_object(adopt, &page);
	if (object)
		adopt_mine(adopt, object, &page);
}

static void adopt_walk(struct adopt *adopt)
{
	uint32_t cursor = 0, page;
	while (!adopt->error &&
		(page = xseg_page_next_kept(adopt->seg, adopt->peer->port, &cursor)) != XSEG_NONE)
		adopt_page(adopt, page);
}

int cache_bucket_adopt(struct peer *peer, char *why, size_t why_size)
{
	struct adopt adopt = {.peer = peer,
		.cache = cache_of(peer),
		.seg = peer_segment(peer),
		.passing = cache_phase_now(peer) == CACHE_PASSING,
		.why = why,
		.why_size = why_size};
	adopt_walk(&adopt);
	if (adopt.last)
		xcache_unref_object(adopt.cache->index, adopt.last->index);
	peer_count(peer, CACHE_ADOPTED, adopt.count);
	return adopt.error;
}
