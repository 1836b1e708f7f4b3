/* SPDX-License-Identifier: Apache-2.0 */
#include "peers/blocker/home.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

int home_path(const struct peer *peer, char path[PATH_LENGTH_MAX])
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

/* What the note begins with: it is about this segment and this place. */
static void note_head(const struct peer *peer, const char *place, char *out, size_t size)
{
	char uuid[33];
	hex(uuid, peer_segment(peer)->super->uuid, 16);
	snprintf(out, size, "%s %s\n", uuid, place);
}

bool home_known(const struct peer *peer, const char *place, char identity[HOME_IDENTITY])
{
	char path[PATH_LENGTH_MAX], text[8192] = "", head[4160];
	int fd = home_path(peer, path) ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t got = read(fd, text, sizeof(text) - 1);
	close(fd);
	note_head(peer, place, head, sizeof(head));
	size_t length = strlen(head);
	if (got <= 0 || strncmp(text, head, length) || strlen(text + length) != HOME_IDENTITY - 1)
		return false;
	strcpy(identity, text + length);
	return true;
}

int home_note(const struct peer *peer, const char *place, const char *identity)
{
	char path[PATH_LENGTH_MAX], next[PATH_LENGTH_MAX + 8], head[4160];
	int error = path_run(path, peer_segment(peer)->name, NULL);
	error = error ? error : path_make_dir(path);
	error = error ? error : home_path(peer, path);
	if (error)
		return error;
	snprintf(next, sizeof(next), "%s.new", path);
	FILE *out = fopen(next, "we");
	if (!out)
		return -errno;
	note_head(peer, place, head, sizeof(head));
	fprintf(out, "%s%s", head, identity);
	if (fclose(out) || rename(next, path))
		error = -errno;
	return error;
}

int home_random(char identity[HOME_IDENTITY])
{
	uint8_t bytes[(HOME_IDENTITY - 1) / 2];
	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return -EIO;
	hex(identity, bytes, sizeof(bytes));
	return 0;
}

int home_check(const struct peer *peer, const char *place, const char *identity,
	char path[PATH_LENGTH_MAX], char *why, size_t why_size)
{
	char known[HOME_IDENTITY];
	int error = home_path(peer, path);
	if (error)
		return error;
	if (!home_known(peer, place, known))
		return home_note(peer, place, identity);
	if (strcmp(known, identity) == 0)
		return 0;
	snprintf(why, why_size,
		"'%s' is not the store that was served here before, or has lost its data; bring "
		"that back, or remove '%s' to begin anew",
		place, path);
	return -ENODATA;
}

uint64_t home_writer(const struct peer *peer)
{
	const struct xseg_superblock *super = peer_segment(peer)->super;
	uint64_t segment = XXH3_64bits(super->uuid, sizeof(super->uuid));
	uint64_t own = XXH3_64bits_withSeed(peer->name, strlen(peer->name), segment);
	return (own | 1) & ~(1ull << 63);
}
