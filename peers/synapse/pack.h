/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data of frames made smaller on their way, where that is faster: what a byte costs on the link is
 * measured while it is what one waits for, what it costs to pack it by packing some. Each frame
 * goes by the method with which the slower of both is the fastest, and links between hosts of one
 * room need none.
 *
 * Packed data are blocks (docs/format-bridge.md), each of PACK_BLOCK bytes but the last.
 *
 * Units: bytes, ns. Errors: 0 or -errno. Ownership: caller's. Threads: one each. Blocking: none.
 */
#ifndef SKERRY_SYNAPSE_PACK_H
#define SKERRY_SYNAPSE_PACK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#define PACK_BLOCK 65536u
#define PACK_LEAST 16384u /* smaller data go as they are */

enum pack_method { PACK_NONE, PACK_LZ4, PACK_ZSTD, PACK_METHODS };
#define PACK_ALL (1u << PACK_LZ4 | 1u << PACK_ZSTD)

/* All zeros: it packs nothing. */
struct pack {
	unsigned methods; /* that both ends know: 1 << enum pack_method */
	double link_ns;	  /* for a byte; 0: the link is not what one waits for */
	struct pack_cost {
		double ns;    /* for a byte */
		double ratio; /* what is left of it */
	} cost[PACK_METHODS];
	uint32_t unseen; /* bytes since some were looked at; 0: they are to be */
	uint64_t saved;	 /* bytes, since the beginning */
	/* a time in which the link took nothing more */
	uint64_t full_ns, full_bytes, since_ns;
};

/* Pieces of what is to be packed, from `at` on. */
typedef int pack_pieces_f(void *from, uint32_t at, struct iovec *iov, int max);

/* The most that `size` bytes become. */
static inline uint32_t pack_bound(uint32_t size)
{
	return size + (size + PACK_BLOCK - 1) / PACK_BLOCK * (uint32_t)sizeof(uint32_t);
}
/* The link takes nothing more now. */
void pack_link_full(struct pack *pack, uint64_t now_ns);
/* It has taken so much; all: nothing is left to be sent. */
void pack_link_took(struct pack *pack, uint64_t now_ns, uint64_t bytes, bool all);
/* Which method is the fastest for these bytes now; looks at some of them, at times. */
enum pack_method pack_choose(struct pack *pack, uint32_t size, pack_pieces_f *pieces, void *from);
/* Allocates; the result's size in *packed. NULL: it would not be smaller, or there is no memory. */
uint8_t *pack_make(struct pack *pack, enum pack_method method, uint32_t size, pack_pieces_f *pieces,
	void *from, uint32_t *packed);
/* The first of the blocks at `in` as the `size` bytes that it has to be; returns how many bytes of
   `in` it takes, or -EBADMSG. */
int pack_undo(const uint8_t *in, uint32_t in_size, uint8_t *out, uint32_t size);

#endif
