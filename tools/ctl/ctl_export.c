/* SPDX-License-Identifier: Apache-2.0 */
/* volume export: a volume, or what was written to it since a snapshot, becomes an image; holes stay
   holes; the file appears when whole. */
#include <base/must.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/ctl/ctl_copy.h"
#include "tools/ctl/ctl_map.h"
#include "tools/ctl/ctl_volume_image.h"
#include "tools/ctl/ctl_work.h"

#define CLUSTER 65536u /* qcow2's: what is written of one must be all of it */

/* What comes next in the image; pieces end in the order in which they began. */
struct piece {
	struct client_request request;
	uint8_t *buffer;
	uint64_t offset;
	uint32_t length;
	bool zero, done;
};

struct export
{
	struct ctl *ctl;
	struct client client;
	struct ctl_copy_plan plan;
	struct ctl_work *work;
	struct xseg_volume_info info;
	const char *path;
	char temporary[PATH_MAX]; /* "": not written beside and renamed */
	int fd;
	bool stream;  /* cannot seek: zeros are written */
	bool pipe;    /* may block: written in pieces that do not once it is ready */
	bool replace; /* the user agreed */
	uint64_t read_bytes, written;
	struct piece pieces[CTL_COPY_DEPTH_MAX];
	unsigned head, used; /* ring */
	struct client_request status;
	struct xseg_status_extent extents[XSEG_PAGE / sizeof(struct xseg_status_extent)];
	bool status_done;
	bool qcow2;
	struct ctl_image image;
	struct xseg_volume_info since; /* id 0: all of it */
	uint64_t at;		       /* of what was written since: all before is there */
};

/* --- the file --------------------------------------------------------------------------- */

static int target_fault(struct export *export, const char *what, int error)
{
	return fault_set(&export->ctl->fault, FAULT_FAILED, export->path, NULL,
		"'%s' cannot be %s: %s", export->path, what, strerror(error));
}

static int target_exists(struct export *export)
{
	char deed[PATH_MAX + 64];
	snprintf(deed, sizeof(deed), "overwrite '%s'", export->path);
	int rc = ctl_ask(export->ctl, deed);
	if (rc == -FAULT_USAGE)
		return fault_set(&export->ctl->fault, FAULT_CONFLICT, export->path,
			"say --yes to overwrite it", "'%s' exists", export->path);
	export->replace = rc == 0;
	return rc;
}

static int target_stream(struct export *export)
{
	struct stat st;
	if (export->fd < 0 || fstat(export->fd, &st))
		return target_fault(export, "opened", errno);
	export->stream = true;
	export->pipe = !S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode);
	return 0;
}

/* A device is written as it is; it must be large enough. */
static int target_device(struct export *export, const struct stat *st)
{
	export->fd = open(export->path, O_WRONLY | O_CLOEXEC);
	int rc = target_stream(export);
	if (rc || !S_ISBLK(st->st_mode))
		return rc;
	off_t end = lseek(export->fd, 0, SEEK_END);
	if (end < 0 || lseek(export->fd, 0, SEEK_SET) < 0)
		return target_fault(export, "measured", errno);
	if ((uint64_t)end < export->info.size)
		return fault_set(&export->ctl->fault, FAULT_FAILED, export->path, NULL,
			"'%s' has %lld bytes, volume '%s' has %llu", export->path, (long long)end,
			export->info.name, (unsigned long long)export->info.size);
	return 0;
}

static int target_beside(struct export *export)
{
	char folder[PATH_MAX], leaf[PATH_MAX];
	mode_t mask = umask(0);
	umask(mask);
	int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
	snprintf(folder, sizeof(folder), "%s", export->path);
	snprintf(leaf, sizeof(leaf), "%s", export->path);
	int n = snprintf(export->temporary, sizeof(export->temporary), "%s/.%s.%d-%u",
		dirname(folder), basename(leaf), (int)getpid(), export->work->job.id);
	if (n >= (int)sizeof(export->temporary))
		return export->temporary[0] = 0, target_fault(export, "made", ENAMETOOLONG);
	/* known before it is there: whoever comes after us can take it away */
	char *whole = export->temporary[0] == '/' ? strdup(export->temporary) : NULL;
	char *here = whole ? NULL : get_current_dir_name();
	if (here && asprintf(&whole, "%s/%s", here, export->temporary) < 0)
		whole = NULL;
	free(here);
	int noted = job_note(&export->work->job, "temporary", json_string(whole ? whole : ""));
	free(whole);
	if (noted)
		return export->temporary[0] = 0, target_fault(export, "noted", -noted);
	export->fd = open(export->temporary, flags, 0600);
	if (export->fd < 0) {
		export->temporary[0] = 0;
		return target_fault(export, "made", errno);
	}
	if (fchmod(export->fd, 0666 & ~mask) || ftruncate(export->fd, (off_t) export->info.size))
		return target_fault(export, "given its size", errno);
	return 0;
}

