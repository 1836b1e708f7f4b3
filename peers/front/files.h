/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The FUSE front, private to its files: volumes as files in a folder.
 *
 *   /dev/fuse -> pipe                                            files_device.c
 *         -> slot -> request -> calls -> answer                  files_slot.c, files_data.c
 *                      `-> names, attributes, open files         files_tree.c, files_open.c
 *
 * A message is read into a slot of a memory file, and its slot is free again when it is answered.
 * Whoever started us keeps that file, the pipe and the connection: when we are killed our successor
 * finds in the slots what was not answered, and does it (again), and finds which files are open.
 * Only one lane reads messages, or a write that has been answered could be done again over a later
 * one. An inode's number is its volume's id, which is never used again: nothing need be kept of it.
 *
 * Units: bytes, ns. Errors: 0 or -errno. Threads: the lane of the first shard.
 */
#ifndef SKERRY_FRONT_FILES_H
#define SKERRY_FRONT_FILES_H

#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>
#include <peer/worker.h>

#include "peers/front/front.h"

#define FILES_ROOM "front_fuse"
#define FILES_SLOTS 64u
#define FILES_HANDLES 1024u
#define FILES_DATA_MAX (1u << 20)			  /* of one READ or WRITE */
#define FILES_SLOT_SIZE (FILES_DATA_MAX + 2u * XSEG_PAGE) /* what libfuse reads into, and more */
#define FILES_READ_AT XSEG_PAGE				  /* what is read lies there in a slot */
#define FILES_SNAPSHOTS ".snapshots"
#define FILES_INODE_SNAPSHOTS 2u /* the folder; volumes' ids are drawn from 64 bits */
#define FILES_INODES_FIXED 3u
#define FILES_FRESH_SECONDS 1.0 /* so long the kernel need not ask again */

struct event;
struct files;

struct files_options {
	char *path;
	struct peer_list volumes;
	bool read_only, allow_shrink;
	char *file_mode, *file_group;
};

enum files_counter {
	FILES_COUNT_READS,
	FILES_COUNT_WRITES,
	FILES_COUNT_FLUSHES,
	FILES_COUNT_ZEROES,
	FILES_COUNT_OTHERS,
	FILES_COUNT_PATCHES,
	FILES_COUNT_AGAIN,
	FILES_COUNT_BYTES_IN,
	FILES_COUNT_BYTES_OUT,
	FILES_COUNT_OPENS,
	FILES_COUNT_CLOSES,
	FILES_COUNT_WAITS,
	FILES_COUNT_LEFT,
	FILES_COUNTERS
};

/* --- what outlives the process ----------------------------------------------------- */

/* As the kernel's messages begin. */
struct files_head {
	uint32_t length, opcode;
	uint64_t unique; /* 0: the slot is free */
};

/* An open file. */
struct files_handle {
	_Atomic uint64_t unique; /* of the message that has opened it; 0: free. Written last */
	uint64_t volume, term;
	uint32_t writes;
	int32_t pid; /* who has opened it */
	uint32_t user;
	uint32_t reserved;
};

#define FILES_MAGIC 0x73656c6966796b73ull
#define FILES_INIT_MAX 512u
struct files_memory {
	uint64_t magic;
	uint32_t taking;	      /* the slot that a message in the pipe is for */
	uint32_t init_length;	      /* the first message, in which all is agreed; 0: not yet */
	uint8_t init[FILES_INIT_MAX]; /* said to libfuse again by a successor */
	struct files_handle handle[FILES_HANDLES];
};
#define FILES_SLOTS_AT (64u << 10)
fixed(sizeof(struct files_memory) <= FILES_SLOTS_AT);
#define FILES_MEMORY_SIZE (FILES_SLOTS_AT + FILES_SLOTS * (uint64_t)FILES_SLOT_SIZE)

/* --- requests ---------------------------------------------------------------------- */

struct files_volume {
	struct front_volume front;
	uint64_t size;
	/* many writes of whole sectors, or one that patches a sector */
	uint32_t writers;
	bool patching;
	TAILQ_HEAD(, files_request) waiting; /* in order */
};

enum files_kind {
	FILES_READ,
	FILES_WRITE,
	FILES_ZERO,
	FILES_FLUSH,
	FILES_EMPTY /* all of it is zeroed, as it is opened with O_TRUNC */
};

/* Whole sectors, or part of one. */
struct files_step {
	uint64_t begin, end;
	bool patches;
};
#define FILES_STEPS_MAX 3u

struct files_request;
/* Something that is asked of the composer on the way to an answer. */
struct files_question {
	enum xseg_op op;
	uint32_t bytes;							/* of pages */
	void (*fill)(struct files_request *request, struct call *call); /* may be NULL */
	void (*done)(struct files_request *request, struct call *call); /* the call stays ours */
};

struct files_request {
	struct files *files;
	struct files_head *head; /* its slot */
	fuse_req_t req;
	fuse_ino_t inode;
	bool busy;
	uint64_t since_ns;
	bool interrupted; /* who waits for it has got a signal */
	bool left;	  /* ... and an answer: the slot is free when ours has come, too */
	bool stays;	  /* it changes something: it is answered when that is done */
	struct files_handle *handle;
	const struct files_question *question;
	const struct files_question *undo; /* what is asked if it goes well and is left; NULL */
	/* data */
	TAILQ_ENTRY(files_request) link;
	struct files_volume *volume;
	uint8_t kind;	/* enum files_kind */
	bool writes;	/* it is opened to be written to */
	bool truncates; /* ... and to be emptied before */
	bool keeps;	/* FILES_ZERO: its space stays allocated */
	bool alone, gated;
	bool probed, by_write; /* as a front does it where nobody below can zero */
	bool have_sector;
	uint8_t step_at, step_count;
	struct files_step step[FILES_STEPS_MAX];
	const char *data;
	uint64_t offset, length, next;
	uint32_t pending;
	int error;
	uint8_t sector[XSEG_SECTOR];
	/* names */
	char name[VOLUME_NAME_LENGTH_MAX + 1];
	char *listing;
	size_t listing_size, listing_room;
	uint64_t number, cursor;
	uint64_t size;
	int whence;
};

/* Where a folder's list goes on: the number of the first volume of a page of the list. */
struct files_bookmark {
	fuse_ino_t inode;
	uint64_t number, cursor;
};

struct files {
	struct peer *peer;
	const struct files_options *options;
	struct front_clients clients;
	struct front_volumes volumes;
	struct front_share share;
	struct fuse_session *session;
	struct files_memory *memory;
	int memory_fd;
	int message_pipe[2], answer_pipe[2];
	struct event *event;
	struct front_client_entry client[FILES_HANDLES];
	struct files_request request[FILES_SLOTS];
	struct files_request *taking; /* whose message libfuse is looking at */
	struct files_bookmark bookmark;
	struct front_rights rights;
	struct worker_item unmounting;
	uint32_t inflight, adopting, asked;
	uint32_t interrupted, left; /* requests */
	uint64_t bytes;
	bool ready;   /* there may be messages */
	bool serving; /* what was there before us is ours */
	bool mounted; /* false again: somebody has unmounted it */
	bool stopping, unmounts;
	bool again;
};

static inline struct files *files_of(const struct peer *peer) { return peer->state; }

/* files_mount.c */
/* Mounted, or taken over from a predecessor. */
int files_mount_open(struct files *files, char *why, size_t size);
void files_mount_close(struct files *files);
/* On a thread: what is cached is written, then the folder is empty again; what is left of a
   connection that was cut off goes. */
void files_mount_end(struct files *files);
/* Where it should be? */
bool files_mount_is_there(const struct files *files);
/* Descriptors that outlive us, by names of ours. */
void files_mount_keep(const struct files *files, const char *what, int fd);
int files_mount_take(const struct files *files, const char *what);
void files_mount_drop(const struct files *files, const char *what);

/* files_device.c */
/* From here on libfuse reads messages from fd and answers there; it goes on with a predecessor's
   connection, or has one of its own. */
int files_device_open(struct files *files, int fd, bool goes_on);
void files_device_close(struct files *files, bool leave);
/* The most that a message or an answer carries. */
uint32_t files_device_data_max(const struct files *files);
/* A message that a predecessor has not drawn from the pipe, or not whole, goes into its slot. */
void files_device_resume(struct files *files);

/* files_slot.c */
static inline struct files_head *files_slot_head(const struct files *files, uint32_t index)
{
	return (void *)((char *)files->memory + FILES_SLOTS_AT + (size_t)index * FILES_SLOT_SIZE);
}

static inline uint32_t files_slot_index(const struct files *files, const struct files_head *head)
{
	ptrdiff_t at = (const char *)head - (const char *)files->memory - FILES_SLOTS_AT;
	return (uint32_t)((size_t)at / FILES_SLOT_SIZE);
}

extern const struct fuse_lowlevel_ops files_operations;
int files_slot_start(struct files *files);
void files_slot_stop(struct files *files);
/* Messages are taken; true: there were some. */
bool files_slot_turn(struct files *files);
/* When the next one that is interrupted is answered; UINT64_MAX: none waits for that. */
uint64_t files_slot_due(const struct files *files);
/* The request that this message is. */
struct files_request *files_slot_request(fuse_req_t req, fuse_ino_t inode);
/* What OPEN or INFO was answered with, and the call ends; false: the request has failed. */
bool files_slot_info(
	struct files_request *request, struct call *call, struct xseg_volume_info *info);
/* It has been answered. */
void files_slot_free(struct files_request *request);
void files_slot_fail(struct files_request *request, int error);
/* Now, or when there are slots and pages. */
void files_slot_ask(struct files_request *request, const struct files_question *question);

/* files_open.c */
void files_open_adopt(struct files *files);
void files_open_drop_all(struct files *files);
struct files_handle *files_open_handle(struct files *files, const struct fuse_file_info *info);
struct files_volume *files_open_volume(struct files *files, uint64_t id);
/* FILES_EMPTY has ended, with request->error. */
void files_open_emptied(struct files_request *request);
void files_open(fuse_req_t req, fuse_ino_t inode, struct fuse_file_info *info);
void files_release(fuse_req_t req, fuse_ino_t inode, struct fuse_file_info *info);

/* files_tree.c */
bool files_tree_offers(const struct files *files, const char *name);
void files_tree_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void files_tree_getattr(fuse_req_t req, fuse_ino_t inode, struct fuse_file_info *info);
/* What makes, removes and renames: `xsegctl volume` does that. */
void files_tree_mknod(
	fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device);
void files_tree_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void files_tree_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void files_tree_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to,
	const char *to_name, unsigned flags);
void files_tree_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void files_tree_link(fuse_req_t req, fuse_ino_t inode, fuse_ino_t parent, const char *name);
void files_tree_setattr(
	fuse_req_t req, fuse_ino_t inode, struct stat *to, int which, struct fuse_file_info *info);
void files_tree_readdir(
	fuse_req_t req, fuse_ino_t inode, size_t size, off_t offset, struct fuse_file_info *info);
void files_tree_getxattr(fuse_req_t req, fuse_ino_t inode, const char *name, size_t size);
void files_tree_listxattr(fuse_req_t req, fuse_ino_t inode, size_t size);
void files_tree_statfs(fuse_req_t req, fuse_ino_t inode);

/* files_data.c */
void files_read(
	fuse_req_t req, fuse_ino_t inode, size_t size, off_t offset, struct fuse_file_info *info);
void files_write(fuse_req_t req, fuse_ino_t inode, const char *data, size_t size, off_t offset,
	struct fuse_file_info *info);
/* FILES_EMPTY: what is open as request->handle. */
void files_data_empty(struct files_request *request);
void files_fsync(fuse_req_t req, fuse_ino_t inode, int data_only, struct fuse_file_info *info);
void files_fallocate(fuse_req_t req, fuse_ino_t inode, int mode, off_t offset, off_t length,
	struct fuse_file_info *info);
void files_lseek(
	fuse_req_t req, fuse_ino_t inode, off_t offset, int whence, struct fuse_file_info *info);

#endif
