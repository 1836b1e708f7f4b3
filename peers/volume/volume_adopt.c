/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a predecessor has recorded and not published, of volumes that nobody asks for: each is
 * acquired, which publishes it, and then given back as one that nobody has open (volume_lease.c).
 */
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume_intent_priv.h"

struct adopt {
	struct volume_task task; /* first; of no job */
	uint64_t *ids;
	uint32_t count, next;
};

static void adopt_next(struct adopt *adopt);

static struct adopt *adopt_of(struct volume_task *task) { return (struct adopt *)task; }

static void adopted(struct volume_task *task, int error)
{
	struct adopt *adopt = adopt_of(task);
	crash_point("volume.adopt.published");
	if (error == -ENOENT) /* removed meanwhile */
		volume_intent_forget(task->step.peer, task->id);
	else if (error != 0 && error != -EBUSY) /* that one does it for a question of his own */
		log_warning("volume",
			"%s: updates of the map of volume %016llx are published later: %s",
			task->step.peer->name, (unsigned long long)task->id, strerror(-error));
	adopt_next(adopt);
}

static void loaded(struct volume_task *task, int error)
{
	struct peer *peer = task->step.peer;
	if (error == 0 && volume_intent_any(peer, task->id)) {
		task->found = adopted;
		volume_lease_want(task, false);
	} else {
		adopted(task, error);
	}
}

static void adopt_on(struct volume_step *step)
{
	struct adopt *adopt = (struct adopt *)step;
	adopt->task.id = adopt->ids[adopt->next++];
	volume_task_find(&adopt->task, loaded);
}

static void adopt_next(struct adopt *adopt)
{
	if (adopt->next < adopt->count) {
		volume_step_later(&adopt->task.step, adopt_on);
		return;
	}
	atomic_fetch_sub(&volume_shared(adopt->task.step.peer)->busy, 1);
	free(adopt->ids);
	free(adopt);
}

/* Those that there are intents about. */
static void find_ids(struct intents *intents, struct adopt *adopt)
{
	const struct intent_volume *of;
	uint32_t room = atomic_load_explicit(&intents->count, memory_order_relaxed);
	adopt->ids = calloc(room > 0 ? room : 1, sizeof(*adopt->ids));
	if (!adopt->ids)
		return;
	pthread_mutex_lock(&intents->lock);
	for (unsigned i = 0; i < INTENTS_VOLUMES; i++)
		LIST_FOREACH (of, &intents->volumes[i], link)
			if (adopt->count < room)
				adopt->ids[adopt->count++] = of->id;
	pthread_mutex_unlock(&intents->lock);
}

bool volume_adopt_poll(struct peer *peer)
{
	struct volume_shared *shared = volume_shared(peer);
	struct volume_shard *shard = peer->state;
	if (likely(shard->adopted || peer->shard != 0))
		return false;
	shard->adopted = true;
	struct adopt *adopt = calloc(1, sizeof(*adopt));
	if (!adopt)
		return false;
	atomic_fetch_add(&shared->busy, 1);
	adopt->task.step.peer = peer;
	find_ids(shared->intents, adopt);
	adopt_next(adopt);
	return true;
}
