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

static void write_answered(struct call *call)
{
	struct region_write *write = call->context;
	struct region_volume *volume = write->volume;
	struct regions *regions = volume->regions;
	int error = call->result;
	call_end(call);
	crash_point("front_region.page.written");
	write_unmark(write, error || write->unprotected);
	if (error) {
		volume->failures++;
		volume->failed = error;
		volume->retry_ns = peer_now_ns(regions->peer) + REGION_RETRY_NS;
		front_log(&regions->log, regions->peer, "volume",
			"%016llx: %u pages from %llu on cannot be written: %s",
			(unsigned long long)volume->front.id, write->count,
			(unsigned long long)write->first, strerror(-error));
	} else {
		volume->written += write->count;
		peer_count(regions->peer, REGION_COUNT_WRITTEN, write->count);
	}
	write->count = 0;
	volume->writes--;
	regions->writes--;
	regions->calls--;
	regions->evictable_ns = 0;
	regions->again = true;
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
	int error = write_load(volume, call);
	*write = (struct region_write){.volume = volume,
		.first = page,
		.count = count,
		.number = ++volume->begun,
		.unprotected = region_volume_misses(volume)};
	if (error) {
		call_end(call);
		write_unmark(write, true);
		write->count = 0;
		return 0;
	}
	call->context = write;
	volume->writes++;
	regions->writes++;
	regions->calls++;
	call_submit(call, FRONT_EDGE_VOLUME, write_answered);
	return count;
}

/* --- tasks ------------------------------------------------------------------------------- */

int region_write_task(struct region_volume *volume, struct region_attach *attach,
	const struct region_wire *wire, uint64_t first, uint64_t count)
{
	struct region_task *task;
	unsigned tasks = 0;
	TAILQ_FOREACH (task, &volume->tasks, link)
		tasks++;
	task = tasks < TASKS_MAX ? calloc(1, sizeof(*task)) : NULL;
	if (!task)
		return -EBUSY;
	*task = (struct region_task){.volume = volume,
		.attach = attach,
		.first = first,
		.end = first + count,
		.at = first,
		.failures = volume->failures};
	if (wire)
		task->wire = *wire;
	task->drops = wire && wire->type == REGION_WIRE_ADVISE;
	volume->retry_ns = 0; /* somebody waits: now */
	TAILQ_INSERT_TAIL(&volume->tasks, task, link);
	volume->regions->again = true;
	return 0;
}

int region_write_settle(struct region_volume *volume, struct job *job)
{
	int error = region_write_task(volume, NULL, NULL, volume->low, volume->high - volume->low);
	if (!error)
		TAILQ_LAST(&volume->tasks, region_task_list)->job = job;
	return error;
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

static void task_drop(struct region_task *task)
{
	struct region_volume *volume = task->volume;
	for (uint64_t page = task->first; page < task->end; page++)
		if ((region_state(volume, page) & ~REGION_ASIDE) == REGION_CLEAN)
			region_evict_page(volume, page, 1);
}

static void task_flushed(struct call *call)
{
	struct region_task *task = call->context;
	struct regions *regions = task->volume->regions;
	int error = call->result;
	call_end(call);
	regions->calls--;
	regions->again = true;
	if (!error && task->volume->failures != task->failures)
		error = task->volume->failed;
	if (!error && task->drops)
		task_drop(task);
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
	task->volume->regions->calls++;
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
	while (task->at < task->end && volume->failures == task->failures) {
		unsigned state = region_state(volume, task->at) & ~REGION_ASIDE;
		if (state & REGION_CHANGED)
			return true; /* once more, when it is written */
		uint32_t count = 1;
		if (state == REGION_DIRTY)
			count = region_write_begin(volume, task->at, task->end);
		if (!count)
			return true;
		task->at += count;
	}
	return false;
}

static bool task_turn(struct region_task *task)
{
	struct region_volume *volume = task->volume;
	uint64_t at = task->at;
	if (task->flushing || task_walk(task))
		return task->at != at;
	if (!task->until)
		task->until = volume->begun;
	if (!task_is_written(task))
		return false;
	task->flushing = true;
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
