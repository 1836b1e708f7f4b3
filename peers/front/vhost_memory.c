/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's memory: mapped, looked up, and marked where it was changed. */
#include "peers/front/vhost_memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define LOG_PAGE_SHIFT 12

/* --- regions --------------------------------------------------------------------- */

/* A device may stand for memory and says no size; a file that is too short would kill us. */
static bool map_fits(int fd, uint64_t end)
{
	struct stat st;
	if (fstat(fd, &st))
		return false;
	return !S_ISREG(st.st_mode) || (uint64_t)st.st_size >= end;
}

/* Of a descriptor, from its beginning: huge pages can only be mapped at their own borders. */
static int map_fd(struct vhost_memory *memory, int fd, uint64_t size, uint64_t offset, void **map,
	size_t *map_size)
{
	uint64_t end = size + offset;
	if (!size || end < size || end > SIZE_MAX / 2 || !map_fits(fd, end))
		return -EINVAL;
	*map = mmap(NULL, end, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	*map_size = end;
	if (*map == MAP_FAILED)
		return -errno;
	int error = vhost_guard_add(*map, end, &memory->lost);
	if (error)
		munmap(*map, end);
	return error;
}

static bool ends_within(uint64_t start, uint64_t size) { return start + size >= start; }

static bool overlaps(const struct vhost_region *region, uint64_t guest, uint64_t size)
{
	return guest < region->guest + region->size && region->guest < guest + size;
}

int vhost_memory_add(struct vhost_memory *memory, const struct vhost_wire_region *wire, int fd)
{
	struct vhost_region *region = &memory->region[memory->count];
	if (memory->count == VHOST_REGIONS_MAX)
		return -ENOSPC;
	if (!ends_within(wire->guest, wire->size) || !ends_within(wire->user, wire->size))
		return -EINVAL;
	for (unsigned i = 0; i < memory->count; i++)
		if (overlaps(&memory->region[i], wire->guest, wire->size))
			return -EEXIST;
	int error = map_fd(memory, fd, wire->size, wire->offset, &region->map, &region->map_size);
	if (error)
		return error;
	region->guest = wire->guest;
	region->size = wire->size;
	region->user = wire->user;
	region->host = (uint8_t *)region->map + wire->offset;
	memory->count++;
	return 0;
}

int vhost_memory_remove(struct vhost_memory *memory, const struct vhost_wire_region *wire)
{
	for (unsigned i = 0; i < memory->count; i++) {
		struct vhost_region *region = &memory->region[i];
		if (region->guest != wire->guest || region->size != wire->size ||
			region->user != wire->user)
			continue;
		vhost_guard_unmap(region->map, region->map_size);
		*region = memory->region[--memory->count];
		memory->last = 0;
		return 0;
	}
	return -ENOENT;
}

static void drop_log(struct vhost_memory *memory)
{
	if (memory->log_map)
		vhost_guard_unmap(memory->log_map, memory->log_map_size);
	memory->log_map = memory->log = NULL;
	memory->log_pages = 0;
}

void vhost_memory_clear(struct vhost_memory *memory)
{
	for (unsigned i = 0; i < memory->count; i++)
		vhost_guard_unmap(memory->region[i].map, memory->region[i].map_size);
	memory->count = memory->last = 0;
}

void vhost_memory_fini(struct vhost_memory *memory)
{
	vhost_memory_clear(memory);
	drop_log(memory);
}

/* --- looking up ------------------------------------------------------------------ */

static struct vhost_region *region_of(struct vhost_memory *memory, uint64_t guest)
{
	if (memory->last < memory->count &&
		guest - memory->region[memory->last].guest < memory->region[memory->last].size)
		return &memory->region[memory->last];
	for (unsigned i = 0; i < memory->count; i++)
		if (guest - memory->region[i].guest < memory->region[i].size) {
			memory->last = i;
			return &memory->region[i];
		}
	return NULL;
}

void *vhost_memory_at(struct vhost_memory *memory, uint64_t guest, uint64_t *length)
{
	const struct vhost_region *region = region_of(memory, guest);
	if (!region)
		return NULL;
	uint64_t offset = guest - region->guest;
	if (*length > region->size - offset)
		*length = region->size - offset;
	return region->host + offset;
}

void *vhost_memory_user(const struct vhost_memory *memory, uint64_t user, uint64_t length)
{
	for (unsigned i = 0; i < memory->count; i++) {
		const struct vhost_region *region = &memory->region[i];
		uint64_t offset = user - region->user;
		if (user >= region->user && offset < region->size)
			return length <= region->size - offset ? region->host + offset : NULL;
	}
	return NULL;
}

/* --- the log --------------------------------------------------------------------- */

int vhost_memory_set_log(struct vhost_memory *memory, uint64_t size, uint64_t offset, int fd)
{
	void *map;
	size_t map_size;
	int error = map_fd(memory, fd, size, offset, &map, &map_size);
	if (error)
		return error;
	drop_log(memory);
	memory->log_map = map;
	memory->log_map_size = map_size;
	memory->log = (uint8_t *)map + offset;
	memory->log_pages = size * 8;
	return 0;
}

/* Whoever moves the guest reads and clears the bits meanwhile. */
void vhost_memory_mark(struct vhost_memory *memory, uint64_t guest, uint64_t length)
{
	if (!memory->logging || !memory->log || !length)
		return;
	uint64_t last = (guest + length - 1) >> LOG_PAGE_SHIFT;
	for (uint64_t page = guest >> LOG_PAGE_SHIFT; page <= last && page < memory->log_pages;
		page++)
		atomic_fetch_or((_Atomic uint8_t *)&memory->log[page / 8], 1u << (page % 8));
}

void vhost_memory_mark_host(struct vhost_memory *memory, const void *host, uint64_t length)
{
	const uint8_t *at = host;
	for (unsigned i = 0; memory->logging && i < memory->count; i++) {
		const struct vhost_region *region = &memory->region[i];
		if (at >= region->host && at < region->host + region->size)
			vhost_memory_mark(
				memory, region->guest + (uint64_t)(at - region->host), length);
	}
}
