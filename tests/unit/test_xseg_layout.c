/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a segment lie one behind the other, aligned, for every size asked for. */
#include <stddef.h>
#include <string.h>

#include "tests/lib/unit.h"
#include "xseg/xseg_layout.h"

static const uint64_t sizes[] = {
	XSEG_SIZE_MIN, 9000000, 64u << 20, 1u << 30, 10000000000ull, XSEG_SIZE_MAX};

static void check_places(uint32_t lanes, uint32_t requests, uint64_t size)
{
	struct xseg_table_place p[XSEG_TABLE_COUNT];
	uint32_t pages = layout_pages_for(size, lanes, requests);
	ck_assert_uint_gt(pages, 0);
	uint64_t end = layout_places(lanes, requests, pages, p);
	ck_assert_uint_le(end, size);
	uint64_t at = sizeof(struct xseg_superblock);
	for (unsigned i = 0; i < XSEG_TABLE_COUNT; i++) {
		ck_assert_uint_eq(p[i].offset % XSEG_PAGE, 0);
		ck_assert_uint_ge(p[i].offset, at);
		ck_assert_uint_ge(p[i].size, (uint64_t)p[i].count * p[i].item_size);
		at = p[i].offset + p[i].size;
	}
	ck_assert_uint_le(at, end);
	ck_assert_uint_eq(p[XSEG_TABLE_RINGS].count, lanes * lanes);
	ck_assert_uint_eq(p[XSEG_TABLE_REQUESTS].count, requests);
	ck_assert_uint_eq(p[XSEG_TABLE_PAGES].count, pages);
	ck_assert_uint_eq(p[XSEG_TABLE_PAGE_DESCRIPTORS].count, pages);
	ck_assert_uint_ge((uint64_t)p[XSEG_TABLE_PAGE_HINTS].count * 64, pages);
	ck_assert_uint_ge((uint64_t)p[XSEG_TABLE_REQUEST_HINTS].count * 64, requests);
	/* not one page more would fit */
	ck_assert_uint_gt(layout_places(lanes, requests, pages + 1, p), size);
}

UNIT(test_places)
{
	for (unsigned s = 0; s < countof(sizes); s++)
		for (uint32_t lanes = 1; lanes <= 8; lanes *= 2)
			for (uint32_t requests = 64; requests <= 512; requests *= 8)
				check_places(lanes, requests, sizes[s]);
	check_places(16, 4096, 64u << 20);
	check_places(XSEG_LANES_MAX, 65536, 1u << 30);
}

UNIT(test_too_small)
{
	ck_assert_uint_eq(layout_pages_for(XSEG_SIZE_MIN, XSEG_LANES_MAX, 65536), 0);
	ck_assert_uint_eq(layout_pages_for(0, 1, 64), 0);
}

/* What the issue asks: all that is not a data page is under 5 % of a 1 GiB segment. */
UNIT(test_overhead)
{
	char name[NAME_LENGTH_MAX + 1];
	scratch_name(name);
	struct xseg_config config = {.name = name, .size = 1u << 30, .no_prefault = true};
	ck_assert_int_eq(xseg_segment_create(&config, NULL), 0);
	struct xseg seg;
	ck_assert_int_eq(xseg_segment_join(name, &seg, NULL), 0);
	uint64_t overhead = seg.size - (uint64_t)seg.page_count * XSEG_PAGE;
	ck_assert_uint_lt(overhead * 100, seg.size * 5);
	ck_assert_uint_ge(seg.lane_count, 16);
	xseg_segment_leave(&seg);
	ck_assert_int_eq(xseg_segment_destroy(name, NULL), 0);
}

UNIT(test_checksum)
{
	struct xseg_superblock super;
	memset(&super, 0x3c, sizeof(super));
	uint32_t sum = layout_checksum(&super);
	const size_t last = offsetof(struct xseg_superblock, checksum) - 1;
	for (size_t at = offsetof(struct xseg_superblock, layout_version); at <= last; at++) {
		((uint8_t *)&super)[at] ^= 0x10;
		ck_assert_uint_ne(layout_checksum(&super), sum);
		((uint8_t *)&super)[at] ^= 0x10;
	}
	/* what changes while the segment is used is not in it */
	atomic_store(&super.generation, 77);
	atomic_store(&super.epoch, 78);
	super.checksum ^= 1;
	ck_assert_uint_eq(layout_checksum(&super), sum);
	ck_assert_uint_eq(xseg_layout_hash(), xseg_layout_hash());
	ck_assert_uint_ne(xseg_layout_hash(), 0);
}

UNIT(test_boot_id)
{
	uint8_t a[16], b[16], zero[16] = {0};
	layout_boot_id(a);
	layout_boot_id(b);
	ck_assert_mem_eq(a, b, 16);
	ck_assert_mem_ne(a, zero, 16);
	char want[40] = "", got[40] = "";
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%39s", want), 1);
	fclose(f);
	for (unsigned i = 0, at = 0; i < 16; i++) {
		at += (unsigned)snprintf(got + at, 3, "%02x", a[i]);
		if (at == 8 || at == 13 || at == 18 || at == 23)
			got[at++] = '-';
	}
	ck_assert_str_eq(got, want);
}

UNIT(test_why)
{
	char why[XSEG_WHY_SIZE], big[2 * XSEG_WHY_SIZE];
	ck_assert_int_eq(layout_why(NULL, -5, "%s", "x"), -5);
	ck_assert_int_eq(layout_why(why, -7, "a %d", 1), -7);
	ck_assert_str_eq(why, "a 1");
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	layout_why(why, -7, "%s", big);
	ck_assert_uint_eq(strlen(why), XSEG_WHY_SIZE - 1);
}
