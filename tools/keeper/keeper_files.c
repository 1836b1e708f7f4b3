/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the keeper leaves on disk: its lock, the note that it made the segment, and the segment.
 *
 * RUN_DIR/SEGMENT/: xsegd.pid (locked while a keeper lives), xsegd.sock, xsegd.made (uuid of the
 * segment that `up` made and `down` destroys), xsegd.state (see keeper_save.c), notify.sock (what
 * its processes say), xsegd.log, HOST.log and events.jsonl (these stay).
 */
#include <base/clock.h>
#include <base/log.h>
#include <base/must.h>
#include <base/time.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xseg/registry.h>
#include <xseg/resident.h>

#include "tools/keeper/keeper.h"
#include "tools/keeper/keeper_cache.h"
#include "tools/report/program.h"

/* --- the lock --------------------------------------------------------------------------- */

#define LOCK_LEAVING_NS 2000000000u
#define LOCK_LOOK_NS 5000000

static void lock_read(int fd, char pid[32])
{
	ssize_t n = pread(fd, pid, 31, 0);
	pid[n > 0 ? n : 0] = 0;
	pid[strcspn(pid, "\n")] = 0;
}

/*
 * A keeper that was killed has its lock until it is quite gone, and so has a process that it had
 * just forked, until that runs a program of its own.
 */
static bool lock_is_leaving(int fd, uint64_t until_ns)
{
	char pid[32];
	lock_read(fd, pid);
	long number = strtol(pid, NULL, 10);
	if (number <= 0 || xseg_process_start_time((pid_t)number) != 0 ||
		clock_now_ns() >= until_ns)
		return false;
	time_nap(LOCK_LOOK_NS);
	return true;
}

static int lock_held(const struct keeper *keeper, int fd, struct fault *fault)
{
	char pid[32];
	lock_read(fd, pid);
	return fault_set(fault, FAULT_CONFLICT, keeper->name, "'xsegctl status' shows what it runs",
		"segment '%s' has a keeper already (pid %s)", keeper->name, pid[0] ? pid : "?");
}

/* Locked, and still the file of that name: the keeper before us removes it when it goes. */
static bool lock_is_current(int fd, const char *path)
{
	struct stat ours, named;
	return !fstat(fd, &ours) && !stat(path, &named) && ours.st_ino == named.st_ino;
}

static int run_folder(const struct keeper *keeper, struct fault *fault)
{
	char path[PATH_LENGTH_MAX] = "";
	int rc = path_run(path, keeper->name, NULL);
	if (!rc)
		rc = path_make_dir(path);
	if (rc)
		return fault_set(fault, FAULT_FAILED, path, "SKERRY_RUN_DIR moves the folder",
			"the run folder '%s' cannot be used: %s", path,
			rc == -EPERM ? "it is another user's, or others may write to it"
				     : strerror(-rc));
	return 0;
}

int keeper_files_lock(struct keeper *keeper, struct fault *fault)
{
	char path[PATH_LENGTH_MAX];
	int rc = run_folder(keeper, fault);
	if (rc)
		return rc;
	if (path_run(path, keeper->name, "xsegd.pid"))
		return fault_set(fault, FAULT_FAILED, keeper->name, NULL, "the path is too long");
	for (uint64_t until_ns = clock_now_ns() + LOCK_LEAVING_NS;;) {
		int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);
		if (fd < 0)
			return fault_set(
				fault, FAULT_FAILED, path, NULL, "'%s': %s", path, strerror(errno));
		if (flock(fd, LOCK_EX | LOCK_NB)) {
			bool leaving = lock_is_leaving(fd, until_ns);
			if (!leaving)
				rc = lock_held(keeper, fd, fault);
			close(fd);
			if (leaving)
				continue;
			return rc;
		}
		if (lock_is_current(fd, path)) {
			keeper->lock = fd;
			break;
		}
		close(fd);
	}
	if (ftruncate(keeper->lock, 0) || dprintf(keeper->lock, "%d\n", (int)getpid()) < 0)
		return fault_set(fault, FAULT_FAILED, path, NULL, "'%s' cannot be written: %s",
			path, strerror(errno));
	return 0;
}

/* --- the segment ------------------------------------------------------------------------ */

