/* SPDX-License-Identifier: Apache-2.0 */
/* Where segments, sockets and bells lie. */
#include <base/path.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_DIR_MODE 0771 /* sockets in it have groups of their own, who must get there */

static const char *path_variable(const char *variable, const char *usual)
{
	const char *value = getenv(variable);
	return value && *value ? value : usual;
}

static int path_fits(int length)
{
	return length >= 0 && length < PATH_LENGTH_MAX ? 0 : -ENAMETOOLONG;
}

const char *path_shm_dir(void) { return path_variable("SKERRY_SHM_DIR", "/dev/shm"); }

const char *path_run_dir(void) { return path_variable("SKERRY_RUN_DIR", "/run/skerry"); }

int path_segment(char out[PATH_LENGTH_MAX], const char *segment)
{
	return path_fits(snprintf(out, PATH_LENGTH_MAX, "%s/xseg.%s", path_shm_dir(), segment));
}

int path_run(char out[PATH_LENGTH_MAX], const char *segment, const char *leaf)
{
	return path_fits(snprintf(out, PATH_LENGTH_MAX, "%s/%s%s%s", path_run_dir(), segment,
		leaf ? "/" : "", leaf ? leaf : ""));
}

int path_region(char out[PATH_LENGTH_MAX], const char *segment, const char *leaf)
{
	return path_fits(
		snprintf(out, PATH_LENGTH_MAX, "%s/region:%s:%s", path_shm_dir(), segment, leaf));
}

/* Not of a run folder that anybody could have made before us. */
static bool path_is_runs(uid_t user)
{
	char above[PATH_LENGTH_MAX + 4];
	struct stat run, parent;
	snprintf(above, sizeof(above), "%s/..", path_run_dir());
	return stat(path_run_dir(), &run) == 0 && run.st_uid == user && stat(above, &parent) == 0 &&
	       !(parent.st_mode & S_IWOTH);
}

bool path_is_trusted(const struct stat *st)
{
	bool open = S_ISREG(st->st_mode) || S_ISFIFO(st->st_mode) ||
		    (S_ISDIR(st->st_mode) && !(st->st_mode & S_ISVTX));
	if (open && (st->st_mode & S_IWOTH))
		return false;
	return st->st_uid == 0 || st->st_uid == geteuid() || path_is_runs(st->st_uid);
}

int path_open(const char *path, int flags, unsigned mode)
{
	struct stat st;
	int fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return -errno;
	int error = fstat(fd, &st) != 0 ? -errno : path_is_trusted(&st) ? 0 : -EPERM;
	if (!error)
		return fd;
	close(fd);
	errno = -error;
	return error;
}

int path_check(const char *path)
{
	struct stat st;
	if (lstat(path, &st) != 0)
		return -errno;
	return path_is_trusted(&st) ? 0 : -EPERM;
}

/* 0 when it is there now, made or not; a file of that name is -ENOTDIR. */
static int path_make_one(const char *path)
{
	struct stat st;
	if (mkdir(path, PATH_DIR_MODE) == 0)
		return 0;
	int error = errno;
	/* a parent we may not write to may still have the folder: EACCES, EROFS */
	if (stat(path, &st) == 0)
		return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
	return -error;
}

int path_make_dir(const char *path)
{
	char part[PATH_LENGTH_MAX];
	size_t length = strlen(path);
	if (length == 0)
		return -ENOENT;
	if (length >= sizeof(part))
		return -ENAMETOOLONG;
	memcpy(part, path, length + 1);
	for (char *p = part + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = 0;
		int error = path_make_one(part);
		if (error)
			return error;
		*p = '/';
	}
	int error = path_make_one(part);
	return error ? error : path_check(part);
}
