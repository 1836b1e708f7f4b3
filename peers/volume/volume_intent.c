/* SPDX-License-Identifier: Apache-2.0 */
/* The intents of the process: a table over slots in kept pages. */
#include "peers/volume/volume_intent.h"

#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/page.h>

#include "peers/volume/volume_intent_priv.h"
#include "peers/volume/volume_map.h"

/* Says of a kept page that it is one of ours: nobody else reads the word. */
#define INTENTS_PAGE 0x45544f4eu
#define INTENTS_PAGE_FULL ((1u << INTENTS_PER_PAGE) - 1)

static struct intents *intents_of(const struct peer *peer)
{
	return ((struct volume_shared *)peer->shared)->intents;
}

/* --- slots -------------------------------------------------------------------------------- */

static struct volume_intent *slot_intent(struct peer *peer, const struct intent_slot *slot)
{
	struct volume_intent *first =
		(struct volume_intent *)(void *)peer_page_memory(peer, slot->page->page);
	return &first[slot->index];
}

/* With the mutex. NULL: no memory. */
static struct intent_page *page_add(struct intents *intents, uint32_t page)
{
	struct intent_page *added = calloc(1, sizeof(*added));
	if (!added)
		return NULL;
	added->page = page;
	TAILQ_INSERT_TAIL(&intents->room, added, link);
	return added;
}

/* With the mutex. A page without intents would look like something that is still to be saved. */
static void page_drop(struct peer *peer, struct intents *intents, struct intent_page *page)
{
	TAILQ_REMOVE(&intents->room, page, link);
	peer_page_drop(peer, page->page);
	free(page);
}

/* With the mutex. One page more, empty, kept by the port. */
static int page_new(struct peer *peer, struct intents *intents)
{
	uint32_t page;
	int rc = peer_page_hold(peer, &page, 1);
	if (rc != 0)
		return rc;
	if (!page_add(intents, page)) {
		peer_page_let_go(peer, page);
		return -ENOMEM;
	}
	memset(peer_page_memory(peer, page), 0, XSEG_PAGE);
	struct xseg_page_descriptor *about = peer_page_about(peer, page);
	atomic_store_explicit(&about->valid, 0xff, memory_order_relaxed);
	atomic_store_explicit(&about->dirty, 0xff, memory_order_relaxed);
	about->bucket = 0;
	about->object = 0;
	about->sequence = 0;
	about->epoch = 0;
	about->crc32c = INTENTS_PAGE;
	peer_page_keep(peer, page);
	return 0;
}

static void slot_use(struct intents *intents, const struct intent_slot *slot)
{
	struct intent_page *page = slot->page;
	page->used |= 1u << slot->index;
	if (page->used == INTENTS_PAGE_FULL)
		TAILQ_REMOVE(&intents->room, page, link);
}

static int slot_take(struct peer *peer, struct intents *intents, struct intent_slot *slot)
{
	int rc = TAILQ_EMPTY(&intents->room) ? page_new(peer, intents) : 0;
	if (rc != 0)
		return rc;
	slot->page = TAILQ_FIRST(&intents->room);
	slot->index = (uint32_t)__builtin_ctz(~slot->page->used);
	slot_use(intents, slot);
	return 0;
}

static void slot_give(struct peer *peer, struct intents *intents, struct intent_slot slot)
{
	struct intent_page *page = slot.page;
	atomic_store_explicit(&slot_intent(peer, &slot)->volume, 0, memory_order_release);
	if (page->used == INTENTS_PAGE_FULL)
		TAILQ_INSERT_TAIL(&intents->room, page, link);
	page->used &= ~(1u << slot.index);
	if (page->used == 0)
		page_drop(peer, intents, page);
}

static void slot_write(struct volume_intent *to, const struct volume_intent *from, uint32_t changes)
{
	to->parent_owner = from->parent_owner;
	to->object = from->object;
	to->epoch = from->epoch;
	to->flags = from->flags;
	to->parent_epoch = from->parent_epoch;
	to->parent_flags = from->parent_flags;
	atomic_store_explicit(&to->changes, changes, memory_order_relaxed);
	for (unsigned i = 0; i < MAP_HAS_WORDS; i++)
		atomic_store_explicit(&to->has[i],
			atomic_load_explicit(&from->has[i], memory_order_relaxed),
			memory_order_relaxed);
	atomic_store_explicit(&to->volume,
		atomic_load_explicit(&from->volume, memory_order_relaxed), memory_order_release);
}

/* --- the table, with the mutex ------------------------------------------------------------ */

static struct intent_list *bucket_of(struct intents *intents, uint64_t volume, uint32_t object)
{
	uint64_t hash = (volume ^ object * 0xd6e8feb86659fd93ull) * 0x9e3779b97f4a7c15ull;
	return &intents->buckets[hash >> 40 & (INTENTS_BUCKETS - 1)];
}

