/* SPDX-License-Identifier: Apache-2.0 */
/* up and down: a whole pipeline, started behind its keeper and stopped again. */
#include <base/clock.h>
#include <base/must.h>
#include <base/path.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/ctl/ctl_front.h"
#include "tools/ctl/ctl_mount.h"
#include "tools/ctl/ctl_rpc.h"
#include "tools/ctl/ctl_status.h"
#include "tools/pipeline/pipeline.h"
#include "tools/report/program.h"

#define GRACE_NS (5ull * 1000000000u)
#define STOP_NS (35ull * 1000000000u) /* what xsegd gives a process, and a little more */
#define REPORT_MAX 65536

static const struct ctl_option option_foreground = {
	"foreground", 'f', NULL, "become the keeper instead of starting one behind", NULL};

static const struct ctl_option option_unguarded = {
	"unguarded", 0, NULL, "nobody starts the keeper again when it is killed", NULL};

struct up {
	struct ctl *ctl;
	char path[PATH_MAX]; /* absolute */
	char name[NAME_LENGTH_MAX + 1];
	char hash[24];
	unsigned hosts; /* processes, each with a time limit of its own */
	pid_t pid;
	int report;
};

/* --- what is asked for ------------------------------------------------------------------ */

static int up_read(struct up *up)
{
	struct ctl *ctl = up->ctl;
	struct pipeline pipeline;
	if (!realpath(ctl->argv[0], up->path))
		return fault_set(&ctl->fault, errno == ENOENT ? FAULT_NOT_FOUND : FAULT_FAILED,
			ctl->argv[0], NULL, "pipeline file '%s': %s", ctl->argv[0],
			strerror(errno));
	int rc = pipeline_load(&pipeline, up->path, &ctl->fault);
	const char *name = ctl->segment ? ctl->segment : pipeline.segment;
	if (!rc && !*name)
		rc = fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[0],
			"write 'name=' into [segment], or say --segment",
			"'%s' does not say which segment", ctl->argv[0]);
	snprintf(up->name, sizeof(up->name), "%s", name);
	snprintf(up->hash, sizeof(up->hash), "%016llx", (unsigned long long)pipeline.hash);
	up->hosts = pipeline.host_count;
	pipeline_free(&pipeline);
	return rc;
}

/* There is a keeper: is it ours? */
static int up_compare(struct up *up, const json_t *status)
{
	const json_t *keeper = json_object_get(status, "keeper");
	const char *path = json_string_value(json_object_get(keeper, "pipeline"));
	const char *hash = json_string_value(json_object_get(keeper, "hash"));
	if (path && hash && !strcmp(path, up->path) && !strcmp(hash, up->hash))
		return 0;
	return fault_set(&up->ctl->fault, FAULT_CONFLICT, up->name,
		"'xsegctl config diff' shows what differs, 'config apply' brings it in",
		"segment '%s' is up already, with %s '%s'", up->name,
		path && !strcmp(path, up->path) ? "an earlier" : "pipeline file",
		path ? path : "?");
}

/* --- the keeper behind ------------------------------------------------------------------ */

static void keeper_exec(const struct up *up, int report)
{
	char program[PATH_MAX], fd[16], timeout[32];
	char *argv[] = {program, "--report-fd", fd, "--timeout", timeout, NULL, NULL, NULL, NULL};
	unsigned count = 5;
	if (!ctl_option_given(up->ctl, "unguarded"))
		argv[count++] = "--guarded";
	argv[count++] = (char *)up->name;
	argv[count++] = (char *)up->path;
	snprintf(fd, sizeof(fd), "%d", report);
	snprintf(timeout, sizeof(timeout), "%lluns", (unsigned long long)up->ctl->timeout_ns);
	if (program_find("xsegd", program) == 0)
		execv(program, argv);
	dprintf(report, "{\"error\": {\"code\": 1, \"message\": \"xsegd cannot be run: %s\"}}\n",
		strerror(errno));
	_exit(127);
}

static int log_open_file(struct up *up)
{
	char folder[PATH_LENGTH_MAX], path[PATH_LENGTH_MAX];
	int rc = path_run(folder, up->name, NULL);
	if (!rc)
		rc = path_make_dir(folder);
	if (!rc)
		rc = path_run(path, up->name, "xsegd.log");
	int fd = rc ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
	if (fd < 0)
		fault_set(&up->ctl->fault, FAULT_FAILED, folder, "SKERRY_RUN_DIR moves the folder",
			"the run folder '%s' cannot be used: %s", folder,
			strerror(rc ? -rc : errno));
	return fd;
}

static int keeper_spawn(struct up *up)
{
	int report[2], log = log_open_file(up), null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (log < 0)
		return -FAULT_FAILED;
	if (pipe2(report, O_CLOEXEC))
		return fault_set(
			&up->ctl->fault, FAULT_FAILED, NULL, NULL, "no pipe: %s", strerror(errno));
	up->pid = fork();
	if (up->pid == 0) {
		setsid();
		setenv("SKERRY_LOG_LIMIT", PROGRAM_LOG_LIMIT, 1);
		dup2(null, STDIN_FILENO);
		dup2(log, STDOUT_FILENO);
		dup2(log, STDERR_FILENO);
		fcntl(report[1], F_SETFD, 0);
		keeper_exec(up, report[1]);
	}
	close(report[1]);
	close(log);
	close(null);
	up->report = report[0];
	return up->pid > 0 ? 0
			   : fault_set(&up->ctl->fault, FAULT_FAILED, NULL, NULL, "no process: %s",
				     strerror(errno));
}

