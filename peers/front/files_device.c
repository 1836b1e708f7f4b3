/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's messages and our answers go through pipes. A plain read(2) or write(2) of /dev/fuse
 * looks for our pages in the middle of a request, and finding one gives up when the process is
 * killed: the request then ends with EIO. splice(2) needs no page of ours. So a message is in the
 * kernel, in a pipe that outlives us, or in its slot; and an answer is in a pipe as a whole before
 * the kernel looks at it.
 */
#include <base/crash.h>
#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "peers/front/files.h"

#define PIPE_SIZE (2u * FILES_DATA_MAX)
#define PIPE_SIZE_ANYBODY (1u << 20) /* what may have who is not root, see pipe(7) */
#define PIPE_SIZE_MIN (64u << 10)    /* who has very many gets smaller ones */
#define PIPE_SPARE (4u * XSEG_PAGE)  /* a message's beginning, and data that begin within a page */

static void close_pipe(int fds[2])
{
	for (unsigned i = 0; i < 2; i++) {
		if (fds[i] >= 0)
			close(fds[i]);
		fds[i] = -1;
	}
}

static int new_pipe(int fds[2])
{
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK))
		return -errno;
	if (fcntl(fds[1], F_SETPIPE_SZ, PIPE_SIZE) < 0)
		fcntl(fds[1], F_SETPIPE_SZ, PIPE_SIZE_ANYBODY);
	if (fcntl(fds[1], F_GETPIPE_SZ) >= (int)PIPE_SIZE_MIN)
		return 0;
	close_pipe(fds);
	return -ENFILE;
}

uint32_t files_device_data_max(const struct files *files)
{
	int size = fcntl(files->message_pipe[1], F_GETPIPE_SZ);
	must(size >= (int)PIPE_SIZE_MIN);
	uint32_t max = FILES_DATA_MAX;
	while (max > (uint32_t)size - PIPE_SPARE)
		max /= 2;
	return max;
}

/* --- messages ---------------------------------------------------------------------- */

static void draw(const struct files *files, struct files_head *head, size_t at)
{
	do {
		ssize_t got = read(files->message_pipe[0], (char *)head + at, FILES_SLOT_SIZE - at);
		must(got > 0);
		at += (size_t)got;
	} while (at < head->length);
	must(at == head->length);
}

static ssize_t device_read(int fd, void *buffer, size_t size, void *context)
{
	struct files *files = context;
	struct files_head *head = buffer;
	*head = (struct files_head){0};
	files->memory->taking = files_slot_index(files, head);
	ssize_t got = splice(fd, NULL, files->message_pipe[1], NULL, size, SPLICE_F_NONBLOCK);
	if (got <= 0)
		return got;
	crash_point("front_fuse.message.taken");
	draw(files, head, 0);
	return got;
}

/* What is not in the pipe any more is in the slot. */
void files_device_resume(struct files *files)
{
	int rest = 0;
	if (ioctl(files->message_pipe[0], FIONREAD, &rest) || rest <= 0)
		return;
	must(files->memory->taking < FILES_SLOTS);
	struct files_head *head = files_slot_head(files, files->memory->taking);
	draw(files, head, head->length > (uint32_t)rest ? head->length - (uint32_t)rest : 0);
}

/* --- answers ----------------------------------------------------------------------- */

/* Within one page the kernel looks for it once, and before it has begun to answer. */
static ssize_t answer_short(int fd, const struct iovec *iov, int count)
{
	_Alignas(XSEG_PAGE) char page[XSEG_PAGE];
	size_t size = 0;
	for (int i = 0; i < count; i++) {
		memcpy(page + size, iov[i].iov_base, iov[i].iov_len);
		size += iov[i].iov_len;
	}
	return write(fd, page, size);
}

/* The pipe was too small for pieces of this shape. */
static ssize_t answer_plain(struct files *files, int fd, const struct iovec *iov, int count)
{
	close_pipe(files->answer_pipe);
	must(new_pipe(files->answer_pipe) == 0);
	return writev(fd, iov, count);
}

/*
 * Before each write the kernel asks for the attribute of a file's capabilities, which a write takes
 * away, unless we say that we see to that: there are none here, nor set-id bits (Linux's
 * FUSE_HANDLE_KILLPRIV_V2, which libfuse 3.14 does not know).
 */
static void agree(const struct files *files, const struct iovec *iov, int count)
{
	const struct files_head *head = files->taking ? files->taking->head : NULL;
	const struct fuse_out_header *answer = iov[0].iov_base;
	if (!head || head->opcode != FUSE_INIT || count != 2 || answer->error)
		return;
	const struct fuse_init_in *offer =
		(const void *)((const char *)head + sizeof(struct fuse_in_header));
	struct fuse_init_out *init = iov[1].iov_base;
	init->flags |= offer->flags & FUSE_HANDLE_KILLPRIV_V2;
}

static ssize_t device_answer(int fd, struct iovec *iov, int count, void *context)
{
	struct files *files = context;
	size_t size = 0;
	agree(files, iov, count);
	for (int i = 0; i < count; i++)
		size += iov[i].iov_len;
	if (size <= XSEG_PAGE)
		return answer_short(fd, iov, count);
	ssize_t put = vmsplice(files->answer_pipe[1], iov, (size_t)count, SPLICE_F_NONBLOCK);
	if (put != (ssize_t)size)
		return answer_plain(files, fd, iov, count);
	crash_point("front_fuse.answer.filled");
	return splice(files->answer_pipe[0], NULL, fd, NULL, size, 0);
}

/* --- beginning and end -------------------------------------------------------------- */

static const char *const kept[2] = {"messages-out", "messages-in"};

/* Both or none: a predecessor that had stored one of them had taken no message yet. */
static bool take_messages(struct files *files)
{
	int *fds = files->message_pipe;
	for (unsigned i = 0; i < 2; i++)
		fds[i] = files_mount_take(files, kept[i]);
	return fds[0] >= 0 && fds[1] >= 0;
}

static void forget_messages(struct files *files)
{
	close_pipe(files->message_pipe);
	for (unsigned i = 0; i < 2; i++)
		files_mount_drop(files, kept[i]);
}

static int open_messages(struct files *files, bool goes_on)
{
	int *fds = files->message_pipe;
	if (take_messages(files) && goes_on)
		return 0;
	forget_messages(files);
	int error = new_pipe(fds);
	for (unsigned i = 0; !error && i < 2; i++)
		files_mount_keep(files, kept[i], fds[i]);
	return error;
}

int files_device_open(struct files *files, int fd, bool goes_on)
{
	static const struct fuse_custom_io io = {.read = device_read, .writev = device_answer};
	int error = open_messages(files, goes_on);
	error = error ? error : new_pipe(files->answer_pipe);
	return error ? error : fuse_session_custom_io(files->session, &io, fd);
}

void files_device_close(struct files *files, bool leave)
{
	close_pipe(files->answer_pipe);
	if (leave)
		close_pipe(files->message_pipe);
	else
		forget_messages(files);
}
