/* SPDX-License-Identifier: Apache-2.0 */
/* Open files, and the volumes that are open because of them; those of a predecessor. */
#include <base/crash.h>
#include <base/log.h>
#include <errno.h>
#include <fcntl.h>
#include <peer/map.h>
#include <stdlib.h>
#include <string.h>

#include "peers/front/files.h"

/* --- volumes ----------------------------------------------------------------------- */

struct files_volume *files_open_volume(struct files *files, uint64_t id)
{
	return (struct files_volume *)front_volume_find(&files->volumes, id);
}

static struct files_volume *volume_use(
	struct files *files, const struct files_handle *handle, uint64_t size)
{
	struct files_volume *volume = files_open_volume(files, handle->volume);
	if (!volume) {
		volume = calloc(1, sizeof(*volume));
		if (!volume)
			return NULL;
		TAILQ_INIT(&volume->waiting);
		front_volume_add(&files->volumes, &volume->front, handle->volume);
	}
	volume->size = size;
	front_volume_use(&volume->front, handle->term, handle->writes);
	return volume;
}

static void volume_unuse(struct files *files, const struct files_handle *handle)
{
	struct files_volume *volume = files_open_volume(files, handle->volume);
	if (volume && front_volume_unuse(&volume->front, handle->writes))
		free(volume);
}

/* --- handles ----------------------------------------------------------------------- */

static unsigned number_of(const struct files *files, const struct files_handle *handle)
{
	return (unsigned)(handle - files->memory->handle);
}

static void client_add(struct files *files, const struct files_handle *handle)
{
	struct front_client_entry *entry = &files->client[number_of(files, handle)];
	entry->about = (struct front_client){
		.volume = handle->volume, .flags = handle->writes ? 0 : FRONT_CLIENT_READ_ONLY};
	snprintf(entry->about.who, sizeof(entry->about.who), "file opened by process %d (user %u)",
		handle->pid, handle->user);
	front_client_add(&files->clients, entry);
}

/*
 * What the kernel calls it. A number alone is used again: a RELEASE that is done again, of a file
 * that is closed already, must not close another one.
 */
static uint64_t name_of(const struct files *files, const struct files_handle *handle)
{
	return atomic_load(&handle->unique) * FILES_HANDLES + number_of(files, handle);
}

struct files_handle *files_open_handle(struct files *files, const struct fuse_file_info *info)
{
	if (!info)
		return NULL;
	struct files_handle *handle = &files->memory->handle[info->fh % FILES_HANDLES];
	bool known = atomic_load(&handle->unique) && name_of(files, handle) == info->fh &&
		     files_open_volume(files, handle->volume);
	return known ? handle : NULL;
}

static struct files_handle *handle_find(struct files *files, uint64_t unique)
{
	for (unsigned i = 0; i < FILES_HANDLES; i++)
		if (atomic_load(&files->memory->handle[i].unique) == unique)
			return &files->memory->handle[i];
	return NULL;
}

/* Nobody uses it any more, and its volume one less. */
static void handle_drop(struct files *files, struct files_handle *handle)
{
	front_client_remove(&files->clients, &files->client[number_of(files, handle)]);
	volume_unuse(files, handle);
	peer_count(files->peer, FILES_COUNT_CLOSES, 1);
	atomic_store(&handle->unique, 0);
}

/* --- open -------------------------------------------------------------------------- */

static void open_answer(
	struct files_request *request, const struct files_handle *handle, bool fixed)
{
	struct fuse_file_info info = {
		.fh = name_of(request->files, handle),
		.keep_cache = fixed,
		.noflush = 1
	};
	fuse_reply_open(request->req, &info);
	files_slot_free(request);
}

/* What is there when a file is opened to be overwritten must not show through holes of what comes:
   `cp` leaves those out. */
static void open_noted(struct files_request *request, struct files_handle *handle, bool fixed)
{
	crash_point("front_fuse.open.noted");
	request->handle = handle;
	if (request->truncates && handle->writes &&
		files_open_volume(request->files, handle->volume))
		files_data_empty(request);
	else
		open_answer(request, handle, fixed);
}

static void open_fill(struct files_request *request, struct call *call)
{
	call->flags = request->writes ? 0 : XSEG_F_READ_ONLY;
}

static void close_done(struct files_request *request, struct call *call)
{
	call_end(call);
	files_slot_fail(request, request->error);
}

static const struct files_question close_question = {XSEG_OP_CLOSE, 0, NULL, close_done};

