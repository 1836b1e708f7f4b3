/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of objects: given to librados, which calls back on a thread of its own. RADOS answers
 * a write when it is safe on all of an object's OSDs, so there is nothing left to flush.
 *
 * Between page and wire: librados copies what is written once (its C interface), and what is read
 * once, from the message to the page. Where a request lies in more pieces than CEPH_PARTS there is
 * one copy more, since each piece is an operation of its own to the OSD.
 */
#include <base/must.h>
#include <errno.h>
#include <peer/post.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/rados/ceph.h"

struct io {
	struct post_item post; /* first */
	struct job *job;
	struct ceph_link *link;
	rados_completion_t completion;
	rados_read_op_t read;
	char *together; /* all of it, when it is in too many pieces */
	uint32_t deletes;
	bool guarded; /* it fails if the object is not there */
	int count;
	struct iovec part[CEPH_PARTS];
	size_t got[CEPH_PARTS];
	int rc[CEPH_PARTS];
};

static int io_end(struct io *io)
{
	int rc = rados_aio_get_return_value(io->completion);
	rados_aio_release(io->completion);
	if (io->read)
		rados_release_read_op(io->read);
	ceph_link_give(io->link);
	return rc;
}

/* On a thread of librados. */
static void called_back(rados_completion_t completion, void *context)
{
	struct io *io = context;
	(void)completion;
	peer_post(&io->post);
}

static struct io *io_begin(struct job *job, void (*done)(struct post_item *))
{
	struct io *io = calloc(1, sizeof(*io));
	if (!io)
		return NULL;
	io->job = job;
	if (rados_aio_create_completion2(io, called_back, &io->completion)) {
		free(io);
		return NULL;
	}
	io->link = ceph_link_take(ceph_store_of(job));
	peer_post_expect(job->peer, &io->post, done);
	return io;
}

/* librados would not take it: as if it had been answered like that. */
static void refused(struct io *io, int error)
{
	io->rc[0] = error;
	peer_post(&io->post);
}

/* --- once it can be tried again ------------------------------------------------------------- */

static void again(struct ceph_task *task)
{
	struct job *job = task->job;
	if (task->answer < 0) {
		blocker_rados_answer(task);
		return;
	}
	free(task);
	blocker_rados_take(job->peer, job);
}

static void fail(struct job *job, int error)
{
	job_fail(job, blocker_rados_error(ceph_store_of(job), error, "a request failed"));
}

/* --- READ ----------------------------------------------------------------------------------- */

static void read_deliver(struct io *io)
{
	struct job *job = io->job;
	for (int i = 0; i < io->count; i++) {
		size_t left = io->part[i].iov_len - io->got[i];
		memset((char *)io->part[i].iov_base + io->got[i], 0, left);
	}
	if (io->together)
		job_put_bytes(job, 0, io->together, job->length);
	job_complete(job, job->length);
}

static void read_done(struct post_item *item)
{
	struct io *io = (struct io *)item;
	struct job *job = io->job;
	int refusal = io->rc[0], error = io_end(io);
	for (int i = 0; i < io->count && !error; i++)
		error = io->rc[i];
	error = error ? error : refusal;
	if (!error)
		read_deliver(io);
	free(io->together);
	free(io);
	if (error == -ENOENT)
		blocker_rados_work(job, ceph_object_absent, blocker_rados_answer);
	else if (error == -ESHUTDOWN)
		blocker_rados_work(job, ceph_object_reach, again);
	else if (error)
		fail(job, error);
}

static bool read_parts(struct io *io)
{
	struct job *job = io->job;
	io->count = job_iov(job, 0, job->length, io->part, CEPH_PARTS);
	if (io->count >= 0)
		return true;
	io->together = malloc(job->length);
	io->count = 1;
	io->part[0] = (struct iovec){io->together, job->length};
	return io->together;
}

