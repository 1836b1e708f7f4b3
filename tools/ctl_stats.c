/* SPDX-License-Identifier: Apache-2.0 */
/* stats: counters and latency histograms of every peer. */
#include <base/must.h>
#include <stdio.h>
#include <string.h>

#include "tools/ctl_output.h"
#include "tools/ctl_rpc.h"
#include "tools/report.h"

static const struct ctl_option option_all = {
	"all", 'a', NULL, "counters that are 0 and histograms that are empty, too", NULL};

static const struct ctl_column counter_columns[] = {{"peer", "PEER", CTL_TEXT},
	{"counter", "COUNTER", CTL_TEXT}, {"value", "VALUE", CTL_COUNT},
	{"unit", "UNIT", CTL_TEXT}};

static const struct ctl_column histogram_columns[] = {{"peer", "PEER", CTL_TEXT},
	{"histogram", "HISTOGRAM", CTL_TEXT}, {"count", "COUNT", CTL_COUNT},
	{"mean", "MEAN", CTL_TIME}, {"p50", "P50", CTL_TIME}, {"p90", "P90", CTL_TIME},
	{"p99", "P99", CTL_TIME}, {"p99_9", "P99.9", CTL_TIME}};

static int ask(struct ctl *ctl, const char *peer, json_t **stats)
{
	char name[NAME_LENGTH_MAX + 1];
	struct xseg seg;
	int rc = ctl_segment_name(ctl, name);
	if (rc)
		return rc;
	rc = ctl_rpc_call(
		ctl, name, "stats", peer ? json_pack("{s:s}", "peer", peer) : json_object(), stats);
	if (rc != -FAULT_KEEPER_AWAY)
		return rc;
	rc = ctl_join(ctl, &seg);
	if (rc)
		return rc;
	memset(&ctl->fault, 0, sizeof(ctl->fault));
	*stats = json_pack("{s:i, s:s, s:o}", "schema_version", CTL_SCHEMA_VERSION, "segment", name,
		"peers", report_stats(&seg, peer));
	xseg_segment_leave(&seg);
	if (peer && !json_array_size(json_object_get(*stats, "peers"))) {
		json_decref(*stats);
		return fault_set(&ctl->fault, FAULT_NOT_FOUND, peer,
			"'xsegctl peer list' lists them", "segment '%s' has no peer '%s'", name,
			peer);
	}
	return 0;
}

static void add_counters(json_t *rows, const json_t *peer, bool all)
{
	const char *key;
	json_t *value;
	const json_t *units = json_object_get(peer, "units");
	json_object_foreach (json_object_get(peer, "counters"), key, value) {
		const char *unit = json_string_value(json_object_get(units, key));
		if (all || json_integer_value(value))
			json_array_append_new(
				rows, json_pack("{s:O, s:s, s:O, s:s}", "peer",
					      json_object_get(peer, "name"), "counter", key,
					      "value", value, "unit", unit ? unit : ""));
	}
}

static void add_histograms(json_t *rows, const json_t *peer, bool all)
{
	const char *key;
	json_t *value;
	json_object_foreach (json_object_get(peer, "histograms"), key, value) {
		if (!all && !json_integer_value(json_object_get(value, "count")))
			continue;
		json_t *row = json_pack(
			"{s:O, s:s}", "peer", json_object_get(peer, "name"), "histogram", key);
		json_object_update_missing(row, value);
		json_array_append_new(rows, row);
	}
}

static void print(struct ctl *ctl, const json_t *stats)
{
	json_t *counters = json_array(), *histograms = json_array(), *peer;
	bool all = ctl_given(ctl, "all");
	size_t i;
	json_array_foreach (json_object_get(stats, "peers"), i, peer) {
		add_counters(counters, peer, all);
		add_histograms(histograms, peer, all);
	}
	ctl_output_table(ctl, counters, counter_columns, countof(counter_columns));
	if (json_array_size(histograms)) {
		putchar('\n');
		ctl_output_table(ctl, histograms, histogram_columns, countof(histogram_columns));
	}
	json_decref(counters);
	json_decref(histograms);
}

static int run(struct ctl *ctl)
{
	json_t *stats;
	int rc = ask(ctl, ctl->argc ? ctl->argv[0] : NULL, &stats);
	if (rc)
		return rc;
	if (ctl_is_json(ctl)) {
		ctl_output_json(ctl, stats);
		return 0;
	}
	print(ctl, stats);
	json_decref(stats);
	return 0;
}

const struct ctl_verb ctl_stats_verb = {"stats", NULL, "[PEER]", 0, 1,
	"counters and latencies of every peer, since they started",
	"\tValues of all lanes of a peer are added up. Latencies are known to an eighth (12.5 %): "
	"the histograms have 8 buckets to the octave.\n",
	run, {&option_all}};
