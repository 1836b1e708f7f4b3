/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the answer of STATUS: stretches in order, without gaps, neighbours of one kind joined.
 *
 * Units: bytes. Ownership: the list is the caller's. Threads: any. Blocking: none.
 */
#ifndef SKERRY_VOLUME_EXTENT_H
#define SKERRY_VOLUME_EXTENT_H

#include <stdbool.h>
#include <xseg/op.h>

struct volume_extents {
	struct xseg_status_extent *list;
	uint32_t count, max;
};

/* false: the list is full, nothing was added. A stretch of nothing is always added. */
bool volume_extent_add(struct volume_extents *extents, uint64_t length, uint32_t flags);
/*
 * Adds what a store said about `length` bytes, and nothing beyond. Returns how many bytes were
 * added: fewer than `length` when the store said less or the list is full.
 */
uint64_t volume_extent_add_answer(struct volume_extents *extents, uint64_t length,
	const struct xseg_status_extent *answer, uint32_t count);

#endif
