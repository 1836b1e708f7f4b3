/* SPDX-License-Identifier: Apache-2.0 */
/* volume import: a raw image becomes a volume, holes stay holes, and a failure leaves nothing. */
#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/ctl_copy.h"
#include "tools/ctl_work.h"

struct import {
	struct ctl *ctl;
	struct client client;
	struct ctl_copy_plan plan;
	struct ctl_work *work;
	struct xseg_volume_info info;
	const char *path;
	int fd;
	bool seekable;
	uint64_t source_size; /* known when seekable */
	uint64_t at;	      /* of the source: everything before was read */
	uint64_t written;
	uint8_t *buffer; /* one chunk; requests copy from it when they start */
	struct client_request requests[CTL_COPY_DEPTH_MAX];
	struct client_request *idle[CTL_COPY_DEPTH_MAX];
	unsigned idle_count;
};

/* --- the source ------------------------------------------------------------------------- */

static int source_fault(struct import *import, const char *what, int error)
{
	return fault_set(&import->ctl->fault, error == ENOENT ? FAULT_NOT_FOUND : FAULT_FAILED,
		import->path, NULL, "'%s' cannot be %s: %s", import->path, what, strerror(error));
}

static int source_open(struct import *import)
{
	struct stat st;
	import->fd = strcmp(import->path, "-") ? open(import->path, O_RDONLY | O_CLOEXEC)
					       : dup(STDIN_FILENO);
	if (import->fd < 0)
		return source_fault(import, "opened", errno);
	if (fstat(import->fd, &st))
		return source_fault(import, "read", errno);
	if (S_ISDIR(st.st_mode))
		return source_fault(import, "imported", EISDIR);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return 0;
	off_t end = lseek(import->fd, 0, SEEK_END);
	if (end < 0 || lseek(import->fd, 0, SEEK_SET) < 0)
		return source_fault(import, "measured", errno);
	import->seekable = true;
	import->source_size = (uint64_t)end;
	posix_fadvise(import->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	return 0;
}

/* How large the volume will be. */
static int source_size(struct import *import)
{
	struct ctl *ctl = import->ctl;
	uint64_t size = import->source_size;
	int rc = ctl_value_size(ctl, "size", &size);
	if (rc)
		return rc;
	if (!import->seekable && !ctl_given(ctl, "size"))
		return fault_set(&ctl->fault, FAULT_USAGE, import->path,
			"say how large the volume shall be, e.g. --size 10G",
			"the size of what comes in is not known beforehand");
	if (size < import->source_size)
		return fault_set(&ctl->fault, FAULT_USAGE, import->path, NULL,
			"--size: '%s' has %llu bytes, that is more", import->path,
			(unsigned long long)import->source_size);
	if (size == 0)
		return fault_set(&ctl->fault, FAULT_USAGE, import->path,
			"say how large the volume shall be with --size", "'%s' is empty",
			import->path);
	import->info.size = (size + XSEG_SECTOR - 1) / XSEG_SECTOR * XSEG_SECTOR;
	if (import->info.size != size)
		fprintf(stderr,
			"xsegctl: note: %llu bytes are rounded up to %llu, "
			"whole sectors of %u\n",
			(unsigned long long)size, (unsigned long long)import->info.size,
			XSEG_SECTOR);
	return 0;
}

/* Over holes; false at the end. */
static bool source_next_data(struct import *import)
{
	if (!import->seekable)
		return true;
	off_t data = lseek(import->fd, (off_t)import->at, SEEK_DATA);
	if (data < 0 && errno == ENXIO) { /* only a hole is left */
		import->at = import->source_size;
		return false;
	}
	if (data > (off_t)import->at)
		import->at = (uint64_t)data / CTL_COPY_BLOCK * CTL_COPY_BLOCK;
	return import->at < import->source_size;
}

/* Up to the next chunk's boundary; *got 0 at the end. The rest of the last block is zeros. */
static int source_read(struct import *import, uint32_t *got)
{
	uint32_t room = import->plan.chunk - (uint32_t)(import->at % import->plan.chunk);
	*got = 0;
	while (*got < room && !ctl_interrupted()) {
		if (!import->seekable && !ctl_interrupt_wait(import->fd, POLLIN))
			break;
		ssize_t n = import->seekable ? pread(import->fd, import->buffer + *got, room - *got,
						       (off_t)(import->at + *got))
					     : read(import->fd, import->buffer + *got, room - *got);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return source_fault(import, "read", errno);
		if (n == 0)
			break;
		*got += (uint32_t)n;
	}
	if (import->at + *got > import->info.size)
		return fault_set(&import->ctl->fault, FAULT_FAILED, import->path,
			"give a larger --size", "'%s' has more than %llu bytes", import->path,
			(unsigned long long)import->info.size);
	uint32_t whole = (*got + XSEG_SECTOR - 1) / XSEG_SECTOR * XSEG_SECTOR;
	memset(import->buffer + *got, 0, whole - *got);
	return 0;
}

/* --- requests --------------------------------------------------------------------------- */

/* Takes one answer; what it says of its request is this command's error. */
static int collect(struct import *import)
{
	struct client_request *request;
	int rc = client_collect(&import->client, &request);
	if (rc)
		return ctl_volume_fault(import->ctl, import->info.name, "cannot be written", rc);
	import->idle[import->idle_count++] = request;
	if (request->result)
		return ctl_volume_fault(
			import->ctl, import->info.name, "cannot be written", request->result);
	import->written += request->length;
	return 0;
}

static int write_run(struct import *import, uint64_t offset, const uint8_t *data, uint32_t length)
{
	if (import->idle_count == 0) {
		int rc = collect(import);
		if (rc)
			return rc;
	}
	struct client_request *request = import->idle[--import->idle_count];
	*request = (struct client_request){.op = XSEG_OP_WRITE,
		.key.volume = import->info.id,
		.offset = offset,
		.length = length,
		.send = data,
		.send_size = length};
	int rc = client_start(&import->client, request);
	if (!rc)
		return 0;
	import->idle[import->idle_count++] = request;
	return ctl_volume_fault(import->ctl, import->info.name, "cannot be written", rc);
}

static int write_chunk(struct import *import, uint32_t got)
{
	uint32_t at = 0, run;
	uint32_t whole = (got + XSEG_SECTOR - 1) / XSEG_SECTOR * XSEG_SECTOR;
	while (ctl_copy_run(import->buffer, whole, &at, &run)) {
		int rc = write_run(import, import->at + at, import->buffer + at, run);
		if (rc)
			return rc;
		at += run;
	}
	import->at += got;
	return 0;
}

static int copy(struct import *import)
{
	uint32_t got;
	int rc = 0;
	while (!rc && source_next_data(import)) {
		rc = source_read(import, &got);
		if (rc || got == 0 || ctl_interrupted())
			break;
		rc = write_chunk(import, got);
		ctl_work_progress(import->work, import->at,
			import->source_size ? import->source_size : import->info.size);
	}
	while (!rc && import->idle_count < import->plan.depth)
		rc = collect(import);
	if (!rc && ctl_interrupted())
		rc = ctl_interrupted_fault(import->ctl, import->info.name);
	return rc;
}

/* Nobody may have changed it under us. */
static int check_length(struct import *import)
{
	off_t end = import->seekable ? lseek(import->fd, 0, SEEK_END) : (off_t)import->at;
	if (import->at == (uint64_t)end && (!import->seekable || import->at == import->source_size))
		return 0;
	return fault_set(&import->ctl->fault, FAULT_FAILED, import->path, "import it again",
		"'%s' has changed its size from %llu to %lld while it was read", import->path,
		(unsigned long long)import->source_size, (long long)end);
}

static int make_ready(struct import *import)
{
	struct client *client = &import->client;
	const char *name = import->info.name;
	struct xseg_volume_info ready = import->info;
	ctl_copy_patience(import->ctl, client);
	int rc = ctl_volume_tell(client, XSEG_OP_FLUSH, 0, import->info.id);
	if (rc)
		return ctl_volume_fault(import->ctl, name, "cannot be made durable", rc);
	ready.state = XSEG_VOLUME_READY;
	rc = ctl_volume_ask(client, XSEG_OP_UPDATE, &ready);
	if (rc)
		return ctl_volume_fault(import->ctl, name, "cannot be made ready", rc);
	rc = ctl_volume_find(import->ctl, client, name, &ready);
	if (!rc && (ready.size != import->info.size || ready.state != XSEG_VOLUME_READY))
		rc = fault_set(&import->ctl->fault, FAULT_FAILED, name, NULL,
			"volume '%s' has another size or state than it was given", name);
	if (!rc)
		import->info = ready;
	return rc;
}

/* --- the volume ------------------------------------------------------------------------- */

static int volume_make(struct import *import)
{
	struct ctl *ctl = import->ctl;
	const char *name = ctl->argv[1];
	char id[24];
	import->info.object_size = XSEG_OBJECT_MAX;
	import->info.state = XSEG_VOLUME_IMPORTING;
	snprintf(import->info.name, sizeof(import->info.name), "%s", name);
	int rc = ctl_volume_object_size(ctl, &import->info.object_size);
	if (rc)
		return rc;
	/* our own, so that we know what to remove when no answer comes */
	do
		must(getrandom(&import->info.id, sizeof(import->info.id), 0) ==
			sizeof(import->info.id));
	while (import->info.id == 0);
	snprintf(id, sizeof(id), "%016llx", (unsigned long long)import->info.id);
	/* known before it is there: whoever comes after us can take it away */
	int made = job_note(&import->work->job, "id", json_string(id));
	struct xseg_volume_info info = import->info;
	if (!made)
		made = ctl_volume_ask(&import->client, XSEG_OP_CREATE, &info);
	if (made == -EEXIST && !ctl_work_tidy_all(ctl, import->work->job.segment)) {
		info = import->info; /* what stood in the way may have been a killed one's */
		made = ctl_volume_ask(&import->client, XSEG_OP_CREATE, &info);
	}
	if (made == -EEXIST) {
		import->info.id = 0; /* not ours */
		return fault_set(&ctl->fault, FAULT_CONFLICT, name,
			"choose another name, or remove it with 'xsegctl volume rm'",
			"volume '%s' exists", name);
	}
	if (made)
		return ctl_volume_fault(ctl, name, "cannot be made", made);
	made = ctl_volume_tell(&import->client, XSEG_OP_OPEN, 0, import->info.id);
	return made ? ctl_volume_fault(ctl, name, "cannot be opened", made) : 0;
}

/* Waits for what is under way, then takes away what was made. The first error stays. */
static void volume_undo(struct import *import)
{
	struct fault first = import->ctl->fault;
	ctl_copy_drain(import->ctl, &import->client);
	ctl_copy_patience(import->ctl, &import->client);
	ctl_volume_tell(&import->client, XSEG_OP_CLOSE, 0, import->info.id);
	int rc = ctl_volume_tell(&import->client, XSEG_OP_REMOVE, 0, import->info.id);
	import->ctl->fault = first;
	if (rc && rc != -ENOENT)
		fault_hint(&import->ctl->fault,
			"what was imported is still there: 'xsegctl volume rm %.128s' removes it",
			import->info.name);
}

static const struct ctl_column import_columns[] = {{"name", "name", CTL_TEXT},
	{"size", "size", CTL_SIZE}, {"data", "data", CTL_SIZE},
	{"zeros", "zeros skipped", CTL_SIZE}, {"duration_ns", "time", CTL_TIME},
	{"mb_per_s", "MB/s", CTL_TEXT}, {"dry_run", "dry run", CTL_TEXT}};

static void report(struct import *import)
{
	uint64_t size = import->info.size;
	import->work->result = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:b}", "name",
		import->info.name, "size", (json_int_t)size, "object_size",
		(json_int_t)import->info.object_size, "data", (json_int_t)import->written, "zeros",
		(json_int_t)(size - import->written), "duration_ns",
		(json_int_t)(clock_now_ns() - import->work->progress.start_ns), "mb_per_s",
		ctl_progress_rate(&import->work->progress, size), "changed", 1);
}

