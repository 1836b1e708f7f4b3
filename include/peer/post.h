/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way back to a lane, from any thread: for stores whose library has threads of its own and says
 * there that an operation has ended. The lane is told beforehand, so that it waits for it; the
 * worker pool (<peer/worker.h>) comes back the same way.
 *
 * Errors: none. Ownership: the item is the caller's, embedded in something of its own, and must
 * live until done(). Threads: expect and done on the shard's lane, peer_post() on any. What is
 * posted by one thread is done in that order. A shard with items out is not idle. A thread that
 * posts must have left peer_post() before the role's close() returns: join it there. Blocking:
 * none; peer_post() is wait-free but for a lane that sleeps, which is woken once.
 */
#ifndef SKERRY_PEER_POST_H
#define SKERRY_PEER_POST_H

#include <peer/peer.h>

struct post_item {
	void (*done)(struct post_item *item);
	struct peer *peer;
	/* the core's */
	void *node;
	_Atomic bool is_posted;
};

/* It will be posted, once. */
void peer_post_expect(
	struct peer *peer, struct post_item *item, void (*done)(struct post_item *item));
/* From here on it is the lane's, which calls done(). */
void peer_post(struct post_item *item);

#endif
