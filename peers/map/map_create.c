/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making volumes, snapshots and clones.
 *
 * The new record is put first, in both halves, as one in the making (MAP_NEW). Then the source is
 * put: a volume is frozen, a snapshot stays as it is. That put is refused when the source has
 * changed since it was read, so the copy is of what was frozen; and a removal of the source that
 * has looked for children before the new record was there is refused in turn. Then the name: that
 * is the point. At last the record is put once more, without MAP_NEW.
 *
 * Cut off before the name and said again, all is made anew from the source as it is then: what was
 * written meanwhile may have gone into what the first attempt took.
 */
#include <errno.h>
#include <string.h>

#include "peers/map/map_step.h"

struct making {
	const struct map_create *create;
	uint64_t source; /* 0: none */
	bool snapshot;
	bool begun; /* our record may be there */
	struct map_head head;
	struct map_head from;
};

static uint16_t depth_of(const struct map_volume *volume)
{
	return map_objects(volume) <= MAP_OBJECTS_FLAT ? 1 : 2;
}

static int size_check(uint64_t size, uint32_t object_size)
{
	if (size % XSEG_SECTOR != 0 || object_size == 0)
		return -EINVAL;
	return size != 0 && (size - 1) / object_size >= MAP_OBJECTS_MAX ? -EFBIG : 0;
}

/* --- what it is made of ----------------------------------------------------------------------- */

static int fill_empty(struct making *making)
{
	const struct map_create *create = making->create;
	struct map_volume *volume = &making->head.volume;
	volume->size = create->size;
	volume->object_size = create->object_size;
	volume->state = create->state;
	volume->owner_count = 1;
	volume->owners[0] = create->id;
	int rc = size_check(volume->size, volume->object_size);
	if (rc == 0)
		volume->depth = depth_of(volume);
	return rc;
}

static void fill_from(struct making *making)
{
	const struct map_volume *from = &making->from.volume;
	struct map_volume *volume = &making->head.volume;
	volume->size = from->size;
	volume->object_size = from->object_size;
	volume->depth = from->depth;
	volume->state = XSEG_VOLUME_READY;
	volume->parent = from->id;
	volume->owner_count = from->owner_count;
	memcpy(volume->owners, from->owners, sizeof(volume->owners));
	memcpy(volume->top, from->top, sizeof(volume->top));
}

static void fill_snapshot(struct making *making)
{
	fill_from(making);
	making->head.volume.flags |= MAP_SNAPSHOT;
	making->head.volume.self = MAP_OWNERS_MAX;
	making->head.volume.epoch = making->head.volume.frozen = making->from.volume.epoch;
}

static bool is_larger(const struct making *making)
{
	return making->source != 0 && !making->snapshot && making->create->size != 0 &&
	       making->create->size != making->from.volume.size;
}

static int fill_clone(struct making *making)
{
	const struct map_create *create = making->create;
	struct map_volume *volume = &making->head.volume;
	fill_from(making);
	if (create->state == XSEG_VOLUME_IMPORTING)
		volume->state = create->state;
	if (create->object_size != 0 && create->object_size != volume->object_size)
		return -EINVAL;
	if (volume->owner_count == MAP_OWNERS_MAX)
		return -EMLINK;
	volume->self = volume->owner_count++;
	volume->owners[volume->self] = volume->id;
	if (!is_larger(making))
		return 0;
	return create->size < volume->size ? -EINVAL
					   : size_check(create->size, volume->object_size);
}

/* Over what an earlier attempt has left, with an epoch that it had not. */
static int fill(struct making *making)
{
	const struct map_create *create = making->create;
	const struct map_volume old = making->head.volume;
	if (old.epoch >= MAP_EPOCH_MAX)
		return -EOVERFLOW;
	making->head.volume = (struct map_volume){
		.id = create->id,
		.created_ns = create->created_ns,
		.generation = old.generation,
		.flags = MAP_NEW,
		.epoch = old.epoch + 1,
	};
	memcpy(making->head.volume.name, create->name, strlen(create->name) + 1);
	int rc = 0;
	if (making->source == 0)
		rc = fill_empty(making);
	else if (making->snapshot)
		fill_snapshot(making);
	else
		rc = fill_clone(making);
	if (rc == 0 && map_format_volume_check(&making->head.volume) != 0)
		rc = -EINVAL;
	return rc;
}

/* --- the steps -------------------------------------------------------------------------------- */

/* Is it what we were to make? Its name and size may have changed since. */
static bool is_made(const struct making *making)
{
	const struct map_volume *volume = &making->head.volume;
	bool snapshot = volume->flags & MAP_SNAPSHOT;
	uint32_t object_size = making->create->object_size;
	return !map_is_removing(volume) && snapshot == making->snapshot &&
	       (volume->parent == making->source || volume->parent == 0) &&
	       (object_size == 0 || object_size == volume->object_size);
}

