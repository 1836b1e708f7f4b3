/* SPDX-License-Identifier: Apache-2.0 */
/* What a map is made of: every byte where docs/format-map.md says, and nothing else is believed. */
#include <base/crc32c.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#include "peers/map/map_format.h"
#include "tests/lib/unit.h"

#define ID 0x1122334455667788ull

/* Every field is there and differs from every other. */
static struct map_volume sample(void)
{
	struct map_volume volume = {
		.id = ID,
		.size = 10ull << 30,
		.object_size = 4u << 20,
		.state = XSEG_VOLUME_IMPORTING,
		.flags = XSEG_VOLUME_READ_ONLY | MAP_PROTECTED,
		.created_ns = 0x1797a1b2c3d4e5f6ull,
		.generation = 0x0102030405060708ull,
		.parent = 0x2132435465768798ull,
		.epoch = 0x01020305,
		.frozen = 0x01020304,
		.owner_count = 2,
		.self = 1,
		.depth = 1,
		.owners = {0xa1a2a3a4a5a6a7a8ull, ID},
		.limit_iops = 0x3132333435363738ull,
		.limit_bytes = 0x4142434445464748ull,
		.limit_burst_ms = 0x5152535455565758ull,
	};
	volume.top[1] = (struct map_ref){
		.epoch = 0x00d1d2d3, .crc = 0xc1c2c3c4, .count = 0x1f0, .owner = 1, .half = 1};
	volume.top[4] = (struct map_ref){.epoch = 7, .count = 512};
	strcpy(volume.name, "disk-\xc3\xa9");
	return volume;
}

/* As somebody who writes records by hand, and knows the checksum. */
static void seal(uint8_t *bytes, size_t size)
{
	uint32_t crc = crc32c(0, bytes, size - 4);
	for (int i = 0; i < 4; i++)
		bytes[size - 4 + (size_t)i] = (uint8_t)(crc >> (8 * i));
}

static void ck_sealed(const uint8_t *bytes, size_t size)
{
	uint8_t copy[4096];
	memcpy(copy, bytes, size);
	seal(copy, size);
	ck_assert_mem_eq(bytes, copy, size);
}

static void ck_zeros(const uint8_t *bytes, size_t from, size_t to)
{
	for (size_t i = from; i < to; i++)
		ck_assert_msg(bytes[i] == 0, "byte %zu is not 0", i);
}

/* --- the record of a volume --------------------------------------------------------------- */

UNIT(test_volume_round_trip)
{
	struct map_volume in = sample(), out;
	uint8_t bytes[MAP_RECORD_SIZE], again[MAP_RECORD_SIZE];
	memset(in.name + strlen(in.name) + 1, 'x', 20); /* what lies behind the name is not kept */
	memset(bytes, 0xee, sizeof(bytes));
	map_format_volume_encode(&in, bytes);
	memset(&out, 0xee, sizeof(out));
	ck_assert_int_eq(map_format_volume_decode(bytes, sizeof(bytes), &out), 0);
	ck_assert_uint_eq(out.id, in.id);
	ck_assert_uint_eq(out.size, in.size);
	ck_assert_uint_eq(out.object_size, in.object_size);
	ck_assert_uint_eq(out.state, in.state);
	ck_assert_uint_eq(out.flags, in.flags);
	ck_assert_uint_eq(out.created_ns, in.created_ns);
	ck_assert_uint_eq(out.generation, in.generation);
	ck_assert_uint_eq(out.parent, in.parent);
	ck_assert_uint_eq(out.epoch, in.epoch);
	ck_assert_uint_eq(out.frozen, in.frozen);
	ck_assert_uint_eq(out.owner_count, in.owner_count);
	ck_assert_uint_eq(out.self, in.self);
	ck_assert_uint_eq(out.depth, in.depth);
	ck_assert_uint_eq(out.limit_iops, in.limit_iops);
	ck_assert_uint_eq(out.limit_bytes, in.limit_bytes);
	ck_assert_uint_eq(out.limit_burst_ms, in.limit_burst_ms);
	ck_assert_str_eq(out.name, in.name);
	ck_assert_int_eq(out.name[strlen(in.name) + 1], 0);
	ck_assert_mem_eq(out.owners, in.owners, sizeof(in.owners));
	for (unsigned i = 0; i < MAP_TOP_REFS; i++)
		ck_assert(map_format_ref_same(out.top[i], in.top[i]));
	map_format_volume_encode(&out, again);
	ck_assert_mem_eq(bytes, again, sizeof(bytes));
}

