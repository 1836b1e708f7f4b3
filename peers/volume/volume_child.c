/* SPDX-License-Identifier: Apache-2.0 */
/* Partial objects: who has which granule, and reading. */
#include <base/crash.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume_children.h"
#include "peers/volume/volume_note.h"

#define DEPTH_MAX 4096u /* of parents: more is a circle */
#define ANSWER_BYTES (MAP_ANSWER_AT + sizeof(struct map_presence_info))
/* Questions of one shard at a time: the mapper needs slots, too, to answer them. */
#define ASKS_MAX 32u
/* Who waits for another lane looks again at least this often. */
#define WAIT_NS 100000u

/* --- bits --------------------------------------------------------------------------------- */

/* The bits of [first, first + count) that lie in word i. */
static uint64_t bits_in(uint32_t i, uint32_t first, uint32_t count)
{
	uint32_t from = first > i * 64 ? first - i * 64 : 0;
	uint32_t to = first + count > i * 64 ? first + count - i * 64 : 0;
	if (to > 64)
		to = 64;
	if (from >= to)
		return 0;
	return (to - from == 64 ? ~0ull : (1ull << (to - from)) - 1) << from;
}

void child_bits_set(uint64_t words[MAP_HAS_WORDS], uint32_t first, uint32_t count)
{
	for (uint32_t i = first / 64; i <= (first + count - 1) / 64; i++)
		words[i] |= bits_in(i, first, count);
}

void child_bits_clear(uint64_t words[MAP_HAS_WORDS], uint32_t first, uint32_t count)
{
	for (uint32_t i = first / 64; i <= (first + count - 1) / 64; i++)
		words[i] &= ~bits_in(i, first, count);
}

bool child_bits_all(const uint64_t words[MAP_HAS_WORDS], uint32_t first, uint32_t count)
{
	for (uint32_t i = first / 64; i <= (first + count - 1) / 64; i++)
		if (~words[i] & bits_in(i, first, count))
			return false;
	return true;
}

bool child_bits_any(const uint64_t words[MAP_HAS_WORDS], uint32_t first, uint32_t count)
{
	for (uint32_t i = first / 64; i <= (first + count - 1) / 64; i++)
		if (words[i] & bits_in(i, first, count))
			return true;
	return false;
}

/* --- the table, with the mutex ------------------------------------------------------------ */

static struct child_list *bucket_of(
	struct children *children, uint64_t owner, uint32_t epoch, uint32_t object)
{
	uint64_t hash = (owner ^ (uint64_t)epoch << 32) * 0x9e3779b97f4a7c15ull + object;
	return &children->buckets[hash * 0xd6e8feb86659fd93ull >> 40 & (CHILDREN_BUCKETS - 1)];
}

struct child *child_find(struct children *children, uint64_t owner, uint32_t epoch, uint32_t object)
{
	struct child *child;
	LIST_FOREACH (child, bucket_of(children, owner, epoch, object), link)
		if (child->owner == owner && child->epoch == epoch && child->object == object)
			return child;
	return NULL;
}

static void child_forget(struct children *children, struct child *child)
{
	LIST_REMOVE(child, link);
	children->count--;
	free(child);
}

static struct child *child_new(
	struct children *children, uint64_t owner, uint32_t epoch, uint32_t object)
{
	struct child *child = calloc(1, sizeof(*child));
	if (!child)
		return NULL;
	child->owner = owner;
	child->epoch = epoch;
	child->object = object;
	child->refs = 1;
	LIST_INSERT_HEAD(bucket_of(children, owner, epoch, object), child, link);
	struct child *oldest = TAILQ_FIRST(&children->order);
	if (++children->count > VOLUME_CHILDREN && oldest) {
		TAILQ_REMOVE(&children->order, oldest, order);
		child_forget(children, oldest);
	}
	return child;
}

struct child *child_add(struct children *children, uint64_t owner, uint32_t epoch, uint32_t object)
{
	struct child *child = child_new(children, owner, epoch, object);
	if (child)
		child->known = true;
	return child;
}

void child_ref(struct children *children, struct child *child)
{
	if (child->refs++ == 0)
		TAILQ_REMOVE(&children->order, child, order);
}

