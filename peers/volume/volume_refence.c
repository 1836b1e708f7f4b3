/* SPDX-License-Identifier: Apache-2.0 */
/* A cache has come into the store edge: it hears the term of each volume that is ours. */
#include <base/crash.h>
#include <errno.h>
#include <stdlib.h>

#include "peers/volume/volume_control.h"

struct refence {
	struct volume_step step; /* first */
	struct job *job;
	size_t next, count;
	uint64_t ids[];
};

static void refence_end(struct refence *refence, int error)
{
	struct job *job = refence->job;
	free(refence);
	if (error != 0)
		job_fail(job, error);
	else
		job_complete(job, 0);
}

/* False: it is not ours any more. */
static bool term_of(struct peer *peer, uint64_t id, uint64_t *term, uint64_t *line)
{
	struct volume_shared *shared = volume_shared(peer);
	pthread_mutex_lock(&shared->lock);
	const struct volume *volume = volume_table_find(shared, id);
	bool leased = volume && volume->acquired && !volume_is_lost(volume);
	if (leased) {
		*term = volume->term;
		*line = atomic_load(&volume->line);
	}
	pthread_mutex_unlock(&shared->lock);
	return leased;
}

static void refence_next(struct volume_step *step);

/* -ESTALE: meanwhile it was acquired anew, and the cache was told then, or it is another's. */
static void refence_answered(struct call *call)
{
	struct refence *refence = call->context;
	int rc = call->result;
	call_end(call);
	crash_point("volume.refence.answered");
	if (rc != 0 && rc != -ESTALE && rc != -EOPNOTSUPP) {
		refence_end(refence, rc);
		return;
	}
	refence->next++;
	refence_next(&refence->step);
}

static void refence_next(struct volume_step *step)
{
	struct refence *refence = (struct refence *)step;
	uint64_t term = 0, line = 0;
	while (refence->next < refence->count &&
		!term_of(step->peer, refence->ids[refence->next], &term, &line))
		refence->next++;
	if (refence->next == refence->count) {
		refence_end(refence, 0);
		return;
	}
	struct call *call = volume_step_call(step, refence_next, XSEG_OP_CONTROL,
		(struct xseg_key){.volume = refence->ids[refence->next]}, 0);
	if (!call)
		return;
	call->arg0 = XSEG_CONTROL_FENCE;
	call->arg1 = term;
	call->offset = line;
	call_submit(call, VOLUME_STORE, refence_answered);
}

static struct refence *refence_make(struct peer *peer)
{
	struct volume_shared *shared = volume_shared(peer);
	struct refence *refence;
	struct volume *volume;
	size_t count = 0;
	pthread_mutex_lock(&shared->lock);
	LIST_FOREACH (volume, &shared->acquired, lease)
		count++;
	refence = calloc(1, sizeof(*refence) + count * sizeof(refence->ids[0]));
	if (refence)
		LIST_FOREACH (volume, &shared->acquired, lease)
			refence->ids[refence->count++] = volume->id;
	pthread_mutex_unlock(&shared->lock);
	return refence;
}

void volume_refence(struct peer *peer, struct job *job)
{
	struct refence *refence = refence_make(peer);
	if (!refence) {
		job_fail(job, -ENOMEM);
		return;
	}
	refence->step.peer = peer;
	refence->job = job;
	refence_next(&refence->step);
}
