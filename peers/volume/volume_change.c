/* SPDX-License-Identifier: Apache-2.0 */
/* A change of a volume, from the quiesce to the end of it. */
#include <base/container.h>
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume_control.h"
#include "peers/volume/volume_flush.h"
#include "peers/volume/volume_quiesce.h"

struct change {
	struct volume_flush flush; /* first: it begins with a volume_step */
	struct volume_quiesce quiesce;
	struct volume_task *task;
	struct volume *volume;
	enum volume_changes what;
	struct volume_cut cut;
	/* what the mapper answered; its data lie in the job's pages already */
	int result;
	uint32_t length;
	uint64_t value;
};

static struct change *change_of(struct volume_step *step) { return (struct change *)step; }
static struct volume_step *step_of(struct change *change) { return &change->flush.publish.step; }
static struct peer *peer_of(const struct change *change) { return change->task->step.peer; }

static void change_end(struct change *change)
{
	struct volume_task *task = change->task;
	struct job *job = volume_task_leave(task);
	if (change->what != VOLUME_CHANGES_WORDS)
		volume_quiesce_release(&change->quiesce);
	if (change->result != 0)
		job_fail_value(job, change->result, change->value);
	else
		job_complete_value(job, change->length, change->value);
	free(change);
}

static void change_fail(struct change *change, int error)
{
	change->result = error;
	change->value = 0;
	change_end(change);
}

/* --- after it ------------------------------------------------------------------------------ */

/* Whatever became of it: it is as the mapper says now. Who cannot be told would write to what may
   be shared by now. */
static void look_end(struct change *change, int error, const struct map_head_info *head)
{
	struct peer *peer = peer_of(change);
	struct volume *volume = change->volume;
	bool all = change->what != VOLUME_CHANGES_WORDS;
	if (error == 0)
		error = volume_table_head_set(peer, volume, head, all);
	if (change->what == VOLUME_CHANGES_REMOVES) {
		volume_table_remove_stop(
			peer, volume->id, error == 0 ? head->state : volume->head.state);
	} else if (error != 0 && all) {
		log_error("volume", "%s: what became of volume '%s' cannot be seen: %s", peer->name,
			volume->head.name, strerror(-error));
		volume_lease_lost(peer, volume->id);
	}
	if (change->what == VOLUME_CHANGES_MAP || change->what == VOLUME_CHANGES_SIZE)
		volume_map_forget(volume);
	crash_point("volume.change.seen");
	change_end(change);
}

static void looked(struct call *call)
{
	struct change *change = change_of(call->context);
	struct map_head_info head;
	int rc = volume_load_answer(call, &head);
	call_end(call);
	look_end(change, rc, &head);
}

static void look_again(struct volume_step *step)
{
	struct change *change = change_of(step);
	struct call *call =
		volume_load_call(step, look_again, change->volume->id, NULL, MAP_READ_ONLY);
	if (call)
		call_submit(call, VOLUME_MAP, looked);
}

static void removed(struct change *change)
{
	struct peer *peer = peer_of(change);
	uint64_t id = change->volume->id;
	volume_intent_forget(peer, id);
	struct job *job = volume_task_leave(change->task);
	volume_quiesce_release(&change->quiesce);
	volume_table_remove_end(peer, id);
	crash_point("volume.remove.gone");
	free(change);
	job_complete(job, 0);
}

/* --- the change ------------------------------------------------------------------------------- */

static void answered(struct call *call)
{
	struct change *change = change_of(call->context);
	change->result = call->result;
	change->length = call->answer_length;
	change->value = call->value;
	call_end(call);
	crash_point("volume.change.made");
	if (change->what == VOLUME_CHANGES_REMOVES && change->result == 0)
		removed(change);
	else
		look_again(step_of(change));
}

static void ask(struct volume_step *step)
{
	struct change *change = change_of(step);
	struct call *call = volume_step_as(step, ask, change->task->job);
	if (!call)
		return;
	call->key.volume = change->volume->id;
	call_submit(call, VOLUME_MAP, answered);
}

/* --- before it ------------------------------------------------------------------------------- */

/* What was recorded about one that is removed, or that has been taken away, is of no use. */
static void flushed(struct volume_flush *flush, int error)
{
	struct change *change = (struct change *)flush;
	bool removes = change->what == VOLUME_CHANGES_REMOVES;
	crash_point("volume.change.flushed");
	if (removes && (error == -ESTALE || error == -ENOENT))
		error = 0;
	if (error != 0 && removes)
		volume_table_remove_stop(
			peer_of(change), change->volume->id, change->volume->head.state);
	if (error != 0)
		change_fail(change, error == -ESTALE ? -EIO : error);
	else
		ask(step_of(change));
}

static int may_remove(struct change *change)
{
	struct peer *peer = peer_of(change);
	struct volume_client client = volume_open_client(peer, change->task->job);
	if (volume_open_count(peer, change->volume, client) > 0)
		return -EBUSY;
	return volume_table_remove_begin(peer, change->volume);
}

static void was_cut(struct volume_cut *cut, int error)
{
	struct change *change = container_of(cut, struct change, cut);
	struct peer *peer = peer_of(change);
	if (error != 0)
		change_fail(change, error);
	else
		volume_flush_begin(&change->flush, peer, change->volume->id, flushed);
}

static void cut_first(struct change *change)
{
	struct map_ask ask;
	job_get_bytes(change->task->job, 0, &ask, sizeof(ask));
	change->cut = (struct volume_cut){.step.peer = peer_of(change),
		.volume = change->volume,
		.size = ask.size,
		.done = was_cut};
	volume_flatten_cut(&change->cut);
}

static void quiesced(struct volume_quiesce *quiesce, int error)
{
	struct change *change = container_of(quiesce, struct change, quiesce);
	struct peer *peer = quiesce->peer;
	struct volume *volume = quiesce->volume;
	bool removes = change->what == VOLUME_CHANGES_REMOVES;
	if (error == -EBUSY) { /* somebody else is at it: when he has ended */
		struct job *job = volume_task_leave(change->task);
		free(change);
		job->key.volume = volume->id;
		if (!volume_quiesce_wait(peer, volume, job))
			peer->ops->on[job->op](peer, job);
		return;
	}
	if (error != 0) {
		volume_task_end(change->task, error, 0, 0);
		free(change);
		return;
	}
	if (removes)
		error = may_remove(change);
	else if (volume_is_lost(volume))
		error = -EIO;
	if (error != 0)
		change_fail(change, error);
	else if (change->what == VOLUME_CHANGES_SIZE)
		cut_first(change);
	else
		volume_flush_begin(&change->flush, peer, volume->id, flushed);
}

void volume_change(struct volume_task *task, struct volume *volume, enum volume_changes what)
{
	struct peer *peer = task->step.peer;
	struct change *change = calloc(1, sizeof(*change));
	if (!change) {
		volume_task_end(task, -ENOMEM, 0, 0);
		return;
	}
	step_of(change)->peer = peer;
	change->task = task;
	change->volume = volume;
	change->what = what;
	if (what == VOLUME_CHANGES_WORDS) {
		ask(step_of(change));
		return;
	}
	change->quiesce = (struct volume_quiesce){.peer = peer,
		.volume = volume,
		.quiesced = quiesced,
		.job = task->job,
		.reads = what != VOLUME_CHANGES_EPOCH};
	volume_quiesce_begin(&change->quiesce);
}
