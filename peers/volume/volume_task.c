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
	volume_tidy_begin(peer);
	return task;
}

void volume_task_end(struct volume_task *task, int error, uint32_t length, uint64_t value)
{
	if (error != 0)
		job_fail(task->job, error);
	else
		job_complete_value(task->job, length, value);
	free(task->keys);
	free(task->infos);
	free(task);
}

int volume_task_name(struct volume_task *task)
{
	const struct job *job = task->job;
	char text[VOLUME_NAME_LENGTH_MAX + 2] = "";
	if (job->data_size < sizeof(struct xseg_volume_info))
		return -EINVAL;
	job_get_bytes(job, XSEG_NAME_AT, text, VOLUME_NAME_LENGTH_MAX + 1);
	if (!volume_name_check(text))
		return -EINVAL;
	strcpy(task->name, text);
	return 0;
}

static void find_by_id(struct volume_task *task)
{
	if (volume_find(task->step.peer, task->id))
		task->found(task, 0);
	else
		volume_load_task(task);
}

int volume_task_take_record(struct volume_task *task, struct call *call)
{
	uint8_t bytes[XSEG_RECORD_MAX];
	int rc = volume_call_answer(call, bytes);
	task->version = call->value;
	call_end(call);
	return rc < 0 ? rc : volume_record_decode(bytes, (size_t)rc, &task->record);
}

int volume_task_take_name(
	struct volume_task *task, struct call *call, struct volume_name_record *record)
{
	uint8_t bytes[XSEG_RECORD_MAX];
	int rc = volume_call_answer(call, bytes);
	task->name_version = call->value;
	call_end(call);
	return rc < 0 ? rc : volume_name_record_decode(bytes, (size_t)rc, record);
}

/* A record with another name under the same hash is somebody else's. */
static void name_answered(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	struct volume_name_record record;
	int rc = volume_task_take_name(task, call, &record);
	if (rc == 0 && strcmp(record.name, task->name) != 0)
		rc = -ENOENT;
	if (rc == -EOPNOTSUPP) /* a store without records has no such volume either */
		rc = -ENOENT;
	if (rc != 0) {
		task->found(task, rc);
		return;
	}
	task->id = record.id;
	find_by_id(task);
}

static void find_by_name(struct volume_step *step)
{
	struct volume_task *task = (struct volume_task *)step;
	struct call *call =
		volume_step_cas(step, find_by_name, XSEG_CAS_GET, volume_name_key(task->name));
	if (call)
		call_submit(call, VOLUME_STORE, name_answered);
}

void volume_task_find(struct volume_task *task, void (*found)(struct volume_task *task, int error))
{
	task->found = found;
	if (task->id == 0)
		task->id = volume_table_fixed_id(task->step.peer->shared, task->name);
	if (task->id != 0)
		find_by_id(task);
	else
		find_by_name(&task->step);
}

void volume_task_start(
	struct peer *peer, struct job *job, void (*found)(struct volume_task *task, int error))
{
	struct volume_task *task = volume_task_begin(peer, job);
	if (!task)
		return;
	task->id = job->key.volume;
	int rc = task->id == 0 ? volume_task_name(task) : 0;
	if (rc != 0)
		volume_task_end(task, rc, 0, 0);
	else
		volume_task_find(task, found);
}

void volume_task_answer(struct volume_task *task)
{
	struct peer *peer = task->step.peer;
	struct volume *volume = volume_find(peer, task->id);
	struct xseg_volume_info info;
	if (!volume || task->job->data_size < sizeof(info)) {
		volume_task_end(task, volume ? -EINVAL : -ENOENT, 0, 0);
		return;
	}
	volume_describe(peer, volume, &info);
	job_put_bytes(task->job, 0, &info, sizeof(info));
	volume_task_end(task, 0, sizeof(info), info.id);
}
