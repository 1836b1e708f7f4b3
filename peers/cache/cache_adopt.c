/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a start: the pages that this port keeps become entries again.
 *
 * One walk over the descriptors collects what is of one record and of one kind (clean, or dirty in
 * one epoch) in the record's batch; a full batch goes into the index as a whole. So neither the
 * object nor its queue is looked for page by page, in whatever order its pages lie.
 */
#include <base/crash.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <xseg/page.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_object.h"

#define ADOPT_BATCH 16u	  /* pages */
#define ADOPT_TABLE 4096u /* batches at most: objects of 16 GiB */
#define ADOPT_CLEAN 0u	  /* kind */

/* Of one record; another one that needs its place in the table has it put in before. */
struct adopt_batch {
	struct cache_object *object; /* held; NULL: none; &others */
	uint32_t record, count;
	uint64_t kind; /* ADOPT_CLEAN, or dirty: epoch << 1 | 1 */
	struct xcache_found found[ADOPT_BATCH];
};

struct adopt {
	struct peer *peer;
	struct cache *cache;
	const struct xseg *seg;
	uint64_t count, sequence;
	bool passing;
	struct adopt_batch *batches; /* by the record's low bits */
	uint32_t mask;
	int error;
	char *why;
	size_t why_size;
};

/* In the place of an object that is another shard's. */
static struct cache_object others;

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
		.record = xseg_peek(about->object),
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
		xseg_poke(adopt->seg->descriptors[page->page].object, object->record);
}

