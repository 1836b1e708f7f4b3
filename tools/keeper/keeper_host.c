/* SPDX-License-Identifier: Apache-2.0 */
/* One process of the pipeline: started, watched by its pidfd, stopped by a signal. */
#include <base/clock.h>
#include <base/crash.h>
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xseg/reap.h>
#include <xseg/registry.h>

#include "tools/keeper/keeper.h"
#include "tools/pipeline/pipeline_edit.h"

/* A process that does not drain is told once more, then killed. */
#define HURRY_NS (3ull * 1000000000u)

const struct sm_state keeper_states[KEEPER_STATES] = {
	[KEEPER_IDLE] = {"waiting", SM(KEEPER_STARTING) | SM(KEEPER_RUNNING) | SM(KEEPER_STOPPED) |
					    SM(KEEPER_DEAD) | SM(KEEPER_GIVEN_UP)},
	[KEEPER_STARTING] = {"starting",
		SM(KEEPER_RUNNING) | SM(KEEPER_STOPPING) | SM(KEEPER_DEAD)},
	[KEEPER_RUNNING] = {"serving", SM(KEEPER_STOPPING) | SM(KEEPER_DEAD)},
	[KEEPER_STOPPING] = {"stopping", SM(KEEPER_STOPPED)},
	[KEEPER_STOPPED] = {"stopped", SM(KEEPER_STARTING)},
	[KEEPER_DEAD] = {"dead", SM(KEEPER_STARTING) | SM(KEEPER_STOPPED) | SM(KEEPER_WAITING) |
					 SM(KEEPER_GIVEN_UP)},
	[KEEPER_WAITING] = {"restarting",
		SM(KEEPER_STARTING) | SM(KEEPER_RUNNING) | SM(KEEPER_STOPPED)},
	[KEEPER_GIVEN_UP] = {"given-up", SM(KEEPER_STARTING) | SM(KEEPER_STOPPED)},
};

const char *keeper_host_name(const struct keeper_host *host)
{
	return host->keeper->pipeline.hosts[host->index].name;
}

/* --- events ----------------------------------------------------------------------------- */

void keeper_host_set_timer(struct keeper_host *host, uint64_t after_ns)
{
	struct timeval after = {.tv_sec = (time_t)(after_ns / 1000000000u),
		.tv_usec = (suseconds_t)(after_ns % 1000000000u / 1000)};
	evtimer_add(host->timer, &after);
}

static void drop_event(struct event **event)
{
	if (*event)
		event_free(*event);
	*event = NULL;
}

static void drop_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void describe_exit(const siginfo_t *info, char *out, size_t out_size)
{
	if (info->si_pid == 0)
		snprintf(out, out_size, "its process has ended");
	else if (info->si_code == CLD_EXITED)
		snprintf(out, out_size, "exit status %d", info->si_status);
	else
		snprintf(out, out_size, "killed by SIG%s%s",
			sigabbrev_np(info->si_status) ? sigabbrev_np(info->si_status) : "?",
			info->si_code == CLD_DUMPED ? " (core dumped)" : "");
}

/* Why, as far as it said so itself. */
static void describe_death(struct keeper_host *host, const siginfo_t *info)
{
	char how[64], line[256];
	describe_exit(info, how, sizeof(how));
	keeper_files_last_line(host, line, sizeof(line));
	const char *text = strncmp(line, "xsegpeer: ", 10) ? line : line + 10;
	snprintf(host->reason, sizeof(host->reason), "%s%s%s", how, text[0] ? ": " : "", text);
}

static void note_killed(struct keeper *keeper, const struct keeper_host *host)
{
	size_t n = strlen(keeper->killed);
	snprintf(keeper->killed + n, sizeof(keeper->killed) - n, "%s%s", n ? ", " : "",
		keeper_host_name(host));
}

static void ended_as_asked(struct keeper_host *host, const siginfo_t *info, bool clean)
{
	if (!clean)
		describe_death(host, info);
	if (host->timed_out)
		note_killed(host->keeper, host);
	host->keeper->stopped_count++;
	sm_move(keeper_states, &host->state, KEEPER_STOPPED);
	log_info("keeper", "'%s' (pid %d) has stopped%s%s", keeper_host_name(host), (int)host->pid,
		clean ? "" : ": ", host->reason);
	if (!host->successor)
		keeper_store_drop(host);
}

