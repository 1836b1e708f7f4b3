/* SPDX-License-Identifier: Apache-2.0 */
/* The data of a request: attached, in pieces, donated, borrowed, answered with pinned pages. */
#include <errno.h>
#include <string.h>

#include "tests/lib/lane_rig.h"
#include "tests/lib/unit.h"

UNIT(test_attach_pages)
{
	rig_setup();
	struct xseg_lane *lane = rig_join();
	static const struct {
		uint32_t offset, bytes, pages;
	} cases[] = {{0, 1, 1}, {0, 4096, 1}, {0, 4097, 2}, {512, 4096, 2}, {3584, 512, 1},
		{3584, 513, 2}, {0, 65536, 16}, {0, 1u << 20, 256}, {0, 2u << 20, 512},
		{512, XSEG_OBJECT_MAX - 512, 1024}, {0, XSEG_OBJECT_MAX, 1024},
		{4095, XSEG_OBJECT_MAX, 1025}};
	for (unsigned i = 0; i < countof(cases); i++) {
		uint32_t slot = rig_get(lane, XSEG_OP_WRITE, 0), pages = 0;
		int rc = xseg_attach_pages(lane, slot, cases[i].offset, cases[i].bytes);
		ck_assert_msg(rc == 0, "%u bytes at %u: %d", cases[i].bytes, cases[i].offset, rc);
		struct xseg_request *r = xseg_at(lane, slot);
		ck_assert_uint_eq(r->data_offset, cases[i].offset);
		if (r->extent_count <= XSEG_EXTENTS) {
			ck_assert(xseg_extents_check(&rig_seg, r->extents, r->extent_count));
			for (unsigned e = 0; e < r->extent_count; e++)
				pages += r->extents[e].count;
			ck_assert_uint_eq(pages, cases[i].pages);
		}
		xseg_put(lane, slot);
	}
	uint32_t slot = rig_get(lane, XSEG_OP_WRITE, 0);
	ck_assert_int_eq(xseg_attach_pages(lane, slot, 0, XSEG_OBJECT_MAX + 1), -E2BIG);
	ck_assert_int_eq(xseg_attach_pages(lane, slot, 0, UINT32_MAX), -E2BIG);
	ck_assert_uint_eq(xseg_at(lane, slot)->extent_count, 0);
	xseg_put(lane, slot);
	xseg_lane_leave(lane);
	rig_teardown();
}

UNIT(test_pool_dry)
{
	rig_setup();
	struct xseg_lane *lane = rig_join();
	uint32_t held[64], count = 0, slot = rig_get(lane, XSEG_OP_WRITE, 0);
	for (;; count++) {
		held[count] = rig_get(lane, XSEG_OP_WRITE, count);
		if (xseg_attach_pages(lane, held[count], 0, XSEG_OBJECT_MAX / 4) != 0)
			break;
		ck_assert_uint_lt(count, 60);
	}
	ck_assert_int_eq(xseg_attach_pages(lane, slot, 0, XSEG_OBJECT_MAX / 2), -EAGAIN);
	ck_assert_uint_eq(xseg_at(lane, slot)->extent_count, 0);
	for (uint32_t i = 0; i <= count; i++)
		xseg_put(lane, held[i]);
	ck_assert_int_eq(xseg_attach_pages(lane, slot, 0, XSEG_OBJECT_MAX / 2), 0);
	xseg_put(lane, slot);
	xseg_lane_leave(lane);
	rig_teardown();
}

UNIT(test_scattered)
{
	rig_setup();
	struct xseg_lane *lane = rig_join();
	uint32_t *page = calloc(rig_seg.page_count, sizeof(*page)), count = 0, n;
	struct xseg_extent e;
	while (xseg_page_alloc(&lane->pages, 1, &e, 1, &n) == 0)
		page[count++] = e.page;
	for (uint32_t i = 0; i < count; i++)
		if (page[i] % 2) {
			e = (struct xseg_extent){.page = page[i], .count = 1};
			xseg_page_free(&lane->pages, &e, 1);
		}
	xseg_magazine_fini(&lane->pages);
	for (unsigned round = 0; round < 5; round++) {
		uint32_t slot = rig_get(lane, XSEG_OP_WRITE, 0);
		ck_assert_int_eq(xseg_attach_pages(lane, slot, 0, 400 * XSEG_PAGE), 0);
		ck_assert_uint_eq(xseg_at(lane, slot)->extent_count, 400);
		ck_assert_uint_ne(xseg_at(lane, slot)->list[0], XSEG_NONE);
		xseg_put(lane, slot);
	}
	for (uint32_t i = 0; i < count; i++)
		if (page[i] % 2 == 0) {
			e = (struct xseg_extent){.page = page[i], .count = 1};
			xseg_page_free(&lane->pages, &e, 1);
		}
	free(page);
	xseg_lane_leave(lane);
	rig_teardown();
}

