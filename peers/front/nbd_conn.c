/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a connection: accepted, served in turns, drained, closed; never in anybody's way. */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peers/front/nbd.h"

#define NBD_SILENT_NS 200000u	   /* not looked at every turn any more; its event will say */
#define NBD_RETRY_SEND_NS 20000u   /* a full socket is tried again without waiting for the event */
#define NBD_EMPTY_RECEIVE_NS 2000u /* between receives in vain */

static const struct sm_state nbd_conn_table[NBD_CONN_STATES] = {
	[NBD_CONN_NEGOTIATING] = {"negotiation", SM(NBD_CONN_SERVING) | SM(NBD_CONN_DEAD)},
	[NBD_CONN_SERVING] = {"serving", SM(NBD_CONN_DRAINING) | SM(NBD_CONN_DEAD)},
	[NBD_CONN_DRAINING] = {"draining", SM(NBD_CONN_DEAD)},
	[NBD_CONN_DEAD] = {"dead", SM(NBD_CONN_LEAVING) | SM(NBD_CONN_GONE)},
	[NBD_CONN_LEAVING] = {"leaving", SM(NBD_CONN_GONE)},
	[NBD_CONN_GONE] = {"gone", 0},
};

static void nbd_conn_move(struct nbd_conn *conn, enum nbd_conn_state to)
{
	sm_move(nbd_conn_table, &conn->state, to);
}

/* --- waiting and waking ---------------------------------------------------------- */

void nbd_conn_mark(struct nbd_conn *conn)
{
	struct nbd *nbd = conn->nbd;
	nbd->again = true;
	if (conn->active || conn->state >= NBD_CONN_DEAD) /* it may die while it is being created */
		return;
	conn->active = true;
	conn->heard_ns = nbd_now(nbd); /* a fresh budget */
	TAILQ_INSERT_TAIL(&nbd->active, conn, active_link);
}

static void nbd_conn_unmark(struct nbd_conn *conn)
{
	if (!conn->active)
		return;
	conn->active = false;
	TAILQ_REMOVE(&conn->nbd->active, conn, active_link);
}

void nbd_conn_wake(struct nbd_conn *conn, enum nbd_wait why)
{
	conn->waits &= (uint8_t)~why;
	conn->reparse = true;
	if (conn->state < NBD_CONN_DEAD)
		nbd_conn_mark(conn);
}

static bool nbd_conn_again(struct peer *peer, void *context)
{
	struct nbd_conn *conn = context;
	(void)peer;
	conn->waits &= (uint8_t)~NBD_WAIT_POOL;
	conn->reparse = true;
	if (conn->state < NBD_CONN_DEAD && !TAILQ_EMPTY(&conn->queue))
		nbd_send(conn); /* data that was dropped */
	if (conn->state < NBD_CONN_DEAD && !(conn->waits & NBD_WAIT_POOL))
		nbd_receive(conn);
	if (conn->waits & NBD_WAIT_POOL)
		return false; /* keeps its place */
	conn->retrying = false;
	conn->nbd->again = true;
	if (conn->state < NBD_CONN_DEAD)
		nbd_conn_mark(conn);
	return true;
}

int nbd_conn_starve(struct nbd_conn *conn)
{
	nbd_conn_wait(conn, NBD_WAIT_POOL);
	peer_count(conn->nbd->peer, NBD_COUNT_WAITS_POOL, 1);
	conn->nbd->starved = true;
	if (!conn->retrying) {
		conn->retrying = true;
		peer_retry(conn->nbd->peer, nbd_conn_again, conn);
	}
	return -EAGAIN;
}

void nbd_conn_block(struct nbd_conn *conn)
{
	if (!conn->blocked)
		conn->blocked_ns = nbd_now(conn->nbd);
	conn->blocked = true;
	conn->nbd->timed = true;
	event_add(conn->out_event, NULL);
}

void nbd_conn_want_write(struct nbd_conn *conn)
{
	conn->want_write = true;
	event_add(conn->out_event, NULL);
}

/* --- the end --------------------------------------------------------------------- */

