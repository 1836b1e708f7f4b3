/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening, closing, describing, creating, changing and removing volumes. What they are stands with
 * the mapper; who has them open is known here.
 */
#include <base/crash.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume_control.h"
#include "peers/volume/volume_intent.h"
#include "peers/volume/volume_quiesce.h"

/* --- open, close ------------------------------------------------------------------------ */

static void open_leased(struct volume_task *task, int error)
{
	struct peer *peer = task->step.peer;
	struct job *job = task->job;
	struct volume *volume = error == 0 ? volume_table_lookup(peer, task->id) : NULL;
	if (error == 0 && !volume)
		error = -ENOENT;
	if (error == 0 && volume_is_over(volume, job)) {
		error = -ESTALE;
		volume_lease_unwant(peer, volume);
	}
	if (error == 0)
		error = volume_open_add(peer, volume, volume_open_client(peer, job),
			!(job->flags & XSEG_F_READ_ONLY), job->arg0);
	crash_point("volume.open.counted");
	if (error != 0)
		volume_task_end(task, error, 0, 0);
	else
		volume_task_answer(task);
}

enum open { OPEN_AS_IT_IS, OPEN_LOOKS, OPEN_ACQUIRES, OPEN_WAITS };

/* One that nobody has open here may have changed elsewhere since we looked. */
static enum open look(struct peer *peer, struct volume *volume, bool writes, int *error)
{
	enum open open = OPEN_AS_IT_IS;
	pthread_mutex_lock(&volume_shared(peer)->lock);
	*error = 0;
	if (volume_open_is_leaving(volume))
		*error = -EBUSY;
	else if (writes && volume->read_only)
		*error = -EROFS;
	else if (volume->quiesce)
		open = OPEN_WAITS;
	else if (volume->configured || volume->acquired)
		open = writes && volume_is_lost(volume) &&
				       volume_open_count_locked(peer, volume, VOLUME_NO_CLIENT) == 0
			       ? OPEN_ACQUIRES
			       : OPEN_AS_IT_IS;
	else if (writes)
		open = OPEN_ACQUIRES;
	else if (volume_open_count_locked(peer, volume, VOLUME_NO_CLIENT) == 0)
		open = OPEN_LOOKS;
	pthread_mutex_unlock(&volume_shared(peer)->lock);
	return open;
}

static void open_wait(struct volume_task *task, struct volume *volume)
{
	struct peer *peer = task->step.peer;
	struct job *job = volume_task_leave(task);
	job->key.volume = volume->id;
	if (!volume_quiesce_wait(peer, volume, job))
		peer->ops->on[job->op](peer, job);
}

static void open_found(struct volume_task *task, int error)
{
	struct peer *peer = task->step.peer;
	bool writes = !(task->job->flags & XSEG_F_READ_ONLY);
	struct volume *volume = error == 0 ? volume_table_lookup(peer, task->id) : NULL;
	if (error == 0 && !volume)
		error = -ENOENT;
	enum open open = error == 0 ? look(peer, volume, writes, &error) : OPEN_AS_IT_IS;
	if (error != 0) {
		volume_task_end(task, error, 0, 0);
		return;
	}
	task->found = open_leased;
	if (open == OPEN_WAITS)
		open_wait(task, volume);
	else if (open == OPEN_AS_IT_IS)
		open_leased(task, 0);
	else
		volume_lease_want(task, open == OPEN_LOOKS);
}

void volume_admin_open(struct peer *peer, struct job *job)
{
	volume_task_start(peer, job, open_found);
}

/* A volume that nobody has used since this process began is not loaded, and not open. */
void volume_admin_close(struct peer *peer, struct job *job)
{
	struct volume *volume = volume_table_lookup(peer, job->key.volume);
	struct volume_client client = volume_open_client(peer, job);
	bool last = false;
	if (job->key.volume == 0)
		volume_front_reopened(peer, client);
	else if (volume)
		last = volume_open_remove(peer, volume, client);
	job_complete(job, 0);
	if (last)
		volume_lease_release(peer, volume);
}

/* --- info ---------------------------------------------------------------------------------- */

/* Who has it open, and what it is just now, is known better here. */
void volume_admin_describe(struct volume_task *task, struct xseg_volume_info info)
{
	struct peer *peer = task->step.peer;
	struct volume *volume = volume_table_lookup(peer, info.id);
	struct xseg_volume_info leased;
	if (volume) {
		volume_open_describe(peer, volume, &leased);
		info.opens = leased.opens;
		if (leased.state == XSEG_VOLUME_REMOVING)
			info.state = leased.state;
	}
	job_put_bytes(task->job, 0, &info, sizeof(info));
	volume_task_end(task, 0, sizeof(info), info.id);
}