void child_unref(struct children *children, struct child *child)
{
	must(child->refs > 0);
	if (--child->refs > 0)
		return;
	if (child->known)
		TAILQ_INSERT_TAIL(&children->order, child, order);
	else
		child_forget(
			children, child); /* it could not be had: whoever asks next tries again */
}

int volume_child_open(struct peer *first)
{
	struct volume_shared *shared = first->shared;
	struct children *children = calloc(1, sizeof(*children));
	int rc = children ? -pthread_mutex_init(&children->lock, NULL) : -ENOMEM;
	if (rc != 0) {
		free(children);
		return rc;
	}
	TAILQ_INIT(&children->order);
	shared->children = children;
	return 0;
}

void volume_child_close(struct peer *first)
{
	struct volume_shared *shared = first->shared;
	struct children *children = shared->children;
	if (!children)
		return;
	for (unsigned i = 0; i < CHILDREN_BUCKETS; i++) {
		struct child *child;
		while ((child = LIST_FIRST(&children->buckets[i]))) {
			LIST_REMOVE(child, link);
			free(child);
		}
	}
	pthread_mutex_destroy(&children->lock);
	free(children);
	shared->children = NULL;
}

/* --- waiting ------------------------------------------------------------------------------ */

void child_wait(struct volume_part *part, void (*again)(struct volume_step *step))
{
	struct volume_shard *shard = part->step.peer->state;
	part->step.run = again;
	TAILQ_INSERT_TAIL(&shard->parts, part, link);
	shard->parts_waiting++;
}

void child_wait_not(struct volume_part *part)
{
	struct children *children = children_of(part->step.peer);
	if (!part->waits)
		return;
	pthread_mutex_lock(&children->lock);
	child_unref(children, part->waits);
	pthread_mutex_unlock(&children->lock);
	part->waits = NULL;
}

bool volume_child_poll(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	struct volume_part_queue waiting = TAILQ_HEAD_INITIALIZER(waiting);
	struct volume_part *part;
	if (likely(TAILQ_EMPTY(&shard->parts)))
		return false;
	uint32_t ran = 0;
	/* who has to wait again stands behind those that come now */
	TAILQ_CONCAT(&waiting, &shard->parts, link);
	shard->parts_waiting = 0;
	while ((part = TAILQ_FIRST(&waiting))) {
		struct child *waits = part->waits;
		TAILQ_REMOVE(&waiting, part, link);
		part->waits = NULL;
		part->step.run(&part->step);
		ran++;
		if (!waits)
			continue;
		/* not before: a child that cannot be had tells its error to those who waited */
		pthread_mutex_lock(&children_of(peer)->lock);
		child_unref(children_of(peer), waits);
		pthread_mutex_unlock(&children_of(peer)->lock);
	}
	if (shard->parts_waiting > 0)
		peer_wake_at(peer, peer_now_ns(peer) + WAIT_NS);
	return shard->parts_waiting < ran;
}

/* --- presences ---------------------------------------------------------------------------- */

struct child_ask {
	struct volume_step step; /* first */
	struct child *child;	 /* a ref is ours */
};

static struct volume_shard *shard_of_ask(const struct child_ask *ask)
{
	return ask->step.peer->state;
}

static void presence_take(struct child *child, const struct map_presence_info *info)
{
	child->parent_owner = info->parent_owner;
	child->parent_epoch = info->parent_epoch;
	child->parent_flags = info->parent_flags;
	memcpy(child->has, info->has, sizeof(child->has));
	child->known = true;
}

static void presence_answered(struct call *call)
{
	struct child_ask *ask = call->context;
	struct children *children = children_of(ask->step.peer);
	struct map_presence_info info = {.error = -EPROTO};
	if (call->result == 0 && call->answer_length >= ANSWER_BYTES)
		call_get_bytes(call, MAP_ANSWER_AT, &info, sizeof(info));
	else if (call->result != 0)
		info.error = call->result;
	if (info.error > 0)
		info.error = -EPROTO;
	call_end(call);
	shard_of_ask(ask)->asks--;
	pthread_mutex_lock(&children->lock);
	if (info.error == 0)
		presence_take(ask->child, &info);
	else
		ask->child->error = info.error;
	child_unref(children, ask->child);
	pthread_mutex_unlock(&children->lock);
	free(ask);
}

