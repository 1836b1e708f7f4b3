/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out where a ring stands, for a lane that comes new to either end of it. */
#include <string.h>
#include <xseg/ring.h>

void xseg_ring_init(struct xseg_ring *ring) { memset(ring, 0, sizeof(*ring)); }

/*
 * The last position put is the highest sequence in any slot. A wild value would send us
 * off; believing only what fits its slot keeps a corrupted slot from doing so.
 */
void xseg_ring_tx_attach(struct xseg_ring_tx *tx, struct xseg_ring *ring)
{
	uint64_t position = 0;
	for (unsigned i = 0; i < XSEG_RING_SLOTS; i++) {
		uint64_t s = atomic_load_explicit(&ring->slots[i].sequence, memory_order_acquire);
		if (s != 0 && (s - 1) % XSEG_RING_SLOTS == i && s > position)
			position = s;
	}
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
	tx->ring = ring;
	tx->position = position;
	tx->head = head <= position && position - head <= XSEG_RING_SLOTS ? head : position;
}

/* The head is written once per half ring: what lies between it and us is read again, which
   is harmless, a hint being only a hint. */
void xseg_ring_rx_attach(struct xseg_ring_rx *rx, struct xseg_ring *ring)
{
	rx->ring = ring;
	rx->position = atomic_load_explicit(&ring->head, memory_order_acquire);
	rx->published = rx->position;
}
