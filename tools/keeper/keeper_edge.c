/* SPDX-License-Identifier: Apache-2.0 */
/* Edges as they lie in the segment: who leads to whom, and switching one. */
#include <base/crash.h>
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xseg/port.h>
#include <xseg/reap.h>
#include <xseg/registry.h>
#include <xseg/request.h>

#include "tools/keeper/keeper.h"
#include "tools/keeper/keeper_cache.h"

struct edge_view {
	char peer[NAME_LENGTH_MAX + 1], edge[NAME_LENGTH_MAX + 1], to[NAME_LENGTH_MAX + 1];
};

/* A checked copy; false when there is none. `to` is "" when it leads nowhere. */
static bool edge_view(const struct xseg *seg, uint32_t index, struct edge_view *view)
{
	const struct xseg_edge_record *record = &seg->edges[index];
	char name[XSEG_EDGE_NAME_MAX + 1] = "";
	if (atomic_load_explicit(&record->life, memory_order_acquire) != XSEG_LIFE_ALIVE)
		return false;
	memcpy(name, record->name, XSEG_EDGE_NAME_MAX);
	char *colon = strchr(name, ':');
	if (!colon)
		return false;
	memset(view, 0, sizeof(*view));
	snprintf(view->peer, sizeof(view->peer), "%.*s", (int)(colon - name), name);
	snprintf(view->edge, sizeof(view->edge), "%.31s", colon + 1);
	uint32_t port = xseg_edge_port(seg, index);
	if (port != XSEG_NONE)
		memcpy(view->to, seg->ports[port].name, NAME_LENGTH_MAX);
	return true;
}

struct reach {
	const struct xseg *seg;
	char seen[XSEG_EDGES_MAX][NAME_LENGTH_MAX + 1];
	unsigned count;
};

static bool reaches(struct reach *reach, const char *from, const char *to)
{
	struct edge_view view;
	if (!strcmp(from, to))
		return true;
	for (unsigned i = 0; i < reach->count; i++)
		if (!strcmp(reach->seen[i], from))
			return false;
	if (reach->count == XSEG_EDGES_MAX)
		return false;
	snprintf(reach->seen[reach->count++], NAME_LENGTH_MAX + 1, "%s", from);
	for (uint32_t i = 0; i < XSEG_EDGES_MAX; i++)
		if (edge_view(reach->seg, i, &view) && !strcmp(view.peer, from) && view.to[0] &&
			reaches(reach, view.to, to))
			return true;
	return false;
}

bool keeper_edge_reaches(const struct xseg *seg, const char *from, const char *to)
{
	struct reach reach = {.seg = seg};
	return reaches(&reach, from, to);
}

/* --- who uses a process ----------------------------------------------------------------- */

static bool host_has(const struct keeper *keeper, const struct keeper_host *host, const char *peer)
{
	const struct pipeline_peer *found = pipeline_peer_find(&keeper->pipeline, peer);
	return found && found->host == host->index;
}

bool keeper_edge_users(
	const struct keeper *keeper, const struct keeper_host *host, char *out, size_t out_size)
{
	struct edge_view edge;
	struct xseg_peer_view user;
	out[0] = 0;
	for (uint32_t i = 0; i < XSEG_EDGES_MAX; i++) {
		if (!edge_view(&keeper->seg, i, &edge) || !host_has(keeper, host, edge.to) ||
			host_has(keeper, host, edge.peer))
			continue;
		if (xseg_peer_find(&keeper->seg, edge.peer, &user) || user.life == XSEG_LIFE_DEAD)
			continue;
		size_t n = strlen(out);
		snprintf(out + n, out_size - n, "%s%s (edge %s)", n ? ", " : "", edge.peer,
			edge.edge);
	}
	return out[0];
}

bool keeper_edge_above(const struct keeper_host *above, const struct keeper_host *below)
{
	const struct keeper *keeper = above->keeper;
	struct edge_view edge;
	for (uint32_t i = 0; above != below && i < XSEG_EDGES_MAX; i++)
		if (edge_view(&keeper->seg, i, &edge) && host_has(keeper, above, edge.peer) &&
			host_has(keeper, below, edge.to))
			return true;
	return false;
}

/* Does a request wait there? */
bool keeper_edge_waits(const struct keeper *keeper, uint32_t port)
{
	const struct xseg *seg = &keeper->seg;
	for (uint32_t i = 0; i < seg->request_count; i++) {
		uint64_t word = atomic_load_explicit(&seg->requests[i].word, memory_order_acquire);
		if (xseg_word_state(word) == XSEG_REQUEST_SUBMITTED &&
			xseg_word_owner(word) == port)
			return true;
	}
	return false;
}

/* --- second choices ---------------------------------------------------------------------- */

