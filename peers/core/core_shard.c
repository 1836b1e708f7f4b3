/* SPDX-License-Identifier: Apache-2.0 */
/* A shard: its counters, its beginning and end, and what the role may ask of its lane. */
#include <base/log.h>
#include <errno.h>
#include <peer/keep.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "peers/core/core.h"

static const struct xseg_counter core_counters[CORE_COUNTERS] = {
	[CORE_READS] = {"reads", "", "reads served"},
	[CORE_READ_BYTES] = {"read_bytes", "B", "bytes read"},
	[CORE_WRITES] = {"writes", "", "writes served"},
	[CORE_WRITE_BYTES] = {"write_bytes", "B", "bytes written"},
	[CORE_ZEROS] = {"zeros", "", "zeroes and discards served"},
	[CORE_ZERO_BYTES] = {"zero_bytes", "B", "bytes zeroed or discarded"},
	[CORE_FLUSHES] = {"flushes", "", "flushes served"},
	[CORE_OTHERS] = {"others", "", "other requests served"},
	[CORE_ERRORS] = {"errors", "", "requests that ended with an error"},
	[CORE_REFUSED] = {"refused", "", "malformed requests, refused at the door"},
	[CORE_UNSUPPORTED] = {"unsupported", "", "requests for which the role has no handler"},
	[CORE_JOBS] = {"jobs", "now", "requests being served now"},
	[CORE_CALLS] = {"calls", "", "requests of its own that were answered"},
	[CORE_CALLS_OUT] = {"calls_out", "now", "requests of its own on their way now"},
	[CORE_RETRIES] = {"retries", "", "waits for a free request or page"},
	[CORE_SLOW_TURNS] = {"slow_turns", "", "turns of its lane that took over 10 ms"},
};

enum { HISTOGRAM_READ, HISTOGRAM_WRITE, HISTOGRAM_FLUSH, HISTOGRAM_OTHER };

static const char *const core_histograms[XSEG_HISTOGRAMS] = {
	[HISTOGRAM_READ] = "read_ns",
	[HISTOGRAM_WRITE] = "write_ns",
	[HISTOGRAM_FLUSH] = "flush_ns",
	[HISTOGRAM_OTHER] = "other_ns",
};

#define OP_OTHER \
	{ \
		CORE_OTHERS, HISTOGRAM_OTHER, false \
	}

const struct op_class op_classes[XSEG_OP_COUNT] = {
	[XSEG_OP_NONE] = OP_OTHER,
	[XSEG_OP_READ] = {CORE_READS, HISTOGRAM_READ, true},
	[XSEG_OP_WRITE] = {CORE_WRITES, HISTOGRAM_WRITE, true},
	[XSEG_OP_ZERO] = {CORE_ZEROS, HISTOGRAM_OTHER, true},
	[XSEG_OP_DISCARD] = {CORE_ZEROS, HISTOGRAM_OTHER, true},
	[XSEG_OP_FLUSH] = {CORE_FLUSHES, HISTOGRAM_FLUSH, false},
	[XSEG_OP_PREFETCH] = OP_OTHER,
	[XSEG_OP_STATUS] = OP_OTHER,
	[XSEG_OP_COPY] = OP_OTHER,
	[XSEG_OP_DELETE] = OP_OTHER,
	[XSEG_OP_CAS] = OP_OTHER,
	[XSEG_OP_OPEN] = OP_OTHER,
	[XSEG_OP_CLOSE] = OP_OTHER,
	[XSEG_OP_INFO] = OP_OTHER,
	[XSEG_OP_LIST] = OP_OTHER,
	[XSEG_OP_CREATE] = OP_OTHER,
	[XSEG_OP_UPDATE] = OP_OTHER,
	[XSEG_OP_REMOVE] = OP_OTHER,
	[XSEG_OP_CONTROL] = OP_OTHER,
};

/* --- counters ------------------------------------------------------------------ */

static unsigned shard_counters(const struct peer_ops *ops, struct xseg_counter all[XSEG_COUNTERS])
{
	unsigned count = CORE_COUNTERS;
	memcpy(all, core_counters, sizeof(core_counters));
	for (const struct xseg_counter *c = ops->counters; c && c->name; c++) {
		must(count < XSEG_COUNTERS);
		all[count++] = *c;
	}
	return count;
}

/* No block left in the segment: it counts for itself, and nobody sees it. */
static int shard_count_alone(struct shard *shard)
{
	shard->peer.stats = aligned_alloc(128, sizeof(*shard->peer.stats));
	if (!shard->peer.stats)
		return -ENOMEM;
	memset(shard->peer.stats, 0, sizeof(*shard->peer.stats));
	shard->private_stats = true;
	log_warning("core_peer", "no room in segment '%s' for the counters of peer '%s'",
		shard->peer.lane->x->seg->name, shard->peer.name);
	return 0;
}

static int shard_count_open(struct shard *shard)
{
	struct xseg_counter all[XSEG_COUNTERS];
	struct lane *lane = shard->peer.lane;
	unsigned count = shard_counters(shard->peer.ops, all);
	int error = xseg_stats_open(lane->x->seg, shard->peer.record, shard->owner->epoch,
		lane->x->index, all, count, core_histograms, XSEG_HISTOGRAMS, &shard->peer.stats);
	return error == -ENOSPC ? shard_count_alone(shard) : error;
}

