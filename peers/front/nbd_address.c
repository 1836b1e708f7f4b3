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

#include "peers/front/nbd.h"

/* All guests of a host may come at once, and a full queue turns away who does not wait; the system
   has a limit of its own (net.core.somaxconn). */
#define NBD_BACKLOG 4096
#define NBD_PORT "10809"

static int nbd_address_add(
	struct nbd_shared *shared, int fd, const char *kept, char *why, size_t size)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	if (shared->listener_count == NBD_LISTEN_MAX) {
		snprintf(why, size, "more than %u addresses to listen on", NBD_LISTEN_MAX);
		close(fd);
		return -E2BIG;
	}
	struct nbd_listener *listener = &shared->listeners[shared->listener_count++];
	*listener = (struct nbd_listener){.fd = fd, .trusted = nbd_address_is_local(fd)};
	strcpy(listener->kept, kept);
	if (getsockname(fd, (struct sockaddr *)&address, &length) == 0)
		nbd_address_text((struct sockaddr *)&address, length, listener->name);
	return 0;
}

/* --- text ------------------------------------------------------------------------ */

void nbd_address_text(const struct sockaddr *address, socklen_t length, char out[NBD_WHO_LENGTH])
{
	char host[INET6_ADDRSTRLEN + 20], port[8];
	if (address->sa_family == AF_UNIX) {
		const struct sockaddr_un *un = (const struct sockaddr_un *)address;
		bool named = length > offsetof(struct sockaddr_un, sun_path) && un->sun_path[0];
		snprintf(out, NBD_WHO_LENGTH, "unix:%.80s", named ? un->sun_path : "");
	} else if (getnameinfo(address, length, host, sizeof(host), port, sizeof(port),
			   NI_NUMERICHOST | NI_NUMERICSERV) == 0) {
		bool six = address->sa_family == AF_INET6;
		snprintf(out, NBD_WHO_LENGTH, "tcp:%s%s%s:%s", six ? "[" : "", host, six ? "]" : "",
			port);
	} else {
		snprintf(out, NBD_WHO_LENGTH, "an address of family %d", address->sa_family);
	}
}

static bool nbd_address_is_loopback(const struct sockaddr_storage *address)
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

bool nbd_address_is_local(int fd)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	if (getsockname(fd, (struct sockaddr *)&address, &length))
		return errno == ENOTSOCK; /* a pipe */
	return address.ss_family == AF_UNIX || nbd_address_is_loopback(&address);
}

/* --- UNIX sockets ---------------------------------------------------------------- */

/* Is somebody behind that file? A refused connection means that its server is gone. */
static bool nbd_unix_lives(const struct sockaddr_un *un)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc = fd < 0 ? -1 : connect(fd, (const struct sockaddr *)un, sizeof(*un));
	bool dead = fd >= 0 && rc && (errno == ECONNREFUSED || errno == ENOENT);
	if (fd >= 0)
		close(fd);
	return !dead;
}

