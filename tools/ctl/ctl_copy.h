/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What import and export share: how much to have in flight, and finding zeros.
 *
 * Units: bytes. Threads: one.
 */
#ifndef SKERRY_TOOLS_CTL_COPY_H
#define SKERRY_TOOLS_CTL_COPY_H

#include "tools/ctl/ctl_volume.h"

#define CTL_COPY_DEPTH_MAX 16u
#define CTL_COPY_CHUNK_MAX (1u << 20)
#define CTL_COPY_BLOCK 4096u /* zeros are looked for in blocks of this size */
/* Removing and flushing a large volume takes its time; used when --timeout is not given. */
#define CTL_COPY_PATIENCE_NS (600ull * 1000000000u)

struct ctl_copy_plan {
	uint32_t chunk; /* power of two, at least a block */
	unsigned depth;
};

/* At most a quarter of the segment's pages. */
void ctl_copy_plan(const struct xseg *seg, struct ctl_copy_plan *plan);
/* The next run of blocks from *at on that are not all zero: false when there is none. */
bool ctl_copy_run(const uint8_t *data, uint32_t length, uint32_t *at, uint32_t *run);
/* Waits longer from now on, unless the user said how long. */
void ctl_copy_patience(const struct ctl *ctl, struct client *client);
/* After an error: takes the answers that are still to come, unless none come any more. */
void ctl_copy_drain(const struct ctl *ctl, struct client *client);

#endif
