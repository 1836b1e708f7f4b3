/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a sweep has come, in the store, so that another one goes on when it is cut off.
 *
 * Two things are kept: the states of the families that it is done with (map_census.h), and the
 * objects that its first pass has not reached. The next sweep leaves families out that are in the
 * same state, and need not look a second time at objects that it does not reach either. Nothing is
 * deleted because it stands here: who goes on marks all anew before it deletes anything. So what is
 * kept may be old, of another host, or nonsense: then some garbage stays for the next time.
 *
 * Units: objects, bytes. Errors: but for drop none: what cannot be read or written is not kept.
 * Ownership: init and fini. Threads: one. Blocking: the store's.
 */
#ifndef SKERRY_MAP_KEPT_H
#define SKERRY_MAP_KEPT_H

#include "peers/map/map_mark.h"

/* Objects of a volume that there never is: {this, 1, 0} the head, behind it the data. */
#define MAP_KEPT_ID 0x534b53574545502eull
#define MAP_KEPT_EPOCH 1u

struct map_kept {
	uint64_t *states; /* of families */
	size_t state_count, state_room;
	struct map_marks suspects; /* not reached by the one that was cut off */
	unsigned half;		   /* where its data are; those of the next go to the other one */
	bool there;		   /* in the store is something */
};

/* `memory`: bytes that the suspects may take. */
void map_kept_init(struct map_kept *kept, uint64_t memory);
void map_kept_fini(struct map_kept *kept);
void map_kept_load(struct map_kept *kept, struct map_store *store);
/* The states, and these objects as suspects (NULL: none), in place of what is there. */
void map_kept_save(
	struct map_kept *kept, struct map_store *store, const struct map_marks *suspects);
/* Nothing any more: a sweep has come to its end. 0 or -errno. */
int map_kept_drop(struct map_kept *kept, struct map_store *store);
void map_kept_add_state(struct map_kept *kept, uint64_t state);
bool map_kept_has_state(const struct map_kept *kept, uint64_t state);

#endif
