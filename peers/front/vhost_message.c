/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine's monitor says, message by message. */
#include <base/pass.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peers/front/vhost.h"

#define BIT(number) (1ull << (number))
#define PROTOCOL \
	(BIT(VHOST_PROTOCOL_MQ) | BIT(VHOST_PROTOCOL_LOG_SHMFD) | BIT(VHOST_PROTOCOL_REPLY_ACK) | \
		BIT(VHOST_PROTOCOL_BACKEND_REQ) | BIT(VHOST_PROTOCOL_CONFIG) | \
		BIT(VHOST_PROTOCOL_INFLIGHT_SHMFD) | BIT(VHOST_PROTOCOL_RESET_DEVICE) | \
		BIT(VHOST_PROTOCOL_CONFIGURE_MEM_SLOTS))

/* What a handler says beside 0 and -errno: it has answered. */
#define ANSWERED 1

/* --- answers --------------------------------------------------------------------- */

static int send_message(int socket, const struct vhost_header *header, const void *payload, int fd)
{
	struct iovec iov[2] = {{(void *)header, sizeof(*header)}, {(void *)payload, header->size}};
	ssize_t sent = pass_send(socket, iov, 2, fd, MSG_DONTWAIT);
	return sent == (ssize_t)(sizeof(*header) + header->size) ? 0 : -EPIPE;
}

/* With the first `size` bytes of the payload. */
static int answer_with(struct vhost_device *device, uint32_t size, int fd)
{
	const struct vhost_header header = {
		device->header.request, VHOST_VERSION | VHOST_REPLY, size};
	int error = send_message(device->fd, &header, &device->payload, fd);
	return error ? error : ANSWERED;
}

static int answer_number(struct vhost_device *device, uint64_t number)
{
	device->payload.number = number;
	return answer_with(device, sizeof(number), -1);
}

void vhost_message_changed(struct vhost_device *device)
{
	const struct vhost_header header = {VHOST_BACKEND_CONFIG_CHANGE, VHOST_VERSION, 0};
	if (device->back >= 0 && send_message(device->back, &header, "", -1))
		vhost_log(device, "does not take the news of the volume's size");
}

/* The first descriptor that came with the message is its handler's now; -1: there is none. */
static int take_fd(struct vhost_device *device)
{
	int fd = device->fd_count ? device->fds[0] : -1;
	if (device->fd_count)
		device->fds[0] = -1;
	return fd;
}

static struct vhost_queue *queue_at(struct vhost_device *device, uint64_t index)
{
	return index < device->queue_count ? &device->queue[index] : NULL;
}

static struct vhost_queue *queue_of_ring(struct vhost_device *device)
{
	return queue_at(device, device->payload.ring.index);
}

/* --- features -------------------------------------------------------------------- */

static int get_features(struct vhost_device *device)
{
	return answer_number(device, vhost_features(device));
}

static int set_features(struct vhost_device *device)
{
	uint64_t features = device->payload.number;
	if (features & ~vhost_features(device))
		return -EINVAL;
	device->features = features;
	device->memory.logging = features & BIT(VHOST_F_LOG_ALL);
	/* who knows no protocol features enables no ring either */
	if (!(features & BIT(VHOST_F_PROTOCOL_FEATURES)))
		for (unsigned i = 0; i < device->queue_count; i++)
			device->queue[i].enabled = true;
	return 0;
}

static int get_protocol(struct vhost_device *device) { return answer_number(device, PROTOCOL); }

static int set_protocol(struct vhost_device *device)
{
	if (device->payload.number & ~PROTOCOL)
		return -EINVAL;
	device->protocol = device->payload.number;
	return 0;
}

static int get_queue_num(struct vhost_device *device)
{
	return answer_number(device, device->queue_count);
}

/* An owner is whoever is connected; who has a log looks at it by himself. */
static int do_nothing(struct vhost_device *device)
{
	(void)device;
	return 0;
}

static int reset_device(struct vhost_device *device)
{
	for (unsigned i = 0; i < device->queue_count; i++) {
		struct vhost_queue *queue = &device->queue[i];
		vhost_queue_fini(queue);
		queue->enabled = !(device->features & BIT(VHOST_F_PROTOCOL_FEATURES));
	}
	vhost_region_drop(device);
	return 0;
}

/* --- memory ---------------------------------------------------------------------- */

