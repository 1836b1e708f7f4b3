/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a pipeline: hosts, edges without circles, roles and their options; finds the order. */
#include <base/must.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pipeline/pipeline.h"
#include "tools/pipeline/pipeline_edit.h"
#include "tools/pipeline/pipeline_keep.h"

/* A way down, or the second choice for one. */
bool pipeline_check_is_edge(const struct pipeline_option *option)
{
	return !strncmp(option->key, "edge.", 5) || pipeline_keep_fallback(option->key);
}

void pipeline_check_place(const struct pipeline *pipeline, const struct pipeline_peer *peer,
	const char *key, char *out, size_t out_size)
{
	unsigned file = peer->file, line = peer->line;
	for (unsigned i = 0; key && i < peer->option_count; i++) {
		if (strcmp(peer->options[i].key, key))
			continue;
		file = peer->options[i].file;
		line = peer->options[i].line;
	}
	if (key && !strcmp(key, "role") && peer->role) {
		file = peer->role_file;
		line = peer->role_line;
	}
	if (file < pipeline->file_count)
		snprintf(out, out_size, "%s:%u", pipeline->files[file], line);
	else
		snprintf(out, out_size, "peer '%s'", peer->name);
}

static int place_fail(const struct pipeline *pipeline, const struct pipeline_peer *peer,
	const char *key, struct fault *fault, const char *text)
{
	char place[PATH_MAX + 16];
	pipeline_check_place(pipeline, peer, key, place, sizeof(place));
	return fault_set(fault, FAULT_USAGE, key ? key : peer->name, NULL, "%s: %s", place, text);
}

/* --- hosts ------------------------------------------------------------------------------ */

static int peer_to_host(struct pipeline *pipeline, struct pipeline_peer *peer, struct fault *fault)
{
	const char *name = peer->host_name[0] ? peer->host_name : peer->name;
	struct pipeline_host *host = pipeline_host_find(pipeline, name);
	if (!strcmp(name, "xsegd")) /* HOST.log lies beside xsegd.log */
		return place_fail(pipeline, peer, NULL, fault, "'xsegd' is the keeper's own name");
	if (!host) {
		host = pipeline_host_add(pipeline, name);
		if (!host)
			return place_fail(pipeline, peer, NULL, fault, "too many hosts");
		host->file = peer->file;
		host->line = peer->line;
	}
	host->peer_count++;
	peer->host = (unsigned)(host - pipeline->hosts);
	return 0;
}

static int hosts_used(const struct pipeline *pipeline, struct fault *fault)
{
	const char *names[2 * PIPELINE_PEERS_MAX];
	size_t count = 0;
	for (unsigned i = 0; i < pipeline->peer_count; i++) {
		names[count++] = pipeline->peers[i].name;
		if (pipeline->peers[i].host_name[0])
			names[count++] = pipeline->peers[i].host_name;
	}
	for (unsigned i = 0; i < pipeline->host_count; i++) {
		const struct pipeline_host *host = &pipeline->hosts[i];
		if (host->peer_count)
			continue;
		fault_set(fault, FAULT_USAGE, host->name, NULL, "%s:%u: no peer lives in host '%s'",
			pipeline->files[host->file], host->line, host->name);
		fault_nearest(fault, host->name, names, count, "give a peer host=, or remove it");
		return -FAULT_USAGE;
	}
	return 0;
}

/* --- edges and the order ---------------------------------------------------------------- */

static const struct pipeline_peer *edge_target(
	const struct pipeline *pipeline, const struct pipeline_option *option)
{
	return pipeline_check_is_edge(option) ? pipeline_peer_find(pipeline, option->value) : NULL;
}

static int edge_unknown(const struct pipeline *pipeline, const struct pipeline_peer *peer,
	const struct pipeline_option *option, struct fault *fault)
{
	const char *names[PIPELINE_PEERS_MAX];
	char text[256];
	for (unsigned i = 0; i < pipeline->peer_count; i++)
		names[i] = pipeline->peers[i].name;
	snprintf(text, sizeof(text), "%s leads to '%s', but there is no such peer", option->key,
		option->value);
	place_fail(pipeline, peer, option->key, fault, text);
	fault_nearest(fault, option->value, names, pipeline->peer_count,
		"an edge leads to a [peer NAME] of this file");
	return -FAULT_USAGE;
}

