/* SPDX-License-Identifier: Apache-2.0 */
/* What comes in, and where it goes on. */
#include "peers/tier/tier.h"

static bool again(struct peer *peer, void *context)
{
	tier_serve(peer, context);
	return true;
}

void tier_serve_retry(struct job *job) { peer_retry(job->peer, again, job); }

void tier_serve_all(struct tier *tier, struct job_queue *jobs)
{
	struct job_queue all = TAILQ_HEAD_INITIALIZER(all);
	struct job *job;
	TAILQ_CONCAT(&all, jobs, link); /* some may come back */
	while ((job = TAILQ_FIRST(&all))) {
		TAILQ_REMOVE(&all, job, link);
		tier_serve(tier->peer, job);
	}
}

int tier_serve_call(struct tier *tier, enum xseg_op op, struct xseg_key key, uint64_t offset,
	uint32_t bytes, struct call **call)
{
	int error = call_begin(tier->peer, call);
	if (error)
		return error;
	(*call)->op = op;
	(*call)->key = key;
	(*call)->offset = offset;
	(*call)->length = bytes;
	error = call_pages(*call, bytes);
	if (error)
		call_end(*call);
	return error;
}

/* What is asked of data and of maps; records are where all hosts meet. */
static bool is_kept(const struct tier *tier, const struct job *job)
{
	if (job->progress != 0)
		return true; /* it has been done; its answer waits */
	return tier->state != TIER_STATE_OFF && !store_record_is(&job->key) &&
	       job->key.volume != TIER_VOLUME && store_range_check(job) == 0 &&
	       (job->length > 0 || job->op == XSEG_OP_DELETE);
}

static void serve_object(struct tier *tier, struct job *job)
{
	struct tier_object *object = is_kept(tier, job) ? tier_object_get(tier, &job->key) : NULL;
	if (!object || (job->op == XSEG_OP_READ && !tier_object_may_be_kept(object))) {
		job_forward(job, TIER_FAR);
	} else if (object->evicting) {
		TAILQ_INSERT_TAIL(&object->blocked, job, link);
	} else if (job->op == XSEG_OP_READ) {
		tier_read(tier, object, job);
	} else if (job->op == XSEG_OP_PREFETCH) {
		uint64_t mask = tier_touched(job->offset, job->length);
		tier_pull_want(tier, object, mask, TIER_WANT_USER);
		job_complete(job, 0);
	} else {
		tier_change(tier, object, job);
	}
}

void tier_serve(struct peer *peer, struct job *job)
{
	struct tier *tier = tier_of(peer);
	if (unlikely(tier->state == TIER_STATE_LOADING)) {
		TAILQ_INSERT_TAIL(&tier->loading, job, link);
		return;
	}
	switch (job->op) {
	case XSEG_OP_READ:
	case XSEG_OP_WRITE:
	case XSEG_OP_ZERO:
	case XSEG_OP_DISCARD:
	case XSEG_OP_PREFETCH:
	case XSEG_OP_COPY:
	case XSEG_OP_DELETE: serve_object(tier, job); break;
	case XSEG_OP_CONTROL:
		if (job->arg0 == XSEG_CONTROL_FENCE) {
			tier_fence(tier, job);
			break;
		}
		__attribute__((fallthrough));
	default: job_forward(job, TIER_FAR);
	}
}
