/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An edge is switched while clients submit over it. The switcher may say "nothing goes the old way
 * any more" (and let the new peer answer from what it knows) only when that is so for good.
 *
 * A client reads the edge and moves the word of its request some time later: in between nobody
 * sees that a request is about to go the old way. So the switcher waits until every client has
 * ended the turn it was in (or sleeps), and only then for the old requests to be gone.
 *
 * Mutant: NO_GRACE  looks at the table at once
 */
#define CLIENTS 2
#define REQUESTS 2

byte edge = 0;		  /* the port it leads to: 0, then 1 */
byte submitted[2];	  /* requests at each port */
bool in_turn[CLIENTS];
byte turn[CLIENTS];	  /* grows at the end of each */
bool old_way_closed = false;
byte ended = 0;

proctype client(byte me)
{
	byte port, count = 0;
	do
	:: count < REQUESTS ->
		in_turn[me] = true;
		port = edge;
		atomic { assert(!(old_way_closed && port == 0)); submitted[port]++ };
		atomic { turn[me]++; in_turn[me] = false };
		count++
	:: else -> break
	od;
	ended++
}

proctype server(byte port)
{
	do
	:: atomic { submitted[port] > 0 -> submitted[port]-- }
	:: ended == CLIENTS && submitted[port] == 0 -> break
	od
}

proctype switcher()
{
	byte i, before[CLIENTS];
	edge = 1;
#ifndef NO_GRACE
	for (i : 0 .. CLIENTS - 1) {
		before[i] = turn[i]
	}
	for (i : 0 .. CLIENTS - 1) {
		(!in_turn[i] || turn[i] != before[i])
	}
#endif
	(submitted[0] == 0);
	old_way_closed = true
}

init
{
	byte i;
	atomic {
		for (i : 0 .. CLIENTS - 1) {
			run client(i)
		}
		run server(0);
		run server(1);
		run switcher()
	}
}
