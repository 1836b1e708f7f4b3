/* SPDX-License-Identifier: Apache-2.0 */
/* The socket to the front, and the thread that finds it again. */
#include <base/pass.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xseg/segment.h>

#include "xseg/region/region_priv.h"

#define AGAIN_MS_MIN 5
#define AGAIN_MS_MAX 500
#define AGAIN_ANSWER_S 5

/* --- where it is --------------------------------------------------------------------- */

static int link_path(const char *segment, char *path, size_t size)
{
	char run_dir[XSEG_RUN_DIR_MAX + 1];
	uint32_t pid;
	if (!strncmp(segment, "unix:", 5))
		return snprintf(path, size, "%s", segment + 5);
	int error = xseg_segment_keeper(segment, &pid, run_dir);
	if (error)
		return region_refuse(error, "segment '%s' cannot be joined: %s", segment,
			error == -ENOENT ? "there is none of that name" : strerror(-error));
	return snprintf(path, size, "%s/%s/%s", *run_dir ? run_dir : "/run/skerry", segment,
		REGION_WIRE_SOCKET);
}

int region_link_find(struct region *region, const char *segment)
{
	struct sockaddr_un *address = &region->address;
	address->sun_family = AF_UNIX;
	int length = link_path(segment, address->sun_path, sizeof(address->sun_path));
	if (length < 0)
		return length;
	if (length >= (int)sizeof(address->sun_path))
		return region_refuse(
			-ENAMETOOLONG, "the path of the socket for '%s' is too long", segment);
	return 0;
}

int region_link_connect(const struct sockaddr_un *address, int *fd)
{
	*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return -errno;
	if (connect(*fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
		return 0;
	int error = -errno;
	close(*fd);
	*fd = -1;
	return error;
}

void region_link_limit(int fd, unsigned seconds)
{
	struct timeval limit = {.tv_sec = seconds};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

/* --- one question ---------------------------------------------------------------------- */

static int link_send(int fd, const struct region_wire *wire, int give)
{
	for (size_t sent = 0; sent < sizeof(*wire);) {
		const struct iovec iov = {(char *)(uintptr_t)wire + sent, sizeof(*wire) - sent};
		ssize_t done = pass_send(fd, &iov, 1, sent ? -1 : give, 0);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return -ECONNRESET;
		sent += (size_t)done;
	}
	return 0;
}

static int link_receive(int fd, struct region_wire *wire, int *take)
{
	unsigned had = 0;
	for (size_t got = 0; got < sizeof(*wire);) {
		ssize_t done = pass_receive(
			fd, (char *)wire + got, sizeof(*wire) - got, take, &had, take != NULL, 0);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return -ECONNRESET;
		got += (size_t)done;
	}
	return 0;
}

int region_link_ask(int fd, struct region_wire *wire, int give, int *take)
{
	const uint32_t serial = wire->serial;
	const uint16_t type = wire->type;
	wire->magic = REGION_WIRE_MAGIC;
	wire->version = REGION_WIRE_VERSION;
	int error = link_send(fd, wire, give);
	if (!error)
		error = link_receive(fd, wire, take);
	if (error)
		return error;
	wire->text[sizeof(wire->text) - 1] = 0;
	if (wire->magic != REGION_WIRE_MAGIC || wire->serial != serial || wire->type != type)
		return -EPROTO;
	return wire->error;
}

/* --- a connection ---------------------------------------------------------------------- */

/* Is it the memory that is mapped here? */
static bool link_same_memory(int one, int other)
{
	struct stat a, b;
	return !fstat(one, &a) && !fstat(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int region_link_open(struct region *region, int fd)
{
	struct region_wire wire = {.type = REGION_WIRE_OPEN,
		.offset = region->offset,
		.size = region->size,
		.arg = region->flags,
		.token = region->token};
	int memory = -1;
	memcpy(wire.text, region->volume, sizeof(wire.text));
	int error = region_link_ask(fd, &wire, -1, &memory);
	if (!error && memory < 0)
		error = -EPROTO;
	if (error) {
		if (memory >= 0)
			close(memory);
		return region_refuse(error, "volume '%s': %s", region->volume,
			*wire.text ? wire.text : strerror(-error));
	}
	if (region->memory_fd < 0) {
		region->memory_fd = memory;
		region->size = wire.size;
		region->token = wire.token;
		return 0;
	}
	bool same = link_same_memory(memory, region->memory_fd);
	close(memory);
	return same ? 0 : -ESTALE;
}

int region_link_arm(struct region *region, int fd)
{
	struct region_wire wire = {
		.type = REGION_WIRE_ARM, .arg = (uintptr_t)region->memory, .token = region->token};
	int error = region_link_ask(fd, &wire, region->fault_fd, NULL);
	return error ? region_refuse(error, "the front refuses the memory: %s", strerror(-error))
		     : 0;
}

/* --- when it is gone ------------------------------------------------------------------- */

/* What is there now is another memory: ours must not be read as if it were the volume. */
static void link_give_up(struct region *region, int error)
{
	mmap(region->memory, region->mapped, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	region_fault_close(region);
	region->lost = error;
	pthread_cond_broadcast(&region->changed);
}

static int link_again(struct region *region, int *fd)
{
	int error = region_link_connect(&region->address, fd);
	if (error)
		return error;
	region_link_limit(*fd, AGAIN_ANSWER_S);
	error = region_link_open(region, *fd);
	if (!error)
		error = region_link_arm(region, *fd);
	region_link_limit(*fd, 0);
	if (!error)
		return 0;
	close(*fd);
	return error;
}

/* False: the region is being closed. */
static bool link_pause(const struct region *region, int milliseconds)
{
	struct pollfd stop = {.fd = region->stop_fd, .events = POLLIN};
	return poll(&stop, 1, milliseconds) <= 0;
}

/* The front's process has ended, or it has thrown us out. */
static void link_reconnect(struct region *region)
{
	int fd, wait = AGAIN_MS_MIN, error;
	while ((error = link_again(region, &fd)) != 0 && error != -ESTALE) {
		if (!link_pause(region, wait))
			return;
		wait = wait * 2 < AGAIN_MS_MAX ? wait * 2 : AGAIN_MS_MAX;
	}
	pthread_mutex_lock(&region->lock);
	if (error) {
		link_give_up(region, error);
	} else {
		region->fd = fd;
		region->generation++;
		pthread_cond_broadcast(&region->changed);
	}
	pthread_mutex_unlock(&region->lock);
}

void *region_link_watch(void *context)
{
	struct region *region = context;
	while (!region->lost) {
		struct pollfd ready[] = {{.fd = region->fd, .events = POLLRDHUP},
			{.fd = region->stop_fd, .events = POLLIN}};
		poll(ready, 2, -1);
		if (ready[1].revents)
			break;
		if (!ready[0].revents)
			continue;
		pthread_mutex_lock(&region->lock);
		/* who waits for an answer sees the end, too */
		shutdown(region->fd, SHUT_RDWR);
		while (region->asking)
			pthread_cond_wait(&region->changed, &region->lock);
		close(region->fd);
		region->fd = -1;
		pthread_mutex_unlock(&region->lock);
		link_reconnect(region);
		if (region->fd < 0)
			break;
	}
	return NULL;
}
