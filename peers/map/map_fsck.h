/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run over a store, as its two halves see it: the sweep (map_sweep.c) and the look at
 * everything that fsck takes (map_fsck.c).
 *
 * Units: objects. Errors: 0 or -errno. Ownership: the run's, which is map_sweep_run()'s. Threads:
 * one. Blocking: the store's.
 */
#ifndef SKERRY_MAP_FSCK_H
#define SKERRY_MAP_FSCK_H

#include "peers/map/map_enumeration.h"
#include "peers/map/map_mark.h"
#include "peers/map/map_pace.h"
#include "peers/map/map_sweep.h"

#define MAP_CHAIN_MAX 1024u /* partial objects one below the other; more is a circle */

struct map_run {
	struct map_sweep *sweep;
	struct map_store *store; /* the paced one */
	struct map_pace pace;
	struct map_enumeration enumeration;
	struct map_marks reached;  /* objects, as far as the slice has them */
	struct map_marks walked;   /* pages and partial objects that never change, and are done */
	struct map_marks doubtful; /* that the first pass did not reach */
	uint32_t batch;
	bool busy; /* something changed faster than it was read, and is left for another time */
};

/* Counts it, and says it. */
void map_sweep_report(struct map_run *run, const struct map_report *report);
/* Once for each volume: why nothing of it is deleted. */
void map_sweep_progress(struct map_run *run, enum map_finding finding, uint64_t id,
	struct xseg_key key, uint32_t object);
/* All objects of the batch that the store has, to `visit`. */
int map_sweep_list(struct map_run *run,
	int (*visit)(struct map_run *run, const struct map_enumeration_owner *owner,
		struct xseg_key key));

/* An entry that cannot be: beyond the end, of an owner or epoch that there is not. 1, 0, -errno. */
int map_fsck_map_entry(struct map_run *run, const struct map_volume *volume, uint32_t object,
	struct map_entry entry);
/* All that is not in a map: names, records, parents. */
int map_fsck_records(struct map_run *run);
/* The maps of run->batch. -E2BIG: take more slices; nothing was reported yet. */
int map_fsck_map_all(struct map_run *run, unsigned slice, unsigned slices);
/*
 * Writes the volume's map anew where entries cannot be (they become holes) or are miscounted.
 * -EPERM: it is a snapshot, which has no pages of its own; -ESTALE: somebody else has changed it.
 */
int map_repair(struct map_run *run, uint64_t id);

#endif
