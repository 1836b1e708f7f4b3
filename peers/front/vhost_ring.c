/* SPDX-License-Identifier: Apache-2.0 */
/* A split virtqueue, from the device's side. */
#include "peers/front/vhost_ring.h"

#include <base/bits.h>
#include <base/crash.h>
#include <endian.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Of what the guest writes, or reads, at the same time. */
static uint16_t load16(const __virtio16 *at)
{
	uint16_t value = __atomic_load_n(at, __ATOMIC_ACQUIRE);
	return le16toh(value);
}

static void store16(__virtio16 *at, uint16_t value)
{
	__atomic_store_n(at, htole16(value), __ATOMIC_RELEASE);
}

static __virtio16 *used_event_of(const struct vhost_ring *ring)
{
	return &ring->avail->ring[ring->num];
}

static __virtio16 *avail_event_of(const struct vhost_ring *ring)
{
	return (__virtio16 *)&ring->used->ring[ring->num];
}

/* --- where it lies --------------------------------------------------------------- */

int vhost_ring_map(struct vhost_ring *ring)
{
	const struct vhost_memory *memory = ring->memory;
	uint64_t num = ring->num;
	/* both index words of the events lie behind the rings, used or not */
	ring->desc = vhost_memory_user(memory, ring->desc_user, num * sizeof(struct vring_desc));
	ring->avail = vhost_memory_user(memory, ring->avail_user, 6 + 2 * num);
	ring->used = vhost_memory_user(
		memory, ring->used_user, 6 + num * sizeof(struct vring_used_elem));
	bool aligned = ((uintptr_t)ring->desc % 16 | (uintptr_t)ring->avail % 2 |
			       (uintptr_t)ring->used % 4) == 0;
	if (num && ring->desc && ring->avail && ring->used && aligned)
		return 0;
	vhost_ring_unmap(ring);
	return -EFAULT;
}

void vhost_ring_unmap(struct vhost_ring *ring)
{
	ring->desc = NULL;
	ring->avail = NULL;
	ring->used = NULL;
}

static void mark_used(struct vhost_ring *ring, const void *at, uint64_t length)
{
	if (ring->log_used)
		vhost_memory_mark(ring->memory,
			ring->used_guest + (uint64_t)((const char *)at - (const char *)ring->used),
			length);
}

/* --- what was in flight ---------------------------------------------------------- */

uint64_t vhost_ring_inflight_offset(unsigned index, unsigned num)
{
	uint64_t one =
		sizeof(struct vhost_inflight) + (uint64_t)num * sizeof(struct vhost_inflight_entry);
	return index * ((one + 63) / 64 * 64);
}

uint64_t vhost_ring_inflight_size(unsigned queues, unsigned num)
{
	return vhost_ring_inflight_offset(queues, num);
}

/* Heads of the last batch were given back when the used index moved; only then is that said. Who
   was killed in between has not come to it. */
