/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C: the published values, and both ways of computing it agree. */
#include <base/crc32c.h>
#include <string.h>

#include "tests/lib/unit.h"

/* RFC 3720, B.4 */
UNIT(test_published)
{
	uint8_t bytes[32];
	ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xe3069283u);
	memset(bytes, 0, 32);
	ck_assert_uint_eq(crc32c(0, bytes, 32), 0x8a9136aau);
	memset(bytes, 0xff, 32);
	ck_assert_uint_eq(crc32c(0, bytes, 32), 0x62a8ab43u);
	for (unsigned i = 0; i < 32; i++)
		bytes[i] = (uint8_t)i;
	ck_assert_uint_eq(crc32c(0, bytes, 32), 0x46dd794eu);
	ck_assert_uint_eq(crc32c_table(0, bytes, 32), 0x46dd794eu);
	for (unsigned i = 0; i < 32; i++)
		bytes[i] = (uint8_t)(31 - i);
	ck_assert_uint_eq(crc32c(0, bytes, 32), 0x113fdb5cu);
	ck_assert_uint_eq(crc32c(0, NULL, 0), 0);
}

UNIT(test_agree)
{
	static uint8_t bytes[20000]; /* more than the runs that are summed side by side */
	uint64_t seed = 3;
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)random_next(&seed);
	for (unsigned at = 0; at < 17; at++)
		for (unsigned size = 0; size < 19000; size += 1 + size / 20)
			ck_assert_uint_eq(
				crc32c(at, bytes + at, size), crc32c_table(at, bytes + at, size));
}

UNIT(test_in_pieces)
{
	static uint8_t bytes[4096];
	uint64_t seed = 5;
	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)random_next(&seed);
	uint32_t whole = crc32c(0, bytes, sizeof(bytes));
	for (unsigned cut = 0; cut < sizeof(bytes); cut += 33)
		ck_assert_uint_eq(
			crc32c(crc32c(0, bytes, cut), bytes + cut, sizeof(bytes) - cut), whole);
	bytes[1000] ^= 1;
	ck_assert_uint_ne(crc32c(0, bytes, sizeof(bytes)), whole);
}