static void ended_unasked(struct keeper_host *host, const siginfo_t *info)
{
	bool never_ready = host->state == KEEPER_STARTING;
	char how[384];
	describe_death(host, info);
	snprintf(how, sizeof(how), "%s", host->reason);
	if (host->timed_out)
		snprintf(how, sizeof(how), "it was not ready within its time limit");
	else if (host->killed)
		snprintf(how, sizeof(how), "killed by its keeper: it %s", host->pulse.reason);
	else if (host->clean)
		snprintf(how, sizeof(how), "ended by itself, unasked (exit status 0)%s",
			never_ready ? ", before it was ready" : "");
	snprintf(host->reason, sizeof(host->reason), "%s", how);
	sm_move(keeper_states, &host->state, KEEPER_DEAD);
	log_error("keeper", "'%s' (pid %d) died: %s", keeper_host_name(host), (int)host->pid,
		host->reason);
	keeper_event_host(
		host, "peer_died", host->reason, json_pack("{s:b}", "ready", (int)!never_ready));
}

static void on_ended(int fd, short what, void *context)
{
	struct keeper_host *host = context;
	siginfo_t info = {0};
	(void)fd;
	(void)what;
	keeper_store_read(host->keeper);
	/* an adopted process is not our child: how it ended is nobody's but init's to know */
	waitid(P_PIDFD, (id_t)host->pidfd, &info, WEXITED | WNOHANG);
	host->clean = info.si_pid && info.si_code == CLD_EXITED && info.si_status == 0;
	evtimer_del(host->timer);
	drop_event(&host->exit_event);
	drop_event(&host->out_event);
	drop_fd(&host->pidfd);
	drop_fd(&host->out);
	host->reason[0] = 0;
	if (host->state == KEEPER_STOPPING)
		ended_as_asked(host, &info, host->clean || info.si_pid == 0);
	else
		ended_unasked(host, &info);
	host->pid = 0;
	crash_point("keeper.death.before_reap");
	if (xseg_reap_due(&host->keeper->seg))
		keeper_reap_soon(host->keeper);
	crash_point("keeper.death.reaped");
	keeper_restart_decide(host);
	keeper_turn_soon(host->keeper);
}

void keeper_host_ready(struct keeper_host *host)
{
	if (host->state != KEEPER_STARTING)
		return;
	drop_event(&host->out_event);
	drop_fd(&host->out);
	evtimer_del(host->timer);
	sm_move(keeper_states, &host->state, KEEPER_RUNNING);
	host->ready_ns = clock_now_ns();
	host->by_hand = false;
	host->reason[0] = 0;
	log_info("keeper", "'%s' (pid %d) serves", keeper_host_name(host), (int)host->pid);
	keeper_event_host(host, "peer_ready", NULL,
		json_pack("{s:I}", "took_ns", (json_int_t)(host->ready_ns - host->started_ns)));
	keeper_save(host->keeper);
	keeper_turn_soon(host->keeper);
}

/* The line 'ready'; what else comes is not for us. */
static void on_out(int fd, short what, void *context)
{
	struct keeper_host *host = context;
	size_t length = strlen(host->said);
	(void)what;
	ssize_t n = read(fd, host->said + length, sizeof(host->said) - 1 - length);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	bool ready = n > 0 && (host->said[length + (size_t)n] = 0, strstr(host->said, "ready\n"));
	if (n > 0 && !ready && length + (size_t)n < sizeof(host->said) - 1)
		return;
	drop_event(&host->out_event);
	drop_fd(&host->out);
	if (ready)
		keeper_host_ready(host);
}

static void on_timer(int fd, short what, void *context)
{
	struct keeper_host *host = context;
	(void)fd;
	(void)what;
	if (host->state == KEEPER_WAITING) {
		host->due = true;
		keeper_turn_soon(host->keeper);
	}
	if (host->pidfd < 0)
		return;
	bool stopping = host->state == KEEPER_STOPPING;
	host->timed_out = true;
	if (stopping && host->terms < 2) {
		log_warning("keeper", "'%s' does not drain in time", keeper_host_name(host));
		host->terms++;
		syscall(SYS_pidfd_send_signal, host->pidfd, SIGTERM, NULL, 0);
		keeper_host_set_timer(host, HURRY_NS);
		return;
	}
	log_warning("keeper", "'%s' is killed: not %s in time", keeper_host_name(host),
		stopping ? "stopped" : "ready");
	syscall(SYS_pidfd_send_signal, host->pidfd, SIGKILL, NULL, 0);
}

/* --- starting --------------------------------------------------------------------------- */

static void watch_exit(struct keeper_host *host)
{
	host->exit_event = event_new(host->keeper->base, host->pidfd, EV_READ, on_ended, host);
	must(host->exit_event && event_add(host->exit_event, NULL) == 0);
}

static void begin(struct keeper_host *host)
{
	struct fault ignored;
	/* its keys were checked when they were read; they may have changed since the last start */
	if (pipeline_keep_read(&host->keeper->pipeline, host->index, &host->keep, &ignored))
		log_warning("keeper", "%s", ignored.message);
	host->timed_out = host->killed = host->successor = host->due = false;
	host->adopted = host->stranger = false;
	host->terms = 0;
	host->ready_ns = 0;
	host->started_ns = clock_now_ns();
	memset(host->said, 0, sizeof(host->said));
	keeper_watch_begin(host);
}

