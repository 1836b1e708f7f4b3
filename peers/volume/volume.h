/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The composer: makes volumes of the objects in the store below.
 *
 * Which objects make a volume stands in its map, which the mapper keeps (<peer/map.h>); the
 * composer remembers what it has asked for, and publishes to the mapper what is new. Two floors of
 * state: a `struct volume` is the whole process's; each shard has a private cache of pointers to
 * them, so that a request costs one look-up without a lock. The table's mutex is held only to
 * find, insert or change one. A volume is never unloaded while it exists.
 *
 *   volume.c         options, turns            volume_enter.c    who may go on at once, and who not
 *   volume_table.c   what is loaded            volume_io.c       to which object a request goes
 *   volume_open.c    who has it open           volume_map.c      pages of maps
 *   volume_load.c    from the mapper           volume_intent.c     what the mapper has not got
 *   volume_lease.c   ours to write to          volume_overlay.c    objects that have a part only
 *   volume_quiesce.c    writes wait a moment      volume_first.c    objects that are not there yet
 *   volume_flush.c   FLUSH                     volume_publish.c     the mapper hears of them
 *   volume_keep.c    ours all the time
 *   volume_renew.c    the mapper hears what is ours to write to
 *   volume_admin.c, volume_list.c, volume_control.c: what is asked by people
 *
 * Units: bytes. Errors: 0 or -errno. Ownership: see each struct. Threads: a shard's functions
 * on its lane; volume_table_*: any. Blocking: none but that mutex, quiesced for a few instructions
 * (asking who lives reads /proc: only when a volume is listed, described or removed).
 */
#ifndef SKERRY_VOLUME_H
#define SKERRY_VOLUME_H

#include <base/hash.h>
#include <base/slab.h>
#include <base/sm.h>
#include <peer/call.h>
#include <peer/map.h>
#include <peer/worker.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <xseg/layout.h>
#include <xseg/port.h>

#define VOLUME_STORE 0u /* the edges */
#define VOLUME_MAP 1u
#define VOLUME_PAGES_MAX 32768u /* of a map: 2^24 objects */
#define VOLUME_BUCKETS 1024u
#define VOLUME_COUNT_MAX 65536u /* volumes in use at once */
#define VOLUME_KEEP_MAX 64u

enum volume_counter {
	VOLUME_FORWARDED,
	VOLUME_SPLIT,
	VOLUME_HOLES,
	VOLUME_LOADS,
	VOLUME_PAGES, /* of maps, asked for */
	VOLUME_OVERLAY_READS,
	VOLUME_OVERLAY_WRITES,
	VOLUME_COPIED, /* clusters completed from parents */
	VOLUME_PUBLISHED,
	VOLUME_MADE, /* objects */
	VOLUME_HELD, /* back, requests */
};

struct volume_options {
	uint64_t object_size;
	struct peer_list configured;
	struct peer_list keep;
};

/* How often a client (a lane) has a volume open. */
struct volume_opener {
	uint32_t count;
	uint16_t epoch;
	bool implied; /* it was at work before this process began: it has the volume open */
};

/* In memory a volume's state has one more value than in its record (enum xseg_volume_state). */
#define VOLUME_GONE 4u

