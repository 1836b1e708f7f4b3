/* SPDX-License-Identifier: Apache-2.0 */
/* How big each table is and where it lies; used by create and checked by join. */
#ifndef SKERRY_XSEG_XSEG_LAYOUT_H
#define SKERRY_XSEG_XSEG_LAYOUT_H

#include <xseg/segment.h>

/* Places of all tables for these counts; returns the bytes needed. */
uint64_t layout_places(uint32_t lanes, uint32_t requests, uint32_t pages,
	struct xseg_table_place places[XSEG_TABLE_COUNT]);
/* As many pages as fit into `size`; 0 when not even one does. */
uint32_t layout_pages_for(uint64_t size, uint32_t lanes, uint32_t requests);
/* crc32c of what is written once in the superblock. */
uint32_t layout_checksum(const struct xseg_superblock *super);
#define LAYOUT_HUGE (2u << 20)
/*
 * Maps the file so that huge pages can be mapped as such; MAP_FAILED and errno. Under the thread
 * sanitizer all maps of a file in a process are one.
 */
void *layout_map(int fd, uint64_t size);
void layout_unmap(void *base, uint64_t size);
/* This boot's id; zeros when the kernel does not tell. */
void layout_boot_id(uint8_t id[16]);
/* Puts one sentence into why (which may be NULL) and returns `error`. */
/* Our PID namespace; 0: not known. */
uint64_t layout_pid_ns(void);
/* The file of a segment that is to be trusted; -EPERM: it is not. */
int layout_open(const char *path, char *why);

int layout_why(char *why, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