struct intent *intent_find(struct intents *intents, uint64_t volume, uint32_t object)
{
	struct intent *intent;
	LIST_FOREACH (intent, bucket_of(intents, volume, object), link)
		if (intent->of->id == volume && intent->object == object)
			return intent;
	return NULL;
}

struct intent_volume *intent_volume_find(struct intents *intents, uint64_t id)
{
	struct intent_volume *of;
	LIST_FOREACH (of, &intents->volumes[id & (INTENTS_VOLUMES - 1)], link)
		if (of->id == id)
			return of;
	return NULL;
}

static struct intent_volume *volume_get(struct intents *intents, uint64_t id)
{
	struct intent_volume *of = intent_volume_find(intents, id);
	if (of)
		return of;
	of = calloc(1, sizeof(*of));
	if (!of)
		return NULL;
	of->id = id;
	TAILQ_INIT(&of->intents);
	TAILQ_INIT(&of->waiting);
	LIST_INSERT_HEAD(&intents->volumes[id & (INTENTS_VOLUMES - 1)], of, link);
	return of;
}

void intent_volume_put(struct intent_volume *of)
{
	if (of->count > 0 || of->publishing || !TAILQ_EMPTY(&of->waiting))
		return;
	LIST_REMOVE(of, link);
	free(of);
}

static struct intent *intent_add(
	struct intents *intents, uint64_t volume, uint32_t object, struct intent_slot slot)
{
	struct intent_volume *of = volume_get(intents, volume);
	struct intent *intent = of ? calloc(1, sizeof(*intent)) : NULL;
	if (!intent) {
		if (of)
			intent_volume_put(of);
		return NULL;
	}
	intent->of = of;
	intent->object = object;
	intent->slot = slot;
	LIST_INSERT_HEAD(bucket_of(intents, volume, object), intent, link);
	TAILQ_INSERT_TAIL(&of->intents, intent, beside);
	of->count++;
	atomic_fetch_add_explicit(&intents->count, 1, memory_order_relaxed);
	return intent;
}

/* Its volume stays, even when this was its last. */
void intent_free(struct peer *peer, struct intents *intents, struct intent *intent)
{
	slot_give(peer, intents, intent->slot);
	LIST_REMOVE(intent, link);
	TAILQ_REMOVE(&intent->of->intents, intent, beside);
	intent->of->count--;
	atomic_fetch_sub_explicit(&intents->count, 1, memory_order_relaxed);
	free(intent);
}

struct volume_intent *intent_record(struct peer *peer, const struct intent *intent)
{
	return slot_intent(peer, &intent->slot);
}

/* With its volume, when it was the last. */
static void intent_drop(struct peer *peer, struct intents *intents, struct intent *intent)
{
	struct intent_volume *of = intent->of;
	intent_free(peer, intents, intent);
	intent_volume_put(of);
}

/* --- after a start ------------------------------------------------------------------------ */

static uint32_t changes_of(const struct volume_intent *intent)
{
	return atomic_load_explicit(&intent->changes, memory_order_relaxed);
}

static bool has_any(const struct volume_intent *intent)
{
	for (unsigned i = 0; i < MAP_HAS_WORDS; i++)
		if (atomic_load_explicit(&intent->has[i], memory_order_relaxed))
			return true;
	return false;
}

/* Of two about one object the later counts: we were killed between them. An overlay without a
   cluster was never read by, and may never have come to the store: it is still to be made. */
static int adopt_intent(struct peer *peer, struct intents *intents, struct intent_slot slot)
{
	struct volume_intent *found = slot_intent(peer, &slot);
	uint64_t volume = atomic_load_explicit(&found->volume, memory_order_acquire);
	struct intent *there = intent_find(intents, volume, found->object);
	if (intents->changes == 0 || (int32_t)(changes_of(found) - intents->changes) > 0)
		intents->changes = changes_of(found);
	if (found->flags == MAP_WORD_PARTIAL && !has_any(found)) {
		slot_give(peer, intents, slot);
		return 0;
	}
	if (!there)
		return intent_add(intents, volume, found->object, slot) ? 0 : -ENOMEM;
	struct intent_slot older = slot;
	if ((int32_t)(changes_of(found) - changes_of(intent_record(peer, there))) > 0) {
		older = there->slot;
		there->slot = slot;
	}
	slot_give(peer, intents, older);
	return 0;
}

