/* SPDX-License-Identifier: Apache-2.0 */
/* Connections from handshake to end: data, limits, shortages, rude clients. */
#include <errno.h>

#include "tests/lib/unit.h"
#include "tests/unit/nbd_rig.h"

#define K 1024u
#define M (1024u * K)

static void fill(uint8_t *data, size_t size, uint64_t seed)
{
	for (size_t i = 0; i < size; i++)
		data[i] = (uint8_t)((seed * 2654435761u + i * 40503u) >> 8 | 1u);
}

static int client(struct rig *rig, bool structured, bool blocks)
{
	int fd = rig_client(rig);
	rig_go(rig, fd, "one", structured, blocks);
	return fd;
}

/* --- data ------------------------------------------------------------------------ */

static const struct {
	uint64_t offset;
	uint32_t length;
} places[] = {{0, 512}, {512, 4 * K}, {4 * K, 64 * K}, {0, 0}, {4 * M - 4 * K, 8 * K}, {512, 9 * M},
	{0, RIG_SIZE}, {RIG_SIZE - 512, 512}, {3 * M + 512, 5 * M + 1024}, {1, 1}, {511, 2},
	{100, 300}, {4095, 5001}, {4 * M - 7, 14}, {4 * M - 777, 70001}, {513, 9 * M},
	{RIG_SIZE - 1, 1}, {512, 513}, {511, 513}};

static void data_round(struct rig *rig, int fd, bool blocks, uint8_t *model)
{
	static uint8_t data[RIG_SIZE];
	for (unsigned i = 0; i < countof(places); i++) {
		uint64_t offset = places[i].offset;
		uint32_t length = places[i].length;
		bool odd = (offset | length) % 512;
		unsigned want = odd && blocks ? NBD_EINVAL : NBD_OK;
		fill(data, length, i + 1);
		ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_WRITE, 0, offset, length, data), want);
		if (!want)
			memcpy(model + offset, data, length);
		ck_assert_mem_eq(rig->volume[0].data, model, RIG_SIZE);
		ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_READ, 0, offset, length, data), want);
		if (!want)
			ck_assert_mem_eq(data, model + offset, length);
		unsigned flags = i % 2 ? NBD_CMD_FLAG_NO_HOLE : 0;
		ck_assert_uint_eq(
			rig_do(rig, fd, NBD_CMD_WRITE_ZEROES, flags, offset, length / 2, NULL),
			(offset | length / 2) % 512 && blocks ? NBD_EINVAL : NBD_OK);
		if (!((offset | length / 2) % 512 && blocks))
			memset(model + offset, 0, length / 2);
		ck_assert_mem_eq(rig->volume[0].data, model, RIG_SIZE);
	}
}

UNIT(test_data)
{
	uint8_t *model = calloc(1, RIG_SIZE);
	struct rig *rig = rig_new();
	for (unsigned kind = 0; kind < 4; kind++) {
		int fd = client(rig, kind & 1, kind & 2);
		data_round(rig, fd, kind & 2, model);
		close(fd);
	}
	ck_assert_uint_le(rig->length_most, 4 * M);
	ck_assert_uint_gt(rig->submitted[XSEG_OP_ZERO], 0);
	rig_free(rig);
	free(model);
}

/* The same while pages and slots run short all the time. */
UNIT(test_data_when_the_pool_is_low)
{
	uint8_t *model = calloc(1, RIG_SIZE);
	struct rig *rig = rig_new();
	int fd = client(rig, true, false);
	rig->refuse_every = 3;
	rig->pages_max = 3 * M;
	rig->answer_max = 1;
	data_round(rig, fd, false, model);
	ck_assert_uint_le(rig->pages_most, 3 * M);
	ck_assert_uint_gt(rig->nbd->peer->stats->counters[PEER_COUNTER(NBD_COUNT_WAITS_POOL)], 10);
	close(fd);
	rig_free(rig);
	free(model);
}

