/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the kernel: read into slots, handed to libfuse, answered; and those of a predecessor,
   that it has not answered. */
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <event2/event.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>

#include "peers/front/files.h"

#define TAKE_MAX 32u	     /* in a turn */
#define LEAVE_NS 2000000000u /* who gets a signal does not wait for longer than that */
#define LEFT_MAX (FILES_SLOTS / 2)

/* --- requests ---------------------------------------------------------------------- */

/* libfuse calls it when the kernel says so, and at once when it has said so already. */
static void slot_interrupted(fuse_req_t req, void *context)
{
	struct files_request *request = context;
	(void)req;
	request->files->interrupted += !request->interrupted;
	request->files->again = true;
	request->interrupted = true;
}

struct files_request *files_slot_request(fuse_req_t req, fuse_ino_t inode)
{
	struct files *files = fuse_req_userdata(req);
	struct files_request *request = files->taking;
	struct files_head *head = request->head;
	must(!request->busy);
	*request = (struct files_request){.files = files,
		.head = head,
		.req = req,
		.inode = inode,
		.busy = true,
		.since_ns = peer_now_ns(files->peer)};
	files->inflight++;
	fuse_req_interrupt_func(req, slot_interrupted, request);
	return request;
}

void files_slot_free(struct files_request *request)
{
	struct files *files = request->files;
	crash_point("front_fuse.request.answered");
	request->head->unique = 0;
	request->busy = false;
	files->interrupted -= request->interrupted;
	files->left -= request->left;
	files->inflight--;
	files->again = true;
}

bool files_slot_info(
	struct files_request *request, struct call *call, struct xseg_volume_info *info)
{
	int error = front_volume_info(call, info);
	call_end(call);
	if (error)
		files_slot_fail(request, error);
	return !error;
}

void files_slot_fail(struct files_request *request, int error)
{
	if (!request->left)
		fuse_reply_err(request->req, error == -ESTALE ? EIO : -error);
	files_slot_free(request);
}

/* --- who does not wait any longer ---------------------------------------------------- */

/*
 * The kernel lets nobody go, whatever the signal, before it has an answer, and the store may be on
 * a host that is away. Half of the slots are left for others.
 */
static bool may_leave(const struct files_request *request)
{
	return request->busy && request->interrupted && !request->left && !request->stays &&
	       request->files->left < LEFT_MAX && (!request->step_count || request->pending);
}

static void slot_leave(struct files *files)
{
	uint64_t now = peer_now_ns(files->peer);
	for (unsigned i = 0; i < FILES_SLOTS; i++) {
		struct files_request *request = &files->request[i];
		if (!may_leave(request) || now < request->since_ns + LEAVE_NS)
			continue;
		fuse_reply_err(request->req, EINTR);
		request->head->unique = 0; /* no successor need do it */
		request->left = true;
		request->error = -EINTR; /* no more of it is read */
		files->left++;
		peer_count(files->peer, FILES_COUNT_LEFT, 1);
	}
}

uint64_t files_slot_due(const struct files *files)
{
	uint64_t due = UINT64_MAX;
	for (unsigned i = 0; files->interrupted && i < FILES_SLOTS; i++) {
		uint64_t at = files->request[i].since_ns + LEAVE_NS;
		if (may_leave(&files->request[i]) && at < due)
			due = at;
	}
	return due;
}

/* --- questions --------------------------------------------------------------------- */

static bool opens_or_closes(const struct files_question *question)
{
	return question->op == XSEG_OP_OPEN || question->op == XSEG_OP_CLOSE;
}

static void question_answered(struct call *call)
{
	struct files_request *request = call->context;
	const struct files_question *question = request->question;
	request->files->asked -= opens_or_closes(question);
	request->files->again = true;
	if (!request->left) {
		question->done(request, call);
		return;
	}
	const struct files_question *undo = call->result == 0 ? request->undo : NULL;
	call_end(call);
	free(request->listing);
	request->listing = NULL;
	request->undo = NULL;
	if (undo)
		files_slot_ask(request, undo);
	else
		files_slot_free(request);
}

static bool question_try(struct peer *peer, void *context)
{
	struct files_request *request = context;
	const struct files_question *question = request->question;
	struct call *call;
	if ((opens_or_closes(question) && request->files->volumes.reopening) ||
		call_begin(peer, &call))
		return false;
	call->op = question->op;
	call->key.volume = request->inode;
	call->context = request;
	if (call_pages(call, question->bytes)) {
		call_end(call);
		return false;
	}
	if (question->fill)
		question->fill(request, call);
	request->files->asked += opens_or_closes(question);
	call_submit(call, FRONT_EDGE_VOLUME, question_answered);
	return true;
}

void files_slot_ask(struct files_request *request, const struct files_question *question)
{
	struct peer *peer = request->files->peer;
	request->question = question;
	if (!question_try(peer, request))
		peer_retry(peer, question_try, request);
}

/* --- messages ---------------------------------------------------------------------- */

