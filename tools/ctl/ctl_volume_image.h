/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images that are not raw: qemu-img says what they are and makes them; qemu-nbd serves one to us
 * alone, through libnbd.
 *
 * Units: bytes. Errors: as ctl.h; read, write, zero and flush: 0 or -errno. Ownership: caller's
 * struct. Threads: one. Blocking: all, on those programs. They end with the one who started them.
 */
#ifndef SKERRY_TOOLS_CTL_VOLUME_IMAGE_H
#define SKERRY_TOOLS_CTL_VOLUME_IMAGE_H

#include <sys/types.h>

#include "tools/ctl/ctl_output.h"

#define IMAGE_EXTENTS 64u
#define IMAGE_AHEAD 8u /* reads, or writes, under way */

/* What the server said last of where data lie. */
struct image_map {
	uint64_t from, to;
	unsigned count;
	struct image_extent {
		uint64_t end;
		bool data;
	} extent[IMAGE_EXTENTS];
};

struct nbd_handle;
struct ctl_image {
	struct nbd_handle *nbd;
	uint64_t size;
	uint32_t chunk;			/* reads are ahead by chunks of that size; 0: none are */
	struct image_map asked, looked; /* for who asks; for reads ahead */
	/* reads under way, in order */
	struct image_read {
		uint8_t *data; /* malloc, a chunk */
		uint64_t offset, cookie;
		uint32_t length;
	} ahead[IMAGE_AHEAD];
	unsigned ahead_first, ahead_count;
	uint64_t ahead_at;
	unsigned writing; /* writes under way */
	int error;	  /* of the first that failed */
};

/* The size of an image of that format. `backing`: it may have its data in other files, too; else
   it is refused, as whoever wrote it could have any file of this host read. */
int ctl_volume_image_look(
	struct ctl *ctl, const char *path, const char *format, bool backing, uint64_t *size);
int ctl_volume_image_open(
	struct ctl *ctl, const char *path, const char *format, bool write, struct ctl_image *image);
/* Waits for qemu-nbd to end. What was written is safe when ctl_volume_image_flush() said so. */
void ctl_volume_image_close(struct ctl_image *image);
/* An empty one of qcow2. `based`: what is not written is another one's, see
   ctl_volume_image_base(). */
int ctl_volume_image_make(struct ctl *ctl, const char *path, uint64_t size, bool based);
/* What is not written is that of the qcow2 image `base`, which need not be there. */
int ctl_volume_image_base(struct ctl *ctl, const char *path, const char *base);

int ctl_volume_image_read(struct ctl_image *image, void *data, uint32_t length, uint64_t offset);
/* It is under way then: errors are said by a later call, at the latest by flush. */
int ctl_volume_image_write(
	struct ctl_image *image, const void *data, uint32_t length, uint64_t offset);
int ctl_volume_image_zero(struct ctl_image *image, uint64_t length, uint64_t offset);
int ctl_volume_image_flush(struct ctl_image *image);
/* From `at` on, where data are; the size: nowhere. */
uint64_t ctl_volume_image_data(struct ctl_image *image, uint64_t at);

#endif
