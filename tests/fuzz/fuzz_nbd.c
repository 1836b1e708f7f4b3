/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzes a whole NBD connection: handshake, requests, replies, against volumes in memory. The
 * first bytes choose the weather (shortages, order, block sizes), the rest is what the client says.
 * Build: make fuzz_nbd; run: ./fuzz_nbd -max_total_time=60 CORPUS. A corpus to begin with comes
 * from `./fuzz_nbd --seeds FOLDER`.
 */
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/nbd_rig.h"

#define WEATHER 4u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* --- seeds ----------------------------------------------------------------------------------- */

static uint8_t seed[64 * 1024], *seed_end;

static void say_option(uint32_t option, const void *data, uint32_t size)
{
	seed_end = nbd_put32(nbd_put32(nbd_put64(seed_end, NBD_OPTION_MAGIC), option), size);
	memcpy(seed_end, data, size);
	seed_end += size;
}

static void say_request(unsigned type, unsigned flags, uint64_t offset, uint32_t length)
{
	rig_request(seed_end, type, flags, (uint64_t)(seed_end - seed), offset, length);
	seed_end += NBD_REQUEST_HEADER;
	if (type == NBD_CMD_WRITE) {
		memset(seed_end, 0x5a, length);
		seed_end += length;
	}
}

static void say_hello(uint32_t flags) { seed_end = nbd_put32(seed + WEATHER, flags); }

static void say_requests(uint32_t step)
{
	for (unsigned type = 0; type < NBD_CMD_COUNT + 1u; type++)
		if (type != NBD_CMD_DISC)
			say_request(type, type == NBD_CMD_WRITE_ZEROES ? NBD_CMD_FLAG_NO_HOLE : 0,
				type * step, 4 * step);
	say_request(NBD_CMD_READ, NBD_CMD_FLAG_DF, (4u << 20) - step, 3 * step);
	say_request(NBD_CMD_BLOCK_STATUS, NBD_CMD_FLAG_REQ_ONE, 0, RIG_SIZE);
	say_request(NBD_CMD_DISC, 0, 0, 0);
}

static void seed_save(const char *folder, unsigned number, const uint8_t weather[WEATHER])
{
	char path[512];
	memcpy(seed, weather, WEATHER);
	snprintf(path, sizeof(path), "%s/seed-%u", folder, number);
	FILE *file = fopen(path, "wb");
	must(file && fwrite(seed, (size_t)(seed_end - seed), 1, file) == 1);
	fclose(file);
}

static void seeds_write(const char *folder)
{
	static const uint8_t weather[][WEATHER] = {{0, 255, 0, 0}, {3, 1, 1, 8}, {0, 255, 0, 1}};
	static const uint8_t go[] = "\0\0\0\3one\0\1\0\3",
			     meta[] = "\0\0\0\3one\0\0\0\1\0\0\0\17base:allocation";
	for (unsigned i = 0; i < countof(weather); i++) {
		say_hello(3);
		say_option(NBD_OPT_LIST, "", 0);
		say_option(NBD_OPT_STRUCTURED_REPLY, "", 0);
		say_option(NBD_OPT_LIST_META_CONTEXT, meta, sizeof(meta) - 1);
		say_option(NBD_OPT_SET_META_CONTEXT, meta, sizeof(meta) - 1);
		say_option(NBD_OPT_INFO, go, sizeof(go) - 1);
		say_option(NBD_OPT_GO, go, sizeof(go) - 1);
		say_requests(512);
		seed_save(folder, 3 * i, weather[i]);
		say_hello(0);
		say_option(NBD_OPT_EXPORT_NAME, "two", 3);
		say_requests(77);
		seed_save(folder, 3 * i + 1, weather[i]);
		say_hello(3);
		say_option(NBD_OPT_STARTTLS, "", 0);
		say_option(99, "abc", 3);
		say_option(NBD_OPT_ABORT, "", 0);
		seed_save(folder, 3 * i + 2, weather[i]);
	}
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	log_level_set(LOG_LEVEL_ERROR);
	if (*argc == 3 && !strcmp((*argv)[1], "--seeds")) {
		seeds_write((*argv)[2]);
		exit(0);
	}
	return 0;
}

/* --- one connection -------------------------------------------------------------------------- */

static void swallow(int fd)
{
	static uint8_t sink[1 << 20];
	while (recv(fd, sink, sizeof(sink), MSG_DONTWAIT) > 0)
		;
}

static void converse(struct rig *rig, int fd, const uint8_t *data, size_t size, unsigned cut)
{
	for (unsigned tries = 0; size && tries < 200; tries++) {
		ssize_t sent = send(fd, data, size < cut ? size : cut, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent < 0 && errno != EAGAIN)
			break;
		data += sent > 0 ? sent : 0;
		size -= sent > 0 ? (size_t)sent : 0;
		rig_turn(rig, 3);
		if (tries % 3 == 0)
			swallow(fd);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < WEATHER)
		return 0;
	struct rig *rig = rig_new();
	rig->refuse_every = data[0] & 7 ? 2 + (data[0] & 7) : 0;
	rig->answer_max = 1 + data[1];
	rig->shuffle = data[2] & 1;
	rig->options.requests = 1 + (data[2] >> 1);
	rig->options.bytes = 4096u << (data[3] & 15);
	rig->options.read_only = data[3] >> 7;
	int fd = rig_client(rig);
	converse(rig, fd, data + WEATHER, size - WEATHER, data[3] & 64 ? 7 : 65536);
	rig_turn(rig, 20);
	swallow(fd);
	close(fd);
	rig_free(rig);
	return 0;
}
