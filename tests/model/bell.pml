/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bell (include/xseg/bell.h, xseg/xseg_bell.c, xseg_arm() in xseg/xseg_lane.c) on a machine
 * with store buffers, as x86 has them: is a wake-up ever lost? Nothing here times out, so a lost
 * one shows as a sleeper that never ends ("invalid end state").
 *
 * What is as in the code:
 *   ringer   joins (a locked instruction), tells the sleeper's lane of itself (another); then for
 *            each message: publish (store to its ring); a fence if the sleeper or it cannot
 *            membarrier; read asleep; if 1: exchange 0, and if that found 1: futex wake, or a byte
 *            to the FIFO; leaves (a store); and all that once more, as its own successor
 *   sleeper  look; asleep = 1 and a fence; unless all that ever told of themselves have left,
 *            membarrier (drains the store buffer of every process that has registered, and its
 *            own); look again; wait while asleep is 1, or until the FIFO is readable; asleep = 0;
 *            empty the FIFO; look
 *
 * Variants (cc -D...; run.sh runs them all):
 *   (none)      all ringers registered, membarrier, futex
 *   MIXED       ringer 1 could not register, so it fences; ringer 0 does not
 *   FALLBACK    the sleeper cannot membarrier: bell.fence is set, all ringers fence
 *   FD          a FIFO instead of the futex; with each of the above
 * Mutants, each must lose a wake-up (negative control):
 *   NO_BARRIER  nobody fences and the sleeper's barrier is only its own
 *   NO_FENCE    FALLBACK, but ringers forget the fence
 *   NO_LOOK     the sleeper does not look again after arming
 *   EARLY_LOOK  it looks after asleep = 1 but before the barrier
 *   SOFT_JOIN   ringers join and tell of themselves by plain stores
 *   EARLY_LEAVE they leave before the last message is published
 *   LATE_DRAIN  FD: the FIFO is emptied before waiting, after the last look
 */
#ifndef N
#define N 1 /* messages of each ringer in each of its lives */
#endif
#ifndef LIVES
#define LIVES 2
#endif
#define ALL (N * LIVES)
#define RINGERS 2
#define SLEEPER 2 /* process number; ringers are 0 and 1 */

/* addresses */
#define RING(who) (who)
#define ASLEEP 2
#define ALIVE(who) (3 + who) /* the word of the ringer's lane: not FREE */
#define KNOWN(who) (5 + who) /* its bit in the sleeper's `producers` */

byte memory[7];
chan buffer[3] = [2] of { byte, byte }; /* store buffers: address, value; first in, first out */
bit waiting;				 /* the kernel has the sleeper on the futex */
byte fifo;				 /* bytes in the FIFO, two stand for many */
byte got[RINGERS];

#if defined(FALLBACK)
#define FENCES(who) 1
#elif defined(MIXED)
#define FENCES(who) (who == 1)
#else
#define FENCES(who) 0
#endif

inline fence(who) { empty(buffer[who]) }

/* Each CPU's stores reach memory in order, at any time later. */
proctype drain(byte who)
{
	byte address, value;
end:
	do
	:: atomic { buffer[who]?address, value -> memory[address] = value }
	od
}

/* The barrier of whoever has registered, wherever it is in its code: its buffer is empty then. */
inline flush(who)
{
	do
	:: buffer[who]?address, value -> memory[address] = value
	:: empty(buffer[who]) -> break
	od
}

inline join(who)
{
#ifdef SOFT_JOIN
	buffer[who]!ALIVE(who), 1;
	buffer[who]!KNOWN(who), 1
#else
	atomic { empty(buffer[who]) -> memory[ALIVE(who)] = 1 };
	atomic { empty(buffer[who]) -> memory[KNOWN(who)] = 1 }
#endif
}

/* Reads asleep once, and wakes who sleeps. */
inline ring(who)
{
#ifndef NO_FENCE
	if
	:: FENCES(who) -> fence(who)
	:: else
	fi;
#endif
	asleep = memory[ASLEEP];
	if
	:: asleep ->
		/* a locked exchange: own stores first, then both halves at once */
		atomic { empty(buffer[who]) -> asleep = memory[ASLEEP]; memory[ASLEEP] = 0 }
		if
		:: asleep ->
#ifdef FD
			atomic { if :: fifo < 2 -> fifo++ :: else fi }
#else
			waiting = 0
#endif
		:: else
		fi
	:: else
	fi
}

proctype ringer(byte me)
{
	byte sent = 0;
	byte asleep;
	do
	:: sent < ALL ->
		if
		:: sent % N == 0 -> join(me)
		:: else
		fi;
		sent++;
#ifdef EARLY_LEAVE
		if
		:: sent % N == 0 -> buffer[me]!ALIVE(me), 0
		:: else
		fi;
#endif
		buffer[me]!RING(me), sent;
		ring(me);
#ifndef EARLY_LEAVE
		if
		:: sent % N == 0 -> buffer[me]!ALIVE(me), 0
		:: else
		fi
#endif
	:: else -> break
	od
}

inline look()
{
	found = 0;
	who = 0;
	do
	:: who < RINGERS ->
		/* one load each, the other ring may be filled in between */
		atomic {
			if
			:: memory[RING(who)] > got[who] -> got[who] = memory[RING(who)]; found = 1
			:: else
			fi
		};
		who++
	:: else -> break
	od
}

/* After asleep = 1: that store is a locked one, so it is out before anything else is read. */
inline barrier()
{
	fence(SLEEPER);
#if !defined(FALLBACK) && !defined(NO_BARRIER)
	who = 0;
	needed = 0;
	do
	:: who < RINGERS ->
		if
		:: memory[KNOWN(who)] -> if :: memory[ALIVE(who)] -> needed = 1 :: else fi
		:: else
		fi;
		who++
	:: else -> break
	od;
	if
	:: needed ->
#ifdef MIXED
		atomic { flush(0) }
#else
		atomic { flush(0); flush(1) }
#endif
	:: else
	fi
#endif
}

inline sleep_until_rung()
{
#ifdef FD
#ifdef LATE_DRAIN
	fifo = 0;
#endif
	fifo > 0;
#else
	/* futex: compares and sleeps in one, under the kernel's lock */
	atomic { fence(SLEEPER); if :: memory[ASLEEP] -> waiting = 1 :: else fi };
	waiting == 0;
#endif
}

proctype sleeper()
{
	byte who, address, value;
	bit found, needed;
	do
	:: got[0] == ALL && got[1] == ALL -> break
	:: else ->
		look();
		if
		:: found
		:: else ->
			buffer[SLEEPER]!ASLEEP, 1;
#ifdef EARLY_LOOK
			look();
			barrier();
#else
			barrier();
#ifndef NO_LOOK
			look();
#endif
#endif
			if
			:: found
			:: else -> sleep_until_rung()
			fi;
			buffer[SLEEPER]!ASLEEP, 0;
#ifdef FD
#ifndef LATE_DRAIN
			fifo = 0
#endif
#endif
		fi
	od
}

init
{
	atomic {
		run drain(0);
		run drain(1);
		run drain(SLEEPER);
		run ringer(0);
		run ringer(1);
		run sleeper()
	}
}
