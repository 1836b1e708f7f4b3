/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rehome and evacuate: volumes become another host's, or this one's, while they are used. A
 * re-homer comes in front of the composer (docs/rehoming.md); the one where they are is told where
 * to, and does it; nothing is remembered here.
 */
#include <base/must.h>
#include <base/time.h>
#include <errno.h>
#include <peer/client.h>
#include <peer/mover.h>
#include <peer/rehome.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/port.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_map.h"
#include "tools/ctl/ctl_rehome_move.h"
#include "tools/ctl/ctl_work.h"

#define NAMES_MAX 100u
#define AT_ONCE 4u
#define AT_ONCE_MAX 64u

static const struct ctl_option option_to = {"to", 0, "HOST",
	"skerry+tls://HOST, or the importing end of a bridge to a re-homer there (bridge add)",
	NULL};
static const struct ctl_option option_from = {
	"from", 0, "HOST", "the same, of the host where it is: it comes here", NULL};
static const struct ctl_option option_pause = {"downtime", 0, "TIME",
	"requests may wait so long (default 50ms, or what the distance takes and 20ms)", NULL};
static const struct ctl_option option_stall = {"on-stall", 0, "WHAT",
	"if that cannot be reached: force (default), throttle, wait or cancel", NULL};

static const struct ctl_option option_freeze = {"freeze-cmd", 0, "COMMAND",
	"run by the shell just before requests wait, and waited for; SKERRY_VOLUME is the volume. "
	"Does it fail, the volume stays here",
	NULL};
static const struct ctl_option option_thaw = {"thaw-cmd", 0, "COMMAND",
	"the same, after *--freeze-cmd* when requests go on, wherever the volume is then", NULL};

static const struct ctl_option option_at_once = {
	"at-once", 0, "COUNT", "so many volumes on their way at a time, 1 to 64 (default 4)", NULL};

static const struct ctl_option option_store = {"store", 0, "STORE",
	"where the other host keeps its volumes, as a peer of this one (bridge add): the data go "
	"there first, or (*--from*) come from there afterwards",
	NULL};

#define COLUMNS(way) \
	{ \
		{"name", "name", CTL_TEXT}, {way, way, CTL_TEXT}, {"home", "home", CTL_TEXT}, \
			{"bytes", "copied", CTL_SIZE}, {"rounds", "rounds", CTL_COUNT}, \
			{"pause_ns", "pause", CTL_TIME}, {"duration_ns", "time", CTL_TIME}, \
		{ \
			"changed", "changed", CTL_TEXT \
		} \
	}
static const struct ctl_column columns[] = COLUMNS("to"), from_columns[] = COLUMNS("from");

static const struct ctl_column all_columns[] = {{"to", "to", CTL_TEXT},
	{"moved", "moved", CTL_COUNT}, {"bytes", "copied", CTL_SIZE},
	{"pause_ns", "longest pause", CTL_TIME}, {"duration_ns", "time", CTL_TIME},
	{"changed", "changed", CTL_TEXT}};

static const char *way_of(const struct ctl_rehome *rehome) { return rehome->comes ? "from" : "to"; }

/* --- who is there ----------------------------------------------------------------------------- */

static bool leads_to(const struct xseg *seg, const char *name, const char *composer)
{
	char edge[NAME_LENGTH_MAX + 16], to[NAME_LENGTH_MAX + 1];
	snprintf(edge, sizeof(edge), "%s:volume", name);
	return !xseg_edge_target(seg, edge, to) && !strcmp(to, composer);
}

int ctl_rehome_find(struct ctl_plug *plug, const char *composer)
{
	json_t *list = NULL;
	const json_t *row;
	size_t i;
	int rc = ctl_plug_ask(plug, "peer.list", NULL, &list);
	plug->name[0] = 0;
	json_array_foreach (json_object_get(list, "peers"), i, row) {
		const char *name = json_string_value(json_object_get(row, "name"));
		if (!plug->name[0] && name && ctl_plug_row_is(row, "role", REHOME_ROLE) &&
			(!composer || leads_to(&plug->seg, name, composer)))
			snprintf(plug->name, sizeof(plug->name), "%s", name);
	}
	json_decref(list);
	return rc;
}

static int ask_keeper(struct ctl_rehome *rehome, const char *method, json_t *params)
{
	json_t *result = NULL;
	int rc = ctl_plug_ask(&rehome->plug, method, params, &result);
	json_decref(result);
	return rc;
}

