/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the pages that ports keep, by their descriptors. */
#include "tools/report/kept.h"

#include <base/name.h>
#include <stdbool.h>
#include <string.h>
#include <xseg/page.h>

static bool is_dirty(const struct xseg *seg, uint32_t page)
{
	return atomic_load_explicit(&seg->descriptors[page].dirty, memory_order_relaxed) != 0;
}

void kept_count(const struct xseg *seg, uint32_t port, struct kept *kept)
{
	uint32_t cursor = 0, page;
	*kept = (struct kept){0};
	while ((page = xseg_page_next_kept(seg, port, &cursor)) != XSEG_NONE) {
		kept->pages++;
		kept->dirty += is_dirty(seg, page) ? XSEG_PAGE : 0;
	}
}

uint32_t kept_orphan(const struct xseg *seg, bool (*known)(void *context, const char *peer),
	void *context, struct kept *kept)
{
	for (uint32_t port = 0; port < XSEG_PORTS_MAX; port++) {
		char name[NAME_LENGTH_MAX + 1] = "";
		memcpy(name, seg->ports[port].name, NAME_LENGTH_MAX);
		if (!name[0] || known(context, name))
			continue;
		kept_count(seg, port, kept);
		if (kept->dirty)
			return port;
	}
	return XSEG_NONE;
}
