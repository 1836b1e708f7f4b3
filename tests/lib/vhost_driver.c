/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's side of vhost-user-blk. */
#include "tests/lib/vhost_driver.h"

#include <base/must.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BIT(number) (1ull << (number))
#define RING_SIZE (512u << 10) /* of one queue, with its tables */
#define WAIT_MS 60000

#define FEATURES \
	(BIT(VIRTIO_F_VERSION_1) | BIT(VIRTIO_RING_F_INDIRECT_DESC) | \
		BIT(VIRTIO_RING_F_EVENT_IDX) | BIT(VHOST_F_PROTOCOL_FEATURES) | \
		BIT(VHOST_F_LOG_ALL) | BIT(VIRTIO_BLK_F_SEG_MAX) | BIT(VIRTIO_BLK_F_BLK_SIZE) | \
		BIT(VIRTIO_BLK_F_TOPOLOGY) | BIT(VIRTIO_BLK_F_MQ) | BIT(VIRTIO_BLK_F_FLUSH) | \
		BIT(VIRTIO_BLK_F_CONFIG_WCE) | BIT(VIRTIO_BLK_F_DISCARD) | \
		BIT(VIRTIO_BLK_F_WRITE_ZEROES) | BIT(VIRTIO_BLK_F_RO))
#define PROTOCOL \
	(BIT(VHOST_PROTOCOL_MQ) | BIT(VHOST_PROTOCOL_LOG_SHMFD) | BIT(VHOST_PROTOCOL_REPLY_ACK) | \
		BIT(VHOST_PROTOCOL_BACKEND_REQ) | BIT(VHOST_PROTOCOL_CONFIG) | \
		BIT(VHOST_PROTOCOL_INFLIGHT_SHMFD) | BIT(VHOST_PROTOCOL_CONFIGURE_MEM_SLOTS))

uint64_t driver_guest(const struct driver *driver, const void *at)
{
	return DRIVER_GUEST + (uint64_t)((const uint8_t *)at - driver->memory);
}

static uint64_t user_of(const struct driver *driver, const void *at)
{
	return DRIVER_USER + (uint64_t)((const uint8_t *)at - driver->memory);
}

/* --- messages -------------------------------------------------------------------- */

static int send_message(int socket, const struct vhost_header *header, const void *payload, int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
	struct iovec iov[2] = {{(void *)(uintptr_t)header, sizeof(*header)},
		{(void *)(uintptr_t)payload, header->size}};
	struct msghdr message = {.msg_iov = iov, .msg_iovlen = 2};
	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
	}
	ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL);
	return sent == (ssize_t)(sizeof(*header) + header->size) ? 0 : -EPIPE;
}

static int receive_all(int socket, void *to, size_t size, int *fd)
{
	for (size_t done = 0; done < size;) {
		union {
			struct cmsghdr header;
			char bytes[CMSG_SPACE(sizeof(int))];
		} control = {.bytes = {0}};
		struct iovec iov = {(char *)to + done, size - done};
		struct msghdr message = {.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof(control)};
		ssize_t got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
		if (got <= 0)
			return -EPIPE;
		if (message.msg_controllen >= CMSG_LEN(sizeof(int)) && fd)
			memcpy(fd, CMSG_DATA(&control.header), sizeof(*fd));
		done += (size_t)got;
	}
	return 0;
}

static int receive_answer(
	struct driver *driver, uint32_t request, union vhost_payload *payload, int *fd)
{
	struct vhost_header header;
	int error = receive_all(driver->fd, &header, sizeof(header), fd);
	if (!error && (header.request != request || !(header.flags & VHOST_REPLY) ||
			      header.size > sizeof(*payload)))
		return -EPROTO;
	return error ? error : receive_all(driver->fd, payload, header.size, fd);
}

