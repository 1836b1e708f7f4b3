/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quiesces a volume: its writes wait for a moment: for a snapshot, a rollback, a smaller size.
 *
 * No shard counts what it forwards, so that the data path pays nothing: a quiesce takes everybody's
 * admission away (volume->admitted = 0, the word that each request looks at anyway), has each shard
 * pass a turn, and then waits until the request table has no write to the volume that is older.
 * Writes that come meanwhile wait in their shard, set aside; reads go on.
 *
 * Units: none. Errors: 0 or -errno; -EBUSY: somebody else quiesces it; -ETIMEDOUT: a write has not
 * ended within VOLUME_QUIESCE_MS: nothing is quiesced any more. Ownership: the caller's struct
 * until done or released. Threads: the lane that asked; done() there. Blocking: none. Killed while
 * it is quiesced, the next process knows of no quiesce, and the requests that waited are served by
 * it.
 */
#ifndef SKERRY_VOLUME_HOLD_H
#define SKERRY_VOLUME_HOLD_H

#include "peers/volume/volume.h"

#define VOLUME_QUIESCE_MS 10000u

/* Runs on every shard's lane, one after the other, then `done` on the one that asked, with the
   first error. Each shard's run() ends with volume_quiesce_barrier_next(). */
struct volume_barrier {
	struct peer *peer; /* who asked */
	void (*run)(struct volume_barrier *barrier, struct peer *peer);
	void (*done)(struct volume_barrier *barrier, int error);
	unsigned left;
	int error;
	TAILQ_ENTRY(volume_barrier) link;
};
void volume_quiesce_barrier_begin(struct volume_barrier *barrier);
void volume_quiesce_barrier_next(struct volume_barrier *barrier, struct peer *peer, int error);

struct volume_quiesce {
	struct peer *peer;
	struct volume *volume;
	void (*quiesced)(struct volume_quiesce *quiesce, int error);
	struct job *job; /* on whose behalf: it is not waited for; may be NULL */
	bool reads;	 /* those, too */
	/* the room's own */
	struct volume_barrier barrier;
	bool passed;
	uint64_t since_ns, next_ns;
	TAILQ_ENTRY(volume_quiesce) link;
};
/* peer, volume, quiesced, job and reads are set; the rest is 0. quiesced() may run at once. */
void volume_quiesce_begin(struct volume_quiesce *quiesce);
void volume_quiesce_release(struct volume_quiesce *quiesce);

/* A job that met a quiesce: true: it waits, and is dispatched again. */
bool volume_quiesce_wait(struct peer *peer, struct volume *volume, struct job *job);
/* Who writes to a volume without a request of a client: true: he has begun, and says when he has
   ended; false: it is quiesced, and volume_quiesce_wait() is for him. */
bool volume_quiesce_enter(struct peer *peer, struct volume *volume);
void volume_quiesce_leave(struct peer *peer, struct volume *volume);
/* A job that is set aside has done nothing yet: no quiesce waits for it. */
void volume_quiesce_aside(struct peer *peer, const struct job *job, bool aside);
/* Each turn. */
bool volume_quiesce_poll(struct peer *peer);
/* When it is to be called again, at the latest; UINT64_MAX: whenever. */
uint64_t volume_quiesce_due(struct peer *peer);

int volume_quiesce_open(struct peer *first);
void volume_quiesce_close(struct peer *first);

#endif
