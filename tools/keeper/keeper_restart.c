/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What follows a death: the process is started again after a delay that grows while it keeps
 * dying, or given up when it has died too often. Requests for one that was given up go the second
 * way where the pipeline names one (fallback.EDGE), else they are answered with -EIO.
 */
#include <base/clock.h>
#include <base/crash.h>
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xseg/port.h>
#include <xseg/reap.h>

#include "tools/keeper/keeper.h"

#define QUICK_NS 5000000000ull /* who serves longer has come up well: the next delay is the first */
#define DELAY_LEAST_NS 100000000ull /* of the second restart in a row */
#define REFUSE_US 50000

/* --- the delay and the limit ------------------------------------------------------------ */

static uint64_t delay_of(const struct keeper_host *host)
{
	const struct pipeline_keep *keep = &host->keep;
	if (host->quick <= 1)
		return keep->delay_ns;
	uint64_t delay = keep->delay_ns > DELAY_LEAST_NS ? keep->delay_ns : DELAY_LEAST_NS;
	for (unsigned i = 2; i < host->quick && delay < keep->delay_max_ns; i++)
		delay *= 2;
	return delay < keep->delay_max_ns ? delay : keep->delay_max_ns;
}

static bool too_often(const struct keeper_host *host, uint64_t now_ns)
{
	const struct pipeline_keep *keep = &host->keep;
	if (!keep->limit || host->counted < keep->limit)
		return false;
	uint64_t first = host->history[(host->counted - keep->limit) % PIPELINE_RESTARTS_MAX];
	return now_ns - first < keep->window_ns;
}

static void wait_for(struct keeper_host *host, uint64_t delay_ns)
{
	sm_move(keeper_states, &host->state, KEEPER_WAITING);
	host->due = delay_ns == 0;
	if (!host->due)
		keeper_host_set_timer(host, delay_ns);
	keeper_event_host(host, "peer_restarting", host->reason,
		json_pack("{s:I}", "delay_ns", (json_int_t)delay_ns));
	log_info("keeper", "'%s' is started again in %llu ms", keeper_host_name(host),
		(unsigned long long)(delay_ns / 1000000));
}

void keeper_restart_soon(struct keeper_host *host) { wait_for(host, 0); }

/* why: beside how it ended, or "". */
static void give_up(struct keeper_host *host, const char *why)
{
	char reason[512];
	snprintf(reason, sizeof(reason), "%s%s%s", why, *why ? "; at last: " : "", host->reason);
	snprintf(host->reason, sizeof(host->reason), "%.380s", reason);
	crash_point("keeper.give_up.before_save");
	sm_move(keeper_states, &host->state, KEEPER_GIVEN_UP);
	log_error("keeper", "'%s' is given up: %s", keeper_host_name(host), host->reason);
	keeper_event_host(host, "peer_given_up", host->reason, NULL);
	/* clients are refused rather than left to wait in a queue that nobody looks at */
	keeper_store_drop(host);
	keeper_reap_soon(host->keeper);
}

/* on-failure, and it ended well: nothing is wrong with it. */
static void left_by_itself(struct keeper_host *host)
{
	snprintf(host->reason, sizeof(host->reason), "ended by itself (exit status 0)");
	sm_move(keeper_states, &host->state, KEEPER_STOPPED);
	keeper_store_drop(host);
}

/* The pipeline goes down, and those above drain: they need it once more. */
static void decide_stopping(struct keeper_host *host, uint64_t now_ns)
{
	char users[256];
	if (host->keep.restart != PIPELINE_RESTART_NEVER && !too_often(host, now_ns) &&
		keeper_edge_users(host->keeper, host, users, sizeof(users)))
		wait_for(host, 0);
}

