/* SPDX-License-Identifier: Apache-2.0 */
/* mount and umount: a volume as a file, a device or a file system; first one of another host. */
#include "tools/ctl/ctl_mount.h"

#include <base/must.h>
#include <base/path.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_map.h"
#include "tools/ctl/ctl_rpc.h"

#define PEERS_MAX 256u
#define ARGUMENT_MAX 4096u

static const struct ctl_option option_near = {
	"near", 0, "DIR", "keep all of it here as well: read while the link is away", NULL};
static const struct ctl_option option_memory = {
	"memory", 0, "SIZE", "of the segment; the cache takes half of it (default 1G)", NULL};
static const struct ctl_option option_name = {
	"name", 0, "NAME", "of the segment (default: the volume's)", NULL};
static const struct ctl_option option_create = {
	"create", 0, "SIZE", "make the volume, if it is not there", NULL};
static const struct ctl_option option_wait = {
	"wait", 0, NULL, "return when all of it is near", NULL};

static const struct ctl_option option_device = {
	"device", 0, NULL, "as a block device (loop, with direct I/O)", NULL};
static const struct ctl_option option_fs = {
	"fs", 0, NULL, "the file system that is on it, on DIR", NULL};
static const struct ctl_option option_options = {
	"options", 'O', "LIST", "with --fs: for mount(8), such as noatime,discard", NULL};
static const struct ctl_option option_read_only = {
	"read-only", 0, NULL, "nothing can be written to it", NULL};

static const struct ctl_column columns[] = {{"volume", "VOLUME", CTL_TEXT},
	{"segment", "SEGMENT", CTL_TEXT}, {"file", "FILE", CTL_TEXT},
	{"device", "DEVICE", CTL_TEXT}, {"root", "FILE SYSTEM ON", CTL_TEXT}};

/* --- step by step ----------------------------------------------------------------------------- */

struct near {
	struct ctl *ctl;
	const struct ctl_mount_wish *wish;
	struct ctl_mounted *now;
	bool started, attached, rooted; /* by us */
};

static int wish_fault(struct near *near, enum fault_code code, const char *how)
{
	const char *volume = near->wish->volume;
	fault_set(&near->ctl->fault, code, volume, NULL, "volume '%s' %s", volume, how);
	fault_hint(&near->ctl->fault, "'xsegctl umount %s' ends that", volume);
	return -(int)code;
}

/* The composer's name; and the volume is there. */
static int find_volume(struct near *near, char composer[NAME_LENGTH_MAX + 1])
{
	struct xseg_volume_info info;
	struct client client;
	int rc = ctl_map_open(near->ctl, near->wish->volume, &client, &info);
	if (rc)
		return rc;
	client_close(&client);
	return ctl_join_composer_name(near->ctl, composer);
}

/* --- a file --- */

static void put_value(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (strchr(",\\", *text))
			putc('\\', out);
		putc(*text, out);
	}
}

static int start_peer(struct near *near, const char *composer)
{
	char argument[ARGUMENT_MAX] = "";
	struct ctl_mounted *now = near->now;
	FILE *out = fmemopen(argument, sizeof(argument), "w");
	must(out);
	fprintf(out, "%s=front_fuse,edge.volume=%s%s,path=", now->peer, composer,
		near->wish->read_only ? ",read-only=yes" : "");
	put_value(out, now->folder);
	fputs(",volume=", out);
	put_value(out, now->volume);
	if (fclose(out) || strlen(argument) >= sizeof(argument) - 1)
		return fault_set(&near->ctl->fault, FAULT_USAGE, now->folder, NULL,
			"'%s' is too long", now->folder);
	return ctl_mounted_ask(near->ctl, now->segment, "peer.start",
		json_pack("{s:s, s:I}", "peer", argument, "timeout_ns",
			(json_int_t)near->ctl->timeout_ns));
}

