/* SPDX-License-Identifier: Apache-2.0 */
/* rehome status and rehome cancel: what a re-homer says of the volumes it has seen. */
#include <peer/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/port.h>

#include "tools/ctl/ctl_map.h"
#include "tools/ctl/ctl_rehome.h"
#include "tools/ctl/ctl_volume.h"

#define LIST_MAX 512u
#define NAMES_NS 1000000000u /* a composer that stands still has no names to say */

static const struct ctl_column status_columns[] = {{"name", "NAME", CTL_TEXT},
	{"volume", "VOLUME", CTL_TEXT}, {"state", "STATE", CTL_TEXT}, {"to", "TO", CTL_TEXT},
	{"rounds", "ROUNDS", CTL_COUNT}, {"rest", "REST", CTL_SIZE},
	{"dirty_rate", "DIRTIED/S", CTL_SIZE}, {"limit", "LIMIT/S", CTL_SIZE},
	{"expected_ns", "EXPECTED", CTL_TIME}, {"pause_ns", "PAUSE", CTL_TIME},
	{"waiting", "WAITING", CTL_COUNT}, {"moves", "MOVES", CTL_COUNT},
	{"error", "ERROR", CTL_TEXT}};

struct rehomer {
	char segment[NAME_LENGTH_MAX + 1], name[NAME_LENGTH_MAX + 1];
	char to[REHOME_EDGES][NAME_LENGTH_MAX + 1]; /* where its edges to other hosts lead, or "" */
	bool silent[REHOME_EDGES];		    /* who is there has not answered */
};

/* As our composer knows it; it may not be ours to read. */
static const char *name_of(const struct ctl_map_nodes *nodes, uint64_t id)
{
	for (size_t i = 0; i < nodes->count; i++)
		if (nodes->all[i].info.id == id)
			return nodes->all[i].info.name;
	return NULL;
}

/* It is in a store of the other host's alone, as that one knows it. */
static const char *name_there(
	struct rehomer *rehomer, uint32_t edge, uint64_t id, struct xseg_volume_info *info)
{
	struct client there;
	char why[XSEG_WHY_SIZE];
	if (rehomer->silent[edge] ||
		client_open(&there, rehomer->segment, rehomer->to[edge], why) != 0)
		return NULL;
	there.timeout_ns = NAMES_NS;
	*info = (struct xseg_volume_info){.id = id};
	int error = ctl_volume_ask(&there, XSEG_OP_INFO, info);
	rehomer->silent[edge] = error == -ETIMEDOUT;
	client_close(&there);
	return error ? NULL : info->name;
}

/* All 0 of one that does not move. */
static struct rehome_progress progress_of(
	const struct ctl *ctl, const struct rehomer *rehomer, const struct rehome_info *info)
{
	struct rehome_progress progress = {0};
	struct client_control call = {.what = REHOME_PROGRESS,
		.volume = info->volume,
		.answer_at = REHOME_ANSWER_AT,
		.out = &progress,
		.out_size = sizeof(progress)};
	bool moves = info->state >= REHOME_EXPORT && info->state <= REHOME_COMMITTING;
	if (moves)
		client_control_once(rehomer->segment, rehomer->name, ctl->timeout_ns, &call);
	return progress;
}

static json_t *row_of(const struct ctl *ctl, const struct ctl_map_nodes *nodes,
	const struct rehome_info *info, struct rehomer *rehomer)
{
	char volume[24];
	struct rehome_progress progress = progress_of(ctl, rehomer, info);
	snprintf(volume, sizeof(volume), "%016llx", (unsigned long long)info->volume);
	bool leads = info->edge > 0 && info->edge <= REHOME_EDGES;
	const char *to = leads ? rehomer->to[info->edge - 1] : "";
	const char *name = name_of(nodes, info->volume);
	struct xseg_volume_info there;
	if (!name && info->state == REHOME_AWAY && to[0])
		name = name_there(rehomer, info->edge - 1, info->volume, &there);
	return json_pack("{s:s?, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
			 "s:s}",
		"name", name, "volume", volume, "state", rehome_state_name(info->state), "to", to,
		"rounds", (json_int_t)info->rounds, "round_ns", (json_int_t)info->round_ns, "rest",
		(json_int_t)progress.rest, "dirty_rate", (json_int_t)progress.dirty_rate,
		"bandwidth", (json_int_t)progress.bandwidth, "limit", (json_int_t)progress.limit,
		"expected_ns", (json_int_t)progress.expected_ns, "pause_ns",
		(json_int_t)info->pause_ns, "waiting", (json_int_t)info->waiting, "moves",
		(json_int_t)info->moves, "error", info->error ? strerror(-info->error) : "");
}

/* None where the composer does not answer. */
static struct ctl_map_nodes names_of(struct ctl *ctl)
{
	struct ctl_map_nodes nodes = {0};
	struct client composer;
	if (ctl_join_composer(ctl, &composer) != 0)
		return nodes;
	if (composer.timeout_ns > NAMES_NS)
		composer.timeout_ns = NAMES_NS;
	if (ctl_map_tree_list(&composer, &nodes) != 0)
		nodes.count = 0;
	client_close(&composer);
	return nodes;
}

