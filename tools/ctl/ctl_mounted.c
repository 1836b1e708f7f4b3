/* SPDX-License-Identifier: Apache-2.0 */
/* What is mounted, out of the kernel's tables, and its end. */
#include <base/clock.h>
#include <base/must.h>
#include <base/path.h>
#include <base/time.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <mntent.h>
#include <peer/client.h>
#include <peer/front.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_front.h"
#include "tools/ctl/ctl_mount.h"
#include "tools/ctl/ctl_rpc.h"
#include "tools/report/program.h"

#define MOUNTS "/proc/self/mounts"
#define LOOPS "/sys/block"
#define RUN_LIMIT_NS (600ull * 1000000000u)
#define FREE_NS (5ull * 1000000000u) /* so long a device that is let go of may still be there */
#define LOOK_NS 20000000u
#define LOOKS_DEVICE 100u
#define CHECK_NS 1000000000u

/* --- the kernel's tables ---------------------------------------------------------------------- */

/* "skerry:SEGMENT/mountN/VOLUME", as front_fuse calls what it mounts. */
static bool read_source(const char *source, struct ctl_mounted *mounted)
{
	const char *segment = source + strlen("skerry:");
	const char *peer = strncmp(source, "skerry:", 7) ? NULL : strchr(segment, '/');
	const char *volume = peer ? strchr(peer + 1, '/') : NULL;
	if (!volume || strncmp(peer, "/mount", 6) || !isdigit((unsigned char)peer[6]) ||
		peer - segment > NAME_LENGTH_MAX || volume - peer - 1 > NAME_LENGTH_MAX)
		return false;
	snprintf(
		mounted->segment, sizeof(mounted->segment), "%.*s", (int)(peer - segment), segment);
	snprintf(mounted->peer, sizeof(mounted->peer), "%.*s", (int)(volume - peer - 1), peer + 1);
	snprintf(mounted->volume, sizeof(mounted->volume), "%s", volume + 1);
	return true;
}

static bool is_dead(const char *folder)
{
	struct statvfs st;
	return statvfs(folder, &st) && errno == ENOTCONN;
}

/* A folder that is mounted a second time, by somebody, is the same; one that answers nobody is left
   of an earlier peer of that name. */
static bool is_known(const struct ctl_mounted_all *found, struct ctl_mounted *one)
{
	for (size_t i = 0; i < found->count; i++) {
		struct ctl_mounted *other = &found->all[i];
		if (strcmp(other->segment, one->segment) || strcmp(other->peer, one->peer))
			continue;
		other->dead = is_dead(other->folder);
		if (!other->dead)
			return true;
	}
	return false;
}

static void read_folders(struct ctl_mounted_all *found, const char *segment)
{
	FILE *table = setmntent(MOUNTS, "re");
	struct mntent *entry;
	while (table && (entry = getmntent(table))) {
		struct ctl_mounted one = {.segment = ""};
		if (strcmp(entry->mnt_type, "fuse.skerry") || !read_source(entry->mnt_fsname, &one))
			continue;
		size_t length = strlen(entry->mnt_dir);
		if (length < sizeof(one.folder))
			memcpy(one.folder, entry->mnt_dir, length + 1);
		if (!one.folder[0] || (segment && strcmp(segment, one.segment)) ||
			is_known(found, &one))
			continue;
		found->all = realloc(found->all, (found->count + 1) * sizeof(one));
		must(found->all);
		found->all[found->count++] = one;
	}
	if (table)
		endmntent(table);
}

/* What a loop device leads to; false: it is none, or leads nowhere. */
static bool read_backing(const char *name, char path[PATH_MAX])
{
	char file[128];
	snprintf(file, sizeof(file), LOOPS "/%.40s/loop/backing_file", name);
	FILE *in = strncmp(name, "loop", 4) ? NULL : fopen(file, "re");
	bool ok = in && fgets(path, PATH_MAX, in);
	if (in)
		fclose(in);
	if (ok)
		path[strcspn(path, "\n")] = 0;
	return ok;
}

