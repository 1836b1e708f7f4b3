/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Back-pressure: who may take from the pools, and who waits for them.
 *
 * Whoever stands lower must be able to finish what those above have begun, or all wait for all.
 * So fronts, which begin things, leave a quarter of the slots and a part of the pages; peers
 * that serve leave a sixteenth of the slots for the core's own flushes.
 */
#include <base/probe.h>
#include <errno.h>
#include <xseg/request.h>

#include "peers/core/core.h"

#define SLOTS_FRONT_LEAVES 4u
#define SLOTS_SERVER_LEAVES 16u
#define PAGES_FRONT_LEAVES 32u
/* Others take at the same time: of what is there, this share before looking again. */
#define CREDIT_SHARE 16u
#define CREDIT_MAX 4096u

static uint32_t retry_credit(uint32_t there, uint32_t leave, uint32_t need)
{
	if (there < need || there - need < leave)
		return 0;
	uint32_t credit = need + (there - need - leave) / CREDIT_SHARE;
	return credit < CREDIT_MAX + need ? credit : CREDIT_MAX + need;
}

bool retry_slot_allowed(struct shard *shard)
{
	struct lane *lane = shard->peer.lane;
	if (unlikely(shard->slot_credit == 0)) {
		uint32_t leave = lane->x->seg->request_count /
				 (shard->front ? SLOTS_FRONT_LEAVES : SLOTS_SERVER_LEAVES);
		if (shard->slots_turn == lane->turn)
			return false; /* looked at once in a turn is enough */
		uint32_t there = xseg_request_free_count(lane->x->seg) + lane->x->slots.count;
		shard->slot_credit = retry_credit(there, leave, 1);
		if (shard->slot_credit == 0) {
			shard->slots_turn = lane->turn;
			probe1(slot_wait, lane->x->index);
			return false;
		}
	}
	shard->slot_credit--;
	return true;
}

bool retry_pages_allowed(struct shard *shard, uint32_t count)
{
	struct lane *lane = shard->peer.lane;
	if (!shard->front)
		return true;
	if (unlikely(shard->page_credit < count)) {
		const struct xseg *seg = lane->x->seg;
		if (shard->pages_turn == lane->turn)
			return false;
		/* what we hold ready counts: it is of no use to anybody else */
		shard->page_credit = retry_credit(xseg_page_free_count(seg) + lane->x->pages.count,
			seg->page_count / PAGES_FRONT_LEAVES, count);
		if (shard->page_credit < count) {
			shard->pages_turn = lane->turn;
			probe2(page_wait, lane->x->index, count);
			return false;
		}
	}
	shard->page_credit -= count;
	return true;
}

void peer_retry(struct peer *peer, retry_f *again, void *context)
{
	struct shard *shard = shard_of(peer);
	struct slab *retries = &peer->lane->retries;
	uint32_t index;
	struct retry *retry = slab_get(retries, &index);
	must(retry && again);
	*retry = (struct retry){
		.index = index, .next = XSEG_NONE, .again = again, .context = context};
	if (shard->retry_head == XSEG_NONE)
		shard->retry_head = index;
	else
		((struct retry *)slab_at(retries, shard->retry_tail))->next = index;
	shard->retry_tail = index;
	xseg_count(peer->stats, CORE_RETRIES, 1);
}

/* In order of asking; the first that is still refused ends it for this turn. */
bool retry_run(struct shard *shard)
{
	struct slab *retries = &shard->peer.lane->retries;
	uint32_t last = shard->retry_tail;
	bool moved = false;
	while (shard->retry_head != XSEG_NONE) {
		uint32_t index = shard->retry_head;
		struct retry *retry = slab_at(retries, index);
		if (!retry->again(&shard->peer, retry->context))
			break;
		/* again() may have asked anew: that stands behind us and is not lost */
		shard->retry_head = retry->next;
		slab_put(retries, index);
		moved = true;
		if (index == last)
			break;
	}
	return moved;
}
