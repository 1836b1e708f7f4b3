/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a running pipeline another one, step by step, and puts back what a failed step stopped. */
#include "tools/keeper/keeper_config.h"

#include <base/log.h>
#include <base/must.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/keeper/keeper_cache.h"
#include "tools/pipeline/pipeline_diff.h"
#include "tools/pipeline/pipeline_edit.h"
#include "tools/pipeline/pipeline_keep.h"
#include "tools/pipeline/pipeline_running.h"
#include "tools/report/report.h"

enum outcome { STEP_WAIT, STEP_DONE, STEP_FAILED };

struct keeper_config {
	struct pipeline have, want;
	struct pipeline_plan plan;
	unsigned at, done;
	unsigned stage; /* within the step */
	bool cancelled;
	bool undoing;		  /* a step has failed: `at` counts have's hosts */
	struct keeper_host *host; /* of the step */
	char path[PATH_MAX];
	uint64_t hash, limit_ns;
	struct fault fault;
	char killed[128]; /* who did not drain */
};

/* --- what runs -------------------------------------------------------------------------- */

static void copy_keys(const struct pipeline_host *from, struct pipeline_host *to)
{
	for (unsigned i = 0; i < from->option_count; i++)
		must(!pipeline_host_option_add(
			to, from->options[i].key, from->options[i].value, PIPELINE_FILES_MAX, 0));
}

/* What a command line does not show. */
static void add_keys(const struct keeper *keeper, unsigned index, struct pipeline *out)
{
	copy_keys(&keeper->pipeline.hosts[index], &out->hosts[out->host_count - 1]);
	for (unsigned i = 0; i < keeper->pipeline.peer_count; i++) {
		const struct pipeline_peer *from = &keeper->pipeline.peers[i];
		struct pipeline_peer *to =
			(struct pipeline_peer *)pipeline_peer_find(out, from->name);
		for (unsigned j = 0; to && from->host == index && j < from->option_count; j++)
			if (pipeline_keep_key(from->options[j].key))
				pipeline_option_add(to, from->options[j].key,
					from->options[j].value, PIPELINE_FILES_MAX, 0);
	}
}

/* As the keeper would start it. */
static void copy_host(const struct keeper *keeper, unsigned index, struct pipeline *out)
{
	const struct pipeline_host *from = &keeper->pipeline.hosts[index];
	struct pipeline_host *host = pipeline_host_add(out, from->name);
	must(host);
	host->lanes = from->lanes;
	host->workers = from->workers;
	copy_keys(from, host);
	for (unsigned i = 0; i < keeper->pipeline.peer_count; i++) {
		if (keeper->pipeline.peers[i].host != index)
			continue;
		struct pipeline_peer *peer = pipeline_peer_copy(out, &keeper->pipeline.peers[i]);
		must(peer);
		peer->host = (unsigned)(host - out->hosts);
		host->peer_count++;
	}
}

static void add_host(const struct keeper *keeper, unsigned index, struct pipeline *out)
{
	const struct keeper_host *host = &keeper->hosts[index];
	const char *name = keeper_host_name(host);
	bool runs = host->state == KEEPER_RUNNING;
	if (runs && !pipeline_running_host(out, host->pid, name))
		add_keys(keeper, index, out);
	else
		copy_host(keeper, index, out);
	out->hosts[out->host_count - 1].down = !runs;
}

/* Those that were stopped on request only with `stopped`. */
static void running(const struct keeper *keeper, bool stopped, struct pipeline *out)
{
	pipeline_init(out);
	snprintf(out->segment, sizeof(out->segment), "%s", keeper->name);
	out->size = keeper->seg.size;
	out->size_given = true;
	out->lanes = keeper->seg.lane_count;
	out->huge = keeper->pipeline.huge ? strdup(keeper->pipeline.huge) : NULL;
	const char *group = keeper->pipeline.socket_group;
	out->socket_group = group ? strdup(group) : NULL;
	for (unsigned i = 0; i < keeper->order_count; i++) {
		unsigned index = keeper->order[i];
		if (stopped || keeper->hosts[index].state != KEEPER_STOPPED)
			add_host(keeper, index, out);
	}
	pipeline_running_begun(out);
	pipeline_running_edges(out, &keeper->seg);
	pipeline_check_order(out);
}

