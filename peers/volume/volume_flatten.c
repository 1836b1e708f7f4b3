/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has to be done to a volume's objects before the mapper changes its map: through our own way
 * down, because a cache may lie on it that knows of nothing else.
 */
#include <base/container.h>
#include <base/crash.h>
#include <errno.h>
#include <stdlib.h>

#include "peers/volume/volume_control.h"
#include "peers/volume/volume_quiesce.h"

#define FLATTEN_OBJECTS 16u /* made own in one request */
#define FLATTEN_LOOKS 4096u /* looked at */

/* Objects of a volume, one after the other. */
struct walk {
	struct volume_step step; /* first */
	struct volume_wish wish;
	struct volume_flattened whole;
	struct volume_task *task;
	struct volume *volume;
	uint64_t object; /* where it is */
	unsigned made, looked;
};

static struct walk *walk_new(struct volume_task *task, struct volume *volume)
{
	struct walk *walk = calloc(1, sizeof(*walk));
	if (!walk) {
		volume_task_end(task, -ENOMEM, 0, 0);
		return NULL;
	}
	walk->step.peer = task->step.peer;
	walk->task = task;
	walk->volume = volume;
	return walk;
}

static struct volume_task *walk_leave(struct walk *walk)
{
	struct volume_task *task = walk->task;
	free(walk);
	return task;
}

static uint64_t objects_of(const struct volume *volume)
{
	uint64_t size = atomic_load_explicit(&volume->size, memory_order_relaxed);
	return size == 0 ? 0 : ((size - 1) >> volume->object_shift) + 1;
}

static uint64_t word_of(const struct volume *volume, uint32_t object)
{
	const struct volume_page *page = volume_map_page(volume, object);
	return page ? atomic_load_explicit(
			      &page->entry[object % MAP_PAGE_ENTRIES], memory_order_acquire)
		    : 0;
}

/* --- flatten ------------------------------------------------------------------------------ */

/* Does it hang from another volume's objects? Own ones that a snapshot shares do not. */
static bool hangs(const struct volume *volume, uint32_t object)
{
	uint64_t word = word_of(volume, object);
	if (word == 0 || (map_word_flags(word) & MAP_WORD_ZERO))
		return false;
	return map_word_owner(word) != volume->self || (map_word_flags(word) & MAP_WORD_PARTIAL);
}

static void flatten_on(struct volume_step *step);

static void flatten_found(struct volume_wish *wish, int error)
{
	struct walk *walk = container_of(wish, struct walk, wish);
	if (error != 0)
		volume_task_end(walk_leave(walk), error, 0, 0);
	else
		flatten_on(&walk->step);
}

static void flatten_made(struct volume_flattened *whole, int error)
{
	struct walk *walk = container_of(whole, struct walk, whole);
	crash_point("volume.flatten.made");
	volume_quiesce_leave(walk->step.peer, walk->volume);
	if (error != 0) {
		volume_task_end(walk_leave(walk), error, 0, 0);
		return;
	}
	walk->made++;
	walk->object++;
	volume_step_later(&walk->step, flatten_on);
}

/*
 * All is its own: that is published to the mapper, which sees so itself, unless somebody has made a
 * snapshot since. It must not copy what is shared: it would not see what only a cache below us has.
 */
static void flatten_last(struct walk *walk)
{
	struct volume *volume = walk->volume;
	struct volume_task *task = walk_leave(walk);
	task->job->arg1 = MAP_FLATTEN_LOOK;
	volume_change(task, volume, VOLUME_CHANGES_MAP);
}

/* Somebody has quiesced it: on from here when he has ended. */
static void flatten_wait(struct walk *walk)
{
	struct volume *volume = walk->volume;
	struct peer *peer = walk->step.peer;
	struct job *job = walk->task->job;
	job->key.volume = volume->id;
	job->arg1 = walk->object;
	volume_task_leave(walk_leave(walk));
	if (!volume_quiesce_wait(peer, volume, job))
		peer->ops->on[job->op](peer, job);
}

static void flatten_on(struct volume_step *step)
{
	struct walk *walk = (struct walk *)step;
	struct volume *volume = walk->volume;
	struct xseg_key key;
	while (walk->object < objects_of(volume)) {
		uint32_t object = (uint32_t)walk->object;
		if (walk->made == FLATTEN_OBJECTS || walk->looked++ == FLATTEN_LOOKS) {
			volume_task_end(walk_leave(walk), 0, 0, object);
			return;
		}
		if (volume_where(volume, object, &key) == VOLUME_UNKNOWN) {
			walk->wish.found = flatten_found;
			volume_map_wish(step->peer, volume, object, &walk->wish);
			return;
		}
		if (hangs(volume, object)) {
			if (!volume_quiesce_enter(step->peer, volume)) {
				flatten_wait(walk);
				return;
			}
			walk->whole = (struct volume_flattened){.done = flatten_made,
				.peer = step->peer,
				.volume = volume,
				.object = object};
			volume_copy_flatten(&walk->whole);
			return;
		}
		walk->object++;
	}
	flatten_last(walk);
}