static int open_rehomer(struct ctl *ctl, struct rehomer *out)
{
	struct ctl_plug plug = {.ctl = ctl};
	char edge[2 * NAME_LENGTH_MAX + 16];
	int rc = ctl_join(ctl, &plug.seg);
	if (rc)
		return rc;
	*out = (struct rehomer){0};
	snprintf(out->segment, sizeof(out->segment), "%s", plug.seg.name);
	rc = ctl_rehome_find(&plug, NULL);
	snprintf(out->name, sizeof(out->name), "%s", plug.name);
	for (unsigned i = 0; i < REHOME_EDGES; i++) {
		snprintf(edge, sizeof(edge), "%s:%s", out->name, rehome_edge_name(i));
		if (xseg_edge_target(&plug.seg, edge, out->to[i]))
			out->to[i][0] = 0;
	}
	xseg_segment_leave(&plug.seg);
	return rc || out->name[0] ? rc
				  : fault_set(&ctl->fault, FAULT_NOT_FOUND, out->segment,
					    "'xsegctl rehome VOLUME --to PEER' starts one",
					    "segment '%s' has no re-homer", out->segment);
}

static int run_status(struct ctl *ctl)
{
	static struct rehome_info infos[LIST_MAX];
	struct rehomer rehomer;
	int rc = open_rehomer(ctl, &rehomer);
	struct ctl_map_nodes nodes = rc ? (struct ctl_map_nodes){0} : names_of(ctl);
	json_t *rows = json_array();
	struct client_control call = {.what = REHOME_STATE,
		.answer_at = REHOME_ANSWER_AT,
		.out = infos,
		.out_size = sizeof(infos)};
	while (!rc) {
		int error =
			client_control_once(rehomer.segment, rehomer.name, ctl->timeout_ns, &call);
		if (error)
			rc = fault_set(&ctl->fault, fault_code_of_errno(error), rehomer.name, NULL,
				"'%s': %s", rehomer.name, strerror(-error));
		for (uint32_t i = 0; !error && i < call.got / sizeof(*infos); i++)
			json_array_append_new(rows, row_of(ctl, &nodes, &infos[i], &rehomer));
		call.number = call.value;
		if (error || call.value == 0)
			break;
	}
	if (rc)
		json_decref(rows);
	else
		ctl_output_rows(ctl, "volumes", rows, status_columns, countof(status_columns));
	free(nodes.all);
	return rc;
}

const struct ctl_verb ctl_rehome_status = {
	"rehome",
	"status",
	"",
	0,
	0,
	"where volumes are, and how moves get on",
	"\tOf all that the re-homer has seen. STATE: *home* here; *export* being written back: "
	"REST "
	"is left, DIRTIED/S comes anew each second, LIMIT/S is what writers are slowed down to, "
	"EXPECTED how long requests would wait now; *draining* and *flushing*: all but reads do; "
	"*frozen* and *committing*: all do; *away* at "
	"the host behind the bridge TO. PAUSE is how long requests waited at the last move, ERROR "
	"why it stayed.\n",
	run_status,
	{0},
	.examples = "xsegctl rehome status --json\n",
};

static int run_cancel(struct ctl *ctl)
{
	static const struct ctl_column cancelled[] = {{"name", "name", CTL_TEXT},
		{"state", "state", CTL_TEXT}, {"dry_run", "dry run", CTL_TEXT}};
	struct rehomer rehomer;
	struct client composer;
	struct xseg_volume_info info;
	struct rehome_info state = {0};
	int rc = ctl_map_open(ctl, ctl->argv[0], &composer, &info);
	if (rc)
		return rc;
	client_close(&composer);
	rc = open_rehomer(ctl, &rehomer);
	if (rc)
		return rc;
	bool dry = ctl_option_given(ctl, "dry-run");
	struct client_control call = {.what = REHOME_CANCEL, .volume = info.id};
	struct client_control look = {.what = REHOME_STATE,
		.volume = info.id,
		.answer_at = REHOME_ANSWER_AT,
		.out = &state,
		.out_size = sizeof(state)};
	int error =
		dry ? 0
		    : client_control_once(rehomer.segment, rehomer.name, ctl->timeout_ns, &call);
	if (!error)
		error = client_control_once(rehomer.segment, rehomer.name, ctl->timeout_ns, &look);
	if (error && error != -ENOENT) /* it has not seen it */
		return fault_set(&ctl->fault, fault_code_of_errno(error), info.name, NULL,
			"'%s': %s", info.name, strerror(-error));
	ctl_output_one(ctl,
		json_pack("{s:s, s:s, s:b}", "name", info.name, "state",
			rehome_state_name(state.state), "dry_run", (int)dry),
		cancelled, countof(cancelled));
	return 0;
}

const struct ctl_verb ctl_rehome_cancel = {
	"rehome",
	"cancel",
	"VOLUME",
	1,
	1,
	"leave it where it is, if that is still possible",
	"\tOf one that is *away*, the re-homer looks anew whose it is.\n",
	run_cancel,
	{&ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl rehome cancel vm1\n",
};
