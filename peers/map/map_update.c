/* SPDX-License-Identifier: Apache-2.0 */
/*
 * News of objects, brought into a volume's map.
 *
 * A presence is made durable before an entry of the map says that there is one. Bits that a
 * presence has are never taken away, and an object that is whole is never partial again, so news
 * that are said again change nothing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/map_step.h"

struct update {
	struct map_store *store;
	struct map_head head;
	bool refused; /* -ESTALE is the answer, not a lost race */
	bool written; /* presences: they may not be durable */
	bool loaded;
	uint32_t page;
	struct map_entry entries[MAP_ENTRIES]; /* of the page */
};

static int refuse(struct update *update)
{
	update->refused = true;
	return -ESTALE;
}

static int entry_now(struct update *update, uint32_t object, struct map_entry *entry)
{
	uint32_t page = object / MAP_ENTRIES;
	if (!update->loaded || update->page != page) {
		int rc = map_tree_page(
			update->store, &update->head.volume, page, update->entries, NULL);
		update->loaded = rc == 0;
		update->page = page;
		if (rc != 0)
			return rc;
	}
	*entry = update->entries[object % MAP_ENTRIES];
	return 0;
}

/* --- presences -------------------------------------------------------------------------------- */

static bool parent_check(const struct map_volume *volume, const struct map_news *news)
{
	bool known = false;
	for (unsigned i = 0; i < volume->owner_count; i++)
		known = known || volume->owners[i] == news->parent_owner;
	bool itself = news->parent_owner == volume->id && news->parent_epoch == news->epoch;
	return known && !itself && news->parent_epoch >= 1 && news->parent_epoch <= MAP_EPOCH_MAX &&
	       (news->parent_flags & ~MAP_PARTIAL) == 0;
}

/*
 * What the object has so far. What lies there of an object that the map does not know is a
 * leftover, and counts only if it could be of this one.
 */
static int presence_now(struct update *update, const struct map_news *news, bool known,
	struct map_presence *presence)
{
	const struct map_volume *volume = &update->head.volume;
	int rc = map_presence_read(update->store, volume->id, news->epoch, news->object, presence);
	if (rc == -ENOENT && known)
		return -EILSEQ;
	if (rc != 0 && (known || (rc != -ENOENT && rc != -EILSEQ)))
		return rc;
	uint64_t sequence = rc == 0 ? presence->sequence : 0;
	if (rc == 0 && presence->parent_owner == news->parent_owner &&
		presence->parent_epoch == news->parent_epoch &&
		presence->parent_flags == news->parent_flags)
		return 0;
	if (known)
		return -EINVAL;
	*presence = (struct map_presence){
		.owner = volume->id,
		.epoch = news->epoch,
		.object = news->object,
		.sequence = sequence,
		.parent_owner = news->parent_owner,
		.parent_epoch = news->parent_epoch,
		.parent_flags = news->parent_flags,
	};
	return 0;
}

/* Do they add anything? *whole: has it all by now? */
static bool presence_add(struct map_presence *presence, const uint64_t has[MAP_PRESENCE_WORDS],
	uint32_t object_size, bool *whole)
{
	uint32_t granules = object_size / MAP_GRANULE;
	bool added = false;
	*whole = true;
	for (uint32_t i = 0; i < MAP_PRESENCE_WORDS && i * 64 < granules; i++) {
		uint32_t left = granules - i * 64;
		uint64_t all = left >= 64 ? UINT64_MAX : ((uint64_t)1 << left) - 1;
		uint64_t now = presence->has[i] | (has[i] & all);
		added = added || now != presence->has[i];
		presence->has[i] = now;
		*whole = *whole && now == all;
	}
	return added;
}

static int plan_partial(
	struct update *update, const struct map_news *news, bool known, struct map_entry *to)
{
	const struct map_volume *volume = &update->head.volume;
	struct map_presence presence;
	bool whole;
	if (!parent_check(volume, news))
		return -EINVAL;
	int rc = presence_now(update, news, known, &presence);
	if (rc != 0)
		return rc;
	bool added = presence_add(&presence, news->has, volume->object_size, &whole);
	if ((added || whole) && news->epoch <= volume->frozen)
		return refuse(update);
	if (whole) {
		to->flags = 0;
		return 0;
	}
	update->written = true; /* said again: it may have been written and not flushed */
	return added || presence.sequence == 0 ? map_presence_write(update->store, &presence) : 0;
}

/* --- entries ---------------------------------------------------------------------------------- */

static int plan(struct update *update, const struct map_news *news, struct map_entry *to)
{
	const struct map_volume *volume = &update->head.volume;
	struct map_entry now;
	*to = (struct map_entry){0};
	if (news->object >= map_objects(volume))
		return -EINVAL;
	if (news->flags == MAP_NEWS_HOLE)
		return 0;
	if ((news->flags != 0 && news->flags != MAP_PARTIAL && news->flags != MAP_ZERO) ||
		news->epoch == 0 || news->epoch > volume->epoch)
		return -EINVAL;
	*to = (struct map_entry){
		.epoch = news->epoch, .owner = volume->self, .flags = (uint16_t)news->flags};
	if (news->flags == MAP_ZERO || (news->flags == 0 && news->epoch == volume->epoch))
		return 0;
	int rc = entry_now(update, news->object, &now);
	if (rc != 0)
		return rc;
	bool known =
		now.epoch == news->epoch && now.owner == volume->self && !(now.flags & MAP_ZERO);
	if (!known && news->epoch != volume->epoch)
		return refuse(update);
	if (known && now.flags == 0) {
		to->flags = 0; /* whole it is, and stays */
		return 0;
	}
	if (news->flags == MAP_PARTIAL)
		return plan_partial(update, news, known, to);
	return news->epoch <= volume->frozen ? refuse(update) : 0;
}

static int update_once(struct update *update, const struct map_news *news,
	struct map_change *changes, size_t count)
{
	struct map_store *store = update->store;
	int rc = 0;
	for (size_t i = 0; i < count && rc == 0; i++) {
		changes[i].object = news[i].object;
		rc = plan(update, &news[i], &changes[i].entry);
	}
	if (rc == 0 && update->written)
		rc = store->flush(store, update->head.volume.id);
	if (rc == 0)
		rc = map_tree_update(store, &update->head, changes, count);
	return map_head_excuse(store, &update->head, rc);
}

int map_update(struct map_store *store, uint64_t id, const struct map_news *news, size_t count,
	struct map_head *head)
{
	struct update update = {.store = store};
	struct map_change *changes = calloc(count + 1, sizeof(*changes));
	int rc = changes ? -ESTALE : -ENOMEM;
	for (unsigned tries = 0; tries < MAP_TRIES && rc == -ESTALE && !update.refused; tries++) {
		update.loaded = false;
		rc = map_head_writable(store, id, &update.head);
		if (rc == 0)
			rc = update_once(&update, news, changes, count);
	}
	free(changes);
	if (rc == 0)
		*head = update.head;
	return rc == -ESTALE && !update.refused ? -EBUSY : rc;
}
