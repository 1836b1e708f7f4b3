/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a peer: as long as the folder that CRASH_SHIM names has a file "clock", the wall
 * clock stands an hour earlier; as long as it has "slow", each read, write and sync of files takes
 * as many ms longer as the file says.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define OURS __attribute__((visibility("default")))

static const char *path_of(char path[512], const char *name)
{
	const char *folder = getenv("CRASH_SHIM");
	return folder && snprintf(path, 512, "%s/%s", folder, name) < 512 ? path : NULL;
}

static void be_slow(void)
{
	char path[512], text[16] = "";
	if (!path_of(path, "slow"))
		return;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	ssize_t got = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (got > 0)
		usleep((useconds_t)(strtoul(text, NULL, 10) * 1000));
}

OURS int clock_gettime(clockid_t which, struct timespec *now)
{
	static int (*real)(clockid_t, struct timespec *);
	char path[512];
	if (!real)
		real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	int rc = real(which, now);
	if (rc == 0 && which == CLOCK_REALTIME && path_of(path, "clock") && access(path, F_OK) == 0)
		now->tv_sec -= 3600;
	return rc;
}

OURS ssize_t pread(int fd, void *to, size_t size, off_t offset)
{
	static ssize_t (*real)(int, void *, size_t, off_t);
	if (!real)
		real = (ssize_t(*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
	be_slow();
	return real(fd, to, size, offset);
}

OURS ssize_t preadv(int fd, const struct iovec *iov, int count, off_t offset)
{
	static ssize_t (*real)(int, const struct iovec *, int, off_t);
	if (!real)
		real = (ssize_t(*)(int, const struct iovec *, int, off_t))dlsym(
			RTLD_NEXT, "preadv");
	be_slow();
	return real(fd, iov, count, offset);
}

/* What need not wait is what need not go to the disk: nothing does. */
OURS ssize_t preadv2(int fd, const struct iovec *iov, int count, off_t offset, int flags)
{
	static ssize_t (*real)(int, const struct iovec *, int, off_t, int);
	char path[512];
	if (!real)
		real = (ssize_t(*)(int, const struct iovec *, int, off_t, int))dlsym(
			RTLD_NEXT, "preadv2");
	if (flags & RWF_NOWAIT && path_of(path, "slow") && access(path, F_OK) == 0) {
		errno = EAGAIN;
		return -1;
	}
	be_slow();
	return real(fd, iov, count, offset, flags);
}

OURS ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t offset)
{
	static ssize_t (*real)(int, const struct iovec *, int, off_t);
	if (!real)
		real = (ssize_t(*)(int, const struct iovec *, int, off_t))dlsym(
			RTLD_NEXT, "pwritev");
	be_slow();
	return real(fd, iov, count, offset);
}

OURS int fdatasync(int fd)
{
	static int (*real)(int);
	if (!real)
		real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
	be_slow();
	return real(fd);
}
