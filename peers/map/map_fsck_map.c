/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fsck finds in the maps. A page that several volumes share is looked at once, and what is
 * wrong with it is said of the first of them.
 */
#include <errno.h>
#include <stdlib.h>

#include "peers/map/map_fsck.h"

struct check {
	struct map_run *run;
	struct map_report *later; /* what can be repaired is said afterwards */
	size_t count, room;
	bool first; /* of the slices: what is not about objects is said then */
};

/* --- what can be ------------------------------------------------------------------------------ */

/*
 * Is the owner's record as far as that? Its epoch and what is frozen only grow, so it is read again
 * only if it was not so far at the beginning. 1, 0, -errno.
 */
static int is_beyond(struct map_run *run, uint64_t id, uint32_t epoch, bool frozen)
{
	const struct map_enumeration_owner *owner =
		map_enumeration_owner_find(&run->enumeration, id);
	struct map_head head;
	if (owner && epoch <= (frozen ? owner->frozen : owner->limit))
		return 0;
	int rc = map_head_read(run->store, id, &head, NULL);
	if (rc == -ENOENT || rc == -EILSEQ || rc == -EPROTO)
		return 0;
	return rc < 0 ? rc : epoch > (frozen ? head.volume.frozen : head.volume.epoch);
}

int map_fsck_map_entry(struct map_run *run, const struct map_volume *volume, uint32_t object,
	struct map_entry entry)
{
	if (!map_format_entry_check(entry, volume->owner_count))
		return 1;
	if (map_entry_is_hole(entry))
		return 0;
	if (object >= map_objects(volume))
		return 1;
	if (entry.owner == volume->self)
		return entry.epoch > volume->epoch;
	return is_beyond(run, volume->owners[entry.owner], entry.epoch, false);
}

/* --- findings --------------------------------------------------------------------------------- */

static struct check *check_of(struct map_scan *scan) { return scan->context; }

static struct map_report report_of(
	struct map_scan *scan, enum map_finding finding, struct xseg_key key, uint32_t object)
{
	return (struct map_report){
		.finding = finding, .volume = scan->head.volume.id, .key = key, .object = object};
}

static void say(
	struct map_scan *scan, enum map_finding finding, struct xseg_key key, uint32_t object)
{
	struct map_report report = report_of(scan, finding, key, object);
	map_sweep_report(check_of(scan)->run, &report);
}

static int say_later(
	struct map_scan *scan, enum map_finding finding, struct xseg_key key, uint32_t object)
{
	struct check *check = check_of(scan);
	if (check->count == check->room) {
		size_t room = check->room ? 2 * check->room : 64;
		void *grown = realloc(check->later, room * sizeof(*check->later));
		if (!grown)
			return -ENOMEM;
		check->later = grown;
		check->room = room;
	}
	check->later[check->count++] = report_of(scan, finding, key, object);
	return 0;
}

/* --- objects ---------------------------------------------------------------------------------- */

/* The store listed its objects before; one that was made since is looked for by itself. */
static int is_missing(struct map_run *run, struct xseg_key key)
{
	uint64_t bytes = 0;
	if (!map_mark_in_slice(&run->doubtful, key) || map_mark_has(&run->doubtful, key))
		return 0;
	int rc = run->store->allocated(run->store, key, &bytes);
	return rc < 0 ? rc : bytes == 0;
}

/* A finding in a map that has moved on since is none. */
static int confirm(struct map_scan *scan)
{
	int moved = map_mark_scan_moved(scan);
	return moved > 0 ? -EAGAIN : moved;
}

