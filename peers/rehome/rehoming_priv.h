/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of libxseg-rehome say to each other.
 *
 * Errors: 0 or -errno. Threads: one. Blocking: as noted.
 */
#ifndef SKERRY_PEERS_REHOME_REHOMING_PRIV_H
#define SKERRY_PEERS_REHOME_REHOMING_PRIV_H

#include <peer/client.h>
#include <peer/rehoming.h>
#include <stdbool.h>

struct rehoming {
	struct rehoming_ask ask; /* its names lie below */
	char segment[NAME_LENGTH_MAX + 1], rehomer[NAME_LENGTH_MAX + 1],
		composer[NAME_LENGTH_MAX + 1], bridge[NAME_LENGTH_MAX + 1];
	bool comes; /* a leecher */
	enum { STEP_BEGIN, STEP_LOOK, STEP_FETCH, STEP_ENDED } step;
	struct xseg_volume_info volume;
	struct rehome_ask say;
	struct rehome_info info;
	uint64_t known_ns; /* until then theirs may not know yet who we are */
	unsigned again;	   /* so often it was told to begin once more */
	bool suspended;	   /* before_suspend() has said 0, or why not */
	int error;
	uint64_t fetched;     /* looked at, from the volume's begin */
	struct client client; /* of the re-homer, while it fetches */
	bool asks;	      /* that one is open */
	unsigned hints;	      /* on their way */
	int hint_error;
};

/*
 * Fronts that keep what their clients write (front_region) give it to the volume before that
 * becomes another host's, and their clients write no more until it is: who opens it there finds all
 * that was written here. What cannot be settled goes to the volume later, over the bridge.
 * Blocking: until all of them have answered.
 */
void rehoming_hold(const struct rehoming *rehoming);
/* They go on. A program that was killed holds them for a few seconds. */
void rehoming_hold_end(const struct rehoming *rehoming);

/* The next stretch. 0: that was all; REHOMING_GOES: there is more; -errno: it is not all there. */
int rehoming_fetch(struct rehoming *rehoming);
void rehoming_fetch_end(struct rehoming *rehoming);

#endif
