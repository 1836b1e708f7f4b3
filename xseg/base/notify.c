/* SPDX-License-Identifier: Apache-2.0 */
/* Speaks to the service manager: datagrams to it, and the descriptors it handed over. */
#include <base/notify.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* '@' in front means the abstract name space. */
static socklen_t notify_address(struct sockaddr_un *address)
{
	const char *name = getenv("NOTIFY_SOCKET");
	size_t length = name ? strlen(name) : 0;
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	if (length < 2 || length >= sizeof(address->sun_path) || !strchr("/@", name[0]))
		return 0;
	memcpy(address->sun_path, name, length);
	if (name[0] == '@')
		address->sun_path[0] = '\0';
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
}

static void notify_attach(struct msghdr *message, void *space, size_t size, int fd)
{
	memset(space, 0, size);
	message->msg_control = space;
	message->msg_controllen = size;
	struct cmsghdr *control = CMSG_FIRSTHDR(message);
	control->cmsg_level = SOL_SOCKET;
	control->cmsg_type = SCM_RIGHTS;
	control->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(control), &fd, sizeof(fd));
}

int notify_send(const char *text, int fd)
{
	struct sockaddr_un address;
	_Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(fd))];
	struct iovec iov = {.iov_base = (char *)text, .iov_len = strlen(text)};
	struct msghdr message = {.msg_name = &address,
		.msg_namelen = notify_address(&address),
		.msg_iov = &iov,
		.msg_iovlen = 1};
	if (message.msg_namelen == 0)
		return -ENOENT;
	if (fd >= 0)
		notify_attach(&message, space, sizeof(space), fd);
	int to = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (to < 0)
		return -errno;
	/* a manager that does not read must not hold us up */
	ssize_t sent = sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	int error = sent < 0 ? -errno : 0;
	close(to);
	return error;
}

int notify_fd_count(void)
{
	const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
	if (!pid || !count || strtol(pid, NULL, 10) != getpid())
		return 0;
	long number = strtol(count, NULL, 10);
	return number > 0 && number < 1024 ? (int)number : 0;
}

void notify_fd_name(int index, char name[NOTIFY_NAME_MAX])
{
	const char *names = getenv("LISTEN_FDNAMES");
	for (; names && index; index--) {
		names = strchr(names, ':');
		names = names ? names + 1 : NULL;
	}
	snprintf(name, NOTIFY_NAME_MAX, "%.*s", names ? (int)strcspn(names, ":") : 0,
		names ? names : "");
}

int notify_name_check(const char *name)
{
	size_t length = strlen(name);
	if (length == 0 || length >= NOTIFY_NAME_MAX)
		return -EINVAL;
	for (; *name; name++)
		if (*name <= ' ' || *name > '~' || *name == ':')
			return -EINVAL;
	return 0;
}
