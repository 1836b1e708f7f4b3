/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing a volume: the record says REMOVING (the point), the objects, the name, the record.
 *
 * Children are looked for between the reading of the record and that put. A child's record is put
 * before its source's: so either it is seen here, or one of the two puts is refused.
 *
 * Objects are deleted of every owner in the volume's table that is no volume any more and stands in
 * no other's table: nobody else can need them, and nobody could find them any more. All others are
 * the sweep's.
 */
#include <errno.h>
#include <string.h>

#include "peers/map/map_step.h"

#define BATCH 64u

int map_remove_objects(struct map_store *store, uint64_t id)
{
	struct xseg_key keys[BATCH];
	uint64_t cursor = 0;
	do {
		int count = store->list(store, id, &cursor, keys, BATCH);
		if (count < 0)
			return count;
		for (int i = 0; i < count; i++) {
			int rc = store->discard(store, keys[i]);
			if (rc < 0)
				return rc;
		}
	} while (cursor != 0);
	return 0;
}

int map_remove_head(struct map_store *store, struct map_head *head)
{
	int rc = 0;
	if (!map_is_removing(&head->volume)) {
		head->volume.state = XSEG_VOLUME_REMOVING;
		rc = map_record_replace(store, head);
	}
	if (rc == 0)
		rc = map_remove_objects(store, head->volume.id);
	if (rc == 0)
		rc = store->flush(store, head->volume.id);
	return rc == 0 ? map_record_forget(store, head) : rc;
}

/* --- who hangs from it ------------------------------------------------------------------------ */

struct look {
	struct map_store *store;
	const struct map_volume *volume;
	uint64_t child;
	bool unknown; /* a record cannot be read: who knows what its volume needs */
	bool needed[MAP_OWNERS_MAX];
};

/* A child that is in the making and not named is not there; it must not come to be, either. */
static int look_at_new(struct look *look, const struct map_head *child)
{
	struct map_head head;
	int rc = map_record_open_head(look->store, child->volume.id, &head);
	if (rc == 0)
		look->child = child->volume.id;
	if (rc != -ENOENT)
		return rc;
	rc = map_record_take(look->store, child->volume.id, &head);
	if (rc == 0 && !map_is_new(&head.volume))
		rc = -ESTALE;
	if (rc == 0)
		rc = map_remove_head(look->store, &head);
	return rc == -ENOENT ? 0 : rc;
}

static int look_at(void *context, uint64_t id, int error, const struct map_head *head)
{
	struct look *look = context;
	if (id == look->volume->id)
		return 0;
	if (error == -EPROTO)
		return error;
	if (error != 0) {
		look->unknown = true;
		return 0;
	}
	const struct map_volume *other = &head->volume;
	if (other->parent == look->volume->id) {
		if (map_is_new(other))
			return look_at_new(look, head);
		look->child = id;
	}
	for (unsigned i = 0; i < look->volume->owner_count; i++) {
		uint64_t owner = look->volume->owners[i];
		bool needed = owner == id;
		for (unsigned j = 0; j < other->owner_count && !needed; j++)
			needed = other->owners[j] == owner;
		look->needed[i] = look->needed[i] || needed;
	}
	return look->child != 0 ? 1 : 0;
}

static int find_children(struct map_store *store, struct look *look)
{
	int rc = map_record_each_raw(store, look_at, look);
	return look->child != 0 ? -ENOTEMPTY : rc;
}

/* --- the steps -------------------------------------------------------------------------------- */

static int remove_objects(struct map_store *store, const struct look *look)
{
	const struct map_volume *volume = look->volume;
	for (unsigned i = 0; i < volume->owner_count && !look->unknown; i++) {
		if (look->needed[i])
			continue;
		int rc = map_remove_objects(store, volume->owners[i]);
		if (rc == 0)
			rc = store->flush(store, volume->owners[i]);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/*
 * Whoever rolls the volume back to this snapshot has read the snapshot's record after the volume's:
 * it has seen that this one goes, or is now refused.
 */
static int touch_parent(struct map_store *store, const struct map_volume *volume)
{
	struct map_head head;
	if (!(volume->flags & MAP_SNAPSHOT) || volume->parent == 0)
		return 0;
	int rc = map_record_take(store, volume->parent, &head);
	if (rc == 0)
		rc = map_record_replace(store, &head);
	return rc == -ENOENT || rc == -EILSEQ || rc == -EPROTO ? 0 : rc;
}

static int remove_name(struct map_store *store, const struct map_volume *volume)
{
	struct map_place place;
	int rc = map_name_place_read(store, volume->name, &place);
	if (rc == -EILSEQ || rc == -EPROTO)
		return 0;
	bool ours = rc == 0 && map_name_place_leads(&place, volume->name, volume->id);
	return ours ? map_name_place_drop(store, &place) : rc;
}

static int remove_home(struct map_store *store, uint64_t id)
{
	struct xseg_key key = map_home_key(id);
	uint8_t bytes[XSEG_RECORD_MAX];
	uint64_t version = 0;
	int rc = store->get(store, key, bytes, &version);
	if (rc >= 0 || rc == -EILSEQ)
		rc = store->drop(store, key, &version);
	return rc == -ENOENT ? 0 : rc;
}

static int remove_once(struct map_store *store, uint64_t id, uint64_t *child)
{
	struct map_head head;
	struct look look = {.store = store, .volume = &head.volume};
	int rc = map_record_open_head(store, id, &head);
	if (rc == -ENOENT) /* it has been removed; whoever asks again has claimed it for that */
		return remove_home(store, id);
	if (rc != 0)
		return rc;
	if (head.volume.flags & MAP_PROTECTED && !map_is_removing(&head.volume))
		return -EPERM;
	rc = find_children(store, &look);
	*child = look.child;
	if (rc == 0 && !map_is_removing(&head.volume)) {
		head.volume.state = XSEG_VOLUME_REMOVING;
		rc = map_record_replace(store, &head);
	}
	if (rc == 0)
		rc = remove_objects(store, &look);
	if (rc == 0)
		rc = touch_parent(store, &head.volume);
	if (rc == 0)
		rc = remove_name(store, &head.volume);
	if (rc == 0)
		rc = remove_home(store, id);
	return rc == 0 ? map_record_forget(store, &head) : rc;
}

int map_remove(struct map_store *store, uint64_t id, uint64_t *child)
{
	uint64_t unused;
	for (unsigned tries = 0; tries < MAP_TRIES; tries++) {
		int rc = remove_once(store, id, child ? child : &unused);
		if (rc != -ESTALE)
			return rc;
	}
	return -EBUSY;
}

/* A child's table has all owners of what it was made of. */
int map_remove_damaged(struct map_store *store, uint64_t id)
{
	struct map_volume volume = {.id = id, .owner_count = 1, .owners = {id}};
	struct look look = {.store = store, .volume = &volume};
	struct map_head head;
	int rc = map_head_read(store, id, &head, NULL);
	if (rc != -EILSEQ)
		return rc == 0 ? -ESTALE : rc;
	rc = map_record_each_raw(store, look_at, &look);
	if (rc >= 0 && look.child == 0)
		rc = remove_objects(store, &look);
	if (rc >= 0)
		rc = remove_home(store, id);
	return rc >= 0 ? map_head_drop(store, id) : rc;
}
