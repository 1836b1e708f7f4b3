/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A segment: one named file mapped by every process that takes part.
 *
 * Units: bytes. Errors: 0 or -errno; `why` (may be NULL) gets one sentence that names what,
 * where and what to do. Ownership: the handle is this process's; the file is everybody's and
 * outlives them. Threads: create/join/leave/destroy not at once on one handle; what is
 * inline here, any. Blocking: create touches every page; join maps and checks.
 */
#ifndef SKERRY_XSEG_SEGMENT_H
#define SKERRY_XSEG_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <xseg/layout.h>

#define XSEG_WHY_SIZE 512

/* This process's view; the pointers are private, checked once at join. */
struct xseg {
	uint8_t *base;
	uint64_t size;
	struct xseg_superblock *super;
	struct xseg_peer_record *peers;
	struct xseg_lane_record *lanes;
	struct xseg_port_record *ports;
	struct xseg_edge_record *edges;
	struct xseg_stats_block *stats;
	struct xseg_volume_block *volumes;
	_Atomic uint64_t *request_hints;
	struct xseg_request *requests;
	struct xseg_ring *rings;
	_Atomic uint64_t *page_hints;
	struct xseg_page_descriptor *descriptors;
	uint8_t *pages;
	uint32_t request_count;
	uint32_t page_count;
	uint32_t lane_count;
	uint32_t volume_count; /* blocks in `volumes` */
	bool barrier; /* this process registered for expedited membarriers; else it fences */
	char name[NAME_LENGTH_MAX + 1];
	char path[256];
};

struct xseg_config {
	const char *name;
	uint64_t size;	      /* of the file; rounded up to a page (huge page) */
	uint32_t lanes;	      /* 0: chosen by size */
	uint32_t requests;    /* 0: chosen by size */
	const char *huge_dir; /* a hugetlbfs mount, or NULL for the shm folder */
	bool no_prefault;     /* tests: leave pages to be touched later */
};

#define XSEG_SIZE_MIN (8u << 20)
#define XSEG_SIZE_MAX (1ull << 40)

/*
 * Makes the file, lays out the tables, touches every page, and only then gives it its
 * name: a half-made segment is never seen. -EEXIST: there is one of that name.
 * -EINVAL: name, size. -ENOSPC: not enough memory behind the folder.
 */
int xseg_segment_create(const struct xseg_config *config, char why[XSEG_WHY_SIZE]);

/*
 * Maps and checks a segment: magic, layout version and hash, size, checksum, boot id and
 * every table's place. -ENOENT, -EILSEQ (not a segment, corrupted), -EPROTO (another
 * version or hash), -ESTALE (of another boot), -EMSGSIZE (truncated), -EXDEV (of another PID
 * namespace), -EPERM (another user's).
 */
int xseg_segment_join(const char *name, struct xseg *seg, char why[XSEG_WHY_SIZE]);
/* The same at a given file; maps anywhere. */
int xseg_segment_join_path(const char *path, struct xseg *seg, char why[XSEG_WHY_SIZE]);
void xseg_segment_leave(struct xseg *seg);
/* When it returns, every process that has joined (and could register for that) has
   passed a full barrier; others fence by themselves, see xseg.barrier. */
void xseg_segment_barrier(void);

/*
 * Removes the file. Refuses (-EBUSY) while a lane in it belongs to a living process; one that
 * cannot be joined (corrupt, of another boot) is just removed. -ENOENT.
 */
int xseg_segment_destroy(const char *name, char why[XSEG_WHY_SIZE]);

/*
 * A segment has one keeper: whoever has its file locked, until *fd is closed or the process ends.
 * -EBUSY: somebody else has it. The folder is for those who look for the keeper's sockets.
 */
int xseg_segment_keep(const struct xseg *seg, const char *run_dir, int *fd);
/* Who kept it last: pid (0: nobody yet) and folder. -ENOENT, or as for join. */
int xseg_segment_keeper(const char *name, uint32_t *pid, char run_dir[XSEG_RUN_DIR_MAX + 1]);

/* Names of the segments in the shm folder, in order, each then `visit`ed; 0 or -errno. */
int xseg_segment_list(int (*visit)(const char *name, void *context), void *context);

/* Readable superblock and tables, for `xsegctl segment dump`. */
struct xseg_usage {
	uint64_t size, overhead; /* overhead: all that is not a data page */
	uint32_t pages, pages_free, pages_held, pages_stored, pages_kept, pages_retired;
	uint32_t requests, requests_by_state[XSEG_REQUEST_STATES];
};
void xseg_segment_usage(const struct xseg *seg, struct xseg_usage *usage);

/* The hash that create writes and join demands. */
uint32_t xseg_layout_hash(void);

static inline uint8_t *xseg_page_address(const struct xseg *seg, uint32_t page)
{
	return seg->pages + ((uint64_t)page << XSEG_PAGE_SHIFT);
}

#endif
