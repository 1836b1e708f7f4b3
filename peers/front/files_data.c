/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is read and written. A request is a row of steps, one after the other: whole sectors are cut
 * into calls, and a sector of which only a part changes is read, patched and written by itself,
 * while no other request changes the volume.
 */
#include <base/crash.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>

#include "peers/front/files.h"

#define WRITE_STEP (256u << 10) /* the store begins while the rest is copied */
#define ZERO_WRITE_MAX (1u << 20)
#define WINDOW 16u
#define COPY_PAGES 15u
#define IOV_MAX_DIRECT 64

static void data_step(struct files_request *request);

/* --- one patch, or many that need none ---------------------------------------------- */

static bool gate_is_open(const struct files_volume *volume, bool alone)
{
	return !volume->patching && !(alone && volume->writers);
}

static void gate_take(struct files_request *request)
{
	struct files_volume *volume = request->volume;
	volume->patching = request->alone;
	volume->writers += !request->alone;
	request->gated = true;
}

static void gate_enter(struct files_request *request)
{
	struct files_volume *volume = request->volume;
	if (!TAILQ_EMPTY(&volume->waiting) || !gate_is_open(volume, request->alone)) {
		TAILQ_INSERT_TAIL(&volume->waiting, request, link);
		return;
	}
	gate_take(request);
	data_step(request);
}

static void gate_leave(struct files_request *request)
{
	struct files_volume *volume = request->volume;
	struct files_request *next;
	if (!request->gated)
		return;
	request->gated = false;
	if (request->alone)
		volume->patching = false;
	else
		volume->writers--;
	while ((next = TAILQ_FIRST(&volume->waiting)) && gate_is_open(volume, next->alone)) {
		TAILQ_REMOVE(&volume->waiting, next, link);
		gate_take(next);
		data_step(next);
	}
}

/* --- the end ------------------------------------------------------------------------ */

static char *read_buffer(const struct files_request *request)
{
	return (char *)request->head + FILES_READ_AT;
}

static void data_reply(struct files_request *request)
{
	fuse_req_t req = request->req;
	if (request->left)
		return;
	if (request->error)
		fuse_reply_err(req, request->error == -ESTALE ? EIO : -request->error);
	else if (request->kind == FILES_READ)
		fuse_reply_buf(req, read_buffer(request), request->length);
	else if (request->kind == FILES_WRITE)
		fuse_reply_write(req, request->length);
	else
		fuse_reply_err(req, 0);
}

static void data_end(struct files_request *request)
{
	struct files *files = request->files;
	if (request->kind == FILES_READ || request->kind == FILES_WRITE)
		files->bytes -= request->length;
	gate_leave(request);
	if (request->kind == FILES_EMPTY)
		files_open_emptied(request);
	else
		files_slot_free(request);
}

static void data_finish(struct files_request *request)
{
	if (request->kind != FILES_EMPTY)
		data_reply(request);
	data_end(request);
}

/* --- bytes -------------------------------------------------------------------------- */

/* What of the call's sectors is of the request: [*from, *to) of the volume. */
static void overlap(
	const struct files_request *request, const struct call *call, uint64_t *from, uint64_t *to)
{
	uint64_t end = request->offset + request->length;
	*from = call->offset > request->offset ? call->offset : request->offset;
	*to = call->offset + call->length < end ? call->offset + call->length : end;
}

static void copy_out(struct files_request *request, const struct call *call)
{
	struct iovec iov[COPY_PAGES + 1];
	uint64_t from, to;
	overlap(request, call, &from, &to);
	char *out = read_buffer(request) + (from - request->offset);
	for (uint64_t at = from; at < to;) {
		uint64_t size = to - at < COPY_PAGES * XSEG_PAGE ? to - at : COPY_PAGES * XSEG_PAGE;
		int count = call_iov(
			call, (uint32_t)(at - call->offset), (uint32_t)size, iov, COPY_PAGES + 1);
		must(count > 0);
		for (int i = 0; i < count; i++) {
			memcpy(out, iov[i].iov_base, iov[i].iov_len);
			out += iov[i].iov_len;
		}
		at += size;
	}
}

/* A read that is one call is answered out of the store's pages. */
static bool reply_direct(struct files_request *request, const struct call *call)
{
	struct iovec iov[IOV_MAX_DIRECT];
	uint64_t from, to;
	overlap(request, call, &from, &to);
	if (to - from != request->length)
		return false;
	int count = call_iov(call, (uint32_t)(from - call->offset), (uint32_t)request->length, iov,
		IOV_MAX_DIRECT);
	if (count <= 0)
		return false;
	uint64_t got = 0;
	for (int i = 0; i < count; i++)
		got += iov[i].iov_len;
	if (got != request->length)
		return false;
	fuse_reply_iov(request->req, iov, count);
	return true;
}

