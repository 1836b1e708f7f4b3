/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is in the segment: lanes (threads) and peers (parts with names). The epoch of an
 * entry is new at each join, so whatever carries an old one is dead by definition.
 *
 * Errors: -EEXIST (a living peer has the name), -ENOSPC (table full), -EINVAL.
 * Ownership: an entry is its process's until it leaves, or dies and is reaped. Threads: any.
 * Blocking: reads /proc to tell the living from the dead.
 */
#ifndef SKERRY_XSEG_REGISTRY_H
#define SKERRY_XSEG_REGISTRY_H

#include <stdbool.h>
#include <sys/types.h>
#include <xseg/segment.h>

/* Claims a free (or dead) lane entry for this process. */
int xseg_lane_claim(const struct xseg *seg, uint32_t *lane, uint16_t *epoch);
void xseg_lane_release(const struct xseg *seg, uint32_t lane);

int xseg_peer_join(const struct xseg *seg, const char *name, const char *role, uint64_t lanes,
	uint32_t *peer, uint16_t *epoch);
void xseg_peer_draining(const struct xseg *seg, uint32_t peer);
void xseg_peer_leave(const struct xseg *seg, uint32_t peer);

/* A checked copy of an entry; false when it is free. */
struct xseg_peer_view {
	uint32_t index;
	enum xseg_life life; /* DEAD when the process is gone */
	pid_t pid;
	uint16_t epoch;
	uint64_t lanes, joined_ns;
	char name[NAME_LENGTH_MAX + 1], role[NAME_LENGTH_MAX + 1];
};
bool xseg_peer_view(const struct xseg *seg, uint32_t peer, struct xseg_peer_view *view);
/* -ENOENT; finds dead ones too. */
int xseg_peer_find(const struct xseg *seg, const char *name, struct xseg_peer_view *view);

/* Is the lane's process alive, and is this its epoch? */
bool xseg_lane_alive(const struct xseg *seg, uint32_t lane, uint16_t epoch);
/* pid, start time (clock ticks since boot) as in /proc/PID/stat field 22; 0 when there is none. */
uint64_t xseg_process_start_time(pid_t pid);

#endif
