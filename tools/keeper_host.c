/* SPDX-License-Identifier: Apache-2.0 */
/* One process of the pipeline: started, watched by its pidfd, stopped by SIGTERM. */
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xseg/port.h>
#include <xseg/registry.h>

#include "tools/keeper.h"
#include "tools/pipeline_priv.h"

/* A process that does not drain is told once more, then killed. */
#define HURRY_NS (3ull * 1000000000u)

const struct sm_state keeper_states[KEEPER_STATES] = {
	[KEEPER_IDLE] = {"waiting", SM(KEEPER_STARTING) | SM(KEEPER_RUNNING)},
	[KEEPER_STARTING] = {"starting",
		SM(KEEPER_RUNNING) | SM(KEEPER_STOPPING) | SM(KEEPER_DEAD)},
	[KEEPER_RUNNING] = {"serving", SM(KEEPER_STOPPING) | SM(KEEPER_DEAD)},
	[KEEPER_STOPPING] = {"stopping", SM(KEEPER_STOPPED)},
	[KEEPER_STOPPED] = {"stopped", SM(KEEPER_STARTING)},
	[KEEPER_DEAD] = {"dead", SM(KEEPER_STARTING) | SM(KEEPER_STOPPED)},
};

const char *keeper_host_name(const struct keeper_host *host)
{
	return host->keeper->pipeline.hosts[host->index].name;
}

/* --- events ----------------------------------------------------------------------------- */

