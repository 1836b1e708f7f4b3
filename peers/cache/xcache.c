/* SPDX-License-Identifier: Apache-2.0 */
/* The index: its limits and the life of an entry; see the drawing in "peers/cache/xcache.h". */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/cache/xcache_priv.h"

/* So many victims may be refused before one who needs room is told to wait. */
#define TRIES 16u

const struct xcache_policy *const xcache_policies[XCACHE_POLICIES] = {
	&xcache_lru, &xcache_s3fifo, &xcache_clock2q};

static uint32_t lower(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* --- states ------------------------------------------------------------------------- */

static const struct sm_state entry_states[] = {
	[XCACHE_FREE] = {"free", SM(XCACHE_IN) | SM(XCACHE_LOOSE)},
	[XCACHE_IN] = {"in", SM(XCACHE_PARKED) | SM(XCACHE_FREE)},
	[XCACHE_PARKED] = {"parked", SM(XCACHE_IN) | SM(XCACHE_FREE) | SM(XCACHE_LOOSE)},
	[XCACHE_LOOSE] = {"loose", SM(XCACHE_FREE)},
};

static inline void entry_move(struct xcache_entry *e, enum xcache_state state)
{
	sm_move(entry_states, &e->state, state);
}

/* --- an entry and its object --------------------------------------------------------- */

/* One that cannot go now; not counted for a loose one. */
static void count_parked(struct xcache *cache, const struct xcache_entry *e, uint32_t by)
{
	if (e->object != XCACHE_NONE)
		xcache_object(cache, e->object)->parked += by;
}

/* It is in no queue any more. */
static void entry_free(struct xcache *cache, uint32_t entry)
{
	struct xcache_entry *e = xcache_entry(cache, entry);
	uint32_t object = e->object;
	if (object != XCACHE_NONE) {
		struct xcache_object *o = xcache_object(cache, object);
		xcache_slot_clear(cache, o, e->bucket);
		o->count--;
	}
	entry_move(e, XCACHE_FREE);
	cache->count--;
	slab_put(&cache->entries, entry);
	if (object != XCACHE_NONE)
		xcache_object_settle(cache, object);
}

static struct xcache_entry *entry_make(
	struct xcache *cache, uint32_t object, uint32_t bucket, uint32_t *entry)
{
	struct xcache_entry *e = slab_get(&cache->entries, entry);
	must(e);
	*e = (struct xcache_entry){.page = XCACHE_NONE,
		.object = object,
		.bucket = (uint16_t)bucket,
		.prev = XCACHE_NONE,
		.next = XCACHE_NONE};
	cache->count++;
	return e;
}

/* --- eviction ------------------------------------------------------------------------ */

static bool owner_lets_go(struct xcache *cache, uint32_t entry)
{
	return !cache->hooks.evict || cache->hooks.evict(cache->owner, entry);
}

bool xcache_entry_evict(struct xcache *cache, uint32_t entry)
{
	if (!owner_lets_go(cache, entry))
		return false;
	must(xcache_entry(cache, entry)->state == XCACHE_IN);
	cache->policy->remove(cache, entry);
	entry_free(cache, entry);
	return true;
}

enum went { WENT, REFUSED, NOBODY };

/* Whom the policy names. */
static enum went evict_one(struct xcache *cache)
{
	uint32_t entry = cache->policy->victim(cache);
	if (entry == XCACHE_NONE)
		return NOBODY;
	cache->chosen = entry;
	if (!owner_lets_go(cache, entry)) {
		if (cache->chosen == entry)
			cache->policy->back(cache, entry);
		cache->chosen = XCACHE_NONE;
		return REFUSED;
	}
	must(cache->chosen == entry); /* parked and let go: one or the other */
	cache->chosen = XCACHE_NONE;
	entry_free(cache, entry);
	return WENT;
}

uint32_t xcache_evict(struct xcache *cache, uint32_t count)
{
	uint32_t went = 0, refused = 0;
	count = lower(count, cache->count);
	while (went < count && refused < count + TRIES) {
		enum went what = evict_one(cache);
		if (what == NOBODY)
			break;
		went += what == WENT;
		refused += what == REFUSED;
	}
	return went;
}

static int make_room(struct xcache *cache)
{
	uint32_t before = cache->count;
	for (unsigned i = 0; i < TRIES && cache->count >= cache->limit; i++)
		if (evict_one(cache) == NOBODY)
			break;
	/* after the limit was lowered it is enough not to grow */
	return cache->count < cache->limit || cache->count < before ? 0 : -ENOSPC;
}

/* --- insert, remove ------------------------------------------------------------------ */

void xcache_hit(struct xcache *cache, uint32_t entry)
{
	const struct xcache_entry *e = xcache_entry(cache, entry);
	if (e->state == XCACHE_IN || e->state == XCACHE_PARKED)
		cache->policy->hit(cache, entry);
}

static void insert_new(struct xcache *cache, uint32_t object, uint32_t bucket, uint32_t *entry)
{
	struct xcache_object *o = xcache_object(cache, object);
	entry_move(entry_make(cache, object, bucket, entry), XCACHE_IN);
	xcache_slot_set(cache, o, bucket, *entry);
	must(!o->beyond);
	o->count++;
	xcache_object_renew(cache, object);
	cache->policy->insert(cache, *entry);
}

int xcache_insert(struct xcache *cache, uint32_t object, uint32_t bucket, uint32_t *entry)
{
	must(bucket < XCACHE_BUCKETS && cache->chosen == XCACHE_NONE);
	*entry = xcache_lookup(cache, object, bucket);
	if (*entry != XCACHE_NONE)
		return -EEXIST;
	/* its last entry may be the one that goes */
	xcache_ref_object(cache, object);
	int error = make_room(cache);
	if (!error)
		insert_new(cache, object, bucket, entry);
	xcache_unref_object(cache, object);
	return error;
}

/* Those that have got their places: what they say, and into the policy's queue. */
static void adopt_fill(struct xcache *cache, uint32_t object, const struct xcache_found *found,
	uint32_t first, uint32_t count, bool parked, uint32_t word)
{
	struct xcache_entry *e = xcache_entry(cache, first);
	for (uint32_t i = 0; i < count; i++)
		e[i] = (struct xcache_entry){.page = found[i].page,
			.object = object,
			.bucket = found[i].bucket,
			.state = parked ? XCACHE_PARKED : XCACHE_IN,
			.prev = first + i - 1,
			.next = first + i + 1,
			.valid = found[i].valid,
			.bucket_state = found[i].bucket_state,
			.word = word};
	e[0].prev = e[count - 1].next = XCACHE_NONE;
	for (uint32_t i = 0; !parked && i < count; i++)
		cache->policy->insert(cache, first + i);
}

uint32_t xcache_adopt(struct xcache *cache, uint32_t object, const struct xcache_found *found,
	uint32_t count, bool parked, uint32_t word, uint32_t *first)
{
	struct slab *entries = &cache->entries;
	/* only of those that were never used: they lie side by side */
	count = entries->free == SLAB_NONE ? lower(count, entries->count - entries->touched) : 0;
	count = lower(count, xcache_room(cache));
	struct xcache_object *o = xcache_object(cache, object);
	*first = entries->touched;
	count = xcache_slots_claim(cache, o, found, count, *first);
	if (count == 0)
		return 0;
	entries->touched += count;
	cache->count += count;
	o->count += count;
	o->parked += parked ? count : 0;
	xcache_object_renew(cache, object);
	adopt_fill(cache, object, found, *first, count, parked, word);
	return count;
}

int xcache_loose(struct xcache *cache, uint32_t *entry)
{
	int error = make_room(cache);
	if (error)
		return error;
	entry_move(entry_make(cache, XCACHE_NONE, 0, entry), XCACHE_LOOSE);
	return 0;
}

void xcache_remove(struct xcache *cache, uint32_t entry)
{
	struct xcache_entry *e = xcache_entry(cache, entry);
	must(e->state != XCACHE_FREE && entry != cache->chosen);
	if (e->state == XCACHE_IN)
		cache->policy->remove(cache, entry);
	if (e->state == XCACHE_PARKED)
		count_parked(cache, e, -1u);
	entry_free(cache, entry);
}

/* --- park --------------------------------------------------------------------------- */

void xcache_park(struct xcache *cache, uint32_t entry)
{
	struct xcache_entry *e = xcache_entry(cache, entry);
	if (entry == cache->chosen) {
		cache->policy->back(cache, entry);
		cache->chosen = XCACHE_NONE;
	}
	cache->policy->remove(cache, entry);
	entry_move(e, XCACHE_PARKED);
	e->prev = e->next = XCACHE_NONE;
	count_parked(cache, e, 1);
}

void xcache_unpark(struct xcache *cache, uint32_t entry)
{
	struct xcache_entry *e = xcache_entry(cache, entry);
	must(e->state == XCACHE_PARKED);
	entry_move(e, XCACHE_IN);
	count_parked(cache, e, -1u);
	cache->policy->insert(cache, entry);
}

void xcache_loosen(struct xcache *cache, uint32_t entry)
{
	struct xcache_entry *e = xcache_entry(cache, entry);
	uint32_t object = e->object;
	struct xcache_object *o = xcache_object(cache, object);
	o->parked--;
	o->count--;
	xcache_slot_clear(cache, o, e->bucket);
	e->object = XCACHE_NONE;
	entry_move(e, XCACHE_LOOSE);
	xcache_object_settle(cache, object);
}

/* --- the whole ----------------------------------------------------------------------- */

void xcache_limit(struct xcache *cache, uint32_t objects, uint32_t entries)
{
	cache->object_limit = lower(objects, cache->objects.count);
	cache->limit = lower(entries, cache->entries.count);
	cache->policy->resize(cache, cache->limit);
}

int xcache_set_policy(struct xcache *cache, const struct xcache_policy *policy)
{
	must(cache->chosen == XCACHE_NONE);
	void *old = cache->state;
	size_t old_memory = cache->policy_memory;
	int error = policy->open(cache, cache->entries.count);
	if (error) {
		cache->state = old;
		cache->policy_memory = old_memory;
		return error;
	}
	void *state = cache->state;
	cache->state = old;
	cache->policy->close(cache);
	cache->state = state;
	cache->policy = policy;
	policy->resize(cache, cache->limit);
	for (uint32_t i = 0; i < cache->entries.touched; i++) {
		struct xcache_entry *e = xcache_entry(cache, i);
		if (e->state == XCACHE_IN || e->state == XCACHE_PARKED)
			e->policy = 0;
		if (e->state == XCACHE_IN)
			policy->insert(cache, i);
	}
	return 0;
}

void xcache_expect(struct xcache *cache, uint32_t entries)
{
	uint32_t count = lower(entries, cache->limit);
	slab_expect(&cache->entries, count);
	/* as many as they take when they lie side by side */
	slab_expect(&cache->wide, count / XCACHE_GROUP);
}

static uint32_t groups_of(const struct xcache_config *config)
{
	uint64_t groups = (uint64_t)config->objects_max * (XCACHE_BUCKETS / XCACHE_GROUP);
	return groups < UINT32_MAX ? (uint32_t)groups : UINT32_MAX;
}

int xcache_open(struct xcache **cache, const struct xcache_config *config)
{
	static const struct xcache_hooks none;
	must(config->objects_max > 0 && config->entries_max > 0 &&
		config->objects_max <= 1u << 30 && config->entries_max <= 1u << 30);
	struct xcache *c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->policy = config->policy;
	c->hooks = config->hooks ? *config->hooks : none;
	c->owner = config->owner;
	c->last = c->oldest = c->newest = c->chosen = XCACHE_NONE;
	int error = slab_init(&c->entries, sizeof(struct xcache_entry), config->entries_max);
	error = error ? error : xcache_objects_open(c, config);
	error = error ? error : xcache_groups_open(c, groups_of(config), config->entries_max);
	error = error ? error : c->policy->open(c, config->entries_max);
	if (error) {
		xcache_close(c);
		return error;
	}
	c->base.entries = (void *)c->entries.base;
	xcache_limit(c, config->objects_max, config->entries_max);
	*cache = c;
	return 0;
}

void xcache_close(struct xcache *cache)
{
	if (cache->state)
		cache->policy->close(cache);
	xcache_objects_close(cache);
	xcache_groups_close(cache);
	slab_fini(&cache->entries);
	free(cache);
}

uint32_t xcache_count(const struct xcache *cache) { return cache->count; }

uint32_t xcache_room(const struct xcache *cache)
{
	return cache->limit > cache->count ? cache->limit - cache->count : 0;
}