int keeper_config_get(struct keeper *keeper, json_t **result, struct fault *fault)
{
	struct pipeline have;
	running(keeper, false, &have);
	char *text = pipeline_write_text(&have, fault);
	pipeline_free(&have);
	if (!text)
		return -(int)fault->code;
	*result = json_pack("{s:i, s:s, s:s, s:s}", "schema_version", REPORT_SCHEMA_VERSION,
		"segment", keeper->name, "pipeline", keeper->path, "text", text);
	free(text);
	return 0;
}

/* --- what is to be done ----------------------------------------------------------------- */

static const char *step_state(const struct keeper_config *config, unsigned index)
{
	if (index < config->done)
		return "done";
	return config->fault.code && index == config->done ? "failed" : "planned";
}

static json_t *steps_json(const struct keeper_config *config)
{
	json_t *steps = json_array();
	for (unsigned i = 0; i < config->plan.count; i++) {
		const struct pipeline_step *step = &config->plan.steps[i];
		json_array_append_new(steps,
			json_pack("{s:s, s:s, s:s, s:s}", "action",
				pipeline_diff_action_name(step->action), "object", step->object,
				"reason", step->reason, "state", step_state(config, i)));
	}
	return steps;
}

static json_t *result_of(const struct keeper *keeper, const struct keeper_config *config)
{
	return json_pack("{s:i, s:s, s:b, s:b, s:i, s:o}", "schema_version", REPORT_SCHEMA_VERSION,
		"segment", keeper->name, "same", config->plan.count == 0, "changed",
		config->done > 0, "done", (int)config->done, "steps", steps_json(config));
}

static void config_free(struct keeper_config *config)
{
	pipeline_free(&config->have);
	pipeline_free(&config->want);
	free(config);
}

/* NULL and a fault when the text is no pipeline. */
static struct keeper_config *config_new(
	struct keeper *keeper, const char *text, struct fault *fault)
{
	struct keeper_config *config = calloc(1, sizeof(*config));
	must(config);
	int rc = pipeline_load_text(&config->want, text, "the file", fault);
	running(keeper, true, &config->have);
	if (!rc && !config->want.peer_count)
		rc = fault_set(fault, FAULT_USAGE, keeper->name, "'xsegctl down' stops everything",
			"there is no peer in the file");
	if (!rc)
		rc = pipeline_diff(&config->have, &config->want, &config->plan, fault);
	if (!rc)
		return config;
	config_free(config);
	return NULL;
}

int keeper_config_diff(
	struct keeper *keeper, const char *text, json_t **result, struct fault *fault)
{
	struct keeper_config *config = config_new(keeper, text, fault);
	if (!config)
		return -(int)fault->code;
	*result = result_of(keeper, config);
	config_free(config);
	return 0;
}

/* --- processes that are defined anew ---------------------------------------------------- */

static void peers_forget(struct keeper *keeper, unsigned host)
{
	for (unsigned i = keeper->pipeline.peer_count; i-- > 0;)
		if (keeper->pipeline.peers[i].host == host)
			pipeline_peer_remove(&keeper->pipeline, i);
}

/* Its place stays, without a name, for the next; at the end there is no need to. */
void keeper_config_forget(struct keeper *keeper, struct keeper_host *host)
{
	struct pipeline_host *place = &keeper->pipeline.hosts[host->index];
	unsigned kept = 0;
	must(host->pid == 0);
	/* the edges that the file let lead there do not any more; what is saved says so */
	pipeline_running_part(&keeper->pipeline, &keeper->seg, host->index);
	peers_forget(keeper, host->index);
	pipeline_host_clear(place);
	keeper_store_drop(host);
	for (unsigned i = 0; i < keeper->order_count; i++)
		if (keeper->order[i] != host->index)
			keeper->order[kept++] = keeper->order[i];
	keeper->order_count = kept;
	event_free(host->timer);
	host->timer = NULL;
	host->state = KEEPER_IDLE;
	memset(place, 0, sizeof(*place));
	while (keeper->pipeline.host_count &&
		!keeper->pipeline.hosts[keeper->pipeline.host_count - 1].name[0])
		keeper->pipeline.host_count--;
}

