/* SPDX-License-Identifier: Apache-2.0 */
/* tape list, label, verify, clean and rebuild-index: asked of a tape store, by its port. */
#include <base/must.h>
#include <errno.h>
#include <peer/client.h>
#include <peer/tape.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_output.h"

#define LONG_NS (365ull * 24 * 3600 * 1000000000u) /* as long as winding takes */
#define CARTRIDGES_MAX 4096u

static const char *const states[] = {"blank", "active", "full", "free"};

static const struct ctl_option option_overwrite = {
	"overwrite", 0, NULL, "also a cartridge that has something on it, which is lost", NULL};

/* --- asking ----------------------------------------------------------------------------- */

struct ask {
	struct client client;
	struct tape_info *all;
	uint32_t count;
};

static void ask_close(struct ask *ask)
{
	client_close(&ask->client);
	free(ask->all);
}

static int fault(struct ctl *ctl, const char *what, int error)
{
	return fault_set(&ctl->fault, fault_code_of_errno(error), ctl->argv[0], "its log says more",
		"tape store '%s' cannot be %s: %s", ctl->argv[0], what, strerror(-error));
}

static int find(struct ctl *ctl, char segment[NAME_LENGTH_MAX + 1])
{
	struct xseg_peer_view view = {0};
	struct xseg seg;
	int rc = ctl_join(ctl, &seg);
	if (rc)
		return rc;
	snprintf(segment, NAME_LENGTH_MAX + 1, "%s", seg.name);
	rc = xseg_peer_find(&seg, ctl->argv[0], &view);
	xseg_segment_leave(&seg);
	if (rc)
		return fault_set(&ctl->fault, FAULT_NOT_FOUND, ctl->argv[0],
			"'xsegctl peer list' lists them", "segment '%s' has no peer '%s'", segment,
			ctl->argv[0]);
	if (strcmp(view.role, "blocker_tape"))
		return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[0],
			"'xsegctl peer list' lists them", "peer '%s' is no tape store but a %s",
			ctl->argv[0], view.role);
	return 0;
}

/* The store, and its cartridges. */
static int ask_open(struct ctl *ctl, struct ask *ask)
{
	char segment[NAME_LENGTH_MAX + 1];
	*ask = (struct ask){0};
	int rc = find(ctl, segment);
	rc = rc ? rc : ctl_join_peer(ctl, segment, ctl->argv[0], &ask->client);
	if (rc)
		return rc;
	must(ask->all = calloc(CARTRIDGES_MAX, sizeof(*ask->all)));
	struct client_control call = {.what = TAPE_CONTROL_LIST,
		.out = ask->all,
		.out_size = CARTRIDGES_MAX * sizeof(*ask->all)};
	int error = client_control(&ask->client, &call);
	ask->count = call.got / (uint32_t)sizeof(*ask->all);
	if (!error)
		return 0;
	ask_close(ask);
	return fault(ctl, "asked", error);
}

static int ask_do(struct ctl *ctl, struct ask *ask, uint64_t what, uint64_t number, uint64_t *value)
{
	struct client_control call = {.what = what, .number = number};
	if (!ctl->timeout_given)
		ask->client.timeout_ns = LONG_NS;
	int error = client_control(&ask->client, &call);
	*value = call.value;
	return error;
}

/* --- list ------------------------------------------------------------------------------- */

static const struct ctl_column list_columns[] = {{"number", "NUMBER", CTL_COUNT},
	{"slot", "SLOT", CTL_COUNT}, {"barcode", "BARCODE", CTL_TEXT}, {"state", "STATE", CTL_TEXT},
	{"written", "WRITTEN", CTL_SIZE}, {"live", "LIVE", CTL_SIZE}, {"uses", "USES", CTL_COUNT},
	{"loaded", "LOADED", CTL_TEXT}, {"missing", "MISSING", CTL_TEXT}};

