/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what already runs in the segment, so that a keeper can die and come back. */
#include <base/log.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xseg/registry.h>

#include "tools/keeper.h"
#include "tools/pipeline_priv.h"

/* Alive as far as the registry can tell; false for xsegctl and others that are no peers. */
static bool peer_alive(const struct xseg *seg, uint32_t index, struct xseg_peer_view *view)
{
	return xseg_peer_view(seg, index, view) && view->life != XSEG_LIFE_DEAD;
}

static struct keeper_host *host_of_pid(struct keeper *keeper, pid_t pid)
{
	for (unsigned i = 0; i < keeper->pipeline.host_count; i++)
		if (keeper->hosts[i].pid == pid)
			return &keeper->hosts[i];
	return NULL;
}

static int host_mixed(const struct keeper *keeper, const struct keeper_host *host,
	const struct pipeline_peer *peer, struct fault *fault)
{
	return fault_set(fault, FAULT_CONFLICT, peer->name,
		"stop what runs, or write the file as it is",
		"peer '%s' runs in a process of its own making, but '%s' wants it in host '%s'",
		peer->name, keeper->path, keeper_host_name(host));
}

/* All peers of a host run in one process, or none runs. */
static int adopt_host(struct keeper *keeper, struct keeper_host *host, struct fault *fault)
{
	const struct pipeline *pipeline = &keeper->pipeline;
	const struct pipeline_peer *first = NULL, *missing = NULL;
	pid_t pid = 0;
	for (unsigned i = 0; i < pipeline->peer_count; i++) {
		const struct pipeline_peer *peer = &pipeline->peers[i];
		struct xseg_peer_view view;
		if (peer->host != host->index)
			continue;
		bool alive = !xseg_peer_find(&keeper->seg, peer->name, &view) &&
			     view.life != XSEG_LIFE_DEAD;
		if (alive && strcmp(view.role, peer->role))
			return fault_set(fault, FAULT_CONFLICT, peer->name, NULL,
				"peer '%s' runs with role %s, '%s' says %s", peer->name, view.role,
				keeper->path, peer->role);
		if (alive && pid && pid != view.pid)
			return host_mixed(keeper, host, peer, fault);
		if (alive && !pid) {
			pid = view.pid;
			first = peer;
		}
		if (!alive)
			missing = peer;
	}
	if (pid && missing)
		return host_mixed(keeper, host, first, fault);
	if (pid)
		keeper_host_adopt(host, pid, first->name);
	return 0;
}

/* Peers that were started beside the file (`peer start`) are kept, too. */
static void adopt_stranger(struct keeper *keeper, const struct xseg_peer_view *view)
{
	struct pipeline *pipeline = &keeper->pipeline;
	struct keeper_host *host = host_of_pid(keeper, view->pid);
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
		host->stranger = true;
		keeper->order[keeper->order_count++] = host->index;
		peer->host = host->index;
		if (keeper_host_adopt(host, view->pid, view->name))
			keeper_host_forget(host); /* has gone meanwhile; we could not start it */
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
			host_of_pid((struct keeper *)keeper, view.pid))
			continue;
		size_t n = strlen(out);
		snprintf(out + n, out_size - n, "%s%s (pid %d)", n ? ", " : "", view.name,
			(int)view.pid);
	}
	return out[0];
}
