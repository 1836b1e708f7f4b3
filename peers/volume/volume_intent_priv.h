/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of intents, for volume_intent.c, which fills it, and volume_publish.c, which empties
 * it.
 *
 * Units: none. Errors: none. Ownership: the process's. Threads: with the mutex, but for `count`.
 * Blocking: none.
 */
#ifndef SKERRY_VOLUME_INTENTS_H
#define SKERRY_VOLUME_INTENTS_H

#include "peers/volume/volume_intent.h"

#define INTENTS_PER_PAGE (XSEG_PAGE / sizeof(struct volume_intent))
#define INTENTS_BUCKETS 16384u
#define INTENTS_VOLUMES 256u

/* A kept page; given back when it has no intent any more. */
struct intent_page {
	TAILQ_ENTRY(intent_page) link; /* of those that have room */
	uint32_t page, used;	       /* bit per slot */
};
TAILQ_HEAD(intent_page_queue, intent_page);

struct intent_slot {
	struct intent_page *page;
	uint32_t index;
};

struct intent_volume;
struct intent {
	LIST_ENTRY(intent) link;    /* of its bucket */
	TAILQ_ENTRY(intent) beside; /* of its volume */
	struct intent_volume *of;
	struct intent_slot slot;
	uint32_t object;
	uint32_t makers; /* first writes to it that are under way */
	bool unmade;	 /* none of them has been answered well yet: it is not to be published */
	bool zero;    /* and until one is, it is as it was: reads as zeros, whatever parents have */
	bool undoing; /* all have failed, and what they may have left is being removed */
};
LIST_HEAD(intent_list, intent);

/* Those of one volume. Freed when it has none and nobody publishes. */
struct intent_volume {
	LIST_ENTRY(intent_volume) link;
	uint64_t id;
	uint32_t count;
	bool publishing;
	TAILQ_HEAD(, intent) intents;
	struct volume_publish_queue waiting;
};
LIST_HEAD(intent_volume_list, intent_volume);

struct intents {
	pthread_mutex_t lock;
	_Atomic uint32_t count;
	uint32_t changes; /* of the last change */
	struct intent_page_queue room;
	struct intent_list buckets[INTENTS_BUCKETS];
	struct intent_volume_list volumes[INTENTS_VOLUMES];
	/* by shard: whose turn it is to publish */
	struct volume_publish_queue ready[XSEG_LANES_MAX];
	_Atomic uint32_t ready_count[XSEG_LANES_MAX];
};

struct intent *intent_find(struct intents *intents, uint64_t volume, uint32_t object);
struct intent_volume *intent_volume_find(struct intents *intents, uint64_t id);
struct volume_intent *intent_record(struct peer *peer, const struct intent *intent);
void intent_free(struct peer *peer, struct intents *intents, struct intent *intent);
/* It may be freed, if nothing speaks against it. */
void intent_volume_put(struct intent_volume *of);

#endif
