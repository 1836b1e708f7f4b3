/* SPDX-License-Identifier: Apache-2.0 */
/* segment fsck: is every page, request and ring entry in exactly one state, with one owner? */
#include <base/must.h>
#include <base/name.h>
#include <stdio.h>
#include <string.h>
#include <xseg/registry.h>

#include "tools/ctl/ctl_output.h"
#include "tools/report/fsck.h"
#include "tools/report/report_trace.h"

#define SHOWN 50u
#define SHOWN_MAX 100000u

static const struct ctl_option option_repair = {"repair", 0, NULL,
	"give back what the dead have, make lost hints anew, repair words that nobody can have",
	NULL};
static const struct ctl_option option_limit = {
	"limit", 0, "N", "problems shown of each kind (default 50)", NULL};

static const struct ctl_column problem_columns[] = {
	{"kind", "KIND", CTL_TEXT}, {"index", "INDEX", CTL_COUNT}, {"text", "WHAT", CTL_TEXT}};

static const struct ctl_column owner_columns[] = {{"lane", "LANE", CTL_COUNT},
	{"pid", "PID", CTL_COUNT}, {"peers", "PEERS", CTL_TEXT}, {"state", "STATE", CTL_TEXT},
	{"pages.in_requests", "PAGES IN REQUESTS", CTL_COUNT},
	{"pages.private", "KEPT READY", CTL_COUNT}, {"pages.stored", "STORED", CTL_COUNT},
	{"pages.retired", "RETIRED", CTL_COUNT}, {"requests.owned", "REQUESTS OWNED", CTL_COUNT},
	{"requests.taken", "TAKEN", CTL_COUNT}, {"requests.done", "DONE", CTL_COUNT}};

/* --- the report ------------------------------------------------------------------------- */

static json_t *problems_report(const struct fsck *fsck, uint64_t limit)
{
	json_t *rows = json_array();
	uint64_t shown = 0;
	for (uint32_t i = 0; i < fsck->problem_count; i++) {
		const struct fsck_problem *problem = &fsck->problems[i];
		/* sorted by kind */
		shown = i && fsck->problems[i - 1].kind == problem->kind ? shown + 1 : 1;
		if (shown <= limit)
			json_array_append_new(
				rows, json_pack("{s:s, s:I, s:s}", "kind",
					      fsck_kind_names[problem->kind], "index",
					      (json_int_t)problem->index, "text", problem->text));
	}
	return rows;
}

static json_t *kinds_report(const struct fsck *fsck)
{
	json_t *kinds = json_object();
	for (unsigned i = 0; i < FSCK_KINDS; i++)
		if (fsck->by_kind[i])
			json_object_set_new(kinds, fsck_kind_names[i],
				json_integer((json_int_t)fsck->by_kind[i]));
	return kinds;
}

static json_t *owners_report(const struct xseg *seg, const struct fsck *fsck)
{
	json_t *rows = json_array();
	for (uint32_t i = 0; i < seg->lane_count; i++) {
		const struct fsck_owner *o = &fsck->owners[i];
		char peers[256];
		if (!o->there)
			continue;
		report_trace_lane_peers(seg, i, peers, sizeof(peers));
		json_array_append_new(rows,
			json_pack("{s:i, s:i, s:s, s:s, s:{s:i, s:i, s:i, s:i}, s:{s:i, s:i, s:i}}",
				"lane", (int)i, "pid", (int)o->pid, "peers", peers, "state",
				o->alive ? "alive" : "dead", "pages", "in_requests",
				(int)o->held_in_requests, "private", (int)o->held_privately,
				"stored", (int)o->stored, "retired", (int)o->retired, "requests",
				"owned", (int)o->requests_owned, "taken", (int)o->requests_taken,
				"done", (int)o->requests_done));
	}
	return rows;
}

