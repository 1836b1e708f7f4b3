/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mapper: the only one that writes a volume's map. The library beside it (map_*.c) is plain
 * sequential code over a struct map_store; here it gets threads to wait in and requests to ask
 * with.
 *
 *   lane: job -> mapper_task ---> pool: a thread of ours runs the library -----> lane: the job ends
 *                                      |  ^ one change of a volume at a time
 *                        mapper_call   v  | answers                  (mapper_lock.c)
 *   lane: request down edge "store" ---'--'
 *
 *   mapper.c         the peer: options, start, turn, stop
 *   mapper_task.c     a job from door to end        mapper_pool.c    threads, what waits for one
 *   mapper_lock.c    who is at which volume        mapper_lease.c   what is ours to write to
 *   mapper_call.c    requests of a thread, sent by its lane
 *   mapper_store.c   struct map_store of them      mapper_memory.c  what need not be read again
 *   mapper_background.c    adoption, cleaning up, sweeps: what nobody waits for
 *   mapper_admin.c, mapper_control.c, mapper_list.c, mapper_detail.c, mapper_diff.c,
 *   mapper_flatten.c what is asked
 *
 * The threads are our own: those of <peer/worker.h> are needed by a blocker of the same process to
 * answer what we ask, so all of them waiting in the library would wait for ever.
 *
 * Units: bytes, ns. Errors: 0 or -errno. Ownership: see each struct. Threads: as noted. Blocking:
 * what is called from a task's run() may; what a lane calls does not, but for shared->lock, which
 * is held for a few instructions.
 */
#ifndef SKERRY_MAPPER_H
#define SKERRY_MAPPER_H

#include <base/time.h>
#include <peer/call.h>
#include <peer/map.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <xseg/layout.h>

#include "peers/map/map_home.h"
#include "peers/map/map_sweep.h"
#include "peers/map/map_volume.h"

#define MAPPER_STORE 0u /* the edge */
#define MAPPER_THREADS_MAX 64u
#define MAPPER_BATCH 64u /* requests that one thread has on their way at a time */
#define MAPPER_BUCKETS 1024u
#define MAPPER_FINDINGS_MAX 65536u

/* Names and help in mapper.c, in this order. */
enum mapper_counter {
	MAPPER_LOOKUPS,
	MAPPER_BITMAPS,
	MAPPER_PUBLISHED,
	MAPPER_ACQUIRES,
	MAPPER_SNAPSHOTS,
	MAPPER_CLONES,
	MAPPER_CHANGES,
	MAPPER_LISTED,
	MAPPER_FLATTENED,
	MAPPER_RENEWALS,
	MAPPER_LOST,
	MAPPER_LEFT,
	MAPPER_REMEMBERED,
	MAPPER_SENT,
	MAPPER_WAITS,
	MAPPER_AGAIN,
	MAPPER_WAITED,
	MAPPER_COUNTERS
};

struct mapper_options {
	uint64_t lease_ns, threads, object_size, memory, settle_ns;
	char *host;
};

struct mapper_shared;
struct mapper_task;

/* --- mapper_call.c: requests that a thread makes and its lane sends ------------------------- */

/* Whoever waits for calls: a thread, on its own stack. */
struct mapper_wait {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned pending;
};

struct mapper_call {
	enum xseg_op op;
	unsigned flags;
	struct xseg_key key;
	uint64_t offset, arg0, arg1;
	uint32_t length;
	const void *send; /* `length` bytes */
	void *receive;	  /* room for `length` bytes */
	/* the answer */
	int result;
	uint32_t answer_length;
	uint64_t value;
	/* the room's own */
	struct mapper_wait *wait;
	TAILQ_ENTRY(mapper_call) link;
};
TAILQ_HEAD(mapper_call_queue, mapper_call);

/* Of one lane. */
struct mapper_shard {
	struct peer *peer;
	struct mapper_shared *shared;
	pthread_mutex_t lock;		/* of the queues */
	struct mapper_call_queue calls; /* to be sent */
	struct mapper_call_queue sent;
	TAILQ_HEAD(mapper_task_queue, mapper_task) done; /* tasks to be ended */
	bool gone;		/* the lane turns no more: calls end with -ESHUTDOWN */
	_Atomic bool waiting;	/* there is something in calls or done */
	bool retrying;		/* the lane's: it waits for slots or pages */
	_Atomic uint32_t tasks; /* not ended yet */
};

