/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Volumes that are ours to write to. The first who opens one for writing has the mapper acquire it;
 * when nobody has it open any more, it is given back. Both happen under a quiesce, so whoever comes
 * meanwhile waits.
 *
 *   known --open, or a write of a front that was there before us--> acquired --last close--> known
 *                                                                    |
 *                 lost <---- the mapper says that it is another's ---'
 *
 * What a predecessor has recorded is published before it is acquired: the intents belong to the
 * epoch in which they were made. Caches below hear whose the volume is now (XSEG_CONTROL_FENCE),
 * and forget what another may have changed; before it is given back they write all of it (a FLUSH
 * with FUA). The store hears that nobody here writes to it any more (LEAVE): then the next owner
 * need not drive us out. One who is faster does. When the next owner waits, it hears so while the
 * record is written; else afterwards, for it stays ours if that fails.
 */
#include <base/container.h>
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume_flush.h"
#include "peers/volume/volume_map.h"
#include "peers/volume/volume_quiesce.h"

#define LOOK_NS 1000000000u /* between two looks for volumes that the dead had open */

/* One acquiring or giving back. */
struct lease {
	struct volume_flush flush; /* first: it begins with a volume_step */
	struct volume_quiesce quiesce;
	struct volume_task *task; /* NULL: given back, since nobody uses it any more */
	bool read_only;
	uint64_t next;	/* given back to be this one's, whoever has it open here */
	uint64_t given; /* since that version of its record */
	int error;
	unsigned pending;	   /* calls */
	uint64_t fenced;	   /* the term that the store was told last */
	struct map_head_info head; /* as acquired */
};

static struct lease *lease_of(struct volume_step *step) { return (struct lease *)step; }
static struct volume_step *step_of(struct lease *lease) { return &lease->flush.publish.step; }

static void set_acquired(struct peer *peer, struct volume *volume, bool acquired)
{
	struct volume_shared *shared = volume_shared(peer);
	pthread_mutex_lock(&shared->lock);
	if (acquired && !volume->acquired)
		LIST_INSERT_HEAD(&shared->acquired, volume, lease);
	for (unsigned lane = 0; !acquired && lane < XSEG_LANES_MAX; lane++)
		volume_open_unnotice(volume, lane); /* who works on does so where it is now */
	if (!acquired && volume->acquired)
		LIST_REMOVE(volume, lease);
	volume->acquired = acquired;
	atomic_store_explicit(&volume->lost, false, memory_order_relaxed);
	pthread_mutex_unlock(&shared->lock);
}

void volume_lease_lost(struct peer *peer, uint64_t id)
{
	struct volume_shared *shared = volume_shared(peer);
	bool first = false;
	pthread_mutex_lock(&shared->lock);
	struct volume *volume = volume_table_find(shared, id);
	if (volume && volume->acquired && !volume_is_lost(volume)) {
		first = true;
		atomic_store_explicit(&volume->lost, true, memory_order_relaxed);
		atomic_store_explicit(&volume->admitted, 0, memory_order_relaxed);
	}
	pthread_mutex_unlock(&shared->lock);
	if (first)
		log_error("volume",
			"%s: volume '%s' was taken away from us: what was written to it since the "
			"last flush is lost, and nothing more is written until it is opened anew",
			peer->name, volume->head.name);
}

/* What was recorded can never be published: it is another's volume by now, or none. */
static void drop_intents(struct peer *peer, const struct volume *volume, int why)
{
	if (!volume_intent_any(peer, volume->id))
		return;
	log_warning("volume", "%s: updates of the map of volume '%s' are dropped: %s", peer->name,
		volume->head.name,
		why == -ESTALE ? "another host has written to it since" : strerror(-why));
	volume_intent_forget(peer, volume->id);
}

/* --- acquiring ------------------------------------------------------------------------ */

