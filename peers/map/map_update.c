/* SPDX-License-Identifier: Apache-2.0 */
/*
 * News of objects, brought into a volume's map.
 *
 * A bitmap is made durable before an entry of the map says that there is one. Bits that a
 * bitmap has are never taken away, and an object that is whole is never partial again, so deltas
 * that are said again change nothing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/map_step.h"

struct update {
	struct map_store *store;
	struct map_head head;
	bool refused; /* -ESTALE is the answer, not a lost race */
	bool written; /* bitmaps: they may not be durable */
	bool loaded;
	uint32_t page;
	struct map_entry entries[MAP_ENTRIES]; /* of the page */
};

static int refuse(struct update *update)
{
	update->refused = true;
	return -ESTALE;
}

static int entry_now(struct update *update, uint32_t object, struct map_entry *entry)
{
	uint32_t page = object / MAP_ENTRIES;
	if (!update->loaded || update->page != page) {
		int rc = map_tree_page(
			update->store, &update->head.volume, page, update->entries, NULL);
		update->loaded = rc == 0;
		update->page = page;
		if (rc != 0)
			return rc;
	}
	*entry = update->entries[object % MAP_ENTRIES];
	return 0;
}

/* --- bitmaps -------------------------------------------------------------------------------- */

static bool parent_check(const struct map_volume *volume, const struct map_delta *deltas)
{
	bool known = false;
	for (unsigned i = 0; i < volume->owner_count; i++)
		known = known || volume->owners[i] == deltas->parent_owner;
	bool itself = deltas->parent_owner == volume->id && deltas->parent_epoch == deltas->epoch;
	return known && !itself && deltas->parent_epoch >= 1 &&
	       deltas->parent_epoch <= MAP_EPOCH_MAX && (deltas->parent_flags & ~MAP_PARTIAL) == 0;
}

/*
 * What the object has so far. What lies there of an object that the map does not know is a
 * leftover, and counts only if it could be of this one.
 */
static int bitmap_now(struct update *update, const struct map_delta *deltas, bool known,
	struct map_bitmap *bitmap)
{
	const struct map_volume *volume = &update->head.volume;
	int rc = map_bitmap_read(update->store, volume->id, deltas->epoch, deltas->object, bitmap);
	if (rc == -ENOENT && known)
		return -EILSEQ;
	if (rc != 0 && (known || (rc != -ENOENT && rc != -EILSEQ)))
		return rc;
	uint64_t sequence = rc == 0 ? bitmap->sequence : 0;
	if (rc == 0 && bitmap->parent_owner == deltas->parent_owner &&
		bitmap->parent_epoch == deltas->parent_epoch &&
		bitmap->parent_flags == deltas->parent_flags)
		return 0;
	if (known)
		return -EINVAL;
	*bitmap = (struct map_bitmap){
		.owner = volume->id,
		.epoch = deltas->epoch,
		.object = deltas->object,
		.sequence = sequence,
		.parent_owner = deltas->parent_owner,
		.parent_epoch = deltas->parent_epoch,
		.parent_flags = deltas->parent_flags,
	};
	return 0;
}

/* Do they add anything? *whole: has it all by now? */
static bool bitmap_add(struct map_bitmap *bitmap, const uint64_t has[MAP_BITMAP_WORDS],
	uint32_t object_size, bool *whole)
{
	uint32_t clusters = object_size / MAP_CLUSTER;
	bool added = false;
	*whole = true;
	for (uint32_t i = 0; i < MAP_BITMAP_WORDS && i * 64 < clusters; i++) {
		uint32_t left = clusters - i * 64;
		uint64_t all = left >= 64 ? UINT64_MAX : ((uint64_t)1 << left) - 1;
		uint64_t now = bitmap->has[i] | (has[i] & all);
		added = added || now != bitmap->has[i];
		bitmap->has[i] = now;
		*whole = *whole && now == all;
	}
	return added;
}

static int plan_partial(
	struct update *update, const struct map_delta *deltas, bool known, struct map_entry *to)
{
	const struct map_volume *volume = &update->head.volume;
	struct map_bitmap bitmap;
	bool whole;
	if (!parent_check(volume, deltas))
		return -EINVAL;
	int rc = bitmap_now(update, deltas, known, &bitmap);
	if (rc != 0)
		return rc;
	bool added = bitmap_add(&bitmap, deltas->has, volume->object_size, &whole);
	if ((added || whole) && deltas->epoch <= volume->frozen)
		return refuse(update);
	if (whole) {
		to->flags = 0;
		return 0;
	}
	update->written = true; /* said again: it may have been written and not flushed */
	return added || bitmap.sequence == 0 ? map_bitmap_write(update->store, &bitmap) : 0;
}

