/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request table: fixed slots, one 64-bit state word each (see layout.h for the states).
 * These are the moves of that word; lane.h makes the five verbs of them.
 *
 * Units: slots. Errors: -EAGAIN no free slot (wait); -ESTALE the word is not what the hint
 * promised (drop the hint). Ownership: who is named in the word; nobody else touches the slot.
 * Threads: a slot cache belongs to one lane; moves of one slot exclude each other by the word.
 * Blocking: none.
 */
#ifndef SKERRY_XSEG_REQUEST_H
#define SKERRY_XSEG_REQUEST_H

#include <base/sm.h>
#include <xseg/segment.h>

#define XSEG_SLOT_CACHE 256u
#define XSEG_SLOT_BATCH 32u

struct xseg_slot_cache {
	const struct xseg *seg;
	uint16_t lane, epoch;
	uint32_t cursor;
	uint32_t keep; /* at most: all lanes together sit on a quarter of the table */
	uint32_t count;
	uint32_t slot[XSEG_SLOT_CACHE];
};

extern const struct sm_state xseg_request_states[XSEG_REQUEST_STATES];

void xseg_slot_cache_init(
	struct xseg_slot_cache *cache, const struct xseg *seg, uint16_t lane, uint16_t epoch);
void xseg_slot_cache_fini(struct xseg_slot_cache *cache);

/* FREE -> OWNED(lane); header fields reset. 0 or -EAGAIN. */
int xseg_request_alloc(struct xseg_slot_cache *cache, uint32_t *slot);
/* OWNED -> FREE. The pages are the caller's business. */
void xseg_request_free(struct xseg_slot_cache *cache, uint32_t slot);
/* Sets the hint of every FREE slot that lost it; returns how many. */
uint32_t xseg_request_rehint(const struct xseg *seg);

static inline uint64_t xseg_word(
	unsigned state, unsigned frame, uint16_t owner, uint16_t epoch, uint32_t generation)
{
	return (uint64_t)state | (uint64_t)frame << 4 | (uint64_t)owner << 8 |
	       (uint64_t)epoch << 24 | (uint64_t)(generation & 0xffffffu) << 40;
}
static inline unsigned xseg_word_state(uint64_t word) { return word & 0xfu; }
static inline unsigned xseg_word_frame(uint64_t word) { return (word >> 4) & 0xfu; }
static inline uint16_t xseg_word_owner(uint64_t word) { return (uint16_t)(word >> 8); }
static inline uint16_t xseg_word_epoch(uint64_t word) { return (uint16_t)(word >> 24); }
static inline uint32_t xseg_word_generation(uint64_t word) { return (uint32_t)(word >> 40); }

/* About as many as are free now; others take and give all the while. */
uint32_t xseg_request_free_count(const struct xseg *seg);

#endif
