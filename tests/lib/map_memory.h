/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store in memory for tests of the map: it counts what it is asked, and can be cut off after any
 * change, lose what was not flushed, run full, and turn bits.
 *
 * Objects take space in pages of 4 KiB, which are kept only where something was written. What is
 * asked of it must be aligned to sectors and lie within an object: else it is a must() of the
 * caller's.
 *
 * Units: bytes. Errors: as struct map_store says. Ownership: create/copy and destroy. Threads: one.
 * Blocking: none.
 */
#ifndef SKERRY_TESTS_LIB_MAP_MEMORY_H
#define SKERRY_TESTS_LIB_MAP_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "peers/map/map_store.h"

enum map_memory_kind {
	MAP_MEMORY_READ,
	MAP_MEMORY_LIST,
	MAP_MEMORY_ALLOCATED,
	MAP_MEMORY_GET,
	MAP_MEMORY_RECORDS,
	/* from here on they are mutations */
	MAP_MEMORY_WRITE,
	MAP_MEMORY_FLUSH,
	MAP_MEMORY_DISCARD,
	MAP_MEMORY_COPY,
	MAP_MEMORY_PUT,
	MAP_MEMORY_DROP,
	MAP_MEMORY_KINDS
};

struct map_memory_data;

struct map_memory {
	struct map_store store;
	struct map_memory_data *data;

	/*
	 * Faults, set by the test at any time; 0: none. cut_after: that mutation, counted since the
	 * last map_memory_heal(), is not done, and from then on all requests are answered -EIO.
	 */
	uint64_t cut_after;
	uint64_t fail_at;   /* that mutation alone fails */
	int fail_error;	    /* with this; 0: -EIO */
	bool fail_done;	    /* but it has been done: only the answer is lost */
	uint64_t space_max; /* what would take more changes nothing and is answered -ENOSPC */
	/* Before each request, which ends with what is returned when that is not 0. May itself use
	   the store: somebody else was faster. */
	int (*before)(struct map_memory *memory, enum map_memory_kind kind, struct xseg_key key);
	void *context;

	/* What was asked of it, failed requests included. */
	uint64_t count[MAP_MEMORY_KINDS];
	uint64_t mutations; /* since the last map_memory_heal() */
	uint64_t space;	    /* that all objects take; records take none */
	bool cut;	    /* it happened */
};

struct map_memory *map_memory_create(void);
/* Another one with the same contents, also of what is not flushed yet, and no faults. */
struct map_memory *map_memory_copy(const struct map_memory *memory);
void map_memory_destroy(struct map_memory *memory);

/* No faults any more, and all counts are 0. What was not flushed is still there. */
void map_memory_heal(struct map_memory *memory);
/*
 * The power fails: each sector that was written or discarded since the last flush is as it was then
 * or as it is now, as the seed says (0: all are as they were then). Then as map_memory_heal().
 */
void map_memory_lose(struct map_memory *memory, uint64_t seed);

/* Turns the bits of `mask` in one byte, of an object or a record. The byte must be there. */
void map_memory_corrupt(
	struct map_memory *memory, struct xseg_key key, uint32_t offset, uint8_t mask);
/* Is there such an object or record? */
bool map_memory_exists(const struct map_memory *memory, struct xseg_key key);
/* How many objects there are of a volume. */
uint64_t map_memory_objects(const struct map_memory *memory, uint64_t volume);

#endif
