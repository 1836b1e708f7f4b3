/* SPDX-License-Identifier: Apache-2.0 */
/* mount and umount: a volume of another host, with all that is needed for it, by one command. */
#include <base/must.h>
#include <base/path.h>
#include <base/time.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/ctl/ctl_volume.h"
#include "tools/report/program.h"
#include "tools/report/report.h"

#define PORT "7070"
#define FILE_NAME "mount.conf"
#define LOOK_NS 200000000u
#define STEP_LIMIT_NS (600ull * 1000000000u) /* of what has a limit of its own */

static const struct ctl_option option_near = {
	"near", 0, "DIR", "keep all of it here as well: read while the link is away", NULL};
static const struct ctl_option option_memory = {
	"memory", 0, "SIZE", "of the segment; the cache takes half of it (default 1G)", NULL};
static const struct ctl_option option_name = {
	"name", 0, "NAME", "of the segment (default: the volume's)", NULL};
static const struct ctl_option option_tls = {"tls", 0, "DIR",
	"with ca.crt, crl.pem, and NAME.crt and NAME.key (default /etc/skerry/tls)", NULL};
static const struct ctl_option option_cert = {
	"cert", 0, "NAME", "which certificate is shown (default: the host's name)", NULL};
static const struct ctl_option option_clear = {
	"clear-text", 0, NULL, "no TLS to another host: whoever is on the way reads all", NULL};
static const struct ctl_option option_create = {
	"create", 0, "SIZE", "make the volume, if it is not there", NULL};
static const struct ctl_option option_wait = {
	"wait", 0, NULL, "return when all of it is near", NULL};

static const struct ctl_column columns[] = {{"uri", "uri", CTL_TEXT},
	{"segment", "segment", CTL_TEXT}, {"volume", "volume", CTL_TEXT},
	{"near", "near", CTL_TEXT}};

struct mount {
	struct ctl *ctl;
	bool tls;
	char remote[512]; /* of synapse_import */
	char volume[VOLUME_NAME_LENGTH_MAX + 1], segment[NAME_LENGTH_MAX + 1];
	char folder[PATH_LENGTH_MAX], file[PATH_LENGTH_MAX], socket[PATH_LENGTH_MAX];
	char near[PATH_LENGTH_MAX]; /* absolute; "": in memory only */
	uint64_t memory;
};

/* --- what is asked for ------------------------------------------------------------------------ */

static int bad_uri(struct ctl *ctl, const char *uri)
{
	return fault_set(&ctl->fault, FAULT_USAGE, uri,
		"skerry+tls://HOST[:" PORT "]/VOLUME, skerry+tcp://HOST[:" PORT
		"]/VOLUME or skerry+unix:///VOLUME?socket=PATH",
		"'%s' does not say where a volume is", uri);
}

/* "%20" -> " "; false: no good. */
static bool decode(char *text)
{
	char *to = text;
	for (; *text; text++) {
		char hex[3] = "", *end = hex;
		if (*text != '%') {
			*to++ = *text;
			continue;
		}
		if (text[1] && text[2])
			memcpy(hex, text + 1, 2);
		*to++ = (char)strtoul(hex, &end, 16);
		if (end != hex + 2)
			return false;
		text += 2;
	}
	*to = 0;
	return true;
}

static bool read_uri(struct mount *mount, const char *uri)
{
	char rest[512];
	bool local = strncmp(uri, "skerry+unix:///", 15) == 0;
	mount->tls = strncmp(uri, "skerry+tls://", 13) == 0;
	if (!mount->tls && !local && strncmp(uri, "skerry+tcp://", 13))
		return false;
	snprintf(rest, sizeof(rest), "%s", uri + (local ? 15 : 13));
	char *volume = local ? rest : strchr(rest, '/');
	char *query = strchr(rest, '?');
	if (query)
		*query++ = 0;
	if (!volume || (local && (!query || strncmp(query, "socket=", 7))) || (!local && query))
		return false;
	if (!local)
		*volume++ = 0;
	if (!decode(volume) || (query && !decode(query)) || !name_check_volume(volume))
		return false;
	snprintf(mount->volume, sizeof(mount->volume), "%.*s", VOLUME_NAME_LENGTH_MAX, volume);
	const char *colon = strrchr(rest, ':'), *bracket = strrchr(rest, ']');
	bool port = colon && (!bracket || colon > bracket);
	if (local)
		snprintf(mount->remote, sizeof(mount->remote), "unix:%s", query + 7);
	else
		snprintf(mount->remote, sizeof(mount->remote), "tcp:%.400s%s", rest,
			port ? "" : ":" PORT);
	return local || *rest;
}

