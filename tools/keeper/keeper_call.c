/* SPDX-License-Identifier: Apache-2.0 */
/* What can be asked of the keeper: a table of calls, their parameters checked against it. */
#include <base/must.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/keeper/keeper.h"
#include "tools/keeper/keeper_ask.h"
#include "tools/keeper/keeper_cache.h"
#include "tools/keeper/keeper_job.h"
#include "tools/pipeline/pipeline_edit.h"
#include "tools/report/program.h"
#include "tools/report/report.h"
#include "tools/report/rpc.h"

#define PARAMETERS_MAX 6u
#define TIMEOUT_MAX_NS (24ull * 3600 * 1000000000u)

struct parameter {
	const char *name;
	json_type type;
	bool required;
	const char *help;
};

struct call {
	const char *name, *help;
	struct parameter parameters[PARAMETERS_MAX];
	int (*run)(struct ask *ask);
	const char *results; /* "name:type ...", those that are always there */
	const char *errors;  /* beside usage and failed, which all may give */
};

/* --- status ----------------------------------------------------------------------------- */

static json_t *peer_named(json_t *peers, const char *name)
{
	size_t i;
	json_t *peer;
	json_array_foreach (peers, i, peer)
		if (!strcmp(json_string_value(json_object_get(peer, "name")), name))
			return peer;
	return NULL;
}

/* What the registry says, and what we know of the process. */
static void overlay(const struct keeper *keeper, const struct pipeline_peer *peer, json_t *peers)
{
	const struct keeper_host *host = &keeper->hosts[peer->host];
	char leaf[NAME_LENGTH_MAX + 8], log[PATH_LENGTH_MAX] = "";
	json_t *row = peer_named(peers, peer->name);
	if (!row) {
		row = json_pack("{s:s, s:s, s:i, s:s, s:i, s:i}", "name", peer->name, "role",
			peer->role, "pid", (int)host->pid, "state", "", "lanes", 0, "inflight", 0);
		report_set_health(row, "ok", "");
		json_array_append_new(peers, row);
	}
	if (host->state != KEEPER_RUNNING)
		json_object_set_new(row, "state", json_string(keeper_states[host->state].name));
	if (host->state == KEEPER_IDLE || host->state == KEEPER_STARTING)
		report_set_health(row, "starting", "");
	if (host->state == KEEPER_DEAD || host->state == KEEPER_GIVEN_UP)
		report_set_health(row, "failed", host->reason);
	if (host->state == KEEPER_WAITING)
		report_set_health(row, "starting", host->reason);
	if (host->state == KEEPER_RUNNING && host->pulse.stuck)
		report_set_health(row, "failed", host->pulse.reason);
	if (host->state == KEEPER_STOPPED)
		report_set_health(row, "ok", host->reason[0] ? host->reason : "stopped on request");
	snprintf(leaf, sizeof(leaf), "%s.log", keeper_host_name(host));
	path_run(log, keeper->name, leaf);
	json_object_set_new(row, "host", json_string(keeper_host_name(host)));
	json_object_set_new(row, "log", json_string(log));
	json_object_set_new(row, "restarts", json_integer((json_int_t)host->restarts));
}

static json_t *peers_with_hosts(const struct keeper *keeper)
{
	json_t *peers = report_peers(&keeper->seg);
	for (unsigned i = 0; i < keeper->pipeline.peer_count; i++)
		overlay(keeper, &keeper->pipeline.peers[i], peers);
	return peers;
}

json_t *keeper_call_status(struct keeper *keeper)
{
	static const char *const phases[] = {"starting", "running", "stopping"};
	char hash[24];
	snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)keeper->pipeline.hash);
	json_t *self = json_pack("{s:s, s:i, s:s, s:s}", "state", phases[keeper->phase], "pid",
		(int)getpid(), "pipeline", keeper->path, "hash", hash);
	if (keeper->guard >= 0)
		json_object_set_new(self, "guard_pid", json_integer(keeper_guard_pid(keeper)));
	return report_status(&keeper->seg, self, peers_with_hosts(keeper));
}

