/* SPDX-License-Identifier: Apache-2.0 */
/* TLS by OpenSSL: certificates, and records that are full. */

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <peer/tls.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TLS_RECORD 16384u

struct tls_context {
	SSL_CTX *ssl;
	const char *crl;
	struct timespec crl_time; /* of the file that was read last */
};

struct tls_link {
	SSL *ssl;
	bool wants_write;
	char reason[160];
	uint8_t record[TLS_RECORD]; /* pieces of a send, so that each record is a full one */
};

/* --- files ------------------------------------------------------------------------------------ */

static int refuse(const char *option, const char *file, char *why, size_t why_size)
{
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());
	snprintf(why, why_size, "%s: '%s': %s", option, file, reason ? reason : "unknown error");
	ERR_clear_error();
	return -EINVAL;
}

static int load(SSL_CTX *ssl, const struct tls_files *files, char *why, size_t why_size)
{
	if (SSL_CTX_use_certificate_chain_file(ssl, files->cert) != 1)
		return refuse("tls-cert", files->cert, why, why_size);
	if (SSL_CTX_use_PrivateKey_file(ssl, files->key, SSL_FILETYPE_PEM) != 1 ||
		SSL_CTX_check_private_key(ssl) != 1)
		return refuse("tls-key", files->key, why, why_size);
	if (files->ca && SSL_CTX_load_verify_locations(ssl, files->ca, NULL) != 1)
		return refuse("tls-ca", files->ca, why, why_size);
	return 0;
}

/* Of several lists of one authority the latest counts. */
static int load_crl(SSL_CTX *ssl, const char *path)
{
	X509_STORE *store = SSL_CTX_get_cert_store(ssl);
	FILE *in = fopen(path, "re");
	X509_CRL *crl = in ? PEM_read_X509_CRL(in, NULL, NULL, NULL) : NULL;
	bool good = crl && X509_STORE_add_crl(store, crl) == 1 &&
		    X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK) == 1;
	X509_CRL_free(crl);
	if (in)
		fclose(in);
	return good ? 0 : -EINVAL;
}

static bool crl_has_changed(struct tls_context *context)
{
	struct stat st;
	if (!context->crl || stat(context->crl, &st) ||
		memcmp(&st.st_mtim, &context->crl_time, sizeof(st.st_mtim)) == 0)
		return false;
	context->crl_time = st.st_mtim;
	return true;
}

static void harden(SSL_CTX *ssl, const char *ca, unsigned flags)
{
	SSL_CTX_set_min_proto_version(ssl, flags & TLS_OLD ? TLS1_2_VERSION : TLS1_3_VERSION);
	SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_num_tickets(ssl, 0);
	SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_read_ahead(ssl, 1);
	if (flags & TLS_ANYBODY)
		return;
	SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	if (flags & TLS_SERVER) /* clients that have several learn which one is asked for */
		SSL_CTX_set_client_CA_list(ssl, SSL_load_client_CA_file(ca));
}

int tls_context_open(struct tls_context **context, const struct tls_files *files, unsigned flags,
	char *why, size_t why_size)
{
	SSL_CTX *ssl = SSL_CTX_new(flags & TLS_SERVER ? TLS_server_method() : TLS_client_method());
	int error = -ENOMEM;
	*context = ssl ? calloc(1, sizeof(**context)) : NULL;
	snprintf(why, why_size, "tls-cert: out of memory");
	if (*context)
		error = load(ssl, files, why, why_size);
	if (!error)
		harden(ssl, files->ca, flags);
	if (!error) {
		(*context)->crl = files->crl;
		(void)crl_has_changed(*context);
		if (files->crl)
			error = load_crl(ssl, files->crl);
		if (error)
			error = refuse("tls-crl", files->crl, why, why_size);
	}
	if (error) {
		SSL_CTX_free(ssl);
		free(*context);
		*context = NULL;
		return error;
	}
	signal(SIGPIPE, SIG_IGN); /* OpenSSL writes to sockets without MSG_NOSIGNAL */
	(*context)->ssl = ssl;
	return 0;
}

void tls_context_close(struct tls_context *context)
{
	if (!context)
		return;
	SSL_CTX_free(context->ssl);
	free(context);
}

/* --- a connection ----------------------------------------------------------------------------- */

