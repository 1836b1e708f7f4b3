/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes over a socket, or over a pair of pipes. Never blocks. */
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "peers/front/nbd.h"

static ssize_t nbd_socket_receive(struct nbd_conn *conn, struct iovec *iov, int count)
{
	ssize_t got;
	if (count == 1) {
		got = recv(conn->in, iov->iov_base, iov->iov_len, MSG_DONTWAIT);
	} else {
		struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)count};
		got = recvmsg(conn->in, &message, MSG_DONTWAIT);
	}
	if (got >= 0)
		return got;
	return errno == EINTR ? -EAGAIN : -errno;
}

static ssize_t nbd_socket_send(struct nbd_conn *conn, struct iovec *iov, int count)
{
	struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)count};
	ssize_t sent = sendmsg(conn->out, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent >= 0)
		return sent;
	return errno == EINTR || errno == ENOBUFS ? -EAGAIN : -errno;
}

static void nbd_socket_end(struct nbd_conn *conn) { shutdown(conn->out, SHUT_RDWR); }

const struct nbd_transport nbd_transport_socket = {
	.name = "socket",
	.receive = nbd_socket_receive,
	.send = nbd_socket_send,
	.end = nbd_socket_end,
};

static ssize_t nbd_pipe_receive(struct nbd_conn *conn, struct iovec *iov, int count)
{
	ssize_t got = readv(conn->in, iov, count);
	if (got >= 0)
		return got;
	return errno == EINTR ? -EAGAIN : -errno;
}

static ssize_t nbd_pipe_send(struct nbd_conn *conn, struct iovec *iov, int count)
{
	ssize_t sent = writev(conn->out, iov, count);
	if (sent >= 0)
		return sent;
	return errno == EINTR ? -EAGAIN : -errno;
}

static void nbd_pipe_end(struct nbd_conn *conn) { (void)conn; /* closing is all there is */ }

const struct nbd_transport nbd_transport_pipe = {
	.name = "pipe",
	.receive = nbd_pipe_receive,
	.send = nbd_pipe_send,
	.end = nbd_pipe_end,
};
