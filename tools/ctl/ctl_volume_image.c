/* SPDX-License-Identifier: Apache-2.0 */
/* Runs qemu-img, and qemu-nbd behind libnbd: reads and writes are several at a time. */
#include "tools/ctl/ctl_volume_image.h"

#include <errno.h>
#include <libnbd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/report/program.h"

#define QEMU_LIMIT_NS (600ull * 1000000000u)
#define ZERO_AT_ONCE (64u << 20)
#define STATUS_AT_ONCE (1u << 30) /* bytes asked about */

/* --- qemu-img --------------------------------------------------------------------------- */

static int qemu_fault(struct ctl *ctl, const char *path, const char *what, int error,
	const struct program_result *result)
{
	char line[256] = "";
	if (error == -ENOENT)
		return fault_set(&ctl->fault, FAULT_FAILED, path,
			"install it (Debian: qemu-utils), or convert the image to raw",
			"'%s' cannot be %s: that takes qemu-img and qemu-nbd", path, what);
	if (result)
		program_last_line(result->err, line, sizeof(line));
	return fault_set(&ctl->fault, FAULT_FAILED, path, NULL, "'%s' cannot be %s: %s", path, what,
		error	  ? strerror(-error)
		: line[0] ? line
			  : "qemu-img has failed");
}

/* argv[0] is put in. *result is to be freed on 0. */
static int qemu_img(struct ctl *ctl, const char *path, const char *what, const char **argv,
	struct program_result *result)
{
	char program[PATH_MAX];
	int error = program_find("qemu-img", program);
	argv[0] = program;
	if (!error)
		error = program_run((char *const *)(uintptr_t)argv, QEMU_LIMIT_NS, result);
	else
		return qemu_fault(ctl, path, what, error, NULL);
	int rc = error || result->status ? qemu_fault(ctl, path, what, error, result) : 0;
	if (rc)
		program_result_free(result);
	return rc;
}

static json_t *qemu_json(struct ctl *ctl, const char *path, const char *what, const char **argv)
{
	struct program_result result;
	if (qemu_img(ctl, path, what, argv, &result))
		return NULL;
	json_t *out = json_loads(result.out, 0, NULL);
	program_result_free(&result);
	if (!out)
		qemu_fault(ctl, path, what, -EPROTO, NULL);
	return out;
}

/* A name with a colon is no protocol of qemu's. */
static const char *plain_path(const char *path, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%s%s", path[0] == '/' ? "" : "./", path);
	return out;
}

/* Another file that qemu would read for this one; NULL: there is none. */
static const char *other_file(const json_t *info, const char *path)
{
	const json_t *data = json_object_get(json_object_get(info, "format-specific"), "data");
	const json_t *extents = json_object_get(data, "extents"), *extent;
	const char *other = json_string_value(json_object_get(info, "backing-filename"));
	size_t i;
	if (!other)
		other = json_string_value(json_object_get(data, "data-file"));
	json_array_foreach (extents, i, extent) {
		const char *name = json_string_value(json_object_get(extent, "filename"));
		if (!other && name && strcmp(name, path))
			other = name;
	}
	return other;
}

static int image_alone(struct ctl *ctl, const char *path, const json_t *info)
{
	char plain[PATH_MAX];
	const char *other = other_file(info, plain_path(path, plain));
	if (!other)
		return 0;
	return fault_set(&ctl->fault, FAULT_FAILED, path,
		"if you trust whoever made the image, and that file is meant, say --allow-backing",
		"'%s' wants data of another file, '%s'", path, other);
}

int ctl_volume_image_look(
	struct ctl *ctl, const char *path, const char *format, bool backing, uint64_t *size)
{
	char plain[PATH_MAX];
	const char *argv[] = {
		NULL, "info", "--output=json", "-f", format, "--", plain_path(path, plain), NULL};
	json_t *info = qemu_json(ctl, path, "looked at", argv);
	if (!info)
		return -(int)ctl->fault.code;
	*size = (uint64_t)json_integer_value(json_object_get(info, "virtual-size"));
	int rc = backing ? 0 : image_alone(ctl, path, info);
	json_decref(info);
	return rc;
}

int ctl_volume_image_make(struct ctl *ctl, const char *path, uint64_t size, bool based)
{
	char text[24];
	struct program_result result;
	/* a base that is never read, so that zeros are written as such; see ctl_volume_image_base()
	   */
	const char *base = "json:{\"driver\": \"null-co\", \"read-zeroes\": true}";
	const char *alone[] = {NULL, "create", "-q", "-f", "qcow2", "--", path, text, NULL};
	const char *above[] = {NULL, "create", "-q", "-f", "qcow2", "-u", "-b", base, "-F",
		"null-co", "--", path, text, NULL};
	snprintf(text, sizeof(text), "%llu", (unsigned long long)size);
	int rc = qemu_img(ctl, path, "made", based ? above : alone, &result);
	if (!rc)
		program_result_free(&result);
	return rc;
}

