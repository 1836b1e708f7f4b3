/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An index of what is cached, in two levels: objects by key, in each of them buckets by number.
 * Finding, inserting and evicting are O(1); nothing is allocated after xcache_open().
 * It knows neither pages nor data: an entry carries a few words of its owner's. Which entry has to
 * go is for a policy to say (xcache_lru.c, _s3fifo.c, _clock2q.c), one for each index.
 *
 * An entry is
 *
 *            insert             park                  (dirty: not to be evicted, its links are free
 *   FREE ------------> IN <------------> PARKED        for the owner's own queues)
 *    ^ ^  evict, remove |     unpark      | | loosen
 *    | `----------------'                 | `-----------> LOOSE (in no object: its owner's, for an
 *    `--------------- remove -------------'                 |    older version of a bucket)
 *    ^                                                      |
 *    `----------------------- remove -----------------------'
 *
 * Units: entries. Errors: 0 or -errno: -ENOSPC the limit is reached and nothing can be evicted now.
 * Ownership: one lane. Threads: one. Blocking: none.
 * Source: two levels of O(1) tables and its hooks follow the ancestor's xcache; Clock2Q+ (arXiv
 * 2511.21958), S3-FIFO (SOSP 2023).
 */
#ifndef SKERRY_XCACHE_H
#define SKERRY_XCACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <xseg/op.h>

#define XCACHE_NONE 0xffffffffu
#define XCACHE_BUCKETS (XSEG_OBJECT_MAX / XSEG_PAGE) /* of one object */

enum xcache_state { XCACHE_FREE, XCACHE_IN, XCACHE_PARKED, XCACHE_LOOSE };

struct xcache_entry {
	uint32_t page;	 /* the owner's */
	uint32_t object; /* which; XCACHE_NONE: loose */
	uint16_t bucket;
	uint8_t state;	     /* enum xcache_state */
	uint8_t policy;	     /* the policy's: which queue, marks */
	uint32_t prev, next; /* the policy's while IN, the owner's while PARKED or LOOSE */
	uint8_t valid;	     /* the owner's: sectors that hold data, as its descriptor says */
	uint8_t marks, bucket_state; /* the owner's */
	uint8_t reserved;
	uint32_t word; /* the owner's */
};
fixed(sizeof(struct xcache_entry) == 28);

struct xcache_object {
	struct xseg_key key;
	uint32_t next;	       /* in its hash chain */
	uint32_t count;	       /* entries in it */
	uint32_t older, newer; /* by last insert: the oldest one is evicted when objects run out */
	uint32_t refs;	       /* held by the owner: never evicted as a whole */
	uint32_t parked;       /* the index's: entries that cannot go now */
	uint32_t mark;	       /* the owner's */
	uint32_t beyond;       /* the index's: not counted in the limit, see xcache_hold_object() */
	void *owner;	       /* the owner's */
	uint32_t group[XCACHE_BUCKETS / 16]; /* the index's: of 16 entries each, 0: none */
};

/* Any may be NULL. None may call back into the index but where noted. */
struct xcache_hooks {
	void (*object_init)(void *owner, uint32_t object); /* made: fill in mark and owner */
	void (*object_free)(void *owner, uint32_t object); /* its last entry and ref have gone */
	/* The policy's choice. True: it goes. False: not now; it has been parked (xcache_park() is
	   called from here), or stays where it is and another one is looked for. */
	bool (*evict)(void *owner, uint32_t entry);
};

struct xcache;

/*
 * What decides who goes. A policy keeps its queues in the entries' links and its marks in `policy`;
 * what else it needs it allocates in open() for entries_max.
 */
struct xcache_policy {
	const char *name;
	int (*open)(struct xcache *cache, uint32_t entries_max);
	void (*close)(struct xcache *cache);
	/* New (`policy` is 0), or unparked: `policy` is what it was when it was parked. */
	void (*insert)(struct xcache *cache, uint32_t entry);
	void (*hit)(struct xcache *cache, uint32_t entry); /* IN or PARKED: a mark, no list */
	uint32_t (*victim)(struct xcache *cache); /* taken out of its queue; XCACHE_NONE: none */
	void (*remove)(struct xcache *cache, uint32_t entry); /* out of its queue, no history */
	/* `victim` was refused and not parked: back, behind all others */
	void (*back)(struct xcache *cache, uint32_t entry);
	void (*resize)(struct xcache *cache, uint32_t entries); /* the limit has changed */
};
extern const struct xcache_policy xcache_lru, xcache_s3fifo, xcache_clock2q;
/* All of them, in this order. */
#define XCACHE_POLICIES 3u
extern const struct xcache_policy *const xcache_policies[XCACHE_POLICIES];

struct xcache_config {
	uint32_t objects_max, entries_max; /* what memory is reserved for */
	const struct xcache_policy *policy;
	const struct xcache_hooks *hooks;
	void *owner;
};

int xcache_open(struct xcache **cache, const struct xcache_config *config);
void xcache_close(struct xcache *cache);
/* Limits, at most what it was opened with. Does not evict: see xcache_evict(). */
void xcache_limit(struct xcache *cache, uint32_t objects, uint32_t entries);
/* Another policy; order and history start anew. */
int xcache_set_policy(struct xcache *cache, const struct xcache_policy *policy);

/* --- objects ------------------------------------------------------------------ */
/* XCACHE_NONE: not there. */
uint32_t xcache_find_object(struct xcache *cache, const struct xseg_key *key);
/* Found or made. -ENOSPC: as many as allowed, and none that could go as a whole. */
int xcache_get_object(struct xcache *cache, const struct xseg_key *key, uint32_t *object);
/*
 * The same with a ref, and none goes for it: one that is made is beyond the limit, as long as all
 * are fewer than the index was opened for (-ENOSPC). Nothing may be inserted into it until
 * xcache_get_object() has made room for it.
 */
int xcache_hold_object(struct xcache *cache, const struct xseg_key *key, uint32_t *object);
struct xcache_object *xcache_object(struct xcache *cache, uint32_t object);
void xcache_ref_object(struct xcache *cache, uint32_t object);
void xcache_unref_object(struct xcache *cache, uint32_t object);
/* The next one that is there, from *cursor (0 first) on. */
uint32_t xcache_next_object(struct xcache *cache, uint32_t *cursor);

/* --- entries ------------------------------------------------------------------ */
static inline struct xcache_entry *xcache_entry(struct xcache *cache, uint32_t entry);
/* XCACHE_NONE: not there. */
uint32_t xcache_lookup(struct xcache *cache, uint32_t object, uint32_t bucket);
/* It was asked for: tells the policy. */
void xcache_hit(struct xcache *cache, uint32_t entry);
/*
 * A new entry (page XCACHE_NONE); evicts one if the limit is reached. The object must be held by a
 * ref, have entries, or have been made just now. -EEXIST: there is one, IN or PARKED (*entry).
 * -ENOSPC: nothing could go now; an object that nobody holds and that has no entry is gone then.
 */
int xcache_insert(struct xcache *cache, uint32_t object, uint32_t bucket, uint32_t *entry);
/* What a start finds again of one object. */
struct xcache_found {
	uint32_t page;
	uint16_t bucket;
	uint8_t valid, bucket_state;
};
/*
 * New entries first, first + 1, ... for found[0], found[1], ... with that word, IN; or PARKED, with
 * prev and next leading along them from and to XCACHE_NONE, and never in the policy's queues. The
 * object is held by a ref. Evicts nothing. How many: it ends before one whose place is taken or
 * for which there is no room, and may end before any other: xcache_insert() that one.
 */
uint32_t xcache_adopt(struct xcache *cache, uint32_t object, const struct xcache_found *found,
	uint32_t count, bool parked, uint32_t word, uint32_t *first);
/* About so many will be inserted next: their memory comes now, in large pieces. Never fails. */
void xcache_expect(struct xcache *cache, uint32_t entries);
/* Makes room: evicts `count`, as far as they can go; how many went. */
uint32_t xcache_evict(struct xcache *cache, uint32_t count);
/* Gone for good, whatever its state. */
void xcache_remove(struct xcache *cache, uint32_t entry);
void xcache_park(struct xcache *cache, uint32_t entry);
void xcache_unpark(struct xcache *cache, uint32_t entry);
/* An entry of no object, counted in the limit: evicts one if it is reached; -ENOSPC. Ends
   with xcache_remove(). */
int xcache_loose(struct xcache *cache, uint32_t *entry);
/*
 * PARKED -> LOOSE: no longer its object's (which may go with it: hold a ref), its bucket may be
 * inserted anew; number, links, page, bucket, valid, marks, bucket_state and word stay.
 */
void xcache_loosen(struct xcache *cache, uint32_t entry);
uint32_t xcache_count(const struct xcache *cache); /* whatever their state */
uint32_t xcache_object_count(const struct xcache *cache);
/* How many could still be inserted without evicting. */
uint32_t xcache_room(const struct xcache *cache);

/* Private memory that it has come to use, bytes: when it is full, for the 2 % law. */
size_t xcache_memory(const struct xcache *cache);

/* The array of entries lies first, so that looking one up costs no call. */
struct xcache_base {
	struct xcache_entry *entries;
};
static inline struct xcache_entry *xcache_entry(struct xcache *cache, uint32_t entry)
{
	return &((struct xcache_base *)(void *)cache)->entries[entry];
}

#endif
