/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a segment's registry, tables and usage into JSON for status, lists and dumps. */
#include "tools/report/report.h"

#include <base/must.h>
#include <stdio.h>
#include <string.h>
#include <xseg/port.h>
#include <xseg/registry.h>
#include <xseg/request.h>

static const char *const life_names[] = {
	[XSEG_LIFE_FREE] = "free",
	[XSEG_LIFE_JOINING] = "starting",
	[XSEG_LIFE_ALIVE] = "serving",
	[XSEG_LIFE_DRAINING] = "stopping",
	[XSEG_LIFE_DEAD] = "dead",
};

static const char *life_name(unsigned life)
{
	return life < countof(life_names) ? life_names[life] : "corrupt";
}

/* --- requests in flight ----------------------------------------------------------------- */

/* The port whose server has this request or will have it; XSEG_NONE when nobody's. */
static uint32_t request_port(const struct xseg_request *request)
{
	uint64_t word = atomic_load_explicit(&request->word, memory_order_acquire);
	unsigned state = xseg_word_state(word), frame = xseg_word_frame(word);
	uint32_t port = XSEG_NONE;
	if (state == XSEG_REQUEST_SUBMITTED)
		port = xseg_word_owner(word);
	else if (state == XSEG_REQUEST_TAKEN && frame < XSEG_FRAMES)
		port = request->frame[frame].port;
	return port < XSEG_PORTS_MAX ? port : XSEG_NONE;
}

static void count_inflight(const struct xseg *seg, uint32_t inflight[XSEG_PORTS_MAX])
{
	memset(inflight, 0, XSEG_PORTS_MAX * sizeof(*inflight));
	for (uint32_t i = 0; i < seg->request_count; i++) {
		uint32_t port = request_port(&seg->requests[i]);
		if (port != XSEG_NONE)
			inflight[port]++;
	}
}

/* --- peers ------------------------------------------------------------------------------ */

void report_set_health(json_t *peer, const char *health, const char *reason)
{
	json_object_set_new(peer, "health", json_string(health));
	json_object_set_new(peer, "reason", json_string(reason));
}

static json_t *peer_report(
	const struct xseg *seg, const struct xseg_peer_view *view, const uint32_t *inflight)
{
	uint32_t port;
	uint32_t count = xseg_port_find(seg, view->name, &port) ? 0 : inflight[port];
	json_t *peer = json_pack("{s:s, s:s, s:i, s:s, s:i, s:i}", "name", view->name, "role",
		view->role, "pid", (int)view->pid, "state", life_name(view->life), "lanes",
		__builtin_popcountll(view->lanes), "inflight", (int)count);
	if (!peer) /* a name that is not UTF-8 */
		return NULL;
	bool dead = view->life == XSEG_LIFE_DEAD;
	report_set_health(peer, dead ? "failed" : "ok", dead ? "its process is gone" : "");
	return peer;
}

json_t *report_peers(const struct xseg *seg)
{
	uint32_t inflight[XSEG_PORTS_MAX];
	json_t *peers = json_array();
	count_inflight(seg, inflight);
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++) {
		struct xseg_peer_view view;
		if (xseg_peer_view(seg, i, &view))
			json_array_append_new(peers, peer_report(seg, &view, inflight));
	}
	return peers;
}

/* --- edges ------------------------------------------------------------------------------ */

static bool peer_serves(const struct xseg *seg, const char *name)
{
	struct xseg_peer_view view;
	return !xseg_peer_find(seg, name, &view) && view.life == XSEG_LIFE_ALIVE;
}

static const char *edge_state(
	const struct xseg *seg, const char *peer, const char *to, bool may_be_nowhere)
{
	if (!peer_serves(seg, peer) || (!to && may_be_nowhere))
		return "unused";
	if (!to)
		return "nowhere";
	return peer_serves(seg, to) ? "ok" : "unserved";
}

static json_t *edge_report(const struct xseg *seg, uint32_t index)
{
	const struct xseg_edge_record *record = &seg->edges[index];
	char name[XSEG_EDGE_NAME_MAX + 1] = "", to[NAME_LENGTH_MAX + 1] = "";
	if (atomic_load_explicit(&record->life, memory_order_acquire) != XSEG_LIFE_ALIVE)
		return NULL;
	memcpy(name, record->name, XSEG_EDGE_NAME_MAX);
	char *colon = strchr(name, ':');
	if (!colon)
		return NULL;
	uint32_t port = xseg_edge_port(seg, index);
	if (port != XSEG_NONE)
		memcpy(to, seg->ports[port].name, NAME_LENGTH_MAX);
	uint64_t word = atomic_load_explicit(&record->word, memory_order_acquire);
	json_t *edge = json_pack("{s:s, s:s#, s:s, s:s?, s:I}", "name", name, "peer", name,
		(int)(colon - name), "edge", colon + 1, "to", port == XSEG_NONE ? NULL : to,
		"generation", (json_int_t)(uint32_t)word);
	*colon = 0;
	json_object_set_new(edge, "state",
		json_string(edge_state(seg, name, port == XSEG_NONE ? NULL : to,
			atomic_load(&record->spare) != 0)));
	return edge;
}