int ctl_volume_image_base(struct ctl *ctl, const char *path, const char *base)
{
	struct program_result result;
	const char *argv[] = {NULL, "rebase", "-q", "-u", "-f", "qcow2", "-F", "qcow2", "-b", base,
		"--", path, NULL};
	int rc = qemu_img(ctl, path, "given its base", argv, &result);
	if (!rc)
		program_result_free(&result);
	return rc;
}

/* --- where data lie --------------------------------------------------------------------- */

static int image_error(void) { return nbd_get_errno() ? -nbd_get_errno() : -EIO; }

static int take_extents(void *context, const char *name, uint64_t offset, uint32_t *entries,
	size_t count, int *error)
{
	struct image_map *map = context;
	if (strcmp(name, LIBNBD_CONTEXT_BASE_ALLOCATION) || *error)
		return 0;
	map->count = 0;
	map->from = map->to = offset;
	for (size_t i = 0; i + 1 < count && map->count < IMAGE_EXTENTS; i += 2) {
		map->to += entries[i];
		map->extent[map->count++] = (struct image_extent){
			.end = map->to, .data = !(entries[i + 1] & LIBNBD_STATE_ZERO)};
	}
	return 0;
}

/* Without an answer all of it is data: what is read too much is zeros. */
static void ask_extents(struct ctl_image *image, struct image_map *map, uint64_t at)
{
	uint64_t left = image->size - at;
	uint64_t count = left < STATUS_AT_ONCE ? left : STATUS_AT_ONCE;
	map->count = 0;
	if (nbd_can_meta_context(image->nbd, LIBNBD_CONTEXT_BASE_ALLOCATION) == 1)
		nbd_block_status(image->nbd, count, at,
			(nbd_extent_callback){.callback = take_extents, .user_data = map}, 0);
	if (map->count > 0 && map->to > at)
		return;
	map->from = at;
	map->to = at + count;
	map->count = 1;
	map->extent[0] = (struct image_extent){.end = map->to, .data = true};
}

static uint64_t next_data(struct ctl_image *image, struct image_map *map, uint64_t at)
{
	while (at < image->size) {
		if (map->count == 0 || at < map->from || at >= map->to)
			ask_extents(image, map, at);
		for (unsigned i = 0; i < map->count; i++) {
			if (at >= map->extent[i].end)
				continue;
			if (map->extent[i].data)
				return at;
			at = map->extent[i].end;
		}
	}
	return image->size;
}

uint64_t ctl_volume_image_data(struct ctl_image *image, uint64_t at)
{
	return next_data(image, &image->asked, at);
}

/* --- reading, ahead of who asks ------------------------------------------------------------ */

static void ahead_drop(struct ctl_image *image)
{
	struct image_read *read = &image->ahead[image->ahead_first];
	while (!nbd_aio_command_completed(image->nbd, read->cookie))
		if (nbd_poll(image->nbd, -1) < 0)
			break;
	image->ahead_first = (image->ahead_first + 1) % IMAGE_AHEAD;
	image->ahead_count--;
}

/* As ctl_import_source_read() will ask: up to the next boundary of a chunk. */
static void ahead_fill(struct ctl_image *image)
{
	while (image->chunk && image->ahead_count < IMAGE_AHEAD) {
		uint64_t at = next_data(image, &image->looked, image->ahead_at);
		uint64_t left = image->size - at;
		uint32_t length = image->chunk - (uint32_t)(at % image->chunk);
		unsigned place = (image->ahead_first + image->ahead_count) % IMAGE_AHEAD;
		struct image_read *read = &image->ahead[place];
		length = left < length ? (uint32_t)left : length;
		if (!read->data)
			read->data = malloc(image->chunk);
		if (length == 0 || !read->data)
			return;
		int64_t cookie =
			nbd_aio_pread(image->nbd, read->data, length, at, NBD_NULL_COMPLETION, 0);
		if (cookie < 0)
			return;
		read->cookie = (uint64_t)cookie;
		read->offset = at;
		read->length = length;
		image->ahead_at = at + length;
		image->ahead_count++;
	}
}

/* 1: it was read ahead; 0: it was not; or -errno. */
static int ahead_take(struct ctl_image *image, void *data, uint32_t length, uint64_t offset)
{
	while (image->ahead_count && image->ahead[image->ahead_first].offset < offset)
		ahead_drop(image);
	struct image_read *read = &image->ahead[image->ahead_first];
	if (!image->ahead_count || read->offset != offset || read->length != length)
		return 0;
	int done;
	while ((done = nbd_aio_command_completed(image->nbd, read->cookie)) == 0)
		if (nbd_poll(image->nbd, -1) < 0)
			return image_error();
	int error = done < 0 ? image_error() : 0;
	if (!error)
		memcpy(data, read->data, length);
	image->ahead_first = (image->ahead_first + 1) % IMAGE_AHEAD;
	image->ahead_count--;
	return error ? error : 1;
}

