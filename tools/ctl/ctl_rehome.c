/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rehome, rehome status and rehome cancel: a volume becomes another host's while it is used. A
 * re-homer comes in front of the composer (docs/rehoming.md), is told where to, and does it;
 * nothing is remembered here.
 */
#include <base/must.h>
#include <base/time.h>
#include <errno.h>
#include <peer/rehome.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_call.h"
#include "tools/ctl/ctl_map.h"
#include "tools/ctl/ctl_plug.h"
#include "tools/ctl/ctl_work.h"

#define LOOK_NS 20000000u
#define AGAIN_MAX 5u /* a re-homer that was killed is told again so often */
#define LIST_MAX 512u
#define NAMES_MAX 100u

static const struct ctl_option option_to = {"to", 0, "PEER",
	"the importing end of a bridge to a re-homer of the other host (bridge add)", NULL};
static const struct ctl_option option_pause = {
	"downtime", 0, "TIME", "requests may wait so long (default 50ms)", NULL};
static const struct ctl_option option_stall = {
	"on-stall", 0, "WHAT", "if that cannot be reached: force (default), wait or cancel", NULL};

static const struct ctl_column columns[] = {{"name", "name", CTL_TEXT}, {"to", "to", CTL_TEXT},
	{"home", "home", CTL_TEXT}, {"rounds", "rounds", CTL_COUNT},
	{"pause_ns", "pause", CTL_TIME}, {"duration_ns", "time", CTL_TIME},
	{"changed", "changed", CTL_TEXT}};

static const char *const edge_names[REHOME_EDGES] = {"volume-to", "volume-to2", "volume-to3"};

struct rehome {
	struct ctl_plug plug; /* .name: the re-homer */
	struct xseg_volume_info info;
	char to[NAME_LENGTH_MAX + 1], composer[NAME_LENGTH_MAX + 1];
	struct rehome_ask ask;
	struct rehome_info state;
	bool there; /* the re-homer is */
};

/* --- who is there ----------------------------------------------------------------------------- */

static bool leads_to(const struct xseg *seg, const char *name, const char *composer)
{
	char edge[NAME_LENGTH_MAX + 16], to[NAME_LENGTH_MAX + 1];
	snprintf(edge, sizeof(edge), "%s:volume", name);
	return !ctl_plug_target(seg, edge, to) && !strcmp(to, composer);
}

/* The re-homer in front of that composer, or (NULL) the first one, "": none. As the keeper knows
   it: one that was killed is there again soon. */
static int find_rehomer(struct ctl_plug *plug, const char *composer)
{
	json_t *list = NULL;
	const json_t *row;
	size_t i;
	int rc = ctl_plug_ask(plug, "peer.list", NULL, &list);
	plug->name[0] = 0;
	json_array_foreach (json_object_get(list, "peers"), i, row) {
		const char *name = json_string_value(json_object_get(row, "name"));
		const char *role = json_string_value(json_object_get(row, "role"));
		if (!plug->name[0] && name && role && !strcmp(role, REHOME_ROLE) &&
			(!composer || leads_to(&plug->seg, name, composer)))
			snprintf(plug->name, sizeof(plug->name), "%s", name);
	}
	json_decref(list);
	return rc;
}

static int ask_keeper(struct rehome *rehome, const char *method, json_t *params)
{
	json_t *result = NULL;
	int rc = ctl_plug_ask(&rehome->plug, method, params, &result);
	json_decref(result);
	return rc;
}

/* The edge of the re-homer that leads to --to; one that is free is made to. */
static int choose_edge(struct rehome *rehome)
{
	char edge[2 * NAME_LENGTH_MAX + 16], to[NAME_LENGTH_MAX + 1];
	int spare = -1;
	for (uint32_t i = 0; i < REHOME_EDGES; i++) {
		snprintf(edge, sizeof(edge), "%s:%s", rehome->plug.name, edge_names[i]);
		bool leads = !ctl_plug_target(&rehome->plug.seg, edge, to) && to[0];
		rehome->ask.edge = i;
		if (leads && strcmp(to, rehome->to) == 0)
			return 0;
		spare = !leads && spare < 0 ? (int)i : spare;
	}
	if (spare < 0)
		return fault_set(&rehome->plug.ctl->fault, FAULT_CONFLICT, rehome->plug.name,
			"'xsegctl edge set' lets one of them lead elsewhere",
			"'%s' leads to %u other hosts already", rehome->plug.name, REHOME_EDGES);
	rehome->ask.edge = (uint32_t)spare;
	snprintf(edge, sizeof(edge), "%s:%s", rehome->plug.name, edge_names[spare]);
	return ask_keeper(
		rehome, "edge.set", json_pack("{s:s, s:s}", "edge", edge, "to", rehome->to));
}

