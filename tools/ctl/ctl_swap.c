/* SPDX-License-Identifier: Apache-2.0 */
/* swap on, swap off: a volume as swap, by processes that never wait for it. */
#include <base/clock.h>
#include <base/time.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xseg/registry.h>
#include <xseg/resident.h>

#include "tools/ctl/ctl_map.h"
#include "tools/ctl/ctl_mount.h"

#define LOOK_NS 100000000u

static const struct ctl_option option_priority = {
	"priority", 0, "NUMBER", "of several swaps the one with the highest is used first", NULL};

static const struct ctl_column columns[] = {{"volume", "volume", CTL_TEXT},
	{"segment", "segment", CTL_TEXT}, {"device", "device", CTL_TEXT},
	{"changed", "changed", CTL_TEXT}};

/* --- memory that stays ------------------------------------------------------------------------ */

/* Bytes of a process that are locked; 0 when it has gone. */
static uint64_t locked_of(uint32_t pid)
{
	char path[64], line[256];
	unsigned long long kib = 0;
	snprintf(path, sizeof(path), "/proc/%u/status", pid);
	FILE *in = fopen(path, "re");
	while (in && fgets(line, sizeof(line), in) && sscanf(line, "VmLck: %llu", &kib) != 1)
		;
	if (in)
		fclose(in);
	return kib << 10;
}

/* Whose memory is not locked yet: "peer 'x'"; false: all is. */
static bool find_loose(const struct xseg *seg, char who[NAME_LENGTH_MAX + 32])
{
	struct xseg_peer_view view;
	uint32_t keeper = atomic_load(&seg->super->keeper);
	for (uint32_t i = 0; i < XSEG_PEERS_MAX; i++)
		if (xseg_peer_view(seg, i, &view) && view.life == XSEG_LIFE_ALIVE &&
			locked_of((uint32_t)view.pid) < seg->size) {
			snprintf(who, NAME_LENGTH_MAX + 32, "peer '%s' (process %d)", view.name,
				(int)view.pid);
			return true;
		}
	snprintf(who, NAME_LENGTH_MAX + 32, "the keeper (process %u)", keeper);
	return keeper && locked_of(keeper) < seg->size;
}

/* Each looks once a second. */
static int wait_locked(struct ctl *ctl, const struct xseg *seg)
{
	char who[NAME_LENGTH_MAX + 32];
	uint64_t end_ns = clock_now_ns() + ctl->timeout_ns;
	while (find_loose(seg, who)) {
		if (ctl_ask_interrupted())
			return ctl_ask_interrupted_fault(ctl, seg->name);
		if (clock_now_ns() > end_ns)
			return fault_set(&ctl->fault, FAULT_TIMEOUT, seg->name,
				"it has to be root's, or 'ulimit -l' has to allow it; its log says "
				"more",
				"%s does not lock its memory", who);
		time_nap(LOOK_NS);
	}
	return 0;
}

/* Is another volume of the segment swap? */
static bool is_used(const char *segment)
{
	struct ctl_mounted_all found = ctl_mounted_list(segment);
	bool used = false;
	for (size_t i = 0; i < found.count; i++)
		used |= !strcmp(found.all[i].root, CTL_MOUNTED_SWAP);
	free(found.all);
	return used;
}

static void unlock(struct ctl *ctl, const char *segment)
{
	const struct fault before = ctl->fault;
	struct xseg seg;
	if (is_used(segment) || xseg_segment_join(segment, &seg, NULL))
		return;
	xseg_resident_ask(&seg, false);
	xseg_segment_leave(&seg);
	ctl->fault = before;
}

static int lock(struct ctl *ctl, const char *segment)
{
	char why[XSEG_WHY_SIZE];
	struct xseg seg;
	int error = xseg_segment_join(segment, &seg, why);
	if (error)
		return fault_set(&ctl->fault, fault_code_of_errno(error), segment, NULL, "%s", why);
	xseg_resident_ask(&seg, true);
	int rc = wait_locked(ctl, &seg);
	xseg_segment_leave(&seg);
	return rc;
}

/* --- swap on ---------------------------------------------------------------------------------- */

/* What is on the device: "swap", "ext4", ...; "" when nothing is known of it. */
static int read_kind(struct ctl *ctl, const struct ctl_mounted *mounted, char kind[64])
{
	char *words[] = {
		"wipefs", "--noheadings", "--output", "TYPE", (char *)mounted->device, NULL};
	char *said = NULL;
	int rc = ctl_mounted_run(ctl, mounted->volume, words, &said);
	snprintf(kind, 64, "%s", said ? said : "");
	kind[strcspn(kind, " ")] = 0;
	free(said);
	return rc;
}

/* Nothing that somebody may want is overwritten. */
static int make_swap(struct ctl *ctl, const struct ctl_mounted *mounted, bool empty)
{
	char kind[64];
	int rc = read_kind(ctl, mounted, kind);
	if (rc || !strcmp(kind, "swap"))
		return rc;
	if (*kind || !empty)
		return fault_set(&ctl->fault, FAULT_CONFLICT, mounted->volume,
			"'xsegctl volume create' makes an empty one", "volume '%s' has %s in it",
			mounted->volume, *kind ? kind : "something that is no swap");
	return ctl_mounted_run(
		ctl, mounted->volume, (char *[]){"mkswap", (char *)mounted->device, NULL}, NULL);
}

