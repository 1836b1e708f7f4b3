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
	int error = front_rights_parse(
		"socket", options->socket_mode, options->socket_group, &rights, why, size);
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

static void nbd_accept_one(struct peer *peer, int fd, const struct front_listener *listener)
{
	struct nbd *nbd = nbd_of(peer);
	crash_point("front_nbd.accept.accepted");
	if (!nbd_accept_room(nbd)) {
		struct nbd_conn away = {.nbd = nbd};
		front_name_client(fd, away.who);
		nbd_log(&away, "turned away: %llu have come just now and not chosen an export yet",
			(unsigned long long)nbd->options->newcomers);
		close(fd);
		return;
	}
	nbd_conn_create(nbd, fd, fd, listener->trusted);
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
	nbd->door.peer = nbd->peer;
	nbd->door.listeners = &nbd->shared->listeners;
	nbd->door.enter = nbd_accept_one;
	return front_door_start(&nbd->door, nbd->base);
}
