/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mover: a store in front of two, which takes groups of volumes from one to the other while
 * they are used. docs/moving.md says why it is safe.
 *
 * An object of a group that is on its way is where it exists in the store that the group leaves;
 * all others are in the one it goes to. So nothing need be remembered but which groups there are
 * and whereto each goes. While that goes on, requests that go to the store that is left are counted
 * object by object; all others are handed on and forgotten.
 *
 *   IDLE -> LOADING     at the start: what the groups' records say
 *   IDLE -> CHANGING    BEGIN: records hidden, the objects of the store that is left listed
 *   IDLE -> MOVING      STEP, or who deletes an object of which part of a copy may be in the other
 *                       store: objects are moved, in batches that know nothing of each other
 *   IDLE -> SETTLING    STEP, none is left: records shown in the store it has gone to
 *   IDLE -> JOINING     a snapshot or clone of a volume of a group belongs to it
 *   IDLE -> NAMING      MOVER_NAMES
 *   IDLE -> MEASURING   MOVER_ROOM
 *
 * A batch (mover_batch.c), so that one is read while another is written and a third deleted:
 *
 *   FREE -> QUIETING    who changes its objects waits; those on their way end
 *        -> COPYING     a worker copies and flushes
 *        -> CLOSING     who reads them waits, too; those on their way end
 *        -> DELETING    a worker deletes what was copied, and flushes that
 *
 * Threads: the lane, and a worker for each batch, or one for all else (mover_work.c), which works
 * on struct mover_task; groups do not change while that is out. Blocking: the workers.
 */
#ifndef SKERRY_PEERS_MOVER_MOVER_H
#define SKERRY_PEERS_MOVER_MOVER_H

#include <base/sm.h>
#include <errno.h>
#include <peer/call.h>
#include <peer/mover.h>
#include <peer/store.h>
#include <peer/worker.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Where the records of volumes have what a mover must know: docs/format-map.md. */
#define MOVER_NAME_ID 16u
#define MOVER_HOME_TERM 24u
#define MOVER_HOME_OWNER 32u
#define MOVER_HOME_LINE 128u
#define MOVER_HOME_SIZE 512u
#define MOVER_GENERATION 48u
#define MOVER_PARENT 320u
#define MOVER_OWNERS 512u
#define MOVER_OWNERS_COUNT 128u

#define MOVER_BATCH_MAX 32u
#define MOVER_BATCHES 4u
#define MOVER_BUCKETS 65536u /* of objects that are known */
#define MOVER_ID_BUCKETS 1024u

#define MOVER_PART (64u << 10) /* what is all zeros, or has not changed, is not sent */
#define MOVER_PARTS (XSEG_OBJECT_MAX / MOVER_PART)

struct mover_options {
	char *keep;
	uint64_t batch; /* objects */
};

enum mover_batch_step {
	BATCH_FREE,
	BATCH_QUIETING,
	BATCH_COPYING,
	BATCH_CLOSING,
	BATCH_DELETING,
	BATCH_STEPS
};

enum mover_step {
	STEP_IDLE,
	STEP_LOADING,
	STEP_CHANGING,
	STEP_MOVING,
	STEP_SETTLING,
	STEP_JOINING,
	STEP_NAMING,
	STEP_MEASURING,
	STEPS
};

struct mover_object {
	struct xseg_key key;
	struct mover_group *group;
	LIST_ENTRY(mover_object) chain;
	TAILQ_ENTRY(mover_object) order;
	uint32_t reads, changes; /* on their way */
	bool member;		 /* in the store that is left */
	bool busy;		 /* being moved: who changes it waits */
	bool closing;		 /* ... and who reads it */
	bool litter;		 /* a part of a copy may be in the other store */
};
TAILQ_HEAD(mover_order, mover_object);