static bool second_fits(const struct keeper *keeper, const struct edge_view *edge, const char *to)
{
	const struct pipeline_peer *peer = pipeline_peer_find(&keeper->pipeline, to);
	if (!peer || !strcmp(to, edge->to) || keeper_edge_reaches(&keeper->seg, to, edge->peer))
		return false;
	unsigned state = keeper->hosts[peer->host].state;
	return state != KEEPER_GIVEN_UP && state != KEEPER_STOPPED && state != KEEPER_DEAD;
}

/* What was sent down that edge and waits goes along. */
static int take_along(const struct keeper *keeper, const struct edge_view *edge, uint32_t to)
{
	struct xseg_peer_view user;
	uint32_t from;
	if (xseg_port_find(&keeper->seg, edge->to, &from) ||
		xseg_peer_find(&keeper->seg, edge->peer, &user))
		return 0;
	return xseg_reap_move_port(&keeper->seg, user.lanes, from, to);
}

static bool fall_back(struct keeper_host *host, uint32_t index, const struct edge_view *edge)
{
	struct keeper *keeper = host->keeper;
	const char *to = pipeline_keep_second(&keeper->pipeline, edge->peer, edge->edge);
	uint32_t port;
	/* what only it has is newer than what the second choice would answer with */
	if (!to || keeper_cache_dirty(keeper, edge->to) || !second_fits(keeper, edge, to) ||
		xseg_port_find(&keeper->seg, to, &port))
		return false;
	xseg_edge_set(&keeper->seg, index, port);
	crash_point("keeper.edge.before_move");
	int moved = take_along(keeper, edge, port);
	log_warning("keeper", "edge %s:%s leads to '%s' now, its second choice: '%s' is gone",
		edge->peer, edge->edge, to, edge->to);
	keeper_event(keeper, "edge_switched",
		json_pack("{s:s, s:s, s:s, s:s, s:i, s:s}", "peer", edge->peer, "edge", edge->edge,
			"from", edge->to, "to", to, "moved", moved > 0 ? moved : 0, "reason",
			"the peer below does not come back"));
	return true;
}

static const char *first_choice(const struct pipeline *pipeline, const struct edge_view *edge)
{
	const struct pipeline_peer *peer = pipeline_peer_find(pipeline, edge->peer);
	for (unsigned i = 0; peer && i < peer->option_count; i++)
		if (!strncmp(peer->options[i].key, "edge.", 5) &&
			!strcmp(peer->options[i].key + 5, edge->edge))
			return peer->options[i].value;
	return NULL;
}

/* Who looked at the edge before it was switched, and sent after: once more. */
static void gather(const struct keeper_host *host, const struct edge_view *edge)
{
	const struct keeper *keeper = host->keeper;
	const char *first = first_choice(&keeper->pipeline, edge);
	const char *to = pipeline_keep_second(&keeper->pipeline, edge->peer, edge->edge);
	struct edge_view before = *edge;
	uint32_t from, port;
	if (!first || !to || strcmp(to, edge->to) || !host_has(keeper, host, first) ||
		xseg_port_find(&keeper->seg, first, &from) ||
		xseg_port_find(&keeper->seg, to, &port) || !keeper_edge_waits(keeper, from))
		return;
	snprintf(before.to, sizeof(before.to), "%s", first);
	take_along(keeper, &before, port);
}

unsigned keeper_edge_fall_back(struct keeper_host *host)
{
	const struct keeper *keeper = host->keeper;
	struct edge_view edge;
	unsigned count = 0;
	for (uint32_t i = 0; i < XSEG_EDGES_MAX; i++) {
		if (!edge_view(&keeper->seg, i, &edge))
			continue;
		if (host_has(keeper, host, edge.to))
			count += fall_back(host, i, &edge);
		else
			gather(host, &edge);
	}
	return count;
}

/* --- names that are nobody's ------------------------------------------------------------- */

static bool is_nobody(const struct keeper *keeper, uint32_t port, const char *name)
{
	struct xseg_peer_view peer;
	return !pipeline_peer_find(&keeper->pipeline, name) &&
	       xseg_peer_find(&keeper->seg, name, &peer) && !xseg_port_served(&keeper->seg, port);
}

static void edge_repair(struct keeper *keeper, uint32_t index, const struct edge_view *edge)
{
	const struct xseg *seg = &keeper->seg;
	const char *first = first_choice(&keeper->pipeline, edge);
	uint32_t from = xseg_edge_port(seg, index), port;
	struct xseg_peer_view user;
	if (from == XSEG_NONE || !first || !is_nobody(keeper, from, edge->to) ||
		xseg_port_reserve(seg, first, &port))
		return;
	xseg_edge_set(seg, index, port);
	crash_point("keeper.edge.before_repair");
	int moved = xseg_peer_find(seg, edge->peer, &user)
			    ? 0
			    : xseg_reap_move_port(seg, user.lanes, from, port);
	log_warning("keeper", "edge %s:%s led to a port that is nobody's and leads to '%s' again",
		edge->peer, edge->edge, first);
	keeper_event(keeper, "edge_switched",
		json_pack("{s:s, s:s, s:n, s:s, s:i, s:s}", "peer", edge->peer, "edge", edge->edge,
			"from", "to", first, "moved", moved > 0 ? moved : 0, "reason",
			"the name of the port it led to is damaged"));
}

