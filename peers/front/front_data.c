/* SPDX-License-Identifier: Apache-2.0 */
/* How a guest's requests become calls, and how many of them at a time. */
#include <string.h>
#include <xseg/page.h>
#include <xseg/request.h>

#include "peers/front/front.h"

#define PINNED_MAX (XSEG_EXTENTS * XSEG_PAGE) /* answered without a copy, however scattered */
#define READ_PARTS 64u

uint32_t front_cut(uint64_t next, uint64_t end, uint32_t step)
{
	uint64_t limit = (next | (step - 1)) + 1;
	return (uint32_t)((end < limit ? end : limit) - next);
}

uint32_t front_read_step(uint32_t length)
{
	uint32_t step = PINNED_MAX;
	while (length / step > READ_PARTS)
		step *= 2;
	return step;
}

void front_zero(const struct call *call, uint32_t at, uint32_t length)
{
	struct iovec iov[16];
	for (uint32_t done = 0; done < length;) {
		uint32_t size = length - done < 15 * XSEG_PAGE ? length - done : 15 * XSEG_PAGE;
		int count = call_iov(call, at + done, size, iov, 16);
		must(count > 0);
		for (int i = 0; i < count; i++)
			memset(iov[i].iov_base, 0, iov[i].iov_len);
		done += size;
	}
}

/* --- its share -------------------------------------------------------------------- */

/* Counting what is free takes a microsecond a GiB: a thousandth of the time, whatever the size. */
#define SHARE_NS 1000000u
#define SHARE_PAGES 262144u

static void share_look(struct front_share *share, const struct peer *peer)
{
	const struct xseg *seg = peer_segment(peer);
	uint64_t now = peer_now_ns(peer);
	if (likely(now - share->looked_ns < SHARE_NS * (1ull + seg->page_count / SHARE_PAGES)))
		return;
	share->looked_ns = now;
	share->bytes = (uint64_t)xseg_page_free_count(seg) * XSEG_PAGE / peer->shards;
	share->requests = xseg_request_free_count(seg) / peer->shards;
}

bool front_share_fits(
	struct front_share *share, const struct peer *peer, uint32_t inflight, uint64_t bytes)
{
	share_look(share, peer);
	return bytes <= share->bytes && inflight < share->requests;
}
