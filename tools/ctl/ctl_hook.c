/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/ctl/ctl_hook.h"

#include <base/time.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/report/program.h"

#define LOOK_NS 10000000u
#define NOT_RUN 127 /* as a shell has it */

static void run_child(const char *command, const char *volume)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	setpgid(0, 0);
	setenv("SKERRY_VOLUME", volume, 1);
	dup2(null, STDIN_FILENO);
	dup2(STDERR_FILENO, STDOUT_FILENO); /* ours is for results */
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(NOT_RUN);
}

void ctl_hook_start(struct ctl_hook *hook, const char *command, const char *volume)
{
	pid_t pid = program_fork();
	if (pid == 0)
		run_child(command, volume);
	if (pid > 0)
		setpgid(pid, pid); /* whoever of the two comes first */
	*hook = (struct ctl_hook){.pid = pid > 0 ? pid : 0, .status = NOT_RUN};
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

void ctl_hook_wait(struct ctl_hook *hook, bool stop)
{
	if (stop && hook->pid > 0)
		kill(-hook->pid, SIGTERM);
	while (!ctl_hook_ended(hook))
		time_nap(LOOK_NS);
}