static void open_done(struct files_request *request, struct call *call)
{
	struct files *files = request->files;
	const struct fuse_ctx *who = fuse_req_ctx(request->req);
	struct xseg_volume_info info;
	int error = front_volume_info(call, &info);
	call_end(call);
	request->undo = NULL; /* from here on we do that ourselves */
	struct files_handle *handle = error ? NULL : handle_find(files, 0);
	if (error) {
		files_slot_fail(request, error == -EPERM ? -EROFS : error);
		return;
	}
	if (handle) {
		handle->volume = info.id;
		handle->term = info.term;
		handle->writes = request->writes;
		handle->pid = who->pid;
		handle->user = who->uid;
	}
	if (!handle || !volume_use(files, handle, info.size)) {
		request->error = handle ? -ENOMEM : -ENFILE;
		files_slot_ask(request, &close_question);
		return;
	}
	atomic_store(&handle->unique, request->head->unique);
	peer_count(files->peer, FILES_COUNT_OPENS, 1);
	client_add(files, handle);
	open_noted(request, handle, (info.flags & XSEG_VOLUME_SNAPSHOT) != 0);
}

void files_open_emptied(struct files_request *request)
{
	if (!request->error) {
		open_answer(request, request->handle, false);
		return;
	}
	handle_drop(request->files, request->handle);
	files_slot_ask(request, &close_question);
}

static const struct files_question open_question = {XSEG_OP_OPEN, XSEG_PAGE, open_fill, open_done};

void files_open(fuse_req_t req, fuse_ino_t inode, struct fuse_file_info *info)
{
	struct files_request *request = files_slot_request(req, inode);
	struct files_handle *handle = handle_find(request->files, request->head->unique);
	request->truncates = info->flags & O_TRUNC;
	request->writes = (info->flags & O_ACCMODE) != O_RDONLY;
	request->undo = &close_question;
	if (handle) /* by our predecessor, who could not say so */
		open_noted(request, handle, false);
	else if (inode < FILES_INODES_FIXED)
		files_slot_fail(request, -EISDIR);
	else if (request->writes && request->files->options->read_only)
		files_slot_fail(request, -EROFS);
	else
		files_slot_ask(request, &open_question);
}

void files_release(fuse_req_t req, fuse_ino_t inode, struct fuse_file_info *info)
{
	struct files_request *request = files_slot_request(req, inode);
	struct files_handle *handle = files_open_handle(request->files, info);
	request->stays = true;
	if (!handle) {
		files_slot_fail(request, 0);
		return;
	}
	handle_drop(request->files, handle);
	crash_point("front_fuse.release.dropped");
	files_slot_ask(request, &close_question);
}

/* --- a predecessor's --------------------------------------------------------------- */

static void adopt_failed(struct files *files, struct files_handle *handle, int error)
{
	log_warning(FILES_ROOM, "%s: a file of volume %016llx cannot be used any more: %s",
		files->peer->name, (unsigned long long)handle->volume,
		error == -ESTALE ? "another host has had the volume meanwhile" : strerror(-error));
	atomic_store(&handle->unique, 0);
}

static void adopt_done(struct call *call)
{
	struct files *files = files_of(call->peer);
	struct files_handle *handle = call->context;
	struct xseg_volume_info info;
	int error = front_volume_info(call, &info);
	call_end(call);
	files->asked--;
	files->adopting--;
	files->again = true;
	if (!error && !volume_use(files, handle, info.size))
		error = -ENOMEM;
	if (error)
		adopt_failed(files, handle, error);
	else
		client_add(files, handle);
}

static bool adopt_try(struct peer *peer, void *context)
{
	struct files *files = files_of(peer);
	struct files_handle *handle = context;
	const struct front_open open = {
		.id = handle->volume, .term = handle->term, .writes = handle->writes};
	if (files->volumes.reopening || !front_volume_ask_open(peer, &open, handle, adopt_done))
		return false;
	files->asked++;
	return true;
}

void files_open_adopt(struct files *files)
{
	for (unsigned i = 0; i < FILES_HANDLES; i++) {
		struct files_handle *handle = &files->memory->handle[i];
		if (!atomic_load(&handle->unique))
			continue;
		files->adopting++;
		peer_retry(files->peer, adopt_try, handle);
	}
}

/* --- unmounted --------------------------------------------------------------------- */

static void dropped(struct call *call) { call_end(call); }

static bool drop_try(struct peer *peer, void *context)
{
	struct files *files = files_of(peer);
	struct files_handle *handle = context;
	/* what is in flight looks at its volume */
	if (files->inflight || files->volumes.reopening ||
		!front_volume_ask_close(peer, handle->volume, NULL, dropped))
		return false;
	handle_drop(files, handle);
	return true;
}

/* The kernel does not close them one by one when a connection is cut off. */
void files_open_drop_all(struct files *files)
{
	for (unsigned i = 0; i < FILES_HANDLES; i++) {
		struct files_handle *handle = &files->memory->handle[i];
		if (atomic_load(&handle->unique) && files_open_volume(files, handle->volume))
			peer_retry(files->peer, drop_try, handle);
	}
}
