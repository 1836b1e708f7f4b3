/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a crash of the host: what the journal has and the store lacks becomes dirty again. All of
 * it goes into one epoch, the open one; nobody has written anything yet. If another host has had a
 * volume meanwhile, the next FENCE says so, and what was replayed of it is dropped
 * (cache_control.c).
 */
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <string.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_object.h"

/* A page with the sectors over what was there. */
static void replay_build(
	struct peer *peer, uint32_t page, uint32_t old, const struct cache_journal_item *item)
{
	uint8_t *to = peer_page_memory(peer, page);
	if (old != XCACHE_NONE)
		memcpy(to, peer_page_memory(peer, old), XSEG_PAGE);
	for (unsigned i = 0; i < CACHE_SECTORS; i++)
		if ((item->sectors >> i) & 1u)
			memcpy(to + i * XSEG_SECTOR, (const uint8_t *)item->data + i * XSEG_SECTOR,
				XSEG_SECTOR);
}

/* The bucket's entry, parked; new: without a page. */
static int replay_entry(
	struct peer *peer, const struct cache_object *object, uint32_t bucket, uint32_t *entry)
{
	struct cache *cache = cache_of(peer);
	*entry = xcache_lookup(cache->index, object->index, bucket);
	if (*entry != XCACHE_NONE)
		return 0;
	int error = xcache_insert(cache->index, object->index, bucket, entry);
	if (error)
		return error;
	xcache_park(cache->index, *entry);
	xcache_entry(cache->index, *entry)->page = XCACHE_NONE;
	return 0;
}

static int replay_item(
	struct peer *peer, struct cache_object *object, const struct cache_journal_item *item)
{
	struct cache *cache = cache_of(peer);
	uint32_t entry, page, epoch = cache_epoch_enter(peer, object->local);
	int error = replay_entry(peer, object, item->bucket, &entry);
	if (error)
		return error;
	struct xcache_entry *e = xcache_entry(cache->index, entry);
	uint32_t old = e->page;
	error = peer_page_hold(peer, &page, 1);
	if (error) {
		if (old == XCACHE_NONE)
			xcache_remove(cache->index, entry);
		return error;
	}
	unsigned valid = e->valid | item->sectors;
	replay_build(peer, page, old, item);
	cache_bucket_describe(peer, object, item->bucket, page, valid, valid, epoch);
	crash_point("cache.replay.described");
	peer_page_keep(peer, page);
	e->page = page;
	e->valid = (uint8_t)valid;
	if (old != XCACHE_NONE) {
		peer_page_drop(peer, old);
		return 0;
	}
	cache_volume_use(peer, object->local, 1);
	cache_epoch_add(peer, object->local, entry, epoch);
	return 0;
}

/* The last term in which we had it: whether somebody else has had it since says the next FENCE.
   Older records are good as well: what another had in between was marked, or dropped, then. */
static void replay_term(struct peer *peer, const struct cache_journal_from *from)
{
	struct cache_volume *volume = from->term ? cache_volume_get(peer, from->volume) : NULL;
	if (!volume)
		return;
	uint64_t term = atomic_load(&volume->term);
	while (term < from->term && !atomic_compare_exchange_weak(&volume->term, &term, from->term))
		;
}

static int replay_take(
	void *context, const struct cache_journal_from *from, const struct cache_journal_item *item)
{
	struct peer *peer = context;
	struct xseg_key key = {
		.volume = from->volume, .epoch = item->key_epoch, .object = item->object};
	struct cache_object *object;
	replay_term(peer, from);
	if (!cache_key_is_mine(peer, &key) || item->bucket >= XCACHE_BUCKETS)
		return 0;
	int error = cache_object_get(peer, &key, &object);
	if (error)
		return error;
	uint32_t index = object->index;
	xcache_ref_object(cache_of(peer)->index, index);
	error = replay_item(peer, object, item);
	xcache_unref_object(cache_of(peer)->index, index);
	return error;
}

/* What was replayed before we were killed in the middle of it: once more from the beginning. */
static void replay_forget(struct peer *peer)
{
	struct xcache *index = cache_of(peer)->index;
	uint32_t object, cursor = 0;
	while ((object = xcache_next_object(index, &cursor)) != XCACHE_NONE)
		cache_bucket_forget(peer, xcache_object(index, object)->owner, 0, XCACHE_BUCKETS);
}

int cache_replay(struct peer *peer, char *why, size_t why_size)
{
	struct cache_shared *shared = cache_shared(peer);
	uint64_t items;
	bool cut;
	if (!shared->journal || !shared->replaying)
		return 0;
	replay_forget(peer);
	cache_journal_found(shared->journal, &items, &cut);
	if (peer->shard == 0 && items)
		log_info("cached", "%s: %llu buckets from the journal%s", peer->name,
			(unsigned long long)items, cut ? "; its end was torn and is cut off" : "");
	int error = cache_journal_replay(shared->journal, replay_take, peer);
	if (error == -EILSEQ)
		snprintf(why, why_size, "the journal is damaged; see the log");
	else if (error == -ENOSPC || error == -EAGAIN || error == -EMFILE)
		snprintf(why, why_size,
			"the journal has more than fits into the cache; make size or the segment "
			"larger");
	else if (error)
		snprintf(why, why_size, "the journal cannot be read: %s", strerror(-error));
	return error;
}
