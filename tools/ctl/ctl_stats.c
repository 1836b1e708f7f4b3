/* SPDX-License-Identifier: Apache-2.0 */
/* stats: counters and latency histograms of every peer. */
#include <base/must.h>
#include <base/time.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/ctl/ctl_output.h"
#include "tools/ctl/ctl_rpc.h"
#include "tools/ctl/ctl_watch.h"
#include "tools/report/report.h"

static const struct ctl_option option_all = {
	"all", 'a', NULL, "counters that are 0 and histograms that are empty, too", NULL};

static const struct ctl_option option_watch = {"watch", 'w', "[TIME]",
	"again and again, what was added since the last look (default every 1s)", NULL};

static const struct ctl_option option_volumes = {
	"volumes", 0, NULL, "volumes instead of peers, as their fronts see them", NULL};

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
	int rc = ctl_join_segment_name(ctl, name);
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
	bool all = ctl_option_given(ctl, "all");
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

/* --- volumes ---------------------------------------------------------------------------- */

static const struct ctl_column volume_columns[] = {{"volume", "VOLUME", CTL_TEXT},
	{"histogram", "HISTOGRAM", CTL_TEXT}, {"count", "COUNT", CTL_COUNT},
	{"bytes", "BYTES", CTL_SIZE}, {"mean", "MEAN", CTL_TIME}, {"p50", "P50", CTL_TIME},
	{"p90", "P90", CTL_TIME}, {"p99", "P99", CTL_TIME}, {"p99_9", "P99.9", CTL_TIME}};

static json_t *histogram_report(const struct watch_histogram *h)
{
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "unit", "ns", "count",
		(json_int_t)h->count, "mean", (json_int_t)(h->count ? h->sum / h->count : 0), "p50",
		(json_int_t)histogram_quantile(h->counts, 0.5), "p90",
		(json_int_t)histogram_quantile(h->counts, 0.9), "p99",
		(json_int_t)histogram_quantile(h->counts, 0.99), "p99_9",
		(json_int_t)histogram_quantile(h->counts, 0.999));
}

static json_t *volume_report(const struct watch_volume *volume)
{
	json_t *bytes = json_object(), *latency = json_object();
	char id[24];
	snprintf(id, sizeof(id), "%016llx", (unsigned long long)volume->volume);
	for (unsigned i = 0; i < XSEG_VOLUME_OPS; i++) {
		json_object_set_new(
			bytes, watch_volume_ops[i], json_integer((json_int_t)volume->bytes[i]));
		json_object_set_new(
			latency, volume->latency[i].name, histogram_report(&volume->latency[i]));
	}
	return json_pack("{s:s, s:s, s:I, s:o, s:o}", "volume", volume->name[0] ? volume->name : id,
		"id", id, "errors", (json_int_t)volume->errors, "bytes", bytes, "latency", latency);
}

static void volume_rows(json_t *rows, const json_t *volume, bool all)
{
	const char *key;
	json_t *value;
	json_object_foreach (json_object_get(volume, "latency"), key, value) {
		char op[16];
		snprintf(op, sizeof(op), "%.*s", (int)strcspn(key, "_"), key);
		if (!all && !json_integer_value(json_object_get(value, "count")))
			continue;
		json_t *row = json_pack("{s:O, s:s, s:O}", "volume",
			json_object_get(volume, "volume"), "histogram", key, "bytes",
			json_object_get(json_object_get(volume, "bytes"), op));
		json_object_update_missing(row, value);
		json_array_append_new(rows, row);
	}
}

static int run_volumes(struct ctl *ctl)
{
	json_t *volumes = json_array(), *rows = json_array(), *volume;
	struct watch watch;
	struct xseg seg;
	size_t k;
	int rc = ctl_join(ctl, &seg);
	if (!rc) {
		watch_take(&seg, &watch);
		for (uint32_t i = 0; i < watch.volume_count; i++)
			json_array_append_new(volumes, volume_report(&watch.volumes[i]));
		watch_free(&watch);
		xseg_segment_leave(&seg);
	}
	json_array_foreach (volumes, k, volume)
		volume_rows(rows, volume, ctl_option_given(ctl, "all"));
	if (!rc && ctl_output_is_json(ctl))
		ctl_output_rows(ctl, "volumes", json_incref(volumes), NULL, 0);
	else if (!rc)
		ctl_output_table(ctl, rows, volume_columns, countof(volume_columns));
	json_decref(volumes);
	json_decref(rows);
	return rc;
}

/* --- watching --------------------------------------------------------------------------- */

#define EVERY_NS 1000000000u

static const struct ctl_column rate_columns[] = {{"peer", "PEER", CTL_TEXT},
	{"counter", "COUNTER", CTL_TEXT}, {"value", "PER SECOND", CTL_COUNT},
	{"unit", "UNIT", CTL_TEXT}};

static const char *watched_peer; /* NULL: all */

static json_t *rate(
	const struct watch_counter *now, const struct watch_peer *before, double seconds)
{
	const struct watch_counter *old = before ? watch_counter(before, now->name) : NULL;
	uint64_t was = old && old->value <= now->value ? old->value : 0;
	if (!strcmp(now->unit, "now"))
		return json_integer((json_int_t)now->value);
	return json_real((double)(now->value - was) / seconds);
}

static json_t *since_report(const struct watch_histogram *now, const struct watch_peer *before)
{
	struct watch_histogram h =
		watch_since(now, before ? watch_histogram(before, now->name) : NULL);
	return histogram_report(&h);
}

