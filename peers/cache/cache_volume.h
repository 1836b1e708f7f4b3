/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A volume: what the shards of the process share of it, in atomics, and what each keeps for itself.
 *
 * Units: buckets where nothing else is said. Errors: 0 or -errno. Ownership: the process', and the
 * shard's. Threads: atomics any lane, all else the shard's. Blocking: none.
 */
#ifndef SKERRY_CACHE_VOLUME_H
#define SKERRY_CACHE_VOLUME_H

#include <peer/job.h>
#include <stdatomic.h>
#include <xseg/layout.h>

#include "peers/cache/cache_admit.h"
#include "peers/cache/cache_epoch.h"
#include "peers/cache/cache_journal.h"

#define CACHE_VOLUMES_MAX 65536u /* ever seen; requests of others are forwarded */
#define CACHE_VOLUME_SLOTS (2u * CACHE_VOLUMES_MAX)

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
	_Atomic uint32_t durable;  /* up to and with this one all is at the blocker, and flushed */
	_Atomic uint32_t flushing; /* a shard flushes the store for the volume now */
	_Atomic uint32_t touched;  /* the last epoch that was written in */
	_Atomic uint32_t wanted;   /* up to and with this one somebody waits for `durable` */
	_Atomic uint32_t failures; /* grows: a write-back or flush has failed */
	_Atomic uint32_t redo;	   /* grows: a flush has failed, what was written is in doubt */
	/* the last epoch that has writes which are not durable when they are answered, and the last
	   with some that may then be in a journal on the way */
	_Atomic uint32_t plain, unsettled;
	_Atomic uint64_t calm_ns; /* for want of room alone no epoch is closed before */
	_Atomic uint32_t phases;  /* of the cache, when it was counted in `forwarded` last */
	_Atomic uint32_t bypass;  /* shards that have entries of writes on their way past them */
	/* writes that went past the epochs, as far as answered, and as far as flushed */
	_Alignas(64) _Atomic uint64_t forwarded, forwarded_flushed; /* from here on: each turn */
	_Atomic int error;	    /* of the last write-back or flush; 0: none */
	_Atomic uint64_t term;	    /* of its home record, as heard last; 0: unknown */
	_Atomic uint64_t next_term; /* what is older is being thrown away */
	_Atomic uint64_t settled;   /* cache_sync_sign() of what is at the store; 0: unknown */
	_Atomic uint32_t settling;  /* FLUSHes that wait for that */
	_Atomic bool discards; /* up to and with discard_epoch nothing is written back any more */
	_Atomic uint32_t discard_epoch;
	_Atomic uint64_t used;	/* buckets */
	_Atomic uint64_t dirty; /* buckets, loose ones too */
	_Atomic uint64_t hits, misses, fills, bypasses, evictions, written, write_calls;
	_Atomic uint32_t read_bypass, write_bypass; /* lanes that bypass most: cache_admit.h */
	/* per shard: the lowest epoch it has dirty buckets of, or CACHE_NO_EPOCH */
	_Alignas(64) _Atomic uint32_t low[XSEG_PORT_LANES_MAX];
	/* per shard: the lowest epoch it has buckets of that are written and not yet clean */
	_Atomic uint32_t written_low[XSEG_PORT_LANES_MAX];
	_Atomic uint64_t since_ns[XSEG_PORT_LANES_MAX]; /* per shard: its oldest dirty; 0: none */
	_Atomic uint32_t redone[XSEG_PORT_LANES_MAX];	/* per shard: the `redo` it has seen to */
};

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

struct cache_bypass;

struct cache_local {
	struct cache_volume *volume;
	struct cache_epoch_queue epochs; /* oldest first */
	struct job_queue syncs;		 /* FLUSH and FUA that wait for their epoch: arg0 */
	struct cache_barrier_queue barriers;
	bool listed;	  /* in dirty_flows */
	bool unpublished; /* `used` or `dirty` has changed since the others heard */
	uint32_t used_published, dirty_published;
	LIST_ENTRY(cache_local) unpublished_link;
	/* a flush of the store that this shard has sent */
	uint32_t sent_epoch;
	uint64_t sent_forwarded;
	uint64_t sent_sign;		 /* 0: not with FUA */
	struct cache_journal_batch mark; /* of it */
	struct cache_batch *batch;	 /* what the journal is given now */
	uint32_t failures_seen;
	struct cache_stream streams[CACHE_STREAMS];
	unsigned stream_next;
	struct cache_admission reads, writes;
	uint32_t bypass;      /* in-flight entries */
	uint32_t dirty, used; /* on this shard */
	uint64_t retry_ns;    /* the store failed: not before */
	uint64_t backoff_ns;
	uint64_t flush_ns;  /* when the store's flush was sent */
	uint64_t bypass_ns; /* a write that went past has failed: none before that time */
	TAILQ_ENTRY(cache_local) link; /* of those with something dirty */
	LIST_ENTRY(cache_local) chain;
	struct cache_tally tally;
	LIST_ENTRY(cache_local) tallied;
};
TAILQ_HEAD(cache_local_queue, cache_local);
LIST_HEAD(cache_local_list, cache_local);
#define CACHE_LOCAL_CHAINS 4096u

/* A bucket that was written through has been read, or has gone unread. */
#define CACHE_WRITE_WINDOW 128u
static inline void cache_volume_write_known(struct cache_local *local, bool read)
{
	local->writes.read += read;
	cache_admit_came(&local->writes, 1, CACHE_WRITE_WINDOW, &local->volume->write_bypass);
}

int cache_volume_open(struct peer *first);
void cache_volume_close(struct peer *first);
/* The volume, in the process; get: made if need be, NULL: too many. */
struct cache_volume *cache_volume_find(const struct peer *peer, uint64_t id);
struct cache_volume *cache_volume_get(struct peer *peer, uint64_t id);
/* `used` or `dirty` of the volume on this shard has changed; publish: once a turn, so that the
   other shards see it. */
void cache_volume_changed(struct peer *peer, struct cache_local *local);
void cache_volume_publish(struct peer *peer);
/* Into the queue of those that cache_flush_turn() looks at. */
void cache_epoch_enqueue(struct peer *peer, struct cache_local *local);
struct cache_local *cache_volume_local_find(struct peer *peer, uint64_t volume);
/* The volume on this shard, made if need be; NULL: CACHE_VOLUMES_MAX are in use, pass it on. */
struct cache_local *cache_volume_local_get(struct peer *peer, uint64_t volume);
/* May it take `count` buckets more of its share? */
bool cache_volume_allows(const struct peer *peer, const struct cache_local *local, uint32_t count);
void cache_volume_use(struct peer *peer, struct cache_local *local, int32_t count);

/* --- cache_term.c: the term that belongs to what is kept of a volume */
/* -EAGAIN: no page for it now; then nothing has changed. */
int cache_term_persist(struct peer *peer, struct cache_volume *volume, uint64_t term);
/* Those that volumes have in memory alone: after a replay of the journal. */
int cache_term_persist_all(struct peer *peer);
void cache_term_open_page(struct peer *first, uint32_t page, uint32_t ordinal);
void cache_term_open(struct peer *first);
void cache_term_drop(struct peer *peer); /* nothing is kept of any volume */

#endif
