/* SPDX-License-Identifier: Apache-2.0 */
/* Forks the process that does a job, watches it, and tidies up after one that was killed. */
#include "tools/ctl/ctl_work.h"

#include <base/clock.h>
#include <errno.h>
#include <peer/client.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 100

const struct ctl_option ctl_option_detach = {
	"detach", 0, NULL, "return at once; 'xsegctl job wait' waits for it", NULL};

/* --- the work itself -------------------------------------------------------------------- */

void ctl_work_progress(struct ctl_work *work, uint64_t done, uint64_t total)
{
	work->done = done;
	job_progress(&work->job, done, total);
	work->progress.total = total;
	if (work->here)
		ctl_progress_show(&work->progress, done);
}

static int body_run(struct ctl_work *work)
{
	ctl_ask_interrupt_catch();
	ctl_progress_begin(
		&work->progress, work->ctl, strchr(work->kind, '.') + 1, work->object, 0);
	int rc = work->body(work, work->context);
	if (work->here)
		ctl_progress_end(&work->progress, work->done);
	job_end(&work->job, work->done, work->result ? json_incref(work->result) : NULL,
		rc ? &work->ctl->fault : NULL, ctl_ask_interrupted());
	return rc;
}

static int begin_fault(struct ctl_work *work, int error)
{
	return fault_set(&work->ctl->fault, FAULT_FAILED, work->object,
		"SKERRY_RUN_DIR moves the folder", "no record of the job can be made: %s",
		strerror(-error));
}

static int run_here(struct ctl_work *work, const char *segment, json_t *detail)
{
	int rc = job_begin(&work->job, segment, work->kind, work->object, "bytes", detail);
	if (rc)
		return begin_fault(work, rc);
	rc = body_run(work);
	if (!rc && work->result)
		ctl_output_one(work->ctl, work->result, work->columns, work->column_count);
	return rc;
}

/* --- a process for it ------------------------------------------------------------------- */

struct worker {
	pid_t pid;
	int pidfd;
	unsigned id;
};

static void child_run(struct ctl_work *work, const char *segment, json_t *detail, int out)
{
	setsid(); /* the terminal's ^C and hang-up are its client's */
	int rc = job_begin(&work->job, segment, work->kind, work->object, "bytes", detail);
	int said[2] = {rc, (int)work->job.id};
	bool heard = write(out, said, sizeof(said)) == sizeof(said);
	close(out);
	if (rc || !heard) /* a client that is gone before it knew of it wants nothing */
		_exit(rc ? 1 : (job_end(&work->job, 0, NULL, NULL, true), 1));
	rc = body_run(work);
	_exit(rc ? 1 : 0);
}

static int worker_start(
	struct ctl_work *work, const char *segment, json_t *detail, struct worker *worker)
{
	int pipes[2], said[2] = {-ECHILD, 0};
	if (pipe2(pipes, 0))
		return begin_fault(work, -errno);
	fflush(NULL);
	worker->pid = fork();
	if (worker->pid == 0) {
		close(pipes[0]);
		child_run(work, segment, detail, pipes[1]);
	}
	close(pipes[1]);
	json_decref(detail);
	ssize_t n = read(pipes[0], said, sizeof(said));
	close(pipes[0]);
	if (worker->pid < 0 || n != (ssize_t)sizeof(said) || said[0])
		return begin_fault(work, said[0]);
	worker->id = (unsigned)said[1];
	worker->pidfd = (int)syscall(SYS_pidfd_open, worker->pid, 0);
	return 0;
}

static void show(struct ctl_work *work, const char *segment, unsigned id, bool last)
{
	json_t *job = work->progress.mode == CTL_PROGRESS_NONE ? NULL : job_view(segment, id);
	if (!job)
		return;
	work->progress.total = (uint64_t)json_integer_value(json_object_get(job, "total"));
	uint64_t done = (uint64_t)json_integer_value(json_object_get(job, "done"));
	if (last)
		ctl_progress_end(&work->progress, done);
	else
		ctl_progress_show(&work->progress, done);
	json_decref(job);
}

/* ^C is passed on and waited for; a terminal that hangs up only ends the waiting. */
static int worker_wait(struct ctl_work *work, const char *segment, const struct worker *worker)
{
	bool told = false;
	ctl_ask_interrupt_catch();
	ctl_progress_begin(
		&work->progress, work->ctl, strchr(work->kind, '.') + 1, work->object, 0);
	while (waitpid(worker->pid, NULL, WNOHANG) == 0) {
		struct pollfd one = {.fd = worker->pidfd, .events = POLLIN};
		poll(&one, 1, LOOK_MS);
		show(work, segment, worker->id, false);
		if (ctl_ask_interrupted_by() == SIGHUP)
			return fault_set(&work->ctl->fault, FAULT_FAILED, work->object, NULL,
				"job %u goes on without its client", worker->id);
		if (ctl_ask_interrupted() && !told)
			told = kill(worker->pid, SIGTERM) == 0;
	}
	show(work, segment, worker->id, true);
	return 0;
}

