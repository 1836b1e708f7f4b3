/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The map of one volume as a tree of pages in a store: look up, change, walk, compare.
 *
 * A change writes new pages, flushes, and puts the record: until then nobody sees it, and cut off
 * anywhere the old tree is whole. Saying it again is harmless.
 *
 * Units: objects by number, bytes. Errors: 0 or -errno; -EILSEQ: a page is damaged (its checksum is
 * in the reference to it), only what it leads to is lost; -ESTALE: somebody else has changed the
 * record since it was read: read it again. Ownership: caller's. Threads: any, one at a time for a
 * volume. Blocking: the store's.
 */
#ifndef SKERRY_MAP_TREE_H
#define SKERRY_MAP_TREE_H

#include "peers/map/map_format.h"
#include "peers/map/map_store.h"

/* A volume as it was read, with the versions that its two records had. */
struct map_head {
	struct map_volume volume;
	uint64_t version[2]; /* of each half; 0: absent */
};
#define MAP_VERSION_UNKNOWN UINT64_MAX
/* False after a put that failed: read it again. All that would change it is answered -ESTALE, for
   pages that are in use by now would be taken for free. */
static inline bool map_head_is_current(const struct map_head *head)
{
	return head->version[0] != MAP_VERSION_UNKNOWN;
}

/* The whole half with the higher generation. -ENOENT: neither is there; -EILSEQ: there, and none
   is whole. damaged (may be NULL): is one of them? */
int map_head_read(struct map_store *store, uint64_t id, struct map_head *head, bool *damaged);
/*
 * Puts head->volume with a generation one higher over the older half: the switch. -ESTALE: somebody
 * was faster. It counts for a first put, too (generation 0, versions 0). -EINVAL: no volume may
 * look like this. After any other error the head is not current any more.
 */
int map_head_put(struct map_store *store, struct map_head *head);
/* Both halves, the younger last. Fine when absent. -EPROTO: of another version, and left there. */
int map_head_drop(struct map_store *store, uint64_t id);

/* The 512 entries of map page `page`; *ref (may be NULL): where it is. Holes: all zero. */
int map_tree_page(struct map_store *store, const struct map_volume *volume, uint32_t page,
	struct map_entry entries[MAP_ENTRIES], struct map_ref *ref);
int map_tree_entry(struct map_store *store, const struct map_volume *volume, uint32_t object,
	struct map_entry *entry);

/* The same in two steps, for those who keep directories: how many there are (a tree of one level
   has one, its top), the references of one to its 256 pages, the page that a reference leads to. */
uint32_t map_tree_directories(const struct map_volume *volume);
int map_tree_directory(struct map_store *store, const struct map_volume *volume, uint32_t number,
	struct map_ref refs[MAP_DIRECTORY_REFS]);
int map_tree_leaf(struct map_store *store, const struct map_volume *volume, uint32_t page,
	struct map_ref ref, struct map_entry entries[MAP_ENTRIES]);

/* What map_tree_leaf() reads of one that is no hole. */
struct map_range map_tree_range(const struct map_volume *volume, uint32_t page, struct map_ref ref);

/* One object's new place: where the volume's own object is, or that there is none. */
struct map_change {
	uint32_t object;
	struct map_entry entry;
};
/*
 * Makes the changes, given in any order (of two for one object the last counts), and puts the
 * record. head is then the new one. Pages that are shared (another's, or not younger than
 * volume.frozen) get names of their own. Nothing is written when nothing changes. -EINVAL: beyond
 * the end, or no entry of this volume; -EPERM: a snapshot.
 */
int map_tree_update(struct map_store *store, struct map_head *head,
	const struct map_change *changes, size_t count);
/*
 * For a volume of another size: drops references beyond the end, turns a tree of one level into one
 * of two when it must, in head->volume alone: the caller puts it. Shrinking makes holes of what is
 * cut off, also in the page with the end in it, so that growing again shows zeros; the rest of the
 * last object, when the size ends within it, is the caller's to zero. The head may not be given to
 * map_tree_update() before it has been put. -EINVAL, -EFBIG, -EPERM.
 */
int map_tree_resize(struct map_store *store, struct map_head *head, uint64_t size);

/*
 * Visits every entry from object `from` on that is no hole, in order. visit returns 0, or what ends
 * the walk. Entries beyond the end, which there should not be, are visited, too. damaged(): a page
 * of the map cannot be read: 0 to go on behind it; NULL: -EILSEQ.
 */
struct map_walk {
	int (*visit)(struct map_walk *walk, uint32_t object, struct map_entry entry);
	int (*damaged)(struct map_walk *walk, struct xseg_key key, uint32_t first, uint32_t count);
	/* every page and directory of the map itself (may be NULL) */
	int (*page)(struct map_walk *walk, struct xseg_key key);
	void *context;
};
int map_tree_walk(struct map_store *store, const struct map_volume *volume, uint32_t from,
	struct map_walk *walk);

/*
 * Visits each object from `from` on whose entry differs between two volumes that share owners (one
 * is a snapshot or clone of the other, or of one ancestor); what they share is skipped whole.
 * -EXDEV: they share nothing.
 */
typedef int map_differs_f(
	void *context, uint32_t object, struct map_entry before, struct map_entry after);
int map_diff_trees(struct map_store *store, const struct map_volume *before,
	const struct map_volume *after, uint32_t from, map_differs_f *visit, void *context);

/* Bitmaps. -ENOENT: neither half was ever written; -EILSEQ, -EPROTO. */
int map_bitmap_read(struct map_store *store, uint64_t owner, uint32_t epoch, uint32_t object,
	struct map_bitmap *bitmap);
/* What it reads. */
struct map_range map_bitmap_range(uint64_t owner, uint32_t epoch, uint32_t object);
/* With a sequence one higher, over the older half. Durable after a flush of the owner: between two
   writings of one bitmap there must be one, so that a half is durable at any time. */
int map_bitmap_write(struct map_store *store, struct map_bitmap *bitmap);

#endif
