/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many pages readers have. They drop their pins without a word; but a slot that comes back with
 * another request has none any more, so one entry for each slot is enough, and what it said is
 * taken off when the slot is seen again. Only a client at its limit is looked after slot by slot.
 */
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <xseg/segment.h>

#include "peers/cache/cache.h"

struct pin_note {
	uint32_t generation; /* of the slot */
	uint16_t client, count;
};

struct cache_pins {
	uint32_t slots, total;
	uint64_t looked_ns;	      /* when all entries were last looked through */
	uint32_t out[XSEG_LANES_MAX]; /* pages, by client */
	struct pin_note entry[];
};

int cache_pin_open(struct peer *peer)
{
	uint32_t slots = peer_segment(peer)->request_count;
	struct cache_pins *pins = calloc(1, sizeof(*pins) + slots * sizeof(pins->entry[0]));
	if (!pins)
		return -ENOMEM;
	pins->slots = slots;
	cache_of(peer)->descriptors = peer_segment(peer)->descriptors;
	cache_of(peer)->pins = pins;
	return 0;
}

void cache_pin_close(struct peer *peer)
{
	free(cache_of(peer)->pins);
	cache_of(peer)->pins = NULL;
}

static void note_clear(struct cache_pins *pins, struct pin_note *entry)
{
	pins->out[entry->client] -= entry->count;
	pins->total -= entry->count;
	entry->count = 0;
}

/* Of all clients, at most once in a turn. */
static void look_through(struct peer *peer, struct cache_pins *pins)
{
	uint64_t now = peer_now_ns(peer);
	if (pins->looked_ns == now)
		return;
	pins->looked_ns = now;
	for (uint32_t slot = 0; slot < pins->slots; slot++) {
		struct pin_note *entry = &pins->entry[slot];
		uint64_t ticket = (uint64_t)slot << 32 | entry->generation;
		if (entry->count && peer_ticket_spent(peer, ticket))
			note_clear(pins, entry);
	}
}

bool cache_pin_allowed(struct peer *peer, const struct job *job, uint32_t count)
{
	struct cache_pins *pins = cache_of(peer)->pins;
	uint64_t most = cache_options(peer)->pins;
	if (unlikely(job->client >= XSEG_LANES_MAX))
		return false;
	if (likely(pins->out[job->client] + count <= most))
		return true;
	look_through(peer, pins);
	return pins->out[job->client] + count <= most;
}

void cache_pin_add(struct peer *peer, const struct job *job, uint32_t count)
{
	struct cache_pins *pins = cache_of(peer)->pins;
	uint64_t ticket = peer_ticket_of(job);
	struct pin_note *entry = &pins->entry[ticket >> 32];
	if (entry->count)
		note_clear(pins, entry);
	*entry = (struct pin_note){
		.generation = (uint32_t)ticket, .client = job->client, .count = (uint16_t)count};
	pins->out[job->client] += count;
	pins->total += count;
}

uint32_t cache_pin_count(const struct peer *peer) { return cache_of(peer)->pins->total; }
