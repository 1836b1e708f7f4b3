/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a bridge: to bytes and back, little-endian whatever the machine is, checked. */
#include "peers/synapse/wire.h"

#include <base/crc32c.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

/* --- numbers ---------------------------------------------------------------------------------- */

static void put16(uint8_t *at, uint16_t number)
{
	number = htole16(number);
	memcpy(at, &number, sizeof(number));
}

static void put32(uint8_t *at, uint32_t number)
{
	number = htole32(number);
	memcpy(at, &number, sizeof(number));
}

static void put64(uint8_t *at, uint64_t number)
{
	number = htole64(number);
	memcpy(at, &number, sizeof(number));
}

static uint16_t get16(const uint8_t *at)
{
	uint16_t number;
	memcpy(&number, at, sizeof(number));
	return le16toh(number);
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t number;
	memcpy(&number, at, sizeof(number));
	return le32toh(number);
}

static uint64_t get64(const uint8_t *at)
{
	uint64_t number;
	memcpy(&number, at, sizeof(number));
	return le64toh(number);
}

/* --- headers ---------------------------------------------------------------------------------- */

#define HEADER_CRC (WIRE_HEADER - 4)

void wire_pack(const struct wire_frame *frame, uint8_t out[WIRE_HEADER])
{
	put32(out, WIRE_MAGIC);
	out[4] = (uint8_t)frame->type;
	out[5] = frame->op;
	bool packed = frame->packed != 0, answer = frame->type == WIRE_TYPE_ANSWER;
	put16(out + 6, packed ? frame->flags | WIRE_F_PACKED : frame->flags);
	put64(out + 8, frame->sequence);
	put64(out + 16, frame->key.volume);
	put32(out + 24, frame->key.epoch);
	put32(out + 28, frame->key.object);
	put64(out + 32, frame->offset);
	put32(out + 40, frame->length);
	put32(out + 44, packed ? frame->packed : frame->data);
	put64(out + 48, frame->value);
	put64(out + 56, packed && answer ? frame->data : frame->arg1);
	put32(out + 64, frame->type == WIRE_TYPE_REQUEST ? frame->room : (uint32_t)frame->result);
	put32(out + 68, frame->data_crc);
	put32(out + 72, frame->behind);
	put32(out + HEADER_CRC, crc32c(0, out, HEADER_CRC));
}

static const char *check_request(const struct wire_frame *frame)
{
	enum xseg_op op = (enum xseg_op)frame->op;
	bool data_op = op == XSEG_OP_READ || op == XSEG_OP_WRITE;
	uint32_t most = data_op ? XSEG_OBJECT_MAX : WIRE_CONTROL_MAX;
	if (op == XSEG_OP_NONE || op >= XSEG_OP_COUNT)
		return "an unknown operation";
	if (frame->data > most || frame->room > most)
		return "more data than an operation has";
	if (data_op && frame->length > XSEG_OBJECT_MAX)
		return "a length beyond an object";
	if (frame->offset + frame->length < frame->offset)
		return "an offset that wraps";
	if (op == XSEG_OP_READ && (frame->data != 0 || frame->room != frame->length))
		return "a read with data";
	if (op == XSEG_OP_WRITE && (frame->data != frame->length || frame->room != 0))
		return "a write without its data";
	if (frame->behind >= WIRE_WINDOW || frame->behind > frame->sequence)
		return "a sequence beyond the window";
	return NULL;
}

/* How large the data are is said elsewhere than how many bytes follow. */
static const char *unfold(struct wire_frame *frame)
{
	bool answer = frame->type == WIRE_TYPE_ANSWER;
	bool write = frame->type == WIRE_TYPE_REQUEST && frame->op == XSEG_OP_WRITE;
	uint64_t size = answer ? frame->arg1 : frame->length;
	if (!(frame->flags & WIRE_F_PACKED))
		return NULL;
	frame->flags &= (uint16_t)~WIRE_F_PACKED;
	if (!answer && !write)
		return "packed data where none may be";
	if (size > XSEG_OBJECT_MAX || frame->data == 0 || frame->data >= size)
		return "packed data of a wrong size";
	frame->packed = frame->data;
	frame->data = (uint32_t)size;
	if (answer)
		frame->arg1 = 0;
	return NULL;
}

static const char *check_frame(const struct wire_frame *frame)
{
	switch (frame->type) {
	case WIRE_TYPE_HELLO:
		return frame->data == WIRE_HELLO ? NULL : "a greeting of a wrong size";
	case WIRE_TYPE_WELCOME:
		return frame->data == WIRE_WELCOME ? NULL : "a welcome of a wrong size";
	case WIRE_TYPE_REFUSE: return frame->data <= WIRE_REFUSAL ? NULL : "too long a refusal";
	case WIRE_TYPE_REQUEST: return check_request(frame);
	case WIRE_TYPE_ANSWER:
		return frame->data <= XSEG_OBJECT_MAX ? NULL : "more data than an operation has";
	case WIRE_TYPE_PING:
	case WIRE_TYPE_PONG: return frame->data == 0 ? NULL : "a ping with data";
	case WIRE_TYPE_COUNT: break;
	}
	return "an unknown type of frame";
}

