/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, closing, describing, creating and changing volumes. */
#include <base/crash.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "peers/volume/volume.h"

/* --- open, close, info -------------------------------------------------------------- */

static void open_found(struct volume_task *task, int error)
{
	struct peer *peer = task->step.peer;
	struct job *job = task->job;
	struct volume *volume = error == 0 ? volume_find(peer, task->id) : NULL;
	if (error == 0)
		error = volume ? volume_opened(peer, volume, volume_client_of(peer, job),
					 !(job->flags & XSEG_F_READ_ONLY), job->arg0)
			       : -ENOENT;
	if (error != 0)
		volume_task_end(task, error, 0, 0);
	else
		volume_task_answer(task);
}

void volume_admin_open(struct peer *peer, struct job *job)
{
	volume_task_start(peer, job, open_found);
}

/* A volume that nobody has used since this process began is not loaded, and not open. */
void volume_admin_close(struct peer *peer, struct job *job)
{
	struct volume *volume = volume_find(peer, job->key.volume);
	if (job->key.volume == 0)
		volume_front_told(peer, volume_client_of(peer, job));
	else if (volume)
		volume_closed(peer, volume, volume_client_of(peer, job));
	job_complete(job, 0);
}

static void info_found(struct volume_task *task, int error)
{
	if (error != 0)
		volume_task_end(task, error, 0, 0);
	else
		volume_task_answer(task);
}

void volume_admin_info(struct peer *peer, struct job *job)
{
	volume_task_start(peer, job, info_found);
}

/* --- create ---------------------------------------------------------------------------- */

/*
 * The volume record comes first; the name record is the commit point. Killed in between, a record
 * is left that no name leads to: nobody sees it, and the next process tidies it away. That one may
 * do so while we go on with it, so in the end the record is put once more: of the two, one sees a
 * version that it does not know.
 *
 * The composer may be killed and its successor be handed the same job: so what was drawn is written
 * into the job's data before anything is put, and the second time it is this very volume.
 */

static uint64_t wall_clock_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int draw_id(uint64_t *id)
{
	do {
		if (getrandom(id, sizeof(*id), 0) != sizeof(*id))
			return -EIO;
	} while (*id == 0);
	return 0;
}

static void create_answer(struct volume_task *task)
{
	const struct volume_record *record = &task->record;
	struct xseg_volume_info info = {
		.id = record->id,
		.size = record->size,
		.object_size = record->object_size,
		.state = record->state,
		.created_ns = record->created_ns,
		.flags = record->flags,
	};
	memcpy(info.name, record->name, sizeof(info.name));
	job_put_bytes(task->job, 0, &info, sizeof(info));
	volume_task_end(task, 0, sizeof(info), info.id);
}

static void create_undone(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	call_end(call);
	volume_task_end(task, -EEXIST, 0, 0);
}

/* Somebody else took the name while we were at it. */
static void create_undo(struct volume_step *step)
{
	struct volume_task *task = (struct volume_task *)step;
	struct call *call = volume_step_cas(
		step, create_undo, XSEG_CAS_DELETE, volume_record_key(task->record.id));
	if (!call)
		return;
	call->arg0 = task->version;
	call_submit(call, VOLUME_STORE, create_undone);
}

static void create_confirm(struct volume_step *step);

/* Whatever else went wrong: record and name are there and durable. */
static void create_confirmed(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	bool tidied = call->result == -ESTALE && call->value == 0;
	call_end(call);
	task->version = 0;
	if (tidied)
		create_confirm(&task->step);
	else
		create_answer(task);
}

static void create_confirm(struct volume_step *step)
{
	struct volume_task *task = (struct volume_task *)step;
	uint8_t bytes[VOLUME_RECORD_SIZE];
	struct call *call = volume_step_cas(
		step, create_confirm, XSEG_CAS_PUT, volume_record_key(task->record.id));
	if (!call)
		return;
	volume_record_encode(&task->record, bytes);
	volume_call_record(call, bytes, sizeof(bytes));
	call->arg0 = task->version;
	call_submit(call, VOLUME_STORE, create_confirmed);
}

static void create_named(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	int rc = call->result;
	call_end(call);
	crash_point("volume.create.named");
	if (rc == -EEXIST || rc == -ESTALE)
		create_undo(&task->step);
	else if (rc != 0)
		volume_task_end(task, rc, 0, 0);
	else
		create_confirm(&task->step);
}

