/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that are about to be made. Whoever served this port before us may have handed on writes
 * that the store has not done yet: it will not list their objects, and we must not take them for
 * holes. They are in the request table.
 *
 * A request that is done when we look was done before the list is asked for, which will show its
 * object. What comes after is handed on by us. So nothing is missed; an object too many only costs
 * a question to the store.
 */
#include <xseg/request.h>

#include "peers/volume/volume.h"

static bool makes_objects(unsigned op)
{
	return op == XSEG_OP_WRITE || op == XSEG_OP_ZERO || op == XSEG_OP_COPY;
}

/* The frame that a request on its way lies in now; NULL: it is nobody's errand. */
static const struct xseg_frame *frame_of(const struct xseg_request *request)
{
	uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
	unsigned state = xseg_word_state(word), frame = xseg_word_frame(word);
	if ((state != XSEG_REQUEST_SUBMITTED && state != XSEG_REQUEST_TAKEN) ||
		frame >= XSEG_FRAMES)
		return NULL;
	return &request->frame[frame];
}

void volume_flight_note(
	const struct peer *peer, uint64_t id, _Atomic uint64_t *present, uint64_t objects)
{
	const struct xseg *seg = peer_segment(peer);
	struct volume_shared *shared = peer->shared;
	bool others = false;
	if (atomic_load_explicit(&shared->alone, memory_order_relaxed))
		return;
	for (uint32_t i = 0; i < seg->request_count; i++) {
		const struct xseg_request *request = &seg->requests[i];
		/* what it says may change under our eyes, then it is another request: read once */
		const volatile struct xseg_frame *frame = frame_of(request);
		if (!frame || frame->port == peer->port || !makes_objects(frame->op))
			continue;
		uint64_t volume = frame->key.volume;
		uint32_t epoch = frame->key.epoch, object = frame->key.object;
		others |= atomic_load_explicit(&request->sequence, memory_order_relaxed) >> 6 <
			  shared->started_ns;
		if (volume == id && epoch == 0 && object < objects)
			atomic_fetch_or_explicit(
				&present[object / 64], 1ull << (object % 64), memory_order_relaxed);
	}
	/* all that was begun before us has ended: nobody need look again */
	if (!others)
		atomic_store_explicit(&shared->alone, true, memory_order_relaxed);
}