/* Whoever has agreed to it is told whether it was done. */
int driver_tell(struct driver *driver, uint32_t request, const void *payload, uint32_t size, int fd)
{
	bool acked = driver->protocol & BIT(VHOST_PROTOCOL_REPLY_ACK);
	struct vhost_header header = {
		request, VHOST_VERSION | (acked ? VHOST_NEED_REPLY : 0), size};
	union vhost_payload answer = {0};
	int error = send_message(driver->fd, &header, payload, fd);
	if (!error && acked)
		error = receive_answer(driver, request, &answer, NULL);
	return error ? error : answer.number && acked ? -EREMOTEIO : 0;
}

int driver_ask(struct driver *driver, uint32_t request, union vhost_payload *payload, uint32_t size,
	int *got)
{
	struct vhost_header header = {request, VHOST_VERSION, size};
	int error = send_message(driver->fd, &header, payload, -1);
	return error ? error : receive_answer(driver, request, payload, got);
}

int driver_number(struct driver *driver, uint32_t request, uint64_t number)
{
	return driver_tell(driver, request, &number, sizeof(number), -1);
}

/* --- agreeing -------------------------------------------------------------------- */

static int connect_to(const char *path)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&un, sizeof(un)) == 0)
		return fd;
	int error = -errno;
	if (fd >= 0)
		close(fd);
	return error;
}

static int agree_protocol(struct driver *driver)
{
	union vhost_payload answer = {0};
	uint64_t wanted = PROTOCOL;
	if (driver->config.no_inflight)
		wanted &= ~BIT(VHOST_PROTOCOL_INFLIGHT_SHMFD);
	driver->protocol = 0; /* until it is agreed nobody acknowledges */
	int error = driver_ask(driver, VHOST_GET_PROTOCOL_FEATURES, &answer, 0, NULL);
	wanted &= answer.number;
	if (!error)
		error = driver_number(driver, VHOST_SET_PROTOCOL_FEATURES, wanted);
	driver->protocol = wanted;
	return error;
}

static int agree(struct driver *driver)
{
	union vhost_payload answer = {0};
	driver->protocol = 0;
	int error = driver_ask(driver, VHOST_GET_FEATURES, &answer, 0, NULL);
	uint64_t wanted = FEATURES | (driver->config.packed ? BIT(VIRTIO_F_RING_PACKED) : 0);
	driver->features = answer.number & wanted & ~driver->config.without & ~BIT(VHOST_F_LOG_ALL);
	if (driver->config.packed && !driver_is_packed(driver))
		return -EOPNOTSUPP;
	if (driver->config.no_protocol)
		driver->features &= ~BIT(VHOST_F_PROTOCOL_FEATURES);
	else if (!error)
		error = agree_protocol(driver);
	if (!error)
		error = driver_tell(driver, VHOST_SET_OWNER, "", 0, -1);
	if (!error)
		error = driver_number(driver, VHOST_SET_FEATURES, driver->features);
	return error;
}

/* Some backends know no more fields than these. */
#define CONFIG_SIZE (offsetof(struct virtio_blk_config, unused1) + 3u)

int driver_get_config(struct driver *driver)
{
	union vhost_payload payload = {.config = {.size = CONFIG_SIZE}};
	int error = driver_ask(
		driver, VHOST_GET_CONFIG, &payload, VHOST_CONFIG_HEADER + CONFIG_SIZE, NULL);
	if (!error)
		memcpy(&driver->disk, payload.config.bytes, CONFIG_SIZE);
	return error;
}

static int share_inflight(struct driver *driver)
{
	union vhost_payload payload = {
		.inflight = {.queues = DRIVER_QUEUES, .queue_size = DRIVER_NUM}};
	int error = 0;
	if (!(driver->protocol & BIT(VHOST_PROTOCOL_INFLIGHT_SHMFD)))
		return 0;
	if (driver->inflight_fd < 0) {
		error = driver_ask(driver, VHOST_GET_INFLIGHT_FD, &payload,
			VHOST_INFLIGHT_SIZE_PADDED, &driver->inflight_fd);
		driver->inflight_size = payload.inflight.size;
	}
	payload.inflight.size = driver->inflight_size;
	payload.inflight.offset = 0;
	return error ? error
		     : driver_tell(driver, VHOST_SET_INFLIGHT_FD, &payload, VHOST_INFLIGHT_SIZE,
			       driver->inflight_fd);
}

