/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records and pages of maps as a store may give them back: a good one, changed in some bytes, its
 * checksum set right again. Each is refused, or is just what would be written for what was read.
 */
#include <base/crc32c.h>
#include <errno.h>
#include <stdlib.h>

#include "peers/map/map_format.h"
#include "tests/fuzz/fuzz.h"

#define SIZE_MAX_OF_ANY 8192u

enum kind { VOLUME, NAME, HOME, BITMAP, PAGE, DIRECTORY, KINDS };

static const size_t sizes[KINDS] = {[VOLUME] = MAP_RECORD_SIZE,
	[NAME] = MAP_NAME_RECORD_SIZE,
	[HOME] = MAP_HOME_RECORD_SIZE,
	[BITMAP] = MAP_BITMAP_SIZE,
	[PAGE] = MAP_PAGE_SIZE,
	[DIRECTORY] = MAP_PAGE_SIZE};

union content {
	struct map_volume volume;
	struct map_name name;
	struct map_home home;
	struct map_bitmap bitmap;
	struct map_entry entries[MAP_ENTRIES];
	struct map_ref refs[MAP_DIRECTORY_REFS];
};

static void encode(enum kind kind, const union content *content, uint8_t *out)
{
	switch (kind) {
	case VOLUME: map_format_volume_encode(&content->volume, out); break;
	case NAME: map_format_name_encode(&content->name, out); break;
	case HOME: map_format_home_encode(&content->home, out); break;
	case BITMAP: map_format_bitmap_encode(&content->bitmap, out); break;
	case PAGE: map_format_page_encode(content->entries, out); break;
	default: map_format_directory_encode(content->refs, out); break;
	}
}

static int decode(enum kind kind, const uint8_t *from, size_t size, union content *content)
{
	switch (kind) {
	case VOLUME: return map_format_volume_decode(from, size, &content->volume);
	case NAME: return map_format_name_decode(from, size, &content->name);
	case HOME: return map_format_home_decode(from, size, &content->home);
	case BITMAP: return map_format_bitmap_decode(from, &content->bitmap);
	case PAGE: return map_format_page_decode(from, 4, content->entries);
	default: return map_format_directory_decode(from, 4, content->refs);
	}
}

static void sample(enum kind kind, union content *content)
{
	memset(content, 0, sizeof(*content));
	switch (kind) {
	case VOLUME:
		content->volume = (struct map_volume){.id = 7,
			.size = 5u << 20,
			.object_size = 1u << 20,
			.state = XSEG_VOLUME_READY,
			.epoch = 3,
			.generation = 2,
			.owner_count = 2,
			.owners = {9, 7},
			.self = 1,
			.depth = 1,
			.name = "disk"};
		break;
	case NAME: content->name = (struct map_name){.id = 7, .name = "disk"}; break;
	case HOME:
		content->home = (struct map_home){.id = 7, .term = 2, .owner = 8, .host = "h/seg"};
		break;
	case BITMAP:
		content->bitmap = (struct map_bitmap){.owner = 7,
			.epoch = 3,
			.object = 1,
			.sequence = 1,
			.parent_owner = 9,
			.parent_epoch = 1,
			.has = {1}};
		break;
	case PAGE: content->entries[3] = (struct map_entry){.epoch = 2, .owner = 1}; break;
	default:
		content->refs[3] = (struct map_ref){.epoch = 2, .crc = 5, .count = 6, .owner = 1};
		break;
	}
}

static void seal(uint8_t *bytes, size_t size)
{
	uint32_t crc = crc32c(0, bytes, size - 4);
	for (unsigned i = 0; i < 4; i++)
		bytes[size - 4 + i] = (uint8_t)(crc >> 8 * i);
}

static void demand(bool held)
{
	if (!held)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[SIZE_MAX_OF_ANY], again[SIZE_MAX_OF_ANY];
	static union content content;
	struct fuzz_bytes in = {.at = data, .left = size};
	enum kind kind = (enum kind)(fuzz_take(&in, 1) % KINDS);
	size_t whole = sizes[kind], given = whole;
	bool sealed = kind != PAGE && kind != DIRECTORY;
	sample(kind, &content);
	encode(kind, &content, bytes);
	demand(decode(kind, bytes, whole, &content) == 0);
	while (in.left >= 3) {
		size_t at = fuzz_take(&in, 2) % whole;
		bytes[at] = (uint8_t)fuzz_take(&in, 1);
	}
	if (sealed && in.left == 0)
		seal(bytes, whole);
	else if (kind <= HOME && in.left == 2) /* cut off */
		given = fuzz_take(&in, 2) % whole;
	if (decode(kind, bytes, given, &content) != 0)
		return 0;
	demand(given == whole);
	encode(kind, &content, again);
	demand(memcmp(bytes, again, whole) == 0);
	return 0;
}
