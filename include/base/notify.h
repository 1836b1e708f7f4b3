/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service manager's protocol, without its library: one datagram to the socket that
 * NOTIFY_SOCKET names (sd_notify(3)), and descriptors that were handed over at the start
 * (LISTEN_FDS, sd_listen_fds(3)). Our keeper speaks it with the processes it starts, systemd with
 * the keeper: whoever is above is told in the same way.
 *
 * Errors: 0 or -errno; -ENOENT: nobody wants to know. Threads: any. Blocking: none.
 */
#ifndef SKERRY_BASE_NOTIFY_H
#define SKERRY_BASE_NOTIFY_H

#define NOTIFY_FD_FIRST 3     /* of those handed over */
#define NOTIFY_FDS_MAX 64     /* that one process keeps or is handed */
#define NOTIFY_NAME_MAX 96    /* with its end */
#define NOTIFY_TEXT_MAX 2048u /* of one message, with its end */

/* "READY=1\nSTATUS=serving"; fd: sent along for FDSTORE=1, or -1. */
int notify_send(const char *text, int fd);

/* How many were handed to this process (they lie from NOTIFY_FD_FIRST on), and their names. */
int notify_fd_count(void);
/* What FDNAME said, "" when unnamed; cut when longer. */
void notify_fd_name(int index, char name[NOTIFY_NAME_MAX]);
/* May it be the name of a descriptor? Printable ASCII without ':'. */
int notify_name_check(const char *name);

#endif
