/* SPDX-License-Identifier: Apache-2.0 */
/* The data of a request: pages attached to it, kept by its server, dropped with it. */
#include "xseg/xseg_data.h"

#include <base/crash.h>
#include <base/must.h>
#include <errno.h>
#include <string.h>
#include <xseg/lane.h>

#define LIST_EXTENTS (XSEG_PAGE / sizeof(struct xseg_extent))

static struct xseg_extent *list_entries(
	const struct xseg *seg, const struct xseg_request *request, unsigned which)
{
	return (struct xseg_extent *)(void *)xseg_page_address(seg, request->list[which]);
}

/* The pool is in pieces: more runs than fit into the slot, so the rest goes to list pages. */
static int attach_scattered(struct xseg_lane *lane, struct xseg_request *request, uint32_t pages)
{
	static _Thread_local struct xseg_extent runs[XSEG_EXTENTS + XSEG_LIST_PAGES * LIST_EXTENTS];
	uint32_t count, got;
	int ret = xseg_page_alloc(&lane->pages, pages, runs, countof(runs), &count);
	if (ret)
		return ret;
	uint32_t rest = count > XSEG_EXTENTS ? count - XSEG_EXTENTS : 0;
	uint32_t lists = (rest + LIST_EXTENTS - 1) / LIST_EXTENTS;
	for (uint32_t i = 0; i < lists; i++) {
		struct xseg_extent one;
		ret = xseg_page_alloc(&lane->pages, 1, &one, 1, &got);
		if (ret) {
			while (i-- > 0) {
				one = (struct xseg_extent){.page = request->list[i], .count = 1};
				request->list[i] = XSEG_NONE;
				xseg_page_free(&lane->pages, &one, 1);
			}
			xseg_page_free(&lane->pages, runs, count);
			return ret;
		}
		request->list[i] = one.page;
	}
	memcpy(request->extents, runs, (count - rest) * sizeof(runs[0]));
	for (uint32_t i = 0; i < lists; i++) {
		uint32_t first = XSEG_EXTENTS + i * LIST_EXTENTS;
		uint32_t n = count - first < LIST_EXTENTS ? count - first : LIST_EXTENTS;
		memcpy(list_entries(lane->seg, request, i), &runs[first], n * sizeof(runs[0]));
	}
	request->extent_count = (uint16_t)count;
	return 0;
}

int xseg_attach_pages(struct xseg_lane *lane, uint32_t slot, uint32_t data_offset, uint32_t bytes)
{
	struct xseg_request *request = xseg_at(lane, slot);
	must(data_offset < XSEG_PAGE && request->extent_count == 0);
	if (bytes == 0 || bytes > XSEG_OBJECT_MAX)
		return -E2BIG;
	uint32_t pages = (data_offset + bytes + XSEG_PAGE - 1) >> XSEG_PAGE_SHIFT, count;
	int ret = 0;
	if (likely(pages <= 64))
		ret = xseg_page_alloc(&lane->pages, pages, request->extents, XSEG_EXTENTS, &count);
	if (likely(ret == 0 && pages <= 64))
		request->extent_count = (uint16_t)count;
	else
		ret = attach_scattered(lane, request, pages);
	request->data_offset = (uint16_t)data_offset;
	return ret;
}

int data_run(const struct xseg *seg, const struct xseg_request *request, uint32_t i,
	struct xseg_extent *run)
{
	if (i < XSEG_EXTENTS) {
		*run = request->extents[i];
		return 0;
	}
	uint32_t list = (i - XSEG_EXTENTS) / LIST_EXTENTS;
	if (list >= XSEG_LIST_PAGES || request->list[list] >= seg->page_count)
		return -ENOENT;
	*run = list_entries(seg, request, list)[(i - XSEG_EXTENTS) % LIST_EXTENTS];
	return 0;
}

/* Which data page of the request is it? */
static int find_page(const struct xseg_lane *lane, const struct xseg_request *request,
	uint32_t page, uint32_t *position)
{
	uint32_t count = request->extent_count, first = 0;
	for (uint32_t i = 0; i < count; i++) {
		struct xseg_extent run;
		if (data_run(lane->seg, request, i, &run) != 0)
			return -ENOENT;
		if (page >= run.page && page - run.page < run.count) {
			*position = first + (page - run.page);
			return 0;
		}
		first += run.count;
	}
	return -ENOENT;
}

