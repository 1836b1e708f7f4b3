/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring that is served: begun, looked at, called, ended. While its lane is awake the ring is
 * looked at in each turn and the guest need not kick; before the lane sleeps it is armed.
 */
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <unistd.h>

#include "peers/front/vhost.h"

#define TAKE_MAX 64u	     /* of one ring in a turn */
#define BLIND_LOOK_NS 50000u /* a ring whose guest cannot kick */

/* --- waking ---------------------------------------------------------------------- */

static void queue_signal(int fd)
{
	const uint64_t one = 1;
	if (fd >= 0 && write(fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		return; /* the machine is about to go */
}

int vhost_queue_fd(int fd)
{
	if (fd >= 0)
		evutil_make_socket_nonblocking(fd);
	return fd;
}

void vhost_queue_wake(struct vhost_queue *queue)
{
	if (queue->active || !queue->running)
		return;
	queue->active = true;
	TAILQ_INSERT_TAIL(&queue->device->vhost->active, queue, link);
	vhost_ring_disarm(&queue->ring);
}

static void queue_rest(struct vhost_queue *queue)
{
	if (queue->active)
		TAILQ_REMOVE(&queue->device->vhost->active, queue, link);
	queue->active = false;
}

static void queue_kicked(evutil_socket_t fd, short what, void *context)
{
	struct vhost_queue *queue = context;
	uint64_t count;
	(void)what;
	if (read(fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		event_del(queue->event);
	peer_count(queue->device->vhost->peer, VHOST_COUNT_KICKS, 1);
	vhost_queue_wake(queue);
}

int vhost_queue_watch(struct vhost_queue *queue, int fd)
{
	if (queue->event)
		event_free(queue->event);
	queue->event = NULL;
	vhost_drop_fd(&queue->kick);
	queue->kick = vhost_queue_fd(fd);
	queue->kicked = true;
	if (fd < 0)
		return 0;
	queue->event = event_new(
		queue->device->vhost->base, fd, EV_READ | EV_PERSIST, queue_kicked, queue);
	return queue->event && !event_add(queue->event, NULL) ? 0 : -ENOMEM;
}

/* --- begin and end --------------------------------------------------------------- */

static void queue_break(struct vhost_queue *queue, const char *why)
{
	struct vhost_device *device = queue->device;
	vhost_log(device, "ring %u is not served any more: %s", (unsigned)(queue - device->queue),
		why);
	peer_count(device->vhost->peer, VHOST_COUNT_BROKEN, 1);
	queue->broken = true;
	queue_signal(queue->error);
}

void vhost_queue_start(struct vhost_queue *queue)
{
	struct vhost_device *device = queue->device;
	struct vhost_ring *ring = &queue->ring;
	if (queue->running || queue->broken || !queue->kicked || !queue->enabled || !ring->num ||
		!ring->desc_user || device->state != VHOST_SERVING)
		return;
	ring->layout = vhost_layout_of(device);
	ring->memory = &device->memory;
	ring->event_idx = device->features & (1ull << VIRTIO_RING_F_EVENT_IDX);
	ring->inflight = vhost_region_of(device, (unsigned)(queue - device->queue));
	free(queue->requests);
	queue->requests = calloc(ring->num, sizeof(*queue->requests));
	if (!queue->requests || vhost_ring_map(ring) || vhost_ring_recover(ring)) {
		queue_break(queue, "it does not lie in the machine's memory as it should");
		return;
	}
	peer_count(device->vhost->peer, VHOST_COUNT_AGAIN, ring->again_count);
	queue->running = true;
	vhost_queue_wake(queue);
	/* whoever was here before us may have been killed before it called */
	queue_signal(queue->call);
}

void vhost_queue_recall(struct vhost_queue *queue)
{
	if (queue->running)
		queue_signal(queue->call);
}

void vhost_queue_publish(struct vhost_queue *queue)
{
	if (!queue->running || !vhost_ring_publish(&queue->ring) || queue->call < 0)
		return;
	queue_signal(queue->call);
	peer_count(queue->device->vhost->peer, VHOST_COUNT_CALLS, 1);
}

void vhost_queue_stop(struct vhost_queue *queue)
{
	must(!queue->inflight);
	vhost_queue_publish(queue);
	queue_rest(queue);
	if (queue->running)
		vhost_ring_unmap(&queue->ring);
	queue->running = false;
}

void vhost_queue_fini(struct vhost_queue *queue)
{
	vhost_queue_stop(queue);
	if (queue->event)
		event_free(queue->event);
	queue->event = NULL;
	queue->kicked = queue->broken = false;
	vhost_drop_fd(&queue->kick);
	vhost_drop_fd(&queue->call);
	vhost_drop_fd(&queue->error);
	free(queue->requests);
	queue->requests = NULL;
	vhost_ring_fini(&queue->ring);
}

/* --- each turn ------------------------------------------------------------------- */

/*
 * Nothing is taken now, whatever is there; something else will end first. What a backend before us
 * had taken is done also while a message waits: whoever goes on with the ring would not see it.
 */
static bool queue_waits(const struct vhost_queue *queue)
{
	struct vhost_device *device = queue->device;
	struct vhost *vhost = device->vhost;
	return (device->held && !vhost_ring_has_again(&queue->ring)) ||
	       device->state != VHOST_SERVING || queue->starved || queue->broken ||
	       atomic_load(&device->memory.lost) ||
	       (vhost->inflight && !front_share_fits(&vhost->share, vhost->peer, vhost->inflight,
					   vhost->bytes));
}

static bool queue_take(struct vhost_queue *queue)
{
	uint16_t head;
	if (queue_waits(queue))
		return false;
	int error = vhost_ring_next(&queue->ring, &head);
	if (likely(!error) && unlikely(queue->requests[head].busy))
		error = -EPROTO;
	if (likely(!error))
		error = vhost_request_begin(queue, head);
	if (error && error != -EAGAIN)
		queue_break(queue, "what it says makes no sense");
	return !error;
}

bool vhost_queue_turn(struct vhost_queue *queue)
{
	unsigned taken = 0;
	while (taken < TAKE_MAX && queue_take(queue))
		taken++;
	bool moved = taken || queue->ring.used_at != queue->ring.published;
	vhost_queue_publish(queue);
	return moved;
}

bool vhost_queue_sleep(struct vhost *vhost)
{
	struct vhost_queue *queue, *next;
	for (queue = TAILQ_FIRST(&vhost->active); queue; queue = next) {
		next = TAILQ_NEXT(queue, link);
		if (queue_waits(queue))
			continue;
		if (!vhost_ring_arm(&queue->ring)) {
			vhost_ring_disarm(&queue->ring);
			return false;
		}
		if (queue->kick >= 0)
			queue_rest(queue);
		else
			peer_wake_at(vhost->peer, peer_now_ns(vhost->peer) + BLIND_LOOK_NS);
	}
	return true;
}
