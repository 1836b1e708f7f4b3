/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache: keeps what is hot or dirty between a composer and a blocker.
 *
 * Three floors of state. What lies in kept pages of the segment is the truth and survives any
 * death: buckets (their descriptors say what they are), records of objects, settings. Private to
 * a shard are the index (xcache) and all queues; they are made anew from the truth. Shared by the
 * shards of the process, in atomics, are volumes: their settings and flush epochs.
 *
 *   cache_main.c     the peer: options, start, turn, stop         cache_control.c  XSEG_OP_CONTROL
 *   cache_io.c       a request comes in: phase, gate, mode        cache_read.c     hits, misses
 *   cache_write.c    buckets from writes: donated, copied, partial
 *   cache_mode_*.c   what a write does in each mode, behind cache_modes[]
 *   cache_bypass.c     writes handed on as they are, on their way past us
 *   cache_fill.c     from the store into buckets, read-ahead, bypass
 *   cache_bucket.c   entries and pages: put, drop, clean        cache_adopt.c    after a start
 *   cache_gate.c     who has which part of an object, who waits for it
 *   cache_wait.c     who waits for room                           cache_pin.c      pins and quota
 *   cache_barrier.c      zero, discard, delete, copy, info, list, status
 *   cache_volume.c   volumes of the process, their share          cache_meta.c     kept records
 *   cache_term.c     kept terms of volumes
 *   cache_epoch.c    flush epochs                                 cache_flush.c    write-back
 *   cache_sync.c     FLUSH and FUA                                cache_journal.c  its journal
 *
 * The life of a bucket's page:
 *
 *   donated by a write, or held and built -> described -> kept, in the index
 *     clean: IN the index, the policy may evict it
 *     dirty: PARKED, in the queue of its epoch; written back from the lowest epoch on, then clean
 *     overwritten: a new page takes its place; the old one is dropped, unless it is dirty in an
 *       epoch that is closed, or on its way to the store: then it goes on as a loose entry
 *
 * Units: bytes; buckets are pages of 4 KiB, sectors 512 bytes. Errors: 0 or -errno. Ownership: an
 * entry's page is the entry's. Threads: all of a shard on its lane, but for the atomics of struct
 * cache_volume and cache_shared. Blocking: none.
 */
#ifndef SKERRY_CACHE_H
#define SKERRY_CACHE_H

#include <peer/cache.h>
#include <peer/call.h>
#include <peer/keep.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <xseg/layout.h>
#include <xseg/port.h>

#include "peers/cache/cache_journal.h"
#include "peers/cache/xcache.h"

#define CACHE_STORE 0u		 /* the edge */
#define CACHE_VOLUMES_MAX 65536u /* ever seen; of others everything is passed on */
#define CACHE_TERM_PAGES 256u	 /* of 256 terms each */
#define CACHE_RUN_MAX (1u << 20) /* bytes of one write-back */
#define CACHE_SECTORS (XSEG_PAGE / XSEG_SECTOR)
#define CACHE_ALL_SECTORS 0xffu
#define CACHE_NO_EPOCH 0xffffffffu

struct cache_options {
	uint64_t size;	  /* of buckets; 0: half of the page pool */
	uint64_t objects; /* 0: a 16th of the buckets, at least 1024 */
	uint64_t policy, mode, ack,
		begin; /* choices, see <peer/cache.h>; begin: caching, passing */
	char *journal; /* path; NULL: none */
	uint64_t journal_size;
	uint64_t dirty_soft, dirty_hard; /* percent of size */
	uint64_t age;			 /* ns: dirty buckets are written back after that */
	uint64_t epoch;			 /* ns: an open epoch is closed after that */
	uint64_t rate;			 /* bytes a second of background write-back; 0: no limit */
	uint64_t read_ahead, bypass;	 /* bytes; 0: none */
	uint64_t share;			 /* percent that one volume may take; 0: no limit */
	uint64_t pins; /* pages pinned by one client; beyond that it gets copies */
	bool strict;   /* epochs reach the store in order, each flushed before the next */
};

/* --- volumes: shared by all shards ------------------------------------------------------- */

/*
 * Epochs grow. Writes go into the open one; closing it opens the next. All that is dirty in epoch
 * e, on all shards, is at the blocker and flushed before anything of e + 1 is sent there.
 * Serial numbers: compare with cache_epoch_before().
 */
