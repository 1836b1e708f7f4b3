/* SPDX-License-Identifier: Apache-2.0 */
/* plug: a cache comes between a running peer and its store. */
#include "tools/ctl/ctl_plug.h"

#include <base/clock.h>
#include <base/must.h>
#include <base/time.h>
#include <errno.h>
#include <peer/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xseg/port.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_remote.h"
#include "tools/ctl/ctl_rpc.h"
#include "tools/pipeline/pipeline_edit.h"
#include "tools/pipeline/pipeline_running.h"

#define AGAIN_NS 100000000u
#define ARGUMENT_MAX 4096u
#define NAMES_MAX 100u

static const struct ctl_option option_at = {
	"at", 0, "PEER:EDGE", "the edge that it shall stand in, e.g. vol0:store", NULL};
static const struct ctl_option option_name = {
	"name", 0, "NAME", "of the new peer (default cache0, or the next that is free)", NULL};
static const struct ctl_option option_lanes = {
	"lanes", 0, "N", "threads of its process (default 1)", NULL};

static const struct ctl_column plug_columns[] = {{"name", "name", CTL_TEXT},
	{"at", "edge", CTL_TEXT}, {"store", "store", CTL_TEXT}, {"phase", "phase", CTL_TEXT},
	{"changed", "changed", CTL_TEXT}};

static const struct ctl_column step_columns[] = {{"action", "ACTION", CTL_TEXT},
	{"object", "OBJECT", CTL_TEXT}, {"state", "STATE", CTL_TEXT}};

/* --- what plug and unplug share ------------------------------------------------------------- */

static bool peer_serves(const struct xseg *seg, const char *peer)
{
	struct xseg_peer_view view;
	return !xseg_peer_find(seg, peer, &view) && view.life != XSEG_LIFE_DEAD;
}

void ctl_plug_edges(struct ctl_plug *plug)
{
	const struct xseg *seg = &plug->seg;
	plug->edge_count = 0;
	for (uint32_t i = 0; i < XSEG_EDGES_MAX && plug->edge_count < CTL_EDGES_MAX; i++) {
		char name[XSEG_EDGE_NAME_MAX + 1] = "", to[NAME_LENGTH_MAX + 1];
		if (atomic_load_explicit(&seg->edges[i].life, memory_order_acquire) !=
			XSEG_LIFE_ALIVE)
			continue;
		memcpy(name, seg->edges[i].name, XSEG_EDGE_NAME_MAX);
		if (!xseg_edge_target(seg, name, to) && !strcmp(to, plug->name))
			snprintf(plug->edges[plug->edge_count++], sizeof(name), "%s", name);
	}
}

int ctl_plug_check(struct ctl_plug *plug, const char *what)
{
	if (ctl_ask_interrupted())
		return ctl_ask_interrupted_fault(plug->ctl, plug->name);
	if (!plug->until_ns || clock_now_ns() < plug->until_ns)
		return 0;
	return fault_set(&plug->ctl->fault, FAULT_TIMEOUT, plug->name,
		"say it again to go on; --timeout sets the limit", "cache '%s': %s", plug->name,
		what);
}

bool ctl_plug_row_is(const json_t *row, const char *key, const char *text)
{
	const char *value = json_string_value(json_object_get(row, key));
	return value && text && !strcmp(value, text);
}

int ctl_plug_ask(struct ctl_plug *plug, const char *method, json_t *params, json_t **result)
{
	return ctl_rpc_insist(plug->ctl, plug->seg.name, method, params, plug->until_ns, result);
}

int ctl_plug_switch(struct ctl_plug *plug, const char *to, bool *changed)
{
	int rc = 0;
	*changed = false;
	for (unsigned i = 0; !rc && i < plug->edge_count; i++) {
		json_t *result = NULL;
		rc = ctl_plug_ask(plug, "edge.set",
			json_pack("{s:s, s:s, s:b}", "edge", plug->edges[i], "to", to,
				"cache_passes", 1),
			&result);
		*changed |= json_is_true(json_object_get(result, "changed"));
		json_decref(result);
	}
	return rc;
}

