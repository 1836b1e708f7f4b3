/* SPDX-License-Identifier: Apache-2.0 */
/* bridge add, rm, list and status: links to other segments; their state, out of counters. */
#include <base/clock.h>
#include <base/must.h>
#include <base/time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/port.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_plug.h"
#include "tools/report/report.h"

#define LOOK_NS 50000000u
#define ARGUMENT_MAX 4096u

static const struct ctl_option option_at = {
	"at", 0, "PEER:EDGE", "let this edge lead there, e.g. vol0:store", NULL};
static const struct ctl_option option_to = {
	"to", 0, "PEER", "let the edges that lead to it lead there", NULL};

static const struct ctl_column list_columns[] = {{"name", "NAME", CTL_TEXT},
	{"end", "END", CTL_TEXT}, {"state", "STATE", CTL_TEXT}, {"rtt_ns", "RTT", CTL_TIME},
	{"waiting", "WAITING", CTL_COUNT}, {"sessions", "SESSIONS", CTL_COUNT},
	{"cuts", "CUTS", CTL_COUNT}, {"replays", "REPLAYS", CTL_COUNT}, {"sent", "SENT", CTL_SIZE},
	{"received", "RECEIVED", CTL_SIZE}, {"saved", "SAVED", CTL_SIZE}};

static bool is_import(const char *role) { return strcmp(role, "synapse_import") == 0; }

/* NULL: it is none. */
static json_t *row_of(const json_t *peer)
{
	const char *role = json_string_value(json_object_get(peer, "role"));
	bool imports = role && is_import(role);
	if (!imports && (!role || strcmp(role, "synapse_export")))
		return NULL;
	const char *state = report_counter(peer, "sessions") ? "up" : "idle";
	if (imports)
		state = report_counter(peer, "down") ? "down" : "up";
	json_t *row = json_pack("{s:O, s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "name",
		json_object_get(peer, "name"), "end", imports ? "import" : "export", "state", state,
		"cuts", report_counter(peer, "cuts"), "replays", report_counter(peer, "replays"),
		"sent", report_counter(peer, "sent"), "received", report_counter(peer, "received"),
		"saved", report_counter(peer, "saved"));
	if (imports) {
		json_object_set_new(row, "rtt_ns", json_integer(report_counter(peer, "rtt_ns")));
		json_object_set_new(row, "waiting", json_integer(report_counter(peer, "waiting")));
	} else {
		json_object_set_new(
			row, "sessions", json_integer(report_counter(peer, "sessions")));
	}
	return row;
}

/* Those that are down. */
static int run(struct ctl *ctl, const char *name, size_t *down)
{
	struct xseg seg;
	size_t i;
	json_t *peer, *rows = json_array();
	int rc = ctl_join(ctl, &seg);
	if (rc) {
		json_decref(rows);
		return rc;
	}
	json_t *peers = report_stats(&seg, name);
	json_array_foreach (peers, i, peer) {
		json_t *row = row_of(peer);
		if (row && strcmp(json_string_value(json_object_get(row, "state")), "down") == 0)
			++*down;
		if (row)
			json_array_append_new(rows, row);
	}
	json_decref(peers);
	xseg_segment_leave(&seg);
	if (name && json_array_size(rows) == 0) {
		json_decref(rows);
		return fault_set(&ctl->fault, FAULT_NOT_FOUND, name,
			"'xsegctl bridge list' shows them", "'%s' is no end of a bridge", name);
	}
	ctl_output_rows(ctl, "bridges", rows, list_columns, countof(list_columns));
	return 0;
}

static int run_list(struct ctl *ctl)
{
	size_t down = 0;
	return run(ctl, NULL, &down);
}

static int run_status(struct ctl *ctl)
{
	size_t down = 0;
	int rc = run(ctl, ctl->argc ? ctl->argv[0] : NULL, &down);
	return rc ? rc : down > 0;
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
	"more after a cut; SAVED is what compression kept off the link.\n",
	run_list,
	{0},
	.examples = "xsegctl bridge list\n",
};

const struct ctl_verb ctl_bridge_status = {
	"bridge",
	"status",
	"[PEER]",
	0,
	1,
	"is the link up? of one end or of all",
	"\tAs *xsegctl bridge list*; the exit status is 1 when a link is down.\n",
	run_status,
	{0},
	.examples = "xsegctl bridge status far0 || echo down\n",
};

/* --- add ------------------------------------------------------------------------------------ */

/* The link has been up, since the peer runs. */
static bool is_reached(const struct ctl_plug *plug)
{
	json_t *stats = report_stats(&plug->seg, plug->name);
	const json_t *peer = json_array_get(stats, 0);
	bool reached = report_counter(peer, "connects") > 0 && report_counter(peer, "down") == 0;
	json_decref(stats);
	return reached;
}

static int ask(struct ctl_plug *plug, const char *method, const char *peer)
{
	json_t *result = NULL;
	int rc = ctl_plug_ask(plug, method,
		json_pack("{s:s, s:I}", "peer", peer, "timeout_ns",
			(json_int_t)plug->ctl->timeout_ns),
		&result);
	json_decref(result);
	return rc;
}