static void presence_ask(struct volume_step *step)
{
	struct child_ask *ask = (struct child_ask *)step;
	const struct child *child = ask->child;
	struct map_object object = {
		.owner = child->owner, .epoch = child->epoch, .object = child->object};
	struct call *call = volume_step_call(step, presence_ask, XSEG_OP_CONTROL,
		(struct xseg_key){.volume = child->owner}, ANSWER_BYTES);
	if (!call)
		return;
	call_put_bytes(call, 0, &object, sizeof(object));
	call->arg0 = MAP_PRESENCE;
	call->arg1 = 1;
	call_submit(call, VOLUME_MAP, presence_answered);
}

/* With the mutex. What stands in a note is all there is to know. */
static bool presence_noted(struct peer *peer, struct child *child)
{
	struct volume_note note;
	if (!volume_note_find(peer, child->owner, child->object, &note) ||
		note.epoch != child->epoch || !(note.flags & MAP_WORD_PARTIAL))
		return false;
	child->parent_owner = note.parent_owner;
	child->parent_epoch = note.parent_epoch;
	child->parent_flags = note.parent_flags;
	for (unsigned i = 0; i < MAP_HAS_WORDS; i++)
		child->has[i] = atomic_load_explicit(&note.has[i], memory_order_relaxed);
	child->known = true;
	return true;
}

struct child *child_get(struct peer *peer, const struct xseg_key *key)
{
	struct children *children = children_of(peer);
	struct child *child = child_find(children, key->volume, key->epoch, key->object);
	if (child) {
		child_ref(children, child);
		return child;
	}
	struct volume_shard *shard = peer->state;
	struct child_ask *ask = shard->asks < ASKS_MAX ? calloc(1, sizeof(*ask)) : NULL;
	child = ask ? child_new(children, key->volume, key->epoch, key->object) : NULL;
	if (!child) {
		free(ask);
		return NULL;
	}
	if (presence_noted(peer, child)) {
		free(ask);
		return child;
	}
	child->refs++; /* the question's */
	shard->asks++;
	ask->step.peer = peer;
	ask->child = child;
	presence_ask(&ask->step);
	return child;
}

int child_none(const struct peer *peer)
{
	const struct volume_shard *shard = peer->state;
	return shard->asks >= ASKS_MAX ? -EAGAIN : -ENOMEM;
}

/* --- who has it --------------------------------------------------------------------------- */

/* With the mutex. The run at `first`, in this child: had, or not. */
static uint32_t run_in(const struct child *child, uint32_t first, uint32_t most)
{
	bool has = child_bit(child->has, first);
	uint32_t count = 1;
	while (count < most && child_bit(child->has, first + count) == has)
		count++;
	return count;
}

/* With the mutex. One step down: true: run->key is who has it. */
static bool run_step(
	const struct child *child, uint32_t first, struct child_run *run, struct xseg_key *next)
{
	if (child_bit(child->has, first)) {
		run->key = (struct xseg_key){
			.volume = child->owner, .epoch = child->epoch, .object = child->object};
		return true;
	}
	*next = (struct xseg_key){.volume = child->parent_owner,
		.epoch = child->parent_epoch,
		.object = child->object};
	if (child->parent_flags & MAP_WORD_PARTIAL)
		return false;
	run->key = *next;
	return true;
}

/* With the mutex. */
static int resolve(struct peer *peer, struct volume_part *part, const struct xseg_key *key,
	bool skip, uint32_t first, uint32_t most, struct child_run *run)
{
	struct children *children = children_of(peer);
	struct xseg_key at = *key;
	run->count = most;
	for (uint32_t depth = 0; depth < DEPTH_MAX; depth++) {
		struct child *child = part ? child_get(peer, &at)
					   : child_find(children, at.volume, at.epoch, at.object);
		if (!child)
			return part ? child_none(peer) : -EINPROGRESS;
		if (!child->known && part && child->error == 0) {
			part->waits = child;
			return -EINPROGRESS;
		}
		int error = child->error;
		bool known = child->known, found = false;
		if (!part && child->refs == 0) { /* it is used */
			TAILQ_REMOVE(&children->order, child, order);
			TAILQ_INSERT_TAIL(&children->order, child, order);
		}
		if (known && !(skip && depth == 0))
			run->count = run_in(child, first, run->count);
		if (known)
			found = run_step(child, first, run, &at);
		if (part)
			child_unref(children, child);
		if (!known)
			return error != 0 ? error : -EINPROGRESS;
		if (found)
			return 0;
	}
	return -EILSEQ;
}