json_t *keeper_call_peer(struct keeper *keeper, const char *name)
{
	json_t *peers = peers_with_hosts(keeper);
	json_t *out = json_pack("{s:i}", "schema_version", REPORT_SCHEMA_VERSION);
	json_object_update_missing(out, peer_named(peers, name));
	json_decref(peers);
	return out;
}

static int run_status(struct ask *ask)
{
	*ask->result = keeper_call_status(ask->keeper);
	return 0;
}

static int run_peer_list(struct ask *ask)
{
	*ask->result = json_pack("{s:i, s:o}", "schema_version", REPORT_SCHEMA_VERSION, "peers",
		peers_with_hosts(ask->keeper));
	return 0;
}

static int run_edge_list(struct ask *ask)
{
	*ask->result = json_pack("{s:i, s:o}", "schema_version", REPORT_SCHEMA_VERSION, "edges",
		report_edges(&ask->keeper->seg));
	return 0;
}

static const char *text_of(const struct ask *ask, const char *name)
{
	return json_string_value(json_object_get(ask->params, name));
}

static int run_stats(struct ask *ask)
{
	const struct keeper *keeper = ask->keeper;
	const char *peer = text_of(ask, "peer");
	json_t *peers = report_stats(&keeper->seg, peer);
	if (peer && !json_array_size(peers)) {
		json_decref(peers);
		return fault_set(ask->fault, FAULT_NOT_FOUND, peer,
			"'xsegctl peer list' lists them", "segment '%s' has no peer '%s'",
			keeper->name, peer);
	}
	*ask->result = json_pack("{s:i, s:s, s:o}", "schema_version", REPORT_SCHEMA_VERSION,
		"segment", keeper->name, "peers", peers);
	return 0;
}

static int run_edge_set(struct ask *ask)
{
	bool plan = json_is_true(json_object_get(ask->params, "dry_run"));
	bool passes = json_is_true(json_object_get(ask->params, "cache_passes"));
	int rc = passes ? 0
			: keeper_cache_guard(ask->keeper, &ask->keeper->pipeline,
				  text_of(ask, "edge"), text_of(ask, "to"), ask->fault);
	if (!rc)
		rc = keeper_edge_set(ask->keeper, text_of(ask, "edge"), text_of(ask, "to"), plan,
			ask->result, ask->fault);
	const char *from = rc ? NULL : json_string_value(json_object_get(*ask->result, "from"));
	if (from && passes && json_is_true(json_object_get(*ask->result, "changed")))
		keeper_cache_switched(ask->keeper, text_of(ask, "edge"), from, text_of(ask, "to"));
	return rc;
}

/* --- operations ------------------------------------------------------------------------- */

static uint64_t timeout_of(const struct ask *ask, uint64_t otherwise)
{
	json_int_t ns = json_integer_value(json_object_get(ask->params, "timeout_ns"));
	if (ns <= 0)
		return otherwise;
	return (uint64_t)ns < TIMEOUT_MAX_NS ? (uint64_t)ns : TIMEOUT_MAX_NS;
}

static int operation_free(struct ask *ask)
{
	const struct keeper *keeper = ask->keeper;
	static const char *const what[] = {"", "a peer is being started", "a peer is being stopped",
		"the pipeline goes down", "a peer is being restarted",
		"a configuration is being applied"};
	if (keeper->phase == KEEPER_PHASE_STARTING)
		return fault_set_again(ask->fault, keeper->name, "try again in a moment",
			"segment '%s' is still coming up", keeper->name);
	if (keeper->phase == KEEPER_PHASE_STOPPING || keeper->operation.kind != KEEPER_OP_NONE)
		return fault_set_again(ask->fault, keeper->name, "try again in a moment",
			"segment '%s' is busy: %s", keeper->name,
			what[keeper->phase == KEEPER_PHASE_STOPPING ? KEEPER_OP_DOWN
								    : keeper->operation.kind]);
	return 0;
}

/* What ends with the keeper has no record after it. */
static void keeper_ask_job(struct keeper *keeper, enum keeper_operation kind, const char *object)
{
	static const char *const kinds[] = {[KEEPER_OP_START] = "peer.start",
		[KEEPER_OP_STOP] = "peer.stop",
		[KEEPER_OP_RESTART] = "peer.restart",
		[KEEPER_OP_CONFIG] = "config.apply"};
	if (kind != KEEPER_OP_DOWN)
		keeper_job_begin(keeper, kinds[kind], object);
}