/* The edge of the re-homer that leads to --to; one that is free is made to. */
static int choose_edge(struct ctl_rehome *rehome)
{
	char edge[2 * NAME_LENGTH_MAX + 16], to[NAME_LENGTH_MAX + 1];
	int spare = -1;
	for (uint32_t i = 0; i < REHOME_EDGES; i++) {
		snprintf(edge, sizeof(edge), "%s:%s", rehome->plug.name, rehome_edge_name(i));
		bool leads = !xseg_edge_target(&rehome->plug.seg, edge, to) && to[0];
		if (leads && strcmp(to, rehome->to) == 0)
			return 0;
		spare = !leads && spare < 0 ? (int)i : spare;
	}
	if (spare < 0)
		return fault_set(&rehome->plug.ctl->fault, FAULT_CONFLICT, rehome->plug.name,
			"'xsegctl edge set' lets one of them lead elsewhere",
			"'%s' leads to %u other hosts already", rehome->plug.name, REHOME_EDGES);
	snprintf(edge, sizeof(edge), "%s:%s", rehome->plug.name, rehome_edge_name((uint32_t)spare));
	return ask_keeper(
		rehome, "edge.set", json_pack("{s:s, s:s}", "edge", edge, "to", rehome->to));
}

static int start(struct ctl_rehome *rehome)
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
static int put_in(struct ctl_rehome *rehome)
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

/* A bridge to a URI stays: who is attached here goes through it. */
static int make_bridge(struct ctl_rehome *rehome)
{
	struct ctl_plug bridge = {.ctl = rehome->plug.ctl,
		.seg = rehome->plug.seg,
		.until_ns = rehome->plug.until_ns};
	if (!rehome->uri.remote[0] || ctl_option_given(bridge.ctl, "dry-run"))
		return 0;
	memcpy(bridge.name, rehome->to, sizeof(bridge.name));
	return ctl_bridge_to(&bridge, &rehome->uri);
}

static int look(struct ctl_rehome *rehome)
{
	struct ctl_plug *plug = &rehome->plug;
	struct xseg_peer_view view;
	int rc = make_bridge(rehome);
	if (rc)
		return rc;
	bool is_known = rehome->uri.remote[0] || /* it is there, or would be */
			(!xseg_peer_find(&plug->seg, rehome->to, &view) &&
				!strcmp(view.role, "synapse_import"));
	if (!is_known)
		return fault_set(&plug->ctl->fault, FAULT_NOT_FOUND, rehome->to,
			"'xsegctl bridge add' makes one, to an exporting end whose edge.volume "
			"leads to a re-homer",
			"'%s' is no importing end of a bridge", rehome->to);
	rc = ctl_rehome_find(plug, rehome->composer);
	rehome->there = plug->name[0];
	for (unsigned i = 0; !rehome->there && i < NAMES_MAX; i++) {
		snprintf(plug->name, sizeof(plug->name), "home%u", i);
		if (xseg_peer_find(&plug->seg, plug->name, &view))
			break;
	}
	return rc;
}

/* The data first, while everything else is as it was. What cannot go stays; the others go on. */
static int copy(struct ctl_rehome *rehome, struct ctl_work *work)
{
	struct fault first;
	int rc = 0;
	for (size_t i = 0; i < rehome->count && !ctl_ask_interrupted(); i++) {
		struct ctl_move *move = &rehome->moves[i];
		move->error = ctl_rehome_move_ask(rehome, move);
		if (move->error) {
			move->step = move->error == -EALREADY ? MOVE_WAITS : MOVE_ENDED;
			continue;
		}
		int failed = ctl_volume_move_data(work, move->info.name, &rehome->data,
			rehome->plug.until_ns, &rehome->bytes);
		if (!failed)
			continue;
		if (!rc)
			first = work->ctl->fault;
		rc = failed;
		move->step = MOVE_ENDED;
	}
	int after = ctl_rehome_move_follow(rehome, work);
	if (rc)
		work->ctl->fault = first;
	return rc ? rc : after;
}

/* Is it to be another's? Who has it here: it is home, or nobody has it and somebody reads it. Or
   this host's: another has it, or it is the one that was named. */
static bool is_meant(const struct ctl_rehome *rehome, struct client *composer,
	const struct xseg_volume_info *info)
{
	struct map_home_info home = {0};
	struct ctl_map_call call = {
		.what = MAP_HOME, .volume = info->id, .out = &home, .out_size = sizeof(home)};
	if (info->flags & (XSEG_VOLUME_FIXED | XSEG_VOLUME_READ_ONLY) || !info->name[0] ||
		ctl_map_call(composer, &call) != 0)
		return false;
	bool ours = home.owner == map_owner_of(&rehome->plug.seg);
	if (!rehome->comes)
		return ours || (home.owner == 0 && info->opens > 0);
	return !ours && (home.owner != 0 || !strcmp(info->name, rehome->plug.ctl->argv[0]));
}