static void set_timer(struct keeper_host *host, uint64_t limit_ns)
{
	struct timeval limit = {.tv_sec = (time_t)(limit_ns / 1000000000u),
		.tv_usec = (suseconds_t)(limit_ns % 1000000000u / 1000)};
	evtimer_add(host->timer, &limit);
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

static void host_ended(struct keeper_host *host, const siginfo_t *info)
{
	bool clean = info->si_pid == 0 || (info->si_code == CLD_EXITED && info->si_status == 0);
	host->reason[0] = 0;
	if (host->state == KEEPER_STOPPING) {
		if (!clean)
			describe_death(host, info);
		if (host->timed_out)
			note_killed(host->keeper, host);
		host->keeper->stopped_count++;
		sm_move(keeper_states, &host->state, KEEPER_STOPPED);
		log_info("keeper", "'%s' (pid %d) has stopped%s%s", keeper_host_name(host),
			(int)host->pid, clean ? "" : ": ", host->reason);
	} else {
		describe_death(host, info);
		if (host->timed_out)
			snprintf(host->reason, sizeof(host->reason),
				"it was not ready within its time limit");
		sm_move(keeper_states, &host->state, KEEPER_DEAD);
		log_error("keeper", "'%s' (pid %d) died: %s", keeper_host_name(host),
			(int)host->pid, host->reason);
	}
	host->pid = 0;
}

static void on_ended(int fd, short what, void *context)
{
	struct keeper_host *host = context;
	siginfo_t info = {0};
	(void)fd;
	(void)what;
	/* an adopted process is not our child: how it ended is nobody's but init's to know */
	waitid(P_PIDFD, (id_t)host->pidfd, &info, WEXITED | WNOHANG);
	evtimer_del(host->timer);
	drop_event(&host->exit_event);
	drop_event(&host->out_event);
	drop_fd(&host->pidfd);
	drop_fd(&host->out);
	host_ended(host, &info);
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
	if (!ready || host->state != KEEPER_STARTING)
		return;
	evtimer_del(host->timer);
	sm_move(keeper_states, &host->state, KEEPER_RUNNING);
	log_info("keeper", "'%s' (pid %d) serves", keeper_host_name(host), (int)host->pid);
	keeper_turn_soon(host->keeper);
}

static void on_timer(int fd, short what, void *context)
{
	struct keeper_host *host = context;
	(void)fd;
	(void)what;
	if (host->pidfd < 0)
		return;
	bool stopping = host->state == KEEPER_STOPPING;
	host->timed_out = true;
	if (stopping && host->terms < 2) {
		log_warning("keeper", "'%s' does not drain in time", keeper_host_name(host));
		host->terms++;
		syscall(SYS_pidfd_send_signal, host->pidfd, SIGTERM, NULL, 0);
		set_timer(host, HURRY_NS);
		return;
	}
	log_warning("keeper", "'%s' is killed: not %s in time", keeper_host_name(host),
		stopping ? "stopped" : "ready");
	syscall(SYS_pidfd_send_signal, host->pidfd, SIGKILL, NULL, 0);
}

/* --- starting --------------------------------------------------------------------------- */

struct arguments {
	char *argv[PIPELINE_PEERS_MAX + 10];
	int count;
};

static void argument_add(struct arguments *arguments, const char *text)
{
	must(arguments->count + 1 < (int)countof(arguments->argv));
	must(arguments->argv[arguments->count++] = strdup(text));
}

static bool edge_leads(const struct xseg *seg, const char *peer, const char *key)
{
	char name[XSEG_EDGE_NAME_MAX];
	uint32_t edge;
	snprintf(name, sizeof(name), "%s:%s", peer, key + 5);
	return !strncmp(key, "edge.", 5) && !xseg_edge_find(seg, name, &edge) &&
	       xseg_edge_port(seg, edge) != XSEG_NONE;
}

/* Who comes back finds its edges in the segment, where they may have been switched. */
static char *peer_argument(const struct keeper_host *host, const struct pipeline_peer *peer)
{
	struct pipeline_peer copy = *peer;
	bool again = host->state != KEEPER_IDLE;
	copy.option_count = 0;
	for (unsigned i = 0; i < peer->option_count; i++)
		if (!again || !edge_leads(&host->keeper->seg, peer->name, peer->options[i].key))
			copy.options[copy.option_count++] = peer->options[i];
	return pipeline_peer_argument(&copy);
}

static void arguments_make(const struct keeper_host *host, struct arguments *arguments)
{
	const struct pipeline *pipeline = &host->keeper->pipeline;
	const struct pipeline_host *process = &pipeline->hosts[host->index];
	char number[16];
	memset(arguments, 0, sizeof(*arguments));
	argument_add(arguments, host->keeper->xsegpeer);
	argument_add(arguments, "-s");
	argument_add(arguments, host->keeper->name);
	/* the limit is ours to keep */
	argument_add(arguments, "--drain-limit=24h");
	if (process->lanes) {
		snprintf(number, sizeof(number), "-l%u", process->lanes);
		argument_add(arguments, number);
	}
	if (process->workers) {
		snprintf(number, sizeof(number), "%u", process->workers);
		argument_add(arguments, "--workers");
		argument_add(arguments, number);
	}
	for (unsigned i = 0; i < pipeline->peer_count; i++)
		if (pipeline->peers[i].host == host->index)
			arguments->argv[arguments->count++] =
				peer_argument(host, &pipeline->peers[i]);
}

static int open_log(struct keeper_host *host)
{
	char leaf[NAME_LENGTH_MAX + 8], path[PATH_LENGTH_MAX];
	int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
	snprintf(leaf, sizeof(leaf), "%s.log", keeper_host_name(host));
	if (path_run(path, host->keeper->name, leaf))
		return -ENAMETOOLONG;
	int fd = open(path, host->state == KEEPER_IDLE ? flags | O_TRUNC : flags, 0640);
	struct stat st;
	if (fd < 0)
		return -errno;
	host->log_start = fstat(fd, &st) ? 0 : st.st_size;
	return fd;
}

static void child(char *const argv[], int out, int log)
{
	sigset_t none;
	sigemptyset(&none);
	setsid(); /* ^C at the keeper's terminal is for the keeper alone */
	dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	unsetenv("NOTIFY_SOCKET");
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execv(argv[0], argv);
	dprintf(STDERR_FILENO, "%s cannot be run: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static int spawn(struct keeper_host *host, char *const argv[], int log)
{
	int out[2];
	if (pipe2(out, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	pid_t pid = fork();
	if (pid == 0)
		child(argv, out[1], log);
	int error = -errno;
	close(out[1]);
	if (pid < 0) {
		close(out[0]);
		return error;
	}
	host->pid = pid;
	host->out = out[0];
	host->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	must(host->pidfd >= 0); /* our own child cannot have gone before we wait for it */
	fcntl(host->pidfd, F_SETFD, FD_CLOEXEC);
	return 0;
}

int keeper_host_start(struct keeper_host *host, uint64_t limit_ns)
{
	struct arguments arguments;
	int log = open_log(host), rc = log < 0 ? log : 0;
	if (!rc) {
		arguments_make(host, &arguments);
		rc = spawn(host, arguments.argv, log);
		while (arguments.count)
			free(arguments.argv[--arguments.count]);
		close(log);
	}
	host->timed_out = false;
	host->adopted = host->stranger = false;
	host->terms = 0;
	memset(host->said, 0, sizeof(host->said));
	sm_move(keeper_states, &host->state, KEEPER_STARTING);
	if (rc) {
		sm_move(keeper_states, &host->state, KEEPER_DEAD);
		snprintf(host->reason, sizeof(host->reason), "its process cannot be made: %s",
			strerror(-rc));
		return rc;
	}
	log_info("keeper", "'%s' starts (pid %d)", keeper_host_name(host), (int)host->pid);
	struct event_base *base = host->keeper->base;
	host->out_event = event_new(base, host->out, EV_READ | EV_PERSIST, on_out, host);
	host->exit_event = event_new(base, host->pidfd, EV_READ, on_ended, host);
	must(host->out_event && host->exit_event);
	event_add(host->out_event, NULL);
	event_add(host->exit_event, NULL);
	set_timer(host, limit_ns);
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
	host->timer = evtimer_new(keeper->base, on_timer, host);
	must(host->timer);
}

void keeper_host_forget(struct keeper_host *host)
{
	struct keeper *keeper = host->keeper;
	struct pipeline *pipeline = &keeper->pipeline;
	must(host->index + 1 == pipeline->host_count && host->pid == 0);
	must(pipeline->peers[pipeline->peer_count - 1].host == host->index);
	must(keeper->order[keeper->order_count - 1] == host->index);
	event_free(host->timer);
	keeper->order_count--;
	pipeline->host_count--;
	pipeline_peer_drop(pipeline);
}

/* --- stopping and adopting -------------------------------------------------------------- */

void keeper_host_stop(struct keeper_host *host, uint64_t limit_ns)
{
	host->timed_out = false;
	host->terms = 1;
	sm_move(keeper_states, &host->state, KEEPER_STOPPING);
	log_info("keeper", "'%s' (pid %d) is stopped", keeper_host_name(host), (int)host->pid);
	/* gone already: its pidfd says so */
	syscall(SYS_pidfd_send_signal, host->pidfd, SIGTERM, NULL, 0);
	set_timer(host, limit_ns);
}

/* The registry compares start times: alive after the pidfd is open, so it is its pidfd. */
static bool still_lives(const struct keeper_host *host, const char *peer, pid_t pid)
{
	struct xseg_peer_view view;
	return !xseg_peer_find(&host->keeper->seg, peer, &view) && view.pid == pid &&
	       view.life != XSEG_LIFE_DEAD;
}

int keeper_host_adopt(struct keeper_host *host, pid_t pid, const char *peer)
{
	host->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (host->pidfd < 0 || !still_lives(host, peer, pid)) {
		drop_fd(&host->pidfd);
		return -ESRCH;
	}
	fcntl(host->pidfd, F_SETFD, FD_CLOEXEC);
	host->pid = pid;
	host->adopted = true;
	sm_move(keeper_states, &host->state, KEEPER_RUNNING);
	host->exit_event = event_new(host->keeper->base, host->pidfd, EV_READ, on_ended, host);
	must(host->exit_event);
	event_add(host->exit_event, NULL);
	log_info("keeper", "'%s' (pid %d) runs already: adopted", keeper_host_name(host), (int)pid);
	return 0;
}