int keeper_host_start(struct keeper_host *host, uint64_t limit_ns)
{
	evtimer_del(host->timer);
	keeper_edge_repair(host->keeper);
	begin(host);
	int rc = keeper_spawn(host);
	sm_move(keeper_states, &host->state, KEEPER_STARTING);
	if (rc) {
		sm_move(keeper_states, &host->state, KEEPER_DEAD);
		snprintf(host->reason, sizeof(host->reason), "its process cannot be made: %s",
			strerror(-rc));
		return rc;
	}
	log_info("keeper", "'%s' starts (pid %d)", keeper_host_name(host), (int)host->pid);
	host->out_event =
		event_new(host->keeper->base, host->out, EV_READ | EV_PERSIST, on_out, host);
	must(host->out_event && event_add(host->out_event, NULL) == 0);
	watch_exit(host);
	keeper_host_set_timer(host, limit_ns);
	crash_point("keeper.start.before_save");
	keeper_event_host(host, "peer_started", NULL, NULL);
	keeper_save(host->keeper);
	return 0;
}

void keeper_host_init(struct keeper *keeper, unsigned index)
{
	struct keeper_host *host = &keeper->hosts[index];
	memset(host, 0, sizeof(*host));
	host->keeper = keeper;
	host->index = index;
	host->state = KEEPER_IDLE;
	host->pidfd = host->out = -1;
	struct fault ignored;
	pipeline_keep_read(&keeper->pipeline, index, &host->keep, &ignored);
	host->timer = evtimer_new(keeper->base, on_timer, host);
	must(host->timer);
}

bool keeper_host_comes(const struct keeper_host *host)
{
	return host->state == KEEPER_STARTING || host->state == KEEPER_RUNNING ||
	       host->state == KEEPER_WAITING || (host->state == KEEPER_STOPPING && host->successor);
}

void keeper_host_forget(struct keeper_host *host)
{
	struct keeper *keeper = host->keeper;
	struct pipeline *pipeline = &keeper->pipeline;
	must(host->index + 1 == pipeline->host_count && host->pid == 0);
	must(pipeline->peers[pipeline->peer_count - 1].host == host->index);
	must(keeper->order[keeper->order_count - 1] == host->index);
	keeper_store_drop(host);
	event_free(host->timer);
	keeper->order_count--;
	pipeline->host_count--;
	pipeline_peer_drop(pipeline);
}

/* --- stopping and adopting -------------------------------------------------------------- */

void keeper_host_stop(struct keeper_host *host, uint64_t limit_ns, bool successor)
{
	host->timed_out = false;
	host->terms = 1;
	host->successor = successor;
	sm_move(keeper_states, &host->state, KEEPER_STOPPING);
	log_info("keeper", "'%s' (pid %d) is stopped%s", keeper_host_name(host), (int)host->pid,
		successor ? ", to be started again" : "");
	/* gone already: its pidfd says so */
	syscall(SYS_pidfd_send_signal, host->pidfd, successor ? SIGHUP : SIGTERM, NULL, 0);
	keeper_host_set_timer(host, limit_ns);
}

void keeper_host_kill(struct keeper_host *host)
{
	host->killed = true;
	syscall(SYS_pidfd_send_signal, host->pidfd, SIGKILL, NULL, 0);
}

struct keeper_host *keeper_host_of_pid(struct keeper *keeper, pid_t pid)
{
	for (unsigned i = 0; pid > 0 && i < keeper->pipeline.host_count; i++)
		if (keeper->hosts[i].pid == pid)
			return &keeper->hosts[i];
	return NULL;
}

int keeper_host_adopt(struct keeper_host *host, pid_t pid, uint64_t start_time, bool ready)
{
	host->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	/* it lived when it was found, and still does after the pidfd is open: so it is its pidfd */
	if (host->pidfd < 0 || xseg_process_start_time(pid) != start_time) {
		drop_fd(&host->pidfd);
		return -ESRCH;
	}
	fcntl(host->pidfd, F_SETFD, FD_CLOEXEC);
	begin(host);
	host->pid = pid;
	host->adopted = true;
	host->ready_ns = ready ? host->started_ns : 0;
	sm_move(keeper_states, &host->state, ready ? KEEPER_RUNNING : KEEPER_STARTING);
	if (!ready)
		keeper_host_set_timer(host, host->keeper->start_ns);
	watch_exit(host);
	log_info("keeper", "'%s' (pid %d) runs already: adopted", keeper_host_name(host), (int)pid);
	return 0;
}
