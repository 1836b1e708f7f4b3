/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong with clients is logged once each, and never faster than a person reads. */
#include <base/log.h>
#include <stdarg.h>
#include <stdio.h>

#include "peers/front/front.h"

#define LOG_BURST 10u
#define LOG_EVERY_NS 1000000000ull

static bool log_allowed(struct front_log *log, uint64_t now)
{
	uint64_t gained = (now - log->looked_ns) / LOG_EVERY_NS;
	if (gained) {
		uint64_t tokens = log->tokens + gained;
		log->tokens = tokens < LOG_BURST ? (unsigned)tokens : LOG_BURST;
		log->looked_ns = now;
	}
	if (!log->tokens) {
		log->dropped++;
		return false;
	}
	log->tokens--;
	return true;
}

void front_log(
	struct front_log *log, const struct peer *peer, const char *who, const char *format, ...)
{
	char text[256];
	va_list args;
	if (!log_allowed(log, peer_now_ns(peer)))
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (log->dropped)
		log_warning(peer->ops->name, "%s: %s %s (%u earlier messages left out)", peer->name,
			who, text, log->dropped);
	else
		log_warning(peer->ops->name, "%s: %s %s", peer->name, who, text);
	log->dropped = 0;
}
