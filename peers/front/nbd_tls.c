/* SPDX-License-Identifier: Apache-2.0 */
/* TLS on a connection: what is asked for, and the bytes through it. */
#include <errno.h>
#include <peer/tls.h>

#include "peers/front/nbd.h"

/* --- certificates, once per process ---------------------------------------------- */

static bool nbd_tls_verifies(const struct nbd_options *options)
{
	return options->tls_verify == NBD_VERIFY_YES ||
	       (options->tls_verify == NBD_VERIFY_AUTO && options->tls_ca);
}

static int nbd_tls_check_options(const struct nbd_options *options, char *why, size_t size)
{
	const char *text = NULL;
	if (options->tls_cert && !options->tls_key)
		text = "tls-cert needs tls-key, the private key of the certificate";
	else if (options->tls_key && !options->tls_cert)
		text = "tls-key needs tls-cert, the certificate that the key belongs to";
	else if (options->tls == NBD_TLS_REQUIRE && !options->tls_cert)
		text = "tls=require needs a certificate: give tls-cert and tls-key";
	else if (options->tls_ca && !options->tls_cert)
		text = "tls-ca needs a certificate of the server too: give tls-cert and tls-key";
	else if (options->tls_crl && !nbd_tls_verifies(options))
		text = "tls-crl needs tls-ca, the authority that has revoked them";
	else if (options->tls_verify == NBD_VERIFY_YES && !options->tls_ca)
		text = "tls-verify-peer=yes needs tls-ca, the authority whose clients may come in";
	if (!text)
		return 0;
	snprintf(why, size, "%s", text);
	return -EINVAL;
}

int nbd_tls_open(
	struct nbd_shared *shared, const struct nbd_options *options, char *why, size_t size)
{
	struct tls_files files = {
		options->tls_ca, options->tls_cert, options->tls_key, options->tls_crl};
	unsigned flags = TLS_SERVER | TLS_OLD;
	int error = nbd_tls_check_options(options, why, size);
	if (error || !options->tls_cert || options->tls == NBD_TLS_OFF)
		return error;
	if (!nbd_tls_verifies(options))
		flags |= TLS_ANYBODY;
	return tls_context_open(&shared->tls, &files, flags, why, size);
}

void nbd_tls_close(struct nbd_shared *shared)
{
	tls_context_close(shared->tls);
	shared->tls = NULL;
}

/* --- bytes ----------------------------------------------------------------------- */

static ssize_t nbd_tls_result(struct nbd_conn *conn, ssize_t result)
{
	const char *reason = tls_reason(conn->tls);
	if (result < 0 && result != -EAGAIN && reason)
		nbd_log(conn, "%s", reason);
	return result == -EACCES ? -EPIPE : result; /* its reason has been said */
}

static ssize_t nbd_tls_receive(struct nbd_conn *conn, struct iovec *iov, int count)
{
	ssize_t got = tls_receive(conn->tls, iov, count);
	if (unlikely(!conn->tls_counted) && tls_is_up(conn->tls)) {
		conn->tls_counted = true;
		peer_count(conn->nbd->peer, NBD_COUNT_TLS, 1);
	}
	if (got == -EAGAIN && tls_wants_write(conn->tls))
		nbd_conn_want_write(conn);
	return nbd_tls_result(conn, got);
}

static ssize_t nbd_tls_send(struct nbd_conn *conn, struct iovec *iov, int count)
{
	return nbd_tls_result(conn, tls_send(conn->tls, iov, count));
}

static void nbd_tls_end(struct nbd_conn *conn)
{
	tls_bye(conn->tls);
	nbd_transport_socket.end(conn);
}

static const struct nbd_transport nbd_transport_tls = {
	.name = "TLS",
	.receive = nbd_tls_receive,
	.send = nbd_tls_send,
	.end = nbd_tls_end,
	.buffers = true,
};

int nbd_tls_begin(struct nbd_conn *conn)
{
	conn->tls = tls_open(conn->nbd->shared->tls, conn->in, conn->out, NULL);
	if (!conn->tls)
		return -ENOMEM;
	conn->transport = &nbd_transport_tls;
	return 0;
}

void nbd_tls_free(struct nbd_conn *conn)
{
	tls_close(conn->tls);
	conn->tls = NULL;
}
