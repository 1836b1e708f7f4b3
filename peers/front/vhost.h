/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vhost-user front, private to its files. A connection is one device of one machine: a
 * virtio-blk disk, whose rings lie in the machine's memory.
 *
 *   socket -> message -> device: memory, rings              vhost_message.c
 *   ring -> request -> calls -> answers -> ring             vhost_request.c
 *
 * Requests of all its rings go over the lane that has accepted the device. A message that changes
 * memory or rings waits until nothing is in flight, and nothing more is taken meanwhile.
 *
 * Units: bytes, ns. Errors: 0 or -errno. Threads: a shard's lane; struct vhost_shared: all.
 */
#ifndef SKERRY_FRONT_VHOST_H
#define SKERRY_FRONT_VHOST_H

#include <base/sm.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>

#include "peers/front/front.h"
#include "peers/front/vhost_ring.h"

#define VHOST_ROOM "front_vhost"
#define VHOST_QUEUES_MAX 64u
#define VHOST_RANGES_MAX 16u	  /* of one DISCARD or WRITE_ZEROES, as we tell the guest */
#define VHOST_LOOK_NS 2000000000u /* between looks at the volume's size */
#define VHOST_WINDOW 16u	  /* calls in flight of one request */

struct event;
struct vhost;
struct vhost_device;
struct vhost_queue;

struct vhost_options {
	struct peer_list listen;
	char *volume;
	bool read_only;
	uint64_t queues, devices;
	char *socket_mode, *socket_group;
};

enum vhost_counter {
	VHOST_COUNT_READS,
	VHOST_COUNT_WRITES,
	VHOST_COUNT_FLUSHES,
	VHOST_COUNT_DISCARDS,
	VHOST_COUNT_ZEROES,
	VHOST_COUNT_OTHERS,
	VHOST_COUNT_REFUSED,
	VHOST_COUNT_AGAIN,
	VHOST_COUNT_BYTES_IN,
	VHOST_COUNT_BYTES_OUT,
	VHOST_COUNT_KICKS,
	VHOST_COUNT_CALLS,
	VHOST_COUNT_DEVICES,
	VHOST_COUNT_GONE,
	VHOST_COUNT_TURNED_AWAY,
	VHOST_COUNT_BROKEN,
	VHOST_COUNT_MESSAGES,
	VHOST_COUNT_WAITS,
	VHOST_COUNTERS
};

/* --- a request -------------------------------------------------------------------- */

struct vhost_range {
	uint64_t offset, length;
	uint32_t flags; /* VIRTIO_BLK_WRITE_ZEROES_FLAG_* */
};

struct vhost_request {
	struct vhost_queue *queue;
	uint16_t head;
	bool busy;
	uint32_t type; /* VIRTIO_BLK_T_* */
	uint32_t pending;
	uint32_t written; /* bytes that the guest may look at */
	uint64_t bytes;	  /* of data, as its volume's share counts them */
	int error;
	uint64_t begin, next, end; /* of the volume: the range under way */
	bool probed;		   /* the pipeline can do it */
	bool by_write;		   /* it cannot: zeros are written */
	uint8_t range_count, range_at;
	struct vhost_range range[VHOST_RANGES_MAX];
	struct vhost_chain chain;
};

/* --- a ring and its requests ------------------------------------------------------- */

struct vhost_queue {
	TAILQ_ENTRY(vhost_queue) link; /* vhost->active */
	struct vhost_device *device;
	struct vhost_ring ring;
	struct vhost_request *requests; /* by head */
	uint32_t inflight;
	uint32_t starved; /* requests that wait for pages or slots: no more are taken */
	int kick, call, error;
	bool kicked; /* a kick's descriptor was given, or its lack was */
	bool enabled;
	bool running; /* it is looked at */
	bool broken;  /* what was in it makes no sense */
	bool active;  /* on the list: looked at each turn */
	struct event *event;
};

/* --- a device --------------------------------------------------------------------- */

/*
 *   OPENING --opened--> SERVING --left, nonsense, stop--> ENDING --nothing in flight--> CLOSING
 *      `--cannot be opened-----------------------------------^                             |
 *                                                                          GONE <--closed--'
 */
enum vhost_state {
	VHOST_OPENING,
	VHOST_SERVING,
	VHOST_ENDING,
	VHOST_CLOSING,
	VHOST_GONE,
	VHOST_STATES
};

struct vhost_device {
	TAILQ_ENTRY(vhost_device) link;	       /* vhost->devices */
	TAILQ_ENTRY(vhost_device) region_link; /* shared->regions */
	struct vhost *vhost;
	uint8_t state;
	int fd, back; /* the socket; of our own messages, -1: none */
	struct event *event;
	bool asked;  /* OPEN or CLOSE is on its way */
	bool opened; /* to be closed */
	bool uses;   /* counted in vhost->volume */
	bool read_only;
	bool write_through; /* as the guest wants it */
	uint64_t volume, term, size;
	uint64_t features, protocol; /* agreed */
	/* the message that is coming in, or waits */
	struct vhost_header header;
	union vhost_payload payload;
	uint32_t got; /* bytes of both */
	int fds[VHOST_FDS_MAX];
	unsigned fd_count;
	bool held; /* it waits: until nothing is in flight */
	struct vhost_memory memory;
	uint32_t inflight; /* requests */
	void *region;	   /* the in-flight region */
	uint64_t region_size, region_device, region_inode;
	const struct vhost_layout *region_layout;
	uint16_t region_queues, region_num;
	unsigned queue_count;
	struct front_client_entry client;
	struct vhost_queue queue[];
};
TAILQ_HEAD(vhost_device_list, vhost_device);