/* Of all shards. Freed when it is gone and no shard's cache points to it. */
struct volume {
	/* Read for every request: a bit per client lane that is known to have it open; 0: removing,
	   quiesced or limited, so whoever asks looks closer. */
	_Atomic uint64_t admitted;
	_Atomic uint64_t size;
	_Atomic uint64_t line; /* who opened it in a term below that writes no more; 0: not ours */
	uint64_t id;
	unsigned object_shift;
	bool read_only;
	uint16_t self;		 /* its index among the owners */
	_Atomic uint32_t epoch;	 /* for new objects */
	_Atomic uint32_t frozen; /* own objects up to this are shared */
	/* by number of the page; NULL: a volume of the configuration, see volume_map.h */
	_Atomic(struct volume_page *) *pages;
	_Atomic uint32_t forgets; /* how often its pages were forgotten */
	uint64_t owners[MAP_OWNERS];
	/* guarded by the table's mutex */
	struct map_head_info head; /* as the mapper said last */
	uint8_t state;
	bool configured;     /* has no record */
	bool removing;	     /* somebody is at it just now */
	bool acquired;	     /* ours to write to */
	uint64_t term;	     /* in which it was acquired: the head is asked for again to read */
	uint64_t release_ns; /* it could not be given back: not before then */
	uint64_t kept_ns;    /* whoever has it open elsewhere says so again until then */
	_Atomic bool keep;   /* not given back, though nobody has it open: volume_keep.c */
	_Atomic uint64_t objects; /* as the mapper counted them last; 0: it was not asked */
	_Atomic bool lost; /* it was taken away from us while it was open: nothing is written */
	uint32_t refs;	   /* caches that point here */
	struct volume_quiesce *quiesce;
	uint32_t makers;	    /* that make objects for no request: a quiesce waits for them */
	struct volume_limit *limit; /* NULL: none */
	struct volume_opener opener[XSEG_LANES_MAX];
	LIST_ENTRY(volume) link;
	LIST_ENTRY(volume) lease; /* of those acquired */
};
LIST_HEAD(volume_list, volume);

struct volume_barrier;
TAILQ_HEAD(volume_barrier_queue, volume_barrier);
struct volume_quiesce;
TAILQ_HEAD(volume_quiesce_queue, volume_quiesce);

struct volume_shared {
	pthread_mutex_t lock;
	struct volume_list buckets[VOLUME_BUCKETS];
	struct volume_list acquired;
	uint32_t count;
	_Atomic uint64_t gone;	   /* volumes removed so far */
	struct intents *intents;   /* volume_intent.h; NULL: no mapper */
	struct overlays *overlays; /* volume_overlay.h */
	uint64_t started_ns;
	const struct peer_list *keep;
	/* fronts that were there before: epoch of each lane that has opened all again */
	_Atomic uint16_t reopened[XSEG_LANES_MAX];
	_Atomic bool all_reopened;
	/* volume_quiesce.c */
	struct volume_barrier_queue barriers[XSEG_LANES_MAX]; /* by shard; with the mutex */
	_Atomic uint32_t barrier_count[XSEG_LANES_MAX];
	_Atomic uint32_t releases; /* quiesces that have ended */
	_Atomic uint64_t *aside; /* bit per request slot: it waits here, and has done nothing yet */
	_Atomic uint32_t busy;	 /* releases of volumes and the like under way: nobody is idle */
};

struct volume_slot {
	uint64_t id; /* 0: empty */
	struct volume *volume;
};

struct volume_load;
TAILQ_HEAD(volume_load_queue, volume_load);

struct volume_shard {
	struct volume_slot *slots; /* open addressing, at most half full */
	uint32_t mask, used;
	uint64_t gone_seen;
	struct volume_load_queue loads;
	TAILQ_HEAD(, map_fetch) fetches;		  /* volume_map.c */
	TAILQ_HEAD(volume_part_queue, volume_part) parts; /* volume_overlay.c: they wait */
	uint32_t parts_waiting;				  /* of them, since the last look */
	uint32_t asks;					  /* bitmaps on their way */
	struct slab part_slab, ask_slab;
	struct volume_flush *background; /* volume_flush.c */
	uint64_t background_until_ns;
	/* volume_quiesce.c */
	struct volume_quiesce_queue quiescing; /* that this lane asked for */
	struct job_queue quiesced;	       /* jobs that met one */
	uint32_t releases_seen;
	/* volume_limit.c */
	struct job_queue limited;
	uint64_t limited_until_ns;
	uint64_t look_ns; /* volume_lease.c: when next */
	bool adopted;	  /* volume_adopt.c: it has begun */
	uint64_t say_ns;  /* volume_renew.c: when next */
	bool saying;
	/* volume_keep.c: bit per name of the option */
	TAILQ_HEAD(, volume_look) looks;
	uint64_t kept, keep_told; /* it was ours; it was told why it is not */
	uint64_t keep_ns;	  /* the next round: not before then */
	uint32_t keep_at;	  /* the next name */
	bool keep_task;		  /* it is being acquired */
};

/* --- volume_table.c: volumes of the process, caches of the shards ---------------------------- */

