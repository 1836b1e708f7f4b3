/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of a mapper, and what of it through a composer: XSEG_OP_CONTROL to its port.
 *
 *   arg0    enum map_control
 *   key     .volume: which one, or 0: the one that ask.name says (where a name is asked for)
 *   arg1    a number, where noted
 *   data    in: struct map_ask at 0 (or what is noted); out: as noted, at MAP_ANSWER_AT; the
 *           answer's length counts from 0
 *
 * A composer is asked by fronts and people, holds writes back where it must, tells the mapper what
 * it has not told it yet, and asks the mapper; all others it passes on as they are. OPEN, CLOSE,
 * INFO, LIST, CREATE, UPDATE and REMOVE of <xseg/op.h> are answered by both.
 *
 * Each may be said again: a mapper that was killed is asked once more by the core, and what has
 * happened is answered as the first time. So ids of what is to be made are drawn by who asks.
 *
 * Units: bytes, ns. Errors: 0 or -errno: those of map_volume.h, map_home.h and map_tree.h:
 * -ENOTEMPTY: it has children; -EPERM; -EBUSY: it is open elsewhere, or is being changed; -EMLINK:
 * flatten first; -EILSEQ: damaged. Where a name helps, the answer is a struct map_trouble.
 * Ownership: caller's buffers. Threads: as for any request. Blocking: answers when it is durable.
 */
#ifndef SKERRY_PEER_MAP_H
#define SKERRY_PEER_MAP_H

#include <base/hash.h>
#include <base/must.h>
#include <string.h>
#include <xseg/op.h>
#include <xseg/segment.h>

enum map_control {
	/* for composers alone */
	MAP_ACQUIRE, /* the volume is ours to write to, with a fresh epoch; arg1: MAP_READ_ONLY:
			just what it is, nothing is acquired; out: struct map_head_info */
	MAP_RELEASE, /* of MAP_ACQUIRE: nobody here has it open any more; arg1: 0, or who alone may
			have it next, beside us (map_home_give()). -ESTALE then: it is not ours;
			value = the version of its record then */
	MAP_PAGE, /* arg1 = number of a map page; out: MAP_PAGE_ENTRIES packed entries, u64 each */
	MAP_BITMAP,  /* in: struct map_object[arg1]; out: struct map_bitmap_info[arg1];
			 arg1: 1 to MAP_BITMAP_MAX */
	MAP_PUBLISH, /* in: struct map_update[arg1]; durable when answered. -ESTALE: not ours */
	/* for everybody; changes of an open volume go through its composer. Where ask.name is that
	   of what is to be made, key.volume 0 means the one that ask.other says */
	MAP_SNAP,     /* ask: id and name of what is to be made; out: map_head_info of the volume */
	MAP_CLONE,    /* the same; ask.size: 0 or larger; out: that of the clone */
	MAP_ROLLBACK, /* ask.id = the snapshot, or (0) ask.other; out: struct map_head_info */
	MAP_RESIZE,   /* ask.size; out: the same */
	MAP_RENAME,   /* ask.name = the new one; key.volume or ask.other = the old one */
	MAP_FLAGS,    /* arg1: bits to set, << 32: to clear (XSEG_VOLUME_PROTECTED) */
	MAP_FLATTEN,  /* copies what it shares from object arg1 on, some at a time; value = the next
			one, or UINT64_MAX: all own, and it has forgotten its parent. arg1:
			MAP_FLATTEN_LOOK: copies nothing; value = 0: something is shared yet */
	MAP_LIMITS,   /* ask.limits; kept in its record */
	MAP_DIFF,     /* since ask.id or (0) ask.other, from object arg1 on, and not behind byte
		     ask.size (0: to the end); out: struct map_stretch[];
			 value = the next object, UINT64_MAX: that was all */
	MAP_DETAIL,   /* out: struct map_detail */
	MAP_BREAK,    /* takes it away from whoever has it; out: struct map_owner: who had it */
	MAP_SWEEP,    /* arg1: MAP_SWEEP_*; ask.size: requests a second, 0: no limit */
	MAP_SWEEP_STATE, /* out: struct map_sweep_state, then struct map_finding_info[] from finding
			    arg1 on; value = the next, 0: no more so far */
	/* for composers alone */
	MAP_LEASES, /* in: u64[arg1], the ids of all that it has acquired; value = ns: to be said
		      again within this time, and what no composer names any more is released */
	/* for everybody again */
	MAP_HOME, /* out: struct map_home_info, all 0: nobody has ever had it; -ENOENT: there is no
		     such volume. arg1: MAP_HOME_KNOWN: if it is ours, as we have put it last */
	MAP_GIVE, /* to a composer: all that was written goes to the store, then MAP_RELEASE with
		     arg1, and its value; whoever writes here afterwards takes it back, if he is
		     the first */
	MAP_KEEP, /* to a composer: it is acquired, and not given back for arg1 ns (at most
		     MAP_KEEP_MAX_NS) from now on, also if nobody has it open here: he is
		     elsewhere, and says so again. Answered when its record says that it is ours:
		     requests wait until the store says so, too */
	/* for composers alone */
	MAP_CLAIM, /* the first part of MAP_ACQUIRE: its home record says that it is ours, and a
		      store can be told (FENCE) while MAP_ACQUIRE does the rest, in the same term
		      if it was not lost in between. out: struct map_head_info, of the epoch
		      before */
	/* for everybody */
	MAP_GIVEN, /* who has it in term arg1 has given it to us, and its record's version is
		      `offset` since: what MAP_HOME has read of that term need not be read again
		      when it is acquired. -ENOENT: nothing has been */
	MAP_CONTROLS
};

