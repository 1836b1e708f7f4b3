/* SPDX-License-Identifier: Apache-2.0 */
/* Controls: which of them the composer has a part in, and which are the mapper's alone. */
#include "peers/volume/volume_control.h"

#include <base/crash.h>
#include <errno.h>
#include <stdlib.h>

#include "peers/volume/volume_flush.h"
#include "peers/volume/volume_quiesce.h"

enum part {
	PART_NONE,	/* not for those above a composer */
	PART_PASSES,	/* handed on */
	PART_PUBLISHES, /* handed on when the mapper knows all that there is to know */
	PART_CHANGES,	/* volume_change() */
	PART_SNAPSHOT,	/* the same, when somebody can write to it */
	PART_ROLLBACK,
	PART_RESIZE,
	PART_FLATTEN,
	PART_BREAK,
	PART_GIVE,
	PART_KEEP,
};

struct control {
	enum part part;
	enum volume_changes what;
	bool other; /* ask.other says which volume; else ask.name */
};

static const struct control controls[MAP_CONTROLS] = {
	[MAP_SNAP] = {PART_SNAPSHOT, VOLUME_CHANGES_EPOCH, true},
	[MAP_CLONE] = {PART_SNAPSHOT, VOLUME_CHANGES_EPOCH, true},
	[MAP_ROLLBACK] = {PART_ROLLBACK, VOLUME_CHANGES_MAP, false},
	[MAP_RESIZE] = {PART_RESIZE, VOLUME_CHANGES_MAP, false},
	[MAP_RENAME] = {PART_CHANGES, VOLUME_CHANGES_WORDS, true},
	[MAP_FLAGS] = {PART_CHANGES, VOLUME_CHANGES_WORDS, false},
	[MAP_LIMITS] = {PART_CHANGES, VOLUME_CHANGES_WORDS, false},
	[MAP_FLATTEN] = {PART_FLATTEN, VOLUME_CHANGES_MAP, false},
	[MAP_BREAK] = {PART_BREAK, VOLUME_CHANGES_WORDS, false},
	[MAP_DIFF] = {PART_PUBLISHES, VOLUME_CHANGES_WORDS, false},
	[MAP_DETAIL] = {PART_PUBLISHES, VOLUME_CHANGES_WORDS, false},
	[MAP_GIVE] = {PART_GIVE, VOLUME_CHANGES_WORDS, false},
	[MAP_KEEP] = {PART_KEEP, VOLUME_CHANGES_WORDS, false},
	[MAP_HOME] = {PART_PASSES, VOLUME_CHANGES_WORDS, false},
	[MAP_GIVEN] = {PART_PASSES, VOLUME_CHANGES_WORDS, false},
	[MAP_SWEEP] = {PART_PASSES, VOLUME_CHANGES_WORDS, false},
	[MAP_SWEEP_STATE] = {PART_PASSES, VOLUME_CHANGES_WORDS, false},
};

/* --- handed on ---------------------------------------------------------------------------- */

struct control_publish {
	struct volume_flush flush; /* first */
	struct volume_task *task;
};

static void pass_on(struct volume_task *task)
{
	struct job *job = task->job;
	job->key.volume = task->id;
	job_forward(volume_task_leave(task), VOLUME_MAP);
}

static void control_published(struct volume_flush *flush, int error)
{
	struct control_publish *publish = (struct control_publish *)flush;
	struct volume_task *task = publish->task;
	free(publish);
	if (error != 0 && error != -ESTALE)
		volume_task_end(task, error, 0, 0);
	else
		pass_on(task);
}

static void publish_first(struct volume_task *task)
{
	struct peer *peer = task->step.peer;
	if (!volume_intent_any(peer, task->id)) {
		pass_on(task);
		return;
	}
	struct control_publish *publish = calloc(1, sizeof(*publish));
	if (!publish) {
		volume_task_end(task, -ENOMEM, 0, 0);
		return;
	}
	publish->task = task;
	volume_flush_begin(&publish->flush, peer, task->id, control_published);
}

/* --- those with a part for us ---------------------------------------------------------------- */

static struct map_ask ask_of(const struct volume_task *task)
{
	struct map_ask ask;
	job_get_bytes(task->job, 0, &ask, sizeof(ask));
	return ask;
}

