/* SPDX-License-Identifier: Apache-2.0 */
/* "unix:PATH", "tcp:HOST:PORT", "tcp:[V6]:PORT", "systemd[:NAME]" become listening sockets. */
#include <arpa/inet.h>
#include <base/notify.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "peers/front/front.h"

/* All guests of a host may come at once, and a full queue turns away who does not wait; the system
   has a limit of its own (net.core.somaxconn). */
#define FRONT_BACKLOG 4096
#define NBD_PORT "10809"

static int front_address_add(
	struct front_listeners *listeners, int fd, const char *kept, char *why, size_t size)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	if (listeners->count == FRONT_LISTEN_MAX) {
		snprintf(why, size, "more than %u addresses to listen on", FRONT_LISTEN_MAX);
		close(fd);
		return -E2BIG;
	}
	struct front_listener *listener = &listeners->item[listeners->count++];
	*listener = (struct front_listener){.fd = fd, .trusted = front_address_is_local(fd)};
	strcpy(listener->kept, kept);
	if (getsockname(fd, (struct sockaddr *)&address, &length) == 0)
		front_address_text((struct sockaddr *)&address, length, listener->name);
	return 0;
}

/* --- text ------------------------------------------------------------------------ */

void front_address_text(
	const struct sockaddr *address, socklen_t length, char out[FRONT_WHO_LENGTH])
{
	char host[INET6_ADDRSTRLEN + 20], port[8];
	if (address->sa_family == AF_UNIX) {
		const struct sockaddr_un *un = (const struct sockaddr_un *)address;
		bool named = length > offsetof(struct sockaddr_un, sun_path) && un->sun_path[0];
		snprintf(out, FRONT_WHO_LENGTH, "unix:%.80s", named ? un->sun_path : "");
	} else if (getnameinfo(address, length, host, sizeof(host), port, sizeof(port),
			   NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
		bool six = address->sa_family == AF_INET6;
		snprintf(out, FRONT_WHO_LENGTH, "tcp:%s%s%s:%s", six ? "[" : "", host,
			six ? "]" : "", port);
	} else {
		snprintf(out, FRONT_WHO_LENGTH, "an address of family %d", address->sa_family);
	}
}

static bool front_address_is_loopback(const struct sockaddr_storage *address)
{
	if (address->ss_family == AF_INET) {
		uint32_t host = ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr);
		return host >> 24 == 127;
	}
	if (address->ss_family != AF_INET6)
		return false;
	const struct in6_addr *six = &((const struct sockaddr_in6 *)address)->sin6_addr;
	return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

bool front_address_is_local(int fd)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	if (getsockname(fd, (struct sockaddr *)&address, &length))
		return errno == ENOTSOCK; /* a pipe */
	return address.ss_family == AF_UNIX || front_address_is_loopback(&address);
}

/* --- UNIX sockets ---------------------------------------------------------------- */

/* Is somebody behind that file? A refused connection means that its server is gone. */
static bool front_unix_lives(const struct sockaddr_un *un)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc = fd < 0 ? -1 : connect(fd, (const struct sockaddr *)un, sizeof(*un));
	bool dead = fd >= 0 && rc && (errno == ECONNREFUSED || errno == ENOENT);
	if (fd >= 0)
		close(fd);
	return !dead;
}

