/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: a job on its way through object, engine or worker, and back. */
#include <base/crash.h>
#include <errno.h>
#include <fcntl.h>
#include <peer/store.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "peers/blocker/file/file.h"

/* --- beginning and ending ------------------------------------------------------------ */

static enum file_need need_of(const struct job *job)
{
	switch (job->op) {
	case XSEG_OP_WRITE:
	case XSEG_OP_COPY: return FILE_NEED_FILE;
	case XSEG_OP_ZERO: return job->flags & XSEG_F_NO_HOLE ? FILE_NEED_FILE : FILE_NEED_LOOK;
	case XSEG_OP_DELETE: return FILE_NEED_ALONE;
	case XSEG_OP_CAS:
	case XSEG_OP_CONTROL:
	case XSEG_OP_LIST: return FILE_NEED_NOTHING;
	default: return store_space_asked(job) ? FILE_NEED_NOTHING : FILE_NEED_LOOK;
	}
}

static bool copies_itself(const struct job *job)
{
	struct xseg_key source = store_copy_source(job);
	return job->op == XSEG_OP_COPY && source.volume == job->key.volume &&
	       source.epoch == job->key.epoch && source.object == job->key.object;
}

/* A deletion is none: whoever deletes has seen that nothing refers to it, and names are not used
   again. */
static bool changes_data(const struct job *job)
{
	return job->op == XSEG_OP_WRITE || job->op == XSEG_OP_ZERO || job->op == XSEG_OP_DISCARD ||
	       job->op == XSEG_OP_COPY;
}

/* Of which term its data is; a COPY says where from instead. */
static uint64_t term_of(const struct job *job) { return job->op == XSEG_OP_COPY ? 0 : job->arg1; }

/* Somebody else has the volume: before anything is made for it. */
static bool is_fenced_off(struct file_shard *shard, const struct job *job)
{
	bool off = changes_data(job) && !file_fence_look(&shard->shared->store, &shard->look,
						job->key.volume, term_of(job));
	file_count(shard, FILE_FENCED, off);
	return off;
}

static bool enter_fence(struct file_op *op)
{
	struct file_shard *shard = op->shard;
	if (op->fenced || !changes_data(op->job))
		return true;
	op->fenced = file_fence_enter(&shard->shared->store, &shard->look, op->job->key.volume,
		term_of(op->job), &op->turn);
	file_count(shard, FILE_FENCED, !op->fenced);
	return op->fenced;
}

static struct file_range range_of(const struct file_op *op)
{
	return (struct file_range){op->job->offset, op->job->length};
}

static void op_start(struct file_shard *shard, struct job *job)
{
	struct file_op *op = TAILQ_FIRST(&shard->free_ops);
	TAILQ_REMOVE(&shard->free_ops, op, link);
	shard->ops_busy++;
	op->job = job;
	op->object = NULL;
	op->fd = -1;
	op->at = op->window = 0;
	op->result = 0;
	op->value = 0;
	op->zeros_written = op->sync_name = op->fenced = false;
	op->need = need_of(job);
	if (op->need == FILE_NEED_NOTHING)
		file_op_run(op);
	else if (store_range_check(job) || copies_itself(job))
		file_op_end(op, store_range_check(job));
	else if (is_fenced_off(shard, job))
		file_op_end(op, -ESTALE);
	else
		file_object_enter(op);
}

/* Jobs that have waited for an operation to be free; not from within itself. */
static void pump(struct file_shard *shard)
{
	struct job *job;
	if (shard->pumping)
		return;
	shard->pumping = true;
	while (!TAILQ_EMPTY(&shard->free_ops) && (job = TAILQ_FIRST(&shard->jobs))) {
		TAILQ_REMOVE(&shard->jobs, job, link);
		op_start(shard, job);
	}
	shard->pumping = false;
}

void file_op_end(struct file_op *op, int result)
{
	struct file_shard *shard = op->shard;
	struct job *job = op->job;
	struct file_object *object = op->object;
	uint64_t value = op->value;
	if (op->fenced)
		file_fence_leave(&shard->shared->store, job->key.volume, op->turn);
	if (object) {
		file_gate_leave(op);
		file_object_leave(op);
	}
	op->job = NULL;
	TAILQ_INSERT_HEAD(&shard->free_ops, op, link);
	shard->ops_busy--;
	store_answer(job, result, value);
	if (object)
		file_gate_wake(object);
	pump(shard);
}

/* A change has come to its end: `size` bytes of it were done. */
static void end_change(struct file_op *op, uint64_t size, bool durable, int result)
{
	struct file_object *object = op->object;
	if (size && op->job->offset + size > object->size)
		object->size = op->job->offset + size;
	file_flush_end(object, (struct file_range){op->job->offset, size}, durable);
	file_op_end(op, result);
}

