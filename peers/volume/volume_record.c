/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of the two records that a volume has in the store. */
#include "peers/volume/volume_record.h"

#include <base/crc32c.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#define RECORD_VERSION 1u
#define MAGIC_SIZE 8
#define NAME_FIELD (VOLUME_NAME_LENGTH_MAX + 1)
#define CRC_SIZE 4

static const char volume_magic[MAGIC_SIZE] = {'S', 'K', 'V', 'O', 'L', 'U', 'M', 'E'};
static const char name_magic[MAGIC_SIZE] = {'S', 'K', 'V', 'N', 'A', 'M', 'E', '.'};

static uint8_t *put_u32(uint8_t *at, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(value >> (8 * i));
	return at + 4;
}

static uint8_t *put_u64(uint8_t *at, uint64_t value)
{
	return put_u32(put_u32(at, (uint32_t)value), (uint32_t)(value >> 32));
}

static uint8_t *put_bytes(uint8_t *at, const void *from, size_t size)
{
	memcpy(at, from, size);
	return at + size;
}

/* The bytes behind the end of a name are zero, whatever lay in the caller's buffer. */
static uint8_t *put_name(uint8_t *at, const char *name)
{
	memset(at, 0, NAME_FIELD);
	memcpy(at, name, strnlen(name, VOLUME_NAME_LENGTH_MAX));
	return at + NAME_FIELD;
}

static uint32_t get_u32(const uint8_t **at)
{
	const uint8_t *p = *at;
	*at += 4;
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get_u64(const uint8_t **at)
{
	uint64_t low = get_u32(at);
	return low | (uint64_t)get_u32(at) << 32;
}

static bool get_name(const uint8_t **at, char name[NAME_FIELD])
{
	memcpy(name, *at, NAME_FIELD);
	*at += NAME_FIELD;
	size_t length = strnlen(name, NAME_FIELD);
	for (size_t i = length; i < NAME_FIELD; i++)
		if (name[i] != 0)
			return false;
	return length < NAME_FIELD && volume_name_check(name);
}

/*
 * Magic, checksum and version stand at the same places in every version, so that damage is told
 * apart from a record that a newer program wrote.
 */
static int check_frame(const uint8_t *from, size_t size, const char magic[MAGIC_SIZE])
{
	if (size < MAGIC_SIZE + 4 + CRC_SIZE || memcmp(from, magic, MAGIC_SIZE) != 0)
		return -EILSEQ;
	const uint8_t *at = from + size - CRC_SIZE;
	if (get_u32(&at) != crc32c(0, from, size - CRC_SIZE))
		return -EILSEQ;
	at = from + MAGIC_SIZE;
	return get_u32(&at) == RECORD_VERSION ? 0 : -EPROTO;
}

static bool is_power_of_two(uint32_t x) { return x != 0 && (x & (x - 1)) == 0; }

int volume_record_check(const struct volume_record *record)
{
	if (record->id == 0 || record->size == 0 || record->size % XSEG_SECTOR != 0)
		return -EINVAL;
	if (!is_power_of_two(record->object_size) || record->object_size < XSEG_PAGE ||
		record->object_size > XSEG_OBJECT_MAX)
		return -EINVAL;
	/* object numbers have 32 bits */
	if ((record->size - 1) / record->object_size > UINT32_MAX)
		return -EINVAL;
	if (record->state < XSEG_VOLUME_READY || record->state > XSEG_VOLUME_REMOVING)
		return -EINVAL;
	if (record->flags & ~XSEG_VOLUME_READ_ONLY)
		return -EINVAL;
	return volume_name_check(record->name) ? 0 : -EINVAL;
}

void volume_record_encode(const struct volume_record *record, uint8_t out[VOLUME_RECORD_SIZE])
{
	must(volume_record_check(record) == 0);
	uint8_t *at = put_bytes(out, volume_magic, MAGIC_SIZE);
	at = put_u32(at, RECORD_VERSION);
	at = put_u32(at, record->object_size);
	at = put_u64(at, record->id);
	at = put_u64(at, record->size);
	at = put_u32(at, record->state);
	at = put_u32(at, record->flags);
	at = put_u64(at, record->created_ns);
	at = put_u64(at, 0);
	at = put_name(at, record->name);
	at = put_u32(at, crc32c(0, out, (size_t)(at - out)));
	must(at == out + VOLUME_RECORD_SIZE);
}

int volume_record_decode(const uint8_t *from, size_t size, struct volume_record *record)
{
	int rc = check_frame(from, size, volume_magic);
	if (rc != 0)
		return rc;
	if (size != VOLUME_RECORD_SIZE)
		return -EILSEQ;
	const uint8_t *at = from + MAGIC_SIZE + 4;
	record->object_size = get_u32(&at);
	record->id = get_u64(&at);
	record->size = get_u64(&at);
	record->state = get_u32(&at);
	record->flags = get_u32(&at);
	record->created_ns = get_u64(&at);
	uint64_t reserved = get_u64(&at);
	bool named = get_name(&at, record->name);
	return named && reserved == 0 && volume_record_check(record) == 0 ? 0 : -EILSEQ;
}

void volume_name_record_encode(
	const struct volume_name_record *record, uint8_t out[VOLUME_NAME_RECORD_SIZE])
{
	must(record->id != 0 && volume_name_check(record->name));
	uint8_t *at = put_bytes(out, name_magic, MAGIC_SIZE);
	at = put_u32(at, RECORD_VERSION);
	at = put_u32(at, 0);
	at = put_u64(at, record->id);
	at = put_name(at, record->name);
	at = put_u32(at, crc32c(0, out, (size_t)(at - out)));
	must(at == out + VOLUME_NAME_RECORD_SIZE);
}

int volume_name_record_decode(const uint8_t *from, size_t size, struct volume_name_record *record)
{
	int rc = check_frame(from, size, name_magic);
	if (rc != 0)
		return rc;
	if (size != VOLUME_NAME_RECORD_SIZE)
		return -EILSEQ;
	const uint8_t *at = from + MAGIC_SIZE + 4;
	uint32_t reserved = get_u32(&at);
	record->id = get_u64(&at);
	bool named = get_name(&at, record->name);
	return named && reserved == 0 && record->id != 0 ? 0 : -EILSEQ;
}

uint64_t volume_name_hash(const char *name)
{
	uint64_t hash = XXH64(name, strlen(name), 0);
	return hash != 0 ? hash : 1;
}