static void shard_count_close(struct shard *shard)
{
	if (shard->private_stats)
		free(shard->peer.stats);
	else if (shard->peer.stats)
		xseg_stats_close(shard->peer.stats);
	shard->peer.stats = NULL;
}

/* --- beginning and end -------------------------------------------------------------- */

int shard_start(struct shard *shard, char *why)
{
	struct peer *peer = &shard->peer;
	shard->retry_head = shard->retry_tail = XSEG_NONE;
	shard->slots_turn = shard->pages_turn = UINT64_MAX;
	flush_init(shard);
	shard->front = true; /* nobody in the segment asks it for anything but of itself */
	for (unsigned op = 0; op < XSEG_OP_COUNT; op++)
		if (peer->ops->on[op] && op != XSEG_OP_CONTROL)
			shard->front = false;
	int error = shard_count_open(shard);
	if (error) {
		snprintf(why, WHY_SIZE, "no counters for peer '%s': %s", peer->name,
			strerror(-error));
		return error;
	}
	why[0] = '\0';
	error = peer->ops->start ? peer->ops->start(peer, why, WHY_SIZE) : 0;
	if (error && !why[0])
		snprintf(why, WHY_SIZE, "peer '%s' does not start: %s", peer->name,
			strerror(-error));
	if (error) {
		shard_count_close(shard);
		return error;
	}
	shard->started = true;
	level_begin(shard);
	peer->lane->by_port[peer->port] = shard;
	return 0;
}

void shard_finish(struct shard *shard)
{
	struct peer *peer = &shard->peer;
	if (!shard->started)
		return;
	peer->lane->by_port[peer->port] = NULL;
	if (peer->ops->finish)
		peer->ops->finish(peer);
	volume_finish(shard);
	shard_count_close(shard);
	shard->started = false;
}

bool shard_idle(struct shard *shard)
{
	const struct peer_ops *ops = shard->peer.ops;
	return shard->jobs == 0 && shard->calls == 0 && shard->posts == 0 &&
	       shard->retry_head == XSEG_NONE && (!ops->idle || ops->idle(&shard->peer));
}

static void shard_dump_calls(const struct shard *shard, FILE *out)
{
	const struct lane *lane = shard->peer.lane;
	for (uint32_t i = 0; i < lane->calls.touched; i++) {
		const struct call *call = slab_at(&lane->calls, i);
		if (!call->live || call->peer != &shard->peer)
			continue;
		fprintf(out, "    call: %s, request %u, offset %llu, length %u, %s, %llu us\n",
			xseg_op_name(call->op), call->slot, (unsigned long long)call->offset,
			call->length, call->submitted ? "on its way" : "held",
			(unsigned long long)(lane->x->now_ns - call->submitted_ns) / 1000);
	}
}

static void shard_dump_jobs(const struct shard *shard, FILE *out)
{
	const struct lane *lane = shard->peer.lane;
	for (uint32_t i = 0; i < lane->jobs.touched; i++) {
		const struct job *job = slab_at(&lane->jobs, i);
		if (!job->live || job->peer != &shard->peer)
			continue;
		fprintf(out,
			"    job: %s, request %u, hop %u, offset %llu, length %u, waits for %u, "
			"%llu us\n",
			xseg_op_name(job->op), job->slot, job->frame,
			(unsigned long long)job->offset, job->length, job->fan_pending,
			(unsigned long long)(lane->x->now_ns - job->taken_ns) / 1000);
	}
}

void shard_dump(struct shard *shard, FILE *out)
{
	struct peer *peer = &shard->peer;
	fprintf(out, "  peer %s (%s) shard %u: %u jobs, %u calls, %u posts%s\n", peer->name,
		peer->ops->name, peer->shard, shard->jobs, shard->calls, shard->posts,
		peer->stopping ? ", stopping" : "");
	shard_dump_jobs(shard, out);
	shard_dump_calls(shard, out);
	if (peer->ops->dump)
		peer->ops->dump(peer, out);
}

/* --- what a role may ask -------------------------------------------------------------- */

uint64_t peer_now_ns(const struct peer *peer) { return lane_now(peer->lane); }

const struct xseg *peer_segment(const struct peer *peer) { return peer->lane->x->seg; }

void peer_wake_at(struct peer *peer, uint64_t time_ns) { shard_of(peer)->wake_ns = time_ns; }

void peer_wake(struct peer *peer, unsigned shard)
{
	must(shard < peer->shards);
	struct lane *lane = &peer->lane->host->lanes[shard];
	atomic_fetch_or(&lane->commands, (uint32_t)LANE_WAKE);
	lane_ring(lane);
}

void peer_stop_host(struct peer *peer) { host_ask_stop(peer->lane->host, 0); }

void peer_fatal(struct peer *peer, const char *format, ...)
{
	char text[WHY_SIZE];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log_error(peer->ops->name, "%s: %s", peer->name, text);
	host_ask_stop(peer->lane->host, 1);
}
