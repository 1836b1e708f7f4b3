/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The re-homer: stands in front of the composer, and takes volumes to another host, or in from one,
 * while they are used. docs/rehoming.md says why it is safe; rehome_table.h what follows what.
 *
 *   rehome_route.c    requests: here, there, or they wait
 *   rehome_volume.c   what is known of each volume, and whose it is by its record
 *   rehome_open.c     who has one open here, wherever it is
 *   rehome_source.c   from here to another host
 *   rehome_pace.c     how that gets on, and writers that are slowed down for it
 *   rehome_target.c   from another host to here
 *
 * Nothing is remembered outside of the home record: killed, its successor looks there.
 *
 * Units: bytes, ns. Threads: one lane. Blocking: none.
 */
#ifndef SKERRY_PEERS_REHOME_REHOME_H
#define SKERRY_PEERS_REHOME_REHOME_H

#include <base/hash.h>
#include <errno.h>
#include <peer/call.h>
#include <peer/map.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/port.h>

#include "peers/rehome/rehome_table.h"

#define REHOME_HERE 0u /* edge to the composer; behind it those to other hosts */
#define REHOME_BUCKETS 1024u
#define REHOME_RETRY_NS 200000000u /* what could not be done is tried again after that */
#define REHOME_ASK_NS 500000000u   /* between two looks for hosts behind the edges */
#define REHOME_HEAR_NS 5000000000u /* one that an edge leads to anew has so long to say who it is */
#define REHOME_KNOWN_NS 2000000000u /* one that has answered is asked again: it may be another */
#define REHOME_KEEP_NS 60000000000u /* a volume is kept so long for those attached elsewhere */
#define REHOME_LEFT_NS 3000000000u  /* the last of them has gone; there may be others */
#define REHOME_LEFT_TIMES 3u	    /* that is said: a request may come after the first of them */
#define REHOME_COUNT_NS 1000000000u /* between two looks at who has it open */
#define REHOME_ASK_BYTES (REHOME_ANSWER_AT + (uint32_t)sizeof(struct rehome_offer))
#define REHOME_LOOK_NS 100000u	/* between two looks at what is on its way */
#define REHOME_SOON_NS 1000000u /* and at the record of what is being given to us at this moment */
#define REHOME_EARLY_NS 500000000u /* for so long */

struct rehome_options {
	uint64_t commit_ns; /* the destination has so much time to take it */
	uint64_t drain_ns;  /* requests on their way have so much time to end */
	bool warm;
};

/* What is under way with a volume. */
struct rehome_move {
	uint32_t edge;	/* of the peer's: 1 to REHOME_EDGES; 0: it comes here */
	uint64_t owner; /* the other host's */
	enum rehome_stall stall;
	bool only_ask, hold;
	unsigned offers; /* that were made again */
	uint64_t pause_ns;
	uint64_t rtt_ns;
	uint64_t record_ns; /* so long it took to read the home record */
	uint64_t given;	    /* since that version of it; 0: not known */
	uint32_t early;	    /* serial of the TAKE that went with GIVE; 0: none is on its way */
	uint64_t early_ns;  /* it comes here, and may not be given yet: until then */
	uint64_t asked_ns;  /* the call on its way: since then */
	uint64_t heard_ns;  /* hold: of whoever does */
	uint64_t best_ns;   /* the shortest round so far */
	uint32_t stalled;   /* rounds since then */
	uint64_t frozen_ns; /* 0: not */
	struct job *job;    /* BEGIN, or TAKE: to be answered */
};

/* How a move gets on. */
struct rehome_pace {
	struct rehome_progress progress;
	struct xseg_dirty dirty; /* as the cache said last */
	uint64_t measured_ns;	 /* when; 0: not in this move */
	uint64_t ask_ns;	 /* when it is asked again */
	bool asking;
	uint64_t next_ns;      /* progress.limit: no write before */
	struct job_queue held; /* writes that wait for that, in order */
};

