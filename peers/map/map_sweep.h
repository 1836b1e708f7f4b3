/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which objects does nobody need? Mark and sweep over a store, in two passes, and fsck, which is
 * the same walk and only reports.
 *
 * Nothing counts references. An object that no volume reaches can never be reached again: new
 * objects have names that were never used (map_change_epoch()), and new maps are copies of maps
 * that there are. So what is unreachable in two passes may go; a pass looks again for volumes that
 * were made or changed while it marked. What a volume is writing now has its current epoch, and is
 * left alone. What cannot be read holds what it may need. map_sweep.c says why all this is safe,
 * and what is not found. Cut off anywhere, the next sweep goes on, or begins again.
 *
 * Units: objects, bytes. Errors: 0 or -errno; -EBUSY: something changed faster than it was read,
 * and is left for another time, the rest was done; -ENOENT: `volume` is not there. Ownership:
 * caller's. Threads: one sweep of a store at a time in a process; two of them (two hosts) do no
 * harm. Blocking: the store's, and pace(). Memory: 0.2 to 0.4 bytes for an object whose neighbours
 * of the same epoch are there, up to 220 for one that stands alone; never more than half as much
 * again as `memory`.
 */
#ifndef SKERRY_MAP_SWEEP_H
#define SKERRY_MAP_SWEEP_H

#include "peers/map/map_volume.h"

enum map_finding {
	MAP_FOUND_UNREACHABLE, /* an object that nobody needs; repair: deleted */
	MAP_FOUND_LOST,	       /* a map entry whose object is not there (reads as zeros) */
	MAP_FOUND_BAD_PAGE,    /* a page of a map is damaged */
	MAP_FOUND_BAD_RECORD,  /* both halves of a volume's record are; half: one of them */
	MAP_FOUND_HALF_RECORD, /* repair: put again */
	MAP_FOUND_BAD_BITMAP,  /* of a partial object */
	MAP_FOUND_OVERLAP,     /* a volume writes to an object that another one uses */
	MAP_FOUND_BAD_ENTRY, /* beyond the end, of an owner or epoch that cannot be; repair: hole */
	MAP_FOUND_BAD_NAME,  /* leads nowhere: deleted; a volume without: put again if free */
	MAP_FOUND_BAD_PARENT, /* a parent that is not there */
	MAP_FOUND_BAD_COUNT,  /* a reference's count of entries; repair: put right */
	MAP_FINDINGS
};
const char *map_fsck_finding_name(enum map_finding finding);	/* "unreachable" */
const char *map_fsck_finding_meaning(enum map_finding finding); /* a sentence */

struct map_report {
	enum map_finding finding;
	uint64_t volume;     /* whose map, or whose object */
	struct xseg_key key; /* which object or page */
	uint32_t object;     /* of the volume */
	bool repaired;
};

struct map_sweep {
	/* in */
	bool repair;	 /* gc: delete what is unreachable; fsck --repair: all that is safe */
	bool explain;	 /* fsck: look at everything, not only at what is unreachable */
	uint64_t volume; /* fsck: this one and what it needs only; 0: all */
	uint64_t memory; /* bytes for sets of objects; less: more walks; 0: 256 MiB */
	uint64_t batch;	 /* objects of the families that are marked together; 0: 1 Mi */
	/* Called every so many requests to the store, and when a pass begins; not 0 ends the sweep
	   with that. When there is one more of `settles` it should wait as long as an operation on
	   volumes can take at most: see map_sweep.c. */
	int (*pace)(struct map_sweep *sweep);
	unsigned pace_every; /* requests; 0: 32 */
	void (*report)(struct map_sweep *sweep, const struct map_report *report);
	void *context;
	/* out, also while it goes on */
	uint64_t volumes, pages, objects, marked, unreachable, deleted, bytes_freed;
	uint64_t found[MAP_FINDINGS];
	unsigned pass, passes; /* a pass is begun again when a volume was made meanwhile */
	unsigned settles;
};

int map_sweep_run(struct map_store *store, struct map_sweep *sweep);

#endif