UNIT(test_donate_and_borrow)
{
	rig_setup();
	struct xseg_lane *client = rig_join(), *server = rig_join();
	uint32_t port = rig_serve(server, "keeper");
	uint32_t slot = rig_get(client, XSEG_OP_WRITE, 0);
	struct xseg_request *r = xseg_at(client, slot);
	ck_assert_int_eq(xseg_attach_pages(client, slot, 0, 8 * XSEG_PAGE), 0);
	uint32_t kept = r->extents[0].page + (r->extents[0].count > 1);
	r->frame[0].flags = XSEG_F_DONATE;
	ck_assert_int_eq(xseg_submit(client, slot, port), 0);
	xseg_turn_end(client);
	rig_expect_submit(server, 0);
	ck_assert_int_eq(xseg_take_page(server, slot, rig_seg.page_count), -ENOENT);
	ck_assert_int_eq(xseg_take_page(server, slot, XSEG_NONE), -ENOENT);
	ck_assert_int_eq(xseg_take_page(server, slot, kept), 0);
	rig_answer(server, slot, 0, 0);
	rig_expect_reply(client);
	/* another request of the client that uses the same pages */
	uint32_t borrower = rig_get(client, XSEG_OP_READ, 1);
	struct xseg_request *b = xseg_at(client, borrower);
	b->flags = XSEG_R_BORROWED;
	b->extent_count = r->extent_count;
	memcpy(b->extents, r->extents, sizeof(b->extents));
	xseg_put(client, borrower);
	struct xseg_usage usage;
	xseg_segment_usage(&rig_seg, &usage);
	ck_assert_uint_ge(usage.pages_held, 7);
	ck_assert_uint_eq(usage.pages_stored, 1);
	xseg_put(client, slot);
	ck_assert_uint_eq(
		xseg_page_state(atomic_load(&rig_seg.descriptors[kept].word)), XSEG_PAGE_STORED);
	xseg_page_retire(&server->pages, kept);
	xseg_lane_leave(server);
	xseg_lane_leave(client);
	rig_teardown();
}

UNIT(test_answer_pages)
{
	rig_setup();
	struct xseg_lane *client = rig_join(), *server = rig_join();
	uint32_t port = rig_serve(server, "keeper"), n;
	struct xseg_extent e;
	ck_assert_int_eq(xseg_page_alloc(&server->pages, 1, &e, 1, &n), 0);
	xseg_page_store(&server->pages, e.page);
	uint32_t slot = rig_get(client, XSEG_OP_READ, 0);
	xseg_at(client, slot)->frame[0].flags = XSEG_F_PIN;
	ck_assert_int_eq(xseg_submit(client, slot, port), 0);
	xseg_turn_end(client);
	rig_expect_submit(server, 0);
	xseg_page_pin(&rig_seg, e.page);
	xseg_at(server, slot)->answer[0] = e;
	xseg_at(server, slot)->answer_count = 1;
	rig_answer(server, slot, 0, 0);
	xseg_page_retire(&server->pages, e.page); /* while the client looks at it */
	rig_expect_reply(client);
	ck_assert_uint_eq(
		xseg_page_state(atomic_load(&rig_seg.descriptors[e.page].word)), XSEG_PAGE_RETIRED);
	xseg_put(client, slot);
	ck_assert_uint_ne(
		xseg_page_state(atomic_load(&rig_seg.descriptors[e.page].word)), XSEG_PAGE_RETIRED);
	xseg_lane_leave(server);
	xseg_lane_leave(client);
	rig_teardown();
}
