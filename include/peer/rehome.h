/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Re-homing: a volume becomes another host's while it is used. What is asked of the two peers that
 * see to it, one on each host: XSEG_OP_CONTROL to their ports. docs/rehoming.md tells the whole.
 *
 *   arg0    enum rehome_control
 *   key     .volume: which one
 *   data    in: struct rehome_ask at 0; out: as noted, at REHOME_ANSWER_AT
 *
 * Each may be said again, and come late or twice: what decides is the volume's home record alone.
 *
 * Units: bytes, ns. Errors: 0 or -errno; -EBUSY: another host has it, or it is being moved already;
 * -EXDEV: both hosts do not have it in the same store; -ENOLINK: no peer of that kind is behind the
 * edge; -EPROTO: one of another version; -ETIME: requests on their way did not end in time.
 * Ownership: caller's buffers. Threads: as for any request.
 * Blocking: TAKE answers when it is decided; BEGIN when the destination has agreed.
 */
#ifndef SKERRY_PEER_REHOME_H
#define SKERRY_PEER_REHOME_H

#include <base/must.h>
#include <xseg/op.h>

#define REHOME_ROLE "rehome"
#define REHOME_VERSION 1u

enum rehome_control {
	/* of people: to the peer on the host that has it */
	REHOME_BEGIN = 0x30000, /* to the host behind ask.edge, or (REHOME_EDGES) that is ask.owner:
				   so whoever it is to come to can say it, over a bridge */
	REHOME_CANCEL,		/* it stays, if it is not decided yet */
	REHOME_STATE, /* out: struct rehome_info; key.volume 0: of all, from arg1 on; value =
				   the next arg1, 0: that was all */
	/* of the peer on that host to the one on the other */
	REHOME_OFFER, /* may it come? ask.owner has it, in ask.term. out: struct rehome_offer */
	REHOME_TAKE,  /* it has been given to you, or (ask.hold) is being given at this moment: then
			 the record is looked at for a while. out: struct rehome_offer */
	REHOME_KEEP, /* somebody has it open there: it is to be kept for ask.pause_ns, though nobody
			has it open where it is */
	/* of people: to the peer on the host that has it */
	REHOME_GO,	 /* whoever said ask.hold is ready */
	REHOME_PROGRESS, /* out: struct rehome_progress of key.volume */
};

#define REHOME_EDGES 3u /* to other hosts */
static inline const char *rehome_edge_name(uint32_t edge)
{
	static const char *const names[REHOME_EDGES] = {"volume-to", "volume-to2", "volume-to3"};
	return edge < REHOME_EDGES ? names[edge] : "";
}

/* While writes go on, what is dirty is written back, round for round, until the rest would take
   less than the pause that is allowed. What if it never does? THROTTLE: who writes is slowed down,
   to half of what the cache writes back, then half of that, and so on; at last as FORCE. */
enum rehome_stall {
	REHOME_STALL_FORCE,
	REHOME_STALL_WAIT,
	REHOME_STALL_CANCEL,
	REHOME_STALL_THROTTLE,
	REHOME_STALLS
};

#define REHOME_PAUSE_NS 50000000u /* so long requests may wait where nobody says how long */
#define REHOME_REST_NS 20000000u  /* ... and beside the round trips that it takes anyway */

struct rehome_ask {
	uint32_t version;  /* REHOME_VERSION */
	uint32_t edge;	   /* BEGIN: 0 to REHOME_EDGES */
	uint32_t stall;	   /* BEGIN: enum rehome_stall */
	uint16_t only_ask; /* BEGIN: 1: do not; could it? -EALREADY: it is there */
	uint16_t hold;	   /* BEGIN: 1: requests do not wait before GO; see REHOME_HOLD_NS.
			      TAKE: 1: it is only being given */
	uint64_t pause_ns; /* BEGIN: allowed; 0: REHOME_PAUSE_NS, or what the distances take and
			      REHOME_REST_NS, whichever is longer. KEEP */
	uint64_t owner, term;
	uint64_t since; /* TAKE: who opened it in this term or later may go on */
	uint64_t next;	/* TAKE: the owner that it was given to */
	uint64_t given; /* TAKE: the version of its record since then; 0: not known */
};
fixed(sizeof(struct rehome_ask) == 64);

/* Whoever said ask.hold asks for STATE of that volume now and then, until info.ready and then until
   GO. If he has not for so long, he is gone, and it stays (-ECANCELED). */
#define REHOME_HOLD_NS 10000000000u

#define REHOME_ANSWER_AT 64u
struct rehome_offer {
	uint32_t version, reserved;
	uint64_t owner; /* whoever answers, as an owner */
	uint64_t term;	/* TAKE: in which it has it */
};
fixed(sizeof(struct rehome_offer) == 24);

enum rehome_state {
	REHOME_UNKNOWN,	   /* nobody has asked for it yet */
	REHOME_LOOKING,	   /* its home record is being read */
	REHOME_HOME,	   /* here, or it is nothing to us: requests go to our composer */
	REHOME_EXPORT,	   /* still here; what is dirty is being written back */
	REHOME_DRAINING,   /* changes wait, reads do not; those on their way end */
	REHOME_FLUSHING,   /* the same; the rest of what is dirty is being written back */
	REHOME_FROZEN,	   /* all requests wait; those on their way end */
	REHOME_COMMITTING, /* it is being given away */
	REHOME_SETTLING,   /* it is being taken back, or found to be theirs */
	REHOME_AWAY,	   /* requests go to the other host */
	REHOME_TAKING,	   /* it comes here */
	REHOME_STATES
};
static inline const char *rehome_state_name(uint32_t state)
{
	static const char *const names[REHOME_STATES] = {"unknown", "looking", "home", "export",
		"draining", "flushing", "frozen", "committing", "settling", "away", "taking"};
	return state < REHOME_STATES ? names[state] : "newer";
}

struct rehome_info {
	uint64_t volume;
	uint32_t state; /* enum rehome_state */
	uint32_t edge;	/* AWAY, and on the way there */
	uint32_t rounds;
	int32_t error;	   /* of the last move: why it stays; 0: none */
	uint64_t round_ns; /* the last one took so long: what the pause would take now */
	uint64_t pause_ns; /* of the last move: so long requests had to wait */
	uint64_t waiting;  /* requests */
	uint64_t moves;	   /* of it, from here, since this peer was started */
	uint64_t ready;	   /* 1: the rest is short enough; GO is waited for */
};
fixed(sizeof(struct rehome_info) == 64);

/* Of a move from here that is under way, or of the last one. All 0 where nothing caches. */
struct rehome_progress {
	uint64_t rest;	      /* bytes that the cache has to write back */
	uint64_t dirty_rate;  /* bytes a second that become dirty */
	uint64_t bandwidth;   /* bytes a second that are written back */
	uint64_t expected_ns; /* the pause, if it began now: rest / bandwidth, and a round trip */
	uint64_t limit;	      /* bytes a second that may be written; 0: as many as there are */
};
fixed(sizeof(struct rehome_progress) == 40);

#endif
