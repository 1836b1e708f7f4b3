/* SPDX-License-Identifier: Apache-2.0 */
/* peer start, stop and list, edge set and list: the pipeline, changed while it runs. */
#include <base/must.h>
#include <stdio.h>
#include <string.h>

#include "tools/ctl_rpc.h"
#include "tools/ctl_status.h"

static const struct ctl_option option_lanes = {
	"lanes", 0, "N", "threads of its process (default 1)", NULL};
static const struct ctl_option option_host = {
	"host", 0, NULL, "stop every peer of its process", NULL};

static const struct ctl_column done_columns[] = {{"name", "name", CTL_TEXT},
	{"role", "role", CTL_TEXT}, {"pid", "pid", CTL_COUNT}, {"state", "state", CTL_TEXT},
	{"changed", "changed", CTL_TEXT}};

static json_t *timeout_of(const struct ctl *ctl)
{
	return json_integer((json_int_t)ctl->timeout_ns);
}

/* The keeper gives up in time; we wait a little longer, for its reason. */
static int call_keeper(struct ctl *ctl, const char *method, json_t *params, json_t **result)
{
	char name[NAME_LENGTH_MAX + 1];
	int rc = ctl_segment_name(ctl, name);
	if (rc) {
		json_decref(params);
		return rc;
	}
	ctl->timeout_ns += 5000000000u;
	ctl_interrupt_catch();
	return ctl_rpc_call(ctl, name, method, params, result);
}

/* --- peer start ------------------------------------------------------------------------- */

static int run_start(struct ctl *ctl)
{
	json_t *result, *params = json_pack(
				"{s:s, s:o}", "peer", ctl->argv[0], "timeout_ns", timeout_of(ctl));
	uint64_t lanes = 0;
	int rc = ctl_value_count(ctl, "lanes", XSEG_PORT_LANES_MAX, &lanes);
	if (rc) {
		json_decref(params);
		return rc;
	}
	if (lanes)
		json_object_set_new(params, "lanes", json_integer((json_int_t)lanes));
	rc = call_keeper(ctl, "peer.start", params, &result);
	if (!rc)
		ctl_output_one(ctl, result, done_columns, countof(done_columns));
	return rc;
}

const struct ctl_verb ctl_peer_start = {"peer", "start", "NAME[=ROLE,key=value,...]", 1, 1,
	"start a peer in a process of its own",
	"\tWith a role: a new peer; edges are options, edge.X=PEER; a comma in a value is written "
	"\\\\,. Without: one of the pipeline that has died or was stopped. Returns when it "
	"serves.\n",
	run_start, {&option_lanes}};

/* --- peer stop -------------------------------------------------------------------------- */

static int run_stop(struct ctl *ctl)
{
	json_t *result;
	json_t *params = json_pack("{s:s, s:b, s:b, s:o}", "peer", ctl->argv[0], "host",
		ctl_given(ctl, "host"), "dry_run", ctl_given(ctl, "dry-run"), "timeout_ns",
		timeout_of(ctl));
	int rc = call_keeper(ctl, "peer.stop", params, &result);
	if (!rc)
		ctl_output_one(ctl, result, done_columns, countof(done_columns));
	return rc;
}

const struct ctl_verb ctl_peer_stop = {"peer", "stop", "NAME", 1, 1,
	"drain a peer and end its process",
	"\tRefuses while an edge of a serving peer leads to it, or while it shares its process "
	"with others (see --host), and says which.\n",
	run_stop, {&option_host, &ctl_option_dry_run}};

/* --- lists ------------------------------------------------------------------------------ */

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
	"peer", "list", "", 0, 0, "list peers", NULL, run_peer_list, {0}};

static int run_edge_list(struct ctl *ctl)
{
	return list(ctl, "edges", ctl_status_edges, ctl_status_edge_count);
}

const struct ctl_verb ctl_edge_list = {
	"edge", "list", "", 0, 0, "list edges and where they lead", NULL, run_edge_list, {0}};

/* --- edge set --------------------------------------------------------------------------- */

static int run_edge_set(struct ctl *ctl)
{
	static const struct ctl_column columns[] = {{"name", "edge", CTL_TEXT},
		{"from", "led to", CTL_TEXT}, {"to", "leads to", CTL_TEXT},
		{"generation", "generation", CTL_COUNT}, {"changed", "changed", CTL_TEXT}};
	json_t *result;
	json_t *params = json_pack("{s:s, s:s}", "edge", ctl->argv[0], "to", ctl->argv[1]);
	int rc = call_keeper(ctl, "edge.set", params, &result);
	if (!rc)
		ctl_output_one(ctl, result, columns, countof(columns));
	return rc;
}

const struct ctl_verb ctl_edge_set = {"edge", "set", "PEER:EDGE PEER", 2, 2,
	"let an edge lead to another peer",
	"\tTakes effect with the next request; those in flight end where they went. The new peer "
	"must serve, and must not lead back.\n",
	run_edge_set, {0}};
