/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Headers of replies in the transmission phase. Pure.
 *
 * Each function writes to `to` (NBD_REPLY_MAX bytes) and returns how many. Structured ones are the
 * last chunk of their reply unless they are told otherwise. The cookie is as it came off the wire.
 * Threads: any.
 */
#ifndef SKERRY_FRONT_NBD_REPLY_H
#define SKERRY_FRONT_NBD_REPLY_H

#include <stdbool.h>

#include "peers/front/nbd_proto.h"

#define NBD_REPLY_MAX (NBD_CHUNK_HEADER + 12u)

uint32_t nbd_reply_simple(uint8_t *to, uint64_t cookie, enum nbd_error error);
uint32_t nbd_reply_none(uint8_t *to, uint64_t cookie);
uint32_t nbd_reply_error(uint8_t *to, uint64_t cookie, enum nbd_error error);
/* `length` bytes of data follow. */
uint32_t nbd_reply_data(uint8_t *to, uint64_t cookie, uint64_t offset, uint32_t length);
/* `count` descriptors of 8 bytes follow. */
uint32_t nbd_reply_status(
	uint8_t *to, uint64_t cookie, uint32_t context, uint32_t count, bool last);

#endif
