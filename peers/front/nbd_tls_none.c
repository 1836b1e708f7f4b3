/* SPDX-License-Identifier: Apache-2.0 */
/* Built without OpenSSL: there is no TLS, and asking for it is refused at the start. */
#include <errno.h>

#include "peers/front/nbd.h"

int nbd_tls_open(
	struct nbd_shared *shared, const struct nbd_options *options, char *why, size_t size)
{
	shared->tls = NULL;
	if (options->tls != NBD_TLS_REQUIRE && !options->tls_cert && !options->tls_key &&
		!options->tls_ca)
		return 0;
	snprintf(why, size, "this front_nbd was built without TLS (OpenSSL)");
	return -EOPNOTSUPP;
}

void nbd_tls_close(struct nbd_shared *shared) { (void)shared; }

int nbd_tls_begin(struct nbd_conn *conn)
{
	(void)conn;
	return -EOPNOTSUPP;
}

void nbd_tls_free(struct nbd_conn *conn) { (void)conn; }
