/* SPDX-License-Identifier: Apache-2.0 */
/* Calls about the whole: the configuration, jobs, and what the dead have left. */
#include "tools/keeper/keeper_ask.h"

#include <stdio.h>
#include <string.h>

#include "tools/keeper/keeper_config.h"
#include "tools/keeper/keeper_job.h"
#include "tools/report/report.h"

static const char *text_of(const struct ask *ask, const char *name)
{
	return json_string_value(json_object_get(ask->params, name));
}

static json_int_t number_of(const struct ask *ask, const char *name)
{
	return json_integer_value(json_object_get(ask->params, name));
}

static bool is_true(const struct ask *ask, const char *name)
{
	return json_is_true(json_object_get(ask->params, name));
}

int keeper_ask_config_get(struct ask *ask)
{
	return keeper_config_get(ask->keeper, ask->result, ask->fault);
}

int keeper_ask_config_diff(struct ask *ask)
{
	return keeper_config_diff(ask->keeper, text_of(ask, "text"), ask->result, ask->fault);
}

int keeper_ask_config_apply(struct ask *ask)
{
	json_int_t limit = number_of(ask, "timeout_ns");
	struct keeper_config_wish wish = {.text = text_of(ask, "text"),
		.path = text_of(ask, "path"),
		.hash = text_of(ask, "hash"),
		.limit_ns = limit > 0 ? (uint64_t)limit : 0};
	int rc = keeper_ask_free(ask);
	if (rc)
		return rc;
	if (is_true(ask, "dry_run")) {
		rc = keeper_ask_config_diff(ask);
		if (!rc)
			json_object_set_new(*ask->result, "dry_run", json_true());
		return rc;
	}
	rc = keeper_config_apply(ask->keeper, &wish, ask->result, ask->fault);
	if (rc == KEEPER_LATER)
		keeper_call_begin(ask, KEEPER_OP_CONFIG, NULL, wish.path ? wish.path : "");
	return rc;
}

int keeper_ask_job_list(struct ask *ask)
{
	return keeper_job_list(ask->keeper, ask->result, ask->fault);
}

int keeper_ask_job_show(struct ask *ask)
{
	return keeper_job_show(ask->keeper, number_of(ask, "job"), ask->result, ask->fault);
}

int keeper_ask_job_cancel(struct ask *ask)
{
	return keeper_job_cancel(ask->keeper, number_of(ask, "job"), is_true(ask, "dry_run"),
		ask->result, ask->fault);
}

int keeper_ask_reap(struct ask *ask)
{
	return report_reap(&ask->keeper->seg, is_true(ask, "dry_run"), ask->result, ask->fault);
}
