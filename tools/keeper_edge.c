/* SPDX-License-Identifier: Apache-2.0 */
/* Edges as they lie in the segment: who leads to whom, and switching one. */
#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xseg/port.h>
#include <xseg/registry.h>

#include "tools/keeper.h"

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

static int target_check(const struct keeper *keeper, const struct edge_view *edge, const char *to,
	struct fault *fault)
{
	struct xseg_peer_view view;
	if (xseg_peer_find(&keeper->seg, to, &view))
		return fault_set(fault, FAULT_NOT_FOUND, to, "'xsegctl peer list' lists them",
			"there is no peer '%s'", to);
	if (view.life != XSEG_LIFE_ALIVE)
		return fault_set(fault, FAULT_FAILED, to, "'xsegctl status' says why",
			"peer '%s' does not serve", to);
	if (keeper_edge_reaches(&keeper->seg, to, edge->peer))
		return fault_set(fault, FAULT_USAGE, to, NULL,
			"'%s' leads back to '%s': requests would go round in a circle", to,
			edge->peer);
	return 0;
}

int keeper_edge_set(struct keeper *keeper, const char *name, const char *to, json_t **result,
	struct fault *fault)
{
	struct edge_view edge;
	uint32_t index, port;
	if (xseg_edge_find(&keeper->seg, name, &index) || !edge_view(&keeper->seg, index, &edge))
		return edge_unknown(keeper, name, fault);
	int rc = target_check(keeper, &edge, to, fault);
	if (rc)
		return rc;
	rc = xseg_port_find(&keeper->seg, to, &port);
	if (rc)
		return fault_set(fault, FAULT_FAILED, to, NULL, "peer '%s' has no port", to);
	bool changed = xseg_edge_port(&keeper->seg, index) != port;
	if (changed) {
		xseg_edge_set(&keeper->seg, index, port);
		log_info("keeper", "edge %s leads to '%s' now, no longer to '%s'", name, to,
			edge.to[0] ? edge.to : "nowhere");
	}
	uint64_t word = atomic_load_explicit(&keeper->seg.edges[index].word, memory_order_acquire);
	*result = json_pack("{s:i, s:s, s:s?, s:s, s:I, s:b}", "schema_version", 1, "name", name,
		"from", edge.to[0] ? edge.to : NULL, "to", to, "generation",
		(json_int_t)(uint32_t)word, "changed", (int)changed);
	return 0;
}
