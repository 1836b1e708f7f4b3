/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs: a request is taken at the door, checked, handed to its peer's handler, and ended once.
 * The only file that reads what a client wrote.
 */
#include <errno.h>
#include <string.h>

#include "peers/core/core.h"

/* An error code that may cross the segment. */
#define ERRNO_MAX 4095

/* --- the door ---------------------------------------------------------------- */

/* What an op needs, checked before any peer sees it. */
enum {
	JOB_DATA = 1 << 0,    /* length bytes of data, in step with the offset's page */
	JOB_SECTORS = 1 << 1, /* offset and length in whole sectors */
	JOB_INFO = 1 << 2,    /* room for xseg_volume_info */
	JOB_ENTRY = 1 << 3,   /* room for the least entry of an answer */
};

static const uint8_t job_needs[XSEG_OP_COUNT] = {
	[XSEG_OP_READ] = JOB_DATA | JOB_SECTORS,
	[XSEG_OP_WRITE] = JOB_DATA | JOB_SECTORS,
	[XSEG_OP_ZERO] = JOB_SECTORS,
	[XSEG_OP_DISCARD] = JOB_SECTORS,
	[XSEG_OP_PREFETCH] = JOB_SECTORS,
	[XSEG_OP_STATUS] = JOB_SECTORS | JOB_ENTRY,
	[XSEG_OP_COPY] = JOB_SECTORS,
	[XSEG_OP_OPEN] = JOB_INFO,
	[XSEG_OP_CREATE] = JOB_INFO,
	[XSEG_OP_UPDATE] = JOB_INFO,
	[XSEG_OP_INFO] = JOB_ENTRY,
	[XSEG_OP_LIST] = JOB_ENTRY,
};

/* A record to be put must be there; room for one to be got may be less than it takes. */
static bool job_cas_good(const struct job *job)
{
	if (job->arg1 > XSEG_CAS_DELETE || job->data_size < 1)
		return job->arg1 == XSEG_CAS_DELETE;
	return job->arg1 != XSEG_CAS_PUT ||
	       (job->length <= XSEG_RECORD_MAX && job->length <= job->data_size);
}

static int job_check(const struct job *job)
{
	uint64_t end;
	if (job->op == XSEG_OP_NONE || job->op >= XSEG_OP_COUNT)
		return -EINVAL;
	if (job->length > XSEG_OBJECT_MAX ||
		__builtin_add_overflow(job->offset, (uint64_t)job->length, &end))
		return -EINVAL;
	unsigned needs = job_needs[job->op];
	if ((needs & JOB_DATA) && (job->length == 0 || job->data_size < job->length ||
					  job->data_offset != job->offset % XSEG_PAGE))
		return -EINVAL;
	if ((needs & JOB_SECTORS) && (job->offset | job->length) % XSEG_SECTOR)
		return -EINVAL;
	if ((needs & JOB_INFO) && job->data_size < sizeof(struct xseg_volume_info))
		return -EINVAL;
	if ((needs & JOB_ENTRY) && job->data_size < sizeof(struct xseg_status_extent))
		return -EINVAL;
	if (job->op == XSEG_OP_CAS && !job_cas_good(job))
		return -EINVAL;
	return 0;
}

/* More runs than lie in the slot: the rest is copied from the list pages. */
static int job_read_list(struct lane *lane, struct job *job, const struct xseg_request *request)
{
	const struct xseg *seg = lane->x->seg;
	uint32_t index, done = XSEG_EXTENTS, count = job->extent_count;
	if (count > EXTENTS_MAX)
		return -EBADMSG;
	struct extent_list *list = slab_get(&lane->lists, &index);
	must(list);
	list->index = index;
	job->extents = list->extents;
	memcpy(list->extents, request->extents, sizeof(request->extents));
	for (unsigned i = 0; done < count; i++) {
		uint32_t page = request->list[i], n = count - done;
		if (page >= seg->page_count)
			return -EBADMSG;
		n = n < LIST_PAGE_EXTENTS ? n : LIST_PAGE_EXTENTS;
		memcpy(list->extents + done, xseg_page_address(seg, page),
			n * sizeof(struct xseg_extent));
		done += n;
	}
	return 0;
}

