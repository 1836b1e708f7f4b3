/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds the writes of a volume for a moment: for a snapshot, a rollback, a smaller size.
 *
 * No shard counts what it forwards, so that the data path pays nothing: a hold takes everybody's
 * admission away (volume->admitted = 0, the word that each request looks at anyway), has each shard
 * pass a turn, and then waits until the request table has no write to the volume that is older.
 * Writes that come meanwhile wait in their shard, set aside; reads go on.
 *
 * Units: none. Errors: 0 or -errno; -EBUSY: somebody holds it; -ETIMEDOUT: a write has not ended
 * within VOLUME_HOLD_MS: nothing is held any more. Ownership: the caller's struct until done or
 * released. Threads: the lane that asked; done() there. Blocking: none. Killed while it is held,
 * the next process knows of no hold, and the requests that waited are served by it.
 */
#ifndef SKERRY_VOLUME_HOLD_H
#define SKERRY_VOLUME_HOLD_H

#include "peers/volume/volume.h"

#define VOLUME_HOLD_MS 10000u

/* Runs on every shard's lane, one after the other, then `done` on the one that asked, with the
   first error. Each shard's run() ends with volume_tour_next(). */
struct volume_tour {
	struct peer *peer; /* who asked */
	void (*run)(struct volume_tour *tour, struct peer *peer);
	void (*done)(struct volume_tour *tour, int error);
	unsigned left;
	int error;
	TAILQ_ENTRY(volume_tour) link;
};
void volume_tour_begin(struct volume_tour *tour);
void volume_tour_next(struct volume_tour *tour, struct peer *peer, int error);

struct volume_hold {
	struct peer *peer;
	struct volume *volume;
	void (*held)(struct volume_hold *hold, int error);
	struct job *job; /* on whose behalf: it is not waited for; may be NULL */
	bool reads;	 /* those, too */
	/* the room's own */
	struct volume_tour tour;
	bool toured;
	uint64_t since_ns, next_ns;
	TAILQ_ENTRY(volume_hold) link;
};
/* peer, volume, held, job and reads are set; the rest is 0. held() may run at once. */
void volume_hold_begin(struct volume_hold *hold);
void volume_hold_release(struct volume_hold *hold);

/* A job that met a hold: true: it waits, and is dispatched again. */
bool volume_hold_wait(struct peer *peer, struct volume *volume, struct job *job);
/* Who writes to a volume without a request of a client: true: he has begun, and says when he has
   ended; false: it is held, and volume_hold_wait() is for him. */
bool volume_hold_enter(struct peer *peer, struct volume *volume);
void volume_hold_leave(struct peer *peer, struct volume *volume);
/* A job that is set aside has done nothing yet: no hold waits for it. */
void volume_hold_aside(struct peer *peer, const struct job *job, bool aside);
/* Each turn. */
bool volume_hold_poll(struct peer *peer);
/* When it is to be called again, at the latest; UINT64_MAX: whenever. */
uint64_t volume_hold_due(struct peer *peer);

int volume_hold_open(struct peer *first);
void volume_hold_close(struct peer *first);

#endif