static void nbd_conn_drop_queue(struct nbd_conn *conn)
{
	struct nbd_request *request = conn->filling;
	conn->filling = NULL;
	if (request) {
		if (request->filling)
			call_end(request->filling);
		request->filling = NULL;
		nbd_request_note(request, -ECONNRESET);
		nbd_request_check(request);
	}
	while ((request = TAILQ_FIRST(&conn->queue))) {
		TAILQ_REMOVE(&conn->queue, request, link);
		request->queued = false;
		/* data that is being read again comes back first */
		if (!request->pending)
			nbd_request_release(request);
	}
}

static void nbd_conn_close(struct nbd_conn *conn)
{
	struct nbd *nbd = conn->nbd;
	if (conn->transport && !conn->passed)
		conn->transport->end(conn);
	nbd_tls_free(conn);
	if (conn->in_event)
		event_free(conn->in_event);
	if (conn->out_event)
		event_free(conn->out_event);
	conn->in_event = conn->out_event = NULL;
	close(conn->in);
	if (conn->out != conn->in)
		close(conn->out);
	conn->in = conn->out = -1;
	if (conn->served)
		front_client_remove(&nbd->shared->clients, &conn->client);
	atomic_fetch_sub(conn->served ? &nbd->shared->connections : &nbd->shared->newcomers, 1);
	peer_count(nbd->peer, NBD_COUNT_DISCONNECTS, 1);
}

void nbd_conn_fail(struct nbd_conn *conn, const char *why)
{
	if (conn->state >= NBD_CONN_DEAD)
		return;
	if (why) {
		peer_count(conn->nbd->peer, NBD_COUNT_BROKEN, 1);
		nbd_log(conn, "%s; closed", why);
	}
	nbd_conn_move(conn, NBD_CONN_DEAD);
	nbd_range_forget(conn);
	nbd_share_forget(conn);
	nbd_negotiate_end(conn);
	nbd_conn_drop_queue(conn);
	nbd_receive_reset(conn);
	nbd_conn_close(conn);
	nbd_conn_unmark(conn);
	conn->waits = 0;
	conn->nbd->dying++;
	conn->nbd->again = true;
}

void nbd_conn_drain(struct nbd_conn *conn)
{
	if (conn->state == NBD_CONN_NEGOTIATING) {
		nbd_conn_fail(conn, NULL);
	} else if (conn->state == NBD_CONN_SERVING && conn->filling) {
		nbd_conn_fail(conn, NULL);
	} else if (conn->state == NBD_CONN_SERVING) {
		nbd_conn_move(conn, NBD_CONN_DRAINING);
		nbd_range_forget(conn);
		nbd_share_forget(conn);
		nbd_conn_mark(conn);
	}
}

static bool nbd_conn_quiet(const struct nbd_conn *conn)
{
	return !conn->inflight && !conn->retrying && conn->lookup.what == NBD_LOOKUP_NONE;
}

static void nbd_conn_free(struct nbd_conn *conn)
{
	struct nbd *nbd = conn->nbd;
	nbd_conn_move(conn, NBD_CONN_GONE);
	TAILQ_REMOVE(&nbd->conns, conn, link);
	nbd->dying--;
	if (nbd->options->single && !nbd->peer->stopping)
		peer_stop_host(nbd->peer);
	free(conn);
}

void nbd_conn_reap(struct nbd *nbd)
{
	struct nbd_conn *conn, *next;
	for (conn = TAILQ_FIRST(&nbd->conns); conn && nbd->dying; conn = next) {
		next = TAILQ_NEXT(conn, link);
		/* what is being opened again must not be closed meanwhile */
		if (conn->state < NBD_CONN_DEAD || !nbd_conn_quiet(conn) || nbd->volumes.reopening)
			continue;
		nbd_export_unuse(conn);
		if (conn->state == NBD_CONN_DEAD && conn->session.volume) {
			nbd_conn_move(conn, NBD_CONN_LEAVING);
			nbd_export_close(conn);
		} else {
			nbd_conn_free(conn);
		}
	}
}

/* --- turns ----------------------------------------------------------------------- */