/* --- what is asked for ---------------------------------------------------------------------- */

struct plug {
	struct ctl_plug plug;
	char argument[ARGUMENT_MAX]; /* as peer.start takes it, without the edge */
	bool in_path, known, serves, named;
	bool started, switched; /* by us */
	bool options;		/* some were given */
	uint64_t lanes;
};

/* "key=value" as it stands in an argument: a comma in a value is no end. */
static int option_append(struct plug *plug, const char *text)
{
	static const char *const ours[] = {"edge.", "begin=", "host="};
	size_t n = strlen(plug->argument), room = sizeof(plug->argument) - 2;
	if (!strchr(text, '=') || text[0] == '=')
		return fault_set(&plug->plug.ctl->fault, FAULT_USAGE, text, "e.g. size=1G",
			"'%s' is no option: key=value", text);
	for (size_t i = 0; i < countof(ours); i++)
		if (!strncmp(text, ours[i], strlen(ours[i])))
			return fault_set(&plug->plug.ctl->fault, FAULT_USAGE, text, NULL,
				"'%s' is for plug to say", text);
	plug->argument[n++] = ',';
	for (; *text && n < room; text++) {
		if (*text == ',' || *text == '\\')
			plug->argument[n++] = '\\';
		plug->argument[n++] = *text;
	}
	plug->argument[n] = 0;
	plug->options = true;
	return *text ? fault_set(&plug->plug.ctl->fault, FAULT_USAGE, NULL, NULL,
			       "the options are too long")
		     : 0;
}

static int read_wish(struct plug *plug)
{
	struct ctl *ctl = plug->plug.ctl;
	const char *at = ctl_option_value(ctl, "at"), *name = ctl_option_value(ctl, "name");
	int rc = ctl_option_number(ctl, "lanes", XSEG_PORT_LANES_MAX, &plug->lanes);
	if (strcmp(ctl->argv[0], CTL_CACHE_ROLE))
		return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[0],
			"xsegctl plug cached --at PEER:EDGE",
			"what can be plugged in is a 'cached', '%s' cannot", ctl->argv[0]);
	if (!at || !strchr(at, ':') || strlen(at) > XSEG_EDGE_NAME_MAX)
		return fault_set(&ctl->fault, FAULT_USAGE, at, "'xsegctl edge list' lists edges",
			"say where: --at PEER:EDGE");
	if (name && !name_check(name))
		return fault_set(
			&ctl->fault, FAULT_USAGE, name, NULL, "'%s' is no name for a peer", name);
	plug->named = name != NULL;
	snprintf(plug->plug.name, sizeof(plug->plug.name), "%s", name ? name : "");
	snprintf(plug->plug.edges[0], sizeof(plug->plug.edges[0]), "%s", at);
	plug->plug.edge_count = 1;
	for (int i = 1; !rc && i < ctl->argc; i++)
		rc = option_append(plug, ctl->argv[i]);
	return rc;
}

/* --- what is there -------------------------------------------------------------------------- */

static bool role_is_cache(const struct xseg *seg, const char *peer)
{
	struct xseg_peer_view view;
	return !xseg_peer_find(seg, peer, &view) && !strcmp(view.role, CTL_CACHE_ROLE);
}

/* Of a row of peer.list; NULL: the keeper does not know it. */
static json_t *row_of(const json_t *list, const char *peer)
{
	json_t *row;
	size_t i;
	json_array_foreach (json_object_get(list, "peers"), i, row)
		if (ctl_plug_row_is(row, "name", peer))
			return row;
	return NULL;
}