enum mark { MARK_NEW, MARK_OPEN, MARK_DONE };

struct walk {
	struct pipeline *pipeline;
	struct fault *fault;
	enum mark peers[PIPELINE_PEERS_MAX], hosts[PIPELINE_HOSTS_MAX];
	unsigned order_count;
};

/* A request that comes back to where it was would never end. */
static int walk_peer(struct walk *walk, unsigned index)
{
	const struct pipeline_peer *peer = &walk->pipeline->peers[index];
	int rc = 0;
	walk->peers[index] = MARK_OPEN;
	for (unsigned i = 0; !rc && i < peer->option_count; i++) {
		const struct pipeline_option *option = &peer->options[i];
		const struct pipeline_peer *target = edge_target(walk->pipeline, option);
		if (!target)
			continue;
		unsigned next = (unsigned)(target - walk->pipeline->peers);
		if (walk->peers[next] == MARK_OPEN) {
			char text[128];
			snprintf(text, sizeof(text), "%s closes a circle: it leads back to '%s'",
				option->key, target->name);
			return place_fail(walk->pipeline, peer, option->key, walk->fault, text);
		}
		if (walk->peers[next] == MARK_NEW)
			rc = walk_peer(walk, next);
	}
	walk->peers[index] = MARK_DONE;
	return rc;
}

/* Depth first: below before above. Hosts may form circles (a process with the top and the
   bottom of a chain); any order does there, for a port keeps what comes before it is served. */
static void walk_host(struct walk *walk, unsigned host)
{
	struct pipeline *p = walk->pipeline;
	walk->hosts[host] = MARK_OPEN;
	for (unsigned i = 0; i < p->peer_count; i++) {
		const struct pipeline_peer *peer = &p->peers[i];
		if (peer->host != host)
			continue;
		for (unsigned j = 0; j < peer->option_count; j++) {
			const struct pipeline_peer *target = edge_target(p, &peer->options[j]);
			if (target && walk->hosts[target->host] == MARK_NEW)
				walk_host(walk, target->host);
		}
	}
	walk->hosts[host] = MARK_DONE;
	p->order[walk->order_count++] = host;
}

void pipeline_check_order(struct pipeline *pipeline)
{
	struct walk walk = {.pipeline = pipeline};
	for (unsigned i = 0; i < pipeline->host_count; i++)
		if (walk.hosts[i] == MARK_NEW)
			walk_host(&walk, i);
}

int pipeline_check_resolve(struct pipeline *pipeline, struct fault *fault)
{
	struct walk walk = {.pipeline = pipeline, .fault = fault};
	int rc = 0;
	for (unsigned i = 0; i < pipeline->host_count; i++)
		pipeline->hosts[i].peer_count = 0;
	for (unsigned i = 0; !rc && i < pipeline->peer_count; i++) {
		struct pipeline_peer *peer = &pipeline->peers[i];
		if (!peer->role)
			return place_fail(pipeline, peer, NULL, fault, "the peer has no role=");
		rc = peer_to_host(pipeline, peer, fault);
		for (unsigned j = 0; !rc && j < peer->option_count; j++)
			if (pipeline_check_is_edge(&peer->options[j]) &&
				!edge_target(pipeline, &peer->options[j]))
				rc = edge_unknown(pipeline, peer, &peer->options[j], fault);
	}
	if (!rc)
		rc = hosts_used(pipeline, fault);
	struct pipeline_keep keep;
	for (unsigned i = 0; !rc && i < pipeline->host_count; i++)
		rc = pipeline_keep_read(pipeline, i, &keep, fault);
	for (unsigned i = 0; !rc && i < pipeline->peer_count; i++)
		if (walk.peers[i] == MARK_NEW)
			rc = walk_peer(&walk, i);
	if (!rc)
		pipeline_check_order(pipeline);
	return rc;
}

