/* SPDX-License-Identifier: Apache-2.0 */
/* Names and attributes: a folder of volumes, and in it one of snapshots. */
#include <base/name.h>
#include <errno.h>
#include <peer/map.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peers/front/files.h"

#define LIST_BYTES (4u * XSEG_PAGE)

static struct files_request *tree_request(fuse_req_t req, fuse_ino_t inode)
{
	struct files_request *request = files_slot_request(req, inode);
	peer_count(request->files->peer, FILES_COUNT_OTHERS, 1);
	return request;
}

bool files_tree_offers(const struct files *files, const char *name)
{
	const struct peer_list *volumes = &files->options->volumes;
	size_t part = strcspn(name, "@");
	for (size_t i = 0; i < volumes->count; i++)
		if (!strcmp(volumes->item[i], name) ||
			(!strncmp(volumes->item[i], name, part) && !volumes->item[i][part]))
			return true;
	return !volumes->count;
}

static bool is_shown(
	const struct files *files, const struct xseg_volume_info *info, fuse_ino_t folder)
{
	bool snapshot = info->flags & XSEG_VOLUME_SNAPSHOT;
	return info->state == XSEG_VOLUME_READY && name_check_volume(info->name) &&
	       !strchr(info->name, '/') && strcmp(info->name, FILES_SNAPSHOTS) != 0 &&
	       strcmp(info->name, ".") != 0 && strcmp(info->name, "..") != 0 &&
	       info->id >= FILES_INODES_FIXED && files_tree_offers(files, info->name) &&
	       snapshot == (folder == FILES_INODE_SNAPSHOTS);
}

/* --- attributes -------------------------------------------------------------------- */

static void attr_of(const struct files *files, const struct xseg_volume_info *info, struct stat *st)
{
	uint64_t used = info->objects * info->object_size;
	bool fixed
	= files->options->read_only || info->flags & (XSEG_VOLUME_SNAPSHOT | XSEG_VOLUME_READ_ONLY);
	*st = (struct stat)
	{
		.st_ino = info->id,
		.st_mode = S_IFREG | (files->rights.mode & (fixed ? 0444u : 0777u)), .st_nlink = 1,
		.st_uid = geteuid(),
		.st_gid = files->rights.group == FRONT_NO_GROUP ? getegid() : files->rights.group,
		.st_size = (off_t)info->size, .st_blksize = XSEG_PAGE,
		.st_blocks = (blkcnt_t)((used < info->size ? used : info->size) / 512)
	};
	st->st_mtim.tv_sec = (time_t)(info->created_ns / 1000000000u);
	st->st_mtim.tv_nsec = (long)(info->created_ns % 1000000000u);
	st->st_atim = st->st_ctim = st->st_mtim;
}

/* Whoever may read files may go into the folders. */
static void attr_of_folder(const struct files *files, fuse_ino_t inode, struct stat *st)
{
	mode_t reads = files->rights.mode & 0444u;
	*st = (struct stat){.st_ino = inode,
		.st_mode = S_IFDIR | reads | reads >> 2,
		.st_nlink = 2,
		.st_uid = geteuid(),
		.st_gid = files->rights.group == FRONT_NO_GROUP ? getegid() : files->rights.group,
		.st_blksize = XSEG_PAGE};
}

static void note_size(struct files *files, const struct xseg_volume_info *info)
{
	struct files_volume *volume = files_open_volume(files, info->id);
	if (volume)
		volume->size = info->size;
}

static void getattr_done(struct files_request *request, struct call *call)
{
	struct xseg_volume_info info;
	struct stat st;
	if (!files_slot_info(request, call, &info))
		return;
	note_size(request->files, &info);
	attr_of(request->files, &info, &st);
	fuse_reply_attr(request->req, &st, FILES_FRESH_SECONDS);
	files_slot_free(request);
}

static const struct files_question getattr_question = {XSEG_OP_INFO, XSEG_PAGE, NULL, getattr_done};