static int start(struct rehome *rehome)
{
	const struct ctl_plug *plug = &rehome->plug;
	char argument[4 * NAME_LENGTH_MAX + 64];
	snprintf(argument, sizeof(argument), "%s=%s,edge.volume=%s,edge.volume-to=%s", plug->name,
		REHOME_ROLE, rehome->composer, rehome->to);
	return ask_keeper(rehome, "peer.start",
		json_pack("{s:s, s:I}", "peer", argument, "timeout_ns",
			(json_int_t)plug->ctl->timeout_ns));
}

/* Who asks the composer asks the re-homer from now on: also who was started since, or was left out
   when this was killed. */
static int put_in(struct rehome *rehome)
{
	struct ctl_plug *plug = &rehome->plug;
	struct ctl_plug below = {.seg = plug->seg};
	char own[NAME_LENGTH_MAX + 16];
	bool changed;
	int rc = rehome->there ? choose_edge(rehome) : start(rehome);
	if (rc)
		return rc;
	snprintf(own, sizeof(own), "%s:volume", plug->name);
	snprintf(below.name, sizeof(below.name), "%s", rehome->composer);
	ctl_plug_edges(&below);
	plug->edge_count = 0;
	for (unsigned i = 0; i < below.edge_count; i++)
		if (strcmp(below.edges[i], own) != 0)
			memcpy(plug->edges[plug->edge_count++], below.edges[i],
				sizeof(below.edges[i]));
	rc = ctl_plug_switch(plug, plug->name, &changed);
	return rc || plug->edge_count == 0 ? rc : ctl_settle(plug, rehome->composer, false);
}

static int look(struct rehome *rehome)
{
	struct ctl_plug *plug = &rehome->plug;
	struct xseg_peer_view view;
	if (xseg_peer_find(&plug->seg, rehome->to, &view) || strcmp(view.role, "synapse_import"))
		return fault_set(&plug->ctl->fault, FAULT_NOT_FOUND, rehome->to,
			"'xsegctl bridge add' makes one, to an exporting end whose edge.volume "
			"leads to a re-homer",
			"'%s' is no importing end of a bridge", rehome->to);
	int rc = find_rehomer(plug, rehome->composer);
	rehome->there = plug->name[0];
	for (unsigned i = 0; !rehome->there && i < NAMES_MAX; i++) {
		snprintf(plug->name, sizeof(plug->name), "home%u", i);
		if (xseg_peer_find(&plug->seg, plug->name, &view))
			break;
	}
	return rc;
}

/* --- the re-homer's part ---------------------------------------------------------------------- */

static int told(struct ctl *ctl, const char *name, int error)
{
	static const struct {
		int error;
		enum fault_code code;
		const char *text, *hint;
	} known[] = {
		{-EBUSY, FAULT_BUSY, "another host has it, or it is being moved already",
			"'xsegctl volume info' and 'xsegctl rehome status' say which"},
		{-EXDEV, FAULT_CONFLICT, "the other host does not have it in the same store",
			"both pipelines must lead to one store"},
		{-ENOLINK, FAULT_FAILED, "no re-homer is behind that bridge",
			"there a synapse_export with edge.volume=home0 is needed"},
		{-ENOTCONN, FAULT_FAILED, "the bridge to the other host is down",
			"'xsegctl bridge status' says why"},
		{-EPROTO, FAULT_FAILED, "the other host's re-homer is of another version", NULL},
		{-ELOOP, FAULT_USAGE, "that bridge leads back to this host", NULL},
		{-EROFS, FAULT_USAGE, "it is read-only", "every host can read a snapshot as it is"},
		{-EAGAIN, FAULT_FAILED, "it is written to faster than its cache writes back",
			"--on-stall=force accepts a longer pause, --downtime says how long"},
		{-ECANCELED, FAULT_FAILED, "it was cancelled", NULL},
		{-ETIME, FAULT_TIMEOUT, "requests on their way did not end in time",
			"its drain-timeout= sets the limit; 'xsegctl trace' shows them"},
		{-ETIMEDOUT, FAULT_TIMEOUT, "the other host did not take it in time",
			"'xsegctl bridge status' says how the link is"},
	};
	for (size_t i = 0; i < countof(known); i++)
		if (known[i].error == error)
			return fault_set(&ctl->fault, known[i].code, name, known[i].hint,
				"volume '%s' stays here: %s", name, known[i].text);
	return fault_set(&ctl->fault, fault_code_of_errno(error), name, NULL,
		"volume '%s' stays here: %s", name, strerror(-error));
}

