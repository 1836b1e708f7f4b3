/* SPDX-License-Identifier: Apache-2.0 */
/* peer list and edge list: what the status says of them. */
#include <stdio.h>
#include <string.h>

#include "tools/ctl/ctl_status.h"

static int list(struct ctl *ctl, const char *key, const struct ctl_column *columns, size_t count)
{
	json_t *status;
	int rc = ctl_status_ask(ctl, &status);
	if (rc)
		return rc;
	json_t *keeper = json_object_get(json_object_get(status, "keeper"), "state");
	if (ctl->format == CTL_TABLE && !strcmp(json_string_value(keeper), "away"))
		fprintf(stderr, "keeper: away\n");
	ctl_output_rows(ctl, key, json_incref(json_object_get(status, key)), columns, count);
	json_decref(status);
	return 0;
}

static int run_peer_list(struct ctl *ctl)
{
	return list(ctl, "peers", ctl_status_peers, ctl_status_peer_count);
}

const struct ctl_verb ctl_peer_list = {
	"peer",
	"list",
	"",
	0,
	0,
	"list peers",
	NULL,
	run_peer_list,
	{0},
	.examples = "xsegctl peer list -o csv\n",
};

static int run_edge_list(struct ctl *ctl)
{
	return list(ctl, "edges", ctl_status_edges, ctl_status_edge_count);
}

const struct ctl_verb ctl_edge_list = {
	"edge",
	"list",
	"",
	0,
	0,
	"list edges and where they lead",
	NULL,
	run_edge_list,
	{0},
	.examples = "xsegctl edge list\n",
};
