/* SPDX-License-Identifier: Apache-2.0 */
/* Copies counters, histograms and the state of the request table out of a segment. */
#include "tools/report/watch.h"

#include <base/clock.h>
#include <base/must.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/request.h>

const struct watch_op watch_ops[WATCH_OPS] = {
	{"read", {"reads"}, "read_bytes", "read_ns"},
	{"write", {"writes"}, "write_bytes", "write_ns"},
	{"flush", {"flushes"}, NULL, "flush_ns"},
	{"other", {"zeros", "others"}, "zero_bytes", "other_ns"},
};

const char *const watch_volume_ops[XSEG_VOLUME_OPS] = {"read", "write", "flush", "other"};

static uint64_t load(const _Atomic uint64_t *cell)
{
	return atomic_load_explicit(cell, memory_order_relaxed);
}

static uint32_t at_most(uint32_t value, uint32_t max) { return value < max ? value : max; }

static void add_histogram(struct watch_histogram *to, const struct xseg_histogram *from)
{
	memcpy(to->name, from->name, sizeof(to->name) - 1);
	to->sum += load(&from->sum);
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		uint64_t n = load(&from->counts[i]);
		to->counts[i] += n;
		to->count += n;
	}
}

/* --- peers ------------------------------------------------------------------------------ */

static void add_block(struct watch_peer *peer, const struct xseg_stats_block *block)
{
	uint32_t counters = at_most(block->counter_count, XSEG_COUNTERS);
	uint32_t histograms = at_most(block->histogram_count, XSEG_HISTOGRAMS);
	for (uint32_t i = 0; i < counters; i++) {
		struct watch_counter *counter = &peer->counters[i];
		memcpy(counter->name, block->names[i].name, sizeof(counter->name) - 1);
		memcpy(counter->unit, block->names[i].unit, sizeof(counter->unit) - 1);
		memcpy(counter->help, block->names[i].help, sizeof(counter->help) - 1);
		counter->value += load(&block->counters[i]);
	}
	for (uint32_t i = 0; i < histograms; i++)
		add_histogram(&peer->histograms[i], &block->histograms[i]);
	if (counters > peer->counter_count)
		peer->counter_count = counters;
	if (histograms > peer->histogram_count)
		peer->histogram_count = histograms;
}

static void take_peers(const struct xseg *seg, struct watch *watch)
{
	watch->peers = calloc(XSEG_PEERS_MAX, sizeof(*watch->peers));
	must(watch->peers);
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++) {
		struct watch_peer *peer = &watch->peers[watch->peer_count];
		/* the segment is not trusted: such a name could not be shown */
		if (!xseg_peer_view(seg, i, &peer->view) || !name_check(peer->view.name) ||
			!name_check(peer->view.role))
			continue;
		watch->peer_count++;
		for (uint32_t j = 0; j < XSEG_STATS_BLOCKS; j++) {
			uint64_t word =
				atomic_load_explicit(&seg->stats[j].word, memory_order_acquire);
			if (xseg_life_of(word) == XSEG_LIFE_ALIVE && xseg_owner_of(word) == i &&
				xseg_epoch_of(word) == peer->view.epoch)
				add_block(peer, &seg->stats[j]);
		}
	}
}

/* --- volumes ---------------------------------------------------------------------------- */

static struct watch_volume *volume_of(struct watch *watch, uint64_t id)
{
	for (uint32_t i = 0; i < watch->volume_count; i++)
		if (watch->volumes[i].volume == id)
			return &watch->volumes[i];
	return NULL;
}

static void take_volumes(const struct xseg *seg, struct watch *watch)
{
	watch->volumes = calloc(seg->volume_count + 1, sizeof(*watch->volumes));
	must(watch->volumes);
	for (uint32_t i = 0; i < seg->volume_count; i++) {
		struct xseg_volume_view view;
		if (!xseg_volume_view(seg, i, &view))
			continue;
		struct watch_volume *volume = volume_of(watch, view.volume);
		if (!volume)
			volume = &watch->volumes[watch->volume_count++];
		volume->volume = view.volume;
		volume->errors += view.errors;
		if (name_check_volume(view.name))
			memcpy(volume->name, view.name, sizeof(volume->name));
		for (unsigned op = 0; op < XSEG_VOLUME_OPS; op++) {
			volume->bytes[op] += view.bytes[op];
			add_histogram(&volume->latency[op], &seg->volumes[i].latency[op]);
		}
	}
}

/* --- lanes ------------------------------------------------------------------------------ */

static void take_lanes(const struct xseg *seg, struct watch *watch)
{
	for (uint32_t i = 0; i < seg->lane_count; i++) {
		const struct xseg_lane_record *record = &seg->lanes[i];
		uint64_t word = atomic_load_explicit(&record->word, memory_order_acquire);
		if (!xseg_lane_alive(seg, i, (uint16_t)xseg_epoch_of(word)))
			continue;
		bool asleep = atomic_load(&record->bell.asleep) != 0;
		uint64_t since_ns = load(&record->turn_ns);
		/* a sleep is counted when it ends; this one goes on */
		uint64_t slept_ns = asleep && since_ns && watch->time_ns > since_ns
					    ? watch->time_ns - since_ns
					    : 0;
		watch->lanes[watch->lane_count++] = (struct watch_lane){.lane = i,
			.pid = (pid_t)xseg_owner_of(word),
			.epoch = (uint16_t)xseg_epoch_of(word),
			.asleep = asleep,
			.turns = load(&record->heartbeat),
			.busy_ns = load(&record->busy_ns),
			.asleep_ns = load(&record->asleep_ns) + slept_ns,
			.sleeps = load(&record->sleeps)};
	}
}