/* DIR, which is there; without one a folder of ours. */
static int choose_folder(struct near *near)
{
	struct ctl_mounted *now = near->now;
	char *folder = now->folder;
	const char *dir = near->wish->fs ? NULL : near->wish->dir;
	int error = 0;
	if (dir)
		error = strlen(dir) < PATH_LENGTH_MAX ? 0 : -ENAMETOOLONG;
	else if (!(error = path_run(folder, now->segment, now->peer)))
		error = path_make_dir(folder);
	if (error)
		return fault_set(&near->ctl->fault, FAULT_FAILED, dir,
			dir ? NULL : "SKERRY_RUN_DIR moves the folder", "the folder '%s': %s",
			dir ? dir : folder, strerror(-error));
	if (dir)
		memcpy(folder, dir, strlen(dir) + 1);
	return 0;
}

/* One that was stopped and is remembered, as whoever did it was killed. */
static bool forget_stopped(struct near *near)
{
	int rc = ctl_mounted_ask(near->ctl, near->now->segment, "peer.forget",
		json_pack("{s:s}", "peer", near->now->peer));
	memset(&near->ctl->fault, 0, sizeof(near->ctl->fault));
	return rc == 0;
}

static int start_numbered(struct near *near, unsigned number, const char *composer)
{
	struct ctl_mounted *now = near->now;
	snprintf(now->peer, sizeof(now->peer), "mount%u", number);
	int rc = choose_folder(near);
	rc = rc ? rc : start_peer(near, composer);
	if (rc == -FAULT_CONFLICT && forget_stopped(near))
		rc = start_peer(near, composer);
	/* whoever has the number now may be about to mount on it */
	if (rc && rc != -FAULT_CONFLICT && (!near->wish->dir || near->wish->fs))
		rmdir(now->folder);
	return rc;
}

/* Is it mounted? Then as far as it has got. */
static bool look(struct near *near)
{
	struct ctl_mounted *now = near->now;
	struct ctl_mounted_all found = ctl_mounted_list(now->segment);
	bool there = false;
	for (size_t i = 0; i < found.count; i++) {
		if (strcmp(found.all[i].volume, near->wish->volume) || found.all[i].dead)
			continue;
		*now = found.all[i];
		there = true;
	}
	free(found.all);
	return there;
}

/* A number may be in use: by what somebody else, or one of us that was killed, has just begun for
   the same volume. */
static int make_file(struct near *near)
{
	char composer[NAME_LENGTH_MAX + 1];
	int rc = find_volume(near, composer);
	if (rc)
		return rc;
	ctl_mounted_sweep(near->ctl, near->now->segment);
	for (unsigned i = 0; i < PEERS_MAX; i++) {
		memset(&near->ctl->fault, 0, sizeof(near->ctl->fault));
		rc = start_numbered(near, i, composer);
		if (rc != -FAULT_CONFLICT)
			break;
		if (look(near))
			return 0;
	}
	near->started = !rc;
	return rc;
}

/* What is there is what is wished for? */
static int check_file(struct near *near)
{
	const struct ctl_mount_wish *wish = near->wish;
	const struct ctl_mounted *now = near->now;
	char file[CTL_FILE_MAX], how[PATH_MAX + 64];
	struct stat st;
	if (wish->dir && !wish->fs && strcmp(wish->dir, now->folder)) {
		snprintf(how, sizeof(how), "is mounted on '%.200s' already", now->folder);
		return wish_fault(near, FAULT_CONFLICT, how);
	}
	ctl_mounted_file(now, file);
	if (stat(file, &st))
		return wish_fault(near, FAULT_FAILED, "is mounted, and its file is not there");
	bool read_only = !(st.st_mode & 0222);
	if (read_only != wish->read_only && !strchr(wish->volume, '@'))
		return wish_fault(near, FAULT_CONFLICT,
			read_only ? "is mounted already, read-only"
				  : "is mounted already, to be written to");
	return 0;
}

/* --- a device --- */

/* Of a file that cannot be written to losetup makes a device that cannot, either. */
static int make_device(struct near *near)
{
	struct ctl_mounted *now = near->now;
	char file[CTL_FILE_MAX], *device = NULL;
	char *words[] = {"losetup", "--find", "--show", "--direct-io=on", file, NULL};
	ctl_mounted_file(now, file);
	int rc = ctl_mounted_run(near->ctl, now->volume, words, &device);
	if (rc)
		return rc;
	snprintf(now->device, sizeof(now->device), "%s", device);
	free(device);
	near->attached = true;
	return 0;
}

/* --- a file system --- */