void files_tree_getattr(fuse_req_t req, fuse_ino_t inode, struct fuse_file_info *info)
{
	struct files_request *request = tree_request(req, inode);
	struct stat st;
	(void)info;
	if (inode >= FILES_INODES_FIXED) {
		files_slot_ask(request, &getattr_question);
		return;
	}
	attr_of_folder(request->files, inode, &st);
	fuse_reply_attr(req, &st, FILES_FRESH_SECONDS);
	files_slot_free(request);
}

/* --- look-up ----------------------------------------------------------------------- */

static void lookup_answer(struct files_request *request, const struct stat *st)
{
	struct fuse_entry_param entry = {.ino = st->st_ino,
		.attr = *st,
		.attr_timeout = FILES_FRESH_SECONDS,
		.entry_timeout = FILES_FRESH_SECONDS};
	fuse_reply_entry(request->req, &entry);
	files_slot_free(request);
}

static void lookup_fill(struct files_request *request, struct call *call)
{
	call->key.volume = 0;
	call->length = (uint32_t)strlen(request->name);
	call_put_bytes(call, XSEG_NAME_AT, request->name, call->length + 1);
}

static void lookup_done(struct files_request *request, struct call *call)
{
	struct xseg_volume_info info;
	struct stat st;
	if (!files_slot_info(request, call, &info))
		return;
	if (!is_shown(request->files, &info, request->inode)) {
		files_slot_fail(request, -ENOENT);
		return;
	}
	note_size(request->files, &info);
	attr_of(request->files, &info, &st);
	lookup_answer(request, &st);
}

static const struct files_question lookup_question = {
	XSEG_OP_INFO, XSEG_PAGE, lookup_fill, lookup_done};

void files_tree_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct files_request *request = tree_request(req, parent);
	struct stat st;
	if (parent == FUSE_ROOT_ID && !strcmp(name, FILES_SNAPSHOTS)) {
		attr_of_folder(request->files, FILES_INODE_SNAPSHOTS, &st);
		lookup_answer(request, &st);
	} else if (!name_check_volume(name) || !files_tree_offers(request->files, name)) {
		files_slot_fail(request, -ENOENT);
	} else {
		snprintf(request->name, sizeof(request->name), "%s", name);
		files_slot_ask(request, &lookup_question);
	}
}

/* --- lists ------------------------------------------------------------------------- */

static const struct files_question list_question;

static void list_end(struct files_request *request)
{
	fuse_reply_buf(request->req, request->listing, request->listing_size);
	free(request->listing);
	files_slot_free(request);
}

/* False: it is full. The entry has this number; the next list begins behind it. */
static bool list_add(
	struct files_request *request, const char *name, const struct stat *st, uint64_t number)
{
	size_t room = request->listing_room - request->listing_size;
	size_t size = fuse_add_direntry(request->req, request->listing + request->listing_size,
		room, name, st, (off_t)number + 1);
	if (size > room)
		return false;
	request->listing_size += size;
	return true;
}

/* What comes before volumes. */
static bool list_fixed(struct files_request *request, uint64_t from)
{
	static const char *const names[] = {".", "..", FILES_SNAPSHOTS};
	bool root = request->inode == FUSE_ROOT_ID;
	for (uint64_t i = from; i < FILES_INODES_FIXED; i++) {
		const struct stat st = {.st_ino = i == 2 ? FILES_INODE_SNAPSHOTS : FUSE_ROOT_ID,
			.st_mode = S_IFDIR};
		if ((i < 2 || root) && !list_add(request, names[i], &st, i))
			return false;
	}
	return true;
}

static void list_fill(struct files_request *request, struct call *call)
{
	struct files_bookmark *bookmark = &request->files->bookmark;
	*bookmark = (struct files_bookmark){request->inode, request->number, request->cursor};
	call->key.volume = 0;
	call->length = LIST_BYTES;
	call->arg0 = request->cursor;
}

