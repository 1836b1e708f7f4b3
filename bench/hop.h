/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of bench_hop: bare lanes that answer, forward, or ask.
 *
 * Units: ns, requests. Threads: one lane each. Blocking: until told to end.
 */
#ifndef SKERRY_BENCH_HOP_H
#define SKERRY_BENCH_HOP_H

#include <xseg/lane.h>

#include "bench/common.h"

struct hop_peer {
	struct xseg *seg;
	const char *name;
	const char *next; /* forwards there; NULL: answers */
	int cpu;	  /* -1: any */
	bool waits;	  /* sleeps when there is nothing to do, as peers do; else polls only */
};

/* Starts one; returns when its port is bound. */
pid_t hop_start(struct hop_peer *peer);
void hop_stop(struct hop_peer *peer, pid_t pid);

/*
 * A real one: `xsegpeer NAME=ROLE`, from $SKERRY_BUILD or the folder of this program. -1: it is
 * not built. Ends with hop_stop().
 */
pid_t hop_start_peer(struct hop_peer *peer, const char *role);

/* The asking side. */
struct hop_client {
	struct xseg_lane *lane;
	uint32_t port;
	bool waits;
};
void hop_client_init(struct hop_client *client, struct xseg *seg, const char *port, bool waits);
void hop_client_fini(struct hop_client *client);
/* One after the other; a sample for each, ns. */
void hop_one_by_one(struct hop_client *client, unsigned count, struct samples *samples);
/* `depth` in flight; M requests a second. */
double hop_many(struct hop_client *client, unsigned count, unsigned depth);

/* Client and server on one lane of this process, through the local queue. */
double hop_stacked(struct xseg_lane *lane, uint32_t port, unsigned count, unsigned depth);
uint32_t hop_bind(struct xseg_lane *lane, const char *name);

#endif
