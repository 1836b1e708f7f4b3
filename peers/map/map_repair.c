/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes holes of entries that cannot be, and counts what there is; what fsck repairs in a map.
 *
 * It writes as map_tree.c does: own pages that are not shared into their other half, others under a
 * name of their own; then a flush; then the record. Pages that cannot be read stay as they are.
 */
#include <base/crc32c.h>
#include <errno.h>
#include <string.h>

#include "peers/map/map_fsck.h"

struct map_repairing {
	struct map_run *run;
	struct map_head head;
	bool written;
};

/* 1: it cannot be read. */
static int get_page(struct map_repairing *repair, struct xseg_key key, const struct map_ref *ref,
	uint8_t bytes[MAP_PAGE_SIZE])
{
	struct map_store *store = repair->run->store;
	int rc = store->read(store, key, ref->half * MAP_PAGE_SIZE, bytes, MAP_PAGE_SIZE);
	if (rc < 0)
		return rc == -EIO ? 1 : rc;
	return crc32c(0, bytes, MAP_PAGE_SIZE) != ref->crc;
}

static int put_page(struct map_repairing *repair, uint32_t number, struct map_ref *ref,
	const uint8_t bytes[MAP_PAGE_SIZE])
{
	const struct map_volume *volume = &repair->head.volume;
	struct map_store *store = repair->run->store;
	if (volume->flags & MAP_SNAPSHOT)
		return -EPERM;
	if (ref->owner == volume->self && ref->epoch > volume->frozen) {
		ref->half = !ref->half;
	} else {
		ref->owner = volume->self;
		ref->epoch = volume->epoch;
		ref->half = 0;
	}
	ref->crc = crc32c(0, bytes, MAP_PAGE_SIZE);
	repair->written = true;
	int rc = store->write(store, map_page_key(volume->id, ref->epoch, number),
		ref->half * MAP_PAGE_SIZE, bytes, MAP_PAGE_SIZE);
	return rc < 0 ? rc : 0;
}

/*
 * What is below a reference has been looked at: it has so many entries, and `bytes` are what it is
 * by now if it was changed. 1: the reference is another by now.
 */
static int settle(struct map_repairing *repair, uint32_t number, struct map_ref *ref,
	uint32_t count, const uint8_t *bytes)
{
	if (!bytes && ref->count == count)
		return 0;
	if (count == 0) {
		*ref = (struct map_ref){0};
		return 1;
	}
	int rc = bytes ? put_page(repair, number, ref, bytes) : 0;
	ref->count = count;
	return rc < 0 ? rc : 1;
}

/* 1: the reference is another by now. */
static int repair_page(struct map_repairing *repair, uint32_t page, struct map_ref *ref)
{
	const struct map_volume *volume = &repair->head.volume;
	struct map_entry entries[MAP_ENTRIES];
	uint8_t bytes[MAP_PAGE_SIZE];
	bool changed = false;
	uint32_t count = 0;
	struct xseg_key key = map_page_key(volume->owners[ref->owner], ref->epoch, page);
	int rc = get_page(repair, key, ref, bytes);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	(void)map_format_page_decode(bytes, volume->owner_count, entries);
	for (uint32_t i = 0; i < MAP_ENTRIES; i++) {
		rc = map_fsck_map_entry(repair->run, volume, page * MAP_ENTRIES + i, entries[i]);
		if (rc < 0)
			return rc;
		changed = changed || rc > 0;
		if (rc > 0)
			entries[i] = (struct map_entry){0};
		count += !map_entry_is_hole(entries[i]);
	}
	if (changed)
		map_format_page_encode(entries, bytes);
	return settle(repair, page, ref, count, changed ? bytes : NULL);
}

/* The same. */
static int repair_directory(struct map_repairing *repair, uint32_t number, struct map_ref *ref)
{
	const struct map_volume *volume = &repair->head.volume;
	struct map_ref refs[MAP_DIRECTORY_REFS];
	uint8_t bytes[MAP_PAGE_SIZE];
	bool changed = false;
	uint32_t count = 0;
	struct xseg_key key = map_directory_key(volume->owners[ref->owner], ref->epoch, number);
	int rc = get_page(repair, key, ref, bytes);
	if (rc == 0 && map_format_directory_decode(bytes, volume->owner_count, refs) != 0)
		rc = 1;
	if (rc != 0)
		return rc < 0 ? rc : 0;
	for (uint32_t i = 0; i < MAP_DIRECTORY_REFS; i++) {
		if (map_ref_is_hole(refs[i]))
			continue;
		rc = repair_page(repair, number * MAP_DIRECTORY_REFS + i, &refs[i]);
		if (rc < 0)
			return rc;
		changed = changed || rc > 0;
		count += refs[i].count;
	}
	if (changed)
		map_format_directory_encode(refs, bytes);
	return settle(repair, MAP_NUMBER_DIRECTORY + number, ref, count, changed ? bytes : NULL);
}

int map_repair(struct map_run *run, uint64_t id)
{
	struct map_repairing repair = {.run = run};
	bool changed = false;
	int rc = map_head_read(run->store, id, &repair.head, NULL);
	for (uint32_t i = 0; rc >= 0 && i < MAP_TOP_REFS; i++) {
		struct map_ref *ref = &repair.head.volume.top[i];
		if (map_ref_is_hole(*ref))
			continue;
		rc = repair.head.volume.depth == 1 ? repair_page(&repair, i, ref)
						   : repair_directory(&repair, i, ref);
		changed = changed || rc > 0;
	}
	if (rc < 0 || !changed)
		return rc < 0 ? rc : 0;
	if (repair.written)
		rc = run->store->flush(run->store, id);
	return rc < 0 ? rc : map_head_put(run->store, &repair.head);
}
