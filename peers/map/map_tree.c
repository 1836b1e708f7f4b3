/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of a volume's map: looked up, changed, cut, walked. */
#include "peers/map/map_tree.h"

#include <base/crc32c.h>
#include <base/must.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DIRECTORY_OBJECTS (MAP_DIRECTORY_REFS * MAP_ENTRIES)

/* --- reading ------------------------------------------------------------------------------ */

static struct xseg_key page_key(const struct map_volume *volume, uint32_t page, struct map_ref ref)
{
	return map_page_key(volume->owners[ref.owner], ref.epoch, page);
}

static struct xseg_key directory_key(
	const struct map_volume *volume, uint32_t number, struct map_ref ref)
{
	return map_directory_key(volume->owners[ref.owner], ref.epoch, number);
}

static int read_checked(struct map_store *store, struct xseg_key key, struct map_ref ref,
	uint8_t bytes[MAP_PAGE_SIZE])
{
	int rc = store->read(store, key, ref.half * MAP_PAGE_SIZE, bytes, MAP_PAGE_SIZE);
	if (rc < 0)
		return rc;
	return crc32c(0, bytes, MAP_PAGE_SIZE) == ref.crc ? 0 : -EILSEQ;
}

int map_tree_leaf(struct map_store *store, const struct map_volume *volume, uint32_t page,
	struct map_ref ref, struct map_entry entries[MAP_ENTRIES])
{
	if (map_ref_is_hole(ref)) {
		memset(entries, 0, MAP_ENTRIES * sizeof(*entries));
		return 0;
	}
	uint8_t bytes[MAP_PAGE_SIZE];
	int rc = read_checked(store, page_key(volume, page, ref), ref, bytes);
	return rc != 0 ? rc : map_format_page_decode(bytes, volume->owner_count, entries);
}

struct map_range map_tree_range(const struct map_volume *volume, uint32_t page, struct map_ref ref)
{
	return (struct map_range){.key = page_key(volume, page, ref),
		.offset = ref.half * MAP_PAGE_SIZE,
		.length = MAP_PAGE_SIZE};
}

uint32_t map_tree_directories(const struct map_volume *volume)
{
	return volume->depth == 1 ? 1 : MAP_TOP_REFS;
}

int map_tree_directory(struct map_store *store, const struct map_volume *volume, uint32_t number,
	struct map_ref refs[MAP_DIRECTORY_REFS])
{
	memset(refs, 0, MAP_DIRECTORY_REFS * sizeof(*refs));
	if (number >= map_tree_directories(volume))
		return 0;
	if (volume->depth == 1) {
		memcpy(refs, volume->top, sizeof(volume->top));
		return 0;
	}
	struct map_ref ref = volume->top[number];
	if (map_ref_is_hole(ref))
		return 0;
	uint8_t bytes[MAP_PAGE_SIZE];
	int rc = read_checked(store, directory_key(volume, number, ref), ref, bytes);
	return rc != 0 ? rc : map_format_directory_decode(bytes, volume->owner_count, refs);
}

int map_tree_page(struct map_store *store, const struct map_volume *volume, uint32_t page,
	struct map_entry entries[MAP_ENTRIES], struct map_ref *ref)
{
	struct map_ref refs[MAP_DIRECTORY_REFS];
	int rc = map_tree_directory(store, volume, page / MAP_DIRECTORY_REFS, refs);
	if (rc != 0)
		return rc;
	struct map_ref found = refs[page % MAP_DIRECTORY_REFS];
	if (ref)
		*ref = found;
	return map_tree_leaf(store, volume, page, found, entries);
}

int map_tree_entry(struct map_store *store, const struct map_volume *volume, uint32_t object,
	struct map_entry *entry)
{
	struct map_entry entries[MAP_ENTRIES];
	int rc = map_tree_page(store, volume, object / MAP_ENTRIES, entries, NULL);
	if (rc == 0)
		*entry = entries[object % MAP_ENTRIES];
	return rc;
}

/* --- changing ----------------------------------------------------------------------------- */

/*
 * A volume in the making: a copy, of which one directory is at hand at a time. What is written
 * meanwhile is referred to by nobody until the copy's record is put.
 */
struct edit {
	struct map_store *store;
	struct map_head head;
	uint32_t number; /* of the directory */
	bool loaded;
	bool changed; /* the directory */
	bool moved;   /* anything at all */
	bool written; /* and not flushed */
	struct map_ref refs[MAP_DIRECTORY_REFS];
};