static int share_memory(struct driver *driver)
{
	struct {
		uint32_t count, padding;
		struct vhost_wire_region region;
	} table = {1, 0, {DRIVER_GUEST, driver->memory_size, DRIVER_USER, 0}};
	return driver_tell(driver, VHOST_SET_MEM_TABLE, &table, sizeof(table), driver->memory_fd);
}

static int share_back(struct driver *driver)
{
	int pair[2];
	if (!(driver->protocol & BIT(VHOST_PROTOCOL_BACKEND_REQ)))
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		return -errno;
	if (driver->back >= 0)
		close(driver->back);
	driver->back = pair[0];
	int error = driver_tell(driver, VHOST_SET_BACKEND_REQ_FD, "", 0, pair[1]);
	close(pair[1]);
	return error;
}

/* --- rings ----------------------------------------------------------------------- */

static int tell_fd(struct driver *driver, uint32_t request, uint64_t index, int fd)
{
	return driver_tell(driver, request, &index, sizeof(index), fd);
}

static int tell_ring(struct driver *driver, uint32_t request, unsigned index, uint32_t number)
{
	uint32_t state[2] = {index, number};
	return driver_tell(driver, request, state, sizeof(state), -1);
}

int driver_start(struct driver *driver, unsigned index, uint32_t base)
{
	struct driver_queue *queue = &driver->queue[index];
	bool packed = driver_is_packed(driver);
	const void *desc = packed ? (void *)queue->packed.desc : queue->desc;
	const void *used = packed ? (void *)queue->packed.device : queue->used;
	const void *avail = packed ? (void *)queue->packed.driver : queue->avail;
	struct {
		uint32_t index, flags;
		uint64_t desc, used, avail, log;
	} address = {index, 1, user_of(driver, desc), user_of(driver, used), user_of(driver, avail),
		driver_guest(driver, used)};
	int error = tell_ring(driver, VHOST_SET_VRING_NUM, index, DRIVER_NUM);
	if (!error)
		error = tell_ring(driver, VHOST_SET_VRING_BASE, index, base);
	if (!error)
		error = driver_tell(driver, VHOST_SET_VRING_ADDR, &address, sizeof(address), -1);
	if (!error)
		error = tell_fd(driver, VHOST_SET_VRING_CALL, index, queue->call);
	if (!error)
		error = tell_fd(driver, VHOST_SET_VRING_ERR, index, queue->error);
	if (!error)
		error = tell_fd(driver, VHOST_SET_VRING_KICK, index, queue->kick);
	if (!error && driver->features & BIT(VHOST_F_PROTOCOL_FEATURES))
		error = tell_ring(driver, VHOST_SET_VRING_ENABLE, index, 1);
	return error;
}

int driver_stop(struct driver *driver, unsigned index, uint32_t *base)
{
	union vhost_payload payload = {.ring = {index, 0}};
	int error = driver_ask(driver, VHOST_GET_VRING_BASE, &payload, sizeof(payload.ring), NULL);
	*base = payload.ring.number;
	return error;
}

static void lay_out(struct driver *driver, unsigned index)
{
	struct driver_queue *queue = &driver->queue[index];
	uint8_t *at = driver->memory + index * RING_SIZE;
	queue->desc = (void *)at;
	queue->avail = (void *)(at + 4096);
	queue->used = (void *)(at + 8192);
	queue->header = (void *)(at + 12288);
	queue->status = at + 16384;
	queue->tables = (void *)(at + 20480);
	queue->packed.desc = (void *)(at + 159744);
	queue->packed.driver = (void *)(at + 163840);
	queue->packed.device = (void *)(at + 167936);
	queue->packed.tables = (void *)(at + 172032);
	driver_begin_again(driver, index);
	queue->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	queue->call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	queue->error = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	for (uint16_t i = 0; i < DRIVER_NUM; i++)
		queue->free[i] = (uint16_t)(DRIVER_NUM - 1 - i);
	queue->free_count = DRIVER_NUM;
}