static json_t *ports_report(const struct xseg *seg, const struct fsck *fsck)
{
	json_t *ports = json_object();
	for (uint32_t i = 0; i < XSEG_PORTS_MAX; i++) {
		char name[NAME_LENGTH_MAX + 1] = "";
		memcpy(name, seg->ports[i].name, NAME_LENGTH_MAX);
		if (fsck->submitted[i] && name_check(name))
			json_object_set_new(ports, name, json_integer(fsck->submitted[i]));
	}
	return ports;
}

static json_t *report(const struct xseg *seg, const struct fsck *fsck, uint64_t limit)
{
	const uint32_t *p = fsck->pages, *r = fsck->requests;
	json_t *out = json_pack("{s:s, s:b, s:i, s:I, s:i}", "segment", seg->name, "clean",
		fsck->problem_count == 0, "looks", (int)fsck->looks, "took_ns",
		(json_int_t)fsck->took_ns, "lanes_alive", (int)fsck->lanes_alive);
	json_object_update_new(
		out, json_pack("{s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}}", "pages", "total",
			     (json_int_t)seg->page_count, "free", (json_int_t)p[XSEG_PAGE_FREE],
			     "held", (json_int_t)p[XSEG_PAGE_HELD], "stored",
			     (json_int_t)p[XSEG_PAGE_STORED], "kept", (json_int_t)p[XSEG_PAGE_KEPT],
			     "retired", (json_int_t)p[XSEG_PAGE_RETIRED], "bad",
			     (json_int_t)fsck->pages_bad, "pins", (json_int_t)fsck->pins));
	json_object_update_new(out,
		json_pack("{s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}}", "requests",
			"total", (json_int_t)seg->request_count, "free",
			(json_int_t)r[XSEG_REQUEST_FREE], "owned",
			(json_int_t)r[XSEG_REQUEST_OWNED], "submitted",
			(json_int_t)r[XSEG_REQUEST_SUBMITTED], "taken",
			(json_int_t)r[XSEG_REQUEST_TAKEN], "done", (json_int_t)r[XSEG_REQUEST_DONE],
			"bad", (json_int_t)fsck->requests_bad, "kept_ready",
			(json_int_t)fsck->unhinted_slots, "waiting_for_a_server",
			(json_int_t)fsck->waiting_unbound, "of_the_dead_being_served",
			(json_int_t)fsck->pending));
	json_object_set_new(out, "submitted_to", ports_report(seg, fsck));
	json_object_set_new(out, "owners", owners_report(seg, fsck));
	json_object_set_new(out, "problem_count", json_integer((json_int_t)fsck->problem_count));
	json_object_set_new(out, "kinds", kinds_report(fsck));
	json_object_set_new(out, "problems", problems_report(fsck, limit));
	return out;
}

static json_t *repair_report(const struct fsck_repair *repair)
{
	return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "lanes", (int)repair->lanes,
		"requests_freed", (int)repair->freed, "requests_resubmitted",
		(int)repair->resubmitted, "requests_refused", (int)repair->refused, "pages_freed",
		(int)repair->pages, "hints_made", (int)repair->hints, "words_repaired",
		(int)repair->repaired, "pending", (int)repair->pending);
}

/* --- as text ---------------------------------------------------------------------------- */

static long long number(const json_t *report, const char *table, const char *key)
{
	return json_integer_value(json_object_get(json_object_get(report, table), key));
}

static void print(struct ctl *ctl, const json_t *report)
{
	long long count = json_integer_value(json_object_get(report, "problem_count"));
	if (ctl->format == CTL_CSV) {
		ctl_output_table(ctl, json_object_get(report, "problems"), problem_columns,
			countof(problem_columns));
		return;
	}
	printf("pages:    %lld: %lld free, %lld held, %lld stored, %lld kept, "
	       "%lld retired; %lld pins\n",
		number(report, "pages", "total"), number(report, "pages", "free"),
		number(report, "pages", "held"), number(report, "pages", "stored"),
		number(report, "pages", "kept"), number(report, "pages", "retired"),
		number(report, "pages", "pins"));
	printf("requests: %lld: %lld free, %lld owned, %lld submitted, %lld taken, %lld done\n\n",
		number(report, "requests", "total"), number(report, "requests", "free"),
		number(report, "requests", "owned"), number(report, "requests", "submitted"),
		number(report, "requests", "taken"), number(report, "requests", "done"));
	ctl_output_table(
		ctl, json_object_get(report, "owners"), owner_columns, countof(owner_columns));
	if (json_array_size(json_object_get(report, "owners")))
		putchar('\n');
	ctl_output_table(ctl, json_object_get(report, "problems"), problem_columns,
		countof(problem_columns));
	if (count)
		printf("\n%lld problems\n", count);
	else
		puts("clean: everything is in one state, and has one owner");
}

