/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bell (include/xseg/bell.h, xseg/xseg_bell.c, xseg_arm() in xseg/xseg_lane.c) on a machine
 * with store buffers, as x86 has them: is a wake-up ever lost? Nothing here times out, so a lost
 * one shows as a sleeper that never ends ("invalid end state").
 *
 * What is as in the code:
 *   ringer   for each message: publish (store to its ring); a fence; read asleep; if 1: exchange 0,
 *            and if that found 1: futex wake, or a byte to the FIFO
 *   sleeper  look; asleep = 1 and a fence; look again; wait while asleep is 1, or until the FIFO is
 *            readable; asleep = 0; empty the FIFO; look
 *
 * Variants (cc -D...; run.sh runs them all):
 *   (none)      a futex
 *   FD          a FIFO instead
 * Mutants, each must lose a wake-up (negative control):
 *   NO_FENCE    ringers forget the fence
 *   SOFT_ARM    the sleeper does
 *   NO_LOOK     the sleeper does not look again after arming
 *   EARLY_LOOK  it looks after asleep = 1 but before the fence
 *   LATE_DRAIN  FD: the FIFO is emptied before waiting, after the last look
 */
#define N 2 /* messages of each ringer */
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

/* Reads asleep once, and wakes who sleeps. */
inline ring(who)
{
#ifndef NO_FENCE
	fence(who);
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
	:: sent < N -> sent++; buffer[me]!RING(me), sent; ring(me)
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
	byte who;
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
#endif
#ifndef SOFT_ARM
			fence(SLEEPER);
#endif
#if !defined(NO_LOOK) && !defined(EARLY_LOOK)
			look();
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
