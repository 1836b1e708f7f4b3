/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to the files of objects with calls that block. */
#include "peers/blocker/file/file_disk.h"

#include <base/crash.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_BYTES (256u << 10)
#define ZERO_BYTES (64u << 10)

/* --- names ----------------------------------------------------------------- */

void file_disk_path_volume(char path[FILE_PATH_SIZE], uint64_t volume)
{
	snprintf(path, FILE_PATH_SIZE, "objects/%016llx", (unsigned long long)volume);
}

void file_disk_path_folder(char path[FILE_PATH_SIZE], uint64_t volume, unsigned folder)
{
	snprintf(path, FILE_PATH_SIZE, "objects/%016llx/%02x", (unsigned long long)volume,
		folder % FILE_FOLDERS);
}

void file_disk_path_object(char path[FILE_PATH_SIZE], const struct xseg_key *key)
{
	int used = snprintf(path, FILE_PATH_SIZE, "objects/%016llx/%02x/%08x",
		(unsigned long long)key->volume, file_folder_of(key->object), key->object);
	if (key->epoch)
		snprintf(path + used, (size_t)(FILE_PATH_SIZE - used), ".%08x", key->epoch);
}

/* Nothing there: is that so, or is there no store any more? */
static int absent_or_gone(const struct file_store *store)
{
	return file_store_alive(store) ? -ENOENT : -EIO;
}

/* --- opening, making, removing ------------------------------------------------------- */

static int open_as(const struct file_store *store, const char *path, int mode)
{
	int fd;
	do
		fd = openat(store->root, path, mode | O_CLOEXEC | O_NOFOLLOW);
	while (fd < 0 && errno == EINTR);
	return fd;
}

/* On a file system that has become read-only what is there can still be read. */
int file_disk_open(struct file_store *store, const struct xseg_key *key, int *fd, uint64_t *size)
{
	char path[FILE_PATH_SIZE];
	struct stat s;
	file_disk_path_object(path, key);
	*fd = open_as(store, path, O_RDWR);
	if (*fd < 0 && errno == EROFS)
		*fd = open_as(store, path, O_RDONLY);
	if (*fd < 0)
		return errno == ENOENT ? absent_or_gone(store) : -errno;
	if (fstat(*fd, &s) == 0) {
		*size = (uint64_t)s.st_size;
		return 0;
	}
	int error = -errno;
	close(*fd);
	*fd = -1;
	return error;
}

/* Durable in the folder above before anything is put into it, or not there. */
static int make_folder(struct file_store *store, const char *path, const char *above)
{
	if (mkdirat(store->root, path, 0700))
		return errno == EEXIST ? 0 : -errno;
	int error = file_store_sync(store, above);
	if (error)
		unlinkat(store->root, path, AT_REMOVEDIR);
	return error;
}

