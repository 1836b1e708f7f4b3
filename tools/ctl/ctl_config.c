/* SPDX-License-Identifier: Apache-2.0 */
/* config check, diff, apply and save: a pipeline file against what runs. */
#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/ctl/ctl_remote.h"
#include "tools/pipeline/pipeline.h"
#include "tools/report/program.h"
#include "tools/report/rpc.h"

#define CHECK_NS (60ull * 1000000000u)

static const struct ctl_column step_columns[] = {{"action", "ACTION", CTL_TEXT},
	{"object", "OBJECT", CTL_TEXT}, {"state", "STATE", CTL_TEXT},
	{"reason", "REASON", CTL_TEXT}};

/* --- check ------------------------------------------------------------------------------ */

/* xsegd --check says "ok", or an error as JSON where a report is asked for. */
static int check_result(struct ctl *ctl, const struct program_result *result)
{
	json_t *report = json_loads(result->out, 0, NULL),
	       *error = json_object_get(report, "error");
	char line[512];
	int rc = 0;
	if (error) {
		fault_from_json(&ctl->fault, error);
		rc = -(int)ctl->fault.code;
	} else if (result->status) {
		program_last_line(result->err, line, sizeof(line));
		rc = fault_set(&ctl->fault, FAULT_FAILED, "xsegd", NULL, "xsegd --check: %s", line);
	}
	json_decref(report);
	return rc;
}

int ctl_config_check_file(struct ctl *ctl, const char *path)
{
	char program[PATH_MAX];
	struct program_result result;
	char *argv[] = {program, "--check", "--report-fd", "1", (char *)path, NULL, NULL};
	if (ctl->segment) {
		argv[4] = (char *)ctl->segment;
		argv[5] = (char *)path;
	}
	if (program_find("xsegd", program))
		return fault_set(&ctl->fault, FAULT_FAILED, "xsegd",
			"SKERRY_XSEGD says where it is", "xsegd is not found");
	int rc = program_run(argv, CHECK_NS, &result);
	if (rc)
		rc = fault_set(&ctl->fault, fault_code_of_errno(rc), program, NULL,
			"'%s' cannot be run: %s", program, strerror(-rc));
	else
		rc = check_result(ctl, &result);
	program_result_free(&result);
	return rc;
}

static int run_check(struct ctl *ctl)
{
	static const struct ctl_column columns[] = {
		{"file", "file", CTL_TEXT}, {"ok", "ok", CTL_TEXT}};
	int rc = ctl_config_check_file(ctl, ctl->argv[0]);
	if (!rc)
		ctl_output_one(ctl, json_pack("{s:s, s:b}", "file", ctl->argv[0], "ok", 1), columns,
			countof(columns));
	return rc;
}

const struct ctl_verb ctl_config_check = {
	"config",
	"check",
	"FILE",
	1,
	1,
	"look for mistakes in a pipeline file",
	"\tSections, keys, roles, options and their values, edges; nothing is started, and no "
	"keeper "
	"is needed. *FILE.d*, e.g. demo.conf.d, is read, too. Mistakes are said with file and "
	"line.\n",
	run_check,
	{0},
	.examples = "xsegctl config check demo.conf\n",
};

/* --- diff ------------------------------------------------------------------------------- */

