/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that are one call of the keeper, as a table: peers, edges and jobs. */
#include "tools/ctl/ctl_remote.h"

#include <base/must.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ctl/ctl_front.h"
#include "tools/ctl/ctl_rpc.h"

#define GRACE_NS 5000000000u

static const struct ctl_option option_lanes = {
	"lanes", 0, "N", "threads of its process (default 1)", NULL};
static const struct ctl_option option_host = {
	"host", 0, NULL, "with every peer of its process", NULL};
static const struct ctl_option option_exec = {
	"exec", 0, NULL, "look for a new xsegpeer: a live upgrade", NULL};

static const struct ctl_column peer_columns[] = {{"name", "name", CTL_TEXT},
	{"role", "role", CTL_TEXT}, {"pid", "pid", CTL_COUNT}, {"state", "state", CTL_TEXT},
	{"changed", "changed", CTL_TEXT}};
static const struct ctl_column forget_columns[] = {
	{"name", "name", CTL_TEXT}, {"changed", "changed", CTL_TEXT}};
static const struct ctl_column edge_columns[] = {{"name", "edge", CTL_TEXT},
	{"from", "led to", CTL_TEXT}, {"to", "leads to", CTL_TEXT},
	{"generation", "generation", CTL_COUNT}, {"changed", "changed", CTL_TEXT}};
static const struct ctl_column cancel_columns[] = {{"job", "job", CTL_COUNT},
	{"kind", "kind", CTL_TEXT}, {"object", "object", CTL_TEXT}, {"state", "state", CTL_TEXT},
	{"changed", "changed", CTL_TEXT}};

struct remote {
	const struct ctl_verb *verb;
	const char *method;
	const char *parameters[2]; /* the arguments' */
	bool timed;		   /* takes --timeout */
	const struct ctl_column *columns;
	size_t column_count;
};

static const struct remote remotes[] = {
	{&ctl_peer_start, "peer.start", {"peer"}, true, peer_columns, countof(peer_columns)},
	{&ctl_peer_stop, "peer.stop", {"peer"}, true, peer_columns, countof(peer_columns)},
	{&ctl_peer_restart, "peer.restart", {"peer"}, true, peer_columns, countof(peer_columns)},
	{&ctl_peer_rm, "peer.forget", {"peer"}, false, forget_columns, countof(forget_columns)},
	{&ctl_edge_set, "edge.set", {"edge", "to"}, false, edge_columns, countof(edge_columns)},
	{&ctl_job_cancel, "job.cancel", {"job"}, false, cancel_columns, countof(cancel_columns)},
};

/* The keeper gives up in time; we wait a little longer, for its reason. */
int ctl_remote_call(struct ctl *ctl, const char *method, json_t *params, json_t **result)
{
	char name[NAME_LENGTH_MAX + 1];
	int rc = ctl_join_segment_name(ctl, name);
	if (rc) {
		json_decref(params);
		return rc;
	}
	ctl->timeout_ns += GRACE_NS;
	ctl_ask_interrupt_catch();
	return ctl_rpc_call(ctl, name, method, params, result);
}

static int option_add(struct ctl *ctl, const struct ctl_option *option, json_t *params)
{
	char name[64];
	uint64_t count = 0;
	snprintf(name, sizeof(name), "%s", option->name);
	for (char *c = name; *c; c++)
		*c = *c == '-' ? '_' : *c;
	if (!option->argument)
		return json_object_set_new(params, name, json_true());
	if (strcmp(option->argument, "N"))
		return json_object_set_new(
			params, name, json_string(ctl_option_value(ctl, option->name)));
	int rc = ctl_option_number(ctl, option->name, INT32_MAX, &count);
	return rc ? rc : json_object_set_new(params, name, json_integer((json_int_t)count));
}

static int argument_add(struct ctl *ctl, const char *name, const char *text, json_t *params)
{
	char *end;
	if (strcmp(name, "job"))
		return json_object_set_new(params, name, json_string(text));
	long id = strtol(text, &end, 10);
	if (*end || id < 1)
		return fault_set(&ctl->fault, FAULT_USAGE, text, "'xsegctl job list' lists them",
			"'%s' is not a job's number", text);
	return json_object_set_new(params, name, json_integer(id));
}

