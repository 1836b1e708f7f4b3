/* SPDX-License-Identifier: Apache-2.0 */
/* Compares two pipelines, and puts what has to be done into a safe order. */
#include "tools/pipeline/pipeline_diff.h"

#include <base/must.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pipeline/pipeline_edit.h"
#include "tools/pipeline/pipeline_keep.h"
#include "tools/pipeline/pipeline_running.h"

/* What becomes of a host. GROUP: stopped with others before any of them starts. */
enum fate { FATE_KEEP, FATE_SETTINGS, FATE_START, FATE_RESTART, FATE_STOP, FATE_GROUP };

struct compare {
	const struct pipeline *have, *want;
	struct pipeline_plan *plan;
	enum fate want_fate[PIPELINE_HOSTS_MAX], have_fate[PIPELINE_HOSTS_MAX];
	char why[PIPELINE_HOSTS_MAX][160]; /* of want's hosts */
	bool full;
};

const char *pipeline_diff_action_name(enum pipeline_action action)
{
	static const char *const names[PIPELINE_ACTIONS] = {
		"start", "restart", "stop", "switch", "settings", "segment"};
	return names[action];
}

static struct pipeline_step *step_add(
	struct compare *compare, enum pipeline_action action, const char *object)
{
	struct pipeline_plan *plan = compare->plan;
	static struct pipeline_step overflow;
	compare->full = compare->full || plan->count == PIPELINE_STEPS_MAX;
	struct pipeline_step *step = compare->full ? &overflow : &plan->steps[plan->count++];
	memset(step, 0, sizeof(*step));
	step->action = action;
	snprintf(step->object, sizeof(step->object), "%s", object);
	return step;
}

/* --- one peer, one host ----------------------------------------------------------------- */

static bool is_edge(const char *key) { return !strncmp(key, "edge.", 5); }

/* All values of a key, in order: "a, b". */
static void values_of(const struct pipeline_peer *peer, const char *key, char *out, size_t out_size)
{
	out[0] = 0;
	for (unsigned i = 0; i < peer->option_count; i++) {
		size_t n = strlen(out);
		if (!strcmp(peer->options[i].key, key))
			snprintf(out + n, out_size - n, "%s%s", n ? ", " : "",
				peer->options[i].value);
	}
}

/* The nth value of a key, or NULL. */
static const char *value_at(const struct pipeline_peer *peer, const char *key, unsigned nth)
{
	for (unsigned i = 0; i < peer->option_count; i++)
		if (!strcmp(peer->options[i].key, key) && nth-- == 0)
			return peer->options[i].value;
	return NULL;
}

static bool key_same(
	const struct pipeline_peer *one, const struct pipeline_peer *other, const char *key)
{
	for (unsigned nth = 0;; nth++) {
		const char *a = value_at(one, key, nth), *b = value_at(other, key, nth);
		if (!a || !b)
			return a == b;
		if (strcmp(a, b))
			return false;
	}
}

/* The first key of `one` that is another in `other`: of the keeper's keys, or of the role's; edges
   aside. NULL: none. */
static const char *key_other(
	const struct pipeline_peer *one, const struct pipeline_peer *other, bool keepers)
{
	for (unsigned i = 0; i < one->option_count; i++) {
		const char *key = one->options[i].key;
		if (!is_edge(key) && !pipeline_running_begin(one->role, key) &&
			pipeline_keep_key(key) == keepers && !key_same(one, other, key))
			return key;
	}
	return NULL;
}

