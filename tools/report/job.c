/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the records of jobs: one small file each, written whole or not at all. */
#include "tools/report/job.h"

#include <base/clock.h>
#include <base/must.h>
#include <base/time.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xseg/registry.h>

#define PROGRESS_INTERVAL_NS 200000000u
#define PROGRESS_LENGTH 44 /* two numbers of 20 digits, a blank, an end */

/* --- files ------------------------------------------------------------------------------ */

bool job_folder(char out[PATH_LENGTH_MAX], const char *segment)
{
	return path_run(out, segment, "jobs") == 0;
}

static int job_path(char out[PATH_LENGTH_MAX], const char *segment, unsigned id, const char *kind)
{
	char leaf[48];
	snprintf(leaf, sizeof(leaf), "jobs/%u.%s", id, kind);
	return path_run(out, segment, leaf);
}

static int write_record(const char *segment, unsigned id, const json_t *record)
{
	char path[PATH_LENGTH_MAX], fresh[PATH_LENGTH_MAX];
	if (job_path(path, segment, id, "json") || job_path(fresh, segment, id, "new"))
		return -ENAMETOOLONG;
	char *text = json_dumps(record, JSON_COMPACT);
	if (!text)
		return -EILSEQ;
	int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
	int rc = fd < 0 ? -errno : 0;
	if (fd >= 0 && write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		rc = -EIO;
	if (fd >= 0)
		close(fd);
	if (!rc && rename(fresh, path))
		rc = -errno;
	free(text);
	return rc;
}

static json_t *read_record(const char *segment, unsigned id)
{
	char path[PATH_LENGTH_MAX];
	json_t *record = NULL;
	if (!job_path(path, segment, id, "json"))
		record = json_load_file(path, 0, NULL);
	if (record && !json_is_object(record)) {
		json_decref(record);
		record = NULL;
	}
	return record;
}

static void remove_files(const char *segment, unsigned id)
{
	static const char *const kinds[] = {"json", "new", "progress", "lock"};
	char path[PATH_LENGTH_MAX];
	for (size_t i = 0; i < countof(kinds); i++)
		if (!job_path(path, segment, id, kinds[i]))
			unlink(path);
}

/* --- what a record says ----------------------------------------------------------------- */

static long long number(const json_t *record, const char *key)
{
	return json_integer_value(json_object_get(record, key));
}

static bool is_running(const json_t *record)
{
	const char *state = json_string_value(json_object_get(record, "state"));
	return state && !strcmp(state, "running");
}

/* The same process, not one that was given its number since. */
static bool lives(const json_t *record)
{
	pid_t pid = (pid_t)number(record, "pid");
	uint64_t start = pid > 0 ? xseg_process_start_time(pid) : 0;
	return start && start == (uint64_t)number(record, "start_time");
}

static void set_state(json_t *record, const char *state)
{
	json_object_set_new(record, "state", json_string(state));
}

static void set_owner(json_t *record)
{
	json_object_set_new(record, "pid", json_integer(getpid()));
	json_object_set_new(
		record, "start_time", json_integer((json_int_t)xseg_process_start_time(getpid())));
}

static void view_progress(const char *segment, unsigned id, json_t *record)
{
	char path[PATH_LENGTH_MAX], text[PROGRESS_LENGTH + 1] = "";
	unsigned long long done = (unsigned long long)number(record, "done");
	unsigned long long total = (unsigned long long)number(record, "total");
	int fd = job_path(path, segment, id, "progress") ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && is_running(record) && pread(fd, text, PROGRESS_LENGTH, 0) > 0)
		sscanf(text, "%llu %llu", &done, &total);
	if (fd >= 0)
		close(fd);
	json_object_set_new(record, "done", json_integer((json_int_t)done));
	json_object_set_new(record, "total", json_integer((json_int_t)total));
	unsigned long long percent = total ? done * 100 / total : 0;
	json_object_set_new(
		record, "percent", json_integer((json_int_t)(percent < 100 ? percent : 100)));
}

