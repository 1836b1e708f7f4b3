/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The composer: makes volumes of the objects in the store below.
 *
 * Two floors of state. A `struct volume` is the whole process's: its record, which objects there
 * are, who has it open. Each shard has a private cache of pointers to them, so that a request
 * costs one look-up without a lock; the table's mutex is held only to find, insert or change one.
 * A volume is never unloaded while it exists: a second copy of its presence bitmap would miss
 * the bits set in the first.
 *
 * Units: bytes. Errors: 0 or -errno. Ownership: see each struct. Threads: a shard's functions
 * on its lane; volume_table_*: any. Blocking: none but that mutex, held for a few instructions
 * (asking who lives reads /proc: only when a volume is listed, described or removed).
 */
#ifndef SKERRY_VOLUME_H
#define SKERRY_VOLUME_H

#include <base/sm.h>
#include <peer/call.h>
#include <peer/worker.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <xseg/layout.h>

#include "peers/volume/volume_record.h"

#define VOLUME_STORE 0u /* the edge */
#define VOLUME_BUCKETS 1024u
#define VOLUME_COUNT_MAX 65536u	 /* volumes in use at once */
#define VOLUME_LIST_BYTES 65536u /* keys asked of the store at a time */
#define VOLUME_LIST_KEYS (VOLUME_LIST_BYTES / sizeof(struct xseg_key))
#define VOLUME_WINDOW 32u /* requests of one administrative job in flight */

enum volume_counter {
	VOLUME_FORWARDED,
	VOLUME_SPLIT,
	VOLUME_HOLES,
	VOLUME_LOADS,
	VOLUME_TIDIED,
};

struct volume_options {
	uint64_t object_size;
	struct peer_list fixed;
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
	/* read for every request */
	_Atomic uint64_t
		admitted; /* bit per client lane that is known to have it open; 0: removing */
	uint64_t size;
	unsigned object_shift;
	bool read_only;
	_Atomic uint64_t *present; /* bit per object; NULL: all are treated as present */
	/* guarded by the table's mutex */
	struct volume_record record;
	uint8_t state;
	bool fixed;    /* from the configuration: has no record */
	bool removing; /* somebody is at it just now */
	uint32_t refs; /* caches that point here */
	struct volume_opener opener[XSEG_LANES_MAX];
	LIST_ENTRY(volume) link;
};
LIST_HEAD(volume_list, volume);

struct volume_shared {
	pthread_mutex_t lock;
	struct volume_list buckets[VOLUME_BUCKETS];
	uint32_t count;
	_Atomic uint64_t gone; /* volumes removed so far */
	_Atomic bool tidied;   /* or at it */
	_Atomic bool alone;    /* nothing of a predecessor is on its way any more */
	uint64_t started_ns;
	/* fronts that were there before: epoch of each lane that has opened all again */
	_Atomic uint16_t told[XSEG_LANES_MAX];
	_Atomic bool all_told;
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
	bool tidying;
};

/* --- volume_table.c: volumes of the process, caches of the shards, who has what open ------- */

struct volume_client {
	uint16_t lane, epoch;
};
struct volume_client volume_client_of(const struct peer *peer, const struct job *job);

int volume_table_open(struct volume_shared *shared);
void volume_table_close(struct volume_shared *shared);
int volume_table_add_fixed(struct volume_shared *shared, const struct volume_record *record);
/*
 * A volume was read from the store: its record and the objects found. `gone` is the count of
 * removals before it was read. -EAGAIN: something was removed since, read again; -ENFILE.
 * `present` is taken over in any case.
 */
int volume_table_insert(struct volume_shared *shared, const struct volume_record *record,
	_Atomic uint64_t *present, uint64_t gone);
/* The configured volume of that name: its id, or 0. */
uint64_t volume_table_fixed_id(struct volume_shared *shared, const char *name);

/* For people. */
void volume_table_dump(struct peer *peer, FILE *out);

