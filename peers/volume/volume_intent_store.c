/* SPDX-License-Identifier: Apache-2.0 */
/* Where intents lie: a table over slots in kept pages, and what a predecessor has left in them. */
#include <base/crash.h>
#include <base/hash.h>
#include <base/log.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/page.h>

#include "peers/volume/volume_intent_priv.h"

/* Says of a kept page that it is one of ours: nobody else reads the word. */
#define INTENTS_PAGE 0x45544f4eu
#define INTENTS_PAGE_FULL ((1u << INTENTS_PER_PAGE) - 1)

/*
 * By state: what may follow.
 *
 *             begin, try                   made, has
 *     FREE ---------------> TRYING -------------------------> STANDING ---> published: FREE
 *       ^                   | | ^                             |     ^
 *       |   undone, or      | | `--- begin over zeros, try ---'     |
 *       |   nothing came    | |                                     |
 *       |<------------------' | the last of its writers has failed  |
 *       |                     v                                     | zeros as before, or what
 *       `----- removed --- UNDOING ---------------------------------' is left cannot be removed
 */
static const struct sm_state intent_states[] = {
	[INTENT_FREE] = {"free", SM(INTENT_TRYING) | SM(INTENT_STANDING)},
	[INTENT_TRYING] = {"trying", SM(INTENT_STANDING) | SM(INTENT_UNDOING) | SM(INTENT_FREE)},
	[INTENT_STANDING] = {"standing", SM(INTENT_TRYING) | SM(INTENT_FREE)},
	[INTENT_UNDOING] = {"undoing", SM(INTENT_STANDING) | SM(INTENT_FREE)},
};

void intent_move(struct intent *intent, enum intent_state state)
{
	if (intent->state != state)
		sm_move(intent_states, &intent->state, state);
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

void intent_copy(struct volume_intent *to, const struct volume_intent *from, uint32_t changes)
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
	uint64_t hash = hash_object(volume, 0, object);
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
	uint32_t number;
	struct intent *intent = of ? slab_get(&intents->slab, &number) : NULL;
	if (!intent) {
		if (of)
			intent_volume_put(of);
		return NULL;
	}
	*intent = (struct intent){.number = number, .of = of, .object = object, .slot = slot};
	LIST_INSERT_HEAD(bucket_of(intents, volume, object), intent, link);
	TAILQ_INSERT_TAIL(&of->intents, intent, beside);
	of->count++;
	atomic_fetch_add_explicit(&intents->count, 1, memory_order_relaxed);
	return intent;
}

void intent_free(struct peer *peer, struct intents *intents, struct intent *intent)
{
	slot_give(peer, intents, intent->slot);
	LIST_REMOVE(intent, link);
	TAILQ_REMOVE(&intent->of->intents, intent, beside);
	intent->of->count--;
	atomic_fetch_sub_explicit(&intents->count, 1, memory_order_relaxed);
	intent_move(intent, INTENT_FREE);
	slab_put(&intents->slab, intent->number);
}

struct volume_intent *intent_record(struct peer *peer, const struct intent *intent)
{
	return slot_intent(peer, &intent->slot);
}

void intent_drop(struct peer *peer, struct intents *intents, struct intent *intent)
{
	struct intent_volume *of = intent->of;
	intent_free(peer, intents, intent);
	intent_volume_put(of);
}

int intent_put(struct peer *peer, struct intents *intents, const struct volume_intent *wanted,
	struct intent **put)
{
	uint64_t volume = atomic_load_explicit(&wanted->volume, memory_order_relaxed);
	struct intent *intent = *put;
	struct intent_slot slot;
	int rc = slot_take(peer, intents, &slot);
	if (rc != 0)
		return rc;
	*put = intent ? intent : intent_add(intents, volume, wanted->object, slot);
	if (!*put) {
		slot_give(peer, intents, slot);
		return -EAGAIN;
	}
	intent_copy(slot_intent(peer, &slot), wanted, ++intents->changes);
	crash_point("volume.intent.made");
	if (intent) {
		struct intent_slot old = intent->slot;
		crash_point("volume.intent.twice");
		intent->slot = slot;
		slot_give(peer, intents, old);
	}
	return 0;
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
	if (!there) {
		there = intent_add(intents, volume, found->object, slot);
		if (there)
			intent_move(there, INTENT_STANDING);
		return there ? 0 : -ENOMEM;
	}
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
	int rc = intents ? slab_init(&intents->slab, sizeof(struct intent), INTENTS_MAX) : -ENOMEM;
	if (rc == 0)
		rc = -pthread_mutex_init(&intents->lock, NULL);
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
			}
			LIST_REMOVE(of, link);
			free(of);
		}
	}
	pthread_mutex_destroy(&intents->lock);
	slab_fini(&intents->slab);
	free(intents);
	shared->intents = NULL;
}