int ctl_volume_image_read(struct ctl_image *image, void *data, uint32_t length, uint64_t offset)
{
	int rc = ahead_take(image, data, length, offset);
	if (rc < 0)
		return rc;
	if (rc == 0 && nbd_pread(image->nbd, data, length, offset, 0) < 0)
		return image_error();
	if (image->ahead_count == 0 && image->ahead_at < offset + length)
		image->ahead_at = offset + length;
	ahead_fill(image);
	return 0;
}

/* --- writing ---------------------------------------------------------------------------- */

struct image_write {
	struct ctl_image *image;
	uint8_t data[];
};

static int written(void *context, int *error)
{
	struct image_write *write = context;
	if (*error && !write->image->error)
		write->image->error = -*error;
	write->image->writing--;
	free(write);
	return 1; /* nobody asks for it any more */
}

/* Until no more than so many are under way; the first error of all so far. */
static int wait_written(struct ctl_image *image, unsigned most)
{
	while (image->writing > most && !image->error)
		if (nbd_poll(image->nbd, -1) < 0)
			image->error = image_error();
	return image->error;
}

int ctl_volume_image_write(
	struct ctl_image *image, const void *data, uint32_t length, uint64_t offset)
{
	int rc = wait_written(image, IMAGE_AHEAD - 1);
	struct image_write *write = rc ? NULL : malloc(sizeof(*write) + length);
	if (!write)
		return rc ? rc : -ENOMEM;
	write->image = image;
	memcpy(write->data, data, length);
	image->writing++;
	if (nbd_aio_pwrite(image->nbd, write->data, length, offset,
		    (nbd_completion_callback){.callback = written, .user_data = write}, 0) >= 0)
		return 0;
	image->writing--;
	free(write);
	return image_error();
}

int ctl_volume_image_zero(struct ctl_image *image, uint64_t length, uint64_t offset)
{
	int rc = image->error;
	while (!rc && length) {
		uint32_t n = length < ZERO_AT_ONCE ? (uint32_t)length : ZERO_AT_ONCE;
		rc = nbd_zero(image->nbd, n, offset, 0) < 0 ? image_error() : 0;
		offset += n;
		length -= n;
	}
	return rc;
}

int ctl_volume_image_flush(struct ctl_image *image)
{
	int rc = wait_written(image, 0);
	return rc ? rc : nbd_flush(image->nbd, 0) < 0 ? image_error() : 0;
}

/* --- qemu-nbd --------------------------------------------------------------------------- */

/* The terminal's ^C is for us to handle: what is blocked now stays so in the child. */
static int connect_child(struct nbd_handle *nbd, char **argv)
{
	sigset_t terminal, before;
	sigemptyset(&terminal);
	sigaddset(&terminal, SIGINT);
	sigaddset(&terminal, SIGQUIT);
	pthread_sigmask(SIG_BLOCK, &terminal, &before);
	int rc = nbd_connect_systemd_socket_activation(nbd, argv) < 0 ? image_error() : 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static int nbd_start(const char *path, const char *format, bool write, struct ctl_image *image)
{
	char program[PATH_MAX];
	char plain[PATH_MAX];
	const char *argv[] = {program, "--format", format,
		write ? "--cache=writeback" : "--read-only", "--", plain_path(path, plain), NULL};
	int rc = program_find("qemu-nbd", program);
	if (rc)
		return rc;
	image->nbd = nbd_create();
	if (!image->nbd)
		return -ENOMEM;
	if (nbd_add_meta_context(image->nbd, LIBNBD_CONTEXT_BASE_ALLOCATION) < 0)
		return image_error();
	rc = connect_child(image->nbd, (char **)(uintptr_t)argv);
	int64_t size = rc ? 0 : nbd_get_size(image->nbd);
	if (size < 0)
		return image_error();
	image->size = (uint64_t)size;
	return rc;
}

int ctl_volume_image_open(
	struct ctl *ctl, const char *path, const char *format, bool write, struct ctl_image *image)
{
	*image = (struct ctl_image){0};
	int error = nbd_start(path, format, write, image);
	if (!error)
		return 0;
	ctl_volume_image_close(image);
	return qemu_fault(ctl, path, "served by qemu-nbd", error, NULL);
}

void ctl_volume_image_close(struct ctl_image *image)
{
	if (image->nbd) {
		nbd_shutdown(image->nbd, 0);
		nbd_close(image->nbd); /* waits for qemu-nbd */
	}
	for (unsigned i = 0; i < IMAGE_AHEAD; i++)
		free(image->ahead[i].data);
	*image = (struct ctl_image){0};
}
