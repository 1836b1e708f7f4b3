/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A region: part of a volume as memory of a program (libxseg-region, skerry-region.pc).
 *
 *   struct region *region = region_open("demo", "db", 0, 0, 0);
 *   if (!region) { fprintf(stderr, "%s\n", region_why()); exit(1); }
 *   char *bytes = region_memory(region);     read and written like any other
 *   region_sync(region, 0, 0);               from here on what was written is durable
 *   region_close(region);
 *
 * A page is fetched when it is touched for the first time (userfaultfd), and kept in memory that
 * all programs of this host share which have the volume open over the same front_region. What is
 * written goes to the volume at region_sync(), when the front needs memory, and when the last that
 * may write has closed it or has died. A program that is killed loses nothing that it has
 * written, nor does one whose front, or whole pipeline, is killed: it meets a pause. Only when the
 * host stops what was not synced is lost. docs/memory.md.
 *
 * Units: bytes. `offset` in a region counts from its begin; size 0: to its end. Both may
 * be any number and are rounded outwards to pages of 4096; those of region_open() are multiples.
 * Errors: 0 or -errno. A page that cannot be read is a SIGBUS to whoever touches it.
 * Ownership: the region is the caller's until region_close(). A child of fork(2) does not have the
 * memory (a touch is a SIGSEGV): let it open a region of its own.
 * Threads: any; calls of one region wait for each other, touching its memory does not.
 * Blocking: all but region_memory(), region_size() and region_why(); while the front is away all of
 * them wait for it.
 * Source: userfaultfd(2); the way of external fault handlers is CRIU's and Firecracker's.
 */
#ifndef SKERRY_XSEG_REGION_H
#define SKERRY_XSEG_REGION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct region;

/* of region_open() */
#define REGION_READ_ONLY 1u /* cannot be written to; does not need the right to write */
#define REGION_PRIVATE 2u /* what is written stays the program's own, and is nowhere when it ends */

/*
 * `segment`: its name, or "unix:PATH", a front's socket. `volume`: or VOLUME@SNAPSHOT, with
 * REGION_READ_ONLY or REGION_PRIVATE. NULL: errno says what, region_why() in a sentence. ENOENT: no
 * such segment, front or volume. EINVAL: no multiples of 4096, or beyond the volume's end.
 * EPERM, EACCES: not allowed. ENOSYS: the kernel's userfaultfd cannot do it (Linux 6.4 can).
 */
struct region *region_open(
	const char *segment, const char *volume, uint64_t offset, uint64_t size, unsigned flags);
/* What the last region_open() of this thread was refused for. */
const char *region_why(void);
/* Frees it also when it fails, after ten seconds without a front: what was written and not synced
   goes to the volume later. */
int region_close(struct region *region);

void *region_memory(const struct region *region);
uint64_t region_size(const struct region *region);

/* All that was written before is durable where the pipeline promises it. Also of other programs. */
int region_sync(struct region *region, uint64_t offset, uint64_t size);

/* Has it fetched; returns at once. Stops where the front's memory ends. */
int region_prefetch(struct region *region, uint64_t offset, uint64_t size);

enum region_advice {
	REGION_NORMAL,	 /* neighbours are fetched when touches go upwards */
	REGION_RANDOM,	 /* only what is touched is fetched; the whole region, as the one before */
	REGION_KEEP,	 /* goes last when the front needs memory */
	REGION_KEEP_NOT, /* as usual again */
	REGION_DROP,	 /* goes now, what is dirty to the volume first; a touch fetches it anew */
};
int region_advise(struct region *region, uint64_t offset, uint64_t size, enum region_advice advice);

struct region_status {
	uint64_t volume_size, memory_limit; /* of the front, for all volumes */
	uint64_t resident, dirty; /* of this volume: in memory; of it, not yet at the volume */
	uint64_t faults;	  /* of this region: touches that had to wait */
	uint64_t fetched, written, evicted; /* of this volume, since the front has it open */
	uint32_t reconnects;		    /* of this region: to a front that was started anew */
	uint32_t
		kernel_faults; /* 1: read(2) and others may be given memory that is not there yet */
};
int region_status(struct region *region, struct region_status *status);

#ifdef __cplusplus
}
#endif

#endif
