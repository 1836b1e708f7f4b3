/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which composer holds what is ours. Each says now and then what it has acquired (MAP_LEASES); what
 * none of them names any more, because who had it is gone for good, is given back: it would be
 * renewed for ever.
 *
 *   acquired, or its deltas published --> held: who asked lives
 *     who asked is gone, or not known after a start of ours --> a lease's time to be named
 *       named --> held
 *       each composer that lives has had its say since --> released, by the next renewal
 *
 * A lease that was given back too early is found again: whoever publishes deltas of it has it once
 * more, unless somebody else had it in between (mapper_control_publish).
 */
#include <base/clock.h>
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/port.h>
#include <xseg/registry.h>

#include "peers/map/mapper.h"

#define LOOK_NS 500000000u /* between two looks for composers */
#define ID_BYTES ((uint32_t)sizeof(uint64_t))

static const struct xseg *segment_of(const struct mapper_shared *shared)
{
	return peer_segment(shared->first->peer);
}

/* A lane's epoch is its own as long as it waits for the answer. */
static struct mapper_holder asker_of(const struct mapper_task *task)
{
	const struct job *job = task->job;
	const struct xseg *seg = segment_of(mapper_shared(task));
	return (struct mapper_holder){.known = true,
		.lane = job->client % XSEG_LANES_MAX,
		.epoch = xseg_peek(seg->requests[job->slot].client_epoch)};
}

void mapper_holder_note(struct mapper_task *task)
{
	struct mapper_leases *leases = &mapper_shared(task)->leases;
	if (!task->job)
		return;
	struct mapper_holder asker = asker_of(task);
	pthread_mutex_lock(&leases->lock);
	struct mapper_lease *lease = mapper_lease_find(leases, task->volume);
	if (lease) {
		lease->holder = asker;
		lease->held_ns = clock_now_ns();
	}
	pthread_mutex_unlock(&leases->lock);
}

/* What is not known here may be as soon as the records have been looked through: it is named again
   before a lease's time is over. */
int mapper_holder_renew(struct mapper_task *task)
{
	struct mapper_leases *leases = &mapper_shared(task)->leases;
	const struct job *job = task->job;
	uint64_t now = clock_now_ns(), count = task->arg;
	if (count > job->data_size / ID_BYTES)
		return -EINVAL;
	uint64_t *ids = calloc(count > 0 ? count : 1, ID_BYTES);
	if (!ids)
		return -ENOMEM;
	job_get_bytes(job, 0, ids, (uint32_t)count * ID_BYTES);
	struct mapper_holder asker = asker_of(task);
	pthread_mutex_lock(&leases->lock);
	for (uint64_t i = 0; i < count; i++) {
		struct mapper_lease *lease = mapper_lease_find(leases, ids[i]);
		if (lease) {
			lease->holder = asker;
			lease->held_ns = now;
		}
	}
	leases->told[asker.lane] = (struct mapper_heard){.epoch = asker.epoch, .at_ns = now};
	pthread_mutex_unlock(&leases->lock);
	free(ids);
	task->value = leases->interval_ns;
	return 0;
}

/* --- is it still held? ---------------------------------------------------------------------- */

/* Does an edge of that peer lead to us? */
static bool is_composer(const struct mapper_shared *shared, const struct xseg_peer_view *view)
{
	const struct xseg *seg = segment_of(shared);
	char name[XSEG_EDGE_NAME_MAX];
	uint32_t edge;
	snprintf(name, sizeof(name), "%s:map", view->name);
	return xseg_edge_find(seg, name, &edge) == 0 &&
	       xseg_edge_port(seg, edge) == shared->first->peer->port;
}

/* With the mutex. When it said last what it holds; 0: it has not, or has not had the time to ask
   for what it is to take over. */
static uint64_t told_ns(const struct mapper_shared *shared, const struct xseg_peer_view *view)
{
	const struct mapper_leases *leases = &shared->leases;
	uint64_t told = 0;
	if (view->joined_ns + shared->options->lease_ns > clock_now_ns())
		return 0;
	for (unsigned lane = 0; lane < XSEG_LANES_MAX; lane++) {
		const struct mapper_heard *said = &leases->told[lane];
		if ((view->lanes >> lane & 1) && said->at_ns > told &&
			xseg_lane_alive(segment_of(shared), lane, said->epoch))
			told = said->at_ns;
	}
	return told;
}

/* With the mutex. All composers that live have said what they hold since then. */
static uint64_t all_told_ns(struct mapper_shared *shared)
{
	struct mapper_leases *leases = &shared->leases;
	struct xseg_peer_view view;
	uint64_t now = clock_now_ns();
	if (leases->all_told_look_ns > now)
		return leases->all_told_ns;
	leases->all_told_look_ns = now + LOOK_NS;
	leases->all_told_ns = now;
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++) {
		if (!xseg_peer_view(segment_of(shared), i, &view) || view.life == XSEG_LIFE_DEAD ||
			!is_composer(shared, &view))
			continue;
		uint64_t told = told_ns(shared, &view);
		if (told < leases->all_told_ns)
			leases->all_told_ns = told;
	}
	return leases->all_told_ns;
}

/* With the mutex. */
static bool is_held(struct mapper_shared *shared, const struct mapper_lease *lease)
{
	const struct mapper_holder *holder = &lease->holder;
	if (clock_now_ns() < lease->held_ns + shared->options->lease_ns)
		return true;
	if (holder->known && xseg_lane_alive(segment_of(shared), holder->lane, holder->epoch))
		return true;
	return all_told_ns(shared) <= lease->held_ns;
}

bool mapper_holder_gone(struct mapper_shared *shared, uint64_t id)
{
	struct mapper_leases *leases = &shared->leases;
	pthread_mutex_lock(&leases->lock);
	const struct mapper_lease *lease = mapper_lease_find(leases, id);
	bool gone = lease && !lease->lost && !is_held(shared, lease);
	pthread_mutex_unlock(&leases->lock);
	return gone;
}

int mapper_holder_release(struct mapper_task *task, uint64_t term)
{
	struct mapper_shared *shared = mapper_shared(task);
	int rc = map_home_release(mapper_task_store(task), task->volume, shared->owner, term);
	crash_point("mapper.holder.released");
	if (rc != 0)
		return rc;
	mapper_lease_remove(shared, task->volume);
	atomic_fetch_add(&shared->leases.left, 1);
	log_info("mapper_lease",
		"volume %016llx is given back: who had it open here is gone, and nobody has asked "
		"for it since",
		(unsigned long long)task->volume);
	return 0;
}
