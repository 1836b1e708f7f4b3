/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process: joins the segment, gives each lane a thread and each peer a shard on every lane,
 * and takes all of it down again in order. The main thread's side.
 *
 *   JOINING -> STARTING -> RUNNING -> ENDING      (from any of them to ENDING on an error)
 *
 * In each phase the lanes do their part and report; the main thread waits for all and goes on.
 */
#include <base/log.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/reap.h>

#include "peers/core/core.h"

#define HOST_DUMP_MAPPED_SHARED 8u /* core(5) */
#define HOST_HURRY_NS 50000000	   /* how often hurry() is asked */
#define HOST_REAP_NS 15000000000u
#define HOST_REAP_LOOK_NS 20000000u

/* --- phases ------------------------------------------------------------------------ */

static void host_report(struct host *host)
{
	pthread_mutex_lock(&host->mutex);
	host->reported++;
	pthread_cond_broadcast(&host->changed);
	pthread_mutex_unlock(&host->mutex);
}

static void host_set_phase(struct host *host, enum host_phase phase)
{
	pthread_mutex_lock(&host->mutex);
	host->phase = phase;
	host->reported = 0;
	pthread_cond_broadcast(&host->changed);
	pthread_mutex_unlock(&host->mutex);
}

/* The main thread, until all lanes have reported; the first error among them. */
static int host_gather(struct host *host, char *why)
{
	pthread_mutex_lock(&host->mutex);
	while (host->reported < host->lane_count)
		pthread_cond_wait(&host->changed, &host->mutex);
	pthread_mutex_unlock(&host->mutex);
	for (unsigned i = 0; i < host->lane_count; i++)
		if (host->lanes[i].start_error) {
			snprintf(why, WHY_SIZE, "%s", host->lanes[i].why);
			return host->lanes[i].start_error;
		}
	return 0;
}

/* A lane, until the phase has passed; false: the end has come instead. */
static bool host_await(struct host *host, enum host_phase after)
{
	pthread_mutex_lock(&host->mutex);
	while (host->phase <= after)
		pthread_cond_wait(&host->changed, &host->mutex);
	bool go_on = host->phase != HOST_ENDING;
	pthread_mutex_unlock(&host->mutex);
	return go_on;
}

/* --- a lane's thread ------------------------------------------------------------------ */

static void host_lane_join(struct lane *lane)
{
	lane->start_error = lane_init(lane);
	lane->joined = lane->start_error == 0;
	if (lane->start_error == -ENOSPC)
		snprintf(lane->why, WHY_SIZE,
			"segment '%s' has all its %u lanes in use; stop a peer or make it with "
			"more lanes",
			lane->host->seg.name, lane->host->seg.lane_count);
	else if (lane->start_error)
		snprintf(lane->why, WHY_SIZE, "cannot join segment '%s': %s", lane->host->seg.name,
			strerror(-lane->start_error));
}

/* From the bottom up, so that nobody starts before those it leans on. */
static void host_lane_start(struct lane *lane)
{
	lane->x->now_ns = clock_now_ns();
	for (unsigned i = lane->shard_count; i-- > 0 && !lane->start_error;)
		lane->start_error = shard_start(lane->shard[i], lane->why);
}

/* Others may have written to our ports before we were there. */
static void host_lane_rehint(struct lane *lane)
{
	if (lane->index != 0)
		return;
	for (unsigned i = 0; i < lane->shard_count; i++)
		xseg_rehint_port(lane->x, lane->shard[i]->peer.port);
	xseg_turn_end(lane->x);
}

static void *host_lane_main(void *context)
{
	struct lane *lane = context;
	struct host *host = lane->host;
	host_lane_join(lane);
	host_report(host);
	if (!host_await(host, HOST_JOINING))
		goto leave;
	host_lane_start(lane);
	host_report(host);
	if (host_await(host, HOST_STARTING)) {
		host_lane_rehint(lane);
		lane_run(lane);
	}
	for (unsigned i = 0; i < lane->shard_count; i++)
		shard_finish(lane->shard[i]);
leave:
	if (lane->joined)
		lane_fini(lane);
	return NULL;
}