/* A partial object's bitmap and parent. 1: *key is the parent, and partial itself. */
static int check_bitmap(struct map_scan *scan, struct xseg_key *key)
{
	struct map_run *run = check_of(scan)->run;
	struct map_bitmap bitmap;
	int rc = map_bitmap_read(run->store, key->volume, key->epoch, key->object, &bitmap);
	if (rc == -EILSEQ || rc == -EPROTO || rc == -ENOENT || rc == -EIO) {
		rc = confirm(scan);
		if (rc == 0 && check_of(scan)->first)
			say(scan, MAP_FOUND_BAD_BITMAP,
				map_bitmap_key(key->volume, key->epoch, key->object), key->object);
		return rc;
	}
	if (rc < 0)
		return rc;
	key->volume = bitmap.parent_owner;
	key->epoch = bitmap.parent_epoch;
	rc = is_missing(run, *key);
	if (rc > 0) {
		rc = confirm(scan);
		if (rc == 0)
			say(scan, MAP_FOUND_BAD_PARENT, *key, key->object);
	}
	return rc < 0 ? rc : (bitmap.parent_flags & MAP_PARTIAL) != 0;
}

/* Each one once. */
static int check_chain(struct map_scan *scan, struct xseg_key key)
{
	struct map_run *run = check_of(scan)->run;
	for (unsigned depth = 0; depth < MAP_CHAIN_MAX; depth++) {
		struct xseg_key this = key;
		if (map_mark_has(&run->walked, this))
			return 0;
		int rc = check_bitmap(scan, &key);
		if (rc < 0)
			return rc;
		(void)map_mark_set(&run->walked, this); /* full: it is looked at again */
		if (rc == 0)
			return 0;
	}
	if (check_of(scan)->first)
		say(scan, MAP_FOUND_BAD_BITMAP, key, key.object);
	return 0;
}

/* Only its owner may write to what is not frozen, and nobody else may need that. */
static int check_overlap(struct map_scan *scan, struct xseg_key key, uint32_t object)
{
	struct check *check = check_of(scan);
	if (!check->first || key.volume == scan->head.volume.id)
		return 0;
	int rc = is_beyond(check->run, key.volume, key.epoch & ~MAP_EPOCH_MAP, true);
	if (rc <= 0)
		return rc;
	rc = confirm(scan);
	if (rc == 0)
		say(scan, MAP_FOUND_OVERLAP, key, object);
	return rc;
}

static int check_object(struct map_scan *scan, uint32_t object, struct map_entry entry)
{
	struct map_run *run = check_of(scan)->run;
	if (entry.flags & MAP_ZERO)
		return 0;
	struct xseg_key key = {.volume = scan->head.volume.owners[entry.owner],
		.epoch = entry.epoch,
		.object = object};
	int rc = is_missing(run, key);
	if (rc > 0) {
		rc = confirm(scan);
		if (rc == 0)
			say(scan, MAP_FOUND_LOST, key, object);
	}
	if (rc == 0)
		rc = check_overlap(scan, key, object);
	if (rc == 0 && (entry.flags & MAP_PARTIAL))
		rc = check_chain(scan, key);
	return rc;
}

/* --- pages ------------------------------------------------------------------------------------ */

static int check_enter(struct map_scan *scan, struct xseg_key key, bool shared)
{
	if (shared && map_mark_has(&check_of(scan)->run->walked, key))
		return 1;
	return check_overlap(scan, key, 0);
}

static void check_leave(struct map_scan *scan, struct xseg_key key)
{
	(void)map_mark_set(&check_of(scan)->run->walked, key); /* full: it is looked at again */
}

static struct xseg_key key_of(struct map_scan *scan, const struct map_ref *ref, uint32_t number)
{
	return map_page_key(scan->head.volume.owners[ref->owner], ref->epoch, number);
}

static int check_directory(struct map_scan *scan, uint32_t page, const struct map_ref *ref,
	const struct map_ref refs[MAP_DIRECTORY_REFS])
{
	uint32_t count = 0;
	for (unsigned i = 0; i < MAP_DIRECTORY_REFS; i++)
		count += refs[i].count;
	if (count == ref->count || !check_of(scan)->first)
		return 0;
	uint32_t number = MAP_NUMBER_DIRECTORY + page / MAP_DIRECTORY_REFS;
	return say_later(scan, MAP_FOUND_BAD_COUNT, key_of(scan, ref, number), page * MAP_ENTRIES);
}

