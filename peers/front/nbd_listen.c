/* SPDX-License-Identifier: Apache-2.0 */
/* Where clients come in: listening sockets that all lanes accept from, or stdin and stdout. */
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "peers/front/nbd.h"

#define NBD_NEWCOMER_NS 100000000u /* a handshake takes a few ms */
#define NBD_ACCEPT_MAX 16	   /* at once */

/* --- opening, once per process --------------------------------------------------- */

/*
 * The client sits on stdin and stdout; whoever prints there (xsegpeer says when it is ready) must
 * not speak to it: stdout becomes stderr.
 */
static int nbd_single_open(struct nbd_shared *shared, char *why, size_t size)
{
	shared->single_in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	shared->single_out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (shared->single_in < 0 || shared->single_out < 0 || null < 0) {
		snprintf(why, size, "single=yes: stdin or stdout is not open");
		return -EBADF;
	}
	dup2(null, STDIN_FILENO);
	dup2(STDERR_FILENO, STDOUT_FILENO);
	close(null);
	return 0;
}

/* Nobody on a network reads or writes a volume in clear text unless that was asked for. */
static int nbd_listen_check_tls(
	const struct nbd_shared *shared, const struct nbd_options *options, char *why, size_t size)
{
	for (unsigned i = 0; i < shared->listeners.count; i++) {
		const struct front_listener *listener = &shared->listeners.item[i];
		if (listener->trusted || shared->tls || options->tls == NBD_TLS_OFF)
			continue;
		snprintf(why, size,
			"%s can be reached from other hosts, so it needs TLS: give tls-cert and "
			"tls-key, or accept clear text with tls=off",
			listener->name);
		return -EPERM;
	}
	return 0;
}

static int nbd_listen_open_all(
	struct nbd_shared *shared, const struct nbd_options *options, char *why, size_t size)
{
	struct front_rights rights;
	int error =
		front_rights_parse(options->socket_mode, options->socket_group, &rights, why, size);
	if (!error)
		error = front_listen_open(&shared->listeners, &options->listen, &rights, why, size);
	if (error)
		return error;
	if (!shared->listeners.count) {
		snprintf(why, size,
			"nothing to listen on: give listen=unix:PATH or listen=tcp:HOST:PORT");
		return -EINVAL;
	}
	error = nbd_listen_check_tls(shared, options, why, size);
	if (!error)
		front_fdstore_put(&shared->listeners);
	return error;
}

int nbd_listen_open(
	struct nbd_shared *shared, const struct nbd_options *options, char *why, size_t size)
{
	shared->single_in = shared->single_out = -1;
	if (!options->single)
		return nbd_listen_open_all(shared, options, why, size);
	if (options->listen.count) {
		snprintf(why, size,
			"single=yes serves the client on stdin; it cannot listen as well");
		return -EINVAL;
	}
	int error = nbd_single_open(shared, why, size);
	if (error || front_address_is_local(shared->single_in) || shared->tls ||
		options->tls == NBD_TLS_OFF)
		return error;
	snprintf(why, size,
		"the client on stdin comes from another host, so it needs TLS: give tls-cert "
		"and tls-key, or accept clear text with tls=off");
	return -EPERM;
}

void nbd_listen_close(struct nbd_shared *shared)
{
	front_listen_close(&shared->listeners);
	if (shared->single_in >= 0)
		close(shared->single_in);
	if (shared->single_out >= 0)
		close(shared->single_out);
	shared->single_in = shared->single_out = -1;
}

/* --- accepting, on each lane ----------------------------------------------------- */

/* Out of descriptors or memory: a pause, or we would be told of the same client for ever. */
static void nbd_accept_pause(struct nbd_accept *accept)
{
	struct nbd *nbd = accept->nbd;
	log_warning(NBD_ROOM, "%s: cannot accept on %s: %s; trying again soon", nbd->peer->name,
		accept->listener->name, strerror(errno));
	event_del(accept->event);
	accept->paused = true;
	nbd->timed = true;
}

/* Whoever does not get on makes room for the next: the one that has been at it for the longest. But
   each is given a moment; while all of them have come just now there is no room. */
static bool nbd_accept_room(struct nbd *nbd)
{
	struct nbd_conn *conn;
	if (likely(atomic_load(&nbd->shared->newcomers) < nbd->options->newcomers))
		return true;
	peer_count(nbd->peer, NBD_COUNT_TURNED_AWAY, 1);
	TAILQ_FOREACH (conn, &nbd->conns, link)
		if (conn->state == NBD_CONN_NEGOTIATING && conn->handshake)
			break;
	if (!conn || nbd_now(nbd) - conn->began_ns < NBD_NEWCOMER_NS)
		return false;
	nbd_conn_fail(conn, "makes room for a newcomer: it has not chosen an export yet");
	return true;
}

static void nbd_accept_one(struct nbd_accept *accept, int fd)
{
	struct nbd *nbd = accept->nbd;
	if (!nbd_accept_room(nbd)) {
		struct nbd_conn away = {.nbd = nbd};
		front_name_client(fd, away.who);
		nbd_log(&away, "turned away: %llu have come just now and not chosen an export yet",
			(unsigned long long)nbd->options->newcomers);
		close(fd);
		return;
	}
	nbd_conn_create(nbd, fd, fd, accept->listener->trusted);
}

static void nbd_accept_ready(evutil_socket_t listener, short what, void *context)
{
	struct nbd_accept *accept = context;
	(void)what;
	for (int i = 0; i < NBD_ACCEPT_MAX; i++) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			crash_point("front_nbd.accept.accepted");
			nbd_accept_one(accept, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
			nbd_accept_pause(accept);
		return;
	}
}

static int nbd_single_start(struct nbd *nbd)
{
	struct nbd_shared *shared = nbd->shared;
	if (nbd->peer->shard)
		return 0;
	int in = shared->single_in, out = shared->single_out;
	shared->single_in = shared->single_out = -1;
	return nbd_conn_create(nbd, in, out, front_address_is_local(in));
}

int nbd_listen_start(struct nbd *nbd)
{
	if (nbd->options->single)
		return nbd_single_start(nbd);
	atomic_fetch_add(&nbd->shared->accepting, 1);
	for (unsigned i = 0; i < nbd->shared->listeners.count; i++) {
		struct nbd_accept *accept = &nbd->accepts[nbd->accept_count++];
		accept->nbd = nbd;
		accept->listener = &nbd->shared->listeners.item[i];
		accept->event = event_new(nbd->base, accept->listener->fd, EV_READ | EV_PERSIST,
			nbd_accept_ready, accept);
		if (!accept->event || event_add(accept->event, NULL))
			return -ENOMEM;
		if (!nbd->peer->shard)
			log_info(NBD_ROOM, "%s: listens on %s", nbd->peer->name,
				accept->listener->name);
	}
	return 0;
}

void nbd_listen_resume(struct nbd *nbd)
{
	for (unsigned i = 0; i < nbd->accept_count; i++) {
		struct nbd_accept *accept = &nbd->accepts[i];
		if (accept->paused)
			event_add(accept->event, NULL);
		accept->paused = false;
	}
}

/* The last lane to stop closes the sockets. */
void nbd_listen_stop(struct nbd *nbd)
{
	unsigned count = nbd->accept_count;
	for (unsigned i = 0; i < count; i++)
		if (nbd->accepts[i].event)
			event_free(nbd->accepts[i].event);
	nbd->accept_count = 0;
	if (count && atomic_fetch_sub(&nbd->shared->accepting, 1) == 1)
		nbd_listen_close(nbd->shared);
}
