/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages that go to the volume. They are protected first, so that a program which writes to one
 * meanwhile says so, and it stays dirty. While a program that has the volume mapped has not come
 * back to us (a front that was started anew) its pages cannot be protected: what is written
 * stays dirty, too.
 */
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "peers/front/regions.h"

#define PIECES 80u
#define TASKS_MAX 256u
/* In a turn of one task: a few hundred us. */
#define WALK_PAGES 262144u
#define DROP_RUNS 64u

/* --- runs ------------------------------------------------------------------------------ */

static struct region_write *write_get(struct regions *regions)
{
	for (unsigned i = 0; i < REGION_WRITES; i++)
		if (!regions->write[i].count)
			return &regions->write[i];
	return NULL;
}

static void write_mark(struct region_volume *volume, uint64_t first, uint32_t count)
{
	for (uint64_t page = first; page < first + count; page++)
		region_volume_set(volume, page, region_state(volume, page) | REGION_WRITING);
}

/* keep: all stay dirty, not only those that have changed since. */
static void write_unmark(struct region_write *write, bool keep)
{
	struct region_volume *volume = write->volume;
	for (uint64_t page = write->first; page < write->first + write->count; page++) {
		unsigned state = region_state(volume, page);
		bool dirty = keep || state & REGION_CHANGED;
		region_volume_set(volume, page,
			(state & REGION_ASIDE) | (dirty ? REGION_DIRTY : REGION_CLEAN));
	}
}

static void write_failed(const struct region_write *write, int error)
{
	struct region_volume *volume = write->volume;
	struct regions *regions = volume->regions;
	volume->failures++;
	volume->failed = error;
	volume->retry_ns = peer_now_ns(regions->peer) + REGION_RETRY_NS;
	front_log(&regions->log, regions->peer, "volume",
		"%016llx: %u pages from %llu on cannot be written: %s",
		(unsigned long long)volume->front.id, write->count,
		(unsigned long long)write->first, strerror(-error));
}

static void write_end(struct region_write *write, int error)
{
	struct region_volume *volume = write->volume;
	struct regions *regions = volume->regions;
	write_unmark(write, error || write->unprotected);
	if (error) {
		write_failed(write, error);
	} else {
		volume->failed = 0;
		volume->written += write->count;
		peer_count(regions->peer, REGION_COUNT_WRITTEN, write->count);
	}
	write->count = 0;
	volume->writes--;
	regions->writes--;
	regions->evictable_ns = 0;
	regions->again = true;
}

static void write_answered(struct call *call)
{
	struct region_write *write = call->context;
	int error = call->result;
	call_end(call);
	crash_point("front_region.page.written");
	write_end(write, error);
}

static uint32_t write_run(const struct region_volume *volume, uint64_t page, uint64_t end)
{
	uint32_t count = 0;
	while (page + count < end && count < REGION_RUN &&
		(region_state(volume, page + count) & ~REGION_ASIDE) == REGION_DIRTY)
		count++;
	return count;
}

static int write_load(const struct region_volume *volume, const struct call *call)
{
	struct iovec iov[PIECES];
	int count = call_iov(call, 0, call->length, iov, PIECES);
	if (count < 0)
		return count;
	ssize_t got = preadv(volume->memory_fd, iov, count, (off_t)call->offset);
	return got == (ssize_t)call->length ? 0 : got < 0 ? -errno : -EIO;
}

static struct call *write_call(struct region_volume *volume, uint64_t page, uint32_t count)
{
	struct regions *regions = volume->regions;
	uint64_t left = volume->size - page * XSEG_PAGE, length = (uint64_t)count * XSEG_PAGE;
	struct call *call;
	if (call_begin(regions->peer, &call))
		return NULL;
	call->op = XSEG_OP_WRITE;
	call->flags = XSEG_F_DONATE;
	call->key = (struct xseg_key){.volume = volume->front.id};
	call->arg1 = volume->front.term;
	call->offset = page * XSEG_PAGE;
	call->length = (uint32_t)(length < left ? length : left);
	if (!call_pages(call, call->length))
		return call;
	call_end(call);
	return NULL;
}

uint32_t region_write_begin(struct region_volume *volume, uint64_t page, uint64_t end)
{
	struct regions *regions = volume->regions;
	struct region_write *write = write_get(regions);
	uint32_t count = write_run(volume, page, end);
	if (!write || !count || regions->volumes.reopening ||
		peer_now_ns(regions->peer) < volume->retry_ns)
		return 0;
	struct call *call = write_call(volume, page, count);
	if (!call)
		return 0;
	/* from here on a write to them is a fault; then they are copied */
	write_mark(volume, page, count);
	region_fault_protect(volume, page, count);
	*write = (struct region_write){.volume = volume,
		.first = page,
		.count = count,
		.number = ++volume->begun,
		.unprotected = region_volume_misses(volume)};
	volume->writes++;
	regions->writes++;
	int error = write_load(volume, call);
	if (error) {
		call_end(call);
		write_end(write, error);
		return 0;
	}
	call->context = write;
	call_submit(call, FRONT_EDGE_VOLUME, write_answered);
	return count;
}

