/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flush epochs: which one a write goes into, what is dirty in each, when one is closed.
 *
 * Why no shard passes another: a shard says low = e and then looks again whether e is still open;
 * who closes e moves `open` and then looks at all low. Both are sequentially consistent, so
 * either the writer sees that e is closed and takes the next one, or the closer sees that the
 * writer is in it.
 */
#include <base/crash.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_object.h"

/* --- queues ------------------------------------------------------------------------------ */

static struct xcache_entry *at(struct cache *cache, uint32_t entry)
{
	return xcache_entry(cache->index, entry);
}

void cache_epoch_link(struct cache *cache, struct cache_list *list, uint32_t entry, bool first)
{
	uint32_t *near = first ? &list->head : &list->tail;
	uint32_t other = *near;
	*near = entry;
	at(cache, entry)->prev = first ? XCACHE_NONE : other;
	at(cache, entry)->next = first ? other : XCACHE_NONE;
	if (other == XCACHE_NONE)
		list->head = list->tail = entry;
	else if (first)
		at(cache, other)->prev = entry;
	else
		at(cache, other)->next = entry;
	list->count++;
}

void cache_epoch_unlink(struct cache *cache, struct cache_list *list, uint32_t entry)
{
	uint32_t prev = at(cache, entry)->prev, next = at(cache, entry)->next;
	must(list->count > 0);
	if (prev == XCACHE_NONE)
		list->head = next;
	else
		at(cache, prev)->next = next;
	if (next == XCACHE_NONE)
		list->tail = prev;
	else
		at(cache, next)->prev = prev;
	list->count--;
}

/* From the youngest on: that is where writes go. NULL: none. */
static struct cache_epoch *epoch_find(const struct cache_local *local, uint32_t number)
{
	struct cache_epoch *epoch;
	TAILQ_FOREACH_REVERSE (epoch, &local->epochs, cache_epoch_queue, link)
		if (epoch->number == number)
			return epoch;
	return NULL;
}

static struct cache_epoch *epoch_make(struct peer *peer, struct cache_local *local, uint32_t number)
{
	struct cache_epoch *after, *epoch = slab_take(&cache_of(peer)->pools.epochs);
	must(epoch); /* there are more than entries and volumes */
	*epoch = (struct cache_epoch){.number = number,
		.dirty = {XCACHE_NONE, XCACHE_NONE, 0},
		.scattered = UINT32_MAX,
		.written = {XCACHE_NONE, XCACHE_NONE, 0},
		.since_ns = peer_now_ns(peer)};
	after = TAILQ_LAST(&local->epochs, cache_epoch_queue);
	while (after && cache_epoch_before(number, after->number))
		after = TAILQ_PREV(after, cache_epoch_queue, link);
	if (after)
		TAILQ_INSERT_AFTER(&local->epochs, after, epoch, link);
	else
		TAILQ_INSERT_HEAD(&local->epochs, epoch, link);
	return epoch;
}

void cache_epoch_enqueue(struct peer *peer, struct cache_local *local)
{
	struct cache *cache = cache_of(peer);
	if (local->listed)
		return;
	local->listed = true;
	cache->hurry = true;
	TAILQ_INSERT_TAIL(&cache->writeback.locals, local, link);
}

static void local_dirty(struct peer *peer, struct cache_local *local, int32_t count)
{
	local->dirty += (uint32_t)count;
	cache_of(peer)->writeback.dirty += (uint32_t)count;
	cache_volume_changed(peer, local);
}

/* --- numbers ----------------------------------------------------------------------------- */

static uint32_t epoch_after(uint32_t number)
{
	return number + 1 == CACHE_NO_EPOCH ? 0 : number + 1;
}

/* Moves a number that only grows. */
void cache_epoch_raise(_Atomic uint32_t *place, uint32_t number)
{
	uint32_t now = atomic_load_explicit(place, memory_order_relaxed);
	while (cache_epoch_before(now, number) &&
		!atomic_compare_exchange_weak(place, &now, number))
		;
}

uint32_t cache_epoch_enter(struct peer *peer, struct cache_local *local)
{
	struct cache_volume *volume = local->volume;
	_Atomic uint32_t *low = &volume->low[peer->shard];
	uint32_t mine = atomic_load_explicit(low, memory_order_relaxed);
	uint32_t epoch = atomic_load_explicit(&volume->open, memory_order_acquire), now;
	if (likely(mine != CACHE_NO_EPOCH && !cache_epoch_before(epoch, mine)))
		return epoch;
	for (;;) {
		atomic_store(low, epoch);
		now = atomic_load(&volume->open);
		if (now == epoch)
			break;
		epoch = now;
	}
	/* should nothing be added, that is seen to by the next turn */
	cache_epoch_enqueue(peer, local);
	return epoch;
}

void cache_epoch_leave(struct peer *peer) { cache_of(peer)->hurry = true; }

/* The others know that this shard is in that epoch, or in an older one. */
static bool epoch_published(const struct cache_volume *volume, unsigned shard, uint32_t epoch)
{
	uint32_t low = atomic_load_explicit(&volume->low[shard], memory_order_relaxed);
	return low != CACHE_NO_EPOCH && !cache_epoch_before(epoch, low);
}

