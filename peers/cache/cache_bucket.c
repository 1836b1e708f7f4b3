/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of the index and the kept pages behind them: made, forgotten, evicted. */
#include <base/crash.h>
#include <base/must.h>
#include <errno.h>
#include <peer/keep.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_object.h"

static struct cache_object *owner_of(struct cache *cache, uint32_t object)
{
	return xcache_object(cache->index, object)->owner;
}

/* --- hooks of the index --------------------------------------------------------------- */

static void bucket_object_init(void *owner, uint32_t index)
{
	struct cache *cache = cache_of(owner);
	struct cache_object *object = slab_take(&cache->pools.objects);
	must(object); /* there are as many as the index may have */
	object->index = index;
	object->record = XCACHE_NONE;
	object->local = NULL;
	object->changes = 0;
	TAILQ_INIT(&object->ranges);
	xcache_object(cache->index, index)->owner = object;
}

static void bucket_object_free(void *owner, uint32_t index)
{
	struct cache *cache = cache_of(owner);
	struct cache_object *object = owner_of(cache, index);
	must(TAILQ_EMPTY(&object->ranges));
	if (object->record != XCACHE_NONE)
		cache_meta_object_free(owner, object->record);
	slab_give(&cache->pools.objects, object);
}

/* Not while a fill of its place is under way: it would bring back what the store had before. */
static bool bucket_evict(void *owner, uint32_t entry)
{
	struct peer *peer = owner;
	struct cache *cache = cache_of(peer);
	struct xcache_entry *e = xcache_entry(cache->index, entry);
	struct cache_object *object = owner_of(cache, e->object);
	if (unlikely(!TAILQ_EMPTY(&object->ranges)) &&
		!cache_range_is_free(object, e->bucket, 1, true))
		return false;
	peer_page_drop(peer, e->page);
	e->page = XCACHE_NONE;
	cache_volume_use(peer, object->local, -1);
	object->local->tally.evictions++;
	if (e->marks & CACHE_E_THROUGH)
		cache_volume_write_known(object->local, false);
	cache_tally(cache, object->local);
	peer_count(peer, CACHE_EVICTED, 1);
	return true;
}

const struct xcache_hooks cache_hooks = {
	.object_init = bucket_object_init,
	.object_free = bucket_object_free,
	.evict = bucket_evict,
};

/* --- objects ---------------------------------------------------------------------------- */

/* record: XCACHE_NONE for one that is to be made. */
static int object_complete(
	struct peer *peer, struct cache_object *object, const struct xseg_key *key, uint32_t record)
{
	struct cache *cache = cache_of(peer);
	uint32_t index = object->index;
	int error = 0;
	object->local = cache_volume_local_get(peer, key->volume);
	if (!object->local)
		error = -EMFILE;
	else if (record != XCACHE_NONE)
		object->record = record;
	else if (cache_meta_object(peer, key, &object->record))
		error = -ENOSPC;
	if (error) {
		object->record = XCACHE_NONE;
		xcache_ref_object(cache->index, index);
		xcache_unref_object(cache->index, index);
	}
	return error;
}

static int object_get(struct peer *peer, const struct xseg_key *key, uint32_t record,
	struct cache_object **object)
{
	struct cache *cache = cache_of(peer);
	uint32_t index;
	int error = xcache_get_object(cache->index, key, &index);
	if (unlikely(error))
		return error;
	*object = owner_of(cache, index);
	if (likely(!cache_object_is_bypassing(*object)))
		return 0;
	return object_complete(peer, *object, key, record);
}

int cache_object_get(struct peer *peer, const struct xseg_key *key, struct cache_object **object)
{
	return object_get(peer, key, XCACHE_NONE, object);
}

int cache_object_adopt(struct peer *peer, const struct xseg_key *key, uint32_t record,
	struct cache_object **object)
{
	return object_get(peer, key, record, object);
}

