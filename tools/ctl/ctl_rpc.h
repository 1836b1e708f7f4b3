/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call on the keeper's socket.
 *
 * Errors: -enum fault_code, ctl->fault set; -FAULT_KEEPER_AWAY when nobody answers.
 * Ownership: steals params, *result is a new reference. Blocking: ctl->timeout_ns at most.
 */
#ifndef SKERRY_TOOLS_CTL_RPC_H
#define SKERRY_TOOLS_CTL_RPC_H

#include "tools/ctl/ctl.h"

int ctl_rpc_call(
	struct ctl *ctl, const char *segment, const char *method, json_t *params, json_t **result);
/* The same, again and again while the keeper is busy with something else; until_ns 0: no limit. */
int ctl_rpc_insist(struct ctl *ctl, const char *segment, const char *method, json_t *params,
	uint64_t until_ns, json_t **result);

#endif