static int make_root(struct near *near)
{
	const struct ctl_mount_wish *wish = near->wish;
	struct ctl_mounted *now = near->now;
	bool read_only = wish->read_only || strchr(now->volume, '@');
	char options[512];
	snprintf(options, sizeof(options), "%s%s%s", read_only ? "ro" : "rw",
		wish->options ? "," : "", wish->options ? wish->options : "");
	char *words[] = {"mount", "-o", options, now->device, (char *)wish->dir, NULL};
	int rc = ctl_mounted_run(near->ctl, now->volume, words, NULL);
	if (rc) {
		fault_hint(&near->ctl->fault,
			"'xsegctl mount %s --device' and mkfs make a file system where there is "
			"none",
			now->volume);
		return rc;
	}
	snprintf(now->root, sizeof(now->root), "%s", wish->dir);
	near->rooted = true;
	return 0;
}

/* --- together --- */

static void undo(struct near *near)
{
	struct fault first = near->ctl->fault;
	int signal = ctl_ask_interrupt_block();
	memset(&near->ctl->fault, 0, sizeof(near->ctl->fault));
	int rc = 0;
	if (near->started)
		rc = ctl_mounted_end(near->ctl, near->now);
	else if (near->attached)
		rc = ctl_mounted_detach(near->ctl, near->now);
	near->ctl->fault = first;
	if (rc)
		fault_hint(&near->ctl->fault, "it is left half done: 'xsegctl umount %s'",
			near->now->volume);
	ctl_ask_interrupt_resume(signal);
}

static int go_on(struct near *near)
{
	return ctl_ask_interrupted() ? ctl_ask_interrupted_fault(near->ctl, near->wish->volume) : 0;
}

static int steps(struct near *near)
{
	const struct ctl_mount_wish *wish = near->wish;
	struct ctl_mounted *now = near->now;
	int rc = look(near) ? 0 : make_file(near);
	if (!rc && !near->started)
		rc = check_file(near);
	rc = rc ? rc : go_on(near);
	if (!rc && (wish->device || wish->fs) && !now->device[0])
		rc = make_device(near);
	rc = rc ? rc : go_on(near);
	if (!rc && wish->fs && now->root[0] && strcmp(now->root, wish->dir)) {
		char how[PATH_MAX + 64];
		snprintf(how, sizeof(how), "is mounted on '%.200s' already", now->root);
		return wish_fault(near, FAULT_CONFLICT, how);
	}
	if (!rc && wish->fs && !now->root[0])
		rc = make_root(near);
	return rc;
}

int ctl_mount_near(struct ctl *ctl, const char *segment, const struct ctl_mount_wish *wish,
	struct ctl_mounted *mounted, bool *changed)
{
	struct near near = {.ctl = ctl, .wish = wish, .now = mounted};
	memset(mounted, 0, sizeof(*mounted));
	snprintf(mounted->segment, sizeof(mounted->segment), "%s", segment);
	snprintf(mounted->volume, sizeof(mounted->volume), "%s", wish->volume);
	int rc = steps(&near);
	*changed = near.started || near.attached || near.rooted;
	if (rc)
		undo(&near);
	return rc;
}

/* --- mount ------------------------------------------------------------------------------------ */

static int run_list(struct ctl *ctl)
{
	struct ctl_mounted_all found = ctl_mounted_list(ctl->segment);
	json_t *rows = json_array();
	for (size_t i = 0; i < found.count; i++)
		json_array_append_new(rows, ctl_mounted_json(&found.all[i]));
	free(found.all);
	ctl_output_rows(ctl, "mounts", rows, columns, countof(columns));
	return 0;
}

static int read_dir(struct ctl *ctl, const char *dir, char real[PATH_MAX])
{
	struct stat st;
	if (!realpath(dir, real) || stat(real, &st) || !S_ISDIR(st.st_mode))
		return fault_set(
			&ctl->fault, FAULT_USAGE, dir, "mkdir makes one", "'%s' is no folder", dir);
	return 0;
}

