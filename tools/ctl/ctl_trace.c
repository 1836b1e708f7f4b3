/* SPDX-License-Identifier: Apache-2.0 */
/* trace: requests in flight, with owner, age and hops. */
#include <base/clock.h>
#include <base/must.h>
#include <base/time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/ctl/ctl_output.h"
#include "tools/ctl/ctl_watch.h"
#include "tools/report/report_trace.h"

#define COUNT_MAX 100000u
#define LOOK_NS 200000u /* from one look at the table to the next, while requests are collected */

static const struct ctl_option option_slow = {
	"slow", 0, "TIME", "only those that are under way for so long", NULL};
static const struct ctl_option option_peer = {
	"peer", 'p', "NAME", "only those that came from or through this peer", NULL};
static const struct ctl_option option_volume = {
	"volume", 0, "NAME", "only of this volume (name or id)", NULL};
static const struct ctl_option option_count = {"count", 'n', "N",
	"look again and again until so many were seen (--timeout at most)", NULL};
static const struct ctl_option option_all = {
	"all", 'a', NULL, "those that lie ready with their client, too", NULL};

static const struct ctl_column columns[] = {{"request", "REQUEST", CTL_TEXT},
	{"state", "STATE", CTL_TEXT}, {"owner", "WITH", CTL_TEXT}, {"op", "OP", CTL_TEXT},
	{"volume", "VOLUME", CTL_TEXT}, {"offset", "OFFSET", CTL_COUNT},
	{"length", "LENGTH", CTL_COUNT}, {"age_ns", "AGE", CTL_TIME}, {"path", "HOPS", CTL_TEXT}};

struct wish {
	uint64_t slow_ns, count;
	const char *peer, *volume;
	bool all;
};

/* "nbd0 > vol0 (1.2 us) > mem0 (3.4 us)": how long it stayed, or is staying, at each. */
static json_t *path_text(const json_t *trace)
{
	char text[512], time[32];
	const json_t *hops = json_object_get(trace, "hops"), *hop;
	size_t i;
	snprintf(text, sizeof(text), "%s", json_string_value(json_object_get(trace, "client")));
	json_array_foreach (hops, i, hop) {
		size_t n = strlen(text);
		ctl_output_time((uint64_t)json_integer_value(json_object_get(hop, "stayed_ns")),
			time, sizeof(time));
		snprintf(text + n, sizeof(text) - n, " > %s (%s)",
			json_string_value(json_object_get(hop, "to")), time);
	}
	return json_string(text);
}

/* One of the names in "vol0,mem0"? */
static bool among(const char *list, const char *name)
{
	size_t length = strlen(name);
	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (!strncmp(at, name, length) && (at[length] == ',' || !at[length]))
			return true;
	return false;
}

static bool passes(const json_t *trace, const char *peer)
{
	size_t i;
	json_t *hop;
	if (among(json_string_value(json_object_get(trace, "client")), peer))
		return true;
	json_array_foreach (json_object_get(trace, "hops"), i, hop)
		if (!strcmp(json_string_value(json_object_get(hop, "to")), peer))
			return true;
	return among(json_string_value(json_object_get(trace, "owner")), peer);
}

static bool of_volume(const json_t *trace, uint64_t id, const char *volume)
{
	char hex[24];
	snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)id);
	return !strcmp(json_string_value(json_object_get(trace, "volume")), volume) ||
	       !strcasecmp(hex, volume);
}

/* As JSON when it is wanted, else NULL. */
static json_t *look_at(const struct xseg *seg, uint32_t slot, const struct wish *wish)
{
	struct trace trace;
	if (report_trace_take(seg, slot, &trace))
		return NULL;
	bool owned = xseg_word_state(trace.word) == XSEG_REQUEST_OWNED;
	if ((owned && !wish->all) || report_trace_age_ns(&trace) < wish->slow_ns)
		return NULL;
	json_t *report = report_trace(seg, &trace);
	if ((wish->peer && !passes(report, wish->peer)) ||
		(wish->volume &&
			!of_volume(report, trace.copy.frame[0].key.volume, wish->volume))) {
		json_decref(report);
		return NULL;
	}
	return report;
}

/* Seen earlier in its life: the later look has more hops. */
static void note(json_t *seen, json_t *report)
{
	json_object_set_new(seen, json_string_value(json_object_get(report, "request")), report);
}

static void look(const struct xseg *seg, const struct wish *wish, json_t *seen)
{
	for (uint32_t slot = 0; slot < seg->request_count; slot++) {
		json_t *report = look_at(seg, slot, wish);
		if (report)
			note(seen, report);
		if (wish->count && json_object_size(seen) >= wish->count)
			return;
	}
}

static int by_age(const void *a, const void *b)
{
	json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "age_ns"));
	json_int_t y = json_integer_value(json_object_get(*(json_t *const *)b, "age_ns"));
	return x < y ? 1 : x > y ? -1 : 0;
}

static json_t *sorted(json_t *seen)
{
	size_t count = json_object_size(seen), i = 0;
	json_t **list = calloc(count + 1, sizeof(*list)), *rows = json_array(), *one;
	const char *key;
	must(list);
	json_object_foreach (seen, key, one)
		list[i++] = one;
	qsort(list, count, sizeof(*list), by_age);
	for (i = 0; i < count; i++) {
		json_object_set_new(list[i], "path", path_text(list[i]));
		json_array_append(rows, list[i]);
	}
	free(list);
	json_decref(seen);
	return rows;
}

static void print(struct ctl *ctl, json_t *rows)
{
	size_t i;
	json_t *row;
	if (ctl_output_is_json(ctl))
		json_array_foreach (rows, i, row)
			json_object_del(row, "path");
	else if (!json_array_size(rows))
		fputs("xsegctl: no such request is under way\n", stderr);
	ctl_output_rows(ctl, "requests", rows, columns, countof(columns));
}

