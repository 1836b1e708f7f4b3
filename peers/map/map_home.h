/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may write to a volume: its home record, changed by cas alone.
 *
 * Each change of owner takes the next term. The lease is renewed while the volume is open; when it
 * has run out anybody may take the volume. Wall clocks have no say in that: in one boot of one
 * machine CLOCK_BOOTTIME tells when it is over; elsewhere whoever wants the volume has to see its
 * record unchanged for a lease's time by his own clock (struct map_watch). The old owner, should it
 * live, is fenced: the stores refuse writes of a lower term (XSEG_CONTROL_FENCE, <xseg/op.h>), and
 * its next renewal tells it that it has lost the volume.
 *
 * Units: ns. Errors: 0 or -errno; -EBUSY: somebody else has it, *found says who; -ESTALE: it is no
 * longer ours. Ownership: caller's. Threads: any; a watch has a lock. Blocking: the store's.
 */
#ifndef SKERRY_MAP_HOME_H
#define SKERRY_MAP_HOME_H

#include <pthread.h>

#include "peers/map/map_format.h"
#include "peers/map/map_store.h"

struct map_claim {
	uint64_t owner;		   /* ours; not 0 */
	uint64_t now_ns, lease_ns; /* now: wall clock, for people */
	uint64_t boot_ns;	   /* now: CLOCK_BOOTTIME */
	const char *host;
	uint32_t flags;		 /* as in struct map_home */
	uint64_t place, boot;	 /* as in struct map_home */
	struct map_watch *watch; /* NULL: no lease of another machine is ever seen to end */
};

/* Records of other machines, and since when they have been as they are. */
#define MAP_WATCH_SLOTS 1024u
struct map_watch {
	pthread_mutex_t lock;
	struct map_watched {
		uint64_t id, version, since_ns;
	} slots[MAP_WATCH_SLOTS]; /* by id; of two in one the later one counts */
};
void map_home_watch_init(struct map_watch *watch);

/* Ours from now on; ours already: renewed, the term stays. `force`: whoever has it. */
int map_home_acquire(struct map_store *store, uint64_t id, const struct map_claim *claim,
	bool force, struct map_home *found);
/* The same of one that was given to us; *home: its record as it is then, as we were told. -ESTALE:
   it is not like that any more. */
int map_home_take(struct map_store *store, const struct map_claim *claim, struct map_home *home);
/* -ESTALE: lost. *found: as it was put last, which saves a read; or .version 0. */
int map_home_renew(struct map_store *store, uint64_t id, const struct map_claim *claim,
	uint64_t term, struct map_home *found);
/*
 * Handed over: nobody's, and only `next` may have it, or `owner` again, whoever is first, until a
 * lease's time is over. Whoever of the two comes late finds it another's: there is nothing to be
 * decided but by this record. `term` 0: whichever it is in. -ESTALE: it is not ours.
 * *home: as it was put last, or .version 0; then as it is put now.
 */
int map_home_give(struct map_store *store, uint64_t id, const struct map_claim *claim,
	uint64_t term, uint64_t next, struct map_home *home);
/* Fine when it is not ours any more. */
int map_home_release(struct map_store *store, uint64_t id, uint64_t owner, uint64_t term);
/* -ENOENT: nobody ever had it. */
int map_home_read(struct map_store *store, uint64_t id, struct map_home *found);

#endif