static void read_devices(struct ctl_mounted_all *found)
{
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *loops = found->count ? opendir(LOOPS) : NULL;
	while (loops && (entry = readdir(loops))) {
		if (!read_backing(entry->d_name, path))
			continue;
		for (size_t i = 0; i < found->count; i++) {
			struct ctl_mounted *one = &found->all[i];
			size_t length = strlen(one->folder);
			if (!strncmp(path, one->folder, length) && path[length] == '/')
				snprintf(one->device, sizeof(one->device), "/dev/%.20s",
					entry->d_name);
		}
	}
	if (loops)
		closedir(loops);
}

static bool is_swap(const char *device)
{
	char line[PATH_MAX];
	size_t length = strlen(device);
	bool found = false;
	FILE *table = fopen("/proc/swaps", "re");
	while (table && !found && fgets(line, sizeof(line), table))
		found = !strncmp(line, device, length) && line[length] == ' ';
	if (table)
		fclose(table);
	return found;
}

/* Where the file system on a device is mounted last. */
static void read_root(const char *device, char root[PATH_MAX])
{
	FILE *table = setmntent(MOUNTS, "re");
	struct mntent *entry;
	snprintf(root, PATH_MAX, "%s", is_swap(device) ? CTL_MOUNTED_SWAP : "");
	while (table && (entry = getmntent(table)))
		if (!strcmp(entry->mnt_fsname, device))
			snprintf(root, PATH_MAX, "%s", entry->mnt_dir);
	if (table)
		endmntent(table);
}

struct ctl_mounted_all ctl_mounted_list(const char *segment)
{
	struct ctl_mounted_all found = {0};
	read_folders(&found, segment);
	read_devices(&found);
	for (size_t i = 0; i < found.count; i++)
		if (found.all[i].device[0])
			read_root(found.all[i].device, found.all[i].root);
	return found;
}

void ctl_mounted_file(const struct ctl_mounted *mounted, char file[CTL_FILE_MAX])
{
	snprintf(file, CTL_FILE_MAX, "%s/%s%s", mounted->folder,
		strchr(mounted->volume, '@') ? ".snapshots/" : "", mounted->volume);
}

json_t *ctl_mounted_json(const struct ctl_mounted *mounted)
{
	char file[CTL_FILE_MAX];
	ctl_mounted_file(mounted, file);
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "volume", mounted->volume, "segment",
		mounted->segment, "file", file, "device", mounted->device, "root", mounted->root,
		"peer", mounted->peer);
}

/* --- programs of the system ------------------------------------------------------------------- */

static int run_fault(struct ctl *ctl, const char *object, const char *program, const char *said)
{
	char line[256];
	program_last_line(said, line, sizeof(line));
	return fault_set(&ctl->fault, FAULT_FAILED, object, NULL, "'%s': %s failed%s%s", object,
		program, *line ? ": " : "", line);
}

int ctl_mounted_run(struct ctl *ctl, const char *object, char *const words[], char **out)
{
	char program[PATH_MAX], *argv[16] = {program};
	struct program_result result;
	unsigned count = 1;
	for (; words[count]; count++) {
		must(count < countof(argv) - 1);
		argv[count] = words[count];
	}
	int error = program_find(words[0], program);
	if (error)
		return fault_set(&ctl->fault, FAULT_FAILED, words[0],
			"it is in Debian's packages util-linux and mount",
			"there is no program '%s'", words[0]);
	error = program_run(argv, RUN_LIMIT_NS, &result);
	int rc = error || result.status
			 ? run_fault(ctl, object, words[0], error ? strerror(-error) : result.err)
			 : 0;
	if (!rc && out) {
		*out = result.out;
		result.out = NULL;
		(*out)[strcspn(*out, "\n")] = 0;
	}
	program_result_free(&result);
	return rc;
}

