/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands of the user's, run by the shell at certain points of ours, while we go on.
 *
 * Errors: as an exit status. Ownership: the caller's. Threads: one. Blocking: ctl_hook_wait() only.
 */
#ifndef SKERRY_TOOLS_CTL_HOOK_H
#define SKERRY_TOOLS_CTL_HOOK_H

#include <stdbool.h>
#include <sys/types.h>

struct ctl_hook {
	pid_t pid;  /* 0: none runs */
	int status; /* of the last one that has ended: 0, its exit status, or 128 + signal */
};

/* SKERRY_VOLUME is that volume's name in its environment. It reads nothing; what it says goes to
   our stderr. */
void ctl_hook_start(struct ctl_hook *hook, const char *command, const char *volume);
/* True: none runs (any more). */
bool ctl_hook_ended(struct ctl_hook *hook);
/* Until it has ended; `stop`: it and what it has started are told to (SIGTERM). */
void ctl_hook_wait(struct ctl_hook *hook, bool stop);

#endif
