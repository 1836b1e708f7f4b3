/* SPDX-License-Identifier: Apache-2.0 */
/* TLS on a connection, by OpenSSL: certificates, and the bytes through it. */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdlib.h>

#include "peers/front/nbd.h"

#define NBD_TLS_RECORD 16384u

struct nbd_tls {
	SSL *ssl;
	bool established;
	uint8_t record[NBD_TLS_RECORD]; /* pieces of a send, so that each record is a full one */
};

/* --- certificates, once per process ---------------------------------------------- */

static const char *nbd_tls_reason(void)
{
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());
	ERR_clear_error();
	return reason ? reason : "unknown error";
}

static int nbd_tls_refuse(
	SSL_CTX *context, char *why, size_t size, const char *option, const char *file)
{
	snprintf(why, size, "%s=%s: %s", option, file, nbd_tls_reason());
	SSL_CTX_free(context);
	return -EINVAL;
}

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
	else if (options->tls_verify == NBD_VERIFY_YES && !options->tls_ca)
		text = "tls-verify-peer=yes needs tls-ca, the authority whose clients may come in";
	if (!text)
		return 0;
	snprintf(why, size, "%s", text);
	return -EINVAL;
}

static void nbd_tls_harden(SSL_CTX *context)
{
	SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
	SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_num_tickets(context, 0);
	SSL_CTX_set_mode(
		context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_read_ahead(context, 1);
}

int nbd_tls_open(
	struct nbd_shared *shared, const struct nbd_options *options, char *why, size_t size)
{
	int error = nbd_tls_check_options(options, why, size);
	if (error || !options->tls_cert || options->tls == NBD_TLS_OFF)
		return error;
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());
	if (!context) {
		snprintf(why, size, "TLS cannot be started: %s", nbd_tls_reason());
		return -ENOMEM;
	}
	nbd_tls_harden(context);
	if (SSL_CTX_use_certificate_chain_file(context, options->tls_cert) != 1)
		return nbd_tls_refuse(context, why, size, "tls-cert", options->tls_cert);
	if (SSL_CTX_use_PrivateKey_file(context, options->tls_key, SSL_FILETYPE_PEM) != 1 ||
		SSL_CTX_check_private_key(context) != 1)
		return nbd_tls_refuse(context, why, size, "tls-key", options->tls_key);
	if (options->tls_ca && SSL_CTX_load_verify_locations(context, options->tls_ca, NULL) != 1)
		return nbd_tls_refuse(context, why, size, "tls-ca", options->tls_ca);
	if (nbd_tls_verifies(options)) {
		SSL_CTX_set_client_CA_list(context, SSL_load_client_CA_file(options->tls_ca));
		SSL_CTX_set_verify(
			context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	}
	signal(SIGPIPE, SIG_IGN); /* OpenSSL writes to sockets without MSG_NOSIGNAL */
	shared->tls = context;
	return 0;
}

void nbd_tls_close(struct nbd_shared *shared)
{
	SSL_CTX_free(shared->tls);
	shared->tls = NULL;
}

/* --- bytes ----------------------------------------------------------------------- */

static ssize_t nbd_tls_failed(struct nbd_conn *conn, int rc, bool receiving)
{
	struct nbd_tls *tls = conn->tls;
	int saved = errno;
	switch (SSL_get_error(tls->ssl, rc)) {
	case SSL_ERROR_WANT_READ: return -EAGAIN;
	case SSL_ERROR_WANT_WRITE:
		if (receiving)
			nbd_conn_want_write(conn);
		return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN: return 0;
	case SSL_ERROR_SYSCALL: ERR_clear_error(); return saved ? -saved : -ECONNRESET;
	default: break;
	}
	/* one that leaves without saying good bye is nothing to be logged */
	bool cut = ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
	if (!cut)
		nbd_log(conn, "TLS: %s", nbd_tls_reason());
	ERR_clear_error();
	return cut ? -ECONNRESET : -EPIPE;
}

static void nbd_tls_look(struct nbd_conn *conn)
{
	struct nbd_tls *tls = conn->tls;
	if (likely(tls->established) || !SSL_is_init_finished(tls->ssl))
		return;
	tls->established = true;
	peer_count(conn->nbd->peer, NBD_COUNT_TLS, 1);
}

static ssize_t nbd_tls_receive(struct nbd_conn *conn, struct iovec *iov, int count)
{
	struct nbd_tls *tls = conn->tls;
	ssize_t total = 0;
	for (int i = 0; i < count; i++) {
		size_t at = 0;
		while (at < iov[i].iov_len) {
			size_t room = iov[i].iov_len - at;
			errno = 0;
			int got = SSL_read(tls->ssl, (uint8_t *)iov[i].iov_base + at,
				room < INT32_MAX ? (int)room : INT32_MAX);
			nbd_tls_look(conn);
			if (got <= 0)
				return total ? total
					     : nbd_tls_failed(
						       conn, got, true); /* it will say so again */
			at += (size_t)got;
			total += got;
		}
	}
	return total;
}

/* Fills one record from the pieces, beginning `from` bytes into them. */
static size_t nbd_tls_pack(struct nbd_tls *tls, const struct iovec *iov, int count, size_t from)
{
	size_t size = 0;
	for (int i = 0; i < count && size < NBD_TLS_RECORD; i++) {
		if (from >= iov[i].iov_len) {
			from -= iov[i].iov_len;
			continue;
		}
		size_t take = iov[i].iov_len - from, room = NBD_TLS_RECORD - size;
		take = take < room ? take : room;
		memcpy(tls->record + size, (const uint8_t *)iov[i].iov_base + from, take);
		size += take;
		from = 0;
	}
	return size;
}

/* What could not be written is packed again, the same bytes, the next time. */
static ssize_t nbd_tls_send(struct nbd_conn *conn, struct iovec *iov, int count)
{
	struct nbd_tls *tls = conn->tls;
	size_t done = 0, size;
	while ((size = nbd_tls_pack(tls, iov, count, done))) {
		errno = 0;
		int sent = SSL_write(tls->ssl, tls->record, (int)size);
		if (sent <= 0 && done)
			break;
		if (sent <= 0) {
			ssize_t error = nbd_tls_failed(conn, sent, false);
			return error ? error : -EPIPE;
		}
		done += (size_t)sent;
	}
	return (ssize_t)done;
}

static void nbd_tls_end(struct nbd_conn *conn)
{
	struct nbd_tls *tls = conn->tls;
	if (tls->established)
		SSL_shutdown(tls->ssl); /* says good bye, does not wait for the answer */
	ERR_clear_error();
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
	struct nbd_tls *tls = calloc(1, sizeof(*tls));
	if (!tls)
		return -ENOMEM;
	tls->ssl = SSL_new(conn->nbd->shared->tls);
	if (!tls->ssl || !SSL_set_rfd(tls->ssl, conn->in) || !SSL_set_wfd(tls->ssl, conn->out)) {
		SSL_free(tls->ssl);
		free(tls);
		ERR_clear_error();
		return -ENOMEM;
	}
	SSL_set_accept_state(tls->ssl);
	conn->tls = tls;
	conn->transport = &nbd_transport_tls;
	return 0;
}

void nbd_tls_free(struct nbd_conn *conn)
{
	struct nbd_tls *tls = conn->tls;
	if (!tls)
		return;
	SSL_free(tls->ssl);
	free(tls);
	conn->tls = NULL;
}
