/* SPDX-License-Identifier: Apache-2.0 */
/* Which volumes there are, and which of them can share objects. */
#include "peers/map/map_enumeration.h"

#include <base/hash.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LISTED 128u /* records at a time */

/* --- arrays that are found by id -------------------------------------------------------------- */

static uint64_t id_at(const void *items, size_t size, uint32_t i)
{
	uint64_t id;
	memcpy(&id, (const char *)items + i * size, sizeof(id));
	return id;
}

/* The slot of an id, or the free one where it would be. */
static uint32_t *slot_of(
	const struct map_enumeration_index *index, const void *items, size_t size, uint64_t id)
{
	size_t at = (hash_u64(id) >> 20) & (index->capacity - 1);
	while (index->slots[at] != 0 && id_at(items, size, index->slots[at] - 1) != id)
		at = (at + 1) & (index->capacity - 1);
	return &index->slots[at];
}

static uint32_t index_find(
	const struct map_enumeration_index *index, const void *items, size_t size, uint64_t id)
{
	uint32_t slot = index->capacity == 0 ? 0 : *slot_of(index, items, size, id);
	return slot == 0 ? MAP_ENUMERATION_NONE : slot - 1;
}

/* Room for one more, in the array and in its index. */
static int reserve(
	struct map_enumeration_index *index, void **items, size_t size, size_t count, size_t *room)
{
	if (count < *room)
		return 0;
	size_t more = *room ? 2 * *room : 64;
	void *grown = realloc(*items, more * size);
	if (!grown)
		return -ENOMEM;
	*items = grown;
	uint32_t *slots = calloc(2 * more, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	free(index->slots);
	*index = (struct map_enumeration_index){slots, 2 * more};
	for (uint32_t i = 0; i < count; i++)
		*slot_of(index, grown, size, id_at(grown, size, i)) = i + 1;
	*room = more;
	return 0;
}

static int volume_add(struct map_enumeration *enumeration, uint64_t id, uint32_t *index)
{
	const size_t size = sizeof(struct map_enumeration_volume);
	*index = index_find(&enumeration->volume_index, enumeration->volumes, size, id);
	if (*index != MAP_ENUMERATION_NONE)
		return 0;
	void *items = enumeration->volumes;
	int rc = reserve(&enumeration->volume_index, &items, size, enumeration->volume_count,
		&enumeration->volume_room);
	enumeration->volumes = items;
	if (rc != 0)
		return rc;
	*index = (uint32_t)enumeration->volume_count++;
	enumeration->volumes[*index] = (struct map_enumeration_volume){
		.id = id, .owner = MAP_ENUMERATION_NONE, .error = -EAGAIN};
	*slot_of(&enumeration->volume_index, items, size, id) = *index + 1;
	return 0;
}

/* An owner that has no record is gone: nothing of it can be in the making. */
static int owner_add(struct map_enumeration *enumeration, uint64_t id, uint32_t *index)
{
	const size_t size = sizeof(struct map_enumeration_owner);
	*index = index_find(&enumeration->owner_index, enumeration->owners, size, id);
	if (*index != MAP_ENUMERATION_NONE)
		return 0;
	void *items = enumeration->owners;
	int rc = reserve(&enumeration->owner_index, &items, size, enumeration->owner_count,
		&enumeration->owner_room);
	enumeration->owners = items;
	if (rc != 0)
		return rc;
	*index = (uint32_t)enumeration->owner_count++;
	enumeration->owners[*index] = (struct map_enumeration_owner){
		.id = id, .head = *index, .limit = UINT32_MAX, .frozen = UINT32_MAX};
	*slot_of(&enumeration->owner_index, items, size, id) = *index + 1;
	return 0;
}

struct map_enumeration_volume *map_enumeration_volume_find(
	const struct map_enumeration *enumeration, uint64_t id)
{
	uint32_t i = index_find(&enumeration->volume_index, enumeration->volumes,
		sizeof(struct map_enumeration_volume), id);
	return i == MAP_ENUMERATION_NONE ? NULL : &enumeration->volumes[i];
}

struct map_enumeration_owner *map_enumeration_owner_find(
	const struct map_enumeration *enumeration, uint64_t id)
{
	uint32_t i = index_find(&enumeration->owner_index, enumeration->owners,
		sizeof(struct map_enumeration_owner), id);
	return i == MAP_ENUMERATION_NONE ? NULL : &enumeration->owners[i];
}

/* --- families --------------------------------------------------------------------------------- */

static uint32_t family_of(const struct map_enumeration *enumeration, uint32_t owner)
{
	while (enumeration->owners[owner].head != owner) {
		uint32_t up = enumeration->owners[owner].head;
		enumeration->owners[owner].head = enumeration->owners[up].head;
		owner = up;
	}
	return owner;
}

uint32_t map_enumeration_batch(const struct map_enumeration *enumeration, uint32_t owner)
{
	return enumeration->owners[family_of(enumeration, owner)].batch;
}

bool map_enumeration_has(const struct map_enumeration *enumeration,
	const struct map_enumeration_volume *volume, uint32_t batch)
{
	return volume->owner != MAP_ENUMERATION_NONE &&
	       map_enumeration_batch(enumeration, volume->owner) == batch;
}

bool map_enumeration_is_related(const struct map_enumeration *enumeration,
	const struct map_enumeration_volume *volume, uint32_t owner)
{
	return volume->owner != MAP_ENUMERATION_NONE &&
	       family_of(enumeration, volume->owner) == family_of(enumeration, owner);
}

void map_enumeration_retain(struct map_enumeration *enumeration, const struct map_volume *volume)
{
	for (unsigned i = 0; i < volume->owner_count; i++) {
		struct map_enumeration_owner *owner =
			map_enumeration_owner_find(enumeration, volume->owners[i]);
		if (!owner)
			continue;
		owner->held = true;
	}
}

static void add_up_families(struct map_enumeration *enumeration)
{
	for (size_t i = 0; i < enumeration->volume_count; i++) {
		const struct map_enumeration_volume *volume = &enumeration->volumes[i];
		if (volume->owner != MAP_ENUMERATION_NONE)
			enumeration->owners[family_of(enumeration, volume->owner)].objects +=
				volume->objects;
	}
}

void map_enumeration_divide(struct map_enumeration *enumeration, uint64_t objects_max)
{
	uint64_t objects = 0;
	bool any = false;
	add_up_families(enumeration);
	for (uint32_t i = 0; i < enumeration->owner_count; i++) {
		struct map_enumeration_owner *owner = &enumeration->owners[i];
		if (owner->head != i)
			continue;
		if (objects > 0 && objects + owner->objects >
					   (objects_max ? objects_max : MAP_BATCH_OBJECTS)) {
			enumeration->batches++;
			objects = 0;
		}
		any = true;
		owner->batch = enumeration->batches;
		objects += owner->objects;
	}
	enumeration->batches += any;
}

/* --- reading ---------------------------------------------------------------------------------- */

static uint64_t count_objects(const struct map_volume *volume)
{
	uint64_t objects = 0;
	for (unsigned i = 0; i < MAP_TOP_REFS; i++)
		objects += volume->top[i].count;
	return objects;
}

/* At the beginning: all its owners are of one family. */
static int join_owners(
	struct map_enumeration *enumeration, uint32_t index, const struct map_volume *volume)
{
	uint32_t first = MAP_ENUMERATION_NONE, known;
	for (unsigned i = 0; i < volume->owner_count; i++) {
		uint32_t owner;
		int rc = owner_add(enumeration, volume->owners[i], &owner);
		/* Its record is read after it was seen to be needed: when it is not there, the
		   volume has gone, and is not one that the list was too early for. */
		if (rc == 0)
			rc = volume_add(enumeration, volume->owners[i], &known);
		if (rc != 0)
			return rc;
		first = first == MAP_ENUMERATION_NONE ? owner : first;
		enumeration->owners[family_of(enumeration, owner)].head =
			family_of(enumeration, first);
	}
	enumeration->volumes[index].owner = first;
	if (!(volume->flags & MAP_SNAPSHOT)) {
		struct map_enumeration_owner *self =
			map_enumeration_owner_find(enumeration, volume->id);
		self->limit = volume->epoch;
		self->frozen = volume->frozen;
	}
	return 0;
}

/* Later: of which family is the newcomer? Two of them should not be; then nothing of both goes. */
static void find_family(
	struct map_enumeration *enumeration, uint32_t index, const struct map_volume *volume)
{
	uint32_t found = MAP_ENUMERATION_NONE;
	for (unsigned i = 0; i < volume->owner_count; i++) {
		uint32_t owner = index_find(&enumeration->owner_index, enumeration->owners,
			sizeof(struct map_enumeration_owner), volume->owners[i]);
		if (owner == MAP_ENUMERATION_NONE)
			continue;
		if (found != MAP_ENUMERATION_NONE &&
			family_of(enumeration, found) != family_of(enumeration, owner))
			map_enumeration_retain(enumeration, volume);
		found = owner;
	}
	enumeration->volumes[index].owner = found;
}

/* A record that cannot be read may need anything. */
static int volume_read(struct map_enumeration *enumeration, struct map_store *store, uint32_t index)
{
	struct map_head head;
	bool halved = false;
	int rc = map_head_read(store, enumeration->volumes[index].id, &head, &halved);
	if (rc < 0 && rc != -ENOENT && rc != -EILSEQ && rc != -EPROTO)
		return rc;
	struct map_enumeration_volume *volume = &enumeration->volumes[index];
	volume->error = rc;
	if (rc == -EILSEQ || rc == -EPROTO)
		enumeration->held = true;
	if (rc < 0) {
		volume->wanted = false;
		return 0;
	}
	volume->halved = halved;
	volume->objects = count_objects(&head.volume);
	volume->generation = head.volume.generation;
	if (!enumeration->full) {
		rc = join_owners(enumeration, index, &head.volume);
	} else if (volume->owner == MAP_ENUMERATION_NONE) {
		find_family(enumeration, index, &head.volume);
	}
	if (halved)
		map_enumeration_retain(enumeration, &head.volume);
	volume = &enumeration->volumes[index];
	volume->wanted = volume->marked != head.volume.epoch;
	return rc;
}

static int list(struct map_enumeration *enumeration, struct map_store *store)
{
	struct xseg_key keys[LISTED];
	uint64_t cursor = 0;
	do {
		int count = store->records(store, XSEG_EPOCH_VOLUME, &cursor, keys, LISTED);
		if (count < 0)
			return count;
		for (int i = 0; i < count; i++) {
			uint32_t index;
			if (keys[i].volume == 0)
				continue;
			int rc = volume_add(enumeration, keys[i].volume, &index);
			if (rc != 0)
				return rc;
			/* it was not there, and it is listed: read it again */
			if (enumeration->volumes[index].error == -ENOENT)
				enumeration->volumes[index].error = -EAGAIN;
		}
	} while (cursor != 0);
	return 0;
}

int map_enumeration_load(struct map_enumeration *enumeration, struct map_store *store)
{
	*enumeration = (struct map_enumeration){0};
	int rc = list(enumeration, store);
	for (uint32_t i = 0; rc == 0 && i < enumeration->volume_count; i++)
		rc = volume_read(enumeration, store, i);
	if (rc != 0)
		return rc;
	enumeration->full = true;
	return 0;
}

int map_enumeration_read(
	struct map_enumeration *enumeration, struct map_store *store, uint32_t batch)
{
	bool wanted = false;
	int rc = list(enumeration, store);
	for (uint32_t i = 0; rc == 0 && i < enumeration->volume_count; i++) {
		bool is_new = enumeration->volumes[i].error == -EAGAIN;
		bool is_ours = map_enumeration_has(enumeration, &enumeration->volumes[i], batch);
		if (!is_new && (!is_ours || enumeration->volumes[i].error == -ENOENT))
			continue;
		rc = volume_read(enumeration, store, i);
		if (map_enumeration_has(enumeration, &enumeration->volumes[i], batch))
			wanted = wanted || enumeration->volumes[i].wanted;
	}
	return rc < 0 ? rc : wanted;
}

void map_enumeration_fini(struct map_enumeration *enumeration)
{
	free(enumeration->volumes);
	free(enumeration->owners);
	free(enumeration->volume_index.slots);
	free(enumeration->owner_index.slots);
	*enumeration = (struct map_enumeration){0};
}