static void uuid_text(const struct keeper *keeper, char out[33])
{
	for (int i = 0; i < 16; i++)
		sprintf(out + 2 * i, "%02x", keeper->seg.super->uuid[i]);
}

static bool made_by_us(const struct keeper *keeper)
{
	char path[PATH_LENGTH_MAX], uuid[33], text[33] = "";
	if (path_run(path, keeper->name, "xsegd.made"))
		return false;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t n = read(fd, text, 32);
	close(fd);
	uuid_text(keeper, uuid);
	return n == 32 && !strcmp(text, uuid);
}

static int note_made(const struct keeper *keeper, struct fault *fault)
{
	char path[PATH_LENGTH_MAX], uuid[33];
	uuid_text(keeper, uuid);
	int rc = path_run(path, keeper->name, "xsegd.made");
	int fd = rc ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
	bool ok = fd >= 0 && write(fd, uuid, 32) == 32;
	if (fd >= 0)
		close(fd);
	return ok ? 0
		  : fault_set(fault, FAULT_FAILED, path, NULL, "'%s' cannot be written: %s", path,
			    strerror(errno));
}

static int segment_make(struct keeper *keeper, struct fault *fault)
{
	const struct pipeline *pipeline = &keeper->pipeline;
	char why[XSEG_WHY_SIZE] = "";
	struct xseg_config config = {.name = keeper->name,
		.size = pipeline->size,
		.lanes = pipeline->lanes,
		.huge_dir = pipeline->huge};
	int rc = xseg_segment_create(&config, why);
	if (rc)
		return fault_set(fault, fault_code_of_errno(rc), keeper->name, NULL, "%s", why);
	keeper->made_segment = keeper->made_now = true;
	log_info("keeper", "made segment '%s', %llu bytes", keeper->name,
		(unsigned long long)pipeline->size);
	return 0;
}

/* One that exists must be what the file asks for, up to the rounding to huge pages. */
static int segment_compare(const struct keeper *keeper, struct fault *fault)
{
	const struct pipeline *pipeline = &keeper->pipeline;
	uint64_t size = keeper->seg.size;
	bool other = size < pipeline->size || size - pipeline->size >= (2u << 20);
	if (pipeline->size_given && other)
		return fault_set(fault, FAULT_CONFLICT, keeper->name,
			"destroy it, or write its size into the file",
			"segment '%s' exists with %llu bytes, '%s' says %llu", keeper->name,
			(unsigned long long)size, keeper->path, (unsigned long long)pipeline->size);
	return 0;
}

/* Another keeper has it, in another run folder: nothing here is ours to stop or to remove. */
static int segment_held(struct keeper *keeper, struct fault *fault)
{
	char run_dir[XSEG_RUN_DIR_MAX + 1] = "?", path[PATH_LENGTH_MAX];
	uint32_t pid = 0;
	xseg_segment_keeper(keeper->name, &pid, run_dir);
	xseg_segment_leave(&keeper->seg);
	keeper->joined = false;
	if (!path_run(path, keeper->name, "xsegd.pid"))
		unlink(path);
	close(keeper->lock);
	keeper->lock = -1;
	return fault_set(fault, FAULT_CONFLICT, keeper->name,
		"stop that one first ('xsegctl down'), or take another name for the segment",
		"segment '%s' has a keeper already: process %u, run folder '%s'", keeper->name, pid,
		run_dir);
}

static int segment_keep(struct keeper *keeper, struct fault *fault)
{
	char run_dir[PATH_MAX];
	int rc;
	if (!realpath(path_run_dir(), run_dir))
		snprintf(run_dir, sizeof(run_dir), "%s", path_run_dir());
	/* one that was killed has it until it is quite gone */
	for (uint64_t until_ns = clock_now_ns() + LOCK_LEAVING_NS;;) {
		rc = xseg_segment_keep(&keeper->seg, run_dir, &keeper->kept);
		uint32_t pid = atomic_load(&keeper->seg.super->keeper);
		if (rc != -EBUSY || clock_now_ns() >= until_ns ||
			(pid && xseg_process_start_time((pid_t)pid) != 0))
			break;
		time_nap(LOCK_LOOK_NS);
	}
	if (rc == -EBUSY)
		return segment_held(keeper, fault);
	return rc ? fault_set(fault, FAULT_FAILED, keeper->name, NULL,
			    "segment '%s' cannot be locked: %s", keeper->name, strerror(-rc))
		  : 0;
}

