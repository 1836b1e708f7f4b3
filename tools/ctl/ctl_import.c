/* SPDX-License-Identifier: Apache-2.0 */
/* volume import: an image becomes a volume, holes stay holes; what a killed one left is gone on
   with. */
#include "tools/ctl/ctl_import.h"

#include <base/clock.h>
#include <base/must.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/ctl/ctl_map.h"

#define LET_GO_NS (10ull * 1000000000u)

/* --- the volume ------------------------------------------------------------------------- */

/* Ours alone? Those of a killed import are let go of when somebody notices. */
static int volume_alone(struct import *import)
{
	struct ctl *ctl = import->ctl;
	struct xseg_volume_info now;
	uint64_t limit = ctl->timeout_ns < LET_GO_NS ? ctl->timeout_ns : LET_GO_NS;
	uint64_t until = clock_now_ns() + limit;
	int rc = ctl_volume_find(ctl, &import->client, import->info.name, &now);
	while (!rc && now.id == import->info.id && now.opens > 1 && clock_now_ns() < until &&
		!ctl_ask_interrupted()) {
		poll(NULL, 0, 50);
		rc = ctl_volume_find(ctl, &import->client, import->info.name, &now);
	}
	if (rc || (now.id == import->info.id && now.opens == 1))
		return rc;
	return fault_set(&ctl->fault, FAULT_BUSY, import->info.name,
		"'xsegctl job list' shows by whom", "volume '%s' is being imported",
		import->info.name);
}

static int volume_open(struct import *import)
{
	int rc = ctl_volume_open(&import->client, 0, import->info.id, &import->info.term);
	return rc ? ctl_volume_fault(import->ctl, import->info.name, "cannot be opened", rc) : 0;
}

static int resume_check(struct import *import, const struct xseg_volume_info *found)
{
	struct ctl *ctl = import->ctl;
	struct map_head_info head;
	const char *name = found->name;
	if (found->state != XSEG_VOLUME_IMPORTING)
		return fault_set(&ctl->fault, FAULT_CONFLICT, name,
			"choose another name, or remove it with 'xsegctl volume rm'",
			"volume '%s' exists", name);
	if (found->size != import->info.size ||
		(ctl_option_given(ctl, "object-size") &&
			found->object_size != import->info.object_size))
		return fault_set(&ctl->fault, FAULT_CONFLICT, name,
			"'xsegctl volume rm' removes it",
			"volume '%s' is half imported, and was to have %llu bytes in objects of %u",
			name, (unsigned long long)found->size, found->object_size);
	int rc = import->base.id ? ctl_map_head(&import->client, found->id, &head) : 0;
	if (rc)
		return ctl_volume_fault(ctl, name, "cannot be asked", rc);
	if (import->base.id && head.parent != import->base.id)
		return fault_set(&ctl->fault, FAULT_CONFLICT, name,
			"'xsegctl volume rm' removes it",
			"volume '%s' is half imported, and not on the base '%s'", name,
			import->base.name);
	return 0;
}

/* What a killed import has left is gone on with. */
static int volume_resume(struct import *import)
{
	struct xseg_volume_info found;
	char id[24];
	import->info.id = 0; /* not ours to remove */
	int rc = ctl_work_tidy_all(import->ctl, import->work->job.segment);
	if (!rc)
		rc = ctl_volume_find(import->ctl, &import->client, import->info.name, &found);
	if (!rc)
		rc = resume_check(import, &found);
	if (rc)
		return rc;
	import->info = found;
	rc = volume_open(import);
	if (!rc) {
		rc = volume_alone(import);
		if (rc)
			ctl_volume_tell(&import->client, XSEG_OP_CLOSE, found.id, 0);
	}
	if (rc) {
		import->info.id = 0;
		return rc;
	}
	snprintf(id, sizeof(id), "%016llx", (unsigned long long)found.id);
	job_note(&import->work->job, "id", json_string(id));
	import->compare = import->resumed = true;
	return 0;
}

/* A clone of the base that is not served before it is ready, or an empty volume. */
static int volume_ask(struct import *import)
{
	struct xseg_volume_info info = import->info;
	if (!import->base.id)
		return ctl_volume_ask(&import->client, XSEG_OP_CREATE, &info);
	struct map_ask ask = {.id = info.id,
		.size = info.size == import->base.size ? 0 : info.size,
		.created_ns = time_wall_ns(),
		.state = XSEG_VOLUME_IMPORTING};
	struct ctl_map_call call = {.what = MAP_CLONE, .volume = import->base.id, .ask = &ask};
	uint64_t limit = import->client.timeout_ns;
	snprintf(ask.name, sizeof(ask.name), "%s", info.name);
	ctl_copy_patience(import->ctl, &import->client);
	int rc = ctl_map_call(&import->client, &call);
	import->client.timeout_ns = limit;
	return rc;
}