static int forget(struct ctl_plug *plug)
{
	json_t *result = NULL;
	int rc = ask(plug, "peer.stop", plug->name);
	rc = rc ? rc
		: ctl_plug_ask(
			  plug, "peer.forget", json_pack("{s:s}", "peer", plug->name), &result);
	json_decref(result);
	return rc;
}

static int wait_reached(struct ctl_plug *plug, const char *address)
{
	uint64_t end_ns = clock_now_ns() + plug->ctl->timeout_ns;
	while (!is_reached(plug)) {
		if (ctl_ask_interrupted())
			return ctl_ask_interrupted_fault(plug->ctl, plug->name);
		if (clock_now_ns() > end_ns)
			return fault_set(&plug->ctl->fault, FAULT_TIMEOUT, plug->name,
				"the log of its process says why; --timeout sets the limit",
				"'%s' is not reached", address);
		time_nap(LOOK_NS);
	}
	return 0;
}

static int start(struct ctl_plug *plug)
{
	struct ctl *ctl = plug->ctl;
	char argument[ARGUMENT_MAX];
	size_t used = (size_t)snprintf(argument, sizeof(argument), "%s=synapse_import,remote=%s",
		plug->name, ctl->argv[1]);
	for (int i = 2; i < ctl->argc && used < sizeof(argument); i++)
		used += (size_t)snprintf(
			argument + used, sizeof(argument) - used, ",%s", ctl->argv[i]);
	if (used >= sizeof(argument))
		return fault_set(&ctl->fault, FAULT_USAGE, plug->name, NULL, "that is too long");
	int rc = ask(plug, "peer.start", argument);
	return rc ? rc : wait_reached(plug, ctl->argv[1]);
}

/* "key=value" lines become ",key=value". */
static void put_options(FILE *out, const char *lines)
{
	putc(',', out);
	for (; *lines && lines[1]; lines++) {
		if (strchr(",\\", *lines))
			putc('\\', out);
		putc(*lines == '\n' ? ',' : *lines, out);
	}
}

int ctl_bridge_to(struct ctl_plug *plug, const struct ctl_uri *uri)
{
	char *lines = NULL, *argument = NULL;
	size_t size = 0;
	struct xseg_peer_view view;
	if (!xseg_peer_find(&plug->seg, plug->name, &view) && view.life != XSEG_LIFE_DEAD)
		return wait_reached(plug, uri->remote);
	FILE *out = open_memstream(&lines, &size);
	must(out);
	ctl_uri_link(plug->ctl, uri, out);
	must(fclose(out) == 0);
	out = open_memstream(&argument, &size);
	must(out);
	fprintf(out, "%s=synapse_import", plug->name);
	put_options(out, lines);
	must(fclose(out) == 0);
	int rc = ask(plug, "peer.start", argument);
	free(lines);
	free(argument);
	if (rc)
		return rc;
	rc = wait_reached(plug, uri->remote);
	if (rc) {
		const struct fault first = plug->ctl->fault;
		forget(plug);
		plug->ctl->fault = first;
	}
	return rc;
}

/* --at names an edge that there is; "": none. */
static int read_at(struct ctl_plug *plug)
{
	const char *at = ctl_option_value(plug->ctl, "at");
	char to[NAME_LENGTH_MAX + 1];
	if (!at)
		return 0;
	if (strlen(at) > XSEG_EDGE_NAME_MAX || xseg_edge_target(&plug->seg, at, to))
		return fault_set(&plug->ctl->fault, FAULT_NOT_FOUND, at,
			"'xsegctl edge list' shows them", "there is no edge '%s'", at);
	snprintf(plug->edges[0], sizeof(plug->edges[0]), "%.*s", XSEG_EDGE_NAME_MAX, at);
	plug->edge_count = 1;
	return 0;
}

/* Whoever is above says which volumes it has: the store may not know. */
static int lead(struct ctl_plug *plug, const char *to)
{
	bool changed;
	int rc = plug->edge_count ? ctl_plug_switch(plug, to, &changed) : 0;
	return rc ? rc : ctl_plug_refence(plug);
}

/* --dry-run */
static void show_plan(const struct ctl_plug *plug, const char *what, bool first)
{
	static const struct ctl_column columns[] = {{"action", "ACTION", CTL_TEXT},
		{"object", "OBJECT", CTL_TEXT}, {"state", "STATE", CTL_TEXT}};
	json_t *rows = json_array();
	json_t *end = json_pack(
		"{s:s, s:s, s:s}", "action", what, "object", plug->name, "state", "planned");
	if (first)
		json_array_append(rows, end);
	for (unsigned i = 0; i < plug->edge_count; i++)
		json_array_append_new(rows, json_pack("{s:s, s:s, s:s}", "action", "switch",
						    "object", plug->edges[i], "state", "planned"));
	if (!first)
		json_array_append(rows, end);
	json_decref(end);
	ctl_output_rows(plug->ctl, "steps", rows, columns, countof(columns));
}

