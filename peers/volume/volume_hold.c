/* SPDX-License-Identifier: Apache-2.0 */
/* Writes of a volume wait while something is done to it that must not meet them. */
#include "peers/volume/volume_hold.h"

#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <xseg/request.h>

#define LOOK_NS 200000u /* between two looks at the request table */

/* --- all shards, one after the other ------------------------------------------------- */

static void tour_send(struct volume_tour *tour, unsigned shard)
{
	struct volume_shared *shared = volume_shared(tour->peer);
	struct peer *peer = tour->peer;
	pthread_mutex_lock(&shared->lock);
	TAILQ_INSERT_TAIL(&shared->tours[shard], tour, link);
	atomic_fetch_add_explicit(&shared->tour_count[shard], 1, memory_order_release);
	pthread_mutex_unlock(&shared->lock);
	peer_wake(peer, shard);
}

void volume_tour_begin(struct volume_tour *tour)
{
	atomic_fetch_add(&volume_shared(tour->peer)->busy, 1);
	tour->error = 0;
	tour->left = tour->peer->shards;
	tour_send(tour, 0);
}

void volume_tour_next(struct volume_tour *tour, struct peer *peer, int error)
{
	unsigned shards = peer->shards;
	if (error != 0 && tour->error == 0)
		tour->error = error;
	tour->left--;
	tour_send(tour, tour->left > 0 ? shards - tour->left : tour->peer->shard);
}

static bool tour_poll(struct peer *peer)
{
	struct volume_shared *shared = volume_shared(peer);
	bool moved = false;
	while (atomic_load_explicit(&shared->tour_count[peer->shard], memory_order_acquire) > 0) {
		pthread_mutex_lock(&shared->lock);
		struct volume_tour *tour = TAILQ_FIRST(&shared->tours[peer->shard]);
		TAILQ_REMOVE(&shared->tours[peer->shard], tour, link);
		atomic_fetch_sub_explicit(
			&shared->tour_count[peer->shard], 1, memory_order_relaxed);
		pthread_mutex_unlock(&shared->lock);
		moved = true;
		if (tour->left > 0) {
			tour->run(tour, peer);
			continue;
		}
		atomic_fetch_sub(&shared->busy, 1);
		tour->done(tour, tour->error);
	}
	return moved;
}

/* --- what is on its way ---------------------------------------------------------------- */

static bool is_kept_back(const struct volume_hold *hold, unsigned op)
{
	switch (op) {
	case XSEG_OP_WRITE:
	case XSEG_OP_ZERO:
	case XSEG_OP_DISCARD: return true;
	case XSEG_OP_READ:
	case XSEG_OP_PREFETCH:
	case XSEG_OP_STATUS: return hold->reads;
	default: return false;
	}
}

static bool is_aside(const struct volume_shared *shared, uint32_t slot)
{
	uint64_t word = atomic_load_explicit(&shared->aside[slot / 64], memory_order_acquire);
	return word >> (slot % 64) & 1;
}

/* Did it come through our port for this volume? What lies in a slot may change under our eyes: then
   its word has changed as well, and we look again later. */
static bool is_on_its_way(const struct volume_hold *hold, uint32_t slot)
{
	const struct peer *peer = hold->peer;
	const struct xseg_request *request = &peer_segment(peer)->requests[slot];
	uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
	unsigned state = xseg_word_state(word), last = xseg_word_frame(word);
	if ((state != XSEG_REQUEST_SUBMITTED && state != XSEG_REQUEST_TAKEN) || last >= XSEG_FRAMES)
		return false;
	for (unsigned i = 0; i <= last; i++) {
		const volatile struct xseg_frame *frame = &request->frame[i];
		if (frame->port != peer->port || frame->key.volume != hold->volume->id ||
			!is_kept_back(hold, frame->op))
			continue;
		if (i < last)
			return true;
		/* not taken yet: it meets us; taken: a handler is at it, unless it waits here */
		return state == XSEG_REQUEST_TAKEN && !is_aside(hold->peer->shared, slot);
	}
	return atomic_load_explicit(&request->word, memory_order_acquire) != word;
}

static bool is_quiet(const struct volume_hold *hold)
{
	const struct xseg *seg = peer_segment(hold->peer);
	struct volume_shared *shared = volume_shared(hold->peer);
	pthread_mutex_lock(&shared->lock);
	bool makes = hold->volume->makers > 0;
	pthread_mutex_unlock(&shared->lock);
	if (makes)
		return false;
	for (uint32_t slot = 0; slot < seg->request_count; slot++)
		if ((!hold->job || hold->job->slot != slot) && is_on_its_way(hold, slot))
			return false;
	return true;
}

/* --- a hold -------------------------------------------------------------------------------- */

static void hold_turn(struct volume_tour *tour, struct peer *peer)
{
	volume_tour_next(tour, peer, 0);
}

/* Nobody can have missed it any more; what went before is looked for from now on. */
static void hold_toured(struct volume_tour *tour, int error)
{
	struct volume_hold *hold =
		(struct volume_hold *)((char *)tour - offsetof(struct volume_hold, tour));
	(void)error;
	crash_point("volume.hold.toured");
	hold->toured = true;
	hold->next_ns = 0;
}

