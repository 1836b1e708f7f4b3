/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A task: what a job asks, from the lane to a thread and back. The volume is found by its name, if
 * need be; its lock is waited for without a thread; the library runs; the lane ends the job.
 *
 * What was answered from memory and failed is done again without; who was overtaken by another host
 * (-ESTALE) begins again, and so does who looks at a map without its lock and finds damage, as long
 * as the volume changes meanwhile: of two halves of a page the older one is written over.
 */
#include <base/crash.h>
#include <base/log.h>
#include <base/sm.h>
#include <base/time.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <string.h>

#include "peers/map/mapper.h"

#define AGAIN_MAX 16u

/* --- the answer ----------------------------------------------------------------------------- */

uint32_t mapper_task_room(const struct mapper_task *task)
{
	const struct job *job = task->job;
	uint32_t size = job->data_size;
	if (job->op == XSEG_OP_LIST && job->length < size)
		size = job->length;
	return size > task->out_at ? size - task->out_at : 0;
}

void *mapper_task_answer(struct mapper_task *task, uint32_t size)
{
	if (size > mapper_task_room(task)) {
		task->error = -EMSGSIZE;
		return NULL;
	}
	free(task->out);
	task->out = calloc(1, size > 0 ? size : 1);
	task->out_size = task->out ? size : 0;
	task->error = task->out ? 0 : -ENOMEM;
	return task->out;
}

int mapper_task_head(struct mapper_task *task, const struct map_volume *volume, uint64_t term)
{
	struct map_head_info *info = mapper_task_answer(task, sizeof(*info));
	if (!info)
		return task->error;
	info->id = volume->id;
	info->size = volume->size;
	info->parent = volume->parent;
	info->generation = volume->generation;
	info->created_ns = volume->created_ns;
	info->term = term;
	info->object_size = volume->object_size;
	info->state = volume->state;
	info->flags = volume->flags;
	info->epoch = volume->epoch;
	info->frozen = volume->frozen;
	info->owner_count = volume->owner_count;
	info->self = volume->self;
	info->limits = (struct map_change_limits){
		volume->limit_iops, volume->limit_bytes, volume->limit_burst_ms};
	map_shown_name(mapper_task_store(task), volume, info->name);
	fixed(MAP_OWNERS == MAP_OWNERS_MAX);
	memcpy(info->owners, volume->owners, sizeof(info->owners));
	return 0;
}

/* The entries that the map has: what the references in the record count. */
static uint64_t count_entries(const struct map_volume *volume)
{
	uint64_t count = 0;
	for (unsigned i = 0; i < MAP_TOP_REFS; i++)
		count += volume->top[i].count;
	return count;
}

void mapper_task_describe(
	struct map_store *store, const struct map_volume *volume, struct xseg_volume_info *info)
{
	memset(info, 0, sizeof(*info));
	info->id = volume->id;
	info->size = volume->size;
	info->object_size = volume->object_size;
	info->state = volume->state;
	info->objects = count_entries(volume);
	info->created_ns = volume->created_ns;
	info->parent = volume->parent;
	info->flags = volume->flags &
		      (XSEG_VOLUME_READ_ONLY | XSEG_VOLUME_SNAPSHOT | XSEG_VOLUME_PROTECTED);
	map_shown_name(store, volume, info->name);
}

int mapper_task_info(struct mapper_task *task, const struct map_volume *volume)
{
	struct xseg_volume_info *info = mapper_task_answer(task, sizeof(*info));
	if (info)
		mapper_task_describe(mapper_task_store(task), volume, info);
	return task->error;
}

void mapper_task_blame(struct mapper_task *task, const char *name)
{
	task->has_trouble = true;
	snprintf(task->trouble.name, sizeof(task->trouble.name), "%s", name);
}

void mapper_task_fill_owner(struct map_owner *owner, const struct map_home *home)
{
	owner->owner = home->owner;
	owner->term = home->term;
	owner->since_ns = home->since_ns;
	owner->until_ns = home->until_ns;
	fixed(sizeof(owner->host) == sizeof(home->host));
	memcpy(owner->host, home->host, sizeof(owner->host));
}

void mapper_task_blame_owner(struct mapper_task *task, const struct map_home *home)
{
	task->has_trouble = true;
	mapper_task_fill_owner(&task->trouble.owner, home);
}