int file_disk_create(struct file_store *store, const struct xseg_key *key, int *fd)
{
	char volume[FILE_PATH_SIZE], folder[FILE_PATH_SIZE], path[FILE_PATH_SIZE];
	file_disk_path_volume(volume, key->volume);
	file_disk_path_folder(folder, key->volume, file_folder_of(key->object));
	file_disk_path_object(path, key);
	file_lock(store, FILE_LOCK_FOLDERS);
	int error = make_folder(store, volume, "objects");
	error = error ? error : make_folder(store, folder, volume);
	if (!error) {
		*fd = openat(store->root, path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		error = *fd < 0 ? -errno : 0;
		crash_point("blocker_file.object.made");
	}
	file_lock_release(store, FILE_LOCK_FOLDERS);
	return error == -ENOENT ? -EIO : error;
}

int file_disk_delete(struct file_store *store, const struct xseg_key *key)
{
	char path[FILE_PATH_SIZE];
	file_disk_path_object(path, key);
	if (unlinkat(store->root, path, 0) && errno != ENOENT)
		return -errno;
	crash_point("blocker_file.object.deleted");
	if (!file_store_alive(store))
		return -EIO;
	/* empty folders go, too; what is not empty stays by itself */
	file_lock(store, FILE_LOCK_FOLDERS);
	file_disk_path_folder(path, key->volume, file_folder_of(key->object));
	if (unlinkat(store->root, path, AT_REMOVEDIR) == 0) {
		file_disk_path_volume(path, key->volume);
		unlinkat(store->root, path, AT_REMOVEDIR);
	}
	file_lock_release(store, FILE_LOCK_FOLDERS);
	return 0;
}

/* A folder that has gone was empty: then that it has gone is what must be durable. */
int file_disk_sync_folder(struct file_store *store, uint64_t volume, unsigned folder)
{
	char path[FILE_PATH_SIZE];
	file_disk_path_folder(path, volume, folder);
	int error = file_store_sync(store, path);
	if (error == -ENOENT) {
		file_disk_path_volume(path, volume);
		error = file_store_sync(store, path);
	}
	if (error == -ENOENT)
		error = file_store_sync(store, "objects");
	return error == -ENOENT || (!error && !file_store_alive(store)) ? -EIO : error;
}

int file_disk_sync(const struct file_store *store, int fd)
{
	struct stat s;
	int error;
	do
		error = fdatasync(fd) ? -errno : 0;
	while (error == -EINTR);
	if (!error && fstat(fd, &s))
		error = -errno;
	/* somebody removed it: what is durable now is gone with the last that has it open */
	return !error && s.st_nlink == 0 && !store->shared ? -EIO : error;
}

int file_disk_info(int fd, struct xseg_object_info *info)
{
	struct stat s;
	if (fstat(fd, &s))
		return -errno;
	info->size = (uint64_t)s.st_size;
	info->allocated = (uint64_t)s.st_blocks * 512;
	return 0;
}

/* --- zeros ----------------------------------------------------------------- */

static bool unsupported(int error) { return error == -EOPNOTSUPP || error == -ENOSYS; }

static int allocate(int fd, int mode, struct file_range range)
{
	int error;
	do
		error = fallocate(fd, mode, (off_t)range.offset, (off_t)range.size) ? -errno : 0;
	while (error == -EINTR);
	return file_disk_write_error(error);
}

static int write_all(int fd, const void *from, size_t size, uint64_t offset)
{
	for (size_t at = 0; at < size;) {
		ssize_t put =
			pwrite(fd, (const uint8_t *)from + at, size - at, (off_t)(offset + at));
		if (put < 0 && errno != EINTR)
			return file_disk_write_error(-errno);
		if (put == 0)
			return -EIO;
		at += put > 0 ? (size_t)put : 0;
	}
	return 0;
}

static int write_zeros(int fd, struct file_range range)
{
	static const uint8_t zeros[ZERO_BYTES];
	int error = 0;
	for (uint64_t at = 0; at < range.size && !error; at += ZERO_BYTES) {
		uint64_t left = range.size - at;
		error = write_all(
			fd, zeros, left < ZERO_BYTES ? left : ZERO_BYTES, range.offset + at);
	}
	return error;
}

static int zero_keeping(int fd, struct file_range range)
{
	int error = allocate(fd, FALLOC_FL_ZERO_RANGE, range);
	if (!unsupported(error))
		return error;
	/* tmpfs has no ZERO_RANGE, but fresh space reads as zeros, too */
	error = allocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, range);
	return error ? error : allocate(fd, 0, range);
}

/* Where holes cannot be punched, only what the file has needs overwriting. */
static int zero_what_is_there(int fd, struct file_range range)
{
	struct stat s;
	if (fstat(fd, &s))
		return -errno;
	uint64_t end = (uint64_t)s.st_size;
	if (range.offset >= end)
		return 0;
	if (range.size > end - range.offset)
		range.size = end - range.offset;
	return write_zeros(fd, range);
}

int file_disk_zero(int fd, struct file_range range, bool keep, bool fast, bool *written)
{
	*written = false;
	if (range.size == 0)
		return 0;
	int error = keep ? zero_keeping(fd, range)
			 : allocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, range);
	if (!unsupported(error))
		return error;
	if (fast)
		return -EOPNOTSUPP;
	*written = true;
	return keep ? write_zeros(fd, range) : zero_what_is_there(fd, range);
}

/* --- data and holes -------------------------------------------------------- */

/*
 * The next stretch from `offset` on, which ends at `end` at the latest: its end; *hole: what it is.
 * A file system that knows no holes has data up to the end of the file.
 */