static int operation_begin(
	struct ask *ask, enum keeper_operation kind, struct keeper_host *host, const char *peer)
{
	struct keeper *keeper = ask->keeper;
	keeper->operation.kind = kind;
	keeper->operation.host = host;
	keeper->operation.client = ask->client;
	keeper->operation.id = json_incref(ask->id);
	snprintf(keeper->operation.peer, sizeof(keeper->operation.peer), "%.31s", peer);
	keeper_ask_job(keeper, kind, peer);
	return KEEPER_LATER;
}

int keeper_ask_free(struct ask *ask) { return operation_free(ask); }

int keeper_call_begin(
	struct ask *ask, enum keeper_operation kind, struct keeper_host *host, const char *object)
{
	return operation_begin(ask, kind, host, object);
}

static int peer_unknown(struct ask *ask, const char *name)
{
	const struct pipeline *pipeline = &ask->keeper->pipeline;
	const char *names[PIPELINE_PEERS_MAX];
	for (unsigned i = 0; i < pipeline->peer_count; i++)
		names[i] = pipeline->peers[i].name;
	fault_set(ask->fault, FAULT_NOT_FOUND, name, NULL, "there is no peer '%s'", name);
	fault_nearest(
		ask->fault, name, names, pipeline->peer_count, "'xsegctl peer list' lists them");
	return -FAULT_NOT_FOUND;
}

static bool only_plan(const struct ask *ask)
{
	return json_is_true(json_object_get(ask->params, "dry_run"));
}

static int unchanged(struct ask *ask, const char *peer)
{
	*ask->result = keeper_call_peer(ask->keeper, peer);
	json_object_set_new(*ask->result, "changed", json_false());
	json_object_set_new(*ask->result, "dry_run", json_boolean(only_plan(ask)));
	return 0;
}

static int start_host(struct ask *ask, struct keeper_host *host, const char *peer)
{
	if (host->state == KEEPER_RUNNING)
		return unchanged(ask, peer);
	if (host->stranger)
		return fault_set(ask->fault, FAULT_USAGE, peer,
			"say NAME=ROLE,key=value under a new name",
			"peer '%s' was not started by this keeper: its options are not known",
			peer);
	if (only_plan(ask))
		return unchanged(ask, peer);
	operation_begin(ask, KEEPER_OP_START, host, peer);
	host->by_hand = host->state == KEEPER_STOPPED || host->state == KEEPER_GIVEN_UP;
	host->quick = 0;
	host->counted = 0;
	if (host->state == KEEPER_STARTING) {
		keeper_turn_soon(ask->keeper); /* the keeper was faster */
		return KEEPER_LATER;
	}
	keeper_host_start(host, timeout_of(ask, ask->keeper->start_ns));
	keeper_turn_soon(ask->keeper);
	return KEEPER_LATER;
}

/* Where its edges lead must be there, and must not lead back. */
static int new_edges(struct ask *ask, const struct pipeline_peer *peer)
{
	for (unsigned i = 0; i < peer->option_count; i++) {
		const struct pipeline_option *option = &peer->options[i];
		if (strncmp(option->key, "edge.", 5))
			continue;
		if (!pipeline_peer_find(&ask->keeper->pipeline, option->value))
			return peer_unknown(ask, option->value);
		if (keeper_edge_reaches(&ask->keeper->seg, option->value, peer->name))
			return fault_set(ask->fault, FAULT_USAGE, peer->name, NULL,
				"%s=%s leads back to '%s'", option->key, option->value, peer->name);
	}
	return 0;
}

/* What the pipeline file says of how a peer of that name and role is kept: it was plugged out, say,
   and comes in again. A file that cannot be read says nothing. */
static void keys_of_file(
	const struct keeper *keeper, struct pipeline_peer *peer, struct pipeline_host *process)
{
	struct pipeline file;
	struct fault ignored = {0};
	const struct pipeline_peer *known = pipeline_load(&file, keeper->path, &ignored)
						    ? NULL
						    : pipeline_peer_find(&file, peer->name);
	if (known && !strcmp(known->role, peer->role))
		pipeline_keep_copy(&file, known, peer, process);
	pipeline_free(&file);
}

