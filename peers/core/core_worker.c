/* SPDX-License-Identifier: Apache-2.0 */
/* The threads for what blocks: one pool for the process, made when needed. What is done is posted
   back to its lane. */
#include <base/log.h>
#include <string.h>

#include "peers/core/core.h"

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t work;
	struct worker_item *first, **last;
	pthread_t thread[64];
	unsigned threads, threads_max, idle, waiting;
	bool ending;
} worker_pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

/* The next item, or NULL when the pool ends. */
static struct worker_item *worker_next(void)
{
	pthread_mutex_lock(&worker_pool.mutex);
	worker_pool.idle++;
	while (!worker_pool.first && !worker_pool.ending)
		pthread_cond_wait(&worker_pool.work, &worker_pool.mutex);
	worker_pool.idle--;
	struct worker_item *item = worker_pool.first;
	if (item) {
		worker_pool.waiting--;
		worker_pool.first = item->next;
		if (!worker_pool.first)
			worker_pool.last = &worker_pool.first;
	}
	pthread_mutex_unlock(&worker_pool.mutex);
	return item;
}

static void *worker_main(void *unused)
{
	struct worker_item *item;
	pthread_setname_np(pthread_self(), "worker");
	while ((item = worker_next())) {
		xseg_resident_look();
		item->run(item);
		peer_post(&item->post);
	}
	return unused;
}

/* One more thread, when all are at work; under the mutex. */
static void worker_spawn(void)
{
	if (worker_pool.waiting <= worker_pool.idle ||
		worker_pool.threads == worker_pool.threads_max)
		return;
	int error =
		pthread_create(&worker_pool.thread[worker_pool.threads], NULL, worker_main, NULL);
	if (error == 0)
		worker_pool.threads++;
	else if (worker_pool.threads == 0)
		log_error("core_worker", "no worker thread: %s", strerror(error));
}

void worker_pool_start(unsigned workers_max)
{
	must(workers_max > 0 && workers_max <= countof(worker_pool.thread));
	worker_pool.last = &worker_pool.first;
	worker_pool.threads_max = workers_max;
	worker_pool.ending = false;
}

void worker_pool_stop(void)
{
	pthread_mutex_lock(&worker_pool.mutex);
	worker_pool.ending = true;
	pthread_cond_broadcast(&worker_pool.work);
	pthread_mutex_unlock(&worker_pool.mutex);
	for (unsigned i = 0; i < worker_pool.threads; i++)
		pthread_join(worker_pool.thread[i], NULL);
	worker_pool.threads = 0;
}

static void worker_done(struct post_item *post)
{
	struct worker_item *item = (struct worker_item *)post;
	item->done(item);
}

void worker_run(struct peer *peer, struct worker_item *item, void (*run)(struct worker_item *item),
	void (*done)(struct worker_item *item))
{
	must(run && done);
	item->run = run;
	item->done = done;
	item->next = NULL;
	peer_post_expect(peer, &item->post, worker_done);
	pthread_mutex_lock(&worker_pool.mutex);
	*worker_pool.last = item;
	worker_pool.last = &item->next;
	worker_pool.waiting++;
	worker_spawn();
	pthread_cond_signal(&worker_pool.work);
	pthread_mutex_unlock(&worker_pool.mutex);
}