UNIT(test_hints)
{
	static uint8_t data[64 * K];
	struct rig *rig = rig_new();
	int fd = client(rig, false, false);
	memset(rig->volume[0].data, 7, RIG_SIZE);
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_TRIM, NBD_CMD_FLAG_FUA, 100, 2000, NULL), 0);
	for (unsigned i = 0; i < 4 * K; i++)
		if (rig->volume[0].data[i] != (i >= 512 && i < 2048 ? 0 : 7))
			ck_abort_msg("byte %u", i);
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_TRIM, 0, 4097, 100, NULL), 0);
	ck_assert_uint_eq(rig->submitted[XSEG_OP_DISCARD], 1);
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_CACHE, 0, 1, RIG_SIZE - 2, NULL), 0);
	ck_assert_uint_eq(rig->submitted[XSEG_OP_PREFETCH], 4);
	rig->fail[XSEG_OP_PREFETCH] = rig->fail[XSEG_OP_DISCARD] = -EOPNOTSUPP;
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_CACHE, 0, 0, 4 * K, NULL), 0);
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_TRIM, 0, 0, 4 * K, NULL), 0);
	rig->fail[XSEG_OP_PREFETCH] = -EIO;
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_CACHE, 0, 0, 4 * K, NULL), NBD_EIO);
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_READ, 0, 0, 512, data), 0);
	close(fd);
	rig_free(rig);
}

/* A store that cannot zero: it is done by writing, unless it was to be fast. */
UNIT(test_zeroes_by_writing)
{
	struct rig *rig = rig_new();
	int fd = client(rig, false, true);
	memset(rig->volume[0].data, 7, RIG_SIZE);
	rig->fail[XSEG_OP_ZERO] = -EOPNOTSUPP;
	ck_assert_uint_eq(
		rig_do(rig, fd, NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_FAST_ZERO, 0, 8 * M, NULL),
		NBD_ENOTSUP);
	ck_assert_uint_eq(rig->volume[0].data[0], 7);
	ck_assert_uint_eq(rig->submitted[XSEG_OP_WRITE], 0);
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_WRITE_ZEROES, 0, 512, 6 * M, NULL), 0);
	for (unsigned i = 0; i < RIG_SIZE; i++)
		if (rig->volume[0].data[i] != (i >= 512 && i < 512 + 6 * M ? 0 : 7))
			ck_abort_msg("byte %u", i);
	/* only the first part may refuse to be slow: a later one would leave half of it done */
	rig->fail_from = 4 * M;
	ck_assert_uint_eq(
		rig_do(rig, fd, NBD_CMD_WRITE_ZEROES, NBD_CMD_FLAG_FAST_ZERO, 0, 512, NULL), 0);
	ck_assert_uint_eq(rig->flags_seen & XSEG_F_FAST_ONLY, XSEG_F_FAST_ONLY);
	close(fd);
	rig_free(rig);
}

UNIT(test_errors_of_the_store)
{
	static uint8_t data[9 * M];
	static const unsigned ops[] = {
		XSEG_OP_READ, XSEG_OP_WRITE, XSEG_OP_ZERO, XSEG_OP_DISCARD, XSEG_OP_FLUSH};
	static const unsigned commands[] = {
		NBD_CMD_READ, NBD_CMD_WRITE, NBD_CMD_WRITE_ZEROES, NBD_CMD_TRIM, NBD_CMD_FLUSH};
	struct rig *rig = rig_new();
	for (unsigned structured = 0; structured < 2; structured++) {
		int fd = client(rig, structured, true);
		for (unsigned i = 0; i < countof(ops); i++) {
			uint32_t length = ops[i] == XSEG_OP_FLUSH ? 0 : 9 * M;
			rig->fail[ops[i]] = i % 2 ? -ENOSPC : -EIO;
			rig->fail_from = length ? 4 * M : 0; /* the second of three parts */
			ck_assert_uint_eq(rig_do(rig, fd, commands[i], 0, 0, length, data),
				i % 2 ? NBD_ENOSPC : NBD_EIO);
			rig->fail[ops[i]] = 0;
			ck_assert_uint_eq(rig_do(rig, fd, commands[i], 0, 0, length, data), 0);
		}
		close(fd);
	}
	rig_free(rig);
}

UNIT(test_patch_whose_read_fails)
{
	uint8_t data[100], model[2048];
	struct rig *rig = rig_new();
	int fd = client(rig, false, false);
	fill(rig->volume[0].data, 2048, 3);
	memcpy(model, rig->volume[0].data, 2048);
	fill(data, sizeof(data), 4);
	rig->fail[XSEG_OP_READ] = -EIO;
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_WRITE, 0, 700, 100, data), NBD_EIO);
	ck_assert_mem_eq(rig->volume[0].data, model, 2048);
	rig->fail[XSEG_OP_READ] = 0;
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_WRITE, 0, 700, 100, data), 0);
	memcpy(model + 700, data, 100);
	ck_assert_mem_eq(rig->volume[0].data, model, 2048);
	close(fd);
	rig_free(rig);
}