/* The private copy: each field is read once. */
static int job_read(struct lane *lane, struct job *job, uint32_t slot, unsigned frame)
{
	const struct xseg_request *request = xseg_at(lane->x, slot);
	const struct xseg_frame *f = &request->frame[frame];
	/* one by one: what was stored a moment ago in pieces does not come back as a block */
	job->op = (enum xseg_op)f->op;
	job->flags = f->flags;
	job->key.volume = f->key.volume;
	job->key.epoch = f->key.epoch;
	job->key.object = f->key.object;
	job->offset = f->offset;
	job->length = f->length;
	job->arg0 = f->arg0;
	job->arg1 = f->arg1;
	job->context = NULL;
	job->progress = job->tries = 0;
	job->slot = slot;
	job->frame = (uint16_t)frame;
	job->client = request->client;
	job->data_offset = request->data_offset;
	job->data_size = 0;
	job->extent_count = request->extent_count;
	job->extents = job->inline_extents;
	job->fan_pending = 0;
	job->fan_done = NULL;
	job->taken_ns = lane->x->now_ns;
	if (job->extent_count > XSEG_EXTENTS) {
		int error = job_read_list(lane, job, request);
		if (error)
			return error;
	} else {
		for (uint32_t i = 0; i < job->extent_count; i++)
			job->inline_extents[i] = request->extents[i];
	}
	atomic_signal_fence(memory_order_seq_cst); /* what is used from here on is the copy */
	if (!data_measure(lane->x->seg, job->extents, job->extent_count, job->data_offset,
		    &job->data_size))
		return -EBADMSG;
	return job_check(job);
}

static void job_free(struct lane *lane, struct job *job)
{
	if (unlikely(job->extents != job->inline_extents)) {
		const struct extent_list *list =
			(const void *)((const uint8_t *)job->extents -
				       offsetof(struct extent_list, extents));
		uint32_t index =
			(uint32_t)(((const uint8_t *)list - lane->lists.base) / sizeof(*list));
		slab_put(&lane->lists, index);
	}
	job->live = false;
	slab_put(&lane->jobs, job->index);
}

/*
 * For a port that another lane serves: the hint was made while the port moved. Where it belongs
 * now is where it goes; a port that nobody has bound keeps it for the next.
 */
static void job_pass_on(struct lane *lane, uint32_t slot, unsigned frame)
{
	struct xseg_request *request = xseg_at(lane->x, slot);
	struct xseg_frame copy = request->frame[frame];
	copy.lane = XSEG_LANE_ANY; /* the number may have been one of lanes that have left */
	int error = xseg_forward(lane->x, slot, copy.port, &copy);
	lane->stray++;
	if (error) {
		request->result = error;
		request->length = 0;
		xseg_respond(lane->x, slot);
	}
}

/* The shard that this request is for, or NULL. */
static struct shard *job_steer(struct lane *lane, uint32_t slot, unsigned frame)
{
	const struct xseg_request *request = xseg_at(lane->x, slot);
	uint32_t port = request->frame[frame].port;
	if (unlikely(port >= XSEG_PORTS_MAX || !lane->by_port[port]))
		return NULL;
	struct shard *shard = lane->by_port[port];
	if (unlikely(shard->finished) && request->frame[frame].lane == XSEG_LANE_ANY)
		return NULL;
	if (shard->peer.shards == 1)
		return shard;
	/* an object's state lies on one lane, whatever the client thought when it sent this; a port
	   that is just being unbound is served to the end */
	uint32_t to = xseg_port_lane(lane->x->seg, port, &request->frame[frame]);
	return likely(to == lane->x->index || to == XSEG_NONE) ? shard : NULL;
}

static bool job_for_all_shards(const struct lane *lane, const struct job *job)
{
	return job->op == XSEG_OP_FLUSH && job->peer->shards > 1 &&
	       xseg_at(lane->x, job->slot)->frame[job->frame].lane == XSEG_LANE_ANY;
}

/* What cannot be served is answered, and counted. */
static void job_refuse(struct shard *shard, struct job *job, int error, enum core_counter counter)
{
	struct lane *lane = shard->peer.lane;
	struct xseg_request *request = xseg_at(lane->x, job->slot);
	uint32_t slot = job->slot;
	xseg_count(shard->peer.stats, counter, 1);
	request->result = error;
	request->length = 0;
	request->value = 0;
	job_free(lane, job);
	xseg_respond(lane->x, slot);
}

struct job *job_take(struct lane *lane, uint32_t slot)
{
	unsigned frame;
	uint32_t index;
	if (unlikely(xseg_accept(lane->x, slot, &frame))) {
		lane->stray++;
		return NULL;
	}
	struct shard *shard = job_steer(lane, slot, frame);
	if (unlikely(!shard)) {
		job_pass_on(lane, slot, frame);
		return NULL;
	}
	struct job *job = slab_get(&lane->jobs, &index);
	must(job); /* there are as many as requests */
	job->index = index;
	job->peer = &shard->peer;
	int error = job_read(lane, job, slot, frame);
	if (unlikely(error)) {
		job_refuse(shard, job, error, CORE_REFUSED);
		return NULL;
	}
	if (unlikely(!shard->peer.ops->on[job->op])) {
		job_refuse(shard, job, -EOPNOTSUPP, CORE_UNSUPPORTED);
		return NULL;
	}
	job->live = true;
	shard->jobs++;
	/* where its answer will say which pages it has, or has taken */
	if (job->flags & (XSEG_F_PIN | XSEG_F_DONATE))
		cpu_prefetch_own(&xseg_at(lane->x, slot)->answer[0]);
	return job;
}

void job_serve(struct job *job)
{
	struct peer *peer = job->peer;
	if (unlikely(job_for_all_shards(peer->lane, job)))
		flush_arrive(shard_of(peer), job);
	else
		peer->ops->on[job->op](peer, job);
}

