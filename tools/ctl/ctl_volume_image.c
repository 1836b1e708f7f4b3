/* SPDX-License-Identifier: Apache-2.0 */
/* Runs qemu-img and qemu-nbd, and speaks as much NBD as it takes to read and write an image. */
#include "tools/ctl/ctl_volume_image.h"

#include <base/must.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/report/program.h"

#define QEMU_LIMIT_NS (600ull * 1000000000u)
#define ZERO_AT_ONCE (64u << 20)

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

uint64_t ctl_volume_image_data(struct ctl_image *image, uint64_t at)
{
	for (; image->at < json_array_size(image->map); image->at++) {
		const json_t *part = json_array_get(image->map, image->at);
		uint64_t start = (uint64_t)json_integer_value(json_object_get(part, "start"));
		uint64_t length = (uint64_t)json_integer_value(json_object_get(part, "length"));
		if (start + length > at && !json_is_true(json_object_get(part, "zero")))
			return start > at ? start : at;
	}
	return image->size;
}

/* --- bytes ------------------------------------------------------------------------------ */

static int send_all(int fd, const void *data, size_t size)
{
	while (size) {
		ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data = (const char *)data + n;
		size -= (size_t)n;
	}
	return 0;
}

static int receive_all(int fd, void *data, size_t size)
{
	while (size) {
		ssize_t n = recv(fd, data, size, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ECONNRESET;
		data = (char *)data + n;
		size -= (size_t)n;
	}
	return 0;
}

/* --- NBD -------------------------------------------------------------------------------- */

#define NBD_MAGIC 0x4e42444d41474943ull
#define NBD_OPTION_MAGIC 0x49484156454f5054ull
#define NBD_REQUEST_MAGIC 0x25609513u
#define NBD_REPLY_MAGIC 0x67446698u
enum { NBD_READ, NBD_WRITE, NBD_DISCONNECT, NBD_FLUSH, NBD_WRITE_ZEROES = 6 };

struct __attribute__((packed)) nbd_greeting {
	uint64_t magic, option_magic;
	uint16_t flags;
};
struct __attribute__((packed)) nbd_option {
	uint32_t client_flags;
	uint64_t magic;
	uint32_t option, length;
};
struct __attribute__((packed)) nbd_export {
	uint64_t size;
	uint16_t flags;
};
struct __attribute__((packed)) nbd_request {
	uint32_t magic;
	uint16_t flags, type;
	uint64_t cookie, offset;
	uint32_t length;
};
struct __attribute__((packed)) nbd_reply {
	uint32_t magic, error;
	uint64_t cookie;
};

/* Fixed newstyle, no zeroes, the export of no name. */
static int nbd_greet(struct ctl_image *image)
{
	struct nbd_greeting greeting;
	struct nbd_export export;
	struct nbd_option option = {.client_flags = htobe32(3),
		.magic = htobe64(NBD_OPTION_MAGIC),
		.option = htobe32(1)};
	int rc = receive_all(image->fd, &greeting, sizeof(greeting));
	if (!rc && (be64toh(greeting.magic) != NBD_MAGIC ||
			   be64toh(greeting.option_magic) != NBD_OPTION_MAGIC ||
			   (be16toh(greeting.flags) & 3) != 3))
		rc = -EPROTO;
	if (!rc)
		rc = send_all(image->fd, &option, sizeof(option));
	if (!rc)
		rc = receive_all(image->fd, &export, sizeof(export));
	image->size = rc ? 0 : be64toh(export.size);
	return rc;
}

static int nbd_do(struct ctl_image *image, unsigned type, uint64_t offset, uint32_t length,
	const void *out, void *in)
{
	struct nbd_reply reply;
	struct nbd_request request = {.magic = htobe32(NBD_REQUEST_MAGIC),
		.type = htobe16((uint16_t)type),
		.offset = htobe64(offset),
		.length = htobe32(length)};
	int rc = send_all(image->fd, &request, sizeof(request));
	if (!rc && out)
		rc = send_all(image->fd, out, length);
	if (rc || type == NBD_DISCONNECT)
		return rc;
	rc = receive_all(image->fd, &reply, sizeof(reply));
	if (!rc && be32toh(reply.magic) != NBD_REPLY_MAGIC)
		rc = -EPROTO;
	if (!rc && reply.error) /* the same numbers as Linux's for all that can come */
		return be32toh(reply.error) < 4096 ? -(int)be32toh(reply.error) : -EIO;
	if (!rc && in)
		rc = receive_all(image->fd, in, length);
	return rc;
}

int ctl_volume_image_read(struct ctl_image *image, void *data, uint32_t length, uint64_t offset)
{
	return nbd_do(image, NBD_READ, offset, length, NULL, data);
}

int ctl_volume_image_write(
	struct ctl_image *image, const void *data, uint32_t length, uint64_t offset)
{
	return nbd_do(image, NBD_WRITE, offset, length, data, NULL);
}

int ctl_volume_image_zero(struct ctl_image *image, uint64_t length, uint64_t offset)
{
	int rc = 0;
	while (!rc && length) {
		uint32_t n = length < ZERO_AT_ONCE ? (uint32_t)length : ZERO_AT_ONCE;
		rc = nbd_do(image, NBD_WRITE_ZEROES, offset, n, NULL, NULL);
		offset += n;
		length -= n;
	}
	return rc;
}

int ctl_volume_image_flush(struct ctl_image *image)
{
	return nbd_do(image, NBD_FLUSH, 0, 0, NULL, NULL);
}

/* --- qemu-nbd --------------------------------------------------------------------------- */

/* A listening socket with one connection to it, and no name any more: nobody else gets in. */
static int sockets_open(int *listening, int *connected)
{
	char folder[] = "/tmp/skerry-image.XXXXXX";
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (!mkdtemp(folder))
		return -errno;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/nbd", folder);
	*listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	*connected = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const struct sockaddr *to = (const struct sockaddr *)&address;
	int rc = *listening < 0 || *connected < 0 || bind(*listening, to, sizeof(address)) ||
				 listen(*listening, 1) || connect(*connected, to, sizeof(address))
			 ? -errno
			 : 0;
	unlink(address.sun_path);
	rmdir(folder);
	return rc;
}

/* Sockets are handed over as systemd does it. */
static void nbd_child(char *const argv[], int listening, pid_t parent)
{
	char pid[16];
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent || dup2(listening, 3) < 0)
		_exit(127);
	if (listening == 3)
		fcntl(3, F_SETFD, 0);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "1", 1);
	setpgid(0, 0); /* the terminal's ^C is for us to handle */
	execv(argv[0], argv);
	_exit(127);
}