static int say(struct rehome *rehome, enum rehome_control what)
{
	struct ctl_call call = {.what = what,
		.volume = rehome->info.id,
		.in = &rehome->ask,
		.in_size = sizeof(rehome->ask),
		.answer_at = REHOME_ANSWER_AT,
		.out = &rehome->state,
		.out_size = sizeof(rehome->state)};
	rehome->state = (struct rehome_info){0};
	return ctl_call_once(rehome->plug.seg.name, rehome->plug.name,
		rehome->plug.ctl->timeout_given ? rehome->plug.ctl->timeout_ns
						: CTL_MAP_PATIENCE_NS,
		&call);
}

static bool is_under_way(uint32_t state) { return state != REHOME_HOME && state != REHOME_AWAY; }

/* Whoever is asked to begin and was killed has forgotten it. */
static int follow(struct rehome *rehome, struct ctl_work *work)
{
	int error = say(rehome, REHOME_BEGIN);
	for (unsigned again = 0; error == 0;) {
		error = say(rehome, REHOME_STATE);
		bool forgot = error == -ENOENT || (!error && rehome->state.rounds == 0 &&
							  rehome->state.state == REHOME_HOME &&
							  rehome->state.error == 0);
		if (forgot && again++ < AGAIN_MAX)
			error = say(rehome, REHOME_BEGIN);
		else if (!error && !is_under_way(rehome->state.state))
			break;
		if (ctl_ask_interrupted() && !error) {
			say(rehome, REHOME_CANCEL);
			return ctl_ask_interrupted_fault(rehome->plug.ctl, rehome->info.name);
		}
		ctl_work_progress(work, rehome->state.rounds, 0);
		time_nap(LOOK_NS);
	}
	if (error == 0 && rehome->state.state == REHOME_HOME)
		error = rehome->state.error ? rehome->state.error : -ECANCELED;
	return error ? told(rehome->plug.ctl, rehome->info.name, error) : 0;
}

/* The volume, the segment, and who is there. */
static int begin(struct rehome *rehome)
{
	struct ctl *ctl = rehome->plug.ctl;
	struct client composer;
	int rc = ctl_map_open(ctl, ctl->argv[0], &composer, &rehome->info);
	if (rc)
		return rc;
	uint32_t port = composer.port;
	client_close(&composer);
	rc = ctl_join(ctl, &rehome->plug.seg);
	if (rc)
		return rc;
	memcpy(rehome->composer, rehome->plug.seg.ports[port].name, NAME_LENGTH_MAX);
	return look(rehome);
}

/* --dry-run */
static int plan(struct rehome *rehome)
{
	static const struct ctl_column planned[] = {{"name", "name", CTL_TEXT},
		{"to", "to", CTL_TEXT}, {"rehomer", "re-homer", CTL_TEXT},
		{"starts", "starts it", CTL_TEXT}, {"dry_run", "dry run", CTL_TEXT}};
	int rc = begin(rehome);
	if (!rc)
		ctl_output_one(rehome->plug.ctl,
			json_pack("{s:s, s:s, s:s, s:b, s:b, s:b}", "name", rehome->info.name, "to",
				rehome->to, "rehomer", rehome->plug.name, "starts", !rehome->there,
				"changed", 0, "dry_run", 1),
			planned, countof(planned));
	if (rehome->plug.seg.ports)
		xseg_segment_leave(&rehome->plug.seg);
	return rc;
}