void mapper_call_open(struct mapper_shard *shard);
/* Each of the calls has its answer. -ESHUTDOWN: the lane ends; some of them have none. */
void mapper_call_all(struct mapper_shard *shard, struct mapper_call *calls, unsigned count);
/* The lane: sends what there is. */
bool mapper_call_pump(struct mapper_shard *shard);
/* The lane turns no more: nobody waits any longer. */
void mapper_call_abandon(struct mapper_shard *shard);

/* --- mapper_memory.c: what need not be read again ------------------------------------------- */

/*
 * Halves of volume records, with their versions, and pages of directories, as they were last read
 * or written here. Another host may have changed them since: a put then fails, a page has another
 * checksum than its reference says, and what was asked is done again without them.
 */
struct mapper_note {
	struct xseg_key key;
	uint32_t offset, size;
	uint64_t version; /* of a record; 0: it is not there */
	LIST_ENTRY(mapper_note) link;
	TAILQ_ENTRY(mapper_note) age;
	uint8_t data[XSEG_RECORD_MAX];
};

struct mapper_memory {
	pthread_mutex_t lock;
	LIST_HEAD(mapper_notes, mapper_note) bucket[MAPPER_BUCKETS];
	TAILQ_HEAD(mapper_ages, mapper_note) ages; /* the longest unused first */
	uint32_t count, max;
};

void mapper_memory_open(struct mapper_memory *memory, uint64_t bytes);
void mapper_memory_close(struct mapper_memory *memory);
bool mapper_memory_find(struct mapper_memory *memory, struct xseg_key key, uint32_t offset,
	void *to, uint32_t *size, uint64_t *version);
/* Never an older version in place of a newer one. */
void mapper_memory_note(struct mapper_memory *memory, struct xseg_key key, uint32_t offset,
	const void *from, uint32_t size, uint64_t version);
void mapper_memory_forget(struct mapper_memory *memory, struct xseg_key key);
/* Both halves of its record. */
void mapper_memory_forget_volume(struct mapper_memory *memory, uint64_t volume);

/* --- mapper_store.c: the store as one thread sees it ---------------------------------------- */

struct mapper_ahead; /* records read before they are asked for */

struct mapper_store {
	struct map_store store; /* first */
	struct mapper_shard *shard;
	bool keeps;		     /* notes what it reads */
	bool remembers;		     /* may answer from memory */
	bool remembered;	     /* it did */
	struct mapper_task *owned;   /* its volume must be ours, or all ends with -EKEYREVOKED */
	bool fresh;		     /* its record was read, not remembered */
	bool revoked;		     /* it is not */
	uint64_t requests, answered; /* sent; answered from memory */
	uint64_t waited;	     /* for requests sent at once, once */
	/* deletions under way: their errors show at the next request */
	struct mapper_call discards[MAPPER_BATCH];
	unsigned discard_count;
	int discard_error;
	struct mapper_pages *pages;
	int write_error; /* of one that waited: shows at the flush, and at a record that is put */
	struct mapper_ahead *ahead;
	/* half of a volume's record was asked for: the other, and its home's, were read at once and
	   wait here */
	bool with_home;		  /* the next time */
	bool with_record;	  /* so were both when a home record was put; the next time */
	struct mapper_call fence; /* goes with the next record that is put */
	int fenced;		  /* its result */
	struct mapper_call together[3];
	uint8_t waits[2][XSEG_RECORD_MAX];
};

void mapper_store_open(struct mapper_store *store, struct mapper_shard *shard);
/* XSEG_CONTROL_FENCE; 0 also where there is nothing to be fenced. */
int mapper_store_fence(
	struct mapper_store *store, uint64_t id, const struct map_home *home, unsigned flags);
/* The same at the same time as the next record is put; what came of it, put or not. */
void mapper_store_fence_along(struct mapper_store *store, uint64_t id, const struct map_home *home);
int mapper_store_fenced(struct mapper_store *store);
/* 0, or the error of a deletion that nobody has heard of. */
int mapper_store_close(struct mapper_store *store);
/* Sent, and waited for. */
void mapper_store_all(struct mapper_store *store, struct mapper_call *calls, unsigned count);
/* It is written: a page of a directory is remembered. */
void mapper_store_note(struct mapper_store *store, struct xseg_key key, uint32_t offset,
	const void *bytes, uint32_t length);

/* --- mapper_pages.c: pages and bitmaps, many at a time -------------------------------------- */

