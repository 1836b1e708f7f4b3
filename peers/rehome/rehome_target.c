/* SPDX-License-Identifier: Apache-2.0 */
/* From another host to here. */
#include <base/log.h>

#include "peers/rehome/rehome.h"

#define ANSWER_BYTES (REHOME_ANSWER_AT + (uint32_t)sizeof(struct rehome_offer))

static bool ask_of(const struct job *job, struct rehome_ask *ask)
{
	if (job->data_size < ANSWER_BYTES)
		return false;
	job_get_bytes(job, 0, ask, sizeof(*ask));
	return true;
}

static void answer(const struct rehome *rehome, struct job *job, uint64_t term)
{
	struct rehome_offer offer = {
		.version = REHOME_VERSION, .owner = rehome->owner, .term = term};
	job_put_bytes(job, REHOME_ANSWER_AT, &offer, sizeof(offer));
	job_complete(job, ANSWER_BYTES);
}

/* --- may it come? ----------------------------------------------------------------------------- */

/* Its record is the same one here: both hosts have it in one store. */
static void looked(struct call *call)
{
	struct job *job = call->context;
	struct map_home_info home = {0};
	struct rehome_ask ask;
	int rc = call->result;
	if (rc == 0 && call->answer_length < MAP_ANSWER_AT + sizeof(home))
		rc = -EPROTO;
	if (rc == 0)
		call_get_bytes(call, MAP_ANSWER_AT, &home, sizeof(home));
	call_end(call);
	must(ask_of(job, &ask));
	if (rc == 0 && (home.owner != ask.owner || home.term != ask.term))
		rc = -EXDEV;
	if (rc != 0)
		job_fail(job, rc == -ENOENT || rc == -EOPNOTSUPP ? -EXDEV : rc);
	else
		answer(rehome_of(job->peer), job, 0);
}

void rehome_target_offer(struct rehome *rehome, struct job *job)
{
	struct rehome_ask ask;
	struct call *call = NULL;
	int rc = !ask_of(job, &ask)		 ? -EINVAL
		 : ask.version != REHOME_VERSION ? -EPROTO
		 : ask.owner == rehome->owner	 ? -ELOOP
		 : job->key.volume == 0		 ? 0
						 : call_begin(rehome->peer, &call);
	if (rc == 0 && !call) {
		answer(rehome, job, 0); /* we are here */
		return;
	}
	if (rc == 0) {
		call->op = XSEG_OP_CONTROL;
		call->key.volume = job->key.volume;
		call->arg0 = MAP_HOME;
		call->context = job;
		rc = call_pages(call, MAP_ANSWER_AT + sizeof(struct map_home_info));
	}
	if (rc == 0) {
		call_submit(call, REHOME_HERE, looked);
		return;
	}
	if (call)
		call_end(call);
	job_fail(job, rc);
}

/* --- it comes ----------------------------------------------------------------------------- */

static void release(struct rehome *rehome, struct rehome_volume *volume, int error, uint64_t term)
{
	struct job *job = volume->move.job;
	volume->move.job = NULL;
	if (job && error)
		job_fail(job, error);
	else if (job)
		answer(rehome, job, term);
}

static void ended(struct call *call) { call_end(call); }

static bool tell(struct rehome *rehome, struct rehome_volume *volume, enum xseg_op op,
	uint64_t what, uint64_t keep_ns)
{
	struct call *call = rehome_volume_call(rehome, volume, op, what, 0);
	if (!call)
		return false;
	call->arg1 = keep_ns;
	call_submit(call, REHOME_HERE, ended);
	return true;
}

bool rehome_target_hold(struct rehome *rehome, struct rehome_volume *volume)
{
	return tell(rehome, volume, XSEG_OP_CONTROL, MAP_KEEP, REHOME_KEEP_NS);
}