int wire_unpack(const uint8_t in[WIRE_HEADER], struct wire_frame *frame, const char **why)
{
	*why = "no frame of a bridge";
	if (get32(in) != WIRE_MAGIC)
		return -EPROTO;
	*why = "a header with a wrong checksum";
	if (get32(in + HEADER_CRC) != crc32c(0, in, HEADER_CRC))
		return -EPROTO;
	uint32_t room_or_result = get32(in + 64);
	*frame = (struct wire_frame){
		.type = (enum wire_type)in[4],
		.op = in[5],
		.flags = get16(in + 6),
		.sequence = get64(in + 8),
		.key = {get64(in + 16), get32(in + 24), get32(in + 28)},
		.offset = get64(in + 32),
		.length = get32(in + 40),
		.data = get32(in + 44),
		.value = get64(in + 48),
		.arg1 = get64(in + 56),
		.data_crc = get32(in + 68),
		.behind = get32(in + 72),
	};
	if (frame->type == WIRE_TYPE_REQUEST)
		frame->room = room_or_result;
	else
		frame->result = (int32_t)room_or_result;
	*why = unfold(frame);
	if (!*why)
		*why = check_frame(frame);
	return *why ? -EPROTO : 0;
}

/* --- greetings -------------------------------------------------------------------------------- */

void wire_pack_hello(const struct wire_hello *hello, uint8_t out[WIRE_HELLO])
{
	memset(out, 0, WIRE_HELLO);
	put16(out, hello->version_min);
	put16(out + 2, hello->version_max);
	out[4] = hello->conn;
	out[5] = hello->checksums;
	put16(out + 6, hello->lane);
	memcpy(out + 8, hello->writer, 16);
	memcpy(out + 24, hello->session, 16);
	put64(out + 40, hello->generation);
	memcpy(out + 48, hello->importer, WIRE_NAME);
	memcpy(out + 112, hello->port, WIRE_NAME);
	out[176] = hello->packs;
}

int wire_unpack_hello(const uint8_t in[WIRE_HELLO], struct wire_hello *hello)
{
	*hello = (struct wire_hello){
		.version_min = get16(in),
		.version_max = get16(in + 2),
		.conn = in[4],
		.checksums = in[5],
		.packs = in[176],
		.lane = get16(in + 6),
		.generation = get64(in + 40),
	};
	memcpy(hello->writer, in + 8, 16);
	memcpy(hello->session, in + 24, 16);
	memcpy(hello->importer, in + 48, WIRE_NAME);
	memcpy(hello->port, in + 112, WIRE_NAME);
	bool named = memchr(hello->importer, 0, WIRE_NAME) && memchr(hello->port, 0, WIRE_NAME);
	return named && hello->conn < WIRE_CONNS && hello->checksums <= 1 ? 0 : -EPROTO;
}

void wire_pack_welcome(const struct wire_welcome *welcome, uint8_t out[WIRE_WELCOME])
{
	memset(out, 0, WIRE_WELCOME);
	put16(out, welcome->version);
	out[2] = welcome->checksums;
	out[3] = welcome->known;
	put32(out + 4, welcome->window);
	put64(out + 8, welcome->bytes);
	out[16] = welcome->packs;
}

int wire_unpack_welcome(const uint8_t in[WIRE_WELCOME], struct wire_welcome *welcome)
{
	*welcome = (struct wire_welcome){
		.version = get16(in),
		.checksums = in[2],
		.known = in[3],
		.window = get32(in + 4),
		.bytes = get64(in + 8),
		.packs = in[16],
	};
	return welcome->version == WIRE_VERSION && welcome->checksums <= 1 ? 0 : -EPROTO;
}

/* --- operations ------------------------------------------------------------------------------- */

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

uint32_t wire_data_of(enum xseg_op op, uint32_t length, uint64_t arg1, uint32_t size)
{
	switch (op) {
	case XSEG_OP_WRITE: return length;
	case XSEG_OP_CAS: return arg1 == XSEG_CAS_PUT ? least(length, size) : 0;
	case XSEG_OP_OPEN:
	case XSEG_OP_INFO:
	case XSEG_OP_CREATE:
	case XSEG_OP_UPDATE:
	case XSEG_OP_REMOVE:
	case XSEG_OP_CONTROL: return least(size, WIRE_CONTROL_MAX);
	default: return 0;
	}
}

uint32_t wire_room_of(enum xseg_op op, uint32_t length, uint64_t arg1, uint32_t size)
{
	switch (op) {
	case XSEG_OP_READ: return length;
	case XSEG_OP_CAS: return arg1 == XSEG_CAS_GET ? least(size, XSEG_RECORD_MAX) : 0;
	case XSEG_OP_WRITE: return 0;
	default: return least(size, WIRE_CONTROL_MAX);
	}
}

bool wire_is_repeatable(enum xseg_op op, uint64_t arg1)
{
	switch (op) {
	case XSEG_OP_READ:
	case XSEG_OP_PREFETCH:
	case XSEG_OP_STATUS:
	case XSEG_OP_INFO:
	case XSEG_OP_LIST: return true;
	case XSEG_OP_CAS: return arg1 == XSEG_CAS_GET;
	default: return false;
	}
}

enum wire_class wire_class_of(uint32_t data, uint32_t room)
{
	return data <= WIRE_URGENT_MAX && room <= WIRE_URGENT_MAX ? WIRE_URGENT : WIRE_BULK;
}
