/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who lives, but does not move: lanes without a turn, main threads without a sign of life, and
 * requests that are too old. Each is an event with its reason; a restart only where asked for.
 */
#include <base/clock.h>
#include <base/log.h>
#include <base/must.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xseg/op.h>
#include <xseg/registry.h>
#include <xseg/request.h>
#include <xseg/resident.h>

#include "tools/keeper/keeper.h"

#define WATCH_US 500000
#define GAP_NS 2000000000ull	    /* between two looks: it was us who did not move */
#define SIGN_LEAST_NS 5000000000ull /* xsegpeer gives a sign each 1.5 s at most */
#define OLD_AGAIN_NS 30000000000ull /* the same news at most so often */

/* --- one process ------------------------------------------------------------------------ */

/* "T (stopped)": what the kernel says it does. */
static void process_state(pid_t pid, char *out, size_t out_size)
{
	char path[64], text[512], *at;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	at = strrchr(text, ')');
	char state = at && at[1] == ' ' ? at[2] : '?';
	const char *word = state == 'T' || state == 't' ? "it is stopped by a signal"
			   : state == 'D'		? "it waits for a disk"
			   : state == 'R'		? "it runs"
							: "it sleeps";
	snprintf(out, out_size, "%s", word);
}

static uint64_t lanes_of(const struct keeper_host *host)
{
	const struct xseg *seg = &host->keeper->seg;
	uint64_t lanes = 0;
	for (uint32_t i = 0; i < seg->lane_count; i++) {
		uint64_t word = atomic_load_explicit(&seg->lanes[i].word, memory_order_acquire);
		if (xseg_life_of(word) == XSEG_LIFE_ALIVE &&
			xseg_owner_of(word) == (uint32_t)host->pid)
			lanes |= 1ull << i;
	}
	return lanes;
}

/* The lane that has stood longest; XSEG_NONE: all have moved in time. */
static uint32_t stuck_lane(struct keeper_host *host, uint64_t now_ns, uint64_t *since_ns)
{
	struct keeper_pulse *pulse = &host->pulse;
	const struct xseg *seg = &host->keeper->seg;
	uint64_t lanes = lanes_of(host);
	uint32_t worst = XSEG_NONE;
	*since_ns = now_ns - host->keep.watchdog_ns;
	for (uint32_t i = 0; i < seg->lane_count; i++) {
		if (!(lanes >> i & 1u))
			continue;
		uint64_t beat =
			atomic_load_explicit(&seg->lanes[i].heartbeat, memory_order_relaxed);
		if (beat != pulse->heartbeat[i] || !pulse->moved_ns[i]) {
			pulse->heartbeat[i] = beat;
			pulse->moved_ns[i] = now_ns;
		} else if (pulse->moved_ns[i] <= *since_ns) {
			*since_ns = pulse->moved_ns[i];
			worst = i;
		}
	}
	return worst;
}

static bool silent(const struct keeper_host *host, uint64_t now_ns)
{
	uint64_t limit =
		host->keep.watchdog_ns > SIGN_LEAST_NS ? host->keep.watchdog_ns : SIGN_LEAST_NS;
	return host->pulse.alive_ns && now_ns - host->pulse.alive_ns > limit;
}

static void now_stuck(struct keeper_host *host)
{
	struct keeper_pulse *pulse = &host->pulse;
	bool restart = host->keep.watchdog_restarts;
	pulse->stuck = true;
	log_error("keeper", "'%s' (pid %d) %s%s", keeper_host_name(host), (int)host->pid,
		pulse->reason, restart ? ": it is killed" : "");
	keeper_event_host(host, "peer_stuck", pulse->reason,
		json_pack("{s:s}", "action", restart ? "restart" : "event"));
	if (restart)
		keeper_host_kill(host);
}

static void watch_pulse(struct keeper_host *host, uint64_t now_ns)
{
	struct keeper_pulse *pulse = &host->pulse;
	char state[64], what[64];
	uint64_t since_ns;
	uint32_t lane = stuck_lane(host, now_ns, &since_ns);
	bool still = lane != XSEG_NONE;
	if (!still && !silent(host, now_ns)) {
		if (pulse->stuck)
			log_info("keeper", "'%s' moves again", keeper_host_name(host));
		if (pulse->stuck)
			keeper_event_host(host, "peer_moves", NULL, NULL);
		pulse->stuck = false;
		return;
	}
	if (!still)
		since_ns = pulse->alive_ns;
	snprintf(what, sizeof(what), still ? "lane %u" : "its main thread", lane);
	process_state(host->pid, state, sizeof(state));
	snprintf(pulse->reason, sizeof(pulse->reason), "does not move: %s, for %.1f s; %s", what,
		(double)(now_ns - since_ns) / 1e9, state);
	if (!pulse->stuck)
		now_stuck(host);
}

void keeper_watch_begin(struct keeper_host *host) { memset(&host->pulse, 0, sizeof(host->pulse)); }

/* --- old requests ----------------------------------------------------------------------- */

struct oldest {
	unsigned count;
	uint64_t age_ns;
	uint32_t slot, client;
	uint8_t op;
	bool taken;
	char peer[NAME_LENGTH_MAX + 1];
};