static void say(char why[160], const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(char why[160], const char *format, ...)
{
	va_list list;
	va_start(list, format);
	vsnprintf(why, 160, format, list);
	va_end(list);
}

static bool options_differ(const struct pipeline_peer *have, const struct pipeline_peer *want,
	bool keepers, char why[160])
{
	char old[64], new[64];
	const char *key = key_other(want, have, keepers);
	if (!key)
		key = key_other(have, want, keepers);
	if (!key)
		return false;
	values_of(have, key, old, sizeof(old));
	values_of(want, key, new, sizeof(new));
	if (!new[0])
		say(why, "%s: without %s, was %s", want->name, key, old);
	else if (!old[0])
		say(why, "%s: %s=%s is new", want->name, key, new);
	else
		say(why, "%s: %s=%s, was %s", want->name, key, new, old);
	return true;
}

static bool peer_differs(
	const struct pipeline_peer *have, const struct pipeline_peer *want, char why[160])
{
	if (!strcmp(have->role, want->role))
		return options_differ(have, want, false, why);
	say(why, "%s: role %s, was %s", want->name, want->role, have->role);
	return true;
}

static const char *host_value(const struct pipeline_host *host, const char *key)
{
	for (unsigned i = 0; i < host->option_count; i++)
		if (!strcmp(host->options[i].key, key))
			return host->options[i].value;
	return NULL;
}

static bool host_keys_differ(
	const struct pipeline_host *one, const struct pipeline_host *other, char why[160])
{
	for (unsigned i = 0; i < one->option_count; i++) {
		const char *value = host_value(other, one->options[i].key);
		if (value && !strcmp(value, one->options[i].value))
			continue;
		say(why, "%s", one->options[i].key);
		return true;
	}
	return false;
}

/* Only what is the keeper's business. */
static bool settings_differ(const struct compare *compare, const struct pipeline_host *have,
	const struct pipeline_host *want, char why[160])
{
	if (host_keys_differ(have, want, why) || host_keys_differ(want, have, why))
		return true;
	for (unsigned i = 0; i < compare->want->peer_count; i++) {
		const struct pipeline_peer *peer = &compare->want->peers[i];
		const struct pipeline_peer *old = pipeline_peer_find(compare->have, peer->name);
		if (peer->host == (unsigned)(want - compare->want->hosts) && old &&
			options_differ(old, peer, true, why))
			return true;
	}
	return false;
}

/* Have and want of the same name. */
static bool host_differs(const struct compare *compare, const struct pipeline_host *have,
	const struct pipeline_host *want, char why[160])
{
	unsigned have_index = (unsigned)(have - compare->have->hosts), shared = 0;
	if (have->lanes != want->lanes || have->workers != want->workers) {
		bool lanes = have->lanes != want->lanes;
		say(why, "%s=%u, was %u (0: the default)", lanes ? "lanes" : "workers",
			lanes ? want->lanes : want->workers, lanes ? have->lanes : have->workers);
		return true;
	}
	for (unsigned i = 0; i < compare->want->peer_count; i++) {
		const struct pipeline_peer *peer = &compare->want->peers[i];
		if (peer->host != (unsigned)(want - compare->want->hosts))
			continue;
		const struct pipeline_peer *old = pipeline_peer_find(compare->have, peer->name);
		if (!old || old->host != have_index) {
			say(why, "peer %s moves in", peer->name);
			return true;
		}
		shared++;
		if (peer_differs(old, peer, why))
			return true;
	}
	if (shared != have->peer_count)
		say(why, "a peer moves out");
	return shared != have->peer_count;
}

/* --- fates ------------------------------------------------------------------------------ */

static const struct pipeline_host *host_twin(
	const struct pipeline *pipeline, const struct pipeline_host *host)
{
	return pipeline_host_find(pipeline, host->name);
}

static void fates_alone(struct compare *compare)
{
	const struct pipeline *have = compare->have, *want = compare->want;
	for (unsigned i = 0; i < want->host_count; i++) {
		const struct pipeline_host *old = host_twin(have, &want->hosts[i]);
		bool differs = old && host_differs(compare, old, &want->hosts[i], compare->why[i]);
		if (!old || old->down) {
			compare->want_fate[i] = FATE_START;
			say(compare->why[i], old ? "it is down" : "it is new");
		} else if (differs) {
			compare->want_fate[i] = FATE_RESTART;
		} else if (settings_differ(compare, old, &want->hosts[i], compare->why[i])) {
			compare->want_fate[i] = FATE_SETTINGS;
		}
	}
	for (unsigned i = 0; i < have->host_count; i++)
		if (!host_twin(want, &have->hosts[i]) && !have->hosts[i].down)
			compare->have_fate[i] = FATE_STOP;
}

static void group(struct compare *compare, unsigned have, unsigned want)
{
	const struct pipeline_host *twin = host_twin(compare->want, &compare->have->hosts[have]);
	compare->have_fate[have] = compare->want_fate[want] = FATE_GROUP;
	if (twin)
		compare->want_fate[twin - compare->want->hosts] = FATE_GROUP;
	twin = host_twin(compare->have, &compare->want->hosts[want]);
	if (twin && !twin->down)
		compare->have_fate[twin - compare->have->hosts] = FATE_GROUP;
}

static bool has_users(const struct pipeline *pipeline, const char *peer)
{
	for (unsigned i = 0; i < pipeline->peer_count; i++)
		for (unsigned j = 0; j < pipeline->peers[i].option_count; j++) {
			const struct pipeline_option *option = &pipeline->peers[i].options[j];
			if (is_edge(option->key) && !strcmp(option->value, peer))
				return true;
		}
	return false;
}

/* Two of a kind with an option in common: a socket perhaps, that only one can have. */
static bool could_clash(const struct pipeline_peer *one, const struct pipeline_peer *other)
{
	if (strcmp(one->role, other->role))
		return false;
	for (unsigned i = 0; i < one->option_count; i++)
		for (unsigned j = 0; j < other->option_count; j++)
			if (!is_edge(one->options[i].key) &&
				!pipeline_keep_key(one->options[i].key) &&
				!strcmp(one->options[i].key, other->options[j].key) &&
				!strcmp(one->options[i].value, other->options[j].value))
				return true;
	return false;
}

/* A peer that changes its process cannot be in both; a front that is replaced has its socket. */
static void fates_together(struct compare *compare)
{
	const struct pipeline *have = compare->have, *want = compare->want;
	for (unsigned i = 0; i < have->peer_count; i++) {
		const struct pipeline_peer *old = &have->peers[i];
		bool goes =
			compare->have_fate[old->host] == FATE_STOP && !has_users(have, old->name);
		for (unsigned j = 0; j < want->peer_count; j++) {
			const struct pipeline_peer *new = &want->peers[j];
			bool moves =
				!strcmp(old->name, new->name) &&
				strcmp(have->hosts[old->host].name, want->hosts[new->host].name);
			bool replaces = goes && compare->want_fate[new->host] > FATE_SETTINGS &&
					could_clash(old, new);
			if ((moves || replaces) && !have->hosts[old->host].down)
				group(compare, old->host, new->host);
		}
	}
}

/* --- edges ------------------------------------------------------------------------------ */

/* Where edges lead while the plan goes on. */
struct graph {
	struct {
		const char *peer, *key, *to;
	} edges[PIPELINE_PEERS_MAX * 4];
	unsigned count;
};

static void graph_set(struct graph *graph, const char *peer, const char *key, const char *to)
{
	for (unsigned i = 0; i < graph->count; i++)
		if (!strcmp(graph->edges[i].peer, peer) && !strcmp(graph->edges[i].key, key)) {
			graph->edges[i].to = to;
			return;
		}
	if (graph->count < countof(graph->edges)) {
		graph->edges[graph->count].peer = peer;
		graph->edges[graph->count].key = key;
		graph->edges[graph->count++].to = to;
	}
}

static void graph_add(struct graph *graph, const struct pipeline *pipeline, bool only_new,
	const struct pipeline *others)
{
	for (unsigned i = 0; i < pipeline->peer_count; i++) {
		const struct pipeline_peer *peer = &pipeline->peers[i];
		if (only_new && pipeline_peer_find(others, peer->name))
			continue;
		for (unsigned j = 0; j < peer->option_count; j++)
			if (is_edge(peer->options[j].key))
				graph_set(graph, peer->name, peer->options[j].key,
					peer->options[j].value);
	}
}

static bool graph_reaches(
	const struct graph *graph, const char *from, const char *to, unsigned depth)
{
	if (!strcmp(from, to))
		return true;
	for (unsigned i = 0; depth && i < graph->count; i++)
		if (!strcmp(graph->edges[i].peer, from) &&
			graph_reaches(graph, graph->edges[i].to, to, depth - 1))
			return true;
	return false;
}

struct switching {
	const char *peer, *key, *from, *to;
};

static unsigned edges_changed(const struct compare *compare, struct switching *out, unsigned max)
{
	unsigned count = 0;
	for (unsigned i = 0; i < compare->want->peer_count; i++) {
		const struct pipeline_peer *peer = &compare->want->peers[i];
		const struct pipeline_peer *old = pipeline_peer_find(compare->have, peer->name);
		for (unsigned j = 0; old && j < peer->option_count; j++) {
			const struct pipeline_option *option = &peer->options[j];
			const char *from = value_at(old, option->key, 0);
			if (!is_edge(option->key) || (from && !strcmp(from, option->value)) ||
				count == max)
				continue;
			out[count++] = (struct switching){
				peer->name, option->key, from ? from : "nowhere", option->value};
		}
	}
	return count;
}

static void edges_order(struct compare *compare)
{
	struct switching switches[PIPELINE_PEERS_MAX * 4];
	unsigned left = edges_changed(compare, switches, countof(switches));
	struct graph *graph = calloc(1, sizeof(*graph));
	must(graph);
	graph_add(graph, compare->have, false, NULL);
	graph_add(graph, compare->want, true, compare->have);
	while (left) {
		unsigned pick = 0;
		while (pick < left && graph_reaches(graph, switches[pick].to, switches[pick].peer,
					      PIPELINE_PEERS_MAX))
			pick++;
		if (pick == left)
			pick = 0; /* every order closes a circle: who switches says so */
		struct switching next = switches[pick];
		switches[pick] = switches[--left];
		char name[2 * NAME_LENGTH_MAX + 4];
		snprintf(name, sizeof(name), "%s:%s", next.peer, next.key + 5);
		struct pipeline_step *step = step_add(compare, PIPELINE_EDGE, name);
		snprintf(step->to, sizeof(step->to), "%s", next.to);
		say(step->reason, "to %s, was %s", next.to, next.from);
		graph_set(graph, next.peer, next.key, next.to);
	}
	free(graph);
}

/* --- the plan --------------------------------------------------------------------------- */

static void segment_compare(struct compare *compare)
{
	const struct pipeline *have = compare->have, *want = compare->want;
	/* sizes are rounded up when a segment is made, to huge pages at most */
	if (want->size_given && (have->size < want->size || have->size - want->size >= (2u << 20)))
		say(step_add(compare, PIPELINE_SEGMENT, "size")->reason, "%llu bytes, is %llu",
			(unsigned long long)want->size, (unsigned long long)have->size);
	if (want->lanes && want->lanes != have->lanes)
		say(step_add(compare, PIPELINE_SEGMENT, "lanes")->reason, "%u, is %u", want->lanes,
			have->lanes);
	if (want->segment[0] && strcmp(want->segment, have->segment))
		say(step_add(compare, PIPELINE_SEGMENT, "name")->reason, "%s, is %s", want->segment,
			have->segment);
}

/* Want's hosts of one fate, stores first. */
static void steps_of_want(struct compare *compare, enum fate fate, enum pipeline_action action)
{
	for (unsigned i = 0; i < compare->want->host_count; i++) {
		unsigned index = compare->want->order[i];
		const char *why = compare->why[index];
		if (compare->want_fate[index] == fate)
			say(step_add(compare, action, compare->want->hosts[index].name)->reason,
				"%s", why[0] ? why : "after others have stopped");
	}
}

/* Have's hosts of one fate, fronts first. */
static void steps_of_have(struct compare *compare, enum fate fate)
{
	for (unsigned i = compare->have->host_count; i-- > 0;) {
		unsigned index = compare->have->order[i];
		const struct pipeline_host *host = &compare->have->hosts[index];
		if (compare->have_fate[index] != fate)
			continue;
		struct pipeline_step *step = step_add(compare, PIPELINE_STOP, host->name);
		step->last = !host_twin(compare->want, host);
		say(step->reason,
			step->last ? "it is not in the file" : "a peer changes its process");
	}
}

int pipeline_diff(const struct pipeline *have, const struct pipeline *want,
	struct pipeline_plan *plan, struct fault *fault)
{
	struct compare *compare = calloc(1, sizeof(*compare));
	must(compare);
	compare->have = have;
	compare->want = want;
	compare->plan = plan;
	plan->count = 0;
	segment_compare(compare);
	fates_alone(compare);
	fates_together(compare);
	steps_of_want(compare, FATE_SETTINGS, PIPELINE_SETTINGS);
	steps_of_want(compare, FATE_START, PIPELINE_START);
	steps_of_want(compare, FATE_RESTART, PIPELINE_RESTART);
	steps_of_have(compare, FATE_GROUP);
	steps_of_want(compare, FATE_GROUP, PIPELINE_START);
	edges_order(compare);
	steps_of_have(compare, FATE_STOP);
	bool full = compare->full;
	free(compare);
	return full ? fault_set(fault, FAULT_FAILED, want->segment, NULL, "too many changes") : 0;
}