/* In the file that target_beside() has made. */
static int target_image(struct export *export)
{
	struct ctl *ctl = export->ctl;
	bool based = export->since.id != 0;
	int rc = ctl_volume_image_make(ctl, export->temporary, export->info.size, based);
	return rc ? rc
		  : ctl_volume_image_open(ctl, export->temporary, "qcow2", true, &export->image);
}

/* "monday.qcow2", beside it: what the last export was most likely called. */
static int target_base(struct export *export)
{
	char base[VOLUME_NAME_LENGTH_MAX + 16];
	const char *given = ctl_option_value(export->ctl, "base");
	if (!export->since.id)
		return 0;
	snprintf(base, sizeof(base), "%s.qcow2", export->since.name);
	return ctl_volume_image_base(export->ctl, export->temporary, given ? given : base);
}

/* qemu-nbd has written all and ended. */
static int image_finish(struct export *export)
{
	int error = ctl_volume_image_flush(&export->image);
	if (error)
		return target_fault(export, "written", -error);
	ctl_volume_image_close(&export->image);
	return target_base(export);
}

static int target_open(struct export *export)
{
	struct stat st;
	if (!strcmp(export->path, "-")) {
		export->fd = dup(STDOUT_FILENO);
		return target_stream(export);
	}
	if (stat(export->path, &st))
		return target_beside(export);
	if (S_ISDIR(st.st_mode))
		return target_fault(export, "written", EISDIR);
	if (!export->replace) /* it has come up since we looked */
		return target_fault(export, "made", EEXIST);
	return S_ISREG(st.st_mode) ? target_beside(export) : target_device(export, &st);
}

/* Now it is whole: it gets its name. */
static int target_finish(struct export *export)
{
	struct stat st;
	int rc = export->qcow2 ? image_finish(export) : 0;
	if (rc || !export->temporary[0])
		return rc;
	if (fdatasync(export->fd) || fstat(export->fd, &st))
		return target_fault(export, "made durable", errno);
	if (!export->qcow2 && (uint64_t)st.st_size != export->info.size)
		return fault_set(&export->ctl->fault, FAULT_FAILED, export->path, NULL,
			"'%s' has become %lld bytes long, not %llu", export->path,
			(long long)st.st_size, (unsigned long long)export->info.size);
	/* a file that has come up meanwhile stays */
	unsigned flags =
		export->replace || ctl_option_given(export->ctl, "yes") ? 0 : RENAME_NOREPLACE;
	if (renameat2(AT_FDCWD, export->temporary, AT_FDCWD, export->path, flags))
		return target_fault(export, "made", errno);
	export->temporary[0] = 0;
	return 0;
}

static void target_close(struct export *export)
{
	ctl_volume_image_close(&export->image);
	if (export->temporary[0])
		unlink(export->temporary);
	if (export->fd >= 0)
		close(export->fd);
}

