/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object on its shard, its buckets, and who works on which of them.
 *
 * Units: buckets. Errors: 0 or -errno. Ownership: an entry's page is the entry's. Threads: the
 * shard's lane. Blocking: none.
 */
#ifndef SKERRY_CACHE_OBJECT_H
#define SKERRY_CACHE_OBJECT_H

#include <base/sm.h>
#include <xseg/port.h>

#include "peers/cache/cache_volume.h"
#include "peers/cache/xcache.h"

/* A part of an object that somebody works on; see cache_range.c. */
struct cache_range {
	struct cache_object *object;
	uint32_t first, count; /* buckets */
	bool exclusive, waiting, entered;
	void (*go)(struct peer *peer, struct cache_range *range); /* when it has been waited for */
	void *context;
	TAILQ_ENTRY(cache_range) link;
};
TAILQ_HEAD(cache_range_queue, cache_range);

/* What the shard knows of an object beside its entries: xcache_object.owner. */
struct cache_object {
	uint32_t index;	 /* in the index */
	uint32_t record; /* in the kept records */
	struct cache_local *local;
	struct cache_range_queue
		ranges;	  /* in order of asking: those at work first, then those waiting */
	uint32_t changes; /* grows when the store was changed past the buckets: a fill is stale */
};

/*
 * What an entry has that the store lacks; `word` is the epoch of what is dirty.
 *
 *            written to             sent                   stored
 *     CLEAN -----------> DIRTY ------------> WRITING -----------------> WRITTEN
 *     ^ ^ ^                | ^                | |                         | |
 *     | | `-- overwritten -' `---- failed ----' |                         | |
 *     | |     or forgotten   ^                  |                         | |
 *     | `--------------------|---- forgotten ---'                         | |
 *     |                      `------ a flush of the store has failed -----' |
 *     `---- the store has flushed it, or it is overwritten or forgotten ----'
 *
 * It is dirty until the store has flushed it: a flush that fails may have lost what was written
 * before, so that is written again.
 */
enum cache_bucket_state { BUCKET_CLEAN, BUCKET_DIRTY, BUCKET_WRITING, BUCKET_WRITTEN };
extern const struct sm_state cache_bucket_states[];
static inline void cache_bucket_move(struct xcache_entry *entry, enum cache_bucket_state state)
{
	sm_move(cache_bucket_states, &entry->bucket_state, state);
}
static inline bool cache_entry_is_dirty(const struct xcache_entry *entry)
{
	return entry->bucket_state != BUCKET_CLEAN;
}

/* Marks of entries. */
enum {
	CACHE_E_AHEAD = 1 << 0,	  /* read ahead and not asked for yet */
	CACHE_E_DOOMED = 1 << 1,  /* drop it when it has been written */
	CACHE_E_FILLED = 1 << 2,  /* fetched for somebody, and not read again yet */
	CACHE_E_THROUGH = 1 << 3, /* written through, and not read yet */
};

/* --- cache_bucket.c: entries and their pages */
/* The hooks of the index. */
extern const struct xcache_hooks cache_hooks;
/* The object of a key, with its volume's local state, made if need be; a record is kept for it.
   -ENOSPC: wait; -EMFILE: too many volumes, pass it on. What it has neither entries nor refs for
   may go again at the next get. */
int cache_object_get(struct peer *peer, const struct xseg_key *key, struct cache_object **object);
/* The same, with the record that there is already. */
int cache_object_adopt(struct peer *peer, const struct xseg_key *key, uint32_t record,
	struct cache_object **object);
struct cache_object *cache_object_find(struct peer *peer, const struct xseg_key *key);
/* For a write that goes past, with a ref, when there are as many objects as may be: it has no
   record, so no bucket may come into it until cache_object_get() has found room. */
int cache_object_bypassing(
	struct peer *peer, const struct xseg_key *key, struct cache_object **object);
#define CACHE_OBJECTS_BYPASSING 64u
static inline bool cache_object_is_bypassing(const struct cache_object *object)
{
	return object->record == XCACHE_NONE;
}
/* The object of an entry, loose ones too (their page says of which: a loose entry holds a ref). */
struct cache_object *cache_object_of_entry(struct peer *peer, uint32_t entry);
/* A dirty entry goes on by itself, in its queue or on its way; its bucket is free. */
void cache_bucket_loosen(struct peer *peer, struct cache_object *object, uint32_t entry);
/* Is anything in these buckets dirty? */
bool cache_bucket_any_dirty(
	struct peer *peer, const struct cache_object *object, uint32_t first, uint32_t count);
/* Gone at once, with its page; not one that is in a queue of an epoch or on its way. */
void cache_bucket_remove(struct peer *peer, uint32_t entry);
/* Drops up to `count` clean buckets of one volume, looking at a few: how many. */
uint32_t cache_bucket_evict_local(struct peer *peer, struct cache_local *local, uint32_t count);
/* A described page that this shard holds: KEPT from now on, with the next sequence. */
void cache_bucket_describe(struct peer *peer, const struct cache_object *object, uint32_t bucket,
	uint32_t page, unsigned valid, unsigned dirty, uint32_t epoch);
/* Is the key of this shard's objects? */
static inline bool cache_key_is_mine(const struct peer *peer, const struct xseg_key *key)
{
	return xseg_port_shard(key, 0, peer->shards) == peer->shard;
}
/* The store has the data, and the entry is BUCKET_CLEAN and in no queue: unparked, dirty mask 0;
   what is loose or doomed is dropped. */
void cache_bucket_cleaned(struct peer *peer, uint32_t entry);
/* Forgets buckets of an object whatever they are: those that are on their way are doomed. */
void cache_bucket_forget(
	struct peer *peer, struct cache_object *object, uint32_t first, uint32_t count);
/* Forgets clean ones; of volume 0: of all. How many. */
uint32_t cache_bucket_drop_clean(struct peer *peer, uint64_t volume);
/* cache_adopt.c: after a start, what the port keeps and is this shard's. -errno: it cannot be. */
int cache_adopt(struct peer *peer, char *why, size_t why_size);

/* --- cache_range.c: range locks */
/*
 * Buckets [first, first + count) of an object for somebody who has to wait for the store: an
 * exclusive lock keeps all others out, shared ones (a fill) keep exclusive ones out. In order:
 * nobody passes one that waits and overlaps. True: at once; false: range->go() is called later.
 */
bool cache_range_lock(struct peer *peer, struct cache_object *object, struct cache_range *range);
/* Never waits: is it free for one who is done within this turn? exclusive: no locked range
   overlaps. */
bool cache_range_is_free(
	const struct cache_object *object, uint32_t first, uint32_t count, bool exclusive);
void cache_range_unlock(struct peer *peer, struct cache_range *range);

#endif
