/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RUN_DIR/SEGMENT/xsegd.state: what the keeper runs, with all options, and who was stopped or
 * given up. A keeper that comes after one that was killed goes on from it, whatever the pipeline
 * file says by now; `config apply` brings in what has changed. It is of one segment (its uuid) and
 * goes with it.
 */
#include <base/crash.h>
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xseg/registry.h>

#include "tools/keeper/keeper.h"
#include "tools/pipeline/pipeline_edit.h"

#define STATE_VERSION 1

/* --- writing ------------------------------------------------------------------------------ */

static json_t *options_json(const struct pipeline_option *options, unsigned count)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < count; i++) {
		/* bytes that are no UTF-8 would be refused */
		json_t *pair = json_pack("[s, s]", options[i].key, options[i].value);
		if (pair)
			json_array_append_new(list, pair);
	}
	return list;
}

/* Only what a later keeper is to keep to: all else it sees for itself. */
static const char *saved_state(const struct keeper_host *host)
{
	bool kept = host->state == KEEPER_STOPPED || host->state == KEEPER_GIVEN_UP ||
		    host->state == KEEPER_DEAD;
	return kept ? keeper_states[host->state].name : "";
}

static json_t *hosts_json(const struct keeper *keeper)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < keeper->order_count; i++) {
		const struct keeper_host *host = &keeper->hosts[keeper->order[i]];
		const struct pipeline_host *process = &keeper->pipeline.hosts[host->index];
		if (host->stranger)
			continue;
		json_array_append_new(list,
			json_pack("{s:s, s:i, s:i, s:o, s:s, s:s, s:i, s:I}", "name", process->name,
				"lanes", (int)process->lanes, "workers", (int)process->workers,
				"options", options_json(process->options, process->option_count),
				"state", saved_state(host), "reason", host->reason, "pid",
				(int)host->pid, "start_time",
				(json_int_t)(host->pid ? xseg_process_start_time(host->pid) : 0)));
	}
	return list;
}

static json_t *peers_json(const struct keeper *keeper)
{
	const struct pipeline *pipeline = &keeper->pipeline;
	json_t *list = json_array();
	for (unsigned i = 0; i < pipeline->peer_count; i++) {
		const struct pipeline_peer *peer = &pipeline->peers[i];
		if (keeper->hosts[peer->host].stranger)
			continue;
		json_array_append_new(
			list, json_pack("{s:s, s:s, s:s, s:o}", "name", peer->name, "role",
				      peer->role, "host", pipeline->hosts[peer->host].name,
				      "options", options_json(peer->options, peer->option_count)));
	}
	return list;
}

static void uuid_text(const struct keeper *keeper, char out[33])
{
	for (int i = 0; i < 16; i++)
		sprintf(out + 2 * i, "%02x", keeper->seg.super->uuid[i]);
}

static json_t *state_json(const struct keeper *keeper)
{
	const struct pipeline *pipeline = &keeper->pipeline;
	char uuid[33], hash[24];
	uuid_text(keeper, uuid);
	snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)pipeline->hash);
	return json_pack("{s:i, s:s, s:s, s:s, s:s, s:I, s:b, s:i, s:s?, s:s?, s:o, s:o}",
		"version", STATE_VERSION, "uuid", uuid, "path", keeper->path, "hash", hash,
		"segment", pipeline->segment, "size", (json_int_t)pipeline->size, "size_given",
		(int)pipeline->size_given, "lanes", (int)pipeline->lanes, "huge", pipeline->huge,
		"socket_group", pipeline->socket_group, "hosts", hosts_json(keeper), "peers",
		peers_json(keeper));
}

/* Whole or not at all, also when we are killed here. */
static int write_whole(const char *path, const char *text)
{
	char fresh[PATH_LENGTH_MAX + 8];
	snprintf(fresh, sizeof(fresh), "%s.new", path);
	int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
	if (fd < 0)
		return -errno;
	ssize_t length = (ssize_t)strlen(text);
	int error = write(fd, text, (size_t)length) == length ? 0 : errno ? -errno : -EIO;
	close(fd);
	crash_point("keeper.save.before_rename");
	if (!error && rename(fresh, path))
		error = -errno;
	if (error)
		unlink(fresh);
	return error;
}