void driver_begin_again(struct driver *driver, unsigned index)
{
	struct driver_queue *queue = &driver->queue[index];
	memset(queue->desc, 0, 12288);
	memset(queue->packed.desc, 0, 12288);
	queue->avail_at = queue->used_at = 0;
	queue->packed.avail = queue->packed.used = (struct vhost_packed_at){.wrap = true};
}

static int driver_connect(struct driver *driver)
{
	int error = agree(driver);
	if (!error && driver->protocol & BIT(VHOST_PROTOCOL_CONFIG))
		error = driver_get_config(driver);
	if (!error)
		error = share_back(driver);
	if (!error)
		error = share_inflight(driver);
	if (!error)
		error = share_memory(driver);
	for (unsigned i = 0; !error && !driver->config.quiet && i < driver->config.queues; i++)
		error = driver_start(driver, i, driver_base(driver, i));
	return error;
}

int driver_open(struct driver *driver, const struct driver_config *config)
{
	*driver = (struct driver){.config = *config, .fd = -1, .inflight_fd = -1, .back = -1};
	driver->memory_size = DRIVER_QUEUES * RING_SIZE + config->memory;
	driver->memory_fd = memfd_create("guest", MFD_CLOEXEC);
	must(driver->memory_fd >= 0 &&
		ftruncate(driver->memory_fd, (off_t)driver->memory_size) == 0);
	driver->memory = mmap(NULL, driver->memory_size, PROT_READ | PROT_WRITE, MAP_SHARED,
		driver->memory_fd, 0);
	must(driver->memory != MAP_FAILED);
	driver->data = driver->memory + DRIVER_QUEUES * RING_SIZE;
	for (unsigned i = 0; i < DRIVER_QUEUES; i++)
		lay_out(driver, i);
	driver->fd = connect_to(config->socket);
	return driver->fd < 0 ? driver->fd : driver_connect(driver);
}

/* The server, or the keeper that starts its successor, takes a moment. */
int driver_reconnect(struct driver *driver)
{
	const struct timespec nap = {0, 20000000};
	int error = -EPIPE;
	for (unsigned i = 0; i < WAIT_MS / 20; i++) {
		if (driver->fd >= 0)
			close(driver->fd);
		driver->fd = connect_to(driver->config.socket);
		error = driver->fd < 0 ? driver->fd : driver_connect(driver);
		if (!error)
			return 0;
		nanosleep(&nap, NULL);
	}
	return error;
}

static void drop(int fd)
{
	if (fd >= 0)
		close(fd);
}

void driver_close(struct driver *driver)
{
	for (unsigned i = 0; i < DRIVER_QUEUES; i++) {
		drop(driver->queue[i].kick);
		drop(driver->queue[i].call);
		drop(driver->queue[i].error);
	}
	munmap(driver->memory, driver->memory_size);
	drop(driver->memory_fd);
	drop(driver->inflight_fd);
	drop(driver->back);
	drop(driver->fd);
}

/* --- packed rings ----------------------------------------------------------------- */

bool driver_is_packed(const struct driver *driver)
{
	return driver->features & BIT(VIRTIO_F_RING_PACKED);
}

static struct vhost_packed_at go_on(struct vhost_packed_at at, uint16_t by)
{
	bool over = at.slot + by >= DRIVER_NUM;
	return (struct vhost_packed_at){(uint16_t)((at.slot + by) % DRIVER_NUM), at.wrap ^ over};
}

static uint16_t off_wrap(struct vhost_packed_at at)
{
	return (uint16_t)(at.slot | at.wrap << VRING_PACKED_EVENT_F_WRAP_CTR);
}