static int start_new(struct ask *ask, const char *argument)
{
	struct keeper *keeper = ask->keeper;
	struct pipeline *pipeline = &keeper->pipeline;
	int rc = pipeline_text_parse(pipeline, argument, ask->fault);
	if (rc)
		return rc;
	struct pipeline_peer *peer = &pipeline->peers[pipeline->peer_count - 1];
	rc = new_edges(ask, peer);
	if (!rc && pipeline_host_find(pipeline, peer->name))
		rc = fault_set(ask->fault, FAULT_CONFLICT, peer->name, NULL,
			"there is a process '%s' already", peer->name);
	struct pipeline_host *process = rc ? NULL : pipeline_host_add(pipeline, peer->name);
	if (!rc && !process)
		rc = fault_set(ask->fault, FAULT_FAILED, peer->name, NULL, "too many processes");
	if (rc) {
		pipeline_peer_drop(pipeline);
		return rc;
	}
	keys_of_file(keeper, peer, process);
	unsigned lanes = (unsigned)json_integer_value(json_object_get(ask->params, "lanes"));
	process->lanes = lanes ? lanes : process->lanes;
	peer->host = (unsigned)(process - pipeline->hosts);
	struct pipeline_keep keep;
	rc = pipeline_keep_read(pipeline, peer->host, &keep, ask->fault);
	if (!rc && only_plan(ask))
		*ask->result = json_pack("{s:i, s:s, s:s, s:i, s:s, s:b, s:b}", "schema_version",
			REPORT_SCHEMA_VERSION, "name", peer->name, "role", peer->role, "pid", 0,
			"state", "new", "changed", 0, "dry_run", 1);
	if (rc || only_plan(ask)) {
		pipeline_host_clear(process);
		pipeline->host_count--;
		pipeline_peer_drop(pipeline);
		return rc;
	}
	keeper_host_init(keeper, peer->host);
	keeper->order[keeper->order_count++] = peer->host;
	rc = start_host(ask, &keeper->hosts[peer->host], peer->name);
	keeper->operation.fresh = true;
	return rc;
}

static int run_peer_start(struct ask *ask)
{
	const char *argument = text_of(ask, "peer");
	json_int_t lanes = json_integer_value(json_object_get(ask->params, "lanes"));
	int rc = operation_free(ask);
	if (rc)
		return rc;
	if (lanes < 0 || lanes > XSEG_PORT_LANES_MAX)
		return fault_set(ask->fault, FAULT_USAGE, "lanes", NULL, "lanes: 1 to %u",
			XSEG_PORT_LANES_MAX);
	const struct pipeline_peer *peer = pipeline_peer_find(&ask->keeper->pipeline, argument);
	if (peer)
		return start_host(ask, &ask->keeper->hosts[peer->host], peer->name);
	if (!strchr(argument, '='))
		return peer_unknown(ask, argument);
	return start_new(ask, argument);
}

/* --- stopping one process ---------------------------------------------------------------- */

static int shares_process(struct ask *ask, const struct pipeline_peer *peer)
{
	const struct pipeline *pipeline = &ask->keeper->pipeline;
	char list[256] = "";
	for (unsigned i = 0; i < pipeline->peer_count; i++) {
		const struct pipeline_peer *other = &pipeline->peers[i];
		size_t n = strlen(list);
		if (other != peer && other->host == peer->host)
			snprintf(list + n, sizeof(list) - n, "%s%s", n ? ", " : "", other->name);
	}
	if (!list[0] || json_is_true(json_object_get(ask->params, "host")))
		return 0;
	return fault_set(ask->fault, FAULT_BUSY, peer->name, "--host takes them all",
		"peer '%s' shares its process with %s", peer->name, list);
}

