/* SPDX-License-Identifier: Apache-2.0 */
/* A store that is asked no faster than somebody wants. */
#include "peers/map/map_pace.h"

#include <errno.h>

int map_pace_call(struct map_pace *pace)
{
	pace->count = 0;
	if (pace->ended == 0)
		pace->ended = pace->hook(pace->context);
	return pace->ended == 0 ? 0 : -ECANCELED;
}

/* The store below, or NULL: it has ended. */
static struct map_store *next(struct map_store *store)
{
	struct map_pace *pace = (struct map_pace *)store;
	if (pace->ended != 0)
		return NULL;
	if (++pace->count >= pace->every && map_pace_call(pace) != 0)
		return NULL;
	return pace->below;
}

static int pace_read(
	struct map_store *store, struct xseg_key key, uint32_t offset, void *to, uint32_t length)
{
	struct map_store *below = next(store);
	return below ? below->read(below, key, offset, to, length) : -ECANCELED;
}

static int pace_write(struct map_store *store, struct xseg_key key, uint32_t offset,
	const void *from, uint32_t length)
{
	struct map_store *below = next(store);
	return below ? below->write(below, key, offset, from, length) : -ECANCELED;
}

static int pace_flush(struct map_store *store, uint64_t volume)
{
	struct map_store *below = next(store);
	return below ? below->flush(below, volume) : -ECANCELED;
}

static int pace_discard(struct map_store *store, struct xseg_key key)
{
	struct map_store *below = next(store);
	return below ? below->discard(below, key) : -ECANCELED;
}

static int pace_copy(struct map_store *store, struct xseg_key to, struct xseg_key from,
	uint32_t offset, uint32_t length)
{
	struct map_store *below = next(store);
	return below ? below->copy(below, to, from, offset, length) : -ECANCELED;
}

static int pace_list(struct map_store *store, uint64_t volume, uint64_t *cursor,
	struct xseg_key *keys, uint32_t max)
{
	struct map_store *below = next(store);
	return below ? below->list(below, volume, cursor, keys, max) : -ECANCELED;
}

static int pace_allocated(struct map_store *store, struct xseg_key key, uint64_t *bytes)
{
	struct map_store *below = next(store);
	return below ? below->allocated(below, key, bytes) : -ECANCELED;
}

static int pace_get(struct map_store *store, struct xseg_key key, uint8_t to[XSEG_RECORD_MAX],
	uint64_t *version)
{
	struct map_store *below = next(store);
	return below ? below->get(below, key, to, version) : -ECANCELED;
}

static int pace_put(struct map_store *store, struct xseg_key key, const void *from, uint32_t size,
	uint64_t *version)
{
	struct map_store *below = next(store);
	return below ? below->put(below, key, from, size, version) : -ECANCELED;
}

static int pace_drop(struct map_store *store, struct xseg_key key, uint64_t *version)
{
	struct map_store *below = next(store);
	return below ? below->drop(below, key, version) : -ECANCELED;
}

static int pace_records(struct map_store *store, uint32_t epoch, uint64_t *cursor,
	struct xseg_key *keys, uint32_t max)
{
	struct map_store *below = next(store);
	return below ? below->records(below, epoch, cursor, keys, max) : -ECANCELED;
}

void map_pace_init(struct map_pace *pace, struct map_store *below, unsigned every)
{
	*pace = (struct map_pace){.below = below, .every = every};
	pace->store = (struct map_store){
		.read = pace_read,
		.write = pace_write,
		.flush = pace_flush,
		.discard = pace_discard,
		.copy = pace_copy,
		.list = pace_list,
		.allocated = pace_allocated,
		.get = pace_get,
		.put = pace_put,
		.drop = pace_drop,
		.records = pace_records,
	};
}