/* --- the question --------------------------------------------------------------------------- */

static bool wants_ask(const struct mapper_task *task)
{
	unsigned flags = task->kind->flags;
	if (flags & MAPPER_INFO)
		return false;
	return (flags & MAPPER_ASKS) ||
	       (task->volume == 0 && (flags & (MAPPER_BY_NAME | MAPPER_BY_OTHER)));
}

/* Where the name of a volume without an id stands. */
static const char *name_of(const struct mapper_task *task)
{
	if (task->kind->flags & MAPPER_INFO)
		return task->info.name;
	return task->kind->flags & MAPPER_BY_OTHER ? task->ask.other : task->ask.name;
}

/*
 * What is to be made and has no id gets one, which is written into the question before anything is
 * done: asked once more, a successor makes the same.
 */
static void choose_id(struct mapper_task *task)
{
	struct job *job = task->job;
	bool info = task->kind->flags & MAPPER_INFO;
	uint64_t *id = info ? &task->info.id : &task->ask.id;
	uint64_t *created = info ? &task->info.created_ns : &task->ask.created_ns;
	if (*created == 0)
		*created = time_wall_ns();
	if (*id == 0) {
		*id = mapper_admin_draw_id();
		job_put_bytes(job,
			info ? offsetof(struct xseg_volume_info, id) : offsetof(struct map_ask, id),
			id, sizeof(*id));
		crash_point("mapper.job.drawn");
	}
	if (info)
		task->volume = *id;
}

static int read_question(struct mapper_task *task)
{
	const struct job *job = task->job;
	unsigned flags = task->kind->flags;
	if (flags & MAPPER_INFO) {
		if (job->data_size >= sizeof(task->info))
			job_get_bytes(job, 0, &task->info, sizeof(task->info));
		else if (task->volume == 0)
			return -EINVAL;
		task->info.name[VOLUME_NAME_LENGTH_MAX] = 0;
	}
	if (wants_ask(task)) {
		if (job->data_size < sizeof(task->ask))
			return -EINVAL;
		job_get_bytes(job, 0, &task->ask, sizeof(task->ask));
		task->ask.name[VOLUME_NAME_LENGTH_MAX] = 0;
		task->ask.other[VOLUME_NAME_LENGTH_MAX] = 0;
	}
	if (flags & MAPPER_MAKES)
		choose_id(task);
	if (flags & MAPPER_OTHER)
		task->other = task->ask.id;
	bool named = flags & (MAPPER_BY_NAME | MAPPER_BY_OTHER);
	if (task->volume == 0 && !named && (flags & MAPPER_CHANGES_VOLUME))
		return -EINVAL;
	if (task->volume == 0 && named && !name_check_volume(name_of(task)))
		return -EINVAL;
	if ((flags & MAPPER_OTHER) && task->other == 0 && !name_check_volume(task->ask.other))
		return -EINVAL;
	return 0;
}

/* --- ids and locks -------------------------------------------------------------------------- */

static bool is_found(const struct mapper_task *task)
{
	unsigned flags = task->kind->flags;
	bool named = flags & (MAPPER_BY_NAME | MAPPER_BY_OTHER);
	return (task->volume != 0 || !named) && (task->other != 0 || !(flags & MAPPER_OTHER));
}

static int find_ids(struct mapper_task *task)
{
	struct map_store *store = mapper_task_store(task);
	int rc = 0;
	if (task->volume == 0)
		rc = map_shown_find(store, name_of(task), &task->volume);
	if (rc == 0 && (task->kind->flags & MAPPER_OTHER) && task->other == 0)
		rc = map_shown_find(store, task->ask.other, &task->other);
	return rc;
}

static void add_lock(struct mapper_task *task, uint64_t id)
{
	if (id == 0 || (task->lock_count == 1 && task->lock_id[0] == id))
		return;
	must(task->lock_count < MAPPER_LOCKS);
	task->lock_id[task->lock_count++] = id;
}