/* Rings lie elsewhere now, or not at all. */
static int rings_again(struct vhost_device *device)
{
	int error = 0;
	for (unsigned i = 0; i < device->queue_count; i++)
		if (device->queue[i].running && vhost_ring_map(&device->queue[i].ring)) {
			vhost_queue_stop(&device->queue[i]);
			error = -EFAULT;
		}
	return error;
}

static int set_mem_table(struct vhost_device *device)
{
	uint32_t count = device->payload.table.count;
	int error = 0;
	if (count > VHOST_TABLE_MAX || count != device->fd_count ||
		device->header.size < 8 + count * sizeof(struct vhost_wire_region))
		return -EINVAL;
	vhost_memory_clear(&device->memory);
	for (uint32_t i = 0; i < count && !error; i++)
		error = vhost_memory_add(
			&device->memory, &device->payload.table.region[i], device->fds[i]);
	int lost = rings_again(device);
	return error ? error : lost;
}

static int get_slots(struct vhost_device *device)
{
	return answer_number(device, VHOST_REGIONS_MAX);
}

static int add_region(struct vhost_device *device)
{
	return device->fd_count == 1 ? vhost_memory_add(&device->memory,
					       &device->payload.slot.region, device->fds[0])
				     : -EINVAL;
}

static int remove_region(struct vhost_device *device)
{
	int error = vhost_memory_remove(&device->memory, &device->payload.slot.region);
	int lost = rings_again(device);
	return error ? error : lost;
}

static int set_log_base(struct vhost_device *device)
{
	int error = device->fd_count
			    ? vhost_memory_set_log(&device->memory, device->payload.log.size,
				      device->payload.log.offset, device->fds[0])
			    : -EINVAL;
	return error ? error : answer_number(device, 0);
}

/* --- rings ----------------------------------------------------------------------- */

static int set_num(struct vhost_device *device)
{
	struct vhost_queue *queue = queue_of_ring(device);
	uint32_t num = device->payload.ring.number;
	if (!queue || queue->running || !num || num > VHOST_RING_MAX || num & (num - 1))
		return -EINVAL;
	queue->ring.num = (uint16_t)num;
	return 0;
}

static int set_address(struct vhost_device *device)
{
	struct vhost_queue *queue = queue_at(device, device->payload.address.index);
	if (!queue)
		return -EINVAL;
	struct vhost_ring *ring = &queue->ring;
	ring->desc_user = device->payload.address.desc;
	ring->avail_user = device->payload.address.avail;
	ring->used_user = device->payload.address.used;
	ring->used_guest = device->payload.address.log;
	ring->log_used = device->payload.address.flags & 1;
	return queue->running ? rings_again(device) : 0;
}

static int set_base(struct vhost_device *device)
{
	struct vhost_queue *queue = queue_of_ring(device);
	bool packed =
		vhost_layout_of(device) == &vhost_packed; /* two places, each with its round */
	if (!queue || queue->running || (!packed && device->payload.ring.number > UINT16_MAX))
		return -EINVAL;
	queue->ring.base = device->payload.ring.number;
	return 0;
}

/* The ring stops; whoever goes on with it begins where we end. */
static int get_base(struct vhost_device *device)
{
	struct vhost_queue *queue = queue_of_ring(device);
	if (!queue)
		return -EINVAL;
	vhost_queue_stop(queue);
	queue->ring.layout = vhost_layout_of(device);
	queue->ring.inflight = vhost_region_of(device, (unsigned)(queue - device->queue));
	vhost_ring_leave(&queue->ring);
	device->payload.ring.number = queue->ring.base;
	vhost_queue_watch(queue, -1);
	vhost_drop_fd(&queue->call);
	queue->kicked = queue->broken = false;
	return answer_with(device, sizeof(device->payload.ring), -1);
}

static int take_ring_fd(struct vhost_device *device, struct vhost_queue **queue, int *fd)
{
	bool none = device->payload.number & VHOST_NO_FD;
	*queue = queue_at(device, device->payload.number & VHOST_INDEX_MASK);
	if (!*queue || none == (device->fd_count != 0))
		return -EINVAL;
	*fd = take_fd(device);
	return 0;
}

static int set_kick(struct vhost_device *device)
{
	struct vhost_queue *queue;
	int fd, error = take_ring_fd(device, &queue, &fd);
	if (!error)
		error = vhost_queue_watch(queue, fd);
	if (!error)
		vhost_queue_start(queue);
	return error;
}

