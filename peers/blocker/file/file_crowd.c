/* SPDX-License-Identifier: Apache-2.0 */
/* Who changes data of a folder at this moment, in memory that all who serve it have mapped. */
#include "peers/blocker/file/file_crowd.h"

#include <base/path.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "peers/blocker/file/file_disk.h"

/* By the folder's inode: a copy of a store is another one. */
static int path_of(const struct file_store *store, char path[PATH_LENGTH_MAX])
{
	struct stat s;
	if (fstat(store->root, &s))
		return -errno;
	int length = snprintf(path, PATH_LENGTH_MAX, "%s/xfence.%llx-%llx", path_shm_dir(),
		(unsigned long long)s.st_dev, (unsigned long long)s.st_ino);
	return length < PATH_LENGTH_MAX ? 0 : -ENAMETOOLONG;
}

static int map(struct file_crowd *crowd, int fd)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	crowd->file = mmap(NULL, sizeof(*crowd->file), PROT_READ | PROT_WRITE, flags, fd, 0);
	if (crowd->file != MAP_FAILED)
		return 0;
	crowd->file = NULL;
	return -errno;
}

/* Whoever had a lock of the folder may have been killed with it. */
static int make(struct file_store *store, const char *path, uint8_t id[CROWD_ID])
{
	if (getrandom(id, CROWD_ID, 0) != (ssize_t)CROWD_ID)
		return -EIO;
	unlink(path);
	int fd = path_open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	int error = -posix_fallocate(fd, 0, sizeof(*store->crowd.file));
	error = error ? error : map(&store->crowd, fd);
	close(fd);
	if (error) {
		unlink(path);
		return error;
	}
	memcpy(store->crowd.file->id, id, CROWD_ID);
	for (unsigned i = 0; i < FILE_LOCKS; i++)
		atomic_store(&store->crowd.file->at_work[i], 1);
	return 0;
}

/* -ENOENT: there are none of that id. */
static int join(struct file_store *store, const char *path, const uint8_t id[CROWD_ID])
{
	struct stat s;
	int fd = path_open(path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	int error = fstat(fd, &s) ? -errno : 0;
	if (!error && s.st_size != (off_t)sizeof(*store->crowd.file))
		error = -ENOENT;
	error = error ? error : map(&store->crowd, fd);
	close(fd);
	if (!error && memcmp(store->crowd.file->id, id, CROWD_ID) != 0) {
		munmap(store->crowd.file, sizeof(*store->crowd.file));
		store->crowd.file = NULL;
		error = -ENOENT;
	}
	return error;
}

/* The place of a process that has gone is another's. */
static int take_member(struct file_store *store)
{
	for (unsigned i = 0; i < CROWD_MEMBERS; i++) {
		struct crowd_member *member = &store->crowd.file->members[i];
		if (!file_lock_try(store, FILE_LOCK_MEMBER + i))
			continue;
		for (unsigned bin = 0; bin < CROWD_BINS; bin++) {
			atomic_store(&member->inside[0][bin], 0);
			atomic_store(&member->inside[1][bin], 0);
		}
		atomic_store(&member->pid, (uint64_t)getpid());
		store->crowd.member = i;
		return 0;
	}
	return -EUSERS;
}

int file_crowd_open(struct file_store *store, uint8_t id[CROWD_ID], bool alone)
{
	char path[PATH_LENGTH_MAX];
	int error = path_of(store, path);
	if (!store->shared)
		return map(&store->crowd, -1);
	error = error ? error : join(store, path, id);
	if (error == -ENOENT)
		error = alone ? make(store, path, id) : -EXDEV;
	error = error ? error : take_member(store);
	if (error)
		file_crowd_close(store, false);
	return error;
}

void file_crowd_close(struct file_store *store, bool last)
{
	char path[PATH_LENGTH_MAX];
	if (!store->crowd.file)
		return;
	munmap(store->crowd.file, sizeof(*store->crowd.file));
	store->crowd.file = NULL;
	if (store->shared && last && path_of(store, path) == 0)
		unlink(path);
}

struct file_crowd_past file_crowd_now(const struct file_crowd *crowd, uint64_t volume)
{
	unsigned bin = crowd_bin(volume);
	return (struct file_crowd_past){bin, atomic_load(&crowd->file->turn[bin])};
}

/* A process that has gone writes nothing any more. */
static bool is_inside(const struct file_store *store, unsigned i, unsigned turn, unsigned bin)
{
	if (atomic_load(&store->crowd.file->members[i].inside[turn][bin]) == 0)
		return false;
	return i == store->crowd.member || !file_lock_is_free(store, FILE_LOCK_MEMBER + i);
}

static unsigned first_inside(const struct file_store *store, unsigned turn, unsigned bin)
{
	unsigned i = 0;
	while (i < CROWD_MEMBERS && !is_inside(store, i, turn, bin))
		i++;
	return i;
}

/*
 * A turn begins when the counters that it uses were seen to be empty: so those who go in meanwhile
 * are not waited for. The first to begin after `from` may have been seen so before `from`, the
 * second and the third were not, and they use both.
 */
bool file_crowd_is_past(const struct file_store *store, const struct file_crowd_past *past)
{
	_Atomic uint32_t *turn = &store->crowd.file->turn[past->bin];
	uint32_t now = atomic_load(turn);
	while (now - past->from < 3) {
		if (first_inside(store, (now + 1) & 1, past->bin) < CROWD_MEMBERS)
			return false;
		atomic_compare_exchange_strong(turn, &now, now + 1);
		now = atomic_load(turn);
	}
	return true;
}

uint64_t file_crowd_who(const struct file_store *store, const struct file_crowd_past *past)
{
	uint32_t now = atomic_load(&store->crowd.file->turn[past->bin]);
	unsigned i = first_inside(store, (now + 1) & 1, past->bin);
	return i < CROWD_MEMBERS ? atomic_load(&store->crowd.file->members[i].pid) : 0;
}
