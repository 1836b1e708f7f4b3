/* SPDX-License-Identifier: Apache-2.0 */
/* Writes of a volume wait while something is done to it that must not meet them. */
#include "peers/volume/volume_quiesce.h"

#include <base/container.h>
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <xseg/request.h>

#define LOOK_NS 200000u /* between two looks at the request table */

/* --- all shards, one after the other ------------------------------------------------- */

static void barrier_send(struct volume_barrier *barrier, unsigned shard)
{
	struct volume_shared *shared = volume_shared(barrier->peer);
	struct peer *peer = barrier->peer;
	pthread_mutex_lock(&shared->lock);
	TAILQ_INSERT_TAIL(&shared->barriers[shard], barrier, link);
	atomic_fetch_add_explicit(&shared->barrier_count[shard], 1, memory_order_release);
	pthread_mutex_unlock(&shared->lock);
	peer_wake(peer, shard);
}

void volume_quiesce_barrier_begin(struct volume_barrier *barrier)
{
	atomic_fetch_add(&volume_shared(barrier->peer)->busy, 1);
	barrier->error = 0;
	barrier->left = barrier->peer->shards;
	barrier_send(barrier, 0);
}

void volume_quiesce_barrier_next(struct volume_barrier *barrier, struct peer *peer, int error)
{
	unsigned shards = peer->shards;
	if (error != 0 && barrier->error == 0)
		barrier->error = error;
	barrier->left--;
	barrier_send(barrier, barrier->left > 0 ? shards - barrier->left : barrier->peer->shard);
}

static bool barrier_poll(struct peer *peer)
{
	struct volume_shared *shared = volume_shared(peer);
	bool moved = false;
	while (atomic_load_explicit(&shared->barrier_count[peer->shard], memory_order_acquire) >
		0) {
		pthread_mutex_lock(&shared->lock);
		struct volume_barrier *barrier = TAILQ_FIRST(&shared->barriers[peer->shard]);
		TAILQ_REMOVE(&shared->barriers[peer->shard], barrier, link);
		atomic_fetch_sub_explicit(
			&shared->barrier_count[peer->shard], 1, memory_order_relaxed);
		pthread_mutex_unlock(&shared->lock);
		moved = true;
		if (barrier->left > 0) {
			barrier->run(barrier, peer);
			continue;
		}
		atomic_fetch_sub(&shared->busy, 1);
		barrier->done(barrier, barrier->error);
	}
	return moved;
}

/* --- what is on its way ---------------------------------------------------------------- */

