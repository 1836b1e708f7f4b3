/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes that are handed on to the store as they are, with their pages, and are answered past us.
 *
 * Until such a one has ended, nobody can say which version the store answers a read with. So a note
 * says where it is, and of that place nothing is taken into the cache: reads pass, writes go
 * through. The request itself says when it has ended: its slot is free, or has come back as another
 * one. So there is one note for each slot, and a table of them is never full.
 *
 * After a kill the notes are made anew from the requests, whose frames say where they have been.
 */
#include <base/crash.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <xseg/request.h>
#include <xseg/segment.h>

#include "peers/cache/cache.h"

#define PAST_LOOK_MAX 32u /* notes looked at in one go */
#define PAST_CHAINS 1024u

struct past_range {
	uint32_t first, count; /* buckets */
};

static struct past_range past_range(uint64_t offset, uint32_t length)
{
	uint32_t first = (uint32_t)offset / XSEG_PAGE;
	return (struct past_range){first, ((uint32_t)offset + length - 1) / XSEG_PAGE - first + 1};
}

/* Of a slot of the segment. */
struct past_note {
	struct xseg_key key;
	struct cache_flow *flow; /* NULL: the note is not in use */
	uint32_t generation;	 /* of the slot */
	uint16_t first, count;	 /* buckets */
	LIST_ENTRY(past_note) chain;
	TAILQ_ENTRY(past_note) link;
};
TAILQ_HEAD(past_queue, past_note);

/* The notes are found by key: most objects that are only written need no place in the index. */
struct cache_past {
	struct past_queue notes; /* in use */
	LIST_HEAD(, past_note) chains[PAST_CHAINS];
	struct past_note slots[];
};

int cache_past_open(struct peer *peer)
{
	uint32_t slots = peer_segment(peer)->request_count;
	struct cache_past *past = calloc(1, sizeof(*past) + slots * sizeof(past->slots[0]));
	if (!past)
		return -ENOMEM;
	TAILQ_INIT(&past->notes);
	cache_of(peer)->past = past;
	return 0;
}

void cache_past_close(struct peer *peer)
{
	free(cache_of(peer)->past);
	cache_of(peer)->past = NULL;
}

/* --- notes ---------------------------------------------------------------------------- */

static uint32_t past_hash(const struct xseg_key *key)
{
	return (uint32_t)(((key->volume << 10) + ((uint64_t)key->epoch << 32) + key->object) *
				  0x9e3779b97f4a7c15ull >>
			  40) %
	       PAST_CHAINS;
}

static bool note_spent(const struct peer *peer, const struct past_note *note)
{
	uint64_t slot = (uint64_t)(note - cache_of(peer)->past->slots);
	return peer_ticket_spent(peer, slot << 32 | note->generation);
}

static void past_enter(struct cache_flow *flow)
{
	if (flow->past++ == 0)
		atomic_fetch_add(&flow->volume->past, 1);
}

/* A flush that was sent before it had ended does not cover it: the store owes one more. */
static void past_leave(struct peer *peer, struct cache_flow *flow)
{
	if (--flow->past > 0)
		return;
	cache_sync_wrote(peer, flow);
	atomic_fetch_sub(&flow->volume->past, 1);
}

static void note_remove(struct peer *peer, struct past_note *note)
{
	struct cache_flow *flow = note->flow;
	LIST_REMOVE(note, chain);
	TAILQ_REMOVE(&cache_of(peer)->past->notes, note, link);
	note->flow = NULL;
	past_leave(peer, flow);
}

static void note_add(struct peer *peer, struct cache_flow *flow, const struct xseg_key *key,
	uint64_t ticket, struct past_range range)
{
	struct cache_past *past = cache_of(peer)->past;
	struct past_note *note = &past->slots[ticket >> 32];
	past_enter(flow); /* first, or the volume's last note would go each time */
	if (note->flow)
		note_remove(peer, note);
	note->key = *key;
	note->flow = flow;
	note->generation = (uint32_t)ticket;
	note->first = (uint16_t)range.first;
	note->count = (uint16_t)range.count;
	LIST_INSERT_HEAD(&past->chains[past_hash(key)], note, chain);
	TAILQ_INSERT_TAIL(&past->notes, note, link);
}

bool cache_past_any(const struct peer *peer) { return !TAILQ_EMPTY(&cache_of(peer)->past->notes); }

/* Those that stay are looked at again when all others have been. */
void cache_past_turn(struct peer *peer)
{
	struct past_queue *notes = &cache_of(peer)->past->notes;
	const struct past_note *last = TAILQ_LAST(notes, past_queue);
	bool end = !last;
	for (unsigned i = 0; i < PAST_LOOK_MAX && !end; i++) {
		struct past_note *note = TAILQ_FIRST(notes);
		end = note == last;
		if (note_spent(peer, note)) {
			note_remove(peer, note);
		} else {
			TAILQ_REMOVE(notes, note, link);
			TAILQ_INSERT_TAIL(notes, note, link);
		}
	}
}

