/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which page of the pool holds which page of which object: object -> 64 groups of 16 page
 * numbers (a cache line each), in memory of our own, so that the segment need not be trusted.
 * All memory is reserved at init and touched when first used: 64 bytes a page in the worst case,
 * 4 in the best, and 280 an object.
 *
 * Units: pages. Errors: 0 or -errno from init; nothing else can fail as long as no more than
 * pages_max pages are in. Ownership: page numbers only. Threads: one at a time. Blocking: none.
 */
#ifndef SKERRY_BLOCKER_PAGEMAP_H
#define SKERRY_BLOCKER_PAGEMAP_H

#include <base/slab.h>
#include <stddef.h>
#include <xseg/layout.h>

#define PAGEMAP_GROUP 16u
#define PAGEMAP_GROUPS (XSEG_OBJECT_MAX / XSEG_PAGE / PAGEMAP_GROUP)

struct pagemap_object {
	struct xseg_key key;
	uint32_t size;			/* highest byte ever written + 1 */
	uint32_t count;			/* pages it has; never 0 */
	uint32_t next;			/* in its hash chain; index + 1 */
	uint32_t group[PAGEMAP_GROUPS]; /* index + 1; 0: no page in it */
};

struct pagemap {
	struct slab objects, groups, heads;
	uint32_t mask;
	uint32_t last; /* the object found last, index + 1: requests come in runs */
};

int pagemap_init(struct pagemap *map, uint32_t pages_max);
void pagemap_fini(struct pagemap *map);

/* NULL: none. Good until the next pagemap_set(). Remembers, so it is for the map's owner alone. */
struct pagemap_object *pagemap_find(struct pagemap *map, const struct xseg_key *key);
/* The same without a change to the map: for others, who hold a lock that keeps it as it is. */
const struct pagemap_object *pagemap_look(const struct pagemap *map, const struct xseg_key *key);
/* XSEG_NONE: none; object may be NULL. */
uint32_t pagemap_get(
	const struct pagemap *map, const struct pagemap_object *object, uint32_t index);
/* Puts `page` (XSEG_NONE: none) there; an object comes with its first page, goes with its last. */
void pagemap_set(struct pagemap *map, const struct xseg_key *key, uint32_t index, uint32_t page);
/* The objects one after the other: begin with 0; NULL: no more. */
struct pagemap_object *pagemap_next(struct pagemap *map, uint32_t *cursor);

#endif
