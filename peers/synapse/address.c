/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of bridges: read, looked up, listened on, connected to. */
#include "peers/synapse/address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define ADDRESS_BACKLOG 64

/* --- reading ---------------------------------------------------------------------------------- */

static int bad(const char *text, const char *reason, char *why, size_t why_size)
{
	snprintf(why, why_size, "'%s': %s; write tcp:HOST:PORT or unix:PATH", text, reason);
	return -EINVAL;
}

static bool is_loopback(const char *host)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *found;
	if (strcmp(host, "localhost") == 0)
		return true;
	if (getaddrinfo(host, NULL, &hints, &found))
		return false;
	const struct sockaddr_in *four = (const void *)found->ai_addr;
	const struct sockaddr_in6 *six = (const void *)found->ai_addr;
	bool loops = found->ai_family == AF_INET ? ntohl(four->sin_addr.s_addr) >> 24 == 127
						 : IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
	freeaddrinfo(found);
	return loops;
}

static int parse_unix(const char *text, struct address *address, char *why, size_t why_size)
{
	const char *path = text + strlen("unix:");
	if (!*path || strlen(path) >= sizeof(address->path))
		return bad(text, "a socket's path has 1 to 107 characters", why, why_size);
	strcpy(address->path, path);
	address->local = true;
	return 0;
}

int address_parse(const char *text, struct address *address, char *why, size_t why_size)
{
	*address = (struct address){0};
	if (strncmp(text, "unix:", 5) == 0)
		return parse_unix(text, address, why, why_size);
	if (strncmp(text, "tcp:", 4) != 0)
		return bad(text, "no address of a bridge", why, why_size);
	const char *host = text + 4, *colon = strrchr(host, ':');
	if (!colon || colon == host)
		return bad(text, "there is no port", why, why_size);
	size_t length = (size_t)(colon - host);
	if (host[0] == '[' && host[length - 1] == ']') {
		host++;
		length -= 2;
	}
	if (length == 0 || length >= sizeof(address->host))
		return bad(text, "there is no host", why, why_size);
	memcpy(address->host, host, length);
	size_t digits = strspn(colon + 1, "0123456789");
	if (digits == 0 || digits > 5 || colon[1 + digits])
		return bad(text, "a port is a number", why, why_size);
	strcpy(address->port, colon + 1);
	address->local = is_loopback(address->host);
	return 0;
}

/* --- sockets ---------------------------------------------------------------------------------- */

static void unix_address(const struct address *address, struct address_list *list)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	memcpy(un.sun_path, address->path, sizeof(un.sun_path));
	memcpy(&list->at[0], &un, sizeof(un));
	list->size[0] = sizeof(un);
	list->count = 1;
}

static void look_up(const struct address *address, int flags, struct address_list *list)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *found;
	*list = (struct address_list){0};
	if (*address->path) {
		unix_address(address, list);
		return;
	}
	const char *host = strcmp(address->host, "*") ? address->host : NULL;
	if (getaddrinfo(host, address->port, &hints, &found)) {
		list->error = -EHOSTUNREACH;
		return;
	}
	for (const struct addrinfo *at = found; at && list->count < ADDRESS_MAX; at = at->ai_next) {
		memcpy(&list->at[list->count], at->ai_addr, at->ai_addrlen);
		list->size[list->count++] = at->ai_addrlen;
	}
	freeaddrinfo(found);
}

void address_resolve(const struct address *address, struct address_list *list)
{
	look_up(address, 0, list);
}

/* A peer that has lost its power is noticed, also while nothing is sent. */
static void tune(int fd)
{
	int yes = 1, idle = 5, every = 5, count = 3, unanswered_ms = 20000;
	int ahead = 1 << 20;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	/* what the link does not take yet stays here, where it can be seen, and packed */
	setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &ahead, sizeof(ahead));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof(unanswered_ms));
}

static int new_socket(int family)
{
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (family != AF_UNIX)
		tune(fd);
	return fd;
}

int address_connect(const struct address_list *list, unsigned which)
{
	if (list->count == 0)
		return list->error ? list->error : -EHOSTUNREACH;
	const struct sockaddr_storage *at = &list->at[which % list->count];
	int fd = new_socket(at->ss_family);
	if (fd < 0)
		return fd;
	if (connect(fd, (const struct sockaddr *)at, list->size[which % list->count]) == 0 ||
		errno == EINPROGRESS)
		return fd;
	int error = errno == EAGAIN ? -ECONNREFUSED : -errno; /* a full UNIX backlog */
	close(fd);
	return error;
}

/* A socket's file that nobody listens on was left by one that was killed. */
static void remove_dead(const struct address *address, const struct address_list *list)
{
	struct stat st;
	if (!*address->path || stat(address->path, &st) || !S_ISSOCK(st.st_mode))
		return;
	int fd = address_connect(list, 0);
	if (fd >= 0)
		close(fd);
	else if (fd == -ECONNREFUSED)
		unlink(address->path);
}

int address_listen(const struct address *address, char *why, size_t why_size)
{
	struct address_list list;
	const char *name = *address->path ? address->path : address->host;
	int yes = 1;
	look_up(address, AI_PASSIVE, &list);
	if (list.count == 0) {
		snprintf(why, why_size, "listen: '%s' is no address of this host", name);
		return -EADDRNOTAVAIL;
	}
	remove_dead(address, &list);
	int fd = new_socket(list.at[0].ss_family);
	if (fd >= 0 && !*address->path)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (fd >= 0 && bind(fd, (const struct sockaddr *)&list.at[0], list.size[0]) == 0 &&
		listen(fd, ADDRESS_BACKLOG) == 0)
		return fd;
	int error = fd < 0 ? fd : -errno;
	if (fd >= 0)
		close(fd);
	snprintf(why, why_size, "listen: '%s': %s", name, strerror(-error));
	return error;
}

int address_accept(int listener, char *who, size_t who_size)
{
	struct sockaddr_storage from;
	socklen_t size = sizeof(from);
	char host[64], port[8];
	int fd = accept4(listener, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0)
		return errno == EINTR || errno == ECONNABORTED ? -EAGAIN : -errno;
	if (from.ss_family != AF_UNIX)
		tune(fd);
	if (from.ss_family == AF_UNIX ||
		getnameinfo((const struct sockaddr *)&from, size, host, sizeof(host), port,
			sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(who, who_size, "a process of this host");
	else
		snprintf(who, who_size, "%s:%s", host, port);
	return fd;
}
