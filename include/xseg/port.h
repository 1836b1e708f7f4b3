/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ports (where a peer is reached) and edges (a peer's named way down).
 *
 * An edge is one atomic word {port, generation}: whoever submits reads it each time, so
 * it is switched while requests are in flight and the next submit goes the new way.
 *
 * Errors: -ENOENT, -EEXIST, -ENOSPC (table full), -EINVAL (name). Ownership: a port record
 * belongs to its name for ever: a peer that dies leaves it, its successor binds it again and
 * finds the requests submitted to it. Threads: any. Blocking: none.
 */
#ifndef SKERRY_XSEG_PORT_H
#define SKERRY_XSEG_PORT_H

#include <xseg/segment.h>

/*
 * Binds the port of peer `name` to these lanes; a port of that name that is bound to a
 * living peer: -EEXIST. *port: its index.
 */
int xseg_port_bind(const struct xseg *seg, const char *name, uint32_t peer, uint16_t epoch,
	const uint8_t *lanes, uint32_t lane_count, uint32_t *port);
/* Its peer is stopping: what is sent to a lane by number (a part of its own flush) arrives, all
   else waits for the next bind. */
void xseg_port_drain(const struct xseg *seg, uint32_t port);
/* No longer served; what was submitted to it waits for the next bind. */
void xseg_port_unbind(const struct xseg *seg, uint32_t port);
/* -ENOENT when there is no record of that name (bound or not). */
int xseg_port_find(const struct xseg *seg, const char *name, uint32_t *port);
/* A living peer is bound to it. */
bool xseg_port_served(const struct xseg *seg, uint32_t port);
/* The record of that name, made (unbound) if there is none: an edge may lead to a peer to come. */
int xseg_port_reserve(const struct xseg *seg, const char *name, uint32_t *port);

/*
 * The lane of a port that serves this key and offset: the same object always goes to the
 * same lane. XSEG_NONE when the port is not bound.
 */
uint32_t xseg_port_lane(const struct xseg *seg, uint32_t port, const struct xseg_frame *frame);
/* Which of `count` lanes that is, whether the port is bound or not. */
uint32_t xseg_port_shard(const struct xseg_key *key, uint64_t offset, uint32_t count);

/* The edge "PEER:edge", made if there is none (leading nowhere). 0 or -errno. */
int xseg_edge_reserve(const struct xseg *seg, const char *name, uint32_t *edge);
int xseg_edge_find(const struct xseg *seg, const char *name, uint32_t *edge);
/* The name of the peer that an edge leads to, "": nobody. -ENOENT: there is no such edge. */
int xseg_edge_target(const struct xseg *seg, const char *name, char to[NAME_LENGTH_MAX + 1]);
/* Points the edge at a port (XSEG_NONE: nowhere) from the next submit on; the generation grows. */
void xseg_edge_set(const struct xseg *seg, uint32_t edge, uint32_t port);
/* Where it leads now, or XSEG_NONE. */
static inline uint32_t xseg_edge_port(const struct xseg *seg, uint32_t edge)
{
	uint64_t word = atomic_load_explicit(&seg->edges[edge].word, memory_order_acquire);
	uint32_t port = (uint32_t)(word >> 32);
	return port < XSEG_PORTS_MAX ? port : XSEG_NONE;
}

#endif
