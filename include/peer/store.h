/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is the same in every peer that stores objects: which ranges there are, how they fall into
 * pages, and the rules of records. docs/write-a-blocker.md goes through it.
 *
 * Units: bytes. Errors: -errno, as <xseg/op.h> says. Threads: any. Blocking: none.
 */
#ifndef SKERRY_PEER_STORE_H
#define SKERRY_PEER_STORE_H

#include <errno.h>
#include <peer/job.h>

/* --- ranges --------------------------------------------------------------------------------- */

/* -EINVAL unless it is whole sectors that lie inside the largest object; -EOPNOTSUPP: what a cache
   has of it was asked for. */
static inline int store_range_check(const struct job *job)
{
	if (job->op == XSEG_OP_STATUS && (job->flags & XSEG_F_FAST_ONLY))
		return -EOPNOTSUPP;
	if ((job->offset | job->length) % XSEG_SECTOR != 0 || job->offset > XSEG_OBJECT_MAX)
		return -EINVAL;
	return job->length <= XSEG_OBJECT_MAX - job->offset ? 0 : -EINVAL;
}

/* What COPY copies from. */
static inline struct xseg_key store_copy_source(const struct job *job)
{
	return (struct xseg_key){.volume = job->arg1,
		.epoch = (uint32_t)(job->arg0 >> 32),
		.object = (uint32_t)job->arg0};
}

/* INFO of the store itself, and its answer: bytes of it, or -errno. */
static inline bool store_space_asked(const struct job *job)
{
	return job->op == XSEG_OP_INFO && job->key.volume == 0;
}
int store_space_answer(struct job *job, uint64_t total, uint64_t free);

/* The part of a range that lies in one page of the object. */
struct store_piece {
	uint32_t page;	 /* number within the object */
	uint32_t offset; /* in that page */
	uint32_t size;
	uint32_t at; /* in the job's data */
};
#define STORE_PIECES_MAX (XSEG_OBJECT_MAX / XSEG_PAGE)

/* The piece that begins `at` bytes into the job's range. */
static inline struct store_piece store_piece_of(const struct job *job, uint32_t at)
{
	uint32_t from = (uint32_t)job->offset + at, left = job->length - at;
	uint32_t room = XSEG_PAGE - from % XSEG_PAGE;
	return (struct store_piece){
		.page = from / XSEG_PAGE,
		.offset = from % XSEG_PAGE,
		.size = left < room ? left : room,
		.at = at,
	};
}

/* For each piece of a job's range. */
#define STORE_FOREACH(piece, job) \
	for (struct store_piece piece = store_piece_of(job, 0); (piece).at < (job)->length; \
		(piece) = store_piece_of(job, (piece).at + (piece).size))

/* Does a DISCARD or ZERO give the space back? */
static inline bool store_makes_hole(const struct job *job)
{
	return job->op == XSEG_OP_DISCARD ||
	       (job->op == XSEG_OP_ZERO && !(job->flags & XSEG_F_NO_HOLE));
}

/* Pages of a range's bytes that are all zeros, or all not, as far as they go: for stores that
   cannot tell holes from what was written as zeros. Begin with {0}; it moves on to the next one,
   false: there is none. */
struct store_stretch {
	uint32_t at, size; /* in the job's range */
	bool zero;
};
bool store_stretch_next(const struct job *job, const char *bytes, struct store_stretch *s);

/* --- records -------------------------------------------------------------------------------- */

static inline bool store_record_is(const struct xseg_key *key)
{
	return key->epoch == XSEG_EPOCH_NAME || key->epoch == XSEG_EPOCH_VOLUME ||
	       key->epoch == XSEG_EPOCH_HOME;
}

/* May a CAS job go ahead when the record's version is `found` (0: absent)? 0, or its answer. */
int store_record_check(const struct job *job, uint64_t found);
/*
 * Of a record put over one of that version (0: there was none). A new one's begins at the clock, in
 * ns: what was deleted and is put again has none of the versions that it had before, as long as the
 * clock is not set back by just so much.
 */
uint64_t store_record_version_next(uint64_t found);

/* GET's answer: bytes, or -EMSGSIZE. */
int store_record_answer(struct job *job, const void *record, size_t size);

/* --- answers -------------------------------------------------------------------------------- */

/* The order of lists, <0, 0, >0: of objects by volume, object, epoch; of records by epoch, volume,
   object. Objects come before records. */
int store_key_compare(const struct xseg_key *a, const struct xseg_key *b);

/*
 * LIST: begin with {.job = job}, add the keys that are wanted, end. The cursor says
 * where in that order the next one stands, so objects may come and go between two questions. Who
 * adds in order may stop when it is full.
 */
struct store_list {
	struct job *job;
	struct xseg_key *keys;
	uint32_t count, room;
	int error;
};
/* The first key that may be wanted: where the cursor stands. */
struct xseg_key store_list_from(const struct job *job);
/* Of that volume or kind of record, and not before the cursor. */
bool store_list_wants(const struct job *job, const struct xseg_key *key);
void store_list_add(struct store_list *list, struct xseg_key key);
bool store_list_full(const struct store_list *list);
/* Puts what fits into the job's data: bytes, or -errno. *value: the cursor, 0: no more. */
int store_list_end(struct store_list *list, uint64_t *value);
/* The same in the order in which they were added, for a store that has another one. */
int store_list_put(struct store_list *list, uint64_t *value);

/* Ends the job: so many bytes, or -errno, and the value in either case. */
void store_answer(struct job *job, int answer, uint64_t value);

/* STATUS: begin with {.job = job}, add stretches from job->offset on while there is room, end. */
struct store_status {
	struct job *job;
	struct xseg_status_extent last;
	uint32_t count;
};
/* flags: XSEG_STATUS_*. False: there is no room for it; the asker goes on from there. */
bool store_status_flags(struct store_status *status, uint64_t length, uint32_t flags);
static inline bool store_status_add(struct store_status *status, uint64_t length, bool hole)
{
	return store_status_flags(status, length, hole ? XSEG_STATUS_HOLE | XSEG_STATUS_ZERO : 0);
}
/* Bytes. *value: how many stretches. */
int store_status_end(struct store_status *status, uint64_t *value);
/* All of it, for a store that has to read the range: what reads as zeros is called a hole. */
int store_status_of(struct job *job, const char *bytes, uint64_t *value);

#endif