/* --- many at once ---------------------------------------------------------------- */

#define MANY 200u

/* Writers of neighbouring bytes on several connections: nobody's bytes get lost. */
UNIT(test_patches_of_neighbours)
{
	struct rig *rig = rig_new();
	uint8_t model[MANY * 100], stream[NBD_REQUEST_HEADER + 100], reply[NBD_SIMPLE_HEADER];
	int fd[4];
	rig->shuffle = true;
	rig->answer_max = 2;
	rig->refuse_every = 5;
	for (unsigned i = 0; i < 4; i++)
		fd[i] = client(rig, false, false);
	fill(model, sizeof(model), 9);
	for (unsigned i = 0; i < MANY; i++) {
		rig_request(stream, NBD_CMD_WRITE, 0, i, i * 100, 100);
		memcpy(stream + NBD_REQUEST_HEADER, model + i * 100, 100);
		ck_assert_int_eq(send(fd[i % 4], stream, sizeof(stream), 0), sizeof(stream));
		if (i % 16 == 15)
			rig_turn(rig, 3);
	}
	for (unsigned i = 0; i < MANY; i++) {
		ck_assert(rig_receive(rig, fd[i % 4], reply, sizeof(reply)));
		ck_assert_uint_eq(nbd_get32(reply + 4), 0);
	}
	ck_assert_mem_eq(rig->volume[0].data, model, sizeof(model));
	for (unsigned i = 0; i < 4; i++)
		close(fd[i]);
	rig_free(rig);
}

static void send_reads(struct rig *rig, int fd, unsigned count, uint32_t length)
{
	uint8_t wire[NBD_REQUEST_HEADER];
	for (unsigned i = 0; i < count; i++) {
		rig_request(wire, NBD_CMD_READ, 0, i, (uint64_t)i * length % RIG_SIZE, length);
		ck_assert_int_eq(send(fd, wire, sizeof(wire), 0), sizeof(wire));
	}
	(void)rig;
}

/* Answers in any order; each cookie once, each with its own data. */
UNIT(test_many_in_flight)
{
	static uint8_t data[4 * K];
	bool seen[MANY] = {false};
	struct rig *rig = rig_new();
	int fd = client(rig, false, true);
	fill(rig->volume[0].data, RIG_SIZE, 5);
	rig->shuffle = true;
	rig->answer_max = 7;
	rig->options.requests = 16;
	send_reads(rig, fd, MANY, 4 * K);
	for (unsigned i = 0; i < MANY; i++) {
		uint8_t reply[NBD_SIMPLE_HEADER];
		ck_assert(rig_receive(rig, fd, reply, sizeof(reply)));
		uint64_t cookie = nbd_get64(reply + 8);
		ck_assert(cookie < MANY && !seen[cookie] && !nbd_get32(reply + 4));
		seen[cookie] = true;
		ck_assert(rig_receive(rig, fd, data, sizeof(data)));
		ck_assert_mem_eq(data, rig->volume[0].data + cookie * 4 * K, sizeof(data));
	}
	ck_assert_uint_le(rig->calls_most, 16);
	close(fd);
	rig_free(rig);
}

/* One that never reads: it stalls, memory stays bounded, others are served, it is closed. */
UNIT(test_client_that_never_reads)
{
	static uint8_t data[64 * K];
	struct rig *rig = rig_new();
	int rude = client(rig, false, true), fd = client(rig, false, true);
	rig->options.bytes = 2 * M;
	send_reads(rig, rude, MANY, 64 * K);
	rig_turn(rig, 500);
	ck_assert_uint_le(rig->pages, 2 * M);
	ck_assert_uint_gt(rig->pages, 0);
	for (unsigned i = 0; i < 50; i++)
		ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_READ, 0, 0, 64 * K, data), 0);
	ck_assert_uint_eq(rig->nbd->shared->connections, 2);
	for (unsigned i = 0; i < 60; i++) {
		rig->now_ns += 250000000;
		rig_turn(rig, 3);
	}
	ck_assert_uint_eq(rig->nbd->shared->connections, 1);
	ck_assert_uint_eq(rig->pages, 0);
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_READ, 0, 0, 64 * K, data), 0);
	close(rude);
	close(fd);
	rig_free(rig);
}