static void look_at(struct keeper *keeper, uint32_t slot, uint64_t now_ns, struct oldest *oldest)
{
	const struct xseg *seg = &keeper->seg;
	const struct xseg_request *request = &seg->requests[slot];
	uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
	unsigned state = xseg_word_state(word), frame = xseg_word_frame(word);
	if ((state != XSEG_REQUEST_SUBMITTED && state != XSEG_REQUEST_TAKEN) ||
		frame >= XSEG_FRAMES)
		return;
	uint64_t stamp = request->frame[frame].time_ns;
	uint32_t port = request->frame[frame].port;
	if (port >= XSEG_PORTS_MAX || stamp >= now_ns ||
		atomic_load_explicit(&request->word, memory_order_acquire) != word)
		return;
	char name[NAME_LENGTH_MAX + 1] = "";
	memcpy(name, seg->ports[port].name, NAME_LENGTH_MAX);
	const struct pipeline_peer *peer = pipeline_peer_find(&keeper->pipeline, name);
	if (!peer || !keeper->hosts[peer->host].keep.request_ns ||
		now_ns - stamp < keeper->hosts[peer->host].keep.request_ns)
		return;
	struct oldest *here = &oldest[peer->host];
	here->count++;
	if (now_ns - stamp <= here->age_ns)
		return;
	*here = (struct oldest){.count = here->count,
		.age_ns = now_ns - stamp,
		.slot = slot,
		.client = request->client,
		.op = request->frame[frame].op,
		.taken = state == XSEG_REQUEST_TAKEN};
	snprintf(here->peer, sizeof(here->peer), "%s", name);
}

static void tell_old(struct keeper_host *host, const struct oldest *oldest, uint64_t now_ns)
{
	char reason[256];
	const char *op = xseg_op_name(oldest->op);
	if (host->pulse.old_ns && now_ns - host->pulse.old_ns < OLD_AGAIN_NS)
		return;
	host->pulse.old_ns = now_ns;
	snprintf(reason, sizeof(reason),
		"%u request%s of '%s' older than %.1f s; the oldest, a %s, %s "
		"for %.1f s",
		oldest->count, oldest->count == 1 ? "" : "s", oldest->peer,
		(double)host->keep.request_ns / 1e9, op ? op : "?",
		oldest->taken ? "is with it" : "waits for it", (double)oldest->age_ns / 1e9);
	log_warning("keeper", "%s", reason);
	keeper_event_host(host, "request_old", reason,
		json_pack("{s:s, s:i, s:I, s:s, s:b, s:i, s:i}", "peer", oldest->peer, "count",
			(int)oldest->count, "age_ns", (json_int_t)oldest->age_ns, "op",
			op ? op : "?", "taken", (int)oldest->taken, "slot", (int)oldest->slot,
			"lane", (int)oldest->client));
}

static void watch_requests(struct keeper *keeper, uint64_t now_ns)
{
	static struct oldest oldest[PIPELINE_HOSTS_MAX];
	memset(oldest, 0, sizeof(oldest));
	for (uint32_t slot = 0; slot < keeper->seg.request_count; slot++)
		look_at(keeper, slot, now_ns, oldest);
	for (unsigned i = 0; i < keeper->pipeline.host_count; i++)
		if (oldest[i].count)
			tell_old(&keeper->hosts[i], &oldest[i], now_ns);
		else
			keeper->hosts[i].pulse.old_ns = 0;
}

/* --- the round -------------------------------------------------------------------------- */

/* We were stopped ourselves, or the whole machine was: nobody is to blame. */
static void forgive(struct keeper *keeper, uint64_t now_ns)
{
	for (unsigned i = 0; i < keeper->pipeline.host_count; i++) {
		struct keeper_pulse *pulse = &keeper->hosts[i].pulse;
		for (unsigned lane = 0; lane < XSEG_LANES_MAX; lane++)
			pulse->moved_ns[lane] = pulse->moved_ns[lane] ? now_ns : 0;
		pulse->alive_ns = pulse->alive_ns ? now_ns : 0;
	}
}

static void on_watch(int fd, short what, void *context)
{
	static const struct timeval every = {.tv_usec = WATCH_US};
	struct keeper *keeper = context;
	uint64_t now_ns = clock_now_ns();
	(void)fd;
	(void)what;
	if (keeper->watched_ns && now_ns - keeper->watched_ns > GAP_NS)
		forgive(keeper, now_ns);
	keeper->watched_ns = now_ns;
	for (unsigned i = 0; i < keeper->pipeline.host_count; i++) {
		struct keeper_host *host = &keeper->hosts[i];
		if (host->state == KEEPER_STARTING && host->adopted && keeper_adopt_serves(host))
			keeper_host_ready(host);
		if (host->state == KEEPER_RUNNING && host->keep.watchdog_ns)
			watch_pulse(host, now_ns);
	}
	if (keeper->phase != KEEPER_PHASE_STOPPING)
		watch_requests(keeper, now_ns);
	if (keeper->phase != KEEPER_PHASE_STOPPING)
		keeper_news_look(keeper);
	keeper_reap_others(keeper);
	xseg_resident_look(); /* who starts a successor must not wait for it */
	evtimer_add(keeper->watch, &every);
}

void keeper_watch_open(struct keeper *keeper)
{
	keeper->watch = evtimer_new(keeper->base, on_watch, keeper);
	must(keeper->watch);
	on_watch(-1, 0, keeper);
}

void keeper_watch_close(struct keeper *keeper)
{
	if (keeper->watch)
		event_free(keeper->watch);
	keeper->watch = NULL;
}
