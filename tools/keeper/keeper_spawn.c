/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a process of the pipeline: its arguments, its log, its environment. */
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

#include "tools/keeper/keeper.h"
#include "tools/report/program.h"

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
	if (strncmp(key, "edge.", 5))
		return false;
	snprintf(name, sizeof(name), "%s:%s", peer, key + 5);
	return !xseg_edge_find(seg, name, &edge) && xseg_edge_port(seg, edge) != XSEG_NONE;
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
	return pipeline_text_argument(&copy);
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

/* The keeper is its service manager: the one above us is none of its business. */
static void child_environment(const struct keeper_host *host)
{
	setenv("SKERRY_LOG_LIMIT", PROGRAM_LOG_LIMIT, 1);
	char path[PATH_LENGTH_MAX], absolute[PATH_MAX], number[24];
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_PID");
	unsetenv("WATCHDOG_USEC");
	if (path_run(path, host->keeper->name, "notify.sock") || !realpath(path, absolute))
		return;
	setenv("NOTIFY_SOCKET", absolute, 1);
	if (!host->keep.watchdog_ns)
		return;
	snprintf(number, sizeof(number), "%llu",
		(unsigned long long)(host->keep.watchdog_ns / 1000));
	setenv("WATCHDOG_USEC", number, 1);
}

static void child(const struct keeper_host *host, char *const argv[], int out, int log)
{
	sigset_t none;
	sigemptyset(&none);
	setsid(); /* ^C at the keeper's terminal is for the keeper alone */
	dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	child_environment(host);
	keeper_store_hand(host);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execv(argv[0], argv);
	dprintf(STDERR_FILENO, "%s cannot be run: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static int fork_child(struct keeper_host *host, char *const argv[], int log)
{
	int out[2];
	if (pipe2(out, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	pid_t pid = program_fork();
	if (pid == 0)
		child(host, argv, out[1], log);
	int error = -errno;
	close(out[1]);
	if (pid < 0) {
		close(out[0]);
		return error;
	}
	host->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (host->pidfd < 0) { /* no descriptors left: unwatched it shall not run */
		error = -errno;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		close(out[0]);
		return error;
	}
	host->pid = pid;
	host->out = out[0];
	fcntl(host->pidfd, F_SETFD, FD_CLOEXEC);
	return 0;
}

int keeper_spawn(struct keeper_host *host)
{
	struct arguments arguments;
	int log = open_log(host);
	if (log < 0)
		return log;
	arguments_make(host, &arguments);
	int rc = fork_child(host, arguments.argv, log);
	while (arguments.count)
		free(arguments.argv[--arguments.count]);
	close(log);
	return rc;
}
