/* SPDX-License-Identifier: Apache-2.0 */
/* volume resize, rename, protect, unprotect, limit and break-lock. */
#include <base/must.h>
#include <base/size.h>
#include <base/time.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/ctl/ctl_front.h"
#include "tools/ctl/ctl_map.h"

static const struct ctl_option option_shrink = {
	"allow-shrink", 0, NULL, "what lies behind a smaller end is lost", NULL};

/* --- resize ----------------------------------------------------------------------------- */

static const struct ctl_column resize_columns[] = {{"name", "name", CTL_TEXT},
	{"from", "was", CTL_SIZE}, {"size", "size", CTL_SIZE}, {"changed", "changed", CTL_TEXT},
	{"dry_run", "dry run", CTL_TEXT}};

static int resize_size(struct ctl *ctl, uint64_t *size)
{
	if (size_parse(ctl->argv[1], size) || *size == 0 || *size % XSEG_SECTOR)
		return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[1], "write e.g. 20G, 512M",
			"'%s' is no size for a volume: a multiple of %u bytes, from %u on",
			ctl->argv[1], XSEG_SECTOR, XSEG_SECTOR);
	return 0;
}

/* What is behind the new end is gone for good: it is said twice when somebody looks at it. */
static int resize_ask(struct ctl *ctl, const struct xseg_volume_info *info, uint64_t size)
{
	const struct ctl_front_wish its = {.volume = info->id};
	char deed[512], from[32], to[32], lost[32];
	if (size >= info->size || ctl_option_given(ctl, "dry-run"))
		return 0;
	size_format(info->size, from, sizeof(from));
	size_format(size, to, sizeof(to));
	size_format(info->size - size, lost, sizeof(lost));
	snprintf(deed, sizeof(deed), "shrink volume '%.200s' from %s to %s", info->name, from, to);
	if (!ctl_option_given(ctl, "allow-shrink"))
		return fault_set(&ctl->fault, FAULT_USAGE, info->name, "--allow-shrink does it",
			"volume '%s' has %s, and %s is less: what lies in its last %s (%llu bytes) "
			"would be lost",
			info->name, from, to, lost, (unsigned long long)(info->size - size));
	return ctl_front_ask(ctl, &its, deed);
}

static int resize(
	struct ctl *ctl, struct client *client, const struct xseg_volume_info *info, uint64_t size)
{
	struct map_ask ask = {.size = size};
	struct ctl_map_call call = {.what = MAP_RESIZE, .volume = info->id, .ask = &ask};
	bool plan = ctl_option_given(ctl, "dry-run"), changed = size != info->size;
	struct xseg_volume_info wanted = *info;
	int rc = ctl_map_changeable(ctl, info);
	wanted.size = size;
	if (!rc)
		rc = ctl_volume_size_check(ctl, &wanted, "cannot be resized");
	if (!rc && (info->flags & XSEG_VOLUME_SNAPSHOT))
		rc = ctl_map_fault(ctl, info, "cannot be resized", -EPERM, NULL);
	if (!rc)
		rc = resize_ask(ctl, info, size);
	if (!rc && changed && !plan)
		rc = ctl_map_do(ctl, client, info, "cannot be resized", &call);
	if (rc)
		return rc;
	ctl_output_one(ctl,
		json_pack("{s:s, s:I, s:I, s:I, s:b, s:b}", "name", info->name, "from",
			(json_int_t)info->size, "size", (json_int_t)size, "lost",
			(json_int_t)(size < info->size ? info->size - size : 0), "changed",
			changed && !plan, "dry_run", plan),
		resize_columns, countof(resize_columns) - !plan);
	return 0;
}

static int run_resize(struct ctl *ctl)
{
	struct xseg_volume_info info;
	struct client client;
	uint64_t size;
	int rc = resize_size(ctl, &size);
	if (!rc)
		rc = ctl_map_open(ctl, ctl->argv[0], &client, &info);
	if (rc)
		return rc;
	rc = resize(ctl, &client, &info, size);
	client_close(&client);
	return rc;
}

