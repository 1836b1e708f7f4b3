/* SPDX-License-Identifier: Apache-2.0 */
/* The engine on io_uring: one ring for each shard, filled in a turn and sent once at its end. */
#include <errno.h>
#include <event2/event.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

#include "peers/blocker/file/file.h"

#define URING_BATCH 64

struct uring {
	struct io_uring ring;
	unsigned queued;     /* filled in, not sent */
	unsigned flying;     /* sent, not answered */
	struct event *event; /* the lane sleeps on the ring, too */
};

/* What newer kernels do better; older ones know nothing of it. */
static int ring_init(struct io_uring *ring, unsigned depth)
{
	static const unsigned flags[] = {
		IORING_SETUP_CLAMP | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG,
		IORING_SETUP_CLAMP,
	};
	int error = -EINVAL;
	for (size_t i = 0; i < countof(flags) && error == -EINVAL; i++)
		error = io_uring_queue_init(depth, ring, flags[i]);
	return error;
}

static int uring_probe(unsigned depth, char *why, size_t why_size)
{
	struct io_uring ring;
	int error = ring_init(&ring, depth);
	if (error) {
		snprintf(why, why_size, "the kernel refuses io_uring (%s); io=threads will do",
			strerror(-error));
		return error;
	}
	io_uring_queue_exit(&ring);
	return 0;
}

/* Nothing to do here: that the lane woke is all it takes, its next turn polls. */
static void ring_is_ready(evutil_socket_t fd, short what, void *context)
{
	(void)fd, (void)what, (void)context;
}

static int watch(struct file_shard *shard, struct uring *uring)
{
	struct event_base *base = peer_event_base(shard->peer);
	uring->event =
		event_new(base, uring->ring.ring_fd, EV_READ | EV_PERSIST, ring_is_ready, NULL);
	return uring->event && event_add(uring->event, NULL) == 0 ? 0 : -ENOMEM;
}

static void uring_stop(struct file_shard *shard)
{
	struct uring *uring = shard->engine;
	if (!uring)
		return;
	must(uring->queued + uring->flying == 0);
	if (uring->event)
		event_free(uring->event);
	io_uring_queue_exit(&uring->ring);
	free(uring);
	shard->engine = NULL;
}

static int uring_start(struct file_shard *shard, char *why, size_t why_size)
{
	const struct file_options *options = shard->peer->options;
	struct uring *uring = calloc(1, sizeof(*uring));
	int error = uring ? ring_init(&uring->ring, (unsigned)options->depth) : -ENOMEM;
	if (error) {
		free(uring);
		snprintf(why, why_size, "cannot set up io_uring: %s", strerror(-error));
		return error;
	}
	shard->engine = uring;
	error = watch(shard, uring);
	if (error) {
		snprintf(why, why_size, "cannot watch io_uring: %s", strerror(-error));
		uring_stop(shard);
	}
	return error;
}

/* There are at most as many operations as the ring has places, and each has one transfer. */
static void uring_move(struct file_op *op)
{
	struct uring *uring = op->shard->engine;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
	uint64_t offset = file_op_offset(op);
	must(sqe);
	if (op->iov_count == 1 && op->writes)
		io_uring_prep_write(
			sqe, op->fd, op->iov->iov_base, (unsigned)op->iov->iov_len, offset);
	else if (op->iov_count == 1)
		io_uring_prep_read(
			sqe, op->fd, op->iov->iov_base, (unsigned)op->iov->iov_len, offset);
	else if (op->writes)
		io_uring_prep_writev(sqe, op->fd, op->iov, (unsigned)op->iov_count, offset);
	else
		io_uring_prep_readv(sqe, op->fd, op->iov, (unsigned)op->iov_count, offset);
	io_uring_sqe_set_data(sqe, op);
	uring->queued++;
}

/* What the kernel does not take now it takes the next time. */
static void send_queued(struct uring *uring)
{
	int sent = io_uring_submit(&uring->ring);
	if (sent <= 0)
		return;
	uring->queued -= (unsigned)sent;
	uring->flying += (unsigned)sent;
}

static bool reap(struct uring *uring)
{
	struct io_uring_cqe *cqes[URING_BATCH];
	struct file_op *ops[URING_BATCH];
	int results[URING_BATCH];
	unsigned count = io_uring_peek_batch_cqe(&uring->ring, cqes, URING_BATCH);
	for (unsigned i = 0; i < count; i++) {
		ops[i] = io_uring_cqe_get_data(cqes[i]);
		results[i] = cqes[i]->res;
	}
	io_uring_cq_advance(&uring->ring, count);
	uring->flying -= count;
	for (unsigned i = 0; i < count; i++)
		file_op_moved(ops[i], results[i]);
	return count > 0;
}

static bool uring_poll(struct file_shard *shard)
{
	struct uring *uring = shard->engine;
	bool moved = false;
	if (uring->queued) {
		send_queued(uring);
		moved = true;
	}
	while (uring->flying && reap(uring))
		moved = true;
	return moved;
}

/* Whatever is queued must be on its way; what is answered already would not wake the lane. */
static bool uring_sleep(struct file_shard *shard)
{
	struct uring *uring = shard->engine;
	return uring->queued == 0 && io_uring_cq_ready(&uring->ring) == 0;
}

const struct file_engine file_uring = {
	.name = "uring",
	.probe = uring_probe,
	.start = uring_start,
	.stop = uring_stop,
	.move = uring_move,
	.poll = uring_poll,
	.sleep = uring_sleep,
};
