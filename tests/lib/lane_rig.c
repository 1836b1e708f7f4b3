/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes with ports in a segment of the test's own: asking, serving, answering by hand. */
#include "tests/lib/lane_rig.h"

#include <check.h>
#include <errno.h>

#define WAIT_NS 20000000ull
#define TURNS 1500 /* of waiting: 30 s */

struct xseg rig_seg;

/* A port for a lane, bound under a peer of its own. */
uint32_t rig_serve(struct xseg_lane *lane, const char *name)
{
	uint32_t peer, port;
	uint16_t epoch;
	uint8_t index = (uint8_t)lane->index;
	must(xseg_peer_join(&rig_seg, name, "test", 1ull << index, &peer, &epoch) == 0);
	must(xseg_port_bind(&rig_seg, name, peer, epoch, &index, 1, &port) == 0);
	return port;
}

struct xseg_lane *rig_join(void)
{
	struct xseg_lane *lane;
	must(xseg_lane_join(&rig_seg, false, &lane) == 0);
	return lane;
}

void rig_setup(void) { scratch_segment(&rig_seg, 0, 4, 1024); }

void rig_teardown(void)
{
	struct xseg_usage usage;
	xseg_segment_usage(&rig_seg, &usage);
	ck_assert_uint_eq(usage.requests_by_state[XSEG_REQUEST_FREE], usage.requests);
	ck_assert_uint_eq(usage.pages_free, usage.pages);
	scratch_segment_end(&rig_seg);
}

/* Waits for one hint; false after half a minute. */
bool rig_next_hint(struct xseg_lane *lane, struct xseg_hint_message *m)
{
	for (unsigned i = 0; i < TURNS; i++) {
		if (xseg_poll(lane, m, 1) == 1)
			return true;
		xseg_turn_end(lane);
		xseg_wait(lane, WAIT_NS);
	}
	return false;
}

uint32_t rig_expect_submit(struct xseg_lane *lane, unsigned frame)
{
	struct xseg_hint_message m;
	unsigned at;
	ck_assert(rig_next_hint(lane, &m));
	ck_assert_uint_eq(m.kind, XSEG_HINT_SUBMIT);
	ck_assert_int_eq(xseg_accept(lane, m.request, &at), 0);
	ck_assert_uint_eq(at, frame);
	return m.request;
}

uint32_t rig_expect_reply(struct xseg_lane *lane)
{
	struct xseg_hint_message m;
	ck_assert(rig_next_hint(lane, &m));
	ck_assert_uint_eq(m.kind, XSEG_HINT_REPLY);
	ck_assert_int_eq(xseg_receive(lane, m.request), 0);
	return m.request;
}

uint32_t rig_get(struct xseg_lane *lane, unsigned op, uint64_t number)
{
	uint32_t slot;
	must(xseg_get(lane, &slot) == 0);
	struct xseg_request *r = xseg_at(lane, slot);
	r->frame[0] = (struct xseg_frame){.op = (uint8_t)op,
		.lane = XSEG_LANE_ANY,
		.key = {.volume = 1},
		.offset = number * 4096,
		.length = 4096};
	r->cookie = number;
	return slot;
}

unsigned rig_state_of(uint32_t slot)
{
	return xseg_word_state(atomic_load(&rig_seg.requests[slot].word));
}

void rig_answer(struct xseg_lane *lane, uint32_t slot, int result, uint64_t value)
{
	struct xseg_request *r = xseg_at(lane, slot);
	r->result = result;
	r->length = 4096;
	r->value = value;
	xseg_respond(lane, slot);
	xseg_turn_end(lane);
}
