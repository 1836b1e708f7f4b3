/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the keeper again when it was killed: see guard.h. */
#include "tools/keeper/guard.h"

#include <base/clock.h>
#include <base/log.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/keeper/notice.h"
#include "tools/report/fault.h"
#include "tools/report/program.h"

#define ROOM "guard"
#define QUICK_NS 5000000000u /* who ends so soon after his start will do so again */
#define QUICK_MAX 10u
#define DELAY_NS 100000000u
#define DELAY_MAX_NS 5000000000u

struct guard {
	int socket, keeper; /* the latter a pidfd */
	pid_t pid;	    /* of a keeper that we have started; else 0 */
	char **argv;
	char names[HAND_MAX][HAND_NAME];
	int fds[HAND_MAX];
	unsigned count;
	unsigned quick;
	uint64_t started_ns;
};

/* --- both sides --------------------------------------------------------------------------- */

bool guard_take(int *socket, int *pidfd)
{
	const char *text = getenv(GUARD_ENVIRONMENT);
	bool found = text && sscanf(text, "%d,%d", socket, pidfd) == 2 &&
		     fcntl(*socket, F_SETFD, FD_CLOEXEC) == 0 &&
		     fcntl(*pidfd, F_SETFD, FD_CLOEXEC) == 0;
	unsetenv(GUARD_ENVIRONMENT);
	return found;
}

void guard_hand(struct hand *hand, int socket, int pidfd)
{
	int rest[] = {socket, pidfd};
	char text[32];
	notice_over(hand, rest, 2);
	snprintf(text, sizeof(text), "%d,%d", rest[0], rest[1]);
	setenv(GUARD_ENVIRONMENT, text, 1);
}

/* --- what the keeper says ------------------------------------------------------------------ */

static void forget(struct guard *guard, const char *name)
{
	for (unsigned i = 0; i < guard->count; i++) {
		if (strcmp(guard->names[i], name) != 0)
			continue;
		close(guard->fds[i]);
		guard->count--;
		guard->fds[i] = guard->fds[guard->count];
		memcpy(guard->names[i], guard->names[guard->count], HAND_NAME);
		return;
	}
}

static void keep(struct guard *guard, const char *name, int fd)
{
	forget(guard, name);
	if (guard->count == HAND_MAX) {
		close(fd);
		return;
	}
	snprintf(guard->names[guard->count], HAND_NAME, "%s", name);
	guard->fds[guard->count++] = fd;
}

/* False: it goes, as it was asked to. */
static bool hear(struct guard *guard)
{
	struct notice notice;
	while (notice_read(guard->socket, &notice)) {
		int fd = notice_fd(&notice);
		if (notice.remove)
			forget(guard, notice.name);
		if (fd >= 0)
			keep(guard, notice.name, fd);
		if (notice.stopping)
			return false;
	}
	return true;
}

/* --- its death ------------------------------------------------------------------------------ */

static void become_keeper(struct guard *guard, int self)
{
	static struct hand hand;
	char program[PATH_MAX], *argv[HAND_ARGUMENTS_MAX];
	for (unsigned i = 0; i < guard->count; i++)
		notice_add(&hand, NULL, guard->names[i], guard->fds[i]);
	guard_hand(&hand, guard->socket, self);
	if (program_find("xsegd", program) == 0) {
		notice_arguments(guard->argv, program, argv);
		execv(program, argv);
	}
	log_error(ROOM, "xsegd cannot be run: %s", strerror(errno));
	_exit(FAULT_FAILED);
}

static int start_keeper(struct guard *guard)
{
	int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	close(guard->keeper);
	guard->started_ns = clock_now_ns();
	guard->pid = self < 0 ? -1 : program_fork();
	if (guard->pid == 0)
		become_keeper(guard, self);
	if (self >= 0)
		close(self);
	guard->keeper = guard->pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, guard->pid, 0);
	return guard->keeper < 0 ? -errno : 0;
}

/* One that we have started and that ended by itself, rather than being killed: its exit status. */
static int ended_with(struct guard *guard)
{
	int status = 0;
	if (guard->pid <= 0 || waitpid(guard->pid, &status, 0) != guard->pid)
		return 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

static int again(struct guard *guard)
{
	int status = ended_with(guard);
	if (status == FAULT_CONFLICT) {
		log_info(ROOM, "the segment has another keeper now");
		return -EBUSY;
	}
	bool quick = clock_now_ns() - guard->started_ns < QUICK_NS;
	guard->quick = quick ? guard->quick + 1 : 0;
	if (guard->quick > QUICK_MAX) {
		log_error(ROOM,
			"the keeper ends as soon as it is started, %u times in a row; "
			"'xsegctl up' starts it, when its log says nothing against it",
			guard->quick);
		return -ELOOP;
	}
	uint64_t wait_ns = guard->quick ? (uint64_t)DELAY_NS << (guard->quick - 1) : 0;
	wait_ns = wait_ns < DELAY_MAX_NS ? wait_ns : DELAY_MAX_NS;
	nanosleep(
		&(struct timespec){(time_t)(wait_ns / 1000000000u), (long)(wait_ns % 1000000000u)},
		NULL);
	log_warning(ROOM, "the keeper was killed, or failed; it is started again");
	return start_keeper(guard);
}

int guard_main(char **argv)
{
	static struct guard guard;
	guard.argv = argv + 1;
	log_open("xsegd");
	prctl(PR_SET_NAME, "xsegd-guard");
	if (!guard_take(&guard.socket, &guard.keeper)) {
		log_error(ROOM, "only a keeper starts its guard");
		return FAULT_USAGE;
	}
	guard.argv[0] = argv[0];
	for (int rc = 0; rc == 0;) {
		struct pollfd both[] = {{.fd = guard.socket, .events = POLLIN},
			{.fd = guard.keeper, .events = POLLIN}};
		if (poll(both, 2, -1) < 0 && errno != EINTR)
			return FAULT_FAILED;
		if (!hear(&guard))
			return 0;
		if (both[1].revents)
			rc = again(&guard);
	}
	return FAULT_FAILED;
}