static struct pipeline_host *host_place(struct keeper *keeper, const char *name)
{
	struct pipeline *pipeline = &keeper->pipeline;
	struct pipeline_host *place = pipeline_host_find(pipeline, "");
	if (place)
		snprintf(place->name, sizeof(place->name), "%s", name);
	else
		place = pipeline_host_add(pipeline, name);
	if (!place)
		return NULL;
	unsigned index = (unsigned)(place - pipeline->hosts);
	keeper_host_init(keeper, index);
	keeper->order[keeper->order_count++] = index;
	return place;
}

static bool peers_take(
	struct keeper *keeper, const struct pipeline *from, unsigned source, unsigned host)
{
	for (unsigned i = 0; i < from->peer_count; i++) {
		if (from->peers[i].host != source)
			continue;
		const struct pipeline_peer *old =
			pipeline_peer_find(&keeper->pipeline, from->peers[i].name);
		if (old)
			pipeline_peer_remove(
				&keeper->pipeline, (unsigned)(old - keeper->pipeline.peers));
		struct pipeline_peer *peer = pipeline_peer_copy(&keeper->pipeline, &from->peers[i]);
		if (!peer)
			return false;
		peer->host = host;
		keeper->pipeline.hosts[host].peer_count++;
	}
	return true;
}

/* The host as `from` says it, from its next start on. NULL: too many. */
static struct keeper_host *host_define(
	struct keeper *keeper, const struct pipeline *from, const char *name)
{
	const struct pipeline_host *source = pipeline_host_find(from, name);
	struct pipeline_host *place = pipeline_host_find(&keeper->pipeline, name);
	if (!place)
		place = host_place(keeper, name);
	if (!place || !source)
		return NULL;
	unsigned index = (unsigned)(place - keeper->pipeline.hosts);
	struct keeper_host *host = &keeper->hosts[index];
	struct fault fault = {0}; /* resolved before: nothing to find */
	peers_forget(keeper, index);
	pipeline_host_clear(place);
	copy_keys(source, place);
	place->lanes = source->lanes;
	place->workers = source->workers;
	place->peer_count = 0;
	if (!peers_take(keeper, from, (unsigned)(source - from->hosts), index))
		return NULL;
	pipeline_keep_read(&keeper->pipeline, index, &host->keep, &fault);
	host->stranger = false;
	return host;
}

static struct keeper_host *host_named(struct keeper *keeper, const char *name)
{
	struct pipeline_host *place = pipeline_host_find(&keeper->pipeline, name);
	return place ? &keeper->hosts[place - keeper->pipeline.hosts] : NULL;
}

/* --- one step --------------------------------------------------------------------------- */

static uint64_t limit_of(const struct keeper_config *config, uint64_t otherwise)
{
	return config->limit_ns ? config->limit_ns : otherwise;
}

static enum outcome start_failed(struct keeper_config *config, const struct keeper_host *host)
{
	char leaf[NAME_LENGTH_MAX + 8], log[PATH_LENGTH_MAX] = "";
	snprintf(leaf, sizeof(leaf), "%s.log", keeper_host_name(host));
	path_run(log, host->keeper->name, leaf);
	fault_set(&config->fault, host->timed_out ? FAULT_TIMEOUT : FAULT_FAILED,
		keeper_host_name(host), NULL, "'%s' does not start: %s", keeper_host_name(host),
		host->reason);
	fault_hint(&config->fault, "its log is %s", log);
	return STEP_FAILED;
}

static enum outcome turn_start(struct keeper *keeper, struct keeper_config *config,
	const struct pipeline *from, const char *name)
{
	if (config->stage == 0) {
		config->host = host_define(keeper, from, name);
		if (!config->host) {
			fault_set(&config->fault, FAULT_FAILED, name, NULL,
				"there are too many peers or processes for '%s'", name);
			return STEP_FAILED;
		}
		config->stage = 1;
		config->host->by_hand = true;
		bool on_its_way = config->host->state == KEEPER_STARTING ||
				  config->host->state == KEEPER_RUNNING;
		if (!on_its_way)
			keeper_host_start(config->host, limit_of(config, keeper->start_ns));
	}
	if (config->host->state == KEEPER_RUNNING)
		return STEP_DONE;
	bool starts = config->host->state == KEEPER_STARTING;
	return starts ? STEP_WAIT : start_failed(config, config->host);
}

