/* SPDX-License-Identifier: Apache-2.0 */
/* Watches the records of jobs, ends the keeper's own, and has the killed ones tidied up. */
#include "tools/keeper/keeper_job.h"

#include <base/log.h>
#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/keeper/keeper_config.h"
#include "tools/report/job.h"
#include "tools/report/program.h"
#include "tools/report/report.h"

#define WATCHED_MAX 32u
#define TIDY_AGAIN_S 10

struct watched {
	unsigned id;
	int pidfd;
	struct event *event;
};

struct keeper_jobs {
	struct keeper *keeper;
	int inotify;
	struct event *changed, *again;
	struct watched watched[WATCHED_MAX];
	int tidier; /* pidfd; -1: none at work */
	struct event *tidied;
	unsigned tidying; /* the job */
	struct job own;
};

/* --- tidying up ------------------------------------------------------------------------- */

static void look_again(struct keeper_jobs *jobs, time_t seconds)
{
	struct timeval after = {.tv_sec = seconds};
	evtimer_add(jobs->again, &after);
}

static void on_tidied(int fd, short what, void *context)
{
	struct keeper_jobs *jobs = context;
	siginfo_t info = {0};
	(void)fd;
	(void)what;
	waitid(P_PIDFD, (id_t)jobs->tidier, &info, WEXITED | WNOHANG);
	event_free(jobs->tidied);
	jobs->tidied = NULL;
	close(jobs->tidier);
	jobs->tidier = -1;
	bool good = info.si_code == CLD_EXITED && info.si_status == 0;
	if (good)
		log_info("keeper", "job %u was killed; it is tidied up", jobs->tidying);
	else
		log_warning(
			"keeper", "job %u was killed and cannot be tidied up yet", jobs->tidying);
	look_again(jobs, good ? 0 : TIDY_AGAIN_S);
}

static void tidy_child(const struct keeper *keeper, const char *program, unsigned id)
{
	char number[16];
	char *argv[] = {(char *)program, "-s", (char *)keeper->name, "job", "tidy", number, NULL};
	sigset_t none;
	snprintf(number, sizeof(number), "%u", id);
	sigemptyset(&none);
	setsid();
	dup2(open("/dev/null", O_RDWR | O_CLOEXEC), STDIN_FILENO);
	dup2(STDIN_FILENO, STDOUT_FILENO);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execv(program, argv);
	_exit(127);
}

static void tidy(struct keeper_jobs *jobs, unsigned id)
{
	char program[PATH_MAX];
	if (jobs->tidier >= 0)
		return; /* one after the other */
	if (program_find("xsegctl", program)) {
		look_again(jobs, TIDY_AGAIN_S);
		return;
	}
	pid_t pid = program_fork();
	if (pid == 0)
		tidy_child(jobs->keeper, program, id);
	jobs->tidier = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	jobs->tidying = id;
	if (jobs->tidier < 0) {
		look_again(jobs, TIDY_AGAIN_S);
		return;
	}
	fcntl(jobs->tidier, F_SETFD, FD_CLOEXEC);
	jobs->tidied = event_new(jobs->keeper->base, jobs->tidier, EV_READ, on_tidied, jobs);
	must(jobs->tidied);
	event_add(jobs->tidied, NULL);
}

/* --- watching --------------------------------------------------------------------------- */

static void watched_end(struct watched *watched)
{
	if (watched->event)
		event_free(watched->event);
	if (watched->pidfd >= 0)
		close(watched->pidfd);
	*watched = (struct watched){.pidfd = -1};
}

static void on_exit_seen(int fd, short what, void *context)
{
	struct keeper_jobs *jobs = context;
	(void)what;
	for (unsigned i = 0; i < WATCHED_MAX; i++)
		if (jobs->watched[i].pidfd == fd)
			watched_end(&jobs->watched[i]);
	look_again(jobs, 0);
}