static int volume_make(struct import *import)
{
	struct ctl *ctl = import->ctl;
	const char *name = ctl->argv[1];
	char id[24];
	import->info.object_size = import->base.object_size;
	import->info.state = XSEG_VOLUME_IMPORTING;
	snprintf(import->info.name, sizeof(import->info.name), "%s", name);
	int rc = ctl_volume_object_size(ctl, &import->info.object_size);
	if (rc)
		return rc;
	/* our own, so that we know what to remove when no answer comes */
	import->info.id = ctl_map_draw_id();
	snprintf(id, sizeof(id), "%016llx", (unsigned long long)import->info.id);
	/* known before it is there: whoever comes after us can say what it is */
	int made = job_note(&import->work->job, "id", json_string(id));
	if (!made)
		made = volume_ask(import);
	if (made == -EEXIST)
		return volume_resume(import);
	if (made)
		return ctl_volume_fault(ctl, name, "cannot be made", made);
	import->compare = import->base.id != 0;
	return volume_open(import);
}

static int make_ready(struct import *import)
{
	struct client *client = &import->client;
	const char *name = import->info.name;
	struct xseg_volume_info ready = import->info;
	ctl_copy_patience(import->ctl, client);
	int rc = ctl_volume_tell(client, XSEG_OP_FLUSH, import->info.id, import->info.term);
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

/* Waits for what is under way, then takes away what was made. The first error stays. */
static void volume_undo(struct import *import)
{
	struct fault first = import->ctl->fault;
	bool keep = import->resumed || ctl_option_given(import->ctl, "keep");
	ctl_copy_drain(import->ctl, &import->client);
	ctl_copy_patience(import->ctl, &import->client);
	ctl_volume_tell(&import->client, XSEG_OP_CLOSE, import->info.id, 0);
	int rc = keep ? 0 : ctl_volume_tell(&import->client, XSEG_OP_REMOVE, import->info.id, 0);
	import->ctl->fault = first;
	if (keep)
		fault_hint(&import->ctl->fault,
			"what was imported is kept: said again it goes on, 'xsegctl volume rm "
			"%.128s' removes it",
			import->info.name);
	if (rc && rc != -ENOENT)
		fault_hint(&import->ctl->fault,
			"what was imported is still there: 'xsegctl volume rm %.128s' removes it",
			import->info.name);
}

static const struct ctl_column import_columns[] = {{"name", "name", CTL_TEXT},
	{"size", "size", CTL_SIZE}, {"data", "data", CTL_SIZE}, {"same", "there already", CTL_SIZE},
	{"zeros", "zeros skipped", CTL_SIZE}, {"duration_ns", "time", CTL_TIME},
	{"mb_per_s", "MB/s", CTL_TEXT}, {"dry_run", "dry run", CTL_TEXT}};

static void report(struct import *import)
{
	uint64_t size = import->info.size;
	import->work->result = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:b, s:b}",
		"name", import->info.name, "size", (json_int_t)size, "object_size",
		(json_int_t)import->info.object_size, "data", (json_int_t)import->written, "same",
		(json_int_t)import->same, "zeros",
		(json_int_t)(size - import->written - import->same), "duration_ns",
		(json_int_t)(clock_now_ns() - import->work->progress.start_ns), "mb_per_s",
		ctl_progress_rate(&import->work->progress, size), "resumed", import->resumed,
		"changed", 1);
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
	if (!ctl_import_is_raw(import))
		rc = ctl_volume_image_open(
			import->ctl, import->path, import->format, false, &import->image);
	import->image.chunk = import->plan.chunk;
	if (!rc)
		rc = volume_make(import);
	if (!rc)
		rc = ctl_import_copy(import);
	ctl_volume_image_close(&import->image);
	if (!rc)
		rc = make_ready(import);
	work->done = import->at;
	if (rc && import->info.id)
		volume_undo(import);
	else if (!rc)
		ctl_volume_tell(&import->client, XSEG_OP_CLOSE, import->info.id, 0);
	client_close(&import->client);
	if (!rc)
		report(import);
	return rc;
}

/* --- one that was killed ------------------------------------------------------------------ */

int ctl_import_tidy(struct ctl *ctl, const json_t *detail, bool *whole, const char **left)
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
	rc = ctl_volume_find(ctl, &client, name, &info);
	client_close(&client);
	if (rc && rc != -FAULT_NOT_FOUND)
		return rc;
	memset(&ctl->fault, 0, sizeof(ctl->fault));
	bool found = !rc && info.id == id;
	*whole = found && info.state == XSEG_VOLUME_READY;
	if (found && !*whole)
		*left = "what was imported is kept: said again it goes on, 'xsegctl volume rm' "
			"removes it";
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
	bool there = rc == 0;
	import->info.object_size = there ? found.object_size : 0;
	if (!rc)
		rc = ctl_volume_object_size(ctl, &import->info.object_size);
	if (!rc)
		rc = resume_check(import, &found);
	client_close(&import->client);
	if (rc && rc != -FAULT_NOT_FOUND)
		return rc;
	memset(&ctl->fault, 0, sizeof(ctl->fault));
	ctl_output_one(ctl,
		json_pack("{s:s, s:I, s:b, s:b, s:b}", "name", ctl->argv[1], "size",
			(json_int_t)import->info.size, "resumed", there, "changed", 0, "dry_run",
			1),
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
	if (ctl_option_given(ctl, "dry-run"))
		return plan(import);
	return ctl_work_run(
		&work, json_pack("{s:s, s:s}", "volume", ctl->argv[1], "file", import->path));
}