/* What it did not take is given back when others need it, and read again when it goes on. */
UNIT(test_replies_are_dropped_and_restored)
{
	static uint8_t data[256 * K];
	uint8_t reply[NBD_SIMPLE_HEADER];
	struct rig *rig = rig_new();
	int slow = client(rig, false, true), fd = client(rig, false, true);
	fill(rig->volume[0].data, RIG_SIZE, 8);
	send_reads(rig, slow, 60, 256 * K);
	rig_turn(rig, 500);
	ck_assert_uint_gt(rig->pages, M);
	rig->now_ns += 10000000;
	rig->pages_max = M;
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_READ, 0, 0, 256 * K, data), 0);
	ck_assert_uint_le(rig->pages, 128 * K);
	rig->shuffle = true;
	rig->refuse_every = 3;
	for (unsigned i = 0; i < 60; i++) {
		ck_assert(rig_receive(rig, slow, reply, sizeof(reply)) && !nbd_get32(reply + 4));
		ck_assert(rig_receive(rig, slow, data, sizeof(data)));
		uint64_t at = nbd_get64(reply + 8) * 256 * K;
		ck_assert_mem_eq(data, rig->volume[0].data + at, sizeof(data));
	}
	close(slow);
	close(fd);
	rig_free(rig);
}

/* ...and when that fails: an error, or the end of the connection if data was on its way. */
UNIT(test_restore_fails)
{
	static uint8_t data[256 * K];
	uint8_t reply[NBD_SIMPLE_HEADER];
	for (unsigned leave = 0; leave < 2; leave++) {
		struct rig *rig = rig_new();
		int slow = client(rig, false, true);
		unsigned good = 0, bad = 0;
		send_reads(rig, slow, 60, 256 * K);
		rig_turn(rig, 500);
		rig->now_ns += 1500000000;
		rig_turn(rig, 50);
		ck_assert_uint_le(rig->pages, M);
		rig->fail[XSEG_OP_READ] = -EIO;
		if (leave)
			rig->answer_max = 0;
		while (rig_receive(rig, slow, reply, sizeof(reply))) {
			bad += nbd_get32(reply + 4) == NBD_EIO;
			good += !nbd_get32(reply + 4);
			if (!nbd_get32(reply + 4) && !rig_receive(rig, slow, data, sizeof(data)))
				break;
			if (good + bad == 60)
				break;
		}
		ck_assert_uint_gt(good, 0);
		ck_assert_msg(leave || good + bad == 60 || rig_closed(rig, slow), "%u good, %u bad",
			good, bad);
		close(slow);
		rig_free(rig);
	}
}

/* Leaving at any moment of 64 requests: the calls come back to nobody. */
UNIT(test_client_that_leaves)
{
	struct rig *rig = rig_new();
	for (unsigned round = 0; round < 60; round++) {
		static uint8_t stream[64 * (NBD_REQUEST_HEADER + 4 * K)];
		size_t size = 0;
		int fd = client(rig, round & 1, round & 2);
		rig->answer_max = round % 3;
		rig->refuse_every = round % 5 ? 0 : 2;
		for (unsigned i = 0; i < 64; i++) {
			static const uint8_t kinds[] = {NBD_CMD_READ, NBD_CMD_WRITE, NBD_CMD_FLUSH,
				NBD_CMD_WRITE_ZEROES, NBD_CMD_TRIM, NBD_CMD_CACHE,
				NBD_CMD_BLOCK_STATUS};
			unsigned kind = kinds[(i + round) % countof(kinds)],
				 odd = round & 2 ? 0 : i;
			uint32_t length = kind == NBD_CMD_FLUSH	  ? 0
					  : kind == NBD_CMD_WRITE ? 2 * K
								  : 6 * M;
			rig_request(stream + size, kind, 0, i, i * 8 * K + odd, length);
			size += NBD_REQUEST_HEADER + (kind == NBD_CMD_WRITE ? length : 0);
		}
		ck_assert_int_gt(
			send(fd, stream, size - random_next(&rig->seed) % (size / 2), 0), 0);
		rig_turn(rig, round % 7);
		close(fd);
		rig_turn(rig, 20);
		rig->answer_max = 1000;
		rig->refuse_every = 0;
		rig_turn(rig, 2000);
		ck_assert_uint_eq(rig->calls, 0);
		ck_assert_uint_eq(rig->volume[0].opens, 0);
		ck_assert(TAILQ_EMPTY(&rig->nbd->conns));
	}
	rig_free(rig);
}