void keeper_save(const struct keeper *keeper)
{
	char path[PATH_LENGTH_MAX];
	if (!keeper->joined || keeper->phase == KEEPER_PHASE_STOPPING)
		return;
	json_t *state = state_json(keeper);
	char *text = state ? json_dumps(state, JSON_INDENT(1)) : NULL;
	int rc = path_run(path, keeper->name, "xsegd.state");
	if (!rc)
		rc = text ? write_whole(path, text) : -EILSEQ;
	if (rc)
		log_error("keeper", "the state cannot be saved to '%s': %s", path, strerror(-rc));
	free(text);
	json_decref(state);
}

/* --- reading ------------------------------------------------------------------------------ */

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));
	return text ? text : "";
}

static json_t *state_read(const struct keeper *keeper)
{
	char path[PATH_LENGTH_MAX];
	if (path_run(path, keeper->name, "xsegd.state"))
		return NULL;
	return json_load_file(path, 0, NULL);
}

static int host_load(struct pipeline *pipeline, const json_t *json)
{
	const char *name = text_of(json, "name");
	size_t i;
	json_t *pair;
	struct pipeline_host *host = NULL;
	if (name_check(name) && !pipeline_host_find(pipeline, name))
		host = pipeline_host_add(pipeline, name);
	if (!host)
		return -EINVAL;
	host->file = PIPELINE_FILES_MAX;
	host->lanes = (unsigned)json_integer_value(json_object_get(json, "lanes"));
	host->workers = (unsigned)json_integer_value(json_object_get(json, "workers"));
	json_array_foreach (json_object_get(json, "options"), i, pair) {
		const char *key = json_string_value(json_array_get(pair, 0));
		const char *value = json_string_value(json_array_get(pair, 1));
		if (!key || !value ||
			pipeline_host_option_add(host, key, value, PIPELINE_FILES_MAX, 0))
			return -EINVAL;
	}
	return 0;
}

static int peer_load(struct pipeline *pipeline, const json_t *json)
{
	const char *name = text_of(json, "name"), *host = text_of(json, "host");
	size_t i;
	json_t *pair;
	struct pipeline_peer *peer = NULL;
	if (name_check(name) && name_check(host) && !pipeline_peer_find(pipeline, name))
		peer = pipeline_peer_add(pipeline, name);
	if (!peer || !*text_of(json, "role"))
		return -EINVAL;
	peer->role = strdup(text_of(json, "role"));
	must(peer->role);
	peer->file = peer->role_file = peer->host_file = PIPELINE_FILES_MAX;
	snprintf(peer->host_name, sizeof(peer->host_name), "%s", host);
	json_array_foreach (json_object_get(json, "options"), i, pair) {
		const char *key = json_string_value(json_array_get(pair, 0));
		const char *value = json_string_value(json_array_get(pair, 1));
		if (!key || !value || pipeline_option_add(peer, key, value, PIPELINE_FILES_MAX, 0))
			return -EINVAL;
	}
	return 0;
}

static int pipeline_from(struct pipeline *pipeline, const json_t *state, struct fault *fault)
{
	size_t i;
	json_t *one;
	int rc = 0;
	pipeline_init(pipeline);
	snprintf(pipeline->segment, sizeof(pipeline->segment), "%s", text_of(state, "segment"));
	pipeline->size = (uint64_t)json_integer_value(json_object_get(state, "size"));
	pipeline->size_given = json_is_true(json_object_get(state, "size_given"));
	pipeline->lanes = (unsigned)json_integer_value(json_object_get(state, "lanes"));
	pipeline->huge = *text_of(state, "huge") ? strdup(text_of(state, "huge")) : NULL;
	const char *group = text_of(state, "socket_group");
	pipeline->socket_group = *group ? strdup(group) : NULL;
	json_array_foreach (json_object_get(state, "hosts"), i, one)
		rc = rc ? rc : host_load(pipeline, one);
	json_array_foreach (json_object_get(state, "peers"), i, one)
		rc = rc ? rc : peer_load(pipeline, one);
	pipeline->hash = strtoull(text_of(state, "hash"), NULL, 16);
	if (rc)
		return fault_set(fault, FAULT_FAILED, "xsegd.state", NULL, "it is damaged");
	return pipeline_check_resolve(pipeline, fault);
}

