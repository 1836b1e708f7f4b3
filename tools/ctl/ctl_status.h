/* SPDX-License-Identifier: Apache-2.0 */
/* Printing what `status` says, also at the end of `up`. */
#ifndef SKERRY_TOOLS_CTL_STATUS_H
#define SKERRY_TOOLS_CTL_STATUS_H

#include "tools/ctl/ctl_output.h"

extern const struct ctl_column ctl_status_peers[], ctl_status_edges[];
extern const size_t ctl_status_peer_count, ctl_status_edge_count;

/* From the keeper, or from the segment when it is away. */
int ctl_status_ask(struct ctl *ctl, json_t **status);
/* Steals; returns the exit status: 0 all well, 1 not. */
int ctl_status_print(const struct ctl *ctl, json_t *status);

#endif