UNIT(test_half_a_payload)
{
	static uint8_t data[600 * K];
	uint8_t wire[NBD_REQUEST_HEADER];
	struct rig *rig = rig_new();
	int fd = client(rig, false, true);
	rig_request(wire, NBD_CMD_WRITE, 0, 1, 0, M);
	ck_assert(rig_send(rig, fd, wire, sizeof(wire)) && rig_send(rig, fd, data, sizeof(data)));
	ck_assert_uint_gt(rig->pages, 0);
	for (unsigned i = 0; i < 60; i++) {
		rig->now_ns += 250000000;
		rig_turn(rig, 3);
	}
	ck_assert(rig_closed(rig, fd));
	ck_assert_uint_eq(rig->pages, 0);
	ck_assert_uint_eq(rig->submitted[XSEG_OP_WRITE], 2); /* what was whole steps */
	close(fd);
	rig_free(rig);
}

/* --- the stream ------------------------------------------------------------------ */

/* Refused requests of all kinds between good ones, in random cuts: the stream stays in step. */
UNIT(test_refused_in_random_cuts)
{
	static uint8_t stream[2 * M];
	static const struct {
		unsigned type, flags;
		uint64_t offset;
		uint32_t length;
		unsigned error;
	} say[] = {{NBD_CMD_WRITE, 0, RIG_SIZE, 70 * K, NBD_ENOSPC},
		{77, 0, 0, 0xffffffff, NBD_EINVAL}, {NBD_CMD_WRITE, 0x8000, 0, 300 * K, NBD_EINVAL},
		{NBD_CMD_FLUSH, 0, 0, 0, 0}, {NBD_CMD_WRITE, 0, 512, 60 * K, 0},
		{NBD_CMD_WRITE, 0, 0, 0, 0}, {NBD_CMD_READ, 0, 1ull << 63, 512, NBD_EINVAL},
		{NBD_CMD_WRITE, 0, 1, 513, NBD_EINVAL}, {NBD_CMD_WRITE_ZEROES, 0, 0, 4 * K, 0},
		{NBD_CMD_BLOCK_STATUS, 0, 0, 512, NBD_EINVAL}};
	struct rig *rig = rig_new();
	int fd = client(rig, false, true);
	size_t size = 0, at = 0;
	for (unsigned i = 0; i < countof(say); i++) {
		rig_request(
			stream + size, say[i].type, say[i].flags, i, say[i].offset, say[i].length);
		size += NBD_REQUEST_HEADER;
		memset(stream + size, 0x25, say[i].type == NBD_CMD_WRITE ? say[i].length : 0);
		size += say[i].type == NBD_CMD_WRITE ? say[i].length : 0;
	}
	while (at < size) {
		size_t cut = 1 + random_next(&rig->seed) % (at % 3 ? 40 : 9000);
		cut = cut < size - at ? cut : size - at;
		ck_assert(rig_send(rig, fd, stream + at, cut));
		at += cut;
	}
	for (unsigned i = 0; i < countof(say); i++) {
		uint8_t reply[NBD_SIMPLE_HEADER];
		ck_assert(rig_receive(rig, fd, reply, sizeof(reply)));
		uint64_t cookie = nbd_get64(reply + 8);
		ck_assert_uint_lt(cookie, countof(say));
		ck_assert_msg(nbd_get32(reply + 4) == say[cookie].error, "request %d: error %u",
			(int)cookie, nbd_get32(reply + 4));
	}
	close(fd);
	rig_free(rig);
}

UNIT(test_disc_answers_what_was_taken)
{
	uint8_t wire[NBD_REQUEST_HEADER], reply[NBD_SIMPLE_HEADER];
	static uint8_t data[64 * K];
	struct rig *rig = rig_new();
	int fd = client(rig, false, true);
	send_reads(rig, fd, 3, 64 * K);
	rig_request(wire, NBD_CMD_DISC, 0, 9, 0, 0);
	ck_assert(rig_send(rig, fd, wire, sizeof(wire)));
	for (unsigned i = 0; i < 3; i++)
		ck_assert(rig_receive(rig, fd, reply, sizeof(reply)) &&
			  rig_receive(rig, fd, data, sizeof(data)));
	ck_assert(rig_closed(rig, fd));
	ck_assert_uint_eq(rig->volume[0].opens, 0);
	close(fd);
	rig_free(rig);
}

