/* SPDX-License-Identifier: Apache-2.0 */
/* The mapper: what it is called, what it can be told, and who handles what. */
#include "peers/map/mapper.h"

#include <base/hash.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <xseg/segment.h>
#include <xxhash.h>

static const struct peer_option mapper_options[] = {
	OPTION_TIME(struct mapper_options, lease_ns, "lease", .min = 1000000000u,
		.max = 86400000000000u, .initial = "30s", .unit = "time",
		.help = "how long a volume stays ours when this process has gone; renewed at a "
			"third of it"),
	OPTION_COUNT(struct mapper_options, threads, "threads", .min = 2, .max = MAPPER_THREADS_MAX,
		.initial = "8", .unit = "threads", .help = "what is asked of it at the same time"),
	OPTION_SIZE(struct mapper_options, object_size, "object-size", .min = XSEG_PAGE,
		.max = XSEG_OBJECT_MAX, .initial = "4M", .unit = "bytes",
		.help = "size of the objects of new volumes that name none: a power of two"),
	OPTION_SIZE(struct mapper_options, memory, "memory", .min = 1u << 20, .initial = "16M",
		.unit = "bytes", .help = "for records and directories of maps that are in use"),
	OPTION_TIME(struct mapper_options, settle_ns, "settle", .max = 3600000000000u,
		.initial = "2s", .unit = "time",
		.help = "pause before the second pass of a sweep: what a change of a volume takes "
			"at most"),
	OPTION_TEXT(struct mapper_options, host, "host",
		.help = "who has a volume, for people elsewhere; empty: host name and segment"),
	OPTION_END,
};

static const char *const mapper_edges[] = {"store", NULL};

static const struct xseg_counter mapper_counters[] = {
	[MAPPER_LOOKUPS] = {"lookups", "", "pages of maps that were asked for"},
	[MAPPER_BITMAPS] = {"bitmaps", "", "partial objects that were asked about"},
	[MAPPER_PUBLISHED] = {"updates", "", "objects whose changes were brought into maps"},
	[MAPPER_ACQUIRES] = {"acquires", "", "volumes opened by composers"},
	[MAPPER_SNAPSHOTS] = {"snapshots", "", "snapshots made"},
	[MAPPER_CLONES] = {"clones", "", "clones made"},
	[MAPPER_CHANGES] = {"changes", "", "other changes of volumes"},
	[MAPPER_LISTED] = {"listed", "", "volumes listed"},
	[MAPPER_FLATTENED] = {"flattened", "", "objects copied out of those they were shared with"},
	[MAPPER_RENEWALS] = {"renewals", "", "leases renewed"},
	[MAPPER_LOST] = {"lost", "now", "volumes that were ours and are another's"},
	[MAPPER_LEFT] = {"left", "", "volumes given back as no composer here held them any more"},
	[MAPPER_REMEMBERED] = {"remembered", "", "records and directories not read again"},
	[MAPPER_SENT] = {"store_requests", "", "sent to the store"},
	[MAPPER_WAITS] = {"store_waits", "",
		"for the store to answer; one for requests that are sent at once"},
	[MAPPER_AGAIN] = {"again", "", "done once more, because another host was faster"},
	[MAPPER_WAITED] = {"waited", "now", "waiting for a thread"},
	{NULL, NULL, NULL},
};

/* --- beginning and end ---------------------------------------------------------------------- */

static void name_host(struct mapper_shared *shared, const struct xseg *seg)
{
	char host[MAP_HOST_MAX + 1] = "";
	int room = MAP_HOST_MAX;
	const char *given = shared->options->host;
	if (given && *given) {
		snprintf(shared->host, sizeof(shared->host), "%.*s", room, given);
	} else {
		gethostname(host, sizeof(host) - 1);
		snprintf(shared->host, sizeof(shared->host), "%.*s/%s",
			room - 1 - (int)strlen(seg->name), host, seg->name);
	}
	name_make_utf8(shared->host);
}

/* The boot's id is enough to tell whose clock a lease is by. Without an id of the machine (a
   container may have none) nobody can be said to have died with an earlier boot: leases run out. */
