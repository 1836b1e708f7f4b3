/* SPDX-License-Identifier: Apache-2.0 */
/* The index's upper level: objects by key, and which of them has to go. */
#include <errno.h>
#include <sys/mman.h>

#include "peers/cache/xcache_priv.h"

#define CANDIDATES 8u /* objects looked at to find one that can go */

/* --- the hash of objects ------------------------------------------------------------- */

static uint32_t *head_of(const struct xcache *cache, const struct xseg_key *key)
{
	return &cache->heads[xcache_hash_key(key) & cache->head_mask];
}

static bool key_equal(const struct xseg_key *a, const struct xseg_key *b)
{
	return a->object == b->object && a->volume == b->volume && a->epoch == b->epoch;
}

struct xcache_object *xcache_object(struct xcache *cache, uint32_t object)
{
	return slab_at(&cache->objects, object);
}

uint32_t xcache_find_object(struct xcache *cache, const struct xseg_key *key)
{
	if (cache->last != XCACHE_NONE && key_equal(&xcache_object(cache, cache->last)->key, key))
		return cache->last;
	for (uint32_t index = *head_of(cache, key); index;) {
		const struct xcache_object *object = xcache_object(cache, index - 1);
		if (key_equal(&object->key, key))
			return cache->last = index - 1;
		index = object->next;
	}
	return XCACHE_NONE;
}

/* --- their order, oldest first ------------------------------------------------------- */

static void order_push(struct xcache *cache, uint32_t object)
{
	struct xcache_object *o = xcache_object(cache, object);
	o->older = cache->newest;
	o->newer = XCACHE_NONE;
	if (cache->newest == XCACHE_NONE)
		cache->oldest = object;
	else
		xcache_object(cache, cache->newest)->newer = object;
	cache->newest = object;
}

static void order_cut(struct xcache *cache, uint32_t object)
{
	const struct xcache_object *o = xcache_object(cache, object);
	if (o->older == XCACHE_NONE)
		cache->oldest = o->newer;
	else
		xcache_object(cache, o->older)->newer = o->newer;
	if (o->newer == XCACHE_NONE)
		cache->newest = o->older;
	else
		xcache_object(cache, o->newer)->older = o->older;
}

void xcache_object_renew(struct xcache *cache, uint32_t object)
{
	if (cache->newest == object)
		return;
	order_cut(cache, object);
	order_push(cache, object);
}

/* --- their life ---------------------------------------------------------------------- */

static void object_free(struct xcache *cache, uint32_t object)
{
	struct xcache_object *o = xcache_object(cache, object);
	if (cache->hooks.object_free)
		cache->hooks.object_free(cache->owner, object);
	uint32_t *link = head_of(cache, &o->key);
	while (*link != object + 1)
		link = &xcache_object(cache, *link - 1)->next;
	*link = o->next;
	order_cut(cache, object);
	if (cache->last == object)
		cache->last = XCACHE_NONE;
	o->parked = XCACHE_NONE; /* says that it is free, see xcache_next_object() */
	slab_put(&cache->objects, object);
	*(o->beyond ? &cache->beyond : &cache->object_count) -= 1;
}

void xcache_object_settle(struct xcache *cache, uint32_t object)
{
	const struct xcache_object *o = xcache_object(cache, object);
	if (o->count == 0 && o->refs == 0)
		object_free(cache, object);
}

/* All of its entries, as far as the owner lets them go. */
static bool object_evict(struct xcache *cache, uint32_t object)
{
	struct xcache_object *o = xcache_object(cache, object);
	if (o->refs || o->parked)
		return false;
	o->refs++;
	for (uint32_t bucket = 0; bucket < XCACHE_BUCKETS && o->count; bucket++) {
		if (!o->group[bucket / XCACHE_GROUP]) {
			bucket |= XCACHE_GROUP - 1;
			continue;
		}
		uint32_t entry = xcache_lookup(cache, object, bucket);
		if (entry != XCACHE_NONE && !xcache_entry_evict(cache, entry))
			break;
	}
	o->refs--;
	bool empty = o->count == 0;
	xcache_object_settle(cache, object);
	return empty;
}

/*
 * As many as allowed: the oldest goes. One that cannot is not asked again before all others, so
 * that those held for long do not stand before those that could go.
 */
