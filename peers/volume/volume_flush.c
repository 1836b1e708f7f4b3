/* SPDX-License-Identifier: Apache-2.0 */
/* FLUSH of a volume, asked for by a client or for want of room; see volume_flush.h. */
#include "peers/volume/volume_flush.h"

#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume.h"

static struct volume_flush *flush_of(struct volume_publish *publish)
{
	return (struct volume_flush *)publish;
}

static void published(struct volume_publish *publish, int error)
{
	struct volume_flush *flush = flush_of(publish);
	flush->done(flush, error);
}

static void store_flushed(struct call *call)
{
	struct volume_flush *flush = call->context;
	int rc = call->result;
	call_end(call);
	crash_point("volume.flush.stored");
	if (rc != 0) {
		volume_publish_drop(&flush->publish);
		flush->done(flush, rc);
	} else if (flush->publish.count > 0) {
		volume_publish_send(&flush->publish);
	} else {
		flush->done(flush, 0);
	}
}

static void store_flush(struct volume_step *step)
{
	struct volume_flush *flush = (struct volume_flush *)step;
	struct call *call = volume_step_call(step, store_flush, XSEG_OP_FLUSH,
		(struct xseg_key){.volume = flush->publish.volume}, 0);
	if (!call)
		return;
	call->flags = flush->flags;
	call_submit(call, VOLUME_STORE, store_flushed);
}

static void gathered(struct volume_publish *publish) { store_flush(&publish->step); }

void volume_flush_begin(struct volume_flush *flush, struct peer *peer, uint64_t volume,
	void (*done)(struct volume_flush *flush, int error))
{
	flush->publish = (struct volume_publish){
		.step.peer = peer, .gathered = gathered, .done = published, .volume = volume};
	flush->done = done;
	volume_publish_begin(&flush->publish);
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
	work->flush.flags = job->op == XSEG_OP_FLUSH ? job->flags : 0;
	volume_flush_begin(&work->flush, peer, job->key.volume, job_flushed);
}

/*
 * The store's flush is per volume, so one goes down as it is when there is nothing to publish.
 * Whoever asks is not recorded as somebody who has the volume open: on several lanes it is asked by
 * our own, part by part.
 */
void volume_flush(struct peer *peer, struct job *job)
{
	if (job->key.volume == 0) {
		job_fail(job, -EINVAL);
		return;
	}
	struct volume *volume = volume_table_lookup(peer, job->key.volume);
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
	if (volume_intent_any(peer, job->key.volume)) {
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
	struct volume_shard *shard = flush->publish.step.peer->state;
	if (error != 0)
		log_warning("volume",
			"%s: updates of the map of volume %016llx could not be published: %s",
			flush->publish.step.peer->name, (unsigned long long)flush->publish.volume,
			strerror(-error));
	shard->background_until_ns =
		peer_now_ns(flush->publish.step.peer) + (error != 0 ? 1000000000u : 0);
	shard->background = NULL;
	free(flush);
}

void volume_flush_poll(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	if (likely(shard->background || peer->shard != 0))
		return;
	uint64_t volume = volume_intent_crowded(peer);
	if (likely(volume == 0) || peer_now_ns(peer) < shard->background_until_ns)
		return;
	shard->background = calloc(1, sizeof(*shard->background));
	if (shard->background)
		volume_flush_begin(shard->background, peer, volume, background_done);
}
