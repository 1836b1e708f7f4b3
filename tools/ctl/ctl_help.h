/* SPDX-License-Identifier: Apache-2.0 */
/* What help, man page and completion share. Threads: one. */
#ifndef SKERRY_TOOLS_CTL_HELP_H
#define SKERRY_TOOLS_CTL_HELP_H

#include "tools/ctl/ctl.h"

/* Is the verb at this place of the table the first of its noun? */
bool ctl_complete_first(unsigned index);

#endif
