/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FENCE says who has had a volume to write to. If another host may have, what the near store has
 * of it may be old: it is dropped, and the log says so, before anybody reads it.
 */
#include "peers/tier/tier.h"

/* Each change of owner takes the next term; `line`: nobody else had it since that one. */
static bool is_ours_all_along(const struct tier_volume *volume, uint64_t term, uint64_t line)
{
	if (volume->term == 0)
		return false;
	return term - volume->term <= 1 || (line != 0 && volume->term >= line);
}

/* The far store has said yes; the log has to say it, too. */
static void wait_for_log(struct tier *tier, struct tier_volume *volume, struct job *job)
{
	if (tier->state == TIER_STATE_OFF || volume->term_logged == job->arg1) {
		job_complete(job, 0);
		return;
	}
	tier_log_term(tier, volume);
	TAILQ_INSERT_TAIL(&volume->blocked, job, link);
}

static void fenced(struct call *call)
{
	struct job *job = call->context;
	struct tier *tier = tier_of(job->peer);
	struct tier_volume *volume = tier_object_volume(tier, job->key.volume);
	int error = call->result;
	uint64_t value = call->value;
	call_end(call);
	if (error || !volume) {
		job_fail_value(job, error ? error : -ENOMEM, value);
		return;
	}
	bool ours = is_ours_all_along(volume, job->arg1, job->offset);
	if (!ours)
		tier_object_drop(tier, volume);
	volume->term = job->arg1;
	volume->lost = false;
	job->progress = 1;
	if (ours)
		tier_pull_volume(tier, volume);
	else
		tier_pull_again(tier, volume);
	wait_for_log(tier, volume, job);
}

void tier_fence(struct tier *tier, struct job *job)
{
	struct tier_volume *volume = tier_object_volume(tier, job->key.volume);
	struct call *call;
	if (job->progress == 1 && volume) {
		wait_for_log(tier, volume, job);
	} else if (!volume || call_begin(tier->peer, &call)) {
		tier_serve_retry(job);
	} else {
		call_as(call, job);
		call->context = job;
		call_submit(call, TIER_FAR, fenced);
	}
}