int cache_object_bypassing(
	struct peer *peer, const struct xseg_key *key, struct cache_object **object)
{
	struct cache *cache = cache_of(peer);
	struct cache_local *local = cache_volume_local_get(peer, key->volume);
	uint32_t index;
	if (!local)
		return -EMFILE;
	int error = xcache_hold_object(cache->index, key, &index);
	if (error)
		return error;
	*object = owner_of(cache, index);
	(*object)->local = local;
	return 0;
}

struct cache_object *cache_object_find(struct peer *peer, const struct xseg_key *key)
{
	struct cache *cache = cache_of(peer);
	uint32_t index = xcache_find_object(cache->index, key);
	return likely(index != XCACHE_NONE) ? owner_of(cache, index) : NULL;
}

struct cache_object *cache_object_of_entry(struct peer *peer, uint32_t entry)
{
	struct cache *cache = cache_of(peer);
	const struct xcache_entry *e = xcache_entry(cache->index, entry);
	struct xseg_key key;
	if (e->object != XCACHE_NONE)
		return owner_of(cache, e->object);
	must(cache_meta_key(peer, peer_page_about(peer, e->page)->object, &key));
	struct cache_object *object = cache_object_find(peer, &key);
	must(object);
	return object;
}

/* --- one bucket --------------------------------------------------------------------------- */

const struct sm_state cache_bucket_states[] = {
	[BUCKET_CLEAN] = {"clean", SM(BUCKET_DIRTY)},
	[BUCKET_DIRTY] = {"dirty", SM(BUCKET_CLEAN) | SM(BUCKET_WRITING)},
	[BUCKET_WRITING] = {"writing", SM(BUCKET_WRITTEN) | SM(BUCKET_DIRTY) | SM(BUCKET_CLEAN)},
	[BUCKET_WRITTEN] = {"written", SM(BUCKET_CLEAN) | SM(BUCKET_DIRTY)},
};

void cache_bucket_describe(struct peer *peer, const struct cache_object *object, uint32_t bucket,
	uint32_t page, unsigned valid, unsigned dirty, uint32_t epoch)
{
	struct xseg_page_descriptor *about = peer_page_about(peer, page);
	atomic_store_explicit(&about->valid, (uint8_t)valid, memory_order_relaxed);
	atomic_store_explicit(&about->dirty, (uint8_t)dirty, memory_order_relaxed);
	about->bucket = (uint16_t)bucket;
	about->object = object->record;
	about->sequence = ++cache_of(peer)->sequence;
	about->crc32c = 0;
	about->epoch = epoch;
}

void cache_bucket_remove(struct peer *peer, uint32_t entry)
{
	struct cache *cache = cache_of(peer);
	struct xcache_entry *e = xcache_entry(cache->index, entry);
	must(!cache_entry_is_dirty(e));
	cache_volume_use(peer, cache_object_of_entry(peer, entry)->local, -1);
	peer_page_drop(peer, e->page);
	e->page = XCACHE_NONE;
	xcache_remove(cache->index, entry);
}

void cache_bucket_cleaned(struct peer *peer, uint32_t entry)
{
	struct cache *cache = cache_of(peer);
	struct xcache_entry *e = xcache_entry(cache->index, entry);
	bool loose = e->state == XCACHE_LOOSE;
	must(!cache_entry_is_dirty(e));
	if (loose || (e->marks & CACHE_E_DOOMED)) {
		uint32_t object = cache_object_of_entry(peer, entry)->index;
		cache_bucket_remove(peer, entry);
		if (loose)
			xcache_unref_object(cache->index, object);
		return;
	}
	atomic_store_explicit(&peer_page_about(peer, e->page)->dirty, 0, memory_order_relaxed);
	crash_point("cache.bucket.cleaned");
	xcache_unpark(cache->index, entry);
}

void cache_bucket_loosen(struct peer *peer, struct cache_object *object, uint32_t entry)
{
	struct cache *cache = cache_of(peer);
	xcache_ref_object(cache->index, object->index);
	xcache_loosen(cache->index, entry);
}

/* --- many ------------------------------------------------------------------------------------ */

