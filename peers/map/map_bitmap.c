/* SPDX-License-Identifier: Apache-2.0 */
/* What partial objects have: read and written in two halves. */
#include <errno.h>
#include <string.h>

#include "peers/map/map_tree.h"

#define HALVES 2

/* 0, -ENOENT (never written), -EILSEQ, -EPROTO. */
static int half_decode(
	const uint8_t *from, struct xseg_key data, unsigned half, struct map_bitmap *bitmap)
{
	static const uint8_t zeros[MAP_BITMAP_SIZE];
	if (memcmp(from, zeros, sizeof(zeros)) == 0)
		return -ENOENT;
	int rc = map_format_bitmap_decode(from, bitmap);
	if (rc != 0)
		return rc;
	bool ours = bitmap->owner == data.volume && bitmap->epoch == data.epoch &&
		    bitmap->object == data.object && bitmap->sequence % HALVES == half;
	return ours ? 0 : -EILSEQ;
}

struct map_range map_bitmap_range(uint64_t owner, uint32_t epoch, uint32_t object)
{
	return (struct map_range){.key = map_bitmap_key(owner, epoch, object),
		.offset = map_bitmap_offset(object, 0),
		.length = HALVES * MAP_BITMAP_SIZE};
}

int map_bitmap_read(struct map_store *store, uint64_t owner, uint32_t epoch, uint32_t object,
	struct map_bitmap *bitmap)
{
	uint8_t bytes[HALVES * MAP_BITMAP_SIZE];
	struct xseg_key data = {.volume = owner, .epoch = epoch, .object = object};
	struct map_bitmap found[HALVES];
	struct map_range range = map_bitmap_range(owner, epoch, object);
	int rc = store->read(store, range.key, range.offset, bytes, sizeof(bytes));
	if (rc < 0)
		return rc;
	int a = half_decode(bytes, data, 0, &found[0]);
	int b = half_decode(bytes + MAP_BITMAP_SIZE, data, 1, &found[1]);
	if (a == -EPROTO || b == -EPROTO)
		return -EPROTO;
	if (a != 0 && b != 0)
		return a == -ENOENT && b == -ENOENT ? -ENOENT : -EILSEQ;
	bool second = a != 0 || (b == 0 && found[1].sequence > found[0].sequence);
	*bitmap = found[second];
	return 0;
}

int map_bitmap_write(struct map_store *store, struct map_bitmap *bitmap)
{
	uint8_t bytes[MAP_BITMAP_SIZE];
	bitmap->sequence++;
	map_format_bitmap_encode(bitmap, bytes);
	int rc = store->write(store, map_bitmap_key(bitmap->owner, bitmap->epoch, bitmap->object),
		map_bitmap_offset(bitmap->object, bitmap->sequence % HALVES), bytes, sizeof(bytes));
	if (rc < 0)
		bitmap->sequence--; /* said again, it goes to the same half */
	return rc < 0 ? rc : 0;
}
