/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of a volume that the mapper makes while the composer sees to it that nobody is in its
 * way: what is written waits, what was written is flushed and published; then the mapper is asked,
 * and what it has made of the volume is looked at before anybody goes on.
 *
 * Units: none. Errors: 0 or -errno. Ownership: the task is given away. Threads: the shard's lane.
 * Blocking: none.
 */
#ifndef SKERRY_VOLUME_CONTROL_H
#define SKERRY_VOLUME_CONTROL_H

#include "peers/volume/volume_map.h"
#include "peers/volume/volume_overlay.h"

enum volume_changes {
	VOLUME_CHANGES_WORDS,	/* its name, flags, limits: nothing waits */
	VOLUME_CHANGES_EPOCH,	/* what there is is shared from now on: writes wait */
	VOLUME_CHANGES_MAP,	/* reads wait, too, and its map is asked for anew */
	VOLUME_CHANGES_SIZE,	/* the same, and what lies behind a new end is made zeros before */
	VOLUME_CHANGES_REMOVES, /* as its map, and then it is gone */
};
/* The job of the task goes to the mapper, for task->id, and is answered. */
void volume_change(struct volume_task *task, struct volume *volume, enum volume_changes what);

/* XSEG_CONTROL_REFENCE. */
void volume_refence(struct peer *peer, struct job *job);

/* --- volume_flatten.c: what has to be done to its objects before ----------------------------- */

/* MAP_FLATTEN: some of what it shares becomes its own. */
void volume_flatten(struct volume_task *task, struct volume *volume);
/* A smaller size. */
void volume_flatten_shrink(struct volume_task *task, struct volume *volume);

/* What lies behind a new end in the middle of an object becomes zeros. Held, and ours. */
struct volume_cut {
	struct volume_step step; /* first; peer is set, and volume, size and done */
	struct volume *volume;
	uint64_t size;
	void (*done)(struct volume_cut *cut, int error);
	struct volume_wish wish;
	struct volume_flattened whole;
};
void volume_flatten_cut(struct volume_cut *cut);

#endif