static bool is_one(const uint64_t *ids, uint32_t id_count, uint64_t id)
{
	bool one = !ids;
	for (uint32_t i = 0; i < id_count; i++)
		one |= ids[i] == id;
	return one;
}

/* A name that one of those has, and one of another id, here or in the other host's store. */
static const char *find_namesake(
	const struct ctl_map_nodes *nodes, const uint64_t *ids, uint32_t id_count)
{
	for (size_t i = 0; i < nodes->count; i++) {
		const struct xseg_volume_info *one = &nodes->all[i].info;
		if (!one->name[0] || !is_one(ids, id_count, one->id))
			continue;
		for (size_t j = 0; j < nodes->count; j++) {
			const struct xseg_volume_info *other = &nodes->all[j].info;
			if (!strcmp(one->name, other->name) && !is_one(ids, id_count, other->id))
				return one->name;
		}
	}
	return NULL;
}

/* Of those ids, or (NULL) of all. */
static int find_all(
	struct ctl_rehome *rehome, struct client *composer, const uint64_t *ids, uint32_t id_count)
{
	struct ctl_map_nodes nodes;
	int error = ctl_map_tree_list(composer, &nodes);
	rehome->moves = error ? NULL : calloc(nodes.count + 1, sizeof(*rehome->moves));
	if (!error && !rehome->moves)
		error = -ENOMEM;
	for (size_t i = 0; !error && i < nodes.count; i++) {
		const struct xseg_volume_info *info = &nodes.all[i].info;
		if (is_one(ids, id_count, info->id) && is_meant(rehome, composer, info))
			rehome->moves[rehome->count++].info = *info;
	}
	struct fault *fault = &rehome->plug.ctl->fault;
	const char *name = error || !ids ? NULL : find_namesake(&nodes, ids, id_count);
	int rc = 0;
	if (error)
		rc = fault_set(fault, fault_code_of_errno(error), NULL, NULL,
			"volumes cannot be listed: %s", strerror(-error));
	else if (name)
		rc = fault_set(fault, FAULT_CONFLICT, name,
			"'xsegctl volume rename' gives one of them another name",
			"both hosts have a volume '%s'", name);
	free(nodes.all);
	return rc;
}

/* With its data come those of all who share objects with it: nobody else may have one of them. */
static int find_coming(
	struct ctl_rehome *rehome, struct client *composer, const struct xseg_volume_info *info)
{
	uint64_t ids[MOVER_IDS_MAX] = {info->id};
	uint32_t count = 1;
	int rc = 0;
	rehome->count = 0;
	if (rehome->data.to[0])
		rc = ctl_volume_group(rehome->plug.ctl, composer, info, ids, &count);
	return rc ? rc : find_all(rehome, composer, ids, count);
}

/* The volume, or (without an argument) all that are here; the segment, and who is there. */
static int begin(struct ctl_rehome *rehome)
{
	static struct ctl_move one;
	struct ctl *ctl = rehome->plug.ctl;
	struct client composer;
	bool all = ctl->argc == 0;
	/* nobody has put a mover in for --dry-run: what is in the other store is not to be seen */
	bool unseen = ctl_option_given(ctl, "dry-run") && rehome->comes && rehome->data.to[0];
	int rc = all || unseen ? ctl_join_composer(ctl, &composer)
			       : ctl_map_open(ctl, ctl->argv[0], &composer, &one.info);
	if (rc)
		return rc;
	uint32_t port = composer.port;
	rc = ctl_join(ctl, &rehome->plug.seg);
	rehome->moves = &one;
	rehome->count = all ? 0 : 1;
	if (unseen)
		snprintf(one.info.name, sizeof(one.info.name), "%s", ctl->argv[0]);
	else if (!rc && all)
		rc = find_all(rehome, &composer, NULL, 0);
	else if (!rc && rehome->comes)
		rc = find_coming(rehome, &composer, &one.info);
	client_close(&composer);
	if (rc)
		return rc;
	memcpy(rehome->composer, rehome->plug.seg.ports[port].name, NAME_LENGTH_MAX);
	return look(rehome);
}

