/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine without a machine: the driver's side of vhost-user-blk, for tests and benches. It
 * has memory of its own, shared with the backend, and rings in it.
 *
 *   driver_open(&driver, &config)  connects, agrees, starts the rings
 *   driver_submit()                a request that driver_wait() or driver_poll() brings back
 *
 * Units: bytes, sectors of 512. Errors: 0 or -errno; -EPIPE: the backend has gone: then
 * driver_reconnect() goes on with what was in flight. Threads: one.
 */
#ifndef SKERRY_TESTS_VHOST_DRIVER_H
#define SKERRY_TESTS_VHOST_DRIVER_H

#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <stdbool.h>
#include <sys/uio.h>

#include "peers/front/vhost_ring.h"

#define DRIVER_QUEUES 4u
#define DRIVER_NUM 64u		    /* entries of a ring */
#define DRIVER_GUEST 0x10000000ull  /* where its memory lies, for the guest */
#define DRIVER_USER 0x7000000000ull /* and for the monitor: nowhere, so that nobody mixes them up */
#define DRIVER_TABLE 130u	    /* descriptors of an indirect table */

struct driver_config {
	const char *socket;
	unsigned queues;
	uint64_t memory;  /* bytes behind the rings */
	uint64_t without; /* features that are not asked for */
	bool no_inflight, no_protocol;
	bool packed;	/* rings */
	bool no_rounds; /* ... of a monitor that begins a new one at 0 */
	bool quiet;	/* nothing is started */
};

/* Chains are put together in `desc`, and copied from there if the ring is packed. */
struct driver_queue {
	struct vring_desc *desc;
	struct vring_avail *avail;
	struct vring_used *used;
	struct vring_desc *tables; /* DRIVER_TABLE of them for each head */
	struct virtio_blk_outhdr *header;
	uint8_t *status;
	uint16_t avail_at, used_at;
	uint16_t free[DRIVER_NUM], free_count;
	bool busy[DRIVER_NUM];
	struct {
		struct vring_packed_desc *desc, *tables;
		struct vring_packed_desc_event *driver, *device;
		struct vhost_packed_at avail, used;
		uint16_t slots[DRIVER_NUM]; /* that a head's chain takes */
	} packed;
	int kick, call, error;
	uint64_t kicks;
};

struct driver {
	struct driver_config config;
	int fd, memory_fd, inflight_fd, back;
	uint64_t inflight_size;
	uint8_t *memory, *data; /* all of it; what is free */
	uint64_t memory_size;
	uint64_t features, protocol;
	struct virtio_blk_config disk;
	struct driver_queue queue[DRIVER_QUEUES];
};

int driver_open(struct driver *driver, const struct driver_config *config);
/* The same memory and rings, over a new connection. Waits up to a minute for the backend. */
int driver_reconnect(struct driver *driver);
void driver_close(struct driver *driver);

/* One message. `fd` -1: none. With an answer: into *payload; its descriptor into *got (or NULL). */
int driver_tell(
	struct driver *driver, uint32_t request, const void *payload, uint32_t size, int fd);
int driver_ask(struct driver *driver, uint32_t request, union vhost_payload *payload, uint32_t size,
	int *got);
int driver_number(struct driver *driver, uint32_t request, uint64_t number);
int driver_get_config(struct driver *driver);
/* Stops a ring: the index that the backend would go on with. */
int driver_stop(struct driver *driver, unsigned index, uint32_t *base);
int driver_start(struct driver *driver, unsigned index, uint32_t base);
/* The ring is as new, as its machine was reset; the backend has stopped it. */
void driver_begin_again(struct driver *driver, unsigned index);
/* As if all that was offered had been answered. */
uint32_t driver_base(const struct driver *driver, unsigned index);
bool driver_is_packed(const struct driver *driver);

/* data: pieces in driver->data. -EAGAIN: no head is free. */
int driver_submit(struct driver *driver, unsigned index, uint32_t type, uint64_t sector,
	const struct iovec *data, unsigned pieces, uint16_t *head);
/* Descriptors by hand: the head's chain is whatever lies there. */
void driver_offer(struct driver *driver, unsigned index, uint16_t head);
void driver_kick(struct driver *driver, unsigned index);
/* Whatever the backend said, the next offer kicks. */
void driver_will_kick(struct driver *driver, unsigned index);
/* Looks once: 0 and a head, or -EAGAIN. Its status is in queue->status[head]. */
int driver_poll(struct driver *driver, unsigned index, uint16_t *head, uint32_t *length);
/* Sleeps until one is there; -ETIMEDOUT, -EPIPE. */
int driver_wait(
	struct driver *driver, unsigned index, uint16_t *head, uint32_t *length, int timeout_ms);
/* One request from end to end: a virtio status, or -errno. */
int driver_do(struct driver *driver, unsigned index, uint32_t type, uint64_t sector, void *data,
	uint64_t length);

/* The backend says that it serves the ring no more. */
bool driver_is_told(struct driver *driver, unsigned index);

uint64_t driver_guest(const struct driver *driver, const void *at);

#endif
