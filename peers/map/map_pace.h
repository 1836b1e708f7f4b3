/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store that is asked no faster than somebody wants: it calls a hook every so many requests, and
 * when the hook says so, it answers nothing any more.
 *
 * Units: requests. Errors: the store's; -ECANCELED once the hook has ended it. Ownership: caller's.
 * Threads: one. Blocking: the store's, and the hook's.
 */
#ifndef SKERRY_MAP_PACE_H
#define SKERRY_MAP_PACE_H

#include "peers/map/map_store.h"

struct map_pace {
	struct map_store store; /* first: ask this one */
	struct map_store *below;
	int (*hook)(void *context); /* not 0: the end */
	void *context;
	unsigned every, count;
	int ended; /* what the hook has said */
};

void map_pace_init(struct map_pace *pace, struct map_store *below, unsigned every);
/* Calls the hook now. */
int map_pace_call(struct map_pace *pace);

#endif
