/* SPDX-License-Identifier: Apache-2.0 */
/* LIST: the mapper's volumes, with what is known here filled in, then those of the configuration.
   */
#include <errno.h>
#include <stdlib.h>

#include "peers/volume/volume.h"

/* Cursors from here on count configured volumes; a mapper's are ids, or lower. */
#define CURSOR_CONFIGURED (UINT64_MAX - 0xffff)

static uint32_t room_of(const struct job *job)
{
	uint32_t size = job->length < job->data_size ? job->length : job->data_size;
	return size / (uint32_t)sizeof(struct xseg_volume_info);
}

static void list_configured(struct peer *peer, struct job *job)
{
	const struct volume_options *options = peer->options;
	uint64_t at = job->arg0 - CURSOR_CONFIGURED;
	uint32_t room = room_of(job), count = 0;
	struct xseg_volume_info info;
	char name[VOLUME_NAME_LENGTH_MAX + 1];
	for (; at < options->configured.count && count < room; at++) {
		volume_configured_name(options->configured.item[at], name);
		struct volume *volume =
			volume_table_lookup(peer, volume_table_configured_id(peer->shared, name));
		if (!volume)
			continue;
		volume_open_describe(peer, volume, &info);
		job_put_bytes(job, count * (uint32_t)sizeof(info), &info, sizeof(info));
		count++;
	}
	job_complete_value(job, count * (uint32_t)sizeof(info),
		at < options->configured.count ? CURSOR_CONFIGURED + at : 0);
}

/* Who has it open is known here alone. */
static void fill_in(struct peer *peer, struct job *job, uint32_t count)
{
	struct xseg_volume_info info, leased;
	for (uint32_t i = 0; i < count; i++) {
		job_get_bytes(job, i * (uint32_t)sizeof(info), &info, sizeof(info));
		struct volume *volume = volume_table_lookup(peer, info.id);
		if (!volume)
			continue;
		volume_open_describe(peer, volume, &leased);
		info.opens = leased.opens;
		if (leased.state == XSEG_VOLUME_REMOVING)
			info.state = leased.state;
		job_put_bytes(job, i * (uint32_t)sizeof(info), &info, sizeof(info));
	}
}

static void list_answered(struct call *call)
{
	struct volume_task *task = volume_task_of(call);
	struct peer *peer = task->step.peer;
	const struct volume_options *options = peer->options;
	struct job *job = volume_task_leave(task);
	uint32_t count = call->answer_length / (uint32_t)sizeof(struct xseg_volume_info);
	uint64_t next = call->value;
	int rc = call->result;
	call_end(call);
	if (rc == 0 && count > room_of(job))
		rc = -EPROTO;
	if (rc != 0) {
		job_fail(job, rc);
		return;
	}
	fill_in(peer, job, count);
	if (next == 0 && options->configured.count > 0)
		next = CURSOR_CONFIGURED;
	job_complete_value(job, count * (uint32_t)sizeof(struct xseg_volume_info), next);
}

static void list_ask(struct volume_step *step)
{
	struct volume_task *task = (struct volume_task *)step;
	struct call *call = volume_step_as(step, list_ask, task->job);
	if (call)
		call_submit(call, VOLUME_MAP, list_answered);
}

void volume_list(struct peer *peer, struct job *job)
{
	if (job->key.volume != 0 || room_of(job) == 0) {
		job_fail(job, -EINVAL);
		return;
	}
	if (job->arg0 < CURSOR_CONFIGURED && !volume_has_map(peer))
		job->arg0 = CURSOR_CONFIGURED;
	if (job->arg0 >= CURSOR_CONFIGURED) {
		list_configured(peer, job);
		return;
	}
	struct volume_task *task = volume_task_begin(peer, job);
	if (task)
		list_ask(&task->step);
}
