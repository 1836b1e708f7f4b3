/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FLUSH: the intents of a volume are gathered, the store is flushed, then they are published
 * to the mapper, in that order, so that the map never says more than the store has
 * (volume_intent.h).
 *
 * Units: none. Errors: 0 or -errno. Ownership: caller's. Threads: the shard's lane. Blocking: none.
 */
#ifndef SKERRY_VOLUME_FLUSH_H
#define SKERRY_VOLUME_FLUSH_H

#include "peers/volume/volume_intent.h"

struct volume_flush {
	struct volume_publish publish; /* first */
	void (*done)(struct volume_flush *flush, int error);
	void *context;
	uint16_t flags; /* of the store's FLUSH */
};
/* peer and volume of flush->tell, and done, are set; the rest is 0. What was written before by this
   shard is durable when it is done; the store is flushed by this shard's part alone. */
void volume_flush_begin(struct volume_flush *flush, struct peer *peer, uint64_t volume,
	void (*done)(struct volume_flush *flush, int error));
/* Ends a job with that: a write with FUA whose parts are written. */
void volume_flush_then(struct peer *peer, struct job *job, uint32_t length);
/* Too many intents: flushes in the background. */
void volume_flush_poll(struct peer *peer);

#endif
