/* SPDX-License-Identifier: Apache-2.0 */
/* LIST: the volumes that have a name in the store, then those of the configuration. */
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume.h"

#define LIST_MAX 512u /* volumes in one answer */

/* Cursors from here on count configured volumes; a store's are hashes, or lower. */
#define CURSOR_FIXED (UINT64_MAX - 0xffff)

/* One volume being looked up; up to VOLUME_WINDOW at a time. */
struct entry {
	struct volume_step step; /* first */
	struct volume_task *task;
	struct xseg_volume_info *info; /* id 0: not to be shown */
};

static void entry_next(struct entry *entry);

static void list_end(struct volume_task *task)
{
	struct job *job = task->job;
	const struct volume_options *options = task->step.peer->options;
	uint32_t length = 0;
	for (uint32_t i = 0; i < task->key_count; i++) {
		if (task->infos[i].id == 0)
			continue;
		job_put_bytes(job, length, &task->infos[i], sizeof(task->infos[i]));
		length += sizeof(task->infos[i]);
	}
	uint64_t next = task->next_cursor;
	if (next == 0 && options->fixed.count > 0)
		next = CURSOR_FIXED;
	volume_task_end(task, task->error, length, next);
}

/* What is loaded is known better than its record. */
static void describe(
	struct volume_task *task, const struct volume_record *record, struct xseg_volume_info *info)
{
	struct volume *volume = volume_find(task->step.peer, record->id);
	if (volume) {
		volume_describe(task->step.peer, volume, info);
		return;
	}
	info->size = record->size;
	info->object_size = record->object_size;
	info->state = record->state;
	info->created_ns = record->created_ns;
	info->flags = record->flags;
}

/*
 * A name without a volume was removed while we look. A damaged record is shown without a state:
 * it must be seen, and nobody can say what it was.
 */
static void entry_described(struct call *call)
{
	struct entry *entry = call->context;
	struct volume_record record;
	uint8_t bytes[XSEG_RECORD_MAX];
	int rc = volume_call_answer(call, bytes);
	call_end(call);
	if (rc >= 0)
		rc = volume_record_decode(bytes, (size_t)rc, &record);
	if (rc == 0 && record.id != entry->info->id)
		rc = -EILSEQ;
	if (rc == 0)
		describe(entry->task, &record, entry->info);
	else if (rc == -ENOENT)
		entry->info->id = 0;
	else if (rc == -EILSEQ || rc == -EPROTO)
		log_warning("volume", "the record of volume '%s' is %s", entry->info->name,
			rc == -EPROTO ? "of a newer version" : "damaged");
	else
		entry->task->error = rc;
	entry_next(entry);
}

static void entry_describe(struct volume_step *step)
{
	struct entry *entry = (struct entry *)step;
	struct call *call = volume_step_cas(
		step, entry_describe, XSEG_CAS_GET, volume_record_key(entry->info->id));
	if (call)
		call_submit(call, VOLUME_STORE, entry_described);
}

static void entry_named(struct call *call)
{
	struct entry *entry = call->context;
	struct volume_name_record record;
	uint8_t bytes[XSEG_RECORD_MAX];
	uint64_t hash = call->key.volume;
	int rc = volume_call_answer(call, bytes);
	call_end(call);
	if (rc >= 0)
		rc = volume_name_record_decode(bytes, (size_t)rc, &record);
	if (rc == 0) {
		entry->info->id = record.id;
		memcpy(entry->info->name, record.name, sizeof(record.name));
		entry_describe(&entry->step);
		return;
	}
	if (rc == -EILSEQ || rc == -EPROTO)
		log_warning("volume", "the name record %016llx is %s", (unsigned long long)hash,
			rc == -EPROTO ? "of a newer version" : "damaged");
	else if (rc != -ENOENT) /* removed while we look */
		entry->task->error = rc;
	entry_next(entry);
}

