/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NBD protocol's numbers, and how its integers (big-endian) are written and read.
 *
 * Units: bytes. Threads: any. Source: doc/proto.md of the NetworkBlockDevice project; names
 * follow it.
 */
#ifndef SKERRY_FRONT_NBD_PROTO_H
#define SKERRY_FRONT_NBD_PROTO_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define NBD_MAGIC 0x4e42444d41474943ull	       /* "NBDMAGIC" */
#define NBD_OPTION_MAGIC 0x49484156454f5054ull /* "IHAVEOPT" */
#define NBD_OPTION_REPLY_MAGIC 0x0003e889045565a9ull
#define NBD_REQUEST_MAGIC 0x25609513u
#define NBD_SIMPLE_MAGIC 0x67446698u
#define NBD_CHUNK_MAGIC 0x668e33efu

#define NBD_STRING_MAX 4096u /* any name or message */
#define NBD_OPTION_HEADER 16u
#define NBD_REQUEST_HEADER 28u
#define NBD_SIMPLE_HEADER 16u
#define NBD_CHUNK_HEADER 20u

enum { NBD_FLAG_FIXED_NEWSTYLE = 1 << 0, NBD_FLAG_NO_ZEROES = 1 << 1 };

enum nbd_transmission_flag {
	NBD_FLAG_HAS_FLAGS = 1 << 0,
	NBD_FLAG_READ_ONLY = 1 << 1,
	NBD_FLAG_SEND_FLUSH = 1 << 2,
	NBD_FLAG_SEND_FUA = 1 << 3,
	NBD_FLAG_SEND_TRIM = 1 << 5,
	NBD_FLAG_SEND_WRITE_ZEROES = 1 << 6,
	NBD_FLAG_SEND_DF = 1 << 7,
	NBD_FLAG_CAN_MULTI_CONN = 1 << 8,
	NBD_FLAG_SEND_CACHE = 1 << 10,
	NBD_FLAG_SEND_FAST_ZERO = 1 << 11,
};

enum nbd_option {
	NBD_OPT_EXPORT_NAME = 1,
	NBD_OPT_ABORT = 2,
	NBD_OPT_LIST = 3,
	NBD_OPT_STARTTLS = 5,
	NBD_OPT_INFO = 6,
	NBD_OPT_GO = 7,
	NBD_OPT_STRUCTURED_REPLY = 8,
	NBD_OPT_LIST_META_CONTEXT = 9,
	NBD_OPT_SET_META_CONTEXT = 10,
};

#define NBD_REP_ERROR(n) (0x80000000u + (n))
enum nbd_option_reply {
	NBD_REP_ACK = 1,
	NBD_REP_SERVER = 2,
	NBD_REP_INFO = 3,
	NBD_REP_META_CONTEXT = 4,
	NBD_REP_ERR_UNSUP = NBD_REP_ERROR(1),
	NBD_REP_ERR_POLICY = NBD_REP_ERROR(2),
	NBD_REP_ERR_INVALID = NBD_REP_ERROR(3),
	NBD_REP_ERR_PLATFORM = NBD_REP_ERROR(4),
	NBD_REP_ERR_TLS_REQD = NBD_REP_ERROR(5),
	NBD_REP_ERR_UNKNOWN = NBD_REP_ERROR(6),
	NBD_REP_ERR_SHUTDOWN = NBD_REP_ERROR(7),
	NBD_REP_ERR_TOO_BIG = NBD_REP_ERROR(9),
};

enum nbd_info { NBD_INFO_EXPORT, NBD_INFO_NAME, NBD_INFO_DESCRIPTION, NBD_INFO_BLOCK_SIZE };

enum nbd_command_type {
	NBD_CMD_READ,
	NBD_CMD_WRITE,
	NBD_CMD_DISC,
	NBD_CMD_FLUSH,
	NBD_CMD_TRIM,
	NBD_CMD_CACHE,
	NBD_CMD_WRITE_ZEROES,
	NBD_CMD_BLOCK_STATUS,
	NBD_CMD_COUNT
};

enum nbd_command_flag {
	NBD_CMD_FLAG_FUA = 1 << 0,
	NBD_CMD_FLAG_NO_HOLE = 1 << 1,
	NBD_CMD_FLAG_DF = 1 << 2,
	NBD_CMD_FLAG_REQ_ONE = 1 << 3,
	NBD_CMD_FLAG_FAST_ZERO = 1 << 4,
};

#define NBD_CHUNK_DONE 1u
enum nbd_chunk {
	NBD_CHUNK_NONE = 0,
	NBD_CHUNK_OFFSET_DATA = 1,
	NBD_CHUNK_BLOCK_STATUS = 5,
	NBD_CHUNK_ERROR = 0x8001,
};

enum nbd_error {
	NBD_OK = 0,
	NBD_EPERM = 1,
	NBD_EIO = 5,
	NBD_ENOMEM = 12,
	NBD_EINVAL = 22,
	NBD_ENOSPC = 28,
	NBD_EOVERFLOW = 75,
	NBD_ENOTSUP = 95,
	NBD_ESHUTDOWN = 108,
};

static inline uint8_t *nbd_put16(uint8_t *to, uint16_t value)
{
	value = htobe16(value);
	return (uint8_t *)memcpy(to, &value, sizeof(value)) + sizeof(value);
}

static inline uint8_t *nbd_put32(uint8_t *to, uint32_t value)
{
	value = htobe32(value);
	return (uint8_t *)memcpy(to, &value, sizeof(value)) + sizeof(value);
}

static inline uint8_t *nbd_put64(uint8_t *to, uint64_t value)
{
	value = htobe64(value);
	return (uint8_t *)memcpy(to, &value, sizeof(value)) + sizeof(value);
}

static inline uint16_t nbd_get16(const uint8_t *from)
{
	uint16_t value;
	memcpy(&value, from, sizeof(value));
	return be16toh(value);
}

static inline uint32_t nbd_get32(const uint8_t *from)
{
	uint32_t value;
	memcpy(&value, from, sizeof(value));
	return be32toh(value);
}

static inline uint64_t nbd_get64(const uint8_t *from)
{
	uint64_t value;
	memcpy(&value, from, sizeof(value));
	return be64toh(value);
}

#endif
