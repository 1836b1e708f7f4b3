/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a volume leaves in the store: two records (docs/format-volume-record.md).
 *
 * Units: bytes. Errors: -EILSEQ (not such a record, or damaged), -EPROTO (of another version).
 * Ownership: caller's buffers. Threads: any. Blocking: none.
 */
#ifndef SKERRY_VOLUME_RECORD_H
#define SKERRY_VOLUME_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <xseg/op.h>

#define VOLUME_RECORD_SIZE 316u
#define VOLUME_NAME_RECORD_SIZE 284u

/* At {id, XSEG_EPOCH_VOLUME, 0}: what the volume is. */
struct volume_record {
	uint64_t id;
	uint64_t size;
	uint32_t object_size;
	uint32_t state; /* enum xseg_volume_state */
	uint32_t flags; /* XSEG_VOLUME_READ_ONLY */
	uint64_t created_ns;
	char name[VOLUME_NAME_LENGTH_MAX + 1];
};

/* At {hash of the name, XSEG_EPOCH_NAME, 0}: whose name it is. */
struct volume_name_record {
	uint64_t id;
	char name[VOLUME_NAME_LENGTH_MAX + 1];
};

/* May a volume look like this? 0 or -EINVAL. */
int volume_record_check(const struct volume_record *record);
/* The record must pass volume_record_check(). */
void volume_record_encode(const struct volume_record *record, uint8_t out[VOLUME_RECORD_SIZE]);
int volume_record_decode(const uint8_t *from, size_t size, struct volume_record *record);

void volume_name_record_encode(
	const struct volume_name_record *record, uint8_t out[VOLUME_NAME_RECORD_SIZE]);
int volume_name_record_decode(const uint8_t *from, size_t size, struct volume_name_record *record);

/* Where a name's record lies; never 0. */
uint64_t volume_name_hash(const char *name);

#endif