/* Of this segment as it is: not of one of the same name before it. */
static bool state_fits(const struct keeper *keeper, const json_t *state)
{
	char why[XSEG_WHY_SIZE], uuid[33];
	struct keeper other = {0};
	if (json_integer_value(json_object_get(state, "version")) != STATE_VERSION ||
		xseg_segment_join(keeper->name, &other.seg, why))
		return false;
	uuid_text(&other, uuid);
	xseg_segment_leave(&other.seg);
	return !strcmp(uuid, text_of(state, "uuid"));
}

/* Does anything of it still run? */
static bool runs(const char *segment)
{
	struct xseg seg;
	struct xseg_peer_view view;
	char why[XSEG_WHY_SIZE];
	bool found = false;
	if (xseg_segment_join(segment, &seg, why))
		return false;
	for (uint32_t i = 0; i < XSEG_PEERS_MAX && !found; i++)
		found = xseg_peer_view(&seg, i, &view) && view.life != XSEG_LIFE_DEAD;
	xseg_segment_leave(&seg);
	return found;
}

int keeper_save_load(struct keeper *keeper, struct fault *fault, const uint64_t *hash)
{
	json_t *state = state_read(keeper);
	struct pipeline loaded = {0};
	int rc = -FAULT_NOT_FOUND;
	memset(fault, 0, sizeof(*fault));
	if (state && state_fits(keeper, state)) {
		rc = pipeline_from(&loaded, state, fault);
		if (rc)
			log_warning("keeper", "the saved state is not used: %s", fault->message);
	}
	json_decref(state);
	if (!rc && hash && *hash != loaded.hash && !runs(keeper->name))
		rc = -FAULT_NOT_FOUND;
	if (rc) {
		if (loaded.peers)
			pipeline_free(&loaded);
		return -FAULT_NOT_FOUND;
	}
	pipeline_free(&keeper->pipeline);
	keeper->pipeline = loaded;
	keeper->resumed = true;
	return 0;
}

static struct keeper_host *host_named(struct keeper *keeper, const char *name)
{
	for (unsigned i = 0; i < keeper->pipeline.host_count; i++)
		if (!strcmp(keeper_host_name(&keeper->hosts[i]), name))
			return &keeper->hosts[i];
	return NULL;
}

static void apply_host(struct keeper_host *host, const json_t *saved)
{
	const char *was = text_of(saved, "state");
	pid_t pid = (pid_t)json_integer_value(json_object_get(saved, "pid"));
	uint64_t start = (uint64_t)json_integer_value(json_object_get(saved, "start_time"));
	/* it may not have got as far as the registry */
	if (pid > 0 && start && xseg_process_start_time(pid) == start &&
		!keeper_host_adopt(host, pid, start, false))
		return;
	for (unsigned s = KEEPER_RUNNING + 1; s < KEEPER_STATES; s++)
		if (!strcmp(was, keeper_states[s].name) && sm_may(keeper_states, KEEPER_IDLE, s)) {
			sm_move(keeper_states, &host->state, s);
			break;
		}
	snprintf(host->reason, sizeof(host->reason), "%s", text_of(saved, "reason"));
}

void keeper_save_apply(struct keeper *keeper)
{
	json_t *state = state_read(keeper), *one;
	size_t i;
	json_array_foreach (json_object_get(state, "hosts"), i, one) {
		struct keeper_host *host = host_named(keeper, text_of(one, "name"));
		if (host && host->state == KEEPER_IDLE)
			apply_host(host, one);
	}
	json_decref(state);
}
