/* SPDX-License-Identifier: Apache-2.0 */
/* Data behind extents, against a plain array that says what should be there. */
#include <errno.h>
#include <string.h>

#include "tests/unit/core_rig.h"

#define PAGES 256u

static uint8_t pages[PAGES * XSEG_PAGE], model[PAGES * XSEG_PAGE], buffer[PAGES * XSEG_PAGE];
static struct xseg seg = {.pages = pages, .page_count = PAGES};

/* Some runs in no order, without a page twice. */
static struct data_view random_view(uint64_t *seed, struct xseg_extent *extents)
{
	struct data_view view = {.seg = &seg, .extents = extents};
	uint32_t at = 0;
	while (view.extent_count < 12) {
		uint32_t count = 1 + (uint32_t)(random_next(seed) % 9);
		uint32_t gap = (uint32_t)(random_next(seed) % 3);
		if (at + gap + count > PAGES)
			break;
		extents[view.extent_count++] =
			(struct xseg_extent){.page = at + gap, .count = count};
		at += gap + count;
	}
	for (uint32_t i = view.extent_count; i > 1; i--) {
		uint32_t k = (uint32_t)(random_next(seed) % i);
		struct xseg_extent other = extents[k];
		extents[k] = extents[i - 1];
		extents[i - 1] = other;
	}
	view.data_offset = (uint32_t)(random_next(seed) % XSEG_PAGE);
	ck_assert(
		data_measure(&seg, extents, view.extent_count, view.data_offset, &view.data_size));
	return view;
}

/* Byte `at` of the data, found the slow way. */
static uint8_t *slow_byte(const struct data_view *view, uint32_t at)
{
	uint64_t place = (uint64_t)view->data_offset + at;
	for (uint32_t i = 0; i < view->extent_count; i++)
		for (uint32_t k = 0; k < view->extents[i].count; k++, place -= XSEG_PAGE)
			if (place < XSEG_PAGE)
				return pages + (view->extents[i].page + k) * XSEG_PAGE + place;
	ck_abort();
}

static void random_range(
	uint64_t *seed, const struct data_view *view, uint32_t *at, uint32_t *length)
{
	*at = (uint32_t)(random_next(seed) % view->data_size);
	*length = (uint32_t)(random_next(seed) % (view->data_size - *at + 1));
}

UNIT(test_put_get_zero)
{
	uint64_t seed = 7;
	for (unsigned round = 0; round < 300; round++) {
		struct xseg_extent extents[16];
		struct data_view view = random_view(&seed, extents);
		uint32_t at, length;
		memset(pages, 0xaa, sizeof(pages));
		random_range(&seed, &view, &at, &length);
		rig_pattern(model, length, round);
		data_put(&view, at, model, length);
		for (uint32_t i = 0; i < length; i += 97)
			ck_assert_uint_eq(*slow_byte(&view, at + i), model[i]);
		if (at > 0)
			ck_assert_uint_eq(*slow_byte(&view, at - 1), 0xaa);
		if (at + length < view.data_size)
			ck_assert_uint_eq(*slow_byte(&view, at + length), 0xaa);
		data_get(&view, at, buffer, length);
		ck_assert_mem_eq(buffer, model, length);
		data_zero(&view, at, length / 2);
		data_get(&view, at, buffer, length);
		for (uint32_t i = 0; i < length; i += 61)
			ck_assert_uint_eq(buffer[i], i < length / 2 ? 0 : model[i]);
	}
}

UNIT(test_iov_and_slice)
{
	uint64_t seed = 11;
	for (unsigned round = 0; round < 300; round++) {
		struct xseg_extent extents[16], cut[16];
		struct iovec iov[16];
		struct data_view view = random_view(&seed, extents);
		uint32_t at, length, sum = 0;
		random_range(&seed, &view, &at, &length);
		if (length == 0)
			continue;
		int count = data_iov(&view, at, length, iov, 16);
		ck_assert_int_gt(count, 0);
		for (int i = 0; i < count; i++) {
			ck_assert_ptr_eq(iov[i].iov_base, slow_byte(&view, at + sum));
			sum += (uint32_t)iov[i].iov_len;
			ck_assert_ptr_eq((uint8_t *)iov[i].iov_base + iov[i].iov_len - 1,
				slow_byte(&view, at + sum - 1));
		}
		ck_assert_uint_eq(sum, length);
		if (count > 1)
			ck_assert_int_eq(data_iov(&view, at, length, iov, count - 1), -E2BIG);
		/* the slice is the same data, seen alone */
		int runs = data_slice(&view, at, length, cut, 16);
		ck_assert_int_gt(runs, 0);
		struct data_view part = {.seg = &seg,
			.extents = cut,
			.extent_count = (uint32_t)runs,
			.data_offset = (view.data_offset + at) % XSEG_PAGE};
		ck_assert(
			data_measure(&seg, cut, (uint32_t)runs, part.data_offset, &part.data_size));
		ck_assert_uint_ge(part.data_size, length);
		ck_assert_uint_lt(part.data_size, length + XSEG_PAGE);
		for (uint32_t i = 0; i < length; i += 211)
			ck_assert_ptr_eq(slow_byte(&part, i), slow_byte(&view, at + i));
		if (runs > 1)
			ck_assert_int_eq(
				data_slice(&view, at, length, cut, (uint32_t)runs - 1), -E2BIG);
	}
}

UNIT(test_measure)
{
	struct xseg big = {.page_count = 5000};
	struct xseg_extent e[2] = {{.page = 0, .count = 1025}, {.page = 2000, .count = 1}};
	uint32_t size;
	ck_assert(data_measure(&big, e, 1, 0, &size));
	ck_assert_uint_eq(size, 1025 * XSEG_PAGE);
	ck_assert(data_measure(&big, e, 1, 4095, &size));
	ck_assert_uint_eq(size, 1025 * XSEG_PAGE - 4095);
	ck_assert(!data_measure(&big, e, 1, 4096, &size));
	ck_assert(!data_measure(&big, e, 2, 0, &size)); /* more than an object has */
	ck_assert(data_measure(&big, e, 0, 0, &size));
	ck_assert_uint_eq(size, 0);
	e[0] = (struct xseg_extent){.page = 4999, .count = 2};
	ck_assert(!data_measure(&big, e, 1, 0, &size));
	e[0] = (struct xseg_extent){.page = 5, .count = 0xffffffff};
	ck_assert(!data_measure(&big, e, 1, 0, &size));
}
