/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands of the user's, run by the shell at certain points of ours, while we go on. One that
 * undoes what another has done is promised before that: it runs once, also when we are killed.
 *
 * Errors: as an exit status. Ownership: the caller's. Threads: one. Blocking: ctl_hook_wait() only.
 */
#ifndef SKERRY_TOOLS_CTL_HOOK_H
#define SKERRY_TOOLS_CTL_HOOK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct ctl_hook {
	pid_t pid;  /* 0: none runs */
	int tell;   /* a promised one is told here that it is its turn; 0: none is promised */
	int status; /* of the last one that has ended: 0, its exit status, or 128 + signal */
};

/* SKERRY_VOLUME is that volume's name in its environment, unless it is NULL. It reads nothing; what
   it says goes to our stderr. */
void ctl_hook_start(struct ctl_hook *hook, const char *command, const char *volume);
/* A process waits from now on until ctl_hook_keep(), or until we and what we have started since
   have ended. -errno: it does not. */
int ctl_hook_promise(struct ctl_hook *hook, const char *command, const char *volume);
void ctl_hook_keep(struct ctl_hook *hook);
/* True: none runs (any more). */
bool ctl_hook_ended(struct ctl_hook *hook);
/* Until it has ended, so long at most (0: no limit); `stop`: it and what it has started are told to
   (SIGTERM). False: it still runs. */
bool ctl_hook_wait(struct ctl_hook *hook, bool stop, uint64_t limit_ns);

#endif