static int read_wish(struct ctl *ctl, struct ctl_mount_wish *wish, char real[PATH_MAX])
{
	wish->device = ctl_option_given(ctl, "device");
	wish->fs = ctl_option_given(ctl, "fs");
	wish->read_only = ctl_option_given(ctl, "read-only");
	wish->options = ctl_option_value(ctl, "options");
	wish->dir = ctl->argc > 1 ? real : NULL;
	if (wish->fs && !wish->dir)
		return fault_set(&ctl->fault, FAULT_USAGE, "fs", "say which DIR",
			"--fs needs a folder to mount on");
	if (wish->device && wish->dir && !wish->fs)
		return fault_set(&ctl->fault, FAULT_USAGE, "device", "leave DIR out, or say --fs",
			"a device is not in a folder");
	if (wish->options && !wish->fs)
		return fault_set(&ctl->fault, FAULT_USAGE, "options", "add --fs",
			"--options are of a file system");
	return wish->dir ? read_dir(ctl, ctl->argv[1], real) : 0;
}

/* Options of the other way are no good. */
static int check_near(struct ctl *ctl)
{
	static const char *const theirs[] = {
		"near", "memory", "name", "tls", "cert", "clear-text", "create", "wait"};
	for (size_t i = 0; i < countof(theirs); i++)
		if (ctl_option_given(ctl, theirs[i]))
			return fault_set(&ctl->fault, FAULT_USAGE, theirs[i],
				"say skerry+tls://HOST/VOLUME, or leave it out",
				"--%s is for volumes of other hosts", theirs[i]);
	return 0;
}

void ctl_mount_steps(struct ctl *ctl, const char *const steps[][2], size_t count)
{
	static const struct ctl_column shown[] = {
		{"action", "ACTION", CTL_TEXT}, {"object", "OBJECT", CTL_TEXT}};
	json_t *rows = json_array();
	for (size_t i = 0; i < count; i++)
		json_array_append_new(rows,
			json_pack("{s:s, s:s}", "action", steps[i][0], "object", steps[i][1]));
	ctl_output_rows(ctl, "steps", rows, shown, countof(shown));
}

static int show_steps(struct ctl *ctl, const struct ctl_mount_wish *wish)
{
	const char *const steps[][2] = {{"start a front_fuse", wish->volume},
		{"attach a device", wish->volume}, {"mount", wish->dir}};
	ctl_mount_steps(ctl, steps, wish->fs ? 3 : wish->device ? 2 : 1);
	return 0;
}

static void print(struct ctl *ctl, json_t *row, bool changed)
{
	json_object_set_new(row, "changed", json_boolean(changed));
	bool root = *json_string_value(json_object_get(row, "root"));
	bool device = *json_string_value(json_object_get(row, "device"));
	ctl_output_one(ctl, row, columns, countof(columns) - !root - !device);
}

static int run_near(struct ctl *ctl, struct ctl_mount_wish *wish)
{
	char segment[NAME_LENGTH_MAX + 1];
	struct ctl_mounted mounted;
	bool changed;
	wish->volume = ctl->argv[0];
	int rc = check_near(ctl);
	rc = rc ? rc : ctl_join_segment_name(ctl, segment);
	if (!rc && ctl_option_given(ctl, "dry-run"))
		return show_steps(ctl, wish);
	rc = rc ? rc : ctl_mount_near(ctl, segment, wish, &mounted, &changed);
	if (!rc)
		print(ctl, ctl_mounted_json(&mounted), changed);
	return rc;
}

/* A pipeline of its own; then as it would be here. */
static int run_far(struct ctl *ctl, struct ctl_mount_wish *wish)
{
	static const struct ctl_column with_uri[] = {{"uri", "uri", CTL_TEXT},
		{"segment", "segment", CTL_TEXT}, {"volume", "volume", CTL_TEXT},
		{"near", "near", CTL_TEXT}, {"file", "file", CTL_TEXT},
		{"device", "device", CTL_TEXT}, {"root", "file system on", CTL_TEXT}};
	struct ctl_mount_far far;
	struct ctl_mounted mounted = {.segment = ""};
	bool changed = false, more = wish->device || wish->dir;
	json_t *uri = NULL;
	int rc = ctl_mount_far_read(&far, ctl);
	if (!rc && ctl_option_given(ctl, "dry-run"))
		ctl_mount_far_show(&far);
	if (rc || ctl_option_given(ctl, "dry-run"))
		return rc;
	wish->volume = far.uri.volume;
	rc = ctl_mount_far_begin(&far);
	if (rc)
		return rc;
	if (more)
		rc = ctl_mount_near(ctl, far.segment, wish, &mounted, &changed);
	rc = rc ? rc : ctl_mount_far_uri(&far, &uri);
	if (rc && far.started && !ctl_ask_interrupted())
		ctl_mount_far_undo(&far);
	if (rc)
		return rc;
	json_t *row = more ? ctl_mounted_json(&mounted) : json_object();
	json_object_set_new(row, "uri", uri);
	json_object_set_new(row, "segment", json_string(far.segment));
	json_object_set_new(row, "volume", json_string(far.uri.volume));
	json_object_set_new(row, "near", json_string(*far.near ? far.near : "memory"));
	json_object_set_new(row, "changed", json_boolean(changed || far.started));
	ctl_output_one(ctl, row, with_uri, more ? countof(with_uri) : 4);
	return 0;
}