static void settle_batch(struct vhost_ring *ring)
{
	struct vhost_inflight *inflight = ring->inflight;
	uint16_t size = (uint16_t)(ring->used_at - inflight->used_at), head = inflight->batch;
	for (uint16_t i = 0; i < size && head < ring->num; i++) {
		inflight->entry[head].taken = 0;
		head = inflight->entry[head].next;
	}
	atomic_thread_fence(memory_order_release);
	inflight->used_at = ring->used_at;
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

/* They are in ring->again, in the order in which they were taken. */
static int find_taken(struct vhost_ring *ring)
{
	const struct vhost_inflight *inflight = ring->inflight;
	struct taken *taken = calloc(ring->num, sizeof(*taken));
	free(ring->again);
	ring->again = calloc(ring->num, sizeof(*ring->again));
	ring->again_count = ring->again_at = 0;
	if (!taken || !ring->again) {
		free(taken);
		return -ENOMEM;
	}
	for (uint16_t i = 0; i < ring->num; i++)
		if (inflight->entry[i].taken)
			taken[ring->again_count++] = (struct taken){inflight->entry[i].counter, i};
	qsort(taken, ring->again_count, sizeof(*taken), by_counter);
	for (uint16_t i = 0; i < ring->again_count; i++)
		ring->again[i] = taken[i].head;
	ring->counter = ring->again_count ? taken[ring->again_count - 1].counter + 1 : 0;
	free(taken);
	return 0;
}

int vhost_ring_recover(struct vhost_ring *ring)
{
	struct vhost_inflight *inflight = ring->inflight;
	ring->told = false;
	ring->used_at = ring->published = load16(&ring->used->idx);
	if (!inflight)
		return 0;
	if (inflight->version != VHOST_INFLIGHT_VERSION || inflight->num != ring->num)
		return -EPROTO;
	settle_batch(ring);
	int error = find_taken(ring);
	ring->avail_at = (uint16_t)(ring->used_at + ring->again_count);
	return error;
}

/* --- what comes ------------------------------------------------------------------ */

int vhost_ring_next(struct vhost_ring *ring, uint16_t *head)
{
	if (unlikely(ring->again_at < ring->again_count)) {
		*head = ring->again[ring->again_at++];
		return 0;
	}
	uint16_t there = (uint16_t)(load16(&ring->avail->idx) - ring->avail_at);
	if (!there)
		return -EAGAIN;
	*head = load16(&ring->avail->ring[ring->avail_at % ring->num]);
	if (unlikely(there > ring->num || *head >= ring->num))
		return -EPROTO;
	ring->avail_at++;
	if (ring->inflight) {
		struct vhost_inflight_entry *entry = &ring->inflight->entry[*head];
		entry->counter = ring->counter++;
		atomic_thread_fence(memory_order_release);
		entry->taken = 1;
	}
	crash_point("front_vhost.ring.taken");
	return 0;
}

/* One descriptor, which may lie over several regions. */
static int add_piece(
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

static int add_desc(
	struct vhost_ring *ring, struct vhost_chain *chain, const struct vring_desc *desc)
{
	bool writable = le16toh(desc->flags) & VRING_DESC_F_WRITE;
	uint32_t length = le32toh(desc->len);
	if (!writable && chain->in_size)
		return -EPROTO; /* what is read comes first */
	int error = add_piece(ring, chain, le64toh(desc->addr), length);
	if (writable) {
		chain->in_size += length;
	} else {
		chain->out_size += length;
		chain->readable = chain->count;
	}
	return error;
}

/* A table of descriptors, the ring's or one of the guest's; `count` of them may be followed. */
static int add_table(struct vhost_ring *ring, struct vhost_chain *chain,
	const struct vring_desc *table, uint32_t count, uint32_t index)
{
	for (uint32_t steps = 0; steps < count; steps++) {
		const volatile struct vring_desc *shared = &table[index];
		struct vring_desc desc = {shared->addr, shared->len, shared->flags, shared->next};
		if (le16toh(desc.flags) & VRING_DESC_F_INDIRECT)
			return -EPROTO;
		int error = add_desc(ring, chain, &desc);
		if (error || !(le16toh(desc.flags) & VRING_DESC_F_NEXT))
			return error;
		index = le16toh(desc.next);
		if (index >= count)
			return -EPROTO;
	}
	return -EPROTO; /* in a circle */
}

static int add_indirect(
	struct vhost_ring *ring, struct vhost_chain *chain, const struct vring_desc *desc)
{
	uint64_t size = le32toh(desc->len), there = size;
	const void *table = vhost_memory_at(ring->memory, le64toh(desc->addr), &there);
	if (!table || there < size || size % sizeof(*desc) || !size ||
		(uintptr_t)table % _Alignof(uint32_t) || le16toh(desc->flags) & VRING_DESC_F_NEXT)
		return -EPROTO;
	return add_table(ring, chain, table, (uint32_t)(size / sizeof(*desc)), 0);
}

int vhost_ring_read(struct vhost_ring *ring, uint16_t head, struct vhost_chain *chain)
{
	const volatile struct vring_desc *shared = &ring->desc[head];
	struct vring_desc desc = {shared->addr, shared->len, shared->flags, shared->next};
	chain->count = chain->readable = 0;
	chain->out_size = chain->in_size = 0;
	if (le16toh(desc.flags) & VRING_DESC_F_INDIRECT)
		return add_indirect(ring, chain, &desc);
	return add_table(ring, chain, ring->desc, ring->num, head);
}

/* --- what goes ------------------------------------------------------------------- */

void vhost_ring_push(struct vhost_ring *ring, uint16_t head, uint32_t written)
{
	struct vring_used_elem *element = &ring->used->ring[ring->used_at % ring->num];
	element->id = htole32(head);
	element->len = htole32(written);
	mark_used(ring, element, sizeof(*element));
	ring->used_at++;
	if (ring->inflight) {
		ring->inflight->entry[head].next = ring->inflight->batch;
		atomic_thread_fence(memory_order_release);
		ring->inflight->batch = head;
	}
	crash_point("front_vhost.ring.pushed");
}

static bool wants_call(struct vhost_ring *ring)
{
	uint16_t before = ring->called, now = ring->used_at;
	bool told = ring->told;
	atomic_thread_fence(memory_order_seq_cst);
	if (!ring->event_idx)
		return !(load16(&ring->avail->flags) & VRING_AVAIL_F_NO_INTERRUPT);
	ring->called = now;
	ring->told = true;
	return !told || vring_need_event(load16(used_event_of(ring)), now, before);
}

bool vhost_ring_publish(struct vhost_ring *ring)
{
	if (ring->used_at == ring->published)
		return false;
	store16(&ring->used->idx, ring->used_at);
	mark_used(ring, &ring->used->idx, sizeof(ring->used->idx));
	ring->published = ring->used_at;
	crash_point("front_vhost.ring.published");
	if (ring->inflight)
		settle_batch(ring);
	return wants_call(ring);
}

/* With event indices the guest kicks once, for the one that was armed. */
void vhost_ring_disarm(struct vhost_ring *ring)
{
	if (!ring->event_idx)
		store16(&ring->used->flags, VRING_USED_F_NO_NOTIFY);
}

bool vhost_ring_arm(struct vhost_ring *ring)
{
	if (ring->event_idx)
		store16(avail_event_of(ring), ring->avail_at);
	else
		store16(&ring->used->flags, 0);
	atomic_thread_fence(memory_order_seq_cst);
	return load16(&ring->avail->idx) == ring->avail_at && ring->again_at == ring->again_count;
}