/* --- the request table ------------------------------------------------------------------ */

/* Whose is each port: an index into watch->peers, or -1. */
static void map_ports(
	const struct xseg *seg, const struct watch *watch, int peer_of[XSEG_PORTS_MAX])
{
	for (uint32_t port = 0; port < XSEG_PORTS_MAX; port++) {
		char name[NAME_LENGTH_MAX + 1] = "";
		memcpy(name, seg->ports[port].name, NAME_LENGTH_MAX);
		peer_of[port] = -1;
		for (uint32_t i = 0; i < watch->peer_count && name[0]; i++)
			if (!strcmp(watch->peers[i].view.name, name))
				peer_of[port] = (int)i;
	}
}

static void take_request(
	const struct xseg_request *request, struct watch *watch, const int peer_of[XSEG_PORTS_MAX])
{
	uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
	unsigned state = xseg_word_state(word), frame = xseg_word_frame(word);
	if ((state != XSEG_REQUEST_SUBMITTED && state != XSEG_REQUEST_TAKEN) ||
		frame >= XSEG_FRAMES)
		return;
	uint32_t port = request->frame[frame].port;
	struct watch_volume *volume = volume_of(watch, request->frame[0].key.volume);
	if (volume)
		volume->sent++;
	if (port >= XSEG_PORTS_MAX || peer_of[port] < 0)
		return;
	if (state == XSEG_REQUEST_SUBMITTED)
		watch->peers[peer_of[port]].queued++;
	else
		watch->peers[peer_of[port]].served++;
}

static void take_requests(const struct xseg *seg, struct watch *watch)
{
	int peer_of[XSEG_PORTS_MAX];
	map_ports(seg, watch, peer_of);
	for (uint32_t i = 0; i < seg->request_count; i++)
		take_request(&seg->requests[i], watch, peer_of);
	for (uint32_t i = 0; i < watch->peer_count; i++) {
		const struct watch_counter *out = watch_counter(&watch->peers[i], "calls_out");
		watch->peers[i].sent = out ? (uint32_t)out->value : 0;
	}
}

/* --- entry points ----------------------------------------------------------------------- */

void watch_take(const struct xseg *seg, struct watch *watch)
{
	memset(watch, 0, sizeof(*watch));
	watch->time_ns = clock_now_ns();
	take_peers(seg, watch);
	take_volumes(seg, watch);
	take_lanes(seg, watch);
	take_requests(seg, watch);
	xseg_segment_usage(seg, &watch->usage);
}

void watch_free(struct watch *watch)
{
	free(watch->peers);
	free(watch->volumes);
	memset(watch, 0, sizeof(*watch));
}

const struct watch_peer *watch_peer_before(const struct watch *before, const struct watch_peer *now)
{
	for (uint32_t i = 0; i < before->peer_count; i++)
		if (before->peers[i].view.index == now->view.index &&
			before->peers[i].view.epoch == now->view.epoch)
			return &before->peers[i];
	return NULL;
}

const struct watch_volume *watch_volume_before(
	const struct watch *before, const struct watch_volume *now)
{
	for (uint32_t i = 0; i < before->volume_count; i++)
		if (before->volumes[i].volume == now->volume)
			return &before->volumes[i];
	return NULL;
}

const struct watch_lane *watch_lane_before(const struct watch *before, const struct watch_lane *now)
{
	for (uint32_t i = 0; i < before->lane_count; i++)
		if (before->lanes[i].lane == now->lane && before->lanes[i].epoch == now->epoch)
			return &before->lanes[i];
	return NULL;
}

struct watch_histogram watch_since(
	const struct watch_histogram *now, const struct watch_histogram *before)
{
	struct watch_histogram since = *now;
	if (!before || before->count > now->count)
		return since;
	since.sum -= before->sum <= now->sum ? before->sum : 0;
	since.count = 0;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		since.counts[i] -= before->counts[i] <= now->counts[i] ? before->counts[i] : 0;
		since.count += since.counts[i];
	}
	return since;
}

const struct watch_counter *watch_counter(const struct watch_peer *peer, const char *name)
{
	for (uint32_t i = 0; i < peer->counter_count; i++)
		if (!strcmp(peer->counters[i].name, name))
			return &peer->counters[i];
	return NULL;
}

const struct watch_histogram *watch_histogram(const struct watch_peer *peer, const char *name)
{
	for (uint32_t i = 0; i < peer->histogram_count; i++)
		if (!strcmp(peer->histograms[i].name, name))
			return &peer->histograms[i];
	return NULL;
}