/* --- roles ------------------------------------------------------------------------------ */

#define NAMES_MAX 128u

/* Names in a JSON array of strings, or of objects with "name". */
static size_t names_of(const json_t *array, const char *prefix, char out[][48], size_t count)
{
	for (size_t i = 0; i < json_array_size(array) && count < NAMES_MAX; i++) {
		const json_t *item = json_array_get(array, i);
		const char *text = json_string_value(
			json_is_object(item) ? json_object_get(item, "name") : item);
		if (text)
			snprintf(out[count++], 48, "%s%s", prefix, text);
	}
	return count;
}

static int key_unknown(const struct pipeline *pipeline, const struct pipeline_peer *peer,
	const struct pipeline_option *option, const json_t *role, struct fault *fault)
{
	char names[NAMES_MAX][48], text[256];
	const char *pointers[NAMES_MAX];
	snprintf(names[0], 48, "role");
	snprintf(names[1], 48, "host");
	size_t count = names_of(json_object_get(role, "options"), "", names, 2);
	count = names_of(json_object_get(role, "edges"), "edge.", names, count);
	for (size_t i = 0; i < count; i++)
		pointers[i] = names[i];
	snprintf(text, sizeof(text), "role %s has no %s '%s'", peer->role,
		pipeline_check_is_edge(option) ? "edge" : "option", option->key);
	place_fail(pipeline, peer, option->key, fault, text);
	char otherwise[96];
	snprintf(otherwise, sizeof(otherwise), "'xsegpeer --help-role %.31s' lists them",
		peer->role);
	fault_nearest(fault, option->key, pointers, count, otherwise);
	return -FAULT_USAGE;
}

static const json_t *option_described(const json_t *role, const char *key)
{
	const json_t *array = json_object_get(role, "options");
	for (size_t i = 0; i < json_array_size(array); i++) {
		const json_t *item = json_array_get(array, i);
		const char *name = json_string_value(json_object_get(item, "name"));
		if (name && !strcmp(name, key))
			return item;
	}
	return NULL;
}

static bool edge_described(const json_t *role, const char *edge)
{
	const json_t *array = json_object_get(role, "edges");
	for (size_t i = 0; i < json_array_size(array); i++) {
		const char *name = json_string_value(json_array_get(array, i));
		if (name && !strcmp(name, edge))
			return true;
	}
	return false;
}

/* Does the role answer what goes down that edge? One that does not say answers anything; a second
   edge of a kind has a name that begins like the first one's: store, store-to. */
bool pipeline_check_role_serves(const json_t *role, const char *edge)
{
	const char *serves = json_string_value(json_object_get(role, "serves"));
	size_t n = strcspn(edge, "-");
	return !serves || (strlen(serves) == n && !strncmp(serves, edge, n));
}

static int check_target(const struct pipeline *pipeline, const struct pipeline_peer *peer,
	const struct pipeline_option *option, const struct pipeline_roles *roles,
	struct fault *fault)
{
	const struct pipeline_peer *target = edge_target(pipeline, option);
	const json_t *role =
		target && target->role ? roles->describe(roles->context, target->role) : NULL;
	const char *edge = strchr(option->key, '.') + 1;
	char text[256];
	if (!role || pipeline_check_role_serves(role, edge))
		return 0;
	snprintf(text, sizeof(text),
		"%.48s leads to '%s', a %.48s, which answers no '%.32s' requests", option->key,
		target->name, target->role, edge);
	return place_fail(pipeline, peer, option->key, fault, text);
}

static bool option_repeats(const struct pipeline_peer *peer, unsigned index)
{
	for (unsigned i = 0; i < index; i++)
		if (!strcmp(peer->options[i].key, peer->options[index].key))
			return true;
	return false;
}