static int import_into(struct ctl_work *work, void *context)
{
	struct import *import = context;
	import->work = work;
	int rc = ctl_join_composer(import->ctl, &import->client);
	if (rc)
		return rc;
	ctl_copy_plan(&import->client.seg, &import->plan);
	for (unsigned i = 0; i < import->plan.depth; i++)
		import->idle[import->idle_count++] = &import->requests[i];
	rc = volume_make(import);
	if (!rc)
		rc = copy(import);
	if (!rc)
		rc = check_length(import);
	if (!rc)
		rc = make_ready(import);
	work->done = import->at;
	if (rc && import->info.id)
		volume_undo(import);
	else if (!rc)
		ctl_volume_tell(&import->client, XSEG_OP_CLOSE, 0, import->info.id);
	client_close(&import->client);
	if (!rc)
		report(import);
	return rc;
}

/* --- one that was killed ------------------------------------------------------------------ */

int ctl_import_undo(struct ctl *ctl, const json_t *detail, bool *whole)
{
	const char *name = json_string_value(json_object_get(detail, "volume"));
	const char *text = json_string_value(json_object_get(detail, "id"));
	uint64_t id = text ? strtoull(text, NULL, 16) : 0;
	struct xseg_volume_info info = {0};
	struct client client;
	if (!name || !id)
		return 0; /* it had not come that far */
	int rc = ctl_join_composer(ctl, &client);
	if (rc)
		return rc;
	ctl_copy_patience(ctl, &client);
	bool found = ctl_volume_find(ctl, &client, name, &info) == 0 && info.id == id;
	*whole = found && info.state == XSEG_VOLUME_READY;
	int gone = *whole ? 0 : ctl_volume_tell(&client, XSEG_OP_REMOVE, 0, id);
	client_close(&client);
	memset(&ctl->fault, 0, sizeof(ctl->fault));
	if (gone && gone != -ENOENT)
		return ctl_volume_fault(ctl, name, "cannot be removed", gone);
	return 0;
}

