/* SPDX-License-Identifier: Apache-2.0 */
/* Requests off the wire, what is refused and with which error, and the headers of replies. */
#include <errno.h>

#include "peers/front/nbd_command.h"
#include "peers/front/nbd_reply.h"
#include "tests/lib/unit.h"

static const uint8_t write_wire[NBD_REQUEST_HEADER] = {0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 1, 2, 3,
	4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0x10, 0, 0, 0, 0x20, 0};

UNIT(test_parse)
{
	struct nbd_command c;
	ck_assert_int_eq(nbd_command_parse(write_wire, &c), 0);
	ck_assert_uint_eq(c.type, NBD_CMD_WRITE);
	ck_assert_uint_eq(c.flags, NBD_CMD_FLAG_FUA);
	ck_assert_uint_eq(c.offset, 0x100001000);
	ck_assert_uint_eq(c.length, 0x2000);
	ck_assert_uint_eq(nbd_command_payload(&c), 0x2000);
	ck_assert_mem_eq(&c.cookie, write_wire + 8, 8);
}

UNIT(test_wrong_magic)
{
	uint8_t wire[NBD_REQUEST_HEADER];
	struct nbd_command c;
	for (unsigned bit = 0; bit < 32; bit++) {
		memcpy(wire, write_wire, sizeof(wire));
		wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert_int_eq(nbd_command_parse(wire, &c), -EPROTO);
	}
}

#define SIZE 0x100000ull
enum {
	PLAIN = 1,
	FULL = 2,
	RO = 4,
	OLD = 8,
	LANES = 16,
	ALL = 31,
	RW = PLAIN | FULL | OLD | LANES
};

/* PLAIN knows block sizes, FULL structured replies and contexts too, OLD nothing. */
static struct nbd_session session_of(unsigned kind)
{
	struct nbd_session s = {.volume = 1,
		.size = SIZE,
		.payload_max = 0x10000,
		.blocks_known = true,
		.flags = NBD_FLAG_HAS_FLAGS | NBD_FLAG_SEND_FLUSH | NBD_FLAG_SEND_FUA |
			 NBD_FLAG_SEND_TRIM | NBD_FLAG_SEND_WRITE_ZEROES | NBD_FLAG_SEND_CACHE |
			 NBD_FLAG_SEND_FAST_ZERO};
	if (kind == FULL) {
		s.structured = s.meta = true;
		s.flags |= NBD_FLAG_SEND_DF;
	}
	if (kind == RO)
		s.flags = NBD_FLAG_HAS_FLAGS | NBD_FLAG_READ_ONLY | NBD_FLAG_SEND_FLUSH;
	s.blocks_known = kind != OLD && kind != LANES;
	s.patching = kind == OLD;
	return s;
}

static const struct {
	unsigned sessions;
	struct nbd_command c;
	enum nbd_error error;
} checks[] = {
	{ALL, {.type = NBD_CMD_READ, .length = 512}, NBD_OK},
	{ALL, {.type = NBD_CMD_READ, .offset = SIZE - 512, .length = 512}, NBD_OK},
	{ALL, {.type = NBD_CMD_READ, .offset = SIZE, .length = 512}, NBD_EINVAL},
	{ALL, {.type = NBD_CMD_READ, .offset = SIZE, .length = 0}, NBD_OK},
	{ALL, {.type = NBD_CMD_READ, .offset = SIZE - 512, .length = 1024}, NBD_EINVAL},
	{ALL, {.type = NBD_CMD_READ, .offset = UINT64_MAX - 511, .length = 512}, NBD_EINVAL},
	{ALL, {.type = NBD_CMD_READ, .offset = UINT64_MAX - 511, .length = 1024}, NBD_EINVAL},
	{ALL, {.type = NBD_CMD_READ, .length = 0x10000}, NBD_OK},
	{ALL & ~FULL, {.type = NBD_CMD_READ, .length = 0x10200}, NBD_EINVAL},
	{FULL, {.type = NBD_CMD_READ, .length = 0x10200}, NBD_EOVERFLOW},
	{PLAIN | FULL | RO, {.type = NBD_CMD_READ, .offset = 1, .length = 512}, NBD_EINVAL},
	{OLD | LANES, {.type = NBD_CMD_READ, .offset = 1, .length = 77}, NBD_OK},
	{OLD, {.type = NBD_CMD_WRITE, .offset = 1, .length = 77}, NBD_OK},
	{PLAIN | FULL | LANES, {.type = NBD_CMD_WRITE, .offset = 1, .length = 77}, NBD_EINVAL},
	{PLAIN | FULL | LANES, {.type = NBD_CMD_WRITE_ZEROES, .offset = 512, .length = 77},
		NBD_EINVAL},
	{OLD | LANES, {.type = NBD_CMD_TRIM, .offset = 1, .length = 77}, NBD_OK},
	{RW, {.type = NBD_CMD_WRITE, .length = 0x10000}, NBD_OK},
	{RW, {.type = NBD_CMD_WRITE, .length = 0x10200}, NBD_EINVAL},
	{RW, {.type = NBD_CMD_WRITE, .length = 0xffffffff}, NBD_EINVAL},
	{RW, {.type = NBD_CMD_WRITE, .offset = SIZE, .length = 512}, NBD_ENOSPC},
	{RW, {.type = NBD_CMD_WRITE_ZEROES, .offset = SIZE - 512, .length = 1024}, NBD_ENOSPC},
	{RW, {.type = NBD_CMD_WRITE_ZEROES, .length = (uint32_t)SIZE}, NBD_OK},
	{RW, {.type = NBD_CMD_TRIM, .offset = SIZE, .length = 512}, NBD_EINVAL},
	{RO, {.type = NBD_CMD_WRITE, .length = 512}, NBD_EPERM},
	{RO, {.type = NBD_CMD_TRIM, .length = 512}, NBD_EPERM},
	{RO, {.type = NBD_CMD_WRITE_ZEROES, .length = 512}, NBD_EPERM},
	{ALL, {.type = NBD_CMD_FLUSH}, NBD_OK},
	{ALL, {.type = NBD_CMD_CACHE, .length = (uint32_t)SIZE}, NBD_OK},
	{FULL, {.type = NBD_CMD_BLOCK_STATUS, .length = 512}, NBD_OK},
	{FULL, {.type = NBD_CMD_BLOCK_STATUS, .length = 0}, NBD_EINVAL},
	{FULL, {.type = NBD_CMD_BLOCK_STATUS, .offset = SIZE, .length = 512}, NBD_EINVAL},
	{ALL & ~FULL, {.type = NBD_CMD_BLOCK_STATUS, .length = 512}, NBD_EINVAL},
	{ALL, {.type = 8}, NBD_EINVAL},
	{ALL, {.type = 0xffff, .length = 0xffffffff}, NBD_EINVAL},
	{FULL, {.type = NBD_CMD_READ, .flags = NBD_CMD_FLAG_DF, .length = 512}, NBD_OK},
	{ALL & ~FULL, {.type = NBD_CMD_READ, .flags = NBD_CMD_FLAG_DF, .length = 512}, NBD_EINVAL},
	{RW,
		{.type = NBD_CMD_WRITE_ZEROES,
			.flags = NBD_CMD_FLAG_FAST_ZERO | NBD_CMD_FLAG_NO_HOLE,
			.length = 512},
		NBD_OK},
};