/* --- entry point ------------------------------------------------------------------------ */

static int check(struct ctl *ctl, const struct xseg *seg, struct fsck *fsck)
{
	int rc = fsck_run(seg, 0, fsck);
	if (rc)
		return fault_set(&ctl->fault, FAULT_FAILED, seg->name, NULL,
			"segment '%s' cannot be checked: %s", seg->name, strerror(-rc));
	return 0;
}

/* Repairs, and looks again; *repaired as JSON. */
static int repair(struct ctl *ctl, const struct xseg *seg, struct fsck *fsck, json_t **repaired)
{
	struct fsck_repair repair;
	int rc = fsck_repair(seg, fsck, ctl->timeout_ns, &repair);
	if (rc && !repair.pending)
		return fault_set(&ctl->fault, FAULT_BUSY, seg->name, "try again in a moment",
			"segment '%s' cannot be repaired now: %s", seg->name, strerror(-rc));
	*repaired = repair_report(&repair);
	json_object_set_new(
		*repaired, "problems_before", json_integer((json_int_t)fsck->problem_count));
	fsck_free(fsck);
	return check(ctl, seg, fsck);
}

static int run_joined(struct ctl *ctl, const struct xseg *seg)
{
	uint64_t limit = SHOWN;
	json_t *repaired = NULL;
	struct fsck fsck;
	int rc = ctl_option_number(ctl, "limit", SHOWN_MAX, &limit);
	if (!rc)
		rc = check(ctl, seg, &fsck);
	if (rc)
		return rc;
	if (ctl_option_given(ctl, "repair"))
		rc = repair(ctl, seg, &fsck, &repaired);
	if (rc) {
		fsck_free(&fsck);
		return rc;
	}
	json_t *out = report(seg, &fsck, limit);
	if (repaired)
		json_object_set_new(out, "repaired", repaired);
	rc = fsck.problem_count ? FAULT_FAILED : 0;
	fsck_free(&fsck);
	if (ctl_output_is_json(ctl)) {
		ctl_output_json(ctl, ctl_output_versioned(out));
		return rc;
	}
	print(ctl, out);
	json_decref(out);
	return rc;
}

static int run(struct ctl *ctl)
{
	struct xseg seg;
	if (ctl->argc) {
		if (!name_check(ctl->argv[0]))
			return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[0], NULL,
				"'%s' is no name for a segment", ctl->argv[0]);
		ctl->segment = ctl->argv[0];
	}
	int rc = ctl_join(ctl, &seg);
	if (rc)
		return rc;
	rc = run_joined(ctl, &seg);
	xseg_segment_leave(&seg);
	return rc;
}

const struct ctl_verb ctl_segment_fsck = {
	"segment",
	"fsck",
	"[NAME]",
	0,
	1,
	"check that nothing in a segment is lost or has two owners",
	"\tEvery page, request, descriptor, port, edge and ring entry must be in exactly one "
	"state. "
	"Works on a segment in use: it looks several times and tells only what stays as it is; "
	"pages "
	"and slots that living lanes keep ready count as theirs. Exit status 0: clean; 1: not, and "
	"the table says what is wrong. With *--repair* it then gives back what the dead have, "
	"makes "
	"lost hints anew, repairs words that nobody can have, and looks again.\n",
	run,
	{&option_repair, &option_limit},
	.examples = "xsegctl segment fsck demo\n",
};