static int result_print(struct ctl_work *work, const char *segment, unsigned id)
{
	json_t *job = job_view(segment, id), *error = json_object_get(job, "error");
	const char *state = json_string_value(json_object_get(job, "state"));
	int rc = 0;
	if (state && !strcmp(state, "lost")) {
		json_decref(job);
		rc = ctl_work_tidy(work->ctl, segment, id);
		job = rc ? NULL : job_view(segment, id);
		error = json_object_get(job, "error");
	}
	if (error) {
		fault_from_json(&work->ctl->fault, error);
		rc = -(int)work->ctl->fault.code;
	} else if (!rc && !job) {
		rc = fault_set(&work->ctl->fault, FAULT_FAILED, work->object, NULL,
			"the record of job %u is gone", id);
	}
	json_t *result = json_object_get(job, "result");
	if (!rc && result)
		ctl_output_one(work->ctl, json_incref(result), work->columns, work->column_count);
	json_decref(job);
	return rc;
}

static int detached(struct ctl_work *work, const char *segment, unsigned id)
{
	static const struct ctl_column columns[] = {{"job", "job", CTL_COUNT},
		{"kind", "kind", CTL_TEXT}, {"object", "object", CTL_TEXT},
		{"state", "state", CTL_TEXT}};
	json_t *job = job_view(segment, id);
	if (job)
		ctl_output_one(work->ctl, job, columns, sizeof(columns) / sizeof(columns[0]));
	return 0;
}

/* What is plainly not there is said before there is a job. */
static int ready(const struct ctl_work *work, char segment[NAME_LENGTH_MAX + 1])
{
	struct ctl *ctl = work->ctl;
	struct client client;
	int rc = ctl_join_segment_name(ctl, segment);
	if (rc || work->keeper_only)
		return rc;
	rc = ctl_join_composer(ctl, &client);
	if (!rc)
		client_close(&client);
	return rc;
}

int ctl_work_run(struct ctl_work *work, json_t *detail)
{
	char segment[NAME_LENGTH_MAX + 1];
	struct worker worker = {.pidfd = -1};
	int rc = ready(work, segment);
	if (rc) {
		json_decref(detail);
		return rc;
	}
	if (work->here)
		return run_here(work, segment, detail);
	rc = worker_start(work, segment, detail, &worker);
	if (!rc && ctl_option_given(work->ctl, "detach"))
		return detached(work, segment, worker.id);
	if (!rc)
		rc = worker_wait(work, segment, &worker);
	if (worker.pidfd >= 0)
		close(worker.pidfd);
	return rc ? rc : result_print(work, segment, worker.id);
}

/* --- tidying up ------------------------------------------------------------------------- */

static int undo(struct ctl *ctl, const json_t *record, bool *whole, const char **left)
{
	const char *kind = json_string_value(json_object_get(record, "kind"));
	const json_t *detail = json_object_get(record, "detail");
	const char *file = json_string_value(json_object_get(detail, "temporary"));
	*left = "nothing of it is left";
	if (!strcmp(kind, "volume.import"))
		return ctl_import_tidy(ctl, detail, whole, left);
	if (file && unlink(file) && errno != ENOENT)
		return fault_set(&ctl->fault, FAULT_FAILED, file, NULL,
			"'%s' cannot be removed: %s", file, strerror(errno));
	if (!strcmp(kind, "volume.flatten"))
		*left = "what was copied stays; said again it goes on";
	if (!strncmp(kind, "cache.", 6))
		*left = "the cache serves, wherever it stands; said again it goes on";
	if (json_is_true(json_object_get(detail, "keeper")))
		*left = "'xsegctl status' shows what came of it";
	return 0;
}

int ctl_work_tidy(struct ctl *ctl, const char *segment, unsigned id)
{
	struct job job;
	struct fault fault = {0};
	const char *left;
	char object[NAME_LENGTH_MAX + 1];
	bool whole = false;
	int rc = job_take(&job, segment, id);
	if (rc == -EALREADY || rc == -ENOENT || rc == -EBUSY)
		return 0;
	if (rc)
		return fault_set(
			&ctl->fault, FAULT_FAILED, NULL, NULL, "job %u: %s", id, strerror(-rc));
	rc = undo(ctl, job.record, &whole, &left);
	if (rc) {
		job_drop(&job);
		return rc;
	}
	snprintf(object, sizeof(object), "%.31s",
		json_string_value(json_object_get(job.record, "object")));
	fault_set(&fault, FAULT_FAILED, object, NULL, "its process was killed; %s", left);
	uint64_t done = (uint64_t)json_integer_value(json_object_get(job.record, "done"));
	job_end(&job, whole ? job.total : done, NULL, whole ? NULL : &fault, false);
	return 0;
}

int ctl_work_tidy_all(struct ctl *ctl, const char *segment)
{
	json_t *jobs = job_list(segment), *job;
	size_t i;
	int rc = 0;
	json_array_foreach (jobs, i, job) {
		const char *state = json_string_value(json_object_get(job, "state"));
		unsigned id = (unsigned)json_integer_value(json_object_get(job, "job"));
		int tidied = strcmp(state, "lost") ? 0 : ctl_work_tidy(ctl, segment, id);
		rc = rc ? rc : tidied;
	}
	json_decref(jobs);
	return rc;
}