json_t *report_edges(const struct xseg *seg)
{
	json_t *edges = json_array();
	for (uint32_t i = 0; i < XSEG_EDGES_MAX; i++) {
		json_t *edge = edge_report(seg, i);
		if (edge)
			json_array_append_new(edges, edge);
	}
	return edges;
}

/* --- the segment ------------------------------------------------------------------------ */

static void uuid_text(const uint8_t uuid[16], char out[37])
{
	char *at = out;
	for (int i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*at++ = '-';
		at += sprintf(at, "%02x", uuid[i]);
	}
}

json_t *report_segment(const struct xseg *seg)
{
	struct xseg_usage usage;
	char uuid[37], boot_id[37];
	xseg_segment_usage(seg, &usage);
	uuid_text(seg->super->uuid, uuid);
	uuid_text(seg->super->boot_id, boot_id);
	json_t *pages = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "total",
		(json_int_t)usage.pages, "free", (json_int_t)usage.pages_free, "held",
		(json_int_t)usage.pages_held, "stored", (json_int_t)usage.pages_stored, "kept",
		(json_int_t)usage.pages_kept, "retired", (json_int_t)usage.pages_retired);
	const uint32_t *by = usage.requests_by_state;
	json_t *requests = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "total",
		(json_int_t)usage.requests, "free", (json_int_t)by[XSEG_REQUEST_FREE], "owned",
		(json_int_t)by[XSEG_REQUEST_OWNED], "submitted",
		(json_int_t)by[XSEG_REQUEST_SUBMITTED], "taken", (json_int_t)by[XSEG_REQUEST_TAKEN],
		"done", (json_int_t)by[XSEG_REQUEST_DONE]);
	return json_pack("{s:s, s:s, s:I, s:I, s:i, s:b, s:s, s:s, s:I, s:i, s:o, s:o}", "name",
		seg->name, "path", seg->path, "size", (json_int_t)usage.size, "overhead",
		(json_int_t)usage.overhead, "lanes", (int)seg->lane_count, "huge",
		(seg->super->flags & (XSEG_SEGMENT_HUGE_TLB | XSEG_SEGMENT_COLLAPSED)) != 0, "uuid",
		uuid, "boot_id", boot_id, "created_ns", (json_int_t)seg->super->created_ns,
		"layout_version", (int)seg->super->layout_version, "pages", pages, "requests",
		requests);
}

/* --- status ----------------------------------------------------------------------------- */

static json_t *peer_named(json_t *peers, const char *name)
{
	size_t i;
	json_t *peer;
	json_array_foreach (peers, i, peer) {
		const char *text = json_string_value(json_object_get(peer, "name"));
		if (text && !strcmp(text, name))
			return peer;
	}
	return NULL;
}

static void edge_blame(json_t *peers, const json_t *edge)
{
	const char *state = json_string_value(json_object_get(edge, "state"));
	const char *to = json_string_value(json_object_get(edge, "to"));
	const char *from = json_string_value(json_object_get(edge, "peer"));
	char reason[128];
	if (strcmp(state, "nowhere") && strcmp(state, "unserved"))
		return;
	json_t *peer = peer_named(peers, from);
	if (!peer)
		return;
	if (to)
		snprintf(reason, sizeof(reason), "edge %s leads to '%s', which does not serve",
			json_string_value(json_object_get(edge, "edge")), to);
	else
		snprintf(reason, sizeof(reason), "edge %s leads nowhere",
			json_string_value(json_object_get(edge, "edge")));
	report_set_health(peer, "failed", reason);
}

static bool all_healthy(const json_t *peers)
{
	size_t i;
	json_t *peer;
	json_array_foreach (peers, i, peer) {
		const char *health = json_string_value(json_object_get(peer, "health"));
		if (!health || strcmp(health, "ok"))
			return false;
	}
	return true;
}

json_t *report_status(const struct xseg *seg, json_t *keeper, json_t *peers)
{
	json_t *edges = report_edges(seg), *edge;
	size_t i;
	json_array_foreach (edges, i, edge)
		edge_blame(peers, edge);
	const char *state = json_string_value(json_object_get(keeper, "state"));
	bool healthy = all_healthy(peers) && !(state && !strcmp(state, "starting"));
	return json_pack("{s:i, s:b, s:o, s:o, s:o, s:o}", "schema_version", REPORT_SCHEMA_VERSION,
		"healthy", (int)healthy, "segment", report_segment(seg), "keeper", keeper, "peers",
		peers, "edges", edges);
}