static json_t *result_of(const struct ctl_rehome *rehome, uint64_t took_ns)
{
	uint64_t rounds = 0, pause_ns = 0;
	json_t *volumes = json_array();
	for (size_t i = 0; i < rehome->count; i++) {
		const struct ctl_move *move = &rehome->moves[i];
		rounds += move->state.rounds;
		if (move->state.pause_ns > pause_ns)
			pause_ns = move->state.pause_ns;
		json_array_append_new(
			volumes, json_pack("{s:s, s:I, s:I}", "name", move->info.name, "rounds",
					 (json_int_t)move->state.rounds, "pause_ns",
					 (json_int_t)move->state.pause_ns));
	}
	json_t *result = json_pack("{s:s, s:I, s:I, s:I, s:I, s:b}", way_of(rehome), rehome->to,
		"bytes", (json_int_t)rehome->bytes, "rounds", (json_int_t)rounds, "pause_ns",
		(json_int_t)pause_ns, "duration_ns", (json_int_t)took_ns, "changed",
		rounds > 0 || rehome->bytes > 0);
	if (rehome->plug.ctl->argc == 0) {
		json_object_set_new(result, "moved", json_integer((json_int_t)rehome->count));
		json_object_set_new(result, "volumes", volumes);
	} else {
		json_object_set_new(result, "name", json_string(rehome->plug.ctl->argv[0]));
		json_object_set_new(result, "home", json_string(rehome->comes ? "here" : "away"));
		json_decref(volumes);
	}
	return result;
}

/* It is this host's, which reads it from the other one's store; now the data come, and what is read
   meanwhile is read from where it is. Or, before its home has come: is there room for them? */
static int fetch(struct ctl_rehome *rehome, struct ctl_work *work, bool only_asks)
{
	struct ctl_volume_data data = {.bandwidth = rehome->data.bandwidth, .only_asks = only_asks};
	memcpy(data.to, rehome->own, sizeof(data.to));
	return ctl_volume_move_data(
		work, rehome->plug.ctl->argv[0], &data, rehome->plug.until_ns, &rehome->bytes);
}

static int body(struct ctl_work *work, void *context)
{
	struct ctl_rehome *rehome = context;
	rehome->plug.work = work;
	bool data = rehome->data.to[0], comes = rehome->comes;
	int rc = !data || !comes ? 0
				 : ctl_volume_see(work, &rehome->data, rehome->plug.until_ns,
					   rehome->own, &rehome->sees);
	rc = rc ? rc : begin(rehome);
	if (!rc && data && comes)
		rc = fetch(rehome, work, true);
	if (rehome->count > 0) {
		rc = rc ? rc : put_in(rehome);
		rc = rc		      ? rc
		     : data && !comes ? copy(rehome, work)
				      : ctl_rehome_move_follow(rehome, work);
		rc = rc ? rc : ctl_rehome_move_judge(rehome);
	}
	if (rehome->plug.seg.ports)
		xseg_segment_leave(&rehome->plug.seg);
	if (!rc && data && comes)
		rc = fetch(rehome, work, false);
	else if (rc && rehome->sees && !rehome->begun)
		ctl_volume_unsee(work, &rehome->data, rehome->plug.until_ns);
	if (!rc)
		work->result = result_of(rehome, clock_now_ns() - work->progress.start_ns);
	return rc;
}

/* --dry-run */
static int plan(struct ctl_rehome *rehome)
{
	const struct ctl_column planned[] = {{"name", "NAME", CTL_TEXT},
		{way_of(rehome), rehome->comes ? "FROM" : "TO", CTL_TEXT},
		{"store", rehome->comes ? "DATA FROM" : "DATA TO", CTL_TEXT},
		{"rehomer", "RE-HOMER", CTL_TEXT}, {"starts", "STARTS IT", CTL_TEXT},
		{"dry_run", "DRY RUN", CTL_TEXT}};
	struct ctl *ctl = rehome->plug.ctl;
	json_t *rows = json_array();
	int rc = begin(rehome);
	for (size_t i = 0; !rc && i < rehome->count; i++)
		json_array_append_new(
			rows, json_pack("{s:s, s:s, s:s?, s:s, s:b, s:b, s:b}", "name",
				      rehome->moves[i].info.name, way_of(rehome), rehome->to,
				      "store", rehome->data.to[0] ? rehome->data.to : NULL,
				      "rehomer", rehome->plug.name, "starts", !rehome->there,
				      "changed", 0, "dry_run", 1));
	if (rc)
		json_decref(rows);
	else
		ctl_output_rows(ctl, "volumes", rows, planned, countof(planned));
	if (rehome->plug.seg.ports)
		xseg_segment_leave(&rehome->plug.seg);
	return rc;
}

