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
 *   cache_io.c       a request comes in: phase, range, mode        cache_read.c     hits, misses
 *   cache_write.c    buckets from writes: donated, copied, partial
 *   cache_mode_*.c   what a write does in each mode, behind cache_modes[]
 *   cache_bypass.c     writes handed on as they are, on their way past us
 *   cache_fill.c     from the store into buckets, read-ahead, bypass
 *   cache_bucket.c   entries and pages: put, drop, clean        cache_adopt.c    after a start
 *   cache_range.c     who has which part of an object, who waits for it
 *   cache_wait.c     who waits for room                           cache_pin.c      pins and quota
 *   cache_barrier.c      zero, discard, delete, copy, info, list, status
 *   cache_volume.c   volumes of the process, their share          cache_meta.c     kept records
 *   cache_term.c     kept terms of volumes
 *   cache_admit.c    is it worth its place?                     cache_size.c     limits
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

#include <base/slab.h>
#include <peer/cache.h>
#include <peer/call.h>
#include <peer/keep.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <xseg/layout.h>
#include <xseg/port.h>

#include "peers/cache/cache_volume.h"
#include "peers/cache/xcache.h"

#define CACHE_STORE 0u		 /* the edge */
#define CACHE_TERM_PAGES 256u	 /* of 256 terms each */
#define CACHE_RUN_MAX (1u << 20) /* bytes of one write-back */
#define CACHE_SECTORS (XSEG_PAGE / XSEG_SECTOR)
#define CACHE_ALL_SECTORS 0xffu

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

/* --- shared by the shards of a process ------------------------------------------------------- */

struct cache_journal;

