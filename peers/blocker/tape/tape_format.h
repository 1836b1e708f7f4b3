/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies on a cartridge: docs/format-blocker-tape.md. Little-endian, as it stands here.
 *
 * A cartridge is files of blocks, with a filemark behind each file. The first block of the first
 * file is the label, that of each other one the index of the file before it, all others are data: a
 * header, what was written, and at the block's end an entry for each part of it. A block says all
 * about itself, so everything else can be made again from the cartridges.
 */
#ifndef SKERRY_BLOCKER_TAPE_FORMAT_H
#define SKERRY_BLOCKER_TAPE_FORMAT_H

#include <base/must.h>
#include <xseg/op.h>

#define TAPE_MAGIC "SKTAPE1"
/* The largest block. tgt gives wrong bytes beyond the residual of a READ, so what is read is asked
   for with twice the room: its blocks have at most 1 MiB. */
#define TAPE_BLOCK (512u << 10)
#define TAPE_ROOM (2 * TAPE_BLOCK)
/* Of one file: its index is one block. */
#define TAPE_FILE_ENTRIES 12000u

enum tape_block_kind { TAPE_LABEL = 1, TAPE_DATA, TAPE_INDEX };

struct tape_block {
	char magic[8];
	uint8_t store[16];  /* identity of the store */
	uint32_t cartridge; /* number within the store, from 1 on */
	uint32_t use;	    /* how often the cartridge was begun anew, from 1 on */
	uint32_t file, block;
	uint64_t position; /* blocks and filemarks before it on the cartridge */
	uint64_t sequence; /* of its first entry; of a label: of the first to come */
	uint32_t kind;
	uint32_t entries; /* of a label: numbers of cartridges */
	uint32_t size;	  /* all of it */
	uint32_t blocks;  /* of an index: blocks of the file it is of */
	uint64_t oldest;  /* of a label: what has a lower sequence is of no use any more */
	uint64_t hash;	  /* XXH3 of the block, with 0 here */
};
fixed(sizeof(struct tape_block) == 88);

enum tape_entry_kind {
	TAPE_WRITE = 1, /* bytes of an object */
	TAPE_ZERO,	/* zeros of it, that have no bytes and are no hole */
	TAPE_HOLE,
	TAPE_SIZE, /* the object reaches to offset, at least */
	TAPE_DELETE,
	TAPE_RECORD, /* its version, and its bytes */
	TAPE_RECORD_DELETE,
};

struct tape_entry {
	struct xseg_key key;
	uint32_t offset, length; /* in the object; of a record: length of what is in the block */
	uint32_t at;		 /* where its bytes begin in the block */
	uint32_t block;		 /* number of the block in its file */
	uint32_t kind;
	uint32_t reserved;
};
fixed(sizeof(struct tape_entry) == 40);
fixed(sizeof(struct tape_block) + (uint64_t)TAPE_FILE_ENTRIES * sizeof(struct tape_entry) <=
	TAPE_BLOCK);

#endif