static int set_call(struct vhost_device *device)
{
	struct vhost_queue *queue;
	int fd, error = take_ring_fd(device, &queue, &fd);
	if (error)
		return error;
	vhost_drop_fd(&queue->call);
	queue->call = vhost_queue_fd(fd);
	vhost_queue_recall(queue);
	return 0;
}

static int set_error(struct vhost_device *device)
{
	struct vhost_queue *queue;
	int fd, error = take_ring_fd(device, &queue, &fd);
	if (error)
		return error;
	vhost_drop_fd(&queue->error);
	queue->error = vhost_queue_fd(fd);
	return 0;
}

static int set_enable(struct vhost_device *device)
{
	struct vhost_queue *queue = queue_of_ring(device);
	if (!queue || device->payload.ring.number > 1)
		return -EINVAL;
	queue->enabled = device->payload.ring.number;
	if (queue->enabled)
		vhost_queue_start(queue);
	else
		vhost_queue_stop(queue);
	return 0;
}

/* --- the rest -------------------------------------------------------------------- */

static int set_back(struct vhost_device *device)
{
	if (device->fd_count != 1)
		return -EINVAL;
	vhost_drop_fd(&device->back);
	device->back = take_fd(device);
	return 0;
}

static int get_config(struct vhost_device *device)
{
	struct virtio_blk_config config;
	uint32_t offset = device->payload.config.offset, size = device->payload.config.size;
	if (size > VHOST_CONFIG_MAX || device->header.size != VHOST_CONFIG_HEADER + size)
		return -EINVAL;
	vhost_config_fill(device, &config);
	memset(device->payload.config.bytes, 0, size);
	if (offset < sizeof(config))
		memcpy(device->payload.config.bytes, (const char *)&config + offset,
			size < sizeof(config) - offset ? size : sizeof(config) - offset);
	return answer_with(device, device->header.size, -1);
}

static int set_config(struct vhost_device *device)
{
	uint32_t size = device->payload.config.size;
	if (size > VHOST_CONFIG_MAX || device->header.size != VHOST_CONFIG_HEADER + size)
		return -EINVAL;
	return vhost_config_set(
		device, device->payload.config.offset, size, device->payload.config.bytes);
}

static int get_inflight(struct vhost_device *device)
{
	unsigned queues = device->payload.inflight.queues;
	unsigned num = device->payload.inflight.queue_size;
	int fd = -1, error = vhost_region_make(device, queues, num, &fd);
	if (error)
		return error;
	device->payload.inflight.size =
		vhost_ring_inflight_size(vhost_layout_of(device), queues, num);
	device->payload.inflight.offset = 0;
	int rc = answer_with(device,
		device->header.size < VHOST_INFLIGHT_SIZE_PADDED ? VHOST_INFLIGHT_SIZE
								 : VHOST_INFLIGHT_SIZE_PADDED,
		fd);
	vhost_drop_fd(&fd);
	return rc;
}

static int set_inflight(struct vhost_device *device)
{
	if (device->fd_count != 1)
		return -EINVAL;
	for (unsigned i = 0; i < device->queue_count; i++)
		if (device->queue[i].running)
			return -EBUSY; /* it notes in the one that it has */
	return vhost_region_take(device, device->fds[0], device->payload.inflight.size,
		device->payload.inflight.offset, device->payload.inflight.queues,
		device->payload.inflight.queue_size);
}

/* --- which is which -------------------------------------------------------------- */

