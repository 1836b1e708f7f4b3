/* SPDX-License-Identifier: Apache-2.0 */
/* top: what every peer, volume and lane does just now. */
#include <base/must.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/ctl/ctl_output.h"
#include "tools/ctl/ctl_watch.h"
#include "tools/report/report.h"

#define EVERY_NS 1000000000u

static const struct ctl_option option_batch = {
	"batch", 'b', NULL, "look again and again, one table or object after the other", NULL};
static const struct ctl_option option_all = {
	"all", 'a', NULL, "peers, volumes and lanes that do nothing, too", NULL};

static const struct ctl_column peer_columns[] = {{"name", "PEER", CTL_TEXT}, {"op", "OP", CTL_TEXT},
	{"iops", "IOPS", CTL_COUNT}, {"mb_per_s", "MB/S", CTL_COUNT}, {"p50_ns", "P50", CTL_TIME},
	{"p99_ns", "P99", CTL_TIME}, {"p99_9_ns", "P99.9", CTL_TIME | CTL_WIDE},
	{"queued", "QUEUED", CTL_COUNT}, {"served", "SERVED", CTL_COUNT},
	{"sent", "SENT", CTL_COUNT | CTL_WIDE}, {"waits_per_s", "WAITS/S", CTL_COUNT | CTL_WIDE},
	{"errors_per_s", "ERRORS/S", CTL_COUNT}};

static const struct ctl_column volume_columns[] = {{"name", "VOLUME", CTL_TEXT},
	{"op", "OP", CTL_TEXT}, {"iops", "IOPS", CTL_COUNT}, {"mb_per_s", "MB/S", CTL_COUNT},
	{"p50_ns", "P50", CTL_TIME}, {"p99_ns", "P99", CTL_TIME},
	{"p99_9_ns", "P99.9", CTL_TIME | CTL_WIDE}, {"sent", "IN FLIGHT", CTL_COUNT},
	{"errors_per_s", "ERRORS/S", CTL_COUNT}};

static const struct ctl_column cache_columns[] = {{"name", "CACHE", CTL_TEXT},
	{"hit_percent", "HIT %", CTL_COUNT}, {"dirty_mib", "DIRTY MIB", CTL_COUNT},
	{"used_mib", "USED MIB", CTL_COUNT}, {"size_mib", "SIZE MIB", CTL_COUNT},
	{"in_mb_per_s", "IN MB/S", CTL_COUNT}, {"out_mb_per_s", "OUT MB/S", CTL_COUNT},
	{"filled_mb_per_s", "FILLED MB/S", CTL_COUNT | CTL_WIDE},
	{"written_mb_per_s", "WRITTEN MB/S", CTL_COUNT | CTL_WIDE},
	{"waiting", "WAITING", CTL_COUNT}};

static const struct ctl_column lane_columns[] = {{"lane", "LANE", CTL_COUNT},
	{"pid", "PID", CTL_COUNT}, {"peers", "PEERS", CTL_TEXT},
	{"busy_percent", "BUSY %", CTL_COUNT}, {"looking_percent", "LOOKING %", CTL_COUNT},
	{"asleep_percent", "ASLEEP %", CTL_COUNT},
	{"sleeps_per_s", "SLEEPS/S", CTL_COUNT | CTL_WIDE}, {"turns_per_s", "TURNS/S", CTL_COUNT}};

/* One look, as JSON; tables are made of the same. */
struct look {
	const struct watch *before, *now;
	double seconds;
	bool all;
};

static double grown(uint64_t now, uint64_t before)
{
	return now >= before ? (double)(now - before) : (double)now;
}

static json_t *quantile(const struct watch_histogram *histogram, double share)
{
	return json_integer((json_int_t)histogram_quantile(histogram->counts, share));
}

static json_t *op_report(const struct look *look, const struct watch_histogram *now,
	const struct watch_histogram *before, double bytes)
{
	static const struct watch_histogram none;
	struct watch_histogram since = watch_since(now ? now : &none, before);
	return json_pack("{s:f, s:f, s:o, s:o, s:o}", "iops", (double)since.count / look->seconds,
		"bytes_per_s", bytes / look->seconds, "p50_ns", quantile(&since, 0.5), "p99_ns",
		quantile(&since, 0.99), "p99_9_ns", quantile(&since, 0.999));
}

/* --- peers ------------------------------------------------------------------------------ */

static double counter_grown(
	const struct watch_peer *now, const struct watch_peer *before, const char *name)
{
	const struct watch_counter *a = name ? watch_counter(now, name) : NULL;
	const struct watch_counter *b = name && before ? watch_counter(before, name) : NULL;
	return a ? grown(a->value, b ? b->value : 0) : 0;
}

