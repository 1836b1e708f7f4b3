/* SPDX-License-Identifier: Apache-2.0 */
/* bridge list: how the links to other segments are, out of the counters of their ends. */
#include "tools/ctl/ctl_bridge.h"

#include <stdio.h>
#include <string.h>

#include "tools/ctl/ctl_output.h"
#include "tools/report/report.h"

static const struct ctl_column list_columns[] = {{"name", "NAME", CTL_TEXT},
	{"end", "END", CTL_TEXT}, {"state", "STATE", CTL_TEXT}, {"rtt_ns", "RTT", CTL_TIME},
	{"waiting", "WAITING", CTL_COUNT}, {"sessions", "SESSIONS", CTL_COUNT},
	{"cuts", "CUTS", CTL_COUNT}, {"replays", "REPLAYS", CTL_COUNT}, {"sent", "SENT", CTL_SIZE},
	{"received", "RECEIVED", CTL_SIZE}};

static json_int_t counter(const json_t *peer, const char *name)
{
	return json_integer_value(json_object_get(json_object_get(peer, "counters"), name));
}

/* NULL: it is none. */
static json_t *row_of(const json_t *peer)
{
	const char *role = json_string_value(json_object_get(peer, "role"));
	bool imports = role && strcmp(role, "synapse_import") == 0;
	if (!imports && (!role || strcmp(role, "synapse_export")))
		return NULL;
	const char *state = counter(peer, "sessions") ? "up" : "idle";
	if (imports)
		state = counter(peer, "down") ? "down" : "up";
	json_t *row = json_pack("{s:O, s:s, s:s, s:I, s:I, s:I, s:I}", "name",
		json_object_get(peer, "name"), "end", imports ? "import" : "export", "state", state,
		"cuts", counter(peer, "cuts"), "replays", counter(peer, "replays"), "sent",
		counter(peer, "sent"), "received", counter(peer, "received"));
	if (imports) {
		json_object_set_new(row, "rtt_ns", json_integer(counter(peer, "rtt_ns")));
		json_object_set_new(row, "waiting", json_integer(counter(peer, "waiting")));
	} else {
		json_object_set_new(row, "sessions", json_integer(counter(peer, "sessions")));
	}
	return row;
}

bool ctl_bridge_is(const char *role) { return strcmp(role, "synapse_import") == 0; }

void ctl_bridge_status(const char *segment, json_t *peer)
{
	struct xseg seg;
	char why[XSEG_WHY_SIZE];
	if (xseg_segment_join(segment, &seg, why))
		return;
	json_t *stats = report_stats(&seg, json_string_value(json_object_get(peer, "name")));
	json_t *row = row_of(json_array_get(stats, 0));
	const char *state = json_string_value(json_object_get(row, "state"));
	if (state && strcmp(state, "down") == 0)
		report_set_health(peer, "degraded", "its link is down");
	json_decref(row);
	json_decref(stats);
	xseg_segment_leave(&seg);
}

static int run_list(struct ctl *ctl)
{
	struct xseg seg;
	size_t i;
	json_t *peer, *rows = json_array();
	int rc = ctl_join(ctl, &seg);
	if (rc) {
		json_decref(rows);
		return rc;
	}
	json_t *peers = report_stats(&seg, NULL);
	json_array_foreach (peers, i, peer) {
		json_t *row = row_of(peer);
		if (row)
			json_array_append_new(rows, row);
	}
	json_decref(peers);
	xseg_segment_leave(&seg);
	ctl_output_rows(ctl, "bridges", rows, list_columns, countof(list_columns));
	return 0;
}

const struct ctl_verb ctl_bridge_list = {
	"bridge",
	"list",
	"",
	0,
	0,
	"list the ends of bridges and how their links are",
	"\tAn importing end is *down* when one of its lanes has had no link for 2 s; WAITING are "
	"requests "
	"that wait for link or window, RTT the round trip. An exporting end is *idle* while "
	"nobody has come in; SESSIONS are lanes of importing peers. REPLAYS came, or went, once "
	"more after a cut.\n",
	run_list,
	{0},
	.examples = "xsegctl bridge list\n",
};