struct rehome_volume {
	LIST_ENTRY(rehome_volume) link, at_work;
	bool is_active; /* something is to be looked at each turn */
	uint64_t id;
	uint8_t state;	      /* enum rehome_state */
	uint32_t serial;      /* grows with each step: answers to earlier ones come late */
	uint32_t edge;	      /* AWAY: where to */
	uint64_t term, since; /* who opened it from `since` on goes on in `term`; 0: no matter */
	bool is_preparing;    /* BEGIN has come, and nothing has begun */
	bool acquired;	      /* by our composer, just now: ACQUIRE */
	bool unsure;	      /* what is on its way there may acquire it, since we have asked */
	bool attached;	      /* AWAY: somebody here has it open, as the other host hears */
	uint8_t left;	      /* so often it heard that nobody has */
	bool keeping;	      /* HOME: somebody may, of whom our composer does not know */
	uint64_t again_ns;    /* 0: no; when the action `again` is to be tried once more */
	uint64_t count_ns;    /* when `attached` is looked at again */
	uint64_t due_ns;      /* 0: no; when the step has taken too long */
	uint8_t again;	      /* enum rehome_action */
	struct rehome_move move;
	struct rehome_pace pace;
	struct rehome_info info;
	struct job_queue waiting;
	struct rehome_opener {
		uint32_t count;
		uint16_t epoch;
	} openers[XSEG_LANES_MAX]; /* by client lane: who opened it while it was away */
};
LIST_HEAD(rehome_bucket, rehome_volume);

struct rehome {
	struct peer *peer;
	struct rehome_bucket *volumes;
	struct rehome_bucket active;
	uint64_t owner; /* of this segment */
	struct rehome_edge {
		uint32_t port;	/* where it leads; XSEG_NONE: nowhere */
		uint64_t owner; /* behind it; 0: none that is known */
		bool asking, answered;
		uint64_t since_ns; /* it leads there */
		uint64_t again_ns; /* when one that is known is asked again */
	} edges[1 + REHOME_EDGES];
	uint64_t ask_ns;      /* when they are asked again */
	bool listed, listing; /* what was open when we were started */
	uint64_t cursor;      /* of that */
};

enum {
	REHOME_C_MOVED,
	REHOME_C_TAKEN,
	REHOME_C_STAYED,
	REHOME_C_WAITS,
	REHOME_C_AWAY,
	REHOME_C_WARMED,
	REHOME_C_HELD
};

static inline struct rehome *rehome_of(struct peer *peer) { return peer->state; }

/* --- rehome_volume.c ------------------------------------------------------------------------- */

/* NULL: no memory. */
struct rehome_volume *rehome_volume_get(struct rehome *rehome, uint64_t id);
struct rehome_volume *rehome_volume_find(const struct rehome *rehome, uint64_t id);
/* Something has happened to it; `error`: what has failed. */
void rehome_volume_event(
	struct rehome *rehome, struct rehome_volume *volume, enum rehome_event event, int error);
/* It is looked at each turn from now on, until it is settled. */
void rehome_volume_watch(struct rehome *rehome, struct rehome_volume *volume);
/* Its record is read; `how`: 0 or MAP_HOME_KNOWN. False: no room now. */
bool rehome_volume_read(
	struct rehome *rehome, struct rehome_volume *volume, uint64_t how, call_done_f *done);
/* The same for a job about it, the call's context; 0 or -errno. */
int rehome_volume_read_for(struct rehome *rehome, struct job *job, call_done_f *done);
/* That edge, or the first one behind it that leads somewhere; beyond REHOME_EDGES: none. */
uint32_t rehome_volume_edge_from(struct rehome *rehome, uint32_t edge);
/* The edge behind which that owner is; 0: none; *sure: all of them have said who they are. */
uint32_t rehome_volume_edge_to(const struct rehome *rehome, uint64_t owner, bool *sure);
/* It is HOME or AWAY: is its owner another one than that says, whom we know how to reach? */
bool rehome_volume_elsewhere(const struct rehome *rehome, const struct rehome_volume *volume,
	const struct map_home_info *home);
/* The answer, and the call's end; 0 or -errno. */
int rehome_volume_record(struct call *call, struct map_home_info *home);
/* MAP_KEEP; false: no room now. */
bool rehome_volume_keep(
	struct rehome *rehome, struct rehome_volume *volume, uint64_t ns, call_done_f *done);
bool rehome_volume_turn(struct rehome *rehome);
/* Moves that are not decided yet end. */
void rehome_volume_stop(struct rehome *rehome);
void rehome_volume_close(struct rehome *rehome);
/* The action is tried again in a while, unless something else happens. */
void rehome_volume_again(
	struct rehome *rehome, struct rehome_volume *volume, enum rehome_action action);
/* Who is behind an edge, as he says; a host that was started anew is another owner. */
void rehome_volume_edge_is(struct rehome *rehome, uint32_t edge, uint64_t owner);
/* Do the edges lead where they did? What is known of those that do not is forgotten. */
bool rehome_volume_edges(struct rehome *rehome);
/* A control of ours about a volume, context and serial set; NULL: no room now. */
struct call *rehome_volume_call(struct rehome *rehome, struct rehome_volume *volume,
	enum xseg_op op, uint64_t what, uint32_t bytes);
