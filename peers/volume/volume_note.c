/* SPDX-License-Identifier: Apache-2.0 */
/* The notes of the process: a table over slots in kept pages. */
#include "peers/volume/volume_note.h"

#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/page.h>

#include "peers/volume/volume_map.h"
#include "peers/volume/volume_notes.h"

/* Says of a kept page that it is one of ours: nobody else reads the word. */
#define NOTES_PAGE 0x45544f4eu
#define NOTES_PAGE_FULL ((1u << NOTES_PER_PAGE) - 1)

static struct notes *notes_of(const struct peer *peer)
{
	return ((struct volume_shared *)peer->shared)->notes;
}

/* --- slots -------------------------------------------------------------------------------- */

static struct volume_note *slot_note(struct peer *peer, const struct note_slot *slot)
{
	struct volume_note *first =
		(struct volume_note *)(void *)peer_page_memory(peer, slot->page->page);
	return &first[slot->index];
}

/* With the mutex. NULL: no memory. */
static struct note_page *page_add(struct notes *notes, uint32_t page)
{
	struct note_page *added = calloc(1, sizeof(*added));
	if (!added)
		return NULL;
	added->page = page;
	TAILQ_INSERT_TAIL(&notes->room, added, link);
	return added;
}

/* With the mutex. A page without notes would look like something that is still to be saved. */
static void page_drop(struct peer *peer, struct notes *notes, struct note_page *page)
{
	TAILQ_REMOVE(&notes->room, page, link);
	peer_page_drop(peer, page->page);
	free(page);
}

