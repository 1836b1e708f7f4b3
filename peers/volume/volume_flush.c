/* SPDX-License-Identifier: Apache-2.0 */
#include "peers/volume/volume_flush.h"

#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume.h"

static struct volume_flush *flush_of(struct volume_tell *tell)
{
	return (struct volume_flush *)tell;
}

static void told(struct volume_tell *tell, int error)
{
	struct volume_flush *flush = flush_of(tell);
	flush->done(flush, error);
}

static void store_flushed(struct call *call)
{
	struct volume_flush *flush = call->context;
	int rc = call->result;
	call_end(call);
	crash_point("volume.flush.stored");
	if (rc != 0) {
		volume_tell_drop(&flush->tell);
		flush->done(flush, rc);
	} else if (flush->tell.count > 0) {
		volume_tell_send(&flush->tell);
	} else {
		flush->done(flush, 0);
	}
}

static void store_flush(struct volume_step *step)
{
	struct volume_flush *flush = (struct volume_flush *)step;
	struct call *call = volume_step_call(step, store_flush, XSEG_OP_FLUSH,
		(struct xseg_key){.volume = flush->tell.volume}, 0);
	if (call)
		call_submit(call, VOLUME_STORE, store_flushed);
}

static void gathered(struct volume_tell *tell) { store_flush(&tell->step); }

void volume_flush_begin(struct volume_flush *flush, struct peer *peer, uint64_t volume,
	void (*done)(struct volume_flush *flush, int error))
{
	flush->tell = (struct volume_tell){
		.step.peer = peer, .gathered = gathered, .done = told, .volume = volume};
	flush->done = done;
	volume_tell_begin(&flush->tell);
}

/* --- a job's ------------------------------------------------------------------------------ */

struct job_flush {
	struct volume_flush flush; /* first */
	struct job *job;
	uint32_t length;
};

static void job_flushed(struct volume_flush *flush, int error)
{
	struct job_flush *work = (struct job_flush *)flush;
	if (error != 0) /* it is another's by now, or gone: for a front that is a broken disk */
		job_fail(work->job, error == -ESTALE || error == -ENOENT ? -EIO : error);
	else
		job_complete(work->job, work->length);
	free(work);
}

void volume_flush_then(struct peer *peer, struct job *job, uint32_t length)
{
	struct job_flush *work = calloc(1, sizeof(*work));
	if (!work) {
		job_fail(job, -ENOMEM);
		return;
	}
	work->job = job;
	work->length = length;
	volume_flush_begin(&work->flush, peer, job->key.volume, job_flushed);
}

/*
 * The store's flush is per volume, so one goes down as it is when there is nothing to tell. Whoever
 * asks is not noted as somebody who has the volume open: on several lanes it is asked by our own,
 * part by part.
 */
void volume_io_flush(struct peer *peer, struct job *job)
{
	if (job->key.volume == 0) {
		job_fail(job, -EINVAL);
		return;
	}
	struct volume *volume = volume_find(peer, job->key.volume);
	if (!volume) {
		volume_load_job(peer, job);
		return;
	}
	if (volume_is_lost(volume) || volume_is_over(volume, job)) {
		job_fail(job, -EIO);
		return;
	}
	if (job->arg1 != 0 && atomic_load_explicit(&volume->line, memory_order_relaxed) == 0) {
		volume_lease_job(peer, volume, job); /* is what it has written still there? */
		return;
	}
	if (volume_note_any(peer, job->key.volume)) {
		volume_flush_then(peer, job, 0);
		return;
	}
	job->key.epoch = 0;
	job->key.object = 0;
	job->offset = 0;
	job->length = 0;
	peer_count(peer, VOLUME_FORWARDED, 1);
	job_forward(job, VOLUME_STORE);
}

/* --- in the background -------------------------------------------------------------------- */

static void background_done(struct volume_flush *flush, int error)
{
	struct volume_shard *shard = flush->tell.step.peer->state;
	if (error != 0)
		log_warning("volume",
			"%s: what was noted about volume %016llx could not be told: %s",
			flush->tell.step.peer->name, (unsigned long long)flush->tell.volume,
			strerror(-error));
	shard->background_until_ns =
		peer_now_ns(flush->tell.step.peer) + (error != 0 ? 1000000000u : 0);
	shard->background = NULL;
	free(flush);
}

void volume_flush_poll(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	if (likely(shard->background || peer->shard != 0))
		return;
	uint64_t volume = volume_note_crowded(peer);
	if (likely(volume == 0) || peer_now_ns(peer) < shard->background_until_ns)
		return;
	shard->background = calloc(1, sizeof(*shard->background));
	if (shard->background)
		volume_flush_begin(shard->background, peer, volume, background_done);
}