static void want_end(struct lease *lease, int error)
{
	struct volume_task *task = lease->task;
	struct peer *peer = lease->quiesce.peer;
	if (error != 0 && !task)
		log_warning("volume", "%s: the store of volume '%s' does not let us write: %s",
			peer->name, lease->quiesce.volume->head.name, strerror(-error));
	volume_quiesce_release(&lease->quiesce);
	free(lease);
	if (task)
		task->found(task, error);
	else
		atomic_fetch_sub(&volume_shared(peer)->busy, 1);
}

static int take_head(struct lease *lease, const struct map_head_info *head)
{
	struct peer *peer = step_of(lease)->peer;
	struct volume *volume = lease->quiesce.volume;
	int rc = volume_table_head_set(peer, volume, head, true);
	if (rc != 0)
		return rc;
	volume_map_forget(volume);
	if (lease->read_only)
		return 0;
	atomic_store_explicit(&volume->line, head->line, memory_order_relaxed);
	pthread_mutex_lock(&volume_shared(peer)->lock);
	volume->term = head->term;
	pthread_mutex_unlock(&volume_shared(peer)->lock);
	set_acquired(peer, volume, true);
	return 0;
}

/* A store that nobody shares, and that keeps nothing back, has nothing to do. */
static int store_answer(struct call *call)
{
	int rc = call->result;
	call_end(call);
	return rc == -EOPNOTSUPP ? 0 : rc;
}

static struct call *release_call(struct volume_step *step, void (*run)(struct volume_step *step))
{
	struct lease *lease = lease_of(step);
	struct call *call = volume_step_call(step, run, XSEG_OP_CONTROL,
		(struct xseg_key){.volume = lease->quiesce.volume->id}, 0);
	if (!call)
		return NULL;
	call->arg0 = MAP_RELEASE;
	call->arg1 = lease->next;
	return call;
}

static void unclaimed(struct call *call)
{
	struct lease *lease = lease_of(call->context);
	call_end(call);
	want_end(lease, lease->error);
}

static void unclaim_ask(struct volume_step *step)
{
	struct call *call = release_call(step, unclaim_ask);
	if (call)
		call_submit(call, VOLUME_MAP, unclaimed);
}

static void fence_ask(struct volume_step *step);

/* All has been answered. The term is another one if it was lost in between, or if the mapper knows
   of no claims. */
static void want_had(struct lease *lease, int error)
{
	if (lease->error == 0)
		lease->error = error;
	if (--lease->pending > 0)
		return;
	if (lease->error == 0 && lease->fenced != lease->head.term) {
		lease->pending = 1;
		fence_ask(step_of(lease));
		return;
	}
	if (lease->error == 0)
		lease->error = take_head(lease, &lease->head);
	if (lease->error == 0)
		want_end(lease, 0);
	else
		unclaim_ask(step_of(lease));
}

static void fenced(struct call *call)
{
	struct lease *lease = lease_of(call->context);
	int rc = store_answer(call);
	crash_point("volume.lease.fenced");
	want_had(lease, rc);
}

static struct call *fence_call(struct volume_step *step, void (*run)(struct volume_step *step))
{
	struct lease *lease = lease_of(step);
	struct call *call = volume_step_call(step, run, XSEG_OP_CONTROL,
		(struct xseg_key){.volume = lease->quiesce.volume->id}, 0);
	if (!call)
		return NULL;
	call->arg0 = XSEG_CONTROL_FENCE;
	call->arg1 = lease->head.term;
	call->offset = lease->head.line;
	return call;
}

static void begun(struct call *call)
{
	struct lease *lease = lease_of(call->context);
	int rc = volume_load_answer(call, &lease->head);
	call_end(call);
	crash_point("volume.lease.acquired");
	want_had(lease, rc);
}

static void begin_ask(struct volume_step *step)
{
	struct call *call =
		volume_load_call(step, begin_ask, lease_of(step)->quiesce.volume->id, NULL, 0);
	if (call)
		call_submit(call, VOLUME_MAP, begun);
}

