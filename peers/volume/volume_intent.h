/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intent records: what the mapper has not been given yet. A write that makes an object, or a
 * cluster of one, is answered when its data is at the store; the map hears of it at the next FLUSH,
 * after the store's own. In between it stands in an intent, in a page kept by the composer's port
 * (decision 0007), so that a composer that is killed forgets nothing; a host that dies does, as it
 * forgets unflushed data.
 *
 * An intent is made before the write it is about goes down, and its bits are set after the store
 * has answered and before the job is: killed in between, the job is served again.
 *
 * Units: objects by number, clusters of MAP_CLUSTER bytes. Errors: -EAGAIN: no page for it now:
 * peer_retry(). Ownership: the process's table, made of kept pages. Threads: any; a mutex held
 * for a few instructions, never on the path of a request that makes nothing. Blocking: none.
 */
#ifndef SKERRY_VOLUME_NOTE_H
#define SKERRY_VOLUME_NOTE_H

#include "peers/volume/volume.h"

/* As it lies in a kept page; volume 0: free. 24 of them in one. Its fields are written first,
   `volume` last (release). */
struct volume_intent {
	_Atomic uint64_t volume;
	uint64_t parent_owner;
	uint32_t object, epoch; /* of the volume's own object */
	uint32_t flags;		/* MAP_WORD_PARTIAL, MAP_WORD_ZERO, or 0 */
	uint32_t parent_epoch;
	uint32_t parent_flags;
	_Atomic uint32_t changes; /* no two intents, nor an intent twice, have the same */
	_Atomic uint64_t has[MAP_HAS_WORDS];
};
fixed(sizeof(struct volume_intent) == 168);

/* Before any shard starts: what a predecessor has left. */
int volume_intent_open(struct peer *first, char *why, size_t why_size);
void volume_intent_close(struct peer *first);

/* The object exists, in that form, and that is to be published. One that there is already is made
   into it. -EAGAIN. */
int volume_intent_make(struct peer *peer, const struct volume_intent *intent);
/* The same, but not published before volume_intent_has() has come: until then it may be unmade. */
int volume_intent_try(struct peer *peer, const struct volume_intent *intent);
/* No cluster of it has come to be: true: it is forgotten; false: it stays, being published or
   known. */
bool volume_intent_unmake(struct peer *peer, uint64_t volume, uint32_t object);
/*
 * First writes to an object that is not there, or (`zero`) reads as zeros. Any number are under way
 * at a time; each ends with made or failed. It is published when one is made.
 *
 *   first(): -EAGAIN: wait; -EALREADY: it has been made
 *     -> made()
 *     -> failed(): true: all have; what may be left of them is to be removed by the caller, and
 *        nobody begins meanwhile -> undo(gone: it is removed; else it counts as made)
 */
int volume_intent_first(struct peer *peer, const struct volume_intent *intent, bool zero);
void volume_intent_made(struct peer *peer, uint64_t volume, uint32_t object);
bool volume_intent_failed(struct peer *peer, uint64_t volume, uint32_t object);
void volume_intent_undo(struct peer *peer, uint64_t volume, uint32_t object, bool gone);
/* Clusters are there now. False: the intent has been published and struck out; make it again. */
bool volume_intent_has(
	struct peer *peer, uint64_t volume, uint32_t object, const uint64_t has[MAP_HAS_WORDS]);
/*
 * A page of the map has come from the mapper: the intents about its objects are newer, and it
 * becomes the volume's. False: it does not, and is the caller's: there is one already, or pages
 * were forgotten since volume->forgets was read.
 */
bool volume_intent_install(struct peer *peer, struct volume *volume, uint32_t page,
	struct volume_page *entries, uint32_t forgets);
/* The intent about an object, copied; false: there is none. */
bool volume_intent_find(
	struct peer *peer, uint64_t volume, uint32_t object, struct volume_intent *intent);

/*
 * Publishing to the mapper. What is published must be at the store, durable, before: so the intents
 * are gathered first, then the caller flushes the store, then they are sent. One publisher of a
 * volume at a time; others wait, and find what is left.
 *
 *   volume_publish_begin() -> gathered(); publish->count == 0: nothing to publish, and it is over
 *   ... the store is flushed ...
 *   volume_publish_send()  -> done(error): durable, or to be published again the next time
 *   volume_publish_drop(): the store could not flush
 */
struct volume_publish {
	struct volume_step step; /* first */
	void (*gathered)(struct volume_publish *publish);
	void (*done)(struct volume_publish *publish, int error);
	uint64_t volume;
	uint32_t count;
	/* the room's own */
	uint32_t sent, batch;
	struct published *published;
	TAILQ_ENTRY(volume_publish) link;
};
TAILQ_HEAD(volume_publish_queue, volume_publish);
/* step.peer, gathered, done and volume are set; the rest is 0. */
void volume_publish_begin(struct volume_publish *publish);
void volume_publish_send(struct volume_publish *publish);
void volume_publish_drop(struct volume_publish *publish);
/* Each turn: publishers whose time has come. */
bool volume_publish_poll(struct peer *peer);

/* Is there anything to publish about the volume? Cheap. */
bool volume_intent_any(struct peer *peer, uint64_t volume);
/* Beyond VOLUME_INTENTS_SOFT they are published in the background: a volume with many, or 0. */
uint64_t volume_intent_crowded(struct peer *peer);
#define VOLUME_INTENTS_SOFT 8192u
/* A volume is removed, or rolled back: its intents count no more. Only while nobody writes to it.
   */
void volume_intent_forget(struct peer *peer, uint64_t volume);

#endif
