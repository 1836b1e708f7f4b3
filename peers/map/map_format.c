/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of all that a volume and its map have in the store. */
#include "peers/map/map_format.h"

#include <base/bytes.h>
#include <base/crc32c.h>
#include <errno.h>
#include <string.h>
#include <xxhash.h>

#define MAGIC_SIZE 8
#define NAME_FIELD (VOLUME_NAME_LENGTH_MAX + 1)
#define HOST_FIELD (MAP_HOST_MAX + 1)
#define CRC_SIZE 4
#define REF_SIZE 16
#define VOLUME_VERSION 2u /* 1 was without a map */
#define NAME_VERSION 1u
#define HOME_VERSION 1u
#define HOME_VERSION_HANDED 2u /* with what a program that knows 1 alone must not overlook */
#define BITMAP_VERSION 1u
#define VOLUME_OWNERS_AT 512
#define BITMAP_MAGIC 0x52504b53u /* "SKPR" */

static const char volume_magic[MAGIC_SIZE] = {'S', 'K', 'V', 'O', 'L', 'U', 'M', 'E'};
static const char name_magic[MAGIC_SIZE] = {'S', 'K', 'V', 'N', 'A', 'M', 'E', '.'};
static const char home_magic[MAGIC_SIZE] = {'S', 'K', 'V', 'H', 'O', 'M', 'E', '.'};

/* --- numbers and names -------------------------------------------------------------------- */

static uint8_t *put_u16(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)value;
	at[1] = (uint8_t)(value >> 8);
	return at + 2;
}

static uint8_t *put_u32(uint8_t *at, uint32_t value)
{
	return put_u16(put_u16(at, (uint16_t)value), (uint16_t)(value >> 16));
}

static uint8_t *put_u64(uint8_t *at, uint64_t value)
{
	return put_u32(put_u32(at, (uint32_t)value), (uint32_t)(value >> 32));
}