/* It stops what it has started and goes; only if it does not do even that, it is killed. */
static void keeper_abort(struct up *up)
{
	uint64_t end_ns = clock_now_ns() + up->hosts * STOP_NS + GRACE_NS;
	kill(up->pid, SIGTERM);
	while (waitpid(up->pid, NULL, WNOHANG) == 0) {
		if (clock_now_ns() > end_ns) {
			kill(up->pid, SIGKILL);
			waitpid(up->pid, NULL, 0);
			return;
		}
		poll(NULL, 0, 20);
	}
}

/* One line of JSON, or the end. */
static int keeper_wait(struct up *up, char text[REPORT_MAX])
{
	size_t length = 0;
	uint64_t end_ns = clock_now_ns() + up->hosts * (up->ctl->timeout_ns + STOP_NS) + GRACE_NS;
	while (length < REPORT_MAX - 1) {
		struct pollfd one = {.fd = up->report, .events = POLLIN};
		if (ctl_ask_interrupted())
			return ctl_ask_interrupted_fault(up->ctl, up->name);
		if (clock_now_ns() > end_ns)
			return fault_set(&up->ctl->fault, FAULT_TIMEOUT, up->name,
				"--timeout sets the limit", "the keeper is not done in time");
		if (poll(&one, 1, 200) <= 0)
			continue;
		ssize_t n = read(up->report, text + length, REPORT_MAX - 1 - length);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		length += (size_t)n;
	}
	text[length] = 0;
	return 0;
}

static int keeper_died(struct up *up)
{
	char path[PATH_LENGTH_MAX] = "";
	path_run(path, up->name, "xsegd.log");
	return fault_set(&up->ctl->fault, FAULT_FAILED, up->name, path,
		"the keeper ended without a word; see its log");
}

static int keeper_result(struct up *up, const char *text)
{
	json_t *report = json_loads(text, 0, NULL), *error = json_object_get(report, "error");
	int rc = 0;
	if (error) {
		fault_from_json(&up->ctl->fault, error);
		rc = -(int)up->ctl->fault.code;
	} else if (!report) {
		rc = keeper_died(up);
	}
	json_decref(report);
	return rc;
}

static int up_start(struct up *up)
{
	static char text[REPORT_MAX];
	int rc = keeper_spawn(up);
	if (rc)
		return rc;
	rc = keeper_wait(up, text);
	if (rc)
		keeper_abort(up);
	else
		rc = keeper_result(up, text);
	close(up->report);
	if (rc)
		waitpid(up->pid, NULL, 0);
	return rc;
}

/* --- up --------------------------------------------------------------------------------- */

static int up_print(struct up *up, bool changed)
{
	json_t *status;
	up->ctl->segment = up->name;
	int rc = ctl_status_ask(up->ctl, &status);
	if (rc)
		return rc;
	json_object_set_new(status, "changed", json_boolean(changed));
	/* a keeper that was killed had been given another file, or this one as it was */
	const char *hash =
		json_string_value(json_object_get(json_object_get(status, "keeper"), "hash"));
	if (changed && hash && strcmp(hash, up->hash))
		fprintf(stderr,
			"xsegctl: segment '%s' goes on as it was before its keeper died; 'xsegctl "
			"config "
			"apply %s' brings in what has changed\n",
			up->name, up->ctl->argv[0]);
	if (!changed && !ctl_output_is_json(up->ctl))
		fprintf(stderr, "xsegctl: segment '%s' is up already\n", up->name);
	return ctl_status_print(up->ctl, status);
}

static int up_foreground(struct up *up)
{
	char program[PATH_MAX];
	char *argv[] = {program, up->name, up->path, NULL};
	if (program_find("xsegd", program) == 0)
		execv(program, argv);
	return fault_set(&up->ctl->fault, FAULT_FAILED, "xsegd", "SKERRY_XSEGD says where it is",
		"xsegd cannot be run: %s", strerror(errno));
}

/* --dry-run: the file is good, and this is what would start. */
static int up_plan(struct up *up)
{
	static const struct ctl_column columns[] = {{"action", "ACTION", CTL_TEXT},
		{"object", "OBJECT", CTL_TEXT}, {"state", "STATE", CTL_TEXT}};
	struct pipeline pipeline;
	json_t *rows = json_array();
	int rc = ctl_config_check_file(up->ctl, up->path);
	if (!rc)
		rc = pipeline_load(&pipeline, up->path, &up->ctl->fault);
	for (unsigned i = 0; !rc && i < pipeline.host_count; i++)
		json_array_append_new(
			rows, json_pack("{s:s, s:s, s:s}", "action", "start", "object",
				      pipeline.hosts[pipeline.order[i]].name, "state", "planned"));
	if (rc) {
		json_decref(rows);
		return rc;
	}
	pipeline_free(&pipeline);
	ctl_output_rows(up->ctl, "steps", rows, columns, countof(columns));
	return 0;
}

