/* SPDX-License-Identifier: Apache-2.0 */
/* Data behind a list of extents, seen as one row of bytes. */
#include <errno.h>
#include <string.h>

#include "peers/core/core.h"

#define OBJECT_PAGES (XSEG_OBJECT_MAX >> XSEG_PAGE_SHIFT)

/* Where byte `at` of the data lies: in which extent, how far into it. */
struct data_place {
	uint32_t extent;
	uint64_t offset;
};

static struct data_place data_find(const struct data_view *view, uint32_t at)
{
	struct data_place place = {.extent = 0, .offset = (uint64_t)view->data_offset + at};
	while (place.extent < view->extent_count) {
		uint64_t size = (uint64_t)view->extents[place.extent].count << XSEG_PAGE_SHIFT;
		if (place.offset < size)
			break;
		place.offset -= size;
		place.extent++;
	}
	return place;
}

/* The memory at a place, at most `length` bytes of it; *place moves past it. */
static uint8_t *data_piece(
	const struct data_view *view, struct data_place *place, uint32_t length, uint32_t *size)
{
	const struct xseg_extent *extent = &view->extents[place->extent];
	uint64_t left = ((uint64_t)extent->count << XSEG_PAGE_SHIFT) - place->offset;
	uint8_t *memory = xseg_page_address(view->seg, extent->page) + place->offset;
	if (left > length) {
		*size = length;
		place->offset += length;
	} else {
		*size = (uint32_t)left;
		place->extent++;
		place->offset = 0;
	}
	return memory;
}

static void data_inside(const struct data_view *view, uint32_t at, uint32_t length)
{
	must(at <= view->data_size && length <= view->data_size - at);
}

bool data_measure(const struct xseg *seg, const struct xseg_extent *extents, uint32_t count,
	uint32_t data_offset, uint32_t *data_size)
{
	uint64_t pages = 0;
	*data_size = 0;
	if (likely(count == 1) && data_offset < XSEG_PAGE) {
		const struct xseg_extent run = extents[0];
		if (run.count == 0 || run.count > OBJECT_PAGES + 1 || run.page >= seg->page_count ||
			run.count > seg->page_count - run.page)
			return false;
		*data_size = (run.count << XSEG_PAGE_SHIFT) - data_offset;
		return true;
	}
	if (data_offset >= XSEG_PAGE || !xseg_extents_check(seg, extents, count))
		return false;
	for (uint32_t i = 0; i < count; i++)
		pages += extents[i].count;
	/* one more than an object has, for data that starts within a page */
	if (pages > OBJECT_PAGES + 1)
		return false;
	if (pages)
		*data_size = ((uint32_t)pages << XSEG_PAGE_SHIFT) - data_offset;
	return true;
}

int data_iov(const struct data_view *view, uint32_t at, uint32_t length, struct iovec *iov, int max)
{
	data_inside(view, at, length);
	struct data_place place = data_find(view, at);
	int count = 0;
	while (length) {
		uint32_t size;
		if (count == max)
			return -E2BIG;
		iov[count].iov_base = data_piece(view, &place, length, &size);
		iov[count++].iov_len = size;
		length -= size;
	}
	return count;
}

void data_put(const struct data_view *view, uint32_t at, const void *from, uint32_t length)
{
	data_inside(view, at, length);
	struct data_place place = data_find(view, at);
	for (const uint8_t *source = from; length;) {
		uint32_t size;
		uint8_t *memory = data_piece(view, &place, length, &size);
		memcpy(memory, source, size);
		source += size;
		length -= size;
	}
}

void data_get(const struct data_view *view, uint32_t at, void *to, uint32_t length)
{
	data_inside(view, at, length);
	struct data_place place = data_find(view, at);
	for (uint8_t *target = to; length;) {
		uint32_t size;
		const uint8_t *memory = data_piece(view, &place, length, &size);
		memcpy(target, memory, size);
		target += size;
		length -= size;
	}
}

void data_zero(const struct data_view *view, uint32_t at, uint32_t length)
{
	data_inside(view, at, length);
	struct data_place place = data_find(view, at);
	while (length) {
		uint32_t size;
		uint8_t *memory = data_piece(view, &place, length, &size);
		memset(memory, 0, size);
		length -= size;
	}
}

int data_slice(const struct data_view *view, uint32_t at, uint32_t length, struct xseg_extent *out,
	uint32_t max)
{
	data_inside(view, at, length);
	struct data_place place = data_find(view, at);
	uint32_t inside = (uint32_t)(place.offset % XSEG_PAGE);
	uint32_t pages = (inside + length + XSEG_PAGE - 1) >> XSEG_PAGE_SHIFT;
	uint32_t skip = (uint32_t)(place.offset >> XSEG_PAGE_SHIFT), count = 0;
	for (uint32_t i = place.extent; pages; i++, skip = 0) {
		uint32_t left = view->extents[i].count - skip;
		if (count == max)
			return -E2BIG;
		out[count].page = view->extents[i].page + skip;
		out[count].count = left < pages ? left : pages;
		pages -= out[count++].count;
	}
	return (int)count;
}
