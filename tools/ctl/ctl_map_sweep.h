/* SPDX-License-Identifier: Apache-2.0 */
/* What a sweep finds, in words. The order is that of enum map_finding. Threads: any. */
#ifndef SKERRY_TOOLS_CTL_MAP_SWEEP_H
#define SKERRY_TOOLS_CTL_MAP_SWEEP_H

#include "tools/ctl/ctl_map.h"

#define CTL_MAP_FINDINGS 11u

const char *ctl_map_sweep_finding_name(unsigned finding);
const char *ctl_map_sweep_finding_meaning(unsigned finding); /* a sentence */

#endif