int ctl_mounted_ask(struct ctl *ctl, const char *segment, const char *method, json_t *params)
{
	json_t *result = NULL;
	int rc = ctl_rpc_insist(
		ctl, segment, method, params, clock_now_ns() + ctl->timeout_ns, &result);
	json_decref(result);
	return rc;
}

/* --- the end ---------------------------------------------------------------------------------- */

static int end_root(struct ctl *ctl, struct ctl_mounted *mounted)
{
	if (!strcmp(mounted->root, CTL_MOUNTED_SWAP))
		return fault_set(&ctl->fault, FAULT_BUSY, mounted->volume,
			"'xsegctl swap off' brings back what is in it", "volume '%s' is swap",
			mounted->volume);
	while (mounted->root[0]) {
		if (umount2(mounted->root, UMOUNT_NOFOLLOW)) {
			bool busy = errno == EBUSY;
			fault_set(&ctl->fault, busy ? FAULT_BUSY : FAULT_FAILED, mounted->root,
				NULL, "'%s' cannot be unmounted: %s", mounted->root,
				strerror(errno));
			if (busy)
				fault_hint(&ctl->fault, "'fuser -vm %s' shows who uses it",
					mounted->root);
			return -(int)ctl->fault.code;
		}
		read_root(mounted->device, mounted->root);
	}
	return 0;
}

static bool is_attached(const struct ctl_mounted *mounted)
{
	char path[PATH_MAX];
	return read_backing(mounted->device + strlen("/dev/"), path);
}

/* The kernel lets go of a device when the last program has closed it. */
int ctl_mounted_detach(struct ctl *ctl, const struct ctl_mounted *mounted)
{
	char *words[] = {"losetup", "--detach", (char *)mounted->device, NULL};
	uint64_t end_ns = clock_now_ns() + FREE_NS;
	int rc = mounted->device[0] ? ctl_mounted_run(ctl, mounted->device, words, NULL) : 0;
	if (!mounted->device[0] || (rc && is_attached(mounted)))
		return rc;
	memset(&ctl->fault, 0, sizeof(ctl->fault));
	while (is_attached(mounted)) {
		if (clock_now_ns() > end_ns)
			return fault_set(&ctl->fault, FAULT_BUSY, mounted->device,
				"'fuser -v' shows who has it; it goes when they close it",
				"device '%s' is in use", mounted->device);
		time_nap(LOOK_NS);
	}
	return 0;
}

/* And the folder, when it is one of ours. */
static int stop_peer(struct ctl *ctl, const char *segment, const char *peer)
{
	char ours[PATH_LENGTH_MAX];
	int rc = ctl_mounted_ask(ctl, segment, "peer.stop",
		json_pack("{s:s, s:I}", "peer", peer, "timeout_ns", (json_int_t)ctl->timeout_ns));
	if (!rc || rc == -FAULT_NOT_FOUND)
		rc = ctl_mounted_ask(ctl, segment, "peer.forget", json_pack("{s:s}", "peer", peer));
	if (rc == -FAULT_NOT_FOUND) { /* somebody else was faster */
		memset(&ctl->fault, 0, sizeof(ctl->fault));
		rc = 0;
	}
	if (!rc && !path_run(ours, segment, peer))
		rmdir(ours);
	return rc;
}

static int end_peer(struct ctl *ctl, const struct ctl_mounted *mounted)
{
	/* the kernel closes the file of a device that has gone a while later */
	const struct ctl_front_wish its = {
		.peer = mounted->peer, .looks = mounted->device[0] ? LOOKS_DEVICE : 0};
	char deed[VOLUME_NAME_LENGTH_MAX + 64];
	snprintf(deed, sizeof(deed), "unmount volume '%s'", mounted->volume);
	int rc = ctl_front_ask(ctl, &its, deed);
	return rc ? rc : stop_peer(ctl, mounted->segment, mounted->peer);
}