static void entry_name(struct volume_step *step)
{
	struct entry *entry = (struct entry *)step;
	uint32_t index = (uint32_t)(entry->info - entry->task->infos);
	struct call *call =
		volume_step_cas(step, entry_name, XSEG_CAS_GET, entry->task->keys[index]);
	if (call)
		call_submit(call, VOLUME_STORE, entry_named);
}

/* The next one that nobody has begun; the last to find none ends the job. */
static void entry_next(struct entry *entry)
{
	struct volume_task *task = entry->task;
	if (task->key_next < task->key_count && task->error == 0) {
		entry->info = &task->infos[task->key_next++];
		entry_name(&entry->step);
		return;
	}
	free(entry);
	if (--task->pending == 0)
		list_end(task);
}

static void list_entries(struct volume_task *task)
{
	task->pending = 1; /* ours, so that nothing ends while we begin */
	for (uint32_t i = 0; i < VOLUME_WINDOW && task->key_next < task->key_count; i++) {
		struct entry *entry = calloc(1, sizeof(*entry));
		if (!entry) {
			task->error = -ENOMEM;
			break;
		}
		entry->step.peer = task->step.peer;
		entry->task = task;
		task->pending++;
		entry_next(entry);
	}
	if (--task->pending == 0)
		list_end(task);
}

static void list_keys(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	int rc = call->result == -EOPNOTSUPP ? 0 : call->result; /* a store without records */
	uint32_t room = task->key_count;
	task->key_count = 0;
	if (call->result == 0) {
		task->key_count = call->answer_length / sizeof(struct xseg_key);
		task->next_cursor = call->value;
	}
	if (task->key_count > room || task->next_cursor >= CURSOR_FIXED)
		rc = -EIO;
	if (rc == 0)
		call_get_bytes(call, 0, task->keys, task->key_count * sizeof(struct xseg_key));
	call_end(call);
	if (rc != 0)
		volume_task_end(task, rc, 0, 0);
	else
		list_entries(task);
}

static void list_ask(struct volume_step *step)
{
	struct volume_task *task = (struct volume_task *)step;
	struct call *call = volume_step_call(step, list_ask, XSEG_OP_LIST,
		(struct xseg_key){.epoch = XSEG_EPOCH_NAME},
		task->key_count * sizeof(struct xseg_key));
	if (!call)
		return;
	call->arg0 = task->cursor;
	call_submit(call, VOLUME_STORE, list_keys);
}

static void list_fixed(struct peer *peer, struct job *job, uint32_t room)
{
	const struct volume_options *options = peer->options;
	uint64_t index = job->arg0 - CURSOR_FIXED;
	uint32_t length = 0;
	for (; index < options->fixed.count && room > 0; index++, room--) {
		struct xseg_volume_info info;
		char name[VOLUME_NAME_LENGTH_MAX + 1];
		volume_fixed_name(options->fixed.item[index], name);
		struct volume *volume = volume_find(peer, volume_name_hash(name));
		must(volume);
		volume_describe(peer, volume, &info);
		job_put_bytes(job, length, &info, sizeof(info));
		length += sizeof(info);
	}
	job_complete_value(job, length, index < options->fixed.count ? CURSOR_FIXED + index : 0);
}

void volume_list(struct peer *peer, struct job *job)
{
	uint32_t size = job->length < job->data_size ? job->length : job->data_size;
	uint32_t room = size / sizeof(struct xseg_volume_info);
	if (room == 0) {
		job_fail(job, -EINVAL);
		return;
	}
	if (room > LIST_MAX)
		room = LIST_MAX;
	if (job->arg0 >= CURSOR_FIXED) {
		list_fixed(peer, job, room);
		return;
	}
	struct volume_task *task = volume_task_begin(peer, job);
	if (!task)
		return;
	task->cursor = job->arg0;
	task->key_count = room;
	task->keys = calloc(room, sizeof(*task->keys));
	task->infos = calloc(room, sizeof(*task->infos));
	if (!task->keys || !task->infos)
		volume_task_end(task, -ENOMEM, 0, 0);
	else
		list_ask(&task->step);
}
