/* SPDX-License-Identifier: Apache-2.0 */
/* What one at a time may do: of the threads of this process, and of all that serve the folder. */
#include <base/log.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "peers/blocker/file/file_disk.h"

#define ROOM "blocker_file"
#define LOCK_AT 4096 /* bytes of DIR/lock that stand for locks: behind all that is in it */

/* They end with the process, however it ends; flock() does not see them. */
static int record_lock(const struct file_store *store, unsigned number, int command, short type)
{
	struct flock lock = {.l_type = type,
		.l_whence = SEEK_SET,
		.l_start = LOCK_AT + (off_t)number,
		.l_len = 1};
	int error;
	do
		error = fcntl(store->lock, command, &lock) ? -errno : 0;
	while (error == -EINTR);
	return error ? error : lock.l_type;
}

bool file_lock_try(const struct file_store *store, unsigned number)
{
	return record_lock(store, number, F_OFD_SETLK, F_WRLCK) >= 0;
}

bool file_lock_is_free(const struct file_store *store, unsigned number)
{
	return record_lock(store, number, F_OFD_GETLK, F_WRLCK) == F_UNLCK;
}

/* Whoever had it was killed with it: names that he has made or changed may not be durable, and we
   build on them. */
static void inherit(struct file_store *store)
{
	int error = syncfs(store->root) ? -errno : 0;
	if (!error)
		return;
	log_error(ROOM, "folder '%s': what a killed process changed cannot be made durable: %s",
		store->dir, strerror(-error));
	atomic_store(&store->inherit_error, error);
	atomic_store(&store->records_error, error);
}

void file_lock(struct file_store *store, enum file_lock which)
{
	must(pthread_mutex_lock(&store->mutex[which]) == 0);
	if (!store->shared)
		return;
	int error = record_lock(store, which, F_OFD_SETLKW, F_WRLCK);
	if (error < 0)
		log_error(ROOM, "folder '%s' cannot be locked: %s", store->dir, strerror(-error));
	if (file_fence_begin(store, which))
		inherit(store);
}

void file_lock_release(struct file_store *store, enum file_lock which)
{
	if (store->shared) {
		file_fence_end(store, which);
		record_lock(store, which, F_OFD_SETLK, F_UNLCK);
	}
	must(pthread_mutex_unlock(&store->mutex[which]) == 0);
}
