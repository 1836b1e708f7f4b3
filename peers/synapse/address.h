/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of bridges: "tcp:HOST:PORT", "tcp:[HOST]:PORT", "unix:PATH".
 *
 * Errors: 0 or -errno with a sentence in `why`. Threads: any. Blocking: resolving asks name
 * servers, so it is a worker's; the rest does not block.
 */
#ifndef SKERRY_SYNAPSE_ADDRESS_H
#define SKERRY_SYNAPSE_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define ADDRESS_MAX 8u /* of one name */

struct address {
	bool local; /* a UNIX socket or loopback: nobody listens on the way */
	char host[256], port[8], path[108];
};

struct address_list {
	int error;
	unsigned count;
	socklen_t size[ADDRESS_MAX];
	struct sockaddr_storage at[ADDRESS_MAX];
};

int address_parse(const char *text, struct address *address, char *why, size_t why_size);
/* What it is now: a name may lead elsewhere than before. -EHOSTUNREACH: nowhere. */
void address_resolve(const struct address *address, struct address_list *list);
/* A socket that is connected, or will be. */
int address_connect(const struct address_list *list, unsigned which);
/* A listening socket. */
int address_listen(const struct address *address, char *why, size_t why_size);
/* Accepts one; -EAGAIN: nobody is there. who: where it comes from. */
int address_accept(int listener, char *who, size_t who_size);

#endif
