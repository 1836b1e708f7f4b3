/* SPDX-License-Identifier: Apache-2.0 */
/* A build without OpenSSL: whoever asks for TLS is told so. */
#include <errno.h>
#include <peer/tls.h>
#include <stdio.h>

int tls_context_open(struct tls_context **context, const struct tls_files *files, unsigned flags,
	char *why, size_t why_size)
{
	(void)flags;
	*context = NULL;
	snprintf(why, why_size, "tls-cert: '%s': this build has no TLS", files->cert);
	return -EOPNOTSUPP;
}

void tls_context_close(struct tls_context *context) { (void)context; }

struct tls_link *tls_open(struct tls_context *context, int in, int out, const char *name)
{
	(void)context, (void)in, (void)out, (void)name;
	return NULL;
}

void tls_bye(struct tls_link *link) { (void)link; }

void tls_close(struct tls_link *link) { (void)link; }

bool tls_is_up(const struct tls_link *link)
{
	(void)link;
	return false;
}

ssize_t tls_receive(struct tls_link *link, struct iovec *iov, int count)
{
	(void)link, (void)iov, (void)count;
	return -EOPNOTSUPP;
}

ssize_t tls_send(struct tls_link *link, struct iovec *iov, int count)
{
	(void)link, (void)iov, (void)count;
	return -EOPNOTSUPP;
}

bool tls_wants_write(const struct tls_link *link)
{
	(void)link;
	return false;
}

const char *tls_reason(const struct tls_link *link)
{
	(void)link;
	return NULL;
}

bool tls_is(const struct tls_link *link, const char *uri)
{
	(void)link, (void)uri;
	return false;
}

size_t tls_uri(const struct tls_link *link, char out[TLS_URI_MAX])
{
	(void)link, (void)out;
	return 0;
}
