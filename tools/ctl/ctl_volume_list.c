/* SPDX-License-Identifier: Apache-2.0 */
/* volume list: as they come, or as a tree of who hangs from whom. */
#include <base/must.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ctl/ctl_map.h"

static const struct ctl_option option_tree = {
	"tree", 0, NULL, "snapshots and clones below what they come from", NULL};

static const struct ctl_column columns[] = {{"name", "NAME", CTL_TEXT}, {"type", "TYPE", CTL_TEXT},
	{"size", "SIZE", CTL_SIZE}, {"object_size", "OBJECT", CTL_SIZE},
	{"state", "STATE", CTL_TEXT}, {"opens", "OPENS", CTL_COUNT},
	{"created_ns", "CREATED", CTL_DATE}};

static const struct ctl_column tree_columns[] = {{"shown", "NAME", CTL_TEXT},
	{"type", "TYPE", CTL_TEXT}, {"size", "SIZE", CTL_SIZE}, {"state", "STATE", CTL_TEXT},
	{"protected", "PROTECTED", CTL_TEXT}, {"opens", "OPENS", CTL_COUNT},
	{"created_ns", "CREATED", CTL_DATE}};

/* A damaged one has no name; its id finds it. */
static json_t *row(const struct ctl_map_node *node)
{
	json_t *out = ctl_volume_json(&node->info);
	if (!node->info.name[0])
		json_object_set(out, "name", json_object_get(out, "id"));
	return out;
}

static const char *parent_name(const struct ctl_map_nodes *nodes, size_t i)
{
	for (size_t at = i; nodes->all[i].parent && at-- > 0;) /* it stands before it */
		if (nodes->all[at].info.id == nodes->all[i].parent)
			return nodes->all[at].info.name;
	return NULL;
}

/* For people the depth is to be seen, for programs it is a number. */
static json_t *tree_row(struct ctl *ctl, const struct ctl_map_nodes *nodes, size_t i)
{
	const struct ctl_map_node *node = &nodes->all[i];
	char shown[512];
	json_t *out = row(node);
	const char *parent = parent_name(nodes, i);
	unsigned indent = node->depth < 60 ? node->depth : 60;
	snprintf(shown, sizeof(shown), "%*s%s%s", (int)(indent ? 2 * indent - 2 : 0), "",
		indent ? "- " : "", json_string_value(json_object_get(out, "name")));
	if (ctl->format == CTL_TABLE || ctl->format == CTL_CSV)
		json_object_set_new(out, "shown", json_string(shown));
	json_object_set_new(out, "depth", json_integer(node->depth));
	json_object_set_new(out, "parent", parent ? json_string(parent) : json_null());
	return out;
}

static int list_fault(struct ctl *ctl, int error)
{
	if (error == -EINTR)
		return ctl_ask_interrupted_fault(ctl, NULL);
	return fault_set(&ctl->fault, fault_code_of_errno(error), NULL,
		error == -ETIMEDOUT ? "'xsegctl status' says who is not well" : NULL,
		"volumes cannot be listed: %s",
		error == -ETIMEDOUT ? "the composer does not answer" : strerror(-error));
}

static int run_list(struct ctl *ctl)
{
	struct ctl_map_nodes nodes;
	struct client client;
	bool tree = ctl_option_given(ctl, "tree");
	int rc = ctl_join_composer(ctl, &client);
	if (rc)
		return rc;
	int error = ctl_map_tree_list(&client, &nodes);
	client_close(&client);
	if (error) {
		free(nodes.all);
		return list_fault(ctl, error);
	}
	json_t *rows = json_array();
	if (tree)
		ctl_map_tree_sort(&nodes);
	for (size_t i = 0; i < nodes.count; i++)
		json_array_append_new(rows, tree ? tree_row(ctl, &nodes, i) : row(&nodes.all[i]));
	free(nodes.all);
	if (tree)
		ctl_output_rows(ctl, "volumes", rows, tree_columns, countof(tree_columns));
	else
		ctl_output_rows(ctl, "volumes", rows, columns, countof(columns));
	return 0;
}

const struct ctl_verb ctl_volume_list = {
	"volume",
	"list",
	"",
	0,
	0,
	"list volumes and snapshots",
	NULL,
	run_list,
	{&option_tree, &ctl_option_via},
	.examples = "xsegctl volume list --json\n"
		    "xsegctl volume list --tree\n",
};