static void slot_init(void *context, struct fuse_conn_info *connection)
{
	/* libfuse's pipes would not outlive us, files_device.c has ours; and that a file has
	   changed is not news to who has written it */
	connection->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
					FUSE_CAP_SPLICE_MOVE | FUSE_CAP_AUTO_INVAL_DATA);
	connection->want |= connection->capable & (FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_ASYNC_DIO);
	connection->max_write = files_device_data_max(context);
	connection->max_background = FILES_SLOTS - FILES_SLOTS / 4;
	connection->congestion_threshold = FILES_SLOTS / 2;
}

const struct fuse_lowlevel_ops files_operations = {
	.init = slot_init,
	.lookup = files_tree_lookup,
	.getattr = files_tree_getattr,
	.setattr = files_tree_setattr,
	.mknod = files_tree_mknod,
	.mkdir = files_tree_mkdir,
	.unlink = files_tree_unlink,
	.rmdir = files_tree_unlink,
	.rename = files_tree_rename,
	.symlink = files_tree_symlink,
	.link = files_tree_link,
	.readdir = files_tree_readdir,
	.getxattr = files_tree_getxattr,
	.listxattr = files_tree_listxattr,
	.statfs = files_tree_statfs,
	.open = files_open,
	.release = files_release,
	.read = files_read,
	.write = files_write,
	.fsync = files_fsync,
	.fallocate = files_fallocate,
	.lseek = files_lseek,
};

/* A successor must hear what was agreed. */
static void note_init(struct files *files, const struct files_head *head, uint32_t length)
{
	if (head->opcode != FUSE_INIT || length > FILES_INIT_MAX)
		return;
	memcpy(files->memory->init, head, length);
	files->memory->init_length = length;
}

static void slot_process(struct files *files, struct files_request *request, uint32_t length)
{
	struct fuse_buf buffer = {.mem = request->head, .size = length};
	files->taking = request;
	fuse_session_process_buf(files->session, &buffer);
	files->taking = NULL;
	/* libfuse has answered it by itself, or it wants no answer */
	if (!request->busy)
		request->head->unique = 0;
}

/* Unmounted, by us or by somebody, or aborted: nobody asks any more. */
static void slot_cut_off(struct files *files)
{
	files->mounted = false;
	event_del(files->event);
	if (!files->stopping)
		log_warning(FILES_ROOM,
			"%s: '%s' was unmounted: it is mounted again when this peer is restarted",
			files->peer->name, files->options->path);
	files_open_drop_all(files);
	if (!files->unmounts)
		files_mount_end(files);
}

/* True: there was one. */
static bool slot_take(struct files *files, struct files_request *request)
{
	struct fuse_buf buffer = {.mem = request->head};
	request->head->unique = 0;
	int got = fuse_session_receive_buf(files->session, &buffer);
	if (got <= 0) {
		request->head->unique = 0;
		files->ready = false;
		if (fuse_session_exited(files->session) && files->mounted)
			slot_cut_off(files);
		return false;
	}
	crash_point("front_fuse.request.taken");
	note_init(files, request->head, (uint32_t)got);
	slot_process(files, request, (uint32_t)got);
	return true;
}

static struct files_request *slot_idle(struct files *files)
{
	for (unsigned i = 0; i < FILES_SLOTS; i++)
		if (!files->request[i].busy)
			return &files->request[i];
	return NULL;
}

static bool has_room(struct files *files)
{
	return !files->inflight ||
	       front_share_fits(&files->share, files->peer, files->inflight, files->bytes);
}

/* What a predecessor had taken and not answered. */
static void slot_again(struct files *files)
{
	files->serving = true;
	files_device_resume(files);
	for (unsigned i = 0; i < FILES_SLOTS; i++) {
		struct files_head *head = files->request[i].head;
		if (!head->unique)
			continue;
		if (head->length > FILES_SLOT_SIZE || head->length < sizeof(*head) ||
			(head->opcode == FUSE_INIT && files->memory->init_length)) {
			head->unique = 0;
			continue;
		}
		peer_count(files->peer, FILES_COUNT_AGAIN, 1);
		note_init(files, head, head->length);
		slot_process(files, &files->request[i], head->length);
	}
}

bool files_slot_turn(struct files *files)
{
	struct files_request *request;
	unsigned taken = 0;
	if (!files->mounted || files->adopting)
		return false;
	if (!files->serving)
		slot_again(files);
	if (files->interrupted)
		slot_leave(files);
	if (files->stopping && !files->unmounts)
		return false;
	while (files->ready && taken < TAKE_MAX && has_room(files) && (request = slot_idle(files)))
		taken += slot_take(files, request);
	return taken > 0;
}

static void slot_readable(evutil_socket_t fd, short what, void *context)
{
	struct files *files = context;
	(void)fd;
	(void)what;
	files->ready = files->again = true;
}

int files_slot_start(struct files *files)
{
	for (unsigned i = 0; i < FILES_SLOTS; i++)
		files->request[i].head = files_slot_head(files, i);
	files->ready = true;
	files->event = event_new(peer_event_base(files->peer), fuse_session_fd(files->session),
		EV_READ | EV_ET | EV_PERSIST, slot_readable, files);
	return files->event && !event_add(files->event, NULL) ? 0 : -ENOMEM;
}

void files_slot_stop(struct files *files)
{
	if (files->event)
		event_free(files->event);
	files->event = NULL;
}