/* Its store hears of it at the same time as the mapper goes on. */
static void fence_ask(struct volume_step *step)
{
	struct lease *lease = lease_of(step);
	struct call *call = fence_call(step, fence_ask);
	if (!call)
		return;
	bool begins = lease->pending == 2;
	lease->fenced = lease->head.term;
	call_submit(call, VOLUME_STORE, fenced);
	if (begins)
		begin_ask(step);
}

static void keep(struct volume_task *task, int error);

/* Whoever has it kept wants to know that it is ours, and its record says so by now: what is written
   to it waits here for the rest. */
static void answer_early(struct lease *lease)
{
	struct volume_task *task = lease->task;
	if (task->found != keep)
		return;
	atomic_fetch_add(&volume_shared(lease->quiesce.peer)->busy, 1);
	lease->task = NULL;
	lease->quiesce.job = NULL;
	keep(task, 0);
}

static void want_answered(struct call *call)
{
	struct lease *lease = lease_of(call->context);
	struct volume_task *task = lease->task;
	int rc = volume_load_answer(call, &lease->head);
	crash_point("volume.lease.claimed");
	if (!lease->read_only && (rc == 0 || rc == -EOPNOTSUPP)) {
		call_end(call);
		lease->pending = rc == 0 ? 2 : 1;
		if (rc == 0) {
			answer_early(lease);
			fence_ask(step_of(lease));
		} else {
			begin_ask(step_of(lease));
		}
		return;
	}
	if (rc == 0)
		rc = take_head(lease, &lease->head);
	if (rc == 0 || call->result == 0 || !task->job || task->job->op != XSEG_OP_OPEN) {
		call_end(call);
		want_end(lease, rc);
		return;
	}
	volume_quiesce_release(&lease->quiesce);
	free(lease);
	volume_task_refuse(task, call);
	call_end(call);
}

static void want_ask(struct volume_step *step)
{
	struct lease *lease = lease_of(step);
	struct call *call =
		volume_load_call(step, want_ask, lease->quiesce.volume->id, NULL, MAP_READ_ONLY);
	if (!call)
		return;
	if (!lease->read_only)
		call->arg0 = MAP_CLAIM;
	call_submit(call, VOLUME_MAP, want_answered);
}

static void want_published(struct volume_flush *flush, int error)
{
	struct lease *lease = (struct lease *)flush;
	struct peer *peer = step_of(lease)->peer;
	struct volume *volume = lease->quiesce.volume;
	crash_point("volume.lease.published");
	if (error == -ESTALE || error == -ENOENT)
		drop_intents(peer, volume, error);
	else if (error != 0) {
		want_end(lease, error);
		return;
	}
	want_ask(step_of(lease));
}

static void want_quiesced(struct volume_quiesce *quiesce, int error)
{
	struct lease *lease = container_of(quiesce, struct lease, quiesce);
	struct peer *peer = quiesce->peer;
	struct volume_task *task = lease->task;
	if (error == -EBUSY && task->job) { /* when that is over, it may be ours, or gone */
		struct volume *volume = quiesce->volume;
		free(lease);
		struct job *job = volume_task_leave(task);
		job->key.volume = volume->id;
		if (!volume_quiesce_wait(peer, volume, job))
			peer->ops->on[job->op](peer, job);
		return;
	}
	if (error != 0) {
		free(lease);
		task->found(task, error);
		return;
	}
	if (volume_is_lost(quiesce->volume))
		drop_intents(peer, quiesce->volume, -ESTALE);
	if (volume_intent_any(peer, quiesce->volume->id))
		volume_flush_begin(&lease->flush, peer, quiesce->volume->id, want_published);
	else
		want_ask(step_of(lease));
}