/* The checked file as one text, and what `up` will know it by. */
static int file_params(struct ctl *ctl, json_t **params)
{
	struct pipeline pipeline;
	char path[PATH_MAX], hash[24], *text = NULL;
	int rc = ctl_config_check_file(ctl, ctl->argv[0]);
	if (rc)
		return rc;
	rc = pipeline_load(&pipeline, ctl->argv[0], &ctl->fault);
	if (!rc && !ctl->segment && pipeline.segment[0] && !getenv("SKERRY_SEGMENT"))
		ctl->segment = strdup(pipeline.segment); /* until the process ends */
	if (!rc && !(text = pipeline_write_text(&pipeline, &ctl->fault)))
		rc = -(int)ctl->fault.code;
	if (!rc && strlen(text) > RPC_MESSAGE_MAX / 2)
		rc = fault_set(&ctl->fault, FAULT_FAILED, ctl->argv[0], NULL,
			"'%s' is too long to be sent", ctl->argv[0]);
	snprintf(hash, sizeof(hash), "%016llx", (unsigned long long)pipeline.hash);
	if (!rc && !realpath(ctl->argv[0], path))
		rc = fault_set(&ctl->fault, FAULT_FAILED, ctl->argv[0], NULL, "'%s': %s",
			ctl->argv[0], strerror(errno));
	*params =
		rc ? NULL : json_pack("{s:s, s:s, s:s}", "text", text, "path", path, "hash", hash);
	if (!rc && !*params)
		rc = fault_set(&ctl->fault, FAULT_FAILED, ctl->argv[0], NULL, "'%s' is not UTF-8",
			ctl->argv[0]);
	free(text);
	pipeline_free(&pipeline);
	return rc;
}

/* As rows for people, whole as JSON. */
static void steps_print(struct ctl *ctl, json_t *result)
{
	if (ctl_output_is_json(ctl)) {
		ctl_output_json(ctl, json_incref(result));
		return;
	}
	const json_t *steps = json_object_get(result, "steps");
	if (json_array_size(steps))
		ctl_output_table(ctl, steps, step_columns, countof(step_columns));
	else if (ctl->format == CTL_TABLE)
		fprintf(stderr, "xsegctl: what runs is what the file says\n");
}

static int run_diff(struct ctl *ctl)
{
	json_t *params, *result;
	int rc = file_params(ctl, &params);
	if (rc)
		return rc;
	json_object_del(params, "path");
	json_object_del(params, "hash");
	rc = ctl_remote_call(ctl, "config.diff", params, &result);
	if (rc)
		return rc;
	bool same = json_is_true(json_object_get(result, "same"));
	steps_print(ctl, result);
	json_decref(result);
	return same ? 0 : 1;
}

const struct ctl_verb ctl_config_diff = {
	"config",
	"diff",
	"FILE",
	1,
	1,
	"what applying a file would do",
	"\tCompares the file with the options that the processes were started with and with the "
	"edges as they lead now. Exit status 0: the same; 1: it differs.\n",
	run_diff,
	{0},
	.examples = "xsegctl config diff demo.conf\n",
};

/* --- apply ------------------------------------------------------------------------------ */

static int run_apply(struct ctl *ctl)
{
	json_t *params, *result;
	int rc = file_params(ctl, &params);
	if (rc)
		return rc;
	json_object_set_new(params, "timeout_ns", json_integer((json_int_t)ctl->timeout_ns));
	if (ctl_option_given(ctl, "dry-run"))
		json_object_set_new(params, "dry_run", json_true());
	/* the limit is for each process */
	ctl->timeout_ns *= PIPELINE_HOSTS_MAX;
	rc = ctl_remote_call(ctl, "config.apply", params, &result);
	if (rc)
		return rc;
	steps_print(ctl, result);
	json_decref(result);
	return 0;
}

const struct ctl_verb ctl_config_apply = {
	"config",
	"apply",
	"FILE",
	1,
	1,
	"make what runs what a file says",
	"\tDoes the least: starts what is new, restarts what has other options, switches edges, "
	"stops what is gone, in an order in which no request is lost. When a step fails, the rest "
	"is not done, what that step had stopped is put back, and the exit status is 8 when others "
	"had been done. It is a job (see *job list*): its client may leave. --timeout is the limit "
	"for each process.\n",
	run_apply,
	{&ctl_option_dry_run},
	.examples = "xsegctl config apply demo.conf --dry-run\n"
		    "xsegctl config apply demo.conf\n",
};

/* --- save ------------------------------------------------------------------------------- */

static int save_fault(struct ctl *ctl, const char *path, int error)
{
	return fault_set(&ctl->fault, FAULT_FAILED, path, NULL, "'%s' cannot be written: %s", path,
		strerror(error));
}