static int host_lanes_begin(struct host *host, char *why)
{
	for (unsigned i = 0; i < host->config.lanes; i++) {
		struct lane *lane = &host->lanes[i];
		*lane = (struct lane){.host = host, .index = i};
		int error = pthread_create(&lane->thread, NULL, host_lane_main, lane);
		if (error) {
			snprintf(why, WHY_SIZE, "no thread for lane %u: %s", i, strerror(error));
			return -error;
		}
		char name[16];
		snprintf(name, sizeof(name), "lane %u", i);
		pthread_setname_np(lane->thread, name);
		host->lane_count++;
	}
	return host_gather(host, why);
}

/* --- peers ------------------------------------------------------------------------------ */

static int host_peer_join(struct host *host, struct host_peer *peer, char *why)
{
	uint64_t lanes = 0;
	for (unsigned i = 0; i < host->lane_count; i++)
		lanes |= 1ull << host->lanes[i].x->index;
	int error = xseg_port_reserve(&host->seg, peer->name, &peer->port);
	if (!error)
		error = xseg_peer_join(
			&host->seg, peer->name, peer->role, lanes, &peer->record, &peer->epoch);
	peer->joined = error == 0;
	if (error == -EEXIST)
		snprintf(why, WHY_SIZE,
			"peer '%s' is running already in segment '%s'; stop it or choose another "
			"name",
			peer->name, host->seg.name);
	else if (error == -ENOSPC)
		snprintf(why, WHY_SIZE, "segment '%s' has no room for peer '%s'", host->seg.name,
			peer->name);
	else if (error)
		snprintf(why, WHY_SIZE, "peer '%s' cannot join segment '%s': %s", peer->name,
			host->seg.name, strerror(-error));
	return error;
}

static bool host_edge_must_lead(const struct host_peer *peer, unsigned e)
{
	unsigned needed = peer->ops->edges_needed;
	return needed == 0 || (needed != PEER_EDGES_ANY && e < needed);
}

/* One that its role can do without, and that nobody has named: peer->edge[] is XSEG_NONE. */
static bool host_edge_is_spared(const struct host *host, const struct host_peer *peer, unsigned e)
{
	char name[XSEG_EDGE_NAME_MAX];
	uint32_t edge;
	if (host_edge_must_lead(peer, e) || peer->edge[e].target || peer->ops->edges_later)
		return false;
	snprintf(name, sizeof(name), "%s:%s", peer->name, peer->ops->edges[e]);
	return xseg_edge_find(&host->seg, name, &edge) != 0 ||
	       xseg_edge_port(&host->seg, edge) == XSEG_NONE;
}

/* The edge as the option says, else as the segment has it; one that leads nowhere is an error. */
static int host_peer_edge(struct host *host, struct host_peer *peer, unsigned e, char *why)
{
	char name[XSEG_EDGE_NAME_MAX];
	const char *target = peer->edge[e].target;
	const char *edge = peer->ops->edges[e];
	uint32_t port = XSEG_NONE;
	snprintf(name, sizeof(name), "%s:%s", peer->name, edge);
	int error = xseg_edge_reserve(&host->seg, name, &peer->edge_index[e]);
	if (!error && target)
		error = xseg_port_reserve(&host->seg, target, &port);
	if (error) {
		snprintf(why, WHY_SIZE, "peer '%s': no edge '%s' in segment '%s': %s", peer->name,
			edge, host->seg.name, strerror(-error));
		return error;
	}
	bool spare = peer->ops->edges_later && !host_edge_must_lead(peer, e);
	atomic_store(&host->seg.edges[peer->edge_index[e]].spare, spare);
	uint32_t now = xseg_edge_port(&host->seg, peer->edge_index[e]);
	if (target && now != port)
		xseg_edge_set(&host->seg, peer->edge_index[e], port);
	if (target || now != XSEG_NONE || spare)
		return 0;
	snprintf(why, WHY_SIZE,
		"peer '%s': its edge '%s' leads nowhere; name the peer below with edge.%s=PEER",
		peer->name, edge, edge);
	return -EDESTADDRREQ;
}

