/* SPDX-License-Identifier: Apache-2.0 */
#include "peers/blocker/file/file_home.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int file_home_read(int root, char identity[HOME_IDENTITY])
{
	int fd = openat(root, "identity", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	ssize_t got = read(fd, identity, HOME_IDENTITY - 1);
	int error = got < 0 ? -errno : got != HOME_IDENTITY - 1 ? -EILSEQ : 0;
	close(fd);
	identity[HOME_IDENTITY - 1] = 0;
	return error;
}

int file_home_make(int root, char identity[HOME_IDENTITY])
{
	int error = file_home_read(root, identity);
	if (error != -ENOENT)
		return error;
	error = home_random(identity);
	if (error)
		return error;
	int fd = openat(root, "tmp/identity", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	ssize_t put = write(fd, identity, HOME_IDENTITY - 1);
	error = put < 0 ? -errno : put != HOME_IDENTITY - 1 ? -ENOSPC : 0;
	if (!error && fsync(fd))
		error = -errno;
	close(fd);
	if (!error && renameat(root, "tmp/identity", root, "identity"))
		error = -errno;
	return error ? error : fsync(root) ? -errno : 0;
}
