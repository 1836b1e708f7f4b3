/* SPDX-License-Identifier: Apache-2.0 */
/* Brings what the mapper knows of a volume into the table, the first time that somebody asks. */
#include <base/crash.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume_quiesce.h"

#define HEAD_BYTES (MAP_ANSWER_AT + (uint32_t)sizeof(struct map_head_info))

/*
 * Each shard loads for itself: two that load one volume at once do the work twice, and neither
 * waits for the other's thread.
 */
struct volume_load {
	struct volume_step step; /* first */
	TAILQ_ENTRY(volume_load) link;
	uint64_t id;
	struct job_queue jobs;
	struct volume_task_queue tasks;
	uint64_t gone; /* removals before we asked */
};

/* --- what the mapper says ------------------------------------------------------------- */

struct call *volume_load_call(struct volume_step *step, void (*run)(struct volume_step *step),
	uint64_t id, const char *name, uint64_t flags)
{
	struct map_ask ask = {0};
	struct call *call = volume_step_call(
		step, run, XSEG_OP_CONTROL, (struct xseg_key){.volume = id}, HEAD_BYTES);
	if (!call)
		return NULL;
	if (name)
		snprintf(ask.name, sizeof(ask.name), "%s", name);
	call_put_bytes(call, 0, &ask, sizeof(ask));
	call->arg0 = MAP_ACQUIRE;
	call->arg1 = flags;
	return call;
}

int volume_load_answer(const struct call *call, struct map_head_info *head)
{
	if (call->result != 0)
		return call->result;
	if (call->answer_length < HEAD_BYTES)
		return -EPROTO;
	call_get_bytes(call, MAP_ANSWER_AT, head, sizeof(*head));
	return volume_table_head_check(head);
}

/* --- a load ----------------------------------------------------------------------------- */

static struct volume_load *load_of(struct volume_step *step) { return (struct volume_load *)step; }

/* Everybody who waits goes on; the job's handler finds the volume this time. */
static void load_end(struct volume_load *load, int error)
{
	struct peer *peer = load->step.peer;
	struct volume_shard *shard = peer->state;
	struct volume_task *task;
	struct job *job;
	TAILQ_REMOVE(&shard->loads, load, link);
	while ((task = TAILQ_FIRST(&load->tasks))) {
		TAILQ_REMOVE(&load->tasks, task, link);
		task->found(task, error);
	}
	while ((job = TAILQ_FIRST(&load->jobs))) {
		TAILQ_REMOVE(&load->jobs, job, link);
		volume_quiesce_aside(peer, job, false);
		if (error != 0)
			job_fail(job, error);
		else
			peer->ops->on[job->op](peer, job);
	}
	free(load);
}

static void load_ask(struct volume_step *step);

static void load_answered(struct call *call)
{
	struct volume_load *load = load_of(call->context);
	struct peer *peer = load->step.peer;
	struct map_head_info head;
	int rc = volume_load_answer(call, &head);
	call_end(call);
	crash_point("volume.load.answered");
	if (rc == 0 && head.id != load->id)
		rc = -EILSEQ;
	if (rc == 0)
		rc = volume_table_insert(peer->shared, &head, load->gone);
	if (rc == -EAGAIN) {
		load_ask(&load->step);
		return;
	}
	peer_count(peer, VOLUME_LOADS, rc == 0);
	load_end(load, rc);
}

static void load_ask(struct volume_step *step)
{
	struct volume_load *load = load_of(step);
	load->gone = atomic_load_explicit(&volume_shared(step->peer)->gone, memory_order_acquire);
	struct call *call = volume_load_call(step, load_ask, load->id, NULL, MAP_READ_ONLY);
	if (call)
		call_submit(call, VOLUME_MAP, load_answered);
}

static struct volume_load *load_find(const struct volume_shard *shard, uint64_t id)
{
	struct volume_load *load;
	TAILQ_FOREACH (load, &shard->loads, link)
		if (load->id == id)
			return load;
	return NULL;
}

static struct volume_load *load_new(struct peer *peer, uint64_t id)
{
	struct volume_shard *shard = peer->state;
	struct volume_load *load = calloc(1, sizeof(*load));
	if (!load)
		return NULL;
	load->step.peer = peer;
	load->id = id;
	TAILQ_INIT(&load->jobs);
	TAILQ_INIT(&load->tasks);
	TAILQ_INSERT_TAIL(&shard->loads, load, link);
	return load;
}

void volume_load_job(struct peer *peer, struct job *job)
{
	if (!volume_has_map(peer)) {
		job_fail(job, -ENOENT);
		return;
	}
	struct volume_load *load = load_find(peer->state, job->key.volume);
	bool begins = !load;
	if (begins)
		load = load_new(peer, job->key.volume);
	if (!load) {
		job_fail(job, -ENOMEM);
		return;
	}
	volume_quiesce_aside(peer, job, true);
	TAILQ_INSERT_TAIL(&load->jobs, job, link);
	if (begins)
		load_ask(&load->step);
}

void volume_load_task(struct volume_task *task)
{
	struct peer *peer = task->step.peer;
	if (!volume_has_map(peer)) {
		task->found(task, -ENOENT);
		return;
	}
	struct volume_load *load = load_find(peer->state, task->id);
	bool begins = !load;
	if (begins)
		load = load_new(peer, task->id);
	if (!load) {
		task->found(task, -ENOMEM);
		return;
	}
	TAILQ_INSERT_TAIL(&load->tasks, task, link);
	if (begins)
		load_ask(&load->step);
}