/* --- entries ---------------------------------------------------------------------------------- */

static int plan(struct update *update, const struct map_delta *deltas, struct map_entry *to)
{
	const struct map_volume *volume = &update->head.volume;
	struct map_entry now;
	*to = (struct map_entry){0};
	if (deltas->object >= map_objects(volume))
		return -EINVAL;
	if (deltas->flags == MAP_UPDATE_HOLE)
		return 0;
	if ((deltas->flags != 0 && deltas->flags != MAP_PARTIAL && deltas->flags != MAP_ZERO) ||
		deltas->epoch == 0 || deltas->epoch > volume->epoch)
		return -EINVAL;
	*to = (struct map_entry){
		.epoch = deltas->epoch, .owner = volume->self, .flags = (uint16_t)deltas->flags};
	if (deltas->flags == MAP_ZERO || (deltas->flags == 0 && deltas->epoch == volume->epoch))
		return 0;
	int rc = entry_now(update, deltas->object, &now);
	if (rc != 0)
		return rc;
	bool known =
		now.epoch == deltas->epoch && now.owner == volume->self && !(now.flags & MAP_ZERO);
	if (!known && deltas->epoch != volume->epoch)
		return refuse(update);
	if (known && now.flags == 0) {
		to->flags = 0; /* whole it is, and stays */
		return 0;
	}
	if (deltas->flags == MAP_PARTIAL)
		return plan_partial(update, deltas, known, to);
	return deltas->epoch <= volume->frozen ? refuse(update) : 0;
}

/* What planning will read, and then the change of the tree. */
static int expect(struct update *update, const struct map_delta *deltas, size_t count)
{
	const struct map_volume *volume = &update->head.volume;
	struct map_store *store = update->store;
	struct map_ref refs[MAP_DIRECTORY_REFS];
	struct map_range *ranges = malloc(2 * count * sizeof(*ranges));
	uint32_t number = UINT32_MAX, page = UINT32_MAX;
	size_t ranges_count = 0;
	int rc = ranges ? 0 : -ENOMEM;
	for (size_t i = 0; i < count && rc == 0; i++) {
		uint32_t at = deltas[i].object / MAP_ENTRIES;
		if (at / MAP_DIRECTORY_REFS != number) {
			number = at / MAP_DIRECTORY_REFS;
			rc = map_tree_directory(store, volume, number, refs);
		}
		struct map_ref ref = refs[at % MAP_DIRECTORY_REFS];
		if (rc == 0 && at != page && !map_ref_is_hole(ref))
			ranges[ranges_count++] = map_tree_range(volume, at, ref);
		page = at;
		if (deltas[i].flags == MAP_PARTIAL)
			ranges[ranges_count++] =
				map_bitmap_range(volume->id, deltas[i].epoch, deltas[i].object);
	}
	if (rc == 0)
		store->expect(store, ranges, ranges_count);
	free(ranges);
	return rc;
}

static int update_once(struct update *update, const struct map_delta *deltas,
	struct map_change *changes, size_t count)
{
	struct map_store *store = update->store;
	int rc = count > 1 && store->expect ? expect(update, deltas, count) : 0;
	for (size_t i = 0; i < count && rc == 0; i++) {
		changes[i].object = deltas[i].object;
		rc = plan(update, &deltas[i], &changes[i].entry);
	}
	if (rc == 0 && update->written)
		rc = store->flush(store, update->head.volume.id);
	if (rc == 0)
		rc = map_tree_update(store, &update->head, changes, count);
	return map_record_excuse(store, &update->head, rc);
}

int map_update(struct map_store *store, uint64_t id, const struct map_delta *deltas, size_t count,
	struct map_head *head)
{
	struct update update = {.store = store};
	struct map_change *changes = calloc(count + 1, sizeof(*changes));
	int rc = changes ? -ESTALE : -ENOMEM;
	for (unsigned tries = 0; tries < MAP_TRIES && rc == -ESTALE && !update.refused; tries++) {
		update.loaded = false;
		rc = map_record_writable(store, id, &update.head);
		if (rc == 0)
			rc = update_once(&update, deltas, changes, count);
	}
	free(changes);
	if (rc == 0)
		*head = update.head;
	return rc == -ESTALE && !update.refused ? -EBUSY : rc;
}
