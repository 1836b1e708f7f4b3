/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An import under way: the source, what was copied, and what the volume has already.
 *
 * Units: bytes. Errors: as ctl.h. Ownership: the command's struct. Threads: one. Blocking: all.
 */
#ifndef SKERRY_TOOLS_CTL_IMPORT_H
#define SKERRY_TOOLS_CTL_IMPORT_H

#include "tools/ctl/ctl_copy.h"
#include "tools/ctl/ctl_volume_image.h"
#include "tools/ctl/ctl_work.h"

struct import {
	struct ctl *ctl;
	struct client client;
	struct ctl_copy_plan plan;
	struct ctl_work *work;
	struct xseg_volume_info info;
	const char *path;
	int fd;
	bool seekable;
	char format[32]; /* "raw", or what qemu calls it */
	struct ctl_image image;
	uint64_t source_size; /* known when seekable */
	uint64_t at;	      /* of the source: everything before was read */
	uint64_t written;
	uint8_t *buffer; /* one chunk; requests copy from it when they start */
	struct client_request requests[CTL_COPY_DEPTH_MAX];
	struct client_request *idle[CTL_COPY_DEPTH_MAX];
	unsigned idle_count;
	/* the volume may have contents: a base's, or what a killed import has left */
	struct xseg_volume_info base; /* id 0: none */
	bool compare, resumed;
	uint64_t same;	  /* bytes of data that were there already */
	uint8_t *present; /* one chunk of it */
	struct client_request asking;
	bool answered;
	struct xseg_status_extent extents[XSEG_PAGE / sizeof(struct xseg_status_extent)];
	unsigned extent_count;
	uint64_t looked_from, looked_to; /* what extents are of */
};

/* --- the source (ctl_import_source.c) --- */

/* Not one that qemu reads for us. */
bool ctl_import_is_raw(const struct import *import);
int ctl_import_source_open(struct import *import);
/* How large the volume will be. */
int ctl_import_source_size(struct import *import);
/* Moves `at` over holes; false at the end. */
bool ctl_import_source_data(struct import *import);
/* Up to the next chunk's boundary; *got 0 at the end. The rest of the last block is zeros. */
int ctl_import_source_read(struct import *import, uint32_t *got);
/* Nobody may have changed it under us. */
int ctl_import_source_unchanged(struct import *import);

/* --- the copy (ctl_import_copy.c) --- */

/* What the volume has already is read and compared, and only what differs is written. */
int ctl_import_copy(struct import *import);

#endif
