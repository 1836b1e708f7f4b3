/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects: at most so many files are open; the one unused the longest gives way. A file in use
 * is never closed, nor one with data that no sync has covered: its volume is flushed first.
 */
#include <base/hash.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "peers/blocker/file/file.h"

static const struct sm_state file_states[] = {
	[FILE_FREE] = {"free", SM(FILE_OPENING)},
	[FILE_OPENING] = {"opening", SM(FILE_OPEN) | SM(FILE_ABSENT) | SM(FILE_FREE)},
	[FILE_OPEN] = {"open", SM(FILE_DELETING) | SM(FILE_FREE)},
	[FILE_ABSENT] = {"absent", SM(FILE_OPENING) | SM(FILE_FREE)},
	[FILE_DELETING] = {"deleting", SM(FILE_OPEN) | SM(FILE_ABSENT)},
};

/* --- which there are --------------------------------------------------------------- */

static struct file_object **bucket_of(struct file_shard *shard, const struct xseg_key *key)
{
	uint64_t h = hash_object(key->volume, key->epoch, key->object);
	return &shard->buckets[(h >> 32) & shard->bucket_mask];
}

static struct file_object *find(struct file_shard *shard, const struct xseg_key *key)
{
	struct file_object *object = *bucket_of(shard, key);
	while (object && (object->key.object != key->object || object->key.volume != key->volume ||
				 object->key.epoch != key->epoch))
		object = object->next;
	return object;
}

static void insert(struct file_object *object)
{
	struct file_object **bucket = bucket_of(object->shard, &object->key);
	object->next = *bucket;
	*bucket = object;
}

static void remove_from_bucket(struct file_object *object)
{
	struct file_object **link = bucket_of(object->shard, &object->key);
	while (*link != object)
		link = &(*link)->next;
	*link = object->next;
}

/* --- idle ones ------------------------------------------------------------------------ */

static void unlist(struct file_object *object)
{
	if (!object->idle)
		return;
	TAILQ_REMOVE(object->idle, object, idle_link);
	object->idle = NULL;
}

static bool is_idle(const struct file_object *object)
{
	return object->users == 0 && TAILQ_EMPTY(&object->waiting) && !object->running &&
	       (object->state == FILE_FREE || object->state == FILE_OPEN ||
		       object->state == FILE_ABSENT);
}

void file_object_settle(struct file_object *object)
{
	struct file_shard *shard = object->shard;
	struct file_object_queue *list = object->dirty ? &shard->unclean : &shard->clean;
	if (!is_idle(object)) {
		unlist(object);
		return;
	}
	if (object->idle == list)
		return;
	unlist(object);
	object->idle = list;
	/* one that is nothing any more goes first */
	if (object->state == FILE_FREE)
		TAILQ_INSERT_HEAD(list, object, idle_link);
	else
		TAILQ_INSERT_TAIL(list, object, idle_link);
}

/*
 * A place for another object: a fresh one, or the clean one unused the longest; its file is closed
 * by the worker that opens the next. NULL: all are in use or unsynced.
 */
static struct file_object *make_room(struct file_shard *shard)
{
	struct file_object *object = TAILQ_FIRST(&shard->clean);
	if (object && object->state == FILE_FREE)
		unlist(object);
	else if (shard->objects_touched < shard->objects_max) {
		object = &shard->objects[shard->objects_touched++];
		object->shard = shard;
		object->fd = object->old_fd = -1;
		TAILQ_INIT(&object->waiting);
		TAILQ_INIT(&object->inside);
		TAILQ_INIT(&object->gated);
		TAILQ_INIT(&object->fua_waiting);
		TAILQ_INIT(&object->fua_syncing);
		return object;
	}
	if (!object)
		return NULL;
	unlist(object);
	remove_from_bucket(object);
	if (object->state == FILE_FREE)
		return object;
	if (object->is_lost) { /* its volume must not forget, though we do */
		object->volume->error = object->volume->error ? object->volume->error : -EIO;
		file_flush_begin(object);
		file_flush_forget(object);
		file_flush_end(object, (struct file_range){0, 0}, true);
	}
	object->old_fd = object->fd;
	object->fd = -1;
	object->fresh = false;
	sm_move(file_states, &object->state, FILE_FREE);
	file_count(shard, FILE_EVICTIONS, 1);
	return object;
}