static void fill_in(const struct files_request *request, struct call *call)
{
	uint64_t from, to;
	overlap(request, call, &from, &to);
	if (request->have_sector)
		call_put_bytes(call, 0, request->sector, XSEG_SECTOR);
	if (request->kind == FILES_WRITE)
		call_put_bytes(call, (uint32_t)(from - call->offset),
			request->data + (from - request->offset), (uint32_t)(to - from));
	else
		front_zero(call, (uint32_t)(from - call->offset), (uint32_t)(to - from));
}

/* --- calls -------------------------------------------------------------------------- */

static const struct files_step *step_of(const struct files_request *request)
{
	return &request->step[request->step_at];
}

static bool reads_sector(const struct files_request *request)
{
	return step_of(request)->patches && !request->have_sector;
}

static enum xseg_op op_of(const struct files_request *request)
{
	if (request->kind == FILES_READ || reads_sector(request))
		return XSEG_OP_READ;
	if (request->kind == FILES_FLUSH)
		return XSEG_OP_FLUSH;
	bool zero = request->kind != FILES_WRITE && !request->by_write && !request->have_sector;
	return zero ? XSEG_OP_ZERO : XSEG_OP_WRITE;
}

static uint32_t cut_of(const struct files_request *request)
{
	if (request->kind == FILES_READ)
		return front_read_step((uint32_t)request->length);
	if (request->kind == FILES_WRITE)
		return WRITE_STEP;
	return request->by_write ? ZERO_WRITE_MAX : XSEG_OBJECT_MAX;
}

static unsigned flags_of(const struct files_request *request, enum xseg_op op)
{
	switch (op) {
	case XSEG_OP_READ: return XSEG_F_PIN;
	case XSEG_OP_WRITE: return XSEG_F_DONATE;
	case XSEG_OP_ZERO: return request->keeps ? XSEG_F_NO_HOLE : 0;
	default: return 0;
	}
}

static struct call *call_of(struct files_request *request, uint32_t length)
{
	struct call *call;
	if (call_begin(request->files->peer, &call))
		return NULL;
	call->op = op_of(request);
	call->flags = flags_of(request, call->op);
	call->key = (struct xseg_key){.volume = request->handle->volume};
	/* `sync FILE` opens to read, and means what others have written */
	if (call->op != XSEG_OP_READ)
		call->arg1 = request->handle->writes ? request->handle->term
						     : request->volume->front.term;
	call->context = request;
	call->offset = request->next;
	call->length = call->op == XSEG_OP_FLUSH ? 0 : length;
	bool data = call->op == XSEG_OP_READ || call->op == XSEG_OP_WRITE;
	if (data && call_pages(call, length)) {
		call_end(call);
		return NULL;
	}
	return call;
}

/* Nobody below can: zeros can be written. */
static int settle_unsupported(struct files_request *request, const struct call *call)
{
	if (call->op != XSEG_OP_ZERO || request->probed)
		return -EOPNOTSUPP;
	request->by_write = true;
	request->next = step_of(request)->begin;
	return 0;
}

static void data_answered(struct call *call)
{
	struct files_request *request = call->context;
	int error = call->result;
	bool direct = false;
	if (error == -EOPNOTSUPP)
		error = settle_unsupported(request, call);
	else if (!error && request->kind == FILES_READ && !request->error)
		direct = reply_direct(request, call);
	if (!error && request->kind == FILES_READ && !direct)
		copy_out(request, call);
	else if (!error && call->op == XSEG_OP_READ && request->kind != FILES_READ) {
		call_get_bytes(call, 0, request->sector, XSEG_SECTOR);
		request->have_sector = true;
		request->next = step_of(request)->begin;
	}
	call_end(call);
	request->probed |= request->kind >= FILES_ZERO;
	request->pending--;
	if (error && !request->error)
		request->error = error;
	if (direct)
		data_end(request);
	else
		data_step(request);
}

static int data_issue(struct files_request *request)
{
	uint32_t length = front_cut(request->next, step_of(request)->end, cut_of(request));
	struct call *call = call_of(request, length);
	if (!call)
		return -EAGAIN;
	if (call->op == XSEG_OP_WRITE)
		fill_in(request, call);
	request->next += length;
	request->pending++;
	call_submit(call, FRONT_EDGE_VOLUME, data_answered);
	return 0;
}

static unsigned window_of(const struct files_request *request)
{
	if (request->by_write)
		return 2;
	return request->kind >= FILES_ZERO && !request->probed ? 1 : WINDOW;
}

static int data_fill(struct files_request *request)
{
	int error = 0;
	while (!error && !request->error && request->next < step_of(request)->end &&
		request->pending < window_of(request))
		error = data_issue(request);
	return error;
}

