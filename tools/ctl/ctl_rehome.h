/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The re-homer of a segment, for the commands that tell or ask it something.
 *
 * Units: none. Errors: exit statuses, with the fault set. Ownership: caller's. Threads: one.
 * Blocking: as a request to the keeper.
 */
#ifndef SKERRY_TOOLS_CTL_REHOME_H
#define SKERRY_TOOLS_CTL_REHOME_H

#include <peer/rehome.h>

#include "tools/ctl/ctl_plug.h"

/* plug->name: the re-homer in front of that composer, or (NULL) the first one, "": none. As the
   keeper knows it: one that was killed is there again soon. */
int ctl_rehome_find(struct ctl_plug *plug, const char *composer);

#endif
