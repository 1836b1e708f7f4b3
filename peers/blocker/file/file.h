/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file blocker's lane side: operations (one for each job at work), objects (files kept open)
 * and volumes (what a flush owes).
 *
 *   job -> file_op -> file_object -> engine (io_uring or worker threads) -> job ends
 *                          `-> file_volume: what was written and is not durable yet
 *
 * Units: bytes; pages of 4 KiB in the bitmaps. Errors: 0 or -errno. Ownership: all of the shard's,
 * except what a worker has been given. Threads: the shard's lane. Blocking: none.
 */
#ifndef SKERRY_BLOCKER_FILE_H
#define SKERRY_BLOCKER_FILE_H

#include <base/path.h>
#include <base/sm.h>
#include <peer/worker.h>

#include "peers/blocker/file/file_disk.h"

#define FILE_IOV 64
#define FILE_BITS 8192 /* sectors of an object */
#define FILE_WORDS (FILE_BITS / 64)
#define FILE_BUCKETS 64u
#define FILE_OBJECTS_MIN 8u

fixed(FILE_BITS *XSEG_SECTOR == XSEG_OBJECT_MAX);

enum file_io { FILE_IO_AUTO, FILE_IO_URING, FILE_IO_THREADS };

struct file_options {
	char *dir;
	uint64_t io; /* enum file_io */
	uint64_t depth;
	uint64_t fds;
	bool shared;
};

/* Names and help in blocker_file.c, in this order. */
enum file_counter {
	FILE_OPENS,
	FILE_CREATES,
	FILE_EVICTIONS,
	FILE_DELETES,
	FILE_ABSENT_READS,
	FILE_PUNCHES,
	FILE_ZEROS_WRITTEN,
	FILE_SHORT_IO,
	FILE_WAITS,
	FILE_GATED,
	FILE_SYNCS,
	FILE_FOLDER_SYNCS,
	FILE_FLUSH_PASSES,
	FILE_SYNC_ERRORS,
	FILE_IO_ERRORS,
	FILE_CAS,
	FILE_FENCED,
	FILE_COUNTERS
};

struct file_engine;
struct file_shared {
	struct file_store store;
	const struct file_engine *engine;
	uint32_t objects;	    /* files that one shard keeps open */
	char home[PATH_LENGTH_MAX]; /* the note of which store this is */
	_Atomic bool unclean;	    /* a shard could not make everything durable */
	_Atomic bool stopping;	    /* asked to; else a close means that the start has failed */
	_Atomic bool abandoned;	    /* or was not waited for: workers may still use all this */
};

/* What an operation needs of its object before it starts. */
enum file_need {
	FILE_NEED_NOTHING, /* it has no object */
	FILE_NEED_LOOK,	   /* to know whether it is there */
	FILE_NEED_FILE,	   /* to be there */
	FILE_NEED_ALONE,   /* nobody else at work on it */
};

/* Where a read or a change of data stands to others of the same sectors: file_gate.c. */
enum file_gate { FILE_GATE_OUTSIDE, FILE_GATE_WAITING, FILE_GATE_INSIDE };

struct file_op {
	struct worker_item work; /* first */
	struct file_shard *shard;
	struct job *job;
	struct file_object *object;
	TAILQ_ENTRY(file_op) link; /* free; or waiting, for its object, for any, or for a sync */
	TAILQ_ENTRY(file_op) gate_link; /* the object's inside or gated */
	enum file_gate gate;
	enum file_need need;
	int fd;
	bool sync_name;	   /* its folder, too */
	uint32_t failures; /* the object's, when the sync began */
	bool fenced;	   /* it has gone through the fence, as one of: */
	unsigned turn;
	/* a transfer */
	uint32_t at, window; /* done so far; under way */
	bool writes;
	int iov_count;
	struct iovec iov[FILE_IOV];
	/* what a worker found */
	int result, folder_error;
	uint64_t value;
	bool zeros_written;
};
TAILQ_HEAD(file_op_queue, file_op);

/*
 * A file, or the knowledge that there is none.
 *
 *            want           found                   last user left, room wanted
 *   FREE -----------> OPENING --------> OPEN ------------------------------------.
 *    ^                 ^    `--------> ABSENT ------------------------------------|
 *    |                 `-- create ------'  ^                                      |
 *    |                                     `-- DELETING <-- alone -- OPEN         |
 *    `----------------------------------------------------------------------------'
 */
enum file_state { FILE_FREE, FILE_OPENING, FILE_OPEN, FILE_ABSENT, FILE_DELETING };

struct file_object {
	struct worker_item work; /* first */
	struct file_shard *shard;
	struct xseg_key key;
	uint8_t state; /* enum file_state */
	bool creating, running;
	bool fresh;	/* its name is not known to be durable */
	int fd, old_fd; /* old_fd: to be closed by the worker that opens the new one */
	int error;	/* of that worker */
	uint32_t users; /* operations and a flush that work on it */
	uint32_t writers;
	uint64_t size; /* at least what a read may find */
	struct file_op_queue waiting;
	struct file_op_queue inside, gated; /* reads and changes at work; those they keep out */
	struct file_op_queue fua_waiting, fua_syncing; /* for a sync, and for the one that runs */
	bool waking;
	struct file_object *next;	/* in its hash chain */
	struct file_object_queue *idle; /* the list it is in, or NULL */
	TAILQ_ENTRY(file_object) idle_link;
	/* what a flush owes; pages, as bits */
	struct file_volume *volume; /* set while writers, unsynced, syncing or lost */
	bool dirty, passing, is_lost;
	TAILQ_ENTRY(file_object) dirty_link, pass_link;
	int sync_error;
	uint32_t failures;	       /* syncs that have failed */
	uint64_t unsynced[FILE_WORDS]; /* written since the last sync began */
	uint64_t syncing[FILE_WORDS];  /* before it began, and it has not ended */
	uint64_t lost[FILE_WORDS];     /* written before a sync that failed, and not since */
};
TAILQ_HEAD(file_object_queue, file_object);

/* What a flush of one volume owes, on this shard. */
struct file_volume {
	struct worker_item work; /* first */
	struct file_shard *shard;
	uint64_t id;
	uint32_t objects; /* that point here */
	uint32_t lost;	  /* of them, with lost sectors */
	int error;	  /* a durability that cannot be had any more: every flush fails with it */
	bool running;
	bool last;	   /* stopping: it has been tried once more */
	uint32_t deleting; /* of the dirty ones */
	struct file_object_queue dirty, pass;
	uint64_t folders[FILE_FOLDERS / 64];	  /* with new or removed names */
	uint64_t pass_folders[FILE_FOLDERS / 64]; /* being synced */
	int folders_error;
	uint32_t folders_synced;
	struct job_queue waiting;  /* flushes for the next pass */
	struct job_queue answered; /* by this one */
	struct file_volume *next;  /* in its hash chain, or free */
};

struct file_handover;
TAILQ_HEAD(file_handover_queue, file_handover);

struct file_shard {
	struct peer *peer;
	struct file_shared *shared;
	struct worker_item heir; /* shard 0: file_store_inherit() before anybody asks */
	bool inheriting;
	void *engine;
	struct file_fence_look look;
	/* volumes that change hands */
	struct file_handover_queue waits;
	uint64_t look_ns; /* when to look at them again */
	uint32_t handovers;
	/* operations */
	struct file_op *ops;
	struct file_op_queue free_ops;
	uint32_t ops_busy;
	struct job_queue jobs; /* that wait for an operation */
	bool pumping;
	/* objects */
	struct file_object *objects;
	struct file_object **buckets;
	uint32_t bucket_mask, objects_touched, objects_max;
	struct file_object_queue clean, unclean; /* idle ones, the longest so first */
	struct file_op_queue starved;		 /* operations that wait for an object to be free */
	bool feeding;
	/* volumes */
	struct file_volume *volumes[FILE_BUCKETS];
	struct file_volume *free_volumes;
	uint32_t volume_count, passes;
};

/* --- engines: how bytes move ------------------------------------------------------ */

struct file_engine {
	const char *name;
	/* Can it be had here? Sets why when not. */
	int (*probe)(unsigned depth, char *why, size_t why_size);
	int (*start)(struct file_shard *shard, char *why, size_t why_size);
	void (*stop)(struct file_shard *shard);
	/* Moves op->iov at op->job->offset + op->at; then file_op_moved(op, bytes or -errno). */
	void (*move)(struct file_op *op);
	bool (*poll)(struct file_shard *shard);
	bool (*sleep)(struct file_shard *shard);
};
extern const struct file_engine file_threads, file_uring;

static inline uint64_t file_op_offset(const struct file_op *op);

/* --- file_op.c ------------------------------------------------------------------------ */

int file_op_init(struct file_shard *shard, uint32_t depth);
void file_op_fini(struct file_shard *shard);
/* Every handler but FLUSH. */
void file_op_take(struct peer *peer, struct job *job);
/* Its object is as it needs it; op->fd is -1 when absent. */
void file_op_run(struct file_op *op);
void file_op_moved(struct file_op *op, int result);
/* Ends the job: `result` bytes of answer, or -errno. */
void file_op_end(struct file_op *op, int result);

/* --- file_handover.c ------------------------------------------------------------------ */

/* XSEG_CONTROL_FENCE. */
void file_handover_take(struct file_shard *shard, struct job *job);
bool file_handover_poll(struct file_shard *shard);
void file_handover_sleep(struct file_shard *shard);

/* --- file_gate.c ---------------------------------------------------------------------- */

/* May it go to work? Else file_op_run() is called again when it may. */
bool file_gate_enter(struct file_op *op);
/* It works no more; then, when it has left its object, those it kept out may go on. */
void file_gate_leave(struct file_op *op);
void file_gate_wake(struct file_object *object);

/* --- file_object.c --------------------------------------------------------------------- */

int file_object_init(struct file_shard *shard, uint32_t count);
void file_object_fini(struct file_shard *shard);
/* op->job->key's object; runs op when it is as op needs it, or ends it with an error. */
void file_object_enter(struct file_op *op);
void file_object_leave(struct file_op *op);
/* One user less; whoever waits goes on. */
void file_object_release(struct file_object *object);
/* It has become clean or unclean while idle. */
void file_object_settle(struct file_object *object);
/* There may be room for those who wait for an object. */
void file_object_feed(struct file_shard *shard);

/* --- file_flush.c ------------------------------------------------------------------------ */

void file_flush_fini(struct file_shard *shard);
void file_flush_take(struct peer *peer, struct job *job);
/* Before the first change of an object: room to note it. -ENOMEM. */
int file_flush_begin(struct file_object *object);
/* A change came to its end; size 0: there was none. durable: it has been synced already. */
void file_flush_end(struct file_object *object, struct file_range range, bool durable);
/* The object's name was made or removed (within begin and end). */
void file_flush_named(struct file_object *object);
/* Is some name in the object's folder not durable yet? */
bool file_flush_owes_name(const struct file_object *object);
/* In place of begin and end; no pass runs meanwhile, if it would meet the object. */
int file_flush_delete_begin(struct file_object *object);
void file_flush_delete_end(struct file_object *object, bool deleted);
/* The object's contents are gone for good: nothing of it is owed. */
void file_flush_forget(struct file_object *object);
/* A sync failed: what is unsynced cannot be trusted to a later one. */
void file_flush_failed(struct file_object *object, int error);
/* The object's folder could not be synced: the next flush tries again. */
void file_flush_broken(struct file_object *object, int error);
/* Begins a pass for this volume, unless one is running. */
void file_flush_start(struct file_volume *volume);
/* Stopping: begins what is left; true when nothing is owed but what cannot be had. */
bool file_flush_drain(struct file_shard *shard);
bool file_flush_is_clean(const struct file_shard *shard);

/* --- inline -------------------------------------------------------------------------------- */

static inline void file_count(struct file_shard *shard, enum file_counter counter, uint64_t amount)
{
	peer_count(shard->peer, counter, amount);
}

static inline uint64_t file_op_offset(const struct file_op *op) { return op->job->offset + op->at; }

static inline bool file_bits_any(const uint64_t bits[FILE_WORDS])
{
	uint64_t any = 0;
	for (int i = 0; i < FILE_WORDS; i++)
		any |= bits[i];
	return any != 0;
}

#endif
