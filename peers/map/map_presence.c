/* SPDX-License-Identifier: Apache-2.0 */
/* What partial objects have: read and written in two halves. */
#include <errno.h>
#include <string.h>

#include "peers/map/map_tree.h"

#define HALVES 2

/* 0, -ENOENT (never written), -EILSEQ, -EPROTO. */
static int half_decode(
	const uint8_t *from, struct xseg_key data, unsigned half, struct map_presence *presence)
{
	static const uint8_t zeros[MAP_PRESENCE_SIZE];
	if (memcmp(from, zeros, sizeof(zeros)) == 0)
		return -ENOENT;
	int rc = map_presence_decode(from, presence);
	if (rc != 0)
		return rc;
	bool ours = presence->owner == data.volume && presence->epoch == data.epoch &&
		    presence->object == data.object && presence->sequence % HALVES == half;
	return ours ? 0 : -EILSEQ;
}

int map_presence_read(struct map_store *store, uint64_t owner, uint32_t epoch, uint32_t object,
	struct map_presence *presence)
{
	uint8_t bytes[HALVES * MAP_PRESENCE_SIZE];
	struct xseg_key data = {.volume = owner, .epoch = epoch, .object = object};
	struct map_presence found[HALVES];
	int rc = store->read(store, map_presence_key(owner, epoch, object),
		map_presence_offset(object, 0), bytes, sizeof(bytes));
	if (rc < 0)
		return rc;
	int a = half_decode(bytes, data, 0, &found[0]);
	int b = half_decode(bytes + MAP_PRESENCE_SIZE, data, 1, &found[1]);
	if (a == -EPROTO || b == -EPROTO)
		return -EPROTO;
	if (a != 0 && b != 0)
		return a == -ENOENT && b == -ENOENT ? -ENOENT : -EILSEQ;
	bool second = a != 0 || (b == 0 && found[1].sequence > found[0].sequence);
	*presence = found[second];
	return 0;
}

int map_presence_write(struct map_store *store, struct map_presence *presence)
{
	uint8_t bytes[MAP_PRESENCE_SIZE];
	presence->sequence++;
	map_presence_encode(presence, bytes);
	int rc = store->write(store,
		map_presence_key(presence->owner, presence->epoch, presence->object),
		map_presence_offset(presence->object, presence->sequence % HALVES), bytes,
		sizeof(bytes));
	if (rc < 0)
		presence->sequence--; /* said again, it goes to the same half */
	return rc < 0 ? rc : 0;
}
