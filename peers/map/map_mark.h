/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sweep and fsck share: a set of objects, and a walk over a map that somebody may be
 * changing.
 *
 * The set keeps 512 neighbours of one owner and epoch in a cell of 80 bytes, found by its hash: a
 * full cell is 0.16 bytes for each object, an object without neighbours 80, and up to 8/3 of that
 * while the table is not full. What does not fit is done in slices: each time, only cells whose
 * hash belongs to the slice are kept, and the whole is done so many times.
 *
 * Units: objects. Errors: -E2BIG (more cells than the limit: take more slices), -ENOMEM.
 * Ownership: init and fini. Threads: one. Blocking: the store's.
 */
#ifndef SKERRY_MAP_MARK_H
#define SKERRY_MAP_MARK_H

#include "peers/map/map_tree.h"

struct map_mark_cell {
	uint64_t owner; /* 0: free */
	uint32_t epoch, group;
	uint64_t bits[8];
};

struct map_marks {
	struct map_mark_cell *cells;
	size_t capacity, count; /* a power of two; cells that are used */
	size_t limit;		/* of the capacity */
	uint64_t objects;
	unsigned slices, slice;
};

/* `memory`: bytes that the cells may take. */
void map_mark_init(struct map_marks *marks, uint64_t memory);
void map_mark_fini(struct map_marks *marks);
/* Empty, and of that slice. */
void map_mark_begin(struct map_marks *marks, unsigned slice, unsigned slices);
/* 1: it is new; 0: it was there, or is of another slice. */
int map_mark_set(struct map_marks *marks, struct xseg_key key);
bool map_mark_has(const struct map_marks *marks, struct xseg_key key);
bool map_mark_in_slice(const struct map_marks *marks, struct xseg_key key);
/* The next one from *cell, *bit on (0, 0 first), in no order; false: no more. */
bool map_mark_next(
	const struct map_marks *marks, size_t *cell, unsigned *bit, struct xseg_key *key);

/* --- the walk --------------------------------------------------------------------------------- */

/*
 * Visits the pages of a volume's map that there are. The volume may be changed meanwhile: what
 * cannot be read because the map has moved on is read from the newer one, and when its epoch has
 * changed the walk begins again. The hooks return 0, or what ends the walk; -EAGAIN: begin the page
 * again, with the record as it is by now.
 */
struct map_scan {
	struct map_store *store;
	struct map_head head; /* as of the pages that are being visited; set before the run */
	/* A page or directory, before it is read. 1: leave it and what is below. `shared`: it will
	   never change again. */
	int (*enter)(struct map_scan *scan, struct xseg_key key, bool shared);
	/* A shared one has been read, with all that is below. May be NULL. */
	void (*leave)(struct map_scan *scan, struct xseg_key key);
	/* May be NULL. What the references of a directory say of their counts. */
	int (*directory)(struct map_scan *scan, uint32_t page, const struct map_ref *ref,
		const struct map_ref refs[MAP_DIRECTORY_REFS]);
	/* Not all entries need be possible ones. */
	int (*page)(struct map_scan *scan, uint32_t page, const struct map_ref *ref,
		const struct map_entry entries[MAP_ENTRIES]);
	/* It cannot be read, and the map has not moved on. */
	int (*bad)(struct map_scan *scan, struct xseg_key key, uint32_t page);
	void *context;
	/* its own */
	uint32_t loaded; /* number of the directory + 1; 0: none */
	bool skipped;	 /* that one */
	struct map_ref refs[MAP_DIRECTORY_REFS];
};

/* -EBUSY: the map changes faster than it is read; -ENOENT: the volume has gone. */
int map_mark_scan(struct map_scan *scan);
/* Has the record changed since scan->head was read? 1, 0 or -errno; -ENOENT: it has gone. */
int map_mark_scan_moved(struct map_scan *scan);

#endif