static int read_near(struct mount *mount)
{
	const char *near = ctl_option_value(mount->ctl, "near");
	char *real;
	if (!near)
		return 0;
	int error = path_make_dir(near);
	real = error ? NULL : realpath(near, NULL);
	if (!real || strlen(real) > sizeof(mount->near) - 16)
		error = error ? error : -ENAMETOOLONG;
	else
		snprintf(mount->near, sizeof(mount->near), "%s", real);
	free(real);
	return error ? fault_set(&mount->ctl->fault, FAULT_FAILED, near, NULL,
			       "the folder '%s' cannot be used: %s", near, strerror(-error))
		     : 0;
}

static int read_name(struct mount *mount, const char *name)
{
	bool fits = name_check(name);
	if (!fits)
		return fault_set(&mount->ctl->fault, FAULT_USAGE, name,
			"--name NAME says how the segment is called",
			"'%s' is no name of a segment", name);
	snprintf(mount->segment, sizeof(mount->segment), "%.*s", NAME_LENGTH_MAX, name);
	int error = path_run(mount->folder, name, NULL);
	error = error ? error : path_run(mount->file, name, FILE_NAME);
	error = error ? error : path_run(mount->socket, name, "nbd.sock");
	return error ? fault_set(&mount->ctl->fault, FAULT_USAGE, name, NULL, "'%s': %s", name,
			       strerror(-error))
		     : 0;
}

static int read_wish(struct mount *mount)
{
	struct ctl *ctl = mount->ctl;
	const char *name = ctl_option_value(ctl, "name");
	mount->memory = 1ull << 30;
	if (!read_uri(mount, ctl->argv[0]))
		return bad_uri(ctl, ctl->argv[0]);
	int rc = read_name(mount, name ? name : mount->volume);
	if (!rc && ctl_option_given(ctl, "wait") && !ctl_option_given(ctl, "near"))
		rc = fault_set(&ctl->fault, FAULT_USAGE, "wait", "add --near DIR",
			"--wait needs a place that holds all of the volume");
	if (!rc)
		rc = ctl_option_size(ctl, "memory", &mount->memory);
	if (!rc && mount->memory < (64u << 20))
		rc = fault_set(&ctl->fault, FAULT_USAGE, "memory", "say --memory 256M, for one",
			"--memory must be 64M at least");
	return rc ? rc : read_near(mount);
}

/* --- the pipeline file ------------------------------------------------------------------------ */

static void write_link(const struct mount *mount, FILE *out)
{
	const char *tls = ctl_option_value(mount->ctl, "tls");
	const char *cert = ctl_option_value(mount->ctl, "cert");
	char host[64] = "", list[PATH_LENGTH_MAX];
	fprintf(out, "\n[peer far0]\nrole=synapse_import\nhost=disk\nremote=%s\ntimeout=0\n",
		mount->remote);
	if (ctl_option_given(mount->ctl, "clear-text"))
		fputs("clear-text=yes\n", out);
	if (!mount->tls)
		return;
	gethostname(host, sizeof(host) - 1);
	host[strcspn(host, ".")] = 0;
	tls = tls ? tls : "/etc/skerry/tls";
	cert = cert ? cert : host;
	fprintf(out, "tls-ca=%s/ca.crt\ntls-cert=%s/%s.crt\ntls-key=%s/%s.key\n", tls, tls, cert,
		tls, cert);
	snprintf(list, sizeof(list), "%.200s/crl.pem", tls);
	if (access(list, R_OK) == 0)
		fprintf(out, "tls-crl=%s\n", list);
}

static void write_near(const struct mount *mount, FILE *out)
{
	fputs("\n[peer tier0]\nrole=tier\nhost=disk\nedge.store=far0\nedge.store-near=near0\n",
		out);
	/* what is in memory only must not outgrow it */
	if (*mount->near)
		fprintf(out, "\n[peer near0]\nrole=blocker_file\nhost=disk\ndir=%s/objects\n",
			mount->near);
	else
		fprintf(out,
			"size=%llu\n\n[peer near0]\nrole=blocker_memory\nhost=disk\nsize=%llu\n",
			(unsigned long long)mount->memory / 4,
			(unsigned long long)mount->memory / 3);
}

static void write_pipeline(const struct mount *mount, FILE *out)
{
	uint64_t cache = mount->memory / (*mount->near ? 2 : 4);
	fprintf(out,
		"# xsegctl mount %s\n[segment]\nname=%s\nsize=%llu\n\n[host disk]\n\n"
		"[peer nbd0]\nrole=front_nbd\nlisten=unix:%s\nexport=%s\nedge.volume=vol0\n\n"
		"[peer vol0]\nrole=volume\nhost=disk\nedge.store=cache0\nedge.map=map0\n\n"
		"[peer map0]\nrole=mapperd\nhost=disk\nedge.store=tier0\n\n"
		"[peer cache0]\nrole=cached\nhost=disk\nedge.store=tier0\nsize=%llu\nbypass=0\n",
		mount->ctl->argv[0], mount->segment, (unsigned long long)mount->memory,
		mount->socket, mount->volume, (unsigned long long)cache);
	if (*mount->near)
		fprintf(out, "journal=%s/journal\njournal-size=%llu\nack=journal\n", mount->near,
			(unsigned long long)cache);
	write_near(mount, out);
	write_link(mount, out);
}

