/* SPDX-License-Identifier: Apache-2.0 */
/* mount and umount of another host's volume: a pipeline of its own, with all that it needs. */
#include <base/must.h>
#include <base/path.h>
#include <base/time.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/ctl/ctl_mount.h"
#include "tools/ctl/ctl_volume.h"
#include "tools/report/program.h"
#include "tools/report/report.h"

#define FILE_NAME "mount.conf"
#define LOOK_NS 200000000u
#define STEP_LIMIT_NS (600ull * 1000000000u) /* of what has a limit of its own */

/* --- what is asked for ------------------------------------------------------------------------ */

static int bad_uri(struct ctl *ctl, const char *uri)
{
	return fault_set(&ctl->fault, FAULT_USAGE, uri,
		"skerry+tls://HOST[:" CTL_URI_PORT "]/VOLUME, skerry+tcp://HOST[:" CTL_URI_PORT
		"]/VOLUME or skerry+unix:///VOLUME?socket=PATH",
		"'%s' does not say where a volume is", uri);
}

static int read_near(struct ctl_mount_far *far)
{
	const char *near = ctl_option_value(far->ctl, "near");
	char *real;
	if (!near)
		return 0;
	int error = path_make_dir(near);
	real = error ? NULL : realpath(near, NULL);
	if (!real || strlen(real) > sizeof(far->near) - 16)
		error = error ? error : -ENAMETOOLONG;
	else
		snprintf(far->near, sizeof(far->near), "%s", real);
	free(real);
	return error ? fault_set(&far->ctl->fault, FAULT_FAILED, near, NULL,
			       "the folder '%s' cannot be used: %s", near, strerror(-error))
		     : 0;
}

int ctl_mount_far_name(struct ctl_mount_far *far, const char *name)
{
	bool fits = name_check(name);
	if (!fits)
		return fault_set(&far->ctl->fault, FAULT_USAGE, name,
			"--name NAME says how the segment is called",
			"'%s' is no name of a segment", name);
	snprintf(far->segment, sizeof(far->segment), "%.*s", NAME_LENGTH_MAX, name);
	int error = path_run(far->folder, name, NULL);
	error = error ? error : path_run(far->file, name, FILE_NAME);
	error = error ? error : path_run(far->socket, name, "nbd.sock");
	return error ? fault_set(&far->ctl->fault, FAULT_USAGE, name, NULL, "'%s': %s", name,
			       strerror(-error))
		     : 0;
}

int ctl_mount_far_read(struct ctl_mount_far *far, struct ctl *ctl)
{
	far->ctl = ctl;
	const char *name = ctl_option_value(ctl, "name");
	far->memory = 1ull << 30;
	if (!ctl_uri_read(ctl->argv[0], &far->uri) || !far->uri.volume[0])
		return bad_uri(ctl, ctl->argv[0]);
	int rc = ctl_mount_far_name(far, name ? name : far->uri.volume);
	if (!rc && ctl_option_given(ctl, "wait") && !ctl_option_given(ctl, "near"))
		rc = fault_set(&ctl->fault, FAULT_USAGE, "wait", "add --near DIR",
			"--wait needs a place that holds all of the volume");
	if (!rc)
		rc = ctl_option_size(ctl, "memory", &far->memory);
	if (!rc && far->memory < (64u << 20))
		rc = fault_set(&ctl->fault, FAULT_USAGE, "memory", "say --memory 256M, for one",
			"--memory must be 64M at least");
	return rc ? rc : read_near(far);
}

/* --- the pipeline file ------------------------------------------------------------------------ */

static void write_link(const struct ctl_mount_far *far, FILE *out)
{
	fputs("\n[peer far0]\nrole=synapse_import\nhost=disk\ntimeout=0\n", out);
	ctl_uri_link(far->ctl, &far->uri, out);
}

static void write_near(const struct ctl_mount_far *far, FILE *out)
{
	fputs("\n[peer tier0]\nrole=tier\nhost=disk\nedge.store=far0\nedge.store-near=near0\n",
		out);
	/* what is in memory only must not outgrow it */
	if (*far->near)
		fprintf(out, "\n[peer near0]\nrole=blocker_file\nhost=disk\ndir=%s/objects\n",
			far->near);
	else
		fprintf(out,
			"size=%llu\n\n[peer near0]\nrole=blocker_memory\nhost=disk\nsize=%llu\n",
			(unsigned long long)far->memory / 4, (unsigned long long)far->memory / 3);
}