static uint16_t get_u16(const uint8_t **at)
{
	const uint8_t *p = *at;
	*at += 2;
	return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get_u32(const uint8_t **at)
{
	uint32_t low = get_u16(at);
	return low | (uint32_t)get_u16(at) << 16;
}

static uint64_t get_u64(const uint8_t **at)
{
	uint64_t low = get_u32(at);
	return low | (uint64_t)get_u32(at) << 32;
}

static bool is_zero(const uint8_t *from, const uint8_t *end)
{
	return bytes_are_zero(from, (size_t)(end - from));
}

/* The bytes behind the end of a name are zero, whatever lay in the caller's buffer. */
static uint8_t *put_name(uint8_t *at, const char *name)
{
	memset(at, 0, NAME_FIELD);
	memcpy(at, name, strnlen(name, VOLUME_NAME_LENGTH_MAX));
	return at + NAME_FIELD;
}

static bool get_name(const uint8_t **at, char name[NAME_FIELD])
{
	memcpy(name, *at, NAME_FIELD);
	*at += NAME_FIELD;
	size_t length = strnlen(name, NAME_FIELD);
	return length < NAME_FIELD &&
	       is_zero((const uint8_t *)name + length, (const uint8_t *)name + NAME_FIELD) &&
	       name_check_volume(name);
}

/* --- the frame of a record ---------------------------------------------------------------- */

static uint8_t *put_head(uint8_t *out, size_t size, const char magic[MAGIC_SIZE], uint32_t version)
{
	memset(out, 0, size);
	memcpy(out, magic, MAGIC_SIZE);
	return put_u32(out + MAGIC_SIZE, version);
}

static void put_seal(uint8_t *out, size_t size)
{
	put_u32(out + size - CRC_SIZE, crc32c(0, out, size - CRC_SIZE));
}

static bool is_sealed(const uint8_t *from, size_t size)
{
	const uint8_t *at = from + size - CRC_SIZE;
	return get_u32(&at) == crc32c(0, from, size - CRC_SIZE);
}

/*
 * Magic, checksum and version stand at the same places in every version, so that damage is told
 * apart from a record that another program wrote.
 */
static int check_frame(
	const uint8_t *from, size_t size, const char magic[MAGIC_SIZE], uint32_t version)
{
	if (size < MAGIC_SIZE + 4 + CRC_SIZE || memcmp(from, magic, MAGIC_SIZE) != 0 ||
		!is_sealed(from, size))
		return -EILSEQ;
	const uint8_t *at = from + MAGIC_SIZE;
	return get_u32(&at) == version ? 0 : -EPROTO;
}

/* --- entries and references --------------------------------------------------------------- */

bool map_format_entry_same(struct map_entry a, struct map_entry b)
{
	return a.epoch == b.epoch && a.owner == b.owner && a.flags == b.flags;
}

bool map_format_ref_same(struct map_ref a, struct map_ref b)
{
	return a.epoch == b.epoch && a.crc == b.crc && a.count == b.count && a.owner == b.owner &&
	       a.half == b.half;
}

bool map_format_entry_check(struct map_entry entry, unsigned owners)
{
	if (map_entry_is_hole(entry))
		return entry.owner == 0 && entry.flags == 0;
	return entry.epoch <= MAP_EPOCH_MAX && entry.owner < owners &&
	       (entry.flags == 0 || entry.flags == MAP_PARTIAL || entry.flags == MAP_ZERO);
}

static bool ref_check(struct map_ref ref, unsigned owners, uint32_t count_max)
{
	if (map_ref_is_hole(ref))
		return map_format_ref_same(ref, (struct map_ref){0});
	return ref.epoch <= MAP_EPOCH_MAX && ref.owner < owners && ref.half <= 1 && ref.count > 0 &&
	       ref.count <= count_max;
}

static uint8_t *put_ref(uint8_t *at, struct map_ref ref)
{
	at = put_u32(at, ref.epoch);
	at = put_u32(at, ref.crc);
	at = put_u32(at, ref.count);
	at = put_u16(at, ref.owner);
	return put_u16(at, ref.half);
}

/* False: a byte that must be zero is not. */
static bool get_ref(const uint8_t **at, struct map_ref *ref)
{
	ref->epoch = get_u32(at);
	ref->crc = get_u32(at);
	ref->count = get_u32(at);
	ref->owner = get_u16(at);
	uint16_t half = get_u16(at);
	ref->half = (uint8_t)half;
	return half <= 1;
}

void map_format_page_encode(const struct map_entry entries[MAP_ENTRIES], uint8_t out[MAP_PAGE_SIZE])
{
	uint8_t *at = out;
	for (unsigned i = 0; i < MAP_ENTRIES; i++) {
		must(map_format_entry_check(entries[i], MAP_OWNERS_MAX));
		at = put_u32(at, entries[i].epoch);
		at = put_u16(at, entries[i].owner);
		at = put_u16(at, entries[i].flags);
	}
	must(at == out + MAP_PAGE_SIZE);
}

int map_format_page_decode(
	const uint8_t from[MAP_PAGE_SIZE], unsigned owners, struct map_entry entries[MAP_ENTRIES])
{
	bool good = true;
	for (unsigned i = 0; i < MAP_ENTRIES; i++) {
		entries[i].epoch = get_u32(&from);
		entries[i].owner = get_u16(&from);
		entries[i].flags = get_u16(&from);
		good = good && map_format_entry_check(entries[i], owners);
	}
	return good ? 0 : -EILSEQ;
}

void map_format_directory_encode(
	const struct map_ref refs[MAP_DIRECTORY_REFS], uint8_t out[MAP_PAGE_SIZE])
{
	uint8_t *at = out;
	for (unsigned i = 0; i < MAP_DIRECTORY_REFS; i++) {
		must(ref_check(refs[i], MAP_OWNERS_MAX, MAP_ENTRIES));
		at = put_ref(at, refs[i]);
	}
	must(at == out + MAP_PAGE_SIZE);
}

int map_format_directory_decode(
	const uint8_t from[MAP_PAGE_SIZE], unsigned owners, struct map_ref refs[MAP_DIRECTORY_REFS])
{
	bool good = true;
	for (unsigned i = 0; i < MAP_DIRECTORY_REFS; i++)
		good = get_ref(&from, &refs[i]) && ref_check(refs[i], owners, MAP_ENTRIES) && good;
	return good ? 0 : -EILSEQ;
}

/* --- the record of a volume --------------------------------------------------------------- */

static bool is_power_of_two(uint32_t x) { return x != 0 && (x & (x - 1)) == 0; }

static bool size_check(const struct map_volume *volume)
{
	if (volume->size % XSEG_SECTOR != 0 || !is_power_of_two(volume->object_size) ||
		volume->object_size < XSEG_PAGE || volume->object_size > XSEG_OBJECT_MAX)
		return false;
	uint64_t max = volume->depth == 1 ? MAP_OBJECTS_FLAT : MAP_OBJECTS_MAX;
	return volume->depth >= 1 && volume->depth <= 2 && map_objects(volume) <= max;
}

/* What a volume writes must be its own and not shared. */
static bool epoch_check(const struct map_volume *volume)
{
	bool snapshot = volume->flags & MAP_SNAPSHOT;
	return volume->epoch >= 1 && volume->epoch <= MAP_EPOCH_MAX &&
	       (snapshot ? volume->frozen <= volume->epoch : volume->frozen < volume->epoch);
}

static bool owners_check(const struct map_volume *volume)
{
	unsigned count = volume->owner_count;
	if (count == 0 || count > MAP_OWNERS_MAX)
		return false;
	for (unsigned i = 0; i < MAP_OWNERS_MAX; i++) {
		if ((i < count) != (volume->owners[i] != 0))
			return false;
		for (unsigned j = 0; j < i && i < count; j++)
			if (volume->owners[i] == volume->owners[j])
				return false;
	}
	if (volume->flags & MAP_SNAPSHOT)
		return volume->self == MAP_OWNERS_MAX;
	return volume->self < count && volume->owners[volume->self] == volume->id;
}

static bool top_check(const struct map_volume *volume)
{
	uint32_t each = volume->depth == 1 ? MAP_ENTRIES : MAP_ENTRIES * MAP_DIRECTORY_REFS;
	uint64_t objects = map_objects(volume);
	for (unsigned i = 0; i < MAP_TOP_REFS; i++) {
		struct map_ref ref = volume->top[i];
		if (!ref_check(ref, volume->owner_count, each))
			return false;
		if (!map_ref_is_hole(ref) && (uint64_t)i * each >= objects)
			return false;
		if (ref.owner == volume->self && ref.epoch > volume->epoch)
			return false;
	}
	return true;
}

int map_format_volume_check(const struct map_volume *volume)
{
	const uint32_t flags = XSEG_VOLUME_READ_ONLY | MAP_SNAPSHOT | MAP_PROTECTED | MAP_NEW;
	bool good = volume->id != 0 && volume->state >= XSEG_VOLUME_READY &&
		    volume->state <= XSEG_VOLUME_REMOVING && (volume->flags & ~flags) == 0 &&
		    size_check(volume) && epoch_check(volume) && owners_check(volume) &&
		    top_check(volume) && name_check_volume(volume->name);
	return good ? 0 : -EINVAL;
}

void map_format_volume_encode(const struct map_volume *volume, uint8_t out[MAP_RECORD_SIZE])
{
	must(map_format_volume_check(volume) == 0);
	uint8_t *at = put_head(out, MAP_RECORD_SIZE, volume_magic, VOLUME_VERSION);
	at = put_u32(at, volume->object_size);
	at = put_u64(at, volume->id);
	at = put_u64(at, volume->size);
	at = put_u32(at, volume->state);
	at = put_u32(at, volume->flags);
	at = put_u64(at, volume->created_ns);
	at = put_u64(at, volume->generation);
	at = put_name(at, volume->name);
	at = put_u32(at, volume->epoch);
	at = put_u32(at, volume->frozen);
	at = put_u64(at, volume->parent);
	at = put_u16(at, volume->owner_count);
	at = put_u16(at, volume->self);
	at = put_u16(at, volume->depth);
	at = out + VOLUME_OWNERS_AT;
	for (unsigned i = 0; i < MAP_OWNERS_MAX; i++)
		at = put_u64(at, volume->owners[i]);
	for (unsigned i = 0; i < MAP_TOP_REFS; i++)
		at = put_ref(at, volume->top[i]);
	at = put_u64(at, volume->limit_iops);
	at = put_u64(at, volume->limit_bytes);
	at = put_u64(at, volume->limit_burst_ms);
	must(at <= out + MAP_RECORD_SIZE - CRC_SIZE);
	put_seal(out, MAP_RECORD_SIZE);
}

int map_format_volume_decode(const uint8_t *from, size_t size, struct map_volume *volume)
{
	int rc = check_frame(from, size, volume_magic, VOLUME_VERSION);
	if (rc != 0)
		return rc;
	if (size != MAP_RECORD_SIZE)
		return -EILSEQ;
	const uint8_t *at = from + MAGIC_SIZE + 4;
	volume->object_size = get_u32(&at);
	volume->id = get_u64(&at);
	volume->size = get_u64(&at);
	volume->state = get_u32(&at);
	volume->flags = get_u32(&at);
	volume->created_ns = get_u64(&at);
	volume->generation = get_u64(&at);
	bool good = get_name(&at, volume->name);
	volume->epoch = get_u32(&at);
	volume->frozen = get_u32(&at);
	volume->parent = get_u64(&at);
	volume->owner_count = get_u16(&at);
	volume->self = get_u16(&at);
	volume->depth = get_u16(&at);
	good = good && is_zero(at, from + VOLUME_OWNERS_AT);
	at = from + VOLUME_OWNERS_AT;
	for (unsigned i = 0; i < MAP_OWNERS_MAX; i++)
		volume->owners[i] = get_u64(&at);
	for (unsigned i = 0; i < MAP_TOP_REFS; i++)
		good = get_ref(&at, &volume->top[i]) && good;
	volume->limit_iops = get_u64(&at);
	volume->limit_bytes = get_u64(&at);
	volume->limit_burst_ms = get_u64(&at);
	good = good && is_zero(at, from + MAP_RECORD_SIZE - CRC_SIZE);
	return good && map_format_volume_check(volume) == 0 ? 0 : -EILSEQ;
}

/* --- names and homes ---------------------------------------------------------------------- */

void map_format_name_encode(const struct map_name *name, uint8_t out[MAP_NAME_RECORD_SIZE])
{
	must(name->id != 0 && name_check_volume(name->name));
	uint8_t *at = put_head(out, MAP_NAME_RECORD_SIZE, name_magic, NAME_VERSION);
	at = put_u32(at, 0);
	at = put_u64(at, name->id);
	at = put_name(at, name->name);
	must(at == out + MAP_NAME_RECORD_SIZE - CRC_SIZE);
	put_seal(out, MAP_NAME_RECORD_SIZE);
}

int map_format_name_decode(const uint8_t *from, size_t size, struct map_name *name)
{
	int rc = check_frame(from, size, name_magic, NAME_VERSION);
	if (rc != 0)
		return rc;
	if (size != MAP_NAME_RECORD_SIZE)
		return -EILSEQ;
	const uint8_t *at = from + MAGIC_SIZE + 4;
	uint32_t reserved = get_u32(&at);
	name->id = get_u64(&at);
	bool named = get_name(&at, name->name);
	return named && reserved == 0 && name->id != 0 ? 0 : -EILSEQ;
}

uint64_t map_format_name_hash(const char *name)
{
	uint64_t hash = XXH64(name, strlen(name), 0);
	return hash != 0 ? hash : 1;
}

static bool is_control(char c) { return (unsigned char)c < ' ' || c == 0x7f; }

/* For people to read: what would garble a terminal becomes '?'. */
static uint8_t *put_host(uint8_t *at, const char *host)
{
	size_t length = strnlen(host, MAP_HOST_MAX);
	for (size_t i = 0; i < length; i++)
		at[i] = is_control(host[i]) ? '?' : (uint8_t)host[i];
	return at + HOST_FIELD;
}

static bool get_host(const uint8_t **at, char host[HOST_FIELD])
{
	memcpy(host, *at, HOST_FIELD);
	*at += HOST_FIELD;
	size_t length = strnlen(host, HOST_FIELD);
	for (size_t i = 0; i < length; i++)
		if (is_control(host[i]))
			return false;
	return length < HOST_FIELD &&
	       is_zero((const uint8_t *)host + length, (const uint8_t *)host + HOST_FIELD);
}

void map_format_home_encode(const struct map_home *home, uint8_t out[MAP_HOME_RECORD_SIZE])
{
	must(home->id != 0 && home->term != 0);
	bool handed = home->next != 0 || home->since != 0;
	uint8_t *at = put_head(
		out, MAP_HOME_RECORD_SIZE, home_magic, handed ? HOME_VERSION_HANDED : HOME_VERSION);
	at = put_u32(at, home->flags);
	at = put_u64(at, home->id);
	at = put_u64(at, home->term);
	at = put_u64(at, home->owner);
	at = put_u64(at, home->since_ns);
	at = put_u64(at, home->until_ns);
	at = put_host(at, home->host);
	at = put_u64(at, home->last);
	at = put_u64(at, home->line);
	at = put_u64(at, home->place);
	at = put_u64(at, home->boot);
	at = put_u64(at, home->until_boot_ns);
	at = put_u64(at, home->lease_ns);
	at = put_u64(at, home->next);
	at = put_u64(at, home->since);
	at = put_u64(at, home->previous);
	must(at <= out + MAP_HOME_RECORD_SIZE - CRC_SIZE);
	put_seal(out, MAP_HOME_RECORD_SIZE);
}

int map_format_home_decode(const uint8_t *from, size_t size, struct map_home *home)
{
	uint32_t version = HOME_VERSION_HANDED;
	int rc = check_frame(from, size, home_magic, version);
	if (rc == -EPROTO)
		rc = check_frame(from, size, home_magic, version = HOME_VERSION);
	if (rc != 0)
		return rc;
	if (size != MAP_HOME_RECORD_SIZE)
		return -EILSEQ;
	const uint8_t *at = from + MAGIC_SIZE + 4;
	home->flags = get_u32(&at);
	bool good = (home->flags & ~MAP_HOME_CHANGING) == 0;
	home->id = get_u64(&at);
	home->term = get_u64(&at);
	home->owner = get_u64(&at);
	home->since_ns = get_u64(&at);
	home->until_ns = get_u64(&at);
	good = get_host(&at, home->host) && good;
	home->last = get_u64(&at);
	home->line = get_u64(&at);
	home->place = get_u64(&at);
	home->boot = get_u64(&at);
	home->until_boot_ns = get_u64(&at);
	home->lease_ns = get_u64(&at);
	home->next = get_u64(&at);
	home->since = get_u64(&at);
	home->previous = get_u64(&at);
	bool handed = home->next != 0 || home->since != 0;
	good = good && handed == (version == HOME_VERSION_HANDED);
	good = good && (home->next == 0 || home->owner == 0);
	good = good && (home->previous == 0 || home->since != 0);
	good = good && home->line <= home->term && home->since <= home->term;
	good = good && is_zero(at, from + MAP_HOME_RECORD_SIZE - CRC_SIZE);
	return good && home->id != 0 && home->term != 0 ? 0 : -EILSEQ;
}

/* --- bitmap ----------------------------------------------------------------------------- */

static bool bitmap_check(const struct map_bitmap *bitmap)
{
	return bitmap->owner != 0 && bitmap->epoch >= 1 && bitmap->epoch <= MAP_EPOCH_MAX &&
	       bitmap->object < MAP_OBJECTS_MAX && bitmap->sequence != 0 &&
	       bitmap->parent_owner != 0 && bitmap->parent_epoch >= 1 &&
	       bitmap->parent_epoch <= MAP_EPOCH_MAX && (bitmap->parent_flags & ~MAP_PARTIAL) == 0;
}

void map_format_bitmap_encode(const struct map_bitmap *bitmap, uint8_t out[MAP_BITMAP_SIZE])
{
	must(bitmap_check(bitmap));
	memset(out, 0, MAP_BITMAP_SIZE);
	uint8_t *at = put_u32(out, BITMAP_MAGIC);
	at = put_u32(at, BITMAP_VERSION);
	at = put_u64(at, bitmap->owner);
	at = put_u32(at, bitmap->epoch);
	at = put_u32(at, bitmap->object);
	at = put_u64(at, bitmap->sequence);
	at = put_u64(at, bitmap->parent_owner);
	at = put_u32(at, bitmap->parent_epoch);
	at = put_u32(at, bitmap->parent_flags);
	for (unsigned i = 0; i < MAP_BITMAP_WORDS; i++)
		at = put_u64(at, bitmap->has[i]);
	must(at <= out + MAP_BITMAP_SIZE - CRC_SIZE);
	put_seal(out, MAP_BITMAP_SIZE);
}

int map_format_bitmap_decode(const uint8_t from[MAP_BITMAP_SIZE], struct map_bitmap *bitmap)
{
	const uint8_t *at = from;
	if (get_u32(&at) != BITMAP_MAGIC || !is_sealed(from, MAP_BITMAP_SIZE))
		return -EILSEQ;
	if (get_u32(&at) != BITMAP_VERSION)
		return -EPROTO;
	bitmap->owner = get_u64(&at);
	bitmap->epoch = get_u32(&at);
	bitmap->object = get_u32(&at);
	bitmap->sequence = get_u64(&at);
	bitmap->parent_owner = get_u64(&at);
	bitmap->parent_epoch = get_u32(&at);
	bitmap->parent_flags = get_u32(&at);
	for (unsigned i = 0; i < MAP_BITMAP_WORDS; i++)
		bitmap->has[i] = get_u64(&at);
	bool good = is_zero(at, from + MAP_BITMAP_SIZE - CRC_SIZE);
	return good && bitmap_check(bitmap) ? 0 : -EILSEQ;
}