/* The segment may have gone, too. */
static bool is_known_peer(const struct ctl_mounted *mounted)
{
	char why[XSEG_WHY_SIZE];
	struct xseg_peer_view view;
	struct xseg seg;
	if (xseg_segment_join(mounted->segment, &seg, why))
		return false;
	bool known = !xseg_peer_find(&seg, mounted->peer, &view);
	xseg_segment_leave(&seg);
	return known;
}

/* A process that was killed just now has its folder until the last of its threads has ended. */
static bool is_left(const struct ctl_mounted *mounted)
{
	uint64_t end_ns = clock_now_ns() + FREE_NS;
	while (!is_dead(mounted->folder)) {
		if (clock_now_ns() > end_ns)
			return false;
		time_nap(LOOK_NS);
	}
	return true;
}

static int end_folder(struct ctl *ctl, const struct ctl_mounted *mounted)
{
	char ours[PATH_LENGTH_MAX];
	bool gone = !is_known_peer(mounted), left = mounted->dead || gone;
	int rc = left ? 0 : end_peer(ctl, mounted);
	if (rc == -FAULT_KEEPER_AWAY && is_left(mounted)) {
		memset(&ctl->fault, 0, sizeof(ctl->fault));
		left = true;
		rc = 0;
	}
	/* a process that was killed, with its keeper, has left it */
	if (!rc && left && umount2(mounted->folder, MNT_DETACH | UMOUNT_NOFOLLOW) &&
		errno != EINVAL)
		rc = fault_set(&ctl->fault, FAULT_FAILED, mounted->folder, NULL,
			"'%s' cannot be unmounted: %s", mounted->folder, strerror(errno));
	/* where the segment is still there its next keeper starts the peer again, on its folder */
	if (!rc && gone && !path_run(ours, mounted->segment, mounted->peer))
		rmdir(ours);
	return rc;
}

int ctl_mounted_end(struct ctl *ctl, const struct ctl_mounted *mounted)
{
	struct ctl_mounted now = *mounted;
	const char *before = ctl->segment;
	now.dead = now.dead || is_dead(now.folder);
	int rc = end_root(ctl, &now);
	rc = rc ? rc : ctl_mounted_detach(ctl, &now);
	ctl->segment = now.segment;
	rc = rc ? rc : end_folder(ctl, &now);
	ctl->segment = before;
	return rc;
}

int ctl_mounted_end_all(struct ctl *ctl, const char *segment)
{
	struct ctl_mounted_all found = ctl_mounted_list(segment);
	int rc = 0;
	for (size_t i = 0; !rc && i < found.count; i++)
		rc = ctl_mounted_end(ctl, &found.all[i]);
	free(found.all);
	return rc;
}

/* It serves, and its folder is not mounted: somebody has used umount(8). */
static bool is_bare(const char *segment, const struct xseg_peer_view *view)
{
	struct front_check check = {0};
	struct client_control call = {
		.what = FRONT_CHECK, .out = &check, .out_size = sizeof(check)};
	return view->life == XSEG_LIFE_ALIVE && !strcmp(view->role, "front_fuse") &&
	       !strncmp(view->name, "mount", 5) && isdigit((unsigned char)view->name[5]) &&
	       !client_control_once(segment, view->name, CHECK_NS, &call) &&
	       check.error == -ENOTCONN;
}

void ctl_mounted_sweep(struct ctl *ctl, const char *segment)
{
	const struct fault before = ctl->fault;
	char why[XSEG_WHY_SIZE];
	struct xseg_peer_view view;
	struct xseg seg;
	if (xseg_segment_join(segment, &seg, why))
		return;
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++)
		if (xseg_peer_view(&seg, i, &view) && is_bare(segment, &view))
			stop_peer(ctl, segment, view.name);
	xseg_segment_leave(&seg);
	ctl->fault = before;
}