/* The epoch, where so many are about to be put. */
static inline struct cache_epoch *epoch_grow(
	struct peer *peer, struct cache_local *local, uint32_t number, uint32_t count)
{
	struct cache_volume *volume = local->volume;
	struct cache_epoch *epoch = epoch_find(local, number);
	if (!epoch)
		epoch = epoch_make(peer, local, number);
	epoch->journaled = false;
	cache_epoch_raise(&volume->touched, number);
	if (unlikely(!cache_of(peer)->adopted))
		cache_epoch_raise(&volume->open, epoch_after(number));
	must(epoch_published(volume, peer->shard, number));
	local_dirty(peer, local, (int32_t)count);
	cache_epoch_enqueue(peer, local);
	return epoch;
}

void cache_epoch_add(struct peer *peer, struct cache_local *local, uint32_t entry, uint32_t number)
{
	struct cache_epoch *epoch = epoch_grow(peer, local, number, 1);
	struct xcache_entry *e = at(cache_of(peer), entry);
	cache_bucket_move(e, BUCKET_DIRTY);
	e->word = number;
	cache_epoch_link(cache_of(peer), &epoch->dirty, entry, false);
}

void cache_epoch_join(
	struct peer *peer, struct cache_local *local, struct cache_list *list, uint32_t number)
{
	struct cache_list *dirty = &epoch_grow(peer, local, number, list->count)->dirty;
	if (dirty->count == 0) {
		*dirty = *list;
	} else if (list->count) {
		at(cache_of(peer), dirty->tail)->next = list->head;
		at(cache_of(peer), list->head)->prev = dirty->tail;
		dirty->tail = list->tail;
		dirty->count += list->count;
	}
	*list = (struct cache_list){XCACHE_NONE, XCACHE_NONE, 0};
}

void cache_epoch_forget(struct peer *peer, struct cache_local *local, uint32_t entry)
{
	struct xcache_entry *e = at(cache_of(peer), entry);
	cache_bucket_move(e, BUCKET_CLEAN);
	local_dirty(peer, local, -1);
}

void cache_epoch_remove(struct peer *peer, struct cache_local *local, uint32_t entry)
{
	struct cache *cache = cache_of(peer);
	struct xcache_entry *e = at(cache, entry);
	struct cache_epoch *epoch = epoch_find(local, e->word);
	must(epoch && e->bucket_state != BUCKET_WRITING);
	bool written = e->bucket_state == BUCKET_WRITTEN;
	cache_epoch_unlink(cache, written ? &epoch->written : &epoch->dirty, entry);
	cache_epoch_forget(peer, local, entry);
	if (epoch->dirty.count == 0)
		cache->hurry = true;
}

bool cache_epoch_is_closed(const struct cache_local *local, uint32_t epoch)
{
	return cache_epoch_before(epoch, atomic_load(&local->volume->open));
}

uint32_t cache_epoch_close(struct peer *peer, struct cache_local *local)
{
	struct cache_volume *volume = local->volume;
	uint32_t open = atomic_load(&volume->open);
	if (!cache_epoch_before(atomic_load(&volume->touched), open) &&
		atomic_compare_exchange_strong(&volume->open, &open, epoch_after(open))) {
		crash_point("cache.epoch.closed");
		peer_count(peer, CACHE_EPOCHS, 1);
		cache_of(peer)->hurry = true;
		cache_epoch_enqueue(peer, local);
		cache_volume_wake_others(peer);
	}
	return atomic_load(&volume->open) - 1;
}

uint32_t cache_epoch_goal(const struct cache_local *local)
{
	uint32_t open = atomic_load(&local->volume->open);
	bool empty = cache_epoch_before(atomic_load(&local->volume->touched), open);
	return empty ? open - 1 : open;
}

bool cache_epoch_dirty_over(const struct peer *peer, uint64_t percent, uint32_t more)
{
	const struct cache *cache = cache_of(peer);
	const struct cache_shared *shared = cache_shared(peer);
	uint64_t size = atomic_load_explicit(&shared->size, memory_order_relaxed) / XSEG_PAGE;
	uint32_t others = atomic_load_explicit(&shared->dirty, memory_order_relaxed);
	uint32_t dirty = others + cache->writeback.dirty - cache->writeback.dirty_published;
	return (uint64_t)dirty + more > size * percent / 100;
}

enum cache_room cache_epoch_room(struct peer *peer, uint32_t count)
{
	struct cache *cache = cache_of(peer);
	struct cache_shared *shared = cache_shared(peer);
	const struct cache_options *options = cache_options(peer);
	if (likely(!cache_epoch_dirty_over(peer, options->dirty_soft, count)))
		return CACHE_ROOM_ENOUGH;
	if (!atomic_load_explicit(&shared->pressed, memory_order_relaxed) &&
		!atomic_exchange(&shared->pressed, true))
		cache_volume_wake_others(peer);
	cache->hurry = true;
	if (!cache_epoch_dirty_over(peer, (options->dirty_soft + options->dirty_hard) / 2, count))
		return CACHE_ROOM_ENOUGH;
	bool some = !cache_epoch_dirty_over(peer, options->dirty_hard, count) ||
		    !cache_epoch_dirty_over(peer, 0, 0);
	return some ? CACHE_ROOM_LITTLE : CACHE_ROOM_NONE;
}
