/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking for maps, snapshots and clones: XSEG_OP_CONTROL to the composer, see <peer/map.h>.
 *
 * Units: bytes, ns. Errors, ownership: as ctl.h; those that return an int and take no ctl: 0 or
 * -errno. Threads: one. Blocking: client->timeout_ns a request.
 */
#ifndef SKERRY_TOOLS_CTL_MAP_H
#define SKERRY_TOOLS_CTL_MAP_H

#include <base/time.h>
#include <peer/map.h>

#include "tools/ctl/ctl_volume.h"

/* Changes wait for writes on their way, and may copy; used when --timeout is not given. */
#define CTL_MAP_PATIENCE_NS (600ull * 1000000000u)

struct ctl_map_call {
	enum map_control what;
	uint64_t volume, number;   /* key.volume, arg1 */
	const struct map_ask *ask; /* or NULL */
	void *out;		   /* what is answered */
	uint32_t out_size;
	/* the answer */
	uint32_t got; /* bytes of it */
	uint64_t value;
	bool blamed; /* it failed, and trouble says whose fault it is */
	struct map_trouble trouble;
};
int ctl_map_call(struct client *client, struct ctl_map_call *call);

/* "volume 'disk' cannot be resized: host 'a' has it open since ...; ...": one sentence for each
   error, with what the answer said beside it. `call` may be NULL. */
int ctl_map_fault(struct ctl *ctl, const struct xseg_volume_info *info, const char *what, int error,
	const struct ctl_map_call *call);
/* ctl_map_call() and its fault. */
int ctl_map_do(struct ctl *ctl, struct client *client, const struct xseg_volume_info *info,
	const char *what, struct ctl_map_call *call);

/* Joins the composer, with patience, and finds the volume. On 0 the client is to be closed. */
int ctl_map_open(
	struct ctl *ctl, const char *name, struct client *client, struct xseg_volume_info *info);
/* As it is kept: cheap, unlike its detail. */
int ctl_map_head(struct client *client, uint64_t id, struct map_head_info *head);
int ctl_map_detail(struct client *client, uint64_t id, struct map_detail *detail);
uint64_t ctl_map_draw_id(void);
/* Those that a configuration made have no map. */
int ctl_map_changeable(struct ctl *ctl, const struct xseg_volume_info *info);

/* --- who hangs from whom (ctl_map_tree.c) --- */

struct ctl_map_node {
	struct xseg_volume_info info;
	uint64_t parent;
	unsigned depth;
};
struct ctl_map_nodes {
	struct ctl_map_node *all;
	size_t count;
};
/* All volumes. The caller frees nodes->all. */
int ctl_map_tree_list(struct client *client, struct ctl_map_nodes *nodes);
/* Every parent before its children, those by age; depth is set. */
void ctl_map_tree_sort(struct ctl_map_nodes *nodes);
/* "'a', 'b' and 3 more": the children of `id`; how many there are. */
size_t ctl_map_tree_children(
	const struct ctl_map_nodes *nodes, uint64_t id, char *out, size_t out_size);
/* A fault that names the children, or 0 when there are none. */
int ctl_map_tree_childless(
	struct ctl *ctl, struct client *client, const struct xseg_volume_info *info);

/* --- what differs (ctl_map_diff.c) --- */

/* Stretch after stretch, in order; not 0 from visit ends it. -errno, or what visit said. */
typedef int ctl_map_stretch_f(void *context, const struct map_stretch *stretch);
int ctl_map_diff(struct client *client, uint64_t since, uint64_t volume, ctl_map_stretch_f *visit,
	void *context);

/* --- texts --- */

void ctl_map_date(uint64_t ns, char *out, size_t out_size);
json_t *ctl_map_limits_json(const struct map_change_limits *limits);
/* JSON null when nobody has it. */
json_t *ctl_map_owner_json(const struct map_owner *owner);

#endif
