/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The buckets of an object, in groups of 16.
 *
 * A group is narrow, up to 6 entries in half a cache line, or wide, one for each bucket. So an
 * object that is cached to a fifth costs 10 bytes a bucket, not 20. Handles: number << 1 | wide,
 * numbers from 1.
 */
#include <string.h>

#include "peers/cache/xcache_priv.h"

#define NARROW 6u

struct narrow {
	uint64_t places;	/* 4 bits a bucket: place in entry[] + 1 */
	uint32_t entry[NARROW]; /* entry + 1 */
};
fixed(sizeof(struct narrow) == 32);

struct wide {
	uint32_t entry[XCACHE_GROUP];
};
fixed(sizeof(struct wide) == 64);

static struct narrow *narrow_at(const struct xcache *cache, uint32_t handle)
{
	return slab_at(&cache->narrow, (handle >> 1) - 1);
}

static struct wide *wide_at(const struct xcache *cache, uint32_t handle)
{
	return slab_at(&cache->wide, (handle >> 1) - 1);
}

static uint32_t narrow_make(struct xcache *cache)
{
	uint32_t index;
	struct narrow *group = slab_get(&cache->narrow, &index);
	must(group); /* as many as entries */
	memset(group, 0, sizeof(*group));
	return (index + 1) << 1;
}

static bool narrow_put(struct narrow *group, uint32_t at, uint32_t value)
{
	for (uint32_t i = 0; i < NARROW; i++)
		if (!group->entry[i]) {
			group->entry[i] = value;
			group->places |= (uint64_t)(i + 1) << 4 * at;
			return true;
		}
	return false;
}

/* Full: a wide one takes over. */
static uint32_t widen(struct xcache *cache, uint32_t handle)
{
	uint32_t index;
	struct wide *wide = slab_get(&cache->wide, &index);
	must(wide);
	memset(wide, 0, sizeof(*wide));
	struct narrow *narrow = narrow_at(cache, handle);
	for (uint32_t at = 0; at < XCACHE_GROUP; at++) {
		uint32_t place = narrow->places >> 4 * at & 15;
		if (place)
			wide->entry[at] = narrow->entry[place - 1];
	}
	slab_put(&cache->narrow, (handle >> 1) - 1);
	return (index + 1) << 1 | 1;
}

/* Half of what a narrow one holds is left: not at once, or a border case would go to and fro. */
static uint32_t narrow_again(struct xcache *cache, uint32_t handle)
{
	uint32_t to = narrow_make(cache);
	const struct wide *wide = wide_at(cache, handle);
	for (uint32_t at = 0; at < XCACHE_GROUP; at++)
		if (wide->entry[at])
			narrow_put(narrow_at(cache, to), at, wide->entry[at]);
	slab_put(&cache->wide, (handle >> 1) - 1);
	return to;
}

void xcache_slot_set(
	struct xcache *cache, struct xcache_object *object, uint32_t bucket, uint32_t entry)
{
	uint32_t *handle = &object->group[bucket / XCACHE_GROUP], at = bucket % XCACHE_GROUP;
	if (!*handle)
		*handle = narrow_make(cache);
	if (!(*handle & 1) && narrow_put(narrow_at(cache, *handle), at, entry + 1))
		return;
	if (!(*handle & 1))
		*handle = widen(cache, *handle);
	wide_at(cache, *handle)->entry[at] = entry + 1;
}

/* Nothing lies in the group yet: the form that will do for those of `found` that come in a row. */
static uint32_t group_make(struct xcache *cache, const struct xcache_found *found, uint32_t count)
{
	uint32_t group = found->bucket / XCACHE_GROUP, row = 1, index;
	while (row < count && row <= NARROW && found[row].bucket / XCACHE_GROUP == group &&
		found[row].bucket > found[row - 1].bucket)
		row++;
	if (row <= NARROW)
		return narrow_make(cache);
	struct wide *wide = slab_get(&cache->wide, &index);
	must(wide);
	memset(wide, 0, sizeof(*wide));
	return (index + 1) << 1 | 1;
}

uint32_t xcache_slots_claim(struct xcache *cache, struct xcache_object *object,
	const struct xcache_found *found, uint32_t count, uint32_t first)
{
	uint32_t i = 0;
	for (; i < count; i++) {
		uint32_t bucket = found[i].bucket;
		must(bucket < XCACHE_BUCKETS);
		uint32_t *handle = &object->group[bucket / XCACHE_GROUP];
		if (unlikely(!*handle))
			*handle = group_make(cache, &found[i], count - i);
		if (likely(*handle & 1)) {
			uint32_t *place = &wide_at(cache, *handle)->entry[bucket % XCACHE_GROUP];
			if (unlikely(*place))
				break;
			*place = first + i + 1;
			continue;
		}
		const struct narrow *group = narrow_at(cache, *handle);
		if (group->places >> 4 * (bucket % XCACHE_GROUP) & 15)
			break;
		xcache_slot_set(cache, object, bucket, first + i);
	}
	return i;
}

static void wide_clear(struct xcache *cache, uint32_t *handle, uint32_t at)
{
	struct wide *group = wide_at(cache, *handle);
	uint32_t left = 0;
	group->entry[at] = 0;
	for (uint32_t i = 0; i < XCACHE_GROUP; i++)
		left += group->entry[i] != 0;
	if (left <= NARROW / 2)
		*handle = narrow_again(cache, *handle);
}

void xcache_slot_clear(struct xcache *cache, struct xcache_object *object, uint32_t bucket)
{
	uint32_t *handle = &object->group[bucket / XCACHE_GROUP], at = bucket % XCACHE_GROUP;
	if (*handle & 1) {
		wide_clear(cache, handle, at);
		return;
	}
	struct narrow *group = narrow_at(cache, *handle);
	group->entry[(group->places >> 4 * at & 15) - 1] = 0;
	group->places &= ~(15ull << 4 * at);
	if (!group->places) {
		slab_put(&cache->narrow, (*handle >> 1) - 1);
		*handle = 0;
	}
}

uint32_t xcache_lookup(struct xcache *cache, uint32_t object, uint32_t bucket)
{
	const struct xcache_object *o = slab_at(&cache->objects, object);
	uint32_t handle = o->group[bucket / XCACHE_GROUP], at = bucket % XCACHE_GROUP;
	if (handle & 1)
		return wide_at(cache, handle)->entry[at] - 1; /* 0 - 1 is XCACHE_NONE */
	if (!handle)
		return XCACHE_NONE;
	const struct narrow *group = narrow_at(cache, handle);
	uint32_t place = group->places >> 4 * at & 15;
	return place ? group->entry[place - 1] - 1 : XCACHE_NONE;
}

int xcache_groups_open(struct xcache *cache, uint32_t groups_max, uint32_t entries_max)
{
	uint32_t narrow = groups_max < entries_max ? groups_max : entries_max;
	/* a wide one has more than half of what a narrow one holds */
	uint32_t wide = entries_max / (NARROW / 2 + 1) + 1;
	/* one more: while one takes over from another both are there */
	int error = slab_init(&cache->narrow, sizeof(struct narrow), narrow + 1);
	return error ? error : slab_init(&cache->wide, sizeof(struct wide), wide);
}

void xcache_groups_close(struct xcache *cache)
{
	slab_fini(&cache->narrow);
	slab_fini(&cache->wide);
}
