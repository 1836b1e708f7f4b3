/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records: what XSEG_OP_CAS asks for. The rules for all blockers, and a table in memory for those
 * that keep no longer than their process lives.
 *
 * Units: bytes. Errors: as <xseg/op.h> says of CAS; -EMSGSIZE: a GET without room for the record;
 * -ENOSPC beyond RECORD_COUNT_MAX. Ownership: the table's. Threads: one at a time. Blocking: none.
 */
#ifndef SKERRY_BLOCKER_RECORD_H
#define SKERRY_BLOCKER_RECORD_H

#include <errno.h>
#include <peer/job.h>

#define RECORD_COUNT_MAX (1u << 20) /* four for a volume: its two halves, its name, its home */

struct record {
	struct xseg_key key;
	uint64_t version; /* not 0 */
	uint32_t size;
	uint8_t data[];
};

/* In order of epoch, volume, object. */
struct record_table {
	struct record **records;
	uint32_t count, room;
};

static inline bool record_is(const struct xseg_key *key)
{
	return key->epoch == XSEG_EPOCH_NAME || key->epoch == XSEG_EPOCH_VOLUME ||
	       key->epoch == XSEG_EPOCH_HOME;
}

/* Of a record put over one of that version (0: there was none). */
uint64_t record_version_next(uint64_t found);
/* May a CAS job go ahead when the record's version is `found` (0: absent)? */
int record_check(const struct job *job, uint64_t found);
int record_compare(const struct xseg_key *a, const struct xseg_key *b);
/*
 * Of `count` keys in order, how many to answer when all with the last one's volume are asked for
 * again (the cursor of a list of records is a volume number): -E2BIG when that is none.
 */
int record_list_cut(const struct xseg_key *keys, uint32_t count, uint64_t next_volume);

void record_fini(struct record_table *table);
/* A CAS job: bytes of answer, or -errno; *value in either case. */
int record_cas(struct record_table *table, struct job *job, uint64_t *value);
/* A LIST job with a record's epoch: bytes of answer, or -errno; *next: cursor, 0: no more. */
int record_list(const struct record_table *table, struct job *job, uint64_t *next);

#endif