static enum outcome turn_stop(
	struct keeper *keeper, struct keeper_config *config, const char *name, bool successor)
{
	struct keeper_host *host = host_named(keeper, name);
	bool runs = host && (host->state == KEEPER_RUNNING || host->state == KEEPER_STARTING);
	if (runs) {
		config->host = host;
		keeper_host_stop(host, limit_of(config, keeper->stop_ns), successor);
		return STEP_WAIT;
	}
	if (host && host->state == KEEPER_STOPPING)
		return STEP_WAIT;
	if (host && host->state == KEEPER_WAITING)
		keeper_restart_cancel(host);
	size_t n = strlen(config->killed);
	if (host && host == config->host && host->timed_out)
		snprintf(config->killed + n, sizeof(config->killed) - n, "%s%s", n ? ", " : "",
			name);
	config->host = NULL;
	return STEP_DONE;
}

static enum outcome turn_restart(
	struct keeper *keeper, struct keeper_config *config, const char *name)
{
	bool stopped = config->stage > 0 || turn_stop(keeper, config, name, true) == STEP_DONE;
	return stopped ? turn_start(keeper, config, &config->want, name) : STEP_WAIT;
}

static enum outcome turn_edge(
	struct keeper *keeper, struct keeper_config *config, const struct pipeline_step *step)
{
	json_t *result = NULL;
	int rc = keeper_edge_set(keeper, step->object, step->to, false, &result, &config->fault);
	json_decref(result);
	return rc ? STEP_FAILED : STEP_DONE;
}

static enum outcome turn_step(struct keeper *keeper, struct keeper_config *config)
{
	const struct pipeline_step *step = &config->plan.steps[config->at];
	struct keeper_host *host;
	enum outcome outcome;
	switch (step->action) {
	case PIPELINE_START: return turn_start(keeper, config, &config->want, step->object);
	case PIPELINE_RESTART: return turn_restart(keeper, config, step->object);
	case PIPELINE_EDGE: return turn_edge(keeper, config, step);
	case PIPELINE_SETTINGS:
		must(host_define(keeper, &config->want, step->object));
		return STEP_DONE;
	default:
		outcome = turn_stop(keeper, config, step->object, !step->last);
		host = outcome == STEP_DONE && step->last ? host_named(keeper, step->object) : NULL;
		if (host && host->pid == 0)
			keeper_config_forget(keeper, host);
		return outcome;
	}
}

/* --- the end ---------------------------------------------------------------------------- */

static void finish_failed(struct keeper *keeper, struct keeper_config *config)
{
	struct fault first = config->fault, *fault = &config->fault;
	if (config->done)
		fault_set(fault, FAULT_PARTLY, first.object, NULL,
			"%u of %u steps done, then: %.600s; what it had stopped was put back",
			config->done, config->plan.count, first.message);
	fault_hint(fault, "'xsegctl config diff' shows what is left%s%.160s",
		first.hint[0] ? "; " : "", first.hint);
	keeper_server_finish(keeper, NULL, fault);
}

static void finish(struct keeper *keeper, struct keeper_config *config)
{
	struct fault partly = {0};
	if (config->fault.code) {
		finish_failed(keeper, config);
		return;
	}
	if (config->path[0])
		snprintf(keeper->path, sizeof(keeper->path), "%s", config->path);
	keeper->pipeline.hash = config->hash;
	log_info("keeper", "the configuration is applied: %u steps", config->done);
	keeper_event(keeper, "config_applied",
		json_pack("{s:s, s:o}", "pipeline", keeper->path, "steps", steps_json(config)));
	if (config->killed[0]) {
		fault_set(&partly, FAULT_PARTLY, keeper->name,
			"--timeout sets how long each may drain",
			"all %u steps are done, but these did not drain in time and were killed: "
			"%s",
			config->done, config->killed);
		keeper_server_finish(keeper, NULL, &partly);
		return;
	}
	keeper_server_finish(keeper, result_of(keeper, config), NULL);
}

void keeper_config_drop(struct keeper *keeper)
{
	if (keeper->config)
		config_free(keeper->config);
	keeper->config = NULL;
}

/* --- turns ------------------------------------------------------------------------------ */