struct mover_group {
	LIST_ENTRY(mover_group) link;
	uint32_t phase; /* enum mover_phase */
	uint32_t to;	/* enum mover_store */
	uint32_t count;
	bool counting;		  /* all of its requests are counted: a list is made */
	bool held;		  /* its records are on their way: who asks for them waits */
	struct mover_order order; /* all objects that are known */
	uint32_t batches;	  /* under way */
	uint64_t version;	  /* of its record; the workers' */
	uint64_t members, objects, bytes;
	uint64_t ids[MOVER_IDS_MAX];
};
LIST_HEAD(mover_groups, mover_group);

struct mover_id {
	LIST_ENTRY(mover_id) chain;
	uint64_t id;
	struct mover_group *group;
};

struct mover_keys {
	struct xseg_key *all;
	size_t count, room;
};

/* One object of a batch. */
struct mover_piece {
	struct mover_object *object;
	struct xseg_key key;
	bool litter;		  /* in: clean up first; out: could not be cleaned up */
	bool moved;		  /* it is not in the store that is left */
	uint64_t size, unchanged; /* bytes; of them those that a kept copy had */
};

/* A group as its record says, and of one that is on its way what lies in the store that it leaves
   and in the one it goes to. */
struct mover_loaded {
	struct mover_group *group;
	struct mover_keys members, copies;
	struct mover_loaded *next;
};

struct mover_task {
	struct worker_item item; /* first */
	struct mover *mover;
	struct mover_group *group;
	struct job *job; /* to be answered, or (JOINING) to go on */
	uint32_t to;
	int error;
	uint64_t id;		   /* JOINING */
	bool complete;		   /* nobody else belongs to it */
	struct mover_keys family;  /* out: .volume of each that belongs to the group, too */
	struct mover_keys members; /* out: in the store that is left from now on */
	struct mover_keys copies;  /* out: what the other store has of the group already */
	struct mover_keys litter;  /* in: what has to be deleted before */
	uint64_t needed, room;	   /* MEASURING, out */
	struct mover_loaded *loaded;
	struct mover_keys residents; /* .volume of each */
};

/* A request of a worker's. */
struct mover_call {
	enum xseg_op op;
	struct xseg_key key;
	uint64_t offset, arg0, arg1;
	uint32_t room;	 /* bytes that are sent, or may be answered */
	uint32_t length; /* 0: as many */
	uint32_t flags;
	const void *send;
	void *receive;
	/* the answer */
	int result;
	uint32_t got;
	uint64_t value;
};
struct mover_row {
	struct mover *mover;
	pthread_mutex_t lock;
	pthread_cond_t answered;
	atomic_bool waits; /* to be sent */
	struct mover_call *calls;
	unsigned store, count;
	unsigned sent;	  /* the lane's */
	unsigned pending; /* under the lock */
};

struct mover_batch {
	struct worker_item item; /* first */
	struct mover_group *group;
	uint8_t step; /* enum mover_batch_step */
	int error;
	struct mover_piece pieces[MOVER_BATCH_MAX];
	unsigned count;
	struct mover_row row;
};

LIST_HEAD(mover_chain, mover_object);
LIST_HEAD(mover_id_chain, mover_id);

struct mover {
	struct peer *peer;
	uint8_t step; /* enum mover_step */
	bool loaded;
	bool names_held;
	struct mover_groups groups;
	struct mover_group resident;  /* volumes that lie in the new store, and are on no way */
	struct mover_group astray[2]; /* those that another host's mover has on its way; by the
					 store where they were before */
	struct mover_id_chain *ids;
	struct mover_chain *objects;
	struct job_queue
		waiting; /* for something to end; each is served again from the beginning */
	struct job_queue controls; /* asked for, one after the other */
	struct job_queue steps;	   /* STEP: each waits for a batch of its group to end */
	struct job_queue joins;
	struct job_queue names; /* one at a time; the first is being looked up */
	struct xseg_key wanted; /* object that somebody waits to delete; volume 0: none */
	uint64_t wanted_ns;	/* not before then */
	struct mover_task task;
	atomic_bool stopping;
	int keep; /* the folder; -1: none */
	atomic_bool keep_said;
	struct mover_row row;
	struct mover_batch batches[MOVER_BATCHES];
};