/* --- opening --------------------------------------------------------------------------- */

static void object_run(struct file_object *object);

static void open_run(struct worker_item *item)
{
	struct file_object *object = (struct file_object *)item;
	struct file_store *store = &object->shard->shared->store;
	if (object->old_fd >= 0)
		close(object->old_fd);
	object->old_fd = -1;
	if (object->creating)
		object->error = file_disk_create(store, &object->key, &object->fd);
	else
		object->error = file_disk_open(store, &object->key, &object->fd, &object->size);
}

/* Too many files are open in this process: one of ours that nobody uses is closed, to try again. */
static bool give_up_one(struct file_object *object)
{
	struct file_shard *shard = object->shard;
	struct file_object *other;
	TAILQ_FOREACH (other, &shard->clean, idle_link)
		if (other->state == FILE_OPEN && !other->is_lost)
			break;
	if (!other)
		return false;
	object->old_fd = other->fd;
	other->fd = -1;
	unlist(other);
	other->fresh = false;
	sm_move(file_states, &other->state, FILE_FREE);
	file_object_settle(other);
	file_count(shard, FILE_EVICTIONS, 1);
	return true;
}

/* What others make longer meanwhile is not known here. */
static uint64_t size_of(const struct file_object *object, uint64_t size)
{
	return object->shard->shared->store.shared ? XSEG_OBJECT_MAX : size;
}

static void created(struct file_object *object)
{
	object->size = size_of(object, 0);
	object->fresh = true;
	file_flush_named(object);
	file_count(object->shard, FILE_CREATES, 1);
}

/* Whoever waits for an object that cannot be opened gets the error; for one that cannot be made,
   the one who wanted it made. */
static void open_failed(struct file_object *object)
{
	struct file_op *op;
	int error = object->error;
	sm_move(file_states, &object->state, object->creating ? FILE_ABSENT : FILE_FREE);
	while ((op = TAILQ_FIRST(&object->waiting))) {
		TAILQ_REMOVE(&object->waiting, op, link);
		object->users++;
		file_op_end(op, error);
		if (object->creating)
			break;
	}
}

static void open_done(struct worker_item *item)
{
	struct file_object *object = (struct file_object *)item;
	int error = object->error;
	if ((error == -EMFILE || error == -ENFILE) && give_up_one(object)) {
		worker_run(object->shard->peer, &object->work, open_run, open_done);
		return;
	}
	object->running = true; /* not run by those that end here */
	if (error == 0) {
		sm_move(file_states, &object->state, FILE_OPEN);
		file_count(object->shard, FILE_OPENS, 1);
		object->fresh = file_flush_owes_name(object);
		object->size = size_of(object, object->size);
		if (object->creating)
			created(object);
	} else if (error == -ENOENT) {
		sm_move(file_states, &object->state, FILE_ABSENT);
	} else {
		open_failed(object);
	}
	if (object->creating)
		file_flush_end(object, (struct file_range){0, 0}, true);
	object->creating = false;
	object->running = false;
	object_run(object);
}

/* Opens it; to be made when it is known to be absent. */
static int open_begin(struct file_object *object)
{
	object->creating = object->state == FILE_ABSENT;
	if (object->creating && file_flush_begin(object))
		return -ENOMEM;
	sm_move(file_states, &object->state, FILE_OPENING);
	worker_run(object->shard->peer, &object->work, open_run, open_done);
	return 0;
}

/* --- running what waits ------------------------------------------------------------------ */

/* Can the first that waits be run now? It sees to it that it can be, later, if not. */
static bool is_ready(struct file_object *object, struct file_op *op)
{
	switch (object->state) {
	case FILE_OPEN: return op->need != FILE_NEED_ALONE || object->users == 0;
	case FILE_ABSENT:
		if (op->need != FILE_NEED_FILE)
			return true;
		break;
	case FILE_FREE: break;
	default: return false;
	}
	if (open_begin(object) == 0)
		return false;
	op->result = -ENOMEM;
	return true;
}

