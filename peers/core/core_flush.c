/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flush is for a whole port. Where it has several lanes, the shard that got it asks each of them,
 * itself too, and answers when all have.
 */
#include <errno.h>

#include "peers/core/core.h"

static void flush_ended(struct job *job, int error)
{
	if (error)
		job_fail(job, error);
	else
		job_complete(job, 0);
}

/* Asks the shards from `arg0` on; false: no slot, again later. */
static bool flush_ask(struct peer *peer, void *context)
{
	struct job *job = context;
	for (; job->arg0 < peer->shards; job->arg0++) {
		struct call *call;
		if (call_begin_reserved(peer, &call))
			return false;
		call->op = XSEG_OP_FLUSH;
		call->flags = job->flags;
		call->key = job->key;
		call->shard = (unsigned)job->arg0;
		call_submit_port(call, peer->port, job, NULL);
	}
	job_fan_ready(job);
	return true;
}

void flush_arrive(struct shard *shard, struct job *job)
{
	job_fan(job, flush_ended);
	job->arg0 = 0; /* a flush has no arguments; the role never sees this job */
	if (!flush_ask(&shard->peer, job))
		peer_retry(&shard->peer, flush_ask, job);
}