static int params_make(struct ctl *ctl, const struct remote *remote, json_t *params)
{
	int rc = 0;
	for (int i = 0; !rc && i < ctl->argc && i < 2; i++)
		rc = argument_add(ctl, remote->parameters[i], ctl->argv[i], params);
	for (unsigned i = 0; !rc && i < CTL_OPTIONS_MAX && ctl->verb->options[i]; i++)
		if (ctl->values[i] && ctl->verb->options[i] != &ctl_option_yes)
			rc = option_add(ctl, ctl->verb->options[i], params);
	if (remote->timed)
		json_object_set_new(
			params, "timeout_ns", json_integer((json_int_t)ctl->timeout_ns));
	return rc;
}

int ctl_remote(struct ctl *ctl)
{
	const struct remote *remote = remotes;
	json_t *result, *params = json_object();
	while (remote->verb != ctl->verb)
		must(++remote < remotes + countof(remotes));
	int rc = params_make(ctl, remote, params);
	if (rc) {
		json_decref(params);
		return rc;
	}
	rc = ctl_remote_call(ctl, remote->method, params, &result);
	if (!rc)
		ctl_output_one(ctl, result, remote->columns, remote->column_count);
	return rc;
}

const struct ctl_verb ctl_peer_start = {
	"peer",
	"start",
	"NAME[=ROLE,key=value,...]",
	1,
	1,
	"start a peer in a process of its own",
	"\tWith a role: a new peer; edges are options, edge.X=PEER; a comma in a value is written "
	"\\\\,. Without: one of the pipeline that has died or was stopped. Returns when it "
	"serves.\n",
	ctl_remote,
	{&option_lanes, &ctl_option_dry_run},
	.examples = "xsegctl peer start nbd0\n"
		    "xsegctl peer start mem1=blocker_memory --lanes 2\n",
};

static int run_stop(struct ctl *ctl)
{
	const struct ctl_front_wish its = {.peer = ctl->argv[0]};
	char deed[96];
	snprintf(deed, sizeof(deed), "stop peer '%.60s'", ctl->argv[0]);
	int rc = ctl_front_ask(ctl, &its, deed);
	return rc ? rc : ctl_remote(ctl);
}

const struct ctl_verb ctl_peer_stop = {
	"peer",
	"stop",
	"NAME",
	1,
	1,
	"drain a peer and end its process",
	"\tRefuses while an edge of a serving peer leads to it, or while it shares its process "
	"with others (see --host), and says which. With clients attached to a front it asks, or "
	"needs *--yes*.\n",
	run_stop,
	{&option_host, &ctl_option_yes, &ctl_option_dry_run},
	.examples = "xsegctl peer stop nbd0 --host\n",
};

const struct ctl_verb ctl_peer_restart = {
	"peer",
	"restart",
	"NAME",
	1,
	1,
	"put a new process in a peer's place",
	"\tWhat is sent to it meanwhile waits: a guest sees a pause, no error. With --exec the "
	"program is looked for anew, and asked whether it knows the peer's role and options before "
	"the old process is stopped. One that does not run is started.\n",
	ctl_remote,
	{&option_host, &option_exec, &ctl_option_dry_run},
	.examples = "xsegctl peer restart vol0\n"
		    "xsegctl peer restart vol0 --host --exec\n",
};

const struct ctl_verb ctl_peer_rm = {
	"peer",
	"rm",
	"NAME",
	1,
	1,
	"take a stopped peer out of the pipeline",
	"\tThe keeper forgets it; the pipeline file stays as it is. Refuses while an edge leads to "
	"it, "
	"while it runs, and while a cache has what its store lacks.\n",
	ctl_remote,
	{&ctl_option_dry_run},
	.examples = "xsegctl peer stop cache0\nxsegctl peer rm cache0\n",
};

const struct ctl_verb ctl_edge_set = {
	"edge",
	"set",
	"PEER:EDGE PEER",
	2,
	2,
	"let an edge lead to another peer",
	"\tTakes effect with the next request; those in flight end where they went. The new peer "
	"must serve, and must not lead back. *none* lets it lead nowhere.\n",
	ctl_remote,
	{&ctl_option_dry_run},
	.examples = "xsegctl edge set vol0:store mem1\n"
		    "xsegctl edge set vol0:store none --dry-run\n",
};

const struct ctl_verb ctl_job_cancel = {
	"job",
	"cancel",
	"JOB",
	1,
	1,
	"end a job; it undoes what it did",
	"\tReturns when it has been told; *job wait* waits until it has ended. One that has ended "
	"is fine (changed: false).\n",
	ctl_remote,
	{&ctl_option_dry_run},
	.examples = "xsegctl job cancel 3\n",
};