static int front_unix_bind(int fd, const struct sockaddr_un *un)
{
	struct stat st;
	if (bind(fd, (const struct sockaddr *)un, sizeof(*un)) == 0)
		return 0;
	if (errno != EADDRINUSE)
		return -errno;
	if (stat(un->sun_path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return -EEXIST;
	if (front_unix_lives(un))
		return -EADDRINUSE;
	unlink(un->sun_path);
	return bind(fd, (const struct sockaddr *)un, sizeof(*un)) ? -errno : 0;
}

static const char *front_unix_reason(int error)
{
	switch (-error) {
	case EADDRINUSE: return "another server listens there";
	case EEXIST: return "there is a file of that name that is no socket";
	case ENOENT: return "its folder does not exist";
	default: return strerror(-error);
	}
}

static int front_unix_remember(
	struct front_listeners *listeners, const char *path, char *why, size_t size)
{
	struct front_listener *listener = &listeners->item[listeners->count - 1];
	struct stat st;
	listener->path = strdup(path);
	if (!listener->path || stat(path, &st)) {
		snprintf(why, size, "listen=unix:%s: %s", path, strerror(errno));
		return -errno;
	}
	listener->device = st.st_dev;
	listener->inode = st.st_ino;
	return 0;
}

static int front_unix_give(const char *path, const struct front_rights *rights)
{
	if (rights->group != FRONT_NO_GROUP && chown(path, (uid_t)-1, rights->group))
		return -errno;
	return chmod(path, rights->mode) ? -errno : 0;
}

/* On an error fd is the caller's to close, if there is one. */
static int front_unix_make(const struct sockaddr_un *un, const struct front_rights *rights, int *fd)
{
	*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error = *fd < 0 ? -errno : front_unix_bind(*fd, un);
	/* before listen(): nobody can come in while the mode is not what it should be */
	if (!error && ((error = front_unix_give(un->sun_path, rights)) ||
			      (listen(*fd, FRONT_BACKLOG) && (error = -errno))))
		unlink(un->sun_path);
	return error;
}

static int front_unix_listen(struct front_listeners *listeners, const char *path,
	const struct front_rights *rights, char *why, size_t size)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	char kept[FRONT_FDSTORE_LENGTH];
	if (!*path || strlen(path) >= sizeof(un.sun_path)) {
		snprintf(why, size, "listen=unix:%s: the path of a socket has 1 to %zu characters",
			path, sizeof(un.sun_path) - 1);
		return -EINVAL;
	}
	strcpy(un.sun_path, path);
	front_fdstore_name(listeners, (struct sockaddr *)&un, sizeof(un), kept);
	int fd = front_fdstore_take(kept);
	bool taken = fd >= 0;
	/* the rights may be others than our predecessor was given */
	int error = taken ? front_unix_give(path, rights) : front_unix_make(&un, rights, &fd);
	if (error) {
		snprintf(why, size, "cannot listen on unix:%s: %s", path, front_unix_reason(error));
		if (fd >= 0)
			close(fd);
		return error;
	}
	front_fdstore_name(listeners, (struct sockaddr *)&un, sizeof(un), kept);
	error = front_address_add(listeners, fd, kept, why, size);
	if (error)
		return error;
	listeners->item[listeners->count - 1].taken = taken;
	return front_unix_remember(listeners, path, why, size);
}

/* --- TCP ------------------------------------------------------------------------- */

/* getaddrinfo() keeps 16 bits of whatever number it is given. */
static bool front_tcp_no_port(const char *port)
{
	char *end;
	unsigned long number = strtoul(port, &end, 10);
	return !*end && number > UINT16_MAX;
}

/* "HOST:PORT", "[V6]:PORT", "HOST"; the parts point into `text`, which is cut. */
static int front_tcp_split(char *text, const char **host, const char **port)
{
	char *colon = strrchr(text, ':');
	*port = NBD_PORT;
	*host = text;
	if (*text == '[') {
		char *close = strchr(text, ']');
		if (!close || (close[1] && close[1] != ':'))
			return -EINVAL;
		colon = close[1] ? close + 1 : NULL;
		*close = 0;
		*host = text + 1;
	} else if (colon && strchr(text, ':') != colon) {
		return -EINVAL; /* IPv6 without brackets */
	}
	if (colon) {
		*colon = 0;
		*port = colon + 1;
	}
	if (!**host || !strcmp(*host, "*"))
		*host = NULL;
	return **port ? 0 : -EINVAL;
}

static int front_tcp_bind(const struct addrinfo *info)
{
	int on = 1;
	int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (info->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, FRONT_BACKLOG) == 0)
		return fd;
	int error = -errno;
	close(fd);
	return error;
}

