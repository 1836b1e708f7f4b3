/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps what caches have from being lost or gone past. */
#include "tools/keeper/keeper_cache.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <xseg/port.h>
#include <xseg/registry.h>

#include "tools/keeper/keeper_config.h"
#include "tools/report/kept.h"
#include "tools/report/report.h"

static bool is_cache(const struct pipeline *pipeline, const char *name)
{
	const struct pipeline_peer *peer = pipeline_peer_find(pipeline, name);
	return peer && peer->role && !strcmp(peer->role, "cached");
}

/* One that takes a volume elsewhere: past it, half of that is missing. */
static bool is_mover(const struct pipeline *pipeline, const char *name)
{
	const struct pipeline_peer *peer = pipeline_peer_find(pipeline, name);
	return peer && peer->role && !strcmp(peer->role, "mover");
}

int keeper_cache_guard(const struct keeper *keeper, const struct pipeline *want, const char *edge,
	const char *to, struct fault *fault)
{
	const struct xseg *seg = &keeper->seg;
	char from[NAME_LENGTH_MAX + 1] = "";
	uint32_t index;
	if (xseg_edge_find(seg, edge, &index))
		return 0; /* whoever sets it says so */
	uint32_t port = xseg_edge_port(seg, index);
	if (port != XSEG_NONE)
		memcpy(from, seg->ports[port].name, NAME_LENGTH_MAX);
	if (!strcmp(from, to))
		return 0;
	if (is_cache(&keeper->pipeline, from))
		return fault_set(fault, FAULT_BUSY, edge, "'xsegctl unplug' takes it out safely",
			"edge %s leads to the cache '%s', which may have what is nowhere else",
			edge, from);
	if (is_mover(&keeper->pipeline, from))
		return fault_set(fault, FAULT_BUSY, edge,
			"'xsegctl volume move' takes it out when nothing is left behind it",
			"edge %s leads to the mover '%s', which knows where volumes lie", edge,
			from);
	if (is_cache(want, to))
		return fault_set(fault, FAULT_BUSY, edge, "'xsegctl plug' puts it in safely",
			"'%s' is a cache: requests that went past it would still be on their way",
			to);
	return 0;
}

void keeper_cache_switched(
	struct keeper *keeper, const char *edge, const char *from, const char *to)
{
	bool in = is_cache(&keeper->pipeline, to);
	if (!in && !is_cache(&keeper->pipeline, from))
		return;
	keeper_event(keeper, in ? "cache_plugged" : "cache_unplugged",
		json_pack("{s:s, s:s, s:s, s:s}", "peer", in ? to : from, "edge", edge, "from",
			from, "to", to));
}

uint64_t keeper_cache_dirty(const struct keeper *keeper, const char *peer)
{
	struct kept kept;
	uint32_t port;
	if (xseg_port_find(&keeper->seg, peer, &port))
		return 0;
	kept_count(&keeper->seg, port, &kept);
	return kept.dirty;
}

static bool known(void *context, const char *peer)
{
	const struct keeper *keeper = context;
	struct xseg_peer_view view;
	return pipeline_peer_find(&keeper->pipeline, peer) ||
	       (!xseg_peer_find(&keeper->seg, peer, &view) && view.life != XSEG_LIFE_DEAD);
}

int keeper_cache_orphans(const struct keeper *keeper, struct fault *fault)
{
	struct kept kept;
	uint32_t port = kept_orphan(&keeper->seg, known, (void *)keeper, &kept);
	if (port == XSEG_NONE)
		return 0;
	char name[NAME_LENGTH_MAX + 1] = "";
	memcpy(name, keeper->seg.ports[port].name, NAME_LENGTH_MAX);
	fault_set(fault, FAULT_BUSY, keeper->name, NULL,
		"the cache '%s' has left %llu bytes in segment '%s' that its store lacks, and is "
		"not in the pipeline",
		name, (unsigned long long)kept.dirty, keeper->name);
	fault_hint(fault,
		"add '[peer %s]' to the file, or give them up: 'xsegctl segment destroy %s "
		"--discard-dirty=%llu'",
		name, keeper->name, (unsigned long long)kept.dirty);
	return -FAULT_BUSY;
}

int keeper_cache_let_go(const struct keeper *keeper, uint64_t discard, struct fault *fault)
{
	struct kept kept;
	kept_count(&keeper->seg, XSEG_NONE, &kept);
	if (kept.dirty == 0 || kept.dirty == discard)
		return 0;
	fault_set(fault, FAULT_BUSY, keeper->name, NULL,
		"all is stopped, but segment '%s' stays: %llu bytes in it have not reached their "
		"store",
		keeper->name, (unsigned long long)kept.dirty);
	fault_hint(fault,
		"'xsegctl up' goes on with them; 'xsegctl segment destroy %s --discard-dirty=%llu' "
		"gives them up",
		keeper->name, (unsigned long long)kept.dirty);
	return -FAULT_BUSY;
}

/* --- forgetting a peer ------------------------------------------------------------------ */

static int forget_check(struct ask *ask, const struct keeper_host *host, const char *name)
{
	char users[256];
	bool still = host->state != KEEPER_STOPPED && host->state != KEEPER_GIVEN_UP;
	if (still)
		return fault_set(ask->fault, FAULT_BUSY, name, "stop it first",
			"peer '%s' is not stopped", name);
	if (keeper_edge_users(ask->keeper, host, users, sizeof(users)))
		return fault_set(ask->fault, FAULT_BUSY, name, "let their edges lead elsewhere",
			"peer '%s' is in use by %s", name, users);
	uint64_t dirty = keeper_cache_dirty(ask->keeper, name);
	if (dirty)
		return fault_set(ask->fault, FAULT_BUSY, name, "'xsegctl unplug' says how to go on",
			"peer '%s' keeps %llu bytes that its store lacks", name,
			(unsigned long long)dirty);
	return 0;
}

int keeper_cache_forget(struct ask *ask)
{
	struct keeper *keeper = ask->keeper;
	const char *name = json_string_value(json_object_get(ask->params, "peer"));
	bool plan = json_is_true(json_object_get(ask->params, "dry_run"));
	const struct pipeline_peer *peer = pipeline_peer_find(&keeper->pipeline, name);
	int rc = keeper_ask_free(ask);
	if (rc)
		return rc;
	if (!peer)
		return fault_set(ask->fault, FAULT_NOT_FOUND, name,
			"'xsegctl peer list' lists them", "there is no peer '%s'", name);
	struct keeper_host *host = &keeper->hosts[peer->host];
	if (keeper->pipeline.hosts[peer->host].peer_count > 1)
		return fault_set(ask->fault, FAULT_BUSY, name,
			"'xsegctl config apply' takes it out",
			"peer '%s' shares its process with others", name);
	rc = forget_check(ask, host, name);
	if (rc)
		return rc;
	*ask->result = json_pack("{s:i, s:s, s:b, s:b}", "schema_version", REPORT_SCHEMA_VERSION,
		"name", name, "changed", !plan, "dry_run", plan);
	if (plan)
		return 0;
	keeper_config_forget(keeper, host);
	keeper_save(keeper);
	return 0;
}
