/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread. What has come is taken together: changes go into blocks at the log's end, those that
 * free space first; then what has to be durable is synced, then reads are done in the order of the
 * tape, then a part of what takes long.
 */
#include <peer/tape.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/tape/tape.h"

struct tape_tasks {
	struct tape_queue come; /* under the lock */
	bool stop;
	/* the thread's */
	struct tape_queue changes, copies, reads;
	struct tape_queue written; /* changes in the block that is being filled */
	struct tape_queue sync;	   /* wait until all is durable */
	struct tape_queue chores;
	struct tape_pieces pieces;
	uint32_t cleaning; /* by itself */
};

/* --- answers ---------------------------------------------------------------------------------- */

static void answered(struct post_item *item)
{
	struct tape_task *task = (struct tape_task *)item;
	store_answer(task->job, task->answer, task->value);
	free(task);
}

static void answer(struct tape_task *task, int result)
{
	task->answer = result;
	free(task->bytes);
	task->bytes = NULL;
	peer_post(&task->post);
}

static void answer_all(struct tape_queue *queue, int error)
{
	struct tape_task *task;
	while ((task = TAILQ_FIRST(queue))) {
		TAILQ_REMOVE(queue, task, link);
		answer(task, error ? error : task->answer);
	}
}

/* --- changes ---------------------------------------------------------------------------------- */

static bool grows(const struct job *job)
{
	if (job->op == XSEG_OP_CAS)
		return job->arg1 == XSEG_CAS_PUT;
	return job->op != XSEG_OP_DELETE && !store_makes_hole(job);
}

/* Bytes of one stretch, cut where blocks end; from: NULL: the job's. */
static int add_bytes(struct tape_store *store, const struct job *job, uint32_t at, uint32_t length,
	const uint8_t *from)
{
	while (length) {
		uint32_t left = tape_log_left(store) / XSEG_SECTOR * XSEG_SECTOR;
		uint32_t size = length < left ? length : left;
		uint8_t *to;
		if (size < length && size < XSEG_PAGE) { /* no crumbs */
			int error = tape_log_write(store);
			if (error)
				return error;
			continue;
		}
		struct tape_entry entry = {.key = job->key,
			.offset = (uint32_t)job->offset + at,
			.length = size,
			.kind = TAPE_WRITE};
		int error = tape_log_add(store, entry, size, &to, true);
		if (error)
			return error;
		if (from)
			memcpy(to, from + at, size);
		else
			job_get_bytes(job, at, to, size);
		at += size;
		length -= size;
	}
	return 0;
}

static int add_plain(struct tape_store *store, const struct job *job, enum tape_entry_kind kind,
	uint32_t at, uint32_t length)
{
	struct tape_entry entry = {.key = job->key,
		.offset = kind == TAPE_DELETE ? 0 : (uint32_t)job->offset + at,
		.length = kind == TAPE_DELETE ? 0 : length,
		.kind = kind};
	uint8_t *to;
	return tape_log_add(store, entry, 0, &to, kind == TAPE_ZERO);
}

/* Holes stay holes; the bytes have been read. */
static int add_copy(struct tape_store *store, struct tape_task *task)
{
	const struct job *job = task->job;
	struct xseg_key source = store_copy_source(job);
	uint32_t begin = (uint32_t)job->offset, at = begin, end = begin + job->length;
	struct tape_extent extent;
	int error = 0;
	while (at < end && !error) {
		uint32_t offset = at;
		bool found = tape_index_extent(&store->index, &source, &offset, end, &extent);
		uint32_t hole = found && offset > at ? offset - at : found ? 0 : end - at;
		if (hole) {
			error = add_plain(store, job, TAPE_HOLE, at - begin, hole);
			at += hole;
			continue;
		}
		uint32_t until = offset + extent.length < end ? offset + extent.length : end;
		error = extent.at == TAPE_NO_BYTES
				? add_plain(store, job, TAPE_ZERO, at - begin, until - at)
				: add_bytes(store, job, at - begin, until - at, task->bytes);
		at = until;
	}
	return error;
}

