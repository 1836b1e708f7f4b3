/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where everything lies: an LMDB database in a folder. It can be made again from the cartridges;
 * what is in it is durable at tape_index_commit(), and what came later is read from the end of the
 * log when the store starts.
 *
 *   e volume object epoch offset   an extent: length, and where its bytes lie
 *   o volume object epoch          an object: its size, and the cartridge that says so
 *   r epoch volume object          a record: the cartridge that has it, its version, its bytes
 *   c number                       a cartridge
 *   m                              the store: tape_index_head
 *
 * Errors: 0 or -errno; after one the index has lost what was not committed, and is used no more.
 * Threads: one at a time (LMDB is used without its locks: the folder is locked as a whole).
 * Blocking: all, a commit for a disk's sync.
 */
#ifndef SKERRY_BLOCKER_TAPE_INDEX_H
#define SKERRY_BLOCKER_TAPE_INDEX_H

#include <lmdb.h>
#include <stdbool.h>

#include "peers/blocker/tape/tape_format.h"

/* Of a block on a cartridge. */
struct tape_place {
	uint32_t cartridge, file, block, reserved;
	uint64_t position;
};

#define TAPE_NO_BYTES UINT32_MAX /* extent.at of zeros */
struct tape_extent {
	uint32_t length;
	uint32_t at; /* where its bytes begin in the block */
	struct tape_place place;
};

enum tape_cartridge_state { TAPE_BLANK, TAPE_ACTIVE, TAPE_FULL, TAPE_FREE };
struct tape_cartridge {
	uint32_t number, use, state;
	uint32_t slot, unusable, reserved;
	uint64_t first;	  /* sequence of its first entry */
	uint64_t freed;	  /* sequence when it was cleaned */
	uint64_t written; /* bytes of blocks */
	uint64_t live;	  /* bytes that are still of use */
	char barcode[40];
};

/* How the index stands: what is before this place is in it. */
struct tape_index_head {
	uint8_t store[16];
	uint64_t sequence;	/* of the next entry */
	struct tape_place end;	/* of the next block; cartridge 0: none is begun */
	uint64_t file_sequence; /* of the first entry of the file */
	uint32_t file_entries;	/* unused entries follow from the tape */
	uint32_t cartridges;	/* the highest number given */
};

struct tape_index {
	MDB_env *env;
	MDB_txn *txn; /* open all the time */
	MDB_dbi dbi;
	int lock;
	int error;			   /* the first that LMDB had */
	struct tape_cartridge *cartridges; /* by number - 1 */
	struct tape_index_head head;
};

/* `dir` is made when missing, and is this process's alone. head.sequence 0: it is empty. */
int tape_index_open(
	struct tape_index *index, const char *dir, uint64_t size, char *why, size_t why_size);
void tape_index_close(struct tape_index *index);
/* Cartridges and head, too. */
int tape_index_commit(struct tape_index *index);
/* Forgets all but the cartridges' slots and barcodes. */
int tape_index_clear(struct tape_index *index);
struct tape_cartridge *tape_index_cartridge_add(struct tape_index *index);
static inline struct tape_cartridge *tape_index_cartridge(struct tape_index *index, uint32_t number)
{
	return number && number <= index->head.cartridges ? &index->cartridges[number - 1] : NULL;
}

/* What an entry says, which lies there; bytes: a record's. */
int tape_index_apply(struct tape_index *index, const struct tape_entry *entry,
	struct tape_place place, const void *bytes);

/* The extent that has *offset or, if none has, the next one; then *offset is where it begins.
   false: there is none before `end`. */
bool tape_index_extent(struct tape_index *index, const struct xseg_key *key, uint32_t *offset,
	uint32_t end, struct tape_extent *extent);
/* How far it reaches; false: there is no such object. */
bool tape_index_size(struct tape_index *index, const struct xseg_key *key, uint32_t *size);

struct tape_record {
	uint64_t version; /* 0: there is none */
	uint32_t size;
	uint8_t data[XSEG_RECORD_MAX];
};
void tape_index_record(
	struct tape_index *index, const struct xseg_key *key, struct tape_record *record);

/* Keys of objects or of records of that epoch, from `from` on, until `take` is false. */
void tape_index_keys(struct tape_index *index, struct xseg_key from, bool records,
	bool (*take)(void *context, const struct xseg_key *key), void *context);

/* What is still of use on a cartridge, as entries with their places; at most `max`. Extents, then
   sizes and records; how many. */
struct tape_live {
	struct tape_entry entry;
	struct tape_place place;
};
unsigned tape_index_live(
	struct tape_index *index, uint32_t cartridge, struct tape_live *live, unsigned max);

#endif
