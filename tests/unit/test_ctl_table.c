/* SPDX-License-Identifier: Apache-2.0 */
/* What the conventions promise of every command: examples, --dry-run, --yes; and job records. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/unit.h"
#include "tools/ctl/ctl_help.h"
#include "tools/report/job.h"

static const char *name_of(const struct ctl_verb *verb)
{
	static char name[64];
	snprintf(name, sizeof(name), "%s%s%s", verb->noun, verb->verb ? " " : "",
		verb->verb ? verb->verb : "");
	return name;
}

static bool has(const struct ctl_verb *verb, const char *option)
{
	for (unsigned i = 0; i < CTL_OPTIONS_MAX && verb->options[i]; i++)
		if (!strcmp(verb->options[i]->name, option))
			return true;
	return false;
}

/* Those that change nothing; whoever adds a command says so here, or gives it a --dry-run. */
static const char *const harmless[] = {"segment list", "segment dump", "segment fsck", "peer list",
	"edge list", "volume list", "volume info", "volume diff", "volume uri", "volume attach",
	"client list", "config check", "config diff", "job list", "cache list", "cache stats",
	"tape list", "tape verify", "cert list", "bridge list", "bridge status", "rehome status",
	"job show", "job wait", "status", "stats", "top", "trace", "events", "log level", "metrics",
	"completion"};

static bool is_harmless(const struct ctl_verb *verb)
{
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if (!strcmp(harmless[i], name_of(verb)))
			return true;
	return false;
}

UNIT(test_every_verb)
{
	for (unsigned i = 0; ctl_verbs[i]; i++) {
		const struct ctl_verb *verb = ctl_verbs[i];
		const char *examples = verb->examples;
		char start[80];
		ck_assert_msg(examples, "%s has no example", name_of(verb));
		snprintf(start, sizeof(start), "xsegctl %s", name_of(verb));
		ck_assert_msg(strstr(examples, start), "%s: '%s'", name_of(verb), examples);
		ck_assert_msg(examples[strlen(examples) - 1] == '\n', "%s", name_of(verb));
		ck_assert_msg(has(verb, "dry-run") != is_harmless(verb), "%s", name_of(verb));
		ck_assert_ptr_eq(ctl_option_verb(verb->noun, verb->verb), verb);
	}
}

UNIT(test_destroyers_ask)
{
	static const char *const names[][2] = {{"segment", "destroy"}, {"volume", "rm"},
		{"volume", "export"}, {"volume", "rollback"}, {"volume", "resize"},
		{"volume", "break-lock"}, {"config", "save"}, {"tape", "label"},
		{"tape", "rebuild-index"}};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		ck_assert(has(ctl_option_verb(names[i][0], names[i][1]), "yes"));
}

/* --- jobs ------------------------------------------------------------------------------- */

static const char *state_of(const char *segment, unsigned id)
{
	static char state[32];
	json_t *job = job_view(segment, id);
	const char *text = json_string_value(json_object_get(job, "state"));
	snprintf(state, sizeof(state), "%s", text ? text : "none");
	json_decref(job);
	return state;
}

UNIT(test_job)
{
	struct job job;
	struct fault fault = {0};
	setenv("SKERRY_RUN_DIR", scratch_dir(), 1);
	ck_assert_int_eq(job_begin(&job, "j", "volume.import", "disk", "bytes", NULL), 0);
	unsigned first = job.id;
	ck_assert_str_eq(state_of("j", first), "running");
	job_progress(&job, 25, 100);
	json_t *view = job_view("j", first);
	ck_assert_int_eq(json_integer_value(json_object_get(view, "percent")), 25);
	json_decref(view);
	/* nobody takes what lives */
	struct job other;
	ck_assert_int_eq(job_take(&other, "j", first), -EALREADY);
	job_end(&job, 100, json_pack("{s:i}", "x", 1), NULL, false);
	ck_assert_str_eq(state_of("j", first), "done");
	ck_assert_int_eq(job_begin(&job, "j", "volume.import", "disk", "bytes", NULL), 0);
	ck_assert_uint_eq(job.id, first + 1);
	fault_set(&fault, FAULT_FAILED, "disk", NULL, "no");
	job_end(&job, 3, NULL, &fault, true);
	ck_assert_str_eq(state_of("j", first + 1), "cancelled");
	ck_assert_int_eq(job_take(&other, "j", 4711), -ENOENT);
	ck_assert_str_eq(state_of("j", 4711), "none");
}

UNIT(test_job_killed)
{
	struct job job;
	struct fault fault = {0};
	setenv("SKERRY_RUN_DIR", scratch_dir(), 1);
	pid_t pid = fork();
	if (pid == 0) {
		if (job_begin(&job, "k", "volume.import", "disk", "bytes", NULL) ||
			job_note(&job, "id", json_string("77")))
			_exit(1);
		raise(SIGKILL);
	}
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status));
	json_t *jobs = job_list("k");
	ck_assert_uint_eq(json_array_size(jobs), 1);
	json_decref(jobs);
	ck_assert_str_eq(state_of("k", 1), "lost");
	ck_assert_int_eq(job_pidfd("k", 1), -ESRCH);
	/* one takes it, no second one */
	struct job other;
	ck_assert_int_eq(job_take(&job, "k", 1), 0);
	ck_assert_int_eq(job_take(&other, "k", 1), -EBUSY);
	json_t *detail = json_object_get(job.record, "detail");
	ck_assert_str_eq(json_string_value(json_object_get(detail, "id")), "77");
	job_drop(&job);
	ck_assert_str_eq(state_of("k", 1), "lost");
	job_sweep("k"); /* what is lost stays */
	ck_assert_str_eq(state_of("k", 1), "lost");
	ck_assert_int_eq(job_take(&job, "k", 1), 0);
	fault_set(&fault, FAULT_FAILED, "disk", NULL, "killed");
	job_end(&job, 0, NULL, &fault, false);
	ck_assert_str_eq(state_of("k", 1), "failed");
	ck_assert_int_eq(job_take(&job, "k", 1), -EALREADY);
	job_sweep("k");
	char path[PATH_LENGTH_MAX];
	ck_assert(job_folder(path, "k"));
	ck_assert_int_ne(access(path, F_OK), 0);
}

UNIT(test_jobs_kept)
{
	struct job job;
	setenv("SKERRY_RUN_DIR", scratch_dir(), 1);
	for (unsigned i = 0; i < JOBS_KEPT + 20; i++) {
		ck_assert_int_eq(job_begin(&job, "m", "peer.stop", "p", "steps", NULL), 0);
		ck_assert_uint_eq(job.id, i + 1);
		job_end(&job, 1, NULL, NULL, false);
	}
	json_t *jobs = job_list("m");
	ck_assert_uint_le(json_array_size(jobs), JOBS_KEPT + 1);
	ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(jobs, 0), "job")), 20);
	json_decref(jobs);
}
