/* SPDX-License-Identifier: Apache-2.0 */
/* Which volumes there are, and which of them can share objects. */
#include "peers/map/map_census.h"

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
	const struct map_census_index *index, const void *items, size_t size, uint64_t id)
{
	size_t at = (id * 0x9e3779b97f4a7c15ull >> 20) & (index->capacity - 1);
	while (index->slots[at] != 0 && id_at(items, size, index->slots[at] - 1) != id)
		at = (at + 1) & (index->capacity - 1);
	return &index->slots[at];
}

static uint32_t index_find(
	const struct map_census_index *index, const void *items, size_t size, uint64_t id)
{
	uint32_t slot = index->capacity == 0 ? 0 : *slot_of(index, items, size, id);
	return slot == 0 ? MAP_CENSUS_NONE : slot - 1;
}

/* Room for one more, in the array and in its index. */
static int reserve(
	struct map_census_index *index, void **items, size_t size, size_t count, size_t *room)
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
	*index = (struct map_census_index){slots, 2 * more};
	for (uint32_t i = 0; i < count; i++)
		*slot_of(index, grown, size, id_at(grown, size, i)) = i + 1;
	*room = more;
	return 0;
}

static int volume_add(struct map_census *census, uint64_t id, uint32_t *index)
{
	const size_t size = sizeof(struct map_census_volume);
	*index = index_find(&census->volume_index, census->volumes, size, id);
	if (*index != MAP_CENSUS_NONE)
		return 0;
	void *items = census->volumes;
	int rc = reserve(
		&census->volume_index, &items, size, census->volume_count, &census->volume_room);
	census->volumes = items;
	if (rc != 0)
		return rc;
	*index = (uint32_t)census->volume_count++;
	census->volumes[*index] =
		(struct map_census_volume){.id = id, .owner = MAP_CENSUS_NONE, .error = -EAGAIN};
	*slot_of(&census->volume_index, items, size, id) = *index + 1;
	return 0;
}

/* An owner that has no record is gone: nothing of it can be in the making. */
static int owner_add(struct map_census *census, uint64_t id, uint32_t *index)
{
	const size_t size = sizeof(struct map_census_owner);
	*index = index_find(&census->owner_index, census->owners, size, id);
	if (*index != MAP_CENSUS_NONE)
		return 0;
	void *items = census->owners;
	int rc = reserve(
		&census->owner_index, &items, size, census->owner_count, &census->owner_room);
	census->owners = items;
	if (rc != 0)
		return rc;
	*index = (uint32_t)census->owner_count++;
	census->owners[*index] = (struct map_census_owner){
		.id = id, .head = *index, .limit = UINT32_MAX, .frozen = UINT32_MAX};
	*slot_of(&census->owner_index, items, size, id) = *index + 1;
	return 0;
}

struct map_census_volume *map_census_volume_find(const struct map_census *census, uint64_t id)
{
	uint32_t i = index_find(
		&census->volume_index, census->volumes, sizeof(struct map_census_volume), id);
	return i == MAP_CENSUS_NONE ? NULL : &census->volumes[i];
}

struct map_census_owner *map_census_owner_find(const struct map_census *census, uint64_t id)
{
	uint32_t i = index_find(
		&census->owner_index, census->owners, sizeof(struct map_census_owner), id);
	return i == MAP_CENSUS_NONE ? NULL : &census->owners[i];
}

/* --- families --------------------------------------------------------------------------------- */

static uint32_t family_of(const struct map_census *census, uint32_t owner)
{
	while (census->owners[owner].head != owner) {
		uint32_t up = census->owners[owner].head;
		census->owners[owner].head = census->owners[up].head;
		owner = up;
	}
	return owner;
}

uint32_t map_census_batch(const struct map_census *census, uint32_t owner)
{
	return census->owners[family_of(census, owner)].batch;
}

bool map_census_is_in(
	const struct map_census *census, const struct map_census_volume *volume, uint32_t batch)
{
	return volume->owner != MAP_CENSUS_NONE && map_census_batch(census, volume->owner) == batch;
}

bool map_census_is_related(
	const struct map_census *census, const struct map_census_volume *volume, uint32_t owner)
{
	return volume->owner != MAP_CENSUS_NONE &&
	       family_of(census, volume->owner) == family_of(census, owner);
}

void map_census_hold(struct map_census *census, const struct map_volume *volume)
{
	for (unsigned i = 0; i < volume->owner_count; i++) {
		struct map_census_owner *owner = map_census_owner_find(census, volume->owners[i]);
		if (!owner)
			continue;
		owner->held = true;
	}
}

static void add_up_families(struct map_census *census)
{
	for (size_t i = 0; i < census->volume_count; i++) {
		const struct map_census_volume *volume = &census->volumes[i];
		if (volume->owner != MAP_CENSUS_NONE)
			census->owners[family_of(census, volume->owner)].objects += volume->objects;
	}
}

