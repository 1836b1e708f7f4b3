/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of objects that have left the store that the mover stands before, a file each in a folder
 * of this host: DIR/VOLUME/OBJECT.EPOCH. What comes back is compared with them by digests, and only
 * what has changed is read. They are hints: whatever is in them, or is not, nothing depends on it.
 * Threads: workers, each with objects of its own. Blocking: the disk.
 */
#include <base/bytes.h>
#include <base/log.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "peers/mover/mover.h"

#define NAME 40u

static void name_of(const struct xseg_key *key, char folder[NAME], char file[NAME])
{
	snprintf(folder, NAME, "%016" PRIx64, key->volume);
	snprintf(file, NAME, "%016" PRIx64 "/%08" PRIx32 ".%08" PRIx32, key->volume, key->object,
		key->epoch);
}

int mover_keep_open(struct mover *mover, const char *dir, char *why, size_t why_size)
{
	mover->keep = -1;
	if (!dir)
		return 0;
	if (mkdir(dir, 0700) == 0 || errno == EEXIST)
		mover->keep = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (mover->keep >= 0)
		return 0;
	int error = -errno;
	snprintf(why, why_size, "keep: '%s' is no folder that can be used: %s", dir,
		strerror(-error));
	return error;
}

void mover_keep_close(struct mover *mover)
{
	if (mover->keep >= 0)
		close(mover->keep);
}

/* What is all zeros is a hole. */
static bool put(int fd, const char *bytes, uint32_t size)
{
	for (uint32_t at = 0; at < size; at += MOVER_PART) {
		uint32_t n = size - at < MOVER_PART ? size - at : MOVER_PART;
		if (!bytes_are_zero(bytes + at, n) &&
			pwrite(fd, bytes + at, n, (off_t)at) != (ssize_t)n)
			return false;
	}
	return ftruncate(fd, (off_t)size) == 0;
}

void mover_keep_put(
	struct mover *mover, const struct xseg_key *key, const char *bytes, uint32_t size)
{
	char folder[NAME], file[NAME];
	name_of(key, folder, file);
	(void)mkdirat(mover->keep, folder, 0700);
	int fd = openat(mover->keep, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	bool good = fd >= 0 && put(fd, bytes, size);
	if (!good && !atomic_exchange(&mover->keep_said, true))
		log_warning("mover", "%s: not all that leaves can be kept: %s", mover->peer->name,
			strerror(errno));
	if (fd >= 0)
		close(fd);
	if (!good)
		(void)unlinkat(mover->keep, file, 0);
}

bool mover_keep_get(
	const struct mover *mover, const struct xseg_key *key, char *bytes, uint32_t size)
{
	char folder[NAME], file[NAME];
	uint32_t got = 0;
	name_of(key, folder, file);
	int fd = mover->keep < 0 ? -1 : openat(mover->keep, file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	for (ssize_t n; got < size && (n = pread(fd, bytes + got, size - got, got)) > 0;)
		got += (uint32_t)n;
	close(fd);
	memset(bytes + got, 0, size - got);
	return true;
}

void mover_keep_drop(struct mover *mover, uint64_t volume)
{
	char folder[NAME], file[NAME];
	const struct dirent *entry;
	name_of(&(struct xseg_key){.volume = volume}, folder, file);
	int fd = mover->keep < 0 ? -1 : openat(mover->keep, folder, O_RDONLY | O_CLOEXEC);
	DIR *all = fd < 0 ? NULL : fdopendir(fd);
	if (!all)
		return;
	while ((entry = readdir(all)))
		(void)unlinkat(fd, entry->d_name, 0);
	closedir(all);
	(void)unlinkat(mover->keep, folder, AT_REMOVEDIR);
}
