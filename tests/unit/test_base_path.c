/* SPDX-License-Identifier: Apache-2.0 */
/* Where things lie, moved by variables, never longer than there is room for. */
#include <base/path.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/unit.h"

UNIT(test_places)
{
	char path[PATH_LENGTH_MAX];
	setenv("SKERRY_SHM_DIR", "/x/shm", 1);
	setenv("SKERRY_RUN_DIR", "/x/run", 1);
	ck_assert_int_eq(path_segment(path, "demo"), 0);
	ck_assert_str_eq(path, "/x/shm/xseg.demo");
	ck_assert_int_eq(path_run(path, "demo", NULL), 0);
	ck_assert_str_eq(path, "/x/run/demo");
	ck_assert_int_eq(path_run(path, "demo", "xsegd.sock"), 0);
	ck_assert_str_eq(path, "/x/run/demo/xsegd.sock");
	setenv("SKERRY_SHM_DIR", "", 1);
	unsetenv("SKERRY_RUN_DIR");
	ck_assert_str_eq(path_shm_dir(), "/dev/shm");
	ck_assert_str_eq(path_run_dir(), "/run/skerry");
}

UNIT(test_too_long)
{
	char path[PATH_LENGTH_MAX], folder[PATH_LENGTH_MAX];
	memset(folder, 'a', sizeof(folder));
	folder[0] = '/';
	folder[PATH_LENGTH_MAX - 8] = 0; /* "/xseg.n" and the end just fit */
	setenv("SKERRY_SHM_DIR", folder, 1);
	ck_assert_int_eq(path_segment(path, "n"), 0);
	ck_assert_uint_eq(strlen(path), PATH_LENGTH_MAX - 1);
	ck_assert_int_eq(path_segment(path, "no"), -ENAMETOOLONG);
	setenv("SKERRY_RUN_DIR", folder, 1);
	ck_assert_int_eq(path_run(path, "demo", "xsegd.sock"), -ENAMETOOLONG);
}

UNIT(test_make_dir)
{
	char path[PATH_LENGTH_MAX], file[PATH_LENGTH_MAX + 2];
	struct stat st;
	snprintf(path, sizeof(path), "%s/a.%d/b/c", scratch_dir(), (int)getpid());
	ck_assert_int_eq(path_make_dir(path), 0);
	ck_assert_int_eq(path_make_dir(path), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert(S_ISDIR(st.st_mode));
	ck_assert_int_eq(st.st_mode & 06, 0); /* others go through at most */
	strcat(path, "/d/");
	ck_assert_int_eq(path_make_dir(path), 0);
	path[strlen(path) - 1] = 0;
	snprintf(file, sizeof(file), "%s/f", path);
	fclose(fopen(file, "w"));
	strcat(path, "/f");
	ck_assert_int_eq(path_make_dir(path), -ENOTDIR);
	strcat(path, "/g");
	ck_assert_int_eq(path_make_dir(path), -ENOTDIR);
	ck_assert_int_eq(path_make_dir(""), -ENOENT);
	ck_assert_int_lt(path_make_dir("/proc/none/x"), 0);
}

/* What another user has made, or may write to, is not used; nor is a link in the last place. */
UNIT(test_trust)
{
	char file[PATH_LENGTH_MAX], link[PATH_LENGTH_MAX + 8], folder[PATH_LENGTH_MAX + 8];
	snprintf(file, sizeof(file), "%s/trust.%d", scratch_dir(), (int)getpid());
	snprintf(link, sizeof(link), "%s.link", file);
	snprintf(folder, sizeof(folder), "%s.d", file);
	int fd = path_open(file, O_RDWR | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(path_check(file), 0);
	ck_assert_int_eq(symlink(file, link), 0);
	ck_assert_int_eq(path_open(link, O_RDWR, 0), -ELOOP);
	ck_assert_int_eq(chmod(file, 0666), 0);
	ck_assert_int_eq(path_open(file, O_RDWR, 0), -EPERM);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(chmod(file, 0600), 0);
	ck_assert_int_eq(path_make_dir(folder), 0);
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(file, 12345, 12345), 0);
		ck_assert_int_eq(path_open(file, O_RDWR, 0), -EPERM);
		ck_assert_int_eq(path_check(file), -EPERM);
		ck_assert_int_eq(chown(folder, 12345, 12345), 0);
		ck_assert_int_eq(path_make_dir(folder), -EPERM);
		/* a run folder of a user's is trusted where only root could have made it */
		setenv("SKERRY_RUN_DIR", folder, 1);
		ck_assert_int_eq(chmod(scratch_dir(), 0755), 0);
		ck_assert_int_eq(path_check(file), 0);
		ck_assert_int_eq(chmod(scratch_dir(), 01777), 0);
		ck_assert_int_eq(path_check(file), -EPERM);
		ck_assert_int_eq(chmod(scratch_dir(), 0700), 0);
	}
	unlink(link);
	unlink(file);
	rmdir(folder);
}