struct vhost_shared {
	struct front_listeners listeners;
	struct front_clients clients;
	struct peer_list names; /* the volume, as a list */
	char *name;
	_Atomic uint32_t devices;
	pthread_mutex_t regions_lock;
	struct vhost_device_list regions; /* that use an in-flight region */
};

/* --- a shard ---------------------------------------------------------------------- */

struct vhost {
	struct peer *peer;
	const struct vhost_options *options;
	struct vhost_shared *shared;
	struct event_base *base;
	struct front_door door;
	struct front_log log;
	struct front_volumes volumes;
	struct front_volume volume; /* the one that there is, while devices have it open */
	struct front_share share;
	uint32_t inflight; /* requests of all devices, for its share */
	uint64_t bytes;
	struct vhost_device_list devices;
	TAILQ_HEAD(, vhost_queue) active;
	bool again; /* somebody has work: do not sleep */
	bool stopping, resizing;
	uint64_t sized_ns;
};

static inline struct vhost *vhost_of(const struct peer *peer) { return peer->state; }

/* Of its rings, as agreed. */
static inline const struct vhost_layout *vhost_layout_of(const struct vhost_device *device)
{
	return device->features & (1ull << VIRTIO_F_RING_PACKED) ? &vhost_packed : &vhost_split;
}

#define vhost_log(device, ...) \
	front_log(&(device)->vhost->log, (device)->vhost->peer, (device)->client.about.who, \
		__VA_ARGS__)

/* vhost_device.c */
/* fd is the device's from here on, also on error. */
void vhost_device_create(struct vhost *vhost, int fd);
/* Serves no more; `why` (may be NULL) goes to the log. */
void vhost_device_end(struct vhost_device *device, const char *why);
/* What waits for something to end goes on; true: something moved. */
bool vhost_device_turn(struct vhost_device *device);
bool vhost_device_busy(const struct peer *peer);
void vhost_device_dump(const struct vhost_device *device, FILE *out);
/* Has the volume another size now? */
void vhost_device_look(struct vhost *vhost);
void vhost_drop_fd(int *fd);

/* vhost_message.c */
/* The message that has come; 0: done. -EAGAIN: it waits. Else nonsense. */
int vhost_message_take(struct vhost_device *device);
/* The device's configuration has changed. */
void vhost_message_changed(struct vhost_device *device);

/* vhost_region.c: in-flight regions */
int vhost_region_make(struct vhost_device *device, unsigned queues, unsigned num, int *fd);
/* -EAGAIN: another connection's requests are not over yet. fd stays the caller's. */
int vhost_region_take(struct vhost_device *device, int fd, uint64_t size, uint64_t offset,
	unsigned queues, unsigned num);
void vhost_region_drop(struct vhost_device *device);
void *vhost_region_of(const struct vhost_device *device, unsigned index);

/* vhost_queue.c */
/* Runs if all is there that it needs. */
void vhost_queue_start(struct vhost_queue *queue);
/* Nothing of it may be in flight. */
void vhost_queue_stop(struct vhost_queue *queue);
/* Gives all back that it has. */
void vhost_queue_fini(struct vhost_queue *queue);
/* Its kick is the queue's from here on; -1: the guest will not kick. */
int vhost_queue_watch(struct vhost_queue *queue, int fd);
/* What has ended is the guest's, and it is called if it wants to be. */
void vhost_queue_publish(struct vhost_queue *queue);
/* A descriptor of the monitor's that will not block us. */
int vhost_queue_fd(int fd);
/* There is somebody new to call: what happened before may not have been heard. */
void vhost_queue_recall(struct vhost_queue *queue);
/* Looked at in each turn until the lane sleeps. */
void vhost_queue_wake(struct vhost_queue *queue);
bool vhost_queue_turn(struct vhost_queue *queue);
/* False: there is work. */
bool vhost_queue_sleep(struct vhost *vhost);

/* vhost_request.c */
/* What hangs on the head is done; -EPROTO. */
int vhost_request_begin(struct vhost_queue *queue, uint16_t head);

/* vhost_config.c */
void vhost_config_fill(const struct vhost_device *device, struct virtio_blk_config *config);
/* Writes to it: only `wce` can change. */
int vhost_config_set(
	struct vhost_device *device, uint32_t offset, uint32_t size, const uint8_t *bytes);
uint64_t vhost_features(const struct vhost_device *device);

#endif
