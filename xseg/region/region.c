/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of a program: what <xseg/region.h> promises. */
#include <base/clock.h>
#include <base/time.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "xseg/region/region_priv.h"

#define REGION_PAGE 4096u
#define PATIENCE_S 10u
#define PATIENCE_NS (PATIENCE_S * 1000000000ull)
#define NAP_NS 20000000u
#define REGION_EXPORT __attribute__((visibility("default")))

static _Thread_local char region_sentence[REGION_WHY_SIZE];

int region_refuse(int error, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(region_sentence, sizeof(region_sentence), format, args);
	va_end(args);
	return error;
}

REGION_EXPORT const char *region_why(void) { return region_sentence; }

REGION_EXPORT void *region_memory(const struct region *region) { return region->memory; }

REGION_EXPORT uint64_t region_size(const struct region *region) { return region->size; }

/* --- calls ------------------------------------------------------------------------------- */

/* The connection is ours until region_release(). */
static int region_claim(struct region *region, uint32_t *generation)
{
	pthread_mutex_lock(&region->lock);
	while (!region->lost && (region->asking || region->fd < 0))
		pthread_cond_wait(&region->changed, &region->lock);
	int error = region->lost;
	if (!error)
		region->asking = true;
	*generation = region->generation;
	pthread_mutex_unlock(&region->lock);
	return error;
}

/* broken: it ended; whoever comes next waits for another one. */
static void region_release(struct region *region, uint32_t generation, bool broken)
{
	pthread_mutex_lock(&region->lock);
	region->asking = false;
	pthread_cond_broadcast(&region->changed);
	while (broken && !region->lost && region->generation == generation)
		pthread_cond_wait(&region->changed, &region->lock);
	pthread_mutex_unlock(&region->lock);
}

/* All questions may be asked twice: a front that was killed may have done it or not. */
static int region_call(struct region *region, struct region_wire *wire)
{
	const struct region_wire question = *wire;
	uint32_t generation;
	for (;;) {
		int error = region_claim(region, &generation);
		if (error)
			return error;
		*wire = question;
		wire->serial = ++region->serial;
		wire->token = region->token;
		error = region_link_ask(region->fd, wire, -1, NULL);
		region_release(region, generation, error == -ECONNRESET);
		if (error != -ECONNRESET)
			return error;
	}
}

static int region_call_range(struct region *region, enum region_wire_type type, uint64_t offset,
	uint64_t size, uint64_t arg)
{
	if (offset > region->size || size > region->size - offset)
		return -EINVAL;
	struct region_wire wire = {.type = (uint16_t)type,
		.offset = offset,
		.size = size ? size : region->size - offset,
		.arg = arg};
	return region_call(region, &wire);
}

REGION_EXPORT int region_sync(struct region *region, uint64_t offset, uint64_t size)
{
	return region_call_range(region, REGION_WIRE_SYNC, offset, size, 0);
}

REGION_EXPORT int region_prefetch(struct region *region, uint64_t offset, uint64_t size)
{
	return region_call_range(region, REGION_WIRE_FETCH, offset, size, 0);
}

REGION_EXPORT int region_advise(
	struct region *region, uint64_t offset, uint64_t size, enum region_advice advice)
{
	return region_call_range(region, REGION_WIRE_ADVISE, offset, size, advice);
}

REGION_EXPORT int region_status(struct region *region, struct region_status *status)
{
	struct region_wire wire = {.type = REGION_WIRE_STATUS};
	int error = region_call(region, &wire);
	if (error)
		return error;
	memcpy(status, wire.text, sizeof(*status));
	status->reconnects = region->generation;
	status->kernel_faults = region->kernel_faults;
	return 0;
}

/* --- its life ------------------------------------------------------------------------------ */

static int region_map(struct region *region)
{
	bool shared = !(region->flags & (REGION_READ_ONLY | REGION_PRIVATE));
	int protection = region->flags & REGION_READ_ONLY ? PROT_READ : PROT_READ | PROT_WRITE;
	region->mapped = (region->size + REGION_PAGE - 1) / REGION_PAGE * REGION_PAGE;
	void *memory = mmap(NULL, region->mapped, protection,
		(shared ? MAP_SHARED : MAP_PRIVATE) | MAP_NORESERVE, region->memory_fd,
		(off_t)region->offset);
	if (memory == MAP_FAILED)
		return region_refuse(-errno, "%llu bytes cannot be mapped: %s",
			(unsigned long long)region->mapped, strerror(errno));
	region->memory = memory;
	/* in a child nobody would fill it */
	return madvise(memory, region->mapped, MADV_DONTFORK) ? -errno : 0;
}