static void choose_locks(struct mapper_task *task)
{
	unsigned flags = task->kind->flags;
	if (!(flags & MAPPER_CHANGES_VOLUME))
		return;
	add_lock(task, task->volume);
	add_lock(task, task->other);
	if ((flags & MAPPER_MAKES) && !(flags & MAPPER_INFO))
		add_lock(task, task->ask.id);
	if (task->lock_count == 2 && task->lock_id[0] > task->lock_id[1]) {
		uint64_t id = task->lock_id[0];
		task->lock_id[0] = task->lock_id[1];
		task->lock_id[1] = id;
	}
}

static const struct sm_state task_states[] = {
	[MAPPER_ASKED] = {"asked", SM(MAPPER_FINDING) | SM(MAPPER_LOCKING) | SM(MAPPER_READY)},
	[MAPPER_FINDING] = {"finding", SM(MAPPER_LOCKING)},
	[MAPPER_LOCKING] = {"locking", SM(MAPPER_READY)},
	[MAPPER_READY] = {"ready", SM(MAPPER_RUNNING)},
	[MAPPER_RUNNING] = {"running", SM(MAPPER_DONE)},
	[MAPPER_DONE] = {"done", 0},
};

static void task_move(struct mapper_task *task, enum mapper_task_state state)
{
	sm_move(task_states, &task->state, state);
}

void mapper_task_ready(struct mapper_task *task)
{
	task_move(task, MAPPER_READY);
	mapper_pool_push(task);
}

/* What it waits for first: a thread to find its ids, its locks, or a thread to end it. */
static void task_queue(struct mapper_task *task, bool found)
{
	struct mapper_shared *shared = mapper_shared(task);
	pthread_mutex_lock(&shared->lock);
	if (task->error != 0) {
		mapper_task_ready(task);
	} else if (!found) {
		task_move(task, MAPPER_FINDING);
		mapper_pool_push(task);
	} else {
		task_move(task, MAPPER_LOCKING);
		if (mapper_lock_take(task))
			mapper_task_ready(task);
	}
	pthread_mutex_unlock(&shared->lock);
}

/* --- on a thread ---------------------------------------------------------------------------- */

static void drop_answer(struct mapper_task *task)
{
	free(task->out);
	task->out = NULL;
	task->out_size = 0;
	task->value = 0;
	task->amount = 0;
	task->has_trouble = false;
}

static bool is_overtaken(struct mapper_task *task)
{
	struct map_head head;
	if (task->error != -EILSEQ || !task->volume ||
		(task->kind->flags & MAPPER_CHANGES_VOLUME) ||
		map_record_open(mapper_task_store(task), task->volume, &head))
		return false;
	bool changed = head.volume.generation != task->generation;
	task->generation = head.volume.generation;
	return changed;
}

/* Is it worth another time, without memory? */
static bool is_again(struct mapper_task *task)
{
	if (task->store.revoked)
		task->error = -ESTALE;
	if (task->error == 0 || task->error == -ESHUTDOWN || task->store.revoked ||
		++task->again > AGAIN_MAX)
		return false;
	if (!(task->kind->flags & MAPPER_OWN))
		return task->store.remembered || task->error == -ESTALE || is_overtaken(task);
	int rc = task->store.remembered ? mapper_lease_verify(task) : -ESTALE;
	if (task->store.remembered && rc != 0)
		task->error = rc;
	return rc == 0;
}

static void run_kind(struct mapper_task *task)
{
	bool remembers = task->kind->flags & MAPPER_REMEMBERS;
	do {
		drop_answer(task);
		task->store.keeps = remembers;
		task->store.remembers = remembers && task->again == 0;
		task->store.remembered = task->store.fresh = false;
		task->store.owned = task->kind->flags & MAPPER_OWN ? task : NULL;
		task->error = task->kind->run(task);
		int late = mapper_store_close(&task->store);
		if (task->error == 0)
			task->error = late;
		if (task->guarded)
			mapper_lease_guard_end(task);
	} while (is_again(task));
}

static void put_answer(struct mapper_task *task)
{
	struct job *job = task->job;
	if (!job)
		return;
	bool blame = task->error != 0 && task->has_trouble &&
		     job->data_size >= MAP_ANSWER_AT + sizeof(task->trouble);
	task->has_trouble = blame;
	if (blame)
		job_put_bytes(job, MAP_ANSWER_AT, &task->trouble, sizeof(task->trouble));
	else if (task->error == 0 && task->out_size > 0)
		job_put_bytes(job, task->out_at, task->out, task->out_size);
	crash_point("mapper.job.answered");
}

