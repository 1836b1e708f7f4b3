/* SPDX-License-Identifier: Apache-2.0 */
/* Telling whoever started us (the keeper, or systemd) how we are, and what to keep for us. */
#include <base/notify.h>
#include <errno.h>
#include <fcntl.h>
#include <peer/notify.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peers/core/core.h"

static pthread_mutex_t notify_mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t notify_taken; /* bit per descriptor that was handed over */
static _Atomic bool notify_successor;

void notify_ready(const char *status)
{
	char text[256];
	snprintf(text, sizeof(text), "READY=1\nSTATUS=%s", status);
	notify_send(text, -1);
}

void notify_stopping(uint64_t limit_ns, bool successor)
{
	char text[64];
	/* a terminal that hangs up has no successor for us */
	atomic_store(&notify_successor, successor && getenv("NOTIFY_SOCKET"));
	snprintf(text, sizeof(text), "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu",
		(unsigned long long)(limit_ns / 1000));
	notify_send(text, -1);
}

void notify_alive(void) { notify_send("WATCHDOG=1", -1); }

bool notify_handover(void) { return atomic_load(&notify_successor); }

/* --- descriptors ------------------------------------------------------------------------ */

int notify_store_fd(const char *name, int fd)
{
	char text[128];
	int error = notify_name_check(name);
	if (error)
		return error;
	snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s", name);
	return notify_send(text, fd);
}

int notify_drop_fd(const char *name)
{
	char text[128];
	int error = notify_name_check(name);
	if (error)
		return error;
	snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	return notify_send(text, -1);
}

static int notify_handed(void)
{
	int count = notify_fd_count();
	return count < NOTIFY_FDS_MAX ? count : NOTIFY_FDS_MAX;
}

int notify_take_fd(const char *name)
{
	char handed[NOTIFY_NAME_MAX];
	int fd = -ENOENT, count = notify_handed();
	pthread_mutex_lock(&notify_mutex);
	for (int i = 0; i < count && fd < 0; i++) {
		notify_fd_name(i, handed);
		if ((notify_taken >> i & 1) || strcmp(handed, name) ||
			fcntl(NOTIFY_FD_FIRST + i, F_SETFD, FD_CLOEXEC))
			continue;
		notify_taken |= 1ull << i;
		fd = NOTIFY_FD_FIRST + i;
	}
	pthread_mutex_unlock(&notify_mutex);
	return fd;
}

/* Those of a front that is no longer there, or listens elsewhere now. */
void notify_drop_rest(void)
{
	char name[NOTIFY_NAME_MAX];
	int count = notify_handed();
	pthread_mutex_lock(&notify_mutex);
	for (int i = 0; i < count; i++) {
		if (notify_taken >> i & 1)
			continue;
		notify_taken |= 1ull << i;
		close(NOTIFY_FD_FIRST + i);
		notify_fd_name(i, name);
		notify_drop_fd(name);
	}
	pthread_mutex_unlock(&notify_mutex);
}