uint32_t driver_base(const struct driver *driver, unsigned index)
{
	const struct driver_queue *queue = &driver->queue[index];
	uint32_t at = off_wrap(queue->packed.used);
	if (driver->config.no_rounds && at == 1u << 15)
		at = 0;
	return driver_is_packed(driver) ? at | at << 16 : queue->used_at;
}

/* A table has its flags elsewhere. Whoever refers to one that is not there shall do so. */
static uint64_t pack_table(
	const struct driver *driver, struct driver_queue *queue, const struct vring_desc *desc)
{
	uint64_t at = desc->addr - DRIVER_GUEST, count = desc->len / sizeof(*desc);
	uint64_t room = (RING_SIZE - 172032u) / sizeof(*desc) - DRIVER_NUM * DRIVER_TABLE;
	if (desc->addr < DRIVER_GUEST || at >= driver->memory_size || count > room)
		return desc->addr;
	const struct vring_desc *from = (const void *)(driver->memory + at);
	struct vring_packed_desc *to =
		&queue->packed.tables[(uint64_t)(desc - queue->desc) * DRIVER_TABLE];
	for (uint64_t i = 0; i < count; i++)
		to[i] = (struct vring_packed_desc){from[i].addr, from[i].len, 0, from[i].flags};
	return driver_guest(driver, to);
}

/* The first one's flags are written last: from then on all are the backend's. */
static void offer_packed(const struct driver *driver, struct driver_queue *queue, uint16_t head)
{
	struct vring_packed_desc *first = &queue->packed.desc[queue->packed.avail.slot];
	const struct vring_desc *desc = &queue->desc[head];
	uint16_t slots = 0, first_flags = 0;
	for (bool more = true; more; desc = &queue->desc[desc->next]) {
		bool wrap = queue->packed.avail.wrap;
		uint16_t flags = (uint16_t)(desc->flags | wrap << VRING_PACKED_DESC_F_AVAIL |
					    !wrap << VRING_PACKED_DESC_F_USED);
		struct vring_packed_desc *to = &queue->packed.desc[queue->packed.avail.slot];
		to->addr = desc->flags & VRING_DESC_F_INDIRECT ? pack_table(driver, queue, desc)
							       : desc->addr;
		to->len = desc->len;
		to->id = head;
		if (slots++)
			to->flags = flags;
		else
			first_flags = flags;
		queue->packed.avail = go_on(queue->packed.avail, 1);
		more = desc->flags & VRING_DESC_F_NEXT && slots < DRIVER_NUM;
	}
	queue->packed.slots[head] = slots;
	__atomic_store_n(&first->flags, first_flags, __ATOMIC_RELEASE);
}

static bool wants_kick_packed(
	const struct driver *driver, const struct driver_queue *queue, uint16_t slots)
{
	const struct vring_packed_desc_event *device = queue->packed.device;
	struct vhost_packed_at at = queue->packed.avail;
	uint16_t flags = __atomic_load_n(&device->flags, __ATOMIC_ACQUIRE);
	uint16_t wanted = __atomic_load_n(&device->off_wrap, __ATOMIC_RELAXED);
	int slot = wanted & INT16_MAX;
	if (!(driver->features & BIT(VIRTIO_RING_F_EVENT_IDX)) ||
		flags != VRING_PACKED_EVENT_FLAG_DESC)
		return flags != VRING_PACKED_EVENT_FLAG_DISABLE;
	if (wanted >> VRING_PACKED_EVENT_F_WRAP_CTR != at.wrap)
		slot -= DRIVER_NUM;
	return vring_need_event((uint16_t)slot, at.slot, (uint16_t)(at.slot - slots));
}