void volume_hold_begin(struct volume_hold *hold)
{
	struct volume_shared *shared = volume_shared(hold->peer);
	struct volume_shard *shard = hold->peer->state;
	struct volume *volume = hold->volume;
	pthread_mutex_lock(&shared->lock);
	bool busy = volume->hold;
	if (!busy) {
		volume->hold = hold;
		atomic_store_explicit(&volume->admitted, 0, memory_order_relaxed);
	}
	pthread_mutex_unlock(&shared->lock);
	if (busy) {
		hold->held(hold, -EBUSY);
		return;
	}
	hold->since_ns = peer_now_ns(hold->peer);
	hold->toured = false;
	hold->tour =
		(struct volume_tour){.peer = hold->peer, .run = hold_turn, .done = hold_toured};
	TAILQ_INSERT_TAIL(&shard->holds, hold, link);
	volume_tour_begin(&hold->tour);
}

void volume_hold_release(struct volume_hold *hold)
{
	struct peer *peer = hold->peer;
	struct volume_shared *shared = volume_shared(peer);
	pthread_mutex_lock(&shared->lock);
	must(hold->volume->hold == hold);
	hold->volume->hold = NULL;
	pthread_mutex_unlock(&shared->lock);
	atomic_fetch_add(&shared->releases, 1);
	for (unsigned i = 0; i < peer->shards; i++)
		peer_wake(peer, i);
}

/* True: it has ended one way or the other. */
static bool hold_look(struct volume_hold *hold, uint64_t now)
{
	struct volume_shard *shard = hold->peer->state;
	if (!hold->toured || now < hold->next_ns)
		return false;
	bool quiet = is_quiet(hold);
	hold->next_ns = now + LOOK_NS;
	if (!quiet && now - hold->since_ns < VOLUME_HOLD_MS * 1000000ull)
		return false;
	TAILQ_REMOVE(&shard->holds, hold, link);
	crash_point("volume.hold.held");
	if (!quiet) {
		log_warning("volume", "%s: writes to '%s' did not end within %u s",
			hold->peer->name, hold->volume->head.name, VOLUME_HOLD_MS / 1000);
		volume_hold_release(hold);
	}
	hold->held(hold, quiet ? 0 : -ETIMEDOUT);
	return true;
}

/* --- jobs that met one -------------------------------------------------------------------------
   */

void volume_hold_aside(struct peer *peer, const struct job *job, bool aside)
{
	_Atomic uint64_t *word = &volume_shared(peer)->aside[job->slot / 64];
	if (aside)
		atomic_fetch_or_explicit(word, 1ull << (job->slot % 64), memory_order_release);
	else
		atomic_fetch_and_explicit(word, ~(1ull << (job->slot % 64)), memory_order_release);
}

bool volume_hold_wait(struct peer *peer, struct volume *volume, struct job *job)
{
	struct volume_shared *shared = volume_shared(peer);
	struct volume_shard *shard = peer->state;
	pthread_mutex_lock(&shared->lock);
	bool held = volume->hold;
	if (held)
		volume_hold_aside(peer, job, true);
	pthread_mutex_unlock(&shared->lock);
	if (held) {
		TAILQ_INSERT_TAIL(&shard->held, job, link);
		peer_count(peer, VOLUME_HELD, 1);
	}
	return held;
}

bool volume_hold_enter(struct peer *peer, struct volume *volume)
{
	struct volume_shared *shared = volume_shared(peer);
	pthread_mutex_lock(&shared->lock);
	bool held = volume->hold;
	volume->makers += !held;
	pthread_mutex_unlock(&shared->lock);
	return !held;
}

void volume_hold_leave(struct peer *peer, struct volume *volume)
{
	struct volume_shared *shared = volume_shared(peer);
	pthread_mutex_lock(&shared->lock);
	must(volume->makers > 0);
	volume->makers--;
	pthread_mutex_unlock(&shared->lock);
}

static bool held_again(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	struct volume_shared *shared = volume_shared(peer);
	uint32_t releases = atomic_load_explicit(&shared->releases, memory_order_acquire);
	struct job_queue jobs = TAILQ_HEAD_INITIALIZER(jobs);
	struct job *job;
	if (likely(releases == shard->releases_seen))
		return false;
	shard->releases_seen = releases;
	TAILQ_CONCAT(&jobs, &shard->held, link);
	while ((job = TAILQ_FIRST(&jobs))) {
		TAILQ_REMOVE(&jobs, job, link);
		volume_hold_aside(peer, job, false);
		peer->ops->on[job->op](peer, job);
	}
	return true;
}

bool volume_hold_poll(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	bool moved = tour_poll(peer);
	moved |= held_again(peer);
	struct volume_hold *hold = TAILQ_FIRST(&shard->holds);
	while (unlikely(hold)) {
		struct volume_hold *next = TAILQ_NEXT(hold, link);
		moved |= hold_look(hold, peer_now_ns(peer));
		hold = next;
	}
	return moved;
}

uint64_t volume_hold_due(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	const struct volume_hold *hold;
	uint64_t due = UINT64_MAX;
	TAILQ_FOREACH (hold, &shard->holds, link)
		if (hold->toured && hold->next_ns < due)
			due = hold->next_ns;
	return due;
}

int volume_hold_open(struct peer *first)
{
	uint32_t words = (peer_segment(first)->request_count + 63) / 64;
	struct volume_shared *shared = volume_shared(first);
	shared->aside = calloc(words, sizeof(*shared->aside));
	return shared->aside ? 0 : -ENOMEM;
}

void volume_hold_close(struct peer *first) { free((void *)(uintptr_t)volume_shared(first)->aside); }
