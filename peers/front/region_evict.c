/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages that go when memory is needed. Who touches a page that is mapped is not known, so they go
 * in turn: a hand goes round all pages of a volume, over those that are to be kept only when
 * nothing else is left. A clean page is protected wherever it is mapped, so it may go at once; a
 * dirty one is written first.
 */
#include <base/crash.h>
#include <errno.h>

#include "peers/front/regions.h"

#define EVICT_AGAIN_NS 1000000u /* nothing could go: so long nobody looks */

static bool evict_may(const struct region_volume *volume, uint64_t page, bool kept)
{
	unsigned state = region_state(volume, page);
	return (state & ~REGION_ASIDE) == REGION_CLEAN && (kept || !(state & REGION_KEPT));
}

uint32_t region_evict_run(struct region_volume *volume, uint64_t page, uint64_t most, bool kept)
{
	uint32_t count = 0;
	for (; count < REGION_RUN && count < most && evict_may(volume, page + count, kept); count++)
		region_volume_set(
			volume, page + count, region_state(volume, page + count) & REGION_ASIDE);
	if (!count)
		return 0;
	crash_point("front_region.page.absent");
	region_volume_punch(volume, page, count);
	volume->evicted += count;
	peer_count(volume->regions->peer, REGION_COUNT_EVICTED, count);
	return count;
}

/* From the hand on, one turn's worth; pages that went. */
static uint64_t evict_sweep(struct region_volume *volume, uint64_t wanted, bool kept)
{
	uint64_t gone = 0, looked = 0, size = volume->high - volume->low;
	while (gone < wanted && looked < size && looked < REGION_EVICT_LOOK) {
		if (volume->hand < volume->low || volume->hand >= volume->high)
			volume->hand = volume->low;
		uint64_t page = volume->hand, left = volume->high - page;
		uint64_t most = wanted - gone < left ? wanted - gone : left;
		uint32_t count = region_evict_run(volume, page, most, kept);
		gone += count;
		if (!count && (region_state(volume, page) & REGION_STATE) == REGION_DIRTY)
			count = region_write_begin(volume, page, volume->high);
		volume->hand += count ? count : 1;
		looked += count ? count : 1;
	}
	return gone;
}

static uint64_t evict_all(struct regions *regions, uint64_t wanted, bool kept)
{
	struct region_volume *volume;
	uint64_t gone = 0;
	TAILQ_FOREACH (volume, &regions->list, link)
		if (gone < wanted && volume->resident)
			gone += evict_sweep(volume, wanted - gone, kept);
	return gone;
}

bool region_evict_room(struct regions *regions, uint32_t pages)
{
	uint64_t now = peer_now_ns(regions->peer);
	if (regions->resident + pages <= regions->limit)
		return true;
	if (now < regions->evictable_ns)
		return false;
	/* more than is needed at once: the hand need not look for each page */
	uint64_t excess = regions->resident + pages - regions->limit, spare = regions->limit / 64;
	uint64_t wanted = excess + (spare < REGION_RUN ? spare : REGION_RUN);
	uint64_t gone = evict_all(regions, wanted, false);
	if (gone < excess && !regions->writes)
		gone += evict_all(regions, wanted - gone, true);
	if (gone >= excess)
		return true;
	regions->evictable_ns = now + EVICT_AGAIN_NS;
	regions->again = true;
	return false;
}