void keeper_edge_repair(struct keeper *keeper)
{
	struct edge_view edge;
	for (uint32_t i = 0; i < XSEG_EDGES_MAX; i++)
		if (edge_view(&keeper->seg, i, &edge))
			edge_repair(keeper, i, &edge);
}

/* --- switching -------------------------------------------------------------------------- */

static int edge_unknown(const struct keeper *keeper, const char *name, struct fault *fault)
{
	char texts[XSEG_EDGES_MAX][XSEG_EDGE_NAME_MAX];
	const char *names[XSEG_EDGES_MAX];
	struct edge_view view;
	size_t count = 0;
	for (uint32_t i = 0; i < XSEG_EDGES_MAX; i++)
		if (edge_view(&keeper->seg, i, &view)) {
			snprintf(texts[count], sizeof(texts[0]), "%s:%s", view.peer, view.edge);
			names[count] = texts[count];
			count++;
		}
	fault_set(fault, FAULT_NOT_FOUND, name, NULL, "there is no edge '%s'", name);
	fault_nearest(fault, name, names, count, "'xsegctl edge list' lists them");
	return -FAULT_NOT_FOUND;
}

/* One that is on its way back is worth waiting for. */
static int target_away(struct keeper *keeper, const char *to, struct fault *fault)
{
	const struct pipeline_peer *peer = pipeline_peer_find(&keeper->pipeline, to);
	if (!peer)
		return fault_set(fault, FAULT_NOT_FOUND, to, "'xsegctl peer list' lists them",
			"there is no peer '%s'", to);
	if (keeper_host_comes(&keeper->hosts[peer->host]))
		return fault_set_again(
			fault, to, "say it again in a moment", "peer '%s' is being started", to);
	return fault_set(fault, FAULT_FAILED, to, "'xsegctl status' says why",
		"peer '%s' does not serve", to);
}

static int target_check(
	struct keeper *keeper, const struct edge_view *edge, const char *to, struct fault *fault)
{
	struct xseg_peer_view view;
	if (xseg_peer_find(&keeper->seg, to, &view) || view.life != XSEG_LIFE_ALIVE)
		return target_away(keeper, to, fault);
	if (!keeper_check_role_serves(keeper, view.role, edge->edge))
		return fault_set(fault, FAULT_USAGE, to,
			"'xsegctl edge list' lists where edges lead",
			"edge %s:%s cannot lead to '%s': a %s answers no '%s' requests", edge->peer,
			edge->edge, to, view.role, edge->edge);
	if (keeper_edge_reaches(&keeper->seg, to, edge->peer))
		return fault_set(fault, FAULT_USAGE, to, NULL,
			"'%s' leads back to '%s': requests would go round in a circle", to,
			edge->peer);
	return 0;
}

/* "none" is nowhere. */
static int target_port(struct keeper *keeper, const struct edge_view *edge, const char *to,
	uint32_t *port, struct fault *fault)
{
	*port = XSEG_NONE;
	if (!strcmp(to, "none"))
		return 0;
	int rc = target_check(keeper, edge, to, fault);
	if (rc)
		return rc;
	if (xseg_port_find(&keeper->seg, to, port))
		return fault_set(fault, FAULT_FAILED, to, NULL, "peer '%s' has no port", to);
	return 0;
}

int keeper_edge_set(struct keeper *keeper, const char *name, const char *to, bool dry_run,
	json_t **result, struct fault *fault)
{
	struct edge_view edge;
	uint32_t index, port;
	if (xseg_edge_find(&keeper->seg, name, &index) || !edge_view(&keeper->seg, index, &edge))
		return edge_unknown(keeper, name, fault);
	int rc = target_port(keeper, &edge, to, &port, fault);
	if (rc)
		return rc;
	bool changed = xseg_edge_port(&keeper->seg, index) != port && !dry_run;
	if (changed) {
		xseg_edge_set(&keeper->seg, index, port);
		log_info("keeper", "edge %s leads to '%s' now, no longer to '%s'", name, to,
			edge.to[0] ? edge.to : "nowhere");
	}
	uint64_t word = atomic_load_explicit(&keeper->seg.edges[index].word, memory_order_acquire);
	*result = json_pack("{s:i, s:s, s:s?, s:s, s:I, s:b}", "schema_version", 1, "name", name,
		"from", edge.to[0] ? edge.to : NULL, "to", to, "generation",
		(json_int_t)(uint32_t)word, "changed", (int)changed);
	if (dry_run)
		json_object_set_new(*result, "dry_run", json_true());
	return 0;
}
