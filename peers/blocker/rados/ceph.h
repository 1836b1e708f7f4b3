/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocker on RADOS. What lies in the pool, name by name: docs/format-blocker-rados.md.
 *
 *   blocker_rados.c  the peer: options, start, which operation goes where
 *   ceph_link.c      a client of the cluster: connecting, who else is one, blocklisting
 *   ceph_fence.c     who may write to which volume
 *   ceph_data.c      READ, WRITE, ZERO, DISCARD: answered by callbacks of librados
 *   ceph_object.c    DELETE, COPY, INFO, STATUS, and objects that are made: on worker threads
 *   ceph_index.c     which objects and records there are; LIST, CAS: on worker threads
 *
 * Units: bytes, ns. Errors: 0 or -errno; -ESHUTDOWN: the cluster takes nothing from this client any
 * more, another one is needed. Threads: as each says. What blocks is only called on workers.
 */
#ifndef SKERRY_BLOCKER_RADOS_CEPH_H
#define SKERRY_BLOCKER_RADOS_CEPH_H

#include <peer/store.h>
#include <peer/worker.h>
#include <pthread.h>
#include <rados/librados.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "peers/blocker/home.h"

#define CEPH_ROOM "blocker_rados"
#define CEPH_MAKERS 64u
#define CEPH_BUCKETS 256u
#define CEPH_PARTS 16 /* of one request as an operation each; beyond that they are put together */
#define CEPH_KNOWN 4096u
#define CEPH_NAME 48u /* bytes of any name of ours in the pool */

struct ceph_options {
	char *pool, *conf, *id, *key_file, *name_space;
	uint64_t timeout, fence_timeout;
};

enum {
	CEPH_MAKES,
	CEPH_ABSENT_READS,
	CEPH_FENCED,
	CEPH_RECONNECTS,
	CEPH_BLOCKLISTED,
	CEPH_CAS_RETRIES,
	CEPH_ERRORS,
	CEPH_COUNTERS
};

/* A client of the cluster. Whoever uses one has taken it. */
struct ceph_link {
	struct ceph_store *store;
	rados_t cluster;
	rados_ioctx_t io;
	uint64_t id; /* what the cluster calls it */
	uint64_t watch;
	unsigned users; /* with the store's mutex */
	bool watching;
	struct ceph_link *next; /* of those that have been replaced */
};

/* A notification that is answered when the last write has ended. */
struct ceph_notice {
	SLIST_ENTRY(ceph_notice) link;
	struct ceph_link *by;
	uint64_t id, watch;
};

enum ceph_claim {
	CEPH_UNKNOWN, /* the pool has to be asked */
	CEPH_FREE,    /* nobody has ever fenced it: all may write */
	CEPH_OURS,
	CEPH_CLOSED /* to us */
};

struct ceph_volume {
	SLIST_ENTRY(ceph_volume) link;
	uint64_t id, line;
	enum ceph_claim claim;
	uint32_t changes; /* grows when what is known of it becomes void */
	uint32_t writes;  /* under way */
	uint32_t closing; /* tasks that wait until there are none: nothing is learned meanwhile */
	SLIST_HEAD(, ceph_notice) notices;
};

/* Of all shards of the process: peer->shared. */
struct ceph_store {
	struct peer *peer; /* the first shard: options, name, counters that workers add to */
	const struct ceph_options *options;
	uint64_t own;		      /* which writer we are: the same after a restart */
	char identity[HOME_IDENTITY]; /* of what lies in the pool */
	char home[PATH_LENGTH_MAX];   /* where that is noted */
	pthread_mutex_t lock;	      /* link, volumes; for a moment */
	struct ceph_link *link, *dead;
	SLIST_HEAD(, ceph_volume) volumes[CEPH_BUCKETS];
	pthread_mutex_t renewing;		 /* while a new link is made: on workers */
	pthread_mutex_t making[CEPH_MAKERS];	 /* objects that are made or deleted: on workers */
	_Atomic int said;			 /* the error that the log has */
	_Atomic uint64_t counted[CEPH_COUNTERS]; /* by any thread; added to the counters by poll */
};

/* A shard's: peer->state. */
struct ceph_shard {
	uint32_t deletes; /* grows when one begins or ends */
	struct xseg_key known[CEPH_KNOWN];
};

/* A request on a worker. */
struct ceph_task {
	struct worker_item item; /* first */
	struct job *job;
	int (*act)(struct ceph_task *task, struct ceph_link *link);
	void (*then)(struct ceph_task *task); /* on the lane; frees it */
	int answer;
	uint64_t value;
};

static inline struct ceph_store *ceph_store_of(const struct job *job) { return job->peer->shared; }

/* --- blocker_rados.c ------------------------------------------------------------------------ */

/* Starts a task: act() on a worker, again with another link when that one is shut out; then(). */
void blocker_rados_work(struct job *job, int (*act)(struct ceph_task *, struct ceph_link *),
	void (*then)(struct ceph_task *task));
