/* SPDX-License-Identifier: Apache-2.0 */
/* The two records of a volume: read, switched, dropped. */
#include <base/must.h>
#include <errno.h>

#include "peers/map/map_tree.h"

#define HALVES 2

/* One of the two as it was found. */
struct half {
	int error; /* 0, -ENOENT, -EILSEQ, -EPROTO */
	uint64_t version;
	struct map_volume volume;
};

/* Other errors than those of struct half are the store's, and returned. */
static int half_read(struct map_store *store, uint64_t id, unsigned number, struct half *half)
{
	uint8_t bytes[XSEG_RECORD_MAX];
	half->version = 0;
	int rc = store->get(store, map_volume_key(id, number), bytes, &half->version);
	half->error = rc < 0 ? rc : map_format_volume_decode(bytes, (size_t)rc, &half->volume);
	if (rc < 0)
		return rc == -ENOENT || rc == -EILSEQ ? 0 : rc;
	if (half->error == 0 &&
		(half->volume.id != id || half->volume.generation % HALVES != number))
		half->error = -EILSEQ; /* whole, but it belongs elsewhere */
	return 0;
}

static int halves_read(struct map_store *store, uint64_t id, struct half halves[HALVES])
{
	int rc = half_read(store, id, 0, &halves[0]);
	return rc != 0 ? rc : half_read(store, id, 1, &halves[1]);
}

/* The whole half with the higher generation; HALVES: none. */
static unsigned younger(const struct half halves[HALVES])
{
	if (halves[0].error != 0)
		return halves[1].error == 0 ? 1 : HALVES;
	return halves[1].error == 0 && halves[1].volume.generation > halves[0].volume.generation;
}

int map_head_read(struct map_store *store, uint64_t id, struct map_head *head, bool *damaged)
{
	struct half halves[HALVES];
	int rc = halves_read(store, id, halves);
	if (rc != 0)
		return rc;
	int a = halves[0].error, b = halves[1].error;
	if (damaged)
		*damaged = a == -EILSEQ || b == -EILSEQ;
	/* a newer program has been here: what the older half says may be long untrue */
	if (a == -EPROTO || b == -EPROTO)
		return -EPROTO;
	unsigned which = younger(halves);
	if (which == HALVES)
		return a == -EILSEQ || b == -EILSEQ ? -EILSEQ : -ENOENT;
	head->volume = halves[which].volume;
	head->version[0] = halves[0].version;
	head->version[1] = halves[1].version;
	return 0;
}

int map_head_put(struct map_store *store, struct map_head *head)
{
	if (!map_head_is_current(head))
		return -ESTALE;
	uint8_t bytes[MAP_RECORD_SIZE];
	head->volume.generation++;
	int rc = map_format_volume_check(&head->volume);
	if (rc != 0) {
		head->volume.generation--;
		return rc;
	}
	unsigned half = head->volume.generation % HALVES;
	map_format_volume_encode(&head->volume, bytes);
	rc = store->put(store, map_volume_key(head->volume.id, half), bytes, sizeof(bytes),
		&head->version[half]);
	if (rc == 0)
		return 0;
	/*
	 * Another's record may be there, or, the answer lost, this one: the pages that the head
	 * does not refer to may be in use, and it must not choose among them any more.
	 */
	head->volume.generation--;
	head->version[0] = head->version[1] = MAP_VERSION_UNKNOWN;
	return rc == -EEXIST ? -ESTALE : rc;
}

static int half_drop(struct map_store *store, uint64_t id, unsigned number, uint64_t version)
{
	if (version == 0)
		return 0;
	int rc = store->drop(store, map_volume_key(id, number), &version);
	return rc == -ENOENT ? 0 : rc;
}

int map_head_drop(struct map_store *store, uint64_t id)
{
	struct half halves[HALVES];
	int rc = halves_read(store, id, halves);
	if (rc != 0)
		return rc;
	if (halves[0].error == -EPROTO || halves[1].error == -EPROTO)
		return -EPROTO;
	unsigned last = younger(halves) % HALVES;
	rc = half_drop(store, id, !last, halves[!last].version);
	return rc != 0 ? rc : half_drop(store, id, last, halves[last].version);
}
