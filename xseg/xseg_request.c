/* SPDX-License-Identifier: Apache-2.0 */
/* The request table: free slots and whose they are. */
#include <base/bits.h>
#include <errno.h>
#include <xseg/request.h>

const struct sm_state xseg_request_states[XSEG_REQUEST_STATES] = {
	[XSEG_REQUEST_FREE] = {"free", SM(XSEG_REQUEST_OWNED)},
	[XSEG_REQUEST_OWNED] = {"owned", SM(XSEG_REQUEST_SUBMITTED) | SM(XSEG_REQUEST_FREE)},
	[XSEG_REQUEST_SUBMITTED] = {"submitted", SM(XSEG_REQUEST_TAKEN)},
	[XSEG_REQUEST_TAKEN] = {"taken", SM(XSEG_REQUEST_SUBMITTED) | SM(XSEG_REQUEST_DONE)},
	[XSEG_REQUEST_DONE] = {"done", SM(XSEG_REQUEST_OWNED)},
};

static uint32_t hint_words(const struct xseg *seg) { return (seg->request_count + 63) / 64; }

static void set_hint(const struct xseg *seg, uint32_t slot)
{
	atomic_fetch_or_explicit(
		&seg->request_hints[slot / 64], 1ull << slot % 64, memory_order_release);
}

/* The lowest `want` ones of a word. */
static uint64_t lowest(uint64_t word, uint32_t want)
{
	uint64_t rest = word;
	while (want-- && rest)
		rest &= rest - 1;
	return word & ~rest;
}

static void refill(struct xseg_slot_cache *cache)
{
	const struct xseg *seg = cache->seg;
	uint32_t words = hint_words(seg);
	uint32_t batch = cache->keep < XSEG_SLOT_BATCH ? cache->keep : XSEG_SLOT_BATCH;
	for (uint32_t seen = 0; seen < words && cache->count < batch; seen++) {
		uint32_t w = cache->cursor % words;
		uint64_t hints = atomic_load_explicit(&seg->request_hints[w], memory_order_relaxed);
		uint64_t bits = lowest(hints, batch - cache->count);
		if (bits == hints)
			cache->cursor = (w + 1) % words;
		if (!bits)
			continue;
		bits &= atomic_fetch_and_explicit(
			&seg->request_hints[w], ~bits, memory_order_acquire);
		while (bits) {
			/* highest first, so that the stack hands out rising slots */
			uint32_t bit = 63u - (uint32_t)__builtin_clzll(bits);
			bits &= ~(1ull << bit);
			uint32_t slot = w * 64 + bit;
			if (slot < seg->request_count)
				cache->slot[cache->count++] = slot;
		}
	}
}

void xseg_slot_cache_init(
	struct xseg_slot_cache *cache, const struct xseg *seg, uint16_t lane, uint16_t epoch)
{
	cache->seg = seg;
	cache->lane = lane;
	cache->epoch = epoch;
	cache->count = 0;
	cache->keep = seg->request_count / (4 * seg->lane_count);
	if (cache->keep == 0)
		cache->keep = 1;
	if (cache->keep > XSEG_SLOT_CACHE)
		cache->keep = XSEG_SLOT_CACHE;
	cache->cursor = (uint32_t)((uint64_t)hint_words(seg) * lane / XSEG_LANES_MAX);
}

void xseg_slot_cache_fini(struct xseg_slot_cache *cache)
{
	while (cache->count)
		set_hint(cache->seg, cache->slot[--cache->count]);
}

static void reset(struct xseg_request *request, const struct xseg_slot_cache *cache)
{
	request->result = 0;
	request->length = 0;
	request->value = 0;
	request->client = cache->lane;
	request->client_epoch = cache->epoch;
	request->extent_count = 0;
	request->answer_count = 0;
	request->data_offset = 0;
	request->flags = 0;
	request->list[0] = XSEG_NONE;
	request->list[1] = XSEG_NONE;
}

int xseg_request_alloc(struct xseg_slot_cache *cache, uint32_t *slot)
{
	for (;;) {
		if (unlikely(cache->count == 0))
			refill(cache);
		if (unlikely(cache->count == 0))
			return -EAGAIN;
		uint32_t index = cache->slot[--cache->count];
		struct xseg_request *request = &cache->seg->requests[index];
		uint64_t word = atomic_load_explicit(&request->word, memory_order_relaxed);
		if (unlikely(xseg_word_state(word) != XSEG_REQUEST_FREE))
			continue; /* the hint was wrong */
		uint64_t mine = xseg_word(XSEG_REQUEST_OWNED, 0, cache->lane, cache->epoch,
			xseg_word_generation(word) + 1);
		if (unlikely(!atomic_compare_exchange_strong_explicit(&request->word, &word, mine,
			    memory_order_acquire, memory_order_relaxed)))
			continue;
		reset(request, cache);
		*slot = index;
		return 0;
	}
}

void xseg_request_free(struct xseg_slot_cache *cache, uint32_t slot)
{
	struct xseg_request *request = &cache->seg->requests[slot];
	uint64_t word = atomic_load_explicit(&request->word, memory_order_relaxed);
	atomic_store_explicit(&request->word,
		xseg_word(XSEG_REQUEST_FREE, 0, 0, 0, xseg_word_generation(word)),
		memory_order_release);
	if (cache->count < cache->keep)
		cache->slot[cache->count++] = slot;
	else
		set_hint(cache->seg, slot);
}

uint32_t xseg_request_rehint(const struct xseg *seg)
{
	uint32_t lost = 0;
	for (uint32_t slot = 0; slot < seg->request_count; slot++) {
		uint64_t hints =
			atomic_load_explicit(&seg->request_hints[slot / 64], memory_order_acquire);
		if ((hints >> slot % 64) & 1u)
			continue;
		uint64_t word =
			atomic_load_explicit(&seg->requests[slot].word, memory_order_acquire);
		if (xseg_word_state(word) != XSEG_REQUEST_FREE)
			continue;
		set_hint(seg, slot);
		lost++;
	}
	return lost;
}

uint32_t xseg_request_free_count(const struct xseg *seg)
{
	return bits_count(seg->request_hints, (seg->request_count + 63) / 64);
}
