/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flush is for a whole port. Where it has several lanes, the shard that got it asks each of them,
 * itself too, and answers when all have: a fan. Flushes of one volume that come while its fan is
 * out share the next one; they may not join it, for it does not cover what was written meanwhile.
 *
 * A fan takes all its slots or none, and a shard has few of them: a floor that waits for slots
 * with half of a fan in its hands would keep them from the floor below.
 */
#include <errno.h>

#include "peers/core/core.h"

typedef void flush_ended_f(struct job *leader, int error);

static struct flush_fan *flush_of(struct shard *shard, const struct job *leader)
{
	for (unsigned i = 0; i < FLUSH_FANS; i++)
		if (shard->fans[i].leader == leader)
			return &shard->fans[i];
	return NULL;
}

static bool flush_out(struct shard *shard, uint64_t volume)
{
	for (unsigned i = 0; i < FLUSH_FANS; i++)
		if (shard->fans[i].leader && shard->fans[i].leader->key.volume == volume)
			return true;
	return false;
}

/* A slot for each shard, or none. The first fan may take from what fronts and servers leave. */
static int flush_calls(struct shard *shard, struct call **calls)
{
	struct peer *peer = &shard->peer;
	for (unsigned i = 0; i < peer->shards; i++) {
		int error = shard->fans_out > 1 && !retry_slot_allowed(shard)
				    ? -EAGAIN
				    : call_begin_reserved(peer, &calls[i]);
		if (error) {
			while (i > 0)
				call_end(calls[--i]);
			return error;
		}
	}
	return 0;
}

static bool flush_ask(struct peer *peer, void *context)
{
	struct job *leader = context;
	struct call *calls[HOST_LANES_MAX];
	if (flush_calls(shard_of(peer), calls))
		return false;
	for (unsigned i = 0; i < peer->shards; i++) {
		calls[i]->op = XSEG_OP_FLUSH;
		calls[i]->flags = leader->flags;
		calls[i]->key = leader->key;
		calls[i]->arg1 = leader->arg1;
		calls[i]->shard = i;
		call_submit_port(calls[i], peer->port, leader, NULL);
	}
	job_fan_ready(leader);
	return true;
}

static void flush_answer(struct job *job, int error)
{
	if (error)
		job_fail(job, error);
	else
		job_complete(job, 0);
}

/* This job and all that wait for the same volume, as one. */
static void flush_begin(struct shard *shard, struct job *leader, flush_ended_f *ended)
{
	struct flush_fan *fan = flush_of(shard, NULL);
	struct job *job, *next;
	fan->leader = leader;
	TAILQ_INIT(&fan->joined);
	TAILQ_REMOVE(&shard->flushes, leader, link);
	for (job = TAILQ_FIRST(&shard->flushes); job; job = next) {
		next = TAILQ_NEXT(job, link);
		if (job->key.volume != leader->key.volume || job->arg1 != leader->arg1 ||
			job->flags != leader->flags)
			continue;
		TAILQ_REMOVE(&shard->flushes, job, link);
		TAILQ_INSERT_TAIL(&fan->joined, job, link);
	}
	shard->fans_out++;
	job_fan(leader, ended);
	if (!flush_ask(&shard->peer, leader))
		peer_retry(&shard->peer, flush_ask, leader);
}

/* The oldest whose volume has no fan out, as long as there may be another. */
static void flush_next(struct shard *shard, flush_ended_f *ended)
{
	struct job *job = TAILQ_FIRST(&shard->flushes);
	while (job && shard->fans_out < FLUSH_FANS) {
		if (flush_out(shard, job->key.volume)) {
			job = TAILQ_NEXT(job, link);
			continue;
		}
		flush_begin(shard, job, ended);
		job = TAILQ_FIRST(&shard->flushes);
	}
}

static void flush_ended(struct job *leader, int error)
{
	struct shard *shard = shard_of(leader->peer);
	struct flush_fan *fan = flush_of(shard, leader);
	struct job *job;
	while ((job = TAILQ_FIRST(&fan->joined))) {
		TAILQ_REMOVE(&fan->joined, job, link);
		flush_answer(job, error);
	}
	fan->leader = NULL;
	shard->fans_out--;
	flush_answer(leader, error);
	flush_next(shard, flush_ended);
}

void flush_init(struct shard *shard) { TAILQ_INIT(&shard->flushes); }

void flush_arrive(struct shard *shard, struct job *job)
{
	TAILQ_INSERT_TAIL(&shard->flushes, job, link);
	flush_next(shard, flush_ended);
}