bool cache_bucket_any_dirty(
	struct peer *peer, const struct cache_object *object, uint32_t first, uint32_t count)
{
	struct cache *cache = cache_of(peer);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t entry = xcache_lookup(cache->index, object->index, first + i);
		if (entry != XCACHE_NONE && cache_entry_is_dirty(xcache_entry(cache->index, entry)))
			return true;
	}
	return false;
}

static void bucket_forget(struct peer *peer, struct cache_object *object, uint32_t entry)
{
	struct xcache_entry *e = xcache_entry(cache_of(peer)->index, entry);
	if (e->bucket_state == BUCKET_WRITING) {
		e->marks |= CACHE_E_DOOMED;
		cache_bucket_loosen(peer, object, entry);
		return;
	}
	if (cache_entry_is_dirty(e))
		cache_epoch_remove(peer, object->local, entry);
	cache_bucket_remove(peer, entry);
}

void cache_bucket_forget(
	struct peer *peer, struct cache_object *object, uint32_t first, uint32_t count)
{
	struct cache *cache = cache_of(peer);
	const struct xcache_object *x = xcache_object(cache->index, object->index);
	xcache_ref_object(cache->index, object->index);
	object->changes++;
	for (uint32_t i = first; i < first + count && x->count; i++) {
		uint32_t entry = xcache_lookup(cache->index, object->index, i);
		if (entry != XCACHE_NONE)
			bucket_forget(peer, object, entry);
	}
	crash_point("cache.bucket.forgotten");
	xcache_unref_object(cache->index, object->index);
}

/* Clean ones of one object, at most `most`. */
static uint32_t object_drop_clean(struct peer *peer, struct cache_object *object, uint32_t most)
{
	struct cache *cache = cache_of(peer);
	const struct xcache_object *x = xcache_object(cache->index, object->index);
	uint32_t dropped = 0;
	xcache_ref_object(cache->index, object->index);
	for (uint32_t bucket = 0; bucket < XCACHE_BUCKETS && dropped < most; bucket++) {
		if (bucket % 16 == 0 && !x->group[bucket / 16]) {
			bucket += 15;
			continue;
		}
		uint32_t entry = xcache_lookup(cache->index, object->index, bucket);
		if (entry == XCACHE_NONE || xcache_entry(cache->index, entry)->state != XCACHE_IN)
			continue;
		cache_bucket_remove(peer, entry);
		dropped++;
	}
	object->changes += dropped > 0;
	xcache_unref_object(cache->index, object->index);
	return dropped;
}

uint32_t cache_bucket_drop_clean(struct peer *peer, uint64_t volume)
{
	struct cache *cache = cache_of(peer);
	uint32_t cursor = 0, index, dropped = 0;
	while ((index = xcache_next_object(cache->index, &cursor)) != XCACHE_NONE) {
		const struct xcache_object *x = xcache_object(cache->index, index);
		if (volume && x->key.volume != volume)
			continue;
		struct cache_object *object = x->owner;
		dropped += object_drop_clean(peer, object, XCACHE_BUCKETS);
		object->changes++; /* what is on its way here may be older */
	}
	return dropped;
}

/* Not by the policy, which knows no volumes: round and round over the objects. */
#define SWEEP_LOOK 32u

uint32_t cache_bucket_evict_local(struct peer *peer, struct cache_local *local, uint32_t count)
{
	struct cache *cache = cache_of(peer);
	uint32_t dropped = 0;
	for (uint32_t i = 0; i < SWEEP_LOOK && dropped < count; i++) {
		uint32_t index = xcache_next_object(cache->index, &cache->sweep);
		if (index == XCACHE_NONE) {
			cache->sweep = 0;
			continue;
		}
		struct cache_object *object = owner_of(cache, index);
		if (object->local != local || !TAILQ_EMPTY(&object->ranges))
			continue;
		dropped += object_drop_clean(peer, object, count - dropped);
		/* the rest of a large one is for the next time */
		if (dropped == count && cache->sweep > 0)
			cache->sweep--;
	}
	return dropped;
}
