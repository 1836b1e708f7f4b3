/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of notes, for volume_note.c, which fills it, and volume_tell.c, which empties it.
 *
 * Units: none. Errors: none. Ownership: the process's. Threads: with the mutex, but for `count`.
 * Blocking: none.
 */
#ifndef SKERRY_VOLUME_NOTES_H
#define SKERRY_VOLUME_NOTES_H

#include "peers/volume/volume_note.h"

#define NOTES_PER_PAGE (XSEG_PAGE / sizeof(struct volume_note))
#define NOTES_BUCKETS 16384u
#define NOTES_VOLUMES 256u

/* A kept page; given back when it has no note any more. */
struct note_page {
	TAILQ_ENTRY(note_page) link; /* of those that have room */
	uint32_t page, used;	     /* bit per slot */
};
TAILQ_HEAD(note_page_queue, note_page);

struct note_slot {
	struct note_page *page;
	uint32_t index;
};

struct note_volume;
struct note {
	LIST_ENTRY(note) link;	  /* of its bucket */
	TAILQ_ENTRY(note) beside; /* of its volume */
	struct note_volume *of;
	struct note_slot slot;
	uint32_t object;
	uint32_t makers; /* first writes to it that are under way */
	bool unmade;	 /* none of them has been answered well yet: it is not to be told */
	bool zero;    /* and until one is, it is as it was: reads as zeros, whatever parents have */
	bool undoing; /* all have failed, and what they may have left is being removed */
};
LIST_HEAD(note_list, note);

/* Those of one volume. Freed when it has none and nobody tells. */
struct note_volume {
	LIST_ENTRY(note_volume) link;
	uint64_t id;
	uint32_t count;
	bool telling;
	TAILQ_HEAD(, note) notes;
	struct volume_tell_queue waiting;
};
LIST_HEAD(note_volume_list, note_volume);

struct notes {
	pthread_mutex_t lock;
	_Atomic uint32_t count;
	uint32_t changes; /* of the last change */
	struct note_page_queue room;
	struct note_list buckets[NOTES_BUCKETS];
	struct note_volume_list volumes[NOTES_VOLUMES];
	/* by shard: whose turn it is to tell */
	struct volume_tell_queue ready[XSEG_LANES_MAX];
	_Atomic uint32_t ready_count[XSEG_LANES_MAX];
};

struct note *notes_find(struct notes *notes, uint64_t volume, uint32_t object);
struct note_volume *notes_volume(struct notes *notes, uint64_t id);
struct volume_note *notes_slot(struct peer *peer, const struct note *note);
void notes_free(struct peer *peer, struct notes *notes, struct note *note);
/* It may be freed, if nothing speaks against it. */
void notes_volume_put(struct note_volume *of);

#endif