void volume_lease_want(struct volume_task *task, bool read_only)
{
	struct peer *peer = task->step.peer;
	struct volume *volume = volume_table_lookup(peer, task->id);
	struct lease *lease = volume ? calloc(1, sizeof(*lease)) : NULL;
	if (!lease) {
		task->found(task, volume ? -ENOMEM : -ENOENT);
		return;
	}
	step_of(lease)->peer = peer;
	lease->task = task;
	lease->read_only = read_only;
	lease->quiesce = (struct volume_quiesce){.peer = peer,
		.volume = volume,
		.quiesced = want_quiesced,
		.job = task->job,
		.reads = true};
	volume_quiesce_begin(&lease->quiesce);
}

void volume_lease_unwant(struct peer *peer, struct volume *volume)
{
	if (volume_open_count(peer, volume, VOLUME_NO_CLIENT) == 0)
		volume_lease_release(peer, volume);
}

/* Another has had it since who asks has opened it. Who does not say in which term that was is taken
   for somebody of before, too. */
static bool is_refused(const struct volume *volume, const struct job *job)
{
	if (job->arg1 == 0)
		return atomic_load(&volume->line) == volume->term && volume->term > 1;
	return volume_is_over(volume, job);
}

/* Whoever writes has no use for the reason, and the answer's place is his data's. */
static void job_leased(struct volume_task *task, int error)
{
	struct peer *peer = task->step.peer;
	struct job *job = volume_task_leave(task);
	struct volume *volume = error == 0 ? volume_table_lookup(peer, job->key.volume) : NULL;
	if (volume && is_refused(volume, job)) {
		error = -ESTALE;
		volume_lease_unwant(peer, volume);
	}
	if (error == 0)
		peer->ops->on[job->op](peer, job);
	else
		job_fail(job, error == -EPERM ? -EROFS : error == -ENOENT ? -ENOENT : -EIO);
}

void volume_lease_job(struct peer *peer, struct volume *volume, struct job *job)
{
	struct volume_task *task = volume_task_begin(peer, job);
	if (!task)
		return;
	task->id = volume->id;
	task->found = job_leased;
	volume_lease_want(task, false);
}

/* --- giving back ----------------------------------------------------------------------------- */

/* Not again at once. */
static void release_later(struct peer *peer, struct volume *volume)
{
	pthread_mutex_lock(&volume_shared(peer)->lock);
	volume->release_ns = peer_now_ns(peer) + LOOK_NS;
	pthread_mutex_unlock(&volume_shared(peer)->lock);
}

static void refused(struct peer *peer, struct volume *volume, int error)
{
	release_later(peer, volume);
	log_warning("volume", "%s: volume '%s' could not be given back: %s", peer->name,
		volume->head.name, strerror(-error));
}

static void release_end(struct lease *lease, int error)
{
	struct peer *peer = lease->quiesce.peer;
	struct volume *volume = lease->quiesce.volume;
	struct volume_task *task = lease->task;
	uint64_t given = lease->given;
	if (error == 0)
		set_acquired(peer, volume, false);
	else if (!task)
		refused(peer, volume, error);
	volume_quiesce_release(&lease->quiesce);
	free(lease);
	atomic_fetch_sub(&volume_shared(peer)->busy, 1);
	if (task)
		volume_task_end(task, error, 0, given);
}

static void given_back(struct lease *lease)
{
	int error = lease->error;
	if (--lease->pending > 0)
		return;
	if (lease->next != 0) /* it may be given away all the same: who uses it acquires it first */
		set_acquired(lease->quiesce.peer, lease->quiesce.volume, false);
	else if (error == -ENOENT || error == -ESTALE)
		error = 0;
	release_end(lease, error);
}

static void leave_ask(struct volume_step *step);

static void released(struct call *call)
{
	struct lease *lease = lease_of(call->context);
	lease->error = call->result;
	lease->given = call->value;
	call_end(call);
	crash_point("volume.lease.released");
	if (lease->error == 0 && lease->next == 0)
		leave_ask(step_of(lease));
	else
		given_back(lease);
}

