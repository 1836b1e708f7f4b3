/* SPDX-License-Identifier: Apache-2.0 */
/* The composer: what it is called, what it can be told, and who handles what. */
#include "peers/volume/volume.h"

#include <base/clock.h>
#include <base/size.h>
#include <errno.h>
#include <string.h>

#include "peers/volume/volume_flush.h"
#include "peers/volume/volume_intent_priv.h"
#include "peers/volume/volume_limit.h"
#include "peers/volume/volume_overlay.h"
#include "peers/volume/volume_quiesce.h"

static const struct peer_option volume_options[] = {
	OPTION_SIZE(struct volume_options, object_size, "object-size", .min = XSEG_PAGE,
		.max = XSEG_OBJECT_MAX, .initial = "4M", .unit = "bytes",
		.help = "of the volumes of fixed: a power of two (others: see mapperd)"),
	OPTION_LIST(struct volume_options, configured, "fixed", .unit = "NAME:SIZE",
		.help = "NAME:SIZE, a volume without a record: for stores that keep none"),
	OPTION_LIST(struct volume_options, keep, "keep", .unit = "VOLUME",
		.help = "a volume that is open for writing from the beginning on, until this peer "
			"ends: clients are let in while the store of its map is away"),
	OPTION_END,
};

static const char *const volume_edges[] = {"store", "map", NULL};

static const struct xseg_counter volume_counters[] = {
	[VOLUME_FORWARDED] = {"forwarded", "", "requests handed on as they are, to one object"},
	[VOLUME_SPLIT] = {"split", "", "requests that lay in several objects"},
	[VOLUME_HOLES] = {"holes", "", "objects found absent, answered without the store"},
	[VOLUME_LOADS] = {"loads", "", "volumes asked for at the mapper"},
	[VOLUME_PAGES] = {"pages", "", "pages of maps asked for at the mapper"},
	[VOLUME_OVERLAY_READS] = {"overlay_reads", "", "reads that several objects had a part of"},
	[VOLUME_OVERLAY_WRITES] = {"overlay_writes", "",
		"writes to objects that are shared or partial"},
	[VOLUME_COPIED] = {"copied", "", "clusters of 4 KiB completed from parents"},
	[VOLUME_PUBLISHED] = {"published", "", "changes of objects that the mapper has taken"},
	[VOLUME_MADE] = {"made", "", "objects made by their first write"},
	[VOLUME_HELD] = {"held", "", "times that a request waited for a snapshot or change"},
	{NULL, NULL, NULL},
};

size_t volume_configured_name(const char *text, char name[VOLUME_NAME_LENGTH_MAX + 1])
{
	const char *colon = strrchr(text, ':');
	size_t length = colon ? (size_t)(colon - text) : 0;
	if (length > VOLUME_NAME_LENGTH_MAX)
		length = 0;
	memcpy(name, text, length);
	name[length] = 0;
	return length;
}

static int add_configured(struct peer *peer, const char *text, char *why, size_t why_size)
{
	const struct volume_options *options = peer->options;
	char name[VOLUME_NAME_LENGTH_MAX + 1];
	uint64_t size;
	size_t length = volume_configured_name(text, name);
	if (length == 0 || size_parse(text + length + 1, &size) != 0) {
		snprintf(why, why_size, "fixed=%s: write NAME:SIZE, as in disk0:10G", text);
		return -EINVAL;
	}
	int rc = volume_table_add_configured(
		peer->shared, name, size, (uint32_t)options->object_size);
	if (rc == -EINVAL)
		snprintf(why, why_size,
			"fixed=%s: the size must be a multiple of %u and not 0, the name UTF-8 "
			"without '/' and control characters",
			text, XSEG_SECTOR);
	else if (rc != 0)
		snprintf(why, why_size, "fixed=%s: %s", text,
			rc == -EEXIST ? "there is one of that name already" : strerror(-rc));
	return rc;
}

/* What depends on the mapper: without one there are volumes of the configuration only. */
static int open_maps(struct peer *first, char *why, size_t why_size)
{
	if (!volume_has_map(first))
		return 0;
	int rc = volume_intent_open(first, why, why_size);
	if (rc == 0)
		rc = volume_overlay_open(first);
	if (rc != 0 && why[0] == 0)
		snprintf(why, why_size, "no memory");
	return rc;
}

static void volume_close(struct peer *first)
{
	struct volume_shared *shared = first->shared;
	if (shared->overlays)
		volume_overlay_close(first);
	volume_intent_close(first);
	volume_quiesce_close(first);
	volume_table_close(shared);
}

static int volume_open(struct peer *first, char *why, size_t why_size)
{
	const struct volume_options *options = first->options;
	if (options->object_size & (options->object_size - 1)) {
		snprintf(why, why_size, "object-size must be a power of two from 4K to 4M");
		return -EINVAL;
	}
	if (options->keep.count > VOLUME_KEEP_MAX) {
		snprintf(why, why_size, "keep: %zu volumes, %u at most", options->keep.count,
			VOLUME_KEEP_MAX);
		return -EINVAL;
	}
	struct volume_shared *shared = first->shared;
	shared->started_ns = clock_now_ns();
	int rc = volume_table_open(shared, &options->keep);
	if (rc != 0) {
		snprintf(why, why_size, "mutex: %s", strerror(-rc));
		return rc;
	}
	rc = volume_quiesce_open(first);
	if (rc != 0)
		snprintf(why, why_size, "no memory");
	for (size_t i = 0; rc == 0 && i < options->configured.count; i++)
		rc = add_configured(first, options->configured.item[i], why, why_size);
	if (rc == 0)
		rc = open_maps(first, why, why_size);
	if (rc != 0)
		volume_close(first);
	return rc;
}

