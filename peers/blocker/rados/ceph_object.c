/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects as a whole. One is in its volume's index before it is made, and leaves it after it was
 * removed; two workers do not do that to one object at once.
 */
#include <base/bytes.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/rados/ceph.h"

#define CEPH_PARTS \
	16 /* of one write as an operation each; beyond that they are put together first */

void ceph_object_name(char name[CEPH_NAME], const struct xseg_key *key)
{
	snprintf(name, CEPH_NAME, "o.%016" PRIx64 ".%08" PRIx32 ".%08" PRIx32, key->volume,
		key->object, key->epoch);
}

static pthread_mutex_t *maker_of(struct ceph_store *store, const struct xseg_key *key)
{
	uint64_t place = (key->volume ^ key->object) * 0x9e3779b97f4a7c15u ^ key->epoch;
	return &store->making[(place >> 32) % CEPH_MAKERS];
}

static int add_together(const struct job *job, rados_write_op_t op)
{
	char *bytes = malloc(job->length);
	if (!bytes)
		return -ENOMEM;
	job_get_bytes(job, 0, bytes, job->length);
	rados_write_op_write(op, bytes, job->length, job->offset); /* it copies them */
	free(bytes);
	return 0;
}

int ceph_object_change(const struct job *job, rados_write_op_t op)
{
	static const char zeros[XSEG_SECTOR];
	struct iovec parts[CEPH_PARTS];
	if (job->op != XSEG_OP_WRITE) {
		if (job->op == XSEG_OP_ZERO && (job->flags & XSEG_F_NO_HOLE))
			rados_write_op_writesame(
				op, zeros, sizeof(zeros), job->length, job->offset);
		else
			rados_write_op_zero(op, job->offset, job->length);
		return 0;
	}
	int count = job_iov(job, 0, job->length, parts, CEPH_PARTS);
	if (count < 0)
		return add_together(job, op);
	uint64_t at = job->offset;
	for (int i = 0; i < count; at += parts[i++].iov_len)
		rados_write_op_write(op, parts[i].iov_base, parts[i].iov_len, at);
	return 0;
}

int ceph_object_make(struct ceph_task *task, struct ceph_link *link)
{
	const struct job *job = task->job;
	pthread_mutex_t *maker = maker_of(link->store, &job->key);
	char name[CEPH_NAME];
	ceph_object_name(name, &job->key);
	rados_write_op_t op = rados_create_write_op();
	rados_write_op_create(op, LIBRADOS_CREATE_IDEMPOTENT, NULL);
	int error = ceph_object_change(job, op);
	pthread_mutex_lock(maker);
	error = error ? error : ceph_index_add(link, &job->key);
	error = error ? error : rados_write_op_operate(op, link->io, name, NULL, 0);
	pthread_mutex_unlock(maker);
	rados_release_write_op(op);
	atomic_fetch_add(&link->store->counted[CEPH_MAKES], 1);
	return error ? error : job->op == XSEG_OP_WRITE ? (int)job->length : 0;
}

int ceph_object_delete(struct ceph_task *task, struct ceph_link *link)
{
	const struct xseg_key *key = &task->job->key;
	pthread_mutex_t *maker = maker_of(link->store, key);
	char name[CEPH_NAME];
	ceph_object_name(name, key);
	pthread_mutex_lock(maker);
	int error = rados_remove(link->io, name);
	error = error == -ENOENT ? ceph_link_pool(link) : error;
	error = error ? error : ceph_index_remove(link, key);
	pthread_mutex_unlock(maker);
	return error;
}

/* --- COPY ----------------------------------------------------------------------------------- */

static void add_copy(const struct job *job, const char *bytes, rados_write_op_t op)
{
	for (struct store_stretch s = {0}; store_stretch_next(job, bytes, &s);)
		if (s.zero)
			rados_write_op_zero(op, job->offset + s.at, s.size);
		else
			rados_write_op_write(op, bytes + s.at, s.size, job->offset + s.at);
}

static int copy_to(struct ceph_link *link, const struct job *job, const char *bytes)
{
	pthread_mutex_t *maker = maker_of(link->store, &job->key);
	char name[CEPH_NAME];
	int error = 0;
	ceph_object_name(name, &job->key);
	rados_write_op_t op = rados_create_write_op();
	bool whole = bytes_are_zero(bytes, job->length);
	if (whole)
		rados_write_op_assert_exists(op);
	else
		rados_write_op_create(op, LIBRADOS_CREATE_IDEMPOTENT, NULL);
	add_copy(job, bytes, op);
	pthread_mutex_lock(maker);
	if (!whole)
		error = ceph_index_add(link, &job->key);
	error = error ? error : rados_write_op_operate(op, link->io, name, NULL, 0);
	pthread_mutex_unlock(maker);
	rados_release_write_op(op);
	return whole && error == -ENOENT ? ceph_link_pool(link) : error;
}

