/* SPDX-License-Identifier: Apache-2.0 */
/* Which volumes the journal knows, and what of them is at the store. */
#include <base/hash.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/cache/cache_journal_log.h"

static struct journal_chain *volume_chain(struct journal_volumes *volumes, uint64_t id)
{
	uint64_t mixed = hash_u64(id);
	return &volumes->chains[(mixed >> 32) % countof(volumes->chains)];
}

int journal_volume_open(struct journal_volumes *volumes)
{
	volumes->items = calloc(JOURNAL_VOLUMES, sizeof(*volumes->items));
	if (!volumes->items)
		return -ENOMEM;
	TAILQ_INIT(&volumes->unsynced);
	return 0;
}

struct journal_volume *journal_volume_find(struct journal_volumes *volumes, uint64_t id)
{
	struct journal_volume *volume;
	LIST_FOREACH (volume, volume_chain(volumes, id), chain)
		if (volume->id == id)
			break;
	return volume;
}

static struct journal_volume *volume_take(struct journal_volumes *volumes)
{
	struct journal_volume *volume = LIST_FIRST(&volumes->free);
	if (volume)
		LIST_REMOVE(volume, chain);
	else if (volumes->touched < JOURNAL_VOLUMES)
		volume = &volumes->items[volumes->touched++];
	return volume;
}

struct journal_volume *journal_volume_get(struct journal_volumes *volumes, uint64_t id)
{
	struct journal_volume *volume = journal_volume_find(volumes, id);
	if (volume)
		return volume;
	volume = volume_take(volumes);
	if (!volume)
		return NULL;
	memset(volume, 0, sizeof(*volume));
	volume->id = id;
	LIST_INSERT_HEAD(volume_chain(volumes, id), volume, chain);
	return volume;
}

void journal_volume_put(struct journal_volumes *volumes, struct journal_volume *volume)
{
	if (volume->records || volume->batches)
		return;
	if (volume->unsynced)
		TAILQ_REMOVE(&volumes->unsynced, volume, link);
	LIST_REMOVE(volume, chain);
	LIST_INSERT_HEAD(&volumes->free, volume, chain);
}

void journal_volume_see(struct journal_volume *volume, uint32_t epoch)
{
	volume->records++;
	if (!volume->has_newest || journal_before(volume->newest, epoch))
		volume->newest = epoch;
	volume->has_newest = true;
}

void journal_volume_mark(struct journal_volume *volume, uint32_t epoch)
{
	if (!volume->marked || journal_before(volume->mark, epoch))
		volume->mark = epoch;
	volume->marked = true;
}

bool journal_volume_covers(const struct journal_volume *volume, uint32_t epoch)
{
	return volume->marked && !journal_before(volume->mark, epoch);
}