static void create_name(struct volume_step *step)
{
	struct volume_task *task = (struct volume_task *)step;
	struct volume_name_record record = {.id = task->record.id};
	uint8_t bytes[VOLUME_NAME_RECORD_SIZE];
	struct call *call =
		volume_step_cas(step, create_name, XSEG_CAS_PUT, volume_name_key(task->name));
	if (!call)
		return;
	memcpy(record.name, task->name, sizeof(record.name));
	volume_name_record_encode(&record, bytes);
	volume_call_record(call, bytes, sizeof(bytes));
	call->arg0 = task->name_version;
	call_submit(call, VOLUME_STORE, create_named);
}

/* Is it this very volume, asked for once more? Only whose id was known before can be. */
static bool create_is_repeated(const struct volume_task *task, const struct volume_record *record)
{
	return task->id == record->id && task->record.size == record->size &&
	       task->record.object_size == record->object_size &&
	       record->state != XSEG_VOLUME_REMOVING &&
	       strcmp(task->record.name, record->name) == 0;
}

/* A record of our id that no name leads to: ours, if somebody was killed at it. */
static void create_met(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	struct volume_record record;
	uint8_t bytes[XSEG_RECORD_MAX];
	int rc = volume_call_answer(call, bytes);
	task->version = call->value;
	call_end(call);
	if (rc >= 0)
		rc = volume_record_decode(bytes, (size_t)rc, &record);
	if (rc != 0 || !create_is_repeated(task, &record)) {
		volume_task_end(task, -EEXIST, 0, 0);
		return;
	}
	task->record = record;
	create_name(&task->step);
}

static void create_meet(struct volume_step *step)
{
	struct volume_task *task = (struct volume_task *)step;
	struct call *call = volume_step_cas(
		step, create_meet, XSEG_CAS_GET, volume_record_key(task->record.id));
	if (call)
		call_submit(call, VOLUME_STORE, create_met);
}

static void create_recorded(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	int rc = call->result;
	task->version = call->value;
	call_end(call);
	crash_point("volume.create.recorded");
	if (rc == -EEXIST)
		create_meet(&task->step);
	else if (rc != 0)
		volume_task_end(task, rc, 0, 0);
	else
		create_name(&task->step);
}

static void create_record(struct volume_step *step)
{
	struct volume_task *task = (struct volume_task *)step;
	uint8_t bytes[VOLUME_RECORD_SIZE];
	task->record.id = task->id;
	struct call *call = volume_step_cas(
		step, create_record, XSEG_CAS_PUT, volume_record_key(task->record.id));
	if (!call)
		return;
	volume_record_encode(&task->record, bytes);
	volume_call_record(call, bytes, sizeof(bytes));
	call->arg0 = 0;
	call_submit(call, VOLUME_STORE, create_recorded);
}

/* The name is taken, but by whom? One that leads to no volume is replaced by ours. */
static void create_rival(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	struct volume_record record;
	uint8_t bytes[XSEG_RECORD_MAX];
	int rc = volume_call_answer(call, bytes);
	call_end(call);
	if (rc >= 0)
		rc = volume_record_decode(bytes, (size_t)rc, &record);
	if (rc == -ENOENT) {
		create_record(&task->step);
	} else if (rc == 0 && create_is_repeated(task, &record)) {
		task->record = record;
		create_answer(task);
	} else {
		volume_task_end(task, -EEXIST, 0, 0);
	}
}

static void create_ask_rival(struct volume_step *step)
{
	struct volume_task *task = (struct volume_task *)step;
	struct call *call = volume_step_cas(
		step, create_ask_rival, XSEG_CAS_GET, volume_record_key(task->record.id));
	if (call)
		call_submit(call, VOLUME_STORE, create_rival);
}

/* Two names with one hash cannot both be kept; that is not "exists", so it has its own error. */
static void create_looked(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	struct volume_name_record rival;
	uint8_t bytes[XSEG_RECORD_MAX];
	int rc = volume_call_answer(call, bytes);
	task->name_version = rc >= 0 ? call->value : 0;
	call_end(call);
	if (rc == -ENOENT) {
		create_record(&task->step);
		return;
	}
	if (rc >= 0)
		rc = volume_name_record_decode(bytes, (size_t)rc, &rival);
	if (rc == 0 && strcmp(rival.name, task->name) != 0)
		rc = -ENOTUNIQ;
	if (rc != 0) {
		volume_task_end(task, rc, 0, 0);
		return;
	}
	task->record.id = rival.id;
	create_ask_rival(&task->step);
}

static void create_look(struct volume_step *step)
{
	struct volume_task *task = (struct volume_task *)step;
	struct call *call =
		volume_step_cas(step, create_look, XSEG_CAS_GET, volume_name_key(task->name));
	if (call)
		call_submit(call, VOLUME_STORE, create_looked);
}