/* --- durable before it completes ------------------------------------------------------- */

/* One sync for all that has come to its file by then; what comes meanwhile is for the next. */
static void sync_run(struct worker_item *item)
{
	struct file_op *op = (struct file_op *)item;
	struct file_object *object = op->object;
	/* its name, or its folder's, may be our predecessor's */
	op->folder_error = file_store_inherit(&op->shard->shared->store);
	op->result = op->folder_error ? 0 : file_disk_sync(&op->shard->shared->store, op->fd);
	if (op->result == 0 && op->folder_error == 0 && op->sync_name)
		op->folder_error = file_disk_sync_folder(&op->shard->shared->store,
			object->key.volume, file_folder_of(object->key.object));
}

static void sync_start(struct file_object *object);

static void sync_done(struct worker_item *item)
{
	struct file_op *op = (struct file_op *)item;
	struct file_object *object = op->object;
	struct file_op_queue synced = TAILQ_HEAD_INITIALIZER(synced);
	int error = op->result ? op->result : op->folder_error;
	file_count(op->shard, FILE_SYNCS, 1);
	file_count(op->shard, FILE_FOLDER_SYNCS, op->sync_name);
	if (op->result)
		file_flush_failed(object, op->result);
	else if (op->folder_error)
		file_flush_broken(object, op->folder_error);
	else if (op->sync_name)
		object->fresh = false;
	/* the kernel says it once, to whoever asks first: it may be about any of them */
	if (op->failures != object->failures) {
		TAILQ_CONCAT(&object->fua_syncing, &object->fua_waiting, link);
		error = error ? error : -EIO;
	}
	TAILQ_CONCAT(&synced, &object->fua_syncing, link);
	if (!TAILQ_EMPTY(&object->fua_waiting))
		sync_start(object);
	while ((op = TAILQ_FIRST(&synced))) {
		TAILQ_REMOVE(&synced, op, link);
		int answer = op->job->op == XSEG_OP_WRITE ? (int)op->job->length : 0;
		end_change(op, op->job->length, error == 0, error ? error : answer);
	}
}

static void sync_start(struct file_object *object)
{
	struct file_op *op = TAILQ_FIRST(&object->fua_waiting);
	TAILQ_CONCAT(&object->fua_syncing, &object->fua_waiting, link);
	op->sync_name = object->fresh;
	op->failures = object->failures;
	worker_run(op->shard->peer, &op->work, sync_run, sync_done);
}

/* A change was done, whole: complete, unless it is to be durable first. */
static void finish_change(struct file_op *op, int result)
{
	struct file_object *object = op->object;
	if (!(op->job->flags & XSEG_F_FUA)) {
		end_change(op, op->job->length, false, result);
		return;
	}
	TAILQ_INSERT_TAIL(&object->fua_waiting, op, link);
	if (TAILQ_EMPTY(&object->fua_syncing))
		sync_start(object);
}

/* --- bytes to and from the file ------------------------------------------------------------ */

/* As much of what is left as FILE_IOV pieces always hold. */
static void move_next(struct file_op *op)
{
	struct job *job = op->job;
	op->window = job->length - op->at;
	op->iov_count = job_iov(job, op->at, op->window, op->iov, FILE_IOV);
	if (op->iov_count == -E2BIG) {
		op->window = (FILE_IOV - 1) * XSEG_PAGE;
		op->iov_count = job_iov(job, op->at, op->window, op->iov, FILE_IOV);
	}
	must(op->iov_count > 0);
	op->shard->shared->engine->move(op);
}

static void read_zeros(struct file_op *op)
{
	job_zero_bytes(op->job, op->at, op->job->length - op->at);
	file_op_end(op, (int)op->job->length);
}

static void read_moved(struct file_op *op, int result)
{
	if (result < 0) {
		file_count(op->shard, FILE_IO_ERRORS, 1);
		file_op_end(op, result);
		return;
	}
	op->at += (uint32_t)result;
	if (op->at == op->job->length)
		file_op_end(op, (int)op->job->length);
	else if (result == 0 || file_op_offset(op) >= op->object->size)
		read_zeros(op); /* the end of the file */
	else
		move_next(op);
}

static void write_moved(struct file_op *op, int result)
{
	if (result <= 0) {
		file_count(op->shard, FILE_IO_ERRORS, 1);
		end_change(op, op->at, false, result ? file_disk_write_error(result) : -EIO);
		return;
	}
	op->at += (uint32_t)result;
	if (op->at < op->job->length)
		move_next(op);
	else
		finish_change(op, (int)op->job->length);
}