UNIT(test_status)
{
	uint8_t wire[NBD_REQUEST_HEADER], reply[1024];
	static const struct {
		uint64_t offset;
		uint32_t length, flags, count, first, first_flags;
	} ask[] = {{0, 64 * K, 0, 5, 4 * K, 3}, {100, 64 * K, 0, 5, 4 * K - 100, 3},
		{0, 64 * K, NBD_CMD_FLAG_REQ_ONE, 1, 4 * K, 3}, {4 * K, 512, 0, 1, 512, 0},
		{32 * K, RIG_SIZE - 32 * K, 0, 1, RIG_SIZE - 32 * K, 3}};
	struct rig *rig = rig_new();
	int fd = client(rig, true, false);
	memset(rig->volume[0].data + 4 * K, 1, 4 * K);
	memset(rig->volume[0].data + 16 * K, 1, 512);
	for (unsigned i = 0; i < countof(ask); i++) {
		rig_request(
			wire, NBD_CMD_BLOCK_STATUS, ask[i].flags, i, ask[i].offset, ask[i].length);
		ck_assert(rig_send(rig, fd, wire, sizeof(wire)));
		ck_assert(rig_receive(rig, fd, reply, NBD_CHUNK_HEADER));
		uint32_t size = nbd_get32(reply + 16);
		ck_assert_msg(size == 4 + 8 * ask[i].count, "question %u: %u bytes", i, size);
		ck_assert(rig_receive(rig, fd, reply, size));
		ck_assert_uint_eq(nbd_get32(reply), NBD_CONTEXT_ALLOCATION);
		ck_assert_uint_eq(nbd_get32(reply + 4), ask[i].first);
		ck_assert_uint_eq(nbd_get32(reply + 8), ask[i].first_flags);
	}
	close(fd);
	rig_free(rig);
}

/* A store that knows nothing says "data" for all; that is never wrong. */
UNIT(test_status_unknown)
{
	uint8_t wire[NBD_REQUEST_HEADER], reply[NBD_CHUNK_HEADER + 12];
	struct rig *rig = rig_new();
	int fd = client(rig, true, true);
	rig->fail[XSEG_OP_STATUS] = -EOPNOTSUPP;
	rig_request(wire, NBD_CMD_BLOCK_STATUS, 0, 1, 512, 9 * M);
	ck_assert(rig_send(rig, fd, wire, sizeof(wire)) &&
		  rig_receive(rig, fd, reply, sizeof(reply)));
	ck_assert_uint_eq(nbd_get32(reply + 24), 9 * M);
	ck_assert_uint_eq(nbd_get32(reply + 28), 0);
	close(fd);
	rig_free(rig);
}

/* --- handshake on a connection --------------------------------------------------- */

UNIT(test_handshake_has_a_limit)
{
	struct rig *rig = rig_new();
	int fd = rig_client(rig);
	uint8_t greeting[18];
	ck_assert(rig_receive(rig, fd, greeting, sizeof(greeting)));
	for (unsigned i = 0; i < 45; i++) {
		rig->now_ns += 250000000;
		rig_turn(rig, 3);
	}
	ck_assert(rig_closed(rig, fd));
	close(fd);
	rig_free(rig);
}

static uint32_t ask_go(struct rig *rig, int fd, const char *name)
{
	uint8_t wire[64], reply[20], rest[128];
	uint32_t size = (uint32_t)strlen(name), type = NBD_REP_INFO;
	uint8_t *at =
		nbd_put32(nbd_put32(nbd_put64(wire, NBD_OPTION_MAGIC), NBD_OPT_INFO), 6 + size);
	memcpy(nbd_put32(at, size), name, size);
	nbd_put16(at + 4 + size, 0);
	ck_assert(rig_send(rig, fd, wire, NBD_OPTION_HEADER + 6 + size));
	while (type == NBD_REP_INFO) {
		ck_assert(rig_receive(rig, fd, reply, sizeof(reply)));
		type = nbd_get32(reply + 12);
		ck_assert(rig_receive(rig, fd, rest, nbd_get32(reply + 16)));
	}
	return type;
}