static void watch(struct keeper_jobs *jobs, unsigned id)
{
	struct watched *free_one = NULL;
	for (unsigned i = 0; i < WATCHED_MAX; i++) {
		if (jobs->watched[i].id == id)
			return;
		if (!jobs->watched[i].id)
			free_one = &jobs->watched[i];
	}
	int fd = free_one ? job_pidfd(jobs->keeper->name, id) : -1;
	if (fd < 0) {
		look_again(jobs, TIDY_AGAIN_S);
		return;
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	*free_one = (struct watched){.id = id,
		.pidfd = fd,
		.event = event_new(jobs->keeper->base, fd, EV_READ, on_exit_seen, jobs)};
	must(free_one->event);
	event_add(free_one->event, NULL);
}

static void look(struct keeper_jobs *jobs)
{
	json_t *list = job_list(jobs->keeper->name), *job;
	size_t i;
	json_array_foreach (list, i, job) {
		const char *state = json_string_value(json_object_get(job, "state"));
		unsigned id = (unsigned)json_integer_value(json_object_get(job, "job"));
		if (!strcmp(state, "lost"))
			tidy(jobs, id);
		else if (!strcmp(state, "running") && id != jobs->own.id)
			watch(jobs, id);
	}
	json_decref(list);
}

static void on_changed(int fd, short what, void *context)
{
	char events[4096];
	(void)what;
	while (read(fd, events, sizeof(events)) > 0)
		;
	look(context);
}

static void on_again(int fd, short what, void *context)
{
	(void)fd;
	(void)what;
	look(context);
}

void keeper_job_open(struct keeper *keeper)
{
	char path[PATH_LENGTH_MAX];
	struct keeper_jobs *jobs = calloc(1, sizeof(*jobs));
	must(jobs);
	jobs->keeper = keeper;
	jobs->tidier = jobs->own.progress = -1;
	for (unsigned i = 0; i < WATCHED_MAX; i++)
		jobs->watched[i].pidfd = -1;
	keeper->jobs = jobs;
	jobs->again = evtimer_new(keeper->base, on_again, jobs);
	must(jobs->again);
	jobs->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	bool seen = job_folder(path, keeper->name) && !path_make_dir(path) && jobs->inotify >= 0 &&
		    inotify_add_watch(jobs->inotify, path, IN_MOVED_TO) >= 0;
	if (seen) {
		jobs->changed = event_new(
			keeper->base, jobs->inotify, EV_READ | EV_PERSIST, on_changed, jobs);
		must(jobs->changed);
		event_add(jobs->changed, NULL);
	} else {
		log_warning("keeper", "jobs are not watched: %s", strerror(errno));
	}
	look_again(jobs, 0);
}

void keeper_job_close(struct keeper *keeper, bool sweep)
{
	struct keeper_jobs *jobs = keeper->jobs;
	if (!jobs)
		return;
	for (unsigned i = 0; i < WATCHED_MAX; i++)
		watched_end(&jobs->watched[i]);
	if (jobs->changed)
		event_free(jobs->changed);
	if (jobs->inotify >= 0)
		close(jobs->inotify);
	if (jobs->tidied)
		event_free(jobs->tidied);
	if (jobs->tidier >= 0)
		close(jobs->tidier);
	event_free(jobs->again);
	job_drop(&jobs->own);
	free(jobs);
	keeper->jobs = NULL;
	if (sweep)
		job_sweep(keeper->name);
}

/* --- the keeper's own ------------------------------------------------------------------- */

void keeper_job_begin(struct keeper *keeper, const char *kind, const char *object)
{
	struct keeper_jobs *jobs = keeper->jobs;
	if (!jobs || jobs->own.record)
		return;
	int rc = job_begin(
		&jobs->own, keeper->name, kind, object, "steps", json_pack("{s:b}", "keeper", 1));
	if (rc)
		log_warning("keeper", "%s %s has no job record: %s", kind, object, strerror(-rc));
	keeper->operation.job = jobs->own.id;
}

void keeper_job_end(struct keeper *keeper, const json_t *result, const struct fault *fault)
{
	struct keeper_jobs *jobs = keeper->jobs;
	unsigned done, total;
	if (!jobs || !jobs->own.record)
		return;
	keeper_config_progress(keeper, &done, &total);
	jobs->own.total = total ? total : 1;
	bool whole = !total && !fault;
	job_end(&jobs->own, whole ? 1 : done, result ? json_deep_copy(result) : NULL, fault, false);
}

/* --- calls ------------------------------------------------------------------------------ */

/* How far our own is, nobody writes to a file. */
static void view_own(const struct keeper *keeper, json_t *job)
{
	unsigned done, total;
	unsigned id = (unsigned)json_integer_value(json_object_get(job, "job"));
	if (!keeper->jobs || !id || id != keeper->jobs->own.id)
		return;
	keeper_config_progress(keeper, &done, &total);
	json_object_set_new(job, "done", json_integer(done));
	json_object_set_new(job, "total", json_integer(total ? total : 1));
	json_object_set_new(job, "percent", json_integer(total ? done * 100 / total : 0));
}

int keeper_job_list(struct keeper *keeper, json_t **result, struct fault *fault)
{
	json_t *jobs = job_list(keeper->name), *job;
	size_t i;
	(void)fault;
	json_array_foreach (jobs, i, job)
		view_own(keeper, job);
	*result = json_pack("{s:i, s:s, s:o}", "schema_version", REPORT_SCHEMA_VERSION, "segment",
		keeper->name, "jobs", jobs);
	return 0;
}

int keeper_job_show(struct keeper *keeper, json_int_t id, json_t **result, struct fault *fault)
{
	char name[24];
	*result = id > 0 && id <= INT32_MAX ? job_view(keeper->name, (unsigned)id) : NULL;
	snprintf(name, sizeof(name), "%lld", (long long)id);
	if (!*result)
		return fault_set(fault, FAULT_NOT_FOUND, name, "'xsegctl job list' lists them",
			"there is no job %s", name);
	view_own(keeper, *result);
	return 0;
}

static int cancel_own(struct keeper *keeper, json_t *job, const char *name, struct fault *fault)
{
	if (!keeper->config)
		return fault_set(fault, FAULT_BUSY, name, "its --timeout limits it",
			"job %s, a %s, cannot be cancelled", name,
			json_string_value(json_object_get(job, "kind")));
	keeper_config_cancel(keeper);
	return 0;
}

static int cancel_process(struct keeper *keeper, unsigned id, const char *name, struct fault *fault)
{
	int fd = job_pidfd(keeper->name, id);
	if (fd < 0)
		return 0; /* it has ended meanwhile */
	int rc = (int)syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0);
	int error = errno;
	close(fd);
	return rc && error != ESRCH ? fault_set(fault, FAULT_FAILED, name, NULL,
					      "job %s cannot be told: %s", name, strerror(error))
				    : 0;
}

int keeper_job_cancel(
	struct keeper *keeper, json_int_t id, bool dry_run, json_t **result, struct fault *fault)
{
	char name[24];
	int rc = keeper_job_show(keeper, id, result, fault);
	if (rc)
		return rc;
	snprintf(name, sizeof(name), "%lld", (long long)id);
	const char *state = json_string_value(json_object_get(*result, "state"));
	bool runs = state && !strcmp(state, "running");
	bool own = keeper->jobs && (json_int_t)keeper->jobs->own.id == id;
	if (runs && !dry_run)
		rc = own ? cancel_own(keeper, *result, name, fault)
			 : cancel_process(keeper, (unsigned)id, name, fault);
	if (rc) {
		json_decref(*result);
		*result = NULL;
		return rc;
	}
	json_object_set_new(*result, "changed", json_boolean(runs && !dry_run));
	json_object_set_new(*result, "dry_run", json_boolean(dry_run));
	return 0;
}