static int check_page(struct map_scan *scan, uint32_t page, const struct map_ref *ref,
	const struct map_entry entries[MAP_ENTRIES])
{
	struct check *check = check_of(scan);
	struct xseg_key key = key_of(scan, ref, page);
	size_t before = check->count;
	uint32_t count = 0;
	int rc = 0;
	for (uint32_t i = 0; i < MAP_ENTRIES && rc == 0; i++) {
		uint32_t object = page * MAP_ENTRIES + i;
		count += !map_entry_is_hole(entries[i]);
		rc = map_fsck_map_entry(check->run, &scan->head.volume, object, entries[i]);
		if (rc == 0 && !map_entry_is_hole(entries[i]))
			rc = check_object(scan, object, entries[i]);
		else if (rc > 0)
			rc = check->first ? say_later(scan, MAP_FOUND_BAD_ENTRY, key, object) : 0;
	}
	if (rc == 0 && count != ref->count && check->first)
		rc = say_later(scan, MAP_FOUND_BAD_COUNT, key, page * MAP_ENTRIES);
	if (rc != 0)
		check->count = before; /* the page is looked at again */
	return rc;
}

static int check_bad(struct map_scan *scan, struct xseg_key key, uint32_t page)
{
	if (check_of(scan)->first)
		say(scan, MAP_FOUND_BAD_PAGE, key, page * MAP_ENTRIES);
	return 0;
}

/* --- volumes ---------------------------------------------------------------------------------- */

/* Snapshots keep what they have: only what lies in their record can be put right. */
static int repair(struct check *check, uint64_t id)
{
	int rc = 0;
	bool repaired = false;
	if (check->count > 0 && check->run->sweep->repair) {
		rc = map_repair(check->run, id);
		repaired = rc == 0;
		if (rc == -EPERM || rc == -ESTALE || rc == -ENOENT || rc == -EINVAL)
			rc = 0;
	}
	for (size_t i = 0; i < check->count; i++) {
		check->later[i].repaired = repaired;
		map_sweep_report(check->run, &check->later[i]);
	}
	return rc;
}

/* One that is in the making, or on its way out, is nobody's yet or any more. */
static int check_volume(struct map_run *run, uint64_t id, bool first)
{
	struct check check = {.run = run, .first = first};
	struct map_scan scan = {
		.store = run->store,
		.enter = check_enter,
		.leave = check_leave,
		.directory = check_directory,
		.page = check_page,
		.bad = check_bad,
		.context = &check,
	};
	int rc = map_head_read(run->store, id, &scan.head, NULL);
	if (rc == 0 && ((scan.head.volume.flags & MAP_NEW) ||
			       scan.head.volume.state == XSEG_VOLUME_REMOVING))
		return 0;
	if (rc == 0)
		rc = map_mark_scan(&scan);
	if (rc == 0)
		rc = repair(&check, id);
	free(check.later);
	if (rc == -EBUSY)
		run->busy = true;
	return rc == -EBUSY || rc == -ENOENT || rc == -EILSEQ || rc == -EPROTO ? 0 : rc;
}

static int note_present(
	struct map_run *run, const struct map_enumeration_owner *owner, struct xseg_key key)
{
	(void)owner;
	int rc = map_mark_set(&run->doubtful, key);
	return rc < 0 ? rc : 0;
}

int map_fsck_map_all(struct map_run *run, unsigned slice, unsigned slices)
{
	map_mark_begin(&run->doubtful, slice, slices);
	map_mark_begin(&run->walked, 0, 1);
	int rc = map_sweep_list(run, note_present);
	for (size_t i = 0; rc == 0 && i < run->enumeration.volume_count; i++) {
		const struct map_enumeration_volume *volume = &run->enumeration.volumes[i];
		if (volume->error == 0 &&
			map_enumeration_has(&run->enumeration, volume, run->batch) &&
			(run->sweep->volume == 0 || run->sweep->volume == volume->id))
			rc = check_volume(run, volume->id, slice == 0);
	}
	return rc;
}
