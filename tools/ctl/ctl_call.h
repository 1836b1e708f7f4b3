/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer is asked through the segment: XSEG_OP_CONTROL, what is said at 0 of its data, what is
 * answered behind it.
 *
 * Units: bytes, ns. Errors: 0 or -errno; ctl_call_open(): as a verb's run(). Ownership: the
 * caller's. Threads: one. Blocking: until it answers, at most client->timeout_ns.
 */
#ifndef SKERRY_TOOLS_CTL_CALL_H
#define SKERRY_TOOLS_CTL_CALL_H

#include <peer/client.h>

#include "tools/ctl/ctl.h"

struct ctl_call {
	uint64_t what, volume, number; /* arg0, key.volume, arg1 */
	const void *in;
	uint32_t in_size;
	uint32_t answer_at; /* at least in_size */
	void *out;
	uint32_t out_size;
	/* the answer */
	uint32_t got; /* bytes of `out` */
	uint64_t value;
};
int ctl_call(struct client *client, struct ctl_call *call);
/* Opened, asked and closed again. */
int ctl_call_once(
	const char *segment, const char *peer, uint64_t timeout_ns, struct ctl_call *call);
/* With the limit of --timeout; else the fault says why not. */
int ctl_call_open(struct ctl *ctl, const char *segment, const char *peer, struct client *client);

#endif