static void left(struct call *call)
{
	struct lease *lease = lease_of(call->context);
	call_end(call);
	crash_point("volume.lease.left");
	given_back(lease);
}

static void release_ask(struct volume_step *step)
{
	struct call *call = release_call(step, release_ask);
	if (call)
		call_submit(call, VOLUME_MAP, released);
}

static void leave_ask(struct volume_step *step)
{
	struct lease *lease = lease_of(step);
	struct call *call = volume_step_call(step, leave_ask, XSEG_OP_CONTROL,
		(struct xseg_key){.volume = lease->quiesce.volume->id}, 0);
	if (!call)
		return;
	bool together = lease->next != 0;
	call->arg0 = XSEG_CONTROL_LEAVE;
	call->arg1 = lease->quiesce.volume->term;
	lease->pending = together ? 2 : 1;
	call_submit(call, VOLUME_STORE, left);
	if (together)
		release_ask(step);
}

static void release_published(struct volume_flush *flush, int error)
{
	struct lease *lease = (struct lease *)flush;
	if (error == -ESTALE || error == -ENOENT)
		drop_intents(lease->quiesce.peer, lease->quiesce.volume, error);
	else if (error != 0) {
		release_end(lease, error);
		return;
	}
	lease->pending = 1;
	if (lease->next != 0)
		leave_ask(step_of(lease));
	else
		release_ask(step_of(lease));
}

/* Whoever has it next sees nothing of what lies in a cache of ours. */
static void release_begin(struct lease *lease)
{
	lease->flush.flags = XSEG_F_FUA;
	volume_flush_begin(
		&lease->flush, lease->quiesce.peer, lease->quiesce.volume->id, release_published);
}

static void give_quiesced(struct volume_quiesce *quiesce, int error)
{
	struct lease *lease = container_of(quiesce, struct lease, quiesce);
	struct peer *peer = quiesce->peer;
	struct volume *volume = quiesce->volume;
	struct volume_task *task = lease->task;
	if (error != 0) {
		atomic_fetch_sub(&volume_shared(peer)->busy, 1);
		free(lease);
		volume_task_end(task, error, 0, 0);
	} else if (!volume->acquired || volume_is_lost(volume)) {
		release_end(lease, -ESTALE);
	} else {
		release_begin(lease);
	}
}

static void release_quiesced(struct volume_quiesce *quiesce, int error)
{
	struct lease *lease = container_of(quiesce, struct lease, quiesce);
	struct peer *peer = quiesce->peer;
	struct volume *volume = quiesce->volume;
	if (error != 0) { /* looked at again in a while */
		release_later(peer, volume);
		atomic_fetch_sub(&volume_shared(peer)->busy, 1);
		free(lease);
		return;
	}
	if (!volume->acquired || volume_open_count(peer, volume, VOLUME_NO_CLIENT) > 0) {
		volume_quiesce_release(quiesce);
		atomic_fetch_sub(&volume_shared(peer)->busy, 1);
		free(lease);
		return;
	}
	if (volume_is_lost(volume)) {
		drop_intents(peer, volume, -ESTALE);
		release_end(lease, 0);
		return;
	}
	release_begin(lease);
}

/* `task`: it is given to somebody, else nobody uses it. False: no memory. */
static bool give_back(struct peer *peer, struct volume *volume, struct volume_task *task)
{
	struct lease *lease = calloc(1, sizeof(*lease));
	if (!lease)
		return false;
	atomic_fetch_add(&volume_shared(peer)->busy, 1);
	step_of(lease)->peer = peer;
	lease->task = task;
	lease->next = task ? task->job->arg1 : 0;
	lease->quiesce = (struct volume_quiesce){.peer = peer,
		.volume = volume,
		.quiesced = task ? give_quiesced : release_quiesced,
		.job = task ? task->job : NULL,
		.reads = task != NULL};
	volume_quiesce_begin(&lease->quiesce);
	return true;
}