/* Begun by a plug that did not come to its end: it leads to the store, and nobody to it. */
static bool half_plugged(struct plug *plug, const char *name, const char *store)
{
	struct ctl_plug other = {.seg = plug->plug.seg};
	char edge[2 * NAME_LENGTH_MAX + 8], to[NAME_LENGTH_MAX + 1];
	snprintf(edge, sizeof(edge), "%s:store", name);
	snprintf(other.name, sizeof(other.name), "%s", name);
	ctl_plug_edges(&other);
	return other.edge_count == 0 && !xseg_edge_target(&plug->plug.seg, edge, to) &&
	       !strcmp(to, store);
}

static void choose_name(struct plug *plug, const json_t *list, const char *store)
{
	for (unsigned i = 0; i < NAMES_MAX; i++) {
		char name[NAME_LENGTH_MAX + 1];
		snprintf(name, sizeof(name), "cache%u", i);
		const json_t *row = row_of(list, name);
		if (row && !(ctl_plug_row_is(row, "role", CTL_CACHE_ROLE) &&
				   half_plugged(plug, name, store)))
			continue;
		snprintf(plug->plug.name, sizeof(plug->plug.name), "%s", name);
		return;
	}
}

static int edge_unknown(const struct plug *plug)
{
	return fault_set(&plug->plug.ctl->fault, FAULT_NOT_FOUND, plug->plug.edges[0],
		"'xsegctl edge list' lists them", "there is no edge '%s'", plug->plug.edges[0]);
}

static int look_name(struct plug *plug, const json_t *list, const char *to)
{
	struct ctl_plug *p = &plug->plug;
	if (!plug->named && role_is_cache(&p->seg, to))
		snprintf(p->name, sizeof(p->name), "%s", to);
	else if (!plug->named)
		choose_name(plug, list, to);
	const json_t *row = row_of(list, p->name);
	const char *role = json_string_value(json_object_get(row, "role"));
	plug->known = row != NULL;
	plug->serves = peer_serves(&p->seg, p->name);
	plug->in_path = !strcmp(to, p->name);
	if (row && role && strcmp(role, CTL_CACHE_ROLE))
		return fault_set(&p->ctl->fault, FAULT_CONFLICT, p->name, "choose another --name",
			"there is a peer '%s' already, a %s", p->name, role);
	if (!plug->in_path && role_is_cache(&p->seg, to))
		return fault_set(&p->ctl->fault, FAULT_CONFLICT, p->edges[0],
			"'xsegctl unplug' takes that out", "edge %s leads to a cache already: '%s'",
			p->edges[0], to);
	return 0;
}

/* Whom the cache stands in front of, and whether it does so already. */
static int look_store(struct plug *plug, const char *to)
{
	struct ctl_plug *p = &plug->plug;
	char edge[2 * NAME_LENGTH_MAX + 8], store[NAME_LENGTH_MAX + 1];
	snprintf(edge, sizeof(edge), "%s:store", p->name);
	int rc = xseg_edge_target(&p->seg, edge, store);
	if (plug->in_path) {
		snprintf(p->store, sizeof(p->store), "%s", store);
		return store[0] ? 0
				: fault_set(&p->ctl->fault, FAULT_FAILED, p->name, NULL,
					  "the edge %s leads nowhere", edge);
	}
	snprintf(p->store, sizeof(p->store), "%s", to);
	if (!rc && plug->known && strcmp(store, to))
		return fault_set(&p->ctl->fault, FAULT_CONFLICT, p->name, "choose another --name",
			"there is a cache '%s' already, in front of '%s'", p->name, store);
	return 0;
}

static int look(struct plug *plug)
{
	struct ctl_plug *p = &plug->plug;
	char to[NAME_LENGTH_MAX + 1];
	json_t *list = NULL;
	int rc = ctl_plug_ask(p, "peer.list", NULL, &list);
	if (!rc && xseg_edge_target(&p->seg, p->edges[0], to))
		rc = edge_unknown(plug);
	else if (!rc && strcmp(strchr(p->edges[0], ':') + 1, "store"))
		rc = fault_set(&p->ctl->fault, FAULT_USAGE, p->edges[0], "e.g. --at vol0:store",
			"a cache stands in front of a store: '%s' is no store edge", p->edges[0]);
	else if (!rc && !to[0])
		rc = fault_set(&p->ctl->fault, FAULT_CONFLICT, p->edges[0],
			"'xsegctl edge set' sets it", "edge %s leads nowhere", p->edges[0]);
	if (!rc)
		rc = look_name(plug, list, to);
	if (!rc)
		rc = look_store(plug, to);
	json_decref(list);
	return rc;
}

