/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Volumes of the option keep: acquired as soon as they can be, and given back only when this peer
 * ends or is told to (MAP_GIVE). As nobody else changes them meanwhile, they are opened by name
 * without the mapper; what they look like is asked of it, and answered from here when it says
 * nothing for a while: the store may be on another host, and the way there cut.
 */
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume.h"

#define AGAIN_NS 5000000000u /* from round to round for those that could not be acquired */
#define LATE_NS 1000000000u

/* A question to the mapper, for all tasks of this shard that came meanwhile. */
struct volume_look {
	struct volume_step step; /* first */
	TAILQ_ENTRY(volume_look) link;
	struct volume_task_queue tasks;
	uint64_t id;
	uint64_t late_ns; /* from then on nobody waits for it */
};

/* --- which they are --------------------------------------------------------------------------- */

/* With the mutex. */
static bool is_kept(const struct volume *volume)
{
	return volume->keep && volume->acquired && !volume_is_lost(volume) &&
	       !volume_open_is_leaving(volume);
}

uint64_t volume_keep_id(struct peer *peer, const char *name)
{
	struct volume_shared *shared = volume_shared(peer);
	struct volume *volume;
	if (!volume_table_keeps(shared, name))
		return 0;
	pthread_mutex_lock(&shared->lock);
	LIST_FOREACH (volume, &shared->acquired, lease)
		if (is_kept(volume) && strcmp(volume->head.name, name) == 0)
			break;
	uint64_t id = volume ? volume->id : 0;
	pthread_mutex_unlock(&shared->lock);
	return id;
}

/* --- acquired --------------------------------------------------------------------------------- */

static void acquire_end(struct volume_task *task, int error)
{
	struct peer *peer = task->step.peer;
	struct volume_shard *shard = peer->state;
	uint64_t bit = 1ull << shard->keep_at++;
	if (error != 0 && error != -EBUSY && !(shard->keep_told & bit))
		log_warning("volume", "%s: keep=%s: it cannot be acquired yet: %s", peer->name,
			task->name,
			error == -ENOENT ? "there is none of that name" : strerror(-error));
	shard->keep_told |= error != 0 && error != -EBUSY ? bit : 0;
	shard->kept |= error == 0 ? bit : 0;
	shard->keep_task = false;
	atomic_fetch_sub(&volume_shared(peer)->busy, 1);
	free(task);
}

static void acquire_found(struct volume_task *task, int error)
{
	const struct volume *volume =
		error == 0 ? volume_table_lookup(task->step.peer, task->id) : NULL;
	if (volume && volume->read_only)
		error = -EROFS;
	if (!volume || error != 0 || volume->term != 0) {
		acquire_end(task, volume || error != 0 ? error : -ENOENT);
		return;
	}
	task->found = acquire_end;
	volume_lease_want(task, false);
}

/* One after the other, round for round, each until it was ours once: when it no longer is, that has
   a reason. */
bool volume_keep_poll(struct peer *peer)
{
	struct volume_shared *shared = volume_shared(peer);
	struct volume_shard *shard = peer->state;
	if (peer->shard != 0 || shard->keep_task || peer->stopping ||
		peer_now_ns(peer) < shard->keep_ns)
		return false;
	while (shard->keep_at < shared->keep->count && shard->kept >> shard->keep_at & 1)
		shard->keep_at++;
	if (shard->keep_at == shared->keep->count) {
		shard->keep_at = 0;
		shard->keep_ns = peer_now_ns(peer) + AGAIN_NS;
		return false;
	}
	struct volume_task *task = calloc(1, sizeof(*task));
	if (!task)
		return false;
	task->step.peer = peer;
	snprintf(task->name, sizeof(task->name), "%s", shared->keep->item[shard->keep_at]);
	shard->keep_task = true;
	atomic_fetch_add(&shared->busy, 1);
	volume_task_find(task, acquire_found);
	return true;
}

/* --- what they look like ---------------------------------------------------------------------- */