/* What the index says must be all that was said, so the block is written before. */
static int add_record(struct tape_store *store, struct tape_task *task)
{
	struct job *job = task->job;
	struct tape_entry entry = {.key = job->key, .kind = TAPE_RECORD_DELETE};
	struct tape_record record;
	uint8_t *to;
	int error = tape_log_write(store);
	if (error)
		return error;
	tape_index_record(&store->index, &job->key, &record);
	task->value = record.version;
	error = store_record_check(job, record.version);
	if (error)
		return error;
	if (job->arg1 == XSEG_CAS_PUT) {
		task->value = record.version = store_record_version_next(record.version);
		entry.kind = TAPE_RECORD;
		entry.length = (uint32_t)sizeof(record.version) + job->length;
	}
	error = tape_log_add(store, entry, entry.length, &to, grows(job));
	if (!error && entry.length) {
		memcpy(to, &record.version, sizeof(record.version));
		job_get_bytes(job, 0, to + sizeof(record.version), job->length);
	}
	return error;
}

static int add(struct tape_store *store, struct tape_task *task)
{
	struct job *job = task->job;
	switch (job->op) {
	case XSEG_OP_WRITE: return add_bytes(store, job, 0, job->length, NULL);
	case XSEG_OP_COPY: return add_copy(store, task);
	case XSEG_OP_CAS: return add_record(store, task);
	case XSEG_OP_DELETE: return add_plain(store, job, TAPE_DELETE, 0, 0);
	default:
		return add_plain(
			store, job, store_makes_hole(job) ? TAPE_HOLE : TAPE_ZERO, 0, job->length);
	}
}

/* The block is on the tape, or not: so says it to all that are in it. */
static void written(struct tape_store *store, int error)
{
	struct tape_tasks *work = store->work;
	struct tape_task *task, *next;
	for (task = TAILQ_FIRST(&work->written); task; task = next) {
		next = TAILQ_NEXT(task, link);
		TAILQ_REMOVE(&work->written, task, link);
		bool durable = task->job->op == XSEG_OP_CAS || task->job->flags & XSEG_F_FUA;
		if (error || !durable)
			answer(task, error ? error : task->answer);
		else
			TAILQ_INSERT_TAIL(&work->sync, task, link);
	}
}

static void flush_block(struct tape_store *store) { written(store, tape_log_write(store)); }

static void change(struct tape_store *store, struct tape_task *task)
{
	uint64_t before = store->fill.done;
	bool alone = task->job->op == XSEG_OP_CAS || !grows(task->job);
	if (alone && store->full)
		flush_block(store);
	int error = add(store, task);
	/* a block was written meanwhile, or failed: those before were in it */
	if (before != store->fill.done || error)
		written(store, before == store->fill.done ? error : 0);
	if (error) {
		answer(task, error);
		return;
	}
	task->answer = task->job->op == XSEG_OP_WRITE ? (int)task->job->length : 0;
	TAILQ_INSERT_TAIL(&store->work->written, task, link);
}

static void do_changes(struct tape_store *store)
{
	struct tape_tasks *work = store->work;
	struct tape_task *task, *next;
	for (int growing = 0; growing < 2; growing++) {
		for (task = TAILQ_FIRST(&work->changes); task; task = next) {
			next = TAILQ_NEXT(task, link);
			if (grows(task->job) != growing)
				continue;
			TAILQ_REMOVE(&work->changes, task, link);
			change(store, task);
		}
		/* what frees space is not to fail with what takes it */
		if (growing || store->full)
			flush_block(store);
	}
}

/* --- reads ------------------------------------------------------------------------------------ */