/* keep: names of those that are not given back; the list stays the caller's. */
int volume_table_open(struct volume_shared *shared, const struct peer_list *keep);
void volume_table_close(struct volume_shared *shared);
/* One of the configuration: all its objects are there, in epoch 0. -EEXIST; -EINVAL: no volume may
   look like this. */
int volume_table_add_configured(
	struct volume_shared *shared, const char *name, uint64_t size, uint32_t object_size);
/*
 * What the mapper said of a volume. `gone` is the count of removals before it was asked. -EAGAIN:
 * something was removed since, ask again; -ENFILE; -EILSEQ: no volume may look like this. One
 * that is there stays as it is.
 */
int volume_table_insert(
	struct volume_shared *shared, const struct map_head_info *head, uint64_t gone);
/* The configured volume of that name: its id, or 0. */
uint64_t volume_table_configured_id(struct volume_shared *shared, const char *name);
bool volume_table_keeps(const struct volume_shared *shared, const char *name);
/* May a volume look like this? 0 or -EILSEQ. */
int volume_table_head_check(const struct map_head_info *head);
/*
 * The mapper has said it anew. Where it is (its epoch, size and owners) is only to be changed when
 * nobody is at work on it, `all`: with volume_quiesce.h; else its name, state, flags and limits
 * are.
 */
int volume_table_head_set(
	struct peer *peer, struct volume *volume, const struct map_head_info *head, bool all);

/* For people. */
void volume_table_dump(struct peer *peer, FILE *out);

int volume_table_cache_open(struct volume_shard *shard);
void volume_table_cache_close(struct peer *peer);
/* NULL: not loaded. The pointer is good until the lane's next turn. */
struct volume *volume_table_lookup(struct peer *peer, uint64_t id);
/* With the mutex. */
struct volume *volume_table_find(struct volume_shared *shared, uint64_t id);

/*
 * To REMOVING, also from there (a removal that did not end). -EBUSY: somebody else removes it;
 * -EPERM: it comes from the configuration.
 */
int volume_table_remove_begin(struct peer *peer, struct volume *volume);
/* The removal failed; `state`: what its record says now. */
void volume_table_remove_stop(struct peer *peer, uint64_t id, unsigned state);
void volume_table_remove_end(struct peer *peer, uint64_t id);

static inline struct volume_shared *volume_shared(const struct peer *peer) { return peer->shared; }

/* Is there a mapper at all? Without, there are only volumes of the configuration. */
static inline bool volume_has_map(const struct peer *peer)
{
	return peer->edge[VOLUME_MAP] != XSEG_NONE;
}

static inline uint32_t volume_slot_of(const struct volume_shard *shard, uint64_t id)
{
	return (uint32_t)(hash_u64(id) >> 32) & shard->mask;
}

/* The cache alone; an empty slot's volume admits nobody. */
static inline struct volume *volume_cached(const struct volume_shard *shard, uint64_t id)
{
	uint32_t i = volume_slot_of(shard, id);
	while (shard->slots[i].id != id && shard->slots[i].id != 0)
		i = (i + 1) & shard->mask;
	return shard->slots[i].volume;
}

/* --- volume_open.c: who has it open ----------------------------------------------------------- */

struct volume_client {
	uint16_t lane, epoch;
};
#define VOLUME_NO_CLIENT ((struct volume_client){.lane = UINT16_MAX})
struct volume_client volume_open_client(const struct peer *peer, const struct job *job);

/* With the mutex. */
bool volume_open_is_leaving(const struct volume *volume);
/* With the mutex: a client works on it; from now on he goes on at once, if nothing stands against
   that. */
void volume_open_admit(struct volume *volume, struct volume_client client);
/* -EBUSY: it is being removed; -EROFS. again: how often the client has it open by now; 0: once more
   than before. */
int volume_open_add(struct peer *peer, struct volume *volume, struct volume_client client,
	bool writes, uint64_t again);
