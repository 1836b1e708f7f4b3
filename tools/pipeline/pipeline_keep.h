/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the keeper keeps a process: keys of [host NAME], or of a [peer NAME] for the process that it
 * lives in, that xsegpeer never sees.
 *
 *   restart=always|on-failure|never    who ends unasked is started again
 *   restart-delay=TIME                 before the first restart (0s)
 *   restart-delay-max=TIME             the delay doubles with each quick death up to this (5s)
 *   restart-limit=N restart-window=TIME  more than N restarts in that time: given up (10 in 60s);
 *                                      0: no limit
 *   watchdog=TIME                      a lane that does not move for so long is stuck (10s; 0: off)
 *   watchdog-action=event|restart      what then happens (event)
 *   request-limit=TIME                 an older request is an event (10s; 0: off)
 *
 * And of a peer: fallback.EDGE=PEER, where its edge leads when the peer below is given up.
 *
 * Units: ns. Errors: -enum fault_code. Threads: one. Blocking: none.
 */
#ifndef SKERRY_TOOLS_PIPELINE_KEEP_H
#define SKERRY_TOOLS_PIPELINE_KEEP_H

#include "tools/pipeline/pipeline.h"

#define PIPELINE_RESTARTS_MAX 100u

enum pipeline_restart { PIPELINE_RESTART_ALWAYS, PIPELINE_RESTART_FAILURE, PIPELINE_RESTART_NEVER };

struct pipeline_keep {
	enum pipeline_restart restart;
	unsigned limit;
	uint64_t delay_ns, delay_max_ns, window_ns;
	uint64_t watchdog_ns, request_ns; /* 0: off */
	bool watchdog_restarts;
};

/* Is it the keeper's key, fallback.EDGE too, and not one of the role? */
bool pipeline_keep_key(const char *key);
bool pipeline_keep_fallback(const char *key);
/* Are the keys of a host good, and do its peers agree? *keep: what follows from them. */
int pipeline_keep_read(const struct pipeline *pipeline, unsigned host, struct pipeline_keep *keep,
	struct fault *fault);
/* What is said of `from` and its process (lanes, workers) goes for `to` and its process as well,
   where nothing else was said. */
void pipeline_keep_copy(const struct pipeline *pipeline, const struct pipeline_peer *from,
	struct pipeline_peer *to, struct pipeline_host *process);
/* The peer that is the second choice of "PEER" and "EDGE"; NULL when there is none. */
const char *pipeline_keep_second(
	const struct pipeline *pipeline, const char *peer, const char *edge);

#endif