struct cache_volume {
	_Alignas(64) _Atomic uint64_t id;  /* 0: free */
	_Atomic uint32_t mode, ack, share; /* enum cache_mode, enum cache_ack, percent */
	_Atomic bool own_setting;
	_Atomic uint32_t open;	   /* epoch */
	_Atomic uint32_t stored;   /* up to and with this one all is at the blocker, and flushed */
	_Atomic uint32_t flushing; /* a shard flushes the store for the volume now */
	_Atomic uint32_t touched;  /* the last epoch that was written in */
	_Atomic uint32_t wanted;   /* up to and with this one somebody waits for `stored` */
	_Atomic uint32_t failures; /* grows: a write-back or flush has failed */
	_Atomic uint32_t redo;	   /* grows: a flush has failed, what was written is in doubt */
	_Atomic uint64_t calm_ns;  /* for want of room alone no epoch is closed before */
	_Atomic uint32_t bypass;   /* shards that have notes of writes on their way past them */
	/* writes that went past the epochs, as far as answered, and as far as flushed */
	_Alignas(64) _Atomic uint64_t through, through_flushed; /* from here on: each turn */
	_Atomic int error;	    /* of the last write-back or flush; 0: none */
	_Atomic uint64_t term;	    /* of its home record, as told last; 0: unknown */
	_Atomic uint64_t next_term; /* what is older is being thrown away */
	_Atomic bool voids;	    /* up to and with void_epoch nothing is written back any more */
	_Atomic uint32_t void_epoch;
	_Atomic uint64_t used;	/* buckets */
	_Atomic uint64_t dirty; /* buckets, loose ones too */
	_Atomic uint64_t hits, misses, fills, bypasses, evictions, written, write_calls;
	/* per shard: the lowest epoch it has dirty buckets of, or CACHE_NO_EPOCH */
	_Alignas(64) _Atomic uint32_t low[XSEG_PORT_LANES_MAX];
	/* per shard: the lowest epoch it has buckets of that are written and not yet clean */
	_Atomic uint32_t written_low[XSEG_PORT_LANES_MAX];
	_Atomic uint64_t since_ns[XSEG_PORT_LANES_MAX]; /* per shard: its oldest dirty; 0: none */
	_Atomic uint32_t redone[XSEG_PORT_LANES_MAX];	/* per shard: the `redo` it has seen to */
};

static inline bool cache_epoch_before(uint32_t a, uint32_t b) { return (int32_t)(a - b) < 0; }

struct cache_journal;

struct cache_shared {
	pthread_mutex_t lock;	/* to make a volume, to change settings; never on the data path */
	_Atomic uint32_t phase; /* enum cache_phase */
	_Atomic uint32_t policy;
	_Atomic uint64_t size;		   /* bytes */
	_Atomic uint32_t mode, ack, share; /* of volumes that have no setting of their own */
	_Atomic uint64_t asked; /* grows: shards do what `ask` says; see cache_control.c */
	_Atomic uint32_t ask;
	_Atomic uint64_t drop_volume, drop_count;
	_Atomic uint32_t settled; /* shards that have done what was asked */
	_Atomic int ask_error;
	/* of each shard */
	_Atomic uint32_t objects[XSEG_PORT_LANES_MAX], waiting[XSEG_PORT_LANES_MAX];
	uint8_t apart[64]; /* what is above is read all the time, what is below written each turn */
	_Atomic uint32_t dirty, used; /* buckets, of all shards */
	_Atomic int error;
	struct cache_journal *journal;
	struct cache_volume *volumes; /* CACHE_VOLUME_SLOTS, open addressing by id */
	_Atomic uint32_t volume_count;
	_Atomic uint32_t pulse; /* grows: something that other shards wait for has changed */
	/* cache_meta.c: page of records by ordinal, + 1; the page of settings */
	_Atomic uint32_t *record_pages;
	_Atomic uint32_t record_page_count;
	size_t record_pages_size;
	uint32_t record_free[XSEG_PORT_LANES_MAX];
	uint32_t term_pages[CACHE_TERM_PAGES]; /* cache_term.c: page + 1; with the mutex */
	uint32_t settings_page;
	uint32_t kept_pages; /* found at open() */
	bool replaying;	     /* the journal has to be read before anything is served */
	bool journal_known;  /* it is the one that the segment's settings name */
	uint64_t settings_sequence;
	_Atomic uint32_t started, finished; /* shards that have adopted; that have ended */
	bool beginning;			    /* CACHE_BEGIN waits for what was passed on before */
	_Atomic bool pressed;		    /* more is dirty than the soft limit */
};
#define CACHE_VOLUME_SLOTS (2u * CACHE_VOLUMES_MAX)

/* --- a volume on one shard ------------------------------------------------------------------ */

/* Entries, PARKED or LOOSE, linked by prev and next. */
struct cache_list {
	uint32_t head, tail, count;
};

/* What is dirty of one epoch. */
struct cache_epoch {
	uint32_t number;
	struct cache_list dirty;   /* waiting to be written */
	uint32_t writing;	   /* on their way, in no list */
	struct cache_list written; /* at the store, not flushed there yet */
	bool journaled;		   /* all of it, on this shard */
	bool journaling;	   /* on its way to the journal: not to be written back meanwhile */
	uint64_t since_ns;	   /* its first write */
	TAILQ_ENTRY(cache_epoch) link;
};
TAILQ_HEAD(cache_epoch_queue, cache_epoch);

/* A sequential reader. */
struct cache_stream {
	uint64_t next;	 /* offset in the volume where it goes on: object number << 22 | offset */
	uint64_t length; /* so far */
	uint32_t ahead;	 /* bytes read ahead last */
	uint64_t until;	 /* read ahead up to there */
};
#define CACHE_STREAMS 8u

