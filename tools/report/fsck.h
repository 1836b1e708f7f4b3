/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conservation: every page, request slot, ring entry, port, edge and lane of a segment is in
 * exactly one state and has exactly one owner.
 *
 * A segment that is used changes while it is looked at, so one look proves nothing: only what is
 * the same in each of several looks is told (the same word, the same generation). There are more
 * looks while a lane that is awake has not made some turns since the first.
 *
 * Units: counts, ns. Errors: 0 or -errno. Ownership: fsck_free(). Threads: any; several at once.
 * Blocking: some tens of milliseconds between looks, some seconds for a lane that hangs; reads
 * /proc.
 */
#ifndef SKERRY_TOOLS_FSCK_H
#define SKERRY_TOOLS_FSCK_H

#include <stdbool.h>
#include <xseg/segment.h>

enum fsck_kind {
	FSCK_SUPERBLOCK,   /* its checksum */
	FSCK_LANE_BAD,	   /* no such state */
	FSCK_LANE_DEAD,	   /* its process is gone, and nobody has reaped it */
	FSCK_PEER_BAD,	   /* state or name */
	FSCK_PORT_BAD,	   /* state, name or lanes */
	FSCK_PORT_DEAD,	   /* bound to a peer that is gone */
	FSCK_EDGE_BAD,	   /* state, name or port */
	FSCK_NAME_TWICE,   /* two ports, or two edges, of one name */
	FSCK_RING_BAD,	   /* an entry that cannot be, or a head beyond the end */
	FSCK_STATS_BAD,	   /* a block of counters in no state */
	FSCK_REQUEST_BAD,  /* state, frame, owner or extents that cannot be */
	FSCK_REQUEST_DEAD, /* a slot that the dead still have */
	FSCK_REQUEST_HINT, /* nobody will look at it: its hint is lost */
	FSCK_SLOT_HINT,	   /* free, and nobody will find it */
	FSCK_PAGE_BAD,	   /* a word that cannot be */
	FSCK_PAGE_LEAKED,  /* the dead have it, and no request names it */
	FSCK_PAGE_PINS,	   /* more or fewer pins than readers */
	FSCK_PAGE_UNHELD,  /* a request has it, but it is free or stored */
	FSCK_PAGE_TWICE,   /* two requests have it */
	FSCK_PAGE_HINT,	   /* free, and nobody will find it */
	FSCK_KINDS
};

extern const char *const fsck_kind_names[FSCK_KINDS];

struct fsck_problem {
	enum fsck_kind kind;
	uint32_t index; /* of the lane, port, ..., request, page */
	uint64_t word;	/* that must be the same each time */
	char text[120];
};

/* Who has how much; lanes by index, and one for what no lane has. */
struct fsck_owner {
	bool alive, there;
	uint16_t epoch;
	int32_t pid;
	uint32_t held_in_requests, held_privately, stored, retired;
	uint32_t requests_owned, requests_taken, requests_done;
};

struct fsck {
	uint32_t problem_count, problem_max;
	uint64_t by_kind[FSCK_KINDS];
	struct fsck_problem *problems;
	uint32_t pages[XSEG_PAGE_STATES], requests[XSEG_REQUEST_STATES]; /* by state */
	uint32_t pages_bad, requests_bad;
	uint32_t lanes_alive, unhinted_slots, pins, readers, waiting_unbound, pending;
	uint32_t submitted[XSEG_PORTS_MAX];
	struct fsck_owner owners[XSEG_LANES_MAX];
	unsigned looks;
	uint64_t took_ns;
};

/* Looks `looks` times (0: as usual), or until nothing is wrong. */
int fsck_run(const struct xseg *seg, unsigned looks, struct fsck *fsck);
void fsck_free(struct fsck *fsck);

/* What --repair can do: reap, make hints anew, repair words of pages that nobody can have. */
struct fsck_repair {
	uint32_t lanes, freed, resubmitted, refused, pages, hints, repaired, pending;
};
int fsck_repair(const struct xseg *seg, const struct fsck *fsck, uint64_t limit_ns,
	struct fsck_repair *repair);

/* --- fsck_look.c ----------------------------------------------------------------------- */

/* A lane that is awake looks at all hints it keeps for itself within so many turns. */
#define FSCK_TURNS_ENOUGH 64u
/* One look; what is found may be on its way somewhere else. `first`: the beats of all lanes after
   the first look, when this is the last one, which clears lanes that have not moved since. */
int fsck_look(const struct xseg *seg, const uint64_t first[XSEG_LANES_MAX], struct fsck *fsck);
void fsck_look_say(struct fsck *fsck, enum fsck_kind kind, uint32_t index, uint64_t word,
	const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Lanes, peers, ports, edges, rings and blocks (fsck_tables.c). */
void fsck_tables(const struct xseg *seg, struct fsck *fsck);
/* Pages (fsck_pages.c), after all requests were looked at. */
struct fsck_refs {
	uint8_t *held;	   /* requests that have this page */
	uint32_t *slot;	   /* the last of them */
	uint64_t *word;	   /* of that request */
	uint16_t *readers; /* answers that name it */
};
void fsck_pages(const struct xseg *seg, const struct fsck_refs *refs, struct fsck *fsck);
bool fsck_look_lane_dead(const struct fsck *fsck, uint32_t lane, uint16_t epoch);

#endif
