/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A packed virtqueue: one ring of descriptors, which the driver makes available and we mark as
 * used in place, in the order in which requests end. A descriptor's two flags say whose it is; what
 * they mean turns over with each round. Source: virtio 1.2, section 2.8; for the notes, "Inflight
 * I/O tracking" of the vhost-user protocol.
 *
 * Marking a request as used writes over descriptors of others, so all are copied as they are taken:
 * into the in-flight region, or, without one, into memory of our own of the same form. A head is
 * the number of a copy. Copies that are free are a list, which ends with a number that none has.
 *
 * One store makes a request taken (old_free_at), one makes it used (the descriptor's flags).
 * Whoever recovers knows from what lies around it whether it was made.
 */
#include <base/bits.h>
#include <base/crash.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "peers/front/vhost_ring.h"

#define F_AVAILABLE (1u << VRING_PACKED_DESC_F_AVAIL)
#define F_USED (1u << VRING_PACKED_DESC_F_USED)

/* What its flags say in a round. */
static bool is_available(uint16_t flags, bool wrap)
{
	return !(flags & F_AVAILABLE) == !wrap && !(flags & F_USED) == wrap;
}

static uint16_t used_flags(bool wrap) { return wrap ? F_AVAILABLE | F_USED : 0; }

static bool is_used(uint16_t flags, bool wrap)
{
	return (flags & (F_AVAILABLE | F_USED)) == used_flags(wrap);
}

static struct vhost_packed_at go_on(
	const struct vhost_ring *ring, struct vhost_packed_at at, uint16_t by)
{
	uint32_t slot = (uint32_t)at.slot + by;
	bool over = slot >= ring->num;
	return (struct vhost_packed_at){(uint16_t)(over ? slot - ring->num : slot), at.wrap ^ over};
}

/* --- where it lies --------------------------------------------------------------- */

static int packed_map(struct vhost_ring *ring)
{
	const struct vhost_memory *memory = ring->memory;
	ring->packed.desc = vhost_memory_user(
		memory, ring->desc_user, ring->num * sizeof(struct vring_packed_desc));
	ring->packed.driver =
		vhost_memory_user(memory, ring->avail_user, sizeof(struct vring_packed_desc_event));
	ring->packed.device =
		vhost_memory_user(memory, ring->used_user, sizeof(struct vring_packed_desc_event));
	bool aligned = ((uintptr_t)ring->packed.desc % 16 | (uintptr_t)ring->packed.driver % 4 |
			       (uintptr_t)ring->packed.device % 4) == 0;
	return ring->packed.desc && ring->packed.driver && ring->packed.device && aligned ? 0
											  : -EFAULT;
}

/* --- what was in flight ---------------------------------------------------------- */

static uint64_t packed_notes_size(unsigned num)
{
	return sizeof(struct vhost_packed_inflight) +
	       (uint64_t)num * sizeof(struct vhost_packed_entry);
}

static void packed_notes_init(void *memory, uint16_t num)
{
	struct vhost_packed_inflight *notes = memory;
	notes->version = VHOST_INFLIGHT_VERSION;
	notes->num = num;
	notes->used_wrap = notes->old_used_wrap = notes->by_base = 1;
	for (uint16_t i = 0; i < num; i++)
		notes->entry[i].next = (uint16_t)(i + 1);
}

static void note_settled(struct vhost_packed_inflight *notes)
{
	notes->old_free_at = notes->free_at;
	notes->old_used_wrap = notes->used_wrap;
	notes->old_used_at = notes->used_at;
}

/* Whoever was killed while it marked one as used has done it, or it has not. */
static void finish_push(struct vhost_ring *ring, struct vhost_packed_inflight *notes)
{
	bool moved =
		notes->used_at != notes->old_used_at || notes->used_wrap != notes->old_used_wrap;
	uint16_t flags = vhost_load16(&ring->packed.desc[notes->old_used_at % ring->num].flags);
	if (moved && is_used(flags, notes->old_used_wrap)) {
		note_settled(notes);
		return;
	}
	notes->free_at = notes->old_free_at;
	notes->used_at = notes->old_used_at;
	notes->used_wrap = notes->old_used_wrap;
}

/* Copies that are linked from `at` on, `most` of them; how many, or 0 if one is seen twice. */
static uint16_t mark_seen(const struct vhost_ring *ring, const struct vhost_packed_inflight *notes,
	bool *seen, uint16_t at, uint16_t most)
{
	uint16_t count = 0;
	for (; count < most && at < ring->num; at = notes->entry[at].next, count++) {
		if (seen[at])
			return 0;
		seen[at] = true;
	}
	return count;
}

/* Each copy is free, or of one request. -EPROTO: they are not. *slots: of all requests. */
static int check_notes(
	struct vhost_ring *ring, struct vhost_packed_inflight *notes, bool *seen, uint16_t *slots)
{
	uint16_t count = mark_seen(ring, notes, seen, notes->free_at, ring->num);
	if (notes->free_at < ring->num && !count)
		return -EPROTO;
	for (uint16_t i = 0; i < ring->num; i++)
		if (seen[i])
			notes->entry[i].taken = 0;
	int error = vhost_ring_find_taken(ring, notes->entry, sizeof(*notes->entry));
	*slots = 0;
	for (uint16_t i = 0; !error && i < ring->again_count; i++) {
		const struct vhost_packed_entry *first = &notes->entry[ring->again[i]];
		uint16_t found = mark_seen(ring, notes, seen, ring->again[i], first->num);
		if (!found || found != first->num)
			return -EPROTO;
		*slots = (uint16_t)(*slots + found);
	}
	return error ? error : count + *slots == ring->num ? 0 : -EPROTO;
}

/*
 * A driver's first round is that of flags that are set, so a monitor begins with 1 << 15 | 1 << 31.
 * One that knows nothing of rounds (User-Mode Linux) says 0, which is also where a ring may stop.
 * But then it has been through a round, and somebody has used a descriptor in it.
 */
static bool is_new(const struct vhost_ring *ring)
{
	for (uint16_t i = 0; i < ring->num; i++)
		if (vhost_load16(&ring->packed.desc[i].flags) & F_USED)
			return false;
	return true;
}

static int begin_at_base(struct vhost_ring *ring, struct vhost_packed_inflight *notes)
{
	uint32_t base = !ring->base && is_new(ring) ? 1u << 31 | 1u << 15 : ring->base;
	uint16_t avail = (uint16_t)base, used = (uint16_t)(base >> 16);
	ring->packed.avail = (struct vhost_packed_at){avail & INT16_MAX, avail >> 15};
	ring->packed.used = (struct vhost_packed_at){used & INT16_MAX, used >> 15};
	if (ring->packed.avail.slot >= ring->num || ring->packed.used.slot >= ring->num)
		return -EPROTO;
	notes->used_at = ring->packed.used.slot;
	notes->used_wrap = ring->packed.used.wrap;
	note_settled(notes);
	return 0;
}

static int packed_notes_of(struct vhost_ring *ring)
{
	if (ring->inflight) {
		ring->packed.notes = ring->inflight;
		return 0;
	}
	free(ring->own);
	ring->own = calloc(1, packed_notes_size(ring->num));
	ring->packed.notes = ring->own;
	if (!ring->own)
		return -ENOMEM;
	packed_notes_init(ring->own, ring->num);
	return 0;
}

static int packed_recover(struct vhost_ring *ring)
{
	uint16_t slots;
	int error = packed_notes_of(ring);
	if (error)
		return error;
	struct vhost_packed_inflight *notes = ring->packed.notes;
	if (notes->version != VHOST_INFLIGHT_VERSION || notes->num != ring->num)
		return -EPROTO;
	ring->used_at = ring->published = ring->packed.since = 0;
	finish_push(ring, notes);
	bool *seen = calloc(ring->num, sizeof(*seen));
	error = seen ? check_notes(ring, notes, seen, &slots) : -ENOMEM;
	free(seen);
	if (error)
		return error;
	if (notes->by_base && !ring->again_count) {
		error = begin_at_base(ring, notes);
	} else {
		ring->packed.used =
			(struct vhost_packed_at){notes->used_at % ring->num, notes->used_wrap & 1};
		ring->packed.avail = go_on(ring, ring->packed.used, slots);
	}
	if (!error)
		notes->by_base = 0;
	return error;
}

/* --- what comes ------------------------------------------------------------------ */

/* Copies what begins at `at`; -EPROTO: it is more than there can be. */
static int copy_chain(struct vhost_ring *ring, struct vhost_packed_at *at, uint16_t *entry,
	struct vhost_packed_entry *first)
{
	struct vhost_packed_inflight *notes = ring->packed.notes;
	uint16_t flags = VRING_DESC_F_NEXT;
	for (first->num = 0; flags & VRING_DESC_F_NEXT; first->num++) {
		const volatile struct vring_packed_desc *desc = &ring->packed.desc[at->slot];
		if (*entry >= ring->num || first->num >= ring->num)
			return -EPROTO;
		struct vhost_packed_entry *copy = &notes->entry[*entry];
		flags = le16toh(desc->flags);
		copy->addr = le64toh(desc->addr);
		copy->len = le32toh(desc->len);
		copy->id = le16toh(desc->id);
		copy->flags = flags;
		first->last = *entry;
		*entry = copy->next;
		*at = go_on(ring, *at, 1);
	}
	return 0;
}

static int packed_next(struct vhost_ring *ring, uint16_t *head)
{
	struct vhost_packed_inflight *notes = ring->packed.notes;
	struct vhost_packed_at at = ring->packed.avail;
	uint16_t entry = notes->free_at;
	if (!is_available(vhost_load16(&ring->packed.desc[at.slot].flags), at.wrap))
		return -EAGAIN;
	*head = entry;
	if (unlikely(entry >= ring->num))
		return -EPROTO;
	struct vhost_packed_entry *first = &notes->entry[entry];
	if (unlikely(copy_chain(ring, &at, &entry, first)))
		return -EPROTO;
	first->counter = ring->counter++;
	atomic_thread_fence(memory_order_release);
	first->taken = 1;
	crash_point("front_vhost.packed.copied");
	notes->free_at = entry;
	atomic_thread_fence(memory_order_release);
	notes->old_free_at = entry;
	ring->packed.avail = at;
	crash_point("front_vhost.packed.taken");
	return 0;
}

static int add_indirect(
	struct vhost_ring *ring, struct vhost_chain *chain, const struct vhost_packed_entry *entry)
{
	uint32_t count;
	const volatile struct vring_packed_desc *table =
		vhost_ring_table(ring, entry->addr, entry->len, &count);
	if (!table)
		return -EPROTO;
	for (uint32_t i = 0; i < count; i++) {
		uint16_t flags = le16toh(table[i].flags);
		if (flags & VRING_DESC_F_INDIRECT ||
			vhost_ring_add(ring, chain, le64toh(table[i].addr), le32toh(table[i].len),
				flags & VRING_DESC_F_WRITE))
			return -EPROTO;
	}
	return 0;
}

static int packed_read(struct vhost_ring *ring, uint16_t head, struct vhost_chain *chain)
{
	const struct vhost_packed_entry *entry = &ring->packed.notes->entry[head];
	uint16_t count = entry->num;
	if (count == 1 && entry->flags & VRING_DESC_F_INDIRECT)
		return add_indirect(ring, chain, entry);
	for (uint16_t i = 0; i < count && i < ring->num; i++) {
		if (entry->flags & VRING_DESC_F_INDIRECT ||
			vhost_ring_add(ring, chain, entry->addr, entry->len,
				entry->flags & VRING_DESC_F_WRITE))
			return -EPROTO;
		entry = &ring->packed.notes->entry[entry->next % ring->num];
	}
	return 0;
}

/* --- what goes ------------------------------------------------------------------- */

static void packed_push(struct vhost_ring *ring, uint16_t head, uint32_t written)
{
	struct vhost_packed_inflight *notes = ring->packed.notes;
	struct vhost_packed_entry *first = &notes->entry[head];
	/* a monitor may have written there; what is its own then breaks, and nothing else */
	uint16_t last = first->last % ring->num;
	uint16_t count = first->num < ring->num ? first->num : ring->num;
	struct vhost_packed_at at = ring->packed.used, next = go_on(ring, at, count);
	struct vring_packed_desc *desc = &ring->packed.desc[at.slot];
	desc->id = htole16(notes->entry[last].id);
	desc->len = htole32(written);
	notes->entry[last].next = notes->free_at;
	notes->free_at = head;
	notes->used_at = next.slot;
	notes->used_wrap = next.wrap;
	crash_point("front_vhost.packed.noted");
	vhost_store16(&desc->flags, used_flags(at.wrap) | VRING_DESC_F_WRITE);
	if (ring->log_used)
		vhost_memory_mark_host(ring->memory, desc, sizeof(*desc));
	crash_point("front_vhost.packed.pushed");
	first->taken = 0;
	atomic_thread_fence(memory_order_release);
	note_settled(notes);
	ring->packed.used = next;
	ring->packed.since = (uint16_t)(ring->packed.since + count);
}

/* What was pushed is the guest's already. */
static bool packed_publish(struct vhost_ring *ring)
{
	const struct vring_packed_desc_event *driver = ring->packed.driver;
	uint16_t since = ring->packed.since, now = ring->packed.used.slot;
	ring->packed.since = 0;
	atomic_thread_fence(memory_order_seq_cst);
	uint16_t flags = vhost_load16(&driver->flags);
	if (!ring->event_idx || flags != VRING_PACKED_EVENT_FLAG_DESC)
		return flags != VRING_PACKED_EVENT_FLAG_DISABLE;
	uint16_t wanted = vhost_load16(&driver->off_wrap);
	uint16_t slot = wanted & INT16_MAX;
	if (wanted >> VRING_PACKED_EVENT_F_WRAP_CTR != ring->packed.used.wrap)
		slot = (uint16_t)(slot - ring->num); /* of the round before */
	return since >= ring->num || vring_need_event(slot, now, (uint16_t)(now - since));
}

static void packed_disarm(struct vhost_ring *ring)
{
	vhost_store16(&ring->packed.device->flags, VRING_PACKED_EVENT_FLAG_DISABLE);
}

static bool packed_arm(struct vhost_ring *ring)
{
	struct vring_packed_desc_event *device = ring->packed.device;
	struct vhost_packed_at at = ring->packed.avail;
	vhost_store16(
		&device->off_wrap, (uint16_t)(at.slot | at.wrap << VRING_PACKED_EVENT_F_WRAP_CTR));
	vhost_store16(&device->flags,
		ring->event_idx ? VRING_PACKED_EVENT_FLAG_DESC : VRING_PACKED_EVENT_FLAG_ENABLE);
	atomic_thread_fence(memory_order_seq_cst);
	return !is_available(vhost_load16(&ring->packed.desc[at.slot].flags), at.wrap);
}

static uint32_t packed_where(const struct vhost_ring *ring)
{
	struct vhost_packed_at avail = ring->packed.avail, used = ring->packed.used;
	return avail.slot | (uint32_t)avail.wrap << 15 | (uint32_t)used.slot << 16 |
	       (uint32_t)used.wrap << 31;
}

/* Who is killed leaves notes that are right, and a monitor that does not know where it was. */
static void packed_leave(struct vhost_ring *ring)
{
	struct vhost_packed_inflight *notes = ring->inflight;
	if (notes)
		notes->by_base = 1;
}

const struct vhost_layout vhost_packed = {
	.map = packed_map,
	.recover = packed_recover,
	.next = packed_next,
	.read = packed_read,
	.push = packed_push,
	.publish = packed_publish,
	.disarm = packed_disarm,
	.arm = packed_arm,
	.where = packed_where,
	.leave = packed_leave,
	.notes_size = packed_notes_size,
	.notes_init = packed_notes_init,
};