static int region_begin(struct region *region, const char *segment)
{
	int error = region_link_find(region, segment);
	if (error)
		return error;
	error = region_link_connect(&region->address, &region->fd);
	if (error)
		return region_refuse(error == -ECONNREFUSED ? -ENOENT : error,
			"no front_region listens on '%s': %s; start one with 'xsegctl peer start "
			"region0=front_region,edge.volume=COMPOSER'",
			region->address.sun_path, strerror(-error));
	error = region_link_open(region, region->fd);
	if (!error)
		error = region_map(region);
	if (!error)
		error = region_fault_open(region);
	if (!error)
		error = region_link_arm(region, region->fd);
	if (!error && pthread_create(&region->watcher, NULL, region_link_watch, region))
		error = region_refuse(-EAGAIN, "no thread for the region");
	return error;
}

static void region_free(struct region *region)
{
	region_fault_close(region);
	if (region->memory)
		munmap(region->memory, region->mapped);
	if (region->memory_fd >= 0)
		close(region->memory_fd);
	if (region->fd >= 0)
		close(region->fd);
	if (region->stop_fd >= 0)
		close(region->stop_fd);
	pthread_cond_destroy(&region->changed);
	pthread_mutex_destroy(&region->lock);
	free(region);
}

static int region_check(const char *segment, const char *volume, uint64_t offset, uint64_t size)
{
	if (!segment || !*segment || !volume || !*volume || strlen(volume) > VOLUME_NAME_LENGTH_MAX)
		return region_refuse(-EINVAL, "no name of a segment, or of a volume");
	if (offset % REGION_PAGE || size % REGION_PAGE)
		return region_refuse(
			-EINVAL, "offset and size must be multiples of %u", REGION_PAGE);
	return 0;
}

static struct region *region_try(
	const char *segment, const char *volume, uint64_t offset, uint64_t size, unsigned flags)
{
	struct region *region = NULL;
	int error = region_check(segment, volume, offset, size);
	if (!error && flags & ~(REGION_READ_ONLY | REGION_PRIVATE))
		error = region_refuse(-EINVAL, "flags that nobody knows: %#x", flags);
	if (!error && !(region = calloc(1, sizeof(*region))))
		error = region_refuse(-ENOMEM, "no memory for a region");
	if (error) {
		errno = -error;
		return NULL;
	}
	*region = (struct region){.offset = offset,
		.size = size,
		.flags = flags,
		.memory_fd = -1,
		.fault_fd = -1,
		.fd = -1,
		.stop_fd = eventfd(0, EFD_CLOEXEC)};
	strcpy(region->volume, volume);
	pthread_mutex_init(&region->lock, NULL);
	pthread_cond_init(&region->changed, NULL);
	error = region_begin(region, segment);
	if (!error)
		return region;
	region_free(region);
	errno = -error;
	return NULL;
}

/* A front that dies in the middle has a successor soon. */
REGION_EXPORT struct region *region_open(
	const char *segment, const char *volume, uint64_t offset, uint64_t size, unsigned flags)
{
	const uint64_t until = clock_now_ns() + PATIENCE_NS;
	bool met = false; /* there was one */
	for (;;) {
		struct region *region = region_try(segment, volume, offset, size, flags);
		met = met || errno == ECONNRESET;
		bool away = errno == ECONNRESET || (met && errno == ENOENT);
		if (region || !away || clock_now_ns() > until)
			return region;
		time_nap(NAP_NS);
	}
}

/* The thread has ended, so the socket is ours. */
static int region_leave_now(struct region *region)
{
	struct region_wire wire = {
		.type = REGION_WIRE_LEAVE, .token = region->token, .serial = ++region->serial};
	int error = 0;
	if (region->fd < 0) {
		error = region_link_connect(&region->address, &region->fd);
		error = error ? error : region_link_open(region, region->fd);
	}
	if (error == -ESTALE)
		return 0; /* there is nothing of ours any more */
	if (!error) {
		region_link_limit(region->fd, PATIENCE_S);
		error = region_link_ask(region->fd, &wire, -1, NULL);
	}
	if (error && region->fd >= 0) {
		close(region->fd);
		region->fd = -1;
	}
	return error;
}

static int region_leave(struct region *region)
{
	const uint64_t until = clock_now_ns() + PATIENCE_NS;
	int error = region->lost;
	while (!region->lost && (error = region_leave_now(region)) && clock_now_ns() < until)
		time_nap(NAP_NS);
	return error;
}

REGION_EXPORT int region_close(struct region *region)
{
	const uint64_t one = 1;
	must(write(region->stop_fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
	pthread_join(region->watcher, NULL);
	int error = region_leave(region);
	region_free(region);
	return error;
}