enum { MOVER_C_OBJECTS, MOVER_C_BYTES, MOVER_C_UNCHANGED, MOVER_C_WAITS };

static inline struct mover *mover_of(struct peer *peer) { return peer->state; }

/* --- who is where (mover_group.c) --- */

void mover_group_open(struct mover *mover);
void mover_group_close(struct mover *mover);
struct mover_group *mover_group_find(const struct mover *mover, uint64_t id);
/* Known from now on, with all its ids. */
void mover_group_add(struct mover *mover, struct mover_group *group);
void mover_group_add_id(struct mover *mover, struct mover_group *group, uint64_t id);
bool mover_group_has(const struct mover_group *group, uint64_t id);
/* It lies in the new store, unless it is known. */
void mover_group_reside(struct mover *mover, uint64_t id);
bool mover_group_is_resident(const struct mover *mover, const struct mover_group *group);
bool mover_group_is_astray(const struct mover *mover, const struct mover_group *group);
/* One that we have moved, or are moving. */
bool mover_group_is_ours(const struct mover *mover, const struct mover_group *group);
/* A record of a volume that is in none of ours was found; `hidden`: as who moves it does it. */
void mover_group_found(struct mover *mover, uint64_t id, unsigned store, bool hidden);
/* All of it lies in the new store, and nothing is on its way: they are residents. */
void mover_group_retire(struct mover *mover, struct mover_group *group);
void mover_group_remove(struct mover *mover, struct mover_group *group);
/* Where what is no member lies. */
unsigned mover_group_rest(const struct mover_group *group);
struct mover_object *mover_group_object(const struct mover *mover, const struct xseg_key *key);
/* Found or made; NULL: no memory. */
struct mover_object *mover_group_object_get(
	struct mover *mover, struct mover_group *group, const struct xseg_key *key);
void mover_group_object_forget(struct mover *mover, struct mover_object *object);
void mover_group_object_is_member(struct mover_object *object, bool member);
/* Its record, in `bytes`: how long it is. */
uint32_t mover_group_encode(const struct mover_group *group, uint8_t bytes[XSEG_RECORD_MAX]);
/* 0, -EILSEQ, -EPROTO: made by a newer one. */
int mover_group_decode(const uint8_t *bytes, uint32_t size, struct mover_group *group);

void mover_group_keys_add(struct mover_keys *keys, struct xseg_key key);

/* --- requests (mover_route.c, mover_ask.c) --- */

void mover_route_serve(struct peer *peer, struct job *job);
/* A request to an object that is counted has ended. */
void mover_route_ended(struct mover *mover, struct mover_object *object, bool change);
/* Those that waited are served again. */
void mover_route_wake(struct mover *mover);
/* Of a record of a volume that is new here: the group that it shares objects with. */
struct mover_group *mover_route_joins(const struct mover *mover, const struct job *job);
void mover_route_wait(struct mover *mover, struct job *job);
/* In a later turn: slots or pages are short. */
void mover_route_retry(struct job *job);
/* A GET of a record of a volume that is in no group of ours (mover_find.c). */
void mover_find(struct mover *mover, struct job *job);
void mover_ask_list(struct mover *mover, struct job *job);
void mover_ask_name(struct mover *mover, struct job *job);
/* From an object of one store to another one's. */
void mover_ask_copy(struct mover *mover, struct job *job, unsigned from,
	struct mover_object *source, unsigned to, struct mover_object *object);
void mover_ask_both(struct job *job);

/* --- what is asked for (mover_step.c) --- */

bool mover_step_turn(struct mover *mover);
void mover_step_control(struct mover *mover, struct job *job);
/* It begins by itself. */
void mover_step_join(struct mover *mover, struct job *job);
/* Nothing is on its way to an object any more that has been forgotten for that. */
void mover_step_settled(struct mover *mover);
/* The object's litter is in somebody's way, and perhaps nobody says STEP any more. */
void mover_step_want(struct mover *mover, const struct mover_object *object);