/* With the mutex: what that client has not opened here it has not open. */
void volume_open_unnotice(struct volume *volume, unsigned lane);
/* True: nobody has it open any more, and it is ours to give back. */
bool volume_open_remove(struct peer *peer, struct volume *volume, struct volume_client client);
/* How often it is open; forgets the dead. `but` alone may be at work without having opened it. */
uint32_t volume_open_count(struct peer *peer, struct volume *volume, struct volume_client but);
/* The same, with the mutex. */
uint32_t volume_open_count_locked(
	struct peer *peer, struct volume *volume, struct volume_client but);
/* With the mutex: what nobody alive has open any more, by the lanes' words alone. */
bool volume_open_is_unused(const struct peer *peer, const struct volume *volume);
void volume_open_describe(struct peer *peer, struct volume *volume, struct xseg_volume_info *info);

/* --- volume_step.c: what may have to wait for a request slot or pages ------------------------- */

/* Embedded in whatever makes requests of its own. */
struct volume_step {
	struct peer *peer;
	void (*run)(struct volume_step *step);
};

/*
 * A call for `op` with `bytes` of data pages (0: none); call->context is the step. NULL: no room
 * now; `run` is called again when there is.
 */
struct call *volume_step_call(struct volume_step *step, void (*run)(struct volume_step *step),
	enum xseg_op op, struct xseg_key key, uint32_t bytes);
/* A call that asks what the job does, with the job's data as its own. */
struct call *volume_step_as(
	struct volume_step *step, void (*run)(struct volume_step *step), const struct job *job);
/* `run` is called again in one of the next turns. */
void volume_step_later(struct volume_step *step, void (*run)(struct volume_step *step));

/* --- volume_task.c: an administrative job -------------------------------------------------- */

struct volume_task {
	struct volume_step step; /* first */
	struct job *job;	 /* NULL: our own, see volume_adopt.c */
	/* the volume was found (error 0: volume_find(id) has it), or was not */
	void (*found)(struct volume_task *task, int error);
	TAILQ_ENTRY(volume_task) link; /* waiting for a load */
	uint64_t id;
	char name[VOLUME_NAME_LENGTH_MAX + 1];
	uint64_t gone; /* removals before the mapper was asked */
};
TAILQ_HEAD(volume_task_queue, volume_task);

/* NULL: the job has failed with -ENOMEM. */
struct volume_task *volume_task_begin(struct peer *peer, struct job *job);
/* Ends the job, too: with error, or with `length` bytes of answer. */
void volume_task_end(struct volume_task *task, int error, uint32_t length, uint64_t value);
/* The job is somebody else's from here on. */
struct job *volume_task_leave(struct volume_task *task);
static inline struct volume_task *volume_task_of(const struct call *call) { return call->context; }
/* The name at `at` in the job's data; -EINVAL. */
int volume_task_name(struct volume_task *task, uint32_t at);
/* By task->id or (0) task->name: task->found() when it is loaded, or cannot be. */
void volume_task_find(struct volume_task *task, void (*found)(struct volume_task *task, int error));
/* By key.volume or (0) the name in the data: what OPEN, INFO and REMOVE begin with. */
void volume_task_start(
	struct peer *peer, struct job *job, void (*found)(struct volume_task *task, int error));
/* xseg_volume_info of task->id as the answer. */
void volume_task_answer(struct volume_task *task);
/* The mapper refused, and perhaps said whose fault it is: the job ends with that. */
void volume_task_refuse(struct volume_task *task, const struct call *call);

/* --- volume_load.c: from the mapper ------------------------------------------------------ */

/* MAP_ACQUIRE, of the volume or (id 0) of that name. NULL: no room now. */
struct call *volume_load_call(struct volume_step *step, void (*run)(struct volume_step *step),
	uint64_t id, const char *name, uint64_t flags);
/* What it has brought; 0 or -errno. */
int volume_load_answer(const struct call *call, struct map_head_info *head);
/* Start loading, or join those who wait: the job is dispatched again, or fails. */
void volume_load_job(struct peer *peer, struct job *job);
/* The same; task->found() hears of it. */
void volume_load_task(struct volume_task *task);

/* --- volume_lease.c: ours to write to ----------------------------------------------------- */

/*
 * Makes it ours (or, read_only, sees what it is now) while nobody is at work on it, and ends with
 * task->found(). When somebody else is at it just now, the job is dispatched again instead.
 */