/* The pipeline's text; malloc'd. */
static char *pipeline_text(const struct mount *mount)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	must(out);
	write_pipeline(mount, out);
	must(fclose(out) == 0);
	return text;
}

/* Is that what the file has? */
static bool is_written(const struct mount *mount, const char *text)
{
	size_t size = strlen(text);
	char *have = malloc(size + 2);
	FILE *in = fopen(mount->file, "re");
	must(have);
	bool same = in && fread(have, 1, size + 1, in) == size && !memcmp(have, text, size);
	if (in)
		fclose(in);
	free(have);
	return same;
}

static int put_file(const struct mount *mount, const char *text)
{
	char path[PATH_LENGTH_MAX + 8];
	int error = path_make_dir(mount->folder);
	snprintf(path, sizeof(path), "%s.new", mount->file);
	FILE *out = error ? NULL : fopen(path, "we");
	if (!out)
		return error ? error : -errno;
	bool bad = fputs(text, out) < 0;
	if (fclose(out) || bad || rename(path, mount->file))
		return errno ? -errno : -EIO;
	return 0;
}

static bool is_up(const struct mount *mount)
{
	struct xseg seg;
	char why[XSEG_WHY_SIZE];
	if (xseg_segment_join(mount->segment, &seg, why))
		return false;
	xseg_segment_leave(&seg);
	return true;
}