static int run_mount(struct ctl *ctl)
{
	struct ctl_mount_wish wish = {0};
	char real[PATH_MAX];
	if (!ctl->argc)
		return run_list(ctl);
	int rc = read_wish(ctl, &wish, real);
	if (rc)
		return rc;
	ctl_ask_interrupt_catch();
	return strstr(ctl->argv[0], "://") ? run_far(ctl, &wish) : run_near(ctl, &wish);
}

const struct ctl_verb ctl_mount_verb = {
	"mount",
	NULL,
	"[VOLUME|URI [DIR]]",
	0,
	2,
	"a volume as a file, a device or a file system; also one of another host",
	"\tOf a volume or snapshot of this host it makes a file: in DIR, or in a folder of its "
	"own; "
	"with *--device* also a block device, and with *--fs* that device's file system is mounted "
	"on DIR. A peer *mountN*, a *skerry-role-front_fuse*(7), serves the file; when it, or the "
	"keeper, is killed, whoever uses the mount meets a pause. Said again it goes on from what "
	"is there, and changes nothing when all is; without arguments it lists what is mounted. "
	"Needs root.\n\n"
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
	"until the cache's dirty limit. It leaves an NBD URI, and with DIR or *--device* what they "
	"say. *--dry-run* prints the pipeline file.\n",
	run_mount,
	{&option_device, &option_fs, &option_options, &option_read_only, &option_near,
		&option_memory, &option_name, &ctl_uri_option_tls, &ctl_uri_option_cert,
		&ctl_uri_option_clear, &option_create, &option_wait, &ctl_option_via,
		&ctl_option_dry_run},
	.examples =
		"xsegctl mount disk\n"
		"xsegctl mount disk /mnt --fs\n"
		"mkfs.ext4 \"$(xsegctl mount new --device --json | jq -r .device)\"\n"
		"xsegctl mount skerry+tls://store1.example.net/disk --near /var/lib/skerry/disk\n"
		"nbdinfo \"$(xsegctl mount skerry+unix:///disk?socket=/run/out0.sock --json | jq "
		"-r .uri)\"\n",
};

/* --- umount ----------------------------------------------------------------------------------- */

static bool is_named(const struct ctl_mounted *mounted, const char *name, const char *real)
{
	char file[CTL_FILE_MAX];
	ctl_mounted_file(mounted, file);
	return !strcmp(mounted->volume, name) ||
	       (*real && (!strcmp(mounted->folder, real) || !strcmp(file, real) ||
				 !strcmp(mounted->device, real) || !strcmp(mounted->root, real)));
}

/* A path is looked for without asking whoever serves it: that may be dead. */
static void read_path(const char *name, char real[PATH_MAX])
{
	char copy[PATH_MAX], parent[PATH_MAX];
	real[0] = 0;
	if (!strchr(name, '/'))
		return;
	snprintf(copy, sizeof(copy), "%s", name);
	while (copy[1] && copy[strlen(copy) - 1] == '/')
		copy[strlen(copy) - 1] = 0;
	char *slash = strrchr(copy, '/');
	*slash = 0;
	if (realpath(slash == copy ? "/" : copy, parent) &&
		snprintf(real, PATH_MAX, "%s/%s", parent[1] ? parent : "", slash + 1) >= PATH_MAX)
		real[0] = 0;
}