static int stretch(int fd, uint64_t offset, uint64_t end, bool *hole, uint64_t *stretch_end)
{
	off_t data = lseek(fd, (off_t)offset, SEEK_DATA);
	if (data < 0 && errno != ENXIO)
		return -errno;
	uint64_t from = data < 0 ? end : (uint64_t)data / XSEG_SECTOR * XSEG_SECTOR;
	*hole = from > offset;
	if (*hole) {
		*stretch_end = from < end ? from : end;
		return 0;
	}
	off_t next = lseek(fd, (off_t)offset, SEEK_HOLE);
	if (next < 0)
		return -errno;
	uint64_t to = ((uint64_t)next + XSEG_SECTOR - 1) / XSEG_SECTOR * XSEG_SECTOR;
	*stretch_end = to < end && to > offset ? to : end;
	return 0;
}

int file_disk_status(int fd, struct file_range range, struct xseg_status_extent *out, int room)
{
	uint64_t at = range.offset, end = range.offset + range.size;
	int count = 0;
	for (; at < end && count < room; count++) {
		bool hole;
		uint64_t to;
		int error = stretch(fd, at, end, &hole, &to);
		if (error)
			return error;
		out[count] = (struct xseg_status_extent){.length = to - at};
		out[count].flags = hole ? XSEG_STATUS_HOLE | XSEG_STATUS_ZERO : 0;
		at = to;
	}
	return count;
}

/* --- copying --------------------------------------------------------------- */

/* Bytes got, less only at the end of the file; or -errno. */
static ssize_t read_all(int fd, uint8_t *to, size_t size, uint64_t offset)
{
	size_t at = 0;
	while (at < size) {
		ssize_t got = pread(fd, to + at, size - at, (off_t)(offset + at));
		if (got < 0 && errno != EINTR)
			return -errno;
		if (got == 0)
			break;
		at += got > 0 ? (size_t)got : 0;
	}
	return (ssize_t)at;
}

/* Through memory of ours, where the kernel will not. */
static int copy_by_hand(int from, int to, struct file_range range)
{
	uint8_t *buffer = malloc(COPY_BYTES);
	int error = buffer ? 0 : -ENOMEM;
	for (uint64_t at = 0; at < range.size && !error;) {
		uint64_t left = range.size - at;
		ssize_t got = read_all(
			from, buffer, left < COPY_BYTES ? left : COPY_BYTES, range.offset + at);
		if (got == 0) /* the source has become shorter */
			break;
		error = got < 0 ? (int)got : write_all(to, buffer, (size_t)got, range.offset + at);
		at += got > 0 ? (uint64_t)got : 0;
	}
	free(buffer);
	return error;
}

static int copy_data(int from, int to, struct file_range range)
{
	while (range.size) {
		off_t source = (off_t)range.offset, target = (off_t)range.offset;
		ssize_t put = copy_file_range(from, &source, to, &target, range.size, 0);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0 &&
			(errno == ENOSPC || errno == EDQUOT || errno == EIO || errno == EFBIG))
			return -errno;
		/* not between these two, or nothing came: the slow way says what is the matter */
		if (put <= 0)
			return copy_by_hand(from, to, range);
		range.offset += (uint64_t)put;
		range.size -= (uint64_t)put;
	}
	return 0;
}

static int copy_range(int from, int to, struct file_range range)
{
	uint64_t at = range.offset, end = range.offset + range.size, next = at;
	int error = 0;
	for (; at < end && !error; at = next) {
		bool hole, written;
		error = stretch(from, at, end, &hole, &next);
		if (error)
			return error;
		struct file_range piece = {at, next - at};
		error = hole ? file_disk_zero(to, piece, false, false, &written)
			     : copy_data(from, to, piece);
	}
	return error;
}

int file_disk_copy(
	struct file_store *store, const struct xseg_key *source, int fd, struct file_range range)
{
	int from;
	uint64_t size;
	bool written;
	int error = file_disk_open(store, source, &from, &size);
	if (error == -ENOENT)
		return file_disk_zero(fd, range, false, false, &written);
	if (error)
		return error;
	error = copy_range(from, fd, range);
	close(from);
	return error;
}
