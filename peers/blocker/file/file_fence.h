/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may write to which volume, as all processes know it that serve one folder: DIR/fence
 * (docs/format-blocker-file.md), mapped by each of them.
 *
 * A change of data goes from file_fence_enter() to file_fence_leave(). Who is given a volume waits
 * until all that went in before him have left: afterwards nothing of theirs is written any more.
 *
 * Units: none. Errors: 0 or -errno. Ownership: the process's. Threads: any. Blocking: enter and
 * leave do not; the others do: on worker threads only.
 */
#ifndef SKERRY_BLOCKER_FILE_FENCE_H
#define SKERRY_BLOCKER_FILE_FENCE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct fence_file; /* as it lies in the file */

struct file_fence {
	struct fence_file *file; /* NULL: it could not be made */
	uint64_t own;		 /* our segment */
	unsigned member;	 /* which of those that serve the folder we are */
	bool counts;		 /* there may be others */
	int why;		 /* there is none: -errno */
};

/* What a lane has last found out. */
struct file_fence_look {
	uint64_t volume, changes;
	bool mine;
};

struct file_store;

/* Maps the file, which is made if it is missing. A store that is read-only or full has none:
   then all may write, and nobody can be fenced off. */
int file_fence_open(struct file_store *store, uint64_t own);
void file_fence_close(struct file_store *store);

/* May it be written to by us? */
bool file_fence_look(const struct file_fence *fence, struct file_fence_look *look, uint64_t volume);
/* The same, and then it is left when that is done: *turn is to be given back. */
bool file_fence_enter(
	struct file_fence *fence, struct file_fence_look *look, uint64_t volume, unsigned *turn);
void file_fence_leave(struct file_fence *fence, unsigned turn);

/* One has a lock of the folder, and has it no more. True: one who had it was killed with it. */
bool file_fence_begin(struct file_fence *fence, unsigned lock);
void file_fence_end(struct file_fence *fence, unsigned lock);

/* XSEG_CONTROL_FENCE. */
int file_fence_set(struct file_store *store, uint64_t volume, uint64_t term, bool nobody);
/* XSEG_CONTROL_LEAVE: all that we have written to it is durable. */
int file_fence_left(struct file_store *store, uint64_t volume);
/* Its home record is gone, so it was removed, and its id is not used again: its place is free. What
   an owner of before still writes is garbage that the next sweep finds. */
void file_fence_forget(struct file_store *store, uint64_t volume);

#endif