static void write_pipeline(const struct ctl_mount_far *far, FILE *out)
{
	uint64_t cache = far->memory / (*far->near ? 2 : 4);
	fprintf(out,
		"# xsegctl mount %s\n[segment]\nname=%s\nsize=%llu\n\n[host disk]\n\n"
		"[peer nbd0]\nrole=front_nbd\nlisten=unix:%s\nexport=%s\nedge.volume=vol0\n\n"
		"[peer vol0]\nrole=volume\nhost=disk\nedge.store=cache0\nedge.map=map0\nkeep=%s\n\n"
		"[peer map0]\nrole=mapperd\nhost=disk\nedge.store=tier0\n\n"
		"[peer cache0]\nrole=cached\nhost=disk\nedge.store=tier0\nsize=%llu\nbypass=0\n",
		far->ctl->argv[0], far->segment, (unsigned long long)far->memory, far->socket,
		far->uri.volume, far->uri.volume, (unsigned long long)cache);
	if (*far->near)
		fprintf(out, "journal=%s/journal\njournal-size=%llu\nack=journal\n", far->near,
			(unsigned long long)cache);
	write_near(far, out);
	write_link(far, out);
}

/* The pipeline's text; malloc'd. */
static char *pipeline_text(const struct ctl_mount_far *far)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	must(out);
	write_pipeline(far, out);
	must(fclose(out) == 0);
	return text;
}

/* Is that what the file has? */
static bool is_written(const struct ctl_mount_far *far, const char *text)
{
	size_t size = strlen(text);
	char *have = malloc(size + 2);
	FILE *in = fopen(far->file, "re");
	must(have);
	bool same = in && fread(have, 1, size + 1, in) == size && !memcmp(have, text, size);
	if (in)
		fclose(in);
	free(have);
	return same;
}

static int put_file(const struct ctl_mount_far *far, const char *text)
{
	char path[PATH_LENGTH_MAX + 8];
	int error = path_make_dir(far->folder);
	snprintf(path, sizeof(path), "%s.new", far->file);
	FILE *out = error ? NULL : fopen(path, "we");
	if (!out)
		return error ? error : -errno;
	bool bad = fputs(text, out) < 0;
	if (fclose(out) || bad || rename(path, far->file))
		return errno ? -errno : -EIO;
	return 0;
}

static bool is_up(const struct ctl_mount_far *far)
{
	struct xseg seg;
	char why[XSEG_WHY_SIZE];
	if (xseg_segment_join(far->segment, &seg, why))
		return false;
	xseg_segment_leave(&seg);
	return true;
}