static void edit_begin(struct edit *edit, struct map_store *store, const struct map_head *head)
{
	edit->store = store;
	edit->head = *head;
	edit->loaded = edit->changed = edit->moved = edit->written = false;
}

/* Where the successor of a page goes: to its other half if it is ours alone, else to a new name. */
static struct map_ref edit_place(const struct map_volume *volume, struct map_ref old)
{
	bool ours = old.owner == volume->self && old.epoch > volume->frozen;
	return (struct map_ref){
		.epoch = ours ? old.epoch : volume->epoch,
		.owner = volume->self,
		.half = ours ? !old.half : 0,
	};
}

static int edit_write(
	struct edit *edit, struct xseg_key key, struct map_ref *ref, const uint8_t *bytes)
{
	ref->crc = crc32c(0, bytes, MAP_PAGE_SIZE);
	edit->written = true;
	return edit->store->write(
		edit->store, key, ref->half * MAP_PAGE_SIZE, bytes, MAP_PAGE_SIZE);
}

static int edit_put_directory(struct edit *edit)
{
	struct map_volume *volume = &edit->head.volume;
	struct map_ref ref = edit_place(volume, volume->top[edit->number]);
	for (unsigned i = 0; i < MAP_DIRECTORY_REFS; i++)
		ref.count += edit->refs[i].count;
	if (ref.count == 0) {
		volume->top[edit->number] = (struct map_ref){0};
		return 0;
	}
	uint8_t bytes[MAP_PAGE_SIZE];
	map_format_directory_encode(edit->refs, bytes);
	int rc = edit_write(edit, directory_key(volume, edit->number, ref), &ref, bytes);
	volume->top[edit->number] = ref;
	return rc;
}

/* Done with the directory at hand. */
static int edit_close(struct edit *edit)
{
	struct map_volume *volume = &edit->head.volume;
	if (!edit->loaded || !edit->changed)
		return 0;
	edit->changed = false;
	edit->moved = true;
	if (volume->depth == 2)
		return edit_put_directory(edit);
	memcpy(volume->top, edit->refs, sizeof(volume->top));
	return 0;
}

static int edit_open(struct edit *edit, uint32_t number)
{
	if (edit->loaded && edit->number == number)
		return 0;
	int rc = edit_close(edit);
	if (rc == 0)
		rc = map_tree_directory(edit->store, &edit->head.volume, number, edit->refs);
	edit->number = number;
	edit->loaded = rc == 0;
	return rc;
}

static int edit_put_page(
	struct edit *edit, uint32_t page, const struct map_entry entries[MAP_ENTRIES])
{
	const struct map_volume *volume = &edit->head.volume;
	struct map_ref *at = &edit->refs[page % MAP_DIRECTORY_REFS];
	struct map_ref ref = edit_place(volume, *at);
	for (unsigned i = 0; i < MAP_ENTRIES; i++)
		ref.count += !map_entry_is_hole(entries[i]);
	edit->changed = true;
	if (ref.count == 0) {
		*at = (struct map_ref){0};
		return 0;
	}
	uint8_t bytes[MAP_PAGE_SIZE];
	map_format_page_encode(entries, bytes);
	int rc = edit_write(edit, page_key(volume, page, ref), &ref, bytes);
	*at = ref;
	return rc;
}

/* All changes to one page. */
static int edit_page(
	struct edit *edit, uint32_t page, const struct map_change *changes, size_t count)
{
	struct map_entry entries[MAP_ENTRIES];
	bool changed = false;
	int rc = edit_open(edit, page / MAP_DIRECTORY_REFS);
	if (rc == 0)
		rc = map_tree_leaf(edit->store, &edit->head.volume, page,
			edit->refs[page % MAP_DIRECTORY_REFS], entries);
	if (rc != 0)
		return rc;
	for (size_t i = 0; i < count; i++) {
		struct map_entry *entry = &entries[changes[i].object % MAP_ENTRIES];
		changed = changed || !map_format_entry_same(*entry, changes[i].entry);
		*entry = changes[i].entry;
	}
	return changed ? edit_put_page(edit, page, entries) : 0;
}

