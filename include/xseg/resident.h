/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Swap that lies behind a segment must never be waited for by those who serve it. A word in the
 * segment asks all of its processes to keep their memory, and the segment, where it is
 * (mlockall(2)), and each of their threads to have memory given to it without anything being
 * written out for that (PR_SET_IO_FLUSHER). A successor finds the word and does the same.
 *
 * Units, errors: none; what is refused is logged, and /proc/PID/status (VmLck) says what is so.
 * Ownership: the segment outlives what looks at it. Threads: any; begin before there are others.
 * Blocking: the first look of a process after a change touches every page of the segment.
 *
 * Source: mlockall(2), prctl(2); swap over a server in the same host, as in nbd-client(8) -swap.
 */
#ifndef SKERRY_XSEG_RESIDENT_H
#define SKERRY_XSEG_RESIDENT_H

#include <base/must.h>
#include <xseg/segment.h>

void xseg_resident_ask(const struct xseg *seg, bool on);

/* The process is of that segment, unless it is of another one already; until the end. */
void xseg_resident_begin(const struct xseg *seg);
void xseg_resident_end(const struct xseg *seg);

/* Private to what is inline here. */
struct xseg_resident {
	const struct xseg *_Atomic seg;
	_Atomic uint32_t done; /* for the process */
};
extern struct xseg_resident xseg_resident;
extern _Thread_local uint32_t xseg_resident_thread;
void xseg_resident_apply(const struct xseg *seg);

/* Each thread, before it does something for others. */
static inline void xseg_resident_look(void)
{
	const struct xseg *seg = atomic_load_explicit(&xseg_resident.seg, memory_order_acquire);
	if (unlikely(seg && xseg_peek(seg->super->resident) != xseg_resident_thread))
		xseg_resident_apply(seg);
}

#endif