/* The base must be there, and a clone is never smaller than what it is made of. */
static int base_find(struct import *import)
{
	struct ctl *ctl = import->ctl;
	struct xseg_volume_info *base = &import->base;
	const char *name = ctl_option_value(ctl, "base");
	if (!name)
		return 0;
	if (ctl_option_given(ctl, "object-size"))
		return fault_set(&ctl->fault, FAULT_USAGE, name, NULL,
			"--base and --object-size do not go together: a clone has the objects of "
			"its source");
	int rc = ctl_map_open(ctl, name, &import->client, base);
	if (rc)
		return rc;
	client_close(&import->client);
	rc = ctl_map_changeable(ctl, base);
	if (!rc && base->state != XSEG_VOLUME_READY)
		rc = fault_set(
			&ctl->fault, FAULT_BUSY, name, NULL, "volume '%s' is not ready", name);
	if (!rc && import->info.size < base->size)
		rc = fault_set(&ctl->fault, FAULT_USAGE, name,
			"--size makes it larger; the rest is empty",
			"the base '%s' has %llu bytes, what is imported %llu", name,
			(unsigned long long)base->size, (unsigned long long)import->info.size);
	return rc;
}

/* Before anything is made or read. */
static int size_check(struct import *import)
{
	struct xseg_volume_info wanted = {
		.size = import->info.size, .object_size = import->base.object_size};
	snprintf(wanted.name, sizeof(wanted.name), "%s", import->ctl->argv[1]);
	int rc = ctl_volume_object_size(import->ctl, &wanted.object_size);
	return rc ? rc : ctl_volume_size_check(import->ctl, &wanted, "cannot be made");
}

static int run_import(struct ctl *ctl)
{
	struct import import = {.ctl = ctl, .path = ctl->argv[0], .fd = -1};
	int rc = ctl_volume_new_name_check(ctl, ctl->argv[1]);
	import.buffer = malloc(CTL_COPY_CHUNK_MAX);
	import.present = malloc(CTL_COPY_CHUNK_MAX);
	must(import.buffer && import.present);
	if (!rc)
		rc = ctl_import_source_open(&import);
	if (!rc)
		rc = ctl_import_source_size(&import);
	if (!rc)
		rc = base_find(&import);
	if (!rc)
		rc = size_check(&import);
	if (!rc)
		rc = import_run(&import);
	if (import.fd >= 0)
		close(import.fd);
	free(import.buffer);
	free(import.present);
	return rc;
}

static const struct ctl_option option_format = {"format", 0, "FORMAT",
	"raw (default), qcow2 or what else qemu-img reads; auto: what the file's name says", NULL};
static const struct ctl_option option_backing = {"allow-backing", 0, NULL,
	"the image may have its data in other files: backing, data and extent files", NULL};
static const struct ctl_option option_base = {"base", 0, "VOLUME",
	"a snapshot or volume that it is like: only what differs is written and takes space", NULL};
static const struct ctl_option option_keep = {"keep", 0, NULL,
	"when it fails or is cancelled, what was imported stays, for the next attempt", NULL};

const struct ctl_verb ctl_import_verb = {
	"volume",
	"import",
	"FILE NAME",
	2,
	2,
	"make a volume of an image",
	"\tRaw, or with *--format*, qemu-img and qemu-nbd any format that they read. What is in "
	"FILE "
	"is never asked for its format: it may be a guest's, who could have the header of another "
	"format in it. Nor are other files read that an image names, unless *--allow-backing* "
	"is said. Holes and blocks of zeros take no space. FILE may be a "
	"block device, or - for stdin (with --size when its size cannot be told).\n\n"
	"\tThe volume is not served before it is whole. When something fails, or on ^C, nothing is "
	"left of it, unless *--keep* was said or it was gone on with. What a killed import (or one "
	"whose machine has "
	"died) leaves is in the state importing; the same command goes on with it: it reads what "
	"is there, compares it with FILE, and writes what differs.\n\n"
	"\tWith *--base* the volume is a clone of VOLUME, in which the blocks of 4 KiB that differ "
	"from FILE are written. They are compared byte by byte.\n\n"
	"\tIt is a job (see *job list*) that goes on when the terminal is gone.\n",
	run_import,
	{&ctl_volume_option_size, &ctl_volume_option_object_size, &option_format, &option_backing,
		&option_base, &option_keep, &ctl_option_progress, &ctl_option_via,
		&ctl_option_detach, &ctl_option_dry_run},
	.examples = "xsegctl volume import debian.raw disk --progress=plain\n"
		    "xsegctl volume import debian.raw disk --detach\n"
		    "xsegctl volume import debian-12.qcow2 debian-12\n"
		    "xsegctl volume import debian-12.1.qcow2 debian-12.1 --base golden\n"
		    "zcat image.gz | xsegctl volume import - disk --size 10G\n",
};