static json_t *rates_report(
	const struct watch_peer *now, const struct watch_peer *before, double seconds)
{
	json_t *counters = json_object(), *units = json_object(), *histograms = json_object();
	for (uint32_t i = 0; i < now->counter_count; i++) {
		const struct watch_counter *c = &now->counters[i];
		if (!c->name[0])
			continue;
		json_object_set_new(counters, c->name, rate(c, before, seconds));
		if (c->unit[0])
			json_object_set_new(units, c->name, json_string(c->unit));
	}
	for (uint32_t i = 0; i < now->histogram_count; i++)
		if (now->histograms[i].name[0])
			json_object_set_new(histograms, now->histograms[i].name,
				since_report(&now->histograms[i], before));
	return json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", now->view.name, "role",
		now->view.role, "counters", counters, "units", units, "histograms", histograms);
}

static void print_rates(struct ctl *ctl, const json_t *peers)
{
	json_t *counters = json_array(), *histograms = json_array(), *peer, *row;
	bool all = ctl_option_given(ctl, "all");
	size_t i, k;
	json_array_foreach (peers, i, peer) {
		add_counters(counters, peer, true);
		add_histograms(histograms, peer, all);
	}
	for (k = json_array_size(counters); !all && k-- > 0;) {
		row = json_array_get(counters, k);
		if (json_number_value(json_object_get(row, "value")) == 0)
			json_array_remove(counters, k);
	}
	ctl_output_table(ctl, counters, rate_columns, countof(rate_columns));
	if (json_array_size(histograms) && ctl->format == CTL_TABLE) {
		putchar('\n');
		ctl_output_table(ctl, histograms, histogram_columns, countof(histogram_columns));
	}
	if (ctl->format == CTL_TABLE)
		putchar('\n');
	json_decref(counters);
	json_decref(histograms);
}

static void show_rates(
	struct ctl *ctl, const struct watch *before, const struct watch *now, double seconds)
{
	json_t *peers = json_array();
	for (uint32_t i = 0; i < now->peer_count; i++) {
		const struct watch_peer *peer = &now->peers[i];
		if (watched_peer && strcmp(peer->view.name, watched_peer))
			continue;
		json_array_append_new(
			peers, rates_report(peer, watch_peer_before(before, peer), seconds));
	}
	if (ctl_output_is_json(ctl))
		ctl_output_json(
			ctl, json_pack("{s:i, s:I, s:O}", "schema_version", CTL_SCHEMA_VERSION,
				     "interval_ns", (json_int_t)(now->time_ns - before->time_ns),
				     "peers", peers));
	else
		print_rates(ctl, peers);
	json_decref(peers);
}

static int check_peer(struct ctl *ctl, const struct xseg *seg)
{
	struct xseg_peer_view view;
	if (!watched_peer || !xseg_peer_find(seg, watched_peer, &view))
		return 0;
	return fault_set(&ctl->fault, FAULT_NOT_FOUND, watched_peer,
		"'xsegctl peer list' lists them", "segment '%s' has no peer '%s'", seg->name,
		watched_peer);
}

/* What was added, not the sums: read from the segment, as often as wanted. */
static int run_watch(struct ctl *ctl)
{
	struct ctl_watch watch = {.every_ns = EVERY_NS, .show = show_rates};
	struct xseg seg;
	int argc = ctl->argc;
	/* `--watch 2s`, as people write it */
	if (argc && !*ctl_option_value(ctl, "watch") &&
		!time_parse_positive(ctl->argv[argc - 1], &watch.every_ns))
		argc--;
	int rc = ctl_watch_time(ctl, "watch", &watch.every_ns);
	if (!rc)
		rc = ctl_option_number(ctl, "count", UINT32_MAX, &watch.count);
	if (!rc && argc > 1)
		rc = fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[1], NULL,
			"'%s' is one too many: xsegctl stats [PEER] --watch", ctl->argv[1]);
	if (!rc)
		rc = ctl_join(ctl, &seg);
	if (rc)
		return rc;
	watched_peer = argc ? ctl->argv[0] : NULL;
	rc = check_peer(ctl, &seg);
	watch.live = isatty(STDOUT_FILENO) && ctl->format == CTL_TABLE && !watch.count;
	if (ctl->format == CTL_JSON)
		ctl->format = CTL_JSONL;
	if (!rc)
		rc = ctl_watch_run(ctl, &seg, &watch);
	xseg_segment_leave(&seg);
	return rc;
}

static int run(struct ctl *ctl)
{
	json_t *stats;
	if (ctl_option_given(ctl, "watch"))
		return run_watch(ctl);
	if (ctl_option_given(ctl, "volumes"))
		return run_volumes(ctl);
	if (ctl->argc > 1)
		return fault_set(&ctl->fault, FAULT_USAGE, ctl->argv[1], NULL,
			"'%s' is one too many: xsegctl stats [PEER]", ctl->argv[1]);
	int rc = ask(ctl, ctl->argc ? ctl->argv[0] : NULL, &stats);
	if (rc)
		return rc;
	if (ctl_output_is_json(ctl)) {
		ctl_output_json(ctl, stats);
		return 0;
	}
	print(ctl, stats);
	json_decref(stats);
	return 0;
}

const struct ctl_verb ctl_stats_verb = {
	"stats",
	NULL,
	"[PEER]",
	0,
	2,
	"counters and latencies of every peer, since they started",
	"\tValues of all lanes of a peer are added up. Latencies are known to an eighth (12.5 %): "
	"the histograms have 8 buckets to the octave. With *--watch* values are per second, "
	"latencies those of the interval; the segment is read, the keeper not asked.\n",
	run,
	{&option_all, &option_watch, &ctl_option_count, &option_volumes},
	.examples = "xsegctl stats vol0 --json\n"
		    "xsegctl stats --watch 2s\n"
		    "xsegctl stats --volumes\n",
};