static int write_all(struct export *export, const uint8_t *data, uint32_t length, uint64_t offset)
{
	while (length) {
		uint32_t piece = export->pipe && length > PIPE_BUF ? PIPE_BUF : length;
		if (export->pipe && !ctl_ask_interrupt_wait(export->fd, POLLOUT))
			return ctl_ask_interrupted_fault(export->ctl, export->path);
		ssize_t n = export->stream ? write(export->fd, data, piece)
					   : pwrite(export->fd, data, piece, (off_t)offset);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return target_fault(export, "written", errno);
		data += n;
		length -= (uint32_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

/* --- pieces ----------------------------------------------------------------------------- */

/* Above a base zeros must be said, too. */
static int image_piece(struct export *export, const struct piece *piece)
{
	uint32_t at = 0, run, length = piece->length;
	int error = 0;
	while (!error && at < length) {
		uint32_t from = at;
		bool any = ctl_copy_run(piece->buffer, length, &at, &run);
		at = any ? at : length;
		if (at > from && export->since.id)
			error = ctl_volume_image_zero(
				&export->image, at - from, piece->offset + from);
		if (any && !error)
			error = ctl_volume_image_write(
				&export->image, piece->buffer + at, run, piece->offset + at);
		at += any ? run : 0;
	}
	return error ? target_fault(export, "written", -error) : 0;
}

static int write_piece(struct export *export, const struct piece *piece)
{
	uint32_t at = 0, run;
	int rc = 0;
	if (export->qcow2)
		return image_piece(export, piece);
	if (export->stream)
		return write_all(export, piece->buffer, piece->length, piece->offset);
	while (!rc && !piece->zero && ctl_copy_run(piece->buffer, piece->length, &at, &run)) {
		rc = write_all(export, piece->buffer + at, run, piece->offset + at);
		at += run;
	}
	return rc;
}

/* What is done and next in order goes to the file. */
static int write_ready(struct export *export)
{
	int rc = 0;
	while (!rc && export->used && export->pieces[export->head].done) {
		struct piece *piece = &export->pieces[export->head];
		rc = write_piece(export, piece);
		export->written += piece->length;
		if (!piece->zero)
			export->read_bytes += piece->length;
		export->head = (export->head + 1) % export->plan.depth;
		export->used--;
	}
	ctl_work_progress(export->work, export->written, export->info.size);
	return rc;
}

static int read_fault(struct export *export, int error)
{
	return ctl_volume_fault(export->ctl, export->info.name, "cannot be read", error);
}

static int check_answer(struct export *export, const struct client_request *request)
{
	if (request->result)
		return read_fault(export, request->result);
	if (request->op == XSEG_OP_READ && request->answer_length != request->length)
		return fault_set(&export->ctl->fault, FAULT_FAILED, export->info.name, NULL,
			"volume '%s' answered %u of %u bytes", export->info.name,
			request->answer_length, request->length);
	return 0;
}

static int collect(struct export *export)
{
	struct client_request *request;
	int rc = client_collect(&export->client, &request);
	if (rc)
		return read_fault(export, rc);
	if (request->op == XSEG_OP_STATUS)
		export->status_done = true;
	else
		((struct piece *)request->context)->done = true;
	rc = check_answer(export, request);
	return rc ? rc : write_ready(export);
}

static int piece_room(struct export *export)
{
	int rc = write_ready(export);
	while (!rc && export->used == export->plan.depth)
		rc = collect(export);
	if (!rc && ctl_ask_interrupted())
		rc = ctl_ask_interrupted_fault(export->ctl, export->info.name);
	return rc;
}

static struct piece *piece_new(struct export *export, uint64_t offset, uint32_t length, bool zero)
{
	must(export->used < export->plan.depth);
	struct piece *piece = &export->pieces[(export->head + export->used++) % export->plan.depth];
	piece->offset = offset;
	piece->length = length;
	piece->zero = piece->done = zero;
	if (zero && export->stream)
		memset(piece->buffer, 0, length);
	return piece;
}

static int piece_read(struct export *export, struct piece *piece)
{
	piece->request = (struct client_request){.op = XSEG_OP_READ,
		.key.volume = export->info.id,
		.offset = piece->offset,
		.length = piece->length,
		.receive = piece->buffer,
		.receive_size = piece->length,
		.context = piece};
	int rc = client_start(&export->client, &piece->request);
	return rc ? read_fault(export, rc) : 0;
}

/* One stretch of the volume, cut at chunk boundaries so that it meets few objects. */
static int add_extent(struct export *export, uint64_t offset, uint64_t length, bool zero)
{
	int rc = 0;
	if (zero && !export->stream) {
		int error = export->since.id ? ctl_volume_image_zero(&export->image, length, offset)
					     : 0;
		export->written += length;
		return error ? target_fault(export, "written", -error) : 0;
	}
	while (!rc && length) {
		uint64_t room = export->plan.chunk - offset % export->plan.chunk;
		uint32_t n = (uint32_t)(length < room ? length : room);
		rc = piece_room(export);
		if (rc)
			break;
		struct piece *piece = piece_new(export, offset, n, zero);
		rc = zero ? 0 : piece_read(export, piece);
		offset += n;
		length -= n;
	}
	return rc;
}

/* --- what is a hole --------------------------------------------------------------------- */

static int ask_status(struct export *export, uint64_t offset, uint32_t length)
{
	export->status = (struct client_request){.op = XSEG_OP_STATUS,
		.key.volume = export->info.id,
		.offset = offset,
		.length = length,
		.receive = export->extents,
		.receive_size = sizeof(export->extents)};
	export->status_done = false;
	int rc = client_start(&export->client, &export->status);
	if (rc)
		return read_fault(export, rc);
	while (!rc && !export->status_done)
		rc = collect(export);
	return rc;
}

/* From `offset` on, up to an object; *looked at how much. What is not answered is read. */
static int export_window(struct export *export, uint64_t offset, uint32_t *looked)
{
	uint64_t left = export->info.size - offset;
	uint32_t length = left < XSEG_OBJECT_MAX ? (uint32_t)left : XSEG_OBJECT_MAX;
	int rc = ask_status(export, offset, length);
	*looked = 0;
	if (rc)
		return rc;
	uint32_t count = export->status.answer_length / (uint32_t)sizeof(export->extents[0]);
	for (uint32_t i = 0; !rc && i < count && *looked < length; i++) {
		const struct xseg_status_extent *extent = &export->extents[i];
		uint64_t n = extent->length;
		if (n > length - *looked)
			n = length - *looked;
		rc = add_extent(export, offset + *looked, n, extent->flags & XSEG_STATUS_ZERO);
		*looked += (uint32_t)n;
	}
	if (!rc && *looked == 0)
		rc = fault_set(&export->ctl->fault, FAULT_FAILED, export->info.name, NULL,
			"volume '%s' does not say what lies at %llu", export->info.name,
			(unsigned long long)offset);
	return rc;
}

/* --- what was written since --------------------------------------------------------------- */

/* Whole clusters: whatever is read and written beside what differs is right, too. A positive number
   ends the walk, with the fault set. */
static int since_stretch(void *context, const struct map_stretch *stretch)
{
	struct export *export = context;
	uint64_t end = (stretch->offset + stretch->length + CLUSTER - 1) / CLUSTER * CLUSTER;
	uint64_t from = stretch->offset / CLUSTER * CLUSTER;
	bool whole = stretch->offset % CLUSTER == 0 &&
		     (stretch->length % CLUSTER == 0 || end >= export->info.size);
	if (end > export->info.size)
		end = export->info.size;
	if (from < export->at)
		from = export->at;
	if (from >= end)
		return 0;
	export->at = end;
	bool zero = whole && (stretch->flags & XSEG_STATUS_ZERO);
	return add_extent(export, from, end - from, zero) ? 1 : 0;
}

/* The answers of pieces that are under way must not be taken for the map's: one client each. */
static int copy_since(struct export *export)
{
	struct client asking;
	int rc = ctl_join_composer(export->ctl, &asking);
	if (rc)
		return rc;
	ctl_copy_patience(export->ctl, &asking);
	int error = ctl_map_diff(&asking, export->since.id, export->info.id, since_stretch, export);
	client_close(&asking);
	if (error == -EINTR)
		return ctl_ask_interrupted_fault(export->ctl, export->info.name);
	if (error < 0)
		return ctl_map_fault(export->ctl, &export->info, "cannot be compared", error, NULL);
	return error ? -(int)export->ctl->fault.code : 0;
}

static int copy_all(struct export *export)
{
	uint64_t offset = 0;
	uint32_t looked;
	int rc = 0;
	while (!rc && offset < export->info.size) {
		rc = export_window(export, offset, &looked);
		offset += looked;
		if (!rc && ctl_ask_interrupted())
			rc = ctl_ask_interrupted_fault(export->ctl, export->info.name);
	}
	return rc;
}

static int copy(struct export *export)
{
	int rc = export->since.id ? copy_since(export) : copy_all(export);
	while (!rc && export->used) {
		rc = write_ready(export);
		if (!rc && export->used)
			rc = collect(export);
	}
	if (export->since.id)
		return rc;
	if (!rc && export->written != export->info.size)
		rc = fault_set(&export->ctl->fault, FAULT_FAILED, export->path, NULL,
			"%llu bytes came instead of %llu", (unsigned long long)export->written,
			(unsigned long long)export->info.size);
	return rc;
}

/* --- the volume ------------------------------------------------------------------------- */

static int volume_open(struct export *export, const char *name)
{
	struct ctl *ctl = export->ctl;
	int rc = ctl_volume_find(ctl, &export->client, name, &export->info);
	if (rc)
		return rc;
	if (export->info.state != XSEG_VOLUME_READY)
		return fault_set(&ctl->fault, FAULT_BUSY, name, NULL, "volume '%s' is being %s",
			name, export->info.state == XSEG_VOLUME_IMPORTING ? "imported" : "removed");
	if (export->info.opens)
		fprintf(stderr,
			"xsegctl: note: volume '%s' is open elsewhere; what is written "
			"meanwhile may be in the image or not\n",
			name);
	const char *since = ctl_option_value(ctl, "since");
	rc = since ? ctl_volume_find(ctl, &export->client, since, &export->since) : 0;
	if (rc)
		return rc;
	rc = ctl_volume_open(
		&export->client, XSEG_F_READ_ONLY, export->info.id, &export->info.term);
	return rc ? ctl_volume_fault(ctl, name, "cannot be opened", rc) : 0;
}

static const struct ctl_column export_columns[] = {{"name", "name", CTL_TEXT},
	{"file", "file", CTL_TEXT}, {"size", "size", CTL_SIZE}, {"data", "data", CTL_SIZE},
	{"duration_ns", "time", CTL_TIME}, {"mb_per_s", "MB/s", CTL_TEXT},
	{"dry_run", "dry run", CTL_TEXT}};

static void report(struct export *export)
{
	uint64_t size = export->info.size;
	if (!strcmp(export->path, "-"))
		return; /* stdout is the image */
	export->work->result = json_pack("{s:s, s:s, s:I, s:I, s:I, s:f}", "name",
		export->info.name, "file", export->path, "size", (json_int_t)size, "data",
		(json_int_t) export->read_bytes, "duration_ns",
		(json_int_t)(clock_now_ns() - export->work->progress.start_ns), "mb_per_s",
		ctl_progress_rate(&export->work->progress, size));
}

static int export_opened(struct export *export)
{
	ctl_copy_plan(&export->client.seg, &export->plan);
	for (unsigned i = 0; i < export->plan.depth; i++)
		must(export->pieces[i].buffer = malloc(export->plan.chunk));
	int rc = target_open(export);
	if (!rc && export->qcow2)
		rc = target_image(export);
	if (!rc)
		rc = copy(export);
	export->work->done = export->written;
	if (rc)
		ctl_copy_drain(export->ctl, &export->client);
	if (!rc)
		rc = target_finish(export);
	target_close(export);
	for (unsigned i = 0; i < export->plan.depth; i++)
		free(export->pieces[i].buffer);
	return rc;
}

static int export_from(struct ctl_work *work, void *context)
{
	struct export *export = context;
	export->work = work;
	int rc = ctl_join_composer(export->ctl, &export->client);
	if (rc)
		return rc;
	rc = volume_open(export, work->object);
	if (!rc) {
		rc = export_opened(export);
		ctl_volume_tell(&export->client, XSEG_OP_CLOSE, export->info.id, 0);
	}
	client_close(&export->client);
	if (!rc)
		report(export);
	return rc;
}

static int plan(struct export *export)
{
	struct ctl *ctl = export->ctl;
	int rc = ctl_join_composer(ctl, &export->client);
	if (rc)
		return rc;
	rc = ctl_volume_find(ctl, &export->client, ctl->argv[0], &export->info);
	client_close(&export->client);
	if (rc)
		return rc;
	ctl_output_one(ctl,
		json_pack("{s:s, s:s, s:I, s:b, s:b}", "name", ctl->argv[0], "file", export->path,
			"size", (json_int_t) export->info.size, "changed", 0, "dry_run", 1),
		export_columns, countof(export_columns));
	return 0;
}

/* Asked while there is a terminal to ask at. */
static int target_ask(struct export *export)
{
	struct stat st;
	if (!strcmp(export->path, "-") || stat(export->path, &st) || S_ISDIR(st.st_mode))
		return 0;
	return ctl_option_given(export->ctl, "dry-run") ? 0 : target_exists(export);
}

/* An image that is not raw is a file. */
static int format_check(struct export *export)
{
	struct ctl *ctl = export->ctl;
	struct stat st;
	const char *format = ctl_option_value(ctl, "format"),
		   *since = ctl_option_value(ctl, "since");
	bool raw = format && !strcmp(format, "raw");
	export->qcow2 = since || (format && !raw);
	if (since && raw)
		return fault_set(&ctl->fault, FAULT_USAGE, export->path, NULL,
			"--since makes a qcow2 image: raw has no word for what is elsewhere");
	if (ctl_option_given(ctl, "base") && !since)
		return fault_set(
			&ctl->fault, FAULT_USAGE, export->path, NULL, "--base goes with --since");
	if (since && !name_check_volume(since))
		return ctl_volume_name_check(ctl, since);
	bool file = strcmp(export->path, "-") && (stat(export->path, &st) || S_ISREG(st.st_mode));
	if (export->qcow2 && !file)
		return fault_set(&ctl->fault, FAULT_USAGE, export->path, NULL,
			"a qcow2 image is written to a file, '%s' is none", export->path);
	return 0;
}

static int run_export(struct ctl *ctl)
{
	struct export *export = calloc(1, sizeof(*export));
	must(export);
	export->ctl = ctl;
	export->path = ctl->argv[1];
	export->fd = -1;
	struct ctl_work work = {.ctl = ctl,
		.kind = "volume.export",
		.object = ctl->argv[0],
		.here = !strcmp(export->path, "-"),
		.body = export_from,
		.context = export,
		.columns = export_columns,
		.column_count = countof(export_columns) - 1};
	int rc = ctl_volume_name_check(ctl, ctl->argv[0]);
	if (!rc)
		rc = format_check(export);
	if (!rc)
		rc = target_ask(export);
	if (!rc && ctl_option_given(ctl, "dry-run"))
		rc = plan(export);
	else if (!rc)
		rc = ctl_work_run(&work,
			json_pack("{s:s, s:s}", "volume", ctl->argv[0], "file", export->path));
	free(export);
	return rc;
}

static const char *const formats[] = {"raw", "qcow2", NULL};
static const struct ctl_option option_format = {
	"format", 0, "FORMAT", "raw (default) or qcow2", formats};
static const struct ctl_option option_since = {"since", 0, "VOLUME@SNAP",
	"only what may differ from this snapshot, as qcow2 above an image of that", NULL};
static const struct ctl_option option_base = {"base", 0, "FILE",
	"with --since: the image of the snapshot, as the new one names it (default: "
	"VOLUME@SNAP.qcow2)",
	NULL};

const struct ctl_verb ctl_export_verb = {
	"volume",
	"export",
	"NAME FILE",
	2,
	2,
	"write a volume to an image",
	"\tRaw or qcow2 (through qemu-img and qemu-nbd), whole or what was written since a "
	"snapshot; an image of that, and this one above it, are the volume again, for qemu and for "
	"*volume import*. Holes stay holes. The file is written beside and gets its name when it "
	"is whole; one "
	"that exists is only replaced with --yes. FILE may be a device, or - for stdout. It is a "
	"job (see *job list*) that goes on when the terminal is gone.\n",
	run_export,
	{&ctl_option_yes, &option_format, &option_since, &option_base, &ctl_option_progress,
		&ctl_option_via, &ctl_option_detach, &ctl_option_dry_run},
	.examples = "xsegctl volume export disk disk.raw --yes\n"
		    "xsegctl volume export disk@monday disk@monday.qcow2 --format qcow2\n"
		    "xsegctl volume export disk@tuesday disk@tuesday.qcow2 --since disk@monday\n"
		    "xsegctl volume export disk - | gzip >disk.gz\n",
};