static bool data_again(struct peer *peer, void *context)
{
	struct files_request *request = context;
	(void)peer;
	return !data_fill(request) || request->pending;
}

static bool next_step(struct files_request *request)
{
	if (request->error || request->step_at + 1 >= request->step_count)
		return false;
	request->step_at++;
	request->next = step_of(request)->begin;
	request->have_sector = false;
	return true;
}

/* Some of it is out, or it has ended, or it waits for the pool. */
static void data_step(struct files_request *request)
{
	struct peer *peer = request->files->peer;
	do {
		int error = data_fill(request);
		if (request->pending)
			return;
		if (error) {
			peer_count(peer, FILES_COUNT_WAITS, 1);
			peer_retry(peer, data_again, request);
			return;
		}
	} while (next_step(request));
	data_finish(request);
}

/* --- the beginning ------------------------------------------------------------------ */

static void add_step(struct files_request *request, uint64_t begin, uint64_t end, bool patches)
{
	const uint64_t in_sector = XSEG_SECTOR - 1;
	if (begin >= end)
		return;
	request->alone |= patches;
	request->step[request->step_count++] =
		(struct files_step){begin & ~in_sector, (end + in_sector) & ~in_sector, patches};
}

/* What changes: the part of a sector before the first whole one, whole ones, the part behind. */
static void plan_change(struct files_request *request)
{
	const uint64_t in_sector = XSEG_SECTOR - 1;
	uint64_t begin = request->offset, end = begin + request->length;
	uint64_t whole = (begin + in_sector) & ~in_sector, rest = end & ~in_sector;
	if (begin < whole)
		add_step(request, begin, whole < end ? whole : end, true);
	add_step(request, whole, rest, false);
	if (rest < end && rest >= whole)
		add_step(request, rest, end, true);
	if (request->alone)
		peer_count(request->files->peer, FILES_COUNT_PATCHES, 1);
}

static void data_begin(struct files_request *request)
{
	bool changes = request->kind != FILES_READ;
	if (changes)
		plan_change(request);
	else
		add_step(request, request->offset, request->offset + request->length, false);
	if (request->kind == FILES_READ || request->kind == FILES_WRITE)
		request->files->bytes += request->length;
	if (!request->step_count) {
		data_finish(request);
		return;
	}
	request->next = step_of(request)->begin;
	if (changes)
		gate_enter(request);
	else
		data_step(request);
}

/* As far as the volume goes; nothing of it lies there: -ENOSPC, as a disk says. */
static void data_begin_cut(struct files_request *request)
{
	uint64_t size = request->volume->size;
	if (request->offset >= size) {
		files_slot_fail(request, -ENOSPC);
		return;
	}
	if (request->length > size - request->offset)
		request->length = size - request->offset;
	data_begin(request);
}

/* Its size may have grown since we heard of it. */
static void sized_done(struct files_request *request, struct call *call)
{
	struct xseg_volume_info info;
	if (!files_slot_info(request, call, &info))
		return;
	request->volume->size = info.size;
	data_begin_cut(request);
}

static const struct files_question sized_question = {XSEG_OP_INFO, XSEG_PAGE, NULL, sized_done};

static bool lies_inside(const struct files_request *request)
{
	uint64_t size = request->volume->size;
	return request->offset <= size && request->length <= size - request->offset;
}

/* NULL: it has been answered. */
static struct files_request *data_request(
	fuse_req_t req, fuse_ino_t inode, const struct fuse_file_info *info, enum files_kind kind)
{
	struct files_request *request = files_slot_request(req, inode);
	request->handle = files_open_handle(request->files, info);
	request->kind = (uint8_t)kind;
	request->stays = kind != FILES_READ && kind != FILES_FLUSH;
	if (!request->handle) {
		files_slot_fail(request, -EIO);
		return NULL;
	}
	request->volume = files_open_volume(request->files, request->handle->volume);
	return request;
}

void files_read(
	fuse_req_t req, fuse_ino_t inode, size_t size, off_t offset, struct fuse_file_info *info)
{
	struct files_request *request = data_request(req, inode, info, FILES_READ);
	if (!request)
		return;
	uint64_t end = request->volume->size, at = (uint64_t)offset;
	request->offset = at < end ? at : end;
	request->length = size < FILES_DATA_MAX ? size : FILES_DATA_MAX;
	if (request->length > end - request->offset)
		request->length = end - request->offset;
	peer_count(request->files->peer, FILES_COUNT_READS, 1);
	peer_count(request->files->peer, FILES_COUNT_BYTES_OUT, request->length);
	data_begin(request);
}

