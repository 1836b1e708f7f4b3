/* SPDX-License-Identifier: Apache-2.0 */
/* Write-around: answered when the store has it; no bucket keeps it. And the table of all modes. */
#include "peers/cache/cache.h"
#include "peers/cache/cache_work.h"

static void writearound_write(struct peer *peer, struct cache_object *object, struct job *job)
{
	cache_mode_writethrough_write(peer, object, job, true);
}

const struct cache_mode_ops cache_mode_writearound = {
	.name = "writearound",
	.write = writearound_write,
};

const struct cache_mode_ops *const cache_modes[3] = {
	[CACHE_WRITETHROUGH] = &cache_mode_writethrough,
	[CACHE_WRITEBACK] = &cache_mode_writeback,
	[CACHE_WRITEAROUND] = &cache_mode_writearound,
};