/* Changes in order of object. */
static int edit_pages(struct edit *edit, const struct map_change *changes, size_t count)
{
	int rc = 0;
	for (size_t i = 0, n; i < count && rc == 0; i += n) {
		uint32_t page = changes[i].object / MAP_ENTRIES;
		for (n = 1; i + n < count && changes[i + n].object / MAP_ENTRIES == page;)
			n++;
		rc = edit_page(edit, page, changes + i, n);
	}
	return rc != 0 ? rc : edit_close(edit);
}

/* What was written must be durable before a record refers to it. */
static int edit_flush(struct edit *edit)
{
	if (!edit->written)
		return 0;
	edit->written = false;
	return edit->store->flush(edit->store, edit->head.volume.id);
}

static int check_writable(const struct map_head *head)
{
	if (!map_head_is_current(head))
		return -ESTALE;
	return head->volume.flags & MAP_SNAPSHOT ? -EPERM : 0;
}

static int check_changes(
	const struct map_volume *volume, const struct map_change *changes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct map_entry entry = changes[i].entry;
		if (changes[i].object >= map_objects(volume) ||
			!map_format_entry_check(entry, volume->owner_count) ||
			(entry.owner == volume->self && entry.epoch > volume->epoch))
			return -EINVAL;
	}
	return 0;
}

static int compare_changes(const void *a, const void *b)
{
	const struct map_change *x = *(const struct map_change *const *)a;
	const struct map_change *y = *(const struct map_change *const *)b;
	if (x->object != y->object)
		return x->object < y->object ? -1 : 1;
	return (x > y) - (x < y); /* the last one said counts */
}

/* -ENOMEM, or a sorted copy. */
static int sort_changes(const struct map_change *changes, size_t count, struct map_change **sorted)
{
	const struct map_change **order = malloc(count * sizeof(*order));
	*sorted = malloc(count * sizeof(**sorted));
	if (!order || !*sorted) {
		free(order);
		free(*sorted);
		return -ENOMEM;
	}
	for (size_t i = 0; i < count; i++)
		order[i] = &changes[i];
	qsort(order, count, sizeof(*order), compare_changes);
	for (size_t i = 0; i < count; i++)
		(*sorted)[i] = *order[i];
	free(order);
	return 0;
}

static bool is_sorted(const struct map_change *changes, size_t count)
{
	for (size_t i = 1; i < count; i++)
		if (changes[i - 1].object > changes[i].object)
			return false;
	return true;
}

int map_tree_update(struct map_store *store, struct map_head *head,
	const struct map_change *changes, size_t count)
{
	struct map_change *sorted = NULL;
	struct edit edit;
	int rc = check_writable(head);
	if (rc == 0)
		rc = check_changes(&head->volume, changes, count);
	if (rc == 0 && !is_sorted(changes, count))
		rc = sort_changes(changes, count, &sorted);
	if (rc != 0)
		return rc;
	edit_begin(&edit, store, head);
	rc = edit_pages(&edit, sorted ? sorted : changes, count);
	free(sorted);
	if (rc != 0 || !edit.moved)
		return rc;
	rc = edit_flush(&edit);
	if (rc != 0)
		return rc;
	rc = map_head_put(store, &edit.head);
	if (rc == 0)
		*head = edit.head;
	else
		memcpy(head->version, edit.head.version, sizeof(head->version));
	return rc;
}

/* --- another size ------------------------------------------------------------------------- */

/* Nothing is left from object `objects` on. */
static int edit_cut(struct edit *edit, uint64_t objects)
{
	struct map_volume *volume = &edit->head.volume;
	if (objects == 0) {
		memset(volume->top, 0, sizeof(volume->top));
		return 0;
	}
	struct map_entry entries[MAP_ENTRIES];
	uint32_t last = (uint32_t)(objects - 1), page = last / MAP_ENTRIES;
	uint32_t number = page / MAP_DIRECTORY_REFS;
	int rc = edit_open(edit, number);
	if (rc == 0)
		rc = map_tree_leaf(
			edit->store, volume, page, edit->refs[page % MAP_DIRECTORY_REFS], entries);
	bool any = false;
	for (unsigned i = last % MAP_ENTRIES + 1; rc == 0 && i < MAP_ENTRIES; i++) {
		any = any || !map_entry_is_hole(entries[i]);
		entries[i] = (struct map_entry){0};
	}
	if (rc == 0 && any)
		rc = edit_put_page(edit, page, entries);
	if (rc != 0)
		return rc;
	for (unsigned i = page % MAP_DIRECTORY_REFS + 1; i < MAP_DIRECTORY_REFS; i++) {
		edit->changed = edit->changed || !map_ref_is_hole(edit->refs[i]);
		edit->refs[i] = (struct map_ref){0};
	}
	for (unsigned i = number + 1; volume->depth == 2 && i < MAP_TOP_REFS; i++)
		volume->top[i] = (struct map_ref){0};
	return edit_close(edit);
}

