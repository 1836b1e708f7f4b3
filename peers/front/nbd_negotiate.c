/* SPDX-License-Identifier: Apache-2.0 */
/* The handshake on a connection: feeds the machine, sends what it says, does what it asks. */
#include <errno.h>
#include <stdlib.h>

#include "peers/front/nbd.h"

int nbd_negotiate_begin(struct nbd_conn *conn, bool trusted)
{
	const struct nbd *nbd = conn->nbd;
	const struct nbd_options *options = nbd->options;
	struct nbd_handshake *h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->tls_offered = nbd->shared->tls != NULL;
	h->tls_required =
		options->tls == NBD_TLS_REQUIRE || (options->tls == NBD_TLS_AUTO && !trusted);
	h->read_only = options->read_only;
	h->payload_max = (uint32_t)options->payload_max;
	/* other lanes know nothing of this one's range lock */
	h->patching = nbd->peer->shards == 1;
	nbd_handshake_init(h);
	conn->handshake = h;
	conn->ask = NBD_ASK_BYTES;
	nbd_negotiate_send(conn);
	return 0;
}

void nbd_negotiate_end(struct nbd_conn *conn)
{
	if (!conn->handshake)
		return;
	nbd_handshake_fini(conn->handshake);
	free(conn->handshake);
	conn->handshake = NULL;
}

/* --- what is asked --------------------------------------------------------------- */

static void nbd_negotiate_serve(struct nbd_conn *conn)
{
	conn->session = conn->handshake->session;
	nbd_negotiate_end(conn);
	if (nbd_export_use(conn))
		nbd_conn_fail(conn, "has no memory left to be served with");
	else
		nbd_conn_serve(conn);
}

/* Whatever came behind STARTTLS in plain text may be somebody else's: none of it is looked at. */
static void nbd_negotiate_secure(struct nbd_conn *conn)
{
	if (conn->head != conn->tail || conn->carried) {
		nbd_conn_fail(conn, "sent plain bytes behind STARTTLS");
		return;
	}
	if (nbd_tls_begin(conn)) {
		nbd_conn_fail(conn, "could not be given TLS");
		return;
	}
	nbd_handshake_secured(conn->handshake);
}

static void nbd_negotiate_act(struct nbd_conn *conn)
{
	struct nbd_handshake *h = conn->handshake;
	enum nbd_ask ask = conn->ask;
	conn->ask = NBD_ASK_BYTES;
	switch (ask) {
	case NBD_ASK_BYTES: break;
	case NBD_ASK_LIST:
		nbd_conn_wait(conn, NBD_WAIT_ANSWER);
		nbd_export_list(conn);
		break;
	case NBD_ASK_INFO:
	case NBD_ASK_OPEN:
		nbd_conn_wait(conn, NBD_WAIT_ANSWER);
		nbd_export_find(conn, h->name, ask == NBD_ASK_OPEN, h->wants_read_only);
		break;
	case NBD_ASK_SNAPSHOTS:
		nbd_conn_wait(conn, NBD_WAIT_ANSWER);
		nbd_dirty_find(conn);
		break;
	case NBD_ASK_TLS: nbd_negotiate_secure(conn); break;
	case NBD_ASK_SERVE: nbd_negotiate_serve(conn); break;
	case NBD_ASK_CLOSE: nbd_conn_fail(conn, h->why); break;
	}
}

/* --- bytes ----------------------------------------------------------------------- */

bool nbd_negotiate_send(struct nbd_conn *conn)
{
	struct nbd_bytes *out = &conn->handshake->out;
	while (conn->handshake_sent < out->size) {
		struct iovec iov = {
			out->data + conn->handshake_sent, out->size - conn->handshake_sent};
		ssize_t sent = conn->transport->send(conn, &iov, 1);
		if (sent == -EAGAIN) {
			nbd_conn_wait(conn, NBD_WAIT_OUTPUT);
			nbd_conn_block(conn);
			return false;
		}
		if (sent < 0) {
			nbd_conn_fail(conn, sent == -EPIPE || sent == -ECONNRESET
						    ? NULL
						    : strerror((int)-sent));
			return false;
		}
		conn->handshake_sent += (size_t)sent;
		conn->bytes_out += (uint64_t)sent;
	}
	out->size = conn->handshake_sent = 0;
	if (conn->waits & NBD_WAIT_OUTPUT)
		nbd_conn_wake(conn, NBD_WAIT_OUTPUT);
	nbd_negotiate_act(conn);
	return true;
}

void nbd_negotiate_parse(struct nbd_conn *conn)
{
	size_t eaten;
	conn->ask = nbd_handshake_eat(
		conn->handshake, conn->buffer + conn->head, conn->tail - conn->head, &eaten);
	conn->head += (uint32_t)eaten;
	nbd_negotiate_send(conn);
}

/* --- answers to what was asked --------------------------------------------------- */

static void nbd_negotiate_answered(struct nbd_conn *conn, enum nbd_ask ask)
{
	conn->ask = ask;
	nbd_conn_wake(conn, NBD_WAIT_ANSWER); /* first: the answer may be the next question */
	nbd_negotiate_send(conn);
}

void nbd_negotiate_listed(struct nbd_conn *conn, int error)
{
	if (error)
		nbd_log(conn, "asks for the list of exports, which cannot be read: %s",
			strerror(-error));
	nbd_negotiate_answered(conn, nbd_handshake_list_end(conn->handshake, error));
}

void nbd_negotiate_snapshots(struct nbd_conn *conn, int error)
{
	if (error)
		nbd_log(conn, "asks for snapshots of '%s', which cannot be listed: %s",
			conn->handshake->name, strerror(-error));
	nbd_negotiate_answered(conn, nbd_handshake_snapshots_end(conn->handshake, error));
}

void nbd_negotiate_found(struct nbd_conn *conn, int error, const struct xseg_volume_info *info)
{
	if (error)
		nbd_log(conn, "asks for export '%s': %s", conn->handshake->name, strerror(-error));
	nbd_negotiate_answered(conn, nbd_handshake_found(conn->handshake, error, info));
}