static void give(struct volume_task *task, int error)
{
	struct peer *peer = task->step.peer;
	struct volume *volume = error == 0 ? volume_table_lookup(peer, task->id) : NULL;
	if (error == 0 && !volume)
		error = -ENOENT;
	if (error == 0 && !give_back(peer, volume, task))
		error = -ENOMEM;
	if (error != 0)
		volume_task_end(task, error, 0, 0);
}

void volume_lease_give(struct volume_task *task, struct volume *volume)
{
	if (task->job->arg1 == 0)
		volume_task_end(task, -EINVAL, 0, 0);
	else if (volume->acquired)
		give(task, 0);
	else { /* a composer that was started anew: what its predecessor has left is published */
		task->found = give;
		volume_lease_want(task, false);
	}
}

static void keep(struct volume_task *task, int error)
{
	struct peer *peer = task->step.peer;
	struct volume *volume = error == 0 ? volume_table_lookup(peer, task->id) : NULL;
	if (error == 0 && !volume)
		error = -ENOENT;
	if (error == 0) {
		pthread_mutex_lock(&volume_shared(peer)->lock);
		/* requests that come by the same way are of those it is kept for */
		volume_open_unnotice(volume, task->job->client % XSEG_LANES_MAX);
		volume->kept_ns = peer_now_ns(peer) + task->job->arg1;
		pthread_mutex_unlock(&volume_shared(peer)->lock);
	}
	volume_task_end(task, error, 0, 0);
}

/* It may be ours, and being given back at this moment. */
static bool is_ours_to_stay(struct peer *peer, const struct volume *volume)
{
	pthread_mutex_lock(&volume_shared(peer)->lock);
	bool ours = volume->acquired && !volume->quiesce;
	pthread_mutex_unlock(&volume_shared(peer)->lock);
	return ours;
}

void volume_lease_keep(struct volume_task *task, struct volume *volume)
{
	if (task->job->arg1 > MAP_KEEP_MAX_NS || volume->read_only) {
		volume_task_end(task, volume->read_only ? -EROFS : -EINVAL, 0, 0);
	} else if (is_ours_to_stay(task->step.peer, volume)) {
		keep(task, 0);
	} else {
		task->found = keep;
		volume_lease_want(task, false);
	}
}

static bool is_kept(const struct peer *peer, const struct volume *volume)
{
	return !peer->stopping && (volume->keep || volume->kept_ns > peer_now_ns(peer));
}

void volume_lease_release(struct peer *peer, struct volume *volume)
{
	if (!is_kept(peer, volume))	       /* else volume_lease_poll() sees when it is over */
		give_back(peer, volume, NULL); /* the same, if it cannot be now */
}

/* Of those that the dead had open one at a time: the next look finds the next. */
static struct volume *find_unused(struct peer *peer)
{
	struct volume_shared *shared = volume_shared(peer);
	struct volume *volume;
	uint64_t now = peer_now_ns(peer);
	pthread_mutex_lock(&shared->lock);
	LIST_FOREACH (volume, &shared->acquired, lease)
		if (!volume->quiesce && volume->release_ns <= now && !is_kept(peer, volume) &&
			volume_open_is_unused(peer, volume))
			break;
	uint64_t id = volume ? volume->id : 0;
	pthread_mutex_unlock(&shared->lock);
	return volume_table_lookup(peer, id);
}

bool volume_lease_waits(struct peer *peer) { return find_unused(peer) != NULL; }

bool volume_lease_poll(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	if (likely(peer->shard != 0 || peer_now_ns(peer) < shard->look_ns))
		return false;
	struct volume *volume = find_unused(peer);
	shard->look_ns = peer_now_ns(peer) + (volume ? 0 : LOOK_NS);
	if (volume)
		volume_lease_release(peer, volume);
	return volume != NULL;
}
