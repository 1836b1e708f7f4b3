/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records in memory (XSEG_OP_CAS), for stores that keep no longer than their process lives.
 *
 * Units: bytes. Errors: as <xseg/op.h> says of CAS; -EMSGSIZE: a GET without room for the record;
 * -ENOSPC beyond RECORD_COUNT_MAX. Ownership: the table's. Threads: one at a time. Blocking: none.
 */
#ifndef SKERRY_BLOCKER_RECORD_H
#define SKERRY_BLOCKER_RECORD_H

#include <peer/store.h>

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

void record_fini(struct record_table *table);
/* A CAS job: bytes of answer, or -errno; *value in either case. */
int record_cas(struct record_table *table, struct job *job, uint64_t *value);
/* A LIST job with a record's epoch: bytes of answer, or -errno; *next: cursor, 0: no more. */
int record_list(const struct record_table *table, struct job *job, uint64_t *next);

#endif