static int run_peer_stop(struct ask *ask)
{
	struct keeper *keeper = ask->keeper;
	const char *name = text_of(ask, "peer");
	const struct pipeline_peer *peer = pipeline_peer_find(&keeper->pipeline, name);
	char users[256];
	int rc = operation_free(ask);
	if (!rc && !peer)
		rc = peer_unknown(ask, name);
	if (rc)
		return rc;
	struct keeper_host *host = &keeper->hosts[peer->host];
	bool runs = host->state == KEEPER_RUNNING || host->state == KEEPER_STARTING;
	rc = runs ? shares_process(ask, peer) : 0;
	if (rc)
		return rc;
	if (runs && keeper_edge_users(keeper, host, users, sizeof(users)))
		return fault_set(ask->fault, FAULT_BUSY, name,
			"stop those first, or let their edges lead elsewhere",
			"peer '%s' is in use by %s", name, users);
	/* a dead one that is not wanted back is no fault any more */
	bool plan = json_is_true(json_object_get(ask->params, "dry_run"));
	bool gone = host->state == KEEPER_DEAD || host->state == KEEPER_GIVEN_UP ||
		    host->state == KEEPER_WAITING;
	bool buried = gone && !plan;
	if (buried)
		keeper_restart_cancel(host);
	if (!runs || plan) {
		*ask->result = keeper_call_peer(keeper, name);
		json_object_set_new(*ask->result, "changed", json_boolean(buried));
		return 0;
	}
	operation_begin(ask, KEEPER_OP_STOP, host, name);
	keeper_host_stop(host, timeout_of(ask, keeper->stop_ns), false);
	return KEEPER_LATER;
}

/* --- another process in place of one ------------------------------------------------------ */

/* --exec: the program is looked for anew, and asked before the old one is stopped. */
static int renew_program(struct ask *ask, const struct keeper_host *host)
{
	struct keeper *keeper = ask->keeper;
	char path[PATH_MAX];
	if (program_find("xsegpeer", path))
		return fault_set(ask->fault, FAULT_FAILED, "xsegpeer",
			"SKERRY_XSEGPEER says where it is", "xsegpeer is not found");
	memcpy(keeper->xsegpeer, path, sizeof(path));
	return keeper_check_host(keeper, host->index, ask->fault);
}

static int restart_check(struct ask *ask, const struct keeper_host *host, const char *name)
{
	if (host->stranger)
		return fault_set(ask->fault, FAULT_USAGE, name, NULL,
			"peer '%s' was not started by this keeper: its options are not known",
			name);
	return json_is_true(json_object_get(ask->params, "exec")) ? renew_program(ask, host) : 0;
}

static int run_peer_restart(struct ask *ask)
{
	struct keeper *keeper = ask->keeper;
	const char *name = text_of(ask, "peer");
	const struct pipeline_peer *peer = pipeline_peer_find(&keeper->pipeline, name);
	int rc = operation_free(ask);
	if (!rc && !peer)
		rc = peer_unknown(ask, name);
	if (rc)
		return rc;
	struct keeper_host *host = &keeper->hosts[peer->host];
	rc = restart_check(ask, host, name);
	if (rc)
		return rc;
	if (host->state != KEEPER_RUNNING)
		return start_host(ask, host, name);
	rc = shares_process(ask, peer);
	if (rc || only_plan(ask))
		return rc ? rc : unchanged(ask, name);
	keeper_event_host(host, "peer_restarting", "restart was asked for", NULL);
	operation_begin(ask, KEEPER_OP_RESTART, host, name);
	keeper_host_stop(host, timeout_of(ask, keeper->stop_ns), true);
	return KEEPER_LATER;
}

/* --- down ------------------------------------------------------------------------------- */

static int run_down(struct ask *ask)
{
	struct keeper *keeper = ask->keeper;
	char strangers[256];
	int rc = keeper->phase == KEEPER_PHASE_STARTING ? 0 : operation_free(ask);
	if (rc)
		return rc;
	if (keeper_adopt_strangers(keeper, strangers, sizeof(strangers)))
		return fault_set(ask->fault, FAULT_BUSY, keeper->name, "stop them first",
			"segment '%s' is in use by peers that the keeper did not start: %s",
			keeper->name, strangers);
	if (json_is_true(json_object_get(ask->params, "dry_run"))) {
		*ask->result = json_pack("{s:i, s:s, s:i, s:b, s:b}", "schema_version",
			REPORT_SCHEMA_VERSION, "segment", keeper->name, "stopped_count", 0,
			"segment_destroyed", 0, "dry_run", 1);
		return 0;
	}
	struct fault aborted = {0};
	if (keeper->phase == KEEPER_PHASE_STARTING)
		fault_set(&aborted, FAULT_FAILED, keeper->name, NULL,
			"'down' was asked for before everything was up");
	json_int_t discard = json_integer_value(json_object_get(ask->params, "discard_dirty"));
	keeper->discard_dirty = discard > 0 ? (uint64_t)discard : 0;
	keeper->stop_ns = timeout_of(ask, keeper->stop_ns);
	operation_begin(ask, KEEPER_OP_DOWN, NULL, "");
	keeper_turn_down(keeper, aborted.code ? &aborted : NULL);
	return KEEPER_LATER;
}

