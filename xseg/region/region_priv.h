/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A region, private to its library. Its front has the fault handling; here are the memory, the
 * socket, and a thread that connects again when the front was started anew.
 *
 * Threads: `lock` guards all that changes after region_open(); the thread that has `asking` set
 * speaks on the socket.
 */
#ifndef SKERRY_XSEG_REGION_PRIV_H
#define SKERRY_XSEG_REGION_PRIV_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/un.h>
#include <xseg/region.h>
#include <xseg/region_wire.h>

#define REGION_WHY_SIZE 512u

struct region {
	struct sockaddr_un address;
	char volume[VOLUME_NAME_LENGTH_MAX + 1];
	uint64_t offset, size;
	unsigned flags;
	uint8_t *memory;
	uint64_t mapped; /* size, in whole pages */
	int memory_fd, fault_fd;
	uint64_t token;
	bool kernel_faults;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int fd;		     /* -1: the front is away */
	bool asking;	     /* a call is on its way */
	int lost;	     /* -errno: the memory that the front has now is not ours */
	uint32_t generation; /* of connections */
	uint32_t serial;
	pthread_t watcher;
	int stop_fd; /* wakes it */
};

/* region_link.c */
/* The socket of the front: `segment` as region_open() has it. */
int region_link_find(struct region *region, const char *segment);
int region_link_connect(const struct sockaddr_un *address, int *fd);
/* A front that hangs is as one that is gone, after so long; 0: it is waited for. */
void region_link_limit(int fd, unsigned seconds);
/* One question and its answer; give: a descriptor that goes along, or -1; take: one that comes, or
   NULL. -ECONNRESET: the front is gone. */
int region_link_ask(int fd, struct region_wire *message, int give, int *take);
/* Connected and served: for the first time, or again. */
int region_link_open(struct region *region, int fd);
int region_link_arm(struct region *region, int fd);
/* The thread that stays. */
void *region_link_watch(void *region);

/* region_fault.c: the kernel's side */
int region_fault_open(struct region *region);
void region_fault_close(struct region *region);

/* region.c: the thread's sentence */
int region_refuse(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