int volume_cache_open(struct volume_shard *shard);
void volume_cache_close(struct peer *peer);
/* NULL: not loaded. The pointer is good until the lane's next turn. */
struct volume *volume_find(struct peer *peer, uint64_t id);
/* Notes that a client works on it. -ENOENT: it is being removed. */
int volume_admit(struct peer *peer, struct volume *volume, struct volume_client client);
/* -EBUSY: it is being removed; -EROFS. again: how often the client has it open by now; 0: once more
   than before. */
int volume_opened(struct peer *peer, struct volume *volume, struct volume_client client,
	bool writes, uint64_t again);
void volume_closed(struct peer *peer, struct volume *volume, struct volume_client client);
void volume_describe(struct peer *peer, struct volume *volume, struct xseg_volume_info *info);
/* May a client ask for this change? */
bool volume_state_may(unsigned from, unsigned to);
/* To `state`; -EINVAL when it may not. */
int volume_state_set(struct peer *peer, struct volume *volume, unsigned state);
/*
 * To REMOVING, also from there (a removal that did not end). -EBUSY: somebody else has it open
 * or removes it; -EPERM: it comes from the configuration. `before`: the state it was in.
 */
int volume_remove_begin(
	struct peer *peer, struct volume *volume, struct volume_client client, unsigned *before);
/* The removal failed; `state`: what its record says now. */
void volume_remove_stop(struct peer *peer, uint64_t id, unsigned state);
void volume_remove_end(struct peer *peer, uint64_t id);

static inline bool volume_is_present(const struct volume *volume, uint32_t object)
{
	if (!volume->present)
		return true;
	uint64_t word = atomic_load_explicit(&volume->present[object / 64], memory_order_relaxed);
	return (word >> (object % 64)) & 1;
}

/*
 * Before the first request that makes the object goes down. A bit is never cleared: a write that
 * races with the discard of its object would be lost. Relaxed will do: who may see the write has
 * heard of its end through a ring.
 */
static inline void volume_set_present(struct volume *volume, uint32_t object)
{
	if (!volume_is_present(volume, object))
		atomic_fetch_or_explicit(
			&volume->present[object / 64], 1ull << (object % 64), memory_order_relaxed);
}

static inline uint32_t volume_slot_of(const struct volume_shard *shard, uint64_t id)
{
	return (uint32_t)((id * 0x9e3779b97f4a7c15ull) >> 32) & shard->mask;
}

/* The cache alone; an empty slot's volume admits nobody. */
static inline struct volume *volume_cached(const struct volume_shard *shard, uint64_t id)
{
	uint32_t i = volume_slot_of(shard, id);
	while (shard->slots[i].id != id && shard->slots[i].id != 0)
		i = (i + 1) & shard->mask;
	return shard->slots[i].volume;
}

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
/* A CAS of what = XSEG_CAS_*, with room for a record. */
struct call *volume_step_cas(struct volume_step *step, void (*run)(struct volume_step *step),
	enum xseg_cas what, struct xseg_key key);
/* Puts a record into a PUT. */
void volume_call_record(struct call *call, const void *record, uint32_t size);
/* The record a GET answered with: its size, or -errno. */
int volume_call_answer(const struct call *call, uint8_t record[XSEG_RECORD_MAX]);

static inline struct xseg_key volume_record_key(uint64_t id)
{
	return (struct xseg_key){.volume = id, .epoch = XSEG_EPOCH_VOLUME};
}
static inline struct xseg_key volume_name_key(const char *name)
{
	return (struct xseg_key){.volume = volume_name_hash(name), .epoch = XSEG_EPOCH_NAME};
}

/* --- volume_task.c: an administrative job -------------------------------------------------- */

