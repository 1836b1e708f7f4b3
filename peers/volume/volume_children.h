/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is remembered of partial objects, for volume_child.c, which reads them, and volume_copy.c,
 * which writes them.
 *
 * Units: granules. Errors: as noted. Ownership: the process's table; one with refs stays.
 * Threads: all functions take the mutex themselves, but those that say otherwise. Blocking: none.
 */
#ifndef SKERRY_VOLUME_CHILDREN_H
#define SKERRY_VOLUME_CHILDREN_H

#include "peers/volume/volume_child.h"
#include "peers/volume/volume_map.h"

#define CHILDREN_BUCKETS 16384u

struct child {
	LIST_ENTRY(child) link;
	TAILQ_ENTRY(child) order; /* the least recently used first; those without refs */
	uint64_t owner;
	uint32_t epoch, object;
	uint32_t refs;
	bool known; /* its presence has come; else somebody asks for it */
	int error;  /* it cannot be had: for those who waited */
	uint64_t parent_owner;
	uint32_t parent_epoch, parent_flags;
	uint64_t has[MAP_HAS_WORDS];
	uint64_t busy[MAP_HAS_WORDS]; /* being made: other writes wait */
};
LIST_HEAD(child_list, child);

struct children {
	pthread_mutex_t lock;
	uint32_t count;
	struct child_list buckets[CHILDREN_BUCKETS];
	TAILQ_HEAD(, child) order;
};

/* A run of granules of an object of a volume, and who has it. */
struct child_run {
	struct xseg_key key; /* volume 0: nobody, it is zeros */
	uint32_t count;
};

static inline struct children *children_of(const struct peer *peer)
{
	return ((struct volume_shared *)peer->shared)->children;
}

static inline bool child_bit(const uint64_t words[MAP_HAS_WORDS], uint32_t granule)
{
	return words[granule / 64] >> (granule % 64) & 1;
}
void child_bits_set(uint64_t words[MAP_HAS_WORDS], uint32_t first, uint32_t count);
void child_bits_clear(uint64_t words[MAP_HAS_WORDS], uint32_t first, uint32_t count);
bool child_bits_all(const uint64_t words[MAP_HAS_WORDS], uint32_t first, uint32_t count);
bool child_bits_any(const uint64_t words[MAP_HAS_WORDS], uint32_t first, uint32_t count);

/*
 * Who has granule `first` of what lies at `key` (a partial object), and how many behind it, at most
 * `most`. skip: of its parent's; `key` itself is known. -EINPROGRESS: a presence on the way down is
 * not known and is being asked for: child_wait(). Other errors: it cannot be known.
 */
int child_resolve(struct volume_part *part, const struct xseg_key *key, bool skip, uint32_t first,
	uint32_t most, struct child_run *run);
/* The same, if all of it is known; else -EINPROGRESS, and nobody is asked. */
int child_known(struct peer *peer, const struct xseg_key *key, uint32_t first, uint32_t most,
	struct child_run *run);
/* Looks part->volume up for this turn; false: it is gone. */
bool child_volume(struct volume_part *part);
/* One that is there, or is being asked for, with a ref; NULL: child_none() says why. With the
   mutex. */
struct child *child_get(struct peer *peer, const struct xseg_key *key);
/* -EAGAIN: the shard asks for too many already; -ENOMEM. */
int child_none(const struct peer *peer);

/* With the mutex. NULL: not remembered. */
struct child *child_find(
	struct children *children, uint64_t owner, uint32_t epoch, uint32_t object);
/* With the mutex: one that nobody knows yet, known, with a ref. NULL: no memory. */
struct child *child_add(struct children *children, uint64_t owner, uint32_t epoch, uint32_t object);
void child_ref(struct children *children, struct child *child);	  /* with the mutex */
void child_unref(struct children *children, struct child *child); /* with the mutex */

/* It does not wait for part->waits after all. */
void child_wait_not(struct volume_part *part);
/* The stretch of part->job goes to part->own; -EAGAIN. */
int child_send(struct volume_part *part, call_done_f *done);
/* Runs again(part) in one of the lane's next turns: slots or pages were short, or part->waits. */
void child_wait(struct volume_part *part, void (*again)(struct volume_step *step));

#endif
