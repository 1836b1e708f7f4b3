/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tier: what a far store (edge "store") has, kept in a near one as well ("store-near"). It is a
 * clean copy: a write is answered when the far store has it. To lose the near one costs only time.
 *
 *   read    all of it near: from there. Else small ones go to the far store as they are, and what
 *           is around them is fetched behind them; large ones are fetched, answered, then put near
 *   change  to both, when something of it is near or it covers whole chunks; else to the far one
 *   pull    fetches what was missed, then what PREFETCH named, then what was touched first the last
 *           time, then all there is (pull=yes), `parts` at a time
 *   check   what was near before another host had the volume is in doubt: pull compares digests
 *           with the far store, and fetches what is not the same
 *
 * An object is in chunks of 64 KiB; `present` says which of them the near store has. A log in the
 * near store makes that durable (tier_log.c, docs/format-tier.md):
 *
 *   - a chunk is logged as present after a FLUSH of the near store;
 *   - before an object that is logged is changed, it is logged as unstable. What is unstable does
 *     not count in another life of the segment, where a change may be at one of the stores only;
 *   - a chunk that is not present any more is logged as such before the change is answered.
 *
 * Threads: one lane. Blocking: none.
 */
#ifndef SKERRY_PEERS_TIER_TIER_H
#define SKERRY_PEERS_TIER_TIER_H

#include <errno.h>
#include <peer/call.h>
#include <peer/store.h>
#include <stdlib.h>
#include <string.h>

#define TIER_CHUNK 65536u
#define TIER_CHUNKS 64u /* of the largest object */
fixed(TIER_CHUNK *TIER_CHUNKS == XSEG_OBJECT_MAX);
#define TIER_PART_CHUNKS 16u   /* fetched at once by pull */
#define TIER_SMALL 16384u      /* reads up to here are not made larger */
#define TIER_VOLUME UINT64_MAX /* of the tier's own objects */
#define TIER_TOUCH_MAX 65536u
#define TIER_VOLUME_BUCKETS_SHIFT 10
#define TIER_VOLUME_BUCKETS ((size_t)1 << TIER_VOLUME_BUCKETS_SHIFT)

enum { TIER_FAR, TIER_NEAR }; /* edges */

/* --- what lies in the near store: docs/format-tier.md --- */

#define TIER_BLOCK XSEG_PAGE
#define TIER_BLOCK_ENTRIES 127u
#define TIER_RECORD 64u

enum { TIER_ENTRY_UNSTABLE = 1, TIER_ENTRY_TERM = 2 };

struct tier_entry {
	struct xseg_key key;
	uint64_t value; /* chunks that are present, or a term */
	uint32_t flags;
	uint32_t reserved;
};
fixed(sizeof(struct tier_entry) == 32);

struct tier_block {
	uint32_t checksum; /* crc32c of all after it */
	uint32_t count;
	uint64_t generation;
	uint64_t number; /* 0 first */
	uint64_t reserved;
	struct tier_entry entry[TIER_BLOCK_ENTRIES];
};
fixed(sizeof(struct tier_block) == TIER_BLOCK);

struct tier_record {
	uint8_t magic[8];
	uint32_t version;
	uint32_t checksum; /* crc32c of all after it */
	uint64_t generation;
	uint8_t segment[16]; /* the segment's uuid */
	uint8_t reserved[24];
};
fixed(sizeof(struct tier_record) == TIER_RECORD);

struct tier_options {
	bool pull;
	uint64_t parts, rate, size, interval;
};

/* Who is fetched first. */
enum tier_want { TIER_WANT_FAULT, TIER_WANT_USER, TIER_WANT_TOUCHED, TIER_WANT_ALL, TIER_WANTS };

struct tier_fill;
TAILQ_HEAD(tier_fills, tier_fill);
TAILQ_HEAD(tier_objects, tier_object);

/* What there is of a volume is asked for once, and again when another host has had it. */
enum tier_listing { TIER_LISTING_NOT, TIER_LISTING_NOW, TIER_LISTING_TWICE, TIER_LISTING_DONE };

