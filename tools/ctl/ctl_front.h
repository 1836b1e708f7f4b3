/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking fronts who their clients are, and whether what they serve can be opened: see
 * <peer/front.h>.
 *
 * Units: ns. Errors, ownership: as ctl.h. Threads: one. Blocking: a second for each front.
 */
#ifndef SKERRY_TOOLS_CTL_FRONT_H
#define SKERRY_TOOLS_CTL_FRONT_H

#include "tools/ctl/ctl_output.h"

/* Whose clients: each that is given narrows it. */
struct ctl_front_wish {
	const char *peer; /* of fronts that share a process with this peer */
	uint64_t volume;
	unsigned looks; /* how often, so that who has just hung up is not taken for a guest; 0: 5 */
};

/*
 * Before guests are cut off: 0 when none is attached or --yes was given, or a yes from the
 * terminal; else -FAULT_BUSY, and the fault names them. `deed`: "stop segment 'k'".
 */
int ctl_front_ask(struct ctl *ctl, const struct ctl_front_wish *wish, const char *deed);
/* Where clients reach a volume: {"front", "flags", "text"} (struct front_address) each; NULL and a
   fault when no front that serves offers it. way: FRONT_ADDRESS_VHOST or FRONT_ADDRESS_FILE, or 0
   for NBD. */
json_t *ctl_front_addresses(struct ctl *ctl, const char *volume, unsigned way);
bool ctl_front_is(const char *role);
/* A front, a peer of a status, whose volumes cannot be opened is "degraded". */
void ctl_front_status(const char *segment, json_t *peer);

#endif