static int not_mounted(struct ctl *ctl, const char *name)
{
	return fault_set(&ctl->fault, FAULT_NOT_FOUND, name,
		"'xsegctl mount' lists what is mounted; 'xsegctl segment list' shows all segments",
		"nothing is mounted under the name '%s'", name);
}

/* The one of that name; volumes of several segments may have it. */
static int find_named(struct ctl *ctl, const char *name, struct ctl_mounted *mounted)
{
	struct ctl_mounted_all found = ctl_mounted_list(ctl->segment);
	char real[PATH_MAX];
	size_t count = 0;
	int rc = 0;
	read_path(name, real);
	for (size_t i = 0; i < found.count; i++) {
		if (!is_named(&found.all[i], name, real))
			continue;
		if (count++ && strcmp(mounted->segment, found.all[i].segment))
			rc = fault_set(&ctl->fault, FAULT_USAGE, name, "say which with --segment",
				"'%s' is mounted out of several segments", name);
		*mounted = found.all[i];
	}
	free(found.all);
	return count ? rc : not_mounted(ctl, name);
}

static void print_gone(struct ctl *ctl, const char *segment, const char *volume, bool changed)
{
	static const struct ctl_column gone[] = {{"volume", "volume", CTL_TEXT},
		{"segment", "segment", CTL_TEXT}, {"changed", "changed", CTL_TEXT}};
	json_t *row = json_pack("{s:s, s:b}", "segment", segment, "changed", changed);
	if (volume)
		json_object_set_new(row, "volume", json_string(volume));
	ctl_output_one(ctl, row, volume ? gone : gone + 1, countof(gone) - !volume);
}

static int end_near(struct ctl *ctl, bool plan)
{
	struct ctl_mounted mounted;
	char segment[NAME_LENGTH_MAX + 1];
	int rc = find_named(ctl, ctl->argv[0], &mounted);
	const struct fault missing = ctl->fault;
	if (rc == -FAULT_NOT_FOUND && !plan && !ctl_join_segment_name(ctl, segment))
		ctl_mounted_sweep(ctl, segment);
	ctl->fault = missing;
	if (rc)
		return rc;
	ctl_join_run_dir(mounted.segment);
	rc = plan ? 0 : ctl_mounted_end(ctl, &mounted);
	if (!rc)
		print_gone(ctl, mounted.segment, mounted.volume, !plan);
	return rc;
}

static int end_far(struct ctl_mount_far *far, bool plan)
{
	int rc = plan ? 0 : ctl_mounted_end_all(far->ctl, far->segment);
	rc = rc ? rc : ctl_mount_far_end(far, plan);
	if (rc && rc != -FAULT_NOT_FOUND)
		return rc;
	memset(&far->ctl->fault, 0, sizeof(far->ctl->fault));
	print_gone(far->ctl, far->segment, NULL, rc == 0 && !plan);
	return 0;
}

static int run_umount(struct ctl *ctl)
{
	struct ctl_mount_far far = {.ctl = ctl};
	bool plan = ctl_option_given(ctl, "dry-run");
	if (name_check(ctl->argv[0])) {
		int rc = ctl_mount_far_name(&far, ctl->argv[0]);
		if (rc || !access(far.file, F_OK))
			return rc ? rc : end_far(&far, plan);
	}
	return end_near(ctl, plan);
}

const struct ctl_verb ctl_umount_verb = {
	"umount",
	NULL,
	"NAME",
	1,
	1,
	"end a mount: all that was written is in the volume then, or at the other host",
	"\tNAME is a volume or snapshot, or the path of its folder, file or device, or where its "
	"file "
	"system is mounted. The file system is unmounted, the device detached, the file's peer "
	"stopped; the first that somebody uses ends that (exit status 5), and nothing is lost. "
	"Also "
	"what is left where all processes were killed.\n\n"
	"\tFor a volume of another host NAME is its segment's. What cannot be written back, as the "
	"link is away, keeps the segment (exit status 5): mount it again to go on. What *--near* "
	"has stays there for the next time.\n",
	run_umount,
	{&ctl_option_yes, &ctl_option_dry_run},
	.examples = "xsegctl umount disk\n"
		    "xsegctl umount /mnt\n",
};