json_t *job_view(const char *segment, unsigned id)
{
	json_t *record = read_record(segment, id);
	if (!record)
		return NULL;
	view_progress(segment, id, record);
	if (is_running(record) && !lives(record))
		set_state(record, "lost");
	json_t *error = json_object_get(record, "error");
	const char *message = json_string_value(json_object_get(error, "message"));
	json_object_set_new(record, "reason", json_string(message ? message : ""));
	return record;
}

/* --- the folder ------------------------------------------------------------------------- */

static int compare_ids(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
	return x < y ? -1 : x > y;
}

/* malloc'd, ascending. */
static unsigned *job_ids(const char *segment, unsigned *count)
{
	char path[PATH_LENGTH_MAX];
	unsigned *ids = NULL, room = 0;
	*count = 0;
	DIR *folder = job_folder(path, segment) ? opendir(path) : NULL;
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		char *end;
		unsigned long id = strtoul(entry->d_name, &end, 10);
		if (entry->d_name[0] < '1' || strcmp(end, ".json") || id > INT32_MAX)
			continue;
		if (*count == room)
			must(ids = realloc(ids, (room = 2 * room + 16) * sizeof(*ids)));
		ids[(*count)++] = (unsigned)id;
	}
	if (folder)
		closedir(folder);
	if (ids)
		qsort(ids, *count, sizeof(*ids), compare_ids);
	return ids;
}

json_t *job_list(const char *segment)
{
	unsigned count, *ids = job_ids(segment, &count);
	json_t *jobs = json_array();
	for (unsigned i = 0; i < count; i++) {
		json_t *job = job_view(segment, ids[i]);
		if (job)
			json_array_append_new(jobs, job);
	}
	free(ids);
	return jobs;
}

static void prune(const char *segment, unsigned keep)
{
	unsigned count, *ids = job_ids(segment, &count);
	for (unsigned i = 0; i + keep < count; i++) {
		json_t *record = read_record(segment, ids[i]);
		if (!is_running(record))
			remove_files(segment, ids[i]);
		json_decref(record);
	}
	free(ids);
}

void job_sweep(const char *segment)
{
	char path[PATH_LENGTH_MAX];
	prune(segment, 0);
	if (!job_path(path, segment, 0, "last"))
		unlink(path);
	if (job_folder(path, segment))
		rmdir(path);
}

/* The next number: of a file that is locked while it is counted up. */
static int next_id(const char *segment, unsigned *id)
{
	char path[PATH_LENGTH_MAX], text[16] = "";
	unsigned count, *ids;
	if (job_path(path, segment, 0, "last"))
		return -ENAMETOOLONG;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
	if (fd < 0)
		return -errno;
	int rc = flock(fd, LOCK_EX) ? -errno : 0;
	ssize_t n = rc ? 0 : pread(fd, text, sizeof(text) - 1, 0);
	ids = job_ids(segment, &count);
	*id = (unsigned)strtoul(n > 0 ? text : "0", NULL, 10) % INT32_MAX;
	if (count && ids[count - 1] > *id)
		*id = ids[count - 1];
	++*id;
	n = snprintf(text, sizeof(text), "%u\n", *id);
	if (!rc && pwrite(fd, text, (size_t)n, 0) != n)
		rc = -EIO;
	free(ids);
	close(fd);
	return rc;
}

/* --- the one that works ----------------------------------------------------------------- */

static int folder_make(const char *segment)
{
	char path[PATH_LENGTH_MAX];
	return job_folder(path, segment) ? path_make_dir(path) : -ENAMETOOLONG;
}

int job_begin(struct job *job, const char *segment, const char *kind, const char *object,
	const char *unit, json_t *detail)
{
	char path[PATH_LENGTH_MAX];
	*job = (struct job){.progress = -1};
	snprintf(job->segment, sizeof(job->segment), "%s", segment);
	int rc = folder_make(segment);
	if (!rc)
		prune(segment, JOBS_KEPT);
	if (!rc)
		rc = next_id(segment, &job->id);
	job->record = json_pack("{s:i, s:i, s:s, s:s, s:s, s:s, s:I, s:o}", "schema_version", 1,
		"job", (int)job->id, "kind", kind, "object", object, "state", "running", "unit",
		unit, "created_ns", (json_int_t)time_wall_ns(), "detail",
		detail ? detail : json_object());
	if (!rc && !job->record)
		rc = -EILSEQ;
	if (!rc) {
		set_owner(job->record);
		rc = write_record(segment, job->id, job->record);
	}
	if (!rc && !job_path(path, segment, job->id, "progress"))
		job->progress = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
	if (rc)
		job_drop(job);
	return rc;
}

