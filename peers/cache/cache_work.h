/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests at work: reads, fills, and what a write does in each mode.
 *
 * Units: bytes of requests, buckets of objects. Errors: as said. Ownership: a job is with whoever
 * serves it until it is answered or waits. Threads: the shard's lane. Blocking: none.
 */
#ifndef SKERRY_CACHE_WORK_H
#define SKERRY_CACHE_WORK_H

#include "peers/cache/cache_object.h"

/* Somebody who waits for the store: a fill, a write that goes through. Of the pool `works`, which
   has one for each request of the segment and some for reading ahead. */
#define CACHE_FILL_PAGES 256u
struct cache_work {
	struct cache_range range;
	struct cache_object *object;
	struct job *job;	 /* who asked; NULL: nobody waits */
	struct job_queue joined; /* they asked for a part of the same */
	uint64_t idle_ns;	 /* the lane's, when it began */
	uint32_t changes, passed;
	uint32_t count; /* pages held; 0: the job's own are used */
	bool ahead, around, bypass;
	struct cache_barrier barrier;
	uint32_t pages[CACHE_FILL_PAGES];
};

/* --- cache_read.c, cache_write.c, cache_fill.c */
/* From position job->progress of the answer on: what is before it has been copied. */
void cache_read(struct peer *peer, struct cache_object *object, struct job *job);
/* All of a job from buckets, answered; false: something is missing. */
bool cache_read_whole(struct peer *peer, struct cache_object *object, struct job *job);
/* Buckets from a job's data (WRITE, or zeros: ZERO), dirty in that epoch. All or nothing: -EAGAIN:
   no room. -EBADMSG: the client has changed its request meanwhile. donate: pages are kept, so the
   job must be answered by the caller before it returns. The old pages are dropped by
   cache_write_end(), after that. */
int cache_write_buckets(struct peer *peer, struct cache_object *object, struct job *job,
	uint32_t epoch, bool donate);
void cache_write_end(struct peer *peer);
/* The store has a job's data: buckets that are there take it over; with `insert`, whole ones come
   in if there is room. Never fails: what cannot be kept is forgotten. */
void cache_write_clean(
	struct peer *peer, struct cache_object *object, struct job *job, bool insert);
/* Before it is sent: were we killed then, nobody could say which of both versions the store has. */
void cache_write_invalidate(struct peer *peer, struct cache_object *object, struct job *job);
/* The job waits for the store: buckets [first, first + count) are not all there. */
void cache_fill_read(struct peer *peer, struct cache_object *object, struct job *job,
	uint32_t first, uint32_t count);
/* Buckets that nobody has asked for yet, as far as there is room; false: none come. When they have,
   the job (NULL: none) begins again. */
bool cache_fill_ahead(struct peer *peer, struct cache_object *object, struct job *job,
	uint32_t first, uint32_t count);

/* cache_stream.c: a read that missed. True: it goes on a sequence that is too long to be kept. */
bool cache_stream_read(struct peer *peer, struct cache_object *object, const struct job *job);
/* A miss that is better passed on: what is fetched is seldom read again, and the store is fast. */
bool cache_stream_skips(struct cache *cache, struct cache_local *local);
void cache_stream_paid(
	struct cache *cache, struct cache_local *local, uint32_t count, uint64_t idle_ns);
/* Past us, to the store: nothing of it is dirty. */
void cache_fill_pass(struct peer *peer, struct cache_local *local, struct job *job);
/* A read that hit what was read ahead. */
void cache_stream_follow(struct peer *peer, struct cache_object *object, const struct job *job);

/* --- cache_mode_*.c */
struct cache_mode_ops {
	const char *name;
	void (*write)(struct peer *peer, struct cache_object *object, struct job *job);
};
extern const struct cache_mode_ops cache_mode_writethrough, cache_mode_writeback,
	cache_mode_writearound;
extern const struct cache_mode_ops *const cache_modes[3];
/* Is a write that goes through better handed on as it is? In write-through, most are where what
   they leave behind is seldom read, and the store is fast. */
bool cache_mode_writethrough_forwards(struct cache_local *local, uint32_t mode);
/* Past the buckets, to the store: `around` leaves none behind. Also for a ZERO. */
void cache_mode_writethrough_write(
	struct peer *peer, struct cache_object *object, struct job *job, bool around);
/* A write that there is no room for, and nothing of which is dirty: to the store, and no bucket
   comes in for it. Should the store refuse it, it waits for room after all. */
void cache_mode_writethrough_bypass(
	struct peer *peer, struct cache_object *object, struct job *job);

/* --- cache_bypass.c: writes that are forwarded as they are */
int cache_bypass_open(struct peer *peer);
void cache_bypass_close(struct peer *peer);
/* After a start: what a predecessor has handed on and nobody has answered yet. */
void cache_bypass_adopt(struct peer *peer);
/* Hands the job on if nobody holds its buckets and nothing in them is dirty; they are forgotten
   first, and none is made until it has ended. False: it has to be waited for. object: NULL when
   there is none. */
bool cache_bypass_write(
	struct peer *peer, struct cache_local *local, struct cache_object *object, struct job *job);
/* Is one of these on its way there? Then nothing of that place may be kept. */
bool cache_bypass_overlaps(
	struct peer *peer, const struct cache_object *object, uint32_t first, uint32_t count);
/* Now and then: those that have ended are let go. */
void cache_bypass_turn(struct peer *peer);
bool cache_bypass_any(const struct peer *peer);
/* Has anything but a read that was passed on, in whichever phase, not been answered yet? Looks at
   all requests. */
bool cache_bypass_is_out(const struct peer *peer);

#endif