/* What happened to a volume on this shard, not yet added to its figures: see cache_io_turn(). */
struct cache_tally {
	uint32_t hits, misses, fills, bypasses, evictions;
	bool listed;
};

/* See cache_flush_barrier(). */
struct cache_barrier {
	void (*done)(struct peer *peer, struct cache_barrier *barrier);
	void *context;
	uint64_t through; /* 0, or so many writes past the epochs are to be flushed, too */
	struct cache_flow *flow;
	uint32_t epoch;
	TAILQ_ENTRY(cache_barrier) link;
};
TAILQ_HEAD(cache_barrier_queue, cache_barrier);

/* Are buckets that were fetched read again before they go? See cache_stream.c. */
struct cache_worth {
	uint32_t fills, again; /* buckets */
	uint32_t calls, misses;
	uint64_t idle_ns; /* of the lane, while it waited for the calls */
	bool low;
};

/* Is what was written through read before it is written again or goes? See
   cache_mode_writethrough.c. */
struct cache_kept {
	uint32_t read, lost;  /* buckets */
	uint32_t calls, slow; /* of them */
	uint32_t misses;
	bool low;
};

struct cache_bypass;

struct cache_flow {
	struct cache_volume *volume;
	struct cache_epoch_queue epochs; /* oldest first */
	struct job_queue syncs;		 /* FLUSH and FUA that wait for their epoch: arg0 */
	struct cache_barrier_queue barriers;
	bool listed; /* in dirty_flows */
	bool untold; /* `used` or `dirty` has changed since the others were told */
	uint32_t used_told, dirty_told;
	LIST_ENTRY(cache_flow) untold_link;
	/* a flush of the store that this shard has sent */
	uint32_t sent_epoch;
	uint64_t sent_through;
	struct cache_journal_batch mark; /* of it */
	struct cache_batch *batch;	 /* what the journal is given now */
	uint32_t failures_seen;
	struct cache_stream streams[CACHE_STREAMS];
	unsigned stream_next;
	struct cache_worth worth;
	struct cache_kept kept;
	uint32_t bypass;      /* notes */
	uint32_t dirty, used; /* on this shard */
	uint64_t retry_ns;    /* the store failed: not before */
	uint64_t backoff_ns;
	uint64_t flush_ns;	      /* when the store's flush was sent */
	uint64_t bypass_ns;	      /* a write that went past has failed: none before that time */
	TAILQ_ENTRY(cache_flow) link; /* of those with something dirty */
	LIST_ENTRY(cache_flow) chain;
	struct cache_tally tally;
	LIST_ENTRY(cache_flow) tallied;
};
TAILQ_HEAD(cache_flow_queue, cache_flow);
LIST_HEAD(cache_flow_list, cache_flow);
#define CACHE_FLOW_CHAINS 4096u

/* --- objects ---------------------------------------------------------------------------------- */

/* A part of an object that somebody works on; see cache_gate.c. */
struct cache_hold {
	struct cache_object *object;
	uint32_t first, count; /* buckets */
	bool exclusive, waiting, entered;
	void (*go)(struct peer *peer, struct cache_hold *hold); /* when it has been waited for */
	void *context;
	TAILQ_ENTRY(cache_hold) link;
};
TAILQ_HEAD(cache_hold_queue, cache_hold);

/* What the shard knows of an object beside its entries: xcache_object.owner. */
struct cache_object {
	uint32_t index;	 /* in the index */
	uint32_t record; /* in the kept records */
	struct cache_flow *flow;
	struct cache_hold_queue
		holds;	  /* in order of asking: those at work first, then those waiting */
	uint32_t changes; /* grows when the store was changed past the buckets: a fill is stale */
};

/* Flags of entries. `word` is the epoch of what is dirty. */
enum {
	CACHE_E_DIRTY = 1 << 0,	  /* in the queue of its epoch, or on its way */
	CACHE_E_WRITING = 1 << 1, /* on its way to the store */
	CACHE_E_AHEAD = 1 << 2,	  /* read ahead and not asked for yet */
	CACHE_E_DOOMED = 1 << 3,  /* drop it when it has been written */
	CACHE_E_WRITTEN = 1 << 4, /* at the store, not flushed there: still dirty */
	CACHE_E_FILLED = 1 << 5,  /* fetched for somebody, and not read again yet */
	CACHE_E_THROUGH = 1 << 6, /* written through, and not read yet */
};

/* --- a shard --------------------------------------------------------------------------------- */

struct cache_pins;

/* Somebody who waits for the store: a fill, a write that goes through. Of the pool `works`, which
   has one for each request of the segment and some for reading ahead. */
#define CACHE_FILL_PAGES 256u
struct cache_work {
	struct cache_hold hold;
	struct cache_object *object;
	struct job *job;	 /* who asked; NULL: nobody waits */
	struct job_queue joined; /* they asked for a part of the same */
	uint64_t idle_ns;	 /* the lane's, when it began */
	uint64_t since_ns;	 /* when it went to the store */
	uint32_t changes, passed;
	uint32_t count; /* pages held; 0: the job's own are used */
	bool ahead, around, bypass;
	struct cache_barrier barrier;
	uint32_t pages[CACHE_FILL_PAGES];
};

