/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS on a connection, by OpenSSL. Whom the other one is, is told by the URIs of its certificate
 * (subjectAltName). For modules: what uses it has core_tls.c among its sources.
 *
 * Errors: 0 or -errno, with a sentence in `why` where one is asked for. Ownership: as noted.
 * Threads: one each; a context any. Blocking: opening a context reads files.
 */
#ifndef SKERRY_PEER_TLS_H
#define SKERRY_PEER_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

struct tls_files {
	const char *ca; /* who signs for the other side; NULL: nobody */
	const char *cert, *key;
	const char *crl; /* what was revoked; NULL: nothing. Looked at again when it has changed */
};

struct tls_context; /* files that were read */
struct tls_link;    /* one connection */

/* Without a flag: a client, TLS 1.3, the other side must have a certificate. */
enum { TLS_SERVER = 1, TLS_ANYBODY = 2 /* it need not */, TLS_OLD = 4 /* TLS 1.2 too */ };
int tls_context_open(struct tls_context **context, const struct tls_files *files, unsigned flags,
	char *why, size_t why_size);
void tls_context_close(struct tls_context *context);

/* Blocks for a moment when the file of what was revoked has changed. in, out: sockets that do not
   block, or one; name: of the server, as its certificate must have it; NULL on a server. NULL: out
   of memory. */
struct tls_link *tls_open(struct tls_context *context, int in, int out, const char *name);
/* Says good bye, if they have come to know each other. */
void tls_bye(struct tls_link *link);
void tls_close(struct tls_link *link);
/* Both have shown what they have. */
bool tls_is_up(const struct tls_link *link);
/* As recvmsg() and sendmsg(): bytes, 0 when the other side has said good bye, or -errno; -EAGAIN:
   later. */
ssize_t tls_receive(struct tls_link *link, struct iovec *iov, int count);
ssize_t tls_send(struct tls_link *link, struct iovec *iov, int count);
/* It can go on only when the socket takes something. NULL: false. */
bool tls_wants_write(const struct tls_link *link);
/* What went wrong, as a sentence; NULL: nothing of TLS. */
const char *tls_reason(const struct tls_link *link);
/* The first URI of the other side's certificate, as it is or cut; returns its length; 0: it has
   none. */
#define TLS_URI_MAX 512u
size_t tls_uri(const struct tls_link *link, char out[TLS_URI_MAX]);
/* Has the other side's certificate this URI? '*' at its end: one that begins so. */
bool tls_is(const struct tls_link *link, const char *uri);

#endif