struct volume_task {
	struct volume_step step; /* first */
	struct job *job;
	/* the volume was found (error 0: volume_find(id) has it), or was not */
	void (*found)(struct volume_task *task, int error);
	TAILQ_ENTRY(volume_task) link; /* waiting for a load */
	uint64_t id;
	char name[VOLUME_NAME_LENGTH_MAX + 1];
	struct volume_record record;
	uint64_t version, name_version; /* of the records, as last read; 0: absent */
	unsigned state;			/* that was, or is wanted */
	/* lists of keys */
	uint64_t cursor, next_cursor;
	struct xseg_key *keys;
	uint32_t key_count, key_next, pending;
	struct xseg_key first_key; /* of the last page: has anything changed? */
	struct xseg_volume_info *infos;
	int error;
};
TAILQ_HEAD(volume_task_queue, volume_task);

/* NULL: the job has failed with -ENOMEM. */
struct volume_task *volume_task_begin(struct peer *peer, struct job *job);
/* Ends the job, too: with error, or with `length` bytes of answer. */
void volume_task_end(struct volume_task *task, int error, uint32_t length, uint64_t value);
static inline struct volume_task *volume_task_of(const struct call *call) { return call->context; }
/* The name in the job's data; -EINVAL. */
int volume_task_name(struct volume_task *task);
/* By task->id or (0) task->name: task->found() when it is loaded, or cannot be. */
void volume_task_find(struct volume_task *task, void (*found)(struct volume_task *task, int error));
/* By key.volume or (0) the name in the data: what OPEN, INFO and REMOVE begin with. */
void volume_task_start(
	struct peer *peer, struct job *job, void (*found)(struct volume_task *task, int error));
/* xseg_volume_info of task->id as the answer. */
/* What CAS GET has brought, with its version; ends the call. 0 or -errno. */
int volume_task_take_record(struct volume_task *task, struct call *call);
int volume_task_take_name(
	struct volume_task *task, struct call *call, struct volume_name_record *record);
void volume_task_answer(struct volume_task *task);

/* --- volume_load.c: from the store ------------------------------------------------------ */

/* Start loading, or join those who wait: the job is dispatched again, or fails. */
void volume_load_job(struct peer *peer, struct job *job);
/* The same; task->found() hears of it. */
void volume_load_task(struct volume_task *task);

/* --- volume_front.c: what those have open who were there before us ------------------------ */

/* The client has opened again whatever it has open. */
void volume_front_told(struct peer *peer, struct volume_client client);
/* True: not all have said so; the removal goes on later, or has failed. */
bool volume_front_await(struct peer *peer, struct job *job);

/* --- volume_flight.c: what a predecessor has on its way ----------------------------------- */

/* Before the store is asked which objects there are. */
void volume_flight_note(
	const struct peer *peer, uint64_t id, _Atomic uint64_t *present, uint64_t objects);

/* --- volume_tidy.c: what a killed composer left half made ------------------------------- */

/* Once in the process, in the background. */
void volume_tidy_begin(struct peer *peer);
bool volume_tidy_idle(struct peer *peer);

/* NAME of "NAME:SIZE": its length, 0 when there is none. */
size_t volume_fixed_name(const char *text, char name[VOLUME_NAME_LENGTH_MAX + 1]);

/* --- handlers -------------------------------------------------------------------------------- */

peer_handler_f volume_io_read, volume_io_write, volume_io_zero, volume_io_discard,
	volume_io_prefetch, volume_io_flush;
/* The volume of a data job; NULL: the job waits for it, or has failed. */
struct volume *volume_io_enter_slow(struct peer *peer, struct job *job);
peer_handler_f volume_status;
peer_handler_f volume_admin_open, volume_admin_close, volume_admin_info, volume_admin_create,
	volume_admin_update;
peer_handler_f volume_list, volume_remove;

static inline struct volume *volume_io_enter(struct peer *peer, struct job *job)
{
	struct volume *volume = volume_cached(peer->state, job->key.volume);
	uint64_t admitted = atomic_load_explicit(&volume->admitted, memory_order_relaxed);
	if (likely((admitted >> (job->client % XSEG_LANES_MAX)) & 1))
		return volume;
	return volume_io_enter_slow(peer, job);
}

#endif
