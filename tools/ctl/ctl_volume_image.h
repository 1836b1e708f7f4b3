/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images that are not raw: qemu-img says what they are, makes them and knows where their data
 * lie; qemu-nbd serves one to us alone.
 *
 * Units: bytes. Errors: as ctl.h; read, write, zero and flush: 0 or -errno. Ownership: caller's
 * struct. Threads: one. Blocking: all, on those programs. They end with the one who started them.
 */
#ifndef SKERRY_TOOLS_CTL_VOLUME_IMAGE_H
#define SKERRY_TOOLS_CTL_VOLUME_IMAGE_H

#include <sys/types.h>

#include "tools/ctl/ctl_output.h"

struct ctl_image {
	int fd; /* to qemu-nbd; -1: none */
	pid_t pid;
	uint64_t size;
	json_t *map; /* of qemu-img map: where data lie */
	size_t at;   /* in it */
};

/* The size of an image of that format. `backing`: it may have its data in other files, too; else
   it is refused, as whoever wrote it could have any file of this host read. */
int ctl_volume_image_look(
	struct ctl *ctl, const char *path, const char *format, bool backing, uint64_t *size);
int ctl_volume_image_open(
	struct ctl *ctl, const char *path, const char *format, bool write, struct ctl_image *image);
/* Waits for qemu-nbd to end. */
int ctl_volume_image_close(struct ctl *ctl, const char *path, struct ctl_image *image);
/* An empty one of qcow2. `based`: what is not written is another one's, see
   ctl_volume_image_base(). */
int ctl_volume_image_make(struct ctl *ctl, const char *path, uint64_t size, bool based);
/* What is not written is that of the qcow2 image `base`, which need not be there. */
int ctl_volume_image_base(struct ctl *ctl, const char *path, const char *base);

int ctl_volume_image_read(struct ctl_image *image, void *data, uint32_t length, uint64_t offset);
int ctl_volume_image_write(
	struct ctl_image *image, const void *data, uint32_t length, uint64_t offset);
int ctl_volume_image_zero(struct ctl_image *image, uint64_t length, uint64_t offset);
int ctl_volume_image_flush(struct ctl_image *image);
/* From `at` on, where data are; the size: nowhere. Never goes back. */
uint64_t ctl_volume_image_data(struct ctl_image *image, uint64_t at);

#endif