/* The volume that a call was about, if nothing has happened to it since. */
struct rehome_volume *rehome_volume_of(const struct call *call);

/* --- rehome_route.c -------------------------------------------------------------------------- */

void rehome_route_serve(struct peer *peer, struct job *job);
/* To where it is by its state, or it waits. */
void rehome_route(struct rehome *rehome, struct rehome_volume *volume, struct job *job);
/* To our composer. */
void rehome_route_here(const struct rehome_volume *volume, struct job *job);
/* Until its state says where to. */
void rehome_route_wait(struct rehome *rehome, struct rehome_volume *volume, struct job *job);
/* Those that waited for it are served again. */
void rehome_route_wake(struct rehome *rehome, struct rehome_volume *volume);
/* It is not known where it is: who opens it now is told by our composer who has it. */
void rehome_route_open_here(struct rehome *rehome, struct rehome_volume *volume);
/* Is nothing on its way to the composer that we have sent there for others? `reads`: no read
   either. */
bool rehome_route_quiet(const struct rehome *rehome, uint64_t id, bool reads);
/* There is no room for it now. */
void rehome_route_later(struct job *job);

/* --- rehome_open.c --------------------------------------------------------------------------- */

/* A request goes there: the composer there takes whoever sends it for one who has it open, until it
   hears of us that nobody has. */
static inline void rehome_open_works(struct rehome *rehome, struct rehome_volume *volume)
{
	volume->left = 0;
	if (unlikely(!volume->attached)) {
		volume->attached = true;
		rehome_volume_watch(rehome, volume);
	}
}
/* OPEN by who has not had it open: if it is still where we think, he is sent there. False: no room
   to look now. */
bool rehome_open_looks(struct rehome *rehome, struct job *job);
/* OPEN of a volume that is away. */
void rehome_open_there(struct rehome_volume *volume, struct job *job);
/* CLOSE of one that was away when he opened it: he has it open no more. */
bool rehome_open_closes(struct rehome_volume *volume, const struct job *job);
/* Is it to be looked at again? */
bool rehome_open_any(const struct rehome_volume *volume);
/* Each turn, of one that is here or away: who has it is told whether it is open here. */
bool rehome_open_turn(struct rehome *rehome, struct rehome_volume *volume);

/* --- rehome_source.c, rehome_target.c -------------------------------------------------------- */

void rehome_source_begin(struct rehome *rehome, struct job *job);
void rehome_source_go(struct rehome *rehome, struct job *job);
void rehome_source_do(
	struct rehome *rehome, struct rehome_volume *volume, enum rehome_action action);
/* What another host is asked; keep_ns: KEEP. NULL: no room now. */
struct call *rehome_source_ask(struct rehome *rehome, struct rehome_volume *volume,
	enum rehome_control what, uint64_t keep_ns);
/* Requests of whoever uses it are waited for. */
static inline bool rehome_source_drains(const struct rehome_volume *volume)
{
	return volume->state == REHOME_DRAINING || volume->state == REHOME_FROZEN;
}
/* It has ended, one way or the other. */
void rehome_source_end(struct rehome *rehome, struct rehome_volume *volume, int error);
/* Each turn, of one that has moved, or is on its way. */
bool rehome_source_turn(struct rehome *rehome, struct rehome_volume *volume);
void rehome_target_offer(struct rehome *rehome, struct job *job);
void rehome_target_take(struct rehome *rehome, struct job *job);
/* TAKING has ended: whoever asked for it is answered. */
void rehome_target_decided(struct rehome *rehome, struct rehome_volume *volume, int error);
void rehome_target_keep(struct rehome *rehome, struct job *job);

/* --- rehome_pace.c ---------------------------------------------------------------------------- */

/* Of a volume in the state EXPORT: its beginning, each turn, its end. */
void rehome_pace_begin(struct rehome_volume *volume);
bool rehome_pace_turn(struct rehome *rehome, struct rehome_volume *volume, uint64_t now);
void rehome_pace_end(struct rehome *rehome, struct rehome_volume *volume);
/* When a turn has something to do; UINT64_MAX: not because of us. */
uint64_t rehome_pace_wake(const struct rehome_volume *volume);
/* Writers are slowed down more; false: they are slow enough. */
bool rehome_pace_tighten(struct rehome_volume *volume);
/* To our composer, now or when progress.limit allows it. */
void rehome_pace_write(struct rehome *rehome, struct rehome_volume *volume, struct job *job);

/* --- rehome_warm.c --------------------------------------------------------------------------- */

/* It is away: what our cache holds of it is fetched there, in the background. */
void rehome_warm_begin(struct rehome *rehome, struct rehome_volume *volume);

#endif