static void read_some(struct tape_store *store, struct tape_queue *from, struct tape_queue *done)
{
	struct tape_tasks *work = store->work;
	uint64_t now = tape_log_now();
	struct tape_task *task;
	uint32_t rank = 0;
	for (uint64_t i = 0; i < store->options->window && (task = TAILQ_FIRST(from)); i++) {
		struct xseg_key source = store_copy_source(task->job);
		size_t first = work->pieces.count;
		bool copy = task->job->op == XSEG_OP_COPY;
		TAILQ_REMOVE(from, task, link);
		TAILQ_INSERT_TAIL(done, task, link);
		task->bytes = copy ? calloc(1, task->job->length) : NULL;
		task->answer = copy && !task->bytes ? -ENOMEM : (int)task->job->length;
		if (task->answer < 0)
			continue;
		int error = tape_pass_want(&work->pieces, task, copy ? &source : &task->job->key);
		if (error)
			task->answer = error;
		bool late = now - task->since_ns > store->options->deadline;
		rank += late;
		tape_count(store, TAPE_OVERDUE, late && work->pieces.count > first);
		for (size_t p = first; late && p < work->pieces.count; p++)
			work->pieces.all[p].rank = rank;
	}
	tape_pass_run(store, &work->pieces);
}

static void do_reads(struct tape_store *store)
{
	struct tape_queue done = TAILQ_HEAD_INITIALIZER(done);
	read_some(store, &store->work->reads, &done);
	answer_all(&done, 0);
}

/* Read, and then changes like others. */
static void do_copies(struct tape_store *store)
{
	struct tape_queue done = TAILQ_HEAD_INITIALIZER(done);
	struct tape_task *task;
	while (!TAILQ_EMPTY(&store->work->copies)) {
		read_some(store, &store->work->copies, &done);
		while ((task = TAILQ_FIRST(&done))) {
			TAILQ_REMOVE(&done, task, link);
			if (task->answer < 0)
				answer(task, task->answer);
			else
				change(store, task);
		}
	}
	flush_block(store);
}

/* --- what the index knows --------------------------------------------------------------------- */

static int do_status(struct tape_task *task)
{
	const struct job *job = task->job;
	struct store_status status = {.job = task->job};
	uint32_t at = (uint32_t)job->offset, end = at + job->length;
	struct tape_extent extent;
	while (at < end) {
		uint32_t offset = at;
		bool found =
			tape_index_extent(&task->store->index, &job->key, &offset, end, &extent);
		bool hole = !found || offset > at;
		uint32_t until = !found ? end : hole ? offset : offset + extent.length;
		until = until < end ? until : end;
		if (!store_status_add(&status, until - at, hole))
			break;
		at = until;
	}
	return store_status_end(&status, &task->value);
}

static int do_info(struct tape_task *task)
{
	struct tape_index *index = &task->store->index;
	struct xseg_object_info info = {0};
	struct tape_extent extent;
	uint32_t size, at = 0;
	if (store_space_asked(task->job)) /* a part of it is waste, and some is kept for cleaning */
		return -EOPNOTSUPP;
	if (!tape_index_size(index, &task->job->key, &size))
		return -ENOENT;
	if (task->job->data_size < sizeof(info))
		return -EINVAL;
	info.size = size;
	while (tape_index_extent(index, &task->job->key, &at, XSEG_OBJECT_MAX, &extent)) {
		info.allocated += extent.length;
		at += extent.length;
	}
	job_put_bytes(task->job, 0, &info, sizeof(info));
	return sizeof(info);
}

static bool take_key(void *context, const struct xseg_key *key)
{
	struct store_list *list = context;
	bool wanted = store_list_wants(list->job, key);
	if (wanted)
		store_list_add(list, *key);
	/* from where the list begins on, others come only behind it */
	return !store_list_full(list) && (wanted || store_record_is(key));
}

static int do_list(struct tape_task *task)
{
	struct store_list list = {.job = task->job};
	tape_index_keys(&task->store->index, store_list_from(task->job),
		store_record_is(&task->job->key), take_key, &list);
	return store_list_end(&list, &task->value);
}

