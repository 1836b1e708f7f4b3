/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a group that is moved: as docs/moving.md says, and nothing else is believed. */
#include <base/crc32c.h>
#include <string.h>

#include "peers/mover/mover.h"
#include "tests/lib/unit.h"

static struct mover_group sample(uint32_t count)
{
	struct mover_group group = {.phase = MOVER_COPYING, .to = MOVER_NEW, .count = count};
	for (uint32_t i = 0; i < count; i++)
		group.ids[i] = 0x1122334455667700ull + i;
	return group;
}

static void sign(uint8_t *bytes, uint32_t size)
{
	uint32_t crc = crc32c(0, bytes, size - 4);
	memcpy(bytes + size - 4, &crc, 4);
}

UNIT(group_every_byte)
{
	static const uint8_t want[] = {'S', 'K', 'M', 'O', 'V', 'E', 'R', '.', 1, 0, 0, 0, 2, 0, 0,
		0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 1, 0x77,
		0x66, 0x55, 0x44, 0x33, 0x22, 0x11};
	struct mover_group group = sample(2), found;
	uint8_t bytes[XSEG_RECORD_MAX];
	ck_assert_uint_eq(mover_group_encode(&group, bytes), sizeof(want) + 4);
	ck_assert_mem_eq(bytes, want, sizeof(want));
	ck_assert_int_eq(mover_group_decode(bytes, sizeof(want) + 4, &found), 0);
	ck_assert_uint_eq(found.phase, MOVER_COPYING);
	ck_assert_uint_eq(found.to, MOVER_NEW);
	ck_assert_uint_eq(found.count, 2);
	ck_assert_mem_eq(found.ids, group.ids, 2 * sizeof(*group.ids));
}

UNIT(group_as_large_as_it_gets)
{
	struct mover_group group = sample(MOVER_IDS_MAX), found;
	uint8_t bytes[XSEG_RECORD_MAX];
	uint32_t size = mover_group_encode(&group, bytes);
	ck_assert_int_eq(mover_group_decode(bytes, size, &found), 0);
	ck_assert_mem_eq(found.ids, group.ids, sizeof(group.ids));
}

UNIT(group_damaged_anywhere)
{
	struct mover_group group = sample(3), found;
	uint8_t bytes[XSEG_RECORD_MAX];
	uint32_t size = mover_group_encode(&group, bytes);
	for (uint32_t i = 0; i < size; i++) {
		bytes[i] ^= 0x40;
		ck_assert_int_eq(mover_group_decode(bytes, size, &found), -EILSEQ);
		bytes[i] ^= 0x40;
	}
	for (uint32_t cut = 0; cut < size; cut++)
		ck_assert_int_eq(mover_group_decode(bytes, cut, &found), -EILSEQ);
}

/* Whole, and yet it cannot be. */
UNIT(group_that_lies)
{
	static const struct {
		uint32_t at, value;
		int error;
	} lies[] = {{8, 2, -EPROTO}, {12, 0, -EILSEQ}, {12, 5, -EILSEQ}, {16, 2, -EILSEQ},
		{20, 0, -EILSEQ}, {20, 4, -EILSEQ}, {20, 481, -EILSEQ}};
	struct mover_group group = sample(3), found;
	uint8_t bytes[XSEG_RECORD_MAX];
	for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
		uint32_t size = mover_group_encode(&group, bytes);
		memcpy(bytes + lies[i].at, &lies[i].value, 4);
		sign(bytes, size);
		ck_assert_int_eq(mover_group_decode(bytes, size, &found), lies[i].error);
	}
}