static int run_add(struct ctl *ctl)
{
	static const struct ctl_column columns[] = {{"name", "name", CTL_TEXT},
		{"remote", "remote", CTL_TEXT}, {"at", "edge", CTL_TEXT},
		{"changed", "changed", CTL_TEXT}};
	struct ctl_plug plug = {.ctl = ctl};
	struct xseg_peer_view view;
	const char *at = ctl_option_value(ctl, "at");
	if (!name_check(ctl->argv[0]))
		return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[0], NULL,
			"'%s' is no name of a peer", ctl->argv[0]);
	snprintf(plug.name, sizeof(plug.name), "%.*s", NAME_LENGTH_MAX, ctl->argv[0]);
	int rc = ctl_join(ctl, &plug.seg);
	if (rc)
		return rc;
	ctl_ask_interrupt_catch();
	bool plan = ctl_option_given(ctl, "dry-run");
	bool known = !xseg_peer_find(&plug.seg, plug.name, &view) && view.life != XSEG_LIFE_DEAD;
	rc = known ? fault_set(&ctl->fault, FAULT_CONFLICT, plug.name,
			     "take another name, or 'xsegctl edge set' to use what is there",
			     "there is a peer '%s' already", plug.name)
		   : read_at(&plug);
	if (!rc && !plan) {
		rc = start(&plug);
		rc = rc ? rc : lead(&plug, plug.name);
		if (rc) {
			struct fault first = ctl->fault;
			forget(&plug);
			ctl->fault = first;
		}
	}
	xseg_segment_leave(&plug.seg);
	if (!rc && plan)
		show_plan(&plug, "start", true);
	else if (!rc)
		ctl_output_one(ctl,
			json_pack("{s:s, s:s, s:s, s:b}", "name", plug.name, "remote", ctl->argv[1],
				"at", at ? at : "", "changed", 1),
			columns, countof(columns));
	return rc;
}

const struct ctl_verb ctl_bridge_add = {
	"bridge",
	"add",
	"NAME ADDRESS [key=value...]",
	2,
	60,
	"make a port of another segment a peer of this one",
	"\tStarts a *skerry-role-synapse_import*(7) called NAME, in a process of its own, that "
	"reaches "
	"the exporting end at ADDRESS (*tcp:HOST:PORT* or *unix:PATH*), and returns when it does. "
	"With "
	"*--at* the edge leads there from then on; what is there must be the same store, or a "
	"cache "
	"of it.\n",
	run_add,
	{&option_at, &ctl_option_dry_run},
	.examples =
		"xsegctl bridge add far0 tcp:store1.example.net:7070 tls-ca=ca.crt tls-cert=a.crt "
		"tls-key=a.key\n"
		"xsegctl bridge add far0 unix:/run/out0.sock --at vol0:store\n",
};

/* --- rm ------------------------------------------------------------------------------------- */

static int run_rm(struct ctl *ctl)
{
	static const struct ctl_column columns[] = {
		{"name", "name", CTL_TEXT}, {"changed", "changed", CTL_TEXT}};
	struct ctl_plug plug = {.ctl = ctl};
	struct xseg_peer_view view;
	const char *to = ctl_option_value(ctl, "to");
	bool plan = ctl_option_given(ctl, "dry-run");
	int rc = ctl_join(ctl, &plug.seg);
	if (rc)
		return rc;
	snprintf(plug.name, sizeof(plug.name), "%.*s", NAME_LENGTH_MAX, ctl->argv[0]);
	ctl_plug_edges(&plug);
	if (xseg_peer_find(&plug.seg, plug.name, &view) || !is_import(view.role))
		rc = fault_set(&ctl->fault, FAULT_NOT_FOUND, plug.name,
			"'xsegctl bridge list' shows them", "'%s' is no importing end of a bridge",
			plug.name);
	else if (plug.edge_count && !to)
		rc = fault_set(&ctl->fault, FAULT_BUSY, plug.name,
			"--to PEER says where it shall lead", "the edge '%s' leads to '%s'",
			plug.edges[0], plug.name);
	if (!rc && !plan) {
		rc = lead(&plug, to);
		rc = rc ? rc : ctl_settle_turns(&plug);
		rc = rc ? rc : forget(&plug);
	}
	xseg_segment_leave(&plug.seg);
	if (!rc && plan)
		show_plan(&plug, "stop", false);
	else if (!rc)
		ctl_output_one(ctl, json_pack("{s:s, s:b}", "name", plug.name, "changed", 1),
			columns, countof(columns));
	return rc;
}

const struct ctl_verb ctl_bridge_rm = {
	"bridge",
	"rm",
	"NAME",
	1,
	1,
	"end a bridge at its importing end",
	"\tRefused while an edge leads to it, unless *--to* says where that shall lead. What is on "
	"its "
	"way is answered first.\n",
	run_rm,
	{&option_to, &ctl_option_dry_run},
	.examples = "xsegctl bridge rm far0 --to file0\n",
};