void files_write(fuse_req_t req, fuse_ino_t inode, const char *data, size_t size, off_t offset,
	struct fuse_file_info *info)
{
	struct files_request *request = data_request(req, inode, info, FILES_WRITE);
	if (!request)
		return;
	request->data = data;
	request->offset = (uint64_t)offset;
	request->length = size;
	peer_count(request->files->peer, FILES_COUNT_WRITES, 1);
	peer_count(request->files->peer, FILES_COUNT_BYTES_IN, size);
	if (lies_inside(request))
		data_begin(request);
	else
		files_slot_ask(request, &sized_question);
}

void files_data_empty(struct files_request *request)
{
	request->kind = FILES_EMPTY;
	request->stays = true;
	request->volume = files_open_volume(request->files, request->handle->volume);
	request->offset = 0;
	request->length = request->volume->size;
	data_begin(request);
}

void files_fsync(fuse_req_t req, fuse_ino_t inode, int data_only, struct fuse_file_info *info)
{
	struct files_request *request = data_request(req, inode, info, FILES_FLUSH);
	(void)data_only;
	if (!request)
		return;
	peer_count(request->files->peer, FILES_COUNT_FLUSHES, 1);
	/* one call that has no offset */
	request->step[request->step_count++] = (struct files_step){0, 1, false};
	data_step(request);
}

/* Space is not set aside: whoever asks for that is told so, and the C library writes instead. */
void files_fallocate(fuse_req_t req, fuse_ino_t inode, int mode, off_t offset, off_t length,
	struct fuse_file_info *info)
{
	struct files_request *request = data_request(req, inode, info, FILES_ZERO);
	if (!request)
		return;
	request->offset = (uint64_t)offset;
	request->length = (uint64_t)length;
	request->keeps = mode & FALLOC_FL_ZERO_RANGE;
	peer_count(request->files->peer, FILES_COUNT_ZEROES, 1);
	if (mode != (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE) &&
		(mode & ~FALLOC_FL_KEEP_SIZE) != FALLOC_FL_ZERO_RANGE)
		files_slot_fail(request, -EOPNOTSUPP);
	else if (!request->handle->writes)
		files_slot_fail(request, -EBADF);
	else if (!lies_inside(request))
		files_slot_ask(request, &sized_question);
	else
		data_begin(request);
}

/* --- where there are data ----------------------------------------------------------- */

static const struct files_question seek_question;

static void seek_answer(struct files_request *request, uint64_t at)
{
	if (request->whence == SEEK_DATA && at >= request->volume->size)
		fuse_reply_err(request->req, ENXIO);
	else
		fuse_reply_lseek(request->req, (off_t)at);
	files_slot_free(request);
}

static void seek_fill(struct files_request *request, struct call *call)
{
	call->offset = request->next & ~(uint64_t)(XSEG_SECTOR - 1);
	call->length = front_cut(call->offset, request->volume->size, XSEG_OBJECT_MAX);
}

/* True: it is found, at request->next. */
static bool seek_look(struct files_request *request, const struct call *call)
{
	uint64_t at = call->offset, end = call->offset + call->length;
	uint64_t most = XSEG_PAGE / sizeof(struct xseg_status_extent);
	uint64_t count = call->value < most ? call->value : most;
	for (uint64_t i = 0; i < count && at < end; i++) {
		struct xseg_status_extent extent;
		call_get_bytes(call, (uint32_t)(i * sizeof(extent)), &extent, sizeof(extent));
		uint64_t to = extent.length < end - at ? at + extent.length : end;
		bool hole = extent.flags & XSEG_STATUS_ZERO;
		if (to > request->next && hole == (request->whence == SEEK_HOLE))
			return true;
		request->next = to > request->next ? to : request->next;
		at = to;
	}
	return false;
}

static void seek_done(struct files_request *request, struct call *call)
{
	uint64_t before = request->next;
	int error = call->result;
	bool found = !error && seek_look(request, call);
	call_end(call);
	if (error == -EOPNOTSUPP || (!error && !found && request->next == before))
		/* it cannot be told: all are data */
		seek_answer(request,
			request->whence == SEEK_DATA ? request->next : request->volume->size);
	else if (error)
		files_slot_fail(request, error);
	else if (found || request->next >= request->volume->size)
		seek_answer(request, request->next);
	else
		files_slot_ask(request, &seek_question);
}

static const struct files_question seek_question = {
	XSEG_OP_STATUS, XSEG_PAGE, seek_fill, seek_done};

void files_lseek(
	fuse_req_t req, fuse_ino_t inode, off_t offset, int whence, struct fuse_file_info *info)
{
	struct files_request *request = data_request(req, inode, info, FILES_READ);
	if (!request)
		return;
	request->next = (uint64_t)offset;
	request->whence = whence;
	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		files_slot_fail(request, -EINVAL);
	else if (request->next >= request->volume->size)
		files_slot_fail(request, -ENXIO);
	else
		files_slot_ask(request, &seek_question);
}