/* --- tasks ------------------------------------------------------------------------------- */

struct region_task *region_write_task(
	struct region_volume *volume, uint64_t first, uint64_t count, bool drops)
{
	struct region_task *task;
	unsigned tasks = 0;
	TAILQ_FOREACH (task, &volume->tasks, link)
		tasks++;
	task = tasks < TASKS_MAX ? calloc(1, sizeof(*task)) : NULL;
	if (!task)
		return NULL;
	*task = (struct region_task){.volume = volume,
		.first = first,
		.end = first + count,
		.at = first,
		.failures = volume->failures,
		.drops = drops};
	volume->retry_ns = 0; /* somebody waits: now */
	TAILQ_INSERT_TAIL(&volume->tasks, task, link);
	volume->regions->again = true;
	return task;
}

struct region_task *region_write_all(struct region_volume *volume, bool drops)
{
	return region_write_task(volume, volume->low, volume->high - volume->low, drops);
}

static void task_end(struct region_task *task, int error)
{
	struct region_attach *attach = task->attach;
	TAILQ_REMOVE(&task->volume->tasks, task, link);
	if (attach)
		region_message_answer(attach, &task->wire, error, -1);
	else if (task->job && error)
		job_fail(task->job, error);
	else if (task->job)
		job_complete(task->job, 0);
	free(task);
}

static void task_flushed(struct call *call)
{
	struct region_task *task = call->context;
	struct region_volume *volume = task->volume;
	int error = call->result;
	call_end(call);
	volume->regions->again = true;
	if (!error && volume->failures != task->failures)
		error = volume->failed ? volume->failed : -EIO;
	task->step = TASK_DROPS;
	task->at = task->first;
	if (error || !task->drops)
		task_end(task, error);
}

static bool task_flush(struct peer *peer, void *context)
{
	struct region_task *task = context;
	struct call *call;
	if (call_begin(peer, &call))
		return false;
	call->op = XSEG_OP_FLUSH;
	call->key = (struct xseg_key){.volume = task->volume->front.id};
	call->arg1 = task->volume->front.term;
	call->context = task;
	call_submit(call, FRONT_EDGE_VOLUME, task_flushed);
	return true;
}

/* What it has begun, and what was under way before, has ended. */
static bool task_is_written(const struct region_task *task)
{
	const struct regions *regions = task->volume->regions;
	for (unsigned i = 0; i < REGION_WRITES; i++) {
		const struct region_write *write = &regions->write[i];
		if (write->count && write->volume == task->volume && write->number <= task->until)
			return false;
	}
	return true;
}

/* Over its range once: what changes after it began is not its. True: there is more. */
static bool task_walk(struct region_task *task)
{
	struct region_volume *volume = task->volume;
	for (unsigned i = 0; task->at < task->end && volume->failures == task->failures; i++) {
		unsigned state = region_state(volume, task->at) & ~REGION_ASIDE;
		if (i == WALK_PAGES || state & REGION_CHANGED)
			return true; /* once more: others wait; it is being written */
		uint32_t count = 1;
		if (state == REGION_DIRTY)
			count = region_write_begin(volume, task->at, task->end);
		if (!count)
			return true;
		task->at += count;
	}
	return false;
}

/* What is clean goes. */
static void task_drop(struct region_task *task)
{
	for (unsigned i = 0; task->at < task->end && i < DROP_RUNS; i++) {
		uint32_t count =
			region_evict_run(task->volume, task->at, task->end - task->at, true);
		task->at += count ? count : 1;
	}
	if (task->at == task->end)
		task_end(task, 0);
}

/* True: it has come further, and may do so at once. */
static bool task_turn(struct region_task *task)
{
	struct region_volume *volume = task->volume;
	uint64_t at = task->at;
	if (task->step == TASK_DROPS) {
		task_drop(task);
		return true;
	}
	if (task->step == TASK_FLUSHES)
		return false;
	if (task_walk(task))
		return task->at != at;
	if (!task->until)
		task->until = volume->begun;
	if (!task_is_written(task))
		return false;
	task->step = TASK_FLUSHES;
	if (!task_flush(volume->regions->peer, task))
		peer_retry(volume->regions->peer, task_flush, task);
	return true;
}

bool region_write_turn(struct region_volume *volume)
{
	struct region_task *task, *next;
	bool moved = false;
	for (task = TAILQ_FIRST(&volume->tasks); task; task = next) {
		next = TAILQ_NEXT(task, link);
		moved |= task_turn(task);
	}
	return moved;
}