static int run_list(struct ctl *ctl)
{
	struct ask ask;
	int rc = ask_open(ctl, &ask);
	if (rc)
		return rc;
	json_t *rows = json_array();
	for (uint32_t i = 0; i < ask.count; i++) {
		const struct tape_info *info = &ask.all[i];
		json_array_append_new(rows,
			json_pack("{s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:b, s:b}", "number",
				(json_int_t)info->number, "slot", (json_int_t)info->slot, "barcode",
				info->barcode, "state",
				info->state < countof(states) ? states[info->state] : "unknown",
				"written", (json_int_t)info->written, "live",
				(json_int_t)info->live, "uses", (json_int_t)info->use, "loaded",
				(int)info->loaded, "missing", (int)info->missing));
	}
	ask_close(&ask);
	ctl_output_rows(ctl, "cartridges", rows, list_columns, countof(list_columns));
	return 0;
}

const struct ctl_verb ctl_tape_list = {
	"tape",
	"list",
	"STORE",
	1,
	1,
	"list the cartridges of a tape store",
	"\tLIVE is what is still of use of what is WRITTEN.\n",
	run_list,
	{0},
	.examples = "xsegctl tape list store0\n",
};

/* --- label ------------------------------------------------------------------------------ */

static const struct ctl_column label_columns[] = {{"slot", "slot", CTL_COUNT},
	{"number", "number", CTL_COUNT}, {"changed", "changed", CTL_TEXT}};

static int label_fault(struct ctl *ctl, int error, uint64_t slot, uint64_t number)
{
	if (error == -ENOENT)
		return fault_set(&ctl->fault, FAULT_NOT_FOUND, ctl->argv[1], NULL,
			"there is no cartridge in slot %llu", (unsigned long long)slot);
	if (error == -EEXIST && number)
		return fault_set(&ctl->fault, FAULT_CONFLICT, ctl->argv[1], NULL,
			"the cartridge in slot %llu is cartridge %llu of it already",
			(unsigned long long)slot, (unsigned long long)number);
	if (error == -EEXIST)
		return fault_set(&ctl->fault, FAULT_CONFLICT, ctl->argv[1],
			"--overwrite loses that", "the cartridge in slot %llu has something on it",
			(unsigned long long)slot);
	return fault(ctl, "given that cartridge", error);
}

static int run_label(struct ctl *ctl)
{
	bool plan = ctl_option_given(ctl, "dry-run"), over = ctl_option_given(ctl, "overwrite");
	char *end, deed[128];
	uint64_t slot = strtoull(ctl->argv[1], &end, 10), number = 0;
	struct ask ask;
	if (*end || end == ctl->argv[1] || slot > UINT32_MAX)
		return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[1], NULL,
			"'%s' is not the number of a slot", ctl->argv[1]);
	snprintf(deed, sizeof(deed), "overwrite the cartridge in slot %llu",
		(unsigned long long)slot);
	int rc = over && !plan ? ctl_ask(ctl, deed) : 0;
	rc = rc ? rc : ask_open(ctl, &ask);
	if (rc)
		return rc;
	int error = 0;
	for (uint32_t i = 0; plan && i < ask.count; i++)
		if (ask.all[i].slot == slot && !ask.all[i].missing)
			error = -EEXIST, number = ask.all[i].number;
	if (!plan)
		error = ask_do(
			ctl, &ask, TAPE_CONTROL_LABEL, slot | (over ? TAPE_OVERWRITE : 0), &number);
	ask_close(&ask);
	if (error)
		return label_fault(ctl, error, slot, number);
	ctl_output_one(ctl,
		json_pack("{s:I, s:I, s:b, s:b}", "slot", (json_int_t)slot, "number",
			(json_int_t)number, "changed", !plan, "dry_run", plan),
		label_columns, countof(label_columns));
	return 0;
}

const struct ctl_verb ctl_tape_label = {
	"tape",
	"label",
	"STORE SLOT",
	2,
	2,
	"make a cartridge of the library one of the store's",
	"\tBlank ones that are there at the start are taken by themselves.\n",
	run_label,
	{&option_overwrite, &ctl_option_yes, &ctl_option_dry_run},
	.examples = "xsegctl tape label store0 7\n"
		    "xsegctl tape label store0 8 --overwrite\n",
};

/* --- verify ----------------------------------------------------------------------------- */

static const struct ctl_column verify_columns[] = {
	{"name", "name", CTL_TEXT}, {"damaged", "damaged", CTL_COUNT}};

