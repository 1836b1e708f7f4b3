/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGHUP: the keeper becomes a new program, the one that is installed by now. Its process stays, so
 * its children stay its own, and what it keeps for them is handed over as systemd would do it.
 */
#include <base/log.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/keeper.h"
#include "tools/program.h"

#define KEPT_MAX 1024
#define ARGUMENTS_MAX 32

struct kept {
	int fds[KEPT_MAX];
	unsigned count;
	char names[KEPT_MAX * (NOTIFY_NAME_MAX + NAME_LENGTH_MAX + 2)];
	size_t length;
};

static void kept_add(struct kept *kept, const char *host, const struct keeper_fd *fd)
{
	size_t room = sizeof(kept->names) - kept->length;
	if (kept->count == KEPT_MAX)
		return;
	kept->length += (size_t)snprintf(kept->names + kept->length, room, "%s%s%s%s",
		kept->count ? ":" : "", host ? host : "", host ? "/" : "", fd->name);
	kept->fds[kept->count++] = fd->fd;
}

static void kept_collect(const struct keeper *keeper, struct kept *kept)
{
	for (unsigned i = 0; i < keeper->activated_count; i++)
		kept_add(kept, NULL, &keeper->activated[i]);
	for (unsigned i = 0; i < keeper->order_count; i++) {
		const struct keeper_host *host = &keeper->hosts[keeper->order[i]];
		for (unsigned j = 0; j < host->fd_count; j++)
			kept_add(kept, keeper_host_name(host), &host->fds[j]);
	}
}

/* From here on there is no way back: what lies where they shall lie is overwritten. */
static void kept_hand(struct kept *kept)
{
	char number[16];
	for (unsigned i = 0; i < kept->count; i++)
		kept->fds[i] =
			fcntl(kept->fds[i], F_DUPFD_CLOEXEC, NOTIFY_FD_FIRST + (int)kept->count);
	for (unsigned i = 0; i < kept->count; i++)
		dup2(kept->fds[i], NOTIFY_FD_FIRST + (int)i);
	snprintf(number, sizeof(number), "%u", kept->count);
	setenv("LISTEN_FDS", number, 1);
	setenv("LISTEN_FDNAMES", kept->names, 1);
	snprintf(number, sizeof(number), "%d", (int)getpid());
	setenv("LISTEN_PID", number, 1);
}

/* As it was started, but for those who waited for that. */
static void arguments_copy(char *const *from, char *program, char *to[ARGUMENTS_MAX])
{
	unsigned count = 0;
	to[count++] = program;
	for (unsigned i = 1; from[i] && count < ARGUMENTS_MAX - 1; i++) {
		if (!strncmp(from[i], "--report-fd", 11)) {
			i += from[i][11] != '=' && from[i + 1];
			continue;
		}
		to[count++] = from[i];
	}
	to[count] = NULL;
}

void keeper_renew(struct keeper *keeper)
{
	static struct kept kept;
	static char program[PATH_MAX];
	char *arguments[ARGUMENTS_MAX];
	if (keeper->phase != KEEPER_PHASE_RUNNING || keeper->operation.kind != KEEPER_OP_NONE) {
		log_warning(
			"keeper", "SIGHUP is not for now: something is being started or stopped");
		return;
	}
	if (program_find("xsegd", program)) {
		log_error("keeper", "xsegd is not found; this one goes on");
		return;
	}
	keeper_save(keeper);
	keeper_event(keeper, "keeper_stopped",
		json_pack("{s:i, s:s}", "pid", (int)getpid(), "reason", "becomes a new program"));
	log_info("keeper", "becomes %s", program);
	arguments_copy(keeper->argv, program, arguments);
	kept_collect(keeper, &kept);
	kept_hand(&kept);
	execv(program, arguments);
	log_error("keeper", "%s cannot be run: %s; processes go on without a keeper", program,
		strerror(errno));
	_exit(1);
}
