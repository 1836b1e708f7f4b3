/* SPDX-License-Identifier: Apache-2.0 */
/* What other threads hand to a lane: a wait-free queue, and a count that says how much is in it. */
#include <base/container.h>
#include <peer/post.h>

#include "peers/core/core.h"

/* The queue's node is one pointer: it lies in the item. */
fixed(sizeof(struct cds_wfcq_node) == sizeof(((struct post_item *)0)->node));

static struct cds_wfcq_node *post_node(struct post_item *item)
{
	return (struct cds_wfcq_node *)(void *)&item->node;
}

static struct post_item *post_item_of(struct cds_wfcq_node *node)
{
	return container_of(node, struct post_item, node);
}

void peer_post_expect(
	struct peer *peer, struct post_item *item, void (*done)(struct post_item *item))
{
	must(done);
	item->done = done;
	item->peer = peer;
	atomic_init(&item->is_posted, false);
	shard_of(peer)->posts++;
}

void peer_post(struct post_item *item)
{
	struct lane *lane = item->peer->lane;
	/* The lane sees what was done before. The queue is enough for that, but it is in
	   assembly, into which the thread sanitizer does not look; and the count below may be
	   another thread's, whose item lies behind this one. */
	atomic_store_explicit(&item->is_posted, true, memory_order_release);
	cds_wfcq_node_init(post_node(item));
	cds_wfcq_enqueue(&lane->post_head, &lane->post_tail, post_node(item));
	/* from here on the item is the lane's */
	atomic_fetch_add_explicit(&lane->posted, 1, memory_order_release);
	lane_ring(lane);
}

/* Takes everything that has come, in order. */
bool post_collect(struct lane *lane)
{
	if (likely(!post_waiting(lane)))
		return false;
	/* as many as were there when we looked: done() may send for more */
	uint32_t until = atomic_load_explicit(&lane->posted, memory_order_acquire);
	while (lane->posts_taken != until) {
		struct cds_wfcq_node *node =
			__cds_wfcq_dequeue_blocking(&lane->post_head, &lane->post_tail);
		must(node);
		struct post_item *item = post_item_of(node);
		must(atomic_load_explicit(&item->is_posted, memory_order_acquire));
		lane->posts_taken++;
		must(shard_of(item->peer)->posts-- > 0);
		item->done(item);
	}
	return true;
}
