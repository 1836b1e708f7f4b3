/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes of numbers for tables in memory: multiplicative (Knuth, The Art of Computer Programming,
 * volume 3, 6.4), so the good bits are the high ones: shift right, do not mask. Bytes: <xxhash.h>.
 *
 * The blocker of files chooses folders and fence places by hash_u64(): its value is part of that
 * format and never changes.
 */
#ifndef SKERRY_BASE_HASH_H
#define SKERRY_BASE_HASH_H

#include <stdint.h>

static inline uint64_t hash_u64(uint64_t number) { return number * 0x9e3779b97f4a7c15ull; }

/* One more number into a hash. */
static inline uint64_t hash_more(uint64_t hash, uint64_t number)
{
	return (hash ^ number) * 0xd6e8feb86659fd93ull;
}

/* An object of a volume. */
static inline uint64_t hash_object(uint64_t volume, uint32_t epoch, uint32_t object)
{
	return hash_more(hash_u64(volume ^ (uint64_t)epoch << 32), object);
}

#endif
