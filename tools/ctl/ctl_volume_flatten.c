/* SPDX-License-Identifier: Apache-2.0 */
/* volume flatten: a clone gets a copy of all that it shares, and forgets where it came from. */
#include <base/must.h>
#include <errno.h>

#include "tools/ctl/ctl_copy.h"
#include "tools/ctl/ctl_map.h"
#include "tools/ctl/ctl_work.h"

#define ROUNDS_MAX 8u /* somebody writes or snapshots faster than we copy */

static const struct ctl_column columns[] = {{"name", "name", CTL_TEXT}, {"size", "size", CTL_SIZE},
	{"parent", "parent", CTL_TEXT}, {"duration_ns", "time", CTL_TIME},
	{"changed", "changed", CTL_TEXT}, {"dry_run", "dry run", CTL_TEXT}};

struct flatten {
	struct ctl *ctl;
	struct client client;
	struct xseg_volume_info info;
};

static int flatten_fault(struct flatten *flatten, int error, const struct ctl_map_call *call)
{
	return ctl_map_fault(flatten->ctl, &flatten->info, "cannot be flattened", error, call);
}

/* Step by step. value 0: something that lies before was shared meanwhile. */
static int steps(struct flatten *flatten, struct ctl_work *work)
{
	uint64_t size = flatten->info.size, object_size = flatten->info.object_size;
	struct ctl_map_call call = {.what = MAP_FLATTEN, .volume = flatten->info.id};
	unsigned rounds = 0;
	do {
		int error = ctl_map_call(&flatten->client, &call);
		if (error)
			return flatten_fault(flatten, error, &call);
		if (call.value <= call.number && ++rounds == ROUNDS_MAX)
			return flatten_fault(flatten, -EBUSY, NULL);
		call.number = call.value;
		uint64_t done = call.value == UINT64_MAX ? size : call.value * object_size;
		ctl_work_progress(work, done < size ? done : size, size);
		if (call.value != UINT64_MAX && ctl_ask_interrupted())
			return ctl_ask_interrupted_fault(flatten->ctl, flatten->info.name);
	} while (call.value != UINT64_MAX);
	return 0;
}

static void report(struct flatten *flatten, struct ctl_work *work, bool changed, const char *parent)
{
	work->result = json_pack("{s:s, s:I, s:s?, s:I, s:b, s:b}", "name", flatten->info.name,
		"size", (json_int_t)flatten->info.size, "parent", parent, "duration_ns",
		(json_int_t)(clock_now_ns() - work->progress.start_ns), "changed", changed,
		"dry_run", 0);
}

static int flatten_body(struct ctl_work *work, void *context)
{
	struct flatten *flatten = context;
	struct map_head_info head;
	int rc = ctl_map_open(flatten->ctl, work->object, &flatten->client, &flatten->info);
	if (rc)
		return rc;
	int error = ctl_map_head(&flatten->client, flatten->info.id, &head);
	if (error)
		rc = flatten_fault(flatten, error, NULL);
	if (!rc)
		rc = steps(flatten, work);
	client_close(&flatten->client);
	if (!rc)
		report(flatten, work, head.parent != 0, NULL);
	return rc;
}

/* What can be said at once is said before there is a job. */
static int look(struct flatten *flatten, struct map_detail *detail)
{
	struct ctl *ctl = flatten->ctl;
	struct client client;
	int rc = ctl_map_open(ctl, ctl->argv[0], &client, &flatten->info);
	if (rc)
		return rc;
	rc = ctl_map_changeable(ctl, &flatten->info);
	if (!rc && (flatten->info.flags & XSEG_VOLUME_SNAPSHOT))
		rc = flatten_fault(flatten, -EPERM, NULL);
	int error = rc || !detail ? 0 : ctl_map_detail(&client, flatten->info.id, detail);
	client_close(&client);
	return error ? flatten_fault(flatten, error, NULL) : rc;
}

static int plan(struct flatten *flatten)
{
	static const struct ctl_column plan_columns[] = {{"name", "name", CTL_TEXT},
		{"size", "size", CTL_SIZE}, {"parent", "parent", CTL_TEXT},
		{"copy", "to be copied at most", CTL_SIZE}, {"changed", "changed", CTL_TEXT},
		{"dry_run", "dry run", CTL_TEXT}};
	struct map_detail detail;
	int rc = look(flatten, &detail);
	if (rc)
		return rc;
	ctl_output_one(flatten->ctl,
		json_pack("{s:s, s:I, s:s?, s:I, s:b, s:b}", "name", flatten->info.name, "size",
			(json_int_t)flatten->info.size, "parent",
			detail.parent ? detail.parent_name : NULL, "copy",
			(json_int_t)(detail.shared * detail.object_size), "changed", 0, "dry_run",
			1),
		plan_columns, countof(plan_columns));
	return 0;
}

static int run_flatten(struct ctl *ctl)
{
	struct flatten flatten = {.ctl = ctl};
	struct ctl_work work = {.ctl = ctl,
		.kind = "volume.flatten",
		.object = ctl->argv[0],
		.body = flatten_body,
		.context = &flatten,
		.columns = columns,
		.column_count = countof(columns) - 1};
	if (ctl_option_given(ctl, "dry-run"))
		return plan(&flatten);
	int rc = look(&flatten, NULL);
	return rc ? rc : ctl_work_run(&work, json_pack("{s:s}", "volume", ctl->argv[0]));
}

const struct ctl_verb ctl_volume_flatten = {
	"volume",
	"flatten",
	"VOLUME",
	1,
	1,
	"copy what a clone shares, so that it hangs from nothing",
	"\tIts parent can be removed then. May be open and written to meanwhile. It is a job (see "
	"*job list*) that goes on when the terminal is gone; stopped or killed, what was copied "
	"stays, and said again it goes on from there.\n",
	run_flatten,
	{&ctl_option_progress, &ctl_option_via, &ctl_option_detach, &ctl_option_dry_run},
	.examples = "xsegctl volume flatten vm1 --progress=plain\n"
		    "xsegctl volume flatten vm1 --detach\n",
};
