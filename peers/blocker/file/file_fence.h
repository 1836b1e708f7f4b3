/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may write to which volume, as all processes know it that serve one folder: DIR/fence
 * (docs/format-blocker-file.md).
 *
 * A change of data goes from file_fence_enter() to file_fence_leave(). Who is given a volume waits
 * until all that went in before him have left: afterwards nothing of theirs is written any more.
 *
 *   file_fence_claim() -- FILE_FENCE_WAITS --> file_crowd_is_past()? --> file_fence_take()
 *
 * Units: none. Errors: 0 or -errno. Ownership: the process's. Threads: any. Blocking: enter, look
 * and leave do not; the others do: on worker threads only.
 */
#ifndef SKERRY_BLOCKER_FILE_FENCE_H
#define SKERRY_BLOCKER_FILE_FENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "peers/blocker/file/file_crowd.h"

#define FILE_FENCE_WAITS 1

struct fence_file; /* as it lies in the file */

struct file_fence {
	struct fence_file *file; /* NULL: it could not be made */
	int fd;
	uint64_t own; /* our segment */
	bool counts;  /* there may be others */
	int why;      /* there is none: -errno */
};

/* What a lane has last found out. */
struct file_fence_look {
	uint64_t volume, changes, line;
	bool mine;
};

/* XSEG_CONTROL_FENCE. */
struct file_fence_claim {
	uint64_t volume, term;
	uint64_t line; /* nobody else had it since that term; 0: not known */
	bool nobody;   /* it is to be nobody's */
	/* found by file_fence_claim(): */
	bool owed;		     /* what was written before is not known to be durable */
	struct file_crowd_past past; /* who is to leave first */
};

struct file_store;

/* Maps the file, which is made if it is missing. A store that is read-only or full has none: then
   all may write, and nobody can be fenced off. alone: nobody else serves the folder; last: the
   same. */
int file_fence_open(struct file_store *store, uint64_t own, bool alone);
void file_fence_close(struct file_store *store, bool last);

/* May it be written to by us, with data that is of that term (0: not known)? */
bool file_fence_look(const struct file_store *store, struct file_fence_look *look, uint64_t volume,
	uint64_t term);
/* The same, and then it is left when that is done: *turn is to be given back. */
bool file_fence_enter(const struct file_store *store, struct file_fence_look *look, uint64_t volume,
	uint64_t term, unsigned *turn);
void file_fence_leave(const struct file_store *store, uint64_t volume, unsigned turn);

/* One has a lock of the folder, and has it no more. True: one who had it was killed with it. */
bool file_fence_begin(struct file_store *store, unsigned lock);
void file_fence_end(struct file_store *store, unsigned lock);

/* 0: it is done; FILE_FENCE_WAITS: the volume is nobody's until file_fence_take(). */
int file_fence_claim(struct file_store *store, struct file_fence_claim *claim);
/* Those before have left. -ESTALE: meanwhile another has claimed it. */
int file_fence_take(struct file_store *store, const struct file_fence_claim *claim);
/* XSEG_CONTROL_LEAVE: all that we have written to it is durable, if that is its term (0: any). */
int file_fence_left(struct file_store *store, uint64_t volume, uint64_t term);
/* Its home record is gone, so it was removed, and its id is not used again: its place is free. What
   an owner of before still writes is garbage that the next sweep finds. */
void file_fence_forget(struct file_store *store, uint64_t volume);

#endif