UNIT(test_exports)
{
	static char *only[] = {"two"};
	uint8_t greeting[18], flags[4] = {0, 0, 0, 3};
	struct rig *rig = rig_new();
	int fd = rig_client(rig);
	ck_assert(rig_receive(rig, fd, greeting, 18) && rig_send(rig, fd, flags, 4));
	ck_assert_uint_eq(ask_go(rig, fd, "one"), NBD_REP_ACK);
	ck_assert_uint_eq(ask_go(rig, fd, "three"), NBD_REP_ERR_UNKNOWN);
	ck_assert_uint_eq(ask_go(rig, fd, ""), NBD_REP_ERR_UNKNOWN); /* which of the two? */
	rig->volume[1].info.state = XSEG_VOLUME_IMPORTING;
	ck_assert_uint_eq(ask_go(rig, fd, ""), NBD_REP_ACK);
	rig->volume[1].info.state = XSEG_VOLUME_READY;
	rig->options.exports = (struct peer_list){.item = only, .count = 1};
	ck_assert_uint_eq(ask_go(rig, fd, "one"), NBD_REP_ERR_UNKNOWN);
	ck_assert_uint_eq(ask_go(rig, fd, ""), NBD_REP_ACK);
	rig->fail[XSEG_OP_INFO] = -EBUSY;
	ck_assert_uint_eq(ask_go(rig, fd, "two"), NBD_REP_ERR_POLICY);
	ck_assert_uint_eq(rig->volume[0].opens + rig->volume[1].opens, 0);
	close(fd);
	rig_free(rig);
}

/* Whoever leaves while the volume is being opened leaves no open volume behind. */
UNIT(test_leaving_while_opening)
{
	uint8_t wire[] = "\0\0\0\3IHAVEOPT\0\0\0\7\0\0\0\11\0\0\0\3one\0\0";
	for (unsigned round = 0; round < 4; round++) {
		struct rig *rig = rig_new();
		int fd = rig_client(rig);
		rig->answer_max = 0;
		rig->refuse_every = round & 1 ? 1 : 0;
		ck_assert(rig_send(rig, fd, wire, sizeof(wire) - 1));
		rig_turn(rig, 10);
		close(fd);
		rig_turn(rig, 10);
		rig->answer_max = 1000;
		rig->refuse_every = 0;
		rig_turn(rig, 100);
		rig_free(rig);
	}
}

/* A composer that knows nothing is told what is open, idle or not, once. */
UNIT(test_composer_started_anew)
{
	struct rig *rig = rig_new();
	int one = client(rig, true, true), two = client(rig, true, true);
	ck_assert_uint_eq(rig->volume[0].opens, 2);
	ck_assert_uint_eq(rig->told, 1); /* the first one, too: we may have been there before it */
	rig_composer(rig, 2);
	rig->now_ns += 200000000;
	rig_turn(rig, 50);
	ck_assert_uint_eq(rig->volume[0].opens, 2);
	ck_assert_uint_eq(rig->told, 2);
	rig->now_ns += 200000000;
	rig_turn(rig, 50);
	ck_assert_uint_eq(rig->told, 2);
	/* it ends while slots are short, and one client leaves meanwhile */
	rig_composer(rig, 3);
	rig->refuse_every = 2;
	rig->now_ns += 200000000;
	close(one);
	rig_turn(rig, 200);
	rig->refuse_every = 0;
	rig_turn(rig, 50);
	ck_assert_uint_eq(rig->volume[0].opens, 1);
	ck_assert_uint_eq(rig->told, 3);
	close(two);
	rig_turn(rig, 50);
	ck_assert_uint_eq(rig->volume[0].opens, 0);
	rig_free(rig);
}

/* The keeper's part between two rigs: what one has stored the next is handed. */
static void notice_over(void)
{
	char names[RIG_KEPT_MAX * 65] = "", number[16];
	for (unsigned i = 0; i < rig_keeper.count; i++) {
		strcat(names, i ? ":" : "");
		strcat(names, rig_keeper.kept[i].name);
		rig_keeper.kept[i].taken = false;
	}
	setenv("LISTEN_FDNAMES", names, 1);
	snprintf(number, sizeof(number), "%u", rig_keeper.count);
	setenv("LISTEN_FDS", number, 1);
	snprintf(number, sizeof(number), "%d", (int)getpid());
	setenv("LISTEN_PID", number, 1);
	rig_keeper.successor = false;
}

/*
 * Restarted in the middle of a write, with the next request behind it: the write is answered by
 * the one, the next request by the other, and the client sees nothing of it.
 */