static int host_peer_edges(struct host *host, struct host_peer *peer, char *why)
{
	unsigned e = 0;
	for (; peer->ops->edges && peer->ops->edges[e]; e++) {
		must(e < PEER_EDGES_MAX);
		if (host_edge_is_spared(host, peer, e)) {
			peer->edge_index[e] = XSEG_NONE;
			continue;
		}
		int error = host_peer_edge(host, peer, e, why);
		if (error)
			return error;
	}
	for (; e < PEER_EDGES_MAX; e++)
		peer->edge_index[e] = XSEG_NONE;
	return 0;
}

static int host_shard_init(struct host *host, struct host_peer *peer, unsigned i)
{
	struct shard *shard = &peer->shards[i];
	struct lane *lane = &host->lanes[i];
	shard->owner = peer;
	shard->peer = (struct peer){.ops = peer->ops,
		.name = peer->name,
		.shared = peer->shared,
		.options = peer->options,
		.shard = i,
		.shards = host->lane_count,
		.lane = lane,
		.port = peer->port,
		.record = peer->record};
	memcpy(shard->peer.edge, peer->edge_index, sizeof(peer->edge_index));
	/* lines of its own: states of two lanes must not share one */
	size_t size = (peer->ops->state_size + 127) / 64 * 64;
	shard->peer.state = aligned_alloc(64, size);
	if (!shard->peer.state)
		return -ENOMEM;
	memset(shard->peer.state, 0, size);
	lane->shard[lane->shard_count++] = shard;
	return 0;
}

static bool host_leads(
	const struct host *host, const struct host_peer *above, const struct host_peer *below)
{
	for (unsigned e = 0; e < PEER_EDGES_MAX; e++)
		if (above->edge_index[e] != XSEG_NONE &&
			xseg_edge_port(&host->seg, above->edge_index[e]) == below->port)
			return true;
	return false;
}

/* Does a peer that has no rank yet lead to this one? */
static bool host_has_above(const struct host *host, const struct host_peer *peer)
{
	for (unsigned i = 0; i < host->peer_count; i++) {
		const struct host_peer *above = &host->peers[i];
		if (above->rank == XSEG_NONE && above != peer && host_leads(host, above, peer))
			return true;
	}
	return false;
}

/* From the top down; a circle is cut where it was named first. */
static void host_rank(struct host *host)
{
	for (unsigned i = 0; i < host->peer_count; i++)
		host->peers[i].rank = XSEG_NONE;
	for (unsigned rank = 0; rank < host->peer_count; rank++) {
		struct host_peer *next = NULL;
		for (unsigned i = 0; i < host->peer_count && !next; i++)
			if (host->peers[i].rank == XSEG_NONE &&
				!host_has_above(host, &host->peers[i]))
				next = &host->peers[i];
		for (unsigned i = 0; i < host->peer_count && !next; i++)
			if (host->peers[i].rank == XSEG_NONE)
				next = &host->peers[i];
		next->rank = rank;
		host->order[rank] = next;
	}
}

/* Its shards, and what they share. */
static int host_peer_open(struct host *host, struct host_peer *peer, char *why)
{
	size_t size = host->lane_count * sizeof(struct shard);
	peer->shards = aligned_alloc(64, size);
	if (peer->shards)
		memset(peer->shards, 0, size);
	for (unsigned i = 0; i < host->lane_count; i++)
		if (!peer->shards || host_shard_init(host, peer, i)) {
			snprintf(why, WHY_SIZE, "peer '%s': out of memory", peer->name);
			return -ENOMEM;
		}
	why[0] = '\0';
	int error = peer->ops->open ? peer->ops->open(&peer->shards[0].peer, why, WHY_SIZE) : 0;
	if (error && !why[0])
		snprintf(
			why, WHY_SIZE, "peer '%s' does not open: %s", peer->name, strerror(-error));
	peer->opened = error == 0;
	return error;
}

