/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which volumes are there, and which of them can share objects? The sweep's list of who is asked.
 *
 * Volumes that have an owner in common in their tables are a family; nobody outside it can reach
 * its objects, and a volume made later from one of them is of it, too. Families are worked on in
 * batches of as many objects as are marked at a time.
 *
 * Units: volumes. Errors: 0 or -errno. Ownership: load and fini. Threads: one. Blocking: the
 * store's. Memory: 48 bytes for each volume and 48 for each owner, and as much while they grow.
 */
#ifndef SKERRY_MAP_ENUMERATION_H
#define SKERRY_MAP_ENUMERATION_H

#include "peers/map/map_tree.h"

#define MAP_BATCH_OBJECTS (1u << 20)
#define MAP_ENUMERATION_NONE UINT32_MAX

struct map_enumeration_volume {
	uint64_t id; /* first, for the index */
	uint64_t objects;
	uint64_t generation; /* of its record */
	int error;	     /* of its record: 0, -ENOENT (it has gone), -EILSEQ, -EPROTO */
	uint32_t owner;	     /* one of its owners; MAP_CENSUS_NONE: all of them are newer than we */
	uint32_t marked;     /* at which epoch */
	bool wanted;	     /* to be marked */
	bool halved;	     /* one half of its record is damaged */
	bool told;	     /* that it is damaged */
};

struct map_enumeration_owner {
	uint64_t id;
	uint64_t objects; /* of the family, at its head */
	uint32_t head;	  /* on the way to the family's; itself there */
	uint32_t limit;	  /* its objects with this epoch or a later one may be in the making */
	uint32_t frozen;  /* up to this epoch others may use its objects */
	uint32_t batch;	  /* of the family, at its head */
	bool held;	  /* something that may need its objects cannot be read */
};

struct map_enumeration_index {
	uint32_t *slots;
	size_t capacity;
};

struct map_enumeration {
	struct map_enumeration_volume *volumes;
	struct map_enumeration_owner *owners;
	size_t volume_count, volume_room, owner_count, owner_room;
	struct map_enumeration_index volume_index, owner_index;
	bool held; /* everything: there is a volume of which not even the owners are known */
	bool full; /* it is loaded, and no owner is added */
	uint32_t batches;
};

int map_enumeration_load(struct map_enumeration *enumeration, struct map_store *store);
/* Makes batches of as many objects, a family at least; 0: MAP_BATCH_OBJECTS. */
void map_enumeration_divide(struct map_enumeration *enumeration, uint64_t objects);
void map_enumeration_fini(struct map_enumeration *enumeration);
/*
 * Reads the list again, and the records of a batch. 1: something is not as it was marked, and
 * wanted by now; 0: all is. What has gone is not wanted any more.
 */
int map_enumeration_read(
	struct map_enumeration *enumeration, struct map_store *store, uint32_t batch);
bool map_enumeration_has(const struct map_enumeration *enumeration,
	const struct map_enumeration_volume *volume, uint32_t batch);
uint32_t map_enumeration_batch(const struct map_enumeration *enumeration, uint32_t owner);
/* Is the owner of the volume's family? */
bool map_enumeration_is_related(const struct map_enumeration *enumeration,
	const struct map_enumeration_volume *volume, uint32_t owner);
/* Nothing of the volume's owners may go. */
void map_enumeration_retain(struct map_enumeration *enumeration, const struct map_volume *volume);
/* NULL: unknown. */
struct map_enumeration_volume *map_enumeration_volume_find(
	const struct map_enumeration *enumeration, uint64_t id);
struct map_enumeration_owner *map_enumeration_owner_find(
	const struct map_enumeration *enumeration, uint64_t id);

#endif