/* --- the table -------------------------------------------------------------------------- */

static int run_describe(struct ask *ask);

/* What `status` says of one peer, and what was done to it. */
#define PEER_RESULTS \
	"schema_version:integer name:string role:string pid:integer state:string " \
	"changed:boolean"
#define JOB_RESULTS \
	"schema_version:integer job:integer kind:string object:string state:string " \
	"unit:string done:integer total:integer percent:integer reason:string"

static const struct call calls[] = {
	{"rpc.describe", "lists all calls, their parameters, results and errors", {{0}},
		run_describe,
		"schema_version:integer protocol:string message_bytes_max:integer "
		"batches:boolean methods:array",
		""},
	{"status", "segment, peers, edges and their health", {{0}}, run_status,
		"schema_version:integer healthy:boolean segment:object keeper:object peers:array "
		"edges:array",
		""},
	{"stats", "counters and histograms of every peer",
		{{"peer", JSON_STRING, false, "only this one"}}, run_stats,
		"schema_version:integer segment:string peers:array", "not-found"},
	{"peer.list", "peers and their processes", {{0}}, run_peer_list,
		"schema_version:integer peers:array", ""},
	{"peer.start", "starts a peer; answers when it serves",
		{{"peer", JSON_STRING, true, "NAME of the pipeline, or NAME=ROLE,key=value,..."},
			{"lanes", JSON_INTEGER, false, "threads of its process"},
			{"timeout_ns", JSON_INTEGER, false, "limit for its start"},
			{"dry_run", JSON_TRUE, false, "only check"}},
		run_peer_start, PEER_RESULTS, "not-found conflict busy timeout"},
	{"peer.stop", "drains a peer and ends its process; answers when it has ended",
		{{"peer", JSON_STRING, true, "its name"},
			{"host", JSON_TRUE, false, "with all peers of its process"},
			{"timeout_ns", JSON_INTEGER, false, "limit for draining"},
			{"dry_run", JSON_TRUE, false, "only check"}},
		run_peer_stop, PEER_RESULTS, "not-found busy partly-done"},
	{"peer.restart", "puts a new process in a peer's place; what is sent to it meanwhile waits",
		{{"peer", JSON_STRING, true, "its name"},
			{"host", JSON_TRUE, false, "with all peers of its process"},
			{"exec", JSON_TRUE, false, "look for a new program, and ask it first"},
			{"timeout_ns", JSON_INTEGER, false, "limit for draining"},
			{"dry_run", JSON_TRUE, false, "only check"}},
		run_peer_restart, PEER_RESULTS, "not-found busy timeout partly-done"},
	{"peer.forget", "takes a stopped peer that no edge leads to out of the pipeline",
		{{"peer", JSON_STRING, true, "its name"},
			{"dry_run", JSON_TRUE, false, "only check"}},
		keeper_cache_forget, "schema_version:integer name:string changed:boolean",
		"not-found busy"},
	{"edge.list", "edges and where they lead", {{0}}, run_edge_list,
		"schema_version:integer edges:array", ""},
	{"edge.set", "lets an edge lead to another peer",
		{{"edge", JSON_STRING, true, "PEER:EDGE"},
			{"to", JSON_STRING, true, "a peer, or none"},
			{"cache_passes", JSON_TRUE, false,
				"from or to a cache that keeps nothing back just now"},
			{"dry_run", JSON_TRUE, false, "only check"}},
		run_edge_set,
		"schema_version:integer name:string to:string generation:integer changed:boolean",
		"not-found busy"},
	{"config.get", "a pipeline file that says what runs", {{0}}, keeper_ask_config_get,
		"schema_version:integer segment:string pipeline:string text:string", ""},
	{"config.diff", "what applying a pipeline file would do",
		{{"text", JSON_STRING, true, "the file"}}, keeper_ask_config_diff,
		"schema_version:integer segment:string same:boolean changed:boolean done:integer "
		"steps:array",
		""},
	{"config.apply", "makes what runs what the file says, a job; answers when that is so",
		{{"text", JSON_STRING, true, "the file"},
			{"path", JSON_STRING, false, "where it lies, from then on the keeper's"},
			{"hash", JSON_STRING, false, "of it, 16 digits"},
			{"timeout_ns", JSON_INTEGER, false, "limit for each start and stop"},
			{"dry_run", JSON_TRUE, false, "only say what would be done"}},
		keeper_ask_config_apply,
		"schema_version:integer segment:string same:boolean changed:boolean done:integer "
		"steps:array",
		"conflict busy timeout partly-done"},
	{"job.list", "long work, under way and of late", {{0}}, keeper_ask_job_list,
		"schema_version:integer segment:string jobs:array", ""},
	{"job.show", "one job, with its result when it has ended",
		{{"job", JSON_INTEGER, true, "its number"}}, keeper_ask_job_show, JOB_RESULTS,
		"not-found"},
	{"job.cancel", "tells a job to end; it undoes what it did",
		{{"job", JSON_INTEGER, true, "its number"},
			{"dry_run", JSON_TRUE, false, "only check"}},
		keeper_ask_job_cancel, JOB_RESULTS " changed:boolean", "not-found busy"},
	{"segment.reap", "gives back what dead processes had",
		{{"dry_run", JSON_TRUE, false, "only count them"}}, keeper_ask_reap,
		"schema_version:integer segment:string lanes:integer freed:integer "
		"resubmitted:integer pages:integer pending:integer changed:boolean",
		"busy"},
	{"down", "stops everything, then the keeper; answers when all has stopped",
		{{"timeout_ns", JSON_INTEGER, false, "limit for each process"},
			{"discard_dirty", JSON_INTEGER, false,
				"bytes that did not reach their store and may be lost"},
			{"dry_run", JSON_TRUE, false, "only check"}},
		run_down,
		"schema_version:integer segment:string stopped_count:integer "
		"segment_destroyed:boolean",
		"busy partly-done"},
};