static bool note_overlaps(
	const struct past_note *note, const struct xseg_key *key, struct past_range range)
{
	return note->key.object == key->object && note->key.epoch == key->epoch &&
	       note->key.volume == key->volume && note->first < range.first + range.count &&
	       range.first < (uint32_t)note->first + note->count;
}

bool cache_past_overlaps(
	struct peer *peer, const struct cache_object *object, uint32_t first, uint32_t count)
{
	struct cache *cache = cache_of(peer);
	const struct xseg_key *key = &xcache_object(cache->index, object->index)->key;
	struct past_note *note, *next;
	if (likely(!cache_past_any(peer)))
		return false;
	for (note = LIST_FIRST(&cache->past->chains[past_hash(key)]); note; note = next) {
		next = LIST_NEXT(note, chain);
		if (!note_overlaps(note, key, (struct past_range){first, count}))
			continue;
		if (!note_spent(peer, note))
			return true;
		note_remove(peer, note);
	}
	return false;
}

/* --- a write --------------------------------------------------------------------------- */

static void past_forget(struct peer *peer, struct cache_object *object, struct past_range range)
{
	struct cache *cache = cache_of(peer);
	xcache_ref_object(cache->index, object->index);
	for (uint32_t i = range.first; i < range.first + range.count; i++) {
		uint32_t entry = xcache_lookup(cache->index, object->index, i);
		if (entry == XCACHE_NONE)
			continue;
		if (xcache_entry(cache->index, entry)->flags & CACHE_E_THROUGH)
			object->flow->kept.lost++;
		cache_bucket_remove(peer, entry);
	}
	crash_point("cache.past.forgotten");
	xcache_unref_object(cache->index, object->index);
}

/* Is anything of it here? -EBUSY: dirty. */
static int past_here(struct peer *peer, const struct cache_object *object, struct past_range range)
{
	struct cache *cache = cache_of(peer);
	int here = 0;
	if (xcache_object(cache->index, object->index)->count == 0)
		return 0;
	for (uint32_t i = range.first; i < range.first + range.count; i++) {
		uint32_t entry = xcache_lookup(cache->index, object->index, i);
		if (likely(entry == XCACHE_NONE))
			continue;
		if (xcache_entry(cache->index, entry)->flags & CACHE_E_DIRTY)
			return -EBUSY;
		here = 1;
	}
	return here;
}

/* May it overtake what we have of its place? Then that is gone. */
static bool past_clear(struct peer *peer, struct cache_object *object, struct past_range range)
{
	if (unlikely(!TAILQ_EMPTY(&object->holds)) &&
		!cache_gate_free(object, range.first, range.count, true))
		return false;
	int here = past_here(peer, object, range);
	if (here > 0)
		past_forget(peer, object, range);
	return here >= 0;
}

bool cache_past_write(
	struct peer *peer, struct cache_flow *flow, struct cache_object *object, struct job *job)
{
	struct past_range range = past_range(job->offset, job->length);
	if (object && !past_clear(peer, object, range))
		return false;
	note_add(peer, flow, &job->key, job_ticket(job), range);
	crash_point("cache.past.noted");
	job_forward(job, CACHE_STORE);
	return true;
}

/* --- after a kill ------------------------------------------------------------------------ */

/* The frame of ours in a request that was handed on and has not been answered; NULL: none. */
static const struct xseg_frame *past_frame(const struct peer *peer, uint32_t slot, uint64_t word)
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

bool cache_past_is_out(const struct peer *peer)
{
	const struct xseg *seg = peer_segment(peer);
	for (uint32_t i = 0; i < seg->request_count; i++)
		if (past_frame(peer, i,
			    atomic_load_explicit(&seg->requests[i].word, memory_order_acquire)))
			return true;
	return false;
}

/* The frame is what somebody else has written: a copy, checked. Of a volume that has no place here
   nothing is cached. */
static void past_adopt(struct peer *peer, const struct xseg_frame *frame, uint64_t ticket)
{
	struct xseg_frame f = *frame;
	bool writes = f.op == XSEG_OP_WRITE || f.op == XSEG_OP_ZERO;
	if (!writes || f.key.epoch > XSEG_EPOCH_DATA_MAX || f.length == 0 ||
		f.length > XSEG_OBJECT_MAX || f.offset > XSEG_OBJECT_MAX - f.length ||
		!cache_key_is_mine(peer, &f.key))
		return;
	struct cache_flow *flow = cache_flow_get(peer, f.key.volume);
	if (flow)
		note_add(peer, flow, &f.key, ticket, past_range(f.offset, f.length));
}

void cache_past_adopt(struct peer *peer)
{
	const struct xseg *seg = peer_segment(peer);
	for (uint32_t i = 0; i < seg->request_count; i++) {
		uint64_t word = atomic_load_explicit(&seg->requests[i].word, memory_order_acquire);
		const struct xseg_frame *frame = past_frame(peer, i, word);
		if (frame)
			past_adopt(peer, frame, (uint64_t)i << 32 | xseg_word_generation(word));
	}
}
