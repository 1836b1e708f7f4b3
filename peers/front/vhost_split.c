/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A split virtqueue: a table of descriptors, a ring of heads that the driver has made available,
 * and one of those that were used. Source: virtio 1.2, section 2.7.
 */
#include <base/bits.h>
#include <base/crash.h>
#include <errno.h>
#include <stdatomic.h>

#include "peers/front/vhost_ring.h"

static __le16 *used_event_of(const struct vhost_ring *ring)
{
	return &ring->split.avail->ring[ring->num];
}

static __le16 *avail_event_of(const struct vhost_ring *ring)
{
	return (__le16 *)&ring->split.used->ring[ring->num];
}

/* --- where it lies --------------------------------------------------------------- */

static int split_map(struct vhost_ring *ring)
{
	const struct vhost_memory *memory = ring->memory;
	uint64_t num = ring->num;
	/* both index words of the events lie behind the rings, used or not */
	ring->split.desc =
		vhost_memory_user(memory, ring->desc_user, num * sizeof(struct vring_desc));
	ring->split.avail = vhost_memory_user(memory, ring->avail_user, 6 + 2 * num);
	ring->split.used = vhost_memory_user(
		memory, ring->used_user, 6 + num * sizeof(struct vring_used_elem));
	bool aligned = ((uintptr_t)ring->split.desc % 16 | (uintptr_t)ring->split.avail % 2 |
			       (uintptr_t)ring->split.used % 4) == 0;
	return ring->split.desc && ring->split.avail && ring->split.used && aligned ? 0 : -EFAULT;
}

static void mark_used(struct vhost_ring *ring, const void *at, uint64_t length)
{
	if (ring->log_used)
		vhost_memory_mark(ring->memory,
			ring->used_guest +
				(uint64_t)((const char *)at - (const char *)ring->split.used),
			length);
}

/* --- what was in flight ---------------------------------------------------------- */

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

static int split_recover(struct vhost_ring *ring)
{
	struct vhost_inflight *inflight = ring->inflight;
	ring->used_at = ring->published = vhost_load16(&ring->split.used->idx);
	ring->split.avail_at = (uint16_t)ring->base;
	if (!inflight)
		return 0;
	if (inflight->version != VHOST_INFLIGHT_VERSION || inflight->num != ring->num)
		return -EPROTO;
	settle_batch(ring);
	int error = vhost_ring_find_taken(ring, inflight->entry, sizeof(*inflight->entry));
	ring->split.avail_at = (uint16_t)(ring->used_at + ring->again_count);
	return error;
}

/* --- what comes ------------------------------------------------------------------ */

static int split_next(struct vhost_ring *ring, uint16_t *head)
{
	uint16_t there = (uint16_t)(vhost_load16(&ring->split.avail->idx) - ring->split.avail_at);
	if (!there)
		return -EAGAIN;
	*head = vhost_load16(&ring->split.avail->ring[ring->split.avail_at % ring->num]);
	if (unlikely(there > ring->num || *head >= ring->num))
		return -EPROTO;
	ring->split.avail_at++;
	struct vhost_inflight *inflight = ring->inflight;
	if (inflight) {
		struct vhost_inflight_entry *entry = &inflight->entry[*head];
		entry->counter = ring->counter++;
		atomic_thread_fence(memory_order_release);
		entry->taken = 1;
	}
	crash_point("front_vhost.ring.taken");
	return 0;
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
		int error = vhost_ring_add(ring, chain, le64toh(desc.addr), le32toh(desc.len),
			le16toh(desc.flags) & VRING_DESC_F_WRITE);
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
	uint32_t count;
	const void *table = vhost_ring_table(ring, le64toh(desc->addr), le32toh(desc->len), &count);
	if (!table || le16toh(desc->flags) & VRING_DESC_F_NEXT)
		return -EPROTO;
	return add_table(ring, chain, table, count, 0);
}

static int split_read(struct vhost_ring *ring, uint16_t head, struct vhost_chain *chain)
{
	const volatile struct vring_desc *shared = &ring->split.desc[head];
	struct vring_desc desc = {shared->addr, shared->len, shared->flags, shared->next};
	if (le16toh(desc.flags) & VRING_DESC_F_INDIRECT)
		return add_indirect(ring, chain, &desc);
	return add_table(ring, chain, ring->split.desc, ring->num, head);
}

/* --- what goes ------------------------------------------------------------------- */

static void split_push(struct vhost_ring *ring, uint16_t head, uint32_t written)
{
	struct vring_used_elem *element = &ring->split.used->ring[ring->used_at % ring->num];
	element->id = htole32(head);
	element->len = htole32(written);
	mark_used(ring, element, sizeof(*element));
	struct vhost_inflight *inflight = ring->inflight;
	if (inflight) {
		inflight->entry[head].next = inflight->batch;
		atomic_thread_fence(memory_order_release);
		inflight->batch = head;
	}
	crash_point("front_vhost.ring.pushed");
}

static bool wants_call(struct vhost_ring *ring)
{
	uint16_t before = ring->split.called, now = ring->used_at;
	bool told = ring->told;
	atomic_thread_fence(memory_order_seq_cst);
	if (!ring->event_idx)
		return !(vhost_load16(&ring->split.avail->flags) & VRING_AVAIL_F_NO_INTERRUPT);
	ring->split.called = now;
	ring->told = true;
	return !told || vring_need_event(vhost_load16(used_event_of(ring)), now, before);
}

static bool split_publish(struct vhost_ring *ring)
{
	vhost_store16(&ring->split.used->idx, ring->used_at);
	mark_used(ring, &ring->split.used->idx, sizeof(ring->split.used->idx));
	crash_point("front_vhost.ring.published");
	if (ring->inflight)
		settle_batch(ring);
	return wants_call(ring);
}

/* With event indices the guest kicks once, for the one that was armed. */
static void split_disarm(struct vhost_ring *ring)
{
	if (!ring->event_idx)
		vhost_store16(&ring->split.used->flags, VRING_USED_F_NO_NOTIFY);
}

static bool split_arm(struct vhost_ring *ring)
{
	if (ring->event_idx)
		vhost_store16(avail_event_of(ring), ring->split.avail_at);
	else
		vhost_store16(&ring->split.used->flags, 0);
	atomic_thread_fence(memory_order_seq_cst);
	return vhost_load16(&ring->split.avail->idx) == ring->split.avail_at;
}

static uint32_t split_where(const struct vhost_ring *ring) { return ring->split.avail_at; }

static uint64_t split_notes_size(unsigned num)
{
	return sizeof(struct vhost_inflight) + (uint64_t)num * sizeof(struct vhost_inflight_entry);
}

static void split_notes_init(void *notes, uint16_t num)
{
	struct vhost_inflight *inflight = notes;
	inflight->version = VHOST_INFLIGHT_VERSION;
	inflight->num = num;
}

const struct vhost_layout vhost_split = {
	.map = split_map,
	.recover = split_recover,
	.next = split_next,
	.read = split_read,
	.push = split_push,
	.publish = split_publish,
	.disarm = split_disarm,
	.arm = split_arm,
	.where = split_where,
	.notes_size = split_notes_size,
	.notes_init = split_notes_init,
};