/* What one request needs for a moment. */
struct cache_scratch {
	uint32_t entries[XCACHE_BUCKETS], pages[XCACHE_BUCKETS];
	bool given[XCACHE_BUCKETS];	/* the page is the request's own */
	uint32_t drops[XCACHE_BUCKETS]; /* pages that were replaced: see cache_write_end() */
	uint32_t drop_count;
};

struct cache {
	struct peer *peer;
	struct xcache *index;
	uint64_t sequence; /* of the last page kept */
	uint64_t asked_seen;
	struct cache_flow_list flows[CACHE_FLOW_CHAINS];
	struct cache_flow *last_flow;
	struct cache_flow_queue dirty_flows;
	uint32_t dirty;		  /* buckets */
	uint32_t writing;	  /* buckets on their way */
	uint64_t rate_ns;	  /* background write-back may go on then */
	struct job_queue waiting; /* for room, in order */
	uint32_t waiting_count;
	struct cache_pins *pins;
	struct cache_bypass *bypass;
	/* fixed pools: see cache_main.c */
	struct cache_pool {
		void *base;
		size_t item;
		uint32_t count, touched;
		void *free;
	} objects, flows_pool, epochs, works, runs, barrier_ops, batches;
	struct cache_flow_list untold;
	uint32_t dirty_told;
	bool adopted;
	bool hurry; /* cache_flush_turn() has something to look at */
	uint32_t pulse_seen;
	uint64_t due_ns;    /* it wants to look again then; 0: no need */
	uint32_t runs_out;  /* write-backs on their way */
	uint32_t calls_out; /* flushes of the store on their way */
	unsigned stop_failures;
	bool in_flow; /* cache_flush_flow() is at work */
	bool gave_up; /* stopping, and the store has failed: what is dirty stays kept */
	/* cache_control.c: what this shard does for another; what shard 0 waits for */
	uint32_t doing, leading;
	bool shrinking; /* more than the limit is cached */
	struct job *control;
	struct job *begin;	 /* waits for the drain under way to be broken off */
	struct job_queue fences; /* wait for what is clean to be dropped */
	uint64_t control_ns;
	uint32_t record_free; /* kept records of objects that are free: a list through them */
	bool stopping;
	struct cache_scratch scratch;
	struct cache_flow_list tallied;
	const struct job *admitted; /* it has waited at the gate, and goes through now */
	const struct job *retrying; /* it has waited for room, and is at the head */
	uint32_t sweep;		    /* cache_bucket_evict_flow() goes on there */
	uint32_t pinned_shown;
	uint32_t objects_max; /* that the index may have */
	bool filling;	      /* who waited for a fill is answered */
	uint32_t passed;      /* turns in which all was passed on: a fill from before is not kept */
	struct xseg_page_descriptor *descriptors; /* of the segment */
	uint32_t through;			  /* writes on their way past the buckets */
	uint64_t pool_seen_ns;			  /* when the pool was looked at */
	uint64_t turn_ns;			  /* when this turn began */
	uint64_t idle_ns;			  /* of all turns in which nothing was read */
};

/* A figure of the volume's has changed: it is added to the shared ones at the end of the turn. */
static inline void cache_tally(struct cache *cache, struct cache_flow *flow)
{
	if (flow->tally.listed)
		return;
	flow->tally.listed = true;
	LIST_INSERT_HEAD(&cache->tallied, flow, tallied);
}

/* NULL: all are out. What it was before is still in it; a fresh one is zero. */
static inline void *cache_pool_get(struct cache_pool *pool)
{
	void *item = pool->free;
	if (likely(item != NULL))
		pool->free = *(void **)item;
	else if (pool->touched < pool->count)
		item = (uint8_t *)pool->base + pool->item * pool->touched++;
	return item;
}
static inline void cache_pool_put(struct cache_pool *pool, void *item)
{
	*(void **)item = pool->free;
	pool->free = item;
}

static inline struct cache *cache_of(const struct peer *peer) { return peer->state; }
static inline struct cache_shared *cache_shared(const struct peer *peer) { return peer->shared; }
static inline const struct cache_options *cache_options(const struct peer *peer)
{
	return peer->options;
}
static inline enum cache_phase cache_phase_now(const struct peer *peer)
{
	return atomic_load_explicit(&cache_shared(peer)->phase, memory_order_acquire);
}

/* Something that others wait for has changed. */
void cache_wake_others(struct peer *peer);

enum cache_counter {
	CACHE_HITS, /* buckets, as all that say nothing else */
	CACHE_MISSES,
	CACHE_FILLS,
	CACHE_FILL_BYTES, /* from the store */
	CACHE_AHEAD,
	CACHE_BYPASSES,
	CACHE_DONATED,
	CACHE_COPIED,
	CACHE_PARTIAL,
	CACHE_EVICTED,
	CACHE_PINNED,	     /* now: pages out with readers, as far as known */
	CACHE_WRITTEN_BYTES, /* to the store */
	CACHE_WRITE_CALLS,
	CACHE_EPOCHS,  /* closed */
	CACHE_RETRIES, /* write-backs that failed and were tried again */
	CACHE_WAITS,   /* requests that had to wait for room */
	CACHE_WAITING, /* now */
	CACHE_DIRTY,   /* now, bytes */
	CACHE_USED,    /* now, bytes */
	CACHE_SIZE,    /* now, bytes */
	CACHE_ADOPTED,
	CACHE_COUNTERS
};