/* What waits to be written. */
void mapper_pages_send(struct mapper_store *store);
/* False: it does not wait. */
bool mapper_pages_write(struct mapper_store *store, struct xseg_key key, uint32_t offset,
	const void *from, uint32_t length);
void mapper_pages_expect(struct mapper_store *store, const struct map_range *ranges, size_t count);
/* Nothing is expected any more: something else changes. */
void mapper_pages_forget(struct mapper_store *store);
/* False: it is not there. */
bool mapper_pages_read(struct mapper_store *store, struct xseg_key key, uint32_t offset, void *to,
	uint32_t length);
void mapper_pages_close(struct mapper_store *store);

/* --- mapper_lock.c: one change of a volume at a time ---------------------------------------- */

#define MAPPER_LOCKS 2u

struct mapper_lock {
	uint64_t id;
	struct mapper_task *holder;
	struct mapper_task_queue waiting;
	LIST_ENTRY(mapper_lock) link;
};

/* All under shared->lock. True: it has all its locks; false: it has to wait, and is given to the
   pool when it has. -ENOMEM in task->error counts as having them. */
bool mapper_lock_take(struct mapper_task *task);
void mapper_lock_drop(struct mapper_task *task);

/* --- mapper_lease.c: what is ours to write to ----------------------------------------------- */

struct mapper_holder { /* a composer's lane */
	bool known;
	uint16_t lane, epoch;
};

struct mapper_lease {
	struct map_home home;	     /* its record, as read or put last */
	struct mapper_holder holder; /* who asked for it, or named it, last */
	uint64_t held_ns;	     /* when that was */
	uint64_t renew_ns;	     /* monotonic; when next */
	bool lost;		     /* somebody else has it */
	bool busy;		     /* is being renewed */
	LIST_ENTRY(mapper_lease) link;
	TAILQ_ENTRY(mapper_lease) order; /* by renew_ns */
};

struct mapper_heard { /* by a lane: what its composer holds */
	uint16_t epoch;
	uint64_t at_ns;
};

struct mapper_leases {
	pthread_mutex_t lock;
	LIST_HEAD(mapper_lease_list, mapper_lease) bucket[MAPPER_BUCKETS];
	TAILQ_HEAD(mapper_lease_queue, mapper_lease) order;
	uint32_t count;
	_Atomic uint32_t lost;
	_Atomic uint64_t left; /* given back, as nobody held them */
	struct mapper_heard told[XSEG_LANES_MAX];
	uint64_t all_told_ns, all_told_look_ns; /* what was found at the last look, and the next */
	_Atomic uint64_t next_ns;		/* when the first is due; UINT64_MAX: none */
	uint64_t interval_ns;
};

/* With the mutex. */
struct mapper_lease *mapper_lease_find(struct mapper_leases *leases, uint64_t id);
/* May we write to the volume? *term when we may. -ENOENT: nobody here has asked for it; -ESTALE:
   lost. */
int mapper_lease_look(struct mapper_shared *shared, uint64_t id, uint64_t *term);
/* The same; *home: its record, for whoever changes it next, or zeros. */
int mapper_lease_known(struct mapper_shared *shared, uint64_t id, struct map_home *home);
/* It was read, and may be another copy than the one that was put (a mover's). */
void mapper_lease_seen(struct mapper_shared *shared, const struct map_home *home);
int mapper_lease_add(struct mapper_shared *shared, const struct map_home *home);
void mapper_lease_remove(struct mapper_shared *shared, uint64_t id);
/* Said once in the log. */
void mapper_lease_lost(struct mapper_shared *shared, uint64_t id, const struct map_home *found);
void mapper_lease_open(struct mapper_shared *shared);
void mapper_lease_close(struct mapper_shared *shared);
/* The first lane: begins renewals that are due. */
bool mapper_lease_turn(struct mapper_shard *shard, uint64_t now_ns);

struct map_claim mapper_lease_claim(struct mapper_shared *shared, uint32_t flags);
/*
 * For the time of a change: nobody else may have the volume open. Is it open here, nothing is done;
 * else it is taken, and given back by mapper_lease_guard_end(). -EBUSY: task->trouble says who.
 */
int mapper_lease_guard_begin(struct mapper_task *task, uint64_t id);
void mapper_lease_guard_end(struct mapper_task *task);
/* Is it still ours, as the store says? 0 or -ESTALE; known as lease afterwards. */
int mapper_lease_verify(struct mapper_task *task);
/* The same of one that is not known: when it was given back here and nobody else has had it since,
   it is ours again. */
int mapper_lease_resume(struct mapper_task *task);