/* The references that were the top become the first directory. */
static int edit_deepen(struct edit *edit)
{
	struct map_volume *volume = &edit->head.volume;
	int rc = edit_open(edit, 0);
	if (rc != 0)
		return rc;
	memset(volume->top, 0, sizeof(volume->top));
	volume->depth = 2;
	edit->changed = true;
	return edit_close(edit);
}

int map_tree_resize(struct map_store *store, struct map_head *head, uint64_t size)
{
	int rc = check_writable(head);
	if (rc != 0)
		return rc;
	struct edit edit;
	edit_begin(&edit, store, head);
	struct map_volume *volume = &edit.head.volume;
	uint64_t before = map_objects(volume);
	volume->size = size;
	uint64_t after = map_objects(volume);
	if (size % XSEG_SECTOR != 0)
		return -EINVAL;
	if (after > MAP_OBJECTS_MAX)
		return -EFBIG;
	if (after < before)
		rc = edit_cut(&edit, after);
	else if (volume->depth == 1 && after > MAP_OBJECTS_FLAT)
		rc = edit_deepen(&edit);
	if (rc == 0)
		rc = edit_flush(&edit);
	if (rc == 0)
		*head = edit.head;
	return rc;
}

/* --- walking ------------------------------------------------------------------------------ */

static int walk_damaged(struct map_walk *walk, struct xseg_key key, uint64_t first, uint32_t count)
{
	return walk->damaged ? walk->damaged(walk, key, (uint32_t)first, count) : -EILSEQ;
}

static int walk_page(struct map_store *store, const struct map_volume *volume, uint32_t page,
	struct map_ref ref, uint64_t from, struct map_walk *walk)
{
	struct map_entry entries[MAP_ENTRIES];
	struct xseg_key key = page_key(volume, page, ref);
	uint64_t first = (uint64_t)page * MAP_ENTRIES;
	int rc = walk->page ? walk->page(walk, key) : 0;
	if (rc != 0)
		return rc;
	rc = map_tree_leaf(store, volume, page, ref, entries);
	if (rc == -EILSEQ)
		return walk_damaged(walk, key, first, MAP_ENTRIES);
	for (unsigned i = 0; i < MAP_ENTRIES && rc == 0; i++)
		if (!map_entry_is_hole(entries[i]) && first + i >= from)
			rc = walk->visit(walk, (uint32_t)(first + i), entries[i]);
	return rc;
}

static int walk_directory(struct map_store *store, const struct map_volume *volume, uint32_t number,
	uint64_t from, struct map_walk *walk)
{
	struct map_ref refs[MAP_DIRECTORY_REFS];
	struct map_ref top = volume->top[number];
	uint64_t first = (uint64_t)number * DIRECTORY_OBJECTS;
	int rc = 0;
	if (volume->depth == 2 && map_ref_is_hole(top))
		return 0;
	if (volume->depth == 2 && walk->page)
		rc = walk->page(walk, directory_key(volume, number, top));
	if (rc != 0)
		return rc;
	rc = map_tree_directory(store, volume, number, refs);
	if (rc == -EILSEQ)
		return walk_damaged(
			walk, directory_key(volume, number, top), first, DIRECTORY_OBJECTS);
	for (uint32_t i = 0; i < MAP_DIRECTORY_REFS && rc == 0; i++)
		if (!map_ref_is_hole(refs[i]) && first + (i + 1) * MAP_ENTRIES > from)
			rc = walk_page(store, volume, number * MAP_DIRECTORY_REFS + i, refs[i],
				from, walk);
	return rc;
}

int map_tree_walk(struct map_store *store, const struct map_volume *volume, uint32_t from,
	struct map_walk *walk)
{
	int rc = 0;
	uint32_t number = from / DIRECTORY_OBJECTS;
	for (; number < map_tree_directories(volume) && rc == 0; number++)
		rc = walk_directory(store, volume, number, from, walk);
	return rc;
}