struct tier_volume {
	LIST_ENTRY(tier_volume) chain;
	uint64_t id;
	uint64_t term;		  /* we had it to write to; 0: never */
	uint64_t term_logged;	  /* durable */
	uint64_t cursor;	  /* what there is of it is asked for from there on */
	struct job_queue blocked; /* FENCEs that wait for the log */
	bool lost;	 /* another host has it: nothing of it is kept, until we have it again */
	uint8_t listing; /* enum tier_listing */
	bool flush, in_terms;
	TAILQ_ENTRY(tier_volume) log_link, list_link;
};
struct tier_object {
	struct xseg_key key;
	struct tier_volume *volume;
	LIST_ENTRY(tier_object) chain;
	TAILQ_ENTRY(tier_object) order; /* of eviction */
	TAILQ_ENTRY(tier_object) want_link, log_link, changed_link;
	uint64_t present;
	uint64_t logged;	  /* what the log may say is present */
	uint64_t doubt;		  /* near, but maybe old; not present */
	uint64_t want;		  /* to be pulled */
	uint64_t snap;		  /* present at the last FLUSH of the near store */
	struct job_queue blocked; /* served again when something of the object has ended */
	struct job_queue writes;  /* on their way */
	struct tier_fills fills;
	uint32_t extent; /* chunks in the far store; 0: not known */
	uint32_t grown;	 /* chunks up to the last one that was changed from here */
	uint32_t reads;	 /* of the near store, on their way */
	uint32_t copies; /* to other objects, on their way in both stores */
	uint8_t wanted;	 /* enum tier_want: the queue it is in; TIER_WANTS: none */
	bool unstable;	 /* so it is logged, for sure */
	bool written;	 /* since the last FLUSH of the near store */
	bool hot;	 /* ... and before that one was asked for */
	bool in_urgent, in_changed;
	bool evicting, deleting; /* not served until the near store has forgotten it */
	bool used;		 /* since the hand came by */
	bool touched;		 /* it is in the list of those that were touched */
	bool measuring;		 /* how much of it there is is being asked for */
};
LIST_HEAD(tier_chain, tier_object);

/* A part of an object on its way here from the far store, and then to the near one; or one that is
   in doubt, and is being compared. */
struct tier_fill {
	TAILQ_ENTRY(tier_fill) link;
	struct tier *tier;
	struct tier_object *object;
	struct call *call;	 /* a check: reads the near store */
	struct call *digest;	 /* a check: asks the far store; NULL: no check */
	unsigned asked;		 /* a check: answers that are missing */
	struct job_queue joined; /* answered with it */
	uint64_t mask;
	uint64_t poison; /* changed meanwhile: not to be put near */
	unsigned stores;
	bool pulled;
};

LIST_HEAD(tier_volumes, tier_volume);
TAILQ_HEAD(tier_volume_queue, tier_volume);

enum tier_state {
	TIER_STATE_LOADING,
	TIER_STATE_ON,
	TIER_STATE_LEAVING, /* the near store fails: what it has is being declared void */
	TIER_STATE_OFF,	    /* everything goes to the far store */
};

/* Blocks of entries on their way to the near store, or from it. */
struct tier_blocks {
	struct tier *tier;
	struct tier_block *block;
	size_t count, room;	    /* blocks */
	size_t at;		    /* of them, on the way or done */
	uint64_t generation, first; /* number of the first of them */
	bool touch;		    /* of the list of what was touched, not of the log */
	int error;
	void (*entry)(struct tier *tier, const struct tier_entry *entry); /* reading */
	void (*done)(struct tier_blocks *blocks);
};

enum tier_log_step { TIER_LOG_IDLE, TIER_LOG_APPEND, TIER_LOG_REWRITE, TIER_LOG_SWITCH };

/* What an entry that is on its way says of an object, or of a volume. */
struct tier_said {
	struct tier_object *object; /* or NULL: */
	struct tier_volume *volume;
	uint64_t value;
	bool unstable;
};

struct tier_log {
	struct tier *tier;
	uint8_t step;		      /* enum tier_log_step */
	uint64_t generation, version; /* of the record */
	uint64_t length;	      /* blocks of this generation */
	struct tier_blocks blocks;
	struct tier_said *said;
	size_t said_count, said_room;
	struct tier_objects urgent; /* somebody waits for it */
	struct tier_volume_queue terms;
	/* FLUSH of the near store: of what has changed since the last one */
	struct tier_objects changed, flushed;
	unsigned flushes; /* on their way */
	int flush_error;
	bool flushing;
	uint64_t next_ns;
	bool other_life; /* the log was written in another life of the segment */
};

struct tier {
	struct peer *peer;
	const struct tier_options *options;
	uint8_t state; /* enum tier_state */
	struct tier_chain *objects;
	struct tier_volumes *volumes;
	struct tier_objects order;
	struct job_queue loading; /* served when all is loaded */
	struct tier_log log;
	/* pull */
	struct tier_objects wants[TIER_WANTS];
	struct tier_objects measuring; /* wanted, but how large they are is not known */
	struct tier_volume_queue unlisted;
	unsigned pulling; /* parts on their way */
	uint64_t tokens_ns, pause_ns;
	bool is_short;	 /* of requests or pages: it is tried again soon */
	bool no_digests; /* the far store does not know them */
	struct xseg_key last_miss;
	int64_t stride;
	struct xseg_key *touch;
	uint32_t touch_count, touch_saved;
	struct tier_blocks touch_blocks;
	bool touch_busy;
	/* figures */
	uint64_t present;  /* bytes */
	uint64_t known;	   /* objects */
	uint64_t left;	   /* chunks wanted */
	uint64_t held;	   /* chunks on their way */
	uint64_t retry_ns; /* the near store is tried again */
	unsigned evictions;
	uint64_t listed; /* volumes */
};