static int adopt_page(struct peer *peer, struct intents *intents, uint32_t number)
{
	struct intent_page *page = page_add(intents, number);
	int rc = page ? 0 : -ENOMEM;
	if (!page)
		return rc;
	/* all of them first: one that turns out to be older is given back, and with the last its
	   page */
	for (uint32_t i = 0; i < INTENTS_PER_PAGE; i++) {
		struct intent_slot slot = {.page = page, .index = i};
		if (atomic_load_explicit(&slot_intent(peer, &slot)->volume, memory_order_acquire))
			slot_use(intents, &slot);
	}
	uint32_t used = page->used;
	if (used == 0)
		page_drop(peer, intents, page);
	for (uint32_t i = 0; rc == 0 && i < INTENTS_PER_PAGE; i++)
		if (used >> i & 1)
			rc = adopt_intent(
				peer, intents, (struct intent_slot){.page = page, .index = i});
	return rc;
}

int volume_intent_open(struct peer *first, char *why, size_t why_size)
{
	struct volume_shared *shared = first->shared;
	const struct xseg *seg = peer_segment(first);
	struct intents *intents = calloc(1, sizeof(*intents));
	uint32_t cursor = 0, page;
	int rc = intents ? -pthread_mutex_init(&intents->lock, NULL) : -ENOMEM;
	if (rc != 0) {
		snprintf(why, why_size, "no memory for intent records");
		free(intents);
		return rc;
	}
	TAILQ_INIT(&intents->room);
	for (unsigned i = 0; i < countof(intents->ready); i++)
		TAILQ_INIT(&intents->ready[i]);
	shared->intents = intents;
	while (rc == 0 && (page = xseg_page_next_kept(seg, first->port, &cursor)) != XSEG_NONE)
		if (peer_page_about(first, page)->crc32c == INTENTS_PAGE)
			rc = adopt_page(first, intents, page);
	uint32_t count = atomic_load_explicit(&intents->count, memory_order_relaxed);
	if (rc != 0)
		snprintf(why, why_size, "no memory for the intent records of a predecessor");
	else if (count > 0)
		log_info("volume", "%s: took over %u intent records", first->name, count);
	return rc;
}

/* The page itself stays: the intents in it are the successor's. */
static void page_forget(struct intents *intents, const struct intent_slot *slot)
{
	struct intent_page *page = slot->page;
	if (page->used == INTENTS_PAGE_FULL)
		TAILQ_INSERT_TAIL(&intents->room, page, link);
	page->used &= ~(1u << slot->index);
	if (page->used == 0) {
		TAILQ_REMOVE(&intents->room, page, link);
		free(page);
	}
}

void volume_intent_close(struct peer *first)
{
	struct volume_shared *shared = first->shared;
	struct intents *intents = shared->intents;
	if (!intents)
		return;
	for (unsigned i = 0; i < INTENTS_VOLUMES; i++) {
		struct intent_volume *of;
		while ((of = LIST_FIRST(&intents->volumes[i]))) {
			struct intent *intent;
			while ((intent = TAILQ_FIRST(&of->intents))) {
				TAILQ_REMOVE(&of->intents, intent, beside);
				page_forget(intents, &intent->slot);
				free(intent);
			}
			LIST_REMOVE(of, link);
			free(of);
		}
	}
	pthread_mutex_destroy(&intents->lock);
	free(intents);
	shared->intents = NULL;
}

/* --- making ------------------------------------------------------------------------------- */

/* With the mutex. What is there already is replaced by one step, seen from a successor. */
static int intent_put(struct peer *peer, struct intents *intents,
	const struct volume_intent *wanted, struct intent **put)
{
	uint64_t volume = atomic_load_explicit(&wanted->volume, memory_order_relaxed);
	struct intent *intent = intent_find(intents, volume, wanted->object);
	struct intent_slot slot;
	int rc = slot_take(peer, intents, &slot);
	if (rc != 0)
		return rc;
	*put = intent ? intent : intent_add(intents, volume, wanted->object, slot);
	if (!*put) {
		slot_give(peer, intents, slot);
		return -ENOMEM;
	}
	slot_write(slot_intent(peer, &slot), wanted, ++intents->changes);
	crash_point("volume.intent.made");
	if (intent) {
		struct intent_slot old = intent->slot;
		crash_point("volume.intent.twice");
		intent->slot = slot;
		slot_give(peer, intents, old);
	}
	return 0;
}

static int intent_make(struct peer *peer, const struct volume_intent *wanted, bool unmade)
{
	struct intents *intents = intents_of(peer);
	struct intent *intent;
	pthread_mutex_lock(&intents->lock);
	int rc = intent_put(peer, intents, wanted, &intent);
	if (rc == 0) {
		intent->unmade = unmade;
		intent->zero = false;
	}
	pthread_mutex_unlock(&intents->lock);
	return rc;
}

int volume_intent_make(struct peer *peer, const struct volume_intent *intent)
{
	return intent_make(peer, intent, false);
}

int volume_intent_try(struct peer *peer, const struct volume_intent *intent)
{
	return intent_make(peer, intent, true);
}

