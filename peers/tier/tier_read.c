/* SPDX-License-Identifier: Apache-2.0 */
/* Reads: from the near store, or from the far one. */
#include "peers/tier/tier.h"

static void near_done(struct call *call)
{
	struct job *job = call->context;
	struct tier_object *object = call->context2;
	struct tier *tier = tier_of(job->peer);
	int error = call->result;
	call_end(call);
	object->reads--;
	if (!error) {
		job_complete(job, job->length);
		return;
	}
	/* the far store has it as well */
	peer_count(tier->peer, TIER_C_ERRORS, 1);
	uint64_t mask = tier_touched(job->offset, job->length);
	tier_object_present(tier, object, object->present & ~mask);
	tier_log_urgent(tier, object);
	tier_serve(tier->peer, job);
}

static void read_near(struct tier_object *object, struct job *job)
{
	struct call *call = NULL;
	int error = call_begin(job->peer, &call);
	if (!error) {
		call_as(call, job);
		call->context = job;
		call->context2 = object;
		error = call_borrow(call, job, 0, job->length);
	}
	if (error) {
		if (call)
			call_end(call);
		tier_serve_retry(job);
		return;
	}
	object->reads++;
	peer_count(job->peer, TIER_C_HITS, 1);
	call_submit(call, TIER_NEAR, near_done);
}

/* With all that is around it, to the chunks' ends. */
static void read_fill(struct tier *tier, struct tier_object *object, struct job *job, uint64_t mask)
{
	struct tier_fill *fill = tier_fill_find(object, mask);
	if (fill || tier_fill_begin(tier, object, mask, false, &fill) == 0)
		TAILQ_INSERT_TAIL(&fill->joined, job, link);
	else
		job_forward(job, TIER_FAR); /* it waits for nobody's pages */
}

void tier_read(struct tier *tier, struct tier_object *object, struct job *job)
{
	uint64_t mask = tier_touched(job->offset, job->length);
	object->used = true;
	if (unlikely(!object->touched))
		tier_pull_touched(tier, object);
	if ((mask & ~object->present) == 0) {
		read_near(object, job);
		return;
	}
	peer_count(tier->peer, TIER_C_MISSES, 1);
	bool keeps = tier->state == TIER_STATE_ON;
	if (keeps)
		tier_pull_miss(tier, object, job->length <= TIER_SMALL ? mask : 0);
	if (job->length > TIER_SMALL && keeps) {
		read_fill(tier, object, job, mask);
	} else {
		job->flags |= XSEG_F_URGENT;
		job_forward(job, TIER_FAR);
	}
}