UNIT(test_volume_places)
{
	struct map_volume in = sample();
	uint8_t b[MAP_RECORD_SIZE];
	memset(b, 0xee, sizeof(b));
	map_format_volume_encode(&in, b);
	ck_assert_mem_eq(b, "SKVOLUME", 8);
	ck_assert_mem_eq(b + 8, "\x02\0\0\0", 4);
	ck_assert_mem_eq(b + 12, "\0\0\x40\0", 4);
	ck_assert_mem_eq(b + 16, "\x88\x77\x66\x55\x44\x33\x22\x11", 8);
	ck_assert_mem_eq(b + 24, "\0\0\0\x80\x02\0\0\0", 8);
	ck_assert_mem_eq(b + 32, "\x02\0\0\0", 4);
	ck_assert_mem_eq(b + 36, "\x0a\0\0\0", 4);
	ck_assert_mem_eq(b + 40, "\xf6\xe5\xd4\xc3\xb2\xa1\x97\x17", 8);
	ck_assert_mem_eq(b + 48, "\x08\x07\x06\x05\x04\x03\x02\x01", 8);
	ck_assert_mem_eq(b + 56, "disk-\xc3\xa9\0", 8);
	ck_zeros(b, 64, 312);
	ck_assert_mem_eq(b + 312, "\x05\x03\x02\x01", 4);
	ck_assert_mem_eq(b + 316, "\x04\x03\x02\x01", 4);
	ck_assert_mem_eq(b + 320, "\x98\x87\x76\x65\x54\x43\x32\x21", 8);
	ck_assert_mem_eq(b + 328, "\x02\0\x01\0\x01\0", 6);
	ck_zeros(b, 334, 512);
	ck_assert_mem_eq(b + 512, "\xa8\xa7\xa6\xa5\xa4\xa3\xa2\xa1", 8);
	ck_assert_mem_eq(b + 520, "\x88\x77\x66\x55\x44\x33\x22\x11", 8);
	ck_zeros(b, 528, 1536 + 16);
	ck_assert_mem_eq(b + 1552, "\xd3\xd2\xd1\0\xc4\xc3\xc2\xc1\xf0\x01\0\0\x01\0\x01\0", 16);
	ck_zeros(b, 1568, 1600);
	ck_assert_mem_eq(b + 1600, "\x07\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0", 16);
	ck_zeros(b, 1616, 3584);
	ck_assert_mem_eq(b + 3584, "\x38\x37\x36\x35\x34\x33\x32\x31", 8);
	ck_assert_mem_eq(b + 3592, "\x48\x47\x46\x45\x44\x43\x42\x41", 8);
	ck_assert_mem_eq(b + 3600, "\x58\x57\x56\x55\x54\x53\x52\x51", 8);
	ck_zeros(b, 3608, 4092);
	ck_sealed(b, sizeof(b));
}

