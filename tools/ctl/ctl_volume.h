/* SPDX-License-Identifier: Apache-2.0 */
/* What volume verbs share. Errors, ownership: as ctl.h. Blocking: ctl->timeout_ns a request. */
#ifndef SKERRY_TOOLS_CTL_VOLUME_H
#define SKERRY_TOOLS_CTL_VOLUME_H

#include <peer/client.h>

#include "tools/ctl/ctl_output.h"

/* One request; 0 or -errno: of the way there or of the answer. */
int ctl_volume_do(struct client *client, struct client_request *request);
/* CREATE, INFO by name, UPDATE: info goes in and comes out. */
int ctl_volume_ask(struct client *client, enum xseg_op op, struct xseg_volume_info *info);
/* OPEN, CLOSE, FLUSH, REMOVE of a volume by its id. */
/* `term` as OPEN said it, for what writes or flushes; else 0. */
int ctl_volume_tell(struct client *client, enum xseg_op op, uint64_t id, uint64_t term);
int ctl_volume_open(struct client *client, unsigned flags, uint64_t id, uint64_t *term);
/* INFO; a fault that names the volume when it is not there. */
int ctl_volume_find(
	struct ctl *ctl, struct client *client, const char *name, struct xseg_volume_info *info);
/* For what is to be made: no '@' in it, that is for snapshots. */
int ctl_volume_new_name_check(struct ctl *ctl, const char *name);
/* The only argument is VOLUME@SNAP; two, as it was once, are told how it is said now. */
int ctl_volume_snap_name_check(struct ctl *ctl, char volume[VOLUME_NAME_LENGTH_MAX + 1]);
int ctl_volume_name_check(struct ctl *ctl, const char *name);
/* --object-size, checked; unchanged when not given. */
int ctl_volume_object_size(struct ctl *ctl, uint32_t *object_size);
/* A volume of that size, in such objects (0: the largest there are): can it be? */
int ctl_volume_size_check(struct ctl *ctl, const struct xseg_volume_info *info, const char *what);
/* "volume 'disk': cannot be written: No space left on device" */
int ctl_volume_fault(struct ctl *ctl, const char *name, const char *what, int error);
const char *ctl_volume_state(uint32_t state);
json_t *ctl_volume_json(const struct xseg_volume_info *info);

/* A clone named `name`, as 'volume clone' makes it, and what is said of it (ctl_snap.c). */
int ctl_snap_clone(struct ctl *ctl, const char *source, const char *name);

struct ctl_work;
struct ctl_volume_data {
	char to[NAME_LENGTH_MAX + 1]; /* the store, or "" */
	uint64_t bandwidth;	      /* bytes a second at most; 0: no limit */
	const char *keep;	      /* a folder for copies of what goes; NULL: none */
	bool stays;		      /* a mover does, in front of both stores, in any case */
	bool only_asks;		      /* a mover that is there, whether there is room */
};
/* volume move, as a part of another job: its group's data lie in data->to then, and what was copied
   is added to *bytes. `until_ns`: as in ctl_plug.h. */
int ctl_volume_move_data(struct ctl_work *work, const char *name,
	const struct ctl_volume_data *data, uint64_t until_ns, uint64_t *bytes);

/* --keep. */
int ctl_volume_read_keep(struct ctl *ctl, const char **keep);

/* What lies in the store data->to is seen here besides what is here: a mover stands in front of
   both. *own: the store of this host; *fresh: it was not there before. */
int ctl_volume_see(struct ctl_work *work, const struct ctl_volume_data *data, uint64_t until_ns,
	char own[NAME_LENGTH_MAX + 1], bool *fresh);
/* No more, unless something has been moved. */
void ctl_volume_unsee(struct ctl_work *work, const struct ctl_volume_data *data, uint64_t until_ns);
/* Who shares objects with it, itself among them; at most MOVER_IDS_MAX. */
int ctl_volume_group(struct ctl *ctl, struct client *composer, const struct xseg_volume_info *info,
	uint64_t *ids, uint32_t *count);

extern const struct ctl_option ctl_volume_option_size, ctl_volume_option_object_size,
	ctl_volume_option_bandwidth, ctl_volume_option_keep;

#endif