static const char *type_name(json_type type)
{
	return type == JSON_STRING ? "string" : type == JSON_INTEGER ? "integer" : "boolean";
}

static json_t *describe_parameters(const struct call *call)
{
	json_t *out = json_array();
	for (unsigned i = 0; i < PARAMETERS_MAX && call->parameters[i].name; i++) {
		const struct parameter *p = &call->parameters[i];
		json_array_append_new(out,
			json_pack("{s:s, s:s, s:b, s:s}", "name", p->name, "type",
				type_name(p->type), "required", (int)p->required, "help", p->help));
	}
	return out;
}

/* "name:type" -> {name, type}; "name" -> a string. */
static json_t *describe_words(const char *words)
{
	json_t *out = json_array();
	while (*words) {
		/* json_pack's lengths are size_t */
		size_t length = strcspn(words, " "), name = strcspn(words, ": ");
		if (name == length)
			json_array_append_new(out, json_stringn(words, length));
		else
			json_array_append_new(
				out, json_pack("{s:s%, s:s%}", "name", words, name, "type",
					     words + name + 1, length - name - 1));
		words += length;
		words += strspn(words, " ");
	}
	return out;
}

static json_t *describe_errors(const struct call *call)
{
	json_t *errors = describe_words("usage failed"), *more = describe_words(call->errors);
	json_array_extend(errors, more);
	json_decref(more);
	return errors;
}

static int run_describe(struct ask *ask)
{
	json_t *methods = json_array();
	for (size_t i = 0; i < countof(calls); i++)
		json_array_append_new(methods,
			json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", calls[i].name, "help",
				calls[i].help, "params", describe_parameters(&calls[i]), "result",
				describe_words(calls[i].results), "errors",
				describe_errors(&calls[i])));
	*ask->result = json_pack("{s:i, s:s, s:I, s:b, s:o}", "schema_version",
		REPORT_SCHEMA_VERSION, "protocol", "JSON-RPC 2.0, one message a line",
		"message_bytes_max", (json_int_t)RPC_MESSAGE_MAX, "batches", 0, "methods", methods);
	return 0;
}

