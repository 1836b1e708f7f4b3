/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes that are handed on to the store as they are, with their pages, and are answered past us.
 *
 * Until such a write has ended, nobody can say which version the store answers a read with. So an
 * in-flight entry says where it is, and of that place nothing is taken into the cache: reads pass,
 * writes go through. The request itself says when it has ended: its slot is free, or has come back
 * as another one. So there is one entry for each slot, and a table of them is never full.
 *
 * After a kill the entries are made anew from the requests, whose frames say where they have been.
 */
#include <base/crash.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <xseg/request.h>
#include <xseg/segment.h>

#include "peers/cache/cache.h"
#include "peers/cache/cache_work.h"

#define BYPASS_LOOK_MAX 32u /* entries looked at in one go */
#define PAST_CHAINS 1024u

struct bypass_range {
	uint32_t first, count; /* buckets */
};

static struct bypass_range bypass_range(uint64_t offset, uint32_t length)
{
	uint32_t first = (uint32_t)offset / XSEG_PAGE;
	return (struct bypass_range){
		first, ((uint32_t)offset + length - 1) / XSEG_PAGE - first + 1};
}

/* Of a slot of the segment. */
struct bypass_entry {
	struct xseg_key key;
	struct cache_local *local; /* NULL: the entry is not in use */
	uint32_t generation;	   /* of the slot */
	uint16_t first, count;	   /* buckets */
	LIST_ENTRY(bypass_entry) chain;
	TAILQ_ENTRY(bypass_entry) link;
};
TAILQ_HEAD(bypass_queue, bypass_entry);

/* The entries are found by key: most objects that are only written need no place in the index. */
struct cache_bypass {
	struct bypass_queue inflight; /* in use */
	LIST_HEAD(, bypass_entry) chains[PAST_CHAINS];
	struct bypass_entry slots[];
};

int cache_bypass_open(struct peer *peer)
{
	uint32_t slots = peer_segment(peer)->request_count;
	struct cache_bypass *bypass = calloc(1, sizeof(*bypass) + slots * sizeof(bypass->slots[0]));
	if (!bypass)
		return -ENOMEM;
	TAILQ_INIT(&bypass->inflight);
	cache_of(peer)->bypass = bypass;
	return 0;
}

void cache_bypass_close(struct peer *peer)
{
	free(cache_of(peer)->bypass);
	cache_of(peer)->bypass = NULL;
}

/* --- in-flight entries ----------------------------------------------------------------------- */

static uint32_t bypass_hash(const struct xseg_key *key)
{
	return (uint32_t)(((key->volume << 10) + ((uint64_t)key->epoch << 32) + key->object) *
				  0x9e3779b97f4a7c15ull >>
			  40) %
	       PAST_CHAINS;
}

static bool inflight_spent(const struct peer *peer, const struct bypass_entry *entry)
{
	uint64_t slot = (uint64_t)(entry - cache_of(peer)->bypass->slots);
	return peer_ticket_spent(peer, slot << 32 | entry->generation);
}

static void bypass_enter(struct cache_local *local)
{
	if (local->bypass++ == 0)
		atomic_fetch_add(&local->volume->bypass, 1);
}

/* A flush that was sent before it had ended does not cover it: the store has to be flushed once
   more. */
static void bypass_leave(struct peer *peer, struct cache_local *local)
{
	if (--local->bypass > 0)
		return;
	cache_sync_wrote(peer, local);
	atomic_fetch_sub(&local->volume->bypass, 1);
}

static void inflight_remove(struct peer *peer, struct bypass_entry *entry)
{
	struct cache_local *local = entry->local;
	LIST_REMOVE(entry, chain);
	TAILQ_REMOVE(&cache_of(peer)->bypass->inflight, entry, link);
	entry->local = NULL;
	bypass_leave(peer, local);
}

static void inflight_add(struct peer *peer, struct cache_local *local, const struct xseg_key *key,
	uint64_t ticket, struct bypass_range range)
{
	struct cache_bypass *bypass = cache_of(peer)->bypass;
	struct bypass_entry *entry = &bypass->slots[ticket >> 32];
	bypass_enter(local); /* first, or the volume's last entry would go each time */
	if (entry->local)
		inflight_remove(peer, entry);
	entry->key = *key;
	entry->local = local;
	entry->generation = (uint32_t)ticket;
	entry->first = (uint16_t)range.first;
	entry->count = (uint16_t)range.count;
	LIST_INSERT_HEAD(&bypass->chains[bypass_hash(key)], entry, chain);
	TAILQ_INSERT_TAIL(&bypass->inflight, entry, link);
}

bool cache_bypass_any(const struct peer *peer)
{
	return !TAILQ_EMPTY(&cache_of(peer)->bypass->inflight);
}

/* Those that stay are looked at again when all others have been. */
void cache_bypass_turn(struct peer *peer)
{
	struct bypass_queue *inflight = &cache_of(peer)->bypass->inflight;
	const struct bypass_entry *last = TAILQ_LAST(inflight, bypass_queue);
	bool end = !last;
	for (unsigned i = 0; i < BYPASS_LOOK_MAX && !end; i++) {
		struct bypass_entry *entry = TAILQ_FIRST(inflight);
		end = entry == last;
		if (inflight_spent(peer, entry)) {
			inflight_remove(peer, entry);
		} else {
			TAILQ_REMOVE(inflight, entry, link);
			TAILQ_INSERT_TAIL(inflight, entry, link);
		}
	}
}

