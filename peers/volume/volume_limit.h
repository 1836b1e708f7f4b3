/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much a volume may do in a second: two buckets of tokens, one of requests and one of bytes,
 * that fill steadily and hold what a burst may take. A request goes when neither is overdrawn,
 * and may overdraw it: so one that is larger than a burst goes, too, and those behind it wait the
 * longer.
 *
 * The limit is the process's: all shards take from the same buckets. A limited volume admits nobody
 * (volume->admitted), so that each request is looked at.
 *
 * Units: bytes, ns. Errors: 0 or -errno. Ownership: the volume's. Threads: with the table's mutex,
 * but volume_limit_wait() and _poll(). Blocking: none.
 */
#ifndef SKERRY_VOLUME_LIMIT_H
#define SKERRY_VOLUME_LIMIT_H

#include "peers/volume/volume.h"

#define VOLUME_BURST_MS 1000u /* when none is said */

struct volume_limit {
	struct map_change_limits limits;
	uint64_t then_ns; /* up to when it was filled; 0: it is full */
	bool changed;	  /* since: the new rates count from the next look on */
	/* tokens in units of 1 / 1e9; below 0: overdrawn */
	__int128 requests, bytes;
};

/* 0 or -ENOMEM. All 0: none, *limit is NULL from now on. What is there is not filled anew. */
int volume_limit_set(struct volume_limit **limit, const struct map_change_limits *limits);
void volume_limit_free(struct volume_limit *limit);
/* May a request of that size go now? Else *when: not before then. */
bool volume_limit_take(struct volume_limit *limit, uint64_t bytes, uint64_t now_ns, uint64_t *when);

/* The job waits, behind all others of this shard that wait for the same volume. */
void volume_limit_wait(struct peer *peer, struct job *job, uint64_t when);
/* Does somebody wait for it on this shard? Then others stand behind him. */
bool volume_limit_is_waited(struct peer *peer, uint64_t volume);
/* It has waited, and has been let go: it is not counted again. */
bool volume_limit_paid(const struct job *job);
void volume_limit_pay(struct job *job);
/* Each turn. */
bool volume_limit_poll(struct peer *peer);

#endif
