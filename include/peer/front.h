/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be asked of a front, a peer whose clients are not in the segment: XSEG_OP_CONTROL to its
 * port.
 *
 *   arg0   enum front_control
 *   arg1   a number, where noted
 *   data   out: as noted, at 0
 *
 * Units: ns. Errors: 0 or -errno. Ownership: caller's buffers. Threads: as for any request.
 * Blocking: CHECK asks the composer, so it takes as long as that.
 */
#ifndef SKERRY_PEER_FRONT_H
#define SKERRY_PEER_FRONT_H

#include <base/must.h>
#include <base/name.h>
#include <stdint.h>

enum front_control {
	FRONT_CLIENTS, /* out: struct front_client[], as many as there is room for, from number arg1
			  on; value = how many there are */
	FRONT_CHECK,   /* can what it serves be opened? out: struct front_check */
	FRONT_SETTLE,  /* key.volume: what clients have written to it and this front still keeps is
			 at the volume, durable. arg1: who wants to write waits from then on, for so
			 many ns at most. -EOPNOTSUPP: a front that keeps nothing */
	FRONT_GO,      /* key.volume: they wait no longer */
	FRONT_ADDRESSES, /* in: the name of a volume, char[256]; out, at FRONT_ANSWER_AT: struct
			    front_address[], where clients reach it. -ENOENT: not here */
};
#define FRONT_ANSWER_AT 256u

#define FRONT_CLIENT_READ_ONLY 1u

struct front_client {
	uint64_t volume;   /* its id */
	uint64_t since_ns; /* CLOCK_MONOTONIC's: when this process began to serve it */
	uint32_t flags;	   /* FRONT_CLIENT_* */
	uint32_t reserved;
	char who[104]; /* "client of process 4711 (user 0)" */
};
fixed(sizeof(struct front_client) == 128);

struct front_check {
	int32_t error;			       /* 0, or -errno of the first that cannot be opened */
	uint32_t reserved;		       /* 0 */
	char name[VOLUME_NAME_LENGTH_MAX + 1]; /* that one; "": volumes cannot even be listed */
};
fixed(sizeof(struct front_check) == 264);

#define FRONT_ADDRESS_UNIX 1u  /* the path of a socket; else "HOST:PORT", "[HOST]:PORT" */
#define FRONT_ADDRESS_TLS 2u   /* clients must speak TLS */
#define FRONT_ADDRESS_ANY 4u   /* of all interfaces: HOST is any name of this machine */
#define FRONT_ADDRESS_VHOST 8u /* vhost-user, not NBD */
#define FRONT_ADDRESS_FILE 16u /* the path of a file */

struct front_address {
	uint32_t flags; /* FRONT_ADDRESS_* */
	char text[124];
};
fixed(sizeof(struct front_address) == 128);

#endif
