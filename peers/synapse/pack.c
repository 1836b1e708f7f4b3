/* SPDX-License-Identifier: Apache-2.0 */
/* Packing by LZ4 and Zstandard, and which of them pays. */
#include "peers/synapse/pack.h"

#include <endian.h>
#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zstd.h>

#define ZSTD_LEVEL 1
#define LOOK_EVERY (32u << 20) /* bytes */
#define FULL_LEAST_NS 50000000u
#define FULL_LEAST_BYTES 262144u
#define FORGET_NS 1000000000u
#define FAST_NS 1 /* for a byte: nothing is packed that fast */
#define WORTH 0.9 /* of the time without packing, at most */
/* The link goes on while bytes are packed, so the slower of both counts; but this lane has more to
   do than that. */
#define BUSY 1.25

/* --- the link --------------------------------------------------------------------------------- */

void pack_link_full(struct pack *pack, uint64_t now_ns)
{
	pack->full_ns = now_ns;
	if (pack->since_ns == 0) {
		pack->since_ns = now_ns;
		pack->full_bytes = 0;
	}
}

void pack_link_took(struct pack *pack, uint64_t now_ns, uint64_t bytes, bool all)
{
	uint64_t took = now_ns - pack->since_ns;
	if (now_ns > pack->full_ns + FORGET_NS)
		pack->link_ns = 0;
	if (pack->since_ns == 0)
		return;
	pack->full_bytes += bytes;
	if (took >= FULL_LEAST_NS && pack->full_bytes >= FULL_LEAST_BYTES) {
		double ns = (double)took / (double)pack->full_bytes;
		pack->link_ns = pack->link_ns > 0 ? (pack->link_ns * 3 + ns) / 4 : ns;
		pack->since_ns = all ? 0 : now_ns;
		pack->full_bytes = 0;
	} else if (all) {
		pack->since_ns = 0;
	}
}

/* --- blocks ----------------------------------------------------------------------------------- */

static void copy_out(
	pack_pieces_f *pieces, void *from, uint32_t at, uint32_t size, uint8_t out[PACK_BLOCK])
{
	struct iovec iov[32];
	while (size > 0) {
		int count = pieces(from, at, iov, 32);
		for (int i = 0; i < count && size > 0; i++) {
			uint32_t part = iov[i].iov_len < size ? (uint32_t)iov[i].iov_len : size;
			memcpy(out, iov[i].iov_base, part);
			out += part;
			at += part;
			size -= part;
		}
	}
}

/* Less than `size`, or 0: it does not become smaller. */
static uint32_t shrink(enum pack_method method, const uint8_t *in, uint32_t size, uint8_t *out)
{
	if (method == PACK_LZ4)
		return (uint32_t)LZ4_compress_default(
			(const char *)in, (char *)out, (int)size, (int)size - 1);
	size_t got = ZSTD_compress(out, size - 1, in, size, ZSTD_LEVEL);
	return ZSTD_isError(got) ? 0 : (uint32_t)got;
}

/* Returns what it takes, with the word before it. */
static uint32_t make_block(enum pack_method method, const uint8_t *in, uint32_t size, uint8_t *out)
{
	uint32_t got = shrink(method, in, size, out + sizeof(uint32_t));
	if (got == 0) {
		method = PACK_NONE;
		got = size;
		memcpy(out + sizeof(uint32_t), in, size);
	}
	uint32_t word = htole32((uint32_t)method << 24 | got);
	memcpy(out, &word, sizeof(word));
	return got + (uint32_t)sizeof(word);
}

int pack_undo(const uint8_t *in, uint32_t in_size, uint8_t *out, uint32_t size)
{
	uint32_t word, left = in_size - (uint32_t)sizeof(word);
	if (in_size < sizeof(word))
		return -EBADMSG;
	memcpy(&word, in, sizeof(word));
	uint32_t got = le32toh(word) & 0xffffff, method = le32toh(word) >> 24;
	in += sizeof(word);
	if (got > left)
		return -EBADMSG;
	bool good = false;
	if (method == PACK_NONE) {
		good = got == size;
		if (good)
			memcpy(out, in, size);
	} else if (method == PACK_LZ4) {
		good = LZ4_decompress_safe((const char *)in, (char *)out, (int)got, (int)size) ==
		       (int)size;
	} else if (method == PACK_ZSTD) {
		good = ZSTD_decompress(out, size, in, got) == size;
	}
	return good ? (int)(got + sizeof(word)) : -EBADMSG;
}

/* --- frames ----------------------------------------------------------------------------------- */

/* Of this thread: others may have the CPU meanwhile. */
static uint64_t busy_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void learn(struct pack_cost *cost, double ns, double ratio)
{
	bool known = cost->ns > 0;
	cost->ns = known ? (cost->ns * 3 + ns) / 4 : ns;
	cost->ratio = known ? (cost->ratio * 3 + ratio) / 4 : ratio;
}

static void look(struct pack *pack, uint32_t size, pack_pieces_f *pieces, void *from)
{
	uint8_t raw[PACK_BLOCK], packed[PACK_BLOCK + sizeof(uint32_t)];
	size = size < PACK_BLOCK ? size : PACK_BLOCK;
	copy_out(pieces, from, 0, size, raw);
	for (enum pack_method method = PACK_LZ4; method < PACK_METHODS; method++) {
		if (!(pack->methods & 1u << method))
			continue;
		uint64_t begun = busy_ns();
		uint32_t got = make_block(method, raw, size, packed);
		learn(&pack->cost[method], (double)(busy_ns() - begun) / size, (double)got / size);
	}
}

enum pack_method pack_choose(struct pack *pack, uint32_t size, pack_pieces_f *pieces, void *from)
{
	enum pack_method best = PACK_NONE;
	if (pack->methods == 0 || pack->link_ns < FAST_NS || size < PACK_LEAST)
		return PACK_NONE;
	if (pack->unseen == 0)
		look(pack, size, pieces, from);
	pack->unseen = pack->unseen + size < LOOK_EVERY ? pack->unseen + size : 0;
	double least = pack->link_ns * WORTH;
	for (enum pack_method method = PACK_LZ4; method < PACK_METHODS; method++) {
		const struct pack_cost *cost = &pack->cost[method];
		double packs = cost->ns * BUSY, ns = cost->ratio * pack->link_ns;
		ns = ns > packs ? ns : packs;
		if (pack->methods & 1u << method && cost->ns > 0 && ns < least) {
			best = method;
			least = ns;
		}
	}
	return best;
}

uint8_t *pack_make(struct pack *pack, enum pack_method method, uint32_t size, pack_pieces_f *pieces,
	void *from, uint32_t *packed)
{
	uint8_t raw[PACK_BLOCK], *out = malloc(pack_bound(size));
	uint64_t begun = busy_ns();
	uint32_t got = 0;
	if (!out)
		return NULL;
	for (uint32_t at = 0, part; at < size; at += part) {
		part = size - at < PACK_BLOCK ? size - at : PACK_BLOCK;
		copy_out(pieces, from, at, part, raw);
		got += make_block(method, raw, part, out + got);
	}
	learn(&pack->cost[method], (double)(busy_ns() - begun) / size, (double)got / size);
	if (got >= size) {
		free(out);
		return NULL;
	}
	pack->saved += size - got;
	*packed = got;
	return out;
}
