/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may have a volume open that this process has not seen opened? The fronts that were there
 * before it. They notice that somebody new serves the port, open again what they have open, and say
 * when that was all. A removal waits until each has said so, or is dead; one that says nothing is
 * stuck, and then nothing is removed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xseg/port.h>
#include <xseg/registry.h>

#include "peers/volume/volume.h"

#define FRONT_WAIT_MS 20
#define FRONT_WAITS 250u /* five seconds: sleeping fronts look about once a second */

struct wait {
	struct worker_item work; /* first */
	struct job *job;
	unsigned waits;
};

void volume_front_reopened(struct peer *peer, struct volume_client client)
{
	struct volume_shared *shared = peer->shared;
	atomic_store(&shared->reopened[client.lane], client.epoch);
}

/* Does an edge of that peer lead to us? */
static bool is_above(const struct peer *peer, const struct xseg_peer_view *view)
{
	const struct xseg *seg = peer_segment(peer);
	char name[XSEG_EDGE_NAME_MAX];
	uint32_t edge;
	snprintf(name, sizeof(name), "%s:volume", view->name);
	return xseg_edge_find(seg, name, &edge) == 0 && xseg_edge_port(seg, edge) == peer->port;
}

static bool has_reopened(const struct peer *peer, const struct xseg_peer_view *view)
{
	const struct xseg *seg = peer_segment(peer);
	struct volume_shared *shared = peer->shared;
	for (unsigned lane = 0; lane < XSEG_LANES_MAX; lane++) {
		uint16_t epoch = atomic_load(&shared->reopened[lane]);
		if ((view->lanes >> lane & 1) && !xseg_lane_alive(seg, lane, epoch))
			return false;
	}
	return true;
}

static bool all_reopened(const struct peer *peer)
{
	struct volume_shared *shared = peer->shared;
	struct xseg_peer_view view;
	if (atomic_load(&shared->all_reopened))
		return true;
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++)
		if (xseg_peer_view(peer_segment(peer), i, &view) && view.life == XSEG_LIFE_ALIVE &&
			view.pid != getpid() && view.joined_ns < shared->started_ns &&
			!strncmp(view.role, "front_", 6) && is_above(peer, &view) &&
			!has_reopened(peer, &view))
			return false;
	atomic_store(&shared->all_reopened, true);
	return true;
}

/* --- waiting ------------------------------------------------------------------------ */

static void wait_run(struct worker_item *item)
{
	const struct timespec pause = {.tv_nsec = FRONT_WAIT_MS * 1000000};
	(void)item;
	nanosleep(&pause, NULL);
}

static void wait_done(struct worker_item *item)
{
	struct wait *wait = (struct wait *)item;
	struct peer *peer = item->post.peer;
	struct job *job = wait->job;
	if (!all_reopened(peer) && ++wait->waits < FRONT_WAITS && !peer->stopping) {
		worker_run(peer, item, wait_run, wait_done);
		return;
	}
	free(wait);
	if (all_reopened(peer))
		peer->ops->on[job->op](peer, job);
	else
		job_fail(job, -EBUSY);
}

bool volume_front_await(struct peer *peer, struct job *job)
{
	if (all_reopened(peer))
		return false;
	struct wait *wait = calloc(1, sizeof(*wait));
	if (!wait) {
		job_fail(job, -ENOMEM);
		return true;
	}
	wait->job = job;
	worker_run(peer, &wait->work, wait_run, wait_done);
	return true;
}
