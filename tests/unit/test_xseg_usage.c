/* SPDX-License-Identifier: Apache-2.0 */
/* How full a segment is, counted from what its words say, whatever they say. */
#include "tests/lib/lane_rig.h"
#include "tests/lib/unit.h"

UNIT(test_counts)
{
	struct xseg_usage u;
	rig_setup();
	struct xseg_lane *lane = rig_join();
	uint32_t port = rig_serve(lane, "self"), slot[8];
	for (unsigned i = 0; i < 8; i++)
		slot[i] = rig_get(lane, XSEG_OP_READ, i);
	ck_assert_int_eq(xseg_attach_pages(lane, slot[7], 0, 5 * XSEG_PAGE), 0);
	for (unsigned i = 0; i < 6; i++)
		ck_assert_int_eq(xseg_submit(lane, slot[i], port), 0);
	for (unsigned i = 0; i < 3; i++)
		rig_expect_submit(lane, 0);
	rig_answer(lane, slot[0], 0, 0);
	xseg_segment_usage(&rig_seg, &u);
	ck_assert_uint_eq(u.requests, rig_seg.request_count);
	ck_assert_uint_eq(u.requests_by_state[XSEG_REQUEST_OWNED], 2);
	ck_assert_uint_eq(u.requests_by_state[XSEG_REQUEST_SUBMITTED], 3);
	ck_assert_uint_eq(u.requests_by_state[XSEG_REQUEST_TAKEN], 2);
	ck_assert_uint_eq(u.requests_by_state[XSEG_REQUEST_DONE], 1);
	ck_assert_uint_eq(u.requests_by_state[XSEG_REQUEST_FREE], u.requests - 8);
	ck_assert_uint_eq(u.pages_held, 5);
	ck_assert_uint_eq(u.pages_free, u.pages - 5);
	ck_assert_uint_eq(u.size, rig_seg.size);
	ck_assert_uint_eq(u.overhead, u.size - (uint64_t)u.pages * XSEG_PAGE);
	xseg_lane_leave(lane);
	scratch_segment_end(&rig_seg);
}

UNIT(test_wild)
{
	struct xseg_usage u;
	uint64_t seed = 9;
	rig_setup();
	for (uint32_t i = 0; i < rig_seg.page_count; i++)
		atomic_store(&rig_seg.descriptors[i].word, random_next(&seed));
	for (uint32_t i = 0; i < rig_seg.request_count; i++)
		atomic_store(&rig_seg.requests[i].word, random_next(&seed));
	xseg_segment_usage(&rig_seg, &u);
	ck_assert_uint_le(
		u.pages_free + u.pages_held + u.pages_stored + u.pages_kept + u.pages_retired,
		u.pages);
	uint32_t sum = 0;
	for (unsigned i = 0; i < XSEG_REQUEST_STATES; i++)
		sum += u.requests_by_state[i];
	ck_assert_uint_le(sum, u.requests);
	scratch_segment_end(&rig_seg);
}
