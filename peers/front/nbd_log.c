/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong with clients is logged once each, and never faster than a person reads. */
#include <base/log.h>
#include <stdarg.h>

#include "peers/front/nbd.h"

#define NBD_LOG_BURST 10u
#define NBD_LOG_EVERY_NS 1000000000ull

static bool nbd_log_allowed(struct nbd *nbd)
{
	uint64_t now = nbd_now(nbd);
	uint64_t gained = (now - nbd->log_ns) / NBD_LOG_EVERY_NS;
	if (gained) {
		uint64_t tokens = nbd->log_tokens + gained;
		nbd->log_tokens = tokens < NBD_LOG_BURST ? (unsigned)tokens : NBD_LOG_BURST;
		nbd->log_ns = now;
	}
	if (!nbd->log_tokens) {
		nbd->log_dropped++;
		return false;
	}
	nbd->log_tokens--;
	return true;
}

void nbd_log(struct nbd_conn *conn, const char *format, ...)
{
	struct nbd *nbd = conn->nbd;
	char text[256];
	va_list args;
	if (!nbd_log_allowed(nbd))
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (nbd->log_dropped)
		log_warning(NBD_ROOM, "%s: %s %s (%u earlier messages left out)", nbd->peer->name,
			conn->who, text, nbd->log_dropped);
	else
		log_warning(NBD_ROOM, "%s: %s %s", nbd->peer->name, conn->who, text);
	nbd->log_dropped = 0;
}
