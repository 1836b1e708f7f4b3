/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a volume that changes its home, as one table: in a state, at an event, it goes to
 * the next state and something is done. Both sides run it: the source from HOME to AWAY, the
 * destination over TAKING; a volume that comes back goes from AWAY over TAKING.
 *
 * Who may write is decided by the home record alone (map_home_give(), map_home_acquire()): between
 * GIVE and its answer, and until it is known who came first, nothing is served by either. So no
 * event says "it is ours" or "theirs" but what was read in, or put into, that record.
 *
 * Units: none. Errors: none; an event that is not in the table changes nothing: it comes late.
 * Ownership: none. Threads: any. Blocking: none. tests/property/rehome_model.h runs it with lost,
 * late and doubled messages and with deaths. Source: ownership that is handed over by one
 * conditional write; what follows from it for us is in docs/rehoming.md.
 */
#ifndef SKERRY_PEERS_REHOME_TABLE_H
#define SKERRY_PEERS_REHOME_TABLE_H

#include <peer/map.h>
#include <peer/rehome.h>
#include <stdbool.h>

enum rehome_event {
	REHOME_EV_ASKED,      /* for it, for the first time */
	REHOME_EV_OURS,	      /* by its record it is here, or may be; also: taken, taken back */
	REHOME_EV_THEIRS,     /* by its record another's, whom we know how to reach */
	REHOME_EV_OPEN_ENDED, /* by its record given away, and not taken yet */
	REHOME_EV_FAILED,
	REHOME_EV_BEGIN, /* the destination has agreed */
	REHOME_EV_LONG,	 /* a round has ended; the rest would take longer than the pause may */
	REHOME_EV_SHORT, /* ... shorter; the last one has ended */
	REHOME_EV_QUIET, /* no request is on its way any more */
	REHOME_EV_GIVEN, /* it is the destination's to take, or ours again */
	REHOME_EV_CANCEL,
	REHOME_EV_OFFERED,   /* by its owner: TAKE, or by its record */
	REHOME_EV_ELSEWHERE, /* by its record it is not where we thought, or may not be */
	REHOME_EVENTS
};

enum rehome_action {
	REHOME_DO_LOOK,	   /* read its record */
	REHOME_DO_SERVE,   /* here: who waits goes on */
	REHOME_DO_FORWARD, /* to the other host: the same */
	REHOME_DO_PUSH,	   /* write back what is dirty, while it is used or read */
	REHOME_DO_FREEZE,  /* new requests wait from now on: changes, or all */
	REHOME_DO_GIVE,	   /* write back the rest, then put 'next' into its record */
	REHOME_DO_TAKE,	   /* tell the destination */
	REHOME_DO_ACQUIRE, /* try to, and read whose it is then */
	REHOME_ACTIONS
};

struct rehome_rule {
	uint8_t state, event, next, action;
};
/* NULL: it comes late. */
const struct rehome_rule *rehome_table_find(enum rehome_state state, enum rehome_event event);

enum rehome_way { REHOME_WAY_WAIT, REHOME_WAY_HERE, REHOME_WAY_THERE };
/* What becomes of a request in that state. `reads`: it changes nothing. */
enum rehome_way rehome_table_way(enum rehome_state state, bool reads);

/* From which term on who has opened it goes on, and in which. 0: no matter. */
struct rehome_terms {
	uint64_t since, term;
};
/* What that record says to `owner`. is_known: the record's owner is behind one of our edges;
   `sure`: it is known who is behind each of them. */
enum rehome_event rehome_table_judge(const struct map_home_info *home, uint64_t owner,
	bool is_known, bool sure, struct rehome_terms *terms);

/*
 * Who has opened it before it moved says so in each change: in term `said` (<xseg/op.h>). It was
 * only ever handed over from `since` on to `term`, so nobody has written to it whom he does not
 * know of, and he goes on in the term of now. since 0: no matter.
 */
static inline uint64_t rehome_table_term(uint64_t said, uint64_t since, uint64_t term)
{
	return since != 0 && said >= since && said < term ? term : said;
}

/*
 * The same, when our composer has just tried to acquire it in state SETTLING or TAKING; `acquired`:
 * it could. `given`: in which term it was given away, to be taken by us. It is handed over when
 * nobody but those to whom it was given has had it since.
 */
enum rehome_event rehome_table_acquired(enum rehome_state state, bool acquired, uint64_t given,
	const struct map_home_info *home, uint64_t owner, bool is_known, bool sure,
	struct rehome_terms *terms);

#endif
