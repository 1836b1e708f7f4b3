/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that are one call on the keeper's socket: a row says which. The arguments become
 * parameters by their names there; options become parameters of their own names ('-' as '_').
 *
 * Errors, ownership: as ctl.h. Blocking: --timeout, and a little longer for the keeper's reason.
 */
#ifndef SKERRY_TOOLS_CTL_REMOTE_H
#define SKERRY_TOOLS_CTL_REMOTE_H

#include "tools/ctl/ctl_output.h"

/* run of the verbs in the table. */
int ctl_remote(struct ctl *ctl);
/* The same by hand; steals params. */
int ctl_remote_call(struct ctl *ctl, const char *method, json_t *params, json_t **result);

#endif