static int nbd_start(const char *path, const char *format, bool write, struct ctl_image *image)
{
	char program[PATH_MAX];
	char plain[PATH_MAX];
	const char *argv[] = {program, "--format", format,
		write ? "--cache=writeback" : "--read-only", "--", plain_path(path, plain), NULL};
	int listening = -1, rc = program_find("qemu-nbd", program);
	pid_t parent = getpid();
	if (!rc)
		rc = sockets_open(&listening, &image->fd);
	if (!rc)
		image->pid = fork();
	if (!rc && image->pid == 0)
		nbd_child((char *const *)(uintptr_t)argv, listening, parent);
	if (!rc && image->pid < 0)
		rc = -errno;
	if (listening >= 0)
		close(listening); /* it is qemu-nbd's alone: should that end, we notice */
	return rc ? rc : nbd_greet(image);
}

int ctl_volume_image_open(
	struct ctl *ctl, const char *path, const char *format, bool write, struct ctl_image *image)
{
	char plain[PATH_MAX];
	const char *argv[] = {
		NULL, "map", "--output=json", "-f", format, "--", plain_path(path, plain), NULL};
	*image = (struct ctl_image){.fd = -1};
	if (!write)
		image->map = qemu_json(ctl, path, "read", argv);
	if (!write && !image->map)
		return -(int)ctl->fault.code;
	int error = nbd_start(path, format, write, image);
	if (!error)
		return 0;
	ctl_volume_image_close(ctl, path, image);
	return qemu_fault(ctl, path, "served by qemu-nbd", error, NULL);
}

int ctl_volume_image_close(struct ctl *ctl, const char *path, struct ctl_image *image)
{
	int status = 0;
	json_decref(image->map);
	image->map = NULL;
	if (image->fd >= 0) {
		nbd_do(image, NBD_DISCONNECT, 0, 0, NULL, NULL);
		close(image->fd);
	}
	image->fd = -1;
	while (image->pid > 0 && waitpid(image->pid, &status, 0) < 0 && errno == EINTR)
		;
	image->pid = 0;
	return status ? fault_set(&ctl->fault, FAULT_FAILED, path, NULL,
				"qemu-nbd, which had '%s' open, has failed", path)
		      : 0;
}