static void run_one(struct file_object *object, struct file_op *op)
{
	TAILQ_REMOVE(&object->waiting, op, link);
	object->users++;
	op->fd = object->state == FILE_OPEN ? object->fd : -1;
	if (op->need == FILE_NEED_ALONE && object->state == FILE_OPEN)
		sm_move(file_states, &object->state, FILE_DELETING);
	if (op->result)
		file_op_end(op, op->result);
	else
		file_op_run(op);
}

/* In the order of asking; what ends at once must not run us again from within. */
static void object_run(struct file_object *object)
{
	struct file_op *op;
	if (object->running)
		return;
	object->running = true;
	while ((op = TAILQ_FIRST(&object->waiting)) && is_ready(object, op))
		run_one(object, op);
	object->running = false;
	file_object_settle(object);
	if (object->idle)
		file_object_feed(object->shard);
}

/* --- entry points --------------------------------------------------------------------------- */

static bool enter(struct file_op *op)
{
	struct file_object *object = find(op->shard, &op->job->key);
	bool shared = op->shard->shared->store.shared;
	if (!object) {
		object = make_room(op->shard);
		if (!object)
			return false;
		object->key = op->job->key;
		insert(object);
	}
	op->object = object;
	if (shared && object->state == FILE_ABSENT && is_idle(object))
		sm_move(file_states, &object->state, FILE_FREE); /* another may have made it */
	unlist(object);
	TAILQ_INSERT_TAIL(&object->waiting, op, link);
	object_run(object);
	return true;
}

/* Places are taken by unsynced files: make them clean, the one unused the longest first. */
static void want_room(struct file_shard *shard)
{
	struct file_object *object = TAILQ_FIRST(&shard->unclean);
	if (object)
		file_flush_start(object->volume);
}

void file_object_feed(struct file_shard *shard)
{
	struct file_op *op = TAILQ_FIRST(&shard->starved);
	if (!op || shard->feeding)
		return;
	shard->feeding = true;
	for (; op; op = TAILQ_FIRST(&shard->starved)) {
		TAILQ_REMOVE(&shard->starved, op, link);
		if (!enter(op)) {
			TAILQ_INSERT_HEAD(&shard->starved, op, link);
			want_room(shard);
			break;
		}
	}
	shard->feeding = false;
}

void file_object_enter(struct file_op *op)
{
	struct file_shard *shard = op->shard;
	if (TAILQ_EMPTY(&shard->starved) && enter(op))
		return;
	TAILQ_INSERT_TAIL(&shard->starved, op, link);
	file_count(shard, FILE_WAITS, 1);
	want_room(shard);
}

void file_object_release(struct file_object *object)
{
	must(object->users > 0);
	object->users--;
	object_run(object);
}

/* The end of a deletion: op->fd says whether the file is still there. */
void file_object_leave(struct file_op *op)
{
	struct file_object *object = op->object;
	op->object = NULL;
	if (object->state == FILE_DELETING) {
		object->fd = op->fd;
		sm_move(file_states, &object->state, op->fd >= 0 ? FILE_OPEN : FILE_ABSENT);
	}
	file_object_release(object);
}

int file_object_init(struct file_shard *shard, uint32_t count)
{
	uint32_t buckets = 16;
	while (buckets < count * 2)
		buckets *= 2;
	shard->objects = calloc(count, sizeof(*shard->objects));
	shard->buckets = calloc(buckets, sizeof(struct file_object *));
	shard->bucket_mask = buckets - 1;
	shard->objects_max = count;
	TAILQ_INIT(&shard->clean);
	TAILQ_INIT(&shard->unclean);
	TAILQ_INIT(&shard->starved);
	return shard->objects && shard->buckets ? 0 : -ENOMEM;
}

void file_object_fini(struct file_shard *shard)
{
	for (uint32_t i = 0; shard->objects && i < shard->objects_touched; i++)
		if (shard->objects[i].fd >= 0)
			close(shard->objects[i].fd);
	free(shard->objects);
	free(shard->buckets);
}