const struct ctl_verb ctl_volume_resize = {
	"volume",
	"resize",
	"VOLUME SIZE",
	2,
	2,
	"make a volume larger or smaller",
	"\tLarger: the rest is empty and takes no space; whoever has it open sees it when it asks "
	"again (NBD: at the next connection). Smaller: what lies behind the new end is lost, so it "
	"needs *--allow-shrink*, and with clients attached *--yes* as well. Snapshots keep their "
	"size.\n",
	run_resize,
	{&option_shrink, &ctl_option_yes, &ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl volume resize disk 20G\n"
		    "xsegctl volume resize disk 5G --dry-run\n",
};

/* --- rename ----------------------------------------------------------------------------- */

static const struct ctl_column rename_columns[] = {{"name", "name", CTL_TEXT},
	{"from", "was", CTL_TEXT}, {"changed", "changed", CTL_TEXT},
	{"dry_run", "dry run", CTL_TEXT}};

/* A plan says what would be refused. */
static int rename_plan(struct ctl *ctl, struct client *client, const struct xseg_volume_info *info,
	const char *name)
{
	struct xseg_volume_info found;
	struct map_ask ask = {0};
	struct ctl_map_call call = {.ask = &ask};
	snprintf(ask.name, sizeof(ask.name), "%s", name);
	int rc = ctl_volume_find(ctl, client, name, &found);
	if (!rc)
		return ctl_map_fault(ctl, info, "cannot be renamed", -EEXIST, &call);
	if (rc != -FAULT_NOT_FOUND)
		return rc;
	memset(&ctl->fault, 0, sizeof(ctl->fault));
	return 0;
}

/* A snapshot stays with its volume. */
static int rename_check(struct ctl *ctl, const struct xseg_volume_info *info, const char *name)
{
	size_t volume = strcspn(info->name, "@");
	if (!(info->flags & XSEG_VOLUME_SNAPSHOT))
		return ctl_volume_new_name_check(ctl, name);
	if (strcspn(name, "@") == volume && !strncmp(name, info->name, volume) && name[volume])
		return 0;
	fault_set(&ctl->fault, FAULT_USAGE, name, NULL, "a snapshot stays with its volume");
	fault_hint(&ctl->fault, "say %.*s@NAME", (int)volume, info->name);
	return -FAULT_USAGE;
}

static int rename_to(struct ctl *ctl, struct client *client, const struct xseg_volume_info *info,
	const char *name)
{
	struct map_ask ask = {0};
	struct ctl_map_call call = {.what = MAP_RENAME, .volume = info->id, .ask = &ask};
	bool plan = ctl_option_given(ctl, "dry-run"), changed = strcmp(name, info->name) != 0;
	int rc = ctl_map_changeable(ctl, info);
	snprintf(ask.name, sizeof(ask.name), "%s", name);
	if (!rc)
		rc = rename_check(ctl, info, name);
	if (!rc && changed)
		rc = plan ? rename_plan(ctl, client, info, name)
			  : ctl_map_do(ctl, client, info, "cannot be renamed", &call);
	if (rc)
		return rc;
	ctl_output_one(ctl,
		json_pack("{s:s, s:s, s:b, s:b}", "name", name, "from", info->name, "changed",
			changed && !plan, "dry_run", plan),
		rename_columns, countof(rename_columns) - !plan);
	return 0;
}

static int run_rename(struct ctl *ctl)
{
	struct xseg_volume_info info;
	struct client client;
	int rc = ctl_volume_name_check(ctl, ctl->argv[1]);
	if (!rc)
		rc = ctl_map_open(ctl, ctl->argv[0], &client, &info);
	if (rc)
		return rc;
	rc = rename_to(ctl, &client, &info, ctl->argv[1]);
	client_close(&client);
	return rc;
}

const struct ctl_verb ctl_volume_rename = {
	"volume",
	"rename",
	"OLD NEW",
	2,
	2,
	"give a volume or a snapshot another name",
	"\tWhoever has it open goes on; who opens it from now on must say the new name.\n",
	run_rename,
	{&ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl volume rename disk old-disk\n",
};

/* --- protect and unprotect -------------------------------------------------------------- */

static const struct ctl_column protect_columns[] = {{"name", "name", CTL_TEXT},
	{"protected", "protected", CTL_TEXT}, {"changed", "changed", CTL_TEXT},
	{"dry_run", "dry run", CTL_TEXT}};

static int protect(struct ctl *ctl, bool wanted)
{
	struct xseg_volume_info info;
	struct client client;
	bool plan = ctl_option_given(ctl, "dry-run");
	int rc = ctl_map_open(ctl, ctl->argv[0], &client, &info);
	if (rc)
		return rc;
	bool changed = wanted != ((info.flags & XSEG_VOLUME_PROTECTED) != 0);
	struct ctl_map_call call = {.what = MAP_FLAGS,
		.volume = info.id,
		.number = (uint64_t)XSEG_VOLUME_PROTECTED << (wanted ? 0 : 32)};
	rc = ctl_map_changeable(ctl, &info);
	if (!rc && changed && !plan)
		rc = ctl_map_do(ctl, &client, &info,
			wanted ? "cannot be protected" : "cannot be unprotected", &call);
	client_close(&client);
	if (!rc)
		ctl_output_one(ctl,
			json_pack("{s:s, s:b, s:b, s:b}", "name", info.name, "protected", wanted,
				"changed", changed && !plan, "dry_run", plan),
			protect_columns, countof(protect_columns) - !plan);
	return rc;
}

static int run_protect(struct ctl *ctl) { return protect(ctl, true); }

static int run_unprotect(struct ctl *ctl) { return protect(ctl, false); }

const struct ctl_verb ctl_volume_protect = {
	"volume",
	"protect",
	"VOLUME",
	1,
	1,
	"refuse to remove a volume or a snapshot until it is unprotected",
	NULL,
	run_protect,
	{&ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl volume protect debian-12\n",
};

const struct ctl_verb ctl_volume_unprotect = {
	"volume",
	"unprotect",
	"VOLUME",
	1,
	1,
	"allow a protected volume to be removed again",
	NULL,
	run_unprotect,
	{&ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl volume unprotect debian-12\n",
};

/* --- limit ------------------------------------------------------------------------------ */

static const struct ctl_option option_iops = {
	"iops", 0, "COUNT", "requests a second; 0: no limit", NULL};
static const struct ctl_option option_bandwidth = {
	"bandwidth", 0, "SIZE", "bytes a second, e.g. 200M; 0: no limit", NULL};
static const struct ctl_option option_burst = {"burst", 0, "TIME",
	"how much at once: what the limits allow in this time, e.g. 2s; 0: the least", NULL};

static const struct ctl_column limit_columns[] = {{"name", "name", CTL_TEXT},
	{"iops", "requests a second", CTL_COUNT}, {"bandwidth", "bytes a second", CTL_SIZE},
	{"burst_ns", "burst", CTL_TIME}, {"changed", "changed", CTL_TEXT},
	{"dry_run", "dry run", CTL_TEXT}};

static int limit_count(struct ctl *ctl, uint64_t *count)
{
	const char *text = ctl_option_value(ctl, "iops");
	if (text && !strcmp(text, "0")) {
		*count = 0;
		return 0;
	}
	return ctl_option_number(ctl, "iops", 1000000000u, count);
}

static int limit_burst(struct ctl *ctl, uint64_t *ms)
{
	const char *text = ctl_option_value(ctl, "burst");
	uint64_t ns = 0;
	if (!text)
		return 0;
	if (strcmp(text, "0") && (time_parse_positive(text, &ns) || ns > 3600000000000u))
		return fault_set(&ctl->fault, FAULT_USAGE, text, "write e.g. 500ms, 2s; at most 1h",
			"--burst: '%s' is not a time", text);
	*ms = (ns + 999999u) / 1000000u;
	return 0;
}

/* What is not said stays as it is. */
static int limit_wanted(struct ctl *ctl, struct map_change_limits *limits)
{
	int rc = limit_count(ctl, &limits->iops);
	if (!rc)
		rc = ctl_option_size(ctl, "bandwidth", &limits->bytes);
	return rc ? rc : limit_burst(ctl, &limits->burst_ms);
}

static void limit_print(
	struct ctl *ctl, const char *name, const struct map_change_limits *limits, bool changed)
{
	bool plan = ctl_option_given(ctl, "dry-run");
	json_t *out = json_pack("{s:s}", "name", name);
	json_object_update_new(out, ctl_map_limits_json(limits));
	json_object_set_new(out, "changed", json_boolean(changed && !plan));
	json_object_set_new(out, "dry_run", json_boolean(plan));
	ctl_output_one(ctl, out, limit_columns, countof(limit_columns) - !plan);
}

static int limit(struct ctl *ctl, struct client *client, const struct xseg_volume_info *info)
{
	struct map_head_info head;
	int rc = ctl_map_changeable(ctl, info);
	int error = rc ? 0 : ctl_map_head(client, info->id, &head);
	if (error)
		rc = ctl_map_fault(ctl, info, "cannot be asked for its limits", error, NULL);
	struct map_ask ask = {.limits = head.limits};
	if (!rc)
		rc = limit_wanted(ctl, &ask.limits);
	if (rc)
		return rc;
	bool changed = memcmp(&ask.limits, &head.limits, sizeof(ask.limits)) != 0;
	struct ctl_map_call call = {.what = MAP_LIMITS, .volume = info->id, .ask = &ask};
	if (changed && !ctl_option_given(ctl, "dry-run"))
		rc = ctl_map_do(ctl, client, info, "cannot be limited", &call);
	if (!rc)
		limit_print(ctl, info->name, &ask.limits, changed);
	return rc;
}

static int run_limit(struct ctl *ctl)
{
	struct xseg_volume_info info;
	struct client client;
	int rc = ctl_map_open(ctl, ctl->argv[0], &client, &info);
	if (rc)
		return rc;
	rc = limit(ctl, &client, &info);
	client_close(&client);
	return rc;
}

const struct ctl_verb ctl_volume_limit = {
	"volume",
	"limit",
	"VOLUME",
	1,
	1,
	"how much of the store's time a volume may take",
	"\tOf all who have it open together; requests beyond it wait. What is not said stays as it "
	"is; without options, shows it. Kept with the volume, effective at once.\n",
	run_limit,
	{&option_iops, &option_bandwidth, &option_burst, &ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl volume limit vm1 --iops 2000 --bandwidth 200M --burst 2s\n"
		    "xsegctl volume limit vm1 --iops 0\n",
};

/* --- break-lock ------------------------------------------------------------------------- */

static const struct ctl_column break_columns[] = {{"name", "name", CTL_TEXT},
	{"had.host", "host that had it", CTL_TEXT}, {"had.since_ns", "since", CTL_DATE},
	{"changed", "changed", CTL_TEXT}, {"dry_run", "dry run", CTL_TEXT}};

static int break_ask(struct ctl *ctl, const char *name, const struct map_owner *owner)
{
	char deed[512], since[32];
	ctl_map_date(owner->since_ns, since, sizeof(since));
	snprintf(deed, sizeof(deed),
		"take volume '%.200s' away from host '%s', which has it since %s; what it has not "
		"written yet is lost",
		name, owner->host, since);
	return ctl_option_given(ctl, "dry-run") ? 0 : ctl_ask(ctl, deed);
}

static int break_lock(struct ctl *ctl, struct client *client, const struct xseg_volume_info *info)
{
	struct map_detail detail;
	struct map_owner had;
	bool plan = ctl_option_given(ctl, "dry-run");
	int rc = ctl_map_changeable(ctl, info);
	int error = rc ? 0 : ctl_map_detail(client, info->id, &detail);
	if (error)
		rc = ctl_map_fault(ctl, info, "cannot be asked who has it", error, NULL);
	if (rc)
		return rc;
	had = detail.home;
	struct ctl_map_call call = {
		.what = MAP_BREAK, .volume = info->id, .out = &had, .out_size = sizeof(had)};
	if (had.owner)
		rc = break_ask(ctl, info->name, &had);
	if (!rc && had.owner && !plan)
		rc = ctl_map_do(ctl, client, info, "cannot be taken away", &call);
	if (rc)
		return rc;
	had.host[sizeof(had.host) - 1] = 0;
	json_t *out = json_pack("{s:s, s:o, s:b, s:b}", "name", info->name, "had",
		ctl_map_owner_json(&had), "changed", had.owner && !plan, "dry_run", plan);
	ctl_output_one(ctl, out, break_columns, countof(break_columns) - !plan);
	return 0;
}

static int run_break(struct ctl *ctl)
{
	struct xseg_volume_info info;
	struct client client;
	int rc = ctl_map_open(ctl, ctl->argv[0], &client, &info);
	if (rc)
		return rc;
	rc = break_lock(ctl, &client, &info);
	client_close(&client);
	return rc;
}

const struct ctl_verb ctl_volume_break = {
	"volume",
	"break-lock",
	"VOLUME",
	1,
	1,
	"take a volume away from the host that has it open",
	"\tFor a host that is gone: who has it is said, and asked about. Should that host live, "
	"its "
	"writes are refused from now on, and what it has not written yet is lost.\n",
	run_break,
	{&ctl_option_yes, &ctl_option_via, &ctl_option_dry_run},
	.examples = "xsegctl volume break-lock disk --dry-run\n"
		    "xsegctl volume break-lock disk --yes\n",
};
