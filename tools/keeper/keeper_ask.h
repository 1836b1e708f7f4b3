/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call as its handler sees it. Handlers: 0 and *result, KEEPER_LATER, or -enum fault_code and
 * the fault. Threads: the loop's.
 */
#ifndef SKERRY_TOOLS_KEEPER_ASK_H
#define SKERRY_TOOLS_KEEPER_ASK_H

#include "tools/keeper/keeper.h"

struct ask {
	struct keeper *keeper;
	struct keeper_client *client;
	json_t *id;
	const json_t *params;
	json_t **result;
	struct fault *fault;
};

/* Is no other operation under way? Else a fault: busy. */
int keeper_ask_free(struct ask *ask);
/* It is now; answered by keeper_server_finish(). KEEPER_LATER. */
int keeper_call_begin(
	struct ask *ask, enum keeper_operation kind, struct keeper_host *host, const char *object);

/* --- keeper_ask.c --- */
int keeper_ask_config_get(struct ask *ask);
int keeper_ask_config_diff(struct ask *ask);
int keeper_ask_config_apply(struct ask *ask);
int keeper_ask_job_list(struct ask *ask);
int keeper_ask_job_show(struct ask *ask);
int keeper_ask_job_cancel(struct ask *ask);
int keeper_ask_reap(struct ask *ask);

#endif
