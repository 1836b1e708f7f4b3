/* SPDX-License-Identifier: Apache-2.0 */
/* An administrative job: memory of its own, and how it finds the volume that it is about. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume.h"

struct volume_task *volume_task_begin(struct peer *peer, struct job *job)
{
	struct volume_task *task = calloc(1, sizeof(*task));
	if (!task) {
		job_fail(job, -ENOMEM);
		return NULL;
	}
	task->step.peer = peer;
	task->job = job;
	return task;
}

struct job *volume_task_leave(struct volume_task *task)
{
	struct job *job = task->job;
	free(task);
	return job;
}

void volume_task_end(struct volume_task *task, int error, uint32_t length, uint64_t value)
{
	struct job *job = volume_task_leave(task);
	if (error != 0)
		job_fail(job, error);
	else
		job_complete_value(job, length, value);
}

void volume_task_refuse(struct volume_task *task, const struct call *call)
{
	struct map_trouble trouble;
	struct job *job = volume_task_leave(task);
	uint64_t value = 0;
	if (call->value == 1 && call->data_size >= MAP_ANSWER_AT + sizeof(trouble) &&
		job->data_size >= MAP_ANSWER_AT + sizeof(trouble)) {
		call_get_bytes(call, MAP_ANSWER_AT, &trouble, sizeof(trouble));
		job_put_bytes(job, MAP_ANSWER_AT, &trouble, sizeof(trouble));
		value = 1;
	}
	job_fail_value(job, call->result, value);
}

int volume_task_name(struct volume_task *task, uint32_t at)
{
	const struct job *job = task->job;
	char text[VOLUME_NAME_LENGTH_MAX + 2] = "";
	if (job->data_size < at + VOLUME_NAME_LENGTH_MAX + 1)
		return -EINVAL;
	job_get_bytes(job, at, text, VOLUME_NAME_LENGTH_MAX + 1);
	if (!name_check_volume(text))
		return -EINVAL;
	strcpy(task->name, text);
	return 0;
}

static void find_by_id(struct volume_task *task)
{
	if (volume_table_lookup(task->step.peer, task->id))
		task->found(task, 0);
	else
		volume_load_task(task);
}

static void find_by_name(struct volume_step *step);

/* What the mapper says of it is what a load would bring. */
static void name_answered(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	struct peer *peer = task->step.peer;
	struct map_head_info head;
	int rc = volume_load_answer(call, &head);
	call_end(call);
	if (rc == 0)
		rc = volume_table_insert(peer->shared, &head, task->gone);
	if (rc == -EAGAIN) {
		find_by_name(&task->step);
		return;
	}
	if (rc == 0)
		task->id = head.id;
	task->found(task, rc);
}

static void find_by_name(struct volume_step *step)
{
	struct volume_task *task = (struct volume_task *)step;
	task->gone = atomic_load_explicit(&volume_shared(step->peer)->gone, memory_order_acquire);
	struct call *call = volume_load_call(step, find_by_name, 0, task->name, MAP_READ_ONLY);
	if (call)
		call_submit(call, VOLUME_MAP, name_answered);
}

void volume_task_find(struct volume_task *task, void (*found)(struct volume_task *task, int error))
{
	task->found = found;
	if (task->id == 0)
		task->id = volume_table_configured_id(task->step.peer->shared, task->name);
	if (task->id == 0)
		task->id = volume_keep_id(task->step.peer, task->name);
	if (task->id != 0)
		find_by_id(task);
	else if (volume_has_map(task->step.peer))
		find_by_name(&task->step);
	else
		found(task, -ENOENT);
}

void volume_task_start(
	struct peer *peer, struct job *job, void (*found)(struct volume_task *task, int error))
{
	struct volume_task *task = volume_task_begin(peer, job);
	if (!task)
		return;
	task->id = job->key.volume;
	int rc = task->id == 0 ? volume_task_name(task, XSEG_NAME_AT) : 0;
	if (rc != 0)
		volume_task_end(task, rc, 0, 0);
	else
		volume_task_find(task, found);
}

void volume_task_answer(struct volume_task *task)
{
	struct peer *peer = task->step.peer;
	struct volume *volume = volume_table_lookup(peer, task->id);
	struct xseg_volume_info info;
	if (!volume || task->job->data_size < sizeof(info)) {
		volume_task_end(task, volume ? -EINVAL : -ENOENT, 0, 0);
		return;
	}
	volume_open_describe(peer, volume, &info);
	job_put_bytes(task->job, 0, &info, sizeof(info));
	volume_task_end(task, 0, sizeof(info), info.id);
}