bool volume_keep_has(struct peer *peer, const struct volume *volume)
{
	pthread_mutex_lock(&volume_shared(peer)->lock);
	bool has = is_kept(volume);
	pthread_mutex_unlock(&volume_shared(peer)->lock);
	return has;
}

/* All that it has counts as there, unless the mapper has told how much is. */
static void answer_known(struct peer *peer, struct volume_task *task)
{
	struct volume *volume = volume_table_lookup(peer, task->id);
	struct xseg_volume_info info;
	if (!volume) {
		volume_task_end(task, -ENOENT, 0, 0);
		return;
	}
	volume_open_describe(peer, volume, &info);
	info.objects = volume->objects != 0 ? volume->objects
					    : ((info.size - 1) >> volume->object_shift) + 1;
	job_put_bytes(task->job, 0, &info, sizeof(info));
	volume_task_end(task, 0, sizeof(info), info.id);
}

static void look_answered(struct call *call)
{
	struct volume_look *look = call->context;
	struct peer *peer = look->step.peer;
	struct volume_shard *shard = peer->state;
	struct volume *volume = volume_table_lookup(peer, look->id);
	struct xseg_volume_info info = {0};
	struct volume_task *task;
	int rc = call->result == 0 && call->answer_length < sizeof(info) ? -EPROTO : call->result;
	if (rc == 0)
		call_get_bytes(call, 0, &info, sizeof(info));
	call_end(call);
	if (rc == 0 && volume)
		volume->objects = info.objects;
	TAILQ_REMOVE(&shard->looks, look, link);
	while ((task = TAILQ_FIRST(&look->tasks))) {
		TAILQ_REMOVE(&look->tasks, task, link);
		if (rc == 0)
			volume_admin_describe(task, info);
		else
			volume_task_end(task, rc, 0, 0);
	}
	free(look);
}

static void look_ask(struct volume_step *step)
{
	struct volume_look *look = (struct volume_look *)step;
	struct call *call = volume_step_call(
		step, look_ask, XSEG_OP_INFO, (struct xseg_key){.volume = look->id}, XSEG_PAGE);
	if (call)
		call_submit(call, VOLUME_MAP, look_answered);
}

static struct volume_look *look_find(const struct volume_shard *shard, uint64_t id)
{
	struct volume_look *look;
	TAILQ_FOREACH (look, &shard->looks, link)
		if (look->id == id)
			break;
	return look;
}

void volume_keep_info(struct volume_task *task)
{
	struct peer *peer = task->step.peer;
	struct volume_shard *shard = peer->state;
	struct volume_look *look = look_find(shard, task->id);
	bool begins = !look;
	if (look && peer_now_ns(peer) >= look->late_ns) {
		answer_known(peer, task);
		return;
	}
	if (begins)
		look = calloc(1, sizeof(*look));
	if (!look) {
		volume_task_end(task, -ENOMEM, 0, 0);
		return;
	}
	if (begins) {
		look->step.peer = peer;
		look->id = task->id;
		look->late_ns = peer_now_ns(peer) + LATE_NS;
		TAILQ_INIT(&look->tasks);
		TAILQ_INSERT_TAIL(&shard->looks, look, link);
	}
	TAILQ_INSERT_TAIL(&look->tasks, task, link);
	if (begins)
		look_ask(&look->step);
}

bool volume_keep_late(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	struct volume_look *look;
	struct volume_task *task;
	bool moved = false;
	TAILQ_FOREACH (look, &shard->looks, link)
		while (peer_now_ns(peer) >= look->late_ns && (task = TAILQ_FIRST(&look->tasks))) {
			TAILQ_REMOVE(&look->tasks, task, link);
			answer_known(peer, task);
			moved = true;
		}
	return moved;
}

uint64_t volume_keep_due(const struct peer *peer)
{
	const struct volume_shard *shard = peer->state;
	const struct volume_look *look;
	uint64_t due = UINT64_MAX;
	TAILQ_FOREACH (look, &shard->looks, link)
		if (!TAILQ_EMPTY(&look->tasks) && look->late_ns < due)
			due = look->late_ns;
	return due;
}
