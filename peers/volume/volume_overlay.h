/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partial objects: made by the first write to an object that is shared. They have the clusters that
 * were written; what they have not, their parent has, which may be partial itself, to any depth.
 *
 * Reading: the clusters of a request are sorted by the object that has them; one object:
 * forwarded as it is; several: split and joined; none (the last parent is a hole): zeros.
 * Writing: whole clusters go down to the own object; parts of a cluster that is not there yet are
 * completed from the parent first (so a first write of 4 KiB costs one write, and one of 512
 * bytes a read of 4 KiB more). Clusters that are being made are busy: other writes to them wait,
 * in order; reads do not. Bits are set when the store has answered, before the job is
 * (volume_intent.h).
 *
 * What is known of an object is remembered by its key, own or a parent's; the least recently used
 * are forgotten beyond VOLUME_CHILDREN. 64 clones that read one parent share what they know of it.
 *
 * Units: bytes, clusters. Errors: 0 or -errno. Ownership: the process's table. Threads: any lane;
 * the table's mutex is quiesced for a few instructions. Blocking: none.
 */
#ifndef SKERRY_VOLUME_CHILD_H
#define SKERRY_VOLUME_CHILD_H

#include "peers/volume/volume.h"

#define VOLUME_OVERLAYS 65536u

struct overlay;

int volume_overlay_open(struct peer *first);
void volume_overlay_close(struct peer *first);
int volume_overlay_start(struct peer *peer); /* a shard */
void volume_overlay_finish(struct peer *peer);

/*
 * A stretch of one object of a volume, of a job that is fanned out: its data is [at, at + length)
 * of the job's. volume_io_part_end() frees it and releases the job's fan.
 */
struct volume_part {
	struct volume_step step; /* first; the room's own, but for step.peer */
	struct job *job;	 /* op and flags are its own */
	uint64_t id;		 /* of the volume */
	uint32_t object, offset, length, at;
	struct volume_flattened *whole; /* no job's: volume_copy_flatten() */
	/* the room's own */
	uint32_t number;	   /* in the shard's slab */
	struct volume *volume;	   /* good for this turn */
	struct overlay *waits;	   /* for what it waits to be known; a ref */
	struct overlay *overlay;   /* the own object that it writes to; a ref */
	uint32_t first, count;	   /* clusters: of the stretch, kept busy */
	uint32_t fill, fill_count; /* of them, just being completed */
	struct xseg_key own;
	uint64_t made[MAP_HAS_WORDS]; /* to be recorded when all is written */
	bool written;		      /* it has put something into the own object */
	int error;		      /* what it ends with when it has been undone */
	TAILQ_ENTRY(volume_part) link;
};
/* Of the shard's slab; all but step.peer and number is zero. NULL: all are out, try again. */
struct volume_part *volume_io_part_new(struct peer *peer);
void volume_io_part_end(struct volume_part *part, int error);
/* What it was about has changed: as if it had just been asked. */
void volume_io_part_again(struct volume_part *part);

/* READ of an object that is partial. */
void volume_overlay_read(struct volume_part *part);
/* WRITE, ZERO, DISCARD to an object that is shared or partial: makes the own one if need be. */
void volume_copy_write(struct volume_part *part);
/* WRITE, or ZERO that keeps its space, to an object that is not there or reads as zeros. */
void volume_first_write(struct volume_part *part);
/* One object has all of the stretch, and that is known: its key. False: ask volume_overlay_read().
   */
bool volume_overlay_source(struct peer *peer, struct volume *volume, uint32_t object,
	uint32_t offset, uint32_t length, struct xseg_key *key);
/* Makes the object its volume's own and whole: done(error) on this lane. For flatten. */
struct volume_flattened {
	void (*done)(struct volume_flattened *whole, int error);
	struct peer *peer;
	struct volume *volume;
	uint32_t object;
};
void volume_copy_flatten(struct volume_flattened *whole);
/* Each turn. */
bool volume_overlay_poll(struct peer *peer);

#endif