static int run_verify(struct ctl *ctl)
{
	uint64_t number = ctl->argc > 1 ? strtoull(ctl->argv[1], NULL, 10) : 0, damaged = 0;
	struct ask ask;
	if (ctl->argc > 1 && !number)
		return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[1],
			"'xsegctl tape list' lists them", "'%s' is not the number of a cartridge",
			ctl->argv[1]);
	int rc = ask_open(ctl, &ask);
	if (rc)
		return rc;
	int error = ask_do(ctl, &ask, TAPE_CONTROL_VERIFY, number, &damaged);
	ask_close(&ask);
	if (error)
		return fault(ctl, "verified", error);
	ctl_output_one(ctl,
		json_pack("{s:s, s:I}", "name", ctl->argv[0], "damaged", (json_int_t)damaged),
		verify_columns, countof(verify_columns));
	if (!damaged)
		return 0;
	return fault_set(&ctl->fault, FAULT_FAILED, ctl->argv[0], "its log says which",
		"%llu blocks are damaged", (unsigned long long)damaged);
}

const struct ctl_verb ctl_tape_verify = {
	"tape",
	"verify",
	"STORE [CARTRIDGE]",
	1,
	2,
	"read a cartridge, or all of them, and look whether all is whole",
	"\tOther requests go on meanwhile, more slowly.\n",
	run_verify,
	{0},
	.examples = "xsegctl tape verify store0\n"
		    "xsegctl tape verify store0 3\n",
};

/* --- clean ------------------------------------------------------------------------------ */

static const struct ctl_column clean_columns[] = {{"name", "name", CTL_TEXT},
	{"cartridge", "cartridge", CTL_COUNT}, {"changed", "changed", CTL_TEXT}};

static int run_clean(struct ctl *ctl)
{
	bool plan = ctl_option_given(ctl, "dry-run");
	uint64_t number = 0;
	struct ask ask;
	int rc = ask_open(ctl, &ask);
	if (rc)
		return rc;
	int error = ask_do(ctl, &ask, TAPE_CONTROL_CLEAN, plan ? TAPE_PLAN : 0, &number);
	ask_close(&ask);
	if (error)
		return fault(ctl, "cleaned", error);
	ctl_output_one(ctl,
		json_pack("{s:s, s:I, s:b, s:b}", "name", ctl->argv[0], "cartridge",
			(json_int_t)number, "changed", number && !plan, "dry_run", plan),
		clean_columns, countof(clean_columns));
	return 0;
}

const struct ctl_verb ctl_tape_clean = {
	"tape",
	"clean",
	"STORE",
	1,
	1,
	"free the oldest full cartridge",
	"\tWhat is still of use on it is written to the end of the log. That happens by itself "
	"when space is short. Cartridge 0: none is full.\n",
	run_clean,
	{&ctl_option_dry_run},
	.examples = "xsegctl tape clean store0\n",
};

/* --- rebuild-index ---------------------------------------------------------------------- */

static const struct ctl_column rebuild_columns[] = {{"name", "name", CTL_TEXT},
	{"cartridges", "cartridges", CTL_COUNT}, {"changed", "changed", CTL_TEXT}};

static int run_rebuild(struct ctl *ctl)
{
	bool plan = ctl_option_given(ctl, "dry-run");
	uint64_t value;
	struct ask ask;
	int rc = plan ? 0 : ctl_ask(ctl, "read all cartridges, while all requests wait");
	rc = rc ? rc : ask_open(ctl, &ask);
	if (rc)
		return rc;
	int error = plan ? 0 : ask_do(ctl, &ask, TAPE_CONTROL_REBUILD, 0, &value);
	uint32_t count = ask.count;
	ask_close(&ask);
	if (error)
		return fault(ctl, "indexed", error);
	ctl_output_one(ctl,
		json_pack("{s:s, s:I, s:b, s:b}", "name", ctl->argv[0], "cartridges",
			(json_int_t)count, "changed", !plan, "dry_run", plan),
		rebuild_columns, countof(rebuild_columns));
	return 0;
}

const struct ctl_verb ctl_tape_rebuild = {
	"tape",
	"rebuild-index",
	"STORE",
	1,
	1,
	"make the index again from the cartridges",
	"\tAll requests wait until it is done. A start with an empty index folder does the same.\n",
	run_rebuild,
	{&ctl_option_yes, &ctl_option_dry_run},
	.examples = "xsegctl tape rebuild-index store0\n",
};
