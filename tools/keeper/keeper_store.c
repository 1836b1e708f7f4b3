/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes say to their keeper, as services do to systemd (sd_notify(3)): that they are
 * ready and alive, and which descriptors to keep for their successors.
 */
#include <base/clock.h>
#include <base/crash.h>
#include <base/log.h>
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

#include "tools/keeper/keeper.h"
#include "tools/keeper/notice.h"

#define MESSAGES_MAX 64

/* --- keeping ---------------------------------------------------------------------------- */

static struct keeper_fd *kept_find(struct keeper_host *host, const char *name)
{
	for (unsigned i = 0; i < host->fd_count; i++)
		if (!strcmp(host->fds[i].name, name))
			return &host->fds[i];
	return NULL;
}

static void kept_remove(struct keeper_host *host, const char *name)
{
	struct keeper_fd *kept = kept_find(host, name);
	if (!kept)
		return;
	keeper_notify_drop(host, name);
	close(kept->fd);
	*kept = host->fds[--host->fd_count];
}

/* Takes over fd. */
static void kept_add(struct keeper_host *host, const char *name, int fd)
{
	if (notify_name_check(name)) {
		log_warning("keeper", "'%s' wants a descriptor kept without a good name",
			keeper_host_name(host));
		close(fd);
		return;
	}
	kept_remove(host, name);
	if (host->fd_count == NOTIFY_FDS_MAX) {
		log_warning("keeper", "'%s' wants more than %d descriptors kept",
			keeper_host_name(host), NOTIFY_FDS_MAX);
		close(fd);
		return;
	}
	crash_point("keeper.store.before_keep");
	struct keeper_fd *kept = &host->fds[host->fd_count++];
	snprintf(kept->name, sizeof(kept->name), "%s", name);
	kept->fd = fd;
	keeper_notify_store(host, kept);
	log_debug("keeper", "keeps '%s' for '%s'", name, keeper_host_name(host));
}

/* The file of a socket that nobody listens on any more. */
static void socket_unlink(const struct sockaddr_un *address, socklen_t length)
{
	struct stat st;
	if (address->sun_family != AF_UNIX || !address->sun_path[0] ||
		length <= offsetof(struct sockaddr_un, sun_path) || lstat(address->sun_path, &st) ||
		!S_ISSOCK(st.st_mode))
		return;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	if (connect(fd, (const struct sockaddr *)address, length) && errno == ECONNREFUSED)
		unlink(address->sun_path);
	close(fd);
}

void keeper_store_drop(struct keeper_host *host)
{
	while (host->fd_count) {
		struct keeper_fd *kept = &host->fds[host->fd_count - 1];
		struct sockaddr_un address = {.sun_family = AF_UNSPEC};
		socklen_t length = sizeof(address);
		int listens = 0;
		socklen_t size = sizeof(listens);
		if (getsockopt(kept->fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) || !listens ||
			getsockname(kept->fd, (struct sockaddr *)&address, &length))
			length = 0;
		kept_remove(host, kept->name);
		socket_unlink(&address, length);
	}
}

/* --- handing over, in the child ----------------------------------------------------------- */

static bool wants_activated(const struct keeper_host *host)
{
	const struct pipeline *pipeline = &host->keeper->pipeline;
	for (unsigned i = 0; i < pipeline->peer_count; i++) {
		const struct pipeline_peer *peer = &pipeline->peers[i];
		for (unsigned j = 0; peer->host == host->index && j < peer->option_count; j++)
			if (!strcmp(peer->options[j].value, "systemd") ||
				!strncmp(peer->options[j].value, "systemd:", 8))
				return true;
	}
	return false;
}

static unsigned collect(const struct keeper_host *host, struct keeper_fd out[2 * NOTIFY_FDS_MAX])
{
	const struct keeper *keeper = host->keeper;
	unsigned count = 0;
	/* sockets of units first: who takes all there are shall not take what it kept as those */
	for (unsigned i = 0; wants_activated(host) && i < keeper->activated_count; i++)
		out[count++] = keeper->activated[i];
	for (unsigned i = 0; i < host->fd_count; i++)
		out[count++] = host->fds[i];
	return count < NOTIFY_FDS_MAX ? count : NOTIFY_FDS_MAX;
}

void keeper_store_hand(const struct keeper_host *host)
{
	static struct hand hand;
	struct keeper_fd fds[2 * NOTIFY_FDS_MAX];
	unsigned count = collect(host, fds);
	for (unsigned i = 0; i < count; i++)
		notice_add(&hand, NULL, fds[i].name, fds[i].fd);
	notice_over(&hand, NULL, 0);
}

/* --- what they say ----------------------------------------------------------------------- */

static void message_take(struct keeper *keeper, struct notice *message)
{
	struct keeper_host *host = keeper_host_of_pid(keeper, message->pid);
	message->store = message->store && host;
	int fd = notice_fd(message);
	if (!host)
		return;
	if (message->ready)
		keeper_host_ready(host);
	if (message->alive)
		host->pulse.alive_ns = clock_now_ns();
	if (message->remove)
		kept_remove(host, message->name);
	if (fd >= 0)
		kept_add(host, message->name, fd);
}

void keeper_store_read(struct keeper *keeper)
{
	struct notice message;
	for (int i = 0; keeper->notify_fd >= 0 && i < MESSAGES_MAX; i++) {
		if (!notice_read(keeper->notify_fd, &message))
			return;
		message_take(keeper, &message);
	}
}

static void on_notify(int fd, short what, void *context)
{
	(void)fd;
	(void)what;
	keeper_store_read(context);
}

/* --- open and close ----------------------------------------------------------------------- */

int keeper_store_open(struct keeper *keeper, struct fault *fault)
{
	char path[PATH_LENGTH_MAX];
	int fd = path_run(path, keeper->name, "notify.sock");
	if (!fd)
		fd = notice_socket(path);
	if (fd < 0)
		return fault_set(fault, FAULT_FAILED, keeper->name,
			"choose a shorter SKERRY_RUN_DIR",
			"the socket notify.sock cannot be made: %s", strerror(-fd));
	keeper->notify_fd = fd;
	keeper->notify = event_new(keeper->base, fd, EV_READ | EV_PERSIST, on_notify, keeper);
	must(keeper->notify && event_add(keeper->notify, NULL) == 0);
	return 0;
}

void keeper_store_close(struct keeper *keeper)
{
	for (unsigned i = 0; i < keeper->order_count; i++)
		keeper_store_drop(&keeper->hosts[keeper->order[i]]);
	if (keeper->notify)
		event_free(keeper->notify);
	if (keeper->notify_fd >= 0)
		close(keeper->notify_fd);
	keeper->notify = NULL;
	keeper->notify_fd = -1;
}