static bool is_kept_back(const struct volume_quiesce *quiesce, unsigned op)
{
	switch (op) {
	case XSEG_OP_WRITE:
	case XSEG_OP_ZERO:
	case XSEG_OP_DISCARD: return true;
	case XSEG_OP_READ:
	case XSEG_OP_PREFETCH:
	case XSEG_OP_STATUS: return quiesce->reads;
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
static bool is_on_its_way(const struct volume_quiesce *quiesce, uint32_t slot)
{
	const struct peer *peer = quiesce->peer;
	const struct xseg_request *request = &peer_segment(peer)->requests[slot];
	uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
	unsigned state = xseg_word_state(word), last = xseg_word_frame(word);
	if ((state != XSEG_REQUEST_SUBMITTED && state != XSEG_REQUEST_TAKEN) || last >= XSEG_FRAMES)
		return false;
	for (unsigned i = 0; i <= last; i++) {
		const volatile struct xseg_frame *frame = &request->frame[i];
		if (frame->port != peer->port || frame->key.volume != quiesce->volume->id ||
			!is_kept_back(quiesce, frame->op))
			continue;
		if (i < last)
			return true;
		/* not taken yet: it meets us; taken: a handler is at it, unless it waits here */
		return state == XSEG_REQUEST_TAKEN && !is_aside(quiesce->peer->shared, slot);
	}
	return atomic_load_explicit(&request->word, memory_order_acquire) != word;
}

static bool is_quiet(const struct volume_quiesce *quiesce)
{
	const struct xseg *seg = peer_segment(quiesce->peer);
	struct volume_shared *shared = volume_shared(quiesce->peer);
	pthread_mutex_lock(&shared->lock);
	bool makes = quiesce->volume->makers > 0;
	pthread_mutex_unlock(&shared->lock);
	if (makes)
		return false;
	for (uint32_t slot = 0; slot < seg->request_count; slot++)
		if ((!quiesce->job || quiesce->job->slot != slot) && is_on_its_way(quiesce, slot))
			return false;
	return true;
}

/* --- a quiesce -------------------------------------------------------------------------------- */

static void quiesce_turn(struct volume_barrier *barrier, struct peer *peer)
{
	volume_quiesce_barrier_next(barrier, peer, 0);
}

/* Nobody can have missed it any more; what went before is looked for from now on. */
static void quiesce_passed(struct volume_barrier *barrier, int error)
{
	struct volume_quiesce *quiesce = container_of(barrier, struct volume_quiesce, barrier);
	(void)error;
	crash_point("volume.quiesce.passed");
	quiesce->passed = true;
	quiesce->next_ns = 0;
}

void volume_quiesce_begin(struct volume_quiesce *quiesce)
{
	struct volume_shared *shared = volume_shared(quiesce->peer);
	struct volume_shard *shard = quiesce->peer->state;
	struct volume *volume = quiesce->volume;
	pthread_mutex_lock(&shared->lock);
	bool busy = volume->quiesce;
	if (!busy) {
		volume->quiesce = quiesce;
		atomic_store_explicit(&volume->admitted, 0, memory_order_relaxed);
	}
	pthread_mutex_unlock(&shared->lock);
	if (busy) {
		quiesce->quiesced(quiesce, -EBUSY);
		return;
	}
	quiesce->since_ns = peer_now_ns(quiesce->peer);
	quiesce->passed = false;
	quiesce->barrier = (struct volume_barrier){
		.peer = quiesce->peer, .run = quiesce_turn, .done = quiesce_passed};
	TAILQ_INSERT_TAIL(&shard->quiescing, quiesce, link);
	volume_quiesce_barrier_begin(&quiesce->barrier);
}

void volume_quiesce_release(struct volume_quiesce *quiesce)
{
	struct peer *peer = quiesce->peer;
	struct volume_shared *shared = volume_shared(peer);
	pthread_mutex_lock(&shared->lock);
	must(quiesce->volume->quiesce == quiesce);
	quiesce->volume->quiesce = NULL;
	pthread_mutex_unlock(&shared->lock);
	atomic_fetch_add(&shared->releases, 1);
	for (unsigned i = 0; i < peer->shards; i++)
		peer_wake(peer, i);
}

/* True: it has ended one way or the other. */
static bool quiesce_look(struct volume_quiesce *quiesce, uint64_t now)
{
	struct volume_shard *shard = quiesce->peer->state;
	if (!quiesce->passed || now < quiesce->next_ns)
		return false;
	bool quiet = is_quiet(quiesce);
	quiesce->next_ns = now + LOOK_NS;
	if (!quiet && now - quiesce->since_ns < VOLUME_QUIESCE_MS * 1000000ull)
		return false;
	TAILQ_REMOVE(&shard->quiescing, quiesce, link);
	crash_point("volume.quiesce.done");
	if (!quiet) {
		log_warning("volume", "%s: writes to '%s' did not end within %u s",
			quiesce->peer->name, quiesce->volume->head.name, VOLUME_QUIESCE_MS / 1000);
		volume_quiesce_release(quiesce);
	}
	quiesce->quiesced(quiesce, quiet ? 0 : -ETIMEDOUT);
	return true;
}

/* --- jobs that met one ----------------------------------------------------------------------- */

void volume_quiesce_aside(struct peer *peer, const struct job *job, bool aside)
{
	_Atomic uint64_t *word = &volume_shared(peer)->aside[job->slot / 64];
	if (aside)
		atomic_fetch_or_explicit(word, 1ull << (job->slot % 64), memory_order_release);
	else
		atomic_fetch_and_explicit(word, ~(1ull << (job->slot % 64)), memory_order_release);
}

bool volume_quiesce_wait(struct peer *peer, struct volume *volume, struct job *job)
{
	struct volume_shared *shared = volume_shared(peer);
	struct volume_shard *shard = peer->state;
	pthread_mutex_lock(&shared->lock);
	bool quiesced = volume->quiesce;
	if (quiesced)
		volume_quiesce_aside(peer, job, true);
	pthread_mutex_unlock(&shared->lock);
	if (quiesced) {
		TAILQ_INSERT_TAIL(&shard->quiesced, job, link);
		peer_count(peer, VOLUME_HELD, 1);
	}
	return quiesced;
}

bool volume_quiesce_enter(struct peer *peer, struct volume *volume)
{
	struct volume_shared *shared = volume_shared(peer);
	pthread_mutex_lock(&shared->lock);
	bool quiesced = volume->quiesce;
	volume->makers += !quiesced;
	pthread_mutex_unlock(&shared->lock);
	return !quiesced;
}

void volume_quiesce_leave(struct peer *peer, struct volume *volume)
{
	struct volume_shared *shared = volume_shared(peer);
	pthread_mutex_lock(&shared->lock);
	must(volume->makers > 0);
	volume->makers--;
	pthread_mutex_unlock(&shared->lock);
}

static bool quiesced_again(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	struct volume_shared *shared = volume_shared(peer);
	uint32_t releases = atomic_load_explicit(&shared->releases, memory_order_acquire);
	struct job_queue jobs = TAILQ_HEAD_INITIALIZER(jobs);
	struct job *job;
	if (likely(releases == shard->releases_seen))
		return false;
	shard->releases_seen = releases;
	TAILQ_CONCAT(&jobs, &shard->quiesced, link);
	while ((job = TAILQ_FIRST(&jobs))) {
		TAILQ_REMOVE(&jobs, job, link);
		volume_quiesce_aside(peer, job, false);
		peer->ops->on[job->op](peer, job);
	}
	return true;
}

bool volume_quiesce_poll(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	bool moved = barrier_poll(peer);
	moved |= quiesced_again(peer);
	struct volume_quiesce *quiesce = TAILQ_FIRST(&shard->quiescing);
	while (unlikely(quiesce)) {
		struct volume_quiesce *next = TAILQ_NEXT(quiesce, link);
		moved |= quiesce_look(quiesce, peer_now_ns(peer));
		quiesce = next;
	}
	return moved;
}

uint64_t volume_quiesce_due(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	const struct volume_quiesce *quiesce;
	uint64_t due = UINT64_MAX;
	TAILQ_FOREACH (quiesce, &shard->quiescing, link)
		if (quiesce->passed && quiesce->next_ns < due)
			due = quiesce->next_ns;
	return due;
}

int volume_quiesce_open(struct peer *first)
{
	uint32_t words = (peer_segment(first)->request_count + 63) / 64;
	struct volume_shared *shared = volume_shared(first);
	shared->aside = calloc(words, sizeof(*shared->aside));
	return shared->aside ? 0 : -ENOMEM;
}

void volume_quiesce_close(struct peer *first)
{
	free((void *)(uintptr_t)volume_shared(first)->aside);
}
