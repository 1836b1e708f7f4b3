/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bells: how a lane that has nothing to do sleeps, and how others wake it.
 *
 *   sleeper: asleep = 1; fence; look at every ring again; wait; asleep = 0
 *   ringer:  publish all of a turn; fence; read asleep; if 1: exchange 0 and wake
 *
 * A fence for each turn, not for each message, so it costs next to nothing; a barrier that the
 * sleeper alone pays for (membarrier) interrupts all other CPUs: see docs/decisions/0012.
 * tests/model/bell.pml proves that no wake-up is lost.
 *
 * A pure lane sleeps on the futex word. A lane that also waits for sockets has a FIFO
 * RUN_DIR/SEGMENT/bell.LANE in its event loop: anybody who may enter the folder can ring
 * it, and it survives the restart of either side.
 *
 * Units: ns. Threads: wait by the one lane, ring by any. Blocking: wait only.
 */
#ifndef SKERRY_XSEG_BELL_H
#define SKERRY_XSEG_BELL_H

#include <stdbool.h>
#include <xseg/segment.h>

/* What one ringing process keeps: open FIFOs of the lanes it has rung. */
struct xseg_ringer {
	const struct xseg *seg;
	int fd[XSEG_LANES_MAX]; /* -1: not open */
};

void xseg_ringer_init(struct xseg_ringer *ringer, const struct xseg *seg);
void xseg_ringer_fini(struct xseg_ringer *ringer);

/* Wakes `lane` if it sleeps; call after publishing, and after a fence behind that. Cheap when it is
   awake. */
void xseg_bell_ring_slow(struct xseg_ringer *ringer, uint32_t lane);
static inline void xseg_bell_ring(struct xseg_ringer *ringer, uint32_t lane)
{
	const struct xseg_bell *bell = &ringer->seg->lanes[lane].bell;
	if (unlikely(atomic_load_explicit(&bell->asleep, memory_order_relaxed)))
		xseg_bell_ring_slow(ringer, lane);
}

/* The sleeper's side. */
void xseg_bell_init(const struct xseg *seg, uint32_t lane); /* at joining: futex bell, awake */
int xseg_bell_open_fd(
	const struct xseg *seg, uint32_t lane, int *fd); /* kind = FD; makes the FIFO */
void xseg_bell_close_fd(const struct xseg *seg, uint32_t lane, int fd);
/* asleep = 1 and a fence; look at your rings after this, before you wait. */
void xseg_bell_arm(const struct xseg *seg, uint32_t lane);
/* Futex wait while asleep is 1, timeout_ns at most; returns with asleep = 0. */
void xseg_bell_wait(const struct xseg *seg, uint32_t lane, uint64_t timeout_ns);
/* Found something after arming, or woken by the fd: asleep = 0. */
void xseg_bell_disarm(const struct xseg *seg, uint32_t lane);
/* Empties the FIFO. */
void xseg_bell_drain_fd(int fd);

/*
 * How long to spin before sleeping: grows when spinning pays, shrinks when it does not,
 * so that a lane spins for about one wake-up when CPUs are free and not at all when its
 * partner cannot run because of it.
 */
struct xseg_spin {
	uint64_t budget_ns;
	uint32_t failures; /* in a row */
};
#define XSEG_SPIN_MAX_NS 100000u /* two wake-ups on idle CPUs of a virtual machine */
void xseg_spin_init(struct xseg_spin *spin);
void xseg_spin_paid(struct xseg_spin *spin, uint64_t waited_ns);
void xseg_spin_failed(struct xseg_spin *spin);

#endif
