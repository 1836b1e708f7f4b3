/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the rooms of the index share: the index itself, lists of entries, and the ghosts.
 *
 *   xcache.c        limits, the life of an entry    xcache_object.c  objects
 *   xcache_group.c  the buckets of an object
 *   xcache_lru.c    one list                        xcache_ghost.c   who went lately
 *   xcache_queue.c  small and main queue, for s3fifo and clock2q
 *
 * Units: entries. Errors: 0 or -errno. Ownership: one index. Threads: one. Blocking: none.
 */
#ifndef SKERRY_XCACHE_PRIV_H
#define SKERRY_XCACHE_PRIV_H

#include <base/hash.h>
#include <base/slab.h>
#include <base/sm.h>

#include "peers/cache/xcache.h"

struct xcache {
	struct xcache_base base; /* first: xcache_entry() looks there */
	const struct xcache_policy *policy;
	void *state; /* the policy's */
	struct xcache_hooks hooks;
	void *owner;
	uint32_t limit, count; /* entries */
	uint32_t object_limit, object_count;
	uint32_t beyond;	 /* objects that are not counted: xcache_hold_object() */
	uint32_t last;		 /* object found last */
	uint32_t oldest, newest; /* objects, by last insert */
	uint32_t chosen;	 /* the victim that the owner is asked about now */
	uint32_t head_mask;
	uint32_t *heads; /* of hash chains, object + 1; 0: none */
	struct slab entries, objects, narrow, wide;
	size_t policy_memory;
};

/* --- xcache_group.c ------------------------------------------------------------- */
#define XCACHE_GROUP 16u /* buckets */
/* Memory for so many groups, or for as many as have entries. */
int xcache_groups_open(struct xcache *cache, uint32_t groups_max, uint32_t entries_max);
void xcache_groups_close(struct xcache *cache);
/* What lies at a bucket of an object. */
void xcache_slot_set(
	struct xcache *cache, struct xcache_object *object, uint32_t bucket, uint32_t entry);
/* The entries first, first + 1, ... for found[0], found[1], ..., up to one whose place is taken;
   how many. */
uint32_t xcache_slots_claim(struct xcache *cache, struct xcache_object *object,
	const struct xcache_found *found, uint32_t count, uint32_t first);
void xcache_slot_clear(struct xcache *cache, struct xcache_object *object, uint32_t bucket);

/* --- xcache_object.c ------------------------------------------------------------ */
int xcache_objects_open(struct xcache *cache, const struct xcache_config *config);
void xcache_objects_close(struct xcache *cache);
/* Becomes the one inserted to last. */
void xcache_object_renew(struct xcache *cache, uint32_t object);
/* Frees it if nobody needs it. */
void xcache_object_settle(struct xcache *cache, uint32_t object);

/* --- xcache.c ------------------------------------------------------------------- */
/* Evicts an entry that is IN and in its queue, if the owner lets it go. */
bool xcache_entry_evict(struct xcache *cache, uint32_t entry);

static inline uint64_t xcache_hash_key(const struct xseg_key *key)
{
	uint64_t h = hash_u64(key->volume ^ (uint64_t)key->epoch << 32);
	h = (h ^ h >> 32 ^ key->object) * 0xd6e8feb86659fd93ull;
	return h ^ h >> 32;
}

/* --- lists of entries ---------------------------------------------------------------- */

/* New ones at the head, the next to go at the tail. */
struct xcache_list {
	uint32_t head, tail, count;
};

static inline void xcache_list_init(struct xcache_list *list)
{
	*list = (struct xcache_list){.head = XCACHE_NONE, .tail = XCACHE_NONE};
}

static inline void xcache_list_push(struct xcache *cache, struct xcache_list *list, uint32_t entry)
{
	struct xcache_entry *e = xcache_entry(cache, entry);
	e->prev = XCACHE_NONE;
	e->next = list->head;
	if (list->head == XCACHE_NONE)
		list->tail = entry;
	else
		xcache_entry(cache, list->head)->prev = entry;
	list->head = entry;
	list->count++;
}

static inline void xcache_list_cut(struct xcache *cache, struct xcache_list *list, uint32_t entry)
{
	struct xcache_entry *e = xcache_entry(cache, entry);
	if (e->prev == XCACHE_NONE)
		list->head = e->next;
	else
		xcache_entry(cache, e->prev)->next = e->next;
	if (e->next == XCACHE_NONE)
		list->tail = e->prev;
	else
		xcache_entry(cache, e->next)->prev = e->prev;
	list->count--;
}

/* --- xcache_ghost.c: who went lately -------------------------------------------- */

#define GHOST_WAYS 16u	  /* of a set: one cache line */
#define GHOST_TIMES 4096u /* a slot is fingerprint << 12 | time */

/*
 * The last `limit` that were added and not taken, by fingerprints: 4 bytes each, a little more
 * than half of the slots in use. One is wrongly found once in 70 000 times. Time is counted in
 * spans of a 512th of the limit, and a whole span is forgotten at once.
 */
struct xcache_ghost {
	uint32_t *slots;
	size_t reserved;
	uint32_t limit, sets, live;
	uint32_t span, made;	     /* adds of a span, and in this one so far */
	uint32_t now, oldest;	     /* spans; older ones are forgotten */
	uint32_t sweep, adds;	     /* the set cleaned next; adds so far */
	uint32_t count[GHOST_TIMES]; /* living ones of each span */
};

int xcache_ghost_open(struct xcache_ghost *ghost, uint32_t limit_max);
void xcache_ghost_close(struct xcache_ghost *ghost);
/* Forgets all. */
void xcache_ghost_limit(struct xcache_ghost *ghost, uint32_t limit);
void xcache_ghost_add(struct xcache_ghost *ghost, uint64_t hash);
/* Was it there? It is not any more. */
bool xcache_ghost_take(struct xcache_ghost *ghost, uint64_t hash);

/* --- xcache_queue.c: a small queue before a large one --------------------------- */

struct xcache_queue_rules {
	uint8_t marks_max;
	uint8_t marks_main;	/* so many take one from the small queue into the main one */
	uint8_t window_percent; /* of the small queue: hits on its newest ones do not count */
};

int xcache_queue_open(
	struct xcache *cache, uint32_t entries_max, const struct xcache_queue_rules *rules);
void xcache_queue_close(struct xcache *cache);
void xcache_queue_insert(struct xcache *cache, uint32_t entry);
void xcache_queue_hit(struct xcache *cache, uint32_t entry);
uint32_t xcache_queue_victim(struct xcache *cache);
void xcache_queue_remove(struct xcache *cache, uint32_t entry);
void xcache_queue_back(struct xcache *cache, uint32_t entry);
void xcache_queue_resize(struct xcache *cache, uint32_t entries);

#endif
