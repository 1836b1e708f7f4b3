/* SPDX-License-Identifier: Apache-2.0 */
/* A device: its socket, its volume, its life. */
#include <base/crash.h>
#include <base/log.h>
#include <base/pass.h>
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peers/front/vhost.h"

#define MESSAGES_MAX 64u /* of one device in a turn */

static const struct sm_state states[VHOST_STATES] = {
	[VHOST_OPENING] = {"opening", SM(VHOST_SERVING) | SM(VHOST_ENDING)},
	[VHOST_SERVING] = {"serving", SM(VHOST_ENDING)},
	[VHOST_ENDING] = {"ending", SM(VHOST_CLOSING)},
	[VHOST_CLOSING] = {"closing", SM(VHOST_GONE)},
	[VHOST_GONE] = {"gone", 0},
};

static void device_move(struct vhost_device *device, enum vhost_state to)
{
	sm_move(states, &device->state, to);
	device->vhost->again = true;
}

void vhost_drop_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void drop_fds(struct vhost_device *device)
{
	for (unsigned i = 0; i < device->fd_count; i++)
		vhost_drop_fd(&device->fds[i]);
	device->fd_count = 0;
}

/* --- the volume ------------------------------------------------------------------ */

static void device_ask(struct vhost_device *device, retry_f *ask)
{
	struct peer *peer = device->vhost->peer;
	if (!ask(peer, device))
		peer_retry(peer, ask, device);
}

/* The first of this shard brings it, the others must find the same. */
static int device_use(struct vhost_device *device, const struct xseg_volume_info *info)
{
	struct vhost *vhost = device->vhost;
	device->volume = info->id;
	device->opened = true; /* to be closed, whatever comes now */
	if (vhost->volume.users && vhost->volume.id != info->id)
		return -ESTALE;
	if (!vhost->volume.users)
		front_volume_add(&vhost->volumes, &vhost->volume, info->id);
	device->read_only |= (info->flags & XSEG_VOLUME_READ_ONLY) != 0;
	device->term = info->term;
	device->size = info->size;
	device->uses = true;
	front_volume_use(&vhost->volume, info->term, !device->read_only);
	return 0;
}

static void device_unuse(struct vhost_device *device)
{
	struct vhost *vhost = device->vhost;
	if (device->uses && front_volume_unuse(&vhost->volume, !device->read_only))
		vhost->volume = (struct front_volume){.term = 0};
}

static bool ask_open(struct peer *peer, void *context);

static void device_serve(struct vhost_device *device)
{
	struct vhost *vhost = device->vhost;
	struct front_client *about = &device->client.about;
	about->volume = device->volume;
	about->flags = device->read_only ? FRONT_CLIENT_READ_ONLY : 0;
	front_client_add(&vhost->shared->clients, &device->client);
	device_move(device, VHOST_SERVING);
	event_add(device->event, NULL);
}

static void device_opened(struct call *call)
{
	struct vhost_device *device = call->context;
	struct xseg_volume_info info;
	int error = front_volume_info(call, &info);
	call_end(call);
	device->asked = false;
	device->vhost->again = true;
	/* what nobody can write to is opened for reading */
	if ((error == -EROFS || error == -EPERM) && !device->read_only) {
		device->read_only = true;
		device_ask(device, ask_open);
		return;
	}
	if (!error)
		error = device_use(device, &info);
	if (error)
		vhost_log(device, "is turned away: volume '%s' cannot be opened: %s",
			device->vhost->options->volume, strerror(-error));
	if (error || device->vhost->stopping)
		vhost_device_end(device, NULL);
	else
		device_serve(device);
}

static bool ask_open(struct peer *peer, void *context)
{
	struct vhost_device *device = context;
	const struct front_open open = {
		.name = device->vhost->options->volume, .writes = !device->read_only};
	device->asked = !device->vhost->volumes.reopening &&
			front_volume_ask_open(peer, &open, device, device_opened);
	return device->asked;
}

static void device_closed(struct call *call)
{
	struct vhost_device *device = call->context;
	call_end(call);
	device->asked = false;
	device_move(device, VHOST_GONE);
}