#define MAP_READ_ONLY 1u
#define MAP_HOME_KNOWN 1u
#define MAP_KEEP_MAX_NS 600000000000u
#define MAP_FLATTEN_LOOK ((uint64_t)1 << 32)
#define MAP_BITMAP_MAX 64u /* the question ends where the answer begins */
#define MAP_PAGE_ENTRIES 512u
#define MAP_VOLUME_OBJECTS (1u << 24) /* the most; more is -EFBIG */
#define MAP_ANSWER_AT 1024u
#define MAP_CLUSTER 4096u /* what a partial object has or has not */

#define XSEG_VOLUME_SNAPSHOT 4u
#define XSEG_VOLUME_PROTECTED 8u

struct map_change_limits {
	uint64_t iops, bytes; /* a second; 0: no limit */
	uint64_t burst_ms;    /* so much of it at once */
};

struct map_ask {
	uint64_t id; /* to be made, or the other one */
	uint64_t size;
	uint64_t created_ns;
	struct map_change_limits limits;
	uint64_t state; /* MAP_CLONE: 0: ready; XSEG_VOLUME_IMPORTING */
	uint64_t reserved;
	char name[VOLUME_NAME_LENGTH_MAX + 1];
	char other[VOLUME_NAME_LENGTH_MAX + 1];
};
fixed(sizeof(struct map_ask) == 576);
fixed(sizeof(struct map_ask) <= MAP_ANSWER_AT);

#define MAP_OWNERS 128u
/* What a composer must know. */
struct map_head_info {
	uint64_t id, size, parent, generation, created_ns;
	uint64_t term; /* of the home record; 0: read-only */
	uint64_t line; /* nobody else had it since that term */
	uint32_t object_size, state, flags;
	uint32_t epoch;	 /* for new objects */
	uint32_t frozen; /* own objects up to this are not written to any more */
	uint16_t owner_count, self;
	struct map_change_limits limits;
	char name[VOLUME_NAME_LENGTH_MAX + 1];
	uint64_t owners[MAP_OWNERS];
};
fixed(sizeof(struct map_head_info) == 1384);

/* An entry as one word, 0: a hole. */
static inline uint64_t map_word(uint32_t epoch, unsigned owner, unsigned flags)
{
	return epoch | (uint64_t)owner << 32 | (uint64_t)flags << 48;
}
static inline uint32_t map_word_epoch(uint64_t word) { return (uint32_t)word; }
static inline unsigned map_word_owner(uint64_t word) { return (uint16_t)(word >> 32); }
static inline unsigned map_word_flags(uint64_t word) { return (uint16_t)(word >> 48); }

