/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Telling the service manager without its library: a datagram to the socket named in
 * NOTIFY_SOCKET, as sd_notify(3) describes it. '@' in front means the abstract name space.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "peers/core/core.h"

static void notify_send(const char *text)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *name = getenv("NOTIFY_SOCKET");
	size_t length = name ? strlen(name) : 0;
	if (length < 2 || length >= sizeof(address.sun_path) || !strchr("/@", name[0]))
		return;
	memcpy(address.sun_path, name, length);
	if (name[0] == '@')
		address.sun_path[0] = '\0';
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	/* nobody listening is no error of ours */
	ssize_t sent =
		sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address, size);
	(void)sent;
	close(fd);
}

void notify_ready(const char *status)
{
	char text[256];
	snprintf(text, sizeof(text), "READY=1\nSTATUS=%s", status);
	notify_send(text);
}

void notify_stopping(uint64_t limit_ns)
{
	char text[64];
	snprintf(text, sizeof(text), "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu",
		(unsigned long long)(limit_ns / 1000));
	notify_send(text);
}

void notify_alive(void) { notify_send("WATCHDOG=1"); }
