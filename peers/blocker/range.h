/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every blocker asks of a request before it looks further.
 *
 * Units: bytes. Errors: -EINVAL. Threads: any. Blocking: none.
 */
#ifndef SKERRY_BLOCKER_RANGE_H
#define SKERRY_BLOCKER_RANGE_H

#include <errno.h>
#include <peer/job.h>

/* Whole sectors that lie inside the largest object. */
static inline int range_check(const struct job *job)
{
	if ((job->offset | job->length) % XSEG_SECTOR != 0 || job->offset > XSEG_OBJECT_MAX)
		return -EINVAL;
	return job->length <= XSEG_OBJECT_MAX - job->offset ? 0 : -EINVAL;
}

/* What COPY copies from. */
static inline struct xseg_key copy_source(const struct job *job)
{
	return (struct xseg_key){.volume = job->arg1,
		.epoch = (uint32_t)(job->arg0 >> 32),
		.object = (uint32_t)job->arg0};
}

/* The part of a range that lies in one page of the object. */
struct range_piece {
	uint32_t page;	 /* number within the object */
	uint32_t offset; /* in that page */
	uint32_t size;
	uint32_t at; /* in the job's data */
};

/* The piece that begins `at` bytes into the job's range. */
static inline struct range_piece range_piece(const struct job *job, uint32_t at)
{
	uint32_t from = (uint32_t)job->offset + at, left = job->length - at;
	uint32_t room = XSEG_PAGE - from % XSEG_PAGE;
	return (struct range_piece){
		.page = from / XSEG_PAGE,
		.offset = from % XSEG_PAGE,
		.size = left < room ? left : room,
		.at = at,
	};
}

#define RANGE_PIECES_MAX (XSEG_OBJECT_MAX / XSEG_PAGE)

#endif
