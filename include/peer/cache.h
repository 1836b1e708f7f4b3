/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be asked of a cache while it runs: XSEG_OP_CONTROL to its port.
 *
 *   arg0    enum cache_control
 *   key     .volume: which one, or 0 for all (where noted)
 *   arg1    a number, where noted
 *   data    in: a struct cache_setting at 0, where noted; out: as noted, at CACHE_ANSWER_AT;
 *           the answer's length counts from 0
 *
 * Each may be repeated: asked for what is so already, it is done. What is asked for outlives the
 * process, so a cache that is killed and started again goes on as it was told to.
 *
 * Units: bytes, ns, percent. Errors: 0 or -errno; -EINVAL for what makes no sense; -EBUSY another
 * drain, resize or drop is under way; -EPERM a policy that this volume's journal option forbids.
 * Blocking: FLUSH and DRAIN answer when it is done, which takes as long as the store below.
 * Ownership: caller's buffers. Threads: as for any request.
 */
#ifndef SKERRY_PEER_CACHE_H
#define SKERRY_PEER_CACHE_H

#include <base/must.h>
#include <base/name.h>
#include <stdint.h>

enum cache_control {
	CACHE_STATE,   /* out: struct cache_state */
	CACHE_VOLUMES, /* out: struct cache_volume_state[]; arg1 = cursor (0 first); value = next
			  cursor (0: no more) */
	CACHE_BEGIN,   /* PASSING -> CACHING: nothing older than us is on its way to the store. A
			  drain that is under way is broken off: -ECANCELED for it */
	CACHE_DRAIN,   /* write all back, forget what is clean, pass everything on from then on */
	CACHE_SET,     /* in: struct cache_setting: mode and ack of key.volume (0: the default, for
			  volumes that have none of their own) */
	CACHE_RESIZE,  /* arg1 = bytes; smaller: evicts, waits for dirty ones */
	CACHE_FLUSH,   /* all dirty data of key.volume (0: all) is at the blocker, and flushed */
	CACHE_DROP,    /* forgets clean buckets of key.volume (0: all); value = how many */
	CACHE_POLICY,  /* arg1 = enum cache_policy; what is cached stays, its order is lost */
};

/* PASSING --begin--> CACHING --drain--> DRAINING --all written--> PASSING */
enum cache_phase { CACHE_PASSING, CACHE_CACHING, CACHE_DRAINING };

enum cache_mode { CACHE_WRITETHROUGH, CACHE_WRITEBACK, CACHE_WRITEAROUND };
/* When is a FLUSH answered? When its data is there: */
enum cache_ack { CACHE_ACK_BLOCKER, CACHE_ACK_JOURNAL, CACHE_ACK_VOLATILE /* at once: scratch */ };
enum cache_policy { CACHE_LRU, CACHE_S3FIFO, CACHE_CLOCK2Q };
/* Is anything wrong? The first that holds. */
enum cache_health {
	CACHE_WELL,
	CACHE_STORE_FAILS, /* the store below answers with errors; data is kept and tried again */
	CACHE_STORE_SLOW,  /* write-back has waited longer than the age limit */
	CACHE_FULL,	   /* requests wait for buckets, entries or pages */
};

struct cache_setting {
	uint32_t mode;	/* enum cache_mode */
	uint32_t ack;	/* enum cache_ack */
	uint32_t share; /* most that it may take of the cache, percent; 0: no limit */
	uint32_t reserved;
};
fixed(sizeof(struct cache_setting) == 16);

/* Where answers begin: what is asked must still be there if the request is served again. The
   answer's length counts these bytes, too. */
#define CACHE_ANSWER_AT 64u

struct cache_state {
	uint32_t version; /* 1 */
	uint32_t phase, policy, health;
	int32_t error; /* the last of the store, -errno; 0: none */
	uint32_t lanes;
	struct cache_setting setting; /* the default */
	uint64_t size, used, dirty;   /* bytes of buckets */
	uint64_t objects_max, objects;
	uint64_t waiting;   /* requests */
	uint64_t oldest_ns; /* age of the oldest dirty bucket; 0: none */
	uint64_t journal;   /* bytes in it; 0: none or empty */
	uint64_t reserved[4];
};
fixed(sizeof(struct cache_state) == 136);

struct cache_volume_state {
	uint64_t volume;
	struct cache_setting setting;
	uint64_t used, dirty;				   /* bytes */
	uint64_t hits, misses, fills, bypasses, evictions; /* buckets */
	uint64_t written;				   /* bytes to the store */
	uint64_t write_calls;				   /* in so many requests */
	uint64_t epoch, epoch_durable; /* open, and the last one that is at the blocker whole */
	uint64_t oldest_ns;
	uint32_t read_bypass,
		write_bypass; /* lanes on which most misses, most writes through bypass
					       the cache: what they left behind was seldom read */
	uint64_t reserved[2];
};
fixed(sizeof(struct cache_volume_state) == 144);

#endif