/* A new process that did not start is no part of the pipeline. */
static void undo_begin(struct keeper *keeper, struct keeper_config *config)
{
	struct keeper_host *host = config->host;
	config->undoing = true;
	config->at = config->stage = 0;
	config->host = NULL;
	log_error("keeper", "the configuration is not applied: %s", config->fault.message);
	if (host && host->pid == 0 && !pipeline_host_find(&config->have, keeper_host_name(host)))
		keeper_config_forget(keeper, host);
}

/* Starts what ran before and does not now, unless it was to go; true when it is over. */
static bool undo_turn(struct keeper *keeper, struct keeper_config *config)
{
	for (; config->at < config->have.host_count; config->at++, config->stage = 0) {
		const struct pipeline_host *old =
			&config->have.hosts[config->have.order[config->at]];
		const struct keeper_host *host = host_named(keeper, old->name);
		struct fault first = config->fault;
		bool stopped =
			host && (host->state == KEEPER_STOPPED || host->state == KEEPER_DEAD ||
					host->state == KEEPER_GIVEN_UP);
		if (old->down || (config->stage == 0 && !stopped))
			continue;
		if (turn_start(keeper, config, &config->have, old->name) == STEP_WAIT)
			return false;
		config->fault = first; /* that it does not come back, status says */
	}
	return true;
}

static void steps_turn(struct keeper *keeper, struct keeper_config *config)
{
	while (!config->undoing && config->at < config->plan.count) {
		bool begun = config->stage || config->host;
		if (config->cancelled && !begun)
			fault_set(&config->fault, FAULT_FAILED, keeper->name, NULL, "cancelled");
		enum outcome outcome = config->fault.code ? STEP_FAILED : turn_step(keeper, config);
		if (outcome == STEP_WAIT)
			return;
		if (outcome == STEP_FAILED) {
			undo_begin(keeper, config);
			break;
		}
		config->at++;
		config->done++;
		config->stage = 0;
		config->host = NULL;
	}
	if (config->undoing && !undo_turn(keeper, config))
		return;
	finish(keeper, config);
	keeper_config_drop(keeper);
	keeper_save(keeper);
}

void keeper_config_turn(struct keeper *keeper)
{
	if (keeper->config)
		steps_turn(keeper, keeper->config);
}

void keeper_config_cancel(struct keeper *keeper)
{
	if (keeper->config)
		keeper->config->cancelled = true;
}

void keeper_config_progress(const struct keeper *keeper, unsigned *done, unsigned *total)
{
	*done = keeper->config ? keeper->config->done : 0;
	*total = keeper->config ? keeper->config->plan.count : 0;
}

/* What cannot be done while it runs, or not by us. */
static int refuse(
	const struct keeper *keeper, const struct keeper_config *config, struct fault *fault)
{
	for (unsigned i = 0; i < config->plan.count; i++) {
		const struct pipeline_step *step = &config->plan.steps[i];
		if (step->action == PIPELINE_SEGMENT)
			return fault_set(fault, FAULT_CONFLICT, step->object,
				"'xsegctl down', then 'xsegctl up FILE'",
				"the %s of a segment cannot change while it runs: %s", step->object,
				step->reason);
		int rc = step->action == PIPELINE_EDGE ? keeper_cache_guard(keeper, &config->want,
								 step->object, step->to, fault)
						       : 0;
		if (rc)
			return rc;
	}
	return 0;
}

int keeper_config_apply(struct keeper *keeper, const struct keeper_config_wish *wish,
	json_t **result, struct fault *fault)
{
	struct keeper_config *config = config_new(keeper, wish->text, fault);
	int rc = config ? refuse(keeper, config, fault) : -(int)fault->code;
	if (rc) {
		if (config)
			config_free(config);
		return rc;
	}
	snprintf(config->path, sizeof(config->path), "%s", wish->path ? wish->path : "");
	config->hash = wish->hash ? strtoull(wish->hash, NULL, 16) : 0;
	config->limit_ns = wish->limit_ns;
	if (config->plan.count) {
		keeper->config = config;
		keeper_turn_soon(keeper);
		return KEEPER_LATER;
	}
	*result = result_of(keeper, config);
	if (config->path[0])
		snprintf(keeper->path, sizeof(keeper->path), "%s", config->path);
	keeper->pipeline.hash = config->hash;
	config_free(config);
	return 0;
}
