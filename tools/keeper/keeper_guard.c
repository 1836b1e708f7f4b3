/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper's side of its guard: who starts us again starts again himself. */
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/keeper/guard.h"
#include "tools/keeper/keeper.h"
#include "tools/keeper/notice.h"
#include "tools/report/program.h"

#define AGAIN_S 1
#define LEAVES_MS 2000

static int own_path(const struct keeper *keeper, char absolute[PATH_MAX])
{
	char folder[PATH_LENGTH_MAX];
	if (path_run(folder, keeper->name, NULL) || !realpath(folder, absolute) ||
		strlen(absolute) + sizeof("/guard.sock") > PATH_MAX)
		return -ENAMETOOLONG;
	strcat(absolute, "/guard.sock");
	return 0;
}

static void become_guard(const struct keeper *keeper, int self)
{
	static struct hand hand;
	char program[PATH_MAX], *arguments[HAND_ARGUMENTS_MAX], *argv[HAND_ARGUMENTS_MAX + 1];
	sigset_t none;
	sigemptyset(&none);
	setsid();
	guard_hand(&hand, keeper->guard_socket, self);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (program_find("xsegd", program) == 0) {
		notice_arguments(keeper->argv, program, arguments);
		argv[0] = program;
		argv[1] = GUARD_OPTION;
		memcpy(argv + 2, arguments + 1, sizeof(arguments) - sizeof(arguments[0]));
		execv(program, argv);
	}
	_exit(FAULT_FAILED);
}

/* It hears all that its predecessor was told. */
static void tell_all(struct keeper *keeper)
{
	for (unsigned i = 0; i < keeper->order_count; i++) {
		const struct keeper_host *host = &keeper->hosts[keeper->order[i]];
		for (unsigned j = 0; j < host->fd_count; j++)
			keeper_notify_store(host, &host->fds[j]);
	}
}

static void watch(struct keeper *keeper);

static void start(struct keeper *keeper)
{
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	pid_t pid = self < 0 ? -1 : program_fork();
	if (pid == 0)
		become_guard(keeper, self);
	if (self >= 0)
		close(self);
	keeper->guard = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
	if (keeper->guard < 0) {
		log_error("keeper", "no guard: %s; a keeper that is killed stays so",
			strerror(errno));
		return;
	}
	watch(keeper);
	tell_all(keeper);
}

static void on_due(int fd, short what, void *context)
{
	struct keeper *keeper = context;
	(void)fd, (void)what;
	if (keeper->guard < 0 && keeper->phase != KEEPER_PHASE_STOPPING)
		start(keeper);
}

static void on_exit_of_guard(int fd, short what, void *context)
{
	static const struct timeval soon = {.tv_sec = AGAIN_S};
	struct keeper *keeper = context;
	(void)fd, (void)what;
	event_free(keeper->guard_event);
	close(keeper->guard);
	keeper->guard = -1;
	keeper->guard_event = evtimer_new(keeper->base, on_due, keeper);
	must(keeper->guard_event && event_add(keeper->guard_event, &soon) == 0);
	if (keeper->phase != KEEPER_PHASE_STOPPING)
		log_warning("keeper", "the guard has ended; it is started again");
}

static void watch(struct keeper *keeper)
{
	if (keeper->guard_event)
		event_free(keeper->guard_event);
	keeper->guard_event =
		event_new(keeper->base, keeper->guard, EV_READ, on_exit_of_guard, keeper);
	must(keeper->guard_event && event_add(keeper->guard_event, NULL) == 0);
}

void keeper_guard_take(struct keeper *keeper)
{
	if (!guard_take(&keeper->guard_socket, &keeper->guard))
		keeper->guard_socket = keeper->guard = -1;
}

/* It may have been started by a keeper before us: the kernel knows. */
pid_t keeper_guard_pid(const struct keeper *keeper)
{
	char path[64], line[64];
	int pid = 0;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", keeper->guard);
	FILE *file = keeper->guard < 0 ? NULL : fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Pid: %d", &pid) == 1)
			break;
	if (file)
		fclose(file);
	return pid > 0 ? pid : 0;
}

void keeper_guard_open(struct keeper *keeper)
{
	char path[PATH_MAX];
	if (keeper->guard >= 0) {
		watch(keeper);
		return;
	}
	if (!keeper->guarded || getenv("NOTIFY_SOCKET") || own_path(keeper, path))
		return;
	keeper->guard_socket = notice_socket(path);
	if (keeper->guard_socket < 0) {
		log_error("keeper", "'%s' cannot be made: %s; a keeper that is killed stays so",
			path, strerror(-keeper->guard_socket));
		return;
	}
	setenv("NOTIFY_SOCKET", path, 1);
	start(keeper);
}

void keeper_guard_hand(const struct keeper *keeper, struct hand *hand)
{
	if (keeper->guard_socket >= 0 && keeper->guard >= 0)
		guard_hand(hand, keeper->guard_socket, keeper->guard);
	else
		notice_over(hand, NULL, 0);
}

/* It goes when it hears that we do; afterwards nobody has a socket of ours open. */
void keeper_guard_close(struct keeper *keeper)
{
	char path[PATH_MAX];
	if (keeper->guard_socket < 0)
		return;
	struct pollfd gone = {.fd = keeper->guard, .events = POLLIN};
	if (keeper->guard >= 0 && keeper->phase == KEEPER_PHASE_STOPPING)
		poll(&gone, 1, LEAVES_MS);
	if (keeper->guard_event)
		event_free(keeper->guard_event);
	keeper->guard_event = NULL;
	if (!own_path(keeper, path))
		unlink(path);
	close(keeper->guard_socket);
	keeper->guard_socket = -1;
}