static void name_place(struct mapper_shared *shared, const struct xseg *seg)
{
	static const uint8_t unknown[sizeof(seg->super->boot_id)];
	char text[256], machine[NAME_MACHINE], host[64] = "";
	name_machine(machine);
	if (memcmp(seg->super->boot_id, unknown, sizeof(unknown)) == 0)
		return;
	shared->boot = XXH3_64bits(seg->super->boot_id, sizeof(seg->super->boot_id));
	if (!*machine)
		return;
	gethostname(host, sizeof(host) - 1);
	int length = snprintf(text, sizeof(text), "%s/%s/%s", machine, host, seg->name);
	shared->place = XXH3_64bits(text, (size_t)length < sizeof(text) ? (size_t)length : 0);
}

static int mapper_open(struct peer *first, char *why, size_t why_size)
{
	struct mapper_shared *shared = first->shared;
	const struct mapper_options *options = first->options;
	if (options->object_size & (options->object_size - 1)) {
		snprintf(why, why_size, "object-size must be a power of two from 4K to 4M");
		return -EINVAL;
	}
	shared->options = options;
	must(pthread_mutex_init(&shared->lock, NULL) == 0);
	must(pthread_cond_init(&shared->pool.work, NULL) == 0);
	must(pthread_cond_init(&shared->background.changed, NULL) == 0);
	TAILQ_INIT(&shared->pool.quick);
	TAILQ_INIT(&shared->pool.slow);
	for (unsigned i = 0; i < MAPPER_BUCKETS; i++)
		LIST_INIT(&shared->locks[i]);
	mapper_lease_open(shared);
	map_home_watch_init(&shared->watch);
	mapper_memory_open(&shared->memory, options->memory);
	shared->owner = map_owner_of(peer_segment(first));
	name_host(shared, peer_segment(first));
	name_place(shared, peer_segment(first));
	int error = mapper_pool_start(shared, (unsigned)options->threads);
	if (error)
		snprintf(why, why_size, "no threads: %s", strerror(-error));
	return error;
}

/* All lanes have ended: nobody waits for an answer any more. */
static void mapper_close(struct peer *first)
{
	struct mapper_shared *shared = first->shared;
	mapper_background_ask_end(shared);
	mapper_background_join(shared);
	mapper_pool_stop(shared);
	mapper_lease_close(shared);
	mapper_memory_close(&shared->memory);
	pthread_cond_destroy(&shared->background.changed);
	pthread_cond_destroy(&shared->pool.work);
	pthread_mutex_destroy(&shared->lock);
}

static int mapper_start(struct peer *peer, char *why, size_t why_size)
{
	struct mapper_shard *shard = peer->state;
	shard->peer = peer;
	shard->shared = peer->shared;
	mapper_call_open(shard);
	if (peer->shard != 0)
		return 0;
	shard->shared->first = shard;
	int error = mapper_background_start(shard->shared);
	if (error)
		snprintf(why, why_size, "no thread: %s", strerror(-error));
	return error;
}

static void mapper_finish(struct peer *peer) { mapper_call_abandon(peer->state); }

static void mapper_stop(struct peer *peer)
{
	struct mapper_shard *shard = peer->state;
	if (peer->shard == 0)
		mapper_background_ask_end(shard->shared);
}

static bool mapper_idle(struct peer *peer)
{
	struct mapper_shard *shard = peer->state;
	return atomic_load(&shard->tasks) == 0 &&
	       (peer->shard != 0 || mapper_background_ended(shard->shared));
}

/* --- each turn ------------------------------------------------------------------------------ */

static void show(struct peer *peer, enum mapper_counter counter, uint64_t now)
{
	atomic_store_explicit(
		&peer->stats->counters[PEER_COUNTER(counter)], now, memory_order_relaxed);
}

static bool mapper_poll(struct peer *peer)
{
	struct mapper_shard *shard = peer->state;
	struct mapper_shared *shared = shard->shared;
	bool moved = false;
	if (atomic_load(&shard->waiting)) {
		atomic_store(&shard->waiting, false);
		moved |= mapper_call_pump(shard);
		moved |= mapper_task_collect(shard);
	}
	if (peer->shard != 0)
		return moved;
	show(peer, MAPPER_LOST, atomic_load(&shared->leases.lost));
	show(peer, MAPPER_LEFT, atomic_load(&shared->leases.left));
	show(peer, MAPPER_WAITED, atomic_load(&shared->pool.waiting));
	uint64_t due = atomic_load(&shared->leases.next_ns);
	if (unlikely(due <= peer_now_ns(peer)) && !peer->stopping) {
		moved |= mapper_lease_turn(shard, peer_now_ns(peer));
		due = atomic_load(&shared->leases.next_ns);
	}
	peer_wake_at(peer, due == UINT64_MAX ? 0 : due);
	return moved;
}