/* --- steps ----------------------------------------------------------------------------------- */

static const char *option_of(const struct pipeline *pipeline, const char *key)
{
	const struct pipeline_peer *peer = &pipeline->peers[0];
	for (unsigned i = 0; i < peer->option_count; i++)
		if (!strcmp(peer->options[i].key, key))
			return peer->options[i].value;
	return NULL;
}

static int options_same(struct plug *plug, const struct pipeline *have, const struct pipeline *want)
{
	const struct pipeline_peer *peer = &want->peers[0];
	for (unsigned i = 0; i < peer->option_count; i++) {
		const char *key = peer->options[i].key, *value = option_of(have, key);
		if (!value || strcmp(value, peer->options[i].value))
			return fault_set(&plug->plug.ctl->fault, FAULT_CONFLICT, plug->plug.name,
				"'xsegctl cache' changes what can be changed; or unplug it first",
				"the cache '%s' is there, with %s=%s", plug->plug.name, key,
				value ? value : "...");
	}
	return 0;
}

/* One that runs already must be what is asked for now. */
static int options_compare(struct plug *plug)
{
	char argument[ARGUMENT_MAX + 64];
	struct xseg_peer_view view;
	struct pipeline have, want;
	struct fault ignored = {0};
	if (!plug->options || !plug->serves ||
		xseg_peer_find(&plug->plug.seg, plug->plug.name, &view))
		return 0;
	snprintf(argument, sizeof(argument), "%s=%s%s", plug->plug.name, CTL_CACHE_ROLE,
		plug->argument);
	pipeline_init(&have);
	pipeline_init(&want);
	int rc = 0;
	if (!pipeline_running_host(&have, view.pid, plug->plug.name) && have.peer_count == 1 &&
		!pipeline_text_parse(&want, argument, &ignored))
		rc = options_same(plug, &have, &want);
	pipeline_free(&have);
	pipeline_free(&want);
	return rc;
}

static int start(struct plug *plug)
{
	struct ctl_plug *p = &plug->plug;
	char argument[ARGUMENT_MAX + 128];
	json_t *result = NULL;
	int same = options_compare(plug);
	if (same)
		return same;
	if (plug->known)
		snprintf(argument, sizeof(argument), "%s", p->name);
	else
		snprintf(argument, sizeof(argument), "%s=%s,edge.store=%s,begin=passing%s", p->name,
			CTL_CACHE_ROLE, p->store, plug->argument);
	json_t *params = json_pack(
		"{s:s, s:I}", "peer", argument, "timeout_ns", (json_int_t)p->ctl->timeout_ns);
	if (plug->lanes)
		json_object_set_new(params, "lanes", json_integer((json_int_t)plug->lanes));
	int rc = ctl_plug_ask(p, "peer.start", params, &result);
	plug->started = !rc && !plug->known;
	json_decref(result);
	return rc;
}

static int phase_of(struct plug *plug, struct client *client, uint32_t *phase)
{
	struct cache_state state;
	int error = ctl_cache_ask_state(client, &state);
	*phase = error ? CACHE_PASSING : state.phase;
	return error ? ctl_cache_ask_fault(plug->plug.ctl, plug->plug.name, "asked", error) : 0;
}

/* One that cached for somebody else, or by itself, must not know anything when it comes in. */
static int begin_passing(struct plug *plug, struct client *client)
{
	struct ctl_cache_ask_call drain = {.what = CACHE_DRAIN};
	uint32_t phase;
	int rc = phase_of(plug, client, &phase);
	if (rc || phase == CACHE_PASSING)
		return rc;
	int error = ctl_cache_ask_call(client, &drain);
	return error ? ctl_cache_ask_fault(plug->plug.ctl, plug->plug.name, "drained", error) : 0;
}