/* What the client wants, checked; all that he left open is filled in. */
static int create_read(struct volume_task *task)
{
	const struct volume_options *options = task->step.peer->options;
	struct xseg_volume_info info;
	job_get_bytes(task->job, 0, &info, sizeof(info));
	if (!memchr(info.name, 0, sizeof(info.name)))
		return -EINVAL;
	if (info.created_ns == 0)
		info.created_ns = wall_clock_ns();
	if (info.id == 0 && draw_id(&info.id) != 0)
		return -EIO;
	job_put_bytes(task->job, 0, &info, sizeof(info));
	task->id = info.id;
	memcpy(task->name, info.name, sizeof(task->name));
	struct volume_record *record = &task->record;
	*record = (struct volume_record){
		.id = info.id,
		.size = info.size,
		.object_size = info.object_size,
		.state = info.state != 0 ? info.state : XSEG_VOLUME_READY,
		.flags = info.flags,
		.created_ns = info.created_ns,
	};
	if (record->object_size == 0)
		record->object_size = (uint32_t)options->object_size;
	memcpy(record->name, info.name, sizeof(record->name));
	if (record->state == XSEG_VOLUME_REMOVING)
		return -EINVAL;
	int rc = volume_record_check(record);
	if (rc == 0 && volume_table_fixed_id(task->step.peer->shared, task->name) != 0)
		rc = -EEXIST;
	return rc;
}

void volume_admin_create(struct peer *peer, struct job *job)
{
	struct volume_task *task = volume_task_begin(peer, job);
	if (!task)
		return;
	int rc = create_read(task);
	if (rc != 0)
		volume_task_end(task, rc, 0, 0);
	else
		create_look(&task->step);
}

/* --- update ------------------------------------------------------------------------------ */

static void update_in_memory(struct volume_task *task)
{
	struct volume *volume = volume_find(task->step.peer, task->id);
	int rc = volume ? volume_state_set(task->step.peer, volume, task->state) : -ENOENT;
	if (rc != 0)
		volume_task_end(task, rc, 0, 0);
	else
		volume_task_answer(task);
}

static void update_put(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	int rc = call->result;
	call_end(call);
	crash_point("volume.update.put");
	if (rc == -ESTALE || rc == -EEXIST) /* somebody changed or removed it beside us */
		rc = -EBUSY;
	if (rc != 0)
		volume_task_end(task, rc, 0, 0);
	else
		update_in_memory(task);
}

static void update_record(struct volume_step *step)
{
	struct volume_task *task = (struct volume_task *)step;
	uint8_t bytes[VOLUME_RECORD_SIZE];
	struct call *call =
		volume_step_cas(step, update_record, XSEG_CAS_PUT, volume_record_key(task->id));
	if (!call)
		return;
	task->record.state = task->state;
	volume_record_encode(&task->record, bytes);
	volume_call_record(call, bytes, sizeof(bytes));
	call->arg0 = task->version;
	call_submit(call, VOLUME_STORE, update_put);
}

static void update_read(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	int rc = volume_task_take_record(task, call);
	if (rc == 0 && task->record.state == task->state)
		update_in_memory(task);
	else if (rc == 0 && !volume_state_may(task->record.state, task->state))
		volume_task_end(task, -EINVAL, 0, 0);
	else if (rc != 0)
		volume_task_end(task, rc, 0, 0);
	else
		update_record(&task->step);
}

static void update_ask(struct volume_step *step)
{
	struct volume_task *task = (struct volume_task *)step;
	struct call *call =
		volume_step_cas(step, update_ask, XSEG_CAS_GET, volume_record_key(task->id));
	if (call)
		call_submit(call, VOLUME_STORE, update_read);
}

static void update_found(struct volume_task *task, int error)
{
	struct volume *volume = error == 0 ? volume_find(task->step.peer, task->id) : NULL;
	if (error == 0)
		error = !volume ? -ENOENT : volume->fixed
	? -EPERM : 0;
	if (error != 0)
		volume_task_end(task, error, 0, 0);
	else
		update_ask(&task->step);
}

void volume_admin_update(struct peer *peer, struct job *job)
{
	struct xseg_volume_info info;
	struct volume_task *task = volume_task_begin(peer, job);
	if (!task)
		return;
	job_get_bytes(job, 0, &info, sizeof(info));
	info.name[sizeof(info.name) - 1] = 0;
	task->id = job->key.volume != 0 ? job->key.volume : info.id;
	task->state = info.state;
	memcpy(task->name, info.name, sizeof(task->name));
	bool known = info.state == XSEG_VOLUME_READY || info.state == XSEG_VOLUME_IMPORTING;
	if (!known || (task->id == 0 && !volume_name_check(task->name)))
		volume_task_end(task, -EINVAL, 0, 0);
	else
		volume_task_find(task, update_found);
}