static int poll_packed(struct driver_queue *queue, uint16_t *head, uint32_t *length)
{
	struct vhost_packed_at at = queue->packed.used;
	const struct vring_packed_desc *desc = &queue->packed.desc[at.slot];
	const uint16_t both = 1u << VRING_PACKED_DESC_F_AVAIL | 1u << VRING_PACKED_DESC_F_USED;
	uint16_t flags = __atomic_load_n(&desc->flags, __ATOMIC_ACQUIRE);
	if ((flags & both) != (at.wrap ? both : 0))
		return -EAGAIN;
	*head = desc->id;
	*length = desc->len;
	must(*head < DRIVER_NUM);
	queue->packed.used = go_on(at, queue->packed.slots[*head]);
	return 0;
}

static int poll_split(struct driver_queue *queue, uint16_t *head, uint32_t *length)
{
	if (__atomic_load_n(&queue->used->idx, __ATOMIC_ACQUIRE) == queue->used_at)
		return -EAGAIN;
	const struct vring_used_elem *element = &queue->used->ring[queue->used_at % DRIVER_NUM];
	*head = (uint16_t)element->id;
	*length = element->len;
	must(*head < DRIVER_NUM);
	queue->used_at++;
	return 0;
}

/* --- requests -------------------------------------------------------------------- */

void driver_kick(struct driver *driver, unsigned index)
{
	const uint64_t one = 1;
	must(write(driver->queue[index].kick, &one, sizeof(one)) == sizeof(one));
	driver->queue[index].kicks++;
}

void driver_will_kick(struct driver *driver, unsigned index)
{
	driver->queue[index].used->flags = 0;
	driver->queue[index].packed.device->flags = VRING_PACKED_EVENT_FLAG_ENABLE;
}

static bool wants_kick(const struct driver *driver, const struct driver_queue *queue, uint16_t head)
{
	const uint16_t *event = (const uint16_t *)&queue->used->ring[DRIVER_NUM];
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (driver_is_packed(driver))
		return wants_kick_packed(driver, queue, queue->packed.slots[head]);
	if (driver->features & BIT(VIRTIO_RING_F_EVENT_IDX))
		return vring_need_event(__atomic_load_n(event, __ATOMIC_RELAXED), queue->avail_at,
			(uint16_t)(queue->avail_at - 1));
	return !(__atomic_load_n(&queue->used->flags, __ATOMIC_RELAXED) & VRING_USED_F_NO_NOTIFY);
}

void driver_offer(struct driver *driver, unsigned index, uint16_t head)
{
	struct driver_queue *queue = &driver->queue[index];
	if (driver_is_packed(driver)) {
		offer_packed(driver, queue, head);
	} else {
		queue->avail->ring[queue->avail_at % DRIVER_NUM] = head;
		queue->avail_at++;
		__atomic_store_n(&queue->avail->idx, queue->avail_at, __ATOMIC_RELEASE);
	}
	if (wants_kick(driver, queue, head))
		driver_kick(driver, index);
}

/* Without a table: in the ring. */
static void put_chain(
	struct driver_queue *queue, uint16_t head, const struct vring_desc *table, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct vring_desc *desc = &queue->desc[head];
		*desc = table[i];
		if (i + 1 < count)
			desc->next = head = queue->free[--queue->free_count];
	}
}

static void free_chain(struct driver_queue *queue, uint16_t head)
{
	bool more = true;
	for (uint16_t at = head; more; at = queue->desc[at].next) {
		more = queue->desc[at].flags & VRING_DESC_F_NEXT;
		queue->free[queue->free_count++] = at;
	}
}