static int body(struct ctl_work *work, void *context)
{
	struct rehome *rehome = context;
	rehome->plug.work = work;
	int rc = begin(rehome);
	rc = rc ? rc : put_in(rehome);
	rc = rc ? rc : follow(rehome, work);
	if (rehome->plug.seg.ports)
		xseg_segment_leave(&rehome->plug.seg);
	if (!rc)
		work->result = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:b}", "name",
			rehome->info.name, "to", rehome->to, "home", "away", "rounds",
			(json_int_t)rehome->state.rounds, "pause_ns",
			(json_int_t)rehome->state.pause_ns, "duration_ns",
			(json_int_t)(clock_now_ns() - work->progress.start_ns), "changed",
			rehome->state.rounds > 0);
	return rc;
}

static int read_options(struct ctl *ctl, struct rehome *rehome)
{
	static const char *const stalls[] = {"force", "wait", "cancel"};
	const char *to = ctl_option_value(ctl, "to");
	const char *pause = ctl_option_value(ctl, "downtime");
	const char *stall = ctl_option_value(ctl, "on-stall");
	rehome->ask = (struct rehome_ask){.version = REHOME_VERSION, .pause_ns = 50000000};
	if (!to || !name_check(to))
		return fault_set(&ctl->fault, FAULT_USAGE, to, "e.g. xsegctl rehome vm1 --to far0",
			to ? "'%s' is no name for a peer" : "say where: --to PEER", to);
	snprintf(rehome->to, sizeof(rehome->to), "%s", to);
	if (pause && time_parse(pause, &rehome->ask.pause_ns))
		return fault_set(&ctl->fault, FAULT_USAGE, pause, "e.g. --downtime 50ms",
			"'%s' is no time", pause);
	while (stall && rehome->ask.stall < countof(stalls) &&
		strcmp(stall, stalls[rehome->ask.stall]) != 0)
		rehome->ask.stall++;
	if (rehome->ask.stall == countof(stalls))
		return fault_set(&ctl->fault, FAULT_USAGE, stall, "force, wait or cancel",
			"--on-stall knows no '%s'", stall);
	return 0;
}

static int run(struct ctl *ctl)
{
	static struct rehome rehome;
	rehome = (struct rehome){.plug.ctl = ctl};
	struct ctl_work work = {.ctl = ctl,
		.kind = "rehome",
		.object = ctl->argv[0],
		.body = body,
		.context = &rehome,
		.columns = columns,
		.column_count = countof(columns)};
	int rc = read_options(ctl, &rehome);
	if (rc)
		return rc;
	if (ctl->timeout_given)
		rehome.plug.until_ns = clock_now_ns() + ctl->timeout_ns;
	if (ctl_option_given(ctl, "dry-run"))
		return plan(&rehome);
	return ctl_work_run(
		&work, json_pack("{s:s, s:s}", "volume", ctl->argv[0], "to", rehome.to));
}

const struct ctl_verb ctl_rehome_verb = {
	"rehome",
	NULL,
	"VOLUME",
	1,
	1,
	"move a volume to another host while it is used",
	"\tBoth hosts have it in one store. PEER is the importing end of a bridge (*bridge add*) "
	"to "
	"a "
	"*skerry-role-rehome*(7) there. What the cache has to write back is written back while the "
	"volume is used, round for round, until the rest takes less than *--downtime*; then "
	"requests "
	"wait while the rest goes and the other host takes it. Who is attached here stays so, "
	"through the bridge. A re-homer 'home0' comes in front of the composer and belongs into "
	"the pipeline (*config save*). The exit status is 0 when the other host has it; else it is "
	"still here. Killed anywhere, one of the two has it, and both know which.\n",
	run,
	{&option_to, &option_pause, &option_stall, &ctl_option_via, &ctl_option_detach,
		&ctl_option_dry_run},
	.examples = "xsegctl rehome vm1 --to far0\n"
		    "xsegctl rehome vm1 --to far0 --downtime 20ms --on-stall cancel\n",
};

/* --- status, cancel --------------------------------------------------------------------------- */

static const struct ctl_column status_columns[] = {{"volume", "VOLUME", CTL_TEXT},
	{"state", "STATE", CTL_TEXT}, {"rounds", "ROUNDS", CTL_COUNT},
	{"round_ns", "REST", CTL_TIME}, {"pause_ns", "PAUSE", CTL_TIME},
	{"waiting", "WAITING", CTL_COUNT}, {"moves", "MOVES", CTL_COUNT},
	{"error", "ERROR", CTL_TEXT}};

