/* SPDX-License-Identifier: Apache-2.0 */
/* The two records of a volume: what goes in comes out, and nothing else is believed. */
#include <base/crc32c.h>
#include <errno.h>
#include <string.h>

#include "peers/volume/volume_record.h"
#include "tests/lib/unit.h"

static struct volume_record sample(void)
{
	struct volume_record record = {
		.id = 0x1122334455667788ull,
		.size = 10ull << 30,
		.object_size = 4u << 20,
		.state = XSEG_VOLUME_IMPORTING,
		.flags = XSEG_VOLUME_READ_ONLY,
		.created_ns = 1700000000123456789ull,
	};
	strcpy(record.name, "disk-\xc3\xa9");
	return record;
}

/* As somebody who writes records by hand, and knows the checksum. */
static void seal(uint8_t *bytes, size_t size)
{
	uint32_t crc = crc32c(0, bytes, size - 4);
	for (int i = 0; i < 4; i++)
		bytes[size - 4 + (size_t)i] = (uint8_t)(crc >> (8 * i));
}

START_TEST(test_round_trip)
{
	struct volume_record in = sample(), out;
	uint8_t bytes[VOLUME_RECORD_SIZE];
	memset(in.name + strlen(in.name) + 1, 'x', 20); /* what lies behind the name is not kept */
	volume_record_encode(&in, bytes);
	memset(&out, 0xee, sizeof(out));
	ck_assert_int_eq(volume_record_decode(bytes, sizeof(bytes), &out), 0);
	ck_assert_uint_eq(out.id, in.id);
	ck_assert_uint_eq(out.size, in.size);
	ck_assert_uint_eq(out.object_size, in.object_size);
	ck_assert_uint_eq(out.state, in.state);
	ck_assert_uint_eq(out.flags, in.flags);
	ck_assert_uint_eq(out.created_ns, in.created_ns);
	ck_assert_str_eq(out.name, in.name);
	ck_assert_int_eq(out.name[strlen(in.name) + 1], 0);
}
END_TEST

/* docs/format-volume-record.md, byte by byte. */
START_TEST(test_places)
{
	struct volume_record in = sample();
	uint8_t b[VOLUME_RECORD_SIZE];
	volume_record_encode(&in, b);
	ck_assert_mem_eq(b, "SKVOLUME", 8);
	ck_assert_mem_eq(b + 8, "\x01\0\0\0", 4);
	ck_assert_mem_eq(b + 12, "\0\0\x40\0", 4);
	ck_assert_mem_eq(b + 16, "\x88\x77\x66\x55\x44\x33\x22\x11", 8);
	ck_assert_mem_eq(b + 24, "\0\0\0\x80\x02\0\0\0", 8);
	ck_assert_mem_eq(b + 32, "\x02\0\0\0", 4);
	ck_assert_mem_eq(b + 36, "\x02\0\0\0", 4);
	ck_assert_mem_eq(b + 48, "\0\0\0\0\0\0\0\0", 8);
	ck_assert_mem_eq(b + 56, "disk-\xc3\xa9\0", 8);
	ck_assert_int_eq(b[56 + VOLUME_NAME_LENGTH_MAX], 0);

	struct volume_name_record name = {.id = in.id};
	uint8_t n[VOLUME_NAME_RECORD_SIZE];
	strcpy(name.name, in.name);
	volume_name_record_encode(&name, n);
	ck_assert_mem_eq(n, "SKVNAME.", 8);
	ck_assert_mem_eq(n + 8, "\x01\0\0\0\0\0\0\0", 8);
	ck_assert_mem_eq(n + 16, "\x88\x77\x66\x55\x44\x33\x22\x11", 8);
	ck_assert_mem_eq(n + 24, "disk-\xc3\xa9\0", 8);
}
END_TEST