void file_op_moved(struct file_op *op, int result)
{
	if (result == -EINTR || result == -EAGAIN) {
		op->shard->shared->engine->move(op);
		return;
	}
	must(result <= (int)op->window);
	crash_point("blocker_file.transfer.moved");
	file_count(op->shard, FILE_SHORT_IO, result > 0 && result < (int)op->window);
	if (op->writes)
		write_moved(op, result);
	else
		read_moved(op, result);
}

static void run_read(struct file_op *op)
{
	op->writes = false;
	if (op->fd < 0 || op->job->offset >= op->object->size) {
		file_count(op->shard, FILE_ABSENT_READS, op->fd < 0);
		read_zeros(op);
		return;
	}
	move_next(op);
}

static void run_write(struct file_op *op)
{
	int error = file_flush_begin(op->object);
	op->writes = true;
	if (error)
		file_op_end(op, error);
	else if (op->job->length == 0)
		finish_change(op, 0);
	else
		move_next(op);
}

/* --- what a worker does ---------------------------------------------------------------------- */

static void change_run(struct worker_item *item)
{
	struct file_op *op = (struct file_op *)item;
	struct job *job = op->job;
	struct file_store *store = &op->shard->shared->store;
	struct xseg_key source = store_copy_source(job);
	bool zero = job->op == XSEG_OP_ZERO, keep = zero && (job->flags & XSEG_F_NO_HOLE);
	bool fast = zero && (job->flags & XSEG_F_FAST_ONLY);
	if (job->op == XSEG_OP_COPY)
		op->result = file_disk_copy(store, &source, op->fd, range_of(op));
	else
		op->result = file_disk_zero(op->fd, range_of(op), keep, fast, &op->zeros_written);
}

static void change_done(struct worker_item *item)
{
	struct file_op *op = (struct file_op *)item;
	file_count(op->shard, FILE_ZEROS_WRITTEN, op->zeros_written);
	if (op->result == 0) {
		file_count(
			op->shard, FILE_PUNCHES, op->job->op != XSEG_OP_COPY && !op->zeros_written);
		finish_change(op, 0);
		return;
	}
	/* how far it came is not known */
	uint64_t size = op->result == -EOPNOTSUPP ? 0 : op->job->length;
	file_count(op->shard, FILE_IO_ERRORS, size != 0);
	end_change(op, size, false, op->result);
}

static void run_change(struct file_op *op)
{
	int error = op->fd < 0 ? 0 : file_flush_begin(op->object);
	if (op->fd < 0 || error) /* absent: it reads as zeros as it is */
		file_op_end(op, error);
	else
		worker_run(op->shard->peer, &op->work, change_run, change_done);
}

static void delete_run(struct worker_item *item)
{
	struct file_op *op = (struct file_op *)item;
	const struct xseg_key *key = &op->job->key;
	struct file_store *store = &op->shard->shared->store;
	op->result = file_disk_delete(store, key);
	if (op->result)
		return;
	close(op->fd);
	op->fd = -1;
	if (op->job->flags & XSEG_F_FUA)
		op->result = file_store_inherit(store);
	if (op->result == 0 && (op->job->flags & XSEG_F_FUA))
		op->result = file_disk_sync_folder(store, key->volume, file_folder_of(key->object));
}

static void delete_done(struct worker_item *item)
{
	struct file_op *op = (struct file_op *)item;
	bool deleted = op->fd < 0;
	if (deleted && op->result)
		file_flush_broken(op->object, op->result);
	file_flush_delete_end(op->object, deleted);
	file_count(op->shard, FILE_DELETES, deleted);
	file_op_end(op, op->result);
}

static void run_delete(struct file_op *op)
{
	int error = op->fd < 0 ? 0 : file_flush_delete_begin(op->object);
	if (op->fd < 0 || error)
		file_op_end(op, error);
	else
		worker_run(op->shard->peer, &op->work, delete_run, delete_done);
}

/* As many stretches as the data pages hold, or as one look takes. */
static int look_status(struct file_op *op)
{
	struct xseg_status_extent extents[256];
	uint32_t room = op->job->data_size / sizeof(extents[0]);
	int count = file_disk_status(op->fd, range_of(op), extents, room < 256 ? (int)room : 256);
	if (count < 0)
		return count;
	op->value = (uint64_t)count;
	if (count)
		job_put_bytes(op->job, 0, extents, (uint32_t)count * (uint32_t)sizeof(extents[0]));
	return count * (int)sizeof(extents[0]);
}

static int control(struct file_store *store, const struct job *job)
{
	return job->arg0 == XSEG_CONTROL_LEAVE ? file_fence_left(store, job->key.volume, job->arg1)
					       : -EOPNOTSUPP;
}

