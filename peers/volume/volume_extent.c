/* SPDX-License-Identifier: Apache-2.0 */
/* Joins what is known about stretches of objects into one list about the volume. */
#include "peers/volume/volume_extent.h"

bool volume_extent_add(struct volume_extents *extents, uint64_t length, uint32_t flags)
{
	if (length == 0)
		return true;
	if (extents->count > 0 && extents->list[extents->count - 1].flags == flags) {
		extents->list[extents->count - 1].length += length;
		return true;
	}
	if (extents->count == extents->max)
		return false;
	extents->list[extents->count++] =
		(struct xseg_status_extent){.length = length, .flags = flags};
	return true;
}

uint64_t volume_extent_add_answer(struct volume_extents *extents, uint64_t length,
	const struct xseg_status_extent *answer, uint32_t count)
{
	const uint32_t known = XSEG_STATUS_HOLE | XSEG_STATUS_ZERO | XSEG_STATUS_CACHED;
	uint64_t added = 0;
	for (uint32_t i = 0; i < count && added < length; i++) {
		uint64_t piece = answer[i].length;
		if (piece > length - added)
			piece = length - added;
		if (!volume_extent_add(extents, piece, answer[i].flags & known))
			break;
		added += piece;
	}
	return added;
}
