/* SPDX-License-Identifier: Apache-2.0 */
/* A hash of objects, each a two-level table of page numbers. */
#include "peers/blocker/pagemap.h"

#include <base/hash.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

struct group {
	uint32_t page[PAGEMAP_GROUP]; /* page + 1; 0: none */
};
fixed(sizeof(struct group) == 64);

static int slab_init(struct pagemap_slab *slab, size_t item_size, uint32_t count)
{
	slab->item_size = item_size;
	slab->reserved = item_size * count;
	slab->base = mmap(NULL, slab->reserved, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (slab->base != MAP_FAILED)
		return 0;
	slab->base = NULL;
	return -ENOMEM;
}

static void slab_fini(struct pagemap_slab *slab)
{
	if (slab->base)
		munmap(slab->base, slab->reserved);
	*slab = (struct pagemap_slab){0};
}

static void *slab_at(const struct pagemap_slab *slab, uint32_t index)
{
	return slab->base + (index - 1) * slab->item_size;
}

/* A free one holds the index of the next in its first four bytes. */
static uint32_t slab_get(struct pagemap_slab *slab)
{
	uint32_t index = slab->free;
	if (index) {
		memcpy(&slab->free, slab_at(slab, index), sizeof(index));
		memset(slab_at(slab, index), 0, sizeof(index));
		return index;
	}
	must((slab->touched + 1) * slab->item_size <= slab->reserved);
	return ++slab->touched;
}

/* All zero again, but for the link. */
static void slab_put(struct pagemap_slab *slab, uint32_t index)
{
	memset(slab_at(slab, index), 0, slab->item_size);
	memcpy(slab_at(slab, index), &slab->free, sizeof(index));
	slab->free = index;
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
		const struct pagemap_object *object = slab_at(&map->objects, index);
		if (key_equal(&object->key, key))
			break;
		index = object->next;
	}
	return index;
}

const struct pagemap_object *pagemap_look(const struct pagemap *map, const struct xseg_key *key)
{
	uint32_t index = look(map, key);
	return index ? slab_at(&map->objects, index) : NULL;
}

struct pagemap_object *pagemap_find(struct pagemap *map, const struct xseg_key *key)
{
	if (map->last) {
		struct pagemap_object *object = slab_at(&map->objects, map->last);
		if (key_equal(&object->key, key))
			return object;
	}
	uint32_t index = look(map, key);
	if (!index)
		return NULL;
	map->last = index;
	return slab_at(&map->objects, index);
}

uint32_t pagemap_get(const struct pagemap *map, const struct pagemap_object *object, uint32_t index)
{
	uint32_t group = object ? object->group[index / PAGEMAP_GROUP] : 0;
	if (!group)
		return XSEG_NONE;
	const struct group *g = slab_at(&map->groups, group);
	return g->page[index % PAGEMAP_GROUP] - 1; /* 0 - 1 is XSEG_NONE */
}

static struct pagemap_object *make(struct pagemap *map, const struct xseg_key *key)
{
	uint32_t index = slab_get(&map->objects), *head = head_of(map, key);
	struct pagemap_object *object = slab_at(&map->objects, index);
	object->key = *key;
	object->next = *head;
	*head = map->last = index;
	return object;
}

static void drop(struct pagemap *map, struct pagemap_object *object)
{
	uint32_t *link = head_of(map, &object->key);
	while (slab_at(&map->objects, *link) != object)
		link = &((struct pagemap_object *)slab_at(&map->objects, *link))->next;
	uint32_t index = *link;
	*link = object->next;
	map->last = 0;
	slab_put(&map->objects, index);
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
	struct group *group = slab_at(&map->groups, *link);
	group->page[index % PAGEMAP_GROUP] = 0;
	if (group_is_empty(group)) {
		slab_put(&map->groups, *link);
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
		*link = slab_get(&map->groups);
	struct group *group = slab_at(&map->groups, *link);
	group->page[index % PAGEMAP_GROUP] = page + 1;
	object->count += old == XSEG_NONE;
}

struct pagemap_object *pagemap_next(struct pagemap *map, uint32_t *cursor)
{
	while (*cursor < map->objects.touched) {
		struct pagemap_object *object = slab_at(&map->objects, ++*cursor);
		if (object->count)
			return object;
	}
	return NULL;
}
