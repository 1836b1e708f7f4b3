/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may write to a volume: its home record, changed by cas alone.
 *
 * Each change of owner takes the next term. The lease is renewed while the volume is open; when it
 * has run out anybody may take the volume. The old owner, should it live, is fenced: the stores
 * refuse writes of a lower term (XSEG_CONTROL_FENCE, <xseg/op.h>), and its next renewal tells it
 * that it has lost the volume.
 *
 * Units: ns of the wall clock. Errors: 0 or -errno; -EBUSY: somebody else has it, *found says who;
 * -ESTALE: it is no longer ours. Ownership: caller's. Threads: any. Blocking: the store's.
 */
#ifndef SKERRY_MAP_HOME_H
#define SKERRY_MAP_HOME_H

#include "peers/map/map_format.h"
#include "peers/map/map_store.h"

struct map_claim {
	uint64_t owner; /* ours; not 0 */
	uint64_t now_ns, lease_ns;
	const char *host;
	uint64_t place, boot; /* as in struct map_home */
};

/* Ours from now on; ours already: renewed, the term stays. `force`: whoever has it. */
int map_home_acquire(struct map_store *store, uint64_t id, const struct map_claim *claim,
	bool force, struct map_home *found);
/* -ESTALE: lost. */
int map_home_renew(struct map_store *store, uint64_t id, const struct map_claim *claim,
	uint64_t term, struct map_home *found);
/* Fine when it is not ours any more. */
int map_home_release(struct map_store *store, uint64_t id, uint64_t owner, uint64_t term);
/* -ENOENT: nobody ever had it. */
int map_home_read(struct map_store *store, uint64_t id, struct map_home *found);

#endif