static int check_option(const struct pipeline *pipeline, const struct pipeline_peer *peer,
	unsigned index, const json_t *role, struct fault *fault)
{
	const struct pipeline_option *option = &peer->options[index];
	bool edge = pipeline_check_is_edge(option), kept = pipeline_keep_key(option->key) && !edge;
	const json_t *described = edge || kept ? NULL : option_described(role, option->key);
	if (edge ? !edge_described(role, strchr(option->key, '.') + 1) : !described && !kept)
		return key_unknown(pipeline, peer, option, role, fault);
	const char *type = json_string_value(json_object_get(described, "type"));
	bool list = type && !strcmp(type, "list");
	if (!list && option_repeats(peer, index)) {
		char text[128];
		snprintf(text, sizeof(text), "'%.48s' is given twice", option->key);
		return place_fail(pipeline, peer, option->key, fault, text);
	}
	return 0;
}

static bool peer_gives(const struct pipeline_peer *peer, const char *key)
{
	for (unsigned i = 0; i < peer->option_count; i++)
		if (!strcmp(peer->options[i].key, key))
			return true;
	return false;
}

/* One that does not need all its edges needs the first ones. */
static size_t edges_needed(const json_t *role)
{
	const json_t *needed = json_object_get(role, "edges_needed");
	return needed ? (size_t)json_integer_value(needed)
		      : json_array_size(json_object_get(role, "edges"));
}

static int check_required(const struct pipeline *pipeline, const struct pipeline_peer *peer,
	const json_t *role, struct fault *fault)
{
	char text[256], key[64];
	const json_t *edges = json_object_get(role, "edges");
	for (size_t i = 0; i < edges_needed(role); i++) {
		const char *name = json_string_value(json_array_get(edges, i));
		snprintf(key, sizeof(key), "edge.%.48s", name ? name : "");
		if (name && !peer_gives(peer, key)) {
			snprintf(text, sizeof(text), "peer '%s' (role %s) needs %s=PEER",
				peer->name, peer->role, key);
			return place_fail(pipeline, peer, NULL, fault, text);
		}
	}
	const json_t *options = json_object_get(role, "options");
	for (size_t i = 0; i < json_array_size(options); i++) {
		const json_t *item = json_array_get(options, i);
		const char *name = json_string_value(json_object_get(item, "name"));
		if (!json_is_true(json_object_get(item, "required")) || !name ||
			peer_gives(peer, name))
			continue;
		snprintf(text, sizeof(text), "peer '%s' (role %s) needs option '%s'", peer->name,
			peer->role, name);
		return place_fail(pipeline, peer, NULL, fault, text);
	}
	return 0;
}

static int check_peer(const struct pipeline *pipeline, const struct pipeline_peer *peer,
	const struct pipeline_roles *roles, struct fault *fault)
{
	const json_t *role = roles->describe(roles->context, peer->role);
	char text[256];
	int rc = 0;
	if (!role) {
		snprintf(text, sizeof(text), "unknown role '%s'", peer->role);
		place_fail(pipeline, peer, "role", fault, text);
		fault_nearest(fault, peer->role, roles->names, roles->name_count,
			"'xsegpeer --list' lists the roles");
		return -FAULT_USAGE;
	}
	for (unsigned i = 0; !rc && i < peer->option_count; i++)
		rc = check_option(pipeline, peer, i, role, fault);
	for (unsigned i = 0; !rc && i < peer->option_count; i++)
		if (pipeline_check_is_edge(&peer->options[i]))
			rc = check_target(pipeline, peer, &peer->options[i], roles, fault);
	return rc ? rc : check_required(pipeline, peer, role, fault);
}

int pipeline_check(
	const struct pipeline *pipeline, const struct pipeline_roles *roles, struct fault *fault)
{
	int rc = 0;
	if (!pipeline->peer_count)
		return fault_set(fault, FAULT_USAGE, pipeline->segment,
			"write a [peer NAME] section with role=", "%s: there is no peer in it",
			pipeline->file_count ? pipeline->files[0] : "pipeline");
	for (unsigned i = 0; !rc && i < pipeline->peer_count; i++)
		rc = check_peer(pipeline, &pipeline->peers[i], roles, fault);
	return rc;
}
