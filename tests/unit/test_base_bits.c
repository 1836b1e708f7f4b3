/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of bits, and how many there are, against one bit after the other. */
#include <base/bits.h>
#include <string.h>

#include "tests/lib/unit.h"

#define WORDS 9u

static uint32_t ones(const uint64_t *words, uint32_t first, uint32_t count)
{
	uint32_t found = 0;
	for (uint32_t i = first; i < first + count; i++)
		found += bits_has(words, i);
	return found;
}

UNIT(test_counted)
{
	static _Atomic uint64_t shared[WORDS];
	uint64_t seed = 5, plain[WORDS];
	ck_assert_uint_eq(bits_count(shared, 0), 0);
	for (unsigned round = 0; round < 200; round++) {
		for (unsigned i = 0; i < WORDS; i++) {
			plain[i] = random_next(&seed) & random_next(&seed) >> round % 64;
			atomic_store(&shared[i], plain[i]);
		}
		for (uint32_t size = 0; size <= WORDS; size++)
			ck_assert_uint_eq(bits_count(shared, size), ones(plain, 0, size * 64));
	}
	memset(shared, 0xff, sizeof(shared));
	ck_assert_uint_eq(bits_count(shared, WORDS), WORDS * 64);
}

UNIT(test_ranges)
{
	uint64_t seed = 7;
	for (unsigned round = 0; round < 2000; round++) {
		uint64_t words[WORDS] = {0};
		uint32_t first = (uint32_t)(random_next(&seed) % (WORDS * 64));
		uint32_t count = 1 + (uint32_t)(random_next(&seed) % (WORDS * 64 - first));
		ck_assert(!bits_any(words, first, count));
		bits_set(words, first, count);
		ck_assert(bits_all(words, first, count));
		ck_assert_uint_eq(ones(words, 0, WORDS * 64), count);
		ck_assert_uint_eq(ones(words, first, count), count);
		bits_clear(words, first, 1);
		ck_assert(!bits_all(words, first, count));
		ck_assert(bits_any(words, first, count) == (count > 1));
		ck_assert_uint_eq(ones(words, 0, WORDS * 64), count - 1);
	}
}
