/* SPDX-License-Identifier: Apache-2.0 */
/* What a stamped sector looks like: a header, a fill that follows from it, a crc over both. */
#include <base/crc32c.h>
#include <string.h>

#include "tests/stamp/stamp.h"

#define MAGIC 0x53544d5059524b53ull /* "SKRYPMTS" */
#define WORDS ((STAMP_SECTOR - sizeof(struct header)) / sizeof(uint64_t))

struct header {
	uint64_t magic, volume, sector, sequence;
	uint32_t writer, crc;
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 29;
	x *= 0xc4ceb9fe1a85ec53ull;
	return x ^ x >> 32;
}

static uint32_t crc_of(const uint8_t *memory)
{
	const size_t at = offsetof(struct header, crc), next = at + sizeof(uint32_t);
	uint32_t crc = crc32c(0, memory, at);
	return crc32c(crc, memory + next, STAMP_SECTOR - next);
}

static bool all_zeros(const uint8_t *memory)
{
	return memory[0] == 0 && memcmp(memory, memory + 1, STAMP_SECTOR - 1) == 0;
}

uint64_t stamp_volume_id(const char *name)
{
	uint64_t id = 0x9e3779b97f4a7c15ull;
	for (; *name; name++)
		id = mix(id ^ (uint8_t)*name);
	return id;
}

void stamp_make(uint8_t memory[STAMP_SECTOR], const struct stamp *stamp)
{
	struct header header = {.magic = MAGIC,
		.volume = stamp->volume,
		.sector = stamp->sector,
		.sequence = stamp->sequence,
		.writer = stamp->writer};
	uint64_t fill[WORDS], state = mix(stamp->sequence) ^ stamp->sector;
	for (size_t i = 0; i < WORDS; i++)
		fill[i] = state = mix(state + i);
	memcpy(memory, &header, sizeof(header));
	memcpy(memory + sizeof(header), fill, sizeof(fill));
	header.crc = crc_of(memory);
	memcpy(memory + offsetof(struct header, crc), &header.crc, sizeof(header.crc));
}

enum stamp_look stamp_read(
	const uint8_t memory[STAMP_SECTOR], uint64_t volume, uint64_t sector, struct stamp *found)
{
	struct header header;
	memcpy(&header, memory, sizeof(header));
	*found = (struct stamp){.volume = header.volume,
		.sector = header.sector,
		.sequence = header.sequence,
		.writer = header.writer};
	if (all_zeros(memory))
		return STAMP_BLANK;
	if (header.magic != MAGIC || header.crc != crc_of(memory))
		return STAMP_TORN;
	if (header.volume != volume || header.sector != sector)
		return STAMP_MISPLACED;
	return STAMP_GOOD;
}
