/* SPDX-License-Identifier: Apache-2.0 */
/* The engine without io_uring: what the page cache has is read at once, the rest by workers. */
#include <errno.h>
#include <sys/uio.h>

#include "peers/blocker/file/file.h"

static int threads_probe(unsigned depth, char *why, size_t why_size)
{
	(void)depth, (void)why, (void)why_size;
	return 0;
}

static int threads_start(struct file_shard *shard, char *why, size_t why_size)
{
	(void)shard, (void)why, (void)why_size;
	return 0;
}

static void threads_stop(struct file_shard *shard) { (void)shard; }

static void transfer_run(struct worker_item *item)
{
	struct file_op *op = (struct file_op *)item;
	off_t offset = (off_t)file_op_offset(op);
	ssize_t moved = op->writes ? pwritev(op->fd, op->iov, op->iov_count, offset)
				   : preadv(op->fd, op->iov, op->iov_count, offset);
	op->result = moved < 0 ? -errno : (int)moved;
}

static void transfer_done(struct worker_item *item)
{
	struct file_op *op = (struct file_op *)item;
	int result = op->result;
	op->result = 0;
	file_op_moved(op, result);
}

/* What lies in the page cache costs less to copy than to ask a worker for; this never blocks. A
   file system that cannot promise that says so, and an end of file is left to the worker. */
static int read_cached(struct file_op *op)
{
	if (op->writes)
		return 0;
	ssize_t got =
		preadv2(op->fd, op->iov, op->iov_count, (off_t)file_op_offset(op), RWF_NOWAIT);
	return got > 0 ? (int)got : 0;
}

static void threads_move(struct file_op *op)
{
	int got = read_cached(op);
	if (got)
		file_op_moved(op, got);
	else
		worker_run(op->shard->peer, &op->work, transfer_run, transfer_done);
}

static bool threads_poll(struct file_shard *shard)
{
	(void)shard;
	return false;
}

static bool threads_sleep(struct file_shard *shard)
{
	(void)shard;
	return true;
}

const struct file_engine file_threads = {
	.name = "threads",
	.probe = threads_probe,
	.start = threads_start,
	.stop = threads_stop,
	.move = threads_move,
	.poll = threads_poll,
	.sleep = threads_sleep,
};
