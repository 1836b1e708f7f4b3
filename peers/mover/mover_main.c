/* SPDX-License-Identifier: Apache-2.0 */
/* The mover as a peer: options, edges, the start and the end. */
#include <base/log.h>

#include "peers/mover/mover.h"

static const struct peer_option options[] = {
	OPTION_COUNT(struct mover_options, batch, "batch", .min = 1, .max = MOVER_BATCH_MAX,
		.initial = "8",
		.help = "objects that are on their way at a time; who writes to one of them waits "
			"so long"),
	OPTION_TEXT(struct mover_options, keep, "keep",
		.help = "a folder of this host for copies of what goes to the new store: of what "
			"comes back, and has not changed, only digests cross the bridge then"),
	OPTION_END,
};

static const char *const edges[] = {"store", "store-to", NULL};

static const struct xseg_counter counters[] = {
	[MOVER_C_OBJECTS] = {"moved_objects", "", "objects that were moved"},
	[MOVER_C_BYTES] = {"moved_bytes", "bytes", "of those objects, that were copied"},
	[MOVER_C_UNCHANGED] = {"unchanged", "bytes", "of those objects, that a kept copy had"},
	[MOVER_C_WAITS] = {"waits", "", "requests that had to wait for an object that was moved"},
	{NULL, NULL, NULL},
};

static int mover_start(struct peer *peer, char *why, size_t why_size)
{
	struct mover *mover = mover_of(peer);
	if (peer->shards > 1) {
		snprintf(why, why_size,
			"a mover has one lane, this process has %u: give it a "
			"process of its own (host=NAME)",
			peer->shards);
		return -EINVAL;
	}
	mover->peer = peer;
	int rc = mover_keep_open(
		mover, ((const struct mover_options *)peer->options)->keep, why, why_size);
	if (rc != 0)
		return rc;
	mover_group_open(mover);
	TAILQ_INIT(&mover->waiting);
	TAILQ_INIT(&mover->controls);
	TAILQ_INIT(&mover->joins);
	TAILQ_INIT(&mover->names);
	TAILQ_INIT(&mover->steps);
	mover_call_open(mover);
	return 0;
}

static void mover_stop(struct peer *peer) { atomic_store(&mover_of(peer)->stopping, true); }

static bool mover_poll(struct peer *peer)
{
	bool moved = mover_call_turn(mover_of(peer));
	return mover_step_turn(mover_of(peer)) || moved;
}

/* What waits goes to the successor. */
static bool mover_idle(struct peer *peer) { return mover_of(peer)->step == STEP_IDLE; }

static void mover_finish(struct peer *peer)
{
	struct mover *mover = mover_of(peer);
	mover_group_close(mover);
	mover_call_close(mover);
	mover_keep_close(mover);
}

static void mover_dump(struct peer *peer, FILE *out)
{
	const struct mover *mover = mover_of(peer);
	const struct mover_group *group;
	fprintf(out, "%s, step %u\n", mover->loaded ? "loaded" : "not loaded", mover->step);
	for (unsigned i = 0; i < MOVER_BATCHES; i++)
		if (mover->batches[i].step != BATCH_FREE)
			fprintf(out, "%u objects, step %u\n", mover->batches[i].count,
				mover->batches[i].step);
	LIST_FOREACH (group, &mover->groups, link)
		fprintf(out, "group of %016llx and %u more: phase %u, to the %s store, %llu left\n",
			(unsigned long long)group->ids[0], group->count - 1, group->phase,
			group->to == MOVER_NEW ? "new" : "old", (unsigned long long)group->members);
}

static const struct peer_ops mover = {
	.name = MOVER_ROLE,
	.summary = "moves volumes from one store to another while they are used",
	.description =
		"Stands in front of the old store (edge *store*) and asks the new one (*store-to*) "
		"for what lies there. 'xsegctl volume move' starts it, tells it what to move, and "
		"takes it out again when nothing is left in the old store. It has one lane. "
		"Killed, "
		"it finds out what lies where from the two stores.\n",
	.options = options,
	.options_size = sizeof(struct mover_options),
	.state_size = sizeof(struct mover),
	.edges = edges,
	.serves = "store",
	.counters = counters,
	.start = mover_start,
	.finish = mover_finish,
	.stop = mover_stop,
	.idle = mover_idle,
	.poll = mover_poll,
	.dump = mover_dump,
	.on = {[XSEG_OP_READ] = mover_route_serve,
		[XSEG_OP_WRITE] = mover_route_serve,
		[XSEG_OP_ZERO] = mover_route_serve,
		[XSEG_OP_DISCARD] = mover_route_serve,
		[XSEG_OP_FLUSH] = mover_route_serve,
		[XSEG_OP_PREFETCH] = mover_route_serve,
		[XSEG_OP_STATUS] = mover_route_serve,
		[XSEG_OP_COPY] = mover_route_serve,
		[XSEG_OP_DELETE] = mover_route_serve,
		[XSEG_OP_CAS] = mover_route_serve,
		[XSEG_OP_INFO] = mover_route_serve,
		[XSEG_OP_LIST] = mover_route_serve,
		[XSEG_OP_CONTROL] = mover_route_serve},
};
PEER_MODULE(mover);
