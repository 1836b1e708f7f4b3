/* SPDX-License-Identifier: Apache-2.0 */
/* What virtqueues of every layout share. */
#include "peers/front/vhost_ring.h"

#include <base/bits.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int vhost_ring_map(struct vhost_ring *ring) { return ring->layout->map(ring); }

void vhost_ring_unmap(struct vhost_ring *ring)
{
	ring->base = ring->layout->where(ring);
	memset(&ring->split, 0, sizeof(ring->split));
	memset(&ring->packed, 0, sizeof(ring->packed));
}

void vhost_ring_fini(struct vhost_ring *ring)
{
	free(ring->again);
	free(ring->own);
	*ring = (struct vhost_ring){0};
}

void vhost_ring_leave(struct vhost_ring *ring)
{
	if (ring->layout->leave)
		ring->layout->leave(ring);
}

int vhost_ring_next(struct vhost_ring *ring, uint16_t *head)
{
	if (likely(!vhost_ring_has_again(ring)))
		return ring->layout->next(ring, head);
	*head = ring->again[ring->again_at++];
	return 0;
}

void vhost_ring_push(struct vhost_ring *ring, uint16_t head, uint32_t written)
{
	ring->layout->push(ring, head, written);
	ring->used_at++;
}

bool vhost_ring_publish(struct vhost_ring *ring)
{
	if (ring->used_at == ring->published)
		return false;
	bool call = ring->layout->publish(ring);
	ring->published = ring->used_at;
	return call;
}

void vhost_ring_disarm(struct vhost_ring *ring) { ring->layout->disarm(ring); }

bool vhost_ring_arm(struct vhost_ring *ring)
{
	return ring->layout->arm(ring) && !vhost_ring_has_again(ring);
}

/* --- what was in flight ---------------------------------------------------------- */

uint64_t vhost_ring_inflight_offset(const struct vhost_layout *layout, unsigned index, unsigned num)
{
	return index * ((layout->notes_size(num) + 63) / 64 * 64);
}

uint64_t vhost_ring_inflight_size(const struct vhost_layout *layout, unsigned queues, unsigned num)
{
	return vhost_ring_inflight_offset(layout, queues, num);
}

struct taken {
	uint64_t counter;
	uint16_t head;
};

static int by_counter(const void *a, const void *b)
{
	uint64_t one = ((const struct taken *)a)->counter,
		 other = ((const struct taken *)b)->counter;
	return one < other ? -1 : one > other;
}

int vhost_ring_find_taken(struct vhost_ring *ring, const void *entries, size_t stride)
{
	struct taken *taken = calloc(ring->num, sizeof(*taken));
	ring->again = calloc(ring->num, sizeof(*ring->again));
	if (!taken || !ring->again) {
		free(taken);
		return -ENOMEM;
	}
	for (uint16_t i = 0; i < ring->num; i++) {
		const struct vhost_inflight_entry *entry =
			(const void *)((const char *)entries + i * stride);
		if (entry->taken)
			taken[ring->again_count++] = (struct taken){entry->counter, i};
	}
	qsort(taken, ring->again_count, sizeof(*taken), by_counter);
	for (uint16_t i = 0; i < ring->again_count; i++)
		ring->again[i] = taken[i].head;
	ring->counter = ring->again_count ? taken[ring->again_count - 1].counter + 1 : 0;
	free(taken);
	return 0;
}

int vhost_ring_recover(struct vhost_ring *ring)
{
	free(ring->again);
	ring->again = NULL;
	ring->again_count = ring->again_at = 0;
	ring->told = false;
	return ring->layout->recover(ring);
}

/* --- what hangs on a head --------------------------------------------------------- */

int vhost_ring_read(struct vhost_ring *ring, uint16_t head, struct vhost_chain *chain)
{
	chain->count = chain->readable = 0;
	chain->out_size = chain->in_size = 0;
	return ring->layout->read(ring, head, chain);
}

static int add_pieces(
	struct vhost_ring *ring, struct vhost_chain *chain, uint64_t guest, uint32_t length)
{
	while (length) {
		uint64_t piece = length;
		void *at = vhost_memory_at(ring->memory, guest, &piece);
		if (!at || chain->count == VHOST_IOV_MAX)
			return -EPROTO;
		chain->iov[chain->count++] = (struct iovec){.iov_base = at, .iov_len = piece};
		guest += piece;
		length -= (uint32_t)piece;
	}
	return 0;
}

int vhost_ring_add(struct vhost_ring *ring, struct vhost_chain *chain, uint64_t guest,
	uint32_t length, bool writable)
{
	if (!writable && chain->in_size)
		return -EPROTO; /* what is read comes first */
	int error = add_pieces(ring, chain, guest, length);
	if (writable) {
		chain->in_size += length;
	} else {
		chain->out_size += length;
		chain->readable = chain->count;
	}
	return error;
}

const void *vhost_ring_table(
	struct vhost_ring *ring, uint64_t guest, uint32_t size, uint32_t *count)
{
	uint64_t there = size;
	const void *table = vhost_memory_at(ring->memory, guest, &there);
	*count = size / sizeof(struct vring_desc);
	if (!table || there < size || size % sizeof(struct vring_desc) || !size ||
		(uintptr_t)table % _Alignof(uint32_t))
		return NULL;
	return table;
}
