/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tape blocker. Lanes hand their requests to one thread, which has the drive and the index:
 *
 *   blocker_tape.c   the peer: options, lanes
 *   tape_work.c      the thread: what it does with requests, in which order
 *   tape_pass.c      reads, in the order of the tape
 *   tape_log.c       the log: blocks at places, its end, files, cartridges
 *   tape_scan.c      the start: which cartridges there are, the index from the tape
 *   tape_clean.c     cartridges whose contents are of no use any more; what operators ask
 *   tape_index.c     where everything lies (LMDB)
 *   tape_drive.h     drives: tape_image.c, tape_iscsi.c (with tape_scsi.c), tape_st.c
 *
 * Units: bytes, ns. Errors: 0 or -errno, sentences in drive.why. Threads: all but tape_work_take()
 * and what blocker_tape.c does on lanes is the thread's. Blocking: all of that.
 */
#ifndef SKERRY_BLOCKER_TAPE_H
#define SKERRY_BLOCKER_TAPE_H

#include <peer/post.h>
#include <peer/store.h>
#include <pthread.h>
#include <stdatomic.h>

#include "peers/blocker/home.h"
#include "peers/blocker/tape/tape_drive.h"
#include "peers/blocker/tape/tape_index.h"

struct tape_options {
	char *drive, *changer, *index;
	char *user, *password_file;
	uint64_t index_size, capacity, file, window, deadline, timeout, memory;
};

#define TAPE_NAME "blocker_tape" /* in the log */

enum tape_counter {
	TAPE_BLOCKS_WRITTEN,
	TAPE_BLOCKS_READ,
	TAPE_WOUND,
	TAPE_LOADS,
	TAPE_CLEANED,
	TAPE_OVERDUE,
	TAPE_RECONNECTS,
	TAPE_DRIVE_ERRORS,
	TAPE_COUNTERS
};

/* The block to come. */
struct tape_filling {
	uint8_t *bytes;
	struct tape_entry *entries;
	uint32_t used, count;
	bool grows;    /* something in it takes space */
	uint64_t done; /* so many before it are on the tape */
};

struct tape_store {
	const struct tape_options *options;
	struct peer *first;
	char home[PATH_LENGTH_MAX], password[256];
	struct tape_drive_options drive_options;
	struct tape_drive drive;
	struct tape_index index;
	uint64_t until_ns; /* what is done now gives up then */
	_Atomic uint64_t counters[TAPE_COUNTERS];
	uint64_t told[TAPE_COUNTERS];			  /* of them, to the segment */
	char said[sizeof(((struct tape_drive *)0)->why)]; /* in the log, */
	uint64_t said_ns;				  /* and when */
	/* the head; file UINT32_MAX: nobody knows */
	uint32_t mounted, file, block;
	/* the log's end */
	struct tape_filling fill, cleaning; /* cleaning: while `fill` waits for room */
	struct tape_entry *file_entries;    /* of the file so far */
	uint32_t file_count;
	uint64_t file_bytes;
	bool unsynced;
	bool full; /* the last block found no room */
	bool lost; /* what was answered is not on the tape: nothing is written any more */
	/* the last block read */
	uint8_t *room;
	struct tape_place in_room;
	/* the thread */
	pthread_t thread;
	bool runs;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct tape_tasks *work;
};

/* One request, from its lane to the thread and back. */
struct tape_task {
	struct post_item post; /* first */
	struct tape_store *store;
	struct job *job;
	TAILQ_ENTRY(tape_task) link;
	uint64_t since_ns;
	int answer;
	uint64_t value;
	uint8_t *bytes;	 /* what COPY has read */
	uint32_t cursor; /* of what takes many steps */
};
TAILQ_HEAD(tape_queue, tape_task);

static inline void tape_count(struct tape_store *store, enum tape_counter counter, uint64_t amount)
{
	atomic_fetch_add_explicit(&store->counters[counter], amount, memory_order_relaxed);
}

/* --- tape_log.c ------------------------------------------------------------------------------- */

int tape_log_open(struct tape_store *store);
void tape_log_close(struct tape_store *store);
/* The drive is away: tries to get it back until the time is up. */
bool tape_log_reopen(struct tape_store *store);
/* That slot's cartridge is in the drive; its first block is in store->room: 0; TAPE_END: it is
   blank; TAPE_MARK or -EILSEQ: it has something else. */
int tape_log_load(struct tape_store *store, uint32_t slot);
/* The block that is there, in store->room. TAPE_MARK, TAPE_END: there is none. */
int tape_log_read(struct tape_store *store, struct tape_place place);
const struct tape_block *tape_log_block(const struct tape_store *store);
const struct tape_entry *tape_log_entries(const struct tape_store *store);
int tape_log_skip_file(struct tape_store *store);
/* Room for so many bytes of an entry, to be filled before the next call. grows: it takes space. */
int tape_log_add(struct tape_store *store, struct tape_entry entry, uint32_t size, uint8_t **bytes,
	bool grows);
/* So much goes into the block that is being filled, beside its entry. */
uint32_t tape_log_left(const struct tape_store *store);
/* The block is on the tape, and in the index. */
int tape_log_write(struct tape_store *store);
int tape_log_sync(struct tape_store *store);
/* How many cartridges nothing was written to, or nothing is of use on. */
unsigned tape_log_available(struct tape_store *store);
unsigned tape_log_spare(const struct tape_store *store);
uint64_t tape_log_now(void);
void tape_log_say(struct tape_store *store, int error, const char *what);

/* --- tape_pass.c ------------------------------------------------------------------------------ */

/* A part of a block that is wanted: for a task's job or bytes, at `to`, or in memory. */
struct tape_piece {
	struct tape_place place;
	uint32_t at, length, to;
	uint32_t rank; /* low ones first, whatever the place */
	struct tape_task *task;
	uint8_t *memory;
};
struct tape_pieces {
	struct tape_piece *all;
	size_t count, room;
};
/* What a task wants of the range of an object: zeros at once, pieces for the rest. */
int tape_pass_want(struct tape_pieces *pieces, struct tape_task *task, const struct xseg_key *key);
/* Reads them all; who has no memory and fails has the error in task->answer. */
int tape_pass_run(struct tape_store *store, struct tape_pieces *pieces);

/* --- tape_scan.c ------------------------------------------------------------------------------ */

int tape_scan_start(struct tape_store *store, char *why, size_t why_size);
int tape_scan_rebuild(struct tape_store *store, char *why, size_t why_size);

/* --- tape_clean.c ----------------------------------------------------------------------------- */

/* The one to be cleaned next; NULL: none is full. */
struct tape_cartridge *tape_clean_oldest(struct tape_store *store);
/* Is there a cartridge worth cleaning, by itself? 0: no. */
uint32_t tape_clean_next(struct tape_store *store);
/* A part of it; 1: there is more. 0: it is free. */
int tape_clean_step(struct tape_store *store, uint32_t cartridge);
int tape_clean_room(struct tape_store *store); /* until there is more than the spare one */
int tape_clean_list(struct tape_store *store, struct job *job, uint64_t *value);
int tape_clean_label(struct tape_store *store, uint32_t slot, bool overwrite, uint64_t *value);
/* A part of it, from task->cursor on; task->value counts damaged blocks. 1: there is more. */
int tape_clean_verify_step(struct tape_store *store, struct tape_task *task);

/* --- tape_work.c ------------------------------------------------------------------------------ */

int tape_work_start(struct tape_store *store);
void tape_work_stop(struct tape_store *store);
void tape_work_take(struct peer *peer, struct job *job);

#endif
