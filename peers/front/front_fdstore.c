/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets that outlive the front: stored with who started it, taken by its successor. */
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <fcntl.h>
#include <peer/notify.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "peers/front/front.h"

/*
 * A UNIX socket is stored under its file's device and inode: a file of that name that somebody else
 * has put there meanwhile is not taken for ours.
 */
static void fdstore_name_unix(const char *owner, const struct sockaddr *address, char *name)
{
	const struct sockaddr_un *un = (const struct sockaddr_un *)address;
	struct stat st;
	if (stat(un->sun_path, &st) || !S_ISSOCK(st.st_mode))
		return;
	snprintf(name, FRONT_FDSTORE_LENGTH, "%.24s/unix.%llx.%llx", owner,
		(unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
}

/* "tcp:[::1]:10809", with what a name may not hold replaced. */
static void fdstore_name_inet(
	const char *owner, const struct sockaddr *address, socklen_t length, char *name)
{
	char text[FRONT_WHO_LENGTH];
	front_address_text(address, length, text);
	int size = snprintf(name, FRONT_FDSTORE_LENGTH, "%.8s/%.53s", owner, text);
	for (int i = 0; i < size && name[i]; i++)
		if (name[i] == ':' || name[i] <= ' ')
			name[i] = '.';
}

void front_fdstore_name(const struct front_listeners *listeners, const struct sockaddr *address,
	socklen_t length, char name[FRONT_FDSTORE_LENGTH])
{
	const char *owner = listeners->owner ? listeners->owner : FRONT_ROOM;
	name[0] = 0;
	if (address->sa_family == AF_UNIX)
		fdstore_name_unix(owner, address, name);
	else
		fdstore_name_inet(owner, address, length, name);
}

int front_fdstore_take(const char *name)
{
	int listens = 0;
	socklen_t length = sizeof(listens);
	int fd = *name ? notify_take_fd(name) : -ENOENT;
	if (fd < 0)
		return fd;
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) || !listens) {
		log_warning(FRONT_ROOM, "what was kept as '%s' is no listening socket", name);
		notify_drop_fd(name);
		close(fd);
		return -ENOENT;
	}
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	return fd;
}

/* Names must differ; two ports that the kernel chooses are asked for in the same words. */
static bool keep_is_double(const struct front_listeners *listeners, unsigned index)
{
	for (unsigned i = 0; i < index; i++)
		if (!strcmp(listeners->item[i].kept, listeners->item[index].kept))
			return true;
	return false;
}

void front_fdstore_put(struct front_listeners *listeners)
{
	for (unsigned i = 0; i < listeners->count; i++) {
		struct front_listener *listener = &listeners->item[i];
		if (keep_is_double(listeners, i))
			listener->kept[0] = 0;
		if (!listener->kept[0] || listener->taken)
			continue;
		int error = notify_store_fd(listener->kept, listener->fd);
		if (error && error != -ENOENT)
			log_warning(FRONT_ROOM, "%s will not outlive this process: %s",
				listener->name, strerror(-error));
		if (error)
			listener->kept[0] = 0;
		crash_point("front_nbd.keep.stored");
	}
}

/* When the start has failed somebody will try again: then our predecessor's clients wait on. */
bool front_fdstore_leave(
	const struct front_listeners *listeners, const struct front_listener *listener)
{
	if (!listener->kept[0])
		return false;
	if (atomic_load(&listeners->stopping) ? notify_handover() : listener->taken)
		return true;
	notify_drop_fd(listener->kept);
	return false;
}
