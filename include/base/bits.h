/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of bits in arrays of 64-bit words. `count` is at least 1, and the range lies in the array.
 * Threads: one at a time. Blocking: none.
 */
#ifndef SKERRY_BASE_BITS_H
#define SKERRY_BASE_BITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

static inline bool bits_has(const uint64_t *words, uint32_t bit)
{
	return words[bit / 64] >> (bit % 64) & 1;
}

/* Those of [first, first + count) that lie in word i. */
static inline uint64_t bits_in(uint32_t i, uint32_t first, uint32_t count)
{
	uint32_t from = first > i * 64 ? first - i * 64 : 0;
	uint32_t to = first + count > i * 64 ? first + count - i * 64 : 0;
	if (to > 64)
		to = 64;
	if (from >= to)
		return 0;
	return (to - from == 64 ? ~0ull : (1ull << (to - from)) - 1) << from;
}

static inline void bits_set(uint64_t *words, uint32_t first, uint32_t count)
{
	for (uint32_t i = first / 64; i <= (first + count - 1) / 64; i++)
		words[i] |= bits_in(i, first, count);
}

static inline void bits_clear(uint64_t *words, uint32_t first, uint32_t count)
{
	for (uint32_t i = first / 64; i <= (first + count - 1) / 64; i++)
		words[i] &= ~bits_in(i, first, count);
}

static inline bool bits_all(const uint64_t *words, uint32_t first, uint32_t count)
{
	for (uint32_t i = first / 64; i <= (first + count - 1) / 64; i++)
		if (~words[i] & bits_in(i, first, count))
			return false;
	return true;
}

static inline bool bits_any(const uint64_t *words, uint32_t first, uint32_t count)
{
	for (uint32_t i = first / 64; i <= (first + count - 1) / 64; i++)
		if (words[i] & bits_in(i, first, count))
			return true;
	return false;
}

/* Ones in `size` words that others may change meanwhile: each is read once. A microsecond for 4096
   words. Threads: any. */
uint32_t bits_count(const _Atomic uint64_t *words, uint32_t size);

#endif