/* A drain that was not waited for goes on to its end; then it can begin. */
static int begin_caching(struct plug *plug, struct client *client)
{
	struct ctl_cache_ask_call begin = {.what = CACHE_BEGIN};
	int error, rc = 0;
	while (!rc && (error = ctl_cache_ask_call(client, &begin)) == -EBUSY) {
		time_nap(AGAIN_NS);
		rc = ctl_plug_check(&plug->plug, "it still drains");
	}
	if (rc)
		return rc;
	return error ? ctl_cache_ask_fault(plug->plug.ctl, plug->plug.name, "begun", error) : 0;
}

/* Composers, and exporters for those of other hosts, know whose volumes are. */
static bool knows_owners(const char *role)
{
	return !strcmp(role, "volume") || !strcmp(role, "synapse_export");
}

static int refence(struct ctl_plug *plug, const char *name)
{
	struct ctl *ctl = plug->ctl;
	struct client_control call = {.what = XSEG_CONTROL_REFENCE};
	int error = client_control_once(plug->seg.name, name, ctl->timeout_ns, &call);
	return error ? fault_set(&ctl->fault, FAULT_FAILED, name, "say it again",
			       "'%s' did not say which volumes it has: %s", name, strerror(-error))
		     : 0;
}

/* Whose edge it is, or, when that one only hands on what it hears, who stands above it. */
static int refence_edge(struct ctl_plug *plug, const char *edge, unsigned depth)
{
	struct ctl_plug above = {.ctl = plug->ctl, .seg = plug->seg};
	struct xseg_peer_view view;
	int rc = 0;
	memcpy(above.name, edge, strcspn(edge, ":"));
	if (xseg_peer_find(&plug->seg, above.name, &view) || depth == CTL_EDGES_MAX)
		return 0;
	if (knows_owners(view.role))
		return refence(plug, above.name);
	ctl_plug_edges(&above);
	for (unsigned i = 0; !rc && i < above.edge_count; i++)
		rc = refence_edge(plug, above.edges[i], depth + 1);
	return rc;
}

int ctl_plug_refence(struct ctl_plug *plug)
{
	int rc = 0;
	for (unsigned i = 0; !rc && i < plug->edge_count; i++)
		rc = refence_edge(plug, plug->edges[i], 0);
	return rc;
}

static int put_in(struct plug *plug, struct client *client, bool *changed)
{
	struct ctl_plug *p = &plug->plug;
	uint32_t phase = CACHE_PASSING;
	int rc = plug->in_path ? phase_of(plug, client, &phase) : begin_passing(plug, client);
	if (!rc && phase == CACHE_CACHING)
		return 0;
	*changed = true;
	if (!rc && !plug->in_path)
		rc = ctl_plug_switch(p, p->name, &plug->switched);
	if (!rc)
		rc = ctl_plug_refence(p);
	if (!rc)
		rc = ctl_settle(p, p->store, false);
	return rc ? rc : begin_caching(plug, client);
}

/* ^C, or something went wrong: out of the way again, if it was we who put it there. */
static void undo(struct plug *plug)
{
	struct ctl_plug *p = &plug->plug;
	struct fault first = p->ctl->fault;
	bool changed;
	int rc = 0;
	int signal = ctl_ask_interrupt_block();
	p->until_ns = clock_now_ns() + p->ctl->timeout_ns;
	if (plug->switched)
		rc = ctl_plug_switch(p, p->store, &changed);
	if (plug->started && !rc)
		rc = ctl_unplug_rest(p, false);
	p->ctl->fault = first;
	ctl_ask_interrupt_resume(signal);
	if (rc)
		fault_hint(&p->ctl->fault,
			"'%s' is left and passes everything on; say it again, or 'xsegctl unplug "
			"%s'",
			p->name, p->name);
}