/* --- cache_io.c ------------------------------------------------------------------------------ */
extern peer_handler_f cache_io_read, cache_io_write, cache_io_prefetch;
/* It comes soon: fetches the descriptors of its first pages. */
void cache_io_expect(struct peer *peer, struct job *job, unsigned step);
/* Once more from the beginning, after a wait. */
void cache_io_again(struct peer *peer, struct job *job);
/* When it wants to be woken at the latest, to look at the pool; 0: no need. */
uint64_t cache_io_due_ns(const struct peer *peer);
/* Each turn, beside cache_wait_turn(): figures of volumes. */
void cache_io_turn(struct peer *peer);

/* --- cache_read.c, cache_write.c, cache_fill.c ----------------------------------------------- */
/* From position job->context (0 at first) of the answer on: what is before it has been copied. */
void cache_read(struct peer *peer, struct cache_object *object, struct job *job);
/* All of a job from buckets, answered; false: something is missing. */
bool cache_read_whole(struct peer *peer, struct cache_object *object, struct job *job);
static inline uint32_t cache_read_at(const struct job *job)
{
	return (uint32_t)((uintptr_t)job->context & ~(uintptr_t)(XSEG_SECTOR - 1));
}
static inline void cache_read_moved(struct job *job, uint32_t bytes)
{
	job->context = (void *)((uintptr_t)job->context + bytes);
}
/* Once more what was fetched for it was stale; how often by now. */
static inline unsigned cache_read_overtaken(struct job *job)
{
	unsigned times = (unsigned)((uintptr_t)job->context % XSEG_SECTOR);
	if (times < XSEG_SECTOR - 1)
		job->context = (void *)((uintptr_t)job->context + 1);
	return times + 1;
}
/* Buckets from a job's data (WRITE, or zeros: ZERO), dirty in that epoch. All or nothing: -EAGAIN:
   no room. -EBADMSG: the client has changed its request meanwhile. donate: pages are kept, so the
   job must be answered by the caller before it returns. The old pages are dropped by
   cache_write_end(), after that. */
int cache_write_buckets(struct peer *peer, struct cache_object *object, struct job *job,
	uint32_t epoch, bool donate);
void cache_write_end(struct peer *peer);
/* The store has a job's data: buckets that are there take it over; with `insert`, whole ones come
   in if there is room. Never fails: what cannot be kept is forgotten. */
void cache_write_clean(
	struct peer *peer, struct cache_object *object, struct job *job, bool insert);
/* Before it is sent: were we killed then, nobody could say which of both versions the store has. */
void cache_write_invalidate(struct peer *peer, struct cache_object *object, struct job *job);
/* The job waits for the store: buckets [first, first + count) are not all there. */
void cache_fill_read(struct peer *peer, struct cache_object *object, struct job *job,
	uint32_t first, uint32_t count);
/* Buckets that nobody has asked for yet, as far as there is room. */
void cache_fill_ahead(
	struct peer *peer, struct cache_object *object, uint32_t first, uint32_t count);

/* cache_stream.c: a read that missed. True: it goes on a sequence that is too long to be kept. */
bool cache_fill_stream(struct peer *peer, struct cache_object *object, const struct job *job);
/* A miss that is better passed on: what is fetched is seldom read again, and the store is fast. */
bool cache_fill_skips(struct cache *cache, struct cache_flow *flow);
void cache_fill_paid(
	struct cache *cache, struct cache_flow *flow, uint32_t count, uint64_t idle_ns);
/* Past us, to the store: nothing of it is dirty. */
void cache_fill_pass(struct peer *peer, struct cache_flow *flow, struct job *job);
/* A read that hit what was read ahead. */
void cache_fill_follow(struct peer *peer, struct cache_object *object, const struct job *job);

/* --- cache_mode_*.c -------------------------------------------------------------------------- */
struct cache_mode_ops {
	const char *name;
	void (*write)(struct peer *peer, struct cache_object *object, struct job *job);
};
extern const struct cache_mode_ops cache_mode_writethrough, cache_mode_writeback,
	cache_mode_writearound;
extern const struct cache_mode_ops *const cache_modes[3];
/* Is a write that goes through better handed on as it is? In write-through, most are where what
   they leave behind is seldom read, and the store is fast. */
bool cache_mode_hands_on(struct cache_flow *flow, uint32_t mode);
/* Past the buckets, to the store: `around` leaves none behind. Also for a ZERO. */
void cache_mode_through(
	struct peer *peer, struct cache_object *object, struct job *job, bool around);
/* A write that there is no room for, and nothing of which is dirty: to the store, and no bucket
   comes in for it. Should the store refuse it, it waits for room after all. */
