/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes over a UNIX socket, and descriptors that go along (SCM_RIGHTS, unix(7)).
 *
 * Units: bytes. Errors: as sendmsg(2) and recvmsg(2): how many, or -1 and errno; never SIGPIPE.
 * Ownership: what is sent stays the sender's, what is received is close-on-exec and the receiver's.
 * Threads: any. Blocking: as the socket, or `flags` (MSG_DONTWAIT), have it.
 */
#ifndef SKERRY_BASE_PASS_H
#define SKERRY_BASE_PASS_H

#include <sys/uio.h>

#define PASS_FDS_MAX 8u /* of one message */

/* fd: goes along; -1: none does. */
ssize_t pass_send(int to, const struct iovec *iov, int count, int fd, int flags);
/* Descriptors that come are put behind the *had that fds[] has; those beyond `max` are closed. */
ssize_t pass_receive(
	int from, void *data, size_t size, int fds[], unsigned *had, unsigned max, int flags);

#endif