/* With the mutex. One page more, empty, kept by the port. */
static int page_new(struct peer *peer, struct notes *notes)
{
	uint32_t page;
	int rc = peer_page_hold(peer, &page, 1);
	if (rc != 0)
		return rc;
	if (!page_add(notes, page)) {
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
	about->crc32c = NOTES_PAGE;
	peer_page_keep(peer, page);
	return 0;
}

static void slot_use(struct notes *notes, const struct note_slot *slot)
{
	struct note_page *page = slot->page;
	page->used |= 1u << slot->index;
	if (page->used == NOTES_PAGE_FULL)
		TAILQ_REMOVE(&notes->room, page, link);
}

static int slot_take(struct peer *peer, struct notes *notes, struct note_slot *slot)
{
	int rc = TAILQ_EMPTY(&notes->room) ? page_new(peer, notes) : 0;
	if (rc != 0)
		return rc;
	slot->page = TAILQ_FIRST(&notes->room);
	slot->index = (uint32_t)__builtin_ctz(~slot->page->used);
	slot_use(notes, slot);
	return 0;
}

static void slot_give(struct peer *peer, struct notes *notes, struct note_slot slot)
{
	struct note_page *page = slot.page;
	atomic_store_explicit(&slot_note(peer, &slot)->volume, 0, memory_order_release);
	if (page->used == NOTES_PAGE_FULL)
		TAILQ_INSERT_TAIL(&notes->room, page, link);
	page->used &= ~(1u << slot.index);
	if (page->used == 0)
		page_drop(peer, notes, page);
}

static void slot_write(struct volume_note *to, const struct volume_note *from, uint32_t changes)
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

static struct note_list *bucket_of(struct notes *notes, uint64_t volume, uint32_t object)
{
	uint64_t hash = (volume ^ object * 0xd6e8feb86659fd93ull) * 0x9e3779b97f4a7c15ull;
	return &notes->buckets[hash >> 40 & (NOTES_BUCKETS - 1)];
}

struct note *notes_find(struct notes *notes, uint64_t volume, uint32_t object)
{
	struct note *note;
	LIST_FOREACH (note, bucket_of(notes, volume, object), link)
		if (note->of->id == volume && note->object == object)
			return note;
	return NULL;
}

struct note_volume *notes_volume(struct notes *notes, uint64_t id)
{
	struct note_volume *of;
	LIST_FOREACH (of, &notes->volumes[id & (NOTES_VOLUMES - 1)], link)
		if (of->id == id)
			return of;
	return NULL;
}

static struct note_volume *volume_get(struct notes *notes, uint64_t id)
{
	struct note_volume *of = notes_volume(notes, id);
	if (of)
		return of;
	of = calloc(1, sizeof(*of));
	if (!of)
		return NULL;
	of->id = id;
	TAILQ_INIT(&of->notes);
	TAILQ_INIT(&of->waiting);
	LIST_INSERT_HEAD(&notes->volumes[id & (NOTES_VOLUMES - 1)], of, link);
	return of;
}

void notes_volume_put(struct note_volume *of)
{
	if (of->count > 0 || of->telling || !TAILQ_EMPTY(&of->waiting))
		return;
	LIST_REMOVE(of, link);
	free(of);
}

static struct note *note_add(
	struct notes *notes, uint64_t volume, uint32_t object, struct note_slot slot)
{
	struct note_volume *of = volume_get(notes, volume);
	struct note *note = of ? calloc(1, sizeof(*note)) : NULL;
	if (!note) {
		if (of)
			notes_volume_put(of);
		return NULL;
	}
	note->of = of;
	note->object = object;
	note->slot = slot;
	LIST_INSERT_HEAD(bucket_of(notes, volume, object), note, link);
	TAILQ_INSERT_TAIL(&of->notes, note, beside);
	of->count++;
	atomic_fetch_add_explicit(&notes->count, 1, memory_order_relaxed);
	return note;
}

/* Its volume stays, even when this was its last. */
void notes_free(struct peer *peer, struct notes *notes, struct note *note)
{
	slot_give(peer, notes, note->slot);
	LIST_REMOVE(note, link);
	TAILQ_REMOVE(&note->of->notes, note, beside);
	note->of->count--;
	atomic_fetch_sub_explicit(&notes->count, 1, memory_order_relaxed);
	free(note);
}

struct volume_note *notes_slot(struct peer *peer, const struct note *note)
{
	return slot_note(peer, &note->slot);
}

/* With its volume, when it was the last. */
static void note_drop(struct peer *peer, struct notes *notes, struct note *note)
{
	struct note_volume *of = note->of;
	notes_free(peer, notes, note);
	notes_volume_put(of);
}

/* --- after a start ------------------------------------------------------------------------ */

static uint32_t changes_of(const struct volume_note *note)
{
	return atomic_load_explicit(&note->changes, memory_order_relaxed);
}

static bool has_any(const struct volume_note *note)
{
	for (unsigned i = 0; i < MAP_HAS_WORDS; i++)
		if (atomic_load_explicit(&note->has[i], memory_order_relaxed))
			return true;
	return false;
}

/* Of two about one object the later counts: we were killed between them. A child without a granule
   was never read by, and may never have come to the store: it is still to be made. */
static int adopt_note(struct peer *peer, struct notes *notes, struct note_slot slot)
{
	struct volume_note *found = slot_note(peer, &slot);
	uint64_t volume = atomic_load_explicit(&found->volume, memory_order_acquire);
	struct note *there = notes_find(notes, volume, found->object);
	if (notes->changes == 0 || (int32_t)(changes_of(found) - notes->changes) > 0)
		notes->changes = changes_of(found);
	if (found->flags == MAP_WORD_PARTIAL && !has_any(found)) {
		slot_give(peer, notes, slot);
		return 0;
	}
	if (!there)
		return note_add(notes, volume, found->object, slot) ? 0 : -ENOMEM;
	struct note_slot older = slot;
	if ((int32_t)(changes_of(found) - changes_of(notes_slot(peer, there))) > 0) {
		older = there->slot;
		there->slot = slot;
	}
	slot_give(peer, notes, older);
	return 0;
}

static int adopt_page(struct peer *peer, struct notes *notes, uint32_t number)
{
	struct note_page *page = page_add(notes, number);
	int rc = page ? 0 : -ENOMEM;
	if (!page)
		return rc;
	/* all of them first: one that turns out to be older is given back, and with the last its
	   page */
	for (uint32_t i = 0; i < NOTES_PER_PAGE; i++) {
		struct note_slot slot = {.page = page, .index = i};
		if (atomic_load_explicit(&slot_note(peer, &slot)->volume, memory_order_acquire))
			slot_use(notes, &slot);
	}
	uint32_t used = page->used;
	if (used == 0)
		page_drop(peer, notes, page);
	for (uint32_t i = 0; rc == 0 && i < NOTES_PER_PAGE; i++)
		if (used >> i & 1)
			rc = adopt_note(peer, notes, (struct note_slot){.page = page, .index = i});
	return rc;
}

int volume_note_open(struct peer *first, char *why, size_t why_size)
{
	struct volume_shared *shared = first->shared;
	const struct xseg *seg = peer_segment(first);
	struct notes *notes = calloc(1, sizeof(*notes));
	uint32_t cursor = 0, page;
	int rc = notes ? -pthread_mutex_init(&notes->lock, NULL) : -ENOMEM;
	if (rc != 0) {
		snprintf(why, why_size, "no memory for notes");
		free(notes);
		return rc;
	}
	TAILQ_INIT(&notes->room);
	for (unsigned i = 0; i < countof(notes->ready); i++)
		TAILQ_INIT(&notes->ready[i]);
	shared->notes = notes;
	while (rc == 0 && (page = xseg_page_next_kept(seg, first->port, &cursor)) != XSEG_NONE)
		if (peer_page_about(first, page)->crc32c == NOTES_PAGE)
			rc = adopt_page(first, notes, page);
	uint32_t count = atomic_load_explicit(&notes->count, memory_order_relaxed);
	if (rc != 0)
		snprintf(why, why_size, "no memory for what a predecessor has noted");
	else if (count > 0)
		log_info("volume", "%s: took over %u notes about objects", first->name, count);
	return rc;
}

/* The page itself stays: the notes in it are the successor's. */
static void page_forget(struct notes *notes, const struct note_slot *slot)
{
	struct note_page *page = slot->page;
	if (page->used == NOTES_PAGE_FULL)
		TAILQ_INSERT_TAIL(&notes->room, page, link);
	page->used &= ~(1u << slot->index);
	if (page->used == 0) {
		TAILQ_REMOVE(&notes->room, page, link);
		free(page);
	}
}

void volume_note_close(struct peer *first)
{
	struct volume_shared *shared = first->shared;
	struct notes *notes = shared->notes;
	if (!notes)
		return;
	for (unsigned i = 0; i < NOTES_VOLUMES; i++) {
		struct note_volume *of;
		while ((of = LIST_FIRST(&notes->volumes[i]))) {
			struct note *note;
			while ((note = TAILQ_FIRST(&of->notes))) {
				TAILQ_REMOVE(&of->notes, note, beside);
				page_forget(notes, &note->slot);
				free(note);
			}
			LIST_REMOVE(of, link);
			free(of);
		}
	}
	pthread_mutex_destroy(&notes->lock);
	free(notes);
	shared->notes = NULL;
}

/* --- making ------------------------------------------------------------------------------- */

/* With the mutex. What is there already is replaced by one step, seen from a successor. */
static int note_put(
	struct peer *peer, struct notes *notes, const struct volume_note *wanted, struct note **put)
{
	uint64_t volume = atomic_load_explicit(&wanted->volume, memory_order_relaxed);
	struct note *note = notes_find(notes, volume, wanted->object);
	struct note_slot slot;
	int rc = slot_take(peer, notes, &slot);
	if (rc != 0)
		return rc;
	*put = note ? note : note_add(notes, volume, wanted->object, slot);
	if (!*put) {
		slot_give(peer, notes, slot);
		return -ENOMEM;
	}
	slot_write(slot_note(peer, &slot), wanted, ++notes->changes);
	crash_point("volume.note.made");
	if (note) {
		struct note_slot old = note->slot;
		crash_point("volume.note.twice");
		note->slot = slot;
		slot_give(peer, notes, old);
	}
	return 0;
}

static int note_make(struct peer *peer, const struct volume_note *wanted, bool unmade)
{
	struct notes *notes = notes_of(peer);
	struct note *note;
	pthread_mutex_lock(&notes->lock);
	int rc = note_put(peer, notes, wanted, &note);
	if (rc == 0) {
		note->unmade = unmade;
		note->zero = false;
	}
	pthread_mutex_unlock(&notes->lock);
	return rc;
}

int volume_note_make(struct peer *peer, const struct volume_note *note)
{
	return note_make(peer, note, false);
}

int volume_note_try(struct peer *peer, const struct volume_note *note)
{
	return note_make(peer, note, true);
}

bool volume_note_unmake(struct peer *peer, uint64_t volume, uint32_t object)
{
	struct notes *notes = notes_of(peer);
	pthread_mutex_lock(&notes->lock);
	struct note *note = notes_find(notes, volume, object);
	bool unmade = note && note->unmade;
	if (unmade)
		note_drop(peer, notes, note);
	pthread_mutex_unlock(&notes->lock);
	return unmade;
}

/* --- first writes --------------------------------------------------------------------------- */

/* With the mutex. */
static int note_first(
	struct peer *peer, struct notes *notes, const struct volume_note *wanted, bool zero)
{
	uint64_t volume = atomic_load_explicit(&wanted->volume, memory_order_relaxed);
	struct note *note = notes_find(notes, volume, wanted->object);
	if (note && note->undoing)
		return -EAGAIN;
	if (note && !note->unmade && notes_slot(peer, note)->flags == 0)
		return -EALREADY;
	if (!note || !note->unmade) {
		int rc = note_put(peer, notes, wanted, &note);
		if (rc != 0)
			return rc;
		note->unmade = true;
		note->zero = zero;
	}
	note->makers++;
	return 0;
}

int volume_note_first(struct peer *peer, const struct volume_note *note, bool zero)
{
	struct notes *notes = notes_of(peer);
	pthread_mutex_lock(&notes->lock);
	int rc = note_first(peer, notes, note, zero);
	pthread_mutex_unlock(&notes->lock);
	return rc;
}

/* With the mutex. It is to be told from now on. */
static void note_stands(struct peer *peer, struct notes *notes, struct note *note)
{
	note->unmade = note->zero = false;
	atomic_store_explicit(
		&notes_slot(peer, note)->changes, ++notes->changes, memory_order_release);
}

void volume_note_made(struct peer *peer, uint64_t volume, uint32_t object)
{
	struct notes *notes = notes_of(peer);
	pthread_mutex_lock(&notes->lock);
	struct note *note = notes_find(notes, volume, object);
	if (note && note->makers > 0)
		note->makers--;
	if (note && note->unmade)
		note_stands(peer, notes, note);
	pthread_mutex_unlock(&notes->lock);
}

bool volume_note_failed(struct peer *peer, uint64_t volume, uint32_t object)
{
	struct notes *notes = notes_of(peer);
	pthread_mutex_lock(&notes->lock);
	struct note *note = notes_find(notes, volume, object);
	if (note && note->makers > 0)
		note->makers--;
	bool undo = note && note->makers == 0 && note->unmade;
	if (undo)
		note->undoing = true;
	pthread_mutex_unlock(&notes->lock);
	return undo;
}

void volume_note_undo(struct peer *peer, uint64_t volume, uint32_t object, bool gone)
{
	struct notes *notes = notes_of(peer);
	pthread_mutex_lock(&notes->lock);
	struct note *note = notes_find(notes, volume, object);
	bool zero = note && note->zero;
	if (note) {
		note->undoing = false;
		if (gone && zero)
			notes_slot(peer, note)->flags = MAP_WORD_ZERO;
		if (gone && !zero)
			note_drop(peer, notes, note);
		else
			note_stands(peer, notes, note);
	}
	pthread_mutex_unlock(&notes->lock);
}

bool volume_note_has(
	struct peer *peer, uint64_t volume, uint32_t object, const uint64_t has[MAP_HAS_WORDS])
{
	struct notes *notes = notes_of(peer);
	pthread_mutex_lock(&notes->lock);
	struct note *note = notes_find(notes, volume, object);
	if (note) {
		struct volume_note *slot = notes_slot(peer, note);
		for (unsigned i = 0; i < MAP_HAS_WORDS; i++)
			if (has[i])
				atomic_fetch_or_explicit(
					&slot->has[i], has[i], memory_order_relaxed);
		note_stands(peer, notes, note);
	}
	pthread_mutex_unlock(&notes->lock);
	return note != NULL;
}

/* --- looking ------------------------------------------------------------------------------ */

bool volume_note_find(
	struct peer *peer, uint64_t volume, uint32_t object, struct volume_note *found)
{
	struct notes *notes = notes_of(peer);
	pthread_mutex_lock(&notes->lock);
	const struct note *note = notes_find(notes, volume, object);
	if (note) {
		const struct volume_note *slot = notes_slot(peer, note);
		slot_write(found, slot, atomic_load_explicit(&slot->changes, memory_order_relaxed));
	}
	pthread_mutex_unlock(&notes->lock);
	return note != NULL;
}

static bool has_all(const struct volume_note *note, const struct volume *volume)
{
	uint32_t granules = (1u << volume->object_shift) / MAP_GRANULE;
	for (uint32_t i = 0; i < granules; i += 64) {
		uint64_t all = granules - i < 64 ? (1ull << (granules - i)) - 1 : ~0ull;
		if ((atomic_load_explicit(&note->has[i / 64], memory_order_relaxed) & all) != all)
			return false;
	}
	return true;
}

/* With the mutex. */
static void overlay(struct peer *peer, struct notes *notes, const struct volume *volume,
	uint32_t page, struct volume_page *entries)
{
	const struct note_volume *of = notes_volume(notes, volume->id);
	const struct note *note;
	if (!of)
		return;
	TAILQ_FOREACH (note, &of->notes, beside) {
		const struct volume_note *slot = notes_slot(peer, note);
		unsigned flags = note->zero ? MAP_WORD_ZERO : slot->flags;
		/* what is just being made is not there yet */
		if (note->object / MAP_PAGE_ENTRIES != page || (note->unmade && flags == 0))
			continue;
		if ((flags & MAP_WORD_PARTIAL) && has_all(slot, volume))
			flags &= ~MAP_WORD_PARTIAL;
		atomic_store_explicit(&entries->entry[note->object % MAP_PAGE_ENTRIES],
			map_word(slot->epoch, volume->self, flags), memory_order_relaxed);
	}
}

/* In one with the mutex: a note that is struck out in between would be seen neither here nor in the
   page that was asked for before (volume_tell.c counts it as a forget). */
bool volume_note_publish(struct peer *peer, struct volume *volume, uint32_t page,
	struct volume_page *entries, uint32_t forgets)
{
	struct notes *notes = notes_of(peer);
	struct volume_page *none = NULL;
	pthread_mutex_lock(&notes->lock);
	bool good = atomic_load_explicit(&volume->forgets, memory_order_acquire) == forgets;
	if (good) {
		overlay(peer, notes, volume, page, entries);
		good = atomic_compare_exchange_strong_explicit(&volume->pages[page], &none, entries,
			memory_order_release, memory_order_relaxed);
	}
	pthread_mutex_unlock(&notes->lock);
	return good;
}

bool volume_note_any(struct peer *peer, uint64_t volume)
{
	struct notes *notes = notes_of(peer);
	if (!notes || atomic_load_explicit(&notes->count, memory_order_acquire) == 0)
		return false;
	pthread_mutex_lock(&notes->lock);
	const struct note_volume *of = notes_volume(notes, volume);
	bool any = of && (of->count > 0 || of->telling);
	pthread_mutex_unlock(&notes->lock);
	return any;
}

uint64_t volume_note_crowded(struct peer *peer)
{
	struct notes *notes = notes_of(peer);
	if (!notes || atomic_load_explicit(&notes->count, memory_order_relaxed) < VOLUME_NOTES_SOFT)
		return 0;
	const struct note_volume *of, *most = NULL;
	pthread_mutex_lock(&notes->lock);
	for (unsigned i = 0; i < NOTES_VOLUMES; i++)
		LIST_FOREACH (of, &notes->volumes[i], link)
			if (!of->telling && (!most || of->count > most->count))
				most = of;
	uint64_t id = most ? most->id : 0;
	pthread_mutex_unlock(&notes->lock);
	return id;
}

void volume_note_forget(struct peer *peer, uint64_t volume)
{
	struct notes *notes = notes_of(peer);
	if (!notes)
		return;
	pthread_mutex_lock(&notes->lock);
	struct note_volume *of = notes_volume(notes, volume);
	if (of) {
		struct note *note;
		while ((note = TAILQ_FIRST(&of->notes)))
			notes_free(peer, notes, note);
		notes_volume_put(of);
	}
	pthread_mutex_unlock(&notes->lock);
}
