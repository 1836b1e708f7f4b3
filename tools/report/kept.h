/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages that ports keep beyond the death of their peers: what of a cache is lost with its segment.
 *
 * Units: pages; bytes are of whole pages, as caches count. Errors: none. Ownership: none. Threads:
 * any. Blocking: passes over the descriptors.
 */
#ifndef SKERRY_TOOLS_KEPT_H
#define SKERRY_TOOLS_KEPT_H

#include <xseg/segment.h>

struct kept {
	uint64_t pages;
	uint64_t dirty; /* bytes that no store has */
};

/* Of one port, or with XSEG_NONE of all. */
void kept_count(const struct xseg *seg, uint32_t port, struct kept *kept);
/* The first port with something dirty that `known` has no name of; XSEG_NONE: there is none. */
uint32_t kept_orphan(const struct xseg *seg, bool (*known)(void *context, const char *peer),
	void *context, struct kept *kept);
#endif
