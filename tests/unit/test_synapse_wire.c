/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a bridge: the bytes of docs/format-bridge.md, there and back, and what is refused. */
#include <base/crc32c.h>
#include <errno.h>
#include <string.h>

#include "peers/synapse/wire.h"
#include "tests/lib/unit.h"

static const struct wire_frame written = {
	.type = WIRE_TYPE_REQUEST,
	.op = XSEG_OP_WRITE,
	.flags = XSEG_F_FUA,
	.sequence = 0x0102030405060708,
	.key = {.volume = 0x1112131415161718, .epoch = 0x21222324, .object = 0x31323334},
	.offset = 0x1000,
	.length = 512,
	.data = 512,
	.value = 0x4142434445464748,
	.arg1 = 0x5152535455565758,
	.data_crc = 0x61626364,
	.behind = 3,
};

UNIT(test_bytes)
{
	static const uint8_t expected[WIRE_HEADER - 4] = {'S', 'K', 'Y', '1', 4, XSEG_OP_WRITE, 1,
		0, 8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x24,
		0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0,
		2, 0, 0, 0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41, 0x58, 0x57, 0x56, 0x55,
		0x54, 0x53, 0x52, 0x51, 0, 0, 0, 0, 0x64, 0x63, 0x62, 0x61, 3, 0, 0, 0};
	uint8_t bytes[WIRE_HEADER];
	struct wire_frame read;
	const char *why;
	wire_pack(&written, bytes);
	ck_assert_mem_eq(bytes, expected, sizeof(expected));
	ck_assert_int_eq(wire_unpack(bytes, &read, &why), 0);
	ck_assert_mem_eq(&read.key, &written.key, sizeof(read.key));
	ck_assert_uint_eq(read.sequence, written.sequence);
	ck_assert_uint_eq(read.arg1, written.arg1);
	ck_assert_uint_eq(read.behind, 3);
}

UNIT(test_changed)
{
	uint8_t bytes[WIRE_HEADER];
	struct wire_frame read;
	const char *why;
	wire_pack(&written, bytes);
	for (unsigned bit = 0; bit < 8 * WIRE_HEADER; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert_int_eq(wire_unpack(bytes, &read, &why), -EPROTO);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static int unpack(const struct wire_frame *frame)
{
	uint8_t bytes[WIRE_HEADER];
	struct wire_frame read;
	const char *why;
	wire_pack(frame, bytes);
	int error = wire_unpack(bytes, &read, &why);
	ck_assert(error == 0 || why != NULL);
	return error;
}

UNIT(test_refused)
{
	static const struct wire_frame wrong[] = {
		{.type = 0},
		{.type = WIRE_TYPE_COUNT},
		{.type = WIRE_TYPE_HELLO, .data = WIRE_HELLO + 1},
		{.type = WIRE_TYPE_WELCOME},
		{.type = WIRE_TYPE_REFUSE, .data = WIRE_REFUSAL + 1},
		{.type = WIRE_TYPE_PING, .data = 1},
		{.type = WIRE_TYPE_ANSWER, .data = XSEG_OBJECT_MAX + 1},
		{.type = WIRE_TYPE_REQUEST, .op = XSEG_OP_NONE},
		{.type = WIRE_TYPE_REQUEST, .op = XSEG_OP_COUNT},
		{.type = WIRE_TYPE_REQUEST, .op = XSEG_OP_READ, .length = 512},
		{.type = WIRE_TYPE_REQUEST,
			.op = XSEG_OP_READ,
			.length = 512,
			.room = 512,
			.data = 1},
		{.type = WIRE_TYPE_REQUEST, .op = XSEG_OP_WRITE, .length = 512},
		{.type = WIRE_TYPE_REQUEST,
			.op = XSEG_OP_WRITE,
			.length = XSEG_OBJECT_MAX + 1,
			.data = XSEG_OBJECT_MAX + 1},
		{.type = WIRE_TYPE_REQUEST, .op = XSEG_OP_CONTROL, .room = WIRE_CONTROL_MAX + 1},
		{.type = WIRE_TYPE_REQUEST, .op = XSEG_OP_ZERO, .offset = UINT64_MAX, .length = 2},
		{.type = WIRE_TYPE_REQUEST, .op = XSEG_OP_FLUSH, .behind = 1},
		{.type = WIRE_TYPE_REQUEST,
			.op = XSEG_OP_FLUSH,
			.sequence = 5000,
			.behind = WIRE_WINDOW},
	};
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		ck_assert_msg(unpack(&wrong[i]) == -EPROTO, "number %u", i);
	ck_assert_int_eq(unpack(&written), 0);
}

UNIT(test_greetings)
{
	struct wire_hello hello = {.version_min = 1,
				  .version_max = 3,
				  .conn = WIRE_BULK,
				  .checksums = 1,
				  .lane = 7,
				  .writer = "writer",
				  .session = "session",
				  .generation = 9,
				  .importer = "far0",
				  .port = "out0"},
			  read;
	uint8_t bytes[WIRE_HELLO], short_bytes[WIRE_WELCOME];
	wire_pack_hello(&hello, bytes);
	ck_assert_int_eq(wire_unpack_hello(bytes, &read), 0);
	ck_assert_mem_eq(&read, &hello, sizeof(hello));
	memset(bytes + 112, 'x', WIRE_NAME); /* no end */
	ck_assert_int_eq(wire_unpack_hello(bytes, &read), -EPROTO);
	struct wire_welcome welcome = {
		.version = 1, .checksums = 1, .known = 1, .window = 256, .bytes = 1 << 20};
	struct wire_welcome back;
	wire_pack_welcome(&welcome, short_bytes);
	ck_assert_int_eq(wire_unpack_welcome(short_bytes, &back), 0);
	ck_assert_uint_eq(back.window, 256);
	ck_assert_uint_eq(back.bytes, 1 << 20);
	short_bytes[0] = 2;
	ck_assert_int_eq(wire_unpack_welcome(short_bytes, &back), -EPROTO);
}