/* The folder, too: a file that was saved is there after a power cut. */
static int folder_sync(const char *path)
{
	char copy[PATH_MAX];
	snprintf(copy, sizeof(copy), "%s", path);
	int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = fd < 0 || fsync(fd) ? -errno : 0;
	if (fd >= 0)
		close(fd);
	return rc;
}

/* Whole or not at all, with the mode of the file before it. */
static int save_file(struct ctl *ctl, const char *path, const char *text)
{
	char beside[PATH_MAX];
	struct stat st;
	mode_t mode = stat(path, &st) ? 0640 : st.st_mode & 07777;
	if (snprintf(beside, sizeof(beside), "%s.%d.new", path, (int)getpid()) >= PATH_MAX)
		return save_fault(ctl, path, ENAMETOOLONG);
	int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	if (fd < 0)
		return save_fault(ctl, path, errno);
	bool good = write(fd, text, strlen(text)) == (ssize_t)strlen(text) && !fchmod(fd, mode) &&
		    !fsync(fd);
	int error = errno;
	close(fd);
	if (good && !rename(beside, path) && !folder_sync(path))
		return 0;
	error = good ? errno : error;
	unlink(beside);
	return save_fault(ctl, path, error);
}

static bool file_says(const char *path, const char *text)
{
	size_t length = strlen(text);
	char *now = malloc(length + 1);
	FILE *in = fopen(path, "re");
	must(now);
	bool same = in && fread(now, 1, length + 1, in) == length && !memcmp(now, text, length);
	if (in)
		fclose(in);
	free(now);
	return same;
}

static int save_to(struct ctl *ctl, const char *path, const char *text)
{
	static const struct ctl_column columns[] = {{"file", "file", CTL_TEXT},
		{"changed", "changed", CTL_TEXT}, {"dry_run", "dry run", CTL_TEXT}};
	char deed[PATH_MAX + 64];
	bool plan = ctl_option_given(ctl, "dry-run"), there = access(path, F_OK) == 0;
	bool changed = !file_says(path, text);
	snprintf(deed, sizeof(deed), "overwrite '%s'", path);
	int rc = changed && there && !plan ? ctl_ask(ctl, deed) : 0;
	if (rc == -FAULT_USAGE)
		return fault_set(&ctl->fault, FAULT_CONFLICT, path, "say --yes to overwrite it",
			"'%s' exists", path);
	if (!rc && changed && !plan)
		rc = save_file(ctl, path, text);
	if (!rc)
		ctl_output_one(ctl,
			json_pack("{s:s, s:b, s:b}", "file", path, "changed", changed && !plan,
				"dry_run", plan),
			columns, countof(columns));
	return rc;
}

static int run_save(struct ctl *ctl)
{
	json_t *result;
	char *text;
	int rc = ctl_remote_call(ctl, "config.get", json_object(), &result);
	if (rc)
		return rc;
	const char *body = json_string_value(json_object_get(result, "text"));
	must(asprintf(&text, "# Written by 'xsegctl config save'.\n%s", body ? body : "") > 0);
	if (ctl->argc)
		rc = save_to(ctl, ctl->argv[0], text);
	else if (ctl_output_is_json(ctl))
		ctl_output_json(ctl, json_incref(result));
	else
		fputs(text, stdout);
	free(text);
	json_decref(result);
	return rc;
}

const struct ctl_verb ctl_config_save = {
	"config",
	"save",
	"[FILE]",
	0,
	1,
	"write what runs as a pipeline file",
	"\tOptions as the processes were started with, edges as they lead now; what was stopped on "
	"request is left out. Without FILE to stdout. A file that exists is only replaced with "
	"--yes, and whole or not at all; comments in it are lost.\n",
	run_save,
	{&ctl_option_yes, &ctl_option_dry_run},
	.examples = "xsegctl config save demo.conf --yes\n"
		    "xsegctl config save\n",
};
