/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the objects of a volume are: its map, as far as it was asked for, page by page from the
 * mapper, with what the mapper has not got yet laid over it.
 *
 * An entry is one word, read without a lock by every shard, changed by compare-and-swap. It goes
 * only these ways, so that what was read a moment ago is at worst older, never wrong:
 *
 *   hole   --first write--> own                  (the intent is made before, so a FLUSH publishes
 * it)
 *   shared --first write--> own, partial --all clusters there--> own
 *   shared, own --discard of all of it--> zero --write--> own
 *   own    --snapshot (writes are quiesced)--> shared: by volume->frozen alone, no entry changes
 *
 * Units: objects by number. Errors: 0 or -errno. Ownership: pages are the volume's until it is
 * freed. Threads: any for entries; volume_map_want() on a shard's lane. Blocking: none.
 */
#ifndef SKERRY_VOLUME_MAP_H
#define SKERRY_VOLUME_MAP_H

#include "peers/volume/volume.h"

struct volume_page {
	_Atomic uint64_t entry[MAP_PAGE_ENTRIES]; /* map_word() */
};

enum volume_where {
	VOLUME_OWN,	/* may be written in place; *key is it */
	VOLUME_SHARED,	/* whole, to be read only; *key is it */
	VOLUME_PARTIAL, /* own or shared, see volume_overlay.h; *key is it */
	VOLUME_HOLE,	/* nothing there; parents have nothing either */
	VOLUME_ZERO,	/* zeros, whatever parents have */
	VOLUME_UNKNOWN, /* its page of the map is not here: volume_map_want() */
};

static inline struct volume_page *volume_map_page(const struct volume *volume, uint32_t object)
{
	return atomic_load_explicit(
		&volume->pages[object / MAP_PAGE_ENTRIES], memory_order_acquire);
}

static inline bool volume_word_is_own(const struct volume *volume, uint64_t word)
{
	return map_word_owner(word) == volume->self &&
	       map_word_epoch(word) > atomic_load_explicit(&volume->frozen, memory_order_relaxed);
}

/* A volume of the configuration has all its objects, in epoch 0. */
static inline enum volume_where volume_where(
	const struct volume *volume, uint32_t object, struct xseg_key *key)
{
	*key = (struct xseg_key){.volume = volume->id, .object = object};
	if (unlikely(!volume->pages))
		return VOLUME_OWN;
	const struct volume_page *page = volume_map_page(volume, object);
	if (unlikely(!page))
		return VOLUME_UNKNOWN;
	uint64_t word =
		atomic_load_explicit(&page->entry[object % MAP_PAGE_ENTRIES], memory_order_acquire);
	if (word == 0)
		return VOLUME_HOLE;
	key->epoch = map_word_epoch(word);
	key->volume = volume->owners[map_word_owner(word)];
	if (likely(map_word_flags(word) == 0))
		return volume_word_is_own(volume, word) ? VOLUME_OWN : VOLUME_SHARED;
	return map_word_flags(word) & MAP_WORD_ZERO ? VOLUME_ZERO : VOLUME_PARTIAL;
}

/* Asks the mapper for the page that holds `object`; the job is dispatched again when it is there,
   or fails. Jobs that want the same page wait together. */
void volume_map_want(struct peer *peer, struct volume *volume, uint32_t object, struct job *job);
/* The same for what is no job. `found` may run at once. */
struct volume_wish {
	void (*found)(struct volume_wish *wish, int error);
	TAILQ_ENTRY(volume_wish) link;
};
void volume_map_wish(
	struct peer *peer, struct volume *volume, uint32_t object, struct volume_wish *wish);
/* Moves the entry on, if it still is `from`. */
bool volume_map_move(struct volume *volume, uint32_t object, uint64_t from, uint64_t to);
/* What was known is forgotten (a rollback): pages are asked for anew. Only while writes are
   quiesced and no reader is at work (volume_quiesce.h). */
void volume_map_forget(struct volume *volume);

#endif
