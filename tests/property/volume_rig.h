/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A segment of its own with xsegpeer processes in it, for the tests of the composer.
 *
 * Errors: must(), and what the processes say on stderr. Threads: one. Blocking: until they serve.
 */
#ifndef SKERRY_TESTS_VOLUME_RIG_H
#define SKERRY_TESTS_VOLUME_RIG_H

#include <peer/client.h>
#include <peer/map.h>

#include "tests/lib/fixture.h"

#define RIG_HOSTS 4
#define RIG_ARGUMENTS 16

struct rig {
	struct xseg seg;
	struct rig_host {
		pid_t pid; /* 0: does not run */
		char text[1024];
		char *argv[RIG_ARGUMENTS];
	} host[RIG_HOSTS];
	char dir[160]; /* for a store of files */
};

void rig_open(struct rig *rig, uint64_t segment_size);
/* Stops what runs (exit status 0, or it aborts) and removes everything. */
void rig_close(struct rig *rig);
/* xsegpeer -l LANES and these peers, separated by spaces; returns when they serve. "@" stands for
   the rig's folder. */
void rig_start(struct rig *rig, unsigned host, unsigned lanes, const char *peers);
/* SIGTERM; waits for status 0. */
void rig_stop(struct rig *rig, unsigned host);
/* SIGKILL. */
void rig_kill(struct rig *rig, unsigned host);
/* As it was started the first time. */
void rig_start_again(struct rig *rig, unsigned host);
void rig_client(struct rig *rig, struct client *client, const char *peer);

/* One administrative request; `info` goes in and comes out. 0 or -errno of the answer. */
int rig_volume(struct client *client, enum xseg_op op, unsigned flags, uint64_t id,
	struct xseg_volume_info *info);
/* OPEN, INFO, REMOVE by name. */
int rig_volume_named(struct client *client, enum xseg_op op, unsigned flags, const char *name,
	struct xseg_volume_info *info);
/* Whose it is. */
struct map_home_info rig_home(struct client *client, uint64_t id);
int rig_volume_create(struct client *client, const char *name, uint64_t size, uint32_t object_size,
	struct xseg_volume_info *info);

#endif
