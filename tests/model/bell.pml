/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bell (include/xseg/bell.h, xseg/xseg_bell.c, xseg_arm() in xseg/xseg_lane.c) on a machine
 * with store buffers, as x86 has them: is a wake-up ever lost? Nothing here times out, so a lost
 * one shows as a sleeper that never ends ("invalid end state").
 *
 * What is as in the code:
 *   ringer   publish (store to its ring); a fence if the sleeper or it cannot membarrier;
 *            read asleep; if 1: exchange 0, and if that found 1: futex wake, or a byte to the FIFO
 *   sleeper  look; asleep = 1; membarrier (drains the store buffer of every process that has
 *            registered, and its own) or only a fence; look again; wait while asleep is 1, or
 *            until the FIFO is readable; asleep = 0; empty the FIFO; look
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
 *   LATE_DRAIN  FD: the FIFO is emptied before waiting, after the last look
 */
#ifndef N
#define N 2 /* messages of each ringer */
#endif
#define RINGERS 2
#define SLEEPER 2 /* process number; ringers are 0 and 1 */

/* addresses */
#define RING(who) (who)
#define ASLEEP 2

byte memory[3];
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

proctype ringer(byte me)
{
	byte sent = 0;
	byte asleep;
	do
	:: sent < N ->
		sent++;
		buffer[me]!RING(me), sent;
#ifndef NO_FENCE
		if
		:: FENCES(me) -> fence(me)
		:: else
		fi;
#endif
		asleep = memory[ASLEEP];
		if
		:: asleep ->
			/* a locked exchange: own stores first, then both halves at once */
			atomic { empty(buffer[me]) -> asleep = memory[ASLEEP]; memory[ASLEEP] = 0 }
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

inline barrier()
{
#if defined(FALLBACK) || defined(NO_BARRIER)
	fence(SLEEPER)
#elif defined(MIXED)
	atomic { fence(SLEEPER); flush(0) }
#else
	atomic { fence(SLEEPER); flush(0); flush(1) }
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
	bit found;
	do
	:: got[0] == N && got[1] == N -> break
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
