/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In-flight regions: what a machine keeps for us while we are away. One is used by one connection
 * at a time: requests of a connection that has broken off may still be under way when the machine
 * comes back with the same region.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "peers/front/vhost.h"

int vhost_region_make(struct vhost_device *device, unsigned queues, unsigned num, int *fd)
{
	const struct vhost_layout *layout = vhost_layout_of(device);
	uint64_t size = vhost_ring_inflight_size(layout, queues, num);
	if (!queues || queues > device->queue_count || !num || num > VHOST_RING_MAX)
		return -EINVAL;
	*fd = memfd_create("in-flight", MFD_CLOEXEC);
	if (*fd < 0)
		return -errno;
	void *map = ftruncate(*fd, (off_t)size)
			    ? MAP_FAILED
			    : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (map == MAP_FAILED) {
		vhost_drop_fd(fd);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < queues; i++)
		layout->notes_init(
			(char *)map + vhost_ring_inflight_offset(layout, i, num), (uint16_t)num);
	munmap(map, size);
	return 0;
}

static bool region_is_used(const struct vhost_device *device, const struct stat *st)
{
	const struct vhost_device *other;
	TAILQ_FOREACH (other, &device->vhost->shared->regions, region_link)
		if (other != device && other->region_device == st->st_dev &&
			other->region_inode == st->st_ino)
			return true;
	return false;
}

static int region_claim(struct vhost_device *device, const struct stat *st)
{
	struct vhost_shared *shared = device->vhost->shared;
	pthread_mutex_lock(&shared->regions_lock);
	int error = region_is_used(device, st) ? -EAGAIN : 0;
	if (!error) {
		device->region_device = st->st_dev;
		device->region_inode = st->st_ino;
		TAILQ_INSERT_TAIL(&shared->regions, device, region_link);
	}
	pthread_mutex_unlock(&shared->regions_lock);
	return error;
}

int vhost_region_take(struct vhost_device *device, int fd, uint64_t size, uint64_t offset,
	unsigned queues, unsigned num)
{
	const struct vhost_layout *layout = vhost_layout_of(device);
	struct stat st;
	vhost_region_drop(device);
	if (!queues || queues > device->queue_count || !num || num > VHOST_RING_MAX || offset ||
		size < vhost_ring_inflight_size(layout, queues, num) || size > UINT32_MAX ||
		fstat(fd, &st) || (uint64_t)st.st_size < size)
		return -EINVAL;
	int error = region_claim(device, &st);
	if (error)
		return error;
	device->region_size = size;
	device->region_layout = layout;
	device->region_queues = (uint16_t)queues;
	device->region_num = (uint16_t)num;
	device->region = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	error = device->region == MAP_FAILED
			? -errno
			: vhost_guard_add(device->region, size, &device->memory.lost);
	if (error)
		vhost_region_drop(device);
	return error;
}

void vhost_region_drop(struct vhost_device *device)
{
	struct vhost_shared *shared = device->vhost->shared;
	if (!device->region)
		return;
	if (device->region != MAP_FAILED)
		vhost_guard_unmap(device->region, device->region_size);
	device->region = NULL;
	pthread_mutex_lock(&shared->regions_lock);
	TAILQ_REMOVE(&shared->regions, device, region_link);
	pthread_mutex_unlock(&shared->regions_lock);
}

void *vhost_region_of(const struct vhost_device *device, unsigned index)
{
	const struct vhost_layout *layout = device->region_layout;
	if (!device->region || index >= device->region_queues || layout != vhost_layout_of(device))
		return NULL;
	return (char *)device->region +
	       vhost_ring_inflight_offset(layout, index, device->region_num);
}