/* --- one request ------------------------------------------------------------------------ */

/* SLOT, or SLOT.GENERATION as the list shows it: then it must still be that one. */
static int parse_request(struct ctl *ctl, const struct xseg *seg, uint32_t *slot, long *generation)
{
	const char *text = ctl->argv[0];
	char *end;
	unsigned long number = strtoul(text, &end, 10);
	*generation = -1;
	if (end != text && *end == '.')
		*generation = strtol(end + 1, &end, 10);
	if (end == text || *end || text[0] == '-' || number >= seg->request_count)
		return fault_set(&ctl->fault, FAULT_USAGE, text, "'xsegctl trace' lists them",
			"'%s' is no request: SLOT or SLOT.GENERATION, slots are 0 to %u", text,
			seg->request_count - 1);
	*slot = (uint32_t)number;
	return 0;
}

static int show_one(struct ctl *ctl, const struct xseg *seg)
{
	static const struct ctl_column head[] = {{"request", "request", CTL_TEXT},
		{"state", "state", CTL_TEXT}, {"owner", "with", CTL_TEXT},
		{"client", "client", CTL_TEXT}, {"op", "op", CTL_TEXT},
		{"volume", "volume", CTL_TEXT}, {"offset", "offset", CTL_COUNT},
		{"length", "length", CTL_COUNT}, {"age_ns", "age", CTL_TIME},
		{"epoch", "epoch", CTL_COUNT}, {"frame", "frame", CTL_COUNT},
		{"flags", "flags", CTL_COUNT}, {"extent_count", "runs of pages", CTL_COUNT},
		{"answer_count", "pinned runs", CTL_COUNT}};
	static const struct ctl_column hops[] = {{"hop", "HOP", CTL_COUNT},
		{"from", "FROM", CTL_TEXT}, {"to", "TO", CTL_TEXT}, {"op", "OP", CTL_TEXT},
		{"object", "OBJECT", CTL_COUNT}, {"offset", "OFFSET", CTL_COUNT},
		{"length", "LENGTH", CTL_COUNT}, {"since_submit_ns", "AT", CTL_TIME},
		{"stayed_ns", "STAYED", CTL_TIME}};
	struct trace trace;
	uint32_t slot = 0;
	long generation = -1;
	int rc = parse_request(ctl, seg, &slot, &generation);
	if (rc)
		return rc;
	rc = report_trace_take(seg, slot, &trace);
	if (rc || (generation >= 0 && generation != (long)xseg_word_generation(trace.word)))
		return fault_set(&ctl->fault, FAULT_NOT_FOUND, ctl->argv[0],
			"'xsegctl trace' lists what is under way", "request %s has ended",
			ctl->argv[0]);
	json_t *details = report_trace_details(seg, &trace);
	if (ctl_output_is_json(ctl)) {
		ctl_output_json(ctl, ctl_output_versioned(details));
		return 0;
	}
	ctl_output_lines(ctl, details, head, countof(head));
	if (ctl->format == CTL_TABLE) {
		putchar('\n');
		ctl_output_table(ctl, json_object_get(details, "hops"), hops, countof(hops));
	}
	json_decref(details);
	return 0;
}

/* --- entry point ------------------------------------------------------------------------ */

static int show_many(struct ctl *ctl, const struct xseg *seg, const struct wish *wish)
{
	json_t *seen = json_object();
	uint64_t end = clock_now_ns() + ctl->timeout_ns;
	ctl_ask_interrupt_catch();
	look(seg, wish, seen);
	while (wish->count && json_object_size(seen) < wish->count && clock_now_ns() < end &&
		!ctl_ask_interrupted()) {
		time_nap(LOOK_NS);
		look(seg, wish, seen);
	}
	if (wish->count && json_object_size(seen) < wish->count)
		fprintf(stderr, "xsegctl: %zu of %llu requests were seen\n", json_object_size(seen),
			(unsigned long long)wish->count);
	print(ctl, sorted(seen));
	return 0;
}

static int run(struct ctl *ctl)
{
	struct wish wish = {.peer = ctl_option_value(ctl, "peer"),
		.volume = ctl_option_value(ctl, "volume"),
		.all = ctl_option_given(ctl, "all")};
	struct xseg_peer_view view;
	struct xseg seg;
	int rc = ctl_watch_time(ctl, "slow", &wish.slow_ns);
	if (!rc)
		rc = ctl_option_number(ctl, "count", COUNT_MAX, &wish.count);
	if (!rc)
		rc = ctl_join(ctl, &seg);
	if (rc)
		return rc;
	if (wish.peer && xseg_peer_find(&seg, wish.peer, &view))
		rc = fault_set(&ctl->fault, FAULT_NOT_FOUND, wish.peer,
			"'xsegctl peer list' lists them", "segment '%s' has no peer '%s'", seg.name,
			wish.peer);
	else
		rc = ctl->argc ? show_one(ctl, &seg) : show_many(ctl, &seg, &wish);
	xseg_segment_leave(&seg);
	return rc;
}

const struct ctl_verb ctl_trace_verb = {
	"trace",
	NULL,
	"[REQUEST]",
	0,
	1,
	"requests under way, oldest first, with their hops",
	"\tEach hop says when the request came there and how long it stayed; the last is where it "
	"is now. One look at the table; with *--count* as many looks as it takes. Times are those "
	"of the lanes' turns. With a REQUEST all of its slot. Nobody is stopped by it.\n",
	run,
	{&option_slow, &option_peer, &option_volume, &option_count, &option_all},
	.examples = "xsegctl trace --slow 100ms\n"
		    "xsegctl trace --peer mem0 --count 20 --json\n",
};
