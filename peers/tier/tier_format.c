/* SPDX-License-Identifier: Apache-2.0 */
/* What the near store has of the tier's own: docs/format-tier.md. */
#include <base/crc32c.h>

#include "peers/tier/tier.h"

#define LOG_OBJECT_BLOCKS (XSEG_OBJECT_MAX / TIER_BLOCK)
#define EPOCH_TOUCH 3u

static const uint8_t record_magic[8] = "SKRYTIER";

struct xseg_key tier_format_log_key(uint64_t generation, uint64_t block)
{
	return (struct xseg_key){.volume = TIER_VOLUME,
		.epoch = 1 + (uint32_t)(generation % 2),
		.object = (uint32_t)(block / LOG_OBJECT_BLOCKS)};
}

struct xseg_key tier_format_record_key(void)
{
	return (struct xseg_key){.volume = TIER_VOLUME, .epoch = XSEG_EPOCH_HOME};
}

struct xseg_key tier_format_touch_key(void)
{
	return (struct xseg_key){.volume = TIER_VOLUME, .epoch = EPOCH_TOUCH};
}

static uint32_t block_checksum(const struct tier_block *block)
{
	return crc32c(0, &block->count, sizeof(*block) - sizeof(block->checksum));
}

void tier_format_seal(struct tier_block *block) { block->checksum = block_checksum(block); }

bool tier_format_block_good(const struct tier_block *block, uint64_t generation, uint64_t number)
{
	return block->generation == generation && block->number == number &&
	       block->count <= TIER_BLOCK_ENTRIES && block->checksum == block_checksum(block);
}

static uint32_t record_checksum(const struct tier_record *record)
{
	size_t from = offsetof(struct tier_record, generation);
	return crc32c(0, (const uint8_t *)record + from, sizeof(*record) - from);
}

void tier_format_record_seal(struct tier_record *record)
{
	memcpy(record->magic, record_magic, sizeof(record_magic));
	record->version = 1;
	record->checksum = record_checksum(record);
}

int tier_format_record_check(const struct tier_record *record, size_t size)
{
	if (size != sizeof(*record) || memcmp(record->magic, record_magic, sizeof(record_magic)))
		return -EILSEQ;
	if (record->version != 1)
		return -EPROTO;
	return record->checksum == record_checksum(record) ? 0 : -EILSEQ;
}