static int write_file(const struct ctl_mount_far *far)
{
	char *text = pipeline_text(far);
	struct fault *fault = &far->ctl->fault;
	int error = 0, rc = 0;
	if (!is_written(far, text) && is_up(far))
		rc = fault_set(fault, FAULT_CONFLICT, far->segment,
			"'xsegctl umount' ends it; --name NAME gives this one another name",
			"segment '%s' is up already, and was not mounted like that", far->segment);
	else
		error = put_file(far, text);
	free(text);
	return error ? fault_set(fault, FAULT_FAILED, far->file, "SKERRY_RUN_DIR moves the folder",
			       "'%s' cannot be written: %s", far->file, strerror(-error))
		     : rc;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* Another xsegctl; what it says that is wrong is what we say. *result: what it prints, or NULL. */
static int step(struct ctl *ctl, char *const words[], json_t **result_json)
{
	char program[PATH_MAX], *argv[16] = {program};
	struct program_result result;
	unsigned count = 1;
	for (; words[count - 1]; count++)
		argv[count] = words[count - 1];
	argv[count] = "--json";
	must(count < countof(argv) - 1);
	int error = program_find("xsegctl", program);
	error = error ? error : program_run(argv, STEP_LIMIT_NS, &result);
	if (error)
		return fault_set(&ctl->fault, FAULT_FAILED, "xsegctl", NULL,
			"xsegctl cannot be run: %s", strerror(-error));
	int rc = 0;
	/* 'up' ends with 1 and no error when something is not well: a volume that is to be made */
	if (result.status != 0 && *result.err) {
		json_t *said = json_loads(result.err, 0, NULL);
		json_t *fault = json_object_get(said, "error");
		if (fault)
			fault_from_json(&ctl->fault, fault);
		else
			fault_set(&ctl->fault, FAULT_FAILED, words[0], NULL,
				"'xsegctl %s' failed: %s", words[0], result.err);
		rc = -(int)ctl->fault.code;
		json_decref(said);
	}
	if (result_json)
		*result_json = json_loads(result.out, 0, NULL);
	program_result_free(&result);
	return rc;
}

/* --- the volume ------------------------------------------------------------------------------- */

/* All that there is of it, as far as is known, is near. */
static bool is_near(const struct ctl_mount_far *far)
{
	struct xseg seg;
	char why[XSEG_WHY_SIZE];
	if (xseg_segment_join(far->segment, &seg, why))
		return false;
	json_t *stats = report_stats(&seg, "tier0");
	const json_t *tier = json_array_get(stats, 0);
	bool near = report_counter(tier, "listed") > 0 && report_counter(tier, "left") == 0;
	json_decref(stats);
	xseg_segment_leave(&seg);
	return near;
}

static int wait_near(struct ctl_mount_far *far)
{
	while (!is_near(far)) {
		if (ctl_ask_interrupted())
			return ctl_ask_interrupted_fault(far->ctl, far->segment);
		time_nap(LOOK_NS);
	}
	return 0;
}

/* It is opened once: then it is ours, and the tier begins to fetch it. */
static int use_volume(struct ctl_mount_far *far, struct client *client)
{
	struct ctl *ctl = far->ctl;
	const char *size = ctl_option_value(ctl, "create");
	struct xseg_volume_info info;
	uint64_t term;
	int rc = ctl_volume_find(ctl, client, far->uri.volume, &info);
	if (rc == -FAULT_NOT_FOUND && size) {
		memset(&ctl->fault, 0, sizeof(ctl->fault));
		rc = step(ctl,
			(char *[]){"volume", "create", far->uri.volume, "--size", (char *)size,
				"-s", far->segment, NULL},
			NULL);
		rc = rc ? rc : ctl_volume_find(ctl, client, far->uri.volume, &info);
	}
	int error = rc ? 0 : ctl_volume_open(client, 0, info.id, &term);
	if (rc || error)
		return rc ? rc : ctl_volume_fault(ctl, far->uri.volume, "cannot be opened", error);
	/* a cache's first flush is the store's, whatever it has in its journal */
	error = ctl_volume_tell(client, XSEG_OP_FLUSH, info.id, 0);
	if (error)
		rc = ctl_volume_fault(ctl, far->uri.volume, "cannot be flushed", error);
	if (!rc && ctl_option_given(ctl, "wait"))
		rc = wait_near(far);
	ctl_volume_tell(client, XSEG_OP_CLOSE, info.id, 0);
	return rc;
}

/* What was not up before is not left up. */
void ctl_mount_far_undo(const struct ctl_mount_far *far)
{
	struct fault first = far->ctl->fault;
	step(far->ctl, (char *[]){"down", (char *)far->segment, "--yes", NULL}, NULL);
	far->ctl->fault = first;
	unlink(far->file);
}

int ctl_mount_far_begin(struct ctl_mount_far *far)
{
	struct client client;
	json_t *up = NULL;
	int rc = write_file(far);
	if (!rc)
		rc = step(far->ctl, (char *[]){"up", far->file, NULL}, &up);
	far->started = json_is_true(json_object_get(up, "changed"));
	json_decref(up);
	if (rc)
		return rc;
	far->ctl->segment = far->segment;
	rc = ctl_join_composer(far->ctl, &client);
	if (!rc) {
		rc = use_volume(far, &client);
		client_close(&client);
	}
	if (rc && far->started && !ctl_ask_interrupted())
		ctl_mount_far_undo(far);
	return rc;
}

void ctl_mount_far_show(const struct ctl_mount_far *far) { write_pipeline(far, stdout); }

int ctl_mount_far_uri(const struct ctl_mount_far *far, json_t **uri)
{
	json_t *said = NULL;
	int rc = step(far->ctl,
		(char *[]){
			"volume", "uri", (char *)far->uri.volume, "-s", (char *)far->segment, NULL},
		&said);
	if (!rc)
		*uri = json_incref(
			json_object_get(json_array_get(json_object_get(said, "uris"), 0), "uri"));
	json_decref(said);
	return rc;
}

int ctl_mount_far_end(struct ctl_mount_far *far, bool plan)
{
	char *words[] = {"down", far->segment, plan ? "--dry-run" : NULL, NULL, NULL};
	if (ctl_option_given(far->ctl, "yes"))
		words[plan ? 3 : 2] = "--yes";
	int rc = step(far->ctl, words, NULL);
	/* a pipeline that is not up any more has nothing to write back */
	if ((!rc || rc == -FAULT_NOT_FOUND) && !plan)
		unlink(far->file);
	return rc;
}