static void info_answered(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	struct xseg_volume_info info;
	int rc = call->result;
	uint32_t length = call->answer_length;
	call_end(call);
	if (rc == 0 && length < sizeof(info))
		rc = -EPROTO;
	if (rc != 0) {
		volume_task_end(task, rc, 0, 0);
		return;
	}
	job_get_bytes(task->job, 0, &info, sizeof(info));
	volume_admin_describe(task, info);
}

static void info_ask(struct volume_step *step)
{
	struct volume_task *task = (struct volume_task *)step;
	struct call *call = volume_step_as(step, info_ask, task->job);
	if (!call)
		return;
	call->key.volume = task->id;
	call_submit(call, VOLUME_MAP, info_answered);
}

void volume_admin_info(struct peer *peer, struct job *job)
{
	struct volume_task *task = volume_task_begin(peer, job);
	if (!task)
		return;
	task->id = job->key.volume;
	int rc = task->id == 0 ? volume_task_name(task, XSEG_NAME_AT) : 0;
	if (rc == 0 && job->data_size < sizeof(struct xseg_volume_info))
		rc = -EINVAL;
	if (rc == 0 && task->id == 0)
		task->id = volume_table_configured_id(peer->shared, task->name);
	if (rc == 0 && task->id == 0)
		task->id = volume_keep_id(peer, task->name);
	struct volume *volume = rc == 0 ? volume_table_lookup(peer, task->id) : NULL;
	if (rc == 0 && !(volume && volume->configured) && !volume_has_map(peer))
		rc = -ENOENT;
	if (rc != 0)
		volume_task_end(task, rc, 0, 0);
	else if (volume && volume->configured)
		volume_task_answer(task);
	else if (volume && volume_keep_has(peer, volume))
		volume_keep_info(task);
	else
		info_ask(&task->step);
}

/* --- create ---------------------------------------------------------------------------------- */

/* The mapper makes it, and draws its id into the question first. */
void volume_admin_create(struct peer *peer, struct job *job)
{
	struct xseg_volume_info info;
	job_get_bytes(job, 0, &info, sizeof(info));
	if (!memchr(info.name, 0, sizeof(info.name)) || info.size == 0)
		job_fail(job, -EINVAL);
	else if (volume_table_configured_id(peer->shared, info.name) != 0)
		job_fail(job, -EEXIST);
	else if (!volume_has_map(peer))
		job_fail(job, -EOPNOTSUPP);
	else
		job_forward(job, VOLUME_MAP);
}

/* --- update ---------------------------------------------------------------------------------- */

static void update_found(struct volume_task *task, int error)
{
	struct xseg_volume_info info;
	struct volume *volume = error == 0 ? volume_table_lookup(task->step.peer, task->id) : NULL;
	if (error == 0)
		error = !volume ? -ENOENT : volume->configured ? -EPERM : 0;
	if (error != 0) {
		volume_task_end(task, error, 0, 0);
		return;
	}
	job_get_bytes(task->job, 0, &info, sizeof(info));
	if (info.state != XSEG_VOLUME_READY && info.state != XSEG_VOLUME_IMPORTING)
		volume_task_end(task, -EINVAL, 0, 0);
	else
		volume_change(task, volume, VOLUME_CHANGES_WORDS);
}

void volume_admin_update(struct peer *peer, struct job *job)
{
	volume_task_start(peer, job, update_found);
}

/* --- remove ---------------------------------------------------------------------------------- */

static void remove_found(struct volume_task *task, int error)
{
	struct peer *peer = task->step.peer;
	struct volume *volume = error == 0 ? volume_table_lookup(peer, task->id) : NULL;
	/* nobody can have a damaged one open; and what is not there has been removed before, if who
	   asks was told its id: the mapper says so */
	bool gone = error == -ENOENT && task->job->key.volume != 0 && volume_has_map(peer);
	if (error == -EILSEQ || error == -EPROTO || gone) {
		job_forward(volume_task_leave(task), VOLUME_MAP);
		return;
	}
	if (error == 0)
		error = !volume ? -ENOENT : volume->configured ? -EPERM : 0;
	if (error == 0 && volume_open_count(peer, volume, volume_open_client(peer, task->job)) > 0)
		error = -EBUSY;
	if (error != 0)
		volume_task_end(task, error, 0, 0);
	else
		volume_change(task, volume, VOLUME_CHANGES_REMOVES);
}

void volume_admin_remove(struct peer *peer, struct job *job)
{
	if (!volume_front_await(peer, job))
		volume_task_start(peer, job, remove_found);
}
