/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper as a service: what it says to systemd, and what systemd keeps or opens for it. */
#include <base/log.h>
#include <base/must.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/keeper/keeper.h"

/* --- signs of life ------------------------------------------------------------------------ */

static void on_alive(int fd, short what, void *context)
{
	(void)fd;
	(void)what;
	(void)context;
	notify_send("WATCHDOG=1", -1);
}

/* Twice in the limit that the unit sets; the event loop turns, so we are alive. */
static void alive_begin(struct keeper *keeper)
{
	const char *text = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	unsigned long long us = text ? strtoull(text, NULL, 10) / 2 : 0;
	struct timeval every = {
		.tv_sec = (time_t)(us / 1000000u), .tv_usec = (suseconds_t)(us % 1000000u)};
	if (!us || keeper->alive || (pid && strtol(pid, NULL, 10) != getpid()))
		return;
	keeper->alive = event_new(keeper->base, -1, EV_PERSIST, on_alive, NULL);
	must(keeper->alive && event_add(keeper->alive, &every) == 0);
	notify_send("WATCHDOG=1", -1);
}

void keeper_notify_ready(struct keeper *keeper, const char *status)
{
	char text[256];
	snprintf(text, sizeof(text), "READY=1\nSTATUS=%s", status);
	notify_send(text, -1);
	alive_begin(keeper);
}

void keeper_notify_stopping(uint64_t limit_ns)
{
	char text[96];
	snprintf(text, sizeof(text), "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu",
		(unsigned long long)(limit_ns / 1000));
	notify_send(text, -1);
}

/* --- descriptors: under HOST/NAME ----------------------------------------------------------- */

void keeper_notify_store(const struct keeper_host *host, const struct keeper_fd *kept)
{
	char text[256];
	snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s/%s", keeper_host_name(host), kept->name);
	notify_send(text, kept->fd);
}

void keeper_notify_drop(const struct keeper_host *host, const char *name)
{
	char text[256];
	snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s/%s", keeper_host_name(host), name);
	notify_send(text, -1);
}

static struct keeper_host *host_named(struct keeper *keeper, const char *name, size_t length)
{
	for (unsigned i = 0; i < keeper->pipeline.host_count; i++) {
		const char *host = keeper_host_name(&keeper->hosts[i]);
		if (strlen(host) == length && !memcmp(host, name, length))
			return &keeper->hosts[i];
	}
	return NULL;
}

static void take_one(struct keeper *keeper, const char *name, int fd)
{
	const char *slash = strchr(name, '/');
	struct keeper_host *host = slash ? host_named(keeper, name, (size_t)(slash - name)) : NULL;
	struct keeper_fd *place = NULL;
	if (host && host->fd_count < NOTIFY_FDS_MAX)
		place = &host->fds[host->fd_count++];
	else if (!slash && keeper->activated_count < NOTIFY_FDS_MAX)
		place = &keeper->activated[keeper->activated_count++];
	if (!place) {
		log_warning("keeper", "descriptor '%s' was kept for nobody that is here", name);
		close(fd);
		return;
	}
	snprintf(place->name, sizeof(place->name), "%.63s", host ? slash + 1 : name);
	place->fd = fd;
}

void keeper_notify_take(struct keeper *keeper)
{
	const char *names = getenv("LISTEN_FDNAMES");
	char name[256];
	for (int i = 0; i < notify_fd_count(); i++) {
		int fd = NOTIFY_FD_FIRST + i;
		size_t length = names ? strcspn(names, ":") : 0;
		if (fcntl(fd, F_SETFD, FD_CLOEXEC))
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(length < 255 ? length : 255),
			names ? names : "");
		take_one(keeper, name, fd);
		names = names && names[length] ? names + length + 1 : NULL;
	}
}