static void flatten_leased(struct volume_task *task, int error)
{
	struct volume *volume = error == 0 ? volume_table_lookup(task->step.peer, task->id) : NULL;
	if (error == 0 && !volume)
		error = -ENOENT;
	struct walk *walk = error == 0 ? walk_new(task, volume) : NULL;
	if (error != 0)
		volume_task_end(task, error, 0, 0);
	if (!walk)
		return;
	walk->object = task->job->arg1;
	flatten_on(&walk->step);
}

/* Its objects are written to, so it must be ours, also when nobody has it open. */
static void take_lease(struct volume_task *task, struct volume *volume,
	void (*found)(struct volume_task *task, int error))
{
	struct volume_shared *shared = volume_shared(task->step.peer);
	pthread_mutex_lock(&shared->lock);
	bool leased = volume->acquired && !volume_is_lost(volume);
	pthread_mutex_unlock(&shared->lock);
	task->found = found;
	if (leased)
		found(task, 0);
	else
		volume_lease_want(task, false);
}

void volume_flatten(struct volume_task *task, struct volume *volume)
{
	if (task->job->arg1 == MAP_FLATTEN_LOOK) /* it had come as far, and had to wait */
		task->job->arg1 = 0;
	if (task->job->arg1 > UINT32_MAX || volume->read_only)
		volume_task_end(task, volume->read_only ? -EPERM : -EINVAL, 0, 0);
	else
		take_lease(task, volume, flatten_leased);
}

/* --- a smaller size ------------------------------------------------------------------------- */

static void shrink_leased(struct volume_task *task, int error)
{
	struct volume *volume = error == 0 ? volume_table_lookup(task->step.peer, task->id) : NULL;
	if (error == 0 && !volume)
		error = -ENOENT;
	if (error != 0)
		volume_task_end(task, error, 0, 0);
	else
		volume_change(task, volume, VOLUME_CHANGES_SIZE);
}

void volume_flatten_shrink(struct volume_task *task, struct volume *volume)
{
	take_lease(task, volume, shrink_leased);
}

static void cut_go(struct volume_step *step);

static void cut_found(struct volume_wish *wish, int error)
{
	struct volume_cut *cut = container_of(wish, struct volume_cut, wish);
	if (error != 0)
		cut->done(cut, error);
	else
		cut_go(&cut->step);
}

static void cut_made(struct volume_flattened *whole, int error)
{
	struct volume_cut *cut = container_of(whole, struct volume_cut, whole);
	if (error != 0)
		cut->done(cut, error);
	else
		volume_step_later(&cut->step, cut_go);
}

static void cut_zeroed(struct call *call)
{
	struct volume_cut *cut = call->context;
	int rc = call->result;
	call_end(call);
	crash_point("volume.cut.zeroed");
	cut->done(cut, rc);
}

static void cut_zero(struct volume_cut *cut, struct xseg_key key)
{
	uint32_t object_size = 1u << cut->volume->object_shift;
	uint32_t tail = (uint32_t)(cut->size & (object_size - 1));
	struct call *call = volume_step_call(&cut->step, cut_go, XSEG_OP_ZERO, key, 0);
	if (!call)
		return;
	call->offset = tail;
	call->length = object_size - tail;
	call_submit(call, VOLUME_STORE, cut_zeroed);
}

static void cut_go(struct volume_step *step)
{
	struct volume_cut *cut = (struct volume_cut *)step;
	struct volume *volume = cut->volume;
	uint32_t object = (uint32_t)(cut->size >> volume->object_shift);
	struct xseg_key key;
	switch (volume_where(volume, object, &key)) {
	case VOLUME_OWN: cut_zero(cut, key); break;
	case VOLUME_UNKNOWN:
		cut->wish.found = cut_found;
		volume_map_wish(step->peer, volume, object, &cut->wish);
		break;
	case VOLUME_SHARED:
	case VOLUME_PARTIAL:
		cut->whole = (struct volume_flattened){
			.done = cut_made, .peer = step->peer, .volume = volume, .object = object};
		volume_copy_flatten(&cut->whole);
		break;
	case VOLUME_HOLE:
	case VOLUME_ZERO:
	default: cut->done(cut, 0); break;
	}
}

void volume_flatten_cut(struct volume_cut *cut)
{
	uint64_t old = atomic_load_explicit(&cut->volume->size, memory_order_relaxed);
	bool middle = cut->size & ((1ull << cut->volume->object_shift) - 1);
	if (cut->size < old && middle && cut->size % XSEG_SECTOR == 0)
		cut_go(&cut->step);
	else
		cut->done(cut, 0); /* a size that cannot be is refused by the mapper */
}
