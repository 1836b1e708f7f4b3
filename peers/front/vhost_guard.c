/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A monitor that cuts off a file which it shares would end this process (SIGBUS), and with it the
 * disks of other machines. What is missing becomes empty memory of our own instead, and whoever
 * uses it is told.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "peers/front/vhost_memory.h"

#define GUARDS_MAX 4096u

/* Read by the handler, at any time. */
static struct guard {
	_Atomic uintptr_t map; /* 0: free; written last */
	_Atomic size_t size;
	_Atomic(_Atomic bool *) lost;
} guards[GUARDS_MAX];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool watching;

static bool replace(const struct guard *guard, uintptr_t at)
{
	uintptr_t map = atomic_load(&guard->map);
	size_t size = atomic_load(&guard->size);
	if (!map || at - map >= size ||
		mmap((void *)map, size, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
			0) == MAP_FAILED)
		return false;
	atomic_store(atomic_load(&guard->lost), true);
	return true;
}

/* In the thread that has touched it, which does so again when we return. */
static void cut_off(int number, siginfo_t *info, void *context)
{
	int error = errno;
	bool ours = false;
	(void)context;
	for (unsigned i = 0; i < GUARDS_MAX && !ours; i++)
		ours = replace(&guards[i], (uintptr_t)info->si_addr);
	if (!ours)
		signal(number, SIG_DFL);
	errno = error;
}

static int watch(void)
{
	const struct sigaction action = {
		.sa_sigaction = cut_off, .sa_flags = SA_SIGINFO | SA_NODEFER};
	if (watching)
		return 0;
	watching = sigaction(SIGBUS, &action, NULL) == 0;
	return watching ? 0 : -errno;
}

int vhost_guard_add(const void *map, size_t size, _Atomic bool *lost)
{
	pthread_mutex_lock(&lock);
	int error = watch();
	unsigned i = 0;
	while (i < GUARDS_MAX && atomic_load(&guards[i].map))
		i++;
	if (!error && i == GUARDS_MAX)
		error = -ENOSPC;
	if (!error) {
		atomic_store(&guards[i].size, size);
		atomic_store(&guards[i].lost, lost);
		atomic_store(&guards[i].map, (uintptr_t)map);
	}
	pthread_mutex_unlock(&lock);
	return error;
}

void vhost_guard_unmap(void *map, size_t size)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < GUARDS_MAX; i++)
		if (atomic_load(&guards[i].map) == (uintptr_t)map)
			atomic_store(&guards[i].map, 0);
	pthread_mutex_unlock(&lock);
	munmap(map, size);
}