static int write_file(const struct mount *mount)
{
	char *text = pipeline_text(mount);
	struct fault *fault = &mount->ctl->fault;
	int error = 0, rc = 0;
	if (!is_written(mount, text) && is_up(mount))
		rc = fault_set(fault, FAULT_CONFLICT, mount->segment,
			"'xsegctl umount' ends it; --name NAME gives this one another name",
			"segment '%s' is up already, and was not mounted like that",
			mount->segment);
	else
		error = put_file(mount, text);
	free(text);
	return error ? fault_set(fault, FAULT_FAILED, mount->file,
			       "SKERRY_RUN_DIR moves the folder", "'%s' cannot be written: %s",
			       mount->file, strerror(-error))
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
static bool is_near(const struct mount *mount)
{
	struct xseg seg;
	char why[XSEG_WHY_SIZE];
	if (xseg_segment_join(mount->segment, &seg, why))
		return false;
	json_t *stats = report_stats(&seg, "tier0");
	const json_t *tier = json_array_get(stats, 0);
	bool near = report_counter(tier, "listed") > 0 && report_counter(tier, "left") == 0;
	json_decref(stats);
	xseg_segment_leave(&seg);
	return near;
}

static int wait_near(struct mount *mount)
{
	while (!is_near(mount)) {
		if (ctl_ask_interrupted())
			return ctl_ask_interrupted_fault(mount->ctl, mount->segment);
		time_nap(LOOK_NS);
	}
	return 0;
}

/* It is opened once: then it is ours, and the tier begins to fetch it. */
static int use_volume(struct mount *mount, struct client *client)
{
	struct ctl *ctl = mount->ctl;
	const char *size = ctl_option_value(ctl, "create");
	struct xseg_volume_info info;
	uint64_t term;
	int rc = ctl_volume_find(ctl, client, mount->volume, &info);
	if (rc == -FAULT_NOT_FOUND && size) {
		memset(&ctl->fault, 0, sizeof(ctl->fault));
		rc = step(ctl,
			(char *[]){"volume", "create", mount->volume, "--size", (char *)size, "-s",
				mount->segment, NULL},
			NULL);
		rc = rc ? rc : ctl_volume_find(ctl, client, mount->volume, &info);
	}
	int error = rc ? 0 : ctl_volume_open(client, 0, info.id, &term);
	if (rc || error)
		return rc ? rc : ctl_volume_fault(ctl, mount->volume, "cannot be opened", error);
	if (ctl_option_given(ctl, "wait"))
		rc = wait_near(mount);
	ctl_volume_tell(client, XSEG_OP_CLOSE, info.id, 0);
	return rc;
}

/* What was not up before is not left up. */
static void undo(const struct mount *mount)
{
	struct fault first = mount->ctl->fault;
	step(mount->ctl, (char *[]){"down", (char *)mount->segment, "--yes", NULL}, NULL);
	mount->ctl->fault = first;
	unlink(mount->file);
}

static int begin(struct mount *mount)
{
	struct client client;
	json_t *up = NULL;
	int rc = write_file(mount);
	if (!rc)
		rc = step(mount->ctl, (char *[]){"up", mount->file, NULL}, &up);
	bool started = json_is_true(json_object_get(up, "changed"));
	json_decref(up);
	if (rc)
		return rc;
	mount->ctl->segment = mount->segment;
	rc = ctl_join_composer(mount->ctl, &client);
	if (!rc) {
		rc = use_volume(mount, &client);
		client_close(&client);
	}
	if (rc && started && !ctl_ask_interrupted())
		undo(mount);
	return rc;
}

static int run_mount(struct ctl *ctl)
{
	struct mount mount = {.ctl = ctl};
	json_t *said = NULL;
	int rc = read_wish(&mount);
	if (rc)
		return rc;
	if (ctl_option_given(ctl, "dry-run")) {
		write_pipeline(&mount, stdout);
		return 0;
	}
	ctl_ask_interrupt_catch();
	rc = begin(&mount);
	if (!rc)
		rc = step(ctl, (char *[]){"volume", "uri", mount.volume, "-s", mount.segment, NULL},
			&said);
	if (!rc)
		ctl_output_one(ctl,
			json_pack("{s:O, s:s, s:s, s:s}", "uri",
				json_object_get(
					json_array_get(json_object_get(said, "uris"), 0), "uri"),
				"segment", mount.segment, "volume", mount.volume, "near",
				*mount.near ? mount.near : "memory"),
			columns, countof(columns));
	json_decref(said);
	return rc;
}

const struct ctl_verb ctl_mount_verb = {
	"mount",
	NULL,
	"URI",
	1,
	1,
	"use a volume that another host exports",
	"\tURI is *skerry+tls://HOST[:7070]/VOLUME*; *skerry+tcp* is clear text, and "
	"*skerry+unix:///VOLUME?socket=PATH* a socket of this host. There a "
	"*skerry-role-synapse_export*(7) offers a store. Starts a pipeline of its own: an NBD "
	"front, "
	"a composer, a write-back cache, a *skerry-role-tier*(7) that fetches all of the volume in "
	"the background, and the importing end of the bridge. With *--near* what was fetched, and "
	"a "
	"journal of what was written, lie in a folder, and are found there the next time; without, "
	"in memory, as much as fits. While the link is away, what is near is read, and writes go "
	"on "
	"until the cache's dirty limit. *--dry-run* prints the pipeline file.\n",
	run_mount,
	{&option_near, &option_memory, &option_name, &option_tls, &option_cert, &option_clear,
		&option_create, &option_wait, &ctl_option_dry_run},
	.examples =
		"xsegctl mount skerry+tls://store1.example.net/disk --near /var/lib/skerry/disk\n"
		"nbdinfo \"$(xsegctl mount skerry+unix:///disk?socket=/run/out0.sock --json | jq "
		"-r .uri)\"\n",
};

/* --- umount ----------------------------------------------------------------------------------- */

static int run_umount(struct ctl *ctl)
{
	struct mount mount = {.ctl = ctl};
	static const struct ctl_column gone[] = {
		{"segment", "segment", CTL_TEXT}, {"changed", "changed", CTL_TEXT}};
	int rc = read_name(&mount, ctl->argv[0]);
	if (rc)
		return rc;
	if (access(mount.file, F_OK))
		return fault_set(&ctl->fault, FAULT_NOT_FOUND, mount.segment,
			"'xsegctl segment list' shows all there are",
			"nothing is mounted under the name '%s'", mount.segment);
	bool plan = ctl_option_given(ctl, "dry-run");
	char *words[] = {"down", mount.segment, plan ? "--dry-run" : NULL, NULL, NULL};
	if (ctl_option_given(ctl, "yes"))
		words[plan ? 3 : 2] = "--yes";
	rc = step(ctl, words, NULL);
	/* a pipeline that is not up any more has nothing to write back */
	if (rc && rc != -FAULT_NOT_FOUND)
		return rc;
	memset(&ctl->fault, 0, sizeof(ctl->fault));
	if (!plan)
		unlink(mount.file);
	ctl_output_one(ctl,
		json_pack("{s:s, s:b}", "segment", mount.segment, "changed", rc == 0 && !plan),
		gone, countof(gone));
	return 0;
}

const struct ctl_verb ctl_umount_verb = {
	"umount",
	NULL,
	"NAME",
	1,
	1,
	"end a mount; all that was written is at the other host then",
	"\tWhat cannot be written back, as the link is away, keeps the segment (exit status 5): "
	"mount it again to go on. What *--near* has stays there for the next time.\n",
	run_umount,
	{&ctl_option_yes, &ctl_option_dry_run},
	.examples = "xsegctl umount disk\n",
};