enum {
	TIER_C_HITS,
	TIER_C_MISSES,
	TIER_C_PULLED,
	TIER_C_UNCHANGED,
	TIER_C_PRESENT,
	TIER_C_LEFT,
	TIER_C_LISTED,
	TIER_C_EVICTED,
	TIER_C_DROPPED,
	TIER_C_LOGGED,
	TIER_C_ERRORS,
	TIER_C_OFF,
	TIER_COUNTERS
};

static inline struct tier *tier_of(struct peer *peer) { return peer->state; }

/* Chunks that [offset, offset + length) touches; whole: that lie in it. */
static inline uint64_t tier_bits(unsigned from, unsigned to) /* [from, to) */
{
	uint64_t below = to >= 64 ? UINT64_MAX : ((uint64_t)1 << to) - 1;
	return from >= to ? 0 : below & ~(((uint64_t)1 << from) - 1);
}
static inline uint64_t tier_touched(uint64_t offset, uint64_t length)
{
	return tier_bits((unsigned)(offset / TIER_CHUNK),
		(unsigned)((offset + length + TIER_CHUNK - 1) / TIER_CHUNK));
}
static inline uint64_t tier_whole(uint64_t offset, uint64_t length)
{
	return tier_bits((unsigned)((offset + TIER_CHUNK - 1) / TIER_CHUNK),
		(unsigned)((offset + length) / TIER_CHUNK));
}
/* The first row of ones in a mask, of at most `max`. */
static inline uint64_t tier_run(uint64_t mask, unsigned max)
{
	unsigned from = (unsigned)__builtin_ctzll(mask), to = from;
	while (to < 64 && to - from < max && (mask >> to) & 1)
		to++;
	return tier_bits(from, to);
}
static inline uint32_t tier_run_at(uint64_t run)
{
	return (uint32_t)__builtin_ctzll(run) * TIER_CHUNK;
}
static inline uint32_t tier_run_size(uint64_t run)
{
	return (uint32_t)__builtin_popcountll(run) * TIER_CHUNK;
}

/* --- objects (tier_object.c) --- */

int tier_object_open(struct tier *tier);
void tier_object_close(struct tier *tier);
struct tier_object *tier_object_find(const struct tier *tier, const struct xseg_key *key);
/* Found or made; NULL: no memory. */
struct tier_object *tier_object_get(struct tier *tier, const struct xseg_key *key);
struct tier_volume *tier_object_volume(struct tier *tier, uint64_t id);
/* Those that have the same number in the same volume, in any epoch: the first, the next. */
struct tier_object *tier_object_first(const struct tier *tier, uint64_t volume, uint32_t number);
struct tier_object *tier_object_next(const struct tier_object *object);
/* Not what another host has, nor a map of a volume that was never ours to write to: a map changes
   under its key, and must not be older than the data. */
bool tier_object_may_be_kept(const struct tier_object *object);
/* Something of it may be at one of the stores only. */
static inline bool tier_object_changes(const struct tier_object *object)
{
	return object->written || !TAILQ_EMPTY(&object->writes);
}
/* Changes what is present, and counts it. */
void tier_object_present(struct tier *tier, struct tier_object *object, uint64_t present);
/* These chunks are near, and may not be what the far store has. */
void tier_object_doubt(struct tier *tier, struct tier_object *object, uint64_t doubt);
/* Those that wait for it are served again. */
void tier_object_wake(struct tier *tier, struct tier_object *object);
/* Nothing of the volume is present; of its data all is in doubt. */
void tier_object_drop(struct tier *tier, const struct tier_volume *volume);
/* The log says so: now the near store may. */
void tier_object_evicted(struct tier *tier, struct tier_object *object);
/* Makes room, if there is a limit. */
void tier_object_evict(struct tier *tier);

/* --- requests (tier_serve.c, tier_read.c, tier_change.c, tier_fence.c) --- */

void tier_serve(struct peer *peer, struct job *job);
/* All of them, from the beginning. */
void tier_serve_all(struct tier *tier, struct job_queue *jobs);
/* In a later turn: slots or pages are short. */
void tier_serve_retry(struct job *job);
/* A request of the tier's own, with room for so many bytes. -EAGAIN. */
int tier_serve_call(struct tier *tier, enum xseg_op op, struct xseg_key key, uint64_t offset,
	uint32_t bytes, struct call **call);