static bool ask_close(struct peer *peer, void *context)
{
	struct vhost_device *device = context;
	device->asked = !device->vhost->volumes.reopening &&
			front_volume_ask_close(peer, device->volume, device, device_closed);
	return device->asked;
}

bool vhost_device_busy(const struct peer *peer)
{
	const struct vhost_device *device;
	TAILQ_FOREACH (device, &vhost_of(peer)->devices, link)
		if (device->asked)
			return true;
	return false;
}

/* --- its size -------------------------------------------------------------------- */

static void device_sized(struct call *call)
{
	struct vhost *vhost = vhost_of(call->peer);
	struct xseg_volume_info info;
	struct vhost_device *device;
	int error = front_volume_info(call, &info);
	call_end(call);
	vhost->resizing = false;
	TAILQ_FOREACH (device, &vhost->devices, link) {
		if (error || device->state != VHOST_SERVING || device->size == info.size ||
			device->volume != info.id)
			continue;
		device->size = info.size;
		vhost_message_changed(device);
	}
}

void vhost_device_look(struct vhost *vhost)
{
	uint64_t now = peer_now_ns(vhost->peer);
	struct call *call;
	if (now - vhost->sized_ns < VHOST_LOOK_NS || vhost->resizing || !vhost->volume.users)
		return;
	vhost->sized_ns = now;
	if (call_begin(vhost->peer, &call))
		return;
	call->op = XSEG_OP_INFO;
	if (call_pages(call, XSEG_PAGE)) {
		call_end(call);
		return;
	}
	call->key.volume = vhost->volume.id;
	vhost->resizing = true;
	call_submit(call, FRONT_EDGE_VOLUME, device_sized);
}

/* --- the socket ------------------------------------------------------------------ */

/* Bytes of the message that are still to come. */
static size_t missing(struct vhost_device *device, void **to)
{
	const uint32_t header = sizeof(device->header);
	if (device->got < header) {
		*to = (char *)&device->header + device->got;
		return header - device->got;
	}
	*to = (char *)&device->payload + (device->got - header);
	return header + device->header.size - device->got;
}

static bool header_is_sound(const struct vhost_device *device)
{
	return device->got < sizeof(device->header) ||
	       (device->header.size <= sizeof(device->payload) &&
		       (device->header.flags & VHOST_VERSION_MASK) == VHOST_VERSION);
}

/* 0: a whole message is there. -EAGAIN. */
static int receive_message(struct vhost_device *device)
{
	void *to;
	for (size_t size; (size = missing(device, &to)) > 0;) {
		ssize_t got = pass_receive(device->fd, to, size, device->fds, &device->fd_count,
			VHOST_FDS_MAX, MSG_DONTWAIT);
		if (got < 0)
			return errno == EINTR ? -EAGAIN : -errno;
		if (!got)
			return -ECONNRESET;
		device->got += (uint32_t)got;
		if (!header_is_sound(device))
			return -EPROTO;
	}
	return 0;
}

static void message_ends(struct vhost_device *device)
{
	drop_fds(device);
	device->got = 0;
	memset(&device->payload, 0, sizeof(device->payload));
}

/* 0, or -EAGAIN: it waits. */
static int handle_message(struct vhost_device *device)
{
	int error = vhost_message_take(device);
	device->held = error == -EAGAIN;
	if (device->held)
		return error;
	message_ends(device);
	if (error)
		vhost_device_end(device,
			error == -EPIPE ? "does not read what it has asked for" : "is cut off");
	return error;
}

static void device_readable(evutil_socket_t fd, short what, void *context)
{
	struct vhost_device *device = context;
	int error = 0;
	(void)fd;
	(void)what;
	device->vhost->again = true;
	for (unsigned i = 0; i < MESSAGES_MAX && !error && device->state == VHOST_SERVING; i++) {
		error = receive_message(device);
		if (!error) {
			peer_count(device->vhost->peer, VHOST_COUNT_MESSAGES, 1);
			error = handle_message(device);
		}
	}
	if (device->held)
		event_del(device->event);
	else if (error && error != -EAGAIN)
		vhost_device_end(device, error == -EPROTO ? "does not speak vhost-user" : NULL);
}

/* --- life ------------------------------------------------------------------------ */