static void mapper_dump(struct peer *peer, FILE *out)
{
	struct mapper_shard *shard = peer->state;
	struct mapper_shared *shared = shard->shared;
	fprintf(out, "    %u tasks\n", atomic_load(&shard->tasks));
	if (peer->shard != 0)
		return;
	pthread_mutex_lock(&shared->lock);
	fprintf(out, "    %u threads, %u tasks wait for one, %u long ones at work\n",
		shared->pool.threads, atomic_load(&shared->pool.waiting),
		shared->pool.slow_running);
	pthread_mutex_unlock(&shared->lock);
	pthread_mutex_lock(&shared->leases.lock);
	fprintf(out, "    owner %016llx, '%s': %u volumes are ours, %u were\n",
		(unsigned long long)shared->owner, shared->host,
		shared->leases.count - atomic_load(&shared->leases.lost),
		atomic_load(&shared->leases.lost));
	pthread_mutex_unlock(&shared->leases.lock);
	pthread_mutex_lock(&shared->memory.lock);
	fprintf(out, "    %u records and directories of %u remembered\n", shared->memory.count,
		shared->memory.max);
	pthread_mutex_unlock(&shared->memory.lock);
	mapper_background_dump(shared, out);
}

/* --- handlers ------------------------------------------------------------------------------- */

static void mapper_control(struct peer *peer, struct job *job)
{
	if (job->arg0 >= MAP_CONTROLS || !mapper_controls[job->arg0].run)
		job_fail(job, -EOPNOTSUPP);
	else
		mapper_task_begin(peer, job, &mapper_controls[job->arg0]);
}

static void mapper_info(struct peer *peer, struct job *job)
{
	mapper_task_begin(peer, job, &mapper_kind_info);
}

static void mapper_list(struct peer *peer, struct job *job)
{
	mapper_task_begin(peer, job, &mapper_kind_list);
}

static void mapper_create(struct peer *peer, struct job *job)
{
	mapper_task_begin(peer, job, &mapper_kind_create);
}

static void mapper_update(struct peer *peer, struct job *job)
{
	mapper_task_begin(peer, job, &mapper_kind_update);
}

static void mapper_remove(struct peer *peer, struct job *job)
{
	mapper_task_begin(peer, job, &mapper_kind_remove);
}

static const struct peer_ops mapper_ops = {
	.name = "mapperd",
	.summary = "keeps the maps of volumes: which objects they are made of",
	.description =
		"The only one that writes to the maps of the volumes in the store below it: makes "
		"volumes, snapshots and clones, says where their objects are, hears from composers "
		"what is new, and deletes what nobody needs any more. Each change is one put of a "
		"record: killed at any point, it has happened or has not.\n\n"
		"A volume that is written to belongs to one segment at a time. What was acquired "
		"stays so while a mapper of this segment runs, and for the time of a lease "
		"after it has gone; then others may take it.\n",
	.options = mapper_options,
	.options_size = sizeof(struct mapper_options),
	.state_size = sizeof(struct mapper_shard),
	.shared_size = sizeof(struct mapper_shared),
	.edges = mapper_edges,
	.serves = "map",
	.counters = mapper_counters,
	.open = mapper_open,
	.close = mapper_close,
	.start = mapper_start,
	.finish = mapper_finish,
	.stop = mapper_stop,
	.idle = mapper_idle,
	.poll = mapper_poll,
	.dump = mapper_dump,
	.on =
		{
			[XSEG_OP_INFO] = mapper_info,
			[XSEG_OP_LIST] = mapper_list,
			[XSEG_OP_CREATE] = mapper_create,
			[XSEG_OP_UPDATE] = mapper_update,
			[XSEG_OP_REMOVE] = mapper_remove,
			[XSEG_OP_CONTROL] = mapper_control,
		},
};
PEER_MODULE(mapper_ops);
