/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What comes over a bridge, either way: headers whose checksum is right, greetings, packed data.
 * A header is refused, or is just what would be written for what was read, and its sizes are within
 * what the ends have room for; packed data never become more than they have to be.
 */
#include <base/crc32c.h>
#include <stdlib.h>

#include "peers/synapse/pack.h"
#include "peers/synapse/wire.h"
#include "tests/fuzz/fuzz.h"

#define HEADER_CRC (WIRE_HEADER - 4)

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	return 0;
}

static void promise(bool kept)
{
	if (!kept)
		abort();
}

static void header(struct fuzz_bytes *in)
{
	uint8_t bytes[WIRE_HEADER] = {0}, again[WIRE_HEADER];
	struct wire_frame frame;
	const char *why;
	for (unsigned i = 0; i < HEADER_CRC; i++)
		bytes[i] = (uint8_t)fuzz_take(in, 1);
	memcpy(bytes, &(uint32_t){WIRE_MAGIC}, sizeof(uint32_t));
	uint32_t crc = crc32c(0, bytes, HEADER_CRC);
	memcpy(bytes + HEADER_CRC, &crc, sizeof(crc));
	if (wire_unpack(bytes, &frame, &why)) {
		promise(why != NULL);
		return;
	}
	promise(frame.data <= XSEG_OBJECT_MAX && frame.room <= XSEG_OBJECT_MAX);
	promise(frame.packed < pack_bound(XSEG_OBJECT_MAX));
	promise(frame.packed == 0 || frame.packed < frame.data);
	wire_pack(&frame, again);
	promise(memcmp(bytes, again, WIRE_HEADER) == 0);
}

static void greeting(struct fuzz_bytes *in)
{
	uint8_t bytes[WIRE_HELLO];
	struct wire_hello hello;
	struct wire_welcome welcome;
	for (unsigned i = 0; i < WIRE_HELLO; i++)
		bytes[i] = (uint8_t)fuzz_take(in, 1);
	if (wire_unpack_hello(bytes, &hello) == 0)
		promise(hello.conn < WIRE_CONNS && strlen(hello.port) < WIRE_NAME &&
			strlen(hello.importer) < WIRE_NAME);
	if (wire_unpack_welcome(bytes, &welcome) == 0)
		promise(welcome.version == WIRE_VERSION);
}

/* Copies of their own size, so that a step outside shows. */
static void packed(const struct fuzz_bytes *in, uint32_t size)
{
	uint8_t *from = malloc(in->left), *to = malloc(size);
	if (from && to) {
		memcpy(from, in->at, in->left);
		int took = pack_undo(from, (uint32_t)in->left, to, size);
		promise(took < 0 || (size_t)took <= in->left);
	}
	free(from);
	free(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_bytes in = {data, size};
	switch (fuzz_take(&in, 1) % 3) {
	case 0: header(&in); break;
	case 1: greeting(&in); break;
	default: packed(&in, 1 + (uint32_t)fuzz_take(&in, 2)); break;
	}
	return 0;
}
