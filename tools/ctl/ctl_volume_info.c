/* SPDX-License-Identifier: Apache-2.0 */
/* volume info: all that is known of one volume, and what its snapshots take. */
#include <base/must.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ctl/ctl_map.h"

static const struct ctl_column columns[] = {
	{"name", "name", CTL_TEXT},
	{"type", "type", CTL_TEXT},
	{"id", "id", CTL_TEXT},
	{"size", "size", CTL_SIZE},
	{"object_size", "object size", CTL_SIZE},
	{"objects", "objects", CTL_COUNT},
	{"state", "state", CTL_TEXT},
	{"opens", "opens", CTL_COUNT},
	{"read_only", "read-only", CTL_TEXT},
	{"fixed", "fixed", CTL_TEXT},
	{"protected", "protected", CTL_TEXT},
	{"created_ns", "created", CTL_DATE},
	/* of its map */
	{"parent", "parent", CTL_TEXT},
	{"allocated", "space taken", CTL_SIZE},
	{"own", "own data", CTL_SIZE},
	{"shared", "shared data", CTL_SIZE},
	{"children", "children", CTL_COUNT},
	{"children_names", "named", CTL_TEXT},
	{"home.host", "written by", CTL_TEXT},
	{"home.since_ns", "since", CTL_DATE},
	{"limits.iops", "limit: requests a second", CTL_COUNT},
	{"limits.bandwidth", "limit: bytes a second", CTL_SIZE},
	{"limits.burst_ns", "limit: burst", CTL_TIME},
};
#define WITHOUT_MAP 12u

static const struct ctl_column snapshot_columns[] = {{"name", "SNAPSHOT", CTL_TEXT},
	{"size", "SIZE", CTL_SIZE}, {"written", "WRITTEN SINCE THE ONE BEFORE", CTL_SIZE},
	{"created_ns", "CREATED", CTL_DATE}};

struct info {
	struct ctl *ctl;
	struct client client;
	struct xseg_volume_info volume;
	struct map_detail detail;
	struct ctl_map_nodes nodes;
};

/* --- snapshots -------------------------------------------------------------------------- */

static int sum_add(void *context, const struct map_stretch *stretch)
{
	uint64_t *sum = context;
	*sum += stretch->flags & XSEG_STATUS_ZERO ? 0 : stretch->length;
	return 0;
}

/* The first one has all that the volume had. */
static int written(struct info *info, uint64_t before, uint64_t id, uint64_t *sum)
{
	struct map_detail detail;
	*sum = 0;
	if (before)
		return ctl_map_diff(&info->client, before, id, sum_add, sum);
	int rc = ctl_map_detail(&info->client, id, &detail);
	*sum = rc ? 0 : detail.objects * detail.object_size;
	return rc;
}

static int snapshot_add(
	struct info *info, json_t *rows, const struct xseg_volume_info *snapshot, uint64_t before)
{
	uint64_t sum;
	int rc = written(info, before, snapshot->id, &sum);
	if (rc)
		return rc == -ENOENT ? 0 : rc; /* it has gone meanwhile */
	json_array_append_new(
		rows, json_pack("{s:s, s:I, s:I, s:b, s:I}", "name", snapshot->name, "size",
			      (json_int_t)snapshot->size, "written", (json_int_t)sum, "protected",
			      (snapshot->flags & XSEG_VOLUME_PROTECTED) != 0, "created_ns",
			      (json_int_t)snapshot->created_ns));
	return 0;
}

/* By age. ctl_map_tree_sort() has put those of one parent in that order. */
static int snapshots(struct info *info, json_t *rows)
{
	uint64_t before = 0;
	int rc = 0;
	ctl_map_tree_sort(&info->nodes);
	for (size_t i = 0; !rc && i < info->nodes.count; i++) {
		const struct ctl_map_node *node = &info->nodes.all[i];
		if (node->parent != info->volume.id || !(node->info.flags & XSEG_VOLUME_SNAPSHOT))
			continue;
		rc = snapshot_add(info, rows, &node->info, before);
		before = node->info.id;
	}
	return rc;
}

/* --- one volume ------------------------------------------------------------------------- */

static void detail_add(const struct map_detail *detail, json_t *out)
{
	json_object_update_new(out,
		json_pack("{s:s?, s:I, s:I, s:I, s:I, s:o, s:o, s:I, s:I}", "parent",
			detail->parent ? detail->parent_name : NULL, "objects",
			(json_int_t)detail->objects, "allocated", (json_int_t)detail->allocated,
			"own", (json_int_t)(detail->own * detail->object_size), "shared",
			(json_int_t)(detail->shared * detail->object_size), "home",
			ctl_map_owner_json(&detail->home), "limits",
			ctl_map_limits_json(&detail->limits), "children",
			(json_int_t)detail->children, "generation",
			(json_int_t)detail->generation));
}

static int children_add(struct info *info, json_t *out, json_t *rows)
{
	char names[512] = "";
	int rc = 0;
	if (info->detail.children)
		rc = ctl_map_tree_list(&info->client, &info->nodes);
	if (!rc && info->detail.children)
		rc = snapshots(info, rows);
	ctl_map_tree_children(&info->nodes, info->volume.id, names, sizeof(names));
	if (names[0])
		json_object_set_new(out, "children_names", json_string(names));
	return rc;
}

/* Those without a map have no more to say. */
static int map_add(struct info *info, json_t *out, json_t *rows, size_t *count)
{
	struct ctl *ctl = info->ctl;
	bool configured = info->volume.flags & XSEG_VOLUME_FIXED;
	int rc = configured ? -EOPNOTSUPP
			    : ctl_map_detail(&info->client, info->volume.id, &info->detail);
	if (rc == -EOPNOTSUPP)
		return 0;
	*count = countof(columns);
	if (!rc)
		detail_add(&info->detail, out);
	if (!rc)
		rc = children_add(info, out, rows);
	free(info->nodes.all);
	return rc ? ctl_map_fault(ctl, &info->volume, "cannot be asked", rc, NULL) : 0;
}

static int show(struct info *info)
{
	struct ctl *ctl = info->ctl;
	size_t count = WITHOUT_MAP;
	json_t *out = ctl_volume_json(&info->volume), *rows = json_array();
	int rc = map_add(info, out, rows, &count);
	if (rc) {
		json_decref(out);
		json_decref(rows);
		return rc;
	}
	if (ctl_output_is_json(ctl)) {
		json_object_set_new(out, "snapshots", rows);
		ctl_output_json(ctl, ctl_output_versioned(out));
		return 0;
	}
	ctl_output_lines(ctl, out, columns, count);
	json_decref(out);
	if (ctl->format == CTL_TABLE && json_array_size(rows)) {
		putchar('\n');
		ctl_output_table(ctl, rows, snapshot_columns, countof(snapshot_columns));
	}
	json_decref(rows);
	return 0;
}

static int run_info(struct ctl *ctl)
{
	struct info info = {.ctl = ctl};
	int rc = ctl_map_open(ctl, ctl->argv[0], &info.client, &info.volume);
	if (rc)
		return rc;
	rc = show(&info);
	client_close(&info.client);
	return rc;
}

const struct ctl_verb ctl_volume_info = {
	"volume",
	"info",
	"NAME",
	1,
	1,
	"show one volume",
	"\tSpace taken is what the store has given to objects of its own. Own data are those that "
	"no "
	"snapshot or clone shares; shared data come from its parents, or are kept by its "
	"snapshots. "
	"For each snapshot: what was written between the one before and it.\n",
	run_info,
	{&ctl_option_via},
	.examples = "xsegctl volume info disk\n",
};
