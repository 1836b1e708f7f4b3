/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors that outlive the process: a front gives its listening sockets to whoever started it
 * (the keeper, or systemd), and its successor finds them: clients wait in the socket's queue
 * meanwhile and meet no refusal.
 *
 *   open():   fd = notify_take_fd("nbd0/unix=/run/x.sock");
 *             if (fd < 0) { fd = a new socket; notify_store_fd("nbd0/unix=/run/x.sock", fd); }
 *   close():  if (!notify_handover()) { notify_drop_fd("nbd0/..."); unlink its file; }
 *
 * The name: 63 characters at most, printable, no ':' (notify_name_check() of <base/notify.h>);
 * unique in the process, so let it begin with the peer's name. A socket of systemd's activation
 * has the name that its unit gives it and can be taken in the same way.
 *
 * Stored ones that were handed over and not taken when the process is ready are closed and
 * dropped: nobody would ever accept there.
 *
 * Errors: 0 or -errno. -ENOENT: nobody there who keeps descriptors (store, drop), none of that
 * name (take). Ownership: store keeps a copy, fd stays the caller's; take gives the descriptor to
 * the caller (close on exec), each once. Threads: any. Blocking: none.
 */
#ifndef SKERRY_PEER_NOTIFY_H
#define SKERRY_PEER_NOTIFY_H

#include <stdbool.h>

int notify_store_fd(const char *name, int fd);
/* Forgets the stored one of that name. */
int notify_drop_fd(const char *name);
/* >= 0: the descriptor. */
int notify_take_fd(const char *name);
/* The process stops because a successor is about to take its place (SIGHUP: `peer restart`):
   what is stored stays stored, and a socket's file stays where it is. */
bool notify_handover(void);

#endif