/* Nobody else may see it change under his eyes. */
static void rollback(struct volume_task *task, struct volume *volume)
{
	struct peer *peer = task->step.peer;
	if (volume_open_count(peer, volume, volume_open_client(peer, task->job)) > 0)
		volume_task_end(task, -EBUSY, 0, 0);
	else
		volume_change(task, volume, VOLUME_CHANGES_MAP);
}

static void resize(struct volume_task *task, struct volume *volume)
{
	uint64_t size = ask_of(task).size;
	if (size < atomic_load_explicit(&volume->size, memory_order_relaxed))
		volume_flatten_shrink(task, volume);
	else
		volume_change(task, volume, VOLUME_CHANGES_MAP);
}

static void broken(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	int rc = call->result;
	uint32_t length = call->answer_length;
	uint64_t value = call->value;
	call_end(call);
	if (rc == 0)
		volume_lease_lost(task->step.peer, task->id);
	struct job *job = volume_task_leave(task);
	if (rc != 0)
		job_fail_value(job, rc, value);
	else
		job_complete_value(job, length, value);
}

static void break_ask(struct volume_step *step)
{
	struct volume_task *task = (struct volume_task *)step;
	struct call *call = volume_step_as(step, break_ask, task->job);
	if (!call)
		return;
	call->key.volume = task->id;
	call_submit(call, VOLUME_MAP, broken);
}

static void control_found(struct volume_task *task, int error)
{
	struct volume *volume = error == 0 ? volume_table_lookup(task->step.peer, task->id) : NULL;
	const struct control *control = &controls[task->job->arg0];
	bool change = control->part != PART_PUBLISHES;
	if (error == 0)
		error = !volume ? -ENOENT : volume->configured ? -EPERM : 0;
	uint64_t what = task->job->arg0;
	bool asks = change && what != MAP_FLAGS && what != MAP_FLATTEN && what != MAP_BREAK &&
		    what != MAP_GIVE && what != MAP_KEEP;
	if (error == 0 && asks && task->job->data_size < sizeof(struct map_ask))
		error = -EINVAL;
	if (error != 0) {
		volume_task_end(task, error, 0, 0);
		return;
	}
	switch (control->part) {
	case PART_PUBLISHES: publish_first(task); break;
	case PART_SNAPSHOT:
		if (volume->read_only)
			pass_on(task);
		else
			volume_change(task, volume, control->what);
		break;
	case PART_ROLLBACK: rollback(task, volume); break;
	case PART_RESIZE: resize(task, volume); break;
	case PART_FLATTEN: volume_flatten(task, volume); break;
	case PART_BREAK: break_ask(&task->step); break;
	case PART_GIVE: volume_lease_give(task, volume); break;
	case PART_KEEP: volume_lease_keep(task, volume); break;
	case PART_CHANGES:
	case PART_PASSES:
	case PART_NONE:
	default: volume_change(task, volume, control->what); break;
	}
}

void volume_control(struct peer *peer, struct job *job)
{
	const struct control *control = job->arg0 < MAP_CONTROLS ? &controls[job->arg0] : NULL;
	/* what it is, and nothing is acquired: for people, cheaper than MAP_DETAIL */
	bool looks = job->arg0 == MAP_ACQUIRE && job->arg1 == MAP_READ_ONLY;
	if (job->arg0 == XSEG_CONTROL_REFENCE) {
		volume_refence(peer, job);
		return;
	}
	if (job->arg0 == XSEG_CONTROL_DIRTY && job->key.volume != 0) {
		job_forward(job, VOLUME_STORE);
		return;
	}
	if (!control || (control->part == PART_NONE && !looks) || !volume_has_map(peer)) {
		job_fail(job, -EOPNOTSUPP);
		return;
	}
	if (control->part == PART_PASSES || looks) {
		job_forward(job, VOLUME_MAP);
		return;
	}
	struct volume_task *task = volume_task_begin(peer, job);
	if (!task)
		return;
	task->id = job->key.volume;
	int rc = task->id != 0
			 ? 0
			 : volume_task_name(task, control->other ? offsetof(struct map_ask, other)
								 : offsetof(struct map_ask, name));
	if (rc != 0)
		volume_task_end(task, rc, 0, 0);
	else
		volume_task_find(task, control_found);
}