void cache_mode_bypass(struct peer *peer, struct cache_object *object, struct job *job);

/* --- cache_bypass.c: writes that are handed on as they are ------------------------------------ */
int cache_bypass_open(struct peer *peer);
void cache_bypass_close(struct peer *peer);
/* After a start: what a predecessor has handed on and nobody has answered yet. */
void cache_bypass_adopt(struct peer *peer);
/* Hands the job on if nobody holds its buckets and nothing in them is dirty; they are forgotten
   first, and none is made until it has ended. False: it has to be waited for. object: NULL when
   there is none. */
bool cache_bypass_write(
	struct peer *peer, struct cache_flow *flow, struct cache_object *object, struct job *job);
/* Is one of these on its way there? Then nothing of that place may be kept. */
bool cache_bypass_overlaps(
	struct peer *peer, const struct cache_object *object, uint32_t first, uint32_t count);
/* Now and then: those that have ended are let go. */
void cache_bypass_turn(struct peer *peer);
bool cache_bypass_any(const struct peer *peer);
/* Has anything but a read that was passed on, in whichever phase, not been answered yet? Looks at
   all requests. */
bool cache_bypass_is_out(const struct peer *peer);

/* --- cache_bucket.c: entries and their pages ------------------------------------------------- */
/* The hooks of the index. */
extern const struct xcache_hooks cache_hooks;
/* The object of a key, with its flow, made if need be; a record is kept for it. -ENOSPC: wait;
   -EMFILE: too many volumes, pass it on. What it has neither entries nor refs for may go again at
   the next get. */
int cache_object_get(struct peer *peer, const struct xseg_key *key, struct cache_object **object);
/* The same, with the record that there is already. */
int cache_object_adopt(struct peer *peer, const struct xseg_key *key, uint32_t record,
	struct cache_object **object);
struct cache_object *cache_object_find(struct peer *peer, const struct xseg_key *key);
/* For a write that goes past, with a ref, when there are as many objects as may be: it has no
   record, so no bucket may come into it until cache_object_get() has found room. */
int cache_object_bypassing(
	struct peer *peer, const struct xseg_key *key, struct cache_object **object);
#define CACHE_OBJECTS_PAST 64u
static inline bool cache_object_is_bypassing(const struct cache_object *object)
{
	return object->record == XCACHE_NONE;
}
/* The object of an entry, loose ones too (their page says of which: a loose entry holds a ref). */
struct cache_object *cache_entry_object(struct peer *peer, uint32_t entry);
/* Sectors that hold data, mirrored from the descriptor in the high byte of an entry's flags. */
static inline unsigned cache_entry_valid(const struct xcache_entry *entry)
{
	return entry->flags >> 8;
}
/* A dirty entry goes on by itself, in its queue or on its way; its bucket is free. */
void cache_bucket_loosen(struct peer *peer, struct cache_object *object, uint32_t entry);
/* Is anything in these buckets dirty? */
bool cache_bucket_any_dirty(
	struct peer *peer, const struct cache_object *object, uint32_t first, uint32_t count);
/* Gone at once, with its page; not one that is in a queue of an epoch or on its way. */
void cache_bucket_remove(struct peer *peer, uint32_t entry);
/* Drops up to `count` clean buckets of one volume, looking at a few: how many. */
uint32_t cache_bucket_evict_flow(struct peer *peer, struct cache_flow *flow, uint32_t count);
/* A described page that this shard holds: KEPT from now on, with the next sequence. */
void cache_bucket_describe(struct peer *peer, const struct cache_object *object, uint32_t bucket,
	uint32_t page, unsigned valid, unsigned dirty, uint32_t epoch);
/* Is the key of this shard's objects? */
static inline bool cache_key_is_mine(const struct peer *peer, const struct xseg_key *key)
{
	return xseg_port_shard(key, 0, peer->shards) == peer->shard;
}
/* A clean entry or a dirty one becomes clean (called when the store has the data, by who has taken
   it out of its queue and taken away its flags but DOOMED): unparked, dirty mask 0; what is loose
   or doomed is dropped. */
void cache_bucket_cleaned(struct peer *peer, uint32_t entry);
/* Forgets buckets of an object whatever they are: those that are on their way are doomed. */
void cache_bucket_forget(
	struct peer *peer, struct cache_object *object, uint32_t first, uint32_t count);
/* Forgets clean ones; of volume 0: of all. How many. */
uint32_t cache_bucket_drop_clean(struct peer *peer, uint64_t volume);
/* cache_adopt.c: after a start, what the port keeps and is this shard's. -errno: it cannot be. */
int cache_bucket_adopt(struct peer *peer, char *why, size_t why_size);

/* --- cache_gate.c ---------------------------------------------------------------------------- */
/*
 * Buckets [first, first + count) of an object for somebody who has to wait for the store: an
 * exclusive hold keeps all others out, shared ones (a fill) keep exclusive ones out. In order:
 * nobody passes one that waits and overlaps. True: at once; false: hold->go() is called later.
 */
