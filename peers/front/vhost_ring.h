/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A split virtqueue in a guest's memory, from the device's side.
 *
 *   vhost_ring_next()  a head; vhost_ring_read()  what hangs on it
 *   vhost_ring_push()  ...  vhost_ring_publish()  what was pushed is the guest's; call it?
 *   vhost_ring_arm()   before sleeping: the guest is to kick
 *
 * The guest is not trusted: every index and every address is read once and checked.
 *
 * Units: bytes; entries. Errors: 0 or -errno; -EPROTO: the ring is not to be used any more.
 * Threads: one. Blocking: none. Source: virtio 1.2, sections 2.7 and 2.8.10.
 */
#ifndef SKERRY_FRONT_VHOST_RING_H
#define SKERRY_FRONT_VHOST_RING_H

#include <linux/virtio_ring.h>
#include <sys/uio.h>

#include "peers/front/vhost_memory.h"

#define VHOST_RING_MAX 1024u
#define VHOST_SEGMENTS 126u /* of data in one request, as we tell the guest */
#define VHOST_IOV_MAX 160u  /* with header and status, some of them lying over two regions */

struct vhost_ring {
	struct vhost_memory *memory;
	uint16_t num;
	bool event_idx;
	/* addresses as the monitor has them */
	uint64_t desc_user, avail_user, used_user, used_guest;
	bool log_used; /* changes of the used ring go to the log */
	/* ... and here; NULL: not known yet */
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	uint16_t avail_at; /* the next head that we take */
	uint16_t used_at;  /* the next place that we fill */
	uint16_t published;
	uint16_t called;		 /* the used index when we looked last whether to call */
	bool told;			 /* `called` says something */
	struct vhost_inflight *inflight; /* may be NULL */
	uint64_t counter;
	/* taken by a backend before us: heads in their order */
	uint16_t *again;
	uint16_t again_count, again_at;
};

/* What a request reads, then what it writes. */
struct vhost_chain {
	struct iovec iov[VHOST_IOV_MAX];
	uint16_t count, readable; /* the first ones */
	uint64_t out_size, in_size;
};

/* Looks up the addresses; -EFAULT. */
int vhost_ring_map(struct vhost_ring *ring);
void vhost_ring_unmap(struct vhost_ring *ring);
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

/* Bytes that `queues` rings of `num` entries take in an in-flight region, and where one's lie. */
uint64_t vhost_ring_inflight_size(unsigned queues, unsigned num);
uint64_t vhost_ring_inflight_offset(unsigned index, unsigned num);

#endif
