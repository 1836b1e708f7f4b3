/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects in pages of the pool: one store for each shard, which see each other's only to list and
 * to copy. Pages go from a request to the store and from the store to a reader without a copy
 * where the request allows it.
 *
 * Units: bytes, pages. Errors: operations answer bytes of answer, or -errno: -ENOSPC beyond the
 * limit, -EAGAIN while the pool is low (do it again from the start). Ownership: the store's pages
 * are STORED and its own. Threads: the shard's lane. Blocking: none, but for a mutex when there
 * are several shards, held for one page.
 */
#ifndef SKERRY_BLOCKER_PAGESTORE_H
#define SKERRY_BLOCKER_PAGESTORE_H

#include <peer/job.h>
#include <pthread.h>
#include <stdatomic.h>

#include "peers/blocker/pagemap.h"

/* Of all shards. */
struct pagestore_shared {
	uint32_t limit; /* pages that all may take together */
	_Atomic uint32_t used;
	struct pagestore *_Atomic stores[XSEG_PORT_LANES_MAX];
};

struct pagestore {
	struct peer *peer;
	struct pagestore_shared *shared;
	struct pagemap map;
	pthread_mutex_t lock; /* of map and the contents of its pages; unused by a lone shard */
	uint32_t zero;	      /* a page of zeros, for readers of holes */
};

/* Before any shard's open: peer->shared is the struct pagestore_shared. size 0: half of the pool;
   more than three quarters: -EINVAL, as requests on their way need pages, too. */
int pagestore_limit(struct peer *first, uint64_t size, char *why, size_t why_size);
int pagestore_open(struct pagestore *store, struct peer *peer, char *why, size_t why_size);
void pagestore_close(struct pagestore *store);

/* peer_ops.expect, of a role whose state begins with the store: fetches the descriptors of the
   job's first pages. */
void pagestore_expect(struct peer *peer, struct job *job, unsigned step);
int pagestore_read(struct pagestore *store, struct job *job);
int pagestore_write(struct pagestore *store, struct job *job);
/* ZERO that keeps the space, or drops it; DISCARD. */
int pagestore_zero(struct pagestore *store, struct job *job);
int pagestore_copy(struct pagestore *store, struct job *job);
int pagestore_delete(struct pagestore *store, struct job *job);
int pagestore_info(struct pagestore *store, struct job *job);
int pagestore_status(struct pagestore *store, struct job *job, uint64_t *count);
int pagestore_list(struct pagestore *store, struct job *job, uint64_t *next);

#endif