/* then(): answers the job with the task's answer. */
void blocker_rados_answer(struct ceph_task *task);
/* The request from its beginning, as if it had just come. */
void blocker_rados_take(struct peer *peer, struct job *job);
/* What a client of ours is told; the log has the first of each kind in a row. */
int blocker_rados_error(struct ceph_store *store, int error, const char *what);

/* --- ceph_link.c: blocking, but for take and give -------------------------------------------- */

int ceph_link_open(struct ceph_store *store, char *why, size_t why_size);
void ceph_link_close(struct ceph_store *store);
struct ceph_link *ceph_link_take(struct ceph_store *store);
void ceph_link_give(struct ceph_link *link);
/* That one was shut out: another takes its place, if none has yet. */
int ceph_link_renew(struct ceph_store *store, const struct ceph_link *dead);
/* Tells all others to let go of the volume; those of that writer (or ANYBODY) that do not answer
   are kept from the cluster from now on. */
#define CEPH_ANYBODY UINT64_MAX
int ceph_link_evict(struct ceph_link *link, uint64_t volume, uint64_t writer);
/* 0: the pool exists, so what is not there reads as zeros. -EIO. */
int ceph_link_pool(struct ceph_link *link);

/* --- ceph_fence.c --------------------------------------------------------------------------- */

void ceph_fence_init(struct ceph_store *store);
void ceph_fence_fini(struct ceph_store *store);
/* A write begins: 0, and it is left when it ends; -ESTALE: it may not; -EAGAIN: ceph_fence_ask()
   first. term: of what is written, 0: not known. */
int ceph_fence_enter(struct ceph_store *store, uint64_t volume, uint64_t term);
void ceph_fence_leave(struct ceph_store *store, uint64_t volume);
/* Another one has claimed it: the notice is answered when our writes have ended. */
void ceph_fence_let_go(struct ceph_link *link, uint64_t volume, uint64_t notice, uint64_t watch);
/* The link is new: what is known of all volumes is void. */
void ceph_fence_forget_all(struct ceph_store *store);
/* act() of tasks: asks the pool whose it is; CONTROL FENCE; CONTROL LEAVE. */
int ceph_fence_ask(struct ceph_task *task, struct ceph_link *link);
int ceph_fence_claim(struct ceph_task *task, struct ceph_link *link);
int ceph_fence_left(struct ceph_task *task, struct ceph_link *link);
/* It was removed. */
void ceph_fence_forget(struct ceph_link *link, uint64_t volume);

/* --- ceph_data.c: on the lane --------------------------------------------------------------- */

void ceph_data_take(struct job *job);
void ceph_data_start(struct peer *peer);
/* DELETE begins, and ends. */
void ceph_data_deleted(const struct job *job);

/* --- ceph_object.c, act() of tasks ---------------------------------------------------------- */

void ceph_object_name(char name[CEPH_NAME], const struct xseg_key *key);
/* WRITE and ZERO to an object that is not there yet. */
int ceph_object_make(struct ceph_task *task, struct ceph_link *link);
int ceph_object_copy(struct ceph_task *task, struct ceph_link *link);
int ceph_object_delete(struct ceph_task *task, struct ceph_link *link);
int ceph_object_info(struct ceph_task *task, struct ceph_link *link);
int ceph_object_status(struct ceph_task *task, struct ceph_link *link);
/* An absent object was read: zeros, if the pool is there. */
int ceph_object_absent(struct ceph_task *task, struct ceph_link *link);
/* act(): does the link still carry? */
int ceph_object_reach(struct ceph_task *task, struct ceph_link *link);
/* Adds what the job (WRITE, ZERO, DISCARD) does to the object. */
int ceph_object_change(const struct job *job, rados_write_op_t op);

/* --- ceph_index.c: blocking ----------------------------------------------------------------- */

int ceph_index_add(struct ceph_link *link, const struct xseg_key *key);
int ceph_index_remove(struct ceph_link *link, const struct xseg_key *key);
int ceph_index_list(struct ceph_task *task, struct ceph_link *link);
int ceph_index_cas(struct ceph_task *task, struct ceph_link *link);

/* One value of an object's omap: its size, 0: there is none; -errno. */
int ceph_index_get(
	struct ceph_link *link, const char *object, const char *key, void *to, size_t room);
/* Puts (or, with no size, removes) a value if the one there is still `old`: -ECANCELED. */
struct ceph_value {
	const void *data;
	size_t size;
};
int ceph_index_swap(struct ceph_link *link, const char *object, const char *key,
	struct ceph_value old, struct ceph_value now);
/* Calls visit(context, key, value, size) for keys after that one, in order, until it says false. */
typedef bool ceph_visit_f(void *context, const char *key, const char *value, size_t size);
int ceph_index_walk(struct ceph_link *link, const char *object, const char *after,
	ceph_visit_f *visit, void *context);

#endif