static int front_tcp_failed(const char *address, const char *reason, char *why, size_t size)
{
	snprintf(why, size, "cannot listen on tcp:%s: %s", address, reason);
	return -EINVAL;
}

static int front_tcp_listen_all(struct front_listeners *listeners, const char *address,
	const struct addrinfo *list, char *why, size_t size)
{
	int error = -EADDRNOTAVAIL;
	unsigned before = listeners->count;
	for (const struct addrinfo *info = list; info; info = info->ai_next) {
		char kept[FRONT_FDSTORE_LENGTH];
		front_fdstore_name(listeners, info->ai_addr, info->ai_addrlen, kept);
		int fd = front_fdstore_take(kept);
		bool taken = fd >= 0;
		fd = taken ? fd : front_tcp_bind(info);
		if (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL)
			continue; /* a host without IPv6, say */
		if (fd < 0) {
			error = fd;
			break;
		}
		error = front_address_add(listeners, fd, kept, why, size);
		if (error)
			return error;
		listeners->item[listeners->count - 1].taken = taken;
	}
	if (!error || (error == -EADDRNOTAVAIL && listeners->count > before))
		return 0;
	front_tcp_failed(
		address, error == -EADDRINUSE ? "the port is in use" : strerror(-error), why, size);
	return error;
}

static int front_tcp_listen(
	struct front_listeners *listeners, const char *address, char *why, size_t size)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
	const char *host, *port;
	char text[256];
	if (strlen(address) >= sizeof(text))
		return front_tcp_failed(address, "no address is that long", why, size);
	strcpy(text, address);
	if (front_tcp_split(text, &host, &port))
		return front_tcp_failed(address, "write HOST:PORT or [IPV6]:PORT", why, size);
	if (front_tcp_no_port(port))
		return front_tcp_failed(address, "ports end at 65535", why, size);
	int error = getaddrinfo(host, port, &hints, &list);
	if (error)
		return front_tcp_failed(address, gai_strerror(error), why, size);
	error = front_tcp_listen_all(listeners, address, list, why, size);
	freeaddrinfo(list);
	return error;
}

/* --- sockets that somebody opened for us ----------------------------------------- */

static bool front_inherit_wanted(const char *name, int index)
{
	char handed[NOTIFY_NAME_MAX];
	notify_fd_name(index, handed);
	/* what a peer has had kept begins with its name and a '/': it is not for anybody else */
	return *name ? !strcmp(handed, name) : !strchr(handed, '/');
}

int front_address_inherit(
	struct front_listeners *listeners, const char *name, char *why, size_t size)
{
	int count = notify_fd_count(), found = 0;
	for (int i = 0; i < count; i++) {
		int listens = 0, fd = NOTIFY_FD_FIRST + i;
		socklen_t length = sizeof(listens);
		if (!front_inherit_wanted(name, i) ||
			getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) || !listens)
			continue;
		/* a copy: the host may have other peers that look */
		int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		if (copy < 0)
			return -errno;
		fcntl(copy, F_SETFL, fcntl(copy, F_GETFL) | O_NONBLOCK);
		int error = front_address_add(listeners, copy, "", why, size);
		if (error)
			return error;
		found++;
	}
	return found;
}

int front_address_listen(struct front_listeners *listeners, const char *address,
	const struct front_rights *rights, char *why, size_t size)
{
	if (!strncmp(address, "unix:", 5))
		return front_unix_listen(listeners, address + 5, rights, why, size);
	if (!strncmp(address, "tcp:", 4))
		return front_tcp_listen(listeners, address + 4, why, size);
	if (!strcmp(address, "systemd") || !strncmp(address, "systemd:", 8)) {
		int found =
			front_address_inherit(listeners, address[7] ? address + 8 : "", why, size);
		if (found == 0)
			snprintf(why, size, "listen=%s: no such socket was handed to this process",
				address);
		return found > 0 ? 0 : found ? found : -ENOENT;
	}
	snprintf(why, size,
		"listen=%s: write unix:PATH, tcp:HOST:PORT, tcp:[IPV6]:PORT or systemd[:NAME]",
		address);
	return -EINVAL;
}
