/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who changes data of a folder at this moment: counters that all processes of this host have
 * mapped that serve it (docs/format-blocker-file.md). They lie in memory, where a write never meets
 * a full disk: in the folder of segments when the folder is shared, else in memory of our own.
 *
 * Volumes share counters by their id, CROWD_BINS of them: whoever waits for those of one volume
 * waits for one in CROWD_BINS of the others as well.
 *
 * Units: none. Errors: 0 or -errno. Ownership: the process's. Threads: any. Blocking: only
 * file_crowd_open() and file_crowd_close(); file_crowd_is_past() asks the kernel about locks.
 */
#ifndef SKERRY_BLOCKER_FILE_CROWD_H
#define SKERRY_BLOCKER_FILE_CROWD_H

#include <base/hash.h>
#include <base/sm.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define CROWD_MEMBERS 63u
#define CROWD_BINS 256u
#define CROWD_ID 16u

struct crowd_member {
	_Atomic uint64_t pid;
	uint8_t rest[56];
	_Atomic uint32_t inside[2][CROWD_BINS]; /* changes of data at work, by turn */
};
fixed(sizeof(struct crowd_member) == 64 + 8 * CROWD_BINS);

struct crowd_file {
	uint8_t id[CROWD_ID];	     /* which DIR/fence it belongs to */
	_Atomic uint64_t changes;    /* grows with each change of DIR/fence */
	_Atomic uint32_t at_work[4]; /* 1: somebody has this lock of the folder */
	uint8_t rest[24];
	_Atomic uint32_t turn[CROWD_BINS]; /* its lowest bit: which counters those use that go in */
	struct crowd_member members[CROWD_MEMBERS];
};

struct file_crowd {
	struct crowd_file *file;
	unsigned member; /* which of those that serve the folder we are */
};

/* Those of a volume that were inside at some time. */
struct file_crowd_past {
	unsigned bin;
	uint32_t from;
};

struct file_store;

/*
 * alone: nobody else serves the folder. id: of DIR/fence, and then of the counters that are made
 * when there are none of that id and we are alone. -EXDEV: we are not, and see other counters than
 * they do: they run in another container, or as somebody else.
 */
int file_crowd_open(struct file_store *store, uint8_t id[CROWD_ID], bool alone);
/* last: nobody else serves the folder. */
void file_crowd_close(struct file_store *store, bool last);

static inline unsigned crowd_bin(uint64_t volume)
{
	return (unsigned)(hash_u64(volume) >> 56) % CROWD_BINS;
}

/* A change of data begins; what is returned is to be given back when it ends. */
static inline unsigned file_crowd_enter(const struct file_crowd *crowd, uint64_t volume)
{
	struct crowd_file *file = crowd->file;
	unsigned turn = atomic_load(&file->turn[crowd_bin(volume)]) & 1;
	atomic_fetch_add(&file->members[crowd->member].inside[turn][crowd_bin(volume)], 1);
	return turn;
}

static inline void file_crowd_leave(const struct file_crowd *crowd, uint64_t volume, unsigned turn)
{
	atomic_fetch_sub(&crowd->file->members[crowd->member].inside[turn][crowd_bin(volume)], 1);
}

/* All that are inside now. */
struct file_crowd_past file_crowd_now(const struct file_crowd *crowd, uint64_t volume);
/* Have they all left? Also moves turns on, so it is to be asked again and again. */
bool file_crowd_is_past(const struct file_store *store, const struct file_crowd_past *past);
/* One of those that have not: its process. */
uint64_t file_crowd_who(const struct file_store *store, const struct file_crowd_past *past);

#endif