/* A batch has ended. */
void mover_step_ended(struct mover *mover, struct mover_group *group, int error);

/* --- batches (mover_batch.c) --- */

/* Objects of the group's that are in no batch yet, as many as may be under way; `only`: that one
   alone. False: none, now. */
bool mover_batch_start(struct mover *mover, struct mover_group *group, struct mover_object *only);
bool mover_batch_any(const struct mover *mover);
bool mover_batch_turn(struct mover *mover);

/* --- what a worker asks (mover_call.c): 0, or the first error --- */

void mover_call_open(struct mover *mover);
void mover_call_close(struct mover *mover);
/* Who works on the mover's task; all at once: on whatever the row belongs to. */
int mover_call_do(struct mover *mover, unsigned store, struct mover_call *call);
int mover_call_all(struct mover_row *row, unsigned store, struct mover_call *calls, unsigned count);
/* The lane's part. */
bool mover_call_turn(struct mover *mover);

/* --- records, for a worker (mover_record.c): of all at once; 0, or the first error --- */

#define MOVER_RECORDS 96u /* at once */

struct mover_record {
	struct xseg_key key; /* may change from call to call */
	int error;	     /* of the last get; else it is neither put nor deleted */
	uint32_t size;
	uint64_t version; /* that was got, and is to be deleted */
	uint64_t over;	  /* that it is put over, 0: none; then what is there */
	bool put;
	uint8_t bytes[XSEG_RECORD_MAX];
};

/* -ENOENT is an answer like another, -EILSEQ the last error to be reported. */
int mover_record_get(
	struct mover *mover, unsigned store, struct mover_record *records, unsigned count);
/* Those that have not been put since they were got. keep: not over what is there, and sound.
   -ESTALE: not what was expected to be there; now it is known what is. */
int mover_record_put_once(struct mover *mover, unsigned store, struct mover_record *records,
	unsigned count, bool keep);
/* The same until all have been put. */
int mover_record_put(struct mover *mover, unsigned store, struct mover_record *records,
	unsigned count, bool keep);
/* -ESTALE: one has changed since. */
int mover_record_delete(
	struct mover *mover, unsigned store, struct mover_record *records, unsigned count);

/* Objects of the group, or records of an epoch; added to keys. */
int mover_record_list_group(struct mover *mover, unsigned store, const struct mover_group *group,
	struct mover_keys *keys);
int mover_record_list_all(
	struct mover *mover, unsigned store, uint32_t epoch, struct mover_keys *keys);

/* --- copies of what has left (mover_keep.c) --- */

int mover_keep_open(struct mover *mover, const char *dir, char *why, size_t why_size);
void mover_keep_close(struct mover *mover);
void mover_keep_put(
	struct mover *mover, const struct xseg_key *key, const char *bytes, uint32_t size);
/* False: there is none; else all of `bytes` is something. */
bool mover_keep_get(
	const struct mover *mover, const struct xseg_key *key, char *bytes, uint32_t size);
/* All of the volume's. */
void mover_keep_drop(struct mover *mover, uint64_t volume);

/* --- what is on its way (mover_out.c) --- */

enum mover_out {
	OUT_ANY,     /* handed on by us, to what is the group's */
	OUT_RECORDS, /* ... to a record of the group's, or (NULL) of anybody's */
	OUT_NAMES,   /* ... to any name */
	OUT_STORES   /* what is the group's, at either store, whoever has sent it */
};

/* Until all that are on their way now have been answered; others may follow. */
void mover_out_wait(const struct mover *mover, enum mover_out out, const struct mover_group *group);

/* --- the worker (mover_work.c, mover_copy.c, mover_room.c) --- */

void mover_work_load(struct worker_item *item);
void mover_work_change(struct worker_item *item);
void mover_work_settle(struct worker_item *item);
void mover_work_join(struct worker_item *item);
void mover_work_names(struct worker_item *item);
void mover_room_run(struct worker_item *item);
void mover_copy_run(struct worker_item *item);
void mover_copy_delete(struct worker_item *item);

#endif