static void adopt_entry(struct adopt *adopt, struct cache_object *object, uint32_t entry,
	const struct adopt_page *page)
{
	struct xcache_entry *e = xcache_entry(adopt->cache->index, entry);
	e->page = page->page;
	e->valid = page->valid;
	adopt_name(adopt, object, page);
	cache_volume_use(adopt->peer, object->local, 1);
	adopt->count++;
	if (!page->dirty)
		return;
	xcache_park(adopt->cache->index, entry);
	cache_epoch_add(adopt->peer, object->local, entry, page->epoch);
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
	e->valid = page->valid;
	adopt_name(adopt, object, page);
	cache_volume_use(adopt->peer, object->local, 1);
	adopt->count++;
	cache_epoch_add(adopt->peer, object->local, entry, page->epoch);
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
			cache_epoch_remove(peer, object->local, entry);
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

/* --- batches ----------------------------------------------------------------------------- */

/* Those that went into the index as a whole. */
static void adopt_took(
	struct adopt *adopt, const struct adopt_batch *batch, uint32_t first, uint32_t count)
{
	struct cache_object *object = batch->object;
	struct cache_list list = {first, first + count - 1, count};
	cache_volume_use(adopt->peer, object->local, (int32_t)count);
	adopt->count += count;
	if (batch->kind != ADOPT_CLEAN)
		cache_epoch_join(adopt->peer, object->local, &list, (uint32_t)(batch->kind >> 1));
	for (uint32_t i = 0; unlikely(batch->record != object->record) && i < count; i++) {
		uint32_t page = xcache_entry(adopt->cache->index, first + i)->page;
		xseg_poke(adopt->seg->descriptors[page].object, object->record);
	}
}

/* What cannot go in with others does so by itself. */
static void adopt_flush(struct adopt *adopt, struct adopt_batch *batch)
{
	uint32_t done = 0, first, count = batch->count;
	crash_point("cache.adopt.batch");
	bool dirty = batch->kind != ADOPT_CLEAN;
	while (done < count && !adopt->error) {
		uint32_t took =
			xcache_adopt(adopt->cache->index, batch->object->index, &batch->found[done],
				count - done, dirty, (uint32_t)(batch->kind >> 1), &first);
		if (took)
			adopt_took(adopt, batch, first, took);
		done += took;
		if (done < count) {
			struct adopt_page page = adopt_look(adopt->seg, batch->found[done++].page);
			adopt_mine(adopt, batch->object, &page);
		}
	}
	batch->count = 0;
}

static void adopt_let_go(struct adopt *adopt, struct adopt_batch *batch)
{
	if (batch->count)
		adopt_flush(adopt, batch);
	if (batch->object && batch->object != &others)
		xcache_unref_object(adopt->cache->index, batch->object->index);
	batch->object = NULL;
}

static void adopt_let_all_go(struct adopt *adopt)
{
	for (uint32_t i = 0; i <= adopt->mask; i++)
		adopt_let_go(adopt, &adopt->batches[i]);
}

/* The object that a record names, if it is ours; &others, or NULL: the page was seen to. */
static struct cache_object *adopt_object(struct adopt *adopt, const struct adopt_page *page)
{
	struct peer *peer = adopt->peer;
	struct cache_object *object;
	struct xseg_key key;
	if (!cache_meta_key(peer, page->record, &key)) {
		/* nobody can say whose it is; one shard is to drop it */
		if (peer->shard == 0)
			peer_page_drop(peer, page->page);
		return NULL;
	}
	if (!cache_key_is_mine(peer, &key))
		return &others;
	int error = cache_object_adopt(peer, &key, page->record, &object);
	if (unlikely(error == -ENOSPC)) {
		/* the objects of batches are held: clean ones may go when they are not */
		adopt_let_all_go(adopt);
		error = cache_object_adopt(peer, &key, page->record, &object);
	}
	if (!error) {
		xcache_ref_object(adopt->cache->index, object->index);
		return object;
	}
	if (page->dirty)
		adopt_fail(adopt, error,
			"it has dirty data of more objects or volumes than its options allow; give "
			"it more");
	else
		peer_page_drop(peer, page->page);
	return NULL;
}

/* The batch is another record's, or nobody's yet; false: the page is not for us. */
static bool adopt_begin(
	struct adopt *adopt, struct adopt_batch *batch, const struct adopt_page *page)
{
	adopt_let_go(adopt, batch);
	if (adopt->error)
		return false;
	struct cache_object *object = adopt_object(adopt, page);
	batch->object = object;
	batch->record = page->record;
	return object && object != &others;
}

/* --- the walk ------------------------------------------------------------------------------- */

static inline void adopt_page(struct adopt *adopt, uint32_t number)
{
	struct adopt_page page = adopt_look(adopt->seg, number);
	if (unlikely(page.bucket == CACHE_META_BUCKET))
		return;
	if (page.sequence > adopt->sequence)
		adopt->sequence = page.sequence;
	if (unlikely(page.bucket >= XCACHE_BUCKETS || !page.valid ||
		     (!page.dirty && adopt->passing))) {
		if (adopt->peer->shard == 0)
			peer_page_drop(adopt->peer, number);
		return;
	}
	struct adopt_batch *batch = &adopt->batches[page.record & adopt->mask];
	if (unlikely(!batch->object || batch->record != page.record) &&
		!adopt_begin(adopt, batch, &page))
		return;
	if (batch->object == &others)
		return;
	uint64_t kind = page.dirty ? (uint64_t)page.epoch << 1 | 1 : ADOPT_CLEAN;
	if (unlikely(batch->count == ADOPT_BATCH || batch->kind != kind))
		adopt_flush(adopt, batch);
	batch->kind = kind;
	batch->found[batch->count++] = (struct xcache_found){.page = number,
		.bucket = (uint16_t)page.bucket,
		.valid = page.valid,
		.bucket_state = page.dirty ? BUCKET_DIRTY : BUCKET_CLEAN};
}

static void adopt_walk(struct adopt *adopt)
{
	uint32_t cursor = 0, page;
	while (!adopt->error &&
		(page = xseg_page_next_kept(adopt->seg, adopt->peer->port, &cursor)) != XSEG_NONE)
		adopt_page(adopt, page);
}

/* A batch for each record, as far as there are; memory for this shard's part of the entries. */
static int adopt_open(struct adopt *adopt)
{
	const struct cache_shared *shared = cache_shared(adopt->peer);
	uint32_t records = atomic_load(&shared->record_page_count) * CACHE_META_RECORDS;
	uint32_t count = 1;
	while (count < records && count < ADOPT_TABLE)
		count *= 2;
	adopt->mask = count - 1;
	adopt->batches = calloc(count, sizeof(*adopt->batches));
	if (adopt->batches && !adopt->passing)
		xcache_expect(adopt->cache->index, shared->kept_pages / adopt->peer->shards);
	return adopt->batches ? 0 : -ENOMEM;
}

int cache_adopt(struct peer *peer, char *why, size_t why_size)
{
	struct adopt adopt = {.peer = peer,
		.cache = cache_of(peer),
		.seg = peer_segment(peer),
		.passing = cache_phase_now(peer) == CACHE_PASSING,
		.why = why,
		.why_size = why_size};
	if (adopt_open(&adopt)) {
		adopt_fail(&adopt, -ENOMEM, "no memory");
		return adopt.error;
	}
	adopt_walk(&adopt);
	adopt_let_all_go(&adopt);
	free(adopt.batches);
	adopt.cache->sequence = adopt.sequence;
	peer_count(peer, CACHE_ADOPTED, adopt.count);
	return adopt.error;
}