void tier_read(struct tier *tier, struct tier_object *object, struct job *job);
void tier_change(struct tier *tier, struct tier_object *object, struct job *job);
/* The chunks of which it changes something. */
uint64_t tier_change_mask(const struct job *job);
/* What is on its way is not present afterwards: it may be older than what the far store has. */
void tier_change_spoil(struct tier_object *object);
void tier_fence(struct tier *tier, struct job *job);

/* --- parts on their way (tier_fill.c) --- */

/* A new one, with what spoils it; nothing is asked yet. NULL: *error is -EAGAIN, too much is on its
   way, or -ENOMEM. */
struct tier_fill *tier_fill_new(
	struct tier *tier, struct tier_object *object, uint64_t mask, bool pulled, int *error);
/* It is on its way. */
void tier_fill_join(struct tier_fill *fill);
void tier_fill_end(struct tier_fill *fill, int error);
/* Fetches these chunks, which are one row. -EAGAIN: too much is on its way; -ENOMEM. */
int tier_fill_begin(struct tier *tier, struct tier_object *object, uint64_t mask, bool pulled,
	struct tier_fill **fill);
/* One on its way that a read can be answered with, or NULL. */
struct tier_fill *tier_fill_find(struct tier_object *object, uint64_t mask);
uint64_t tier_fill_mask(const struct tier_object *object);
/* Is one of these chunks being put near? */
bool tier_fill_stores(const struct tier_object *object, uint64_t mask);
void tier_fill_poison(struct tier_object *object, uint64_t mask);

/* Are these chunks, which are in doubt and one row, still what the far store has? -EAGAIN,
   -ENOMEM. */
int tier_check_begin(struct tier *tier, struct tier_object *object, uint64_t mask);

/* --- what to fetch (tier_pull.c) --- */

void tier_pull_want(struct tier *tier, struct tier_object *object, uint64_t mask, unsigned want);
void tier_pull_unwant(struct tier *tier, struct tier_object *object);
/* A read has missed it: it and its neighbours. */
void tier_pull_miss(struct tier *tier, struct tier_object *object, uint64_t mask);
/* Something of the volume was asked for. */
void tier_pull_volume(struct tier *tier, struct tier_volume *volume);
/* Another host may have changed what there is of it. */
void tier_pull_again(struct tier *tier, struct tier_volume *volume);
void tier_pull_touched(struct tier *tier, struct tier_object *object);
void tier_pull_filled(struct tier *tier, struct tier_object *object, uint64_t mask, int error);
bool tier_pull_turn(struct tier *tier);
/* What was touched first the last time. */
void tier_pull_recall(struct tier *tier, const struct tier_entry *entry);
bool tier_pull_quiet(const struct tier *tier);
uint64_t tier_pull_wake_ns(const struct tier *tier);

/* --- what is durable (tier_log.c, tier_load.c) --- */

/* It is written soon what is so for sure; its blocked jobs are served again then. */
void tier_log_urgent(struct tier *tier, struct tier_object *object);
void tier_log_term(struct tier *tier, struct tier_volume *volume);
void tier_log_changed(struct tier *tier, struct tier_object *object);
bool tier_log_turn(struct tier *tier);
/* All is durable, and nothing unstable. */
bool tier_log_quiet(const struct tier *tier);
uint64_t tier_log_wake_ns(const struct tier *tier);
/* The near store has failed: it is not used any more. */
void tier_log_leave(struct tier *tier, int error);
/* Writes a new generation of what is there. */
void tier_log_rewrite(struct tier *tier);
void tier_load(struct tier *tier);

/* --- blocks (tier_blocks.c) --- */

/* One more entry; -ENOMEM. */
int tier_blocks_add(struct tier_blocks *blocks, const struct tier_entry *entry);
void tier_blocks_clear(struct tier_blocks *blocks);
/* Writes them through, as generation, from block `first` on; then done(). */
void tier_blocks_write(struct tier_blocks *blocks);
/* entry() for each there is of that generation (of a touch list: of any), from the first on; then
   done(). -EILSEQ: a block is damaged that others follow, so what they would take back counts. */
void tier_blocks_read(struct tier_blocks *blocks);

/* --- format (tier_format.c, docs/format-tier.md) --- */

struct xseg_key tier_format_log_key(uint64_t generation, uint64_t block);
struct xseg_key tier_format_record_key(void);
struct xseg_key tier_format_touch_key(void);
void tier_format_seal(struct tier_block *block);
bool tier_format_block_good(const struct tier_block *block, uint64_t generation, uint64_t number);
void tier_format_record_seal(struct tier_record *record);
/* 0, -EILSEQ, -EPROTO: made by a newer one. */
int tier_format_record_check(const struct tier_record *record, size_t size);

#endif
