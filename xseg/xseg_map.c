/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a segment in memory. */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "xseg/xseg_layout.h"

#ifdef __has_feature
#define MAP_SANITIZED __has_feature(thread_sanitizer)
#elif defined(__SANITIZE_THREAD__)
#define MAP_SANITIZED 1
#else
#define MAP_SANITIZED 0
#endif

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

static void *map_file(int fd, uint64_t size)
{
	/* address space with a huge page to spare, then the file at the aligned place in it */
	uint8_t *space = mmap(NULL, size + LAYOUT_HUGE, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (space == MAP_FAILED)
		return MAP_FAILED;
	uint64_t before = round_up((uintptr_t)space, LAYOUT_HUGE) - (uintptr_t)space;
	uint8_t *base =
		mmap(space + before, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	int error = errno;
	if (base == MAP_FAILED) {
		munmap(space, size + LAYOUT_HUGE);
		errno = error;
		return MAP_FAILED;
	}
	uint64_t end = round_up(size, XSEG_PAGE);
	if (before)
		munmap(space, before);
	if (LAYOUT_HUGE > before + (end - size))
		munmap(base + end, LAYOUT_HUGE - before - (end - size));
	return base;
}

#if MAP_SANITIZED

/*
 * Tests put a host and its clients into one process. What one of them orders through its addresses
 * the sanitizer does not see at the addresses of another, and it reports races that are none: so
 * they all get the same.
 */
#define MAP_SHARED_MAX 64

static struct map_shared {
	void *base;
	uint64_t size;
	dev_t device;
	ino_t inode;
	unsigned users;
} shared[MAP_SHARED_MAX];
static pthread_mutex_t shared_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct map_shared *shared_find(const struct stat *st, uint64_t size)
{
	struct map_shared *unused = NULL;
	for (unsigned i = 0; i < MAP_SHARED_MAX; i++) {
		struct map_shared *one = &shared[i];
		if (one->users && one->device == st->st_dev && one->inode == st->st_ino &&
			one->size == size)
			return one;
		if (!one->users)
			unused = one;
	}
	return unused;
}

void *layout_map(int fd, uint64_t size)
{
	struct stat st;
	if (fstat(fd, &st) != 0)
		return MAP_FAILED;
	pthread_mutex_lock(&shared_mutex);
	struct map_shared *one = shared_find(&st, size);
	void *base = one && one->users ? one->base : map_file(fd, size);
	if (one && base != MAP_FAILED)
		*one = (struct map_shared){base, size, st.st_dev, st.st_ino, one->users + 1};
	pthread_mutex_unlock(&shared_mutex);
	return base;
}

void layout_unmap(void *base, uint64_t size)
{
	unsigned left = 0;
	pthread_mutex_lock(&shared_mutex);
	for (unsigned i = 0; i < MAP_SHARED_MAX; i++)
		if (shared[i].users && shared[i].base == base)
			left = --shared[i].users;
	if (!left)
		munmap(base, size);
	pthread_mutex_unlock(&shared_mutex);
}

#else

void *layout_map(int fd, uint64_t size) { return map_file(fd, size); }

void layout_unmap(void *base, uint64_t size) { munmap(base, size); }

#endif
