/* SPDX-License-Identifier: Apache-2.0 */
/* segment reap: has the keeper give back what the dead had, or does it where there is none. */
#include <base/must.h>
#include <string.h>

#include "tools/ctl/ctl_output.h"
#include "tools/ctl/ctl_rpc.h"
#include "tools/report/report.h"

static int reap_here(struct ctl *ctl, bool dry_run, json_t **result)
{
	struct xseg seg;
	int rc = ctl_join(ctl, &seg);
	if (rc)
		return rc;
	rc = report_reap(&seg, dry_run, result, &ctl->fault);
	xseg_segment_leave(&seg);
	return rc;
}

static int run_reap(struct ctl *ctl)
{
	static const struct ctl_column columns[] = {{"segment", "segment", CTL_TEXT},
		{"lanes", "dead lanes", CTL_COUNT}, {"freed", "requests freed", CTL_COUNT},
		{"resubmitted", "requests sent again", CTL_COUNT},
		{"refused", "requests refused", CTL_COUNT}, {"pages", "pages freed", CTL_COUNT},
		{"hints", "hints made", CTL_COUNT}, {"pending", "pending", CTL_COUNT},
		{"kept", "pages still read", CTL_COUNT}, {"took_ns", "time", CTL_TIME},
		{"changed", "changed", CTL_TEXT}, {"dry_run", "dry run", CTL_TEXT}};
	char name[NAME_LENGTH_MAX + 1];
	bool dry_run = ctl_option_given(ctl, "dry-run");
	json_t *result = NULL;
	if (ctl->argc)
		ctl->segment = ctl->argv[0];
	int rc = ctl_join_segment_name(ctl, name);
	if (rc)
		return rc;
	rc = ctl_rpc_call(
		ctl, name, "segment.reap", json_pack("{s:b}", "dry_run", dry_run), &result);
	if (rc == -FAULT_KEEPER_AWAY) {
		memset(&ctl->fault, 0, sizeof(ctl->fault));
		rc = reap_here(ctl, dry_run, &result);
	}
	if (!rc)
		ctl_output_one(ctl, result, columns, countof(columns));
	return rc;
}

const struct ctl_verb ctl_segment_reap = {
	"segment",
	"reap",
	"[NAME]",
	0,
	1,
	"give back what dead processes had",
	"\tRequests, pages and lanes; requests that a dead peer had taken are sent again to its "
	"successor. The keeper does so by itself at each death. With --dry-run the dead are only "
	"counted. *pending*: what living servers still do for dead clients; reap again for "
	"that.\n",
	run_reap,
	{&ctl_option_dry_run},
	.examples = "xsegctl segment reap demo --dry-run\n"
		    "xsegctl segment reap demo\n",
};
