/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stretch of a volume as stretches of its objects.
 *
 * Units: bytes; object sizes are 1 << shift. Threads: any.
 */
#ifndef SKERRY_VOLUME_SPAN_H
#define SKERRY_VOLUME_SPAN_H

#include <stdbool.h>
#include <stdint.h>

struct volume_span {
	uint32_t object; /* number within the volume */
	uint32_t offset; /* in the object */
	uint32_t at;	 /* in the request's data */
	uint32_t length;
};

/* What of [offset, offset + length) begins at its byte `at`; false at the end. */
static inline bool volume_span_at(
	uint64_t offset, uint32_t length, unsigned shift, uint32_t at, struct volume_span *span)
{
	if (at >= length)
		return false;
	const uint32_t object_size = 1u << shift;
	uint64_t position = offset + at;
	span->object = (uint32_t)(position >> shift);
	span->offset = (uint32_t)position & (object_size - 1);
	span->at = at;
	span->length = object_size - span->offset;
	if (span->length > length - at)
		span->length = length - at;
	return true;
}

/* Does it lie in one object? */
static inline bool volume_span_single(uint64_t offset, uint32_t length, unsigned shift)
{
	uint64_t object_size = 1ull << shift;
	return (offset & (object_size - 1)) + length <= object_size;
}

#endif
