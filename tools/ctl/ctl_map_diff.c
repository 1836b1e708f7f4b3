/* SPDX-License-Identifier: Apache-2.0 */
/* volume diff: what may differ between a volume and one of its relatives. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ctl/ctl_map.h"

#define STRETCHES_AT_ONCE 4096u

/* --- asking ----------------------------------------------------------------------------- */

static int visit_all(const struct ctl_map_call *call, const struct map_stretch *stretches,
	ctl_map_stretch_f *visit, void *context)
{
	size_t count = call->got / sizeof(*stretches);
	int rc = 0;
	for (size_t i = 0; !rc && i < count; i++)
		rc = visit(context, &stretches[i]);
	return rc;
}

int ctl_map_diff(struct client *client, uint64_t since, uint64_t volume, ctl_map_stretch_f *visit,
	void *context)
{
	struct map_stretch *stretches = calloc(STRETCHES_AT_ONCE, sizeof(*stretches));
	struct map_ask ask = {.id = since};
	struct ctl_map_call call = {.what = MAP_DIFF,
		.volume = volume,
		.ask = &ask,
		.out = stretches,
		.out_size = STRETCHES_AT_ONCE * sizeof(*stretches)};
	int rc = stretches ? 0 : -ENOMEM;
	while (!rc && call.number != UINT64_MAX) {
		rc = ctl_map_call(client, &call);
		if (!rc && call.value <= call.number)
			rc = -EPROTO; /* it would never end */
		call.number = call.value;
		if (!rc)
			rc = visit_all(&call, stretches, visit, context);
		if (!rc && ctl_ask_interrupted())
			rc = -EINTR;
	}
	free(stretches);
	return rc;
}

/* --- the command ------------------------------------------------------------------------ */

static const struct ctl_column columns[] = {{"offset", "OFFSET", CTL_COUNT},
	{"length", "LENGTH", CTL_COUNT}, {"zero", "ZERO", CTL_TEXT}};

struct rows {
	json_t *rows;
	struct map_stretch last;
};

static void rows_end(struct rows *rows)
{
	const struct map_stretch *s = &rows->last;
	if (s->length)
		json_array_append_new(rows->rows,
			json_pack("{s:I, s:I, s:b}", "offset", (json_int_t)s->offset, "length",
				(json_int_t)s->length, "zero", (s->flags & XSEG_STATUS_ZERO) != 0));
	rows->last.length = 0;
}

/* One answer's last and the next one's first may be one stretch. */
static int rows_add(void *context, const struct map_stretch *stretch)
{
	struct rows *rows = context;
	struct map_stretch *last = &rows->last;
	if (last->length && last->flags == stretch->flags &&
		last->offset + last->length == stretch->offset) {
		last->length += stretch->length;
		return 0;
	}
	rows_end(rows);
	*last = *stretch;
	return 0;
}

static int diff(struct ctl *ctl, struct client *client, const struct xseg_volume_info *volume)
{
	struct xseg_volume_info since;
	int rc = ctl_volume_find(ctl, client, ctl->argv[0], &since);
	if (!rc)
		rc = ctl_map_changeable(ctl, volume);
	if (rc)
		return rc;
	struct rows rows = {.rows = json_array()};
	int error = ctl_map_diff(client, since.id, volume->id, rows_add, &rows);
	if (error) {
		json_decref(rows.rows);
		return error == -EINTR
			       ? ctl_ask_interrupted_fault(ctl, volume->name)
			       : ctl_map_fault(ctl, volume, "cannot be compared", error, NULL);
	}
	rows_end(&rows);
	ctl_output_rows(ctl, "stretches", rows.rows, columns, sizeof(columns) / sizeof(columns[0]));
	return 0;
}

static int run_diff(struct ctl *ctl)
{
	struct xseg_volume_info volume;
	struct client client;
	int rc = ctl_volume_name_check(ctl, ctl->argv[0]);
	if (!rc)
		rc = ctl_map_open(ctl, ctl->argv[1], &client, &volume);
	if (rc)
		return rc;
	ctl_ask_interrupt_catch();
	rc = diff(ctl, &client, &volume);
	client_close(&client);
	return rc;
}

const struct ctl_verb ctl_volume_diff = {
	"volume",
	"diff",
	"SINCE VOLUME",
	2,
	2,
	"say where a volume may differ from a snapshot",
	"\tStretches of VOLUME (or VOLUME@SNAP), in bytes, that may have other contents than "
	"SINCE: a "
	"snapshot of it, or any volume or snapshot that it shares data with. What is not listed is "
	"the same. Only maps are "
	"read, and only where they differ.\n",
	run_diff,
	{&ctl_option_via},
	.examples = "xsegctl volume diff disk@monday disk@tuesday --json\n",
};
