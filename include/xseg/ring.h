/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slot rings, one producer lane and one consumer lane each. What passes is a hint; the
 * request's state word is the truth, so a ring may lose or repeat entries when someone
 * dies and nothing is lost or done twice.
 *
 * The sequence lies inside the 64-byte slot: one line moves per message and direction.
 * The producer fetches slots eight ahead as its own, the consumer sixteen ahead for reading, so
 * that the transfers of many slots overlap also when one is at the other's heels.
 *
 * Units: messages. Errors: false = full or empty. Threads: put one, get one (two different
 * ones may be at it at once). Blocking: none. Ordering: put releases, get acquires.
 * Crash: neither side has state that cannot be derived: *_attach() finds the position.
 * Source: measurements in the project's research (slot ring 296 ns round trip, 134-166 M/s) and
 * bench/bench_ring.c (without the consumer's prefetch 23-90 M/s, by chance; with it 150).
 */
#ifndef SKERRY_XSEG_RING_H
#define SKERRY_XSEG_RING_H

#include <base/clock.h>
#include <stdbool.h>
#include <xseg/layout.h>

struct xseg_ring_tx {
	struct xseg_ring *ring;
	uint64_t position;
	uint64_t head; /* consumer's, as last seen */
};

struct xseg_ring_rx {
	struct xseg_ring *ring;
	uint64_t position;
	uint64_t published; /* head as last written */
};

struct xseg_hint_message {
	uint32_t request;
	uint32_t kind;
};

void xseg_ring_init(struct xseg_ring *ring); /* creation only */
void xseg_ring_tx_attach(struct xseg_ring_tx *tx, struct xseg_ring *ring);
void xseg_ring_rx_attach(struct xseg_ring_rx *rx, struct xseg_ring *ring);

static inline bool xseg_ring_put(struct xseg_ring_tx *tx, uint32_t request, uint32_t kind)
{
	struct xseg_ring *ring = tx->ring;
	if (unlikely(tx->position - tx->head >= XSEG_RING_SLOTS)) {
		uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
		/* a wild head must not let us run past what the consumer has read */
		if (head < tx->head || head > tx->position)
			return false;
		tx->head = head;
		if (tx->position - head >= XSEG_RING_SLOTS)
			return false;
	}
	struct xseg_slot *slot = &ring->slots[tx->position % XSEG_RING_SLOTS];
	cpu_prefetch_own(&ring->slots[(tx->position + 8) % XSEG_RING_SLOTS]);
	slot->request = request;
	slot->kind = kind;
	tx->position++;
	atomic_store_explicit(&slot->sequence, tx->position, memory_order_release);
	return true;
}

static inline bool xseg_ring_get(struct xseg_ring_rx *rx, struct xseg_hint_message *out)
{
	struct xseg_slot *slot = &rx->ring->slots[rx->position % XSEG_RING_SLOTS];
	if (atomic_load_explicit(&slot->sequence, memory_order_acquire) != rx->position + 1)
		return false;
	__builtin_prefetch(&rx->ring->slots[(rx->position + 16) % XSEG_RING_SLOTS]);
	out->request = slot->request;
	out->kind = slot->kind;
	rx->position++;
	/* a quarter of a ring at a time: the head's line moves seldom */
	if (unlikely(rx->position - rx->published >= XSEG_RING_SLOTS / 4)) {
		atomic_store_explicit(&rx->ring->head, rx->position, memory_order_release);
		rx->published = rx->position;
	}
	return true;
}

static inline bool xseg_ring_empty(const struct xseg_ring_rx *rx)
{
	const struct xseg_slot *slot = &rx->ring->slots[rx->position % XSEG_RING_SLOTS];
	return atomic_load_explicit(&slot->sequence, memory_order_acquire) != rx->position + 1;
}

/* Before sleeping: the producer may be waiting for room. */
static inline void xseg_ring_publish(struct xseg_ring_rx *rx)
{
	if (rx->published != rx->position) {
		atomic_store_explicit(&rx->ring->head, rx->position, memory_order_release);
		rx->published = rx->position;
	}
}

#endif
