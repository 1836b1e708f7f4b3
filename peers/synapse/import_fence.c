/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which volumes this segment may write to, as far as that was said over this peer. The other end
 * tells importing segments apart by it (docs/decisions/0010). One that has not heard it, as another
 * takes the first one's place or has lost its notes, would refuse the owner or take writes of
 * whoever was the owner before: so it hears all of it before anything else is asked.
 */
#include <base/log.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "peers/synapse/import.h"

/* --- notes ------------------------------------------------------------------------------------ */

#define ROOM 64u /* more at a time */

/* Looked for one by one: each costs the other end a durable write, to which that is nothing. */
static struct import_fence *get(const struct import_shared *shared, uint64_t volume)
{
	for (uint32_t i = 0; i < shared->fences; i++)
		if (shared->fence[i].volume == volume)
			return &shared->fence[i];
	return NULL;
}

/* NULL: out of memory. */
static struct import_fence *add(struct import_shared *shared, uint64_t volume)
{
	if (shared->fences % ROOM == 0) {
		struct import_fence *more =
			realloc(shared->fence, (shared->fences + ROOM) * sizeof(*more));
		if (!more)
			return NULL;
		shared->fence = more;
	}
	shared->fence[shared->fences] = (struct import_fence){.volume = volume};
	return &shared->fence[shared->fences++];
}

/* Lanes may hear of answers in another order than they were given in. */
static void note(struct import *import, const struct job *job)
{
	struct import_shared *shared = import->peer->shared;
	struct import_fence *had = get(shared, job->key.volume);
	if (!had)
		had = add(shared, job->key.volume);
	if (!had) {
		log_warning("synapse_import",
			"%s: out of memory: whose volume %" PRIu64
			" is will not be said again to another end",
			import->peer->name, job->key.volume);
		return;
	}
	if (job->arg1 < had->term)
		return;
	if (job->offset || job->arg1 > had->term)
		had->line = job->offset;
	had->term = job->arg1;
	had->flags = job->flags & XSEG_F_READ_ONLY;
}

static void forget(struct import_shared *shared, uint64_t volume, uint64_t term)
{
	struct import_fence *had = get(shared, volume);
	if (had && had->term <= term)
		*had = shared->fence[--shared->fences];
}

/* The lowest volume from that one on; NULL: there is none. */
static const struct import_fence *from(const struct import_shared *shared, uint64_t volume)
{
	const struct import_fence *found = NULL;
	for (const struct import_fence *at = shared->fence; at < shared->fence + shared->fences;
		at++)
		if (at->volume >= volume && (!found || at->volume < found->volume))
			found = at;
	return found;
}

/* --- what is said again ----------------------------------------------------------------------- */

void import_fence_greeted(struct import *import, bool known)
{
	struct import_shared *shared = import->peer->shared;
	pthread_mutex_lock(&shared->lock);
	import->untold |= !known && shared->fences > 0;
	pthread_mutex_unlock(&shared->lock);
}

void import_fence_cut(struct import *import)
{
	memset(import->tell, 0, sizeof(import->tell));
	import->telling = 0;
	import->tell_from = 0;
}

static struct job *idle_job(struct import *import)
{
	for (unsigned i = 0; i < IMPORT_TELLS; i++)
		if (!import->tell[i].live)
			return &import->tell[i];
	return NULL;
}

struct job *import_fence_next(struct import *import)
{
	struct import_shared *shared = import->peer->shared;
	struct job *job = import->untold ? idle_job(import) : NULL;
	if (!job)
		return NULL;
	pthread_mutex_lock(&shared->lock);
	const struct import_fence *fence = from(shared, import->tell_from);
	bool more = fence != NULL;
	if (more) {
		*job = (struct job){
			.op = XSEG_OP_CONTROL,
			.flags = fence->flags,
			.key = {.volume = fence->volume},
			.offset = fence->line,
			.arg0 = XSEG_CONTROL_FENCE,
			.arg1 = fence->term,
			.live = true,
		};
		import->tell_from = fence->volume + 1;
		import->telling++;
	}
	pthread_mutex_unlock(&shared->lock);
	if (!more && import->telling == 0)
		import->untold = false;
	return more ? job : NULL;
}

bool import_fence_answered(struct import *import, struct job *job, int result)
{
	struct import_shared *shared = import->peer->shared;
	bool fence = job->op == XSEG_OP_CONTROL && job->arg0 == XSEG_CONTROL_FENCE;
	bool removal = job->op == XSEG_OP_CAS && job->arg1 == XSEG_CAS_DELETE &&
		       job->key.epoch == XSEG_EPOCH_HOME;
	if (fence || removal) {
		pthread_mutex_lock(&shared->lock);
		if (fence && result == 0)
			note(import, job);
		else if (fence && result == -ESTALE)
			forget(shared, job->key.volume, job->arg1);
		else if (removal && result == 0)
			forget(shared, job->key.volume, UINT64_MAX);
		pthread_mutex_unlock(&shared->lock);
	}
	if (!import_fence_is(job))
		return false;
	if (result && result != -ESTALE)
		log_warning("synapse_import",
			"%s: '%s' does not take that volume %" PRIu64 " is this segment's: %s",
			import->peer->name, import_options_of(import)->remote, job->key.volume,
			strerror(-result));
	job->live = false;
	import->telling--;
	return true;
}