void keeper_restart_decide(struct keeper_host *host)
{
	const struct pipeline_keep *keep = &host->keep;
	uint64_t now_ns = clock_now_ns();
	char why[128];
	if (host->keeper->phase == KEEPER_PHASE_STARTING || host->state != KEEPER_DEAD)
		return;
	if (host->keeper->phase == KEEPER_PHASE_STOPPING) {
		decide_stopping(host, now_ns);
		return;
	}
	bool lasted = host->ready_ns && now_ns - host->ready_ns >= QUICK_NS;
	host->quick = lasted ? 1 : host->quick + 1;
	if (host->by_hand)
		give_up(host, ""); /* whoever asked is told at once, and not waited for */
	else if (host->stranger)
		log_warning("keeper", "'%s' cannot be started again: its options are not known",
			keeper_host_name(host));
	else if (keep->restart == PIPELINE_RESTART_FAILURE && host->clean)
		left_by_itself(host);
	else if (keep->restart == PIPELINE_RESTART_NEVER)
		keeper_reap_soon(host->keeper); /* its edges may have a second choice */
	else if (too_often(host, now_ns)) {
		snprintf(why, sizeof(why), "started again %u times within %llu s", keep->limit,
			(unsigned long long)(keep->window_ns / 1000000000u));
		give_up(host, why);
	} else
		wait_for(host, delay_of(host));
	keeper_save(host->keeper);
}

void keeper_restart_cancel(struct keeper_host *host)
{
	evtimer_del(host->timer);
	host->due = false;
	host->reason[0] = 0;
	sm_move(keeper_states, &host->state, KEEPER_STOPPED);
	keeper_store_drop(host);
	keeper_save(host->keeper);
}

/* --- starting again, from the bottom up -------------------------------------------------- */

static bool on_its_way(const struct keeper_host *host)
{
	return host->state == KEEPER_STARTING || (host->state == KEEPER_WAITING && host->due);
}

/* Somebody below it, as the order has it, comes up just now. */
static bool must_wait(const struct keeper *keeper, unsigned position)
{
	const struct keeper_host *host = &keeper->hosts[keeper->order[position]];
	for (unsigned i = 0; i < position; i++) {
		const struct keeper_host *below = &keeper->hosts[keeper->order[i]];
		if (on_its_way(below) && keeper_edge_above(host, below))
			return true;
	}
	return false;
}

void keeper_restart_turn(struct keeper *keeper)
{
	for (unsigned i = 0; i < keeper->order_count; i++) {
		struct keeper_host *host = &keeper->hosts[keeper->order[i]];
		if (host->state != KEEPER_WAITING || !host->due || must_wait(keeper, i))
			continue;
		host->due = host->by_hand = false;
		if (keeper_adopt_late(host))
			continue;
		host->restarts++;
		host->history[host->counted++ % PIPELINE_RESTARTS_MAX] = clock_now_ns();
		if (keeper_host_start(host, keeper->start_ns))
			keeper_restart_decide(host);
	}
}

bool keeper_restart_unsettled(const struct keeper *keeper)
{
	for (unsigned i = 0; i < keeper->order_count; i++) {
		const struct keeper_host *host = &keeper->hosts[keeper->order[i]];
		if (host->state == KEEPER_IDLE || host->state == KEEPER_STARTING ||
			host->state == KEEPER_WAITING || host->state == KEEPER_STOPPING)
			return true;
	}
	return false;
}

/* --- requests for those who do not come back ---------------------------------------------- */

static void refuse_host(const struct keeper_host *host)
{
	const struct keeper *keeper = host->keeper;
	for (unsigned i = 0; i < keeper->pipeline.peer_count; i++) {
		const struct pipeline_peer *peer = &keeper->pipeline.peers[i];
		uint32_t port;
		if (peer->host != host->index || xseg_port_find(&keeper->seg, peer->name, &port) ||
			!keeper_edge_waits(keeper, port))
			continue;
		int count = xseg_reap_fail_port(&keeper->seg, port, -EIO);
		if (count > 0)
			log_warning("keeper", "%d requests for '%s', which was given up: -EIO",
				count, peer->name);
	}
}

void keeper_restart_refuse(struct keeper *keeper)
{
	static const struct timeval after = {.tv_usec = REFUSE_US};
	bool again = false;
	for (unsigned i = 0; i < keeper->order_count; i++) {
		struct keeper_host *host = &keeper->hosts[keeper->order[i]];
		if (host->state != KEEPER_GIVEN_UP && host->state != KEEPER_DEAD)
			continue;
		bool switched = keeper_edge_fall_back(host) > 0;
		/* who sent a moment before that is led along next time, not refused */
		if (host->state == KEEPER_GIVEN_UP && !switched)
			refuse_host(host);
		again |= switched || host->state == KEEPER_GIVEN_UP;
	}
	if (again && !evtimer_pending(keeper->reap, NULL))
		evtimer_add(keeper->reap, &after);
}