void vhost_device_create(struct vhost *vhost, int fd)
{
	unsigned count = (unsigned)vhost->options->queues;
	struct vhost_device *device =
		calloc(1, sizeof(*device) + count * sizeof(struct vhost_queue));
	struct event *event =
		device ? event_new(vhost->base, fd, EV_READ | EV_PERSIST, device_readable, device)
		       : NULL;
	if (!event) {
		free(device);
		close(fd);
		return;
	}
	*device = (struct vhost_device){.vhost = vhost,
		.fd = fd,
		.back = -1,
		.event = event,
		.read_only = vhost->options->read_only,
		.queue_count = count};
	for (unsigned i = 0; i < count; i++) {
		struct vhost_queue *queue = &device->queue[i];
		queue->device = device;
		queue->kick = queue->call = queue->error = -1;
	}
	char who[FRONT_WHO_LENGTH];
	front_name_client(fd, who);
	snprintf(device->client.about.who, sizeof(device->client.about.who), "%s", who);
	TAILQ_INSERT_TAIL(&vhost->devices, device, link);
	atomic_fetch_add(&vhost->shared->devices, 1);
	peer_count(vhost->peer, VHOST_COUNT_DEVICES, 1);
	crash_point("front_vhost.device.accepted");
	device_ask(device, ask_open);
}

void vhost_device_end(struct vhost_device *device, const char *why)
{
	if (device->state != VHOST_OPENING && device->state != VHOST_SERVING)
		return;
	if (why)
		vhost_log(device, "%s", why);
	if (device->state == VHOST_SERVING)
		front_client_remove(&device->vhost->shared->clients, &device->client);
	device->held = false;
	event_del(device->event);
	device_move(device, VHOST_ENDING);
}

/* Nothing is in flight: all that the guest was owed has been given to it. */
static void device_leave(struct vhost_device *device)
{
	for (unsigned i = 0; i < device->queue_count; i++)
		vhost_queue_fini(&device->queue[i]);
	vhost_region_drop(device);
	vhost_memory_fini(&device->memory);
	message_ends(device);
	event_free(device->event);
	vhost_drop_fd(&device->fd);
	vhost_drop_fd(&device->back);
	if (!device->opened) {
		device_move(device, VHOST_CLOSING);
		device_move(device, VHOST_GONE);
		return;
	}
	device_unuse(device);
	device_move(device, VHOST_CLOSING);
	device_ask(device, ask_close);
}

static void device_free(struct vhost_device *device)
{
	struct vhost *vhost = device->vhost;
	TAILQ_REMOVE(&vhost->devices, device, link);
	atomic_fetch_sub(&vhost->shared->devices, 1);
	peer_count(vhost->peer, VHOST_COUNT_GONE, 1);
	free(device);
}

bool vhost_device_turn(struct vhost_device *device)
{
	if (unlikely(atomic_load(&device->memory.lost)) && device->state == VHOST_SERVING)
		vhost_device_end(device, "has cut off a file that it shares");
	if (device->held && !device->inflight && handle_message(device) != -EAGAIN) {
		if (device->state == VHOST_SERVING)
			event_add(device->event, NULL);
		return true;
	}
	if (device->state == VHOST_ENDING && !device->inflight && !device->asked &&
		!device->vhost->volumes.reopening) {
		device_leave(device);
		return true;
	}
	if (device->state != VHOST_GONE)
		return false;
	device_free(device);
	return true;
}

void vhost_device_dump(const struct vhost_device *device, FILE *out)
{
	fprintf(out, "  %s: %s, %u in flight%s, features %llx\n", device->client.about.who,
		states[device->state].name, device->inflight,
		device->held ? ", a message waits" : "", (unsigned long long)device->features);
	for (unsigned i = 0; i < device->queue_count; i++) {
		const struct vhost_queue *queue = &device->queue[i];
		if (queue->running)
			fprintf(out,
				"    ring %u of %u: taken to %u, given to %u, %u in flight%s\n", i,
				queue->ring.num, queue->ring.layout->where(&queue->ring),
				queue->ring.published, queue->inflight,
				queue->broken ? ", broken" : "");
	}
}