static bool nbd_conn_send(struct nbd_conn *conn, uint64_t now)
{
	if (conn->blocked && now - conn->send_tried_ns < NBD_RETRY_SEND_NS)
		return false;
	conn->send_tried_ns = now;
	if (conn->state == NBD_CONN_NEGOTIATING)
		return conn->waits & NBD_WAIT_OUTPUT ? nbd_negotiate_send(conn) : false;
	return TAILQ_EMPTY(&conn->queue) ? false : nbd_send(conn);
}

/* A receive that will find nothing costs as much as one that does. */
static bool nbd_conn_due(const struct nbd_conn *conn, uint64_t now)
{
	return !conn->dry || conn->reparse || now - conn->tried_ns >= NBD_EMPTY_RECEIVE_NS;
}

/* Something can be sent, or read again to be sent: no event will tell us so. */
static bool nbd_conn_owes(const struct nbd_conn *conn)
{
	const struct nbd_request *first = TAILQ_FIRST(&conn->queue);
	return first && !first->pending && !conn->blocked && !conn->retrying;
}

bool nbd_conn_turn(struct nbd_conn *conn)
{
	uint64_t now = nbd_now(conn->nbd);
	bool moved = nbd_conn_send(conn, now);
	if (conn->state < NBD_CONN_DRAINING && nbd_conn_due(conn, now))
		moved |= nbd_receive(conn);
	if (conn->state == NBD_CONN_DRAINING && !conn->inflight)
		nbd_conn_fail(conn, NULL);
	if (unlikely(conn->parting))
		nbd_handover_check(conn);
	bool silent = !moved && now - conn->heard_ns > NBD_SILENT_NS;
	if (conn->state < NBD_CONN_DEAD && silent && !nbd_conn_owes(conn))
		nbd_conn_unmark(conn);
	return moved;
}

/* Silent in the middle of a payload, or too slow with all of it, the time we made it wait apart. */
static bool nbd_conn_is_half(struct nbd_conn *conn, uint64_t now)
{
	uint64_t since = now - conn->checked_ns;
	conn->checked_ns = now;
	if (!conn->filling || conn->waits)
		return false;
	bool late = since > conn->fill_left_ns;
	conn->fill_left_ns -= late ? 0 : since;
	return late || now - conn->heard_ns > conn->nbd->options->stall_ns;
}

bool nbd_conn_check_time(struct nbd_conn *conn)
{
	const struct nbd_options *options = conn->nbd->options;
	uint64_t now = nbd_now(conn->nbd);
	if (conn->state >= NBD_CONN_DEAD)
		return false;
	if (conn->state == NBD_CONN_NEGOTIATING && now - conn->began_ns > options->handshake_ns)
		nbd_conn_fail(conn, "does not finish the handshake");
	bool stuck = conn->blocked && now - conn->blocked_ns > options->stall_ns;
	bool half = nbd_conn_is_half(conn, now);
	if (stuck || half) {
		peer_count(conn->nbd->peer, NBD_COUNT_STALLS, 1);
		nbd_conn_fail(conn,
			stuck ? "does not read its replies" : "stopped in the middle of a request");
	}
	return conn->state == NBD_CONN_NEGOTIATING || conn->blocked || conn->filling;
}

/* --- events ---------------------------------------------------------------------- */

static void nbd_conn_readable(evutil_socket_t fd, short what, void *context)
{
	struct nbd_conn *conn = context;
	(void)fd;
	(void)what;
	conn->dry = false;
	nbd_conn_mark(conn);
}

static void nbd_conn_writable(evutil_socket_t fd, short what, void *context)
{
	struct nbd_conn *conn = context;
	(void)fd;
	(void)what;
	conn->blocked = false;
	if (conn->want_write)
		conn->dry = conn->want_write = false;
	nbd_conn_mark(conn);
}

void nbd_conn_serve(struct nbd_conn *conn)
{
	atomic_fetch_sub(&conn->nbd->shared->newcomers, 1);
	atomic_fetch_add(&conn->nbd->shared->connections, 1);
	conn->served = true;
	nbd_control_add(conn);
	nbd_conn_move(conn, NBD_CONN_SERVING);
	conn->reparse = true;
	nbd_conn_mark(conn);
}

