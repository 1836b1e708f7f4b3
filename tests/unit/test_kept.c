/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that ports keep: counted by port, found when nobody is there for them, given back once. */
#include <string.h>
#include <xseg/page.h>

#include "tests/lib/lane_rig.h"
#include "tests/lib/unit.h"
#include "tools/report/kept.h"

static struct xseg_lane *lane;
static uint32_t ports[2];
static uint32_t pages[4]; /* two of each port; the first of each is dirty */

static void keep(uint32_t page, uint32_t port, uint8_t dirty)
{
	struct xseg_page_descriptor *about = &rig_seg.descriptors[page];
	atomic_store(&about->valid, 0xff);
	atomic_store(&about->dirty, dirty);
	xseg_page_keep(&rig_seg, page, port);
}

static void setup(void)
{
	struct xseg_magazine mag;
	uint32_t runs;
	rig_setup();
	lane = rig_join();
	ports[0] = rig_serve(lane, "cache0");
	ports[1] = rig_serve(lane, "cache1");
	struct xseg_extent extents[4];
	xseg_magazine_init(&mag, &rig_seg, lane->index, lane->epoch);
	ck_assert_int_eq(xseg_page_alloc(&mag, 4, extents, 4, &runs), 0);
	for (uint32_t i = 0, n = 0; i < runs; i++)
		for (uint32_t k = 0; k < extents[i].count; k++)
			pages[n++] = extents[i].page + k;
	for (unsigned i = 0; i < 4; i++)
		keep(pages[i], ports[i / 2], i % 2 ? 0 : 3);
	xseg_magazine_fini(&mag);
}

static void teardown(void)
{
	xseg_lane_leave(lane);
	rig_teardown(); /* all pages must be free again */
}

static bool knows(void *context, const char *peer) { return strcmp(peer, context) == 0; }

UNIT(test_count)
{
	struct kept kept;
	setup();
	kept_count(&rig_seg, ports[0], &kept);
	ck_assert_uint_eq(kept.pages, 2);
	ck_assert_uint_eq(kept.dirty, XSEG_PAGE);
	kept_count(&rig_seg, XSEG_NONE, &kept);
	ck_assert_uint_eq(kept.pages, 4);
	ck_assert_uint_eq(kept.dirty, 2 * XSEG_PAGE);
	ck_assert_uint_eq(kept_orphan(&rig_seg, knows, (void *)"cache0", &kept), ports[1]);
	ck_assert_uint_eq(kept.dirty, XSEG_PAGE);
	ck_assert_uint_eq(xseg_page_free_kept(&rig_seg, ports[1]), 2);
	ck_assert_uint_eq(kept_orphan(&rig_seg, knows, (void *)"cache0", &kept), XSEG_NONE);
	ck_assert_uint_eq(kept_orphan(&rig_seg, knows, (void *)"", &kept), ports[0]);
	ck_assert_uint_eq(xseg_page_free_kept(&rig_seg, ports[0]), 2);
	ck_assert_uint_eq(xseg_page_free_kept(&rig_seg, ports[0]), 0);
	teardown();
}

/* What somebody reads goes with its last reader, not before. */
UNIT(test_pinned)
{
	setup();
	xseg_page_pin(&rig_seg, pages[0]);
	ck_assert_uint_eq(xseg_page_free_kept(&rig_seg, ports[0]), 2);
	uint64_t word = atomic_load(&rig_seg.descriptors[pages[0]].word);
	ck_assert_uint_eq(xseg_page_state(word), XSEG_PAGE_RETIRED);
	ck_assert_uint_eq(
		xseg_page_state(atomic_load(&rig_seg.descriptors[pages[1]].word)), XSEG_PAGE_FREE);
	struct xseg_magazine mag;
	xseg_magazine_init(&mag, &rig_seg, lane->index, lane->epoch);
	xseg_page_unpin(&mag, pages[0]);
	xseg_magazine_fini(&mag); /* whoever dropped the last pin gives it back */
	ck_assert_uint_eq(
		xseg_page_state(atomic_load(&rig_seg.descriptors[pages[0]].word)), XSEG_PAGE_FREE);
	ck_assert_uint_eq(xseg_page_free_kept(&rig_seg, ports[1]), 2);
	teardown();
}