/* --- mapper_holder.c: which composer has it ------------------------------------------------- */

/* Who asks this of the volume holds it. */
void mapper_holder_note(struct mapper_task *task);
/* No composer of the segment holds it any more. */
bool mapper_holder_gone(struct mapper_shared *shared, uint64_t id);
int mapper_holder_release(struct mapper_task *task, uint64_t term);

/* --- mapper_task.c: a task, from its job to its end ------------------------------------------ */

enum {
	MAPPER_CHANGES_VOLUME = 1 << 0, /* one at a time */
	MAPPER_QUICK = 1 << 1,		/* never behind what may take long */
	MAPPER_REMEMBERS = 1 << 2,	/* what was read before will do */
	MAPPER_BY_NAME = 1 << 3,	/* key.volume 0: ask.name, or ... */
	MAPPER_BY_OTHER = 1 << 4,	/* ... ask.other says which */
	MAPPER_MAKES = 1 << 5,		/* ask.id is to be made */
	MAPPER_OTHER = 1 << 6,		/* ask.id or ask.other: a second volume */
	MAPPER_ASKS = 1 << 7,		/* there must be a struct map_ask */
	MAPPER_OWN = 1 << 8,		/* ours to write to, or -ESTALE */
	MAPPER_INFO = 1 << 9,		/* asks with an xseg_volume_info */
};

struct mapper_kind {
	const char *name;
	unsigned flags;
	enum mapper_counter counter; /* MAPPER_COUNTERS: none */
	int (*run)(struct mapper_task *task);
};

/*
 * A task, from the lane through the threads and back; mapper_task.c has the table.
 *
 *   ASKED --ids are known--> LOCKING --has all its locks--> READY --a thread--> RUNNING --> DONE
 *     |                        ^                              ^
 *     |--- a name is given --> FINDING (on a thread)          |
 *     `--- makes no sense ------------------------------------'   (only to be answered)
 *
 * LOCKING waits in the queue of a lock and holds no thread; FINDING and READY wait for one.
 */
enum mapper_task_state {
	MAPPER_ASKED,
	MAPPER_FINDING,
	MAPPER_LOCKING,
	MAPPER_READY,
	MAPPER_RUNNING,
	MAPPER_DONE,
};

struct mapper_task {
	const struct mapper_kind *kind;
	struct mapper_shard *shard;
	struct job *job; /* NULL: our own */
	TAILQ_ENTRY(mapper_task) link;
	/* the question */
	uint64_t volume, other;
	uint64_t arg;
	struct map_ask ask;
	struct xseg_volume_info info;
	/* locks */
	uint64_t lock_id[MAPPER_LOCKS];
	unsigned lock_count, locks_held;
	uint8_t state; /* enum mapper_task_state; with the mutex until READY, then its thread's */
	/* at work */
	struct mapper_store store;
	uint64_t guarded, guard_term; /* taken for the time of the change */
	/* the answer */
	int error;
	uint64_t value;
	uint8_t *out; /* malloc */
	uint32_t out_at, out_size;
	bool has_trouble;
	struct map_trouble trouble;
	uint64_t begun_ns;
	uint64_t amount; /* for the counter */
	unsigned again;
	uint64_t generation; /* of the volume, when damage was found last */
};

/* The lane: begins what a job asks. */
void mapper_task_begin(struct peer *peer, struct job *job, const struct mapper_kind *kind);
/* One of our own: nothing is answered. Any thread. -ENOMEM. */
int mapper_task_own(struct mapper_shard *shard, const struct mapper_kind *kind, uint64_t volume);
/* A thread: as far as it comes. */
void mapper_task_run(struct mapper_task *task);
/* With the mutex: it has all it needs, and waits for a thread. */
void mapper_task_ready(struct mapper_task *task);
/* The lane: ends those that are done. */
bool mapper_task_collect(struct mapper_shard *shard);
/* Room for an answer of that many bytes; NULL: -ENOMEM, or -EMSGSIZE: the job has less. */
void *mapper_task_answer(struct mapper_task *task, uint32_t size);
/* Most bytes of answer that the job has room for. */
uint32_t mapper_task_room(const struct mapper_task *task);
/* struct map_head_info as the answer. */
void mapper_task_fill_owner(struct map_owner *owner, const struct map_home *home);
int mapper_task_head(struct mapper_task *task, const struct map_volume *volume, uint64_t term);
int mapper_task_info(struct mapper_task *task, const struct map_volume *volume);
/* Whose name or child it was, beside an error. */
void mapper_task_blame(struct mapper_task *task, const char *name);
void mapper_task_blame_owner(struct mapper_task *task, const struct map_home *home);
static inline struct map_store *mapper_task_store(struct mapper_task *task)
{
	return &task->store.store;
}

