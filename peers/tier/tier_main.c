/* SPDX-License-Identifier: Apache-2.0 */
/* The tier as a peer: options, edges, the start and the end. */
#include "peers/tier/tier.h"

#define SHORT_NS 10000000u /* until it is looked whether there are requests and pages again */

static const struct peer_option options[] = {
	OPTION_BOOL(struct tier_options, pull, "pull", .initial = "yes",
		.help = "all objects of a volume that is used are fetched in the background; no: "
			"those that were read"),
	OPTION_COUNT(struct tier_options, parts, "parts", .min = 1, .max = 1024, .initial = "64",
		.unit = "parts",
		.help = "fetched at once, of 1 MiB at most: as many as the link carries in a round "
			"trip; an eighth of the segment at most"),
	OPTION_SIZE(struct tier_options, rate, "rate",
		.help = "bytes a second that are fetched in the background at most; 0: no limit"),
	OPTION_SIZE(struct tier_options, size, "size",
		.help = "of what the near store keeps at most; 0: all there is"),
	OPTION_TIME(struct tier_options, interval, "interval", .min = 10000000, .initial = "1s",
		.help = "between two flushes of the near store, after which what was fetched is "
			"there to stay"),
	OPTION_END,
};

static const char *const edges[] = {"store", "store-near", NULL};

static const struct xseg_counter counters[] = {
	[TIER_C_HITS] = {"hits", "", "reads served by the near store"},
	[TIER_C_MISSES] = {"misses", "", "reads that needed the far store"},
	[TIER_C_PULLED] = {"pulled", "B", "fetched from the far store and put near"},
	[TIER_C_UNCHANGED] = {"unchanged", "B",
		"that were near, in doubt, and the same as what the far store has"},
	[TIER_C_PRESENT] = {"present", "now", "bytes that are near"},
	[TIER_C_LEFT] = {"left", "now", "bytes, at most, that are still to be fetched"},
	[TIER_C_LISTED] = {"listed", "now", "volumes of which it is known what there is"},
	[TIER_C_EVICTED] = {"evicted", "", "objects that the near store had no room for"},
	[TIER_C_DROPPED] = {"dropped", "",
		"objects forgotten, as another host may have changed them"},
	[TIER_C_LOGGED] = {"logged", "", "entries written to the log"},
	[TIER_C_ERRORS] = {"near_errors", "", "requests that the near store failed"},
	[TIER_C_OFF] = {"off", "now", "1: the near store has failed, and is not used"},
	[TIER_COUNTERS] = {NULL, NULL, NULL},
};

static int tier_start(struct peer *peer, char *why, size_t why_size)
{
	struct tier *tier = tier_of(peer);
	if (peer->shards > 1) {
		snprintf(why, why_size,
			"a tier has one lane, this process has %u: give it a process of its own "
			"(host=NAME)",
			peer->shards);
		return -EINVAL;
	}
	tier->peer = peer;
	tier->options = peer->options;
	TAILQ_INIT(&tier->loading);
	TAILQ_INIT(&tier->unlisted);
	TAILQ_INIT(&tier->measuring);
	for (unsigned i = 0; i < TIER_WANTS; i++)
		TAILQ_INIT(&tier->wants[i]);
	tier->touch = calloc(TIER_TOUCH_MAX, sizeof(*tier->touch));
	if (!tier->touch || tier_object_open(tier)) {
		snprintf(why, why_size, "out of memory");
		free(tier->touch);
		tier_object_close(tier);
		return -ENOMEM;
	}
	tier_load(tier);
	return 0;
}

static void tier_finish(struct peer *peer)
{
	struct tier *tier = tier_of(peer);
	tier_object_close(tier);
	tier_blocks_clear(&tier->log.blocks);
	tier_blocks_clear(&tier->touch_blocks);
	free(tier->log.said);
	free(tier->touch);
}

static bool tier_poll(struct peer *peer)
{
	struct tier *tier = tier_of(peer);
	tier->is_short = false;
	bool moved = tier_log_turn(tier);
	tier_object_evict(tier);
	return tier_pull_turn(tier) || moved;
}

/* Only what lies ahead: what is due and does not go on waits for an answer. */
static void wake_at(struct peer *peer, uint64_t *first, uint64_t at)
{
	if (at > peer_now_ns(peer) && (*first == 0 || at < *first))
		*first = at;
}

static bool tier_sleep(struct peer *peer)
{
	struct tier *tier = tier_of(peer);
	uint64_t first = 0;
	if (tier_poll(peer))
		return false;
	wake_at(peer, &first, tier_log_wake_ns(tier));
	wake_at(peer, &first, tier_pull_wake_ns(tier));
	if (tier->is_short)
		wake_at(peer, &first, peer_now_ns(peer) + SHORT_NS);
	if (first)
		peer_wake_at(peer, first);
	return true;
}

/* What waits goes to the successor. */
static bool tier_idle(struct peer *peer)
{
	const struct tier *tier = tier_of(peer);
	return tier_pull_quiet(tier) && tier_log_quiet(tier);
}

static void tier_dump(struct peer *peer, FILE *out)
{
	static const char *const states[] = {"loading", "on", "leaving the near store", "off"};
	const struct tier *tier = tier_of(peer);
	fprintf(out,
		"%s, %llu objects, %llu MiB near, %llu MiB left, %u on their way, log %llu blocks "
		"of "
		"generation %llu\n",
		states[tier->state], (unsigned long long)tier->known,
		(unsigned long long)tier->present >> 20,
		(unsigned long long)tier->left * TIER_CHUNK >> 20, tier->pulling,
		(unsigned long long)tier->log.length, (unsigned long long)tier->log.generation);
}

static const struct peer_ops tier = {
	.name = "tier",
	.summary = "keeps what a far store has in a near one as well",
	.description =
		"Stands between a cache or a composer and a store that is far away (edge *store*: "
		"*skerry-role-synapse_import*(7), an object store), and keeps what it has in one "
		"that "
		"is near (*store-near*: *skerry-role-blocker_file*(7), for one). What is near is "
		"read "
		"there, also while the link is away. All objects of a volume that is used are "
		"fetched in the background: what was missed and its neighbours first, then what "
		"was "
		"touched first the last time. Writes are answered when the far store has them, so "
		"put a cache in front. Killed or restarted, it goes on with what it had; what "
		"another host may have changed is compared by digests, and fetched again where it "
		"was. It has one lane.\n",
	.options = options,
	.options_size = sizeof(struct tier_options),
	.state_size = sizeof(struct tier),
	.edges = edges,
	.serves = "store",
	.counters = counters,
	.start = tier_start,
	.finish = tier_finish,
	.idle = tier_idle,
	.poll = tier_poll,
	.sleep = tier_sleep,
	.dump = tier_dump,
	.on = {[XSEG_OP_READ] = tier_serve,
		[XSEG_OP_WRITE] = tier_serve,
		[XSEG_OP_ZERO] = tier_serve,
		[XSEG_OP_DISCARD] = tier_serve,
		[XSEG_OP_FLUSH] = tier_serve,
		[XSEG_OP_PREFETCH] = tier_serve,
		[XSEG_OP_STATUS] = tier_serve,
		[XSEG_OP_COPY] = tier_serve,
		[XSEG_OP_DELETE] = tier_serve,
		[XSEG_OP_CAS] = tier_serve,
		[XSEG_OP_INFO] = tier_serve,
		[XSEG_OP_LIST] = tier_serve,
		[XSEG_OP_CONTROL] = tier_serve},
};
PEER_MODULE(tier);
