/* SPDX-License-Identifier: Apache-2.0 */
/* What stands in intents, for those who read: of one object, over a page of the map, in numbers. */
#include "peers/volume/volume_intent_priv.h"

bool volume_intent_find(
	struct peer *peer, uint64_t volume, uint32_t object, struct volume_intent *found)
{
	struct intents *intents = intents_of(peer);
	pthread_mutex_lock(&intents->lock);
	const struct intent *intent = intent_find(intents, volume, object);
	if (intent) {
		const struct volume_intent *slot = intent_record(peer, intent);
		intent_copy(
			found, slot, atomic_load_explicit(&slot->changes, memory_order_relaxed));
	}
	pthread_mutex_unlock(&intents->lock);
	return intent != NULL;
}

static bool has_all(const struct volume_intent *intent, const struct volume *volume)
{
	uint32_t clusters = (1u << volume->object_shift) / MAP_CLUSTER;
	for (uint32_t i = 0; i < clusters; i += 64) {
		uint64_t all = clusters - i < 64 ? (1ull << (clusters - i)) - 1 : ~0ull;
		if ((atomic_load_explicit(&intent->has[i / 64], memory_order_relaxed) & all) != all)
			return false;
	}
	return true;
}

/* With the mutex. */
static void overlay(struct peer *peer, struct intents *intents, const struct volume *volume,
	uint32_t page, struct volume_page *entries)
{
	const struct intent_volume *of = intent_volume_find(intents, volume->id);
	const struct intent *intent;
	if (!of)
		return;
	TAILQ_FOREACH (intent, &of->intents, beside) {
		const struct volume_intent *slot = intent_record(peer, intent);
		unsigned flags = intent->zero ? MAP_WORD_ZERO : slot->flags;
		/* what is just being made is not there yet */
		if (intent->object / MAP_PAGE_ENTRIES != page ||
			(intent->state != INTENT_STANDING && flags == 0))
			continue;
		if ((flags & MAP_WORD_PARTIAL) && has_all(slot, volume))
			flags &= ~MAP_WORD_PARTIAL;
		atomic_store_explicit(&entries->entry[intent->object % MAP_PAGE_ENTRIES],
			map_word(slot->epoch, volume->self, flags), memory_order_relaxed);
	}
}

/* In one with the mutex: an intent that is struck out in between would be seen neither here nor in
   the page that was asked for before (volume_publish.c counts it as a forget). */
bool volume_intent_install(struct peer *peer, struct volume *volume, uint32_t page,
	struct volume_page *entries, uint32_t forgets)
{
	struct intents *intents = intents_of(peer);
	struct volume_page *none = NULL;
	pthread_mutex_lock(&intents->lock);
	bool good = atomic_load_explicit(&volume->forgets, memory_order_acquire) == forgets;
	if (good) {
		overlay(peer, intents, volume, page, entries);
		good = atomic_compare_exchange_strong_explicit(&volume->pages[page], &none, entries,
			memory_order_release, memory_order_relaxed);
	}
	pthread_mutex_unlock(&intents->lock);
	return good;
}

bool volume_intent_any(struct peer *peer, uint64_t volume)
{
	struct intents *intents = intents_of(peer);
	if (!intents || atomic_load_explicit(&intents->count, memory_order_acquire) == 0)
		return false;
	pthread_mutex_lock(&intents->lock);
	const struct intent_volume *of = intent_volume_find(intents, volume);
	bool any = of && (of->count > 0 || of->publishing);
	pthread_mutex_unlock(&intents->lock);
	return any;
}

uint64_t volume_intent_crowded(struct peer *peer)
{
	struct intents *intents = intents_of(peer);
	if (!intents ||
		atomic_load_explicit(&intents->count, memory_order_relaxed) < VOLUME_INTENTS_SOFT)
		return 0;
	const struct intent_volume *of, *most = NULL;
	pthread_mutex_lock(&intents->lock);
	for (unsigned i = 0; i < INTENTS_VOLUMES; i++)
		LIST_FOREACH (of, &intents->volumes[i], link)
			if (!of->publishing && (!most || of->count > most->count))
				most = of;
	uint64_t id = most ? most->id : 0;
	pthread_mutex_unlock(&intents->lock);
	return id;
}

void volume_intent_forget(struct peer *peer, uint64_t volume)
{
	struct intents *intents = intents_of(peer);
	if (!intents)
		return;
	pthread_mutex_lock(&intents->lock);
	struct intent_volume *of = intent_volume_find(intents, volume);
	if (of) {
		struct intent *intent;
		while ((intent = TAILQ_FIRST(&of->intents)))
			intent_free(peer, intents, intent);
		intent_volume_put(of);
	}
	pthread_mutex_unlock(&intents->lock);
}