UNIT(test_passed_on)
{
	static uint8_t wire[2 * NBD_REQUEST_HEADER + 64 * K], data[64 * K];
	uint8_t reply[16];
	struct rig *rig = rig_new();
	int fd = client(rig, true, true), quiet = client(rig, false, false);
	fill(data, sizeof(data), 5);
	rig_request(wire, NBD_CMD_WRITE, 0, 0x11, 4096, sizeof(data));
	memcpy(wire + NBD_REQUEST_HEADER, data, sizeof(data));
	rig_request(wire + NBD_REQUEST_HEADER + sizeof(data), NBD_CMD_FLUSH, 0, 0x22, 0, 0);
	ck_assert(rig_send(rig, fd, wire, 30000));
	rig_turn(rig, 20);
	ck_assert_int_eq(
		send(fd, wire + 30000, sizeof(wire) - 30000, MSG_NOSIGNAL), sizeof(wire) - 30000);
	rig_keeper.there = rig_keeper.successor = true;
	rig->peer.stopping = true;
	rig->ops->stop(&rig->peer);
	ck_assert(rig_receive(rig, fd, reply, sizeof(reply)));
	ck_assert_uint_eq(reply[15], 0x11);
	ck_assert_mem_eq(rig->volume[0].data + 4096, data, sizeof(data));
	rig_turn(rig, 50);
	ck_assert_uint_eq(rig_keeper.count, 2);
	ck_assert_uint_eq(rig->submitted[XSEG_OP_FLUSH], 0);
	rig_free(rig);
	notice_over();
	rig = rig_new();
	ck_assert(rig_receive(rig, fd, reply, sizeof(reply)));
	ck_assert_uint_eq(reply[15], 0x22);
	ck_assert_uint_eq(rig->submitted[XSEG_OP_FLUSH], 1);
	ck_assert_uint_eq(rig_keeper.count, 0); /* ours again */
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_WRITE, 0, 0, sizeof(data), data), NBD_OK);
	memset(data, 0, sizeof(data));
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_READ, 0, 0, sizeof(data), data), NBD_OK);
	ck_assert_mem_eq(data, rig->volume[0].data, sizeof(data));
	/* the other one speaks as it has agreed to: simple replies, parts of sectors */
	ck_assert_uint_eq(rig_do(rig, fd, NBD_CMD_WRITE, 0, 100, 7, data), NBD_EINVAL);
	rig_request(wire, NBD_CMD_WRITE, 0, 0x33, 100, 7);
	ck_assert(rig_send(rig, quiet, wire, NBD_REQUEST_HEADER + 7));
	ck_assert(rig_receive(rig, quiet, reply, sizeof(reply)));
	ck_assert(reply[0] == 0x67 && reply[15] == 0x33 && reply[7] == 0);
	close(quiet);
	close(fd);
	rig_free(rig);
	unsetenv("LISTEN_PID");
	rig_keeper = (struct rig_keeper){0};
}

/* Nobody keeps it, or its volume has gone: it ends as it would in a stop. */
UNIT(test_not_passed_on)
{
	struct rig *rig = rig_new();
	int fd = client(rig, true, true);
	rig_keeper.successor = true;
	rig->peer.stopping = true;
	rig->ops->stop(&rig->peer);
	ck_assert(rig_closed(rig, fd));
	close(fd);
	rig_free(rig);
	rig = rig_new();
	fd = client(rig, true, true);
	rig_keeper.there = rig_keeper.successor = true;
	rig_free(rig);
	notice_over();
	rig = rig_new();
	rig->fail[XSEG_OP_OPEN] = -ENOENT;
	ck_assert(rig_closed(rig, fd));
	close(fd);
	rig_free(rig);
	unsetenv("LISTEN_PID");
	rig_keeper = (struct rig_keeper){0};
}

UNIT(test_stop_answers_what_is_in_flight)
{
	uint8_t reply[NBD_SIMPLE_HEADER];
	static uint8_t data[64 * K];
	struct rig *rig = rig_new();
	int fd = client(rig, false, true);
	rig->answer_max = 0;
	send_reads(rig, fd, 5, 64 * K);
	rig_turn(rig, 20);
	ck_assert_uint_eq(rig->calls, 5);
	rig->peer.stopping = true;
	rig->ops->stop(&rig->peer);
	rig->answer_max = 1;
	for (unsigned i = 0; i < 5; i++)
		ck_assert(rig_receive(rig, fd, reply, sizeof(reply)) &&
			  rig_receive(rig, fd, data, sizeof(data)));
	ck_assert(rig_closed(rig, fd));
	ck_assert(rig->ops->idle(&rig->peer));
	close(fd);
	rig_free(rig);
}