static int host_peers_join(struct host *host, char *why)
{
	int error = 0;
	for (unsigned i = 0; i < host->peer_count && !error; i++)
		error = host_peer_join(host, &host->peers[i], why);
	for (unsigned i = 0; i < host->peer_count && !error; i++)
		error = host_peer_edges(host, &host->peers[i], why);
	if (!error)
		host_rank(host);
	for (unsigned i = 0; i < host->peer_count && !error; i++)
		error = host_peer_open(host, host->order[i], why);
	return error;
}

static int host_peers_bind(struct host *host, char *why)
{
	uint8_t lanes[HOST_LANES_MAX];
	for (unsigned i = 0; i < host->lane_count; i++)
		lanes[i] = (uint8_t)host->lanes[i].x->index;
	for (unsigned i = host->peer_count; i-- > 0;) {
		struct host_peer *peer = host->order[i];
		int error = xseg_port_bind(&host->seg, peer->name, peer->record, peer->epoch, lanes,
			host->lane_count, &peer->port);
		if (error) {
			snprintf(why, WHY_SIZE, "the port of peer '%s' cannot be bound: %s",
				peer->name, strerror(-error));
			return error;
		}
		peer->bound = true;
	}
	return 0;
}

static void host_peer_leave(struct host *host, struct host_peer *peer)
{
	if (peer->bound)
		xseg_port_unbind(&host->seg, peer->port);
	if (peer->opened && peer->ops->close)
		peer->ops->close(&peer->shards[0].peer);
	if (peer->joined)
		xseg_peer_leave(&host->seg, peer->record);
	for (unsigned i = 0; peer->shards && i < host->lane_count; i++)
		free(peer->shards[i].peer.state);
	free(peer->shards);
	peer->shards = NULL;
	peer->bound = peer->opened = peer->joined = false;
}

static bool host_has_edges(const struct host *host)
{
	for (unsigned i = 0; i < host->peer_count; i++)
		if (host->peers[i].edge_index[0] != XSEG_NONE)
			return true;
	return false;
}

/* Ports from which edges lead to one of ours, over any number of floors, and ours: a bit each. */
static uint64_t host_ports_above(const struct host *host)
{
	const struct xseg *seg = &host->seg;
	uint64_t above = 0, before;
	uint32_t port;
	for (unsigned i = 0; i < host->peer_count; i++)
		if (xseg_port_find(seg, host->peers[i].name, &port) == 0)
			above |= 1ull << port;
	do {
		before = above;
		for (uint32_t i = 0; i < XSEG_EDGES_MAX; i++) {
			const struct xseg_edge_record *edge = &seg->edges[i];
			char name[NAME_LENGTH_MAX + 1];
			port = xseg_edge_port(seg, i);
			if (atomic_load(&edge->life) != XSEG_LIFE_ALIVE || port == XSEG_NONE ||
				!((above >> port) & 1u))
				continue;
			snprintf(name, sizeof(name), "%.*s", (int)strcspn(edge->name, ":"),
				edge->name);
			if (xseg_port_find(seg, name, &port) == 0)
				above |= 1ull << port;
		}
	} while (above != before);
	return above;
}