/* --- checking --------------------------------------------------------------------------- */

static const struct parameter *parameter_find(const struct call *call, const char *name)
{
	for (unsigned i = 0; i < PARAMETERS_MAX && call->parameters[i].name; i++)
		if (!strcmp(call->parameters[i].name, name))
			return &call->parameters[i];
	return NULL;
}

static bool type_fits(const json_t *value, json_type type)
{
	if (type == JSON_TRUE)
		return json_is_boolean(value);
	return json_typeof(value) == type;
}

static int parameter_unknown(const struct call *call, const char *name, struct fault *fault)
{
	const char *names[PARAMETERS_MAX];
	size_t count = 0;
	while (count < PARAMETERS_MAX && call->parameters[count].name) {
		names[count] = call->parameters[count].name;
		count++;
	}
	fault_set(fault, FAULT_USAGE, name, NULL, "%s has no parameter '%s'", call->name, name);
	fault_nearest(fault, name, names, count, "rpc.describe lists them");
	return -FAULT_USAGE;
}

static int parameters_check(const struct call *call, json_t *params, struct fault *fault)
{
	const char *name;
	json_t *value;
	if (params && !json_is_object(params))
		return fault_set(fault, FAULT_USAGE, call->name, NULL, "params is an object");
	json_object_foreach (params, name, value) {
		const struct parameter *p = parameter_find(call, name);
		if (!p)
			return parameter_unknown(call, name, fault);
		if (!type_fits(value, p->type))
			return fault_set(fault, FAULT_USAGE, name, NULL, "'%s' is a %s", name,
				type_name(p->type));
	}
	for (unsigned i = 0; i < PARAMETERS_MAX && call->parameters[i].name; i++)
		if (call->parameters[i].required &&
			!json_object_get(params, call->parameters[i].name))
			return fault_set(fault, FAULT_USAGE, call->parameters[i].name, NULL,
				"%s needs '%s'", call->name, call->parameters[i].name);
	return 0;
}

static int call_unknown(const char *method, struct fault *fault)
{
	const char *names[countof(calls)];
	for (size_t i = 0; i < countof(calls); i++)
		names[i] = calls[i].name;
	fault_set(fault, FAULT_USAGE, method, NULL, "there is no call '%s'", method);
	fault_nearest(fault, method, names, countof(calls), "rpc.describe lists them");
	return -FAULT_USAGE;
}

static bool request_valid(const json_t *request)
{
	const char *version = json_string_value(json_object_get(request, "jsonrpc"));
	const json_t *id = json_object_get(request, "id");
	bool id_good = !id || json_is_string(id) || json_is_number(id) || json_is_null(id);
	return version && !strcmp(version, "2.0") && id_good &&
	       json_is_string(json_object_get(request, "method"));
}

int keeper_call(struct keeper *keeper, struct keeper_client *client, const json_t *request,
	json_t **result, struct fault *fault, int *rpc_code)
{
	struct ask ask = {.keeper = keeper,
		.client = client,
		.id = json_object_get(request, "id"),
		.params = json_object_get(request, "params"),
		.result = result,
		.fault = fault};
	*rpc_code = RPC_INVALID_REQUEST;
	if (!request_valid(request))
		return fault_set(fault, FAULT_USAGE, NULL, NULL,
			"not a JSON-RPC 2.0 request: jsonrpc, method, params, id");
	const char *method = json_string_value(json_object_get(request, "method"));
	for (size_t i = 0; i < countof(calls); i++) {
		if (strcmp(calls[i].name, method))
			continue;
		*rpc_code = RPC_INVALID_PARAMS;
		int rc = parameters_check(&calls[i], (json_t *)ask.params, fault);
		if (rc)
			return rc;
		*rpc_code = RPC_APPLICATION;
		return calls[i].run(&ask);
	}
	*rpc_code = RPC_NO_METHOD;
	return call_unknown(method, fault);
}
