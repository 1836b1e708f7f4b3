/* SPDX-License-Identifier: Apache-2.0 */
/* The re-homer as a peer: options, edges, the start and the end. */
#include "peers/rehome/rehome.h"

static const struct peer_option options[] = {
	OPTION_TIME(struct rehome_options, commit_ns, "commit-timeout", .min = 100000000,
		.max = 600000000000, .initial = "5s",
		.help = "requests wait so long for the other host to take a volume; then it is "
			"taken back"),
	OPTION_TIME(struct rehome_options, drain_ns, "drain-timeout", .min = 100000000,
		.max = 600000000000, .initial = "10s",
		.help = "requests on their way have so much time to end; then the volume stays"),
	OPTION_BOOL(struct rehome_options, warm, "warm", .initial = "yes",
		.help = "what our cache holds of a volume that has gone is fetched into the "
			"other host's"),
	OPTION_END,
};

static const char *const edges[] = {"volume", "volume-to", "volume-to2", "volume-to3", NULL};

static const struct xseg_counter counters[] = {
	[REHOME_C_MOVED] = {"moved", "", "volumes that went to another host"},
	[REHOME_C_TAKEN] = {"taken", "", "volumes that came from another host"},
	[REHOME_C_STAYED] = {"stayed", "", "moves that ended with the volume where it was"},
	[REHOME_C_WAITS] = {"waits", "", "requests that had to wait while a volume moved"},
	[REHOME_C_AWAY] = {"away", "", "requests that went on to another host"},
	[REHOME_C_WARMED] = {"warmed", "bytes",
		"cached here of volumes that went, and asked for at the other host"},
	[REHOME_C_HELD] = {"held", "", "writes that were slowed down so that a volume can move"},
	{NULL, NULL, NULL},
};

static int rehome_start(struct peer *peer, char *why, size_t why_size)
{
	struct rehome *rehome = rehome_of(peer);
	if (peer->shards > 1) {
		snprintf(why, why_size,
			"a re-homer has one lane, this process has %u: give it a process of its "
			"own (host=NAME)",
			peer->shards);
		return -EINVAL;
	}
	rehome->peer = peer;
	rehome->owner = map_owner_of(peer_segment(peer));
	for (uint32_t edge = 1; edge <= REHOME_EDGES; edge++)
		rehome->edges[edge].port = XSEG_NONE;
	rehome->volumes = calloc(REHOME_BUCKETS, sizeof(*rehome->volumes));
	return rehome->volumes ? 0 : -ENOMEM;
}

static void rehome_finish(struct peer *peer) { rehome_volume_close(rehome_of(peer)); }

static void rehome_stop(struct peer *peer) { rehome_volume_stop(rehome_of(peer)); }

static bool rehome_poll(struct peer *peer) { return rehome_volume_turn(rehome_of(peer)); }

/* What is under way is the successor's to find in the record; who waits goes to it, too. */
static bool rehome_idle(struct peer *peer)
{
	(void)peer;
	return true;
}

static void rehome_dump(struct peer *peer, FILE *out)
{
	const struct rehome *rehome = rehome_of(peer);
	const struct rehome_volume *volume;
	for (unsigned i = 0; i < REHOME_BUCKETS; i++)
		LIST_FOREACH (volume, &rehome->volumes[i], link)
			fprintf(out, "%016llx %s edge %u term %llu since %llu, %llu wait\n",
				(unsigned long long)volume->id, rehome_state_name(volume->state),
				volume->edge, (unsigned long long)volume->term,
				(unsigned long long)volume->since,
				(unsigned long long)volume->info.waiting);
}

static const struct peer_ops rehome = {
	.name = REHOME_ROLE,
	.summary = "moves volumes to other hosts, and takes them in, while they are used",
	.description =
		"Stands in front of a composer (edge *volume*). The edges *volume-to*, "
		"*volume-to2* and "
		"*volume-to3* lead to peers of this role on other hosts, each through a "
		"*synapse_import*. 'xsegctl rehome' tells it what to move. Whoever is attached "
		"here goes on through it when a volume has moved. It has one lane. Killed, it "
		"finds out from the volumes' home records what is where.\n",
	.options = options,
	.options_size = sizeof(struct rehome_options),
	.state_size = sizeof(struct rehome),
	.edges = edges,
	.edges_needed = 1,
	.edges_later = true,
	.serves = "volume",
	.counters = counters,
	.start = rehome_start,
	.finish = rehome_finish,
	.stop = rehome_stop,
	.idle = rehome_idle,
	.poll = rehome_poll,
	.dump = rehome_dump,
	.on = {[XSEG_OP_READ] = rehome_route_serve,
		[XSEG_OP_WRITE] = rehome_route_serve,
		[XSEG_OP_ZERO] = rehome_route_serve,
		[XSEG_OP_DISCARD] = rehome_route_serve,
		[XSEG_OP_FLUSH] = rehome_route_serve,
		[XSEG_OP_PREFETCH] = rehome_route_serve,
		[XSEG_OP_STATUS] = rehome_route_serve,
		[XSEG_OP_OPEN] = rehome_route_serve,
		[XSEG_OP_CLOSE] = rehome_route_serve,
		[XSEG_OP_INFO] = rehome_route_serve,
		[XSEG_OP_LIST] = rehome_route_serve,
		[XSEG_OP_CREATE] = rehome_route_serve,
		[XSEG_OP_UPDATE] = rehome_route_serve,
		[XSEG_OP_REMOVE] = rehome_route_serve,
		[XSEG_OP_CONTROL] = rehome_route_serve},
};
PEER_MODULE(rehome);
