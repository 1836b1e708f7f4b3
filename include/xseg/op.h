/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request may ask, of a volume or of an object, and what its payloads look like.
 * Every payload lies in the request's data pages, little-endian, at data offset 0.
 *
 * Units: bytes; times in ns. Offsets and lengths of data ops are multiples of
 * XSEG_SECTOR. Completion: READ data is in the pages; WRITE is visible to every later
 * READ of the volume; FLUSH means that all writes of the volume completed before it was
 * submitted are durable where the pipeline promises it; FUA the same for one write. What changes or
 * flushes a volume carries in arg1 the term that OPEN answered with: when another host has had the
 * volume since, it is -EIO, whoever serves the volume now. It keeps it down to the store,
 * and a cache gives what it writes back the term in which that was written.
 */
#ifndef SKERRY_XSEG_OP_H
#define SKERRY_XSEG_OP_H

#include <base/must.h>
#include <base/name.h>
#include <stddef.h>
#include <stdint.h>

#define XSEG_SECTOR 512u
#define XSEG_PAGE_SHIFT 12
#define XSEG_PAGE 4096u
#define XSEG_OBJECT_MAX (4u << 20) /* no request carries more data, no object is larger */

enum xseg_op {
	XSEG_OP_NONE,
	/* data ops: offset in the volume, or in key.object */
	XSEG_OP_READ,
	XSEG_OP_WRITE,
	XSEG_OP_ZERO,	  /* reads back as zeros; XSEG_F_NO_HOLE keeps the space allocated */
	XSEG_OP_DISCARD,  /* contents no longer needed; reads back as zeros here */
	XSEG_OP_FLUSH,	  /* all of key.volume; goes to every lane of a port */
	XSEG_OP_PREFETCH, /* a hint, no data; answered when what comes of it has come */
	XSEG_OP_STATUS,	  /* out: xseg_status_extent[]; value = how many */
	/* objects only */
	XSEG_OP_COPY,	/* key <- object arg0 (high half: epoch) of volume arg1; offset, length */
	XSEG_OP_DELETE, /* the whole object; fine when absent */
	XSEG_OP_CAS,	/* a record of key, see xseg_cas below */
	/* volumes, and stores where noted */
	XSEG_OP_OPEN,	 /* in: name, see XSEG_NAME_AT, or key.volume; out: xseg_volume_info.
			   arg0: 0, or how often this client has it open: to a composer that was
			   started anew; arg1: its term then, -ESTALE: another has had it since */
	XSEG_OP_CLOSE,	 /* key.volume; 0: to a composer that was started anew, this client has
			   opened again all that it has open */
	XSEG_OP_INFO,	 /* volume: key.volume or (0) name; out: xseg_volume_info.
			   object: out xseg_object_info; a store, key all 0: out xseg_space,
			   -EOPNOTSUPP or -ENOENT where that cannot be told */
	XSEG_OP_LIST,	 /* volumes: out xseg_volume_info[]; objects of key.volume: out xseg_key[];
			   records: key.epoch says which, key.volume 0 all of them.
			   arg0 = cursor (0 first); value = next cursor (0: no more);
			   length = bytes */
	XSEG_OP_CREATE,	 /* in and out: xseg_volume_info (id 0 = choose; flags 0: an
			    empty volume that nobody may write to is of no use) */
	XSEG_OP_UPDATE,	 /* in: xseg_volume_info: state of the volume (e.g. IMPORTING -> READY) */
	XSEG_OP_REMOVE,	 /* key.volume, or (0) name: record and objects */
	XSEG_OP_CONTROL, /* a role's own: arg0 says what, its header the rest (<peer/cache.h>) */
	XSEG_OP_COUNT
};