int driver_submit(struct driver *driver, unsigned index, uint32_t type, uint64_t sector,
	const struct iovec *data, unsigned pieces, uint16_t *head)
{
	struct driver_queue *queue = &driver->queue[index];
	bool in = type == VIRTIO_BLK_T_IN || type == VIRTIO_BLK_T_GET_ID;
	bool tables = driver->features & BIT(VIRTIO_RING_F_INDIRECT_DESC);
	if (queue->free_count < (tables ? 1 : pieces + 2))
		return -EAGAIN;
	must(pieces + 2 <= DRIVER_TABLE);
	*head = queue->free[--queue->free_count];
	struct vring_desc *table = &queue->tables[*head * DRIVER_TABLE];
	queue->busy[*head] = true;
	queue->header[*head] = (struct virtio_blk_outhdr){.type = type, .sector = sector};
	queue->status[*head] = 0xff;
	table[0] = (struct vring_desc){driver_guest(driver, &queue->header[*head]),
		sizeof(struct virtio_blk_outhdr), VRING_DESC_F_NEXT, 1};
	for (unsigned i = 0; i < pieces; i++)
		table[i + 1] = (struct vring_desc){driver_guest(driver, data[i].iov_base),
			(uint32_t)data[i].iov_len,
			(uint16_t)(VRING_DESC_F_NEXT | (in ? VRING_DESC_F_WRITE : 0)),
			(uint16_t)(i + 2)};
	table[pieces + 1] = (struct vring_desc){
		driver_guest(driver, &queue->status[*head]), 1, VRING_DESC_F_WRITE, 0};
	if (tables)
		queue->desc[*head] = (struct vring_desc){driver_guest(driver, table),
			(uint32_t)((pieces + 2) * sizeof(*table)), VRING_DESC_F_INDIRECT, 0};
	else
		put_chain(queue, *head, table, pieces + 2);
	driver_offer(driver, index, *head);
	return 0;
}

int driver_poll(struct driver *driver, unsigned index, uint16_t *head, uint32_t *length)
{
	struct driver_queue *queue = &driver->queue[index];
	int error = driver_is_packed(driver) ? poll_packed(queue, head, length)
					     : poll_split(queue, head, length);
	if (error)
		return error;
	if (queue->busy[*head])
		free_chain(queue, *head);
	queue->busy[*head] = false;
	return 0;
}

static void want_call(const struct driver *driver, struct driver_queue *queue)
{
	bool event_idx = driver->features & BIT(VIRTIO_RING_F_EVENT_IDX);
	struct vring_packed_desc_event *event = queue->packed.driver;
	if (!driver_is_packed(driver)) {
		__atomic_store_n((uint16_t *)&queue->avail->ring[DRIVER_NUM], queue->used_at,
			__ATOMIC_RELEASE);
		return;
	}
	event->off_wrap = off_wrap(queue->packed.used);
	__atomic_store_n(&event->flags,
		event_idx ? VRING_PACKED_EVENT_FLAG_DESC : VRING_PACKED_EVENT_FLAG_ENABLE,
		__ATOMIC_RELEASE);
}

int driver_wait(
	struct driver *driver, unsigned index, uint16_t *head, uint32_t *length, int timeout_ms)
{
	struct driver_queue *queue = &driver->queue[index];
	for (;;) {
		struct pollfd fds[2] = {{queue->call, POLLIN, 0}, {driver->fd, POLLIN, 0}};
		uint64_t count;
		if (!driver_poll(driver, index, head, length))
			return 0;
		want_call(driver, queue);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (!driver_poll(driver, index, head, length))
			return 0;
		int ready = poll(fds, 2, timeout_ms);
		if (ready < 0 && errno == EINTR)
			continue;
		if (ready <= 0)
			return -ETIMEDOUT;
		if (fds[0].revents)
			must(read(queue->call, &count, sizeof(count)) == sizeof(count));
		else
			return -EPIPE;
	}
}

int driver_do(struct driver *driver, unsigned index, uint32_t type, uint64_t sector, void *data,
	uint64_t length)
{
	struct iovec iov = {data, length};
	uint16_t head, back;
	uint32_t written;
	int error = driver_submit(driver, index, type, sector, &iov, length ? 1 : 0, &head);
	if (!error)
		error = driver_wait(driver, index, &back, &written, WAIT_MS);
	if (error)
		return error;
	return back == head ? driver->queue[index].status[head] : -EPROTO;
}

bool driver_is_told(struct driver *driver, unsigned index)
{
	struct pollfd fd = {driver->queue[index].error, POLLIN, 0};
	return poll(&fd, 1, WAIT_MS) == 1;
}
