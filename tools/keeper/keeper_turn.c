/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the keeper does next, looked at after every event: starts the next process, notices that
 * all serve, or stops the next one.
 *
 *   STARTING --all serve--> RUNNING --down, SIGTERM--> STOPPING --all stopped--> the loop ends
 *      `--------one did not start, SIGTERM----------------^
 *
 * A keeper that goes on from where an earlier one was killed begins with RUNNING.
 */
#include <base/log.h>
#include <base/must.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/keeper/keeper.h"
#include "tools/keeper/keeper_config.h"

static struct keeper_host *host_at(struct keeper *keeper, unsigned position)
{
	return &keeper->hosts[keeper->order[position]];
}

/* --- starting --------------------------------------------------------------------------- */

static void start_failed(struct keeper *keeper, const struct keeper_host *host)
{
	struct fault fault = {0};
	char leaf[NAME_LENGTH_MAX + 8], log[PATH_LENGTH_MAX] = "";
	snprintf(leaf, sizeof(leaf), "%s.log", keeper_host_name(host));
	path_run(log, keeper->name, leaf);
	fault_set(&fault, host->timed_out ? FAULT_TIMEOUT : FAULT_FAILED, keeper_host_name(host),
		NULL, "'%s' does not start: %s", keeper_host_name(host), host->reason);
	fault_hint(&fault, "its log is %s", log);
	keeper_turn_down(keeper, &fault);
}

static void report_up(struct keeper *keeper)
{
	if (keeper->report < 0)
		return;
	dprintf(keeper->report, "{\"ok\": true, \"pid\": %d}\n", (int)getpid());
	close(keeper->report);
	keeper->report = -1;
}

static void turn_starting(struct keeper *keeper)
{
	for (unsigned i = 0; i < keeper->order_count; i++) {
		struct keeper_host *host = host_at(keeper, i);
		if (host->state == KEEPER_DEAD) {
			start_failed(keeper, host);
			return;
		}
	}
	for (unsigned i = 0; i < keeper->order_count; i++) {
		struct keeper_host *host = host_at(keeper, i);
		if (host->state == KEEPER_IDLE) {
			if (keeper_host_start(host, keeper->start_ns))
				keeper_turn_soon(keeper);
			return;
		}
		if (host->state == KEEPER_STARTING)
			return;
	}
	keeper->phase = KEEPER_PHASE_RUNNING;
	log_info("keeper", "segment '%s' is up: %u peers in %u processes", keeper->name,
		keeper->pipeline.peer_count, keeper->order_count);
	keeper_save(keeper);
	report_up(keeper);
	keeper_guard_open(keeper);
	keeper_notify_ready(keeper, "serving");
}

/* Those who died while there was no keeper are started as at any begin, whatever their policy. */
void keeper_turn_resume(struct keeper *keeper)
{
	keeper->phase = KEEPER_PHASE_RUNNING;
	for (unsigned i = 0; i < keeper->order_count; i++) {
		struct keeper_host *host = host_at(keeper, i);
		if (host->state != KEEPER_IDLE)
			continue;
		snprintf(host->reason, sizeof(host->reason), "it ended while there was no keeper");
		sm_move(keeper_states, &host->state, KEEPER_DEAD);
		keeper_event_host(host, "peer_died", host->reason, NULL);
		keeper_restart_soon(host);
	}
	log_info("keeper", "segment '%s' is kept again: %u peers in %u processes", keeper->name,
		keeper->pipeline.peer_count, keeper->order_count);
	keeper_guard_open(keeper);
	keeper_notify_ready(keeper, "serving");
}

/* --- running: an operation on one process ------------------------------------------------ */

static void operation_started(struct keeper *keeper, struct keeper_host *host)
{
	struct fault fault = {0};
	bool fresh = keeper->operation.fresh;
	if (host->state == KEEPER_RUNNING) {
		json_t *peer = keeper_call_peer(keeper, keeper->operation.peer);
		json_object_set_new(peer, "changed", json_true());
		keeper_server_finish(keeper, peer, NULL);
	} else if (host->state != KEEPER_STARTING) {
		fault_set(&fault, host->timed_out ? FAULT_TIMEOUT : FAULT_FAILED,
			keeper->operation.peer, NULL, "'%s' does not start: %s",
			keeper_host_name(host), host->reason);
		keeper_server_finish(keeper, NULL, &fault);
		if (fresh)
			keeper_host_forget(host);
		else
			keeper_restart_decide(host); /* when its process could not even be made */
	}
}

static void operation_stopped(struct keeper *keeper, const struct keeper_host *host)
{
	struct fault fault = {0};
	if (host->state == KEEPER_STOPPING)
		return;
	if (host->timed_out) {
		fault_set(&fault, FAULT_PARTLY, keeper->operation.peer,
			"--timeout sets how long a stop may drain",
			"'%s' did not drain in time and was killed", keeper_host_name(host));
		keeper_server_finish(keeper, NULL, &fault);
		return;
	}
	json_t *peer = keeper_call_peer(keeper, keeper->operation.peer);
	json_object_set_new(peer, "changed", json_true());
	keeper_server_finish(keeper, peer, NULL);
}

/* Stopped, then started again, then it serves. */
static void operation_restarted(struct keeper *keeper, struct keeper_host *host)
{
	struct fault fault = {0};
	if (host->state == KEEPER_STOPPED) {
		keeper->operation.was_killed = host->timed_out;
		keeper_host_start(host, keeper->start_ns);
	}
	if (host->state == KEEPER_STOPPING || host->state == KEEPER_STARTING)
		return;
	if (host->state == KEEPER_RUNNING && !keeper->operation.was_killed) {
		json_t *peer = keeper_call_peer(keeper, keeper->operation.peer);
		json_object_set_new(peer, "changed", json_true());
		keeper_server_finish(keeper, peer, NULL);
		return;
	}
	if (host->state == KEEPER_RUNNING)
		fault_set(&fault, FAULT_PARTLY, keeper->operation.peer,
			"--timeout sets how long a stop may drain",
			"'%s' serves again, but had to be killed: it did not drain in time",
			keeper_host_name(host));
	else
		fault_set(&fault, host->timed_out ? FAULT_TIMEOUT : FAULT_FAILED,
			keeper->operation.peer, "'xsegctl events' tells what follows",
			"'%s' does not start again: %s", keeper_host_name(host), host->reason);
	keeper_server_finish(keeper, NULL, &fault);
	keeper_restart_decide(host); /* when its process could not even be made */
}

static void turn_running(struct keeper *keeper)
{
	keeper_restart_turn(keeper);
	if (keeper->report >= 0 && !keeper_restart_unsettled(keeper))
		report_up(keeper);
	if (keeper->operation.kind == KEEPER_OP_START)
		operation_started(keeper, keeper->operation.host);
	else if (keeper->operation.kind == KEEPER_OP_STOP)
		operation_stopped(keeper, keeper->operation.host);
	else if (keeper->operation.kind == KEEPER_OP_RESTART)
		operation_restarted(keeper, keeper->operation.host);
	else if (keeper->operation.kind == KEEPER_OP_CONFIG)
		keeper_config_turn(keeper);
}

/* --- stopping --------------------------------------------------------------------------- */

/* After a start that failed, what ran before it goes on. */
static bool must_stop(const struct keeper *keeper, const struct keeper_host *host)
{
	bool runs = host->state == KEEPER_RUNNING || host->state == KEEPER_STARTING;
	return runs && !(keeper->fault.code && host->adopted);
}

/* One that nobody above needs; where they need each other, the last that was started. */
static struct keeper_host *next_to_stop(struct keeper *keeper)
{
	char users[256];
	struct keeper_host *last = NULL;
	for (unsigned i = keeper->order_count; i-- > 0;) {
		struct keeper_host *host = host_at(keeper, i);
		if (!must_stop(keeper, host))
			continue;
		if (!keeper_edge_users(keeper, host, users, sizeof(users)))
			return host;
		if (!last)
			last = host;
	}
	return last;
}

static void turn_stopping(struct keeper *keeper)
{
	keeper_restart_turn(keeper);
	for (unsigned i = 0; i < keeper->order_count; i++)
		if (host_at(keeper, i)->state == KEEPER_STOPPING)
			return;
	struct keeper_host *host = next_to_stop(keeper);
	if (host)
		keeper_host_stop(host, keeper->stop_ns, false);
	else
		event_base_loopbreak(keeper->base);
}

void keeper_turn_down(struct keeper *keeper, const struct fault *fault)
{
	struct fault broken = {0};
	if (keeper->phase == KEEPER_PHASE_STOPPING)
		return;
	if (fault)
		keeper->fault = *fault;
	fault_set(
		&broken, FAULT_FAILED, keeper->name, NULL, "segment '%s' goes down", keeper->name);
	if (keeper->operation.kind != KEEPER_OP_NONE && keeper->operation.kind != KEEPER_OP_DOWN)
		keeper_server_finish(keeper, NULL, &broken);
	keeper_config_drop(keeper);
	/* whom somebody stopped before is no part of this */
	keeper->killed[0] = 0;
	keeper->stopped_count = 0;
	keeper->phase = KEEPER_PHASE_STOPPING;
	keeper_notify_stopping(keeper->stop_ns * (keeper->order_count + 1));
	keeper_turn_soon(keeper);
}

/* --- the turn --------------------------------------------------------------------------- */

static void on_turn(int fd, short what, void *context)
{
	struct keeper *keeper = context;
	(void)fd;
	(void)what;
	if (keeper->phase == KEEPER_PHASE_STARTING)
		turn_starting(keeper);
	else if (keeper->phase == KEEPER_PHASE_RUNNING)
		turn_running(keeper);
	else
		turn_stopping(keeper);
}

static void on_signal(int signal, short what, void *context)
{
	struct keeper *keeper = context;
	(void)what;
	log_info("keeper", "signal %d: segment '%s' goes down", signal, keeper->name);
	struct fault fault = {0};
	if (keeper->phase == KEEPER_PHASE_STARTING) {
		fault_set(&fault, FAULT_FAILED, keeper->name, NULL, "interrupted");
		keeper_turn_down(keeper, &fault);
	} else {
		keeper_turn_down(keeper, NULL);
	}
}

static void on_renew(int signal, short what, void *context)
{
	(void)signal;
	(void)what;
	keeper_renew(context);
}

void keeper_turn_soon(struct keeper *keeper) { event_active(keeper->turn, EV_TIMEOUT, 1); }

void keeper_turn_open(struct keeper *keeper)
{
	keeper->turn = event_new(keeper->base, -1, 0, on_turn, keeper);
	keeper->sigterm = evsignal_new(keeper->base, SIGTERM, on_signal, keeper);
	keeper->sigint = evsignal_new(keeper->base, SIGINT, on_signal, keeper);
	keeper->sighup = evsignal_new(keeper->base, SIGHUP, on_renew, keeper);
	must(keeper->turn && keeper->sigterm && keeper->sigint && keeper->sighup);
	evsignal_add(keeper->sighup, NULL);
	evsignal_add(keeper->sigterm, NULL);
	evsignal_add(keeper->sigint, NULL);
}