static int do_get(struct tape_task *task)
{
	struct tape_record record;
	tape_index_record(&task->store->index, &task->job->key, &record);
	task->value = record.version;
	int error = store_record_check(task->job, record.version);
	return error ? error : store_record_answer(task->job, record.data, record.size);
}

/* --- what operators ask ----------------------------------------------------------------------- */

static int do_rebuild(struct tape_store *store)
{
	char why[512];
	int error = tape_log_sync(store);
	error = error ? error : tape_scan_rebuild(store, why, sizeof(why));
	if (error < 0) {
		store->lost = true;
		snprintf(store->drive.why, sizeof(store->drive.why), "%.250s", why);
		tape_log_say(store, error, "the index cannot be made again");
	}
	return error;
}

static int clean_begin(struct tape_store *store, struct tape_task *task)
{
	const struct tape_cartridge *of = tape_clean_oldest(store);
	task->value = task->cursor = of ? of->number : 0;
	return of && task->job->arg1 != TAPE_PLAN;
}

/* 1: there is more to do. */
static int control(struct tape_store *store, struct tape_task *task)
{
	struct job *job = task->job;
	switch (job->arg0) {
	case TAPE_CONTROL_LIST: return tape_clean_list(store, job, &task->value);
	case TAPE_CONTROL_LABEL:
		return tape_clean_label(
			store, (uint32_t)job->arg1, job->arg1 & TAPE_OVERWRITE, &task->value);
	case TAPE_CONTROL_VERIFY: return 1;
	case TAPE_CONTROL_CLEAN: return clean_begin(store, task);
	default: return do_rebuild(store);
	}
}

/* A part of the first, or of what has to be cleaned by itself. */
static void do_chore(struct tape_store *store)
{
	struct tape_tasks *work = store->work;
	struct tape_task *task = TAILQ_FIRST(&work->chores);
	if (!task) {
		if (tape_clean_step(store, work->cleaning) != 1)
			work->cleaning = 0;
		return;
	}
	int error = task->job->arg0 == TAPE_CONTROL_VERIFY ? tape_clean_verify_step(store, task)
							   : tape_clean_step(store, task->cursor);
	if (error == 1)
		return;
	TAILQ_REMOVE(&work->chores, task, link);
	answer(task, error);
}

/* --- the thread ------------------------------------------------------------------------------- */

static void sort(struct tape_store *store, struct tape_task *task)
{
	struct tape_tasks *work = store->work;
	int result = 0;
	switch (task->job->op) {
	case XSEG_OP_READ: TAILQ_INSERT_TAIL(&work->reads, task, link); return;
	case XSEG_OP_COPY: TAILQ_INSERT_TAIL(&work->copies, task, link); return;
	case XSEG_OP_FLUSH: TAILQ_INSERT_TAIL(&work->sync, task, link); return;
	case XSEG_OP_STATUS: result = do_status(task); break;
	case XSEG_OP_INFO: result = do_info(task); break;
	case XSEG_OP_LIST: result = do_list(task); break;
	case XSEG_OP_CONTROL:
		result = control(store, task);
		if (result == 1 && task->job->arg0 >= TAPE_CONTROL_VERIFY) {
			TAILQ_INSERT_TAIL(&work->chores, task, link);
			return;
		}
		break;
	case XSEG_OP_CAS:
		if (task->job->arg1 == XSEG_CAS_GET) {
			result = do_get(task);
			break;
		} /* fall through */
	default: TAILQ_INSERT_TAIL(&work->changes, task, link); return;
	}
	answer(task, result);
}

static bool is_idle(const struct tape_tasks *work)
{
	return TAILQ_EMPTY(&work->come) && TAILQ_EMPTY(&work->reads) &&
	       TAILQ_EMPTY(&work->chores) && !work->cleaning && !work->stop;
}

