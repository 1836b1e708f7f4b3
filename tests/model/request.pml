/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two request slots, a client and a server that may be killed before each of their steps, and the
 * reaper that runs when either comes back, and may be killed as well.
 *
 * Checked: what a living client has asked for is answered, once, after it was executed; a slot is
 * free again in the end, whoever died; and no write of a dead client is executed after a write of
 * its successor was acknowledged.
 *
 * The word is {state, epoch of its owner}; `asker` and `value` are what stands in the slot. A step
 * between two semicolons is one move of the word (CAS or store) or one write below.
 *
 * Mutants: NO_WAIT  a client begins again while something old is still being served
 *          KEEP     requests of dead clients that nobody has taken are left to be served
 *          NO_AGAIN what a dead server had taken is not submitted again
 *          TWICE    the reaper frees what the living serve for the dead
 */
#ifndef CRASHES
#define CRASHES 2
#endif
#define WRITES 1 /* of each life of the client */
#define SLOTS 2

mtype = { FREE, OWNED, SUBMITTED, TAKEN, DONE };

mtype state[SLOTS] = FREE;
byte owner[SLOTS];	/* epoch: of the client (OWNED, DONE) or of the server (TAKEN) */
byte asker[SLOTS];	/* epoch of the client whose request this is */
byte value[SLOTS];	/* what it writes */
byte client_epoch = 1;	/* who lives; an epoch that is not one of these is dead */
byte server_epoch = 1;
byte next_value = 1;
byte stored = 0;	/* the last write that was executed */
byte acknowledged = 0;	/* the last write that a client was told of */
byte crashes = CRASHES;
bool server_stop = false;
byte pending = 0;
bool reaping = false;

#define MAY_CRASH(label)                                                                           \
	if                                                                                         \
	:: atomic { crashes > 0 -> crashes-- }; goto label                                         \
	:: skip                                                                                    \
	fi

/* The lock of a reaper dies with it. */
#define MAY_CRASH_REAPING                                                                          \
	if                                                                                         \
	:: atomic { crashes > 0 -> crashes--; reaping = false }; goto again                        \
	:: skip                                                                                    \
	fi

/* One look at the word, one CAS: what was seen is what is changed, or nothing is. */
inline reap()
{
	atomic { !reaping -> reaping = true };
	pending = 0;
	for (i : 0 .. SLOTS - 1) {
		d_step { seen = state[i]; seen_owner = owner[i]; seen_asker = asker[i] };
		MAY_CRASH_REAPING;
		if
		:: (seen == OWNED || seen == DONE) && seen_owner != client_epoch ->
			atomic {
				if
				:: state[i] == seen && owner[i] == seen_owner ->
					state[i] = OWNED; owner[i] = seen_asker
				:: else
				fi
			};
			MAY_CRASH_REAPING;
			atomic {
				if
				:: state[i] == OWNED && owner[i] == seen_asker ->
					state[i] = FREE; owner[i] = 0
				:: else
				fi
			}
#ifndef KEEP
		:: seen == SUBMITTED && seen_asker != client_epoch ->
			atomic {
				if
				:: state[i] == SUBMITTED && asker[i] == seen_asker ->
					state[i] = FREE; owner[i] = 0
				:: else -> pending = 1
				fi
			}
#endif
		:: seen == TAKEN && seen_owner == server_epoch && seen_asker != client_epoch ->
#ifdef TWICE
			atomic { state[i] = FREE; owner[i] = 0 }
#else
			pending = 1
#endif
		:: seen == TAKEN && seen_owner != server_epoch && seen_asker != client_epoch ->
			atomic {
				if
				:: state[i] == TAKEN && owner[i] == seen_owner ->
					state[i] = FREE; owner[i] = 0
				:: else
				fi
			}
#ifndef NO_AGAIN
		:: seen == TAKEN && seen_owner != server_epoch && seen_asker == client_epoch ->
			atomic {
				if
				:: state[i] == TAKEN && owner[i] == seen_owner ->
					state[i] = SUBMITTED
				:: else
				fi
			}
#endif
		:: else
		fi
	}
	reaping = false
}

active proctype client()
{
	mtype seen;
	byte seen_owner, seen_asker, mine, wrote, i, at, me = 1;
begin:
	wrote = 0;
	do
	:: wrote < WRITES ->
		MAY_CRASH(dead);
		atomic {
			if
			:: state[0] == FREE -> at = 0
			:: state[1] == FREE -> at = 1
			fi;
			state[at] = OWNED; owner[at] = me; asker[at] = me;
			mine = next_value; value[at] = mine; next_value++
		};
		MAY_CRASH(dead);
		atomic { assert(state[at] == OWNED && owner[at] == me); state[at] = SUBMITTED };
		MAY_CRASH(dead);
		atomic { state[at] == DONE && owner[at] == me -> state[at] = OWNED };
		assert(stored == mine);
		acknowledged = mine;
		MAY_CRASH(dead);
		atomic {
			assert(state[at] == OWNED && owner[at] == me);
			state[at] = FREE; owner[at] = 0
		};
		wrote++
	:: else -> break
	od;
	goto done;
dead:
	atomic { client_epoch++; me = client_epoch };
again:
	reap();
#ifndef NO_WAIT
	if
	:: pending -> goto again
	:: else
	fi;
#endif
	goto begin;
done:
	/* whoever is left over of earlier lives is gone in the end */
	do
	:: state[0] == FREE && state[1] == FREE -> break
	:: else -> reap()
	od;
	server_stop = true
}

active proctype server()
{
	mtype seen;
	byte seen_owner, seen_asker, i, at, work, me = 1;
serve:
	do
	:: server_stop -> break
	:: atomic {
		if
		:: state[0] == SUBMITTED -> at = 0
		:: state[1] == SUBMITTED -> at = 1
		fi;
		state[at] = TAKEN; owner[at] = me; work = value[at]
	   };
		MAY_CRASH(dead);
		/* executed below: never over a newer one that was acknowledged */
		atomic { assert(work >= acknowledged); stored = work };
		MAY_CRASH(dead);
		atomic {
			assert(state[at] == TAKEN && owner[at] == me);
			state[at] = DONE; owner[at] = asker[at]
		}
	od;
	goto end;
dead:
	atomic { server_epoch++; me = server_epoch };
again:
	reap();
	goto serve;
end:
	skip
}
