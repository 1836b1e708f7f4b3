/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGHUP: the keeper becomes a new program, the one that is installed by now. Its process stays, so
 * its children stay its own, and what it keeps for them is handed over as systemd would do it.
 */
#include <base/log.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "tools/keeper/keeper.h"
#include "tools/keeper/notice.h"
#include "tools/report/program.h"

static void collect(const struct keeper *keeper, struct hand *hand)
{
	for (unsigned i = 0; i < keeper->activated_count; i++)
		notice_add(hand, NULL, keeper->activated[i].name, keeper->activated[i].fd);
	for (unsigned i = 0; i < keeper->order_count; i++) {
		const struct keeper_host *host = &keeper->hosts[keeper->order[i]];
		for (unsigned j = 0; j < host->fd_count; j++)
			notice_add(
				hand, keeper_host_name(host), host->fds[j].name, host->fds[j].fd);
	}
}

void keeper_renew(struct keeper *keeper)
{
	static struct hand hand;
	static char program[PATH_MAX];
	char *arguments[HAND_ARGUMENTS_MAX];
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
	notice_arguments(keeper->argv, program, arguments);
	collect(keeper, &hand);
	keeper_guard_hand(keeper, &hand); /* from here on there is no way back */
	execv(program, arguments);
	log_error("keeper", "%s cannot be run: %s; processes go on without a keeper", program,
		strerror(errno));
	_exit(1);
}
