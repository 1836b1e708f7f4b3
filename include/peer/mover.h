/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of a mover: XSEG_OP_CONTROL to its port. docs/moving.md tells the whole.
 *
 *   arg0    enum mover_control
 *   key     .volume: an id of the group that is meant
 *   data    in: struct mover_ask at 0 (MOVER_BEGIN, MOVER_ROOM); out: struct mover_state at
 *           MOVER_ANSWER_AT
 *
 * A group: volumes, snapshots and clones that share objects, by their ids; it moves as a whole.
 * Each may be said again: what has been done is answered as the first time, what was begun goes on.
 *
 * Units: bytes. Errors: 0 or -errno, the stores' own; -ENOENT: no group has that id; -EEXIST: its
 * ids lie in several groups; -EBUSY: another host has one; -ENOTUNIQ: the other store has a volume
 * of one of their names; -E2BIG: too many. Ownership: caller's buffers. Threads: as for any
 * request. Blocking: answers when it is durable.
 */
#ifndef SKERRY_PEER_MOVER_H
#define SKERRY_PEER_MOVER_H

#include <base/must.h>
#include <xseg/op.h>

#define MOVER_ROLE "mover"

enum mover_control {
	MOVER_BEGIN = 0x20000, /* the group's objects go to ask.to from now on, when MOVER_STEP is
				  said; its records are taken from both stores' sight */
	MOVER_STEP,   /* some more of them; when none is left, the records appear in their place */
	MOVER_STATE,  /* what is answered to all */
	MOVER_GROUPS, /* the answer's `left`: how many groups there are, `moving`: on their way */
	MOVER_NAMES,  /* all names of volumes that are left go to the new store: for whoever takes
			the mover out; no group is needed, and nothing answered */
	MOVER_ROOM, /* as MOVER_BEGIN is asked: would they fit? The answer's `needed` and `room` */
};

/* The stores by the mover's edges: "store", in whose place it stands, and "store-to". */
enum mover_store { MOVER_OLD, MOVER_NEW };

#define MOVER_IDS_MAX 480u
struct mover_ask {
	uint32_t to; /* enum mover_store */
	uint32_t count;
	uint64_t ids[MOVER_IDS_MAX];
};
fixed(sizeof(struct mover_ask) == 3848);

enum mover_phase {
	MOVER_NONE,   /* all lies in the old store, as if there had been no move */
	MOVER_TAKING, /* its records are being hidden */
	MOVER_COPYING,
	MOVER_SETTLING, /* its records are being shown in the other store */
	MOVER_DONE,	/* all lies in the new store */
};

#define MOVER_ANSWER_AT 4096u
struct mover_state {
	uint32_t phase, to;	 /* enum mover_phase, enum mover_store */
	uint64_t left;		 /* objects where they shall not stay */
	uint64_t objects, bytes; /* moved since this mover was started */
	uint64_t moving;	 /* MOVER_GROUPS alone */
	uint64_t needed;	 /* MOVER_ROOM alone: bytes that they take: if that is more than
				    `room`, at least so many; else at most */
	uint64_t room;		 /* ... and that are free where they go; UINT64_MAX: not known,
				    or they are on their way already */
	uint64_t keeps;		 /* MOVER_ROOM alone: 1: copies of what goes to the new store stay
				    on this host */
};
fixed(sizeof(struct mover_state) == 64);

/*
 * What a mover keeps in the new store: a record for each group, of the group's first id, and
 * the records of the group while it is on its way: where no mapper looks for them.
 */
#define MOVER_GROUP_OBJECT 0x80000000u
#define MOVER_HIDDEN 0x40000000u /* + number of the object */

#endif
