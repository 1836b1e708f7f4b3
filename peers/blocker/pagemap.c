/* SPDX-License-Identifier: Apache-2.0 */
/* A hash of objects, each a two-level table of page numbers. */
#include "peers/blocker/pagemap.h"

#include <base/hash.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct group {
	uint32_t page[PAGEMAP_GROUP]; /* page + 1; 0: none */
};
fixed(sizeof(struct group) == 64);

/* Items are numbered from 1 on here: 0 is none. Free ones are all zero. */
static void *item_at(const struct slab *slab, uint32_t number) { return slab_at(slab, number - 1); }

static uint32_t item_get(struct slab *slab)
{
	uint32_t index;
	uint32_t *item = slab_get(slab, &index);
	must(item);
	*item = 0; /* a free one's link */
	return index + 1;
}

static void item_put(struct slab *slab, uint32_t number)
{
	memset(item_at(slab, number), 0, slab->item_size);
	slab_put(slab, number - 1);
}

static uint32_t *head_of(const struct pagemap *map, const struct xseg_key *key)
{
	uint64_t h = hash_object(key->volume, key->epoch, key->object);
	return (uint32_t *)map->heads.base + ((h >> 32) & map->mask);
}

static bool key_equal(const struct xseg_key *a, const struct xseg_key *b)
{
	return a->object == b->object && a->volume == b->volume && a->epoch == b->epoch;
}

int pagemap_init(struct pagemap *map, uint32_t pages_max)
{
	uint32_t heads = 1024;
	while (heads < pages_max / 2)
		heads *= 2;
	*map = (struct pagemap){.mask = heads - 1};
	int error = slab_init(&map->objects, sizeof(struct pagemap_object), pages_max);
	error = error ? error : slab_init(&map->groups, sizeof(struct group), pages_max);
	error = error ? error : slab_init(&map->heads, sizeof(uint32_t), heads);
	if (error)
		pagemap_fini(map);
	return error;
}

void pagemap_fini(struct pagemap *map)
{
	slab_fini(&map->objects);
	slab_fini(&map->groups);
	slab_fini(&map->heads);
}

/* Index of the object, or 0. */
static uint32_t look(const struct pagemap *map, const struct xseg_key *key)
{
	uint32_t index = *head_of(map, key);
	while (index) {
		const struct pagemap_object *object = item_at(&map->objects, index);
		if (key_equal(&object->key, key))
			break;
		index = object->next;
	}
	return index;
}

const struct pagemap_object *pagemap_look(const struct pagemap *map, const struct xseg_key *key)
{
	uint32_t index = look(map, key);
	return index ? item_at(&map->objects, index) : NULL;
}

struct pagemap_object *pagemap_find(struct pagemap *map, const struct xseg_key *key)
{
	if (map->last) {
		struct pagemap_object *object = item_at(&map->objects, map->last);
		if (key_equal(&object->key, key))
			return object;
	}
	uint32_t index = look(map, key);
	if (!index)
		return NULL;
	map->last = index;
	return item_at(&map->objects, index);
}

uint32_t pagemap_get(const struct pagemap *map, const struct pagemap_object *object, uint32_t index)
{
	uint32_t group = object ? object->group[index / PAGEMAP_GROUP] : 0;
	if (!group)
		return XSEG_NONE;
	const struct group *g = item_at(&map->groups, group);
	return g->page[index % PAGEMAP_GROUP] - 1; /* 0 - 1 is XSEG_NONE */
}

static struct pagemap_object *make(struct pagemap *map, const struct xseg_key *key)
{
	uint32_t index = item_get(&map->objects), *head = head_of(map, key);
	struct pagemap_object *object = item_at(&map->objects, index);
	object->key = *key;
	object->next = *head;
	*head = map->last = index;
	return object;
}

static void drop(struct pagemap *map, struct pagemap_object *object)
{
	uint32_t *link = head_of(map, &object->key);
	while (item_at(&map->objects, *link) != object)
		link = &((struct pagemap_object *)item_at(&map->objects, *link))->next;
	uint32_t index = *link;
	*link = object->next;
	map->last = 0;
	item_put(&map->objects, index);
}

static bool group_is_empty(const struct group *group)
{
	uint32_t any = 0;
	for (unsigned i = 0; i < PAGEMAP_GROUP; i++)
		any |= group->page[i];
	return any == 0;
}

static void clear(struct pagemap *map, struct pagemap_object *object, uint32_t index)
{
	uint32_t *link = &object->group[index / PAGEMAP_GROUP];
	struct group *group = item_at(&map->groups, *link);
	group->page[index % PAGEMAP_GROUP] = 0;
	if (group_is_empty(group)) {
		item_put(&map->groups, *link);
		*link = 0;
	}
	if (--object->count == 0)
		drop(map, object);
}

void pagemap_set(struct pagemap *map, const struct xseg_key *key, uint32_t index, uint32_t page)
{
	struct pagemap_object *object = pagemap_find(map, key);
	uint32_t old = pagemap_get(map, object, index);
	if (page == XSEG_NONE) {
		if (old != XSEG_NONE)
			clear(map, object, index);
		return;
	}
	if (!object)
		object = make(map, key);
	uint32_t *link = &object->group[index / PAGEMAP_GROUP];
	if (!*link)
		*link = item_get(&map->groups);
	struct group *group = item_at(&map->groups, *link);
	group->page[index % PAGEMAP_GROUP] = page + 1;
	object->count += old == XSEG_NONE;
}

struct pagemap_object *pagemap_next(struct pagemap *map, uint32_t *cursor)
{
	while (*cursor < map->objects.touched) {
		struct pagemap_object *object = item_at(&map->objects, ++*cursor);
		if (object->count)
			return object;
	}
	return NULL;
}
