/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ctl/ctl_hook.h"

#include <base/clock.h>
#include <base/time.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/report/program.h"

#define LOOK_NS 10000000u
#define NOT_RUN 127 /* as a shell has it */

/* A word that it is its turn, or the end of all who could say it. */
static const char promised[] = "read -r word; exec /bin/sh -c \"$1\" </dev/null";

static void run_child(const char *command, const char *volume, int in)
{
	setpgid(0, 0);
	if (volume)
		setenv("SKERRY_VOLUME", volume, 1);
	dup2(in < 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : in, STDIN_FILENO);
	dup2(STDERR_FILENO, STDOUT_FILENO); /* ours is for results */
	if (in < 0)
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	close_range(STDERR_FILENO + 1, ~0u, 0); /* those who wait would wait for one another */
	execl("/bin/sh", "sh", "-c", promised, "sh", command, (char *)NULL);
	_exit(NOT_RUN);
}

static pid_t start(const char *command, const char *volume, int in)
{
	pid_t pid = program_fork();
	if (pid == 0)
		run_child(command, volume, in);
	if (pid > 0)
		setpgid(pid, pid); /* whoever of the two comes first */
	return pid;
}

void ctl_hook_start(struct ctl_hook *hook, const char *command, const char *volume)
{
	pid_t pid = start(command, volume, -1);
	*hook = (struct ctl_hook){.pid = pid > 0 ? pid : 0, .status = NOT_RUN};
}

/* Our end is inherited by what we start: when we are killed, that may still run. */
int ctl_hook_promise(struct ctl_hook *hook, const char *command, const char *volume)
{
	int pair[2];
	*hook = (struct ctl_hook){.status = NOT_RUN};
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return -errno;
	pid_t pid = start(command, volume, pair[1]);
	int error = pid < 0 ? -errno : 0;
	close(pair[1]);
	if (error)
		close(pair[0]);
	else
		*hook = (struct ctl_hook){.pid = pid, .tell = pair[0], .status = NOT_RUN};
	return error;
}

void ctl_hook_keep(struct ctl_hook *hook)
{
	if (hook->tell == 0)
		return;
	(void)!send(hook->tell, "go\n", 3, MSG_NOSIGNAL);
	close(hook->tell);
	hook->tell = 0;
}

bool ctl_hook_ended(struct ctl_hook *hook)
{
	int status;
	if (hook->pid == 0)
		return true;
	if (waitpid(hook->pid, &status, WNOHANG) != hook->pid)
		return false;
	hook->pid = 0;
	hook->status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	return true;
}

bool ctl_hook_wait(struct ctl_hook *hook, bool stop, uint64_t limit_ns)
{
	uint64_t until_ns = clock_now_ns() + limit_ns;
	if (stop && hook->pid > 0)
		kill(-hook->pid, SIGTERM);
	while (!ctl_hook_ended(hook)) {
		if (limit_ns > 0 && clock_now_ns() >= until_ns)
			return false;
		time_nap(LOOK_NS);
	}
	return true;
}
