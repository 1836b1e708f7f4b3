/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors over UNIX sockets. */
#include <base/pass.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

union pass_control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(PASS_FDS_MAX * sizeof(int))];
};

ssize_t pass_send(int to, const struct iovec *iov, int count, int fd, int flags)
{
	union pass_control control = {.header = {.cmsg_len = CMSG_LEN(sizeof(fd)),
					      .cmsg_level = SOL_SOCKET,
					      .cmsg_type = SCM_RIGHTS}};
	struct msghdr message = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count};
	if (fd >= 0) {
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(fd));
	}
	return sendmsg(to, &message, flags | MSG_NOSIGNAL);
}

static void pass_keep(const struct cmsghdr *header, int fds[], unsigned *had, unsigned max)
{
	size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	for (size_t i = 0; i < count; i++) {
		int fd;
		memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
		if (*had < max)
			fds[(*had)++] = fd;
		else
			close(fd);
	}
}

ssize_t pass_receive(
	int from, void *data, size_t size, int fds[], unsigned *had, unsigned max, int flags)
{
	union pass_control control;
	struct iovec iov = {data, size};
	struct msghdr message = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	ssize_t got = recvmsg(from, &message, flags | MSG_CMSG_CLOEXEC);
	for (struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&message) : NULL; header;
		header = CMSG_NXTHDR(&message, header))
		if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
			pass_keep(header, fds, had, max);
	return got;
}