static int run_up(struct ctl *ctl)
{
	struct up up = {.ctl = ctl};
	json_t *status = NULL;
	int rc = up_read(&up);
	if (rc)
		return rc;
	rc = ctl_rpc_call(ctl, up.name, "status", NULL, &status);
	if (rc == 0) {
		rc = up_compare(&up, status);
		json_decref(status);
		return rc ? rc : up_print(&up, false);
	}
	if (rc != -FAULT_KEEPER_AWAY)
		return rc;
	memset(&ctl->fault, 0, sizeof(ctl->fault));
	if (ctl_option_given(ctl, "dry-run"))
		return up_plan(&up);
	if (ctl_option_given(ctl, "foreground"))
		return up_foreground(&up);
	ctl_ask_interrupt_catch();
	rc = up_start(&up);
	return rc ? rc : up_print(&up, true);
}

const struct ctl_verb ctl_up_verb = {
	"up",
	NULL,
	"FILE",
	1,
	1,
	"start the pipeline that FILE describes",
	"\tStarts *xsegd* in the background, which makes the segment when it is missing and starts "
	"the peers, stores first. Returns when everything serves, and prints the status; when "
	"something does not start, everything that did is stopped again. A pipeline that is up is "
	"fine (changed: false). Where a keeper has died, its peers are adopted; one that is killed "
	"is "
	"started again by a process that it has beside it.\n",
	run_up,
	{&option_foreground, &option_unguarded, &ctl_option_dry_run},
	.examples = "xsegctl up demo.conf --dry-run\n"
		    "xsegctl up demo.conf\n",
};

/* --- down ------------------------------------------------------------------------------- */

static int down_absent(struct ctl *ctl, const char *name)
{
	struct fault away = ctl->fault;
	char why[XSEG_WHY_SIZE] = "";
	struct xseg seg;
	int rc = xseg_segment_join(name, &seg, why);
	if (rc == -ENOENT)
		return fault_set(
			&ctl->fault, FAULT_NOT_FOUND, name, NULL, "segment '%s' is not up", name);
	if (!rc)
		xseg_segment_leave(&seg);
	ctl->fault = away;
	return -FAULT_KEEPER_AWAY;
}

static int run_down(struct ctl *ctl)
{
	static const struct ctl_column columns[] = {{"segment", "segment", CTL_TEXT},
		{"stopped_count", "processes stopped", CTL_COUNT},
		{"segment_destroyed", "segment destroyed", CTL_TEXT}};
	char name[NAME_LENGTH_MAX + 1];
	json_t *result;
	if (ctl->argc)
		ctl->segment = ctl->argv[0];
	uint64_t discard = 0;
	int rc = ctl_join_segment_name(ctl, name);
	if (!rc)
		rc = ctl_option_size(ctl, "discard-dirty", &discard);
	if (rc)
		return rc;
	json_t *params = json_pack("{s:I, s:b, s:I}", "timeout_ns", (json_int_t)ctl->timeout_ns,
		"dry_run", ctl_option_given(ctl, "dry-run"), "discard_dirty", (json_int_t)discard);
	const struct ctl_front_wish all = {0};
	char deed[64];
	snprintf(deed, sizeof(deed), "stop segment '%s'", name);
	ctl->segment = name;
	rc = ctl_front_ask(ctl, &all, deed);
	if (rc) {
		json_decref(params);
		return rc;
	}
	/* what file systems have not written yet goes to their volumes while these are there */
	rc = ctl_option_given(ctl, "dry-run") ? 0 : ctl_mounted_end_all(ctl, name);
	if (rc) {
		json_decref(params);
		return rc;
	}
	/* the limit is for each process; the whole may take as many times as long */
	ctl->timeout_ns = ctl->timeout_ns * PIPELINE_HOSTS_MAX + GRACE_NS;
	ctl_ask_interrupt_catch();
	rc = ctl_rpc_call(ctl, name, "down", params, &result);
	if (rc == -FAULT_KEEPER_AWAY)
		return down_absent(ctl, name);
	if (rc)
		return rc;
	ctl_output_one(ctl, result, columns, countof(columns));
	return 0;
}

const struct ctl_verb ctl_down_verb = {
	"down",
	NULL,
	"[SEGMENT]",
	0,
	1,
	"stop a pipeline",
	"\tFronts first, each drained; --timeout is the limit for each process, then it is killed "
	"and the exit status is 8. With clients attached it asks, or needs *--yes*. The segment "
	"goes too when *up* made it; a cache writes back "
	"first, and what it could not write keeps the segment (exit status 5) unless "
	"*--discard-dirty* gives up just as many bytes.\n",
	run_down,
	{&ctl_option_yes, &ctl_option_discard, &ctl_option_dry_run},
	.examples = "xsegctl down demo --timeout 10s\n",
};
