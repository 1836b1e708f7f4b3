/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A drive, and the cartridges that it can be given: what the drivers have in common.
 *
 * Errors: 0, TAPE_MARK or TAPE_END, or -errno with a sentence in drive->why. -ENOTCONN: the drive
 * is away, and nobody knows where the head is: close(), open(), load(). -ENOSPC: the medium ends
 * here; -EDQUOT: the disk that an image lies on is full; -EROFS: it is write-protected; -EILSEQ: it
 * cannot be read here; -EIO: what else fails.
 * Ownership: the driver's state is its own. Threads: one. Blocking: all, up to the timeout.
 * After: SSC-3 (variable blocks), SMC-3, Linux's st.rst.
 */
#ifndef SKERRY_BLOCKER_TAPE_DRIVE_H
#define SKERRY_BLOCKER_TAPE_DRIVE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { TAPE_MARK = 1, TAPE_END = 2 }; /* a filemark, or the end of what is written, was met */

#define TAPE_SLOTS_MAX 1024u
struct tape_slot {
	unsigned number;
	bool full;
	char barcode[40]; /* "": it has none */
};

struct tape_drive_options {
	const char *drive;   /* what comes after "image:", the URL, the device */
	const char *changer; /* URL, or NULL */
	const char *user, *password;
	uint64_t capacity;   /* of an image */
	uint64_t timeout_ns; /* of a command */
};

struct tape_drive {
	const struct tape_drive_ops *ops;
	const struct tape_drive_options *options;
	void *state;
	char why[512];
	bool locates; /* locate() and tell() can be trusted */
};

struct tape_drive_ops {
	const char *name;
	int (*open)(struct tape_drive *drive);
	void (*close)(struct tape_drive *drive);
	/* All slots, those of the cartridge in the drive included. How many. */
	int (*slots)(struct tape_drive *drive, struct tape_slot *slots);
	/* That slot's cartridge is in the drive, at its beginning; locates is known. */
	int (*load)(struct tape_drive *drive, unsigned slot);
	/* One block; room is more than it has. */
	int (*read)(struct tape_drive *drive, void *to, size_t room, size_t *got);
	/* *warning: it is written, and the end of the medium is near. */
	int (*write)(struct tape_drive *drive, const void *from, size_t size, bool *warning);
	/* Filemarks; all that was written is on the medium. */
	int (*mark)(struct tape_drive *drive, unsigned count);
	int (*rewind)(struct tape_drive *drive);
	/* Forward. Over blocks of one file only: TAPE_MARK or TAPE_END when there are less. */
	int (*skip_blocks)(struct tape_drive *drive, unsigned count);
	int (*skip_files)(struct tape_drive *drive, unsigned count);
	int (*locate)(struct tape_drive *drive, uint64_t position);
	int (*tell)(struct tape_drive *drive, uint64_t *position);
};

extern const struct tape_drive_ops tape_image, tape_iscsi, tape_st;

#define tape_drive_fail(drive, error, ...) \
	(snprintf((drive)->why, sizeof((drive)->why), __VA_ARGS__), (error))

#endif