static bool expect_name(SSL *ssl, const char *name)
{
	uint8_t address[16];
	if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
	return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

struct tls_link *tls_open(struct tls_context *context, int in, int out, const char *name)
{
	struct tls_link *link = calloc(1, sizeof(*link));
	if (!link)
		return NULL;
	if (crl_has_changed(context) && load_crl(context->ssl, context->crl))
		context->crl_time = (struct timespec){0}; /* half written: again, the next time */
	ERR_clear_error();
	link->ssl = SSL_new(context->ssl);
	if (!link->ssl || !SSL_set_rfd(link->ssl, in) || !SSL_set_wfd(link->ssl, out) ||
		(name && !expect_name(link->ssl, name))) {
		ERR_clear_error();
		tls_close(link);
		return NULL;
	}
	if (name)
		SSL_set_connect_state(link->ssl);
	else
		SSL_set_accept_state(link->ssl);
	return link;
}

bool tls_is_up(const struct tls_link *link) { return SSL_is_init_finished(link->ssl); }

void tls_bye(struct tls_link *link)
{
	if (tls_is_up(link))
		SSL_shutdown(link->ssl); /* does not wait for the answer */
	ERR_clear_error();
}

void tls_close(struct tls_link *link)
{
	if (!link)
		return;
	SSL_free(link->ssl);
	free(link);
}

static void note_reason(struct tls_link *link)
{
	long verified = SSL_get_verify_result(link->ssl);
	const char *reason = ERR_reason_error_string(ERR_peek_last_error());
	if (verified != X509_V_OK)
		reason = X509_verify_cert_error_string(verified);
	snprintf(link->reason, sizeof(link->reason), "TLS: %s", reason ? reason : "it has ended");
}

static ssize_t failed(struct tls_link *link, int rc)
{
	int saved = errno;
	switch (SSL_get_error(link->ssl, rc)) {
	case SSL_ERROR_WANT_READ: return -EAGAIN;
	case SSL_ERROR_WANT_WRITE: link->wants_write = true; return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN: return 0;
	case SSL_ERROR_SYSCALL: ERR_clear_error(); return saved ? -saved : -ECONNRESET;
	default: break;
	}
	bool cut = ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
	if (!cut)
		note_reason(link);
	ERR_clear_error();
	return cut ? -ECONNRESET : -EACCES;
}

ssize_t tls_receive(struct tls_link *link, struct iovec *iov, int count)
{
	ssize_t total = 0;
	link->wants_write = false;
	for (int i = 0; i < count; i++) {
		size_t at = 0;
		while (at < iov[i].iov_len) {
			errno = 0;
			int got = SSL_read(link->ssl, (uint8_t *)iov[i].iov_base + at,
				(int)(iov[i].iov_len - at));
			if (got <= 0) /* it will say so again */
				return total ? total : failed(link, got);
			at += (size_t)got;
			total += got;
		}
	}
	return total;
}

/* Fills one record from the pieces, beginning `from` bytes into them. */
static size_t pack(struct tls_link *link, const struct iovec *iov, int count, size_t from)
{
	size_t size = 0;
	for (int i = 0; i < count && size < TLS_RECORD; i++) {
		if (from >= iov[i].iov_len) {
			from -= iov[i].iov_len;
			continue;
		}
		size_t take = iov[i].iov_len - from, room = TLS_RECORD - size;
		take = take < room ? take : room;
		memcpy(link->record + size, (const uint8_t *)iov[i].iov_base + from, take);
		size += take;
		from = 0;
	}
	return size;
}

/* From `from` on as many bytes as one record takes, where they lie if that is one place. */
static const uint8_t *next_record(
	struct tls_link *link, const struct iovec *iov, int count, size_t from, size_t *size)
{
	size_t at = from;
	for (int i = 0; i < count; at -= iov[i++].iov_len)
		if (at < iov[i].iov_len) {
			*size = TLS_RECORD;
			if (iov[i].iov_len - at >= TLS_RECORD)
				return (const uint8_t *)iov[i].iov_base + at;
			break;
		}
	*size = pack(link, iov, count, from);
	return link->record;
}

/* What could not be written is given again, the same bytes, the next time. */
ssize_t tls_send(struct tls_link *link, struct iovec *iov, int count)
{
	size_t done = 0, size, all = 0;
	for (int i = 0; i < count; i++)
		all += iov[i].iov_len;
	while (done < all) {
		const uint8_t *bytes = next_record(link, iov, count, done, &size);
		errno = 0;
		int sent = SSL_write(link->ssl, bytes, (int)size);
		if (sent <= 0 && done)
			break;
		if (sent <= 0) {
			ssize_t error = failed(link, sent);
			return error ? error : -ECONNRESET;
		}
		done += (size_t)sent;
	}
	return (ssize_t)done;
}

bool tls_wants_write(const struct tls_link *link) { return link && link->wants_write; }

const char *tls_reason(const struct tls_link *link)
{
	return link && *link->reason ? link->reason : NULL;
}

static bool is_uri(const GENERAL_NAME *name, const char *uri)
{
	size_t length = strlen(uri);
	bool begins = length > 0 && uri[length - 1] == '*';
	const ASN1_STRING *text = name->d.uniformResourceIdentifier;
	if (name->type != GEN_URI)
		return false;
	length -= begins;
	size_t size = (size_t)ASN1_STRING_length(text);
	return (begins ? size >= length : size == length) &&
	       memcmp(ASN1_STRING_get0_data(text), uri, length) == 0;
}

static GENERAL_NAMES *names_of(const struct tls_link *link)
{
	X509 *certificate = SSL_get1_peer_certificate(link->ssl);
	GENERAL_NAMES *names =
		certificate ? X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL)
			    : NULL;
	X509_free(certificate);
	return names;
}

bool tls_is(const struct tls_link *link, const char *uri)
{
	GENERAL_NAMES *names = names_of(link);
	bool found = false;
	for (int i = 0; i < sk_GENERAL_NAME_num(names) && !found; i++)
		found = is_uri(sk_GENERAL_NAME_value(names, i), uri);
	GENERAL_NAMES_free(names);
	return found;
}

size_t tls_uri(const struct tls_link *link, char out[TLS_URI_MAX])
{
	GENERAL_NAMES *names = names_of(link);
	size_t length = 0;
	for (int i = 0; i < sk_GENERAL_NAME_num(names) && length == 0; i++) {
		const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
		if (name->type != GEN_URI)
			continue;
		const ASN1_STRING *text = name->d.uniformResourceIdentifier;
		length = (size_t)ASN1_STRING_length(text);
		length = length < TLS_URI_MAX ? length : TLS_URI_MAX;
		memcpy(out, ASN1_STRING_get0_data(text), length);
	}
	GENERAL_NAMES_free(names);
	return length;
}
