/* SPDX-License-Identifier: Apache-2.0 */
/* The headers of replies, simple and structured. */
#include "peers/front/nbd_reply.h"

#include <base/must.h>

/* The cookie is kept in wire order. */
static uint8_t *nbd_put_cookie(uint8_t *to, uint64_t cookie)
{
	return (uint8_t *)memcpy(to, &cookie, sizeof(cookie)) + sizeof(cookie);
}

static uint8_t *nbd_put_chunk(uint8_t *to, enum nbd_chunk type, uint64_t cookie, uint32_t length)
{
	to = nbd_put32(to, NBD_CHUNK_MAGIC);
	to = nbd_put16(to, NBD_CHUNK_DONE);
	to = nbd_put16(to, type);
	to = nbd_put_cookie(to, cookie);
	return nbd_put32(to, length);
}

uint32_t nbd_reply_simple(uint8_t *to, uint64_t cookie, enum nbd_error error)
{
	nbd_put_cookie(nbd_put32(nbd_put32(to, NBD_SIMPLE_MAGIC), error), cookie);
	return NBD_SIMPLE_HEADER;
}

uint32_t nbd_reply_none(uint8_t *to, uint64_t cookie)
{
	nbd_put_chunk(to, NBD_CHUNK_NONE, cookie, 0);
	return NBD_CHUNK_HEADER;
}

uint32_t nbd_reply_error(uint8_t *to, uint64_t cookie, enum nbd_error error)
{
	must(error != NBD_OK);
	uint8_t *end = nbd_put_chunk(to, NBD_CHUNK_ERROR, cookie, 6);
	nbd_put16(nbd_put32(end, error), 0);
	return NBD_CHUNK_HEADER + 6;
}

uint32_t nbd_reply_data(uint8_t *to, uint64_t cookie, uint64_t offset, uint32_t length)
{
	nbd_put64(nbd_put_chunk(to, NBD_CHUNK_OFFSET_DATA, cookie, length + 8), offset);
	return NBD_CHUNK_HEADER + 8;
}

uint32_t nbd_reply_status(uint8_t *to, uint64_t cookie, uint32_t context, uint32_t count, bool last)
{
	nbd_put32(nbd_put_chunk(to, NBD_CHUNK_BLOCK_STATUS, cookie, 4 + 8 * count), context);
	if (!last)
		nbd_put16(to + 4, 0);
	return NBD_CHUNK_HEADER + 4;
}