/* request->size: where the kernel's list goes on; volumes before it are only counted. */
static bool list_take(struct files_request *request, const struct call *call)
{
	struct xseg_volume_info info;
	uint32_t size = call->answer_length < LIST_BYTES ? call->answer_length : LIST_BYTES;
	for (uint32_t at = 0; at + sizeof(info) <= size; at += sizeof(info)) {
		call_get_bytes(call, at, &info, sizeof(info));
		info.name[VOLUME_NAME_LENGTH_MAX] = 0;
		if (!is_shown(request->files, &info, request->inode))
			continue;
		const struct stat st = {.st_ino = info.id, .st_mode = S_IFREG};
		if (request->number >= request->size &&
			!list_add(request, info.name, &st, request->number))
			return false;
		request->number++;
	}
	return true;
}

static void list_done(struct files_request *request, struct call *call)
{
	int error = call->result;
	bool more = !error && list_take(request, call);
	request->cursor = call->value;
	call_end(call);
	if (error && !request->listing_size) {
		free(request->listing);
		files_slot_fail(request, error);
	} else if (more && request->cursor) {
		files_slot_ask(request, &list_question);
	} else {
		list_end(request);
	}
}

static const struct files_question list_question = {XSEG_OP_LIST, LIST_BYTES, list_fill, list_done};

void files_tree_readdir(
	fuse_req_t req, fuse_ino_t inode, size_t size, off_t offset, struct fuse_file_info *info)
{
	struct files_request *request = tree_request(req, inode);
	const struct files_bookmark *bookmark = &request->files->bookmark;
	(void)info;
	request->listing = malloc(size);
	request->listing_room = size;
	request->size = (uint64_t)offset;
	request->number = FILES_INODES_FIXED;
	if (bookmark->inode == inode && bookmark->number && bookmark->number <= request->size) {
		request->number = bookmark->number;
		request->cursor = bookmark->cursor;
	}
	if (!request->listing)
		files_slot_fail(request, -ENOMEM);
	else if (!list_fixed(request, request->size))
		list_end(request);
	else
		files_slot_ask(request, &list_question);
}

/* --- another size ------------------------------------------------------------------ */

static void resize_fill(struct files_request *request, struct call *call)
{
	const struct map_ask ask = {.size = request->size};
	call->arg0 = MAP_RESIZE;
	call->length = MAP_ANSWER_AT + (uint32_t)sizeof(struct map_head_info);
	call_put_bytes(call, 0, &ask, sizeof(ask));
}

static void resize_done(struct files_request *request, struct call *call)
{
	int error = call->result;
	call_end(call);
	if (error)
		files_slot_fail(request, error);
	else
		files_slot_ask(request, &getattr_question);
}

static const struct files_question resize_question = {
	XSEG_OP_CONTROL, MAP_ANSWER_AT + sizeof(struct map_head_info), resize_fill, resize_done};

static int may_resize(const struct files *files, const struct xseg_volume_info *info, uint64_t size)
{
	if (info->flags & (XSEG_VOLUME_SNAPSHOT | XSEG_VOLUME_READ_ONLY | XSEG_VOLUME_FIXED) ||
		files->options->read_only)
		return -EROFS;
	if (size % XSEG_SECTOR || !size)
		return -EINVAL;
	return size < info->size && !files->options->allow_shrink ? -EPERM : 0;
}

static void sized_done(struct files_request *request, struct call *call)
{
	struct xseg_volume_info info;
	struct stat st;
	if (!files_slot_info(request, call, &info))
		return;
	int error =
		info.size == request->size ? 0 : may_resize(request->files, &info, request->size);
	if (error) {
		files_slot_fail(request, error);
	} else if (info.size != request->size) {
		files_slot_ask(request, &resize_question);
	} else {
		attr_of(request->files, &info, &st);
		fuse_reply_attr(request->req, &st, FILES_FRESH_SECONDS);
		files_slot_free(request);
	}
}

static const struct files_question sized_question = {XSEG_OP_INFO, XSEG_PAGE, NULL, sized_done};

