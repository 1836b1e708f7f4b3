/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets of a front, that all lanes accept from. */
#include <base/log.h>
#include <ctype.h>
#include <errno.h>
#include <event2/event.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "peers/front/front.h"

#define ACCEPT_MAX 16 /* at once */

static int front_mode_parse(
	const char *what, const char *text, mode_t *mode, char *why, size_t size)
{
	char *end;
	long number = strtol(text ? text : "", &end, 8);
	if (!text || !*text || *end || number < 0 || number > 0777) {
		snprintf(why, size, "%s-mode=%s: write three or four octal digits, like 0660", what,
			text ? text : "");
		return -EINVAL;
	}
	*mode = (mode_t)number;
	return 0;
}

/* By its name, or a number that need not have one. */
static int front_group_parse(
	const char *what, const char *text, gid_t *group, char *why, size_t size)
{
	char *end;
	*group = FRONT_NO_GROUP;
	if (!text || !*text)
		return 0;
	const struct group *found = getgrnam(text);
	unsigned long number = strtoul(text, &end, 10);
	if (found) {
		*group = found->gr_gid;
	} else if (isdigit((unsigned char)*text) && !*end && number < FRONT_NO_GROUP) {
		*group = (gid_t)number;
	} else {
		snprintf(why, size, "%s-group=%s: there is no such group", what, text);
		return -EINVAL;
	}
	return 0;
}

int front_rights_parse(const char *what, const char *mode, const char *group,
	struct front_rights *rights, char *why, size_t size)
{
	int error = front_mode_parse(what, mode, &rights->mode, why, size);
	return error ? error : front_group_parse(what, group, &rights->group, why, size);
}

int front_listen_open(struct front_listeners *listeners, const struct peer_list *listen,
	const struct front_rights *rights, char *why, size_t size)
{
	for (size_t i = 0; i < listen->count; i++) {
		int error = front_address_listen(listeners, listen->item[i], rights, why, size);
		if (error)
			return error;
	}
	return listen->count || front_address_inherit(listeners, "", why, size) >= 0 ? 0 : -EINVAL;
}

/* leave: a successor is to go on with it. */
static void front_listener_close(struct front_listener *listener, bool leave)
{
	struct stat st;
	/* somebody may have put another socket there */
	if (!leave && listener->path && stat(listener->path, &st) == 0 &&
		st.st_dev == listener->device && st.st_ino == listener->inode)
		unlink(listener->path);
	free(listener->path);
	listener->path = NULL;
	close(listener->fd);
}

void front_listen_close(struct front_listeners *listeners)
{
	while (listeners->count) {
		struct front_listener *listener = &listeners->item[--listeners->count];
		front_listener_close(listener, front_fdstore_leave(listeners, listener));
	}
}

void front_name_client(int fd, char who[FRONT_WHO_LENGTH])
{
	struct sockaddr_storage address;
	struct ucred ucred;
	socklen_t length = sizeof(address), ucred_size = sizeof(ucred);
	if (getpeername(fd, (struct sockaddr *)&address, &length)) {
		snprintf(who, FRONT_WHO_LENGTH, "client on stdin");
	} else if (address.ss_family == AF_UNIX &&
		   getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ucred, &ucred_size) == 0) {
		snprintf(who, FRONT_WHO_LENGTH, "client of process %d (user %u)", (int)ucred.pid,
			ucred.uid);
	} else {
		char text[FRONT_WHO_LENGTH];
		front_address_text((struct sockaddr *)&address, length, text);
		snprintf(who, FRONT_WHO_LENGTH, "client %.80s", text);
	}
}

int front_client_pid(int fd)
{
	struct ucred ucred;
	socklen_t size = sizeof(ucred);
	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ucred, &size) ? 0 : (int)ucred.pid;
}

/* --- accepting, on each lane ----------------------------------------------------- */

/* Out of descriptors or memory: a pause, or we would be told of the same client for ever. */
static void front_accept_pause(struct front_accept *accept)
{
	const struct peer *peer = accept->door->peer;
	log_warning(FRONT_ROOM, "%s: cannot accept on %s: %s; trying again soon", peer->name,
		accept->listener->name, strerror(errno));
	event_del(accept->event);
	accept->paused = accept->door->paused = true;
}

static void front_accept_ready(evutil_socket_t listener, short what, void *context)
{
	struct front_accept *accept = context;
	(void)what;
	for (int i = 0; i < ACCEPT_MAX; i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			accept->door->enter(accept->door->peer, fd, accept->listener);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			front_accept_pause(accept);
		return;
	}
}

int front_door_start(struct front_door *door, struct event_base *base)
{
	atomic_fetch_add(&door->listeners->accepting, 1);
	for (unsigned i = 0; i < door->listeners->count; i++) {
		struct front_accept *accept = &door->accept[door->count++];
		accept->door = door;
		accept->listener = &door->listeners->item[i];
		accept->event = event_new(base, accept->listener->fd, EV_READ | EV_PERSIST,
			front_accept_ready, accept);
		if (!accept->event || event_add(accept->event, NULL))
			return -ENOMEM;
		if (!door->peer->shard)
			log_info(FRONT_ROOM, "%s: listens on %s", door->peer->name,
				accept->listener->name);
	}
	return 0;
}

void front_door_resume(struct front_door *door)
{
	for (unsigned i = 0; i < door->count; i++) {
		struct front_accept *accept = &door->accept[i];
		if (accept->paused)
			event_add(accept->event, NULL);
		accept->paused = false;
	}
	door->paused = false;
}

void front_door_dump(const struct front_door *door, FILE *out)
{
	for (unsigned i = 0; i < door->count; i++)
		fprintf(out, "  listens on %s%s\n", door->accept[i].listener->name,
			door->accept[i].paused ? " (paused)" : "");
}

void front_door_stop(struct front_door *door)
{
	unsigned count = door->count;
	for (unsigned i = 0; i < count; i++)
		if (door->accept[i].event)
			event_free(door->accept[i].event);
	door->count = 0;
	if (count && atomic_fetch_sub(&door->listeners->accepting, 1) == 1)
		front_listen_close(door->listeners);
}
