/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A segment that is as new for each input: a lane with a composer above a memory blocker, and a
 * client's lane, on one thread and without a loop of their own. The segment's file is mapped
 * privately, so what an input wrote into it is forgotten by dropping the pages it touched.
 *
 * Threads: one. Errors: must(), but see rig_try().
 */
#ifndef SKERRY_TESTS_FUZZ_SEGMENT_RIG_H
#define SKERRY_TESTS_FUZZ_SEGMENT_RIG_H

#include "peers/core/core.h"

enum { RIG_VOLUME, RIG_STORE, RIG_PEERS };

struct segment_rig {
	struct xseg *seg;
	struct xseg_lane *client;
	uint32_t port[RIG_PEERS];
	int image; /* the file, to be mapped by others */
};

extern struct segment_rig rig;

void rig_init(void);
/*
 * f(context) with everything as new. A must() that fails in there ends it: true when none did.
 * A program may refuse a segment that somebody scribbled over by ending itself.
 */
bool rig_try(void (*f)(void *context), void *context);
/* From here on a must() that fails is a bug: it aborts. */
void rig_must_hold(bool hold);
/* One turn of the serving lane. */
void rig_serve(void);

#endif
