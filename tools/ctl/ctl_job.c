/* SPDX-License-Identifier: Apache-2.0 */
/* job list, show, wait and tidy: of the keeper, or while it is away of the records themselves. */
#include <base/clock.h>
#include <base/must.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ctl/ctl_rpc.h"
#include "tools/ctl/ctl_work.h"

#define LOOK_MS 100

static const struct ctl_column list_columns[] = {{"job", "JOB", CTL_COUNT},
	{"kind", "KIND", CTL_TEXT}, {"object", "OBJECT", CTL_TEXT}, {"state", "STATE", CTL_TEXT},
	{"percent", "%", CTL_COUNT}, {"done", "DONE", CTL_COUNT}, {"total", "TOTAL", CTL_COUNT},
	{"unit", "UNIT", CTL_TEXT}, {"created_ns", "CREATED", CTL_DATE},
	{"reason", "REASON", CTL_TEXT}};
static const struct ctl_column show_columns[] = {{"job", "job", CTL_COUNT},
	{"kind", "kind", CTL_TEXT}, {"object", "object", CTL_TEXT}, {"state", "state", CTL_TEXT},
	{"percent", "%", CTL_COUNT}, {"done", "done", CTL_COUNT}, {"total", "total", CTL_COUNT},
	{"unit", "unit", CTL_TEXT}, {"created_ns", "created", CTL_DATE}, {"pid", "pid", CTL_COUNT},
	{"reason", "reason", CTL_TEXT}};

static int id_argument(struct ctl *ctl, unsigned *id)
{
	char *end;
	long number = strtol(ctl->argv[0], &end, 10);
	*id = (unsigned)number;
	if (!*end && number > 0 && number <= INT32_MAX)
		return 0;
	return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[0], "'xsegctl job list' lists them",
		"'%s' is not a job's number", ctl->argv[0]);
}

/* Of the keeper, who knows how far its own are; while it is away, of the file. */
static int job_ask(struct ctl *ctl, const char *segment, unsigned id, json_t **job)
{
	int rc = ctl_rpc_call(ctl, segment, "job.show", json_pack("{s:i}", "job", (int)id), job);
	if (rc != -FAULT_KEEPER_AWAY)
		return rc;
	memset(&ctl->fault, 0, sizeof(ctl->fault));
	*job = job_view(segment, id);
	return *job ? 0
		    : fault_set(&ctl->fault, FAULT_NOT_FOUND, ctl->argv[0],
			      "'xsegctl job list' lists them", "there is no job %u", id);
}

static int run_list(struct ctl *ctl)
{
	char segment[NAME_LENGTH_MAX + 1];
	json_t *result = NULL, *jobs;
	int rc = ctl_join_segment_name(ctl, segment);
	if (rc)
		return rc;
	rc = ctl_rpc_call(ctl, segment, "job.list", NULL, &result);
	if (rc && rc != -FAULT_KEEPER_AWAY)
		return rc;
	jobs = rc ? job_list(segment) : json_incref(json_object_get(result, "jobs"));
	json_decref(result);
	ctl_output_rows(ctl, "jobs", jobs, list_columns, countof(list_columns));
	return 0;
}

static int run_show(struct ctl *ctl)
{
	char segment[NAME_LENGTH_MAX + 1];
	unsigned id;
	json_t *job;
	int rc = id_argument(ctl, &id);
	if (!rc)
		rc = ctl_join_segment_name(ctl, segment);
	if (!rc)
		rc = job_ask(ctl, segment, id, &job);
	if (!rc)
		ctl_output_one(ctl, job, show_columns, countof(show_columns));
	return rc;
}

/* --- wait ------------------------------------------------------------------------------- */

static bool job_ended(const json_t *job)
{
	const char *state = json_string_value(json_object_get(job, "state"));
	return !state || (strcmp(state, "running") && strcmp(state, "lost"));
}

static void job_show_progress(struct ctl_progress *progress, const json_t *job)
{
	progress->total = (uint64_t)json_integer_value(json_object_get(job, "total"));
	ctl_progress_show(progress, (uint64_t)json_integer_value(json_object_get(job, "done")));
}

