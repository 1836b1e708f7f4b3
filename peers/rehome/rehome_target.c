/* SPDX-License-Identifier: Apache-2.0 */
/* From another host to here. */
#include "peers/rehome/rehome.h"

static bool ask_of(const struct job *job, struct rehome_ask *ask)
{
	if (job->data_size < REHOME_ASK_BYTES)
		return false;
	job_get_bytes(job, 0, ask, sizeof(*ask));
	return true;
}

static void answer(const struct rehome *rehome, struct job *job, uint64_t term)
{
	struct rehome_offer offer = {
		.version = REHOME_VERSION, .owner = rehome->owner, .term = term};
	job_put_bytes(job, REHOME_ANSWER_AT, &offer, sizeof(offer));
	job_complete(job, REHOME_ASK_BYTES);
}

/* --- may it come? ----------------------------------------------------------------------------- */

static void loaded(struct call *call) { call_end(call); }

/* A hint that is refused, as soon as our composer knows the volume: so it does when that comes. */
static void load(struct rehome *rehome, uint64_t id)
{
	struct call *call = NULL;
	if (call_begin(rehome->peer, &call) != 0)
		return;
	call->op = XSEG_OP_PREFETCH;
	call->key.volume = id;
	call->offset = UINT64_MAX;
	call_submit(call, REHOME_HERE, loaded);
}

/* Its record is the same one here: both hosts have it in one store. */
static void looked(struct call *call)
{
	struct job *job = call->context;
	struct map_home_info home;
	struct rehome_ask ask;
	int rc = rehome_volume_record(call, &home);
	must(ask_of(job, &ask));
	if (rc == 0 && (home.owner != ask.owner || home.term != ask.term))
		rc = -EXDEV;
	if (rc != 0) {
		job_fail(job, rc == -ENOENT || rc == -EOPNOTSUPP ? -EXDEV : rc);
		return;
	}
	answer(rehome_of(job->peer), job, 0);
}

void rehome_target_offer(struct rehome *rehome, struct job *job)
{
	struct rehome_ask ask;
	int rc = !ask_of(job, &ask)		 ? -EINVAL
		 : ask.version != REHOME_VERSION ? -EPROTO
		 : ask.owner == rehome->owner	 ? -ELOOP
						 : 0;
	if (rc == 0 && job->key.volume == 0) {
		answer(rehome, job, 0); /* we are here */
		return;
	}
	if (rc == 0) {
		load(rehome, job->key.volume);
		rc = rehome_volume_read_for(rehome, job, looked);
	}
	if (rc != 0)
		job_fail(job, rc);
}

/* --- it comes ----------------------------------------------------------------------------- */

void rehome_target_decided(struct rehome *rehome, struct rehome_volume *volume, int error)
{
	struct job *job = volume->move.job;
	volume->move.job = NULL;
	if (error == 0)
		peer_count(rehome->peer, REHOME_C_TAKEN, 1);
	if (job && error)
		job_fail(job, error);
	else if (job)
		answer(rehome, job, volume->term);
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
	volume->move = (struct rehome_move){.job = job,
		.owner = ask.owner,
		.given = ask.next == rehome->owner ? ask.given : 0,
		.early_ns = ask.hold ? peer_now_ns(rehome->peer) + REHOME_EARLY_NS : 0};
	rehome_volume_event(rehome, volume, REHOME_EV_OFFERED, 0);
}

/* --- who is attached elsewhere ---------------------------------------------------------------- */

void rehome_target_keep(struct rehome *rehome, struct job *job)
{
	struct rehome_volume *volume = rehome_volume_get(rehome, job->key.volume);
	struct rehome_ask ask;
	int rc = !volume || !ask_of(job, &ask) ? -EINVAL : 0;
	if (rc == 0 && volume->state == REHOME_AWAY &&
		rehome->edges[volume->edge].owner == ask.owner) {
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
	volume->keeping = false; /* so long, and not as long as we would have it kept */
	job->arg0 = MAP_KEEP;
	job->arg1 = ask.pause_ns;
	job_forward(job, REHOME_HERE);
}