int ceph_object_copy(struct ceph_task *task, struct ceph_link *link)
{
	const struct job *job = task->job;
	struct xseg_key source = store_copy_source(job);
	char name[CEPH_NAME], *bytes;
	if (job->length == 0)
		return 0;
	bytes = calloc(1, job->length);
	if (!bytes)
		return -ENOMEM;
	ceph_object_name(name, &source);
	int got = rados_read(link->io, name, bytes, job->length, job->offset);
	int error = got == -ENOENT ? ceph_link_pool(link) : got < 0 ? got : 0;
	error = error ? error : copy_to(link, job, bytes);
	free(bytes);
	return error;
}

/* --- what there is -------------------------------------------------------------------------- */

static int size_of(struct ceph_link *link, const struct xseg_key *key, uint64_t *size)
{
	char name[CEPH_NAME];
	time_t changed;
	ceph_object_name(name, key);
	return rados_stat(link->io, name, size, &changed);
}

/* What the monitor says of our pool, with its quota. Who may not ask it learns nothing. */
static int space(struct ceph_task *task, struct ceph_link *link)
{
	const char *ask = "{\"prefix\": \"df\", \"detail\": \"detail\", \"format\": \"json\"}";
	const char *own = ceph_store_of(task->job)->options->pool, *name;
	char *text = NULL;
	size_t size = 0, i;
	json_t *pool;
	int result = -EOPNOTSUPP;
	if (rados_mon_command(link->cluster, &ask, 1, "", 0, &text, &size, NULL, NULL) != 0)
		return result;
	json_t *answer = json_loadb(text, size, 0, NULL);
	json_array_foreach (json_object_get(answer, "pools"), i, pool) {
		json_int_t used, left, quota = 0;
		if (json_unpack(pool, "{s:s, s:{s:I, s:I, s?:I}}", "name", &name, "stats", "stored",
			    &used, "max_avail", &left, "quota_bytes", &quota) ||
			strcmp(name, own) != 0)
			continue;
		if (quota > 0 && quota - used < left)
			left = quota > used ? quota - used : 0;
		result = store_space_answer(task->job, (uint64_t)(used + left), (uint64_t)left);
	}
	json_decref(answer);
	rados_buffer_free(text);
	return result;
}

int ceph_object_info(struct ceph_task *task, struct ceph_link *link)
{
	if (store_space_asked(task->job))
		return space(task, link);
	struct xseg_object_info info = {0};
	int error = size_of(link, &task->job->key, &info.size);
	if (error == -ENOENT) {
		error = ceph_link_pool(link);
		return error ? error : -ENOENT;
	}
	if (error)
		return error;
	if (task->job->data_size < sizeof(info))
		return -EINVAL;
	/* which of it is holes only the OSD knows, and librados has no C function that asks it */
	info.allocated = info.size;
	task->value = XSEG_INFO_SPACE_UNKNOWN;
	job_put_bytes(task->job, 0, &info, sizeof(info));
	return sizeof(info);
}

int ceph_object_status(struct ceph_task *task, struct ceph_link *link)
{
	struct job *job = task->job;
	char name[CEPH_NAME], *bytes = calloc(1, job->length ? job->length : 1);
	if (!bytes)
		return -ENOMEM;
	ceph_object_name(name, &job->key);
	int got = rados_read(link->io, name, bytes, job->length, job->offset);
	int error = got == -ENOENT ? ceph_link_pool(link) : got < 0 ? got : 0;
	int answer = error ? error : store_status_of(job, bytes, &task->value);
	free(bytes);
	return answer;
}

int ceph_object_absent(struct ceph_task *task, struct ceph_link *link)
{
	int error = ceph_link_pool(link);
	if (error)
		return error;
	atomic_fetch_add(&link->store->counted[CEPH_ABSENT_READS], 1);
	job_zero_bytes(task->job, 0, task->job->length);
	return (int)task->job->length;
}

int ceph_object_reach(struct ceph_task *task, struct ceph_link *link)
{
	uint64_t size;
	time_t changed;
	(void)task;
	return rados_stat(link->io, "format", &size, &changed);
}