static int use_swap(struct ctl *ctl, struct ctl_mounted *mounted, bool empty)
{
	const char *priority = ctl_option_value(ctl, "priority");
	char *words[] = {
		"swapon", mounted->device, priority ? "--priority" : NULL, (char *)priority, NULL};
	if (mounted->root[0])
		return fault_set(&ctl->fault, FAULT_CONFLICT, mounted->volume,
			"'xsegctl umount' ends that", "volume '%s' is mounted on '%.200s'",
			mounted->volume, mounted->root);
	int rc = make_swap(ctl, mounted, empty);
	rc = rc ? rc : lock(ctl, mounted->segment);
	rc = rc ? rc : ctl_mounted_run(ctl, mounted->volume, words, NULL);
	if (rc)
		unlock(ctl, mounted->segment);
	return rc;
}

static int is_empty(struct ctl *ctl, const char *volume, bool *empty)
{
	struct xseg_volume_info info;
	struct client client;
	int rc = ctl_map_open(ctl, volume, &client, &info);
	if (rc)
		return rc;
	client_close(&client);
	*empty = info.objects == 0;
	return 0;
}

static void print(struct ctl *ctl, const struct ctl_mounted *mounted, bool changed)
{
	ctl_output_one(ctl,
		json_pack("{s:s, s:s, s:s, s:b}", "volume", mounted->volume, "segment",
			mounted->segment, "device", mounted->device, "changed", changed),
		columns, countof(columns));
}

static int run_on(struct ctl *ctl)
{
	const struct ctl_mount_wish wish = {.volume = ctl->argv[0], .device = true};
	char segment[NAME_LENGTH_MAX + 1];
	struct ctl_mounted mounted = {.segment = ""};
	uint64_t priority;
	bool mounts = false, empty = false;
	int rc = ctl_option_number(ctl, "priority", 32767, &priority);
	rc = rc ? rc : ctl_join_segment_name(ctl, segment);
	if (!rc && strchr(wish.volume, '@'))
		rc = fault_set(&ctl->fault, FAULT_USAGE, wish.volume, NULL,
			"a snapshot cannot be written to");
	ctl_ask_interrupt_catch();
	rc = rc ? rc : is_empty(ctl, wish.volume, &empty);
	if (!rc && ctl_option_given(ctl, "dry-run")) {
		const char *const steps[][2] = {{"attach a device", wish.volume},
			{"lock the processes' memory", segment}, {"swapon", wish.volume}};
		ctl_mount_steps(ctl, steps, countof(steps));
		return 0;
	}
	rc = rc ? rc : ctl_mount_near(ctl, segment, &wish, &mounted, &mounts);
	if (rc)
		return rc;
	bool changed = strcmp(mounted.root, CTL_MOUNTED_SWAP) != 0;
	rc = changed ? use_swap(ctl, &mounted, empty) : 0;
	if (rc && mounts) {
		const struct fault first = ctl->fault;
		ctl_mounted_end(ctl, &mounted);
		ctl->fault = first;
	}
	if (!rc)
		print(ctl, &mounted, changed);
	return rc;
}

const struct ctl_verb ctl_swap_on = {
	"swap",
	"on",
	"VOLUME",
	1,
	1,
	"use a volume as swap of this host",
	"\tMakes it a device, as *mount --device* does, and swap; one that has something else in "
	"it is refused. All processes of the segment, the keeper, too, lock their memory and the "
	"segment's before, and are given memory without anything being written out: they never "
	"wait for what they serve. A peer that is started later does the same. This needs as much "
	"memory as the segment has, and root. A store must not lie in this host's memory, nor "
	"behind another segment of this host.\n\n"
	"\tPrograms that may be swapped out need a limit of their own (*MemoryMax* of a unit, "
	"*memory.max* of a cgroup): when all of the host is out of memory, the kernel's own "
	"threads on "
	"the way to the volume wait for some, too.\n",
	run_on,
	{&option_priority, &ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl volume create swap --size 16G\n"
		    "xsegctl swap on swap --priority 10\n",
};

/* --- swap off --------------------------------------------------------------------------------- */

static int find(struct ctl *ctl, const char *volume, struct ctl_mounted *mounted)
{
	struct ctl_mounted_all found = ctl_mounted_list(ctl->segment);
	int rc = fault_set(&ctl->fault, FAULT_NOT_FOUND, volume, "'xsegctl mount' lists what is",
		"volume '%s' is no swap", volume);
	for (size_t i = 0; i < found.count; i++)
		if (!strcmp(found.all[i].volume, volume) &&
			!strcmp(found.all[i].root, CTL_MOUNTED_SWAP)) {
			*mounted = found.all[i];
			rc = 0;
		}
	free(found.all);
	return rc;
}

static int run_off(struct ctl *ctl)
{
	struct ctl_mounted mounted;
	int rc = find(ctl, ctl->argv[0], &mounted);
	if (rc)
		return rc;
	memset(&ctl->fault, 0, sizeof(ctl->fault));
	if (ctl_option_given(ctl, "dry-run")) {
		print(ctl, &mounted, false);
		return 0;
	}
	ctl_join_run_dir(mounted.segment);
	rc = ctl_mounted_run(
		ctl, mounted.volume, (char *[]){"swapoff", mounted.device, NULL}, NULL);
	if (rc)
		return rc;
	mounted.root[0] = 0;
	unlock(ctl, mounted.segment);
	rc = ctl_mounted_end(ctl, &mounted);
	if (!rc)
		print(ctl, &mounted, true);
	return rc;
}

const struct ctl_verb ctl_swap_off = {
	"swap",
	"off",
	"VOLUME",
	1,
	1,
	"bring back what a volume has as swap, and end that",
	"\tWhat is in it has to fit into memory, or other swap; it may take a while. The device "
	"goes "
	"as well, and the segment's processes no longer lock their memory.\n",
	run_off,
	{&ctl_option_dry_run},
	.examples = "xsegctl swap off swap\n",
};