static int note_taken(struct xseg_lane *lane, struct xseg_request *request, uint32_t page)
{
	uint32_t position = 0;
	int ret = find_page(lane, request, page, &position);
	if (ret || position >= XSEG_EXTENTS * 64)
		return -ENOENT;
	if (!(request->flags & XSEG_R_DONATED)) {
		/* up to 64 pages have their bits in one word: then that is all that is looked at */
		if (likely(request->extent_count == 1 && request->extents[0].count <= 64))
			request->taken[0] = 0;
		else
			memset(request->taken, 0, sizeof(request->taken));
		request->flags |= XSEG_R_DONATED;
	}
	request->taken[position / 64] |= 1ull << position % 64;
	return 0;
}

/* The client is told first: killed in between, the page is looked for by its owner. */
static int take(struct xseg_lane *lane, uint32_t slot, uint32_t page)
{
	int ret = note_taken(lane, xseg_at(lane, slot), page);
	crash_point("xseg.take_page.noted");
	return ret;
}

int xseg_take_page(struct xseg_lane *lane, uint32_t slot, uint32_t page)
{
	int ret = take(lane, slot, page);
	if (ret == 0)
		xseg_page_store(&lane->pages, page);
	return ret;
}

int xseg_keep_page(struct xseg_lane *lane, uint32_t slot, uint32_t page, uint32_t port)
{
	int ret = take(lane, slot, page);
	if (ret == 0)
		xseg_page_keep(lane->seg, page, port);
	return ret;
}

/*
 * Each is noted as gone before it is: killed in between, one pin is left over, and the page is kept
 * until its holder ends; the other way round a pin of somebody else would be dropped.
 */
static void drop_pins(struct xseg_lane *lane, struct xseg_request *request)
{
	uint32_t count = request->answer_count;
	if (count > XSEG_EXTENTS)
		count = 0; /* wild: better a leaked pin than somebody else's page */
	for (; count; request->answer_count = (uint16_t)--count) {
		struct xseg_extent run = request->answer[count - 1];
		if (!xseg_extents_check(lane->seg, &run, 1))
			continue;
		while (run.count) {
			request->answer[count - 1].count = --run.count;
			atomic_signal_fence(memory_order_seq_cst);
			crash_point("xseg.put.before_unpin");
			xseg_page_unpin(&lane->pages, run.page + run.count);
		}
	}
	request->answer_count = 0;
}

/* Frees runs of which the first page is data page number `first`, but not what was taken. */
static void free_untaken(struct xseg_lane *lane, const struct xseg_request *request,
	const struct xseg_extent *runs, uint32_t count, uint32_t first)
{
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t k = 0; k < runs[i].count; k++, first++) {
			uint32_t bit = first % (XSEG_EXTENTS * 64);
			struct xseg_extent one = {.page = runs[i].page + k, .count = 1};
			if (!((request->taken[bit / 64] >> bit % 64) & 1u))
				xseg_page_free(&lane->pages, &one, 1);
		}
}

static uint32_t pages_in(const struct xseg_extent *runs, uint32_t count)
{
	uint32_t pages = 0;
	for (uint32_t i = 0; i < count; i++)
		pages += runs[i].count;
	return pages;
}

/* Wild runs are left alone: better a leaked page than somebody else's. */
static uint32_t drop_runs(struct xseg_lane *lane, const struct xseg_request *request,
	const struct xseg_extent *runs, uint32_t count, uint32_t first)
{
	if (!xseg_extents_check(lane->seg, runs, count))
		return first;
	uint32_t pages = pages_in(runs, count);
	if (request->flags & XSEG_R_DONATED)
		free_untaken(lane, request, runs, count, first);
	else
		xseg_page_free(&lane->pages, runs, count);
	return first + pages;
}

static void drop_pages(struct xseg_lane *lane, struct xseg_request *request)
{
	uint32_t count = request->extent_count;
	uint32_t inside = count < XSEG_EXTENTS ? count : XSEG_EXTENTS;
	uint32_t first = drop_runs(lane, request, request->extents, inside, 0);
	for (uint32_t i = 0; count > inside && i < XSEG_LIST_PAGES; i++) {
		struct xseg_extent list = {.page = request->list[i], .count = 1};
		if (list.page >= lane->seg->page_count)
			break;
		uint32_t n = count - inside < LIST_EXTENTS ? count - inside : LIST_EXTENTS;
		first = drop_runs(lane, request, list_entries(lane->seg, request, i), n, first);
		xseg_page_free(&lane->pages, &list, 1);
		count -= n;
	}
	request->extent_count = 0;
}

void data_drop(struct xseg_lane *lane, struct xseg_request *request)
{
	if (request->answer_count && !(request->flags & XSEG_R_DONATED))
		drop_pins(lane, request);
	if (request->extent_count && !(request->flags & XSEG_R_BORROWED))
		drop_pages(lane, request);
}