/* Is there something of the dead that is served by who may not be waiting for us? */
static bool host_waits_below(const struct host *host)
{
	const struct xseg *seg = &host->seg;
	uint64_t above = host_ports_above(host);
	for (uint32_t slot = 0; slot < seg->request_count; slot++) {
		const struct xseg_request *request = &seg->requests[slot];
		uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
		unsigned frame = xseg_word_frame(word), state = xseg_word_state(word);
		/* submitted: whoever served it has just handed it further down */
		if ((state != XSEG_REQUEST_TAKEN && state != XSEG_REQUEST_SUBMITTED) ||
			xseg_lane_alive(seg, request->client, request->client_epoch))
			continue;
		uint32_t port = frame < XSEG_FRAMES ? request->frame[frame].port : XSEG_NONE;
		if (port >= XSEG_PORTS_MAX || !((above >> port) & 1u))
			return true;
	}
	return false;
}

/*
 * What our predecessors still have on its way below must come to rest before we ask for anything:
 * a write of theirs must not follow one of ours. Nobody waits for a peer that asks for nothing.
 * What a peer above us still does for others that are dead may be waiting for us: not for that.
 */
static int host_rest(struct host *host, struct xseg_reap_report *report)
{
	uint64_t until_ns = clock_now_ns() + HOST_REAP_NS;
	int error;
	if (!host_has_edges(host))
		return xseg_reap_wait(&host->seg, 0, report);
	do {
		error = xseg_reap_wait(&host->seg, HOST_REAP_LOOK_NS, report);
		if (error == -ETIME && report->took_ns > 0 && !host_waits_below(host))
			return 0;
	} while (error == -ETIME && clock_now_ns() < until_ns);
	return error;
}

static int host_reap(struct host *host, char *why)
{
	struct xseg_reap_report report;
	int error = host_rest(host, &report);
	if (report.lanes || report.freed || report.resubmitted || report.pages)
		log_info("core_host",
			"reaped: %u lanes, %u requests freed, %u submitted again, %u pages",
			report.lanes, report.freed, report.resubmitted, report.pages);
	if (!error || (error == -ETIME && !host_has_edges(host)))
		return 0;
	snprintf(why, WHY_SIZE,
		"%u requests of processes that have died are still being served below in segment "
		"'%s'; 'xsegctl trace' shows by whom",
		report.pending, host->seg.name);
	return error;
}

/* --- entry points ------------------------------------------------------------------------- */

/* A core file has the segment's tables, for tools/skerry-gdb.py; its pages are left out at join. */
static void host_dump_tables(void)
{
	unsigned filter = 0;
	FILE *file = fopen("/proc/self/coredump_filter", "r+e");
	if (!file)
		return;
	if (fscanf(file, "%x", &filter) == 1) {
		rewind(file);
		fprintf(file, "0x%x", filter | HOST_DUMP_MAPPED_SHARED);
	}
	fclose(file);
}

int host_start(struct host *host, const struct host_config *config, char why[WHY_SIZE])
{
	host->config = *config;
	host->log_level = (int)log_level_get();
	host_dump_tables();
	host->main_thread = pthread_self();
	pthread_mutex_init(&host->mutex, NULL);
	pthread_mutex_init(&host->ring_mutex, NULL);
	pthread_condattr_t attr;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&host->changed, &attr);
	pthread_condattr_destroy(&attr);
	int error = xseg_segment_join(config->segment, &host->seg, why);
	if (error)
		return error;
	host->joined = true;
	xseg_resident_begin(&host->seg); /* threads that are made later have it from this one */
	xseg_ringer_init(&host->ringer, &host->seg);
	worker_pool_start(config->workers);
	error = host_lanes_begin(host, why);
	if (!error)
		error = host_peers_join(host, why);
	if (!error)
		error = host_reap(host, why);
	if (!error) {
		host_set_phase(host, HOST_STARTING);
		error = host_gather(host, why);
	}
	if (!error)
		error = host_peers_bind(host, why);
	if (error) {
		host_fini(host);
		return error;
	}
	host_set_phase(host, HOST_RUNNING);
	return 0;
}

static void host_command(struct host *host, uint32_t command)
{
	for (unsigned i = 0; i < host->lane_count; i++) {
		if (!host->lanes[i].joined)
			continue;
		atomic_fetch_or(&host->lanes[i].commands, command);
		lane_ring(&host->lanes[i]);
	}
}

