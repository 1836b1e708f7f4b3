/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guard: a small process that starts the keeper again when it was killed, and keeps its
 * descriptors meanwhile. To the keeper it is what systemd is where there is one: it reads
 * RUN_DIR/SEGMENT/guard.sock (NOTIFY_SOCKET). The keeper in turn starts the guard again; only
 * both killed at once stay so. It ends when the keeper says STOPPING=1.
 *
 * Each finds the other by GUARD_ENVIRONMENT: "SOCKET,PIDFD", two descriptors that it was handed.
 */
#ifndef SKERRY_TOOLS_GUARD_H
#define SKERRY_TOOLS_GUARD_H

#include <stdbool.h>

#define GUARD_ENVIRONMENT "SKERRY_GUARD"
#define GUARD_OPTION "--guard" /* the first argument; all others are the keeper's */

/* What the environment says, which is then forgotten; false: nothing. */
bool guard_take(int *socket, int *pidfd);
/* As notice_over() of both, and so that guard_take() finds them. */
struct hand;
void guard_hand(struct hand *hand, int socket, int pidfd);

/* Does not return before it is done: the exit status. */
int guard_main(char **argv);

#endif