/* --- the command ------------------------------------------------------------------------ */

static int plan(struct import *import)
{
	struct ctl *ctl = import->ctl;
	struct xseg_volume_info found;
	int rc = ctl_join_composer(ctl, &import->client);
	if (rc)
		return rc;
	rc = ctl_volume_find(ctl, &import->client, ctl->argv[1], &found);
	client_close(&import->client);
	if (rc == 0)
		return fault_set(&ctl->fault, FAULT_CONFLICT, found.name,
			"choose another name, or remove it with 'xsegctl volume rm'",
			"volume '%s' exists", found.name);
	if (rc != -FAULT_NOT_FOUND)
		return rc;
	memset(&ctl->fault, 0, sizeof(ctl->fault));
	ctl_output_one(ctl,
		json_pack("{s:s, s:I, s:b, s:b}", "name", ctl->argv[1], "size",
			(json_int_t)import->info.size, "changed", 0, "dry_run", 1),
		import_columns, countof(import_columns));
	return 0;
}

static int import_run(struct import *import)
{
	struct ctl *ctl = import->ctl;
	struct ctl_work work = {.ctl = ctl,
		.kind = "volume.import",
		.object = ctl->argv[1],
		.here = !import->seekable,
		.body = import_into,
		.context = import,
		.columns = import_columns,
		.column_count = countof(import_columns) - 1};
	if (ctl_given(ctl, "dry-run"))
		return plan(import);
	return ctl_work_run(
		&work, json_pack("{s:s, s:s}", "volume", ctl->argv[1], "file", import->path));
}

static int run_import(struct ctl *ctl)
{
	struct import import = {.ctl = ctl, .path = ctl->argv[0], .fd = -1};
	int rc = ctl_volume_name_check(ctl, ctl->argv[1]);
	import.buffer = malloc(CTL_COPY_CHUNK_MAX);
	must(import.buffer);
	if (!rc)
		rc = source_open(&import);
	if (!rc)
		rc = source_size(&import);
	if (!rc)
		rc = import_run(&import);
	if (import.fd >= 0)
		close(import.fd);
	free(import.buffer);
	return rc;
}

const struct ctl_verb ctl_import_verb = {"volume", "import", "FILE NAME", 2, 2,
	"make a volume of a raw image",
	"\tHoles and blocks of zeros take no space. The volume is not served before it is whole; "
	"when something fails, or on ^C, nothing is left of it. FILE may be a block device, or - "
	"for stdin (with --size when its size cannot be told). It is a job (see *job list*) that "
	"goes on when the terminal is gone.\n",
	run_import,
	{&ctl_volume_option_size, &ctl_volume_option_object_size, &ctl_option_progress,
		&ctl_option_via, &ctl_option_detach, &ctl_option_dry_run}};