void map_census_divide(struct map_census *census, uint64_t objects_max)
{
	uint64_t objects = 0;
	bool any = false;
	add_up_families(census);
	for (uint32_t i = 0; i < census->owner_count; i++) {
		struct map_census_owner *owner = &census->owners[i];
		if (owner->head != i)
			continue;
		if (objects > 0 && objects + owner->objects >
					   (objects_max ? objects_max : MAP_BATCH_OBJECTS)) {
			census->batches++;
			objects = 0;
		}
		any = true;
		owner->batch = census->batches;
		objects += owner->objects;
	}
	census->batches += any;
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
static int join_owners(struct map_census *census, uint32_t index, const struct map_volume *volume)
{
	uint32_t first = MAP_CENSUS_NONE, known;
	for (unsigned i = 0; i < volume->owner_count; i++) {
		uint32_t owner;
		int rc = owner_add(census, volume->owners[i], &owner);
		/* Its record is read after it was seen to be needed: when it is not there, the
		   volume has gone, and is not one that the list was too early for. */
		if (rc == 0)
			rc = volume_add(census, volume->owners[i], &known);
		if (rc != 0)
			return rc;
		first = first == MAP_CENSUS_NONE ? owner : first;
		census->owners[family_of(census, owner)].head = family_of(census, first);
	}
	census->volumes[index].owner = first;
	if (!(volume->flags & MAP_SNAPSHOT)) {
		struct map_census_owner *self = map_census_owner_find(census, volume->id);
		self->limit = volume->epoch;
		self->frozen = volume->frozen;
	}
	return 0;
}

/* Later: of which family is the newcomer? Two of them should not be; then nothing of both goes. */
static void find_family(struct map_census *census, uint32_t index, const struct map_volume *volume)
{
	uint32_t found = MAP_CENSUS_NONE;
	for (unsigned i = 0; i < volume->owner_count; i++) {
		uint32_t owner = index_find(&census->owner_index, census->owners,
			sizeof(struct map_census_owner), volume->owners[i]);
		if (owner == MAP_CENSUS_NONE)
			continue;
		if (found != MAP_CENSUS_NONE &&
			family_of(census, found) != family_of(census, owner))
			map_census_hold(census, volume);
		found = owner;
	}
	census->volumes[index].owner = found;
}

/* A record that cannot be read may need anything. */
static int volume_read(struct map_census *census, struct map_store *store, uint32_t index)
{
	struct map_head head;
	bool halved = false;
	int rc = map_head_read(store, census->volumes[index].id, &head, &halved);
	if (rc < 0 && rc != -ENOENT && rc != -EILSEQ && rc != -EPROTO)
		return rc;
	struct map_census_volume *volume = &census->volumes[index];
	volume->error = rc;
	if (rc == -EILSEQ || rc == -EPROTO)
		census->held = true;
	if (rc < 0) {
		volume->wanted = false;
		return 0;
	}
	volume->halved = halved;
	volume->objects = count_objects(&head.volume);
	volume->generation = head.volume.generation;
	if (!census->full) {
		rc = join_owners(census, index, &head.volume);
	} else if (volume->owner == MAP_CENSUS_NONE) {
		find_family(census, index, &head.volume);
	}
	if (halved)
		map_census_hold(census, &head.volume);
	volume = &census->volumes[index];
	volume->wanted = volume->marked != head.volume.epoch;
	return rc;
}

static int list(struct map_census *census, struct map_store *store)
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
			int rc = volume_add(census, keys[i].volume, &index);
			if (rc != 0)
				return rc;
			/* it was not there, and it is listed: read it again */
			if (census->volumes[index].error == -ENOENT)
				census->volumes[index].error = -EAGAIN;
		}
	} while (cursor != 0);
	return 0;
}

int map_census_load(struct map_census *census, struct map_store *store)
{
	*census = (struct map_census){0};
	int rc = list(census, store);
	for (uint32_t i = 0; rc == 0 && i < census->volume_count; i++)
		rc = volume_read(census, store, i);
	if (rc != 0)
		return rc;
	census->full = true;
	return 0;
}

int map_census_look(struct map_census *census, struct map_store *store, uint32_t batch)
{
	bool wanted = false;
	int rc = list(census, store);
	for (uint32_t i = 0; rc == 0 && i < census->volume_count; i++) {
		bool is_new = census->volumes[i].error == -EAGAIN;
		bool is_ours = map_census_is_in(census, &census->volumes[i], batch);
		if (!is_new && (!is_ours || census->volumes[i].error == -ENOENT))
			continue;
		rc = volume_read(census, store, i);
		if (map_census_is_in(census, &census->volumes[i], batch))
			wanted = wanted || census->volumes[i].wanted;
	}
	return rc < 0 ? rc : wanted;
}

void map_census_fini(struct map_census *census)
{
	free(census->volumes);
	free(census->owners);
	free(census->volume_index.slots);
	free(census->owner_index.slots);
	*census = (struct map_census){0};
}