static json_t *peer_ops_report(
	const struct look *look, const struct watch_peer *now, const struct watch_peer *before)
{
	json_t *ops = json_object();
	for (unsigned i = 0; i < WATCH_OPS; i++) {
		const struct watch_op *op = &watch_ops[i];
		const struct watch_histogram *b =
			before ? watch_histogram(before, op->histogram) : NULL;
		json_object_set_new(ops, op->op,
			op_report(look, watch_histogram(now, op->histogram), b,
				counter_grown(now, before, op->bytes)));
	}
	return ops;
}

static uint64_t counter_now(const struct watch_peer *peer, const char *name)
{
	const struct watch_counter *counter = watch_counter(peer, name);
	return counter ? counter->value : 0;
}

/* What a cache counts beside: see `xsegpeer --describe-role cached`. */
static json_t *cache_report(
	const struct look *look, const struct watch_peer *now, const struct watch_peer *before)
{
	double hits = counter_grown(now, before, "hits");
	double all = hits + counter_grown(now, before, "misses");
	json_t *out = json_pack("{s:o, s:I, s:I, s:I, s:I}", "hit_ratio",
		all > 0 ? json_real(hits / all) : json_null(), "dirty",
		(json_int_t)counter_now(now, "dirty"), "used", (json_int_t)counter_now(now, "used"),
		"size", (json_int_t)counter_now(now, "size"), "waiting",
		(json_int_t)counter_now(now, "waiting"));
	static const struct {
		const char *key, *counter;
	} rates[] = {{"in_bytes_per_s", "write_bytes"}, {"out_bytes_per_s", "read_bytes"},
		{"filled_bytes_per_s", "fill_bytes"}, {"written_bytes_per_s", "written_bytes"}};
	for (size_t i = 0; i < countof(rates); i++)
		json_object_set_new(out, rates[i].key,
			json_real(counter_grown(now, before, rates[i].counter) / look->seconds));
	return out;
}

static json_t *peer_report(const struct look *look, const struct watch_peer *now)
{
	const struct watch_peer *before = watch_peer_before(look->before, now);
	const char *state = now->view.life == XSEG_LIFE_DEAD	   ? "dead"
			    : now->view.life == XSEG_LIFE_ALIVE	   ? "serving"
			    : now->view.life == XSEG_LIFE_DRAINING ? "stopping"
								   : "starting";
	json_t *out = json_pack("{s:s, s:s, s:i, s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:o}", "name",
		now->view.name, "role", now->view.role, "pid", (int)now->view.pid, "state", state,
		"queued", (int)now->queued, "served", (int)now->served, "sent", (int)now->sent,
		"waits_per_s", counter_grown(now, before, "retries") / look->seconds,
		"slow_turns_per_s", counter_grown(now, before, "slow_turns") / look->seconds,
		"errors_per_s", counter_grown(now, before, "errors") / look->seconds, "ops",
		peer_ops_report(look, now, before));
	if (out && !strcmp(now->view.role, "cached"))
		json_object_set_new(out, "cache", cache_report(look, now, before));
	return out;
}

/* --- volumes ---------------------------------------------------------------------------- */

static json_t *volume_report(const struct look *look, const struct watch_volume *now)
{
	const struct watch_volume *before = watch_volume_before(look->before, now);
	json_t *ops = json_object();
	char id[24];
	for (unsigned i = 0; i < XSEG_VOLUME_OPS; i++)
		json_object_set_new(ops, watch_volume_ops[i],
			op_report(look, &now->latency[i], before ? &before->latency[i] : NULL,
				grown(now->bytes[i], before ? before->bytes[i] : 0)));
	snprintf(id, sizeof(id), "%016llx", (unsigned long long)now->volume);
	return json_pack("{s:s, s:s, s:i, s:f, s:o}", "name", now->name[0] ? now->name : id, "id",
		id, "sent", (int)now->sent, "errors_per_s",
		grown(now->errors, before ? before->errors : 0) / look->seconds, "ops", ops);
}

/* --- lanes ------------------------------------------------------------------------------ */

static void lane_peers(const struct watch *watch, uint32_t lane, char *out, size_t out_size)
{
	out[0] = 0;
	for (uint32_t i = 0; i < watch->peer_count; i++) {
		size_t n = strlen(out);
		const struct xseg_peer_view *view = &watch->peers[i].view;
		if ((view->lanes >> lane) & 1u && view->life != XSEG_LIFE_DEAD)
			snprintf(out + n, out_size - n, "%s%s", n ? "," : "", view->name);
	}
}