static json_t *row_of(const struct rehome_info *info)
{
	char volume[24];
	snprintf(volume, sizeof(volume), "%016llx", (unsigned long long)info->volume);
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:s}", "volume", volume, "state",
		rehome_state_name(info->state), "rounds", (json_int_t)info->rounds, "round_ns",
		(json_int_t)info->round_ns, "pause_ns", (json_int_t)info->pause_ns, "waiting",
		(json_int_t)info->waiting, "moves", (json_int_t)info->moves, "error",
		info->error ? strerror(-info->error) : "");
}

static int open_rehomer(
	struct ctl *ctl, char segment[NAME_LENGTH_MAX + 1], char name[NAME_LENGTH_MAX + 1])
{
	struct ctl_plug plug = {.ctl = ctl};
	int rc = ctl_join(ctl, &plug.seg);
	if (rc)
		return rc;
	snprintf(segment, NAME_LENGTH_MAX + 1, "%s", plug.seg.name);
	rc = find_rehomer(&plug, NULL);
	snprintf(name, NAME_LENGTH_MAX + 1, "%s", plug.name);
	xseg_segment_leave(&plug.seg);
	return rc || name[0] ? rc
			     : fault_set(&ctl->fault, FAULT_NOT_FOUND, segment,
				       "'xsegctl rehome VOLUME --to PEER' starts one",
				       "segment '%s' has no re-homer", segment);
}

static int run_status(struct ctl *ctl)
{
	static struct rehome_info infos[LIST_MAX];
	char segment[NAME_LENGTH_MAX + 1], name[NAME_LENGTH_MAX + 1];
	int rc = open_rehomer(ctl, segment, name);
	json_t *rows = json_array();
	struct ctl_call call = {.what = REHOME_STATE,
		.answer_at = REHOME_ANSWER_AT,
		.out = infos,
		.out_size = sizeof(infos)};
	while (!rc) {
		int error = ctl_call_once(segment, name, ctl->timeout_ns, &call);
		if (error)
			rc = fault_set(&ctl->fault, fault_code_of_errno(error), name, NULL,
				"'%s': %s", name, strerror(-error));
		for (uint32_t i = 0; !error && i < call.got / sizeof(*infos); i++)
			json_array_append_new(rows, row_of(&infos[i]));
		call.number = call.value;
		if (error || call.value == 0)
			break;
	}
	if (rc)
		json_decref(rows);
	else
		ctl_output_rows(ctl, "volumes", rows, status_columns, countof(status_columns));
	return rc;
}

const struct ctl_verb ctl_rehome_status = {
	"rehome",
	"status",
	"",
	0,
	0,
	"where volumes are, and how moves get on",
	"\tOf all that the re-homer has seen. STATE: *home* here; *export* being written back, "
	"REST "
	"is how long the last round took; *frozen* and *committing*: requests wait; *away* at the "
	"other host. PAUSE is how long requests waited at the last move, ERROR why it stayed.\n",
	run_status,
	{0},
	.examples = "xsegctl rehome status --json\n",
};

static int run_cancel(struct ctl *ctl)
{
	static const struct ctl_column cancelled[] = {{"name", "name", CTL_TEXT},
		{"state", "state", CTL_TEXT}, {"dry_run", "dry run", CTL_TEXT}};
	char segment[NAME_LENGTH_MAX + 1], name[NAME_LENGTH_MAX + 1];
	struct client composer;
	struct xseg_volume_info info;
	struct rehome_info state = {0};
	int rc = ctl_map_open(ctl, ctl->argv[0], &composer, &info);
	if (rc)
		return rc;
	client_close(&composer);
	rc = open_rehomer(ctl, segment, name);
	if (rc)
		return rc;
	bool dry = ctl_option_given(ctl, "dry-run");
	struct ctl_call call = {.what = REHOME_CANCEL, .volume = info.id};
	struct ctl_call look = {.what = REHOME_STATE,
		.volume = info.id,
		.answer_at = REHOME_ANSWER_AT,
		.out = &state,
		.out_size = sizeof(state)};
	int error = dry ? 0 : ctl_call_once(segment, name, ctl->timeout_ns, &call);
	if (!error)
		error = ctl_call_once(segment, name, ctl->timeout_ns, &look);
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
