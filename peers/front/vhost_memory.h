/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's memory, as far as it is shared with us, and the log of what we have changed in it.
 *
 * Nothing of it is trusted: each address is looked up before it is used, and what lies there may
 * change at any time. When the monitor cuts a file off that it shares, what was mapped of it reads
 * as zeros from then on, and `lost` is true: nothing is to be believed.
 *
 * Units: bytes; guest addresses, and the monitor's own ("user") for rings. Errors: -errno.
 * Ownership: maps until removed. Threads: one. Blocking: none.
 */
#ifndef SKERRY_FRONT_VHOST_MEMORY_H
#define SKERRY_FRONT_VHOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "peers/front/vhost_proto.h"

#define VHOST_REGIONS_MAX 128u

struct vhost_region {
	uint64_t guest, size, user;
	uint8_t *host;
	void *map;
	size_t map_size;
};

struct vhost_memory {
	struct vhost_region region[VHOST_REGIONS_MAX];
	unsigned count;
	unsigned last; /* that one was asked for */
	uint8_t *log;  /* a bit for each page that we change; NULL: nobody wants to know */
	size_t log_pages;
	void *log_map;
	size_t log_map_size;
	bool logging; /* the log is wanted now */
	_Atomic bool lost;
};

/* vhost_guard.c: a file's whole mapping, until it is unmapped. -ENOSPC. For any thread. */
int vhost_guard_add(const void *map, size_t size, _Atomic bool *lost);
void vhost_guard_unmap(void *map, size_t size);

/* fd stays the caller's. -EINVAL, -ENOSPC, -EEXIST: overlaps another. */
int vhost_memory_add(struct vhost_memory *memory, const struct vhost_wire_region *wire, int fd);
int vhost_memory_remove(struct vhost_memory *memory, const struct vhost_wire_region *wire);
void vhost_memory_clear(struct vhost_memory *memory);
void vhost_memory_fini(struct vhost_memory *memory); /* with its log */
/* NULL: not there. *length is cut to what follows without a gap. */
void *vhost_memory_at(struct vhost_memory *memory, uint64_t guest, uint64_t *length);
/* All of it, or NULL. */
void *vhost_memory_user(const struct vhost_memory *memory, uint64_t user, uint64_t length);

int vhost_memory_set_log(struct vhost_memory *memory, uint64_t size, uint64_t offset, int fd);
/* We have changed these, by guest address; by where they lie here. */
void vhost_memory_mark(struct vhost_memory *memory, uint64_t guest, uint64_t length);
void vhost_memory_mark_host(struct vhost_memory *memory, const void *host, uint64_t length);

#endif