bool cache_gate_enter(struct peer *peer, struct cache_object *object, struct cache_hold *hold);
/* Never waits: is it free for one who is done within this turn? exclusive: no hold overlaps. */
bool cache_gate_free(
	const struct cache_object *object, uint32_t first, uint32_t count, bool exclusive);
void cache_gate_leave(struct peer *peer, struct cache_hold *hold);

/* --- cache_wait.c ---------------------------------------------------------------------------- */
/* The job waits for room, behind those that do already; cache_io_again() later. */
void cache_wait(struct peer *peer, struct job *job);
/* There may be room: called each turn, cheap when nobody waits. True when one went on. */
bool cache_wait_turn(struct peer *peer);

/* --- cache_pin.c ----------------------------------------------------------------------------- */
int cache_pin_open(struct peer *peer);
void cache_pin_close(struct peer *peer);
/* May this client have `count` pages more? */
bool cache_pin_allowed(struct peer *peer, const struct job *job, uint32_t count);
void cache_pin_note(struct peer *peer, const struct job *job, uint32_t count);
/* Pages out, as far as known. */
uint32_t cache_pin_count(const struct peer *peer);

/* --- cache_volume.c -------------------------------------------------------------------------- */
int cache_volume_open(struct peer *first);
void cache_volume_close(struct peer *first);
/* The volume, in the process; get: made if need be, NULL: too many. */
struct cache_volume *cache_volume_find(const struct peer *peer, uint64_t id);
struct cache_volume *cache_volume_get(struct peer *peer, uint64_t id);
/* `used` or `dirty` of the flow has changed; tell: once a turn, the others learn of it. */
void cache_flow_changed(struct peer *peer, struct cache_flow *flow);
void cache_flow_tell(struct peer *peer);
/* Into the queue of those that cache_flush_turn() looks at. */
void cache_flow_list(struct peer *peer, struct cache_flow *flow);
struct cache_flow *cache_flow_find(struct peer *peer, uint64_t volume);
/* The volume on this shard, made if need be; NULL: CACHE_VOLUMES_MAX are in use, pass it on. */
struct cache_flow *cache_flow_get(struct peer *peer, uint64_t volume);
/* May it take `count` buckets more of its share? */
bool cache_flow_allowed(const struct peer *peer, const struct cache_flow *flow, uint32_t count);
void cache_flow_used(struct peer *peer, struct cache_flow *flow, int32_t count);

/* --- cache_meta.c: kept records of objects, volumes' settings, the phase --------------------- */
/* bucket of the descriptor of a page of records */
#define CACHE_META_BUCKET 0xffffu
#define CACHE_META_TERMS 0xffffff00u	     /* `object` of the first page of terms */
#define CACHE_META_RECORDS (XSEG_PAGE / 32u) /* of a page */
int cache_meta_open(struct peer *first, char *why, size_t why_size); /* finds or makes */
/* A record that says `key`; -EAGAIN: no page for it now. */
int cache_meta_object(struct peer *peer, const struct xseg_key *key, uint32_t *record);
void cache_meta_object_free(struct peer *peer, uint32_t record);
/* What a record says; false: none such. */
bool cache_meta_key(const struct peer *peer, uint32_t record, struct xseg_key *key);
/* After all shards have adopted: records that nothing refers to are free. shard: only those
   whose key is steered here, or none in use. */
void cache_meta_sweep(struct peer *peer);
void cache_meta_close(struct peer *first);
/* The last shard ends and nothing is cached any more: no page of records is needed. */
void cache_meta_drop_records(struct peer *peer);
/* A kept page that is no bucket: `what` is its descriptor's `object`. */
void cache_meta_describe(struct peer *peer, uint32_t page, uint32_t what, uint64_t sequence);
/* Phase, size, policy, default setting, settings of volumes: written when they change. */
void cache_meta_save(struct peer *peer);
int cache_meta_write(struct peer *peer); /* -EAGAIN: no page for it now */
/* May one volume more have a setting of its own? */
bool cache_meta_room(const struct peer *peer);

/* --- cache_term.c: of which term what is kept of a volume is ------------------------------- */

/* -EAGAIN: no page for it now; then nothing has changed. */
int cache_term_keep(struct peer *peer, struct cache_volume *volume, uint64_t term);
/* Those that volumes have in memory alone: after a replay of the journal. */
int cache_term_keep_all(struct peer *peer);
void cache_term_open_page(struct peer *first, uint32_t page, uint32_t ordinal);
void cache_term_open(struct peer *first);
void cache_term_drop(struct peer *peer); /* nothing is kept of any volume */

/* --- cache_epoch.c --------------------------------------------------------------------------- */
/* The epoch for a write that is about to be made on this shard; others cannot pass it by now. */
uint32_t cache_epoch_enter(struct peer *peer, struct cache_flow *flow);
/* The entry (PARKED or LOOSE, page kept and described) is dirty in that epoch. */
void cache_epoch_add(struct peer *peer, struct cache_flow *flow, uint32_t entry, uint32_t epoch);
/* Many at once: `list` of them, linked by cache_epoch_link(), their page and flags (CACHE_E_DIRTY)
   and word (the epoch) filled in. It is empty afterwards. */