/* Flags of a request (frame.flags). */
enum {
	XSEG_F_FUA = 1 << 0,	 /* durable before it completes; FLUSH: at the store itself, a
				    journal on the way does not count */
	XSEG_F_PIN = 1 << 1,	 /* READ: the client takes pinned pages instead of its own */
	XSEG_F_DONATE = 1 << 2,	 /* WRITE: the server may keep whole pages */
	XSEG_F_NO_HOLE = 1 << 3, /* ZERO: keep allocated */
	XSEG_F_FAST_ONLY =
		1 << 4, /* ZERO: -EOPNOTSUPP at once if it would be slow; INFO of an object:
				      that it is there is enough, do not write it back first;
				      STATUS: only what a cache on the way has of it,
				      -EOPNOTSUPP where there is none;
				      CONTROL, PREFETCH: -ENOTCONN, done or not, while a
				      bridge is down */
	XSEG_F_NO_CACHE = 1 << 5,  /* do not keep it; WRITE with FUA: durable at the store itself,
				      no journal on the way counts */
	XSEG_F_URGENT = 1 << 6,	   /* somebody is blocked on it */
	XSEG_F_READ_ONLY = 1 << 7, /* OPEN: will not write */
};

/* What an operation is addressed to. Names are made of it only inside a blocker. */
struct xseg_key {
	uint64_t volume; /* never 0, never reused */
	uint32_t epoch;	 /* of data: to XSEG_EPOCH_DATA_MAX; maps; XSEG_EPOCH_*: records */
	uint32_t object; /* number within the volume: offset / object size */
};
fixed(sizeof(struct xseg_key) == 16);

#define XSEG_EPOCH_DATA_MAX 0x7fffffffu /* from there on: of maps */
#define XSEG_EPOCH_HOME 0xfffffffdu	/* record: who may write to the volume */
#define XSEG_EPOCH_NAME 0xfffffffeu	/* record: volume = hash of a name -> its id */
#define XSEG_EPOCH_VOLUME 0xffffffffu	/* record: the volume record, object = 0 or 1 */

/*
 * CAS: conditional put of a record of at most XSEG_RECORD_MAX bytes; atomic and durable
 * when it completes. arg1 says which:
 *   GET     out: record in the data pages; length = its size; value = its version.
 *           -ENOENT when absent.
 *   PUT     arg0 = expected version (0: must be absent); length bytes of data.
 *           value = new version. -EEXIST / -ESTALE with value = version found.
 *   DELETE  arg0 = expected version. -ENOENT, -ESTALE.
 * Versions grow by one at each put. A record that was deleted and is put again has other ones than
 * it had before. A record that is damaged is -EILSEQ to whoever asks for it,
 * with value = XSEG_CAS_DAMAGED; a PUT or DELETE that expects this goes ahead.
 */
enum xseg_cas { XSEG_CAS_GET, XSEG_CAS_PUT, XSEG_CAS_DELETE };
#define XSEG_CAS_DAMAGED (UINT64_MAX - 1)
#define XSEG_RECORD_MAX 4096u

/*
 * CONTROLs that go down from whoever owns volumes to their store; caches on the way do their part
 * and hand them on. -EOPNOTSUPP: a store that no two segments share.
 *
 *   FENCE   key.volume is ours to write to since arg1, a term of its home record; nobody else had
 *           it since term `offset` (0: not known). From the answer on all stores of the same
 *           objects refuse WRITE, ZERO, DISCARD and COPY that come from elsewhere (-ESTALE), and
 *           none is on its way any more; not DELETE, for a sweep may run anywhere. A term is one
 *           owner's: sent again from elsewhere, that is where he comes from now. Nor is WRITE,
 *           ZERO or DISCARD taken with an arg1 other than 0 that is a term which another one's came
 *           after (arg1 + 1 < offset): it comes late, out of a cache. With
 *           XSEG_F_READ_ONLY: nobody may write to it, until the next term. -ESTALE: another has a
 *           higher one; -ETIMEDOUT: writes of another one's do not come to an end.
 *   LEAVE   somebody else may be the next one to write to it, and a claim of his need not wait for
 *           whoever sends it: all that was written is at the store, durable, when it is answered,
 *           and so is what still comes (a mover's copies) until the next FENCE. Of term arg1 (0: of
 *           any): when that is over it comes late, and is nothing
 *   DIRTY   out: struct xseg_dirty: what the first cache on the way has of key.volume alone. To a
 *           composer: hands it on. -EOPNOTSUPP: there is no cache
 *   DIGEST  out: what identifies the bytes from `offset` on, `length` of them, as a READ would
 *           return them: a digest of XSEG_DIGEST bytes for each `arg1` of them, and for what is
 *           left. Whoever has kept them learns whether they are still the same. Only a bridge
 *           answers it, for whatever is behind it.
 *
 * REFENCE goes to a composer, or an exporter of a store, itself: the way below leads elsewhere now,
 * so it sends FENCE, as it did, for each volume that it may write to; an exporter not at once, but
 * before the next change. Whoever puts a cache into that way asks for it before the cache begins.
 */