static int make_room(struct xcache *cache)
{
	bool went = false;
	for (unsigned i = 0; i < CANDIDATES && cache->object_count >= cache->object_limit; i++) {
		uint32_t oldest = cache->oldest;
		if (oldest == XCACHE_NONE)
			break;
		if (object_evict(cache, oldest))
			went = true;
		else
			xcache_object_renew(cache, oldest);
	}
	return went || cache->object_count < cache->object_limit ? 0 : -ENOSPC;
}

/* All that it was opened for are there. */
static bool is_full(const struct xcache *cache)
{
	return cache->object_count + cache->beyond >= cache->objects.count;
}

static void object_make(
	struct xcache *cache, const struct xseg_key *key, bool beyond, uint32_t *object)
{
	struct xcache_object *o = slab_get(&cache->objects, object);
	must(o);
	uint32_t *head = head_of(cache, key);
	*o = (struct xcache_object){.key = *key, .next = *head, .beyond = beyond};
	*head = *object + 1;
	order_push(cache, *object);
	*(beyond ? &cache->beyond : &cache->object_count) += 1;
	cache->last = *object;
	if (cache->hooks.object_init)
		cache->hooks.object_init(cache->owner, *object);
}

int xcache_get_object(struct xcache *cache, const struct xseg_key *key, uint32_t *object)
{
	*object = xcache_find_object(cache, key);
	if (likely(*object != XCACHE_NONE) && likely(!xcache_object(cache, *object)->beyond))
		return 0;
	int error = make_room(cache);
	if (error)
		return error;
	if (*object != XCACHE_NONE) {
		xcache_object(cache, *object)->beyond = false;
		cache->beyond--;
		cache->object_count++;
	} else if (is_full(cache)) {
		return -ENOSPC;
	} else {
		object_make(cache, key, false, object);
	}
	return 0;
}

int xcache_hold_object(struct xcache *cache, const struct xseg_key *key, uint32_t *object)
{
	*object = xcache_find_object(cache, key);
	if (*object == XCACHE_NONE) {
		if (is_full(cache))
			return -ENOSPC;
		object_make(cache, key, true, object);
	}
	xcache_ref_object(cache, *object);
	return 0;
}

void xcache_ref_object(struct xcache *cache, uint32_t object)
{
	xcache_object(cache, object)->refs++;
}

void xcache_unref_object(struct xcache *cache, uint32_t object)
{
	must(xcache_object(cache, object)->refs > 0);
	xcache_object(cache, object)->refs--;
	xcache_object_settle(cache, object);
}

uint32_t xcache_next_object(struct xcache *cache, uint32_t *cursor)
{
	while (*cursor < cache->objects.touched) {
		uint32_t object = (*cursor)++;
		if (xcache_object(cache, object)->parked != XCACHE_NONE)
			return object;
	}
	return XCACHE_NONE;
}

uint32_t xcache_object_count(const struct xcache *cache) { return cache->object_count; }

/* --- memory -------------------------------------------------------------------------- */

int xcache_objects_open(struct xcache *cache, const struct xcache_config *config)
{
	uint32_t heads = 16;
	while (heads < config->objects_max)
		heads *= 2;
	cache->head_mask = heads - 1;
	int error = slab_init(&cache->objects, sizeof(struct xcache_object), config->objects_max);
	if (error)
		return error;
	cache->heads = mmap(NULL, heads * sizeof(*cache->heads), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (cache->heads != MAP_FAILED)
		return 0;
	cache->heads = NULL;
	return -ENOMEM;
}

void xcache_objects_close(struct xcache *cache)
{
	slab_fini(&cache->objects);
	if (cache->heads)
		munmap(cache->heads, (cache->head_mask + 1) * sizeof(*cache->heads));
}

size_t xcache_memory(const struct xcache *cache)
{
	return sizeof(*cache) + cache->policy_memory + (cache->head_mask + 1) * sizeof(uint32_t) +
	       cache->entries.touched * cache->entries.item_size +
	       cache->objects.touched * cache->objects.item_size +
	       cache->narrow.touched * cache->narrow.item_size +
	       cache->wide.touched * cache->wide.item_size;
}