static int look_info(struct file_op *op)
{
	struct xseg_object_info info;
	struct statvfs space;
	if (store_space_asked(op->job)) {
		if (fstatvfs(op->shard->shared->store.root, &space) != 0)
			return -errno;
		return store_space_answer(
			op->job, space.f_frsize * space.f_blocks, space.f_frsize * space.f_bavail);
	}
	int error = file_disk_info(op->fd, &info);
	if (error)
		return error;
	job_put_bytes(op->job, 0, &info, sizeof(info));
	return sizeof(info);
}

static void look_run(struct worker_item *item)
{
	struct file_op *op = (struct file_op *)item;
	struct file_store *store = &op->shard->shared->store;
	struct job *job = op->job;
	if (job->op == XSEG_OP_STATUS) {
		op->result = look_status(op);
	} else if (job->op == XSEG_OP_INFO) {
		op->result = look_info(op);
	} else if (job->op == XSEG_OP_PREFETCH) {
		op->result = -posix_fadvise(
			op->fd, (off_t)job->offset, (off_t)job->length, POSIX_FADV_WILLNEED);
	} else if (job->op == XSEG_OP_CONTROL) {
		op->result = control(store, job);
	} else if (job->op == XSEG_OP_CAS) {
		op->result = file_record_cas(store, job, &op->value);
	} else if (store_record_is(&job->key)) {
		op->result = file_record_list(store, job, &op->value);
	} else {
		op->result = file_list(store, job, &op->value);
	}
}

static void look_done(struct worker_item *item)
{
	struct file_op *op = (struct file_op *)item;
	file_count(op->shard, FILE_CAS, op->job->op == XSEG_OP_CAS);
	file_op_end(op, op->result);
}

static void absent_status(struct file_op *op)
{
	struct xseg_status_extent all = {.length = op->job->length};
	all.flags = XSEG_STATUS_HOLE | XSEG_STATUS_ZERO;
	op->value = op->job->length ? 1 : 0;
	if (op->value)
		job_put_bytes(op->job, 0, &all, sizeof(all));
	file_op_end(op, op->value ? (int)sizeof(all) : 0);
}

static void run_look(struct file_op *op)
{
	const struct job *job = op->job;
	if (op->need == FILE_NEED_NOTHING || op->fd >= 0)
		worker_run(op->shard->peer, &op->work, look_run, look_done);
	else if (job->op == XSEG_OP_STATUS)
		absent_status(op);
	else
		file_op_end(op, job->op == XSEG_OP_INFO ? -ENOENT : 0);
}

/* --- entry points ---------------------------------------------------------------------------- */

static bool moves_data(const struct job *job)
{
	return job->op == XSEG_OP_READ || job->op == XSEG_OP_WRITE || job->op == XSEG_OP_ZERO ||
	       job->op == XSEG_OP_DISCARD || job->op == XSEG_OP_COPY;
}

void file_op_run(struct file_op *op)
{
	if (moves_data(op->job) && !file_gate_enter(op))
		return;
	if (!enter_fence(op)) {
		file_op_end(op, -ESTALE);
		return;
	}
	switch (op->job->op) {
	case XSEG_OP_READ: run_read(op); break;
	case XSEG_OP_WRITE: run_write(op); break;
	case XSEG_OP_ZERO:
	case XSEG_OP_DISCARD:
	case XSEG_OP_COPY: run_change(op); break;
	case XSEG_OP_DELETE: run_delete(op); break;
	default: run_look(op); break;
	}
}

void file_op_take(struct peer *peer, struct job *job)
{
	struct file_shard *shard = peer->state;
	if (job->op == XSEG_OP_CONTROL && job->arg0 == XSEG_CONTROL_FENCE) {
		file_handover_take(shard, job);
		return;
	}
	file_count(shard, FILE_WAITS, TAILQ_EMPTY(&shard->free_ops));
	TAILQ_INSERT_TAIL(&shard->jobs, job, link);
	pump(shard);
}

int file_op_init(struct file_shard *shard, uint32_t depth)
{
	TAILQ_INIT(&shard->free_ops);
	TAILQ_INIT(&shard->jobs);
	shard->ops = calloc(depth, sizeof(*shard->ops));
	if (!shard->ops)
		return -ENOMEM;
	for (uint32_t i = 0; i < depth; i++) {
		shard->ops[i].shard = shard;
		TAILQ_INSERT_TAIL(&shard->free_ops, &shard->ops[i], link);
	}
	return 0;
}

void file_op_fini(struct file_shard *shard) { free(shard->ops); }