static json_t *lane_report(const struct look *look, const struct watch_lane *now)
{
	static const struct watch_lane none;
	const struct watch_lane *before = watch_lane_before(look->before, now);
	char peers[256];
	if (!before)
		before = &none;
	double all_ns = look->seconds * 1e9;
	double busy = grown(now->busy_ns, before->busy_ns) / all_ns * 100;
	double asleep = grown(now->asleep_ns, before->asleep_ns) / all_ns * 100;
	asleep = asleep > 100 ? 100 : asleep;
	busy = busy > 100 - asleep ? 100 - asleep : busy;
	double sleeps = grown(now->sleeps, before->sleeps);
	double looking = 100 - busy - asleep;
	lane_peers(look->now, now->lane, peers, sizeof(peers));
	return json_pack("{s:i, s:i, s:s, s:f, s:f, s:f, s:f, s:f}", "lane", (int)now->lane, "pid",
		(int)now->pid, "peers", peers, "busy_percent", busy, "looking_percent", looking,
		"asleep_percent", asleep, "sleeps_per_s", sleeps / look->seconds, "turns_per_s",
		grown(now->turns, before->turns) / look->seconds);
}

static json_t *look_report(const struct look *look, const char *segment)
{
	json_t *peers = json_array(), *volumes = json_array(), *lanes = json_array();
	for (uint32_t i = 0; i < look->now->peer_count; i++)
		json_array_append_new(peers, peer_report(look, &look->now->peers[i]));
	for (uint32_t i = 0; i < look->now->volume_count; i++)
		json_array_append_new(volumes, volume_report(look, &look->now->volumes[i]));
	for (uint32_t i = 0; i < look->now->lane_count; i++)
		json_array_append_new(lanes, lane_report(look, &look->now->lanes[i]));
	const struct xseg_usage *usage = &look->now->usage;
	return json_pack("{s:i, s:s, s:I, s:{s:i, s:i}, s:{s:i, s:i}, s:o, s:o, s:o}",
		"schema_version", CTL_SCHEMA_VERSION, "segment", segment, "interval_ns",
		(json_int_t)(look->now->time_ns - look->before->time_ns), "pages", "total",
		(int)usage->pages, "free", (int)usage->pages_free, "requests", "total",
		(int)usage->requests, "free", (int)usage->requests_by_state[XSEG_REQUEST_FREE],
		"peers", peers, "volumes", volumes, "lanes", lanes);
}

/* --- tables ----------------------------------------------------------------------------- */

/* A line for each op that happened; one with "-" for who does nothing. */
static void op_rows(json_t *rows, const json_t *thing, bool all)
{
	const char *key;
	json_t *op;
	size_t before = json_array_size(rows);
	json_object_foreach (json_object_get(thing, "ops"), key, op) {
		double bytes = json_real_value(json_object_get(op, "bytes_per_s"));
		if (json_real_value(json_object_get(op, "iops")) <= 0)
			continue;
		json_t *row = json_copy((json_t *)thing);
		json_object_update(row, op);
		json_object_set_new(row, "op", json_string(key));
		json_object_set_new(row, "mb_per_s", json_real(bytes / 1e6));
		json_array_append_new(rows, row);
	}
	bool waits = json_integer_value(json_object_get(thing, "queued")) ||
		     json_integer_value(json_object_get(thing, "served")) ||
		     json_integer_value(json_object_get(thing, "sent"));
	if (json_array_size(rows) == before && (all || waits))
		json_array_append(rows, (json_t *)thing);
}

static void print_ops(struct ctl *ctl, const json_t *look, const char *key,
	const struct ctl_column *columns, size_t count)
{
	json_t *rows = json_array(), *thing;
	size_t i;
	json_array_foreach (json_object_get(look, key), i, thing)
		op_rows(rows, thing, ctl_option_given(ctl, "all"));
	if (json_array_size(rows) && ctl->format == CTL_TABLE)
		putchar('\n');
	ctl_output_table(ctl, rows, columns, count);
	json_decref(rows);
}

static void cache_row(json_t *rows, const json_t *peer)
{
	static const struct {
		const char *key, *from;
		double unit;
	} cells[] = {{"hit_percent", "hit_ratio", 0.01}, {"dirty_mib", "dirty", 1 << 20},
		{"used_mib", "used", 1 << 20}, {"size_mib", "size", 1 << 20},
		{"in_mb_per_s", "in_bytes_per_s", 1e6}, {"out_mb_per_s", "out_bytes_per_s", 1e6},
		{"filled_mb_per_s", "filled_bytes_per_s", 1e6},
		{"written_mb_per_s", "written_bytes_per_s", 1e6}};
	const json_t *cache = json_object_get(peer, "cache");
	if (!cache)
		return;
	json_t *row = json_pack("{s:O, s:O}", "name", json_object_get(peer, "name"), "waiting",
		json_object_get(cache, "waiting"));
	for (size_t i = 0; i < countof(cells); i++) {
		const json_t *value = json_object_get(cache, cells[i].from);
		if (json_is_number(value))
			json_object_set_new(row, cells[i].key,
				json_real(json_number_value(value) / cells[i].unit));
	}
	json_array_append_new(rows, row);
}

