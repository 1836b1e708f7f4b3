/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a bridge: the bytes of docs/format-bridge.md, there and back, and what is refused. */
#include <base/crc32c.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/synapse/pack.h"
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

/* Data that are packed are as large as they were; only what follows on the wire is less. */
UNIT(test_packed)
{
	struct wire_frame answer = {.type = WIRE_TYPE_ANSWER, .data = 65536, .packed = 100};
	struct wire_frame frames[] = {written, answer}, read;
	uint8_t bytes[WIRE_HEADER];
	const char *why;
	frames[0].packed = 40;
	for (unsigned i = 0; i < 2; i++) {
		wire_pack(&frames[i], bytes);
		ck_assert_int_eq(wire_unpack(bytes, &read, &why), 0);
		ck_assert_uint_eq(read.data, frames[i].data);
		ck_assert_uint_eq(read.packed, frames[i].packed);
		ck_assert_uint_eq(read.flags, frames[i].flags);
		ck_assert_uint_eq(read.arg1, frames[i].arg1);
		frames[i].packed = frames[i].data;
		ck_assert_int_eq(unpack(&frames[i]), -EPROTO);
	}
	answer.data = XSEG_OBJECT_MAX + 1;
	ck_assert_int_eq(unpack(&answer), -EPROTO);
	ck_assert_int_eq(
		unpack(&(struct wire_frame){.type = WIRE_TYPE_PING, .packed = 1}), -EPROTO);
}

struct bytes {
	uint8_t *at;
};

/* In pieces of odd sizes. */
static int pieces(void *from, uint32_t at, struct iovec *iov, int max)
{
	const struct bytes *bytes = from;
	for (int i = 0; i < max; at += 1000 + (uint32_t)i++)
		iov[i] = (struct iovec){bytes->at + at, 1000 + (size_t)i};
	return max;
}

static uint32_t fill(uint8_t *at, uint32_t size, unsigned kind)
{
	uint32_t word = 12345;
	for (uint32_t i = 0; i < size; i++) {
		word = word * 1664525 + 1013904223;
		at[i] = kind == 0 ? 0 : kind == 1 ? (uint8_t)(word >> 30) : (uint8_t)(word >> 24);
	}
	return size;
}

static int undo(const uint8_t *in, uint32_t in_size, uint8_t *out, uint32_t size)
{
	uint32_t from = 0;
	for (uint32_t at = 0, part; at < size; at += part) {
		part = size - at < PACK_BLOCK ? size - at : PACK_BLOCK;
		int took = pack_undo(in + from, in_size - from, out + at, part);
		if (took < 0)
			return took;
		from += (uint32_t)took;
	}
	return from == in_size ? 0 : -EBADMSG;
}

UNIT(test_pack)
{
	static const uint32_t sizes[] = {1, 512, 65535, 65536, 65537, 1000000, XSEG_OBJECT_MAX};
	/* pieces go beyond what is asked for */
	struct bytes bytes = {calloc(1, XSEG_OBJECT_MAX + 200000)};
	uint8_t *back = malloc(XSEG_OBJECT_MAX);
	for (unsigned i = 0; i < 3 * sizeof(sizes) / sizeof(*sizes); i++)
		for (enum pack_method method = PACK_LZ4; method < PACK_METHODS; method++) {
			struct pack pack = {.methods = PACK_ALL};
			uint32_t size = fill(bytes.at, sizes[i / 3], i % 3), packed = 0;
			uint8_t *out = pack_make(&pack, method, size, pieces, &bytes, &packed);
			if (!out) { /* noise, or too little to be worth it */
				ck_assert(i % 3 == 2 || size < 1000);
				continue;
			}
			ck_assert_uint_lt(packed, size);
			ck_assert_uint_eq(pack.saved, size - packed);
			ck_assert_int_eq(undo(out, packed, back, size), 0);
			ck_assert_mem_eq(back, bytes.at, size);
			for (uint32_t cut = 0; cut < packed; cut += 1 + packed / 50)
				ck_assert_int_lt(undo(out, cut, back, size), 0);
			for (uint32_t bit = 0; bit < 8 * packed; bit += 1 + packed / 10) {
				out[bit / 8] ^= (uint8_t)(1u << bit % 8);
				undo(out, packed, back,
					size); /* whatever it says, it stays inside */
			}
			free(out);
		}
	free(bytes.at);
	free(back);
}

/* What is chosen on a link whose bytes take so many ns, by what packing costs. */
static enum pack_method choice(double link_ns, double lz4, double zstd, unsigned methods)
{
	struct bytes bytes = {calloc(1, 200000)};
	struct pack pack = {.methods = methods,
		.link_ns = link_ns,
		.unseen = 1, /* so it does not look itself */
		.cost = {[PACK_LZ4] = {lz4, 0.6}, [PACK_ZSTD] = {zstd, 0.4}}};
	enum pack_method method = pack_choose(&pack, 65536, pieces, &bytes);
	free(bytes.at);
	return method;
}

UNIT(test_choice)
{
	ck_assert_int_eq(choice(0, 2, 4, PACK_ALL), PACK_NONE);	  /* not what one waits for */
	ck_assert_int_eq(choice(0.8, 2, 4, PACK_ALL), PACK_NONE); /* 10 Gbit/s */
	ck_assert_int_eq(choice(8, 2, 4, PACK_ALL), PACK_LZ4);	  /* 1 Gbit/s */
	ck_assert_int_eq(choice(80, 2, 4, PACK_ALL), PACK_ZSTD);  /* 100 Mbit/s */
	ck_assert_int_eq(choice(80, 2, 4, 1u << PACK_LZ4), PACK_LZ4);
	ck_assert_int_eq(choice(80, 2, 4, 0), PACK_NONE);
}

UNIT(test_link)
{
	struct pack pack = {.methods = PACK_ALL};
	uint64_t ms = 1000000;
	pack_link_took(&pack, 1 * ms, 1 << 20, true);
	ck_assert(pack.link_ns == 0); /* it was never full */
	pack_link_full(&pack, 10 * ms);
	pack_link_took(&pack, 110 * ms, 1000000, false);
	ck_assert(pack.link_ns > 99 && pack.link_ns < 101);
	pack_link_took(&pack, 111 * ms, 1000, true);
	ck_assert(pack.link_ns > 99 && pack.link_ns < 101);
	pack_link_took(&pack, 5000 * ms, 1000, true);
	ck_assert(pack.link_ns == 0); /* for long it was not */
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
