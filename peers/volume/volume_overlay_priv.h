/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is remembered of partial objects, for volume_overlay.c, which reads them, and volume_copy.c,
 * which writes them.
 *
 * Units: clusters. Errors: as recorded. Ownership: the process's table; one with refs stays.
 * Threads: all functions take the mutex themselves, but those that say otherwise. Blocking: none.
 */
#ifndef SKERRY_VOLUME_OVERLAYS_H
#define SKERRY_VOLUME_OVERLAYS_H

#include <base/bits.h>

#include "peers/volume/volume_map.h"
#include "peers/volume/volume_overlay.h"

#define OVERLAYS_BUCKETS 16384u

struct overlay {
	uint32_t number; /* in the slab */
	LIST_ENTRY(overlay) link;
	TAILQ_ENTRY(overlay) order; /* the least recently used first; those without refs */
	uint64_t owner;
	uint32_t epoch, object;
	uint32_t refs;
	bool known; /* its bitmap has come; else somebody asks for it */
	int error;  /* it cannot be had: for those who waited */
	uint64_t parent_owner;
	uint32_t parent_epoch, parent_flags;
	uint64_t has[MAP_HAS_WORDS];
	uint64_t busy[MAP_HAS_WORDS]; /* being made: other writes wait */
};
LIST_HEAD(overlay_list, overlay);

struct overlays {
	pthread_mutex_t lock;
	struct slab slab;
	uint32_t count;
	struct overlay_list buckets[OVERLAYS_BUCKETS];
	TAILQ_HEAD(, overlay) order;
};

/* A run of clusters of an object of a volume, and who has it. */
struct overlay_run {
	struct xseg_key key; /* volume 0: nobody, it is zeros */
	uint32_t count;
};

static inline struct overlays *overlays_of(const struct peer *peer)
{
	return ((struct volume_shared *)peer->shared)->overlays;
}

/*
 * Who has cluster `first` of what lies at `key` (a partial object), and how many behind it, at most
 * `most`. skip: of its parent's; `key` itself is known. -EINPROGRESS: a bitmap on the way down is
 * not known and is being asked for: overlay_wait(). Other errors: it cannot be known.
 */
int overlay_resolve(struct volume_part *part, const struct xseg_key *key, bool skip, uint32_t first,
	uint32_t most, struct overlay_run *run);
/* The same, if all of it is known; else -EINPROGRESS, and nobody is asked. */
int overlay_known(struct peer *peer, const struct xseg_key *key, uint32_t first, uint32_t most,
	struct overlay_run *run);
/* Looks part->volume up for this turn; false: it is gone. */
bool overlay_volume(struct volume_part *part);
/* One that is there, or is being asked for, with a ref; NULL: all are in use, try again. With the
   mutex. */
struct overlay *overlay_get(struct peer *peer, const struct xseg_key *key);

/* With the mutex. NULL: not remembered. */
struct overlay *overlay_find(
	struct overlays *overlays, uint64_t owner, uint32_t epoch, uint32_t object);
/* With the mutex: one that nobody knows yet, known, with a ref. NULL: all are in use, try again. */
struct overlay *overlay_add(
	struct overlays *overlays, uint64_t owner, uint32_t epoch, uint32_t object);
void overlay_ref(struct overlays *overlays, struct overlay *overlay);	/* with the mutex */
void overlay_unref(struct overlays *overlays, struct overlay *overlay); /* with the mutex */

/* It does not wait for part->waits after all. */
void overlay_wait_not(struct volume_part *part);
/* The stretch of part->job goes to part->own; -EAGAIN. */
int volume_copy_send(struct volume_part *part, call_done_f *done);
/* Runs again(part) in one of the lane's next turns: slots or pages were short, or part->waits. */
void overlay_wait(struct volume_part *part, void (*again)(struct volume_step *step));

#endif