static int read_to(struct ctl *ctl, struct ctl_rehome *rehome, const char *to)
{
	if (to && ctl_uri_is(to)) {
		if (!ctl_uri_read(to, &rehome->uri) || rehome->uri.volume[0])
			return fault_set(&ctl->fault, FAULT_USAGE, to,
				"skerry+tls://HOST[:" CTL_URI_PORT
				"], skerry+tcp://HOST or skerry+unix:///?socket=PATH",
				"'%s' does not say where a host is", to);
		ctl_uri_name(&rehome->uri, rehome->to);
		return 0;
	}
	if (!to || !name_check(to))
		return fault_set(&ctl->fault, FAULT_USAGE, to,
			"e.g. xsegctl rehome vm1 --to skerry+tls://host2, or --from far0",
			to ? "'%s' is no name for a peer"
			   : "say where to or from: --to HOST, or --from HOST",
			to);
	snprintf(rehome->to, sizeof(rehome->to), "%s", to);
	return 0;
}

static int read_options(struct ctl *ctl, struct ctl_rehome *rehome)
{
	static const char *const stalls[REHOME_STALLS] = {
		[REHOME_STALL_FORCE] = "force",
		[REHOME_STALL_WAIT] = "wait",
		[REHOME_STALL_CANCEL] = "cancel",
		[REHOME_STALL_THROTTLE] = "throttle",
	};
	const char *store = ctl_option_value(ctl, "store");
	const char *pause = ctl_option_value(ctl, "downtime");
	const char *stall = ctl_option_value(ctl, "on-stall");
	rehome->freeze = ctl_option_value(ctl, "freeze-cmd");
	rehome->thaw = ctl_option_value(ctl, "thaw-cmd");
	if (rehome->thaw && !rehome->freeze)
		return fault_set(&ctl->fault, FAULT_USAGE, "thaw-cmd", "say --freeze-cmd, too",
			"--thaw-cmd would undo what nothing has done");
	rehome->at_once = AT_ONCE;
	const char *to = ctl_option_value(ctl, "to"), *from = ctl_option_value(ctl, "from");
	rehome->comes = from != NULL;
	rehome->data.stays = true;
	if (to && from)
		return fault_set(&ctl->fault, FAULT_USAGE, from, "it is said on one of the hosts",
			"either --to or --from");
	int rc = read_to(ctl, rehome, from ? from : to);
	if (rc)
		return rc;
	if (store && !name_check(store))
		return fault_set(&ctl->fault, FAULT_USAGE, store,
			"e.g. xsegctl rehome vm1 --to far0 --store store1",
			"'%s' is no name for a peer", store);
	if (store)
		snprintf(rehome->data.to, sizeof(rehome->data.to), "%s", store);
	rc = ctl_option_size(ctl, "bandwidth", &rehome->data.bandwidth);
	if (!rc && !store && ctl_option_given(ctl, "bandwidth"))
		rc = fault_set(&ctl->fault, FAULT_USAGE, "bandwidth", "say --store, too",
			"--bandwidth is of the data, which do not move without --store");
	if (!rc)
		rc = ctl_volume_read_keep(ctl, &rehome->data.keep);
	if (!rc && !store && rehome->data.keep)
		rc = fault_set(&ctl->fault, FAULT_USAGE, "keep", "say --store, too",
			"--keep is of the data, which do not move without --store");
	if (rc)
		return rc;
	if (pause && time_parse(pause, &rehome->ask.pause_ns))
		return fault_set(&ctl->fault, FAULT_USAGE, pause, "e.g. --downtime 50ms",
			"'%s' is no time", pause);
	if (pause && rehome->ask.pause_ns == 0)
		rehome->ask.pause_ns = 1; /* 0 would be the usual one */
	while (stall && rehome->ask.stall < countof(stalls) &&
		strcmp(stall, stalls[rehome->ask.stall]) != 0)
		rehome->ask.stall++;
	if (rehome->ask.stall == countof(stalls))
		return fault_set(&ctl->fault, FAULT_USAGE, stall, "force, throttle, wait or cancel",
			"--on-stall knows no '%s'", stall);
	if (ctl->argc == 0)
		rc = ctl_option_number(ctl, "at-once", AT_ONCE_MAX, &rehome->at_once);
	if (!rc && rehome->at_once == 0)
		rc = fault_set(&ctl->fault, FAULT_USAGE, "0", "e.g. --at-once 8",
			"--at-once 0 would move nothing");
	return rc;
}

