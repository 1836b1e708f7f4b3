/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A volume changes hands. Those that write to it must leave first, which may take as long as one of
 * them is stopped: nothing else waits for that, neither a lock, nor a worker, nor an operation.
 */
#include <base/clock.h>
#include <base/log.h>
#include <stdlib.h>

#include "peers/blocker/file/file.h"

#define ROOM "blocker_file"
#define WAIT_NS 10000000000u
#define PAUSE_NS 1000000u

struct file_handover {
	struct worker_item work; /* first */
	struct file_shard *shard;
	struct job *job;
	struct file_fence_claim claim;
	uint64_t until_ns;
	int result;
	TAILQ_ENTRY(file_handover) link; /* of those that wait */
};

static void handover_end(struct file_handover *handover, int error)
{
	struct job *job = handover->job;
	handover->shard->handovers--;
	free(handover);
	if (error)
		job_fail(job, error);
	else
		job_complete(job, 0);
}

static struct file_store *store_of(const struct file_handover *handover)
{
	return &handover->shard->shared->store;
}

static void claim_run(struct worker_item *item)
{
	struct file_handover *handover = (struct file_handover *)item;
	struct file_store *store = store_of(handover);
	int error = file_fence_claim(store, &handover->claim);
	if (error == FILE_FENCE_WAITS && file_crowd_is_past(store, &handover->claim.past))
		error = file_fence_take(store, &handover->claim);
	handover->result = error;
}

static void take_run(struct worker_item *item)
{
	struct file_handover *handover = (struct file_handover *)item;
	handover->result = file_fence_take(store_of(handover), &handover->claim);
}

static void take_done(struct worker_item *item)
{
	struct file_handover *handover = (struct file_handover *)item;
	handover_end(handover, handover->result);
}

static void claim_done(struct worker_item *item)
{
	struct file_handover *handover = (struct file_handover *)item;
	if (handover->result != FILE_FENCE_WAITS) {
		take_done(item);
		return;
	}
	handover->until_ns = peer_now_ns(handover->shard->peer) + WAIT_NS;
	TAILQ_INSERT_TAIL(&handover->shard->waits, handover, link);
}

static void give_up(struct file_handover *handover)
{
	struct file_store *store = store_of(handover);
	log_error(ROOM,
		"volume %016llx is not taken away from process %llu: it has had writes under way "
		"for %u s; end it, if it hangs",
		(unsigned long long)handover->claim.volume,
		(unsigned long long)file_crowd_who(store, &handover->claim.past),
		(unsigned)(WAIT_NS / 1000000000u));
	handover_end(handover, -ETIMEDOUT);
}

void file_handover_take(struct file_shard *shard, struct job *job)
{
	struct file_handover *handover = calloc(1, sizeof(*handover));
	if (!handover) {
		job_fail(job, -ENOMEM);
		return;
	}
	handover->shard = shard;
	handover->job = job;
	handover->claim = (struct file_fence_claim){.volume = job->key.volume,
		.term = job->arg1,
		.line = job->offset,
		.nobody = job->flags & XSEG_F_READ_ONLY};
	shard->handovers++;
	worker_run(shard->peer, &handover->work, claim_run, claim_done);
}

bool file_handover_poll(struct file_shard *shard)
{
	uint64_t now_ns = peer_now_ns(shard->peer);
	bool moved = false;
	if (likely(TAILQ_EMPTY(&shard->waits)) || now_ns < shard->look_ns)
		return false;
	for (struct file_handover *handover = TAILQ_FIRST(&shard->waits), *next; handover;
		handover = next) {
		next = TAILQ_NEXT(handover, link);
		bool past = file_crowd_is_past(store_of(handover), &handover->claim.past);
		if (!past && now_ns < handover->until_ns)
			continue;
		TAILQ_REMOVE(&shard->waits, handover, link);
		moved = true;
		if (past)
			worker_run(shard->peer, &handover->work, take_run, take_done);
		else
			give_up(handover);
	}
	shard->look_ns = now_ns + PAUSE_NS;
	return moved;
}

void file_handover_sleep(struct file_shard *shard)
{
	if (!TAILQ_EMPTY(&shard->waits))
		peer_wake_at(shard->peer, shard->look_ns);
}
