/* SPDX-License-Identifier: Apache-2.0 */
/* Changes to one volume that one put of its record makes. */
#include <errno.h>
#include <string.h>

#include "peers/map/map_step.h"

/* --- what is said of it ----------------------------------------------------------------------- */

static int edit_state(struct map_store *store, struct map_head *head, const void *context)
{
	const unsigned *state = context;
	(void)store;
	if (head->volume.state == *state)
		return 1;
	if (head->volume.state != XSEG_VOLUME_IMPORTING)
		return -EINVAL;
	head->volume.state = *state;
	return 0;
}

int map_change_state(struct map_store *store, uint64_t id, unsigned state)
{
	if (state != XSEG_VOLUME_READY && state != XSEG_VOLUME_IMPORTING)
		return -EINVAL;
	return map_record_edit(store, id, map_record_live, edit_state, &state, NULL);
}

struct flags {
	uint32_t set, clear;
};

static int edit_flags(struct map_store *store, struct map_head *head, const void *context)
{
	const struct flags *flags = context;
	(void)store;
	uint32_t now = (head->volume.flags | flags->set) & ~flags->clear;
	if (now == head->volume.flags)
		return 1;
	head->volume.flags = now;
	return 0;
}

int map_change_flags(struct map_store *store, uint64_t id, uint32_t set, uint32_t clear)
{
	struct flags flags = {.set = set, .clear = clear};
	if ((set | clear) & ~(XSEG_VOLUME_READ_ONLY | MAP_PROTECTED) || (set & clear) != 0)
		return -EINVAL;
	return map_record_edit(store, id, map_record_live, edit_flags, &flags, NULL);
}

struct limits {
	uint64_t iops, bytes, burst_ms;
};

static int edit_limits(struct map_store *store, struct map_head *head, const void *context)
{
	const struct limits *limits = context;
	struct map_volume *volume = &head->volume;
	(void)store;
	if (volume->limit_iops == limits->iops && volume->limit_bytes == limits->bytes &&
		volume->limit_burst_ms == limits->burst_ms)
		return 1;
	volume->limit_iops = limits->iops;
	volume->limit_bytes = limits->bytes;
	volume->limit_burst_ms = limits->burst_ms;
	return 0;
}

int map_change_limits(
	struct map_store *store, uint64_t id, uint64_t iops, uint64_t bytes, uint64_t burst_ms)
{
	struct limits limits = {.iops = iops, .bytes = bytes, .burst_ms = burst_ms};
	return map_record_edit(store, id, map_record_live, edit_limits, &limits, NULL);
}

/* --- what it consists of ---------------------------------------------------------------------- */

static int edit_epoch(struct map_store *store, struct map_head *head, const void *context)
{
	(void)store;
	return map_record_advance(head, *(const bool *)context);
}

int map_change_epoch(struct map_store *store, uint64_t id, bool freeze, struct map_head *head)
{
	return map_record_edit(store, id, map_record_writable, edit_epoch, &freeze, head);
}

/*
 * The snapshot is read after the volume: one that is about to be removed has said so before it
 * touches the volume (map_remove.c). Owners are never taken out of a volume's table, so the
 * snapshot's are those that the volume's begins with.
 */
static int edit_rollback(struct map_store *store, struct map_head *head, const void *context)
{
	struct map_volume *volume = &head->volume;
	struct map_head from;
	const struct map_volume *snapshot = &from.volume;
	int rc = map_record_live(store, *(const uint64_t *)context, &from);
	if (rc != 0)
		return rc;
	if (!(snapshot->flags & MAP_SNAPSHOT) || snapshot->parent != volume->id ||
		snapshot->object_size != volume->object_size ||
		snapshot->owner_count > volume->owner_count ||
		memcmp(snapshot->owners, volume->owners,
			snapshot->owner_count * sizeof(*volume->owners)) != 0)
		return -EINVAL;
	volume->size = snapshot->size;
	volume->depth = snapshot->depth;
	memcpy(volume->top, snapshot->top, sizeof(volume->top));
	return map_record_advance(head, true);
}

int map_change_rollback(
	struct map_store *store, uint64_t id, uint64_t snapshot, struct map_head *head)
{
	return map_record_edit(store, id, map_record_writable, edit_rollback, &snapshot, head);
}

/* What is cut off may be there again when it grows: with other names. */
static int edit_size(struct map_store *store, struct map_head *head, const void *context)
{
	uint64_t size = *(const uint64_t *)context;
	int rc = 0;
	if (size == head->volume.size)
		return 1;
	if (size < head->volume.size)
		rc = map_record_advance(head, false);
	return rc == 0 ? map_tree_resize(store, head, size) : rc;
}

int map_change_resize(struct map_store *store, uint64_t id, uint64_t size, struct map_head *head)
{
	return map_record_edit(store, id, map_record_writable, edit_size, &size, head);
}

/* --- does it stand alone? --------------------------------------------------------------------- */

static int flat_page(struct map_walk *walk, struct xseg_key key)
{
	const struct map_volume *volume = walk->context;
	return key.volume != volume->id;
}

static int flat_visit(struct map_walk *walk, uint32_t object, struct map_entry entry)
{
	const struct map_volume *volume = walk->context;
	(void)object;
	if (entry.flags & MAP_ZERO)
		return 0;
	return entry.owner != volume->self || entry.flags & MAP_PARTIAL;
}

/* A page of another's says enough without being read: first those at the top, then in order. */
int map_change_is_flat(struct map_store *store, const struct map_volume *volume, bool *flat)
{
	struct map_walk walk = {.visit = flat_visit, .page = flat_page, .context = (void *)volume};
	*flat = false;
	for (unsigned i = 0; i < MAP_TOP_REFS; i++)
		if (!map_ref_is_hole(volume->top[i]) && volume->top[i].owner != volume->self)
			return 0;
	int rc = map_tree_walk(store, volume, 0, &walk);
	*flat = rc == 0;
	return rc < 0 ? rc : 0;
}

static int edit_detach(struct map_store *store, struct map_head *head, const void *context)
{
	bool flat = false;
	(void)context;
	if (head->volume.parent == 0)
		return 1;
	int rc = map_change_is_flat(store, &head->volume, &flat);
	if (rc == 0 && !flat)
		rc = -ENOTEMPTY;
	head->volume.parent = 0;
	return rc;
}

int map_change_detach(struct map_store *store, uint64_t id)
{
	return map_record_edit(store, id, map_record_writable, edit_detach, NULL, NULL);
}
