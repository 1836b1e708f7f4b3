/* SPDX-License-Identifier: Apache-2.0 */
/* The service manager's side of sd_notify(3) and sd_listen_fds(3). */
#include "tools/keeper/notice.h"

#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* --- reading ------------------------------------------------------------------------------ */

int notice_socket(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int on = 1;
	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	memcpy(address.sun_path, path, strlen(path) + 1);
	unlink(path); /* one of before: those who know the path speak to us from now on */
	mode_t mask = umask(0177);
	int rc = bind(fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
	umask(mask);
	if (!rc && setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)))
		rc = -errno;
	if (rc)
		close(fd);
	return rc ? rc : fd;
}

static void read_control(struct notice *notice, struct msghdr *header)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_CREDENTIALS &&
			c->cmsg_len == CMSG_LEN(sizeof(struct ucred))) {
			struct ucred who;
			memcpy(&who, CMSG_DATA(c), sizeof(who));
			notice->pid = who.pid;
		}
		if (c->cmsg_type == SCM_RIGHTS) {
			notice->fd_count = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
			memcpy(notice->fds, CMSG_DATA(c), notice->fd_count * sizeof(int));
		}
	}
}

static void read_lines(struct notice *notice)
{
	const struct {
		const char *line;
		bool *said;
	} known[] = {{"READY=1", &notice->ready}, {"WATCHDOG=1", &notice->alive},
		{"STOPPING=1", &notice->stopping}, {"FDSTORE=1", &notice->store},
		{"FDSTOREREMOVE=1", &notice->remove}};
	char *save = NULL;
	notice->name = "";
	for (char *line = strtok_r(notice->text, "\n", &save); line;
		line = strtok_r(NULL, "\n", &save)) {
		for (size_t i = 0; i < countof(known); i++)
			*known[i].said |= !strcmp(line, known[i].line);
		if (!strncmp(line, "FDNAME=", 7))
			notice->name = line + 7;
	}
}

bool notice_read(int fd, struct notice *notice)
{
	_Alignas(struct cmsghdr) char
		space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(NOTICE_FDS * sizeof(int))];
	struct iovec iov = {.iov_base = notice->text, .iov_len = sizeof(notice->text) - 1};
	struct msghdr header = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = space,
		.msg_controllen = sizeof(space)};
	memset(notice, 0, sizeof(*notice));
	ssize_t n = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n < 0)
		return errno == EINTR;
	read_control(notice, &header);
	if (header.msg_flags & MSG_TRUNC)
		notice->text[0] = 0; /* half a message says nothing */
	read_lines(notice);
	return true;
}

int notice_fd(struct notice *notice)
{
	unsigned kept = notice->store && notice->fd_count ? 1 : 0;
	for (unsigned i = kept; i < notice->fd_count; i++)
		close(notice->fds[i]);
	return kept ? notice->fds[0] : -1;
}

/* --- handing over ------------------------------------------------------------------------- */

void notice_add(struct hand *hand, const char *host, const char *name, int fd)
{
	size_t room = sizeof(hand->names) - hand->length;
	if (hand->count == HAND_MAX)
		return;
	hand->length += (size_t)snprintf(hand->names + hand->length, room, "%s%s%s%s",
		hand->count ? ":" : "", host ? host : "", host ? "/" : "", name);
	hand->fds[hand->count++] = fd;
}

/* Out of the way first: one may lie where another shall. */
void notice_over(struct hand *hand, int *rest, unsigned rest_count)
{
	char number[16];
	int behind = NOTIFY_FD_FIRST + (int)(hand->count + rest_count);
	for (unsigned i = 0; i < hand->count; i++)
		hand->fds[i] = fcntl(hand->fds[i], F_DUPFD_CLOEXEC, behind);
	for (unsigned i = 0; i < rest_count; i++)
		rest[i] = fcntl(rest[i], F_DUPFD_CLOEXEC, behind);
	for (unsigned i = 0; i < hand->count; i++)
		dup2(hand->fds[i], NOTIFY_FD_FIRST + (int)i);
	for (unsigned i = 0; i < rest_count; i++)
		rest[i] = dup2(rest[i], NOTIFY_FD_FIRST + (int)(hand->count + i));
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDNAMES");
	if (!hand->count)
		return;
	snprintf(number, sizeof(number), "%u", hand->count);
	setenv("LISTEN_FDS", number, 1);
	setenv("LISTEN_FDNAMES", hand->names, 1);
	snprintf(number, sizeof(number), "%d", (int)getpid());
	setenv("LISTEN_PID", number, 1);
}

/* Nobody waits for the report of a second start. */
void notice_arguments(char *const *from, char *program, char *to[HAND_ARGUMENTS_MAX])
{
	unsigned count = 0;
	to[count++] = program;
	for (unsigned i = 1; from[i] && count < HAND_ARGUMENTS_MAX - 1; i++) {
		if (!strncmp(from[i], "--report-fd", 11)) {
			i += from[i][11] != '=' && from[i + 1];
			continue;
		}
		to[count++] = from[i];
	}
	to[count] = NULL;
}
