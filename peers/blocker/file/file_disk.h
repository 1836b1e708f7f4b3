/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder behind the file blocker (docs/format-blocker-file.md): opening and locking it, and
 * what is done to its files with calls that block.
 *
 * Units: bytes. Errors: 0 or -errno; -EIO also when the folder was removed under us. Ownership:
 * the store is of all shards; files are the caller's. Threads: any; two calls exclude each other
 * only where a mutex of the store says so. Blocking: all of it: on worker threads only.
 */
#ifndef SKERRY_BLOCKER_FILE_DISK_H
#define SKERRY_BLOCKER_FILE_DISK_H

#include <errno.h>
#include <peer/job.h>
#include <pthread.h>
#include <stdatomic.h>

#include "peers/blocker/file/file_fence.h"

#define FILE_PATH_SIZE 64
#define FILE_FOLDERS 256u /* folders of objects in a volume */

/* What one at a time may do. */
enum file_lock {
	FILE_LOCK_FOLDERS, /* make or remove folders, or put a new file into one */
	FILE_LOCK_RECORDS, /* CAS */
	FILE_LOCK_FENCE,   /* say whose a volume is */
	FILE_LOCKS,
	FILE_LOCK_MEMBER = 64, /* and beyond: held as long as we serve, see file_crowd.c */
};

struct file_store {
	int root;    /* the folder */
	int lock;    /* DIR/lock, held as long as we serve */
	char *dir;   /* its name, for people */
	bool shared; /* others may serve it, too */
	pthread_mutex_t mutex[FILE_LOCKS];
	struct file_fence fence;
	struct file_crowd crowd;
	_Atomic int records_error;     /* the folder of records could not be made durable */
	bool records_owed;	       /* nor has it been since we began: guarded by records */
	struct xseg_key records_again; /* the change that was not; volume 0: not known */
	bool removes_again;	       /* it was a removal */
	bool spare;		       /* it was looked whether there is one: the same */
	/* what a killed process left in the kernel's memory */
	pthread_mutex_t inheritance;
	_Atomic bool owes;	   /* it is not known to be durable */
	_Atomic int inherit_error; /* it cannot be made so */
};

/* --- file_store.c ------------------------------------------------------------- */

/*
 * Makes the folder, or checks it; locks it; removes what a killed process left half-made. What such
 * a process wrote is there to be read at once, but owed: see file_store_inherit().
 */
struct file_ask {
	const char *dir;
	const char *expect; /* the identity that it must have; NULL: any, or none */
	bool shared;	    /* so may others, who say the same */
	uint64_t own;	    /* our segment, for DIR/fence */
};
int file_store_open(
	struct file_store *store, const struct file_ask *ask, char *why, size_t why_size);
/* clean: all that was written is durable. */
void file_store_close(struct file_store *store, bool clean);
/* False: somebody has removed the folder, and an absent file means nothing any more. */
bool file_store_alive(const struct file_store *store);
/*
 * Makes durable what our predecessor may have completed and not synced; nobody may be told that
 * anything is durable before. Whoever comes while another is at it waits for him.
 */
int file_store_inherit(struct file_store *store);
/* May somebody have to be told that it is not? */
static inline bool file_store_owes(const struct file_store *store)
{
	return atomic_load(&store->owes) || atomic_load(&store->inherit_error);
}
/* --- file_lock.c */

void file_lock(struct file_store *store, enum file_lock which);
void file_lock_release(struct file_store *store, enum file_lock which);
/* Without waiting: ours from now on; or is it nobody's? */
bool file_lock_try(const struct file_store *store, unsigned number);
bool file_lock_is_free(const struct file_store *store, unsigned number);

/* fsync() of a folder of the store, by its path. */
int file_store_sync(const struct file_store *store, const char *path);

/* --- file_disk.c: objects ------------------------------------------------------- */

/* Which of its volume's folders holds an object: neighbours lie together. */
static inline unsigned file_folder_of(uint32_t object) { return (object >> 8) % FILE_FOLDERS; }
void file_disk_path_volume(char path[FILE_PATH_SIZE], uint64_t volume);
void file_disk_path_folder(char path[FILE_PATH_SIZE], uint64_t volume, unsigned folder);
void file_disk_path_object(char path[FILE_PATH_SIZE], const struct xseg_key *key);

/* What a change of a file that could only be opened to be read has failed with. */
static inline int file_disk_write_error(int error) { return error == -EBADF ? -EROFS : error; }

/* -ENOENT: there is none. */
int file_disk_open(struct file_store *store, const struct xseg_key *key, int *fd, uint64_t *size);
/* With its folders, which are durable when this returns; the file's own name is not. */
int file_disk_create(struct file_store *store, const struct xseg_key *key, int *fd);
/* Fine when there is none; the removal is not durable yet. */
int file_disk_delete(struct file_store *store, const struct xseg_key *key);
/* Makes names put into or taken out of that folder durable. */
int file_disk_sync_folder(struct file_store *store, uint64_t volume, unsigned folder);
/* Waits until the file's data are durable; -EIO also when it has no name any more, unless
   others serve the folder, who may delete it. */
int file_disk_sync(const struct file_store *store, int fd);

int file_disk_info(int fd, struct xseg_object_info *info);

struct file_range {
	uint64_t offset, size;
};
/* Zeros. keep: they stay allocated. fast: -EOPNOTSUPP rather than writing them. *written: it had
   to write them. */
int file_disk_zero(int fd, struct file_range range, bool keep, bool fast, bool *written);
/* The same range of another object; holes stay holes. */
int file_disk_copy(
	struct file_store *store, const struct xseg_key *source, int fd, struct file_range range);
/* What is a hole: at most `room` stretches. How many. */
int file_disk_status(int fd, struct file_range range, struct xseg_status_extent *out, int room);

/* --- file_list.c, file_record.c ---------------------------------------------------- */

/* A LIST job: bytes of answer or -errno; *next: cursor, 0: no more. */
int file_list(struct file_store *store, struct job *job, uint64_t *next);
/* A CAS job: bytes of answer or -errno; *value in either case. */
int file_record_cas(struct file_store *store, struct job *job, uint64_t *value);
int file_record_list(struct file_store *store, struct job *job, uint64_t *next);
/* `digits` lower-case hexadecimal digits at text, 16 at most. */
bool file_list_parse_hex(const char *text, int digits, uint64_t *value);

#endif
