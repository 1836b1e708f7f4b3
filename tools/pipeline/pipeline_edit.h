/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline in memory is changed: what its files do as they read, and the keeper as it takes over
 * or changes peers. Units: none. Errors: as said. Ownership: the pipeline is the caller's.
 * Threads: one. Blocking: none.
 */
#ifndef SKERRY_TOOLS_PIPELINE_EDIT_H
#define SKERRY_TOOLS_PIPELINE_EDIT_H

#include "tools/pipeline/pipeline.h"

/* NULL when the table is full. */
struct pipeline_peer *pipeline_peer_add(struct pipeline *pipeline, const char *name);
struct pipeline_host *pipeline_host_add(struct pipeline *pipeline, const char *name);
struct pipeline_host *pipeline_host_find(const struct pipeline *pipeline, const char *name);
/* 0 or -E2BIG. */
int pipeline_option_add(struct pipeline_peer *peer, const char *key, const char *value,
	unsigned file, unsigned line);
/* Its keys are forgotten. */
void pipeline_host_clear(struct pipeline_host *host);
int pipeline_host_option_add(struct pipeline_host *host, const char *key, const char *value,
	unsigned file, unsigned line);
/* Forgets the peer that was added last. */
void pipeline_peer_drop(struct pipeline *pipeline);
/* Forgets any; those behind it move up. */
void pipeline_peer_remove(struct pipeline *pipeline, unsigned index);
/* A peer of another pipeline, of no file here; its host index is not copied. NULL: full. */
struct pipeline_peer *pipeline_peer_copy(
	struct pipeline *pipeline, const struct pipeline_peer *from);
/* Empty, with the defaults. */
void pipeline_init(struct pipeline *pipeline);
/* Only the order: hosts are known, edges may lead to peers of others. */
void pipeline_check_order(struct pipeline *pipeline);
/* Peers to hosts, edges to peers, and the order in which hosts start. */
int pipeline_check_resolve(struct pipeline *pipeline, struct fault *fault);

#endif
