/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to a service manager, and descriptors from one. */
#include <base/notify.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/lib/unit.h"

static int manager(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	memcpy(address.sun_path, path, strlen(path) + 1);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(setenv("NOTIFY_SOCKET", path, 1), 0);
	return fd;
}

/* The next message and the descriptor with it, or -1. */
static int take(int from, char *text, size_t size)
{
	_Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {.iov_base = text, .iov_len = size - 1};
	struct msghdr message = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = space,
		.msg_controllen = sizeof(space)};
	ssize_t n = recvmsg(from, &message, 0);
	ck_assert_int_ge(n, 0);
	text[n] = 0;
	struct cmsghdr *control = CMSG_FIRSTHDR(&message);
	int fd = -1;
	if (control)
		memcpy(&fd, CMSG_DATA(control), sizeof(fd));
	return fd;
}

UNIT(test_send)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)], text[64];
	int pipes[2];
	ck_assert_int_lt(
		snprintf(path, sizeof(path), "%s/n.sock", scratch_dir()), (int)sizeof(path));
	int from = manager(path);
	ck_assert_int_eq(notify_send("READY=1\nSTATUS=serving", -1), 0);
	ck_assert_int_eq(take(from, text, sizeof(text)), -1);
	ck_assert_str_eq(text, "READY=1\nSTATUS=serving");
	ck_assert_int_eq(pipe(pipes), 0);
	ck_assert_int_eq(notify_send("FDSTORE=1\nFDNAME=x", pipes[1]), 0);
	int fd = take(from, text, sizeof(text));
	ck_assert_str_eq(text, "FDSTORE=1\nFDNAME=x");
	ck_assert_int_ge(fd, 0);
	/* it is the same pipe */
	ck_assert_int_eq(write(fd, "y", 1), 1);
	ck_assert_int_eq(read(pipes[0], text, sizeof(text)), 1);
	close(from);
	unlink(path);
	ck_assert_int_eq(notify_send("READY=1", -1), -ENOENT);
}

UNIT(test_nobody)
{
	unsetenv("NOTIFY_SOCKET");
	ck_assert_int_eq(notify_send("READY=1", -1), -ENOENT);
	setenv("NOTIFY_SOCKET", "relative", 1);
	ck_assert_int_eq(notify_send("READY=1", -1), -ENOENT);
	setenv("NOTIFY_SOCKET", "@skerry-nobody-is-there", 1);
	ck_assert_int_eq(notify_send("READY=1", -1), -ECONNREFUSED);
}

UNIT(test_handed)
{
	char pid[16], name[NOTIFY_NAME_MAX];
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	unsetenv("LISTEN_PID");
	setenv("LISTEN_FDS", "3", 1);
	setenv("LISTEN_FDNAMES", "a::c/d", 1);
	ck_assert_int_eq(notify_fd_count(), 0);
	setenv("LISTEN_PID", "1", 1); /* another's */
	ck_assert_int_eq(notify_fd_count(), 0);
	setenv("LISTEN_PID", pid, 1);
	ck_assert_int_eq(notify_fd_count(), 3);
	static const char *const names[] = {"a", "", "c/d", ""};
	for (int i = 0; i < 4; i++) {
		notify_fd_name(i, name);
		ck_assert_str_eq(name, names[i]);
	}
	unsetenv("LISTEN_FDNAMES");
	notify_fd_name(0, name);
	ck_assert_str_eq(name, "");
	setenv("LISTEN_FDS", "-1", 1);
	ck_assert_int_eq(notify_fd_count(), 0);
}

UNIT(test_names)
{
	char text[NOTIFY_NAME_MAX + 1];
	memset(text, 'x', NOTIFY_NAME_MAX);
	text[NOTIFY_NAME_MAX] = 0;
	ck_assert_int_eq(notify_name_check(text), -EINVAL);
	text[NOTIFY_NAME_MAX - 1] = 0;
	ck_assert_int_eq(notify_name_check(text), 0);
	ck_assert_int_eq(notify_name_check("nbd0/unix.1.2"), 0);
	ck_assert_int_eq(notify_name_check(""), -EINVAL);
	ck_assert_int_eq(notify_name_check("a:b"), -EINVAL);
	ck_assert_int_eq(notify_name_check("a b"), -EINVAL);
	ck_assert_int_eq(notify_name_check("\xc3\xa4"), -EINVAL);
}