#define XSEG_CONTROL_FENCE 0x10000u
#define XSEG_CONTROL_LEAVE 0x10001u
#define XSEG_CONTROL_REFENCE 0x10002u
#define XSEG_CONTROL_DIGEST 0x10003u
#define XSEG_CONTROL_DIRTY 0x10004u
#define XSEG_DIGEST 16u /* XXH3 of 128 bits, big-endian */

struct xseg_dirty {
	uint64_t bytes;	  /* not at the store yet */
	uint64_t written; /* to the store, since the cache was started */
};
fixed(sizeof(struct xseg_dirty) == 16);

enum xseg_volume_state { XSEG_VOLUME_READY = 1, XSEG_VOLUME_IMPORTING, XSEG_VOLUME_REMOVING };

struct xseg_volume_info {
	uint64_t id;
	uint64_t size;	      /* multiple of XSEG_SECTOR */
	uint32_t object_size; /* power of two, XSEG_PAGE .. XSEG_OBJECT_MAX */
	uint32_t state;	      /* enum xseg_volume_state */
	uint64_t objects;     /* known to exist; INFO only */
	uint64_t created_ns;  /* wall clock */
	uint64_t parent;      /* INFO, LIST: what a snapshot or clone was made of; 0: nothing */
	uint64_t term;	      /* OPEN: of its home record; 0: read-only, or it has none */
	uint32_t opens;	      /* INFO, LIST: fronts that have it open */
	uint32_t flags;	      /* XSEG_VOLUME_* */
	char name[VOLUME_NAME_LENGTH_MAX + 1];
};
fixed(sizeof(struct xseg_volume_info) == 320);

/*
 * Where in the data a name is asked for, with its 0: where the answer has it, too. The composer may
 * be killed when it has written the answer and not yet given it: whoever is asked next must
 * find the question as it was. That holds for all that is both in and out.
 */
#define XSEG_NAME_AT offsetof(struct xseg_volume_info, name)

#define XSEG_VOLUME_FIXED 1u /* from the configuration, has no record */
#define XSEG_VOLUME_READ_ONLY 2u

struct xseg_object_info {
	uint64_t size;	    /* highest byte ever written + 1 */
	uint64_t allocated; /* bytes of space it takes; its size, with value
			       XSEG_INFO_SPACE_UNKNOWN, where the store cannot tell */
};
#define XSEG_INFO_SPACE_UNKNOWN 1u

/* Of a store, whoever else uses what it lies on. */
struct xseg_space {
	uint64_t total, free;
};
fixed(sizeof(struct xseg_space) == 16);

/* One stretch of a STATUS answer; in order, without gaps, from the offset asked. */
struct xseg_status_extent {
	uint64_t length;
	uint32_t flags; /* XSEG_STATUS_*, 0 = data */
	uint32_t reserved;
};
fixed(sizeof(struct xseg_status_extent) == 16);

#define XSEG_STATUS_HOLE 1u   /* no space taken */
#define XSEG_STATUS_ZERO 2u   /* reads as zeros */
#define XSEG_STATUS_CACHED 4u /* with XSEG_F_FAST_ONLY: a cache has it */

const char *xseg_op_name(unsigned op);

#endif