static void progress_write(const struct job *job, uint64_t done)
{
	char text[PROGRESS_LENGTH + 1];
	snprintf(text, sizeof(text), "%20llu %20llu\n", (unsigned long long)done,
		(unsigned long long)job->total);
	if (job->progress >= 0 && pwrite(job->progress, text, strlen(text), 0) < 0)
		return; /* a full disk: only the figure is missing */
}

void job_progress(struct job *job, uint64_t done, uint64_t total)
{
	uint64_t now_ns = clock_now_ns();
	job->total = total;
	if (!job->record || now_ns - job->shown_ns < PROGRESS_INTERVAL_NS)
		return;
	job->shown_ns = now_ns;
	progress_write(job, done);
}

int job_note(struct job *job, const char *key, json_t *value)
{
	if (!job->record) {
		json_decref(value);
		return 0;
	}
	json_object_set_new(json_object_get(job->record, "detail"), key, value);
	return write_record(job->segment, job->id, job->record);
}

void job_drop(struct job *job)
{
	char path[PATH_LENGTH_MAX];
	if (job->progress >= 0)
		close(job->progress);
	if (job->id && !job_path(path, job->segment, job->id, "lock"))
		unlink(path);
	json_decref(job->record);
	*job = (struct job){.progress = -1};
}

void job_end(
	struct job *job, uint64_t done, json_t *result, const struct fault *fault, bool cancelled)
{
	bool failed = fault && fault->code;
	if (!job->record) {
		json_decref(result);
		return;
	}
	set_state(job->record, cancelled && failed ? "cancelled" : failed ? "failed" : "done");
	json_object_set_new(job->record, "done", json_integer((json_int_t)done));
	json_object_set_new(job->record, "total", json_integer((json_int_t)job->total));
	json_object_set_new(job->record, "ended_ns", json_integer((json_int_t)time_wall_ns()));
	if (result)
		json_object_set_new(job->record, "result", result);
	if (failed)
		json_object_set_new(job->record, "error", fault_to_json(fault));
	write_record(job->segment, job->id, job->record);
	job_drop(job);
}

/* --- the one that comes after ----------------------------------------------------------- */

/* The lock dies with its process; the file is removed only by who holds it. */
static int lock_take(const char *segment, unsigned id)
{
	char path[PATH_LENGTH_MAX];
	struct stat ours, named;
	if (job_path(path, segment, id, "lock"))
		return -ENAMETOOLONG;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
	if (fd < 0)
		return -errno;
	bool mine = !flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &ours) && !stat(path, &named) &&
		    ours.st_ino == named.st_ino;
	if (mine)
		return fd;
	close(fd);
	return -EBUSY;
}

int job_take(struct job *job, const char *segment, unsigned id)
{
	*job = (struct job){.progress = -1};
	json_t *record = read_record(segment, id);
	if (!record)
		return -ENOENT;
	json_decref(record);
	int lock = lock_take(segment, id);
	if (lock < 0)
		return lock;
	record = read_record(segment, id); /* as it is now that nobody else may end it */
	if (!record || !is_running(record) || lives(record)) {
		json_decref(record);
		close(lock);
		return -EALREADY;
	}
	view_progress(segment, id, record);
	job->progress = lock; /* closed with the job */
	job->record = record;
	job->id = id;
	job->total = (uint64_t)number(record, "total");
	snprintf(job->segment, sizeof(job->segment), "%s", segment);
	return 0;
}

int job_pidfd(const char *segment, unsigned id)
{
	json_t *record = read_record(segment, id);
	pid_t pid = (pid_t)number(record, "pid");
	int fd = is_running(record) && lives(record) ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	/* opened first, compared again: so it is this process' and no other's */
	if (fd >= 0 && !lives(record)) {
		close(fd);
		fd = -1;
	}
	json_decref(record);
	return fd >= 0 ? fd : -ESRCH;
}