static int run(struct ctl *ctl)
{
	static struct ctl_rehome rehome;
	bool all = ctl->argc == 0;
	rehome = (struct ctl_rehome){.plug.ctl = ctl};
	struct ctl_work work = {.ctl = ctl,
		.kind = all ? "host.evacuate" : "volume.rehome",
		.object = all ? rehome.to : ctl->argv[0],
		.body = body,
		.context = &rehome,
		.columns = all ? all_columns : columns,
		.column_count = all ? countof(all_columns) : countof(columns)};
	int rc = read_options(ctl, &rehome);
	if (rc)
		return rc;
	if (rehome.comes)
		work.columns = from_columns;
	if (ctl->timeout_given)
		rehome.plug.until_ns = clock_now_ns() + ctl->timeout_ns;
	if (ctl_option_given(ctl, "dry-run"))
		return plan(&rehome);
	return ctl_work_run(&work, json_pack("{s:s?, s:s}", "volume", all ? NULL : ctl->argv[0],
					   way_of(&rehome), rehome.to));
}

const struct ctl_verb ctl_rehome_verb = {
	"rehome",
	NULL,
	"VOLUME",
	1,
	1,
	"move a volume to another host while it is used",
	"\tHOST is *skerry+tls://HOST[:7070]*, *skerry+tcp://HOST* in clear text, or a socket of "
	"this host, *skerry+unix:///?socket=PATH*: there a *skerry-role-synapse_export*(7) leads "
	"to "
	"a *skerry-role-rehome*(7). The importing end of a bridge there is started, and stays, as "
	"*far-HOST*; or HOST is the name of one that is there (*bridge add*). What the cache has "
	"to write back is written back while the "
	"volume is used, round for round, until the rest takes less than *--downtime*; then "
	"requests "
	"wait while the rest goes and the other host takes it. Who is attached here stays so, "
	"through the bridge. Both hosts must have the volume in one store; where each has its own, "
	"*--store* names the other one's, and the data go there first, as *xsegctl volume move* "
	"does it: with snapshots and clones that share objects with it, while all is used. "
	"*--from* is said on the host that it is to come to; with *--store* it comes at once, with "
	"all that share objects with it, and its data follow, what is read meanwhile from where it "
	"is. A "
	"re-homer 'home0' "
	"comes in front of the composer and belongs into "
	"the pipeline (*config save*). The exit status is 0 when the other host has it; else it is "
	"still here. Killed anywhere, one of the two has it, and both know which.\n",
	run,
	{&option_to, &option_from, &option_store, &ctl_volume_option_bandwidth,
		&ctl_volume_option_keep, &option_pause, &option_stall, &option_freeze, &option_thaw,
		&ctl_uri_option_tls, &ctl_uri_option_cert, &ctl_uri_option_clear, &ctl_option_via,
		&ctl_option_detach, &ctl_option_dry_run},
	.examples = "xsegctl rehome vm1 --to skerry+tls://host2.example.net\n"
		    "xsegctl rehome vm1 --to far0\n"
		    "xsegctl rehome vm1 --to laptop --store laptop-store\n"
		    "xsegctl rehome vm1 --from desk --store desk-store\n"
		    "xsegctl rehome vm1 --to far0 --downtime 20ms --on-stall cancel\n",
};

const struct ctl_verb ctl_evacuate_verb = {
	"evacuate",
	NULL,
	"",
	0,
	0,
	"move all volumes of this host to another one while they are used",
	"\tAs *xsegctl rehome* for each volume whose home is here, or that somebody here reads; "
	"*--at-once* of them at a time. Who is attached here stays so, through the bridge, as long "
	"as "
	"this host is up. The exit status is 0 when none is left here; those that stay are named, "
	"and the others are moved all the same. Said again, it goes on with what is left.\n",
	run,
	{&option_to, &option_store, &ctl_volume_option_bandwidth, &ctl_volume_option_keep,
		&option_at_once, &option_pause, &option_stall, &option_freeze, &option_thaw,
		&ctl_uri_option_tls, &ctl_uri_option_cert, &ctl_uri_option_clear, &ctl_option_via,
		&ctl_option_detach, &ctl_option_dry_run},
	.examples = "xsegctl evacuate --to far0 --dry-run\n"
		    "xsegctl evacuate --to far0 --at-once 8\n",
};