bool volume_intent_unmake(struct peer *peer, uint64_t volume, uint32_t object)
{
	struct intents *intents = intents_of(peer);
	pthread_mutex_lock(&intents->lock);
	struct intent *intent = intent_find(intents, volume, object);
	bool unmade = intent && intent->unmade;
	if (unmade)
		intent_drop(peer, intents, intent);
	pthread_mutex_unlock(&intents->lock);
	return unmade;
}

/* --- first writes --------------------------------------------------------------------------- */

/* With the mutex. */
static int intent_first(
	struct peer *peer, struct intents *intents, const struct volume_intent *wanted, bool zero)
{
	uint64_t volume = atomic_load_explicit(&wanted->volume, memory_order_relaxed);
	struct intent *intent = intent_find(intents, volume, wanted->object);
	if (intent && intent->undoing)
		return -EAGAIN;
	if (intent && !intent->unmade && intent_record(peer, intent)->flags == 0)
		return -EALREADY;
	if (!intent || !intent->unmade) {
		int rc = intent_put(peer, intents, wanted, &intent);
		if (rc != 0)
			return rc;
		intent->unmade = true;
		intent->zero = zero;
	}
	intent->makers++;
	return 0;
}

int volume_intent_first(struct peer *peer, const struct volume_intent *intent, bool zero)
{
	struct intents *intents = intents_of(peer);
	pthread_mutex_lock(&intents->lock);
	int rc = intent_first(peer, intents, intent, zero);
	pthread_mutex_unlock(&intents->lock);
	return rc;
}

/* With the mutex. It is to be published from now on. */
static void intent_stands(struct peer *peer, struct intents *intents, struct intent *intent)
{
	intent->unmade = intent->zero = false;
	atomic_store_explicit(
		&intent_record(peer, intent)->changes, ++intents->changes, memory_order_release);
}

void volume_intent_made(struct peer *peer, uint64_t volume, uint32_t object)
{
	struct intents *intents = intents_of(peer);
	pthread_mutex_lock(&intents->lock);
	struct intent *intent = intent_find(intents, volume, object);
	if (intent && intent->makers > 0)
		intent->makers--;
	if (intent && intent->unmade)
		intent_stands(peer, intents, intent);
	pthread_mutex_unlock(&intents->lock);
}

bool volume_intent_failed(struct peer *peer, uint64_t volume, uint32_t object)
{
	struct intents *intents = intents_of(peer);
	pthread_mutex_lock(&intents->lock);
	struct intent *intent = intent_find(intents, volume, object);
	if (intent && intent->makers > 0)
		intent->makers--;
	bool undo = intent && intent->makers == 0 && intent->unmade;
	if (undo)
		intent->undoing = true;
	pthread_mutex_unlock(&intents->lock);
	return undo;
}

void volume_intent_undo(struct peer *peer, uint64_t volume, uint32_t object, bool gone)
{
	struct intents *intents = intents_of(peer);
	pthread_mutex_lock(&intents->lock);
	struct intent *intent = intent_find(intents, volume, object);
	bool zero = intent && intent->zero;
	if (intent) {
		intent->undoing = false;
		if (gone && zero)
			intent_record(peer, intent)->flags = MAP_WORD_ZERO;
		if (gone && !zero)
			intent_drop(peer, intents, intent);
		else
			intent_stands(peer, intents, intent);
	}
	pthread_mutex_unlock(&intents->lock);
}

bool volume_intent_has(
	struct peer *peer, uint64_t volume, uint32_t object, const uint64_t has[MAP_HAS_WORDS])
{
	struct intents *intents = intents_of(peer);
	pthread_mutex_lock(&intents->lock);
	struct intent *intent = intent_find(intents, volume, object);
	if (intent) {
		struct volume_intent *slot = intent_record(peer, intent);
		for (unsigned i = 0; i < MAP_HAS_WORDS; i++)
			if (has[i])
				atomic_fetch_or_explicit(
					&slot->has[i], has[i], memory_order_relaxed);
		intent_stands(peer, intents, intent);
	}
	pthread_mutex_unlock(&intents->lock);
	return intent != NULL;
}

/* --- looking ------------------------------------------------------------------------------ */

bool volume_intent_find(
	struct peer *peer, uint64_t volume, uint32_t object, struct volume_intent *found)
{
	struct intents *intents = intents_of(peer);
	pthread_mutex_lock(&intents->lock);
	const struct intent *intent = intent_find(intents, volume, object);
	if (intent) {
		const struct volume_intent *slot = intent_record(peer, intent);
		slot_write(found, slot, atomic_load_explicit(&slot->changes, memory_order_relaxed));
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
		if (intent->object / MAP_PAGE_ENTRIES != page || (intent->unmade && flags == 0))
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
