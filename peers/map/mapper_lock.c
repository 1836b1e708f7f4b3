/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is at which volume: one change at a time, in the order of asking. A task that waits holds no
 * thread. Two volumes are taken in the order of their ids, so nobody waits in a circle.
 */
#include <base/hash.h>
#include <errno.h>
#include <stdlib.h>

#include "peers/map/mapper.h"

static struct mapper_lock_list *bucket_of(struct mapper_shared *shared, uint64_t id)
{
	return &shared->locks[(hash_u64(id) >> 32) % MAPPER_BUCKETS];
}

static struct mapper_lock *find(struct mapper_shared *shared, uint64_t id)
{
	struct mapper_lock *lock;
	LIST_FOREACH (lock, bucket_of(shared, id), link)
		if (lock->id == id)
			return lock;
	return NULL;
}

static struct mapper_lock *make(struct mapper_shared *shared, uint64_t id)
{
	struct mapper_lock *lock = calloc(1, sizeof(*lock));
	if (!lock)
		return NULL;
	lock->id = id;
	TAILQ_INIT(&lock->waiting);
	LIST_INSERT_HEAD(bucket_of(shared, id), lock, link);
	return lock;
}

bool mapper_lock_take(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	while (task->locks_held < task->lock_count) {
		uint64_t id = task->lock_id[task->locks_held];
		struct mapper_lock *lock = find(shared, id);
		if (!lock)
			lock = make(shared, id);
		if (!lock) {
			task->error = -ENOMEM;
			return true;
		}
		if (lock->holder && lock->holder != task) {
			TAILQ_INSERT_TAIL(&lock->waiting, task, link);
			return false;
		}
		lock->holder = task;
		task->locks_held++;
	}
	return true;
}

/* The next that waits for it has it, and goes on. */
static void pass_on(struct mapper_lock *lock)
{
	struct mapper_task *next = TAILQ_FIRST(&lock->waiting);
	lock->holder = next;
	if (!next) {
		LIST_REMOVE(lock, link);
		free(lock);
		return;
	}
	TAILQ_REMOVE(&lock->waiting, next, link);
	next->locks_held++;
	if (mapper_lock_take(next))
		mapper_task_ready(next);
}

void mapper_lock_drop(struct mapper_task *task)
{
	struct mapper_shared *shared = mapper_shared(task);
	while (task->locks_held > 0) {
		struct mapper_lock *lock = find(shared, task->lock_id[--task->locks_held]);
		must(lock && lock->holder == task);
		pass_on(lock);
	}
}