void cache_epoch_join(
	struct peer *peer, struct cache_flow *flow, struct cache_list *list, uint32_t epoch);
/* Entered, and nothing was added after all (no room): cache_epoch_add() needs to be called within
   the same turn as cache_epoch_enter(), or this. */
void cache_epoch_leave(struct peer *peer);
/* Is no longer: overwritten in the same epoch, or forgotten. Not while CACHE_E_WRITING. */
void cache_epoch_remove(struct peer *peer, struct cache_flow *flow, uint32_t entry);
/* Is there an epoch older than the open one with something dirty, or is this one's closed? */
bool cache_epoch_is_closed(const struct cache_flow *flow, uint32_t epoch);
/* Closes the open epoch if it has anything in it; the last closed one. */
uint32_t cache_epoch_close(struct peer *peer, struct cache_flow *flow);
/* May `count` more buckets become dirty? CACHE_ROOM_LITTLE: what can do without had better (half
   way from the soft to the hard limit); CACHE_ROOM_NONE: wait. Write-back is told to hurry. */
enum cache_room { CACHE_ROOM_NONE, CACHE_ROOM_LITTLE, CACHE_ROOM_ENOUGH };
enum cache_room cache_epoch_room(struct peer *peer, uint32_t count);

/* For cache_flush.c: the lists of an epoch, and its numbers. */
void cache_epoch_link(struct cache *cache, struct cache_list *list, uint32_t entry, bool first);
void cache_epoch_unlink(struct cache *cache, struct cache_list *list, uint32_t entry);
/* An entry that is in no list any more is not dirty any more. */
void cache_epoch_forget(struct peer *peer, struct cache_flow *flow, uint32_t entry);
void cache_epoch_raise(_Atomic uint32_t *place, uint32_t number);
/* The epoch up to which all that has been written so far lies: the open one, if there is
   anything in it. */
uint32_t cache_epoch_goal(const struct cache_flow *flow);
/* Is more dirty than that share of the cache? */
bool cache_dirty_over(const struct peer *peer, uint64_t percent, uint32_t more);

/* --- cache_flush.c --------------------------------------------------------------------------- */
/* Each turn: starts write-backs that are due, sees to waiting syncs, errors, rates. True when
   something moved. */
bool cache_flush_turn(struct peer *peer);
/* When it wants to be woken at the latest; 0: no need. */
uint64_t cache_flush_due_ns(struct peer *peer);
/* Calls barrier->done() when all of the volume that is dirty now, on all shards, is at the blocker
   and flushed, and clean here; that may be at once, before it returns. Failed write-backs are tried
   again, not reported. The barrier is the caller's and stays until then. */
void cache_flush_barrier(struct peer *peer, struct cache_flow *flow, struct cache_barrier *barrier);

/* --- cache_sync.c ---------------------------------------------------------------------------- */
extern peer_handler_f cache_sync_flush;
/* A FUA write whose buckets are dirty in `epoch`: completes the job when they are where the
   volume's ack wants them. The job must not have donated pages. */
void cache_sync_write(struct peer *peer, struct cache_flow *flow, struct job *job, uint32_t epoch);
/* Something was written past the buckets: the store owes a flush. */
void cache_sync_wrote(struct peer *peer, struct cache_flow *flow);
/* A flush is asked for: what is handed on and may have been answered has to be covered by it. */
void cache_sync_owes(struct peer *peer, struct cache_flow *flow);
/* XSEG_CONTROL_LEAVE and _FENCE: the job goes on when the store has all there is, or fails. */
void cache_sync_leave(struct peer *peer, struct job *job);
/* A FENCE that has waited for that: what is clean is dropped, and it is handed on. */
void cache_control_fenced(struct peer *peer, struct job *job);

/* --- cache_barrier.c: what the store has to do itself ----------------------------------------- */
#define CACHE_BARRIER_SIZE 512u /* an item of the pool `barrier_ops` */
extern peer_handler_f cache_barrier_zero, cache_barrier_discard, cache_barrier_delete,
	cache_barrier_copy, cache_barrier_info, cache_barrier_list, cache_barrier_status;

/* --- cache_control.c ------------------------------------------------------------------------- */
extern peer_handler_f cache_control;
/* Each turn: what another shard was asked for. */
bool cache_control_turn(struct peer *peer);
/* Does it have to look again soon? */
bool cache_control_busy(const struct peer *peer);

/* --- cache_replay.c -------------------------------------------------------------------------- */
/* When the segment is new and the journal is not: this shard's part becomes dirty again. */
int cache_replay(struct peer *peer, char *why, size_t why_size);

/* --- cache_main.c ---------------------------------------------------------------------------- */
uint64_t cache_size_min(const struct peer *peer); /* bytes */
uint64_t cache_size_max(const struct peer *peer);
uint32_t cache_objects_max(const struct peer *peer); /* of this shard */
/* The limits of this shard's index, from shared->size. */
void cache_size_apply(struct peer *peer);
const struct xcache_policy *cache_policy_of(uint32_t policy);

#endif
