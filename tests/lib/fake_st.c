/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linux's st driver over a file, for LD_PRELOAD where the kernel has no drive: whoever opens the
 * file FAKE_ST by its name has a tape of FAKE_ST_MB megabytes in it, blocks of any length, of which
 * the last one is behind the early warning. FAKE_ST_READ_ONLY=yes: it is write-protected.
 * After: Documentation/scsi/st.rst and st(4). One process, one descriptor.
 *
 * The file: for each block its length, then its bytes; for a filemark MARK.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mtio.h>
#include <unistd.h>

#define SHOWN __attribute__((visibility("default")))
#define MARK 0xffffffffu
#define BLOCKS 1000000u

static int tape = -1;
static uint64_t at[BLOCKS + 1]; /* where each block or mark begins; at[count] is the end */
static uint32_t length[BLOCKS];
static uint32_t count, head;
static long status;
static int warned;

static uint64_t capacity(void)
{
	const char *mb = getenv("FAKE_ST_MB");
	return (mb ? strtoull(mb, NULL, 10) : 64) << 20;
}

static void scan(void)
{
	uint32_t size;
	for (count = 0, at[0] = 0; count < BLOCKS; count++) {
		if (pread(tape, &size, sizeof(size), (off_t)at[count]) != sizeof(size))
			break;
		length[count] = size;
		at[count + 1] = at[count] + sizeof(size) + (size == MARK ? 0 : size);
	}
	head = 0;
	status = GMT_BOT(-1);
	warned = 0;
}

static int put(uint32_t size, const void *bytes)
{
	uint64_t left = capacity() > at[head] ? capacity() - at[head] : 0;
	if (size != MARK && left < size) {
		errno = ENOSPC;
		return -1;
	}
	if (size != MARK && left < (1u << 20) && !warned) {
		warned = 1;
		errno = ENOSPC;
		return -1;
	}
	if (head == BLOCKS || ftruncate(tape, (off_t)at[head]) ||
		pwrite(tape, &size, sizeof(size), (off_t)at[head]) != sizeof(size) ||
		(size != MARK && pwrite(tape, bytes, size, (off_t)at[head] + 4) != (ssize_t)size)) {
		errno = EIO;
		return -1;
	}
	length[head] = size;
	at[head + 1] = at[head] + sizeof(size) + (size == MARK ? 0 : size);
	count = ++head;
	status = 0;
	return 0;
}

/* Over blocks of a file, or over files. */
static int skip(int blocks, int n)
{
	status = 0;
	while (n > 0) {
		if (head == count) {
			status = GMT_EOD(-1);
			errno = EIO;
			return -1;
		}
		int mark = length[head++] == MARK;
		n -= blocks || mark;
		if (blocks && mark) {
			status = GMT_EOF(-1);
			errno = EIO;
			return -1;
		}
	}
	return 0;
}

static int operate(const struct mtop *op)
{
	int n = op->mt_count, rc = 0;
	switch (op->mt_op) {
	case MTREW:
		head = 0;
		status = GMT_BOT(-1);
		return 0;
	case MTSETBLK: return n == 0 ? 0 : (errno = EINVAL, -1);
	case MTWEOF:
		while (rc == 0 && n-- > 0)
			rc = put(MARK, NULL);
		return rc;
	case MTFSR: return skip(1, n);
	case MTFSF: return skip(0, n);
	case MTSEEK:
		status = (uint32_t)n > count ? GMT_EOD(-1) : 0;
		head = (uint32_t)n > count ? count : (uint32_t)n;
		return status ? (errno = EIO, -1) : 0;
	default: errno = ENOTTY; return -1;
	}
}

static int control(unsigned long request, void *argument)
{
	if (request == MTIOCTOP)
		return operate(argument);
	if (request == MTIOCGET) {
		*(struct mtget *)argument = (struct mtget){.mt_gstat = status};
		return 0;
	}
	if (request == MTIOCPOS) {
		((struct mtpos *)argument)->mt_blkno = head;
		return 0;
	}
	errno = ENOTTY;
	return -1;
}

static ssize_t take(void *to, size_t room)
{
	status = 0;
	if (head == count) {
		status = GMT_EOD(-1);
		errno = EIO;
		return -1;
	}
	uint32_t size = length[head++];
	if (size == MARK) {
		status = GMT_EOF(-1);
		return 0;
	}
	if (size > room) {
		errno = ENOMEM;
		return -1;
	}
	return pread(tape, to, size, (off_t)at[head - 1] + 4);
}

/* --- what is preloaded ---------------------------------------------------------------------- */

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

SHOWN int open(const char *path, int flags, ...)
{
	const char *ours = getenv("FAKE_ST"), *protected = getenv("FAKE_ST_READ_ONLY");
	va_list rest;
	va_start(rest, flags);
	int mode = va_arg(rest, int);
	va_end(rest);
	int is_ours = ours && !strcmp(path, ours);
	if (is_ours && protected && (flags & O_ACCMODE) != O_RDONLY) {
		errno = EROFS;
		return -1;
	}
	int fd = REAL(open)(path, flags, mode);
	if (!is_ours || fd < 0)
		return fd;
	tape = fd;
	scan();
	return fd;
}

SHOWN int ioctl(int fd, unsigned long request, ...)
{
	va_list rest;
	va_start(rest, request);
	void *argument = va_arg(rest, void *);
	va_end(rest);
	return fd >= 0 && fd == tape ? control(request, argument)
				     : REAL(ioctl)(fd, request, argument);
}

SHOWN ssize_t read(int fd, void *to, size_t size)
{
	return fd >= 0 && fd == tape ? take(to, size) : REAL(read)(fd, to, size);
}

SHOWN ssize_t write(int fd, const void *from, size_t size)
{
	if (fd < 0 || fd != tape)
		return REAL(write)(fd, from, size);
	return put((uint32_t)size, from) ? -1 : (ssize_t)size;
}

SHOWN int close(int fd)
{
	if (fd == tape)
		tape = -1;
	return REAL(close)(fd);
}
