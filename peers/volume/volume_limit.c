/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes that may do so much in a second and no more. */
#include "peers/volume/volume_limit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume_quiesce.h"

#define SECOND 1000000000ull
#define HOUR (3600 * SECOND)

int volume_limit_set(struct volume_limit **place, const struct map_change_limits *limits)
{
	struct volume_limit *limit = *place;
	if (limits->iops == 0 && limits->bytes == 0) {
		free(limit);
		*place = NULL;
		return 0;
	}
	if (!limit)
		limit = calloc(1, sizeof(*limit));
	if (!limit)
		return -ENOMEM;
	struct map_change_limits old = limit->limits;
	limit->limits = *limits;
	if (limits->burst_ms == 0)
		limit->limits.burst_ms = VOLUME_BURST_MS;
	if (limits->burst_ms > HOUR / 1000000u) /* and no product below is too large */
		limit->limits.burst_ms = HOUR / 1000000u;
	limit->changed |= memcmp(&old, &limit->limits, sizeof(old)) != 0;
	*place = limit;
	return 0;
}

void volume_limit_free(struct volume_limit *limit) { free(limit); }

/* One bucket: what has come since then, no more than a burst. */
static void fill(__int128 *tokens, uint64_t rate, uint64_t burst_ms, uint64_t ns, bool full)
{
	__int128 most = (__int128)rate * burst_ms * 1000000u;
	if (ns > HOUR)
		ns = HOUR;
	if (most < (__int128)SECOND)
		most = SECOND; /* one at least, or nothing would ever go */
	*tokens += (__int128)rate * ns;
	if (full || *tokens > most)
		*tokens = most;
}

static uint64_t until_positive(__int128 tokens, uint64_t rate)
{
	if (rate == 0 || tokens > 0)
		return 0;
	__int128 ns = -tokens / rate + 1;
	return ns < (__int128)HOUR ? (uint64_t)ns : HOUR;
}

bool volume_limit_take(struct volume_limit *limit, uint64_t bytes, uint64_t now, uint64_t *when)
{
	const struct map_change_limits *limits = &limit->limits;
	bool full = limit->then_ns == 0;
	bool passed = now > limit->then_ns && !full && !limit->changed;
	uint64_t ns = passed ? now - limit->then_ns : 0;
	fill(&limit->requests, limits->iops, limits->burst_ms, ns, full);
	fill(&limit->bytes, limits->bytes, limits->burst_ms, ns, full);
	if (full || limit->changed || now > limit->then_ns)
		limit->then_ns = now;
	limit->changed = false;
	uint64_t wait = until_positive(limit->requests, limits->iops);
	uint64_t wait_bytes = until_positive(limit->bytes, limits->bytes);
	if (wait_bytes > wait)
		wait = wait_bytes;
	*when = now + wait;
	if (wait > 0)
		return false;
	if (limits->iops != 0)
		limit->requests -= SECOND;
	if (limits->bytes != 0)
		limit->bytes -= (__int128)bytes * SECOND;
	return true;
}

/* --- jobs that wait ------------------------------------------------------------------ */

static char paid; /* what a job's context points to: one that is fanned out later says so anew */

bool volume_limit_paid(const struct job *job) { return job->context == &paid; }
void volume_limit_pay(struct job *job) { job->context = &paid; }

bool volume_limit_is_waited(struct peer *peer, uint64_t volume)
{
	struct volume_shard *shard = peer->state;
	const struct job *job;
	TAILQ_FOREACH (job, &shard->limited, link)
		if (job->key.volume == volume)
			return true;
	return false;
}

void volume_limit_wait(struct peer *peer, struct job *job, uint64_t when)
{
	struct volume_shard *shard = peer->state;
	if (TAILQ_EMPTY(&shard->limited) || when < shard->limited_until_ns)
		shard->limited_until_ns = when;
	volume_quiesce_aside(peer, job, true);
	TAILQ_INSERT_TAIL(&shard->limited, job, link);
}

/* Its volume may be quiesced or gone by now: its handler sees to that. */
static void let_go(struct peer *peer, struct job *job)
{
	volume_quiesce_aside(peer, job, false);
	peer->ops->on[job->op](peer, job);
}

/* True: it may go, and is counted. */
static bool may_go(struct peer *peer, const struct job *job, uint64_t now, uint64_t *when)
{
	struct volume_shared *shared = volume_shared(peer);
	struct volume *volume = volume_table_lookup(peer, job->key.volume);
	pthread_mutex_lock(&shared->lock);
	bool may = !volume || !volume->limit ||
		   volume_limit_take(volume->limit, job->length, now, when);
	pthread_mutex_unlock(&shared->lock);
	return may;
}

bool volume_limit_poll(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	uint64_t now, next = UINT64_MAX, refused = 0;
	struct job_queue go = TAILQ_HEAD_INITIALIZER(go);
	struct job *job, *behind;
	if (likely(TAILQ_EMPTY(&shard->limited)))
		return false;
	now = peer_now_ns(peer);
	if (now < shard->limited_until_ns)
		return false;
	for (job = TAILQ_FIRST(&shard->limited); job; job = behind) {
		uint64_t when = now;
		behind = TAILQ_NEXT(job, link);
		if (job->key.volume == refused)
			continue;
		if (may_go(peer, job, now, &when)) {
			TAILQ_REMOVE(&shard->limited, job, link);
			TAILQ_INSERT_TAIL(&go, job, link);
			volume_limit_pay(job);
		} else {
			refused = job->key.volume;
			next = when < next ? when : next;
		}
	}
	shard->limited_until_ns = next;
	bool moved = !TAILQ_EMPTY(&go);
	while ((job = TAILQ_FIRST(&go))) {
		TAILQ_REMOVE(&go, job, link);
		let_go(peer, job);
	}
	return moved;
}
