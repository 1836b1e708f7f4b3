/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what already runs in the segment, so that a keeper can die and come back. */
#include <base/log.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xseg/port.h>
#include <xseg/registry.h>

#include "tools/keeper/keeper.h"
#include "tools/pipeline/pipeline_edit.h"

/* Alive as far as the registry can tell; false for xsegctl and others that are no peers. */
static bool peer_alive(const struct xseg *seg, uint32_t index, struct xseg_peer_view *view)
{
	return xseg_peer_view(seg, index, view) && view->life != XSEG_LIFE_DEAD;
}

static int host_mixed(const struct keeper *keeper, const struct keeper_host *host,
	const struct pipeline_peer *peer, struct fault *fault)
{
	return fault_set(fault, FAULT_CONFLICT, peer->name,
		"stop what runs, or write the file as it is",
		"peer '%s' runs in a process of its own making, but '%s' wants it in host '%s'",
		peer->name, keeper->path, keeper_host_name(host));
}

struct found {
	pid_t pid;
	uint64_t start_time;
	const struct pipeline_peer *first, *missing;
	bool bound; /* all of them serve */
};

static bool port_bound(const struct xseg *seg, const char *peer)
{
	uint32_t port;
	return !xseg_port_find(seg, peer, &port) &&
	       xseg_life_of(atomic_load_explicit(&seg->ports[port].word, memory_order_acquire)) ==
		       XSEG_LIFE_ALIVE;
}

/* One peer of a host, looked up; a fault when it is not as the pipeline has it. */
static int find_peer(struct keeper *keeper, const struct keeper_host *host,
	const struct pipeline_peer *peer, struct found *found, struct fault *fault)
{
	struct xseg_peer_view view;
	if (xseg_peer_find(&keeper->seg, peer->name, &view) || view.life == XSEG_LIFE_DEAD) {
		found->missing = peer;
		return 0;
	}
	if (strcmp(view.role, peer->role))
		return fault_set(fault, FAULT_CONFLICT, peer->name, NULL,
			"peer '%s' runs with role %s, '%s' says %s", peer->name, view.role,
			keeper->path, peer->role);
	if (found->pid && found->pid != view.pid)
		return host_mixed(keeper, host, peer, fault);
	if (!found->pid) {
		found->pid = view.pid;
		found->start_time = keeper->seg.peers[view.index].start_time;
		found->first = peer;
	}
	found->bound &= port_bound(&keeper->seg, peer->name);
	return 0;
}

static int find_host(struct keeper *keeper, const struct keeper_host *host, struct found *found,
	struct fault *fault)
{
	const struct pipeline *pipeline = &keeper->pipeline;
	int rc = 0;
	*found = (struct found){.bound = true};
	for (unsigned i = 0; !rc && i < pipeline->peer_count; i++)
		if (pipeline->peers[i].host == host->index)
			rc = find_peer(keeper, host, &pipeline->peers[i], found, fault);
	return rc;
}

/* All peers of a host run in one process, or none runs. */
static int adopt_host(struct keeper *keeper, struct keeper_host *host, struct fault *fault)
{
	struct found found;
	int rc = find_host(keeper, host, &found, fault);
	if (rc || !found.pid)
		return rc;
	/* what an earlier keeper of this pipeline has started may be on its way up */
	if (found.missing && !keeper->resumed)
		return host_mixed(keeper, host, found.first, fault);
	keeper_host_adopt(host, found.pid, found.start_time, !found.missing && found.bound);
	return 0;
}

bool keeper_adopt_serves(const struct keeper_host *host)
{
	struct found found;
	struct fault ignored;
	return !find_host(host->keeper, host, &found, &ignored) && found.pid == host->pid &&
	       !found.missing && found.bound;
}

bool keeper_adopt_late(struct keeper_host *host)
{
	struct fault ignored;
	struct found found;
	return !find_host(host->keeper, host, &found, &ignored) && found.pid &&
	       !keeper_host_of_pid(host->keeper, found.pid) &&
	       !keeper_host_adopt(host, found.pid, found.start_time, !found.missing && found.bound);
}

/* Peers that were started beside the file (`peer start`) are kept, too. */
static void adopt_stranger(struct keeper *keeper, const struct xseg_peer_view *view)
{
	struct pipeline *pipeline = &keeper->pipeline;
	struct keeper_host *host = keeper_host_of_pid(keeper, view->pid);
	if (view->pid == getpid() || pipeline_peer_find(pipeline, view->name))
		return;
	struct pipeline_peer *peer = pipeline_peer_add(pipeline, view->name);
	if (!peer)
		return;
	peer->role = strdup(view->role);
	peer->file = peer->role_file = PIPELINE_FILES_MAX;
	if (!host) {
		struct pipeline_host *process = pipeline_host_add(pipeline, view->name);
		if (!process)
			return;
		host = &keeper->hosts[process - pipeline->hosts];
		keeper_host_init(keeper, (unsigned)(process - pipeline->hosts));
		keeper->order[keeper->order_count++] = host->index;
		peer->host = host->index;
		if (keeper_host_adopt(
			    host, view->pid, keeper->seg.peers[view->index].start_time, true))
			keeper_host_forget(host); /* has gone meanwhile; we could not start it */
		else
			host->stranger = true;
		return;
	}
	peer->host = host->index;
}

int keeper_adopt(struct keeper *keeper, struct fault *fault)
{
	struct xseg_peer_view view;
	int rc = 0;
	for (unsigned i = 0; !rc && i < keeper->pipeline.host_count; i++)
		rc = adopt_host(keeper, &keeper->hosts[i], fault);
	for (uint32_t i = 0; !rc && i < XSEG_PEERS_MAX; i++)
		if (peer_alive(&keeper->seg, i, &view))
			adopt_stranger(keeper, &view);
	return rc;
}

bool keeper_adopt_strangers(const struct keeper *keeper, char *out, size_t out_size)
{
	struct xseg_peer_view view;
	out[0] = 0;
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++) {
		if (!peer_alive(&keeper->seg, i, &view) ||
			keeper_host_of_pid((struct keeper *)keeper, view.pid))
			continue;
		size_t n = strlen(out);
		snprintf(out + n, out_size - n, "%s%s (pid %d)", n ? ", " : "", view.name,
			(int)view.pid);
	}
	return out[0];
}