void volume_lease_want(struct volume_task *task, bool read_only);
/* A job that writes: dispatched again when the volume is ours; fails when it cannot be. */
void volume_lease_job(struct peer *peer, struct volume *volume, struct job *job);
/* Nobody has it open any more: given back in the background. */
void volume_lease_release(struct peer *peer, struct volume *volume);
/* MAP_GIVE, MAP_KEEP. */
void volume_lease_give(struct volume_task *task, struct volume *volume);
void volume_lease_keep(struct volume_task *task, struct volume *volume);
/* It was acquired for somebody who is refused: given back, unless others have it open. */
void volume_lease_unwant(struct peer *peer, struct volume *volume);
/* It was taken away from us. */
void volume_lease_lost(struct peer *peer, uint64_t id);

/* --- volume_keep.c: ours all the time ------------------------------------------------------ */

/* The kept volume of that name, if it is ours: its id, or 0. */
uint64_t volume_keep_id(struct peer *peer, const char *name);
/* Is it kept, and ours? */
bool volume_keep_has(struct peer *peer, const struct volume *volume);
/* INFO of such a one, by task->id: it ends within a second. */
void volume_keep_info(struct volume_task *task);
/* Each turn; when the next INFO is late, UINT64_MAX: never. */
bool volume_keep_poll(struct peer *peer);
bool volume_keep_late(struct peer *peer);
uint64_t volume_keep_due(const struct peer *peer);

/* --- volume_renew.c: the mapper hears what we have acquired -- each turn. */
bool volume_renew_poll(struct peer *peer);
/* --- volume_adopt.c: intents of a predecessor -- each turn. */
bool volume_adopt_poll(struct peer *peer);

/* Is anything written to it lost? Then FLUSH must say so. */
static inline bool volume_is_lost(const struct volume *volume)
{
	return atomic_load_explicit(&volume->lost, memory_order_relaxed);
}
/* Each turn. */
bool volume_lease_poll(struct peer *peer);
/* One that nobody has open any more, and that is to be given back now. */
bool volume_lease_waits(struct peer *peer);

/* --- volume_front.c: what those have open who were there before us ------------------------ */

/* The client has opened again whatever it has open. */
void volume_front_reopened(struct peer *peer, struct volume_client client);
/* True: not all have said so; the job is dispatched again later, or has failed. */
bool volume_front_await(struct peer *peer, struct job *job);

/* NAME of "NAME:SIZE": its length, 0 when there is none. */
size_t volume_configured_name(const char *text, char name[VOLUME_NAME_LENGTH_MAX + 1]);

/* --- handlers -------------------------------------------------------------------------------- */

peer_handler_f volume_io_read, volume_io_write, volume_io_zero, volume_io_discard,
	volume_io_prefetch, volume_flush;
peer_handler_f volume_status;
/* INFO: what the mapper says of a volume, with what is known here; ends the task. */
void volume_admin_describe(struct volume_task *task, struct xseg_volume_info info);
peer_handler_f volume_admin_open, volume_admin_close, volume_admin_info, volume_admin_create,
	volume_admin_update, volume_admin_remove;
peer_handler_f volume_list, volume_control;

/* --- volume_enter.c -------------------------------------------------------------------------- */

/* The volume of a data job; NULL: the job waits for it, or has failed. */
struct volume *volume_enter_slow(struct peer *peer, struct job *job);

/* Another has had the volume since whoever asks has opened it: arg1 of what changes it is the term
   of then, 0 of who opened it to read, or not at all. */
static inline bool volume_is_over(const struct volume *volume, const struct job *job)
{
	return unlikely(job->arg1 != 0) &&
	       job->arg1 < atomic_load_explicit(&volume->line, memory_order_relaxed);
}

static inline struct volume *volume_io_enter(struct peer *peer, struct job *job)
{
	struct volume *volume = volume_cached(peer->state, job->key.volume);
	uint64_t admitted = atomic_load_explicit(&volume->admitted, memory_order_relaxed);
	if (likely((admitted >> (job->client % XSEG_LANES_MAX)) & 1) &&
		likely(!volume_is_over(volume, job)))
		return volume;
	return volume_enter_slow(peer, job);
}

#endif
