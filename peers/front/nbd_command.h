/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request as it comes off the wire, and whether it may be served. Pure: no socket, no call.
 *
 * Units: bytes. Errors: NBD's own numbers (enum nbd_error). Threads: any.
 */
#ifndef SKERRY_FRONT_NBD_COMMAND_H
#define SKERRY_FRONT_NBD_COMMAND_H

#include <stdbool.h>

#include "peers/front/nbd_proto.h"

#define NBD_BLOCK_MIN 512u
#define NBD_BLOCK_PREFERRED 4096u
#define NBD_DIRTY_MAX 8u /* snapshots that one connection can ask about */

/* skerry:dirty:SNAP */
struct nbd_dirty {
	uint64_t snapshot; /* its id */
	uint64_t size;	   /* what lies behind is not in it */
};

/* What the handshake agreed on. */
struct nbd_session {
	uint64_t volume;
	uint64_t term; /* in which it was opened to write; 0: only to read, or it has none */
	uint64_t size;
	uint32_t payload_max;
	uint16_t flags;	   /* transmission flags as told to the client */
	bool structured;   /* structured replies */
	bool meta;	   /* base:allocation */
	bool blocks_known; /* the client asked for block sizes, and so keeps to them */
	bool patching;	   /* writes of parts of sectors can be served */
	uint8_t dirty_count;
	uint32_t object_size; /* when dirty_count > 0 */
	struct nbd_dirty dirty[NBD_DIRTY_MAX];
};

struct nbd_command {
	uint64_t cookie;
	uint64_t offset;
	uint32_t length;
	uint16_t flags;
	uint16_t type;
};

/* -EPROTO: not a request at all; the stream cannot be trusted any more. */
int nbd_command_parse(const uint8_t wire[NBD_REQUEST_HEADER], struct nbd_command *command);
/* NBD_OK, or the error to answer with. */
enum nbd_error nbd_command_check(
	const struct nbd_session *session, const struct nbd_command *command);
/* Bytes that follow the header, whether or not it is served. */
static inline uint32_t nbd_command_payload(const struct nbd_command *command)
{
	return command->type == NBD_CMD_WRITE ? command->length : 0;
}
/* Does it change the volume? */
static inline bool nbd_command_alters(unsigned type)
{
	return type == NBD_CMD_WRITE || type == NBD_CMD_TRIM || type == NBD_CMD_WRITE_ZEROES;
}

/* The protocol's number for -errno of a call. */
enum nbd_error nbd_command_error(int error);
const char *nbd_command_name(unsigned type);

#endif
