/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request of somebody who is not known to have its volume open, or of a volume that lets nobody
 * go on at once. In this order: it is loaded; a quiesce is waited for; who writes has it acquired;
 * a limit is kept; the client is recorded, so that his next request need not come here.
 */
#include <errno.h>

#include "peers/volume/volume_limit.h"
#include "peers/volume/volume_quiesce.h"

enum enter {
	ENTER_GOES,
	ENTER_HELD,
	ENTER_ACQUIRES,
	ENTER_LIMITED,
	ENTER_FAILS,
};

static bool is_write(const struct job *job)
{
	return job->op == XSEG_OP_WRITE || job->op == XSEG_OP_ZERO || job->op == XSEG_OP_DISCARD;
}

/* Whoever only asks about caches, for somebody else, does not have it open. */
static bool is_hint(const struct job *job)
{
	return job->op == XSEG_OP_PREFETCH ||
	       (job->op == XSEG_OP_STATUS && (job->flags & XSEG_F_FAST_ONLY));
}

static uint64_t bytes_of(const struct job *job)
{
	return job->op == XSEG_OP_READ || job->op == XSEG_OP_WRITE ? job->length : 0;
}

/* With the mutex. */
static bool may_take(struct peer *peer, struct volume *volume, const struct job *job, bool waited,
	uint64_t *when)
{
	if (!volume->limit || volume_limit_paid(job))
		return true;
	*when = peer_now_ns(peer);
	return !waited && volume_limit_take(volume->limit, bytes_of(job), *when, when);
}

/* With the mutex. */
static enum enter look(struct peer *peer, struct volume *volume, const struct job *job, bool waited,
	uint64_t *when, int *error)
{
	bool writes = is_write(job);
	*error = 0;
	if (volume_open_is_leaving(volume))
		*error = -ENOENT;
	else if (volume->quiesce && (writes || volume->quiesce->reads))
		return ENTER_HELD;
	else if (volume_is_over(volume, job) || (writes && volume_is_lost(volume)))
		*error = -EIO;
	if (*error != 0)
		return ENTER_FAILS;
	if (writes && !volume->read_only && !volume->configured && !volume->acquired)
		return ENTER_ACQUIRES;
	if (!may_take(peer, volume, job, waited, when))
		return ENTER_LIMITED;
	if (!is_hint(job))
		volume_open_admit(volume, volume_open_client(peer, job));
	return ENTER_GOES;
}

static void refuse(struct peer *peer, struct job *job, struct volume *volume, enum enter enter,
	uint64_t when, int error)
{
	switch (enter) {
	case ENTER_HELD:
		/* by now it may be over: then from the beginning */
		if (!volume_quiesce_wait(peer, volume, job))
			peer->ops->on[job->op](peer, job);
		break;
	case ENTER_ACQUIRES: volume_lease_job(peer, volume, job); break;
	case ENTER_LIMITED: volume_limit_wait(peer, job, when); break;
	case ENTER_GOES:
	case ENTER_FAILS:
	default: job_fail(job, error); break;
	}
}

struct volume *volume_enter_slow(struct peer *peer, struct job *job)
{
	struct volume_shared *shared = volume_shared(peer);
	uint64_t when = 0;
	int error;
	if (job->key.volume == 0) {
		job_fail(job, -EINVAL);
		return NULL;
	}
	struct volume *volume = volume_table_lookup(peer, job->key.volume);
	if (!volume) {
		volume_load_job(peer, job);
		return NULL;
	}
	bool waited = volume_limit_is_waited(peer, volume->id);
	pthread_mutex_lock(&shared->lock);
	enum enter enter = look(peer, volume, job, waited, &when, &error);
	pthread_mutex_unlock(&shared->lock);
	if (enter == ENTER_GOES)
		return volume;
	refuse(peer, job, volume, enter, when, error);
	return NULL;
}