#define MAP_WORD_PARTIAL 1u
#define MAP_WORD_ZERO 2u

struct map_object {
	uint64_t owner;
	uint32_t epoch, object;
};
fixed(MAP_BITMAP_MAX * sizeof(struct map_object) <= MAP_ANSWER_AT);

#define MAP_HAS_WORDS 16u
struct map_bitmap_info {
	int32_t error; /* 0 or -errno */
	uint32_t parent_epoch;
	uint32_t parent_flags, reserved;
	uint64_t parent_owner;
	uint64_t has[MAP_HAS_WORDS]; /* bit per cluster */
};
fixed(sizeof(struct map_bitmap_info) == 152);

/* An update of one object of the volume, as map_update() takes it. */
struct map_update {
	uint32_t object;
	uint32_t flags; /* MAP_PARTIAL, MAP_ZERO, MAP_NEWS_HOLE or 0 */
	uint32_t epoch;
	uint32_t parent_epoch, parent_flags, reserved;
	uint64_t parent_owner;
	uint64_t has[MAP_HAS_WORDS];
};
fixed(sizeof(struct map_update) == 160);
#define MAP_UPDATES_MAX (XSEG_OBJECT_MAX / sizeof(struct map_update))

/* Of a diff: what may differ, in order, clusters of 4 KiB joined. */
struct map_stretch {
	uint64_t offset, length;
	uint32_t flags; /* XSEG_STATUS_ZERO: reads as zeros now */
	uint32_t reserved;
};
fixed(sizeof(struct map_stretch) == 24);

/* What home records call a segment. It outlives its mapper: the next one has the same number. */
static inline uint64_t map_owner_of(const struct xseg *seg)
{
	uint64_t half[2];
	fixed(sizeof(half) == sizeof(seg->super->uuid));
	memcpy(half, seg->super->uuid, sizeof(half));
	uint64_t owner = hash_u64(half[0]) ^ half[1];
	return owner != 0 ? owner : 1;
}

struct map_owner {
	uint64_t owner, term, since_ns, until_ns;
	char host[64];
};
fixed(sizeof(struct map_owner) == 96);

/* The home record, as it is now. */
struct map_home_info {
	uint64_t self; /* this segment as an owner */
	uint64_t owner, last, next, previous;
	uint64_t term, line, since;
};
fixed(sizeof(struct map_home_info) == 64);

struct map_detail {
	uint64_t id, size, parent, created_ns, generation;
	uint64_t objects;      /* entries that are no holes */
	uint64_t own, shared;  /* of them: own alone, another's or frozen */
	uint64_t allocated;    /* bytes of space that own objects take */
	uint64_t children;     /* snapshots and clones of it */
	struct map_owner home; /* owner 0: nobody has it */
	struct map_change_limits limits;
	uint32_t object_size, state, flags, reserved;
	char name[VOLUME_NAME_LENGTH_MAX + 1];
	char parent_name[VOLUME_NAME_LENGTH_MAX + 1];
};

/* Beside an error: whose fault it is. At MAP_ANSWER_AT of a request that failed, if value is 1. */
struct map_trouble {
	struct map_owner owner;		       /* -EBUSY */
	char name[VOLUME_NAME_LENGTH_MAX + 1]; /* -ENOTEMPTY: a child; -EEXIST: whose name it is */
};

#define MAP_SWEEP_START 1u
#define MAP_SWEEP_STOP 2u
#define MAP_SWEEP_EXPLAIN 4u /* fsck: look at all */
#define MAP_SWEEP_REPAIR 8u  /* delete what is unreachable, repair what is safe */
struct map_sweep_state {
	uint64_t run; /* drawn for each sweep, the value of MAP_SWEEP's answer; 0: none since the
			 mapper began */
	uint32_t running, pass, passes;
	int32_t error; /* of the last one */
	uint64_t volumes, pages, objects, marked, unreachable, deleted, bytes_freed;
	uint64_t findings; /* so far */
};
struct map_finding_info {
	uint32_t finding; /* enum map_finding */
	uint32_t object, repaired, reserved;
	uint64_t volume;
	struct xseg_key key;
};

#endif
