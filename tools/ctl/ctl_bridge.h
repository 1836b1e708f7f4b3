/* SPDX-License-Identifier: Apache-2.0 */
/* Bridges, as status sees them. Errors: none. Ownership: the peer is changed. Threads: one. */
#ifndef SKERRY_TOOLS_CTL_BRIDGE_H
#define SKERRY_TOOLS_CTL_BRIDGE_H

#include <jansson.h>
#include <stdbool.h>

bool ctl_bridge_is(const char *role);
/* A peer of a status whose role it is: without its link, or its near store, it is "degraded". */
void ctl_bridge_status(const char *segment, json_t *peer);

#endif
