/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The term of each volume's home record, as FENCE said last, in kept pages: after the death of the
 * process its successor compares it with the next FENCE, and drops what another host may have
 * written over. A term that is not there is an old one.
 *
 * A place is changed by one store, so a kill leaves the old term or the new one; a place is named
 * (volume) only when its term is there.
 */
#include <base/crash.h>
#include <errno.h>
#include <string.h>

#include "peers/cache/cache.h"

struct term_place {
	_Atomic uint64_t volume; /* 0: free */
	_Atomic uint64_t term;
};
#define TERMS_PER_PAGE (XSEG_PAGE / sizeof(struct term_place))
fixed(CACHE_TERM_PAGES *TERMS_PER_PAGE == CACHE_VOLUMES_MAX);

/* A page of free places, from then on the table's last one. -EAGAIN: no page now. */
static int table_grow(struct peer *peer)
{
	struct cache_shared *shared = cache_shared(peer);
	uint32_t page, ordinal = 0;
	while (ordinal < CACHE_TERM_PAGES && shared->term_pages[ordinal])
		ordinal++;
	must(ordinal < CACHE_TERM_PAGES); /* there are as many places as volumes */
	int error = peer_page_hold(peer, &page, 1);
	if (error)
		return error;
	memset(peer_page_memory(peer, page), 0, XSEG_PAGE);
	cache_meta_describe(peer, page, CACHE_META_TERMS + ordinal, 0);
	crash_point("cache.term.before_keep");
	peer_page_keep(peer, page);
	shared->term_pages[ordinal] = page + 1;
	return 0;
}

static struct term_place *find(struct peer *peer, uint64_t volume)
{
	const struct cache_shared *shared = cache_shared(peer);
	for (unsigned ordinal = 0; ordinal < CACHE_TERM_PAGES; ordinal++) {
		if (!shared->term_pages[ordinal])
			continue;
		struct term_place *places =
			(void *)peer_page_memory(peer, shared->term_pages[ordinal] - 1);
		for (unsigned i = 0; i < TERMS_PER_PAGE; i++)
			if (atomic_load_explicit(&places[i].volume, memory_order_relaxed) == volume)
				return &places[i];
	}
	return NULL;
}

static int keep(struct peer *peer, uint64_t volume, uint64_t term)
{
	struct term_place *place = find(peer, volume);
	int error = 0;
	if (!place && !(place = find(peer, 0)) && !(error = table_grow(peer)))
		place = find(peer, 0);
	if (error)
		return error;
	must(place);
	atomic_store(&place->term, term);
	crash_point("cache.term.unnamed");
	atomic_store(&place->volume, volume);
	return 0;
}

int cache_term_persist(struct peer *peer, struct cache_volume *volume, uint64_t term)
{
	struct cache_shared *shared = cache_shared(peer);
	must(pthread_mutex_lock(&shared->lock) == 0);
	int error = keep(peer, atomic_load(&volume->id), term);
	if (!error)
		atomic_store(&volume->term, term);
	must(pthread_mutex_unlock(&shared->lock) == 0);
	return error;
}

int cache_term_persist_all(struct peer *peer)
{
	const struct cache_shared *shared = cache_shared(peer);
	int error = 0;
	for (uint32_t i = 0; i < CACHE_VOLUME_SLOTS && !error; i++) {
		struct cache_volume *volume = &shared->volumes[i];
		uint64_t term = atomic_load(&volume->term);
		if (atomic_load(&volume->id) && term)
			error = cache_term_persist(peer, volume, term);
	}
	return error;
}

/* --- what was found at a start ------------------------------------------------------------ */

void cache_term_open_page(struct peer *first, uint32_t page, uint32_t ordinal)
{
	struct cache_shared *shared = cache_shared(first);
	if (ordinal >= CACHE_TERM_PAGES || shared->term_pages[ordinal])
		peer_page_drop(first, page);
	else
		shared->term_pages[ordinal] = page + 1;
}

void cache_term_open(struct peer *first)
{
	const struct cache_shared *shared = cache_shared(first);
	for (unsigned ordinal = 0; ordinal < CACHE_TERM_PAGES; ordinal++) {
		if (!shared->term_pages[ordinal])
			continue;
		struct term_place *places =
			(void *)peer_page_memory(first, shared->term_pages[ordinal] - 1);
		for (unsigned i = 0; i < TERMS_PER_PAGE; i++) {
			uint64_t id = atomic_load(&places[i].volume);
			struct cache_volume *volume = cache_volume_get(first, id);
			if (volume)
				atomic_store(&volume->term, atomic_load(&places[i].term));
		}
	}
}

void cache_term_drop(struct peer *peer)
{
	struct cache_shared *shared = cache_shared(peer);
	for (unsigned ordinal = 0; ordinal < CACHE_TERM_PAGES; ordinal++) {
		uint32_t page = shared->term_pages[ordinal];
		shared->term_pages[ordinal] = 0;
		if (page)
			peer_page_drop(peer, page - 1);
	}
}
