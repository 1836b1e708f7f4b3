/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount and umount, private to them.
 *
 *   volume -> a front_fuse "mountN" -> FOLDER/VOLUME -> /dev/loopN -> a file system on DIR
 *
 * Nothing of this is written down: the kernel's tables say what is there, whoever has died, and
 * each step may be said again. A volume of another host has a pipeline of its own in front.
 *
 * Units: bytes, ns. Errors, ownership: as ctl.h. Threads: one. Blocking: ctl->timeout_ns for a
 * peer, and as long as losetup(8), mount(8) and umount(8) take.
 */
#ifndef SKERRY_TOOLS_CTL_MOUNT_H
#define SKERRY_TOOLS_CTL_MOUNT_H

#include <base/path.h>
#include <limits.h>
#include <peer/map.h>

#include "tools/ctl/ctl_output.h"
#include "tools/ctl/ctl_uri.h"

#define CTL_DEVICE_MAX 32u
#define CTL_FILE_MAX (PATH_LENGTH_MAX + VOLUME_NAME_LENGTH_MAX + 16u)

/* --- what is mounted (ctl_mounted.c) --- */

#define CTL_MOUNTED_SWAP "[swap]"
/* One volume or snapshot, and how far it has got; "": not so far. */
struct ctl_mounted {
	char segment[NAME_LENGTH_MAX + 1], peer[NAME_LENGTH_MAX + 1];
	char volume[VOLUME_NAME_LENGTH_MAX + 1];
	char folder[PATH_LENGTH_MAX], device[CTL_DEVICE_MAX];
	char root[PATH_MAX]; /* of its file system; CTL_MOUNTED_SWAP: the device is swap */
	bool dead;	     /* nobody answers for its folder any more */
};
struct ctl_mounted_all {
	struct ctl_mounted *all; /* free() */
	size_t count;
};
/* Of all segments, or of one: what 'mount' has started, as this process' name space shows it. */
struct ctl_mounted_all ctl_mounted_list(const char *segment);
/* FOLDER/VOLUME; of a snapshot FOLDER/.snapshots/VOLUME. */
void ctl_mounted_file(const struct ctl_mounted *mounted, char file[CTL_FILE_MAX]);
/* {"volume", "segment", "file", "device", "root", "peer"} */
json_t *ctl_mounted_json(const struct ctl_mounted *mounted);
/* The file system, the device and the folder go, in this order; -FAULT_BUSY at the first that
   somebody uses, and the rest stays. */
int ctl_mounted_end(struct ctl *ctl, const struct ctl_mounted *mounted);
int ctl_mounted_end_all(struct ctl *ctl, const char *segment);
/* The device alone. */
int ctl_mounted_detach(struct ctl *ctl, const struct ctl_mounted *mounted);
/* The keeper is asked, once it is free. */
int ctl_mounted_ask(struct ctl *ctl, const char *segment, const char *method, json_t *params);
/* Peers whose folder somebody has unmounted go. */
void ctl_mounted_sweep(struct ctl *ctl, const char *segment);
/* A program of the system; its last word on stderr becomes the fault. *out: what it says, malloc'd,
   without a line's end; may be NULL. */
int ctl_mounted_run(struct ctl *ctl, const char *object, char *const words[], char **out);

/* --- what is to be mounted (ctl_mount.c) --- */

struct ctl_mount_wish {
	const char *volume;
	const char *dir; /* or NULL */
	bool device, fs, read_only;
	const char *options; /* of mount(8), or NULL */
};
/* As far as is wished for: from what is there on. *mounted: then. */
int ctl_mount_near(struct ctl *ctl, const char *segment, const struct ctl_mount_wish *wish,
	struct ctl_mounted *mounted, bool *changed);

/* --dry-run: {action, object} each. */
void ctl_mount_steps(struct ctl *ctl, const char *const steps[][2], size_t count);

/* --- a volume of another host (ctl_mount_far.c) --- */

struct ctl_mount_far {
	struct ctl *ctl;
	bool started;
	struct ctl_uri uri;
	char segment[NAME_LENGTH_MAX + 1];
	char folder[PATH_LENGTH_MAX], file[PATH_LENGTH_MAX], socket[PATH_LENGTH_MAX];
	char near[PATH_LENGTH_MAX]; /* absolute; "": in memory only */
	uint64_t memory;
};
/* The first argument and the options are read: what is asked for. */
int ctl_mount_far_read(struct ctl_mount_far *far, struct ctl *ctl);
/* The segment's name, and where its files are. */
int ctl_mount_far_name(struct ctl_mount_far *far, const char *name);
/* Its pipeline file goes to stdout. */
void ctl_mount_far_show(const struct ctl_mount_far *far);
/* Up, and the volume is ours. */
int ctl_mount_far_begin(struct ctl_mount_far *far);
/* Where NBD clients reach it; a new reference. */
int ctl_mount_far_uri(const struct ctl_mount_far *far, json_t **uri);
/* What was not up before is not left up. */
void ctl_mount_far_undo(const struct ctl_mount_far *far);
/* -FAULT_NOT_FOUND: it was not up. */
int ctl_mount_far_end(struct ctl_mount_far *far, bool plan);

#endif