/* Until that peer's shards have ended, the limit is over or somebody is in a hurry. */
static bool host_wait_peer(
	struct host *host, struct host_peer *peer, uint64_t until_ns, bool (*hurry)(void))
{
	bool done = false;
	pthread_mutex_lock(&host->mutex);
	while (!(done = atomic_load(&peer->shards_done) == host->lane_count)) {
		uint64_t now = clock_now_ns();
		if (now >= until_ns)
			break;
		uint64_t wake = now + HOST_HURRY_NS < until_ns ? now + HOST_HURRY_NS : until_ns;
		struct timespec t = {.tv_sec = (time_t)(wake / 1000000000u),
			.tv_nsec = (long)(wake % 1000000000u)};
		pthread_cond_timedwait(&host->changed, &host->mutex, &t);
		if (hurry && hurry())
			break;
	}
	pthread_mutex_unlock(&host->mutex);
	return done;
}

bool host_stop(struct host *host, bool (*hurry)(void))
{
	uint64_t until_ns = clock_now_ns() + host->config.drain_ns;
	for (unsigned rank = 0; rank < host->peer_count; rank++) {
		struct host_peer *peer = host->order[rank];
		xseg_peer_draining(&host->seg, peer->record);
		/* what is sent to it from now on waits for the next to bind the port */
		xseg_port_drain(&host->seg, peer->port);
		atomic_store(&host->stopping, rank + 1);
		host_command(host, LANE_STOP);
		if (!host_wait_peer(host, peer, until_ns, hurry))
			return false;
	}
	return true;
}

void host_dump(struct host *host, FILE *out)
{
	pthread_mutex_lock(&host->mutex);
	host->dump = out;
	host->reported = 0;
	pthread_mutex_unlock(&host->mutex);
	host_command(host, LANE_DUMP);
	uint64_t until_ns = clock_now_ns() + 1000000000u;
	struct timespec t = {.tv_sec = (time_t)(until_ns / 1000000000u),
		.tv_nsec = (long)(until_ns % 1000000000u)};
	pthread_mutex_lock(&host->mutex);
	int error = 0;
	while (host->reported < host->lane_count && error != ETIMEDOUT)
		error = pthread_cond_timedwait(&host->changed, &host->mutex, &t);
	if (host->reported < host->lane_count)
		fprintf(out, "%u of %u lanes do not answer: they are stuck in a turn\n",
			host->lane_count - host->reported, host->lane_count);
	host->dump = NULL;
	pthread_mutex_unlock(&host->mutex);
}

bool host_alive(struct host *host)
{
	bool alive = true;
	for (unsigned i = 0; i < host->lane_count; i++) {
		struct lane *lane = &host->lanes[i];
		uint64_t turn = atomic_load(&host->seg.lanes[lane->place].heartbeat);
		alive &= turn != lane->seen_turn;
		lane->seen_turn = turn;
	}
	return alive;
}

void host_ask_stop(struct host *host, int status)
{
	if (status)
		atomic_store(&host->status, status);
	pthread_kill(host->main_thread, SIGUSR2);
}

void host_fini(struct host *host)
{
	bool running = host->phase == HOST_RUNNING;
	host_set_phase(host, HOST_ENDING);
	if (running)
		host_command(host, LANE_EXIT);
	for (unsigned i = 0; i < host->lane_count; i++)
		pthread_join(host->lanes[i].thread, NULL);
	worker_pool_stop();
	for (unsigned i = 0; i < host->peer_count; i++)
		host_peer_leave(host, &host->peers[i]);
	for (unsigned i = 0; i < host->peer_count; i++)
		spec_peer_free(&host->peers[i]);
	if (host->joined) {
		xseg_ringer_fini(&host->ringer);
		xseg_resident_end(&host->seg);
		xseg_segment_leave(&host->seg);
	}
	host->joined = false;
	host->peer_count = host->lane_count = 0;
}