static int nbd_unix_bind(int fd, const struct sockaddr_un *un)
{
	struct stat st;
	if (bind(fd, (const struct sockaddr *)un, sizeof(*un)) == 0)
		return 0;
	if (errno != EADDRINUSE)
		return -errno;
	if (stat(un->sun_path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return -EEXIST;
	if (nbd_unix_lives(un))
		return -EADDRINUSE;
	unlink(un->sun_path);
	return bind(fd, (const struct sockaddr *)un, sizeof(*un)) ? -errno : 0;
}

static const char *nbd_unix_reason(int error)
{
	switch (-error) {
	case EADDRINUSE: return "another server listens there";
	case EEXIST: return "there is a file of that name that is no socket";
	case ENOENT: return "its folder does not exist";
	default: return strerror(-error);
	}
}

static int nbd_unix_remember(struct nbd_shared *shared, const char *path, char *why, size_t size)
{
	struct nbd_listener *listener = &shared->listeners[shared->listener_count - 1];
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

static int nbd_unix_give(const char *path, const struct nbd_rights *rights)
{
	if (rights->group != NBD_NO_GROUP && chown(path, (uid_t)-1, rights->group))
		return -errno;
	return chmod(path, rights->mode) ? -errno : 0;
}

/* On an error fd is the caller's to close, if there is one. */
static int nbd_unix_make(const struct sockaddr_un *un, const struct nbd_rights *rights, int *fd)
{
	*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error = *fd < 0 ? -errno : nbd_unix_bind(*fd, un);
	/* before listen(): nobody can come in while the mode is not what it should be */
	if (!error && ((error = nbd_unix_give(un->sun_path, rights)) ||
			      (listen(*fd, NBD_BACKLOG) && (error = -errno))))
		unlink(un->sun_path);
	return error;
}

static int nbd_unix_listen(struct nbd_shared *shared, const char *path,
	const struct nbd_rights *rights, char *why, size_t size)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	char kept[NBD_FDSTORE_LENGTH];
	if (!*path || strlen(path) >= sizeof(un.sun_path)) {
		snprintf(why, size, "listen=unix:%s: the path of a socket has 1 to %zu characters",
			path, sizeof(un.sun_path) - 1);
		return -EINVAL;
	}
	strcpy(un.sun_path, path);
	nbd_fdstore_name(shared, (struct sockaddr *)&un, sizeof(un), kept);
	int fd = nbd_fdstore_take(kept);
	bool taken = fd >= 0;
	/* the rights may be others than our predecessor was given */
	int error = taken ? nbd_unix_give(path, rights) : nbd_unix_make(&un, rights, &fd);
	if (error) {
		snprintf(why, size, "cannot listen on unix:%s: %s", path, nbd_unix_reason(error));
		if (fd >= 0)
			close(fd);
		return error;
	}
	nbd_fdstore_name(shared, (struct sockaddr *)&un, sizeof(un), kept);
	error = nbd_address_add(shared, fd, kept, why, size);
	if (error)
		return error;
	shared->listeners[shared->listener_count - 1].taken = taken;
	return nbd_unix_remember(shared, path, why, size);
}

/* --- TCP ------------------------------------------------------------------------- */

/* getaddrinfo() keeps 16 bits of whatever number it is given. */
static bool nbd_tcp_no_port(const char *port)
{
	char *end;
	unsigned long number = strtoul(port, &end, 10);
	return !*end && number > UINT16_MAX;
}

/* "HOST:PORT", "[V6]:PORT", "HOST"; the parts point into `text`, which is cut. */
static int nbd_tcp_split(char *text, const char **host, const char **port)
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

static int nbd_tcp_bind(const struct addrinfo *info)
{
	int on = 1;
	int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (info->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
	if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, NBD_BACKLOG) == 0)
		return fd;
	int error = -errno;
	close(fd);
	return error;
}

static int nbd_tcp_failed(const char *address, const char *reason, char *why, size_t size)
{
	snprintf(why, size, "cannot listen on tcp:%s: %s", address, reason);
	return -EINVAL;
}

static int nbd_tcp_listen_all(struct nbd_shared *shared, const char *address,
	const struct addrinfo *list, char *why, size_t size)
{
	int error = -EADDRNOTAVAIL;
	unsigned before = shared->listener_count;
	for (const struct addrinfo *info = list; info; info = info->ai_next) {
		char kept[NBD_FDSTORE_LENGTH];
		nbd_fdstore_name(shared, info->ai_addr, info->ai_addrlen, kept);
		int fd = nbd_fdstore_take(kept);
		bool taken = fd >= 0;
		fd = taken ? fd : nbd_tcp_bind(info);
		if (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL)
			continue; /* a host without IPv6, say */
		if (fd < 0) {
			error = fd;
			break;
		}
		error = nbd_address_add(shared, fd, kept, why, size);
		if (error)
			return error;
		shared->listeners[shared->listener_count - 1].taken = taken;
	}
	if (!error || (error == -EADDRNOTAVAIL && shared->listener_count > before))
		return 0;
	nbd_tcp_failed(
		address, error == -EADDRINUSE ? "the port is in use" : strerror(-error), why, size);
	return error;
}

static int nbd_tcp_listen(struct nbd_shared *shared, const char *address, char *why, size_t size)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
	const char *host, *port;
	char text[256];
	if (strlen(address) >= sizeof(text))
		return nbd_tcp_failed(address, "no address is that long", why, size);
	strcpy(text, address);
	if (nbd_tcp_split(text, &host, &port))
		return nbd_tcp_failed(address, "write HOST:PORT or [IPV6]:PORT", why, size);
	if (nbd_tcp_no_port(port))
		return nbd_tcp_failed(address, "ports end at 65535", why, size);
	int error = getaddrinfo(host, port, &hints, &list);
	if (error)
		return nbd_tcp_failed(address, gai_strerror(error), why, size);
	error = nbd_tcp_listen_all(shared, address, list, why, size);
	freeaddrinfo(list);
	return error;
}

/* --- sockets that somebody opened for us ----------------------------------------- */

static bool nbd_inherit_wanted(const char *name, int index)
{
	char handed[NOTIFY_NAME_MAX];
	notify_fd_name(index, handed);
	/* what a peer has had kept begins with its name and a '/': it is not for anybody else */
	return *name ? !strcmp(handed, name) : !strchr(handed, '/');
}

int nbd_address_inherit(struct nbd_shared *shared, const char *name, char *why, size_t size)
{
	int count = notify_fd_count(), found = 0;
	for (int i = 0; i < count; i++) {
		int listens = 0, fd = NOTIFY_FD_FIRST + i;
		socklen_t length = sizeof(listens);
		if (!nbd_inherit_wanted(name, i) ||
			getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) || !listens)
			continue;
		/* a copy: the host may have other peers that look */
		int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		if (copy < 0)
			return -errno;
		fcntl(copy, F_SETFL, fcntl(copy, F_GETFL) | O_NONBLOCK);
		int error = nbd_address_add(shared, copy, "", why, size);
		if (error)
			return error;
		found++;
	}
	return found;
}

int nbd_address_listen(struct nbd_shared *shared, const char *address,
	const struct nbd_rights *rights, char *why, size_t size)
{
	if (!strncmp(address, "unix:", 5))
		return nbd_unix_listen(shared, address + 5, rights, why, size);
	if (!strncmp(address, "tcp:", 4))
		return nbd_tcp_listen(shared, address + 4, why, size);
	if (!strcmp(address, "systemd") || !strncmp(address, "systemd:", 8)) {
		int found = nbd_address_inherit(shared, address[7] ? address + 8 : "", why, size);
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