static int steps(struct plug *plug, bool *changed)
{
	struct client client;
	int rc = look(plug);
	if (!rc)
		rc = start(plug);
	*changed = plug->started;
	if (!rc)
		rc = ctl_cache_ask_open(plug->plug.ctl, plug->plug.name, &client);
	if (rc)
		return rc;
	rc = put_in(plug, &client, changed);
	client_close(&client);
	return rc;
}

static int body(struct ctl_work *work, void *context)
{
	struct plug *plug = context;
	struct ctl_plug *p = &plug->plug;
	bool changed = false;
	p->work = work;
	int rc = ctl_join(p->ctl, &p->seg);
	if (rc)
		return rc;
	rc = steps(plug, &changed);
	if (rc && (plug->switched || plug->started))
		undo(plug);
	xseg_segment_leave(&p->seg);
	work->done = work->job.total = 1;
	if (!rc)
		work->result = json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:b}", "name", p->name,
			"role", CTL_CACHE_ROLE, "at", p->edges[0], "store", p->store, "phase",
			"caching", "changed", (int)changed, "dry_run", 0);
	return rc;
}

static void plan_add(json_t *rows, const char *action, const char *object)
{
	json_array_append_new(rows, json_pack("{s:s, s:s, s:s}", "action", action, "object", object,
					    "state", "planned"));
}

static int plan(struct plug *plug)
{
	struct ctl_plug *p = &plug->plug;
	struct client client;
	uint32_t phase = CACHE_PASSING;
	int rc = ctl_join(p->ctl, &p->seg);
	if (rc)
		return rc;
	rc = look(plug);
	if (!rc)
		rc = options_compare(plug);
	if (!rc && plug->serves && !ctl_cache_ask_open(p->ctl, p->name, &client)) {
		rc = phase_of(plug, &client, &phase);
		client_close(&client);
	}
	xseg_segment_leave(&p->seg);
	if (rc)
		return rc;
	json_t *rows = json_array();
	if (!plug->serves)
		plan_add(rows, "start", p->name);
	if (!plug->in_path)
		plan_add(rows, "switch", p->edges[0]);
	if (!plug->in_path || phase != CACHE_CACHING)
		plan_add(rows, "begin", p->name);
	ctl_output_rows(p->ctl, "steps", rows, step_columns, countof(step_columns));
	return 0;
}

static int run(struct ctl *ctl)
{
	struct plug plug = {.plug.ctl = ctl};
	struct ctl_work work = {.ctl = ctl,
		.kind = "cache.plug",
		.object = ctl_option_value(ctl, "at"),
		.keeper_only = true,
		.body = body,
		.context = &plug,
		.columns = plug_columns,
		.column_count = countof(plug_columns)};
	int rc = read_wish(&plug);
	if (rc)
		return rc;
	if (ctl->timeout_given)
		plug.plug.until_ns = clock_now_ns() + ctl->timeout_ns;
	if (ctl_option_given(ctl, "dry-run"))
		return plan(&plug);
	return ctl_work_run(&work, json_pack("{s:s}", "name", plug.plug.name));
}

const struct ctl_verb ctl_plug_verb = {
	"plug",
	NULL,
	"cached [key=value...]",
	1,
	60,
	"put a cache into a running pipeline",
	"\tStarts it in a process of its own, passing everything on; lets the edge lead to it; "
	"waits until nothing is on its way past it any more; then it caches. Guests see nothing of "
	"it. A cache that stands there already is fine (changed: false); what was begun and not "
	"ended goes on. Options of the cache: *xsegpeer --describe-role cached*.\n",
	run,
	{&option_at, &option_name, &option_lanes, &ctl_option_progress, &ctl_option_detach,
		&ctl_option_dry_run},
	.examples = "xsegctl plug cached --at vol0:store --dry-run\n"
		    "xsegctl plug cached --at vol0:store size=512M policy=s3fifo\n",
};