static int volume_start(struct peer *peer, char *why, size_t why_size)
{
	struct volume_shard *shard = peer->state;
	TAILQ_INIT(&shard->loads);
	TAILQ_INIT(&shard->fetches);
	TAILQ_INIT(&shard->parts);
	TAILQ_INIT(&shard->quiescing);
	TAILQ_INIT(&shard->quiesced);
	TAILQ_INIT(&shard->limited);
	TAILQ_INIT(&shard->looks);
	int rc = volume_table_cache_open(shard);
	if (rc == 0)
		rc = volume_overlay_start(peer);
	if (rc != 0)
		snprintf(why, why_size, "no memory");
	return rc;
}

static void volume_finish(struct peer *peer)
{
	volume_overlay_finish(peer);
	volume_table_cache_close(peer);
}

/* A volume is given back by no job of anybody's, and the other shards take part in quiescing it. */
static bool volume_idle(struct peer *peer)
{
	const struct volume_shard *shard = peer->state;
	if (shard->background || atomic_load(&volume_shared(peer)->busy) != 0)
		return false;
	return peer->shard != 0 || !volume_has_map(peer) ||
	       (shard->adopted && !volume_lease_waits(peer));
}

/* What is recorded is published, and what nobody has open is given back: who comes after us may be
   none. */
static void volume_stop(struct peer *peer)
{
	struct volume_shard *shard = peer->state;
	shard->adopted = false;
	shard->look_ns = 0;
}

/* Nothing is to be looked at: as a rule, and in each turn, so it is to cost next to nothing. */
static inline bool is_quiet(const struct peer *peer)
{
	const struct volume_shard *shard = peer->state;
	const struct volume_shared *shared = peer->shared;
	const struct intents *intents = shared->intents;
	if (!TAILQ_EMPTY(&shard->quiescing) || !TAILQ_EMPTY(&shard->limited) ||
		!TAILQ_EMPTY(&shard->parts) || !TAILQ_EMPTY(&shard->looks) ||
		atomic_load_explicit(&shared->releases, memory_order_acquire) !=
			shard->releases_seen ||
		atomic_load_explicit(&shared->barrier_count[peer->shard], memory_order_acquire) > 0)
		return false;
	if (!intents)
		return true;
	if (atomic_load_explicit(&intents->ready_count[peer->shard], memory_order_acquire) > 0)
		return false;
	return peer->shard != 0 || (peer_now_ns(peer) < shard->look_ns &&
					   atomic_load_explicit(&intents->count,
						   memory_order_relaxed) < VOLUME_INTENTS_SOFT);
}

static bool volume_poll(struct peer *peer)
{
	const struct volume_shard *shard = peer->state;
	if (likely(is_quiet(peer)))
		return false;
	bool moved = volume_quiesce_poll(peer);
	moved |= volume_limit_poll(peer);
	if (volume_has_map(peer)) {
		moved |= volume_publish_poll(peer);
		moved |= volume_overlay_poll(peer);
		moved |= volume_lease_poll(peer);
		moved |= volume_adopt_poll(peer);
		moved |= volume_renew_poll(peer);
		moved |= volume_keep_poll(peer);
		moved |= volume_keep_late(peer);
		volume_flush_poll(peer);
	}
	uint64_t due = volume_quiesce_due(peer);
	if (!TAILQ_EMPTY(&shard->limited) && shard->limited_until_ns < due)
		due = shard->limited_until_ns;
	if (volume_keep_due(peer) < due)
		due = volume_keep_due(peer);
	if (due != UINT64_MAX)
		peer_wake_at(peer, due);
	return moved;
}

static const struct peer_ops volume_ops = {
	.name = "volume",
	.summary = "makes volumes of the objects in a store",
	.description =
		"The composer finds the object that a request lies in. A request that lies in one "
		"object is handed on; one that does not is split and its answers joined. What was "
		"never written is answered with zeros without asking the store. Which objects make "
		"a volume is kept by the mapper, down the edge *map*: the composer remembers what "
		"it has asked for, and tells the mapper what is new at each flush.\n\n"
		"Snapshots and clones share objects; the first write to a shared one makes an "
		"object of the volume's own, which has what was written and no more: the rest is "
		"read from where it was.\n\n"
		"Without a mapper there are the volumes of the configuration only.",
	.options = volume_options,
	.options_size = sizeof(struct volume_options),
	.state_size = sizeof(struct volume_shard),
	.shared_size = sizeof(struct volume_shared),
	.edges = volume_edges,
	.serves = "volume",
	.edges_needed = 1,
	.counters = volume_counters,
	.open = volume_open,
	.close = volume_close,
	.start = volume_start,
	.finish = volume_finish,
	.stop = volume_stop,
	.idle = volume_idle,
	.poll = volume_poll,
	.dump = volume_table_dump,
	.on =
		{
			[XSEG_OP_READ] = volume_io_read,
			[XSEG_OP_WRITE] = volume_io_write,
			[XSEG_OP_ZERO] = volume_io_zero,
			[XSEG_OP_DISCARD] = volume_io_discard,
			[XSEG_OP_FLUSH] = volume_flush,
			[XSEG_OP_PREFETCH] = volume_io_prefetch,
			[XSEG_OP_STATUS] = volume_status,
			[XSEG_OP_OPEN] = volume_admin_open,
			[XSEG_OP_CLOSE] = volume_admin_close,
			[XSEG_OP_INFO] = volume_admin_info,
			[XSEG_OP_LIST] = volume_list,
			[XSEG_OP_CREATE] = volume_admin_create,
			[XSEG_OP_UPDATE] = volume_admin_update,
			[XSEG_OP_REMOVE] = volume_admin_remove,
			[XSEG_OP_CONTROL] = volume_control,
		},
};
PEER_MODULE(volume_ops);
