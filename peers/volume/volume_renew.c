/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mapper renews what a composer has acquired for as long as one says that it has it
 * (MAP_LEASES): all of it in one request, as often as the mapper wants to hear it. So what a
 * predecessor had, and nobody has asked us for, is somebody else's to take after a while.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "peers/volume/volume.h"

#define FIRST_NS 1000000000u  /* after our beginning: fronts open again what they have */
#define FAILED_NS 5000000000u /* it was not heard */

struct saying {
	struct volume_step step; /* first */
	uint64_t *ids;
	uint32_t count;
};

static int gather(struct volume_shared *shared, struct saying *saying)
{
	const struct volume *volume;
	uint32_t room = 0;
	pthread_mutex_lock(&shared->lock);
	LIST_FOREACH (volume, &shared->acquired, lease)
		room++;
	saying->ids = malloc((room + 1) * sizeof(*saying->ids));
	LIST_FOREACH (volume, &shared->acquired, lease)
		if (saying->ids)
			saying->ids[saying->count++] = volume->id;
	pthread_mutex_unlock(&shared->lock);
	return saying->ids ? 0 : -ENOMEM;
}

static void say_end(struct saying *saying, uint64_t wait_ns)
{
	struct peer *peer = saying->step.peer;
	struct volume_shard *shard = peer->state;
	shard->say_ns = peer_now_ns(peer) + wait_ns;
	shard->saying = false;
	free(saying->ids);
	free(saying);
}

static void said(struct call *call)
{
	struct saying *saying = call->context;
	uint64_t wait_ns = call->result == 0 ? call->value : FAILED_NS;
	call_end(call);
	say_end(saying, wait_ns);
}

static void say(struct volume_step *step)
{
	struct saying *saying = (struct saying *)step;
	uint32_t bytes = saying->count * (uint32_t)sizeof(*saying->ids);
	struct call *call =
		volume_step_call(step, say, XSEG_OP_CONTROL, (struct xseg_key){0}, bytes);
	if (!call)
		return;
	if (bytes > 0)
		call_put_bytes(call, 0, saying->ids, bytes);
	call->arg0 = MAP_LEASES;
	call->arg1 = saying->count;
	call_submit(call, VOLUME_MAP, said);
}

/* A request to a mapper that is away would wait for the next one, and say what was long ago. */
static bool is_heard(const struct peer *peer)
{
	const struct xseg *seg = peer_segment(peer);
	return xseg_port_served(seg, xseg_edge_port(seg, peer->edge[VOLUME_MAP]));
}

bool volume_renew_poll(struct peer *peer)
{
	struct volume_shared *shared = volume_shared(peer);
	struct volume_shard *shard = peer->state;
	uint64_t now = peer_now_ns(peer);
	if (peer->shard != 0 || shard->saying || peer->stopping || now < shard->say_ns ||
		now < shared->started_ns + FIRST_NS || !is_heard(peer))
		return false;
	struct saying *saying = calloc(1, sizeof(*saying));
	if (!saying)
		return false;
	saying->step.peer = peer;
	shard->saying = true;
	if (gather(shared, saying) != 0)
		say_end(saying, FAILED_NS);
	else
		say(&saying->step);
	return true;
}
