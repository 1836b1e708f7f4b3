/* SPDX-License-Identifier: Apache-2.0 */
/* Where segments, sockets and bells lie. */
#include <base/path.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PATH_DIR_MODE 0770

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
	return path_make_one(part);
}
