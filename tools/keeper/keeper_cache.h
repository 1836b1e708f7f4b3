/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the keeper minds of caches: edges from and to one are switched only by those who see to it
 * that nothing goes past it (`plug`, `unplug`), and what only a cache has is not thrown away
 * unasked.
 *
 * Errors: -enum fault_code. Threads: the loop's. Blocking: a pass over the page descriptors.
 */
#ifndef SKERRY_TOOLS_KEEPER_CACHE_H
#define SKERRY_TOOLS_KEEPER_CACHE_H

#include "tools/keeper/keeper_ask.h"

/* May that edge lead to `to`, a peer of `want`, instead, just like that? */
int keeper_cache_guard(const struct keeper *keeper, const struct pipeline *want, const char *edge,
	const char *to, struct fault *fault);
/* It was switched by who sees to that. */
void keeper_cache_switched(
	struct keeper *keeper, const char *edge, const char *from, const char *to);
/* Has the peer of that name something that its store lacks? Bytes. */
uint64_t keeper_cache_dirty(const struct keeper *keeper, const char *peer);
/* A segment that is there already: is somebody in the pipeline for all that is dirty in it? */
int keeper_cache_orphans(const struct keeper *keeper, struct fault *fault);
/* Nothing runs any more: may the segment go? `discard`: so many bytes may be lost. */
int keeper_cache_let_go(const struct keeper *keeper, uint64_t discard, struct fault *fault);

/* A peer that was stopped and that nobody leads to: no part of the pipeline any more. */
int keeper_cache_forget(struct ask *ask);

#endif
