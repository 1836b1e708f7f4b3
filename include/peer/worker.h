/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads for what blocks. run(item) on a worker thread, then done(item) on the shard's lane.
 *
 * Errors: none; the pool queues. Ownership: the item is the caller's, embedded in something of
 * its own, and must live until done. Threads: run on any worker, done on the lane; a shard with
 * items out is not idle. Blocking: run may.
 */
#ifndef SKERRY_PEER_WORKER_H
#define SKERRY_PEER_WORKER_H

#include <peer/post.h>

struct worker_item {
	struct post_item post; /* first: the way back, and its peer */
	void (*run)(struct worker_item *item);
	void (*done)(struct worker_item *item);
	struct worker_item *next; /* the core's */
};

void worker_run(struct peer *peer, struct worker_item *item, void (*run)(struct worker_item *item),
	void (*done)(struct worker_item *item));

#endif