void job_arrive(struct lane *lane, uint32_t slot)
{
	struct job *job = job_take(lane, slot);
	if (job)
		job_serve(job);
}

/* --- the end of a job ------------------------------------------------------------- */

/* No longer ours: counts it, forgets it, returns its slot. */
static uint32_t job_leave(struct job *job, uint32_t bytes, int result)
{
	struct shard *shard = shard_of(job->peer);
	struct lane *lane = shard->peer.lane;
	uint32_t slot = job->slot;
	must(job->live && job->fan_pending == 0);
	shard_account(shard, job->op, bytes, result, lane_now(lane) - job->taken_ns);
	shard->jobs--;
	job_free(lane, job);
	return slot;
}

static void job_answer(struct job *job, int result, uint32_t length, uint64_t value)
{
	struct lane *lane = job->peer->lane;
	struct xseg_request *request = xseg_at(lane->x, job->slot);
	request->result = result;
	request->length = length;
	request->value = value;
	xseg_respond(lane->x, job_leave(job, length, result));
}

void job_complete(struct job *job, uint32_t length) { job_answer(job, 0, length, 0); }

void job_complete_value(struct job *job, uint32_t length, uint64_t value)
{
	job_answer(job, 0, length, value);
}

void job_fail(struct job *job, int error)
{
	must(error < 0 && error >= -ERRNO_MAX);
	job_answer(job, error, 0, 0);
}

void job_fail_value(struct job *job, int error, uint64_t value)
{
	must(error < 0 && error >= -ERRNO_MAX);
	job_answer(job, error, 0, value);
}

bool job_is_abandoned(const struct job *job)
{
	const struct xseg_lane *x = job->peer->lane->x;
	const struct xseg_request *request = xseg_at(x, job->slot);
	must(job->live);
	return !xseg_lane_alive(x->seg, request->client, request->client_epoch);
}

void job_forward(struct job *job, unsigned edge)
{
	struct peer *peer = job->peer;
	struct lane *lane = peer->lane;
	struct xseg_lane *x = lane->x;
	must(job->live && job->fan_pending == 0 && edge < PEER_EDGES_MAX);
	must(!(job_needs[job->op] & JOB_DATA) ||
		(job->data_offset == job->offset % XSEG_PAGE && job->length <= job->data_size));
	struct xseg_frame next = {
		.op = (uint8_t)job->op,
		.lane = XSEG_LANE_ANY,
		.flags = (uint16_t)job->flags,
		.key = job->key,
		.offset = job->offset,
		.length = job->length,
		.arg0 = job->arg0,
		.arg1 = job->arg1,
	};
	uint32_t port = peer->edge[edge] == XSEG_NONE ? XSEG_NONE
						      : xseg_edge_port(x->seg, peer->edge[edge]);
	lane_now(lane); /* the hop's stamp */
	int error = port == XSEG_NONE ? -ENXIO : xseg_forward(x, job->slot, port, &next);
	if (unlikely(error))
		job_fail(job, error);
	else
		job_leave(job, job->length, 0);
}

/* --- its data ------------------------------------------------------------------------ */

static struct data_view job_view(const struct job *job)
{
	return (struct data_view){.seg = job->peer->lane->x->seg,
		.extents = job->extents,
		.extent_count = job->extent_count,
		.data_offset = job->data_offset,
		.data_size = job->data_size};
}

int job_iov(const struct job *job, uint32_t at, uint32_t length, struct iovec *iov, int max)
{
	struct data_view view = job_view(job);
	return data_iov(&view, at, length, iov, max);
}

int job_iov_max(const struct job *job) { return (int)job->extent_count; }

void job_put_bytes(struct job *job, uint32_t at, const void *from, uint32_t length)
{
	struct data_view view = job_view(job);
	data_put(&view, at, from, length);
}

void job_get_bytes(const struct job *job, uint32_t at, void *to, uint32_t length)
{
	struct data_view view = job_view(job);
	data_get(&view, at, to, length);
}

void job_zero_bytes(struct job *job, uint32_t at, uint32_t length)
{
	struct data_view view = job_view(job);
	data_zero(&view, at, length);
}

/* --- fan-out and join ---------------------------------------------------------------- */

void job_fan(struct job *job, void (*done)(struct job *job, int error))
{
	must(job->live && job->fan_pending == 0 && done);
	job->fan_pending = 1; /* held until job_fan_ready() */
	job->fan_error = 0;
	job->fan_done = done;
}

void job_fan_hold(struct job *job)
{
	must(job->live && job->fan_pending > 0);
	job->fan_pending++;
}

void job_fan_release(struct job *job, int error)
{
	must(job->live && job->fan_pending > 0);
	if (error && job->fan_error == 0)
		job->fan_error = error;
	if (--job->fan_pending == 0)
		job->fan_done(job, job->fan_error);
}

void job_fan_ready(struct job *job) { job_fan_release(job, 0); }