static int job_wait(struct ctl *ctl, const char *segment, unsigned id, json_t **job)
{
	uint64_t end_ns = clock_now_ns() + ctl->timeout_ns;
	struct ctl_progress progress;
	int rc = job_ask(ctl, segment, id, job);
	ctl_progress_begin(&progress, ctl, "job", ctl->argv[0], 0);
	while (!rc && !job_ended(*job)) {
		job_show_progress(&progress, *job);
		json_decref(*job);
		*job = NULL;
		poll(NULL, 0, LOOK_MS);
		if (ctl_ask_interrupted())
			return ctl_ask_interrupted_fault(ctl, ctl->argv[0]);
		if (ctl->timeout_given && clock_now_ns() > end_ns)
			return fault_set(&ctl->fault, FAULT_TIMEOUT, ctl->argv[0],
				"it goes on; --timeout sets how long to wait",
				"job %u has not ended within %.1f s", id,
				(double)ctl->timeout_ns / 1e9);
		rc = job_ask(ctl, segment, id, job);
	}
	if (!rc)
		ctl_progress_end(&progress, progress.total);
	return rc;
}

/* The job's own error is this command's. */
static int run_wait(struct ctl *ctl)
{
	char segment[NAME_LENGTH_MAX + 1];
	unsigned id;
	json_t *job = NULL;
	int rc = id_argument(ctl, &id);
	if (!rc)
		rc = ctl_join_segment_name(ctl, segment);
	ctl_ask_interrupt_catch();
	if (!rc)
		rc = job_wait(ctl, segment, id, &job);
	if (rc)
		return rc;
	json_t *error = json_object_get(job, "error");
	if (error) {
		fault_from_json(&ctl->fault, error);
		rc = -(int)ctl->fault.code;
		json_decref(job);
		return rc;
	}
	ctl_output_one(ctl, job, show_columns, countof(show_columns));
	return 0;
}

/* --- tidy ------------------------------------------------------------------------------- */

static int lost_rows(const char *segment, json_t *rows)
{
	json_t *jobs = job_list(segment), *job;
	size_t i;
	json_array_foreach (jobs, i, job)
		if (!strcmp(json_string_value(json_object_get(job, "state")), "lost"))
			json_array_append(rows, job);
	json_decref(jobs);
	return (int)json_array_size(rows);
}

static int run_tidy(struct ctl *ctl)
{
	char segment[NAME_LENGTH_MAX + 1];
	unsigned id = 0;
	int rc = ctl->argc ? id_argument(ctl, &id) : 0;
	if (!rc)
		rc = ctl_join_segment_name(ctl, segment);
	if (rc)
		return rc;
	json_t *rows = json_array();
	lost_rows(segment, rows);
	if (!ctl_option_given(ctl, "dry-run"))
		rc = id ? ctl_work_tidy(ctl, segment, id) : ctl_work_tidy_all(ctl, segment);
	if (rc)
		json_decref(rows);
	else
		ctl_output_rows(ctl, "jobs", rows, list_columns, countof(list_columns));
	return rc;
}

const struct ctl_verb ctl_job_list = {
	"job",
	"list",
	"",
	0,
	0,
	"list long work, and how far it is",
	"\tImports, exports, and what the keeper does for *peer* and *config apply*. A job goes on "
	"when its client leaves. *lost*: its process was killed; the keeper, or *job tidy*, undoes "
	"what it left.\n",
	run_list,
	{0},
	.examples = "xsegctl job list --json\n",
};

const struct ctl_verb ctl_job_show = {
	"job",
	"show",
	"JOB",
	1,
	1,
	"show one job, with its result",
	NULL,
	run_show,
	{0},
	.examples = "xsegctl job show 3\n",
};

const struct ctl_verb ctl_job_wait = {
	"job",
	"wait",
	"JOB",
	1,
	1,
	"wait until a job has ended",
	"\tExits as the job did. Without --timeout it waits as long as that takes.\n",
	run_wait,
	{&ctl_option_progress},
	.examples = "xsegctl job wait 3 --progress=bar\n",
};

const struct ctl_verb ctl_job_tidy = {
	"job",
	"tidy",
	"[JOB]",
	0,
	1,
	"undo what killed jobs have left",
	"\tThe keeper does so by itself. Prints the jobs that were lost; a half import is removed, "
	"a half export's file, too.\n",
	run_tidy,
	{&ctl_option_dry_run},
	.examples = "xsegctl job tidy\n",
};
