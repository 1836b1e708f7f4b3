/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of intents: volume_intent_store.c has it, volume_intent.c fills it,
 * volume_intent_view.c reads it, volume_publish.c empties it.
 *
 * Units: none. Errors: as said. Ownership: the process's. Threads: all with the mutex, but for
 * `count`. Blocking: none.
 */
#ifndef SKERRY_VOLUME_INTENTS_H
#define SKERRY_VOLUME_INTENTS_H

#include <base/slab.h>
#include <base/sm.h>

#include "peers/volume/volume_intent.h"
#include "peers/volume/volume_map.h"

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
/* TRYING: no write to the object has been answered well yet, so it is not published, but as the
   zeros that it was before. STANDING: it is. UNDOING: all its first writes have failed, and what
   they may have left is being removed. */
enum intent_state { INTENT_FREE, INTENT_TRYING, INTENT_STANDING, INTENT_UNDOING };

struct intent {
	uint32_t number; /* in the slab */
	uint32_t object;
	LIST_ENTRY(intent) link;    /* of its bucket */
	TAILQ_ENTRY(intent) beside; /* of its volume */
	struct intent_volume *of;
	struct intent_slot slot;
	uint32_t writers; /* first writes to it that are under way */
	uint8_t state;	  /* enum intent_state */
	bool zero; /* until it stands it is as it was: reads as zeros, whatever parents have */
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

#define INTENTS_MAX (1u << 20) /* beyond that, whoever needs one waits until some are published */
struct intents {
	pthread_mutex_t lock;
	struct slab slab;
	_Atomic uint32_t count;
	uint32_t changes; /* of the last change */
	struct intent_page_queue room;
	struct intent_list buckets[INTENTS_BUCKETS];
	struct intent_volume_list volumes[INTENTS_VOLUMES];
	/* by shard: whose turn it is to publish */
	struct volume_publish_queue ready[XSEG_LANES_MAX];
	_Atomic uint32_t ready_count[XSEG_LANES_MAX];
};

static inline struct intents *intents_of(const struct peer *peer)
{
	return ((struct volume_shared *)peer->shared)->intents;
}

/* The only way from state to state. */
void intent_move(struct intent *intent, enum intent_state state);
struct intent *intent_find(struct intents *intents, uint64_t volume, uint32_t object);
/* *put: what intent_find() says; it is replaced in one step, seen from a successor, and keeps its
   state. NULL: a new one is made, FREE, and to be moved by the caller. -EAGAIN: no room now. */
int intent_put(struct peer *peer, struct intents *intents, const struct volume_intent *wanted,
	struct intent **put);
/* As it lies in its page. */
struct volume_intent *intent_record(struct peer *peer, const struct intent *intent);
void intent_copy(struct volume_intent *to, const struct volume_intent *from, uint32_t changes);
/* Its volume stays, even when this was its last; drop: goes then. */
void intent_free(struct peer *peer, struct intents *intents, struct intent *intent);
void intent_drop(struct peer *peer, struct intents *intents, struct intent *intent);
struct intent_volume *intent_volume_find(struct intents *intents, uint64_t id);
/* It may be freed, if nothing speaks against it. */
void intent_volume_put(struct intent_volume *of);

#endif
