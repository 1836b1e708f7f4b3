/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that run the library. What is quick (a look into a map, deltas, leases) goes first, and
 * one thread at least is kept from what may take long.
 */
#include <base/log.h>
#include <errno.h>
#include <string.h>
#include <xseg/resident.h>

#include "peers/map/mapper.h"

static struct mapper_task *pool_pick(struct mapper_pool *pool)
{
	struct mapper_task *task = TAILQ_FIRST(&pool->quick);
	if (task) {
		TAILQ_REMOVE(&pool->quick, task, link);
		return task;
	}
	task = TAILQ_FIRST(&pool->slow);
	if (!task || pool->slow_running >= pool->slow_max)
		return NULL;
	TAILQ_REMOVE(&pool->slow, task, link);
	pool->slow_running++;
	return task;
}

static void *pool_main(void *context)
{
	struct mapper_shared *shared = context;
	struct mapper_pool *pool = &shared->pool;
	pthread_mutex_lock(&shared->lock);
	for (;;) {
		struct mapper_task *task = pool_pick(pool);
		if (!task && pool->ending)
			break;
		if (!task) {
			pthread_cond_wait(&pool->work, &shared->lock);
			continue;
		}
		bool slow = !(task->kind->flags & MAPPER_QUICK);
		pool->waiting--;
		pthread_mutex_unlock(&shared->lock);
		xseg_resident_look();
		mapper_task_run(task);
		pthread_mutex_lock(&shared->lock);
		if (!slow)
			continue;
		pool->slow_running--;
		if (!TAILQ_EMPTY(&pool->slow))
			pthread_cond_signal(&pool->work);
	}
	pthread_mutex_unlock(&shared->lock);
	return NULL;
}

void mapper_pool_push(struct mapper_task *task)
{
	struct mapper_pool *pool = &mapper_shared(task)->pool;
	bool quick = task->kind->flags & MAPPER_QUICK;
	TAILQ_INSERT_TAIL(quick ? &pool->quick : &pool->slow, task, link);
	pool->waiting++;
	pthread_cond_signal(&pool->work);
}

int mapper_pool_start(struct mapper_shared *shared, unsigned threads)
{
	struct mapper_pool *pool = &shared->pool;
	must(threads >= 2 && threads <= MAPPER_THREADS_MAX);
	pool->slow_max = threads > 4 ? threads / 2 : threads - 1;
	for (unsigned i = 0; i < threads; i++) {
		int error = pthread_create(&pool->thread[i], NULL, pool_main, shared);
		if (error) {
			log_error("mapper", "no thread: %s", strerror(error));
			mapper_pool_stop(shared);
			return -error;
		}
		pthread_setname_np(pool->thread[i], "mapper");
		pool->threads++;
	}
	return 0;
}

void mapper_pool_stop(struct mapper_shared *shared)
{
	struct mapper_pool *pool = &shared->pool;
	pthread_mutex_lock(&shared->lock);
	pool->ending = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&shared->lock);
	for (unsigned i = 0; i < pool->threads; i++)
		pthread_join(pool->thread[i], NULL);
	pool->threads = 0;
}