/* --- mapper_pool.c: threads ----------------------------------------------------------------- */

struct mapper_pool {
	pthread_cond_t work;
	struct mapper_task_queue quick, slow;
	pthread_t thread[MAPPER_THREADS_MAX];
	unsigned threads, slow_running, slow_max, idle;
	_Atomic unsigned waiting; /* in the queues */
	bool ending;
};

int mapper_pool_start(struct mapper_shared *shared, unsigned threads);
void mapper_pool_stop(struct mapper_shared *shared);
/* Under shared->lock. */
void mapper_pool_push(struct mapper_task *task);

/* --- mapper_background.c: one thread for what nobody waits for ------------------------------- */

struct mapper_background {
	pthread_t thread;
	bool started;
	pthread_cond_t changed; /* with shared->lock, as all below */
	bool ending, ended;
	bool wanted, stop; /* a sweep */
	unsigned flags;	   /* MAP_SWEEP_* of it */
	uint64_t volume, rate;
	struct map_sweep_state state;
	struct map_finding_info *findings; /* state.findings of them, at most MAPPER_FINDINGS_MAX */
	uint32_t finding_room;
	uint64_t adopted, cleaned; /* at the start */
	/* the thread's */
	struct mapper_store *store;
	uint64_t began_ns, paced;
	unsigned settles;
};

int mapper_background_start(struct mapper_shared *shared);
/* No sweep any more, and none begins; it ends soon (mapper_background_ended). */
void mapper_background_ask_end(struct mapper_shared *shared);
bool mapper_background_ended(struct mapper_shared *shared);
void mapper_background_join(struct mapper_shared *shared);
void mapper_background_dump(struct mapper_shared *shared, FILE *out);

/* --- the process ---------------------------------------------------------------------------- */

struct mapper_shared {
	pthread_mutex_t lock; /* of pool, locks and back */
	const struct mapper_options *options;
	struct mapper_pool pool;
	LIST_HEAD(mapper_lock_list, mapper_lock) locks[MAPPER_BUCKETS];
	struct mapper_leases leases;
	struct mapper_memory memory;
	struct mapper_background background;
	struct mapper_shard *first; /* shard 0 */
	uint64_t owner;		    /* of what is ours: the segment's */
	uint64_t place, boot;	    /* in home records: the segment and machine, and its boot */
	char host[MAP_HOST_MAX + 1];
	struct map_watch watch;
};

static inline struct mapper_shared *mapper_shared(const struct mapper_task *task)
{
	return task->shard->shared;
}

uint64_t mapper_admin_draw_id(void);

/* --- what is asked -------------------------------------------------------------------------- */

extern const struct mapper_kind mapper_controls[MAP_CONTROLS];
extern const struct mapper_kind mapper_kind_info, mapper_kind_list, mapper_kind_create,
	mapper_kind_update, mapper_kind_remove, mapper_kind_renew, mapper_kind_adopt;

int mapper_control_page(struct mapper_task *task);
int mapper_control_bitmap(struct mapper_task *task);
int mapper_control_publish(struct mapper_task *task);
int mapper_list_run(struct mapper_task *task);
int mapper_diff_run(struct mapper_task *task);
int mapper_flatten_run(struct mapper_task *task);
int mapper_detail_run(struct mapper_task *task);
/* What lies behind a new end in the middle of an object becomes zeros. */
int mapper_flatten_cut(struct mapper_task *task, uint64_t size);
int mapper_background_sweep(struct mapper_task *task);
int mapper_background_sweep_state(struct mapper_task *task);
int mapper_lease_renew(struct mapper_task *task);
int mapper_lease_adopt(struct mapper_task *task);
int mapper_control_claim(struct mapper_task *task);
int mapper_control_acquire(struct mapper_task *task);
int mapper_holder_renew(struct mapper_task *task);
int mapper_control_release(struct mapper_task *task);
int mapper_control_home(struct mapper_task *task);
int mapper_control_given(struct mapper_task *task);
int mapper_control_break(struct mapper_task *task);
/* What XSEG_OP_LIST and INFO say of a volume. */
void mapper_task_describe(
	struct map_store *store, const struct map_volume *volume, struct xseg_volume_info *info);

#endif