static const struct kind {
	const char *name;
	int (*handle)(struct vhost_device *device);
	uint32_t size; /* its payload has at least so much */
	bool quiet;    /* nothing may be in flight */
} kinds[VHOST_CODES] = {
	[VHOST_GET_FEATURES] = {"GET_FEATURES", get_features, 0, false},
	[VHOST_SET_FEATURES] = {"SET_FEATURES", set_features, 8, false},
	[VHOST_SET_OWNER] = {"SET_OWNER", do_nothing, 0, false},
	[VHOST_RESET_OWNER] = {"RESET_OWNER", reset_device, 0, true},
	[VHOST_SET_MEM_TABLE] = {"SET_MEM_TABLE", set_mem_table, 8, true},
	[VHOST_SET_LOG_BASE] = {"SET_LOG_BASE", set_log_base, 16, true},
	[VHOST_SET_LOG_FD] = {"SET_LOG_FD", do_nothing, 0, false},
	[VHOST_SET_VRING_NUM] = {"SET_VRING_NUM", set_num, 8, true},
	[VHOST_SET_VRING_ADDR] = {"SET_VRING_ADDR", set_address, 40, true},
	[VHOST_SET_VRING_BASE] = {"SET_VRING_BASE", set_base, 8, true},
	[VHOST_GET_VRING_BASE] = {"GET_VRING_BASE", get_base, 8, true},
	[VHOST_SET_VRING_KICK] = {"SET_VRING_KICK", set_kick, 8, false},
	[VHOST_SET_VRING_CALL] = {"SET_VRING_CALL", set_call, 8, false},
	[VHOST_SET_VRING_ERR] = {"SET_VRING_ERR", set_error, 8, false},
	[VHOST_GET_PROTOCOL_FEATURES] = {"GET_PROTOCOL_FEATURES", get_protocol, 0, false},
	[VHOST_SET_PROTOCOL_FEATURES] = {"SET_PROTOCOL_FEATURES", set_protocol, 8, false},
	[VHOST_GET_QUEUE_NUM] = {"GET_QUEUE_NUM", get_queue_num, 0, false},
	[VHOST_SET_VRING_ENABLE] = {"SET_VRING_ENABLE", set_enable, 8, true},
	[VHOST_SET_BACKEND_REQ_FD] = {"SET_BACKEND_REQ_FD", set_back, 0, false},
	[VHOST_GET_CONFIG] = {"GET_CONFIG", get_config, VHOST_CONFIG_HEADER, false},
	[VHOST_SET_CONFIG] = {"SET_CONFIG", set_config, VHOST_CONFIG_HEADER, false},
	[VHOST_GET_INFLIGHT_FD] = {"GET_INFLIGHT_FD", get_inflight, VHOST_INFLIGHT_SIZE, false},
	[VHOST_SET_INFLIGHT_FD] = {"SET_INFLIGHT_FD", set_inflight, VHOST_INFLIGHT_SIZE, true},
	[VHOST_RESET_DEVICE] = {"RESET_DEVICE", reset_device, 0, true},
	[VHOST_GET_MAX_MEM_SLOTS] = {"GET_MAX_MEM_SLOTS", get_slots, 0, false},
	[VHOST_ADD_MEM_REG] = {"ADD_MEM_REG", add_region, 40, true},
	[VHOST_REM_MEM_REG] = {"REM_MEM_REG", remove_region, 40, true},
};

static int say_nonsense(struct vhost_device *device, const struct kind *kind, int error)
{
	if (kind && kind->name)
		vhost_log(
			device, "says %s, which cannot be done: %s", kind->name, strerror(-error));
	else
		vhost_log(device, "sends message %u, which is not known here",
			device->header.request);
	return error;
}

/* Whoever wants to know is told; whoever does not would go on without it. */
static int acknowledge(struct vhost_device *device, int error)
{
	bool asked = device->header.flags & VHOST_NEED_REPLY &&
		     device->protocol & BIT(VHOST_PROTOCOL_REPLY_ACK);
	if (!asked)
		return error;
	int rc = answer_number(device, error ? 1 : 0);
	return rc == ANSWERED ? 0 : rc;
}

/* Nothing is in flight, and all that has ended is in the rings. */
static bool is_quiet(struct vhost_device *device)
{
	if (device->inflight)
		return false;
	for (unsigned i = 0; i < device->queue_count; i++) {
		const struct vhost_queue *queue = &device->queue[i];
		if (queue->running && !queue->broken && vhost_ring_has_again(&queue->ring))
			return false;
	}
	for (unsigned i = 0; i < device->queue_count; i++)
		vhost_queue_publish(&device->queue[i]);
	return true;
}

int vhost_message_take(struct vhost_device *device)
{
	uint32_t code = device->header.request;
	const struct kind *kind = code < VHOST_CODES ? &kinds[code] : NULL;
	if (!kind || !kind->handle)
		return acknowledge(device, say_nonsense(device, NULL, -EOPNOTSUPP));
	if (device->header.size < kind->size)
		return say_nonsense(device, kind, -EPROTO);
	if (kind->quiet && !is_quiet(device))
		return -EAGAIN;
	int rc = kind->handle(device);
	if (rc == -EAGAIN || rc == ANSWERED || rc == -EPIPE)
		return rc == ANSWERED ? 0 : rc;
	return acknowledge(device, rc ? say_nonsense(device, kind, rc) : 0);
}
