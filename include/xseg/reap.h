/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a death: what the dead had is given back, what they were asked goes to their successors.
 *
 * Death is by lane and epoch: whatever carries a dead one is dead. The reaper
 *   - frees the requests of dead clients, those that nobody has taken yet without serving them:
 *     a write that comes late must not follow a newer one;
 *   - submits again what a dead server had taken, to the same port, if its client lives;
 *   - frees the pages of the dead that no request needs any more;
 *   - makes lost hints anew, and tells every living lane to look through the table.
 * What a living server still does for a dead client is left to it and counted as `pending`: reap
 * again later. Until then no successor of that client may begin: see xseg_reap_wait().
 *
 * Each step moves one word, so a reaper may be killed anywhere and the next begins anew.
 *
 * Units: counts; ns. Errors: -EBUSY a living process reaps already. Ownership: none changes
 * but from the dead. Threads: any, of any process; the lock excludes. Blocking: reads /proc;
 * one pass over the tables (about a millisecond per GiB), xseg_reap_wait() up to its limit.
 * Source: the request table as the only truth follows vhost-user's in-flight region.
 */
#ifndef SKERRY_XSEG_REAP_H
#define SKERRY_XSEG_REAP_H

#include <xseg/segment.h>

struct xseg_reap_report {
	uint32_t lanes;	      /* found dead just now */
	uint32_t freed;	      /* requests of dead clients */
	uint32_t resubmitted; /* requests that a dead server had taken */
	uint32_t refused;     /* of those: damaged, answered with -EIO */
	uint32_t pages;	      /* freed */
	uint32_t hints;	      /* of slots and pages, made anew */
	uint32_t pending;     /* requests and pages of dead clients that living servers still use */
	uint32_t kept;	      /* pages of a dead store that the living still read */
	uint64_t took_ns;
};

int xseg_reap(const struct xseg *seg, struct xseg_reap_report *report);
/* Reaps until nothing is pending; -ETIME after limit_ns. *report: sums, and the last pending. */
int xseg_reap_wait(const struct xseg *seg, uint64_t limit_ns, struct xseg_reap_report *report);
/* Is there anything for a reaper? Cheap: looks at the lanes only. */
bool xseg_reap_due(const struct xseg *seg);
/*
 * The peer of that port has been given up: what waits for it is answered with `error` (-errno).
 * How many; -EAGAIN while something is pending: what a part still reads must not be freed.
 */
int xseg_reap_fail_port(const struct xseg *seg, uint32_t port, int error);
/*
 * The same peer, and another way to go: what lanes of `lanes` (a bit each) sent to port `from` and
 * waits there goes to port `to`, as if it had been sent there. How many; -EAGAIN as above. Call
 * again until it is 0 a while after the edges were moved: whoever read one before may still submit
 * the old way.
 */
int xseg_reap_move_port(const struct xseg *seg, uint64_t lanes, uint32_t from, uint32_t to);

#endif