static void decided(struct rehome *rehome, struct rehome_volume *volume, int rc)
{
	if (rc == 0 && !rehome_target_hold(rehome, volume))
		rc = -EAGAIN;
	if (rc == 0)
		peer_count(rehome->peer, REHOME_C_TAKEN, 1);
	/* no room now: the composer closes it when we die */
	if (volume->opened && tell(rehome, volume, XSEG_OP_CLOSE, 0, 0))
		volume->opened = false;
	release(rehome, volume, rc, volume->term);
	rehome_volume_event(rehome, volume, rc ? REHOME_EV_FAILED : REHOME_EV_OURS, rc);
}

static void read_record(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct rehome_volume *volume = rehome_volume_of(call);
	struct map_home_info home = {0};
	int rc = call->result;
	if (rc == 0)
		call_get_bytes(call, MAP_ANSWER_AT, &home, sizeof(home));
	call_end(call);
	if (!volume)
		return;
	if (rc == 0 && !rehome_table_is_handed(&home, rehome->owner, volume->term))
		rc = -ESTALE;
	if (rc == 0)
		rehome_volume_judge(rehome, volume, &home);
	decided(rehome, volume, rc);
}

static void opened(struct call *call)
{
	struct rehome *rehome = rehome_of(call->peer);
	struct rehome_volume *volume = rehome_volume_of(call);
	int rc = call->result;
	call_end(call);
	if (!volume)
		return;
	volume->opened = rc == 0;
	if (rc != 0 || !rehome_volume_read(rehome, volume, read_record))
		decided(rehome, volume, rc ? rc : -EAGAIN);
}

void rehome_target_open(struct rehome *rehome, struct rehome_volume *volume)
{
	struct call *call = rehome_volume_call(
		rehome, volume, XSEG_OP_OPEN, 0, sizeof(struct xseg_volume_info));
	if (call)
		call_submit(call, REHOME_HERE, opened);
	else
		rehome_volume_again(rehome, volume, REHOME_DO_OPEN);
}

/* Said again, it is here already. */
void rehome_target_take(struct rehome *rehome, struct job *job)
{
	struct rehome_volume *volume = rehome_volume_get(rehome, job->key.volume);
	struct rehome_ask ask;
	int rc = !volume || !ask_of(job, &ask)	 ? -EINVAL
		 : ask.version != REHOME_VERSION ? -EPROTO
						 : 0;
	if (rc == 0 && volume->state == REHOME_HOME && volume->term == ask.term + 1) {
		answer(rehome, job, volume->term);
		return;
	}
	bool is_coming = rc == 0 && volume->state == REHOME_TAKING && !volume->move.job &&
			 volume->term == ask.term;
	if (is_coming) { /* the record has said so before */
		volume->move.job = job;
		return;
	}
	if (rc == 0 && !rehome_table_find(volume->state, REHOME_EV_OFFERED))
		rc = -EBUSY;
	if (rc != 0) {
		job_fail(job, rc);
		return;
	}
	volume->term = ask.term;
	volume->since = ask.since;
	volume->move = (struct rehome_move){.job = job};
	rehome_volume_event(rehome, volume, REHOME_EV_OFFERED, 0);
}

/* --- who is attached elsewhere ---------------------------------------------------------------- */

void rehome_target_keep(struct rehome *rehome, struct job *job)
{
	struct rehome_volume *volume = rehome_volume_get(rehome, job->key.volume);
	struct rehome_ask ask;
	int rc = !volume || !ask_of(job, &ask) ? -EINVAL : 0;
	if (rc == 0 && volume->state == REHOME_AWAY && rehome->them[volume->edge] == ask.owner) {
		/* each of us thinks that another has it */
		rehome_volume_event(rehome, volume, REHOME_EV_CANCEL, 0);
	} else if (rc == 0 && volume->state == REHOME_AWAY) {
		job_forward(job, volume->edge); /* it has moved on */
		return;
	}
	if (rc == 0 && volume->state != REHOME_HOME) {
		rehome_volume_event(rehome, volume, REHOME_EV_ASKED, 0);
		rc = -EAGAIN; /* it is said again */
	}
	if (rc != 0) {
		job_fail(job, rc);
		return;
	}
	job->arg0 = MAP_KEEP;
	job->arg1 = ask.pause_ns;
	job_forward(job, REHOME_HERE);
}
