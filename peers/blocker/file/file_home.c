/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which store a peer of this segment has served: a successor that finds another one, or an empty
 * folder where the store was mounted, must not serve zeros in place of what guests have written.
 *
 * The store has an identity, a random number in DIR/identity. The peer notes it, with the segment's
 * uuid, in RUN_DIR/SEGMENT/store.PEER; a clean stop removes the note.
 */
#include "peers/blocker/file/file_home.h"

#include <base/path.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

int file_home_path(const struct peer *peer, char path[PATH_LENGTH_MAX])
{
	char leaf[NAME_LENGTH_MAX + 8];
	snprintf(leaf, sizeof(leaf), "store.%s", peer->name);
	return path_run(path, peer_segment(peer)->name, leaf);
}

static void hex(char *out, const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		sprintf(out + 2 * i, "%02x", bytes[i]);
}

/* What the note begins with: it is about this segment and this folder. */
static void note_head(const struct peer *peer, const char *dir, char *out, size_t size)
{
	char uuid[33];
	hex(uuid, peer_segment(peer)->super->uuid, 16);
	snprintf(out, size, "%s %s\n", uuid, dir);
}

bool file_home_known(const struct peer *peer, const char *dir, char identity[FILE_IDENTITY])
{
	char path[PATH_LENGTH_MAX], text[8192] = "", head[4160];
	int fd = file_home_path(peer, path) ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t got = read(fd, text, sizeof(text) - 1);
	close(fd);
	note_head(peer, dir, head, sizeof(head));
	size_t length = strlen(head);
	if (got <= 0 || strncmp(text, head, length) || strlen(text + length) != FILE_IDENTITY - 1)
		return false;
	strcpy(identity, text + length);
	return true;
}

int file_home_note(const struct peer *peer, const char *dir, const char *identity)
{
	char path[PATH_LENGTH_MAX], next[PATH_LENGTH_MAX + 8], head[4160];
	int error = path_run(path, peer_segment(peer)->name, NULL);
	error = error ? error : path_make_dir(path);
	error = error ? error : file_home_path(peer, path);
	if (error)
		return error;
	snprintf(next, sizeof(next), "%s.new", path);
	FILE *out = fopen(next, "we");
	if (!out)
		return -errno;
	note_head(peer, dir, head, sizeof(head));
	fprintf(out, "%s%s", head, identity);
	if (fclose(out) || rename(next, path))
		error = -errno;
	return error;
}

int file_home_read(int root, char identity[FILE_IDENTITY])
{
	int fd = openat(root, "identity", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	ssize_t got = read(fd, identity, FILE_IDENTITY - 1);
	int error = got < 0 ? -errno : got != FILE_IDENTITY - 1 ? -EILSEQ : 0;
	close(fd);
	identity[FILE_IDENTITY - 1] = 0;
	return error;
}

int file_home_make(int root, char identity[FILE_IDENTITY])
{
	uint8_t bytes[(FILE_IDENTITY - 1) / 2];
	int error = file_home_read(root, identity);
	if (error != -ENOENT)
		return error;
	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return -EIO;
	hex(identity, bytes, sizeof(bytes));
	int fd = openat(root, "tmp/identity", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	ssize_t put = write(fd, identity, FILE_IDENTITY - 1);
	error = put < 0 ? -errno : put != FILE_IDENTITY - 1 ? -ENOSPC : 0;
	if (!error && fsync(fd))
		error = -errno;
	close(fd);
	if (!error && renameat(root, "tmp/identity", root, "identity"))
		error = -errno;
	return error ? error : fsync(root) ? -errno : 0;
}
