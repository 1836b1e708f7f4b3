/* SPDX-License-Identifier: Apache-2.0 */
/* status: who serves, who does not and why; asked of the keeper, or read from the segment. */
#include "tools/ctl/ctl_status.h"

#include <base/must.h>
#include <base/size.h>
#include <stdio.h>
#include <string.h>

#include "tools/ctl/ctl_cache.h"
#include "tools/ctl/ctl_front.h"
#include "tools/ctl/ctl_rpc.h"
#include "tools/report/report.h"

const struct ctl_column ctl_status_peers[] = {
	{"name", "PEER", CTL_TEXT},
	{"role", "ROLE", CTL_TEXT},
	{"pid", "PID", CTL_COUNT},
	{"state", "STATE", CTL_TEXT},
	{"lanes", "LANES", CTL_COUNT},
	{"inflight", "IN FLIGHT", CTL_COUNT},
	{"health", "HEALTH", CTL_TEXT},
	{"reason", "REASON", CTL_TEXT},
};
const size_t ctl_status_peer_count = countof(ctl_status_peers);

const struct ctl_column ctl_status_edges[] = {
	{"name", "EDGE", CTL_TEXT},
	{"to", "LEADS TO", CTL_TEXT},
	{"generation", "GENERATION", CTL_COUNT},
	{"state", "STATE", CTL_TEXT},
};
const size_t ctl_status_edge_count = countof(ctl_status_edges);

static long long number(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
	const char *value = json_string_value(json_object_get(object, key));
	return value ? value : "";
}

/* Roles with a counter that says whether something they need is away. */
static const struct {
	const char *role, *counter, *reason;
} needs[] = {
	{"synapse_import", "down", "its link is down"},
	{"tier", "off",
		"its near store has failed: all goes to the far one until both are restarted"},
};

static void look_at_counter(const char *segment, json_t *peer, size_t which)
{
	struct xseg seg;
	char why[XSEG_WHY_SIZE];
	if (xseg_segment_join(segment, &seg, why))
		return;
	json_t *stats = report_stats(&seg, text(peer, "name"));
	if (report_counter(json_array_get(stats, 0), needs[which].counter))
		report_set_health(peer, "degraded", needs[which].reason);
	json_decref(stats);
	xseg_segment_leave(&seg);
}

/* What only they themselves know, of those that seem to be well. */
static void ask_peer(struct ctl *ctl, const char *segment, json_t *peer)
{
	const char *role = text(peer, "role");
	if (strcmp(text(peer, "state"), "serving") != 0 || strcmp(text(peer, "health"), "ok") != 0)
		return;
	if (!strcmp(role, CTL_CACHE_ROLE))
		ctl_cache_ask_status(ctl, segment, peer);
	else if (ctl_front_is(role))
		ctl_front_status(segment, peer);
	for (size_t i = 0; i < countof(needs); i++)
		if (strcmp(role, needs[i].role) == 0)
			look_at_counter(segment, peer, i);
}

static void ask_peers(struct ctl *ctl, json_t *status)
{
	const char *segment = text(json_object_get(status, "segment"), "name");
	json_t *peer;
	size_t i;
	json_array_foreach (json_object_get(status, "peers"), i, peer) {
		ask_peer(ctl, segment, peer);
		if (strcmp(text(peer, "health"), "ok") != 0)
			json_object_set_new(status, "healthy", json_false());
	}
}

int ctl_status_ask(struct ctl *ctl, json_t **status)
{
	char name[NAME_LENGTH_MAX + 1];
	struct xseg seg;
	int rc = ctl_join_segment_name(ctl, name);
	if (rc)
		return rc;
	rc = ctl_rpc_call(ctl, name, "status", NULL, status);
	if (!rc)
		ask_peers(ctl, *status);
	if (rc != -FAULT_KEEPER_AWAY)
		return rc;
	rc = ctl_join(ctl, &seg);
	if (rc)
		return rc;
	*status = report_status(&seg, json_pack("{s:s}", "state", "away"), report_peers(&seg));
	xseg_segment_leave(&seg);
	ask_peers(ctl, *status);
	memset(&ctl->fault, 0, sizeof(ctl->fault));
	return 0;
}

static void print_head(const json_t *status)
{
	const json_t *segment = json_object_get(status, "segment");
	const json_t *keeper = json_object_get(status, "keeper");
	const json_t *pages = json_object_get(segment, "pages");
	const json_t *requests = json_object_get(segment, "requests");
	char size[32];
	printf("segment %s: %s, pages %lld of %lld free, requests %lld of %lld free\n",
		text(segment, "name"),
		size_format((uint64_t)number(segment, "size"), size, sizeof(size)),
		number(pages, "free"), number(pages, "total"), number(requests, "free"),
		number(requests, "total"));
	if (number(keeper, "pid"))
		printf("keeper: %s (pid %lld), pipeline %s\n", text(keeper, "state"),
			number(keeper, "pid"), text(keeper, "pipeline"));
	else
		printf("keeper: %s\n", text(keeper, "state"));
}

int ctl_status_print(const struct ctl *ctl, json_t *status)
{
	bool healthy = json_is_true(json_object_get(status, "healthy"));
	const json_t *peers = json_object_get(status, "peers");
	if (ctl_output_is_json(ctl)) {
		ctl_output_json(ctl, status);
		return healthy ? 0 : 1;
	}
	if (ctl->format == CTL_TABLE) {
		print_head(status);
		putchar('\n');
	}
	ctl_output_table(ctl, peers, ctl_status_peers, ctl_status_peer_count);
	if (ctl->format == CTL_TABLE && json_array_size(json_object_get(status, "edges"))) {
		putchar('\n');
		ctl_output_table(ctl, json_object_get(status, "edges"), ctl_status_edges,
			ctl_status_edge_count);
	}
	json_decref(status);
	return healthy ? 0 : 1;
}

static int run_status(struct ctl *ctl)
{
	json_t *status;
	if (ctl->argc)
		ctl->segment = ctl->argv[0];
	int rc = ctl_status_ask(ctl, &status);
	return rc ? rc : ctl_status_print(ctl, status);
}

const struct ctl_verb ctl_status_verb = {
	"status",
	NULL,
	"[SEGMENT]",
	0,
	1,
	"who serves, and who does not and why",
	"\tExit status 0 when all is well, 1 when something is not. Without a keeper the segment "
	"itself is read.\n",
	run_status,
	{0},
	.examples = "xsegctl status demo\n",
};