int keeper_files_segment(struct keeper *keeper, struct fault *fault)
{
	char why[XSEG_WHY_SIZE] = "";
	int rc = xseg_segment_join(keeper->name, &keeper->seg, why);
	if (rc == -ENOENT) {
		rc = segment_make(keeper, fault);
		if (rc)
			return rc;
		rc = xseg_segment_join(keeper->name, &keeper->seg, why);
	}
	if (rc) {
		fault_set(fault, FAULT_FAILED, keeper->name, NULL, "%s", why);
		return -FAULT_FAILED;
	}
	keeper->joined = true;
	xseg_resident_begin(&keeper->seg);
	rc = segment_keep(keeper, fault);
	if (rc)
		return rc;
	if (keeper->made_segment)
		return note_made(keeper, fault);
	keeper->made_segment = made_by_us(keeper);
	rc = segment_compare(keeper, fault);
	return rc ? rc : keeper_cache_orphans(keeper, fault);
}

/* --- the end ---------------------------------------------------------------------------- */

static void remove_leaf(const struct keeper *keeper, const char *leaf)
{
	char path[PATH_LENGTH_MAX];
	if (!path_run(path, keeper->name, leaf))
		unlink(path);
}

/* Those who were killed could not take theirs along. */
static void remove_bells(const struct keeper *keeper)
{
	char pattern[PATH_LENGTH_MAX];
	glob_t found;
	if (path_run(pattern, keeper->name, "bell.*") || glob(pattern, 0, NULL, &found))
		return;
	for (size_t i = 0; i < found.gl_pathc; i++)
		unlink(found.gl_pathv[i]);
	globfree(&found);
}

/* After a start that failed: what ran before it does still. */
static bool runs_on(const struct keeper *keeper)
{
	for (unsigned i = 0; i < keeper->order_count; i++)
		if (keeper->hosts[keeper->order[i]].adopted && keeper->hosts[keeper->order[i]].pid)
			return true;
	return false;
}

bool keeper_files_remove(struct keeper *keeper, bool destroy)
{
	char why[XSEG_WHY_SIZE] = "", path[PATH_LENGTH_MAX];
	bool destroyed = false;
	xseg_resident_end(&keeper->seg);
	if (keeper->joined)
		xseg_segment_leave(&keeper->seg);
	keeper->joined = false;
	if (destroy) {
		int rc = xseg_segment_destroy(keeper->name, why);
		destroyed = rc == 0 || rc == -ENOENT;
		if (destroyed)
			remove_leaf(keeper, "xsegd.made");
		else
			log_warning("keeper", "segment '%s' stays: %s", keeper->name, why);
	}
	if (destroyed)
		remove_bells(keeper);
	if (destroyed || !keeper->fault.code || !runs_on(keeper))
		remove_leaf(keeper, "xsegd.state");
	remove_leaf(keeper, "notify.sock");
	remove_leaf(keeper, "xsegd.sock");
	remove_leaf(keeper, "xsegd.pid");
	if (!path_run(path, keeper->name, NULL))
		rmdir(path); /* only when no log is in it */
	return destroyed;
}

void keeper_files_last_line(const struct keeper_host *host, char *out, size_t out_size)
{
	char leaf[NAME_LENGTH_MAX + 8], path[PATH_LENGTH_MAX], text[8192] = "";
	snprintf(leaf, sizeof(leaf), "%s.log", keeper_host_name(host));
	int fd = path_run(path, host->keeper->name, leaf) ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	out[0] = 0;
	if (fd < 0)
		return;
	off_t end = lseek(fd, 0, SEEK_END);
	/* it may have been begun anew since */
	off_t start = host->log_start <= end ? host->log_start : 0;
	if (end - start > (off_t)sizeof(text) - 1)
		start = end - (off_t)sizeof(text) + 1;
	ssize_t n = pread(fd, text, sizeof(text) - 1, start);
	text[n > 0 ? n : 0] = 0;
	close(fd);
	program_last_line(text, out, out_size);
	name_make_utf8(out);
}