/* 1: it was made before; 0: making->head is what to put it over. */
static int find_own(struct map_store *store, struct making *making)
{
	struct map_head *head = &making->head;
	int rc = map_record_open_head(store, making->create->id, head);
	if (rc == 0)
		return is_made(making) ? 1 : -EEXIST;
	if (rc != -ENOENT)
		return rc;
	rc = map_record_take(store, making->create->id, head);
	if (rc == -ENOENT) {
		*head = (struct map_head){.volume.id = making->create->id};
		return 0;
	}
	if (rc == 0 && map_is_removing(&head->volume))
		rc = map_remove_head(store, head) == 0 ? -ESTALE : -EBUSY;
	return rc;
}

static int find_source(struct map_store *store, struct making *making)
{
	if (making->source == 0)
		return 0;
	int rc = making->snapshot ? map_record_writable(store, making->source, &making->from)
				  : map_record_live(store, making->source, &making->from);
	return rc == 0 && making->from.volume.state != XSEG_VOLUME_READY ? -EBUSY : rc;
}

static int put_source(struct map_store *store, struct making *making)
{
	if (making->source == 0)
		return 0;
	if (!(making->from.volume.flags & MAP_SNAPSHOT)) {
		int rc = map_record_advance(&making->from, true);
		if (rc != 0)
			return rc;
	}
	return map_record_replace(store, &making->from);
}

/*
 * Both halves: a put over a half that is not there cannot tell whether the volume has been removed
 * since it was read, a put over one that is there can.
 */
static int put_own(struct map_store *store, struct making *making)
{
	struct map_head *head = &making->head;
	int rc = map_record_replace(store, head);
	if (rc == 0 && (head->version[0] == 0 || head->version[1] == 0))
		rc = map_record_replace(store, head);
	return rc;
}

/* Its pages have an owner by now that map_cleanup() finds. */
static int put_larger(struct map_store *store, struct making *making)
{
	if (!is_larger(making))
		return 0;
	int rc = map_tree_resize(store, &making->head, making->create->size);
	rc = map_record_excuse(store, &making->from, rc);
	return rc == 0 ? map_record_replace(store, &making->head) : rc;
}

/* It is there. What goes wrong from here on is not the caller's concern, but that it was undone. */
static int confirm(struct map_store *store, struct making *making)
{
	making->head.volume.flags &= ~MAP_NEW;
	return map_record_replace(store, &making->head) == -ESTALE ? -ESTALE : 0;
}

/* 1: it was made before. */
static int make_once(struct map_store *store, struct making *making)
{
	struct map_place place;
	const struct map_create *create = making->create;
	int rc = find_own(store, making);
	if (rc == 0)
		rc = map_name_place_look(store, create->name, create->id, &place);
	if (rc == 0)
		rc = find_source(store, making);
	if (rc == 0)
		rc = fill(making);
	if (rc != 0)
		return rc;
	making->begun = true;
	rc = put_own(store, making);
	if (rc == 0)
		rc = put_larger(store, making);
	if (rc == 0)
		rc = put_source(store, making);
	if (rc == 0)
		rc = map_name_place_claim(store, create->name, create->id);
	return rc == 0 ? confirm(store, making) : rc;
}

/* As far as it goes; map_cleanup() does the rest. */
static void unmake(struct map_store *store, struct making *making)
{
	struct map_head head;
	struct map_place place;
	const struct map_create *create = making->create;
	if (map_record_open_head(store, create->id, &head) != -ENOENT)
		return;
	int rc = map_record_take(store, create->id, &head);
	if (rc == 0)
		rc = map_remove_head(store, &head);
	if ((rc == 0 || rc == -ENOENT) && map_name_place_read(store, create->name, &place) == 0 &&
		map_name_place_leads(&place, create->name, create->id))
		map_name_place_drop(store, &place);
}

static int make(struct map_store *store, struct making *making)
{
	if (making->create->id == 0 || !name_check_volume(making->create->name) ||
		making->create->id == making->source)
		return -EINVAL;
	for (unsigned tries = 0; tries < MAP_TRIES; tries++) {
		int rc = make_once(store, making);
		if (rc == -ESTALE)
			continue;
		if (rc < 0 && making->begun)
			unmake(store, making);
		return rc == 1 ? 0 : rc;
	}
	return -EBUSY;
}

/* --- entry points ----------------------------------------------------------------------------- */

int map_create(struct map_store *store, const struct map_create *create, struct map_head *head)
{
	struct making making = {.create = create};
	if (create->state != XSEG_VOLUME_READY && create->state != XSEG_VOLUME_IMPORTING)
		return -EINVAL;
	int rc = make(store, &making);
	if (rc == 0)
		*head = making.head;
	return rc;
}

int map_create_snapshot(struct map_store *store, uint64_t id, const struct map_create *snapshot,
	struct map_head *volume)
{
	struct making making = {.create = snapshot, .source = id, .snapshot = true};
	if (id == 0)
		return -EINVAL;
	int rc = make(store, &making);
	return rc == 0 ? map_record_open_head(store, id, volume) : rc;
}

int map_create_clone(struct map_store *store, uint64_t id, const struct map_create *create,
	struct map_head *clone)
{
	struct making making = {.create = create, .source = id};
	if (id == 0)
		return -EINVAL;
	int rc = make(store, &making);
	if (rc == 0)
		*clone = making.head;
	return rc;
}