/* --- the beginning --------------------------------------------------------------- */

static void nbd_conn_tune(int fd)
{
	int on = 1, idle = 60, every = 15, tries = 4;
	/* The send buffer stays as it is: in a larger one data goes cold before it is read. */
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof(tries));
}

static int nbd_conn_events(struct nbd_conn *conn)
{
	struct event_base *base = conn->nbd->base;
	conn->in_event =
		event_new(base, conn->in, EV_READ | EV_ET | EV_PERSIST, nbd_conn_readable, conn);
	conn->out_event = event_new(base, conn->out, EV_WRITE | EV_ET, nbd_conn_writable, conn);
	if (!conn->in_event || !conn->out_event || event_add(conn->in_event, NULL))
		return -EINVAL;
	return 0;
}

static struct nbd_conn *nbd_conn_new(struct nbd *nbd, int in, int out)
{
	int type;
	socklen_t size = sizeof(type);
	struct nbd_conn *conn = calloc(1, sizeof(*conn));
	if (!conn)
		return NULL;
	conn->nbd = nbd;
	conn->in = in;
	conn->out = out;
	conn->began_ns = conn->heard_ns = nbd_now(nbd);
	bool socket = getsockopt(in, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
		      getsockopt(out, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
	conn->transport = socket ? &nbd_transport_socket : &nbd_transport_pipe;
	TAILQ_INIT(&conn->queue);
	front_name_client(in, conn->who);
	return conn;
}

/* Among the others; NULL: no memory, and the fds are closed. */
static struct nbd_conn *nbd_conn_add(struct nbd *nbd, int in, int out)
{
	struct nbd_conn *conn = nbd_conn_new(nbd, in, out);
	if (!conn) {
		close(in);
		if (out != in)
			close(out);
		return NULL;
	}
	atomic_fetch_add(&nbd->shared->newcomers, 1);
	TAILQ_INSERT_TAIL(&nbd->conns, conn, link);
	nbd_conn_tune(in);
	fcntl(in, F_SETFL, fcntl(in, F_GETFL) | O_NONBLOCK);
	fcntl(out, F_SETFL, fcntl(out, F_GETFL) | O_NONBLOCK);
	peer_count(nbd->peer, NBD_COUNT_CONNECTIONS, 1);
	return conn;
}

void nbd_conn_adopt(struct nbd *nbd, int fd, const struct nbd_session *session)
{
	struct nbd_conn *conn = nbd_conn_add(nbd, fd, fd);
	if (!conn)
		return;
	conn->session = *session;
	conn->session.volume = 0; /* not open yet */
	nbd_conn_wait(conn, NBD_WAIT_ANSWER);
	if (nbd_conn_events(conn))
		nbd_conn_fail(conn, "could not be watched");
	else
		nbd_export_adopt(conn, session->volume);
	nbd->timed = true;
}

int nbd_conn_create(struct nbd *nbd, int in, int out, bool trusted)
{
	struct nbd_conn *conn = nbd_conn_add(nbd, in, out);
	if (!conn)
		return -ENOMEM;
	int error = nbd_conn_events(conn);
	if (!error)
		error = nbd_negotiate_begin(conn, trusted);
	if (error)
		nbd_conn_fail(conn, "could not be watched");
	else
		nbd_conn_mark(conn);
	nbd->timed = true;
	return error;
}

void nbd_conn_dump(const struct nbd_conn *conn, FILE *out)
{
	fprintf(out,
		"  %s: %s%s over %s, volume %016llx, %u in flight (%llu B), waits %#x%s, "
		"%llu requests, %llu B in, %llu B out\n",
		conn->who, nbd_conn_table[conn->state].name, conn->active ? " (active)" : "",
		conn->transport->name, (unsigned long long)conn->session.volume, conn->inflight,
		(unsigned long long)conn->bytes, conn->waits, conn->blocked ? ", blocked" : "",
		(unsigned long long)conn->requests, (unsigned long long)conn->bytes_in,
		(unsigned long long)conn->bytes_out);
}