static bool inflight_overlaps(
	const struct bypass_entry *entry, const struct xseg_key *key, struct bypass_range range)
{
	return entry->key.object == key->object && entry->key.epoch == key->epoch &&
	       entry->key.volume == key->volume && entry->first < range.first + range.count &&
	       range.first < (uint32_t)entry->first + entry->count;
}

bool cache_bypass_overlaps(
	struct peer *peer, const struct cache_object *object, uint32_t first, uint32_t count)
{
	struct cache *cache = cache_of(peer);
	const struct xseg_key *key = &xcache_object(cache->index, object->index)->key;
	struct bypass_entry *entry, *next;
	if (likely(!cache_bypass_any(peer)))
		return false;
	for (entry = LIST_FIRST(&cache->bypass->chains[bypass_hash(key)]); entry; entry = next) {
		next = LIST_NEXT(entry, chain);
		if (!inflight_overlaps(entry, key, (struct bypass_range){first, count}))
			continue;
		if (!inflight_spent(peer, entry))
			return true;
		inflight_remove(peer, entry);
	}
	return false;
}

/* --- a write --------------------------------------------------------------------------- */

static void bypass_forget(struct peer *peer, struct cache_object *object, struct bypass_range range)
{
	struct cache *cache = cache_of(peer);
	xcache_ref_object(cache->index, object->index);
	for (uint32_t i = range.first; i < range.first + range.count; i++) {
		uint32_t entry = xcache_lookup(cache->index, object->index, i);
		if (entry == XCACHE_NONE)
			continue;
		if (xcache_entry(cache->index, entry)->marks & CACHE_E_THROUGH)
			cache_volume_write_known(object->local, false);
		cache_bucket_remove(peer, entry);
	}
	crash_point("cache.bypass.forgotten");
	xcache_unref_object(cache->index, object->index);
}

/* Is anything of it here? -EBUSY: dirty. */
static int bypass_here(
	struct peer *peer, const struct cache_object *object, struct bypass_range range)
{
	struct cache *cache = cache_of(peer);
	int here = 0;
	if (xcache_object(cache->index, object->index)->count == 0)
		return 0;
	for (uint32_t i = range.first; i < range.first + range.count; i++) {
		uint32_t entry = xcache_lookup(cache->index, object->index, i);
		if (likely(entry == XCACHE_NONE))
			continue;
		if (cache_entry_is_dirty(xcache_entry(cache->index, entry)))
			return -EBUSY;
		here = 1;
	}
	return here;
}

/* May it overtake what we have of its place? Then that is gone. */
static bool bypass_clear(struct peer *peer, struct cache_object *object, struct bypass_range range)
{
	if (unlikely(!TAILQ_EMPTY(&object->ranges)) &&
		!cache_range_is_free(object, range.first, range.count, true))
		return false;
	int here = bypass_here(peer, object, range);
	if (here > 0)
		bypass_forget(peer, object, range);
	return here >= 0;
}

bool cache_bypass_write(
	struct peer *peer, struct cache_local *local, struct cache_object *object, struct job *job)
{
	struct bypass_range range = bypass_range(job->offset, job->length);
	if (object && !bypass_clear(peer, object, range))
		return false;
	inflight_add(peer, local, &job->key, peer_ticket_of(job), range);
	crash_point("cache.bypass.noted");
	job_forward(job, CACHE_STORE);
	return true;
}

/* --- after a kill ------------------------------------------------------------------------ */

/* The frame of ours in a request that was handed on and has not been answered; NULL: none. */
static const struct xseg_frame *bypass_frame(const struct peer *peer, uint32_t slot, uint64_t word)
{
	const struct xseg_request *request = &peer_segment(peer)->requests[slot];
	unsigned state = xseg_word_state(word), frames = xseg_word_frame(word);
	if (state != XSEG_REQUEST_SUBMITTED && state != XSEG_REQUEST_TAKEN)
		return NULL;
	for (unsigned k = 0; k < frames && k < XSEG_FRAMES; k++)
		if (request->frame[k].port == peer->port && request->frame[k].op != XSEG_OP_READ)
			return &request->frame[k];
	return NULL;
}

bool cache_bypass_is_out(const struct peer *peer)
{
	const struct xseg *seg = peer_segment(peer);
	for (uint32_t i = 0; i < seg->request_count; i++)
		if (bypass_frame(peer, i,
			    atomic_load_explicit(&seg->requests[i].word, memory_order_acquire)))
			return true;
	return false;
}

/* The frame is what somebody else has written: a copy, checked. Of a volume that has no place here
   nothing is cached. */
static void bypass_adopt(struct peer *peer, const struct xseg_frame *frame, uint64_t ticket)
{
	struct xseg_frame f = *frame;
	bool writes = f.op == XSEG_OP_WRITE || f.op == XSEG_OP_ZERO;
	if (!writes || f.key.epoch > XSEG_EPOCH_DATA_MAX || f.length == 0 ||
		f.length > XSEG_OBJECT_MAX || f.offset > XSEG_OBJECT_MAX - f.length ||
		!cache_key_is_mine(peer, &f.key))
		return;
	struct cache_local *local = cache_volume_local_get(peer, f.key.volume);
	if (local)
		inflight_add(peer, local, &f.key, ticket, bypass_range(f.offset, f.length));
}

void cache_bypass_adopt(struct peer *peer)
{
	const struct xseg *seg = peer_segment(peer);
	for (uint32_t i = 0; i < seg->request_count; i++) {
		uint64_t word = atomic_load_explicit(&seg->requests[i].word, memory_order_acquire);
		const struct xseg_frame *frame = bypass_frame(peer, i, word);
		if (frame)
			bypass_adopt(peer, frame, (uint64_t)i << 32 | xseg_word_generation(word));
	}
}