int child_resolve(struct volume_part *part, const struct xseg_key *key, bool skip, uint32_t first,
	uint32_t most, struct child_run *run)
{
	struct peer *peer = part->step.peer;
	pthread_mutex_lock(&children_of(peer)->lock);
	int rc = resolve(peer, part, key, skip, first, most, run);
	pthread_mutex_unlock(&children_of(peer)->lock);
	return rc;
}

int child_known(struct peer *peer, const struct xseg_key *key, uint32_t first, uint32_t most,
	struct child_run *run)
{
	pthread_mutex_lock(&children_of(peer)->lock);
	int rc = resolve(peer, NULL, key, false, first, most, run);
	pthread_mutex_unlock(&children_of(peer)->lock);
	return rc;
}

bool child_volume(struct volume_part *part)
{
	part->volume = volume_find(part->step.peer, part->id);
	return part->volume != NULL;
}

bool volume_child_source(struct peer *peer, struct volume *volume, uint32_t object, uint32_t offset,
	uint32_t length, struct xseg_key *key)
{
	struct xseg_key top;
	struct child_run run;
	uint32_t first = offset / MAP_GRANULE,
		 count = (offset + length - 1) / MAP_GRANULE - first + 1;
	if (volume_where(volume, object, &top) != VOLUME_PARTIAL)
		return false;
	if (child_known(peer, &top, first, count, &run) != 0)
		return false;
	*key = run.key;
	return run.count == count && run.key.volume != 0;
}

/* --- reading ------------------------------------------------------------------------------ */

static void read_go(struct volume_step *step);

/* A piece of the stretch, of one object. */
static int read_piece(struct volume_part *part, const struct child_run *run, uint32_t length)
{
	struct call *call;
	if (run->key.volume == 0) {
		job_zero_bytes(part->job, part->at, length);
		return 0;
	}
	int rc = call_begin(part->step.peer, &call);
	if (rc != 0)
		return rc;
	call_as(call, part->job);
	call->flags &= ~(unsigned)XSEG_F_PIN;
	call->key = run->key;
	call->offset = part->offset;
	call->length = length;
	rc = call_borrow(call, part->job, part->at, length);
	if (rc != 0) {
		call_end(call);
		return rc;
	}
	call_submit_part(call, part->job, VOLUME_STORE, NULL);
	return 0;
}

/* From where it is on. What is sent is the job's fan's. */
static void read_go(struct volume_step *step)
{
	struct volume_part *part = (struct volume_part *)step;
	int rc = child_volume(part) ? 0 : -ENOENT;
	while (rc == 0 && part->length > 0) {
		struct child_run run = {.count = 0};
		struct xseg_key key;
		uint32_t first = part->offset / MAP_GRANULE;
		uint32_t last = (part->offset + part->length - 1) / MAP_GRANULE;
		enum volume_where where = volume_where(part->volume, part->object, &key);
		if (where == VOLUME_PARTIAL)
			rc = child_resolve(part, &key, false, first, last - first + 1, &run);
		else if (where == VOLUME_OWN || where == VOLUME_SHARED)
			run = (struct child_run){.key = key, .count = last - first + 1};
		else /* it has been discarded meanwhile */
			run = (struct child_run){.count = last - first + 1};
		if (rc != 0)
			break;
		uint32_t length = (first + run.count) * MAP_GRANULE - part->offset;
		if (length > part->length)
			length = part->length;
		rc = read_piece(part, &run, length);
		if (rc != 0)
			break;
		part->offset += length;
		part->at += length;
		part->length -= length;
	}
	if (rc == -EINPROGRESS || rc == -EAGAIN)
		child_wait(part, read_go);
	else
		volume_part_end(part, rc);
}

void volume_child_read(struct volume_part *part)
{
	peer_count(part->step.peer, VOLUME_CHILD_READS, 1);
	read_go(&part->step);
}