START_TEST(test_every_corrupted_bit)
{
	struct volume_record in = sample(), out;
	uint8_t good[VOLUME_RECORD_SIZE], bad[VOLUME_RECORD_SIZE];
	volume_record_encode(&in, good);
	for (size_t bit = 0; bit < sizeof(bad) * 8; bit++) {
		memcpy(bad, good, sizeof(bad));
		bad[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		ck_assert_int_eq(volume_record_decode(bad, sizeof(bad), &out), -EILSEQ);
	}
	ck_assert_int_eq(volume_record_decode(good, sizeof(good), &out), 0);
}
END_TEST

START_TEST(test_every_corrupted_name_byte)
{
	struct volume_name_record in = {.id = 7, .name = "data"}, out;
	uint8_t good[VOLUME_NAME_RECORD_SIZE], bad[VOLUME_NAME_RECORD_SIZE];
	volume_name_record_encode(&in, good);
	for (size_t i = 0; i < sizeof(bad); i++) {
		for (unsigned mask = 1; mask < 256; mask++) {
			memcpy(bad, good, sizeof(bad));
			bad[i] ^= (uint8_t)mask;
			ck_assert_int_eq(
				volume_name_record_decode(bad, sizeof(bad), &out), -EILSEQ);
		}
	}
	ck_assert_int_eq(volume_name_record_decode(good, sizeof(good), &out), 0);
	ck_assert_uint_eq(out.id, 7);
	ck_assert_str_eq(out.name, "data");
}
END_TEST

START_TEST(test_lengths)
{
	struct volume_record in = sample(), out;
	struct volume_name_record name = {.id = 7, .name = "data"};
	uint8_t bytes[VOLUME_RECORD_SIZE + 8] = {0}, small[VOLUME_NAME_RECORD_SIZE];
	volume_record_encode(&in, bytes);
	for (size_t size = 0; size < sizeof(bytes); size++)
		if (size != VOLUME_RECORD_SIZE)
			ck_assert_int_eq(volume_record_decode(bytes, size, &out), -EILSEQ);
	/* well sealed, but too long */
	seal(bytes, sizeof(bytes));
	ck_assert_int_eq(volume_record_decode(bytes, sizeof(bytes), &out), -EILSEQ);
	/* each kind is not the other */
	volume_name_record_encode(&name, small);
	ck_assert_int_eq(volume_record_decode(small, sizeof(small), &out), -EILSEQ);
	ck_assert_int_eq(volume_name_record_decode(bytes, VOLUME_RECORD_SIZE, &name), -EILSEQ);
}
END_TEST

/* A newer program's record is told apart from damage, however long it is. */
START_TEST(test_versions)
{
	struct volume_record in = sample(), out;
	uint8_t bytes[VOLUME_RECORD_SIZE + 64] = {0};
	volume_record_encode(&in, bytes);
	for (unsigned version = 0; version < 5; version++) {
		bytes[8] = (uint8_t)version;
		seal(bytes, VOLUME_RECORD_SIZE);
		ck_assert_int_eq(volume_record_decode(bytes, VOLUME_RECORD_SIZE, &out),
			version == 1 ? 0 : -EPROTO);
	}
	seal(bytes, sizeof(bytes));
	ck_assert_int_eq(volume_record_decode(bytes, sizeof(bytes), &out), -EPROTO);
}
END_TEST

static int decode_with(size_t at, const void *value, size_t size)
{
	struct volume_record in = sample(), out;
	uint8_t bytes[VOLUME_RECORD_SIZE];
	volume_record_encode(&in, bytes);
	memcpy(bytes + at, value, size);
	seal(bytes, sizeof(bytes));
	return volume_record_decode(bytes, sizeof(bytes), &out);
}

/* The checksum is right and the contents are not. */
START_TEST(test_impossible_contents)
{
	ck_assert_int_eq(decode_with(12, "\0\x10\0\0", 4), 0); /* 4096: fine, the helper works */
	ck_assert_int_eq(decode_with(12, "\0\x08\0\0", 4), -EILSEQ); /* objects of 2048 */
	ck_assert_int_eq(decode_with(12, "\0\x18\0\0", 4), -EILSEQ); /* of 6144 */
	ck_assert_int_eq(decode_with(12, "\0\0\x80\0", 4), -EILSEQ); /* of 8 MiB */
	ck_assert_int_eq(decode_with(12, "\0\0\0\0", 4), -EILSEQ);
	ck_assert_int_eq(decode_with(16, "\0\0\0\0\0\0\0\0", 8), -EILSEQ);   /* id 0 */
	ck_assert_int_eq(decode_with(24, "\0\0\0\0\0\0\0\0", 8), -EILSEQ);   /* no size */
	ck_assert_int_eq(decode_with(24, "\1\2\0\0\0\0\0\0", 8), -EILSEQ);   /* 513 bytes */
	ck_assert_int_eq(decode_with(24, "\0\2\0\0\0\0\0\x80", 8), -EILSEQ); /* object 2^41 */
	ck_assert_int_eq(decode_with(32, "\0", 1), -EILSEQ);		     /* state 0 */
	ck_assert_int_eq(decode_with(32, "\4", 1), -EILSEQ);
	ck_assert_int_eq(decode_with(36, "\4", 1), -EILSEQ); /* an unknown flag */
	ck_assert_int_eq(decode_with(50, "\1", 1), -EILSEQ); /* reserved */
	ck_assert_int_eq(decode_with(56, "\0", 1), -EILSEQ); /* no name */
	ck_assert_int_eq(decode_with(56, "a/b", 4), -EILSEQ);
	ck_assert_int_eq(decode_with(100, "x", 1), -EILSEQ); /* something behind the name */
	char endless[VOLUME_NAME_LENGTH_MAX + 1];
	memset(endless, 'n', sizeof(endless));
	ck_assert_int_eq(decode_with(56, endless, sizeof(endless)), -EILSEQ);
}
END_TEST

START_TEST(test_check)
{
	struct volume_record record = sample();
	ck_assert_int_eq(volume_record_check(&record), 0);
	record.object_size = XSEG_PAGE;
	record.size = (uint64_t)XSEG_PAGE << 32; /* the last object is number 2^32 - 1 */
	ck_assert_int_eq(volume_record_check(&record), 0);
	record.size += XSEG_SECTOR;
	ck_assert_int_eq(volume_record_check(&record), -EINVAL);
	record = sample();
	record.flags = XSEG_VOLUME_FIXED; /* says where it comes from; not for a record */
	ck_assert_int_eq(volume_record_check(&record), -EINVAL);
}
END_TEST

START_TEST(test_name_hash)
{
	ck_assert_uint_ne(volume_name_hash("a"), volume_name_hash("b"));
	/* XXH64 of "", seed 0, from the specification: the place of a name never changes */
	ck_assert_uint_eq(volume_name_hash(""), 0xef46db3751d8e999ull);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("volume_record");
	UNIT_TEST(suite, test_round_trip);
	UNIT_TEST(suite, test_places);
	UNIT_TEST(suite, test_every_corrupted_bit);
	UNIT_TEST(suite, test_every_corrupted_name_byte);
	UNIT_TEST(suite, test_lengths);
	UNIT_TEST(suite, test_versions);
	UNIT_TEST(suite, test_impossible_contents);
	UNIT_TEST(suite, test_check);
	UNIT_TEST(suite, test_name_hash);
	return unit_main(suite);
}
