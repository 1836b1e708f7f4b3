/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are on their way, found in the segment's table: a worker waits for them. */
#include <base/time.h>
#include <xseg/port.h>
#include <xseg/request.h>

#include "peers/mover/mover.h"

#define LOOK_NS 200000u

static bool is_of(const struct mover_group *group, const struct xseg_key *key)
{
	return !group || mover_group_has(group, key->volume);
}

static bool is_meant(
	enum mover_out out, const struct mover_group *group, const struct xseg_key *key)
{
	switch (out) {
	case OUT_RECORDS: return store_record_is(key) && is_of(group, key);
	case OUT_NAMES: return key->epoch == XSEG_EPOCH_NAME;
	default: return is_of(group, key);
	}
}

/* Whoever we have handed a request on to has a frame above ours. */
static bool is_out(const struct mover *mover, enum mover_out out, const struct mover_group *group,
	const struct xseg_request *request, uint64_t word)
{
	const struct peer *peer = mover->peer;
	const struct xseg *seg = peer_segment(peer);
	unsigned state = xseg_word_state(word), top = xseg_word_frame(word);
	bool found = false;
	if (state != XSEG_REQUEST_SUBMITTED && state != XSEG_REQUEST_TAKEN)
		return false;
	if (out == OUT_STORES) {
		const struct xseg_frame *frame = &request->frame[top % XSEG_FRAMES];
		return is_meant(out, group, &frame->key) &&
		       (frame->port == xseg_edge_port(seg, peer->edge[MOVER_OLD]) ||
			       frame->port == xseg_edge_port(seg, peer->edge[MOVER_NEW]));
	}
	for (unsigned k = 0; k < top && k < XSEG_FRAMES; k++)
		found |= request->frame[k].port == peer->port &&
			 is_meant(out, group, &request->frame[k].key);
	return found;
}

void mover_out_wait(const struct mover *mover, enum mover_out out, const struct mover_group *group)
{
	const struct xseg *seg = peer_segment(mover->peer);
	for (uint32_t i = 0; i < seg->request_count; i++) {
		const struct xseg_request *request = &seg->requests[i];
		uint64_t first = atomic_load_explicit(&request->word, memory_order_acquire);
		uint64_t word = first;
		while (is_out(mover, out, group, request, word) &&
			xseg_word_generation(word) == xseg_word_generation(first) &&
			!atomic_load(&mover->stopping)) {
			time_nap(LOOK_NS);
			word = atomic_load_explicit(&request->word, memory_order_acquire);
		}
	}
}