static void turn(struct tape_store *store, struct tape_queue *come)
{
	struct tape_tasks *work = store->work;
	struct tape_task *task;
	store->until_ns = tape_log_now() + store->options->timeout;
	while ((task = TAILQ_FIRST(come))) {
		TAILQ_REMOVE(come, task, link);
		sort(store, task);
	}
	do_changes(store);
	if (!TAILQ_EMPTY(&work->copies))
		do_copies(store);
	if (!TAILQ_EMPTY(&work->sync))
		answer_all(&work->sync, tape_log_sync(store));
	if (!TAILQ_EMPTY(&work->reads))
		do_reads(store);
	if (!work->cleaning)
		work->cleaning = tape_clean_next(store);
	if (work->cleaning || !TAILQ_EMPTY(&work->chores))
		do_chore(store);
}

static void *run(void *of)
{
	struct tape_store *store = of;
	struct tape_tasks *work = store->work;
	struct tape_queue come = TAILQ_HEAD_INITIALIZER(come);
	bool stop = false;
	while (!stop) {
		pthread_mutex_lock(&store->lock);
		while (is_idle(work))
			pthread_cond_wait(&store->wake, &store->lock);
		TAILQ_CONCAT(&come, &work->come, link);
		stop = work->stop;
		pthread_mutex_unlock(&store->lock);
		turn(store, &come);
	}
	return NULL;
}

/* --- lanes ------------------------------------------------------------------------------------ */

static int check(const struct job *job)
{
	if (job->op == XSEG_OP_CONTROL)
		return job->arg0 < TAPE_CONTROL_LIST || job->arg0 > TAPE_CONTROL_REBUILD
			       ? -EOPNOTSUPP
			       : 0;
	bool ranged =
		job->op <= XSEG_OP_DISCARD || job->op == XSEG_OP_STATUS || job->op == XSEG_OP_COPY;
	return ranged ? store_range_check(job) : 0;
}

void tape_work_take(struct peer *peer, struct job *job)
{
	struct tape_store *store = peer->shared;
	int error = check(job);
	bool empty = (job->op <= XSEG_OP_DISCARD || job->op == XSEG_OP_COPY) && !job->length;
	if (!error && (job->op == XSEG_OP_PREFETCH || empty)) {
		job_complete(job, 0);
		return;
	}
	struct tape_task *task = error ? NULL : calloc(1, sizeof(*task));
	if (!task) {
		job_fail(job, error ? error : -ENOMEM);
		return;
	}
	task->store = store;
	task->job = job;
	task->since_ns = tape_log_now();
	peer_post_expect(peer, &task->post, answered);
	pthread_mutex_lock(&store->lock);
	TAILQ_INSERT_TAIL(&store->work->come, task, link);
	pthread_cond_signal(&store->wake);
	pthread_mutex_unlock(&store->lock);
}

int tape_work_start(struct tape_store *store)
{
	struct tape_tasks *work = store->work = calloc(1, sizeof(*work));
	sigset_t all, before;
	if (!work)
		return -ENOMEM;
	TAILQ_INIT(&work->come);
	TAILQ_INIT(&work->changes);
	TAILQ_INIT(&work->copies);
	TAILQ_INIT(&work->reads);
	TAILQ_INIT(&work->written);
	TAILQ_INIT(&work->sync);
	TAILQ_INIT(&work->chores);
	pthread_mutex_init(&store->lock, NULL);
	pthread_cond_init(&store->wake, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&store->thread, NULL, run, store);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	store->runs = !error;
	return -error;
}

/* After the last request; the index is as far as the tape. */
void tape_work_stop(struct tape_store *store)
{
	if (store->runs) {
		pthread_mutex_lock(&store->lock);
		store->work->stop = true;
		pthread_cond_signal(&store->wake);
		pthread_mutex_unlock(&store->lock);
		pthread_join(store->thread, NULL);
		store->until_ns = tape_log_now() + store->options->timeout;
		if (!tape_log_sync(store))
			tape_index_commit(&store->index);
		free(store->work->pieces.all);
	}
	free(store->work);
	store->work = NULL;
}