UNIT(test_checks_by_table)
{
	for (unsigned kind = 1; kind < ALL; kind <<= 1) {
		struct nbd_session s = session_of(kind);
		for (unsigned i = 0; i < countof(checks); i++)
			if (checks[i].sessions & kind)
				ck_assert_msg(
					nbd_command_check(&s, &checks[i].c) == checks[i].error,
					"row %u, session %u: error %d", i, kind,
					nbd_command_check(&s, &checks[i].c));
	}
}

/* Each flag belongs to one command, FUA to all; what is left is refused. */
UNIT(test_flags_by_command)
{
	static const unsigned own[NBD_CMD_COUNT] = {
		[NBD_CMD_READ] = 4, [NBD_CMD_WRITE_ZEROES] = 2 | 16, [NBD_CMD_BLOCK_STATUS] = 8};
	struct nbd_session s = session_of(FULL);
	for (unsigned type = 0; type < NBD_CMD_COUNT; type++)
		for (unsigned bit = 0; bit < 16; bit++) {
			struct nbd_command c = {.type = (uint16_t)type,
				.flags = (uint16_t)(1u << bit),
				.length = 512};
			enum nbd_error want = (own[type] | 1u) & 1u << bit ? NBD_OK : NBD_EINVAL;
			ck_assert_msg(nbd_command_check(&s, &c) == want, "command %u, flag bit %u",
				type, bit);
		}
}

UNIT(test_error_values)
{
	static const int in[] = {0, -EPERM, -EROFS, -EACCES, -EIO, -ENOMEM, -EINVAL, -ENOSPC,
		-EDQUOT, -EFBIG, -EOPNOTSUPP, -ESHUTDOWN, -ENXIO, -ETIMEDOUT, -EBADMSG};
	static const enum nbd_error out[] = {NBD_OK, NBD_EPERM, NBD_EPERM, NBD_EPERM, NBD_EIO,
		NBD_ENOMEM, NBD_EINVAL, NBD_ENOSPC, NBD_ENOSPC, NBD_ENOSPC, NBD_ENOTSUP,
		NBD_ESHUTDOWN, NBD_EIO, NBD_EIO, NBD_EIO};
	for (unsigned i = 0; i < countof(in); i++)
		ck_assert_int_eq(nbd_command_error(in[i]), out[i]);
}

static void expect_bytes(const uint8_t *got, uint32_t size, const char *hex)
{
	ck_assert_uint_eq(size * 2, strlen(hex));
	for (uint32_t i = 0; i < size; i++) {
		unsigned byte;
		sscanf(hex + 2 * i, "%2x", &byte);
		ck_assert_msg(got[i] == byte, "byte %u is %02x, not %02x", i, got[i], byte);
	}
}

UNIT(test_replies)
{
	uint8_t to[NBD_REPLY_MAX];
	uint64_t cookie;
	memcpy(&cookie, write_wire + 8, 8);
	expect_bytes(to, nbd_reply_simple(to, cookie, NBD_OK), "67446698000000000102030405060708");
	expect_bytes(
		to, nbd_reply_simple(to, cookie, NBD_ENOSPC), "674466980000001c0102030405060708");
	expect_bytes(to, nbd_reply_none(to, cookie), "668e33ef00010000010203040506070800000000");
	expect_bytes(to, nbd_reply_error(to, cookie, NBD_EOVERFLOW),
		"668e33ef000180010102030405060708000000060000004b0000");
	expect_bytes(to, nbd_reply_data(to, cookie, 0x100001000, 0x200),
		"668e33ef000100010102030405060708000002080000000100001000");
	expect_bytes(to, nbd_reply_status(to, cookie, 1, 3, true),
		"668e33ef0001000501020304050607080000001c00000001");
}
