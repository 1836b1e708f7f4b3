/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtqueue in a guest's memory, from the device's side.
 *
 *   vhost_ring_next()  a head; vhost_ring_read()  what hangs on it
 *   vhost_ring_push()  ...  vhost_ring_publish()  what was pushed is the guest's; call it?
 *   vhost_ring_arm()   before sleeping: the guest is to kick
 *
 * A head is a number below the ring's, of a request until it is pushed. How the ring lies in memory
 * is its layout's: split (vhost_split.c), or packed (vhost_packed.c).
 *
 * The guest is not trusted: every index and every address is read once and checked.
 *
 * Units: bytes; entries. Errors: 0 or -errno; -EPROTO: the ring is not to be used any more.
 * Threads: one. Blocking: none. Source: virtio 1.2, sections 2.7 and 2.8.
 */
#ifndef SKERRY_FRONT_VHOST_RING_H
#define SKERRY_FRONT_VHOST_RING_H

#include <endian.h>
#include <linux/virtio_ring.h>
#include <sys/uio.h>

#include "peers/front/vhost_memory.h"

#define VHOST_RING_MAX 1024u
#define VHOST_SEGMENTS 126u /* of data in one request, as we tell the guest */
#define VHOST_IOV_MAX 160u  /* with header and status, some of them lying over two regions */

struct vhost_ring;

/* What a request reads, then what it writes. */
struct vhost_chain {
	struct iovec iov[VHOST_IOV_MAX];
	uint16_t count, readable; /* the first ones */
	uint64_t out_size, in_size;
};

/* As the functions of the same name below. */
struct vhost_layout {
	int (*map)(struct vhost_ring *ring);
	int (*recover)(struct vhost_ring *ring);
	int (*next)(struct vhost_ring *ring, uint16_t *head);
	int (*read)(struct vhost_ring *ring, uint16_t head, struct vhost_chain *chain);
	void (*push)(struct vhost_ring *ring, uint16_t head, uint32_t written);
	bool (*publish)(struct vhost_ring *ring);
	void (*disarm)(struct vhost_ring *ring);
	bool (*arm)(struct vhost_ring *ring);
	uint32_t (*where)(const struct vhost_ring *ring); /* its base, if it stopped here */
	void (*leave)(struct vhost_ring *ring);		  /* may be NULL */
	/* of what an in-flight region has of one ring; `init` finds it full of zeros */
	uint64_t (*notes_size)(unsigned num);
	void (*notes_init)(void *notes, uint16_t num);
};
extern const struct vhost_layout vhost_split, vhost_packed;

/* A place in a packed ring, and whose flags say that it is theirs: they turn over each round. */
struct vhost_packed_at {
	uint16_t slot;
	bool wrap;
};

struct vhost_ring {
	const struct vhost_layout *layout;
	struct vhost_memory *memory;
	uint16_t num;
	bool event_idx;
	/* as the monitor addresses them: descriptors, what the driver writes, what we write */
	uint64_t desc_user, avail_user, used_user, used_guest;
	bool log_used; /* changes of the used ring go to the log */
	uint32_t base; /* where it begins, as the monitor says it */
	/* free-running: heads that were pushed, and published */
	uint16_t used_at, published;
	bool told;	/* the guest may have asked not to be called for what it has not seen */
	void *inflight; /* ours in the in-flight region; may be NULL */
	void *own;	/* instead of it, for a layout that needs one */
	uint64_t counter;
	/* taken by a backend before us: heads in their order */
	uint16_t *again;
	uint16_t again_count, again_at;
	struct {
		struct vring_desc *desc; /* NULL: not mapped */
		struct vring_avail *avail;
		struct vring_used *used;
		uint16_t avail_at; /* the next head that we take */
		uint16_t called;   /* used_at when we looked last whether to call */
	} split;
	struct {
		struct vring_packed_desc *desc;			 /* NULL: not mapped */
		struct vring_packed_desc_event *driver, *device; /* who is to be called, kicked */
		struct vhost_packed_inflight *notes;
		struct vhost_packed_at avail; /* that we take next */
		struct vhost_packed_at used;  /* that we give back next */
		uint16_t since; /* slots given back since we looked last whether to call */
	} packed;
};

/* Looks up the addresses; -EFAULT. */
int vhost_ring_map(struct vhost_ring *ring);
/* It ends where it is: there it would begin. Nothing of it may be in flight. */
void vhost_ring_unmap(struct vhost_ring *ring);
/* Gives back what recovering took. */
void vhost_ring_fini(struct vhost_ring *ring);
/* Begins to serve: what the in-flight region says is done again. -ENOMEM, -EPROTO. */
int vhost_ring_recover(struct vhost_ring *ring);
/* -EAGAIN: nothing there. */
int vhost_ring_next(struct vhost_ring *ring, uint16_t *head);
int vhost_ring_read(struct vhost_ring *ring, uint16_t head, struct vhost_chain *chain);
void vhost_ring_push(struct vhost_ring *ring, uint16_t head, uint32_t written);
/* True: the guest wants to be called. */
bool vhost_ring_publish(struct vhost_ring *ring);
/* We look at it anyway: kicks are not needed. */
void vhost_ring_disarm(struct vhost_ring *ring);
/* False: something is there already. */
bool vhost_ring_arm(struct vhost_ring *ring);
/* It was unmapped, and the monitor has its base: what it says next is where it begins. */
void vhost_ring_leave(struct vhost_ring *ring);

/* Bytes that `queues` rings of `num` entries take in an in-flight region, and where one's lie. */
uint64_t vhost_ring_inflight_size(const struct vhost_layout *layout, unsigned queues, unsigned num);
uint64_t vhost_ring_inflight_offset(
	const struct vhost_layout *layout, unsigned index, unsigned num);

/* --- for layouts ------------------------------------------------------------------ */

/* Heads that are noted as taken, to be done again; `stride` bytes from entry to entry, each
   beginning as struct vhost_inflight_entry does. -ENOMEM. */
int vhost_ring_find_taken(struct vhost_ring *ring, const void *entries, size_t stride);
/* One descriptor more, which may lie over several regions; -EPROTO. */
int vhost_ring_add(struct vhost_ring *ring, struct vhost_chain *chain, uint64_t guest,
	uint32_t length, bool writable);
/* A table of `*count` descriptors that one refers to, or NULL. */
const void *vhost_ring_table(
	struct vhost_ring *ring, uint64_t guest, uint32_t size, uint32_t *count);

static inline bool vhost_ring_has_again(const struct vhost_ring *ring)
{
	return ring->again_at < ring->again_count;
}

/* Of what the guest writes, or reads, at the same time. */
static inline uint16_t vhost_load16(const __le16 *at)
{
	return le16toh(__atomic_load_n(at, __ATOMIC_ACQUIRE));
}

static inline void vhost_store16(__le16 *at, uint16_t value)
{
	__atomic_store_n(at, htole16(value), __ATOMIC_RELEASE);
}

#endif
