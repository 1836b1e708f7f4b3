/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a file blocker: fdatasync() and fsync() of folders fail with EIO as long as the
 * file that SYNC_FAULT names says "data" or "folder", syncfs() when it says "system" - and, like
 * Linux, only report it: the next one says yes again. With "stop" the next pwritev() stops the
 * process before it writes, and the file is removed; with "hold" it is removed by the next
 * fdatasync(), which fails when the file says "fail".
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static bool asked_for(const char *what)
{
	char text[16] = "";
	const char *path = getenv("SYNC_FAULT");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return false;
	ssize_t got = read(fd, text, sizeof(text) - 1);
	close(fd);
	return got > 0 && strncmp(text, what, strlen(what)) == 0;
}

__attribute__((visibility("default"))) int fdatasync(int fd)
{
	static int (*real)(int);
	bool held = asked_for("hold") && unlink(getenv("SYNC_FAULT")) == 0;
	while (held && !asked_for("fail"))
		usleep(1000);
	if (held || asked_for("data")) {
		errno = EIO;
		return -1;
	}
	if (!real)
		real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
	return real(fd);
}

__attribute__((visibility("default"))) int syncfs(int fd)
{
	static int (*real)(int);
	if (asked_for("system")) {
		errno = EIO;
		return -1;
	}
	if (!real)
		real = (int (*)(int))dlsym(RTLD_NEXT, "syncfs");
	return real(fd);
}

__attribute__((visibility("default"))) int fsync(int fd)
{
	static int (*real)(int);
	struct stat s;
	if (fstat(fd, &s) == 0 && S_ISDIR(s.st_mode) && asked_for("folder")) {
		errno = EIO;
		return -1;
	}
	if (!real)
		real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
	return real(fd);
}

__attribute__((visibility("default"))) ssize_t pwritev(
	int fd, const struct iovec *parts, int count, off_t at)
{
	static ssize_t (*real)(int, const struct iovec *, int, off_t);
	if (asked_for("stop") && unlink(getenv("SYNC_FAULT")) == 0)
		raise(SIGSTOP);
	if (!real)
		real = (ssize_t(*)(int, const struct iovec *, int, off_t))dlsym(
			RTLD_NEXT, "pwritev");
	return real(fd, parts, count, at);
}
