/* SPDX-License-Identifier: Apache-2.0 */
/*
 * REMOVE, in an order that may be cut off anywhere and begun again: the record says REMOVING, the
 * objects go, the name, the record. As long as there is a name, LIST shows it and it can be removed
 * again; a record without one is what a cut-off CREATE leaves, too: nobody sees it, and
 * volume_tidy.c deletes it.
 */
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume.h"

static struct volume_task *task_of(struct volume_step *step) { return (struct volume_task *)step; }

/* task->state: what the volume's record says now. */
static void remove_end(struct volume_task *task, int error)
{
	if (error == 0)
		volume_remove_end(task->step.peer, task->id);
	else
		volume_remove_stop(task->step.peer, task->id, task->state);
	volume_task_end(task, error, 0, 0);
}

/* --- the record ------------------------------------------------------------------------- */

static void record_deleted(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	int rc = call->result;
	call_end(call);
	crash_point("volume.remove.gone");
	if (rc == -ENOENT)
		rc = 0;
	remove_end(task, rc == -ESTALE ? -EBUSY : rc);
}

static void record_delete(struct volume_step *step)
{
	struct volume_task *task = task_of(step);
	struct call *call =
		volume_step_cas(step, record_delete, XSEG_CAS_DELETE, volume_record_key(task->id));
	if (!call)
		return;
	call->arg0 = task->version;
	call_submit(call, VOLUME_STORE, record_deleted);
}

/* --- the name -------------------------------------------------------------------------- */

/* -ESTALE: somebody else deleted it, and the name is a new volume's by now. */
static void name_deleted(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	int rc = call->result;
	call_end(call);
	crash_point("volume.remove.unnamed");
	if (rc == 0 || rc == -ENOENT || rc == -ESTALE)
		record_delete(&task->step);
	else
		remove_end(task, rc);
}

static void name_delete(struct volume_step *step)
{
	struct volume_task *task = task_of(step);
	struct call *call =
		volume_step_cas(step, name_delete, XSEG_CAS_DELETE, volume_name_key(task->name));
	if (!call)
		return;
	call->arg0 = task->name_version;
	call_submit(call, VOLUME_STORE, name_deleted);
}

static void name_read(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	struct volume_name_record record;
	int rc = volume_task_take_name(task, call, &record);
	if (rc == 0 && (record.id != task->id || strcmp(record.name, task->name) != 0))
		rc = -ENOENT; /* another volume's by now */
	if (rc == 0)
		name_delete(&task->step);
	else if (rc == -ENOENT)
		record_delete(&task->step);
	else
		remove_end(task, rc);
}

static void name_ask(struct volume_step *step)
{
	struct volume_task *task = task_of(step);
	struct call *call =
		volume_step_cas(step, name_ask, XSEG_CAS_GET, volume_name_key(task->name));
	if (call)
		call_submit(call, VOLUME_STORE, name_read);
}

/* --- the objects -------------------------------------------------------------------------- */

/* One DELETE after the other; up to VOLUME_WINDOW of these run at a time. */
struct eraser {
	struct volume_step step; /* first */
	struct volume_task *task;
	struct xseg_key key;
};

static void objects_list(struct volume_step *step);
static void erase_next(struct eraser *eraser);

static void erased(struct call *call)
{
	struct eraser *eraser = call->context;
	int rc = call->result;
	call_end(call);
	crash_point("volume.remove.erased");
	if (rc != 0 && rc != -ENOENT)
		eraser->task->error = rc;
	erase_next(eraser);
}

static void erase(struct volume_step *step)
{
	struct eraser *eraser = (struct eraser *)step;
	struct call *call = volume_step_call(step, erase, XSEG_OP_DELETE, eraser->key, 0);
	if (call)
		call_submit(call, VOLUME_STORE, erased);
}

/* A page of keys is done: the same place is listed again until nothing is there any more. */
static void page_end(struct volume_task *task)
{
	if (task->error != 0)
		remove_end(task, task->error);
	else
		objects_list(&task->step);
}

static void erase_next(struct eraser *eraser)
{
	struct volume_task *task = eraser->task;
	if (task->key_next < task->key_count && task->error == 0) {
		eraser->key = task->keys[task->key_next++];
		erase(&eraser->step);
		return;
	}
	free(eraser);
	if (--task->pending == 0)
		page_end(task);
}

static void erase_page(struct volume_task *task)
{
	task->pending = 1; /* ours, so that nothing ends while we begin */
	for (uint32_t i = 0; i < VOLUME_WINDOW && task->key_next < task->key_count; i++) {
		struct eraser *eraser = calloc(1, sizeof(*eraser));
		if (!eraser) {
			task->error = -ENOMEM;
			break;
		}
		eraser->step.peer = task->step.peer;
		eraser->task = task;
		task->pending++;
		erase_next(eraser);
	}
	if (--task->pending == 0)
		page_end(task);
}