UNIT(test_volume_every_corrupted_bit)
{
	struct map_volume in = sample(), out;
	uint8_t bytes[MAP_RECORD_SIZE];
	map_format_volume_encode(&in, bytes);
	for (size_t bit = 0; bit < sizeof(bytes) * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		ck_assert_int_eq(map_format_volume_decode(bytes, sizeof(bytes), &out), -EILSEQ);
		bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
	ck_assert_int_eq(map_format_volume_decode(bytes, sizeof(bytes), &out), 0);
}

/* What must be zero is refused when it is not, well sealed though it may be. */
UNIT(test_volume_reserved)
{
	struct map_volume in = sample(), out;
	uint8_t bytes[MAP_RECORD_SIZE];
	map_format_volume_encode(&in, bytes);
	for (size_t i = 0; i < sizeof(bytes); i++) {
		bool name = i >= 64 && i < 312, gap = i >= 334 && i < 512;
		bool end = i >= 3608 && i < 4092, ref = i == 1552 + 15 || i == 1600 + 15;
		if (!name && !gap && !end && !ref)
			continue;
		bytes[i] = 1;
		seal(bytes, sizeof(bytes));
		ck_assert_int_eq(map_format_volume_decode(bytes, sizeof(bytes), &out), -EILSEQ);
		bytes[i] = 0;
	}
	seal(bytes, sizeof(bytes));
	ck_assert_int_eq(map_format_volume_decode(bytes, sizeof(bytes), &out), 0);
}

UNIT(test_volume_lengths_and_versions)
{
	struct map_volume in = sample(), out;
	uint8_t bytes[MAP_RECORD_SIZE + 64] = {0};
	map_format_volume_encode(&in, bytes);
	for (size_t size = 0; size < sizeof(bytes); size++)
		if (size != MAP_RECORD_SIZE)
			ck_assert_int_eq(map_format_volume_decode(bytes, size, &out), -EILSEQ);
	for (size_t size = 16; size < sizeof(bytes); size++) {
		uint8_t other[MAP_RECORD_SIZE + 64] = {0};
		memcpy(other, bytes, size);
		seal(other, size); /* well sealed, but of another length */
		if (size != MAP_RECORD_SIZE)
			ck_assert_int_eq(map_format_volume_decode(other, size, &out), -EILSEQ);
	}
	for (unsigned version = 0; version < 5; version++) {
		bytes[8] = (uint8_t)version;
		seal(bytes, MAP_RECORD_SIZE);
		ck_assert_int_eq(map_format_volume_decode(bytes, MAP_RECORD_SIZE, &out),
			version == 2 ? 0 : -EPROTO);
	}
}

/* A record of before there were maps: 316 bytes, version 1 (docs/format-volume-record.md). */
UNIT(test_volume_version_1)
{
	uint8_t old[316] = "SKVOLUME\x01\0\0\0\0\0\x40\0\x07";
	struct map_volume out;
	old[24 + 3] = 1; /* size */
	old[32] = XSEG_VOLUME_READY;
	memcpy(old + 56, "data", 4);
	ck_assert_int_eq(map_format_volume_decode(old, sizeof(old), &out), -EILSEQ);
	seal(old, sizeof(old));
	ck_assert_int_eq(map_format_volume_decode(old, sizeof(old), &out), -EPROTO);
}

/* One thing is wrong with each of these. */
static const struct bad {
	size_t at;
	uint64_t value;
	size_t size;
} bad_fields[] = {
	{offsetof(struct map_volume, id), 0, 8},
	{offsetof(struct map_volume, id), 5, 8}, /* not owners[self] */
	{offsetof(struct map_volume, size), 511, 8},
	{offsetof(struct map_volume, size), 4096, 8}, /* references beyond the end */
	{offsetof(struct map_volume, size), UINT64_MAX << 9, 8},
	{offsetof(struct map_volume, object_size), 0, 4},
	{offsetof(struct map_volume, object_size), 2048, 4},
	{offsetof(struct map_volume, object_size), 6144, 4},
	{offsetof(struct map_volume, object_size), 8u << 20, 4},
	{offsetof(struct map_volume, state), 0, 4},
	{offsetof(struct map_volume, state), 4, 4},
	{offsetof(struct map_volume, flags), 1, 4},
	{offsetof(struct map_volume, flags), 32, 4},
	{offsetof(struct map_volume, flags), MAP_SNAPSHOT, 4}, /* has no self */
	{offsetof(struct map_volume, epoch), 0, 4},
	{offsetof(struct map_volume, epoch), 0x01020304, 4}, /* frozen */
	{offsetof(struct map_volume, epoch), MAP_EPOCH_MAX + 1, 4},
	{offsetof(struct map_volume, frozen), 0x01020305, 4},
	{offsetof(struct map_volume, owner_count), 0, 2},
	{offsetof(struct map_volume, owner_count), 1, 2},
	{offsetof(struct map_volume, owner_count), 3, 2},
	{offsetof(struct map_volume, owner_count), MAP_OWNERS_MAX + 1, 2},
	{offsetof(struct map_volume, self), 0, 2},
	{offsetof(struct map_volume, self), 2, 2},
	{offsetof(struct map_volume, self), MAP_OWNERS_MAX, 2},
	{offsetof(struct map_volume, depth), 0, 2},
	{offsetof(struct map_volume, depth), 3, 2},
	{offsetof(struct map_volume, name), 0, 1},
	{offsetof(struct map_volume, name), '\n', 1},
	{offsetof(struct map_volume, owners[0]), 0, 8},
	{offsetof(struct map_volume, owners[0]), ID, 8}, /* twice */
	{offsetof(struct map_volume, owners[1]), ID + 1, 8},
	{offsetof(struct map_volume, owners[127]), 1, 8},
	{offsetof(struct map_volume, top[1].epoch), 0, 4},	    /* a hole that is none */
	{offsetof(struct map_volume, top[1].epoch), 0x01020306, 4}, /* to come */
	{offsetof(struct map_volume, top[4].epoch), MAP_EPOCH_MAX + 1, 4},
	{offsetof(struct map_volume, top[1].count), 0, 4},
	{offsetof(struct map_volume, top[1].count), MAP_ENTRIES + 1, 4},
	{offsetof(struct map_volume, top[1].owner), 2, 2},
	{offsetof(struct map_volume, top[1].half), 2, 1},
	{offsetof(struct map_volume, top[5].epoch), 1, 4}, /* beyond the end */
	{offsetof(struct map_volume, top[0].crc), 1, 4},
	{offsetof(struct map_volume, top[0].owner), 1, 2},
};

UNIT_LOOP(test_volume_bad_field, sizeof(bad_fields) / sizeof(bad_fields[0]))
{
	const struct bad *bad = &bad_fields[_i];
	struct map_volume volume = sample();
	ck_assert_int_eq(map_format_volume_check(&volume), 0);
	memcpy((char *)&volume + bad->at, &bad->value, bad->size);
	ck_assert_int_eq(map_format_volume_check(&volume), -EINVAL);
}

/* The same as it is read: contents that cannot be are damage. */
UNIT(test_volume_bad_contents)
{
	static const struct bad bytes_at[] = {{16, 5, 8}, {24, 511, 8}, {12, 6144, 4}, {32, 4, 4},
		{36, 32, 4}, {312, 0, 4}, {328, 3, 2}, {330, 0, 2}, {332, 3, 2}, {56, '\n', 1},
		{512, ID, 8}, {1552, 0, 4}, {1552 + 8, 513, 4}, {1552 + 14, 2, 1}};
	struct map_volume in = sample(), out;
	for (size_t i = 0; i < sizeof(bytes_at) / sizeof(bytes_at[0]); i++) {
		uint8_t bytes[MAP_RECORD_SIZE];
		map_format_volume_encode(&in, bytes);
		memcpy(bytes + bytes_at[i].at, &bytes_at[i].value, bytes_at[i].size);
		seal(bytes, sizeof(bytes));
		ck_assert_int_eq(map_format_volume_decode(bytes, sizeof(bytes), &out), -EILSEQ);
	}
}

UNIT(test_volume_limits)
{
	struct map_volume volume = sample();
	volume.top[5] = volume.top[4]; /* the first page beyond the end */
	ck_assert_int_eq(map_format_volume_check(&volume), -EINVAL);
	volume.size += 512;
	ck_assert_int_eq(map_format_volume_check(&volume), 0);
	memset(volume.top, 0, sizeof(volume.top));
	volume.size = 0;
	ck_assert_int_eq(map_format_volume_check(&volume), 0);
	volume.size = (uint64_t)MAP_OBJECTS_FLAT * volume.object_size;
	ck_assert_int_eq(map_format_volume_check(&volume), 0);
	volume.size += 512;
	ck_assert_int_eq(map_format_volume_check(&volume), -EINVAL);
	volume.depth = 2;
	ck_assert_int_eq(map_format_volume_check(&volume), 0);
	volume.top[0] = (struct map_ref){.epoch = 1, .count = 131072};
	ck_assert_int_eq(map_format_volume_check(&volume), 0);
	volume.top[0].count++;
	ck_assert_int_eq(map_format_volume_check(&volume), -EINVAL);
	volume.top[0].count = 1;
	volume.size = (uint64_t)MAP_OBJECTS_MAX * volume.object_size;
	ck_assert_int_eq(map_format_volume_check(&volume), 0);
	volume.size += 512;
	ck_assert_int_eq(map_format_volume_check(&volume), -EINVAL);
	/* a snapshot: nobody's, and frozen as a whole */
	volume = sample();
	volume.flags = MAP_SNAPSHOT | MAP_NEW;
	volume.self = MAP_OWNERS_MAX;
	volume.id = 99;
	volume.frozen = volume.epoch;
	ck_assert_int_eq(map_format_volume_check(&volume), 0);
	volume.frozen++;
	ck_assert_int_eq(map_format_volume_check(&volume), -EINVAL);
}

/* --- pages and directories ---------------------------------------------------------------- */

UNIT(test_page)
{
	struct map_entry in[MAP_ENTRIES] = {{0}}, out[MAP_ENTRIES];
	uint8_t b[MAP_PAGE_SIZE];
	in[1] = (struct map_entry){.epoch = 0x01020304, .owner = 0x7f, .flags = MAP_ZERO};
	in[511] = (struct map_entry){.epoch = MAP_EPOCH_MAX, .owner = 3, .flags = MAP_PARTIAL};
	memset(b, 0xee, sizeof(b));
	map_format_page_encode(in, b);
	ck_zeros(b, 0, 8);
	ck_assert_mem_eq(b + 8, "\x04\x03\x02\x01\x7f\0\x02\0", 8);
	ck_zeros(b, 16, 4088);
	ck_assert_mem_eq(b + 4088, "\xf0\xff\xff\x7f\x03\0\x01\0", 8);
	memset(out, 0xee, sizeof(out));
	ck_assert_int_eq(map_format_page_decode(b, 128, out), 0);
	for (unsigned i = 0; i < MAP_ENTRIES; i++)
		ck_assert(map_format_entry_same(in[i], out[i]));
	ck_assert_int_eq(map_format_page_decode(b, 127, out), -EILSEQ);
}

UNIT(test_page_bad_entries)
{
	static const uint8_t bad[][8] = {
		{0, 0, 0, 0, 1, 0, 0, 0}, /* a hole with an owner */
		{0, 0, 0, 0, 0, 0, 1, 0}, /* with flags */
		{1, 0, 0, 0, 2, 0, 0, 0}, /* of whom? */
		{1, 0, 0, 0, 0, 1, 0, 0},
		{1, 0, 0, 0, 0, 0, 3, 0}, /* partial and zero */
		{1, 0, 0, 0, 0, 0, 4, 0},
		{1, 0, 0, 0, 0, 0, 0, 1},
		{0xf1, 0xff, 0xff, 0x7f, 0, 0, 0, 0}, /* epoch */
		{1, 0, 0, 0x80, 0, 0, 0, 0},
	};
	struct map_entry out[MAP_ENTRIES];
	uint8_t b[MAP_PAGE_SIZE] = {0};
	ck_assert_int_eq(map_format_page_decode(b, 2, out), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		for (unsigned at = 0; at < MAP_ENTRIES; at += 73) {
			memset(b, 0, sizeof(b));
			memcpy(b + 8 * at, bad[i], 8);
			ck_assert_int_eq(map_format_page_decode(b, 2, out), -EILSEQ);
		}
}

UNIT(test_directory)
{
	struct map_ref in[MAP_DIRECTORY_REFS] = {{0}}, out[MAP_DIRECTORY_REFS];
	uint8_t b[MAP_PAGE_SIZE];
	in[1] = (struct map_ref){
		.epoch = 0x01020304, .crc = 0xa1a2a3a4, .count = 0x103, .owner = 5, .half = 1};
	in[255] = (struct map_ref){.epoch = MAP_EPOCH_MAX, .count = 512};
	memset(b, 0xee, sizeof(b));
	map_format_directory_encode(in, b);
	ck_zeros(b, 0, 16);
	ck_assert_mem_eq(b + 16, "\x04\x03\x02\x01\xa4\xa3\xa2\xa1\x03\x01\0\0\x05\0\x01\0", 16);
	ck_zeros(b, 32, 4080);
	ck_assert_mem_eq(b + 4080, "\xf0\xff\xff\x7f\0\0\0\0\0\x02\0\0\0\0\0\0", 16);
	memset(out, 0xee, sizeof(out));
	ck_assert_int_eq(map_format_directory_decode(b, 6, out), 0);
	for (unsigned i = 0; i < MAP_DIRECTORY_REFS; i++)
		ck_assert(map_format_ref_same(in[i], out[i]));
	ck_assert_int_eq(map_format_directory_decode(b, 5, out), -EILSEQ);
}

UNIT(test_directory_bad_refs)
{
	static const uint8_t bad[][16] = {
		{0, 0, 0, 0, 1},				/* a hole with a checksum */
		{0, 0, 0, 0, 0, 0, 0, 0, 1},			/* with a count */
		{[12] = 1}, {[14] = 1}, {[15] = 1},		/* owner, half, zero */
		{1},						/* of nothing */
		{1, 0, 0, 0, 0, 0, 0, 0, 1, 2},			/* of 513 entries */
		{1, [8] = 1, [12] = 2}, {1, [8] = 1, [13] = 1}, /* of whom? */
		{1, [8] = 1, [14] = 2}, {1, [8] = 1, [15] = 1}, /* half, zero */
		{0xf1, 0xff, 0xff, 0x7f, [8] = 1},		/* epoch */
	};
	struct map_ref out[MAP_DIRECTORY_REFS];
	uint8_t b[MAP_PAGE_SIZE];
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		for (unsigned at = 0; at < MAP_DIRECTORY_REFS; at += 51) {
			memset(b, 0, sizeof(b));
			ck_assert_int_eq(map_format_directory_decode(b, 2, out), 0);
			memcpy(b + 16 * at, bad[i], 16);
			ck_assert_int_eq(map_format_directory_decode(b, 2, out), -EILSEQ);
		}
}

/* --- names and homes ---------------------------------------------------------------------- */

UNIT(test_name)
{
	struct map_name in = {.id = ID, .name = "disk-\xc3\xa9"}, out;
	uint8_t b[MAP_NAME_RECORD_SIZE];
	memset(in.name + 8, 'x', 20);
	memset(b, 0xee, sizeof(b));
	map_format_name_encode(&in, b);
	ck_assert_mem_eq(b, "SKVNAME.\x01\0\0\0\0\0\0\0", 16);
	ck_assert_mem_eq(b + 16, "\x88\x77\x66\x55\x44\x33\x22\x11", 8);
	ck_assert_mem_eq(b + 24, "disk-\xc3\xa9\0", 8);
	ck_zeros(b, 32, 280);
	ck_sealed(b, sizeof(b));
	ck_assert_int_eq(map_format_name_decode(b, sizeof(b), &out), 0);
	ck_assert_uint_eq(out.id, ID);
	ck_assert_str_eq(out.name, in.name);
	for (size_t bit = 0; bit < sizeof(b) * 8; bit++) {
		b[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		ck_assert_int_eq(map_format_name_decode(b, sizeof(b), &out), -EILSEQ);
		b[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
	ck_assert_int_eq(map_format_name_decode(b, sizeof(b) - 1, &out), -EILSEQ);
	static const struct bad bad[] = {
		{12, 1, 4}, {16, 0, 8}, {24, 0, 1}, {24, '\n', 1}, {279, 1, 1}};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		map_format_name_encode(&in, b);
		memcpy(b + bad[i].at, &bad[i].value, bad[i].size);
		seal(b, sizeof(b));
		ck_assert_int_eq(map_format_name_decode(b, sizeof(b), &out), -EILSEQ);
	}
	map_format_name_encode(&in, b);
	b[8] = 2;
	seal(b, sizeof(b));
	ck_assert_int_eq(map_format_name_decode(b, sizeof(b), &out), -EPROTO);
}

static struct map_home sample_home(void)
{
	struct map_home home = {.id = ID,
		.term = 0x0102030405060708ull,
		.owner = 0x1112131415161718ull,
		.since_ns = 0x2122232425262728ull,
		.until_ns = 0x3132333435363738ull,
		.host = "h\xc3\xa9/seg",
		.last = 0x4142434445464748ull,
		.line = 0x0002030405060708ull,
		.place = 0x5152535455565758ull,
		.boot = 0x6162636465666768ull,
		.until_boot_ns = 0x7172737475767778ull,
		.lease_ns = 0x0812836485666768ull,
		.flags = MAP_HOME_CHANGING};
	return home;
}

UNIT(test_home)
{
	struct map_home in = sample_home(), out;
	uint8_t b[MAP_HOME_RECORD_SIZE];
	memset(in.host + 10, 'x', 20);
	memset(b, 0xee, sizeof(b));
	map_format_home_encode(&in, b);
	ck_assert_mem_eq(b, "SKVHOME.\x01\0\0\0\x01\0\0\0", 16);
	ck_assert_mem_eq(b + 16, "\x88\x77\x66\x55\x44\x33\x22\x11", 8);
	ck_assert_mem_eq(b + 24, "\x08\x07\x06\x05\x04\x03\x02\x01", 8);
	ck_assert_mem_eq(b + 32, "\x18\x17\x16\x15\x14\x13\x12\x11", 8);
	ck_assert_mem_eq(b + 40, "\x28\x27\x26\x25\x24\x23\x22\x21", 8);
	ck_assert_mem_eq(b + 48, "\x38\x37\x36\x35\x34\x33\x32\x31", 8);
	ck_assert_mem_eq(b + 56, "h\xc3\xa9/seg\0", 8);
	ck_zeros(b, 64, 120);
	ck_assert_mem_eq(b + 120, "\x48\x47\x46\x45\x44\x43\x42\x41", 8);
	ck_assert_mem_eq(b + 128, "\x08\x07\x06\x05\x04\x03\x02\x00", 8);
	ck_assert_mem_eq(b + 136, "\x58\x57\x56\x55\x54\x53\x52\x51", 8);
	ck_assert_mem_eq(b + 144, "\x68\x67\x66\x65\x64\x63\x62\x61", 8);
	ck_zeros(b, 168, 508);
	ck_sealed(b, sizeof(b));
	memset(&out, 0xee, sizeof(out));
	ck_assert_int_eq(map_format_home_decode(b, sizeof(b), &out), 0);
	ck_assert_uint_eq(out.id, in.id);
	ck_assert_uint_eq(out.term, in.term);
	ck_assert_uint_eq(out.owner, in.owner);
	ck_assert_uint_eq(out.since_ns, in.since_ns);
	ck_assert_uint_eq(out.until_ns, in.until_ns);
	ck_assert_str_eq(out.host, in.host);
	ck_assert_uint_eq(out.last, in.last);
	ck_assert_uint_eq(out.line, in.line);
	ck_assert_uint_eq(out.place, in.place);
	ck_assert_uint_eq(out.boot, in.boot);
	ck_assert_uint_eq(out.until_boot_ns, in.until_boot_ns);
	ck_assert_uint_eq(out.lease_ns, in.lease_ns);
	ck_assert_uint_eq(out.flags, in.flags);
	for (size_t bit = 0; bit < sizeof(b) * 8; bit++) {
		b[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		ck_assert_int_eq(map_format_home_decode(b, sizeof(b), &out), -EILSEQ);
		b[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
	/* handed over: a version of its own */
	in.owner = 0;
	in.next = 0x8182838485868788ull;
	in.since = 0x0002030405060708ull;
	in.previous = 0x9192939495969798ull;
	map_format_home_encode(&in, b);
	ck_assert_mem_eq(b + 8, "\x02\0\0\0", 4);
	ck_assert_mem_eq(b + 168, "\x88\x87\x86\x85\x84\x83\x82\x81", 8);
	ck_assert_mem_eq(b + 176, "\x08\x07\x06\x05\x04\x03\x02\x00", 8);
	ck_assert_mem_eq(b + 184, "\x98\x97\x96\x95\x94\x93\x92\x91", 8);
	ck_zeros(b, 192, 508);
	ck_assert_int_eq(map_format_home_decode(b, sizeof(b), &out), 0);
	ck_assert_uint_eq(out.previous, in.previous);
	ck_assert_uint_eq(out.next, in.next);
	ck_assert_uint_eq(out.since, in.since);
	in.owner = 1; /* it cannot be somebody's already */
	map_format_home_encode(&in, b);
	ck_assert_int_eq(map_format_home_decode(b, sizeof(b), &out), -EILSEQ);
}

UNIT(test_home_bad)
{
	static const struct bad bad[] = {{12, 2, 4}, {16, 0, 8}, {24, 0, 8}, {56, '\n', 1},
		{56, 0x7f, 1}, {119, 1, 1}, {135, 2, 1}, {168, 1, 1}, {184, 1, 1}, {507, 1, 1}};
	struct map_home in = sample_home(), out;
	uint8_t b[MAP_HOME_RECORD_SIZE + 8] = {0};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		map_format_home_encode(&in, b);
		memcpy(b + bad[i].at, &bad[i].value, bad[i].size);
		seal(b, MAP_HOME_RECORD_SIZE);
		ck_assert_int_eq(map_format_home_decode(b, MAP_HOME_RECORD_SIZE, &out), -EILSEQ);
	}
	map_format_home_encode(&in, b);
	seal(b, sizeof(b));
	ck_assert_int_eq(map_format_home_decode(b, sizeof(b), &out), -EILSEQ);
	map_format_home_encode(&in, b);
	b[8] = 2; /* there is nothing in it that needs that */
	seal(b, MAP_HOME_RECORD_SIZE);
	ck_assert_int_eq(map_format_home_decode(b, MAP_HOME_RECORD_SIZE, &out), -EILSEQ);
	b[8] = 3;
	seal(b, MAP_HOME_RECORD_SIZE);
	ck_assert_int_eq(map_format_home_decode(b, MAP_HOME_RECORD_SIZE, &out), -EPROTO);
	/* a host that would garble a terminal, and one that is too long */
	memset(in.host, 'h', sizeof(in.host));
	in.host[1] = '\033';
	map_format_home_encode(&in, b);
	ck_assert_int_eq(map_format_home_decode(b, MAP_HOME_RECORD_SIZE, &out), 0);
	ck_assert_uint_eq(strlen(out.host), MAP_HOST_MAX);
	ck_assert_int_eq(out.host[1], '?');
}

/* --- bitmaps ---------------------------------------------------------------------------- */

static struct map_bitmap sample_bitmap(void)
{
	return (struct map_bitmap){.owner = ID,
		.epoch = 0x01020304,
		.object = 0x00a2a3a4,
		.sequence = 0x1112131415161718ull,
		.parent_owner = 0x2122232425262728ull,
		.parent_epoch = 0x31323334,
		.parent_flags = MAP_PARTIAL,
		.has = {0x4142434445464748ull, [15] = 1ull << 63}};
}

UNIT(test_bitmap)
{
	struct map_bitmap in = sample_bitmap(), out;
	uint8_t b[MAP_BITMAP_SIZE];
	memset(b, 0xee, sizeof(b));
	map_format_bitmap_encode(&in, b);
	ck_assert_mem_eq(b, "SKPR\x01\0\0\0", 8);
	ck_assert_mem_eq(b + 8, "\x88\x77\x66\x55\x44\x33\x22\x11", 8);
	ck_assert_mem_eq(b + 16, "\x04\x03\x02\x01\xa4\xa3\xa2\0", 8);
	ck_assert_mem_eq(b + 24, "\x18\x17\x16\x15\x14\x13\x12\x11", 8);
	ck_assert_mem_eq(b + 32, "\x28\x27\x26\x25\x24\x23\x22\x21", 8);
	ck_assert_mem_eq(b + 40, "\x34\x33\x32\x31\x01\0\0\0", 8);
	ck_assert_mem_eq(b + 48, "\x48\x47\x46\x45\x44\x43\x42\x41", 8);
	ck_zeros(b, 56, 175);
	ck_assert_uint_eq(b[175], 0x80);
	ck_zeros(b, 176, 508);
	ck_sealed(b, sizeof(b));
	memset(&out, 0xee, sizeof(out));
	ck_assert_int_eq(map_format_bitmap_decode(b, &out), 0);
	ck_assert_uint_eq(out.owner, in.owner);
	ck_assert_uint_eq(out.epoch, in.epoch);
	ck_assert_uint_eq(out.object, in.object);
	ck_assert_uint_eq(out.sequence, in.sequence);
	ck_assert_uint_eq(out.parent_owner, in.parent_owner);
	ck_assert_uint_eq(out.parent_epoch, in.parent_epoch);
	ck_assert_uint_eq(out.parent_flags, in.parent_flags);
	ck_assert_mem_eq(out.has, in.has, sizeof(in.has));
	for (size_t bit = 0; bit < sizeof(b) * 8; bit++) {
		b[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		ck_assert_int_eq(map_format_bitmap_decode(b, &out), -EILSEQ);
		b[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
}

UNIT(test_bitmap_bad)
{
	static const struct bad bad[] = {{8, 0, 8}, {16, 0, 4}, {16, 0x7ffffff1, 4},
		{20, MAP_OBJECTS_MAX, 4}, {24, 0, 8}, {32, 0, 8}, {40, 0, 4}, {40, 0x80000000, 4},
		{44, 2, 4}, {176, 1, 1}, {507, 1, 1}};
	struct map_bitmap in = sample_bitmap(), out;
	uint8_t b[MAP_BITMAP_SIZE];
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		map_format_bitmap_encode(&in, b);
		memcpy(b + bad[i].at, &bad[i].value, bad[i].size);
		seal(b, sizeof(b));
		ck_assert_int_eq(map_format_bitmap_decode(b, &out), -EILSEQ);
	}
	map_format_bitmap_encode(&in, b);
	b[4] = 2;
	seal(b, sizeof(b));
	ck_assert_int_eq(map_format_bitmap_decode(b, &out), -EPROTO);
}

/* --- keys --------------------------------------------------------------------------------- */

static void ck_key(struct xseg_key key, uint64_t volume, uint32_t epoch, uint32_t object)
{
	ck_assert_uint_eq(key.volume, volume);
	ck_assert_uint_eq(key.epoch, epoch);
	ck_assert_uint_eq(key.object, object);
}

UNIT(test_keys)
{
	ck_key(map_volume_key(ID, 1), ID, 0xffffffff, 1);
	ck_key(map_name_key("disk"), XXH64("disk", 4, 0), 0xfffffffe, 0);
	ck_key(map_page_key(ID, 5, 0x7fff), ID, 0x80000005, 0x7fff);
	ck_key(map_directory_key(ID, 5, 127), ID, 0x80000005, 0x10007f);
	ck_key(map_bitmap_key(ID, MAP_EPOCH_MAX, 0xffffff), ID, 0xfffffff0, 0x21ffff);
	ck_assert_uint_eq(map_bitmap_offset(0, 0), 0);
	ck_assert_uint_eq(map_bitmap_offset(0, 1), 512);
	ck_assert_uint_eq(map_bitmap_offset(129, 1), 1536);
	ck_assert_uint_eq(map_bitmap_offset(127, 1), 128 * 1024 - 512);
	/* no epoch of a map is one of records */
	ck_assert_uint_lt(MAP_EPOCH_MAP | MAP_EPOCH_MAX, XSEG_EPOCH_HOME);
}

UNIT(test_objects)
{
	struct map_volume volume = {.object_size = 4096};
	ck_assert_uint_eq(map_objects(&volume), 0);
	volume.size = 512;
	ck_assert_uint_eq(map_objects(&volume), 1);
	volume.size = 4096;
	ck_assert_uint_eq(map_objects(&volume), 1);
	volume.size = 4608;
	ck_assert_uint_eq(map_objects(&volume), 2);
}