struct cache_shared {
	pthread_mutex_t lock;	 /* to make a volume, to change settings; never on the data path */
	_Atomic uint32_t phase;	 /* enum cache_phase */
	_Atomic uint32_t phases; /* grows: it has changed */
	_Atomic uint32_t policy;
	_Atomic uint64_t size;		   /* bytes */
	_Atomic uint32_t mode, ack, share; /* of volumes that have no setting of their own */
	_Atomic uint64_t asked; /* grows: shards do what `ask` says; see cache_control.c */
	_Atomic uint32_t ask;
	_Atomic uint64_t drop_volume, drop_count;
	_Atomic uint32_t asked_done; /* shards that have done what was asked */
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

/* --- a shard --------------------------------------------------------------------------------- */

struct cache_pins;

/* What one request needs for a moment. */
struct cache_scratch {
	uint32_t entries[XCACHE_BUCKETS], pages[XCACHE_BUCKETS];
	bool given[XCACHE_BUCKETS];	/* the page is the request's own */
	uint32_t drops[XCACHE_BUCKETS]; /* pages that were replaced: see cache_write_end() */
	uint32_t drop_count;
};

/* Fixed pools of the shard: see cache_main.c. */
struct cache_pools {
	struct slab objects, locals, epochs, works, runs, barriers, batches;
};

/* Jobs that wait for room, in order; cache_wait.c. */
struct cache_waiting {
	struct job_queue jobs;
	uint32_t count;
	const struct job *retried; /* it has waited, and is at the head */
};

/* Write-back; cache_flush.c, cache_run.c, cache_sync.c. */
struct cache_writeback {
	struct cache_local_queue locals; /* with something dirty */
	uint32_t dirty, writing;	 /* buckets; writing: on their way */
	uint32_t dirty_published;
	uint64_t rate_ns;   /* background write-back may go on then */
	uint64_t due_ns;    /* it wants to look again then; 0: no need */
	uint32_t runs_out;  /* write-backs on their way */
	uint32_t runs_max;  /* however far away the store is */
	uint64_t alone_ns;  /* one alone takes so long, as far as is known */
	uint64_t took_ns;   /* so long did the last one of those that need not be durable */
	uint32_t calls_out; /* flushes of the store on their way */
	unsigned stop_failures;
	bool in_local; /* cache_flush_local() is at work */
	bool gave_up;  /* stopping, and the store has failed: what is dirty stays kept */
};

/* What this shard does for another, and what shard 0 waits for; cache_control.c. */
struct cache_asked {
	uint64_t seen; /* of shared->asked */
	uint32_t doing, leading;
	bool shrinking; /* more than the limit is cached */
	struct job *job;
	struct job *begin;	 /* waits for the drain under way to be broken off */
	struct job_queue fences; /* wait for what is clean to be dropped */
	uint64_t since_ns;
};

struct cache {
	struct peer *peer;
	struct xcache *index;
	uint32_t objects_max; /* that the index may have */
	uint64_t sequence;    /* of the last page kept */
	struct cache_local_list locals[CACHE_LOCAL_CHAINS];
	struct cache_local *last_local;
	struct cache_local_list unpublished, tallied;
	struct cache_pools pools;
	struct cache_waiting waiting;
	struct cache_writeback writeback;
	struct cache_asked asked;
	struct cache_pins *pins;
	struct cache_bypass *bypass;
	struct cache_scratch scratch;
	struct xseg_page_descriptor *descriptors; /* of the segment */
	const struct job *admitted; /* it has waited for its range, and goes through now */
	uint32_t record_free;	    /* kept records of objects that are free: a list through them */
	uint32_t sweep;		    /* cache_bucket_evict_local() goes on there */
	uint32_t pinned_shown;
	uint32_t passed; /* turns in which all was passed on: a fill from before is not kept */
	uint32_t writes_through; /* writes on their way past the buckets */
	uint32_t pulse_seen;	 /* of shared->pulse */
	uint64_t pool_seen_ns;	 /* when the pool was looked at */
	uint64_t pool_count_ns;	 /* free pages are not counted before that */
	uint64_t turn_ns;	 /* when this turn began */
	uint64_t idle_ns;	 /* of all turns in which nothing was read */
	bool hurry;		 /* cache_flush_turn() has something to look at */
	bool filling;		 /* who waited for a fill is answered */
	bool adopted, stopping;
};

/* A figure of the volume's has changed: it is added to the shared ones at the end of the turn. */
static inline void cache_tally(struct cache *cache, struct cache_local *local)
{
	if (local->tally.listed)
		return;
	local->tally.listed = true;
	LIST_INSERT_HEAD(&cache->tallied, local, tallied);
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

/* Once more from the door on, after a wait: whoever lets a job wait need not know who serves it. */
static inline void cache_again(struct peer *peer, struct job *job)
{
	peer->ops->on[job->op](peer, job);
}

/* Something that others wait for has changed. */
void cache_volume_wake_others(struct peer *peer);

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
extern peer_handler_f cache_io_read, cache_io_write, cache_io_zero, cache_io_prefetch;
/* It comes soon: fetches the descriptors of its first pages. */
void cache_io_expect(struct peer *peer, struct job *job, unsigned step);
/* When it wants to be woken at the latest, to look at the pool; 0: no need. */
uint64_t cache_io_due_ns(const struct peer *peer);
/* Each turn, beside cache_wait_turn(): figures of volumes. */
void cache_io_turn(struct peer *peer);

/* --- cache_wait.c ---------------------------------------------------------------------------- */
/* The job waits for room, behind those that do already; cache_again() later. */
void cache_wait(struct peer *peer, struct job *job);
/* There may be room: called each turn, cheap when nobody waits. True when one went on. */
bool cache_wait_turn(struct peer *peer);

/* --- cache_pin.c ----------------------------------------------------------------------------- */
int cache_pin_open(struct peer *peer);
void cache_pin_close(struct peer *peer);
/* May this client have `count` pages more? */
bool cache_pin_allowed(struct peer *peer, const struct job *job, uint32_t count);
void cache_pin_add(struct peer *peer, const struct job *job, uint32_t count);
/* Pages out, as far as known. */
uint32_t cache_pin_count(const struct peer *peer);

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

/* --- cache_size.c: limits -------------------------------------------------------------------- */
uint64_t cache_size_min(const struct peer *peer); /* bytes */
uint64_t cache_size_max(const struct peer *peer);
/* Objects of this shard: as many as there may be now, and with so many buckets. */
uint32_t cache_size_objects(const struct peer *peer);
uint32_t cache_size_objects_of(const struct peer *peer, uint64_t buckets);
/* What was asked for may not fit this segment or these lanes: it is made to. */
void cache_size_fit(struct peer *first);
/* The limits of this shard's index, from shared->size. */
void cache_size_apply(struct peer *peer);

#endif