void files_tree_setattr(
	fuse_req_t req, fuse_ino_t inode, struct stat *to, int which, struct fuse_file_info *info)
{
	struct files_request *request = tree_request(req, inode);
	(void)info;
	request->size = (uint64_t)to->st_size;
	request->stays = true;
	if (inode < FILES_INODES_FIXED || !(which & FUSE_SET_ATTR_SIZE) ||
		which & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
		files_slot_fail(request, -EOPNOTSUPP);
	else
		files_slot_ask(request, &sized_question);
}

/* --- volumes come and go elsewhere ------------------------------------------------- */

static void refuse(fuse_req_t req, fuse_ino_t inode)
{
	files_slot_fail(tree_request(req, inode), -EPERM);
}

void files_tree_mknod(
	fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device)
{
	(void)name, (void)mode, (void)device;
	refuse(req, parent);
}

void files_tree_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	(void)name, (void)mode;
	refuse(req, parent);
}

void files_tree_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)name;
	refuse(req, parent);
}

void files_tree_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t to,
	const char *to_name, unsigned flags)
{
	(void)name, (void)to, (void)to_name, (void)flags;
	refuse(req, parent);
}

void files_tree_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	(void)target, (void)name;
	refuse(req, parent);
}

void files_tree_link(fuse_req_t req, fuse_ino_t inode, fuse_ino_t parent, const char *name)
{
	(void)inode, (void)name;
	refuse(req, parent);
}

/* --- extended attributes ----------------------------------------------------------- */

static const char *const xattr_names[] = {
	"user.skerry.id", "user.skerry.parent", "user.skerry.object-size"};

static void xattr_text(const struct xseg_volume_info *info, unsigned index, char text[32])
{
	if (index == 2)
		snprintf(text, 32, "%u", info->object_size);
	else
		snprintf(
			text, 32, "%016llx", (unsigned long long)(index ? info->parent : info->id));
}

/* size 0: how much room it needs. */
static void xattr_answer(struct files_request *request, const char *bytes, size_t length)
{
	if (!request->size)
		fuse_reply_xattr(request->req, length);
	else if (length > request->size)
		fuse_reply_err(request->req, ERANGE);
	else
		fuse_reply_buf(request->req, bytes, length);
	files_slot_free(request);
}

static void xattr_done(struct files_request *request, struct call *call)
{
	struct xseg_volume_info info;
	char text[32];
	if (!files_slot_info(request, call, &info))
		return;
	xattr_text(&info, (unsigned)request->number, text);
	xattr_answer(request, text, strlen(text));
}

static const struct files_question xattr_question = {XSEG_OP_INFO, XSEG_PAGE, NULL, xattr_done};

void files_tree_getxattr(fuse_req_t req, fuse_ino_t inode, const char *name, size_t size)
{
	struct files_request *request = tree_request(req, inode);
	unsigned index = 0;
	request->size = size;
	while (index < countof(xattr_names) && strcmp(xattr_names[index], name) != 0)
		index++;
	request->number = index;
	if (index == countof(xattr_names) || inode < FILES_INODES_FIXED)
		files_slot_fail(request, -ENODATA);
	else
		files_slot_ask(request, &xattr_question);
}

void files_tree_listxattr(fuse_req_t req, fuse_ino_t inode, size_t size)
{
	struct files_request *request = tree_request(req, inode);
	char list[128];
	size_t length = 0;
	for (unsigned i = 0; i < countof(xattr_names) && inode >= FILES_INODES_FIXED; i++) {
		strcpy(list + length, xattr_names[i]);
		length += strlen(xattr_names[i]) + 1;
	}
	request->size = size;
	xattr_answer(request, list, length);
}

void files_tree_statfs(fuse_req_t req, fuse_ino_t inode)
{
	struct files_request *request = tree_request(req, inode);
	const struct statvfs st = {
		.f_bsize = XSEG_PAGE, .f_frsize = XSEG_PAGE, .f_namemax = VOLUME_NAME_LENGTH_MAX};
	fuse_reply_statfs(req, &st);
	files_slot_free(request);
}