static bool is_object(const struct volume_task *task, const struct xseg_key *key)
{
	return key->volume == task->id && key->epoch != XSEG_EPOCH_NAME &&
	       key->epoch != XSEG_EPOCH_VOLUME;
}

/* Keeps the keys of objects; -EIO when a store goes on listing what it said is deleted. */
static int take_keys(struct volume_task *task, const struct call *call)
{
	uint32_t total = call->answer_length / sizeof(struct xseg_key), count = 0;
	if (total > VOLUME_LIST_KEYS)
		return -EIO;
	call_get_bytes(call, 0, task->keys, total * sizeof(struct xseg_key));
	for (uint32_t i = 0; i < total; i++)
		if (is_object(task, &task->keys[i]))
			task->keys[count++] = task->keys[i];
	task->key_count = count;
	task->key_next = 0;
	if (count == 0)
		return 0;
	if (memcmp(&task->keys[0], &task->first_key, sizeof(task->first_key)) == 0)
		return -EIO;
	task->first_key = task->keys[0];
	return 0;
}

static void objects_listed(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	int rc = call->result;
	uint64_t next = call->value;
	if (rc == 0)
		rc = take_keys(task, call);
	call_end(call);
	if (rc != 0) {
		remove_end(task, rc);
	} else if (task->key_count > 0) {
		erase_page(task);
	} else if (next != 0) {
		task->cursor = next;
		objects_list(&task->step);
	} else {
		name_ask(&task->step);
	}
}

static void objects_list(struct volume_step *step)
{
	struct volume_task *task = task_of(step);
	struct call *call = volume_step_call(step, objects_list, XSEG_OP_LIST,
		(struct xseg_key){.volume = task->id}, VOLUME_LIST_BYTES);
	if (!call)
		return;
	call->arg0 = task->cursor;
	call_submit(call, VOLUME_STORE, objects_listed);
}

static void objects_begin(struct volume_task *task)
{
	task->state = XSEG_VOLUME_REMOVING; /* from here on nothing is undone */
	task->keys = calloc(VOLUME_LIST_KEYS, sizeof(*task->keys));
	if (!task->keys)
		remove_end(task, -ENOMEM);
	else
		objects_list(&task->step);
}

/* --- the mark ----------------------------------------------------------------------------- */

static void mark_read(struct volume_step *step);

static void mark_written(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	int rc = call->result;
	task->version = call->value;
	call_end(call);
	crash_point("volume.remove.marked");
	if (rc == -ESTALE)
		mark_read(&task->step); /* an UPDATE was faster */
	else if (rc != 0)
		remove_end(task, rc);
	else
		objects_begin(task);
}

static void mark_write(struct volume_step *step)
{
	struct volume_task *task = task_of(step);
	uint8_t bytes[VOLUME_RECORD_SIZE];
	struct call *call =
		volume_step_cas(step, mark_write, XSEG_CAS_PUT, volume_record_key(task->id));
	if (!call)
		return;
	struct volume_record record = task->record;
	record.state = XSEG_VOLUME_REMOVING;
	volume_record_encode(&record, bytes);
	volume_call_record(call, bytes, sizeof(bytes));
	call->arg0 = task->version;
	call_submit(call, VOLUME_STORE, mark_written);
}

static void mark_was_read(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	int rc = volume_task_take_record(task, call);
	if (rc != 0) {
		remove_end(task, rc);
		return;
	}
	memcpy(task->name, task->record.name, sizeof(task->name));
	if (task->record.state == XSEG_VOLUME_REMOVING)
		objects_begin(task);
	else
		mark_write(&task->step);
}

static void mark_read(struct volume_step *step)
{
	struct volume_task *task = task_of(step);
	struct call *call =
		volume_step_cas(step, mark_read, XSEG_CAS_GET, volume_record_key(task->id));
	if (call)
		call_submit(call, VOLUME_STORE, mark_was_read);
}

static void remove_found(struct volume_task *task, int error)
{
	struct peer *peer = task->step.peer;
	struct volume *volume = error == 0 ? volume_find(peer, task->id) : NULL;
	if (error == 0)
		error = volume ? volume_remove_begin(peer, volume,
					 volume_client_of(peer, task->job), &task->state)
			       : -ENOENT;
	/* no id is used again: what is not there has been removed, by a predecessor that was killed
	   before it could say so */
	if (error == -ENOENT && task->job->key.volume != 0)
		error = -EALREADY;
	if (error != 0)
		volume_task_end(task, error == -EALREADY ? 0 : error, 0, 0);
	else
		mark_read(&task->step);
}

void volume_remove(struct peer *peer, struct job *job)
{
	if (volume_front_await(peer, job))
		return;
	volume_task_start(peer, job, remove_found);
}