static void print_caches(struct ctl *ctl, const json_t *look)
{
	json_t *rows = json_array(), *peer;
	size_t i;
	json_array_foreach (json_object_get(look, "peers"), i, peer)
		cache_row(rows, peer);
	if (json_array_size(rows)) {
		putchar('\n');
		ctl_output_table(ctl, rows, cache_columns, countof(cache_columns));
	}
	json_decref(rows);
}

static void print_lanes(struct ctl *ctl, const json_t *look)
{
	json_t *rows = json_array(), *lane;
	size_t i;
	json_array_foreach (json_object_get(look, "lanes"), i, lane)
		if (ctl_option_given(ctl, "all") ||
			*json_string_value(json_object_get(lane, "peers")))
			json_array_append(rows, lane);
	if (json_array_size(rows) && ctl->format == CTL_TABLE)
		putchar('\n');
	ctl_output_table(ctl, rows, lane_columns, countof(lane_columns));
	json_decref(rows);
}

static void print_head(const json_t *look, double seconds)
{
	const json_t *pages = json_object_get(look, "pages");
	const json_t *requests = json_object_get(look, "requests");
	printf("segment %s, over %.2f s: pages %lld of %lld free, requests %lld of %lld free\n",
		json_string_value(json_object_get(look, "segment")), seconds,
		(long long)json_integer_value(json_object_get(pages, "free")),
		(long long)json_integer_value(json_object_get(pages, "total")),
		(long long)json_integer_value(json_object_get(requests, "free")),
		(long long)json_integer_value(json_object_get(requests, "total")));
}

static char shown_segment[NAME_LENGTH_MAX + 1];

static void show(
	struct ctl *ctl, const struct watch *before, const struct watch *now, double seconds)
{
	struct look look = {.before = before, .now = now, .seconds = seconds};
	json_t *report = look_report(&look, shown_segment);
	if (ctl_output_is_json(ctl)) {
		ctl_output_json(ctl, report);
		return;
	}
	if (ctl->format == CTL_TABLE)
		print_head(report, seconds);
	print_ops(ctl, report, "peers", peer_columns, countof(peer_columns));
	if (ctl->format == CTL_TABLE) {
		print_caches(ctl, report);
		print_ops(ctl, report, "volumes", volume_columns, countof(volume_columns));
		print_lanes(ctl, report);
	}
	json_decref(report);
}

static int run(struct ctl *ctl)
{
	struct xseg seg;
	struct ctl_watch watch = {.every_ns = EVERY_NS, .show = show};
	bool live = isatty(STDOUT_FILENO) && ctl->format == CTL_TABLE &&
		    !ctl_option_given(ctl, "once") && !ctl_option_given(ctl, "batch");
	int rc = ctl_watch_time(ctl, "interval", &watch.every_ns);
	if (!rc)
		rc = ctl_option_number(ctl, "count", UINT32_MAX, &watch.count);
	if (!rc)
		rc = ctl_join(ctl, &seg);
	if (rc)
		return rc;
	watch.live = live;
	if (!live && !ctl_option_given(ctl, "batch") && !watch.count)
		watch.count = 1;
	if (ctl_option_given(ctl, "once"))
		watch.count = 1;
	/* objects that follow one another are told apart by lines */
	if (ctl->format == CTL_JSON && watch.count != 1)
		ctl->format = CTL_JSONL;
	snprintf(shown_segment, sizeof(shown_segment), "%s", seg.name);
	rc = ctl_watch_run(ctl, &seg, &watch);
	xseg_segment_leave(&seg);
	return rc;
}

const struct ctl_verb ctl_top_verb = {
	"top",
	NULL,
	"",
	0,
	0,
	"what every peer, volume and lane does just now",
	"\tOn a terminal again and again until q or ^C, where arrows and the page keys move in "
	"what "
	"does not fit; otherwise, with *--once* and with *--json* one look over *--interval*. "
	"QUEUED requests wait at the peer's port, SERVED ones are with it, "
	"SENT ones are its own further down; WAITS are for a free request or page. Of a cache: the "
	"share "
	"of hits, what is dirty, what comes in from above and goes out to it, and what is filled "
	"from "
	"and written to the store. A lane is busy, "
	"looking for work, or asleep. Reads the segment; needs no keeper and stops nobody.\n",
	run,
	{&ctl_option_interval, &ctl_option_once, &ctl_option_count, &option_batch, &option_all},
	.examples = "xsegctl top\n"
		    "xsegctl top --batch -n 60 --json\n",
};
