/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Volumes that become another host's, or this one's, as many at once as may be: ctl_rehome.c says
 * which and where to.
 *
 * Units: bytes, ns. Errors: exit statuses, with the fault set. Ownership: the caller's. Threads:
 * one. Blocking: as noted.
 */
#ifndef SKERRY_TOOLS_CTL_REHOME_MOVE_H
#define SKERRY_TOOLS_CTL_REHOME_MOVE_H

#include <peer/rehoming.h>

#include "tools/ctl/ctl_hook.h"
#include "tools/ctl/ctl_rehome.h"
#include "tools/ctl/ctl_volume.h"

struct ctl_move {
	struct xseg_volume_info info;
	struct ctl_rehome *rehome;
	struct rehoming *rehoming; /* NULL before it begins, and when it has ended */
	struct rehome_info state;
	enum { MOVE_WAITS, MOVE_GOES, MOVE_THAWS, MOVE_ENDED } step;
	int error;
	struct ctl_hook hook, undo; /* --freeze-cmd, --thaw-cmd */
	bool frozen;		    /* that was started */
	int refused;		    /* the exit status of the first, when it failed */
};

struct ctl_rehome {
	struct ctl_plug plug; /* .name: the re-homer */
	struct ctl_uri uri;   /* remote "": a bridge was named */
	bool comes;	      /* --from: `to` is where it is, and this host is where it goes */
	char to[NAME_LENGTH_MAX + 1], composer[NAME_LENGTH_MAX + 1];
	struct ctl_volume_data data;   /* --store, or "" */
	char own[NAME_LENGTH_MAX + 1]; /* comes: the store of this host */
	bool sees;		       /* comes: a mover was put in, so as to see both stores */
	uint64_t bytes;		       /* copied there, or here */
	struct rehoming_ask ask;       /* what is the same for all */
	const char *freeze, *thaw;     /* commands, or NULL */
	bool there;		       /* the re-homer is */
	struct ctl_move *moves;
	size_t count;
	uint64_t at_once;
	bool begun; /* one of them is on its way, has moved, or may have */
};

/* Could it go, but for its data? 0 or -errno. Blocking: until the other host has answered. */
int ctl_rehome_move_ask(struct ctl_rehome *rehome, struct ctl_move *move);
/* Until all have ended, or somebody has said ^C: then what is not decided stays. */
int ctl_rehome_move_follow(struct ctl_rehome *rehome, struct ctl_work *work);
/* Of those that have ended: a fault that names the first that has not moved. */
int ctl_rehome_move_judge(const struct ctl_rehome *rehome);

#endif