static void task_end(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	struct mapper_shard *shard = task->shard;
	struct peer *peer = shard->peer;
	put_answer(task);
	task_move(task, MAPPER_DONE);
	pthread_mutex_lock(&shared->lock);
	mapper_lock_drop(task);
	pthread_mutex_unlock(&shared->lock);
	pthread_mutex_lock(&shard->lock);
	TAILQ_INSERT_TAIL(&shard->done, task, link);
	atomic_store(&shard->waiting, true);
	pthread_mutex_unlock(&shard->lock);
	peer_wake(peer, peer->shard);
}

void mapper_task_run(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	if (task->state == MAPPER_FINDING) {
		task->error = find_ids(task);
		choose_locks(task);
		pthread_mutex_lock(&shared->lock);
		task_move(task, MAPPER_LOCKING);
		bool ready = task->error != 0 || mapper_lock_take(task);
		if (ready)
			task_move(task, MAPPER_READY);
		pthread_mutex_unlock(&shared->lock);
		if (!ready)
			return; /* who has the lock now gives it to the pool */
	}
	task_move(task, MAPPER_RUNNING);
	if (task->error == 0)
		run_kind(task);
	task_end(task);
}

/* --- on the lane ---------------------------------------------------------------------------- */

static struct mapper_task *task_new(struct mapper_shard *shard, const struct mapper_kind *kind)
{
	struct mapper_task *task = calloc(1, sizeof(*task));
	if (!task)
		return NULL;
	task->kind = kind;
	task->shard = shard;
	mapper_store_open(&task->store, shard);
	atomic_fetch_add(&shard->tasks, 1);
	return task;
}

void mapper_task_begin(struct peer *peer, struct job *job, const struct mapper_kind *kind)
{
	struct mapper_task *task = task_new(peer->state, kind);
	if (!task) {
		job_fail(job, -ENOMEM);
		return;
	}
	task->job = job;
	task->volume = job->key.volume;
	task->arg = job->arg1;
	task->begun_ns = peer_now_ns(peer);
	task->out_at = job->op == XSEG_OP_CONTROL ? MAP_ANSWER_AT : 0;
	task->error = read_question(task);
	bool found = task->error == 0 && is_found(task);
	if (found)
		choose_locks(task);
	task_queue(task, found);
}

int mapper_task_own(struct mapper_shard *shard, const struct mapper_kind *kind, uint64_t volume)
{
	struct mapper_task *task = task_new(shard, kind);
	if (!task)
		return -ENOMEM;
	task->volume = volume;
	choose_locks(task);
	task_queue(task, true);
	return 0;
}

static void task_answer(struct mapper_task *task)
{
	struct job *job = task->job;
	if (task->error == 0)
		job_complete_value(
			job, task->out_size > 0 ? task->out_at + task->out_size : 0, task->value);
	else
		job_fail_value(job, task->error, task->has_trouble);
}

static void task_count(const struct mapper_task *task)
{
	struct peer *peer = task->shard->peer;
	peer_count(peer, MAPPER_REMEMBERED, task->store.answered);
	peer_count(peer, MAPPER_SENT, task->store.requests);
	peer_count(peer, MAPPER_WAITS, task->store.waited);
	peer_count(peer, MAPPER_AGAIN, task->again);
	if (task->error == 0 && task->kind->counter < MAPPER_COUNTERS)
		peer_count(peer, task->kind->counter, task->amount > 0 ? task->amount : 1);
}

bool mapper_task_collect(struct mapper_shard *shard)
{
	struct mapper_task_queue done;
	struct mapper_task *task;
	TAILQ_INIT(&done);
	pthread_mutex_lock(&shard->lock);
	TAILQ_CONCAT(&done, &shard->done, link);
	pthread_mutex_unlock(&shard->lock);
	bool moved = !TAILQ_EMPTY(&done);
	while ((task = TAILQ_FIRST(&done))) {
		TAILQ_REMOVE(&done, task, link);
		task_count(task);
		if (task->job)
			task_answer(task);
		free(task->out);
		free(task);
		atomic_fetch_sub(&shard->tasks, 1);
	}
	return moved;
}