static void read_take(struct job *job)
{
	char name[CEPH_NAME];
	struct io *io = io_begin(job, read_done);
	if (!io) {
		job_fail(job, -ENOMEM);
		return;
	}
	if (!read_parts(io)) {
		io->count = 0;
		refused(io, -ENOMEM);
		return;
	}
	uint64_t at = job->offset;
	io->read = rados_create_read_op();
	for (int i = 0; i < io->count; at += io->part[i++].iov_len)
		rados_read_op_read(io->read, at, io->part[i].iov_len, io->part[i].iov_base,
			&io->got[i], &io->rc[i]);
	ceph_object_name(name, &job->key);
	int error = rados_aio_read_op_operate(io->read, io->link->io, io->completion, name, 0);
	if (error)
		refused(io, error);
}

/* --- which objects are there ---------------------------------------------------------------- */

/*
 * A new object has to get into its volume's index first, so a write fails if its object is not
 * there. That costs an OSD a tenth of small writes; so it is not asked where it is known: what a
 * write of ours has met stays until we delete it. Whoever else deletes objects has seen that
 * nothing refers to them, and names are not used again.
 */
static struct ceph_shard *shard_of(const struct job *job) { return job->peer->state; }

static struct xseg_key *known_at(const struct job *job)
{
	uint64_t place = (job->key.volume + job->key.object) * 0x9e3779b97f4a7c15u;
	return &shard_of(job)->known[(place ^ job->key.epoch) >> 32 & (CEPH_KNOWN - 1)];
}

void ceph_data_start(struct peer *peer)
{
	struct ceph_shard *shard = peer->state;
	for (uint32_t i = 0; i < CEPH_KNOWN; i++)
		shard->known[i].volume = UINT64_MAX; /* nobody's */
}

void ceph_data_deleted(const struct job *job)
{
	shard_of(job)->deletes++;
	known_at(job)->volume = UINT64_MAX;
}

/* --- WRITE, ZERO, DISCARD ------------------------------------------------------------------- */

/* What has been entered is left; then the task's answer. */
static void changed(struct ceph_task *task)
{
	ceph_fence_leave(ceph_store_of(task->job), task->job->key.volume);
	blocker_rados_answer(task);
}

static void change_done(struct post_item *item)
{
	struct io *io = (struct io *)item;
	struct job *job = io->job;
	int refusal = io->rc[0], error = io_end(io);
	error = error ? error : refusal;
	if (!error && io->guarded && io->deletes == shard_of(job)->deletes)
		*known_at(job) = job->key;
	free(io);
	if (error == -ENOENT && !store_makes_hole(job)) {
		blocker_rados_work(job, ceph_object_make, changed);
		return;
	}
	ceph_fence_leave(ceph_store_of(job), job->key.volume);
	if (error == -ESHUTDOWN)
		blocker_rados_work(job, ceph_object_reach, again);
	else if (error && error != -ENOENT)
		fail(job, error);
	else
		job_complete(job, job->op == XSEG_OP_WRITE ? job->length : 0);
}

static void change_send(struct job *job)
{
	char name[CEPH_NAME];
	struct io *io = io_begin(job, change_done);
	if (!io) {
		ceph_fence_leave(ceph_store_of(job), job->key.volume);
		job_fail(job, -ENOMEM);
		return;
	}
	ceph_object_name(name, &job->key);
	rados_write_op_t op = rados_create_write_op();
	io->deletes = shard_of(job)->deletes;
	io->guarded = store_key_compare(known_at(job), &job->key) != 0;
	if (io->guarded)
		rados_write_op_assert_exists(op);
	int error = ceph_object_change(job, op);
	error = error ? error
		      : rados_aio_write_op_operate(op, io->link->io, io->completion, name, NULL, 0);
	rados_release_write_op(op);
	if (error)
		refused(io, error);
}

static void change_take(struct job *job)
{
	uint64_t term = job->op == XSEG_OP_COPY ? 0 : job->arg1;
	int error = ceph_fence_enter(ceph_store_of(job), job->key.volume, term);
	if (error == -EAGAIN)
		blocker_rados_work(job, ceph_fence_ask, again);
	else if (error)
		job_fail(job, error);
	else if (job->op == XSEG_OP_COPY)
		blocker_rados_work(job, ceph_object_copy, changed);
	else
		change_send(job);
}

void ceph_data_take(struct job *job)
{
	int error = store_range_check(job);
	if (error)
		job_fail(job, error);
	else if (job->length == 0)
		job_complete(job, 0);
	else if (job->op == XSEG_OP_READ)
		read_take(job);
	else
		change_take(job);
}
