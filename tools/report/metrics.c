/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what a segment has counted as OpenMetrics text. */
#include "tools/report/metrics.h"

#include <base/must.h>
#include <ctype.h>
#include <peer/peer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/report/watch.h"

/* Buckets of a histogram that are shown: powers of two from 1.024 us to 68.7 s. */
#define OCTAVE_FIRST 10u
#define OCTAVE_LAST 36u

#define FAMILY_MAX (NAME_LENGTH_MAX + 64u)

struct page {
	FILE *out;
	enum metrics_format format;
	const char *segment;
	struct watch watch;
	char (*families)[XSEG_COUNTERS][FAMILY_MAX]; /* of each peer's counters; "" when written */
};

/* --- the format ------------------------------------------------------------------------- */

/* OpenMetrics names the family of a counter without its "_total", Prometheus' older format with
   it, and knows of no units. */
static void family(const struct page *page, const char *name, const char *type, const char *unit,
	const char *help)
{
	FILE *out = page->out;
	bool total = page->format == METRICS_PROMETHEUS && !strcmp(type, "counter");
	const char *suffix = total ? "_total" : "";
	fprintf(out, "# TYPE %s%s %s\n", name, suffix, type);
	if (*unit && page->format == METRICS_OPEN)
		fprintf(out, "# UNIT %s %s\n", name, unit);
	fprintf(out, "# HELP %s%s ", name, suffix);
	for (; *help; help++)
		fputs(*help == '\\'    ? "\\\\"
			: *help == '"' ? "\\\""
				       : (char[]){isprint((unsigned char)*help) ? *help : ' ', 0},
			out);
	putc('\n', out);
}

static void label(FILE *out, const char *name, const char *value)
{
	fprintf(out, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '\n')
			fputs("\\n", out);
		else if (*value == '"' || *value == '\\')
			fprintf(out, "\\%c", *value);
		else
			putc(*value, out);
	}
	putc('"', out);
}

/* {segment="demo",peer="nbd0",op="read",le="1"}: of those that are not NULL. */
static void labels(const struct page *page, const char *name, const char *value, const char *op,
	const char *le)
{
	FILE *out = page->out;
	putc('{', out);
	label(out, "segment", page->segment);
	if (name) {
		putc(',', out);
		label(out, name, value);
	}
	if (op) {
		putc(',', out);
		label(out, "op", op);
	}
	if (le) {
		putc(',', out);
		label(out, "le", le);
	}
	putc('}', out);
}

static void sample(const struct page *page, const char *metric, const char *suffix,
	const char *name, const char *value, const char *op, uint64_t number)
{
	fprintf(page->out, "%s%s", metric, suffix);
	labels(page, name, value, op, NULL);
	fprintf(page->out, " %llu\n", (unsigned long long)number);
}

/* Of ns, as seconds. */
static void sample_seconds(const struct page *page, const char *metric, const char *suffix,
	const char *name, const char *value, const char *op, uint64_t ns)
{
	fprintf(page->out, "%s%s", metric, suffix);
	labels(page, name, value, op, NULL);
	fprintf(page->out, " %llu.%09llu\n", (unsigned long long)(ns / 1000000000u),
		(unsigned long long)(ns % 1000000000u));
}

static void bucket(const struct page *page, const char *metric, const char *name, const char *value,
	const char *op, const char *le, uint64_t number)
{
	fprintf(page->out, "%s_bucket", metric);
	labels(page, name, value, op, le);
	fprintf(page->out, " %llu\n", (unsigned long long)number);
}

/* An octave's last bucket ends where the next octave begins: the counts are exact. */
static void histogram(const struct page *page, const char *metric, const char *name,
	const char *value, const char *op, const struct watch_histogram *h)
{
	uint64_t below = 0;
	unsigned at = 0;
	char le[32];
	for (unsigned octave = OCTAVE_FIRST; octave <= OCTAVE_LAST; octave++) {
		while (at < histogram_index(1ull << octave))
			below += h->counts[at++];
		snprintf(le, sizeof(le), "%.10g", (double)(1ull << octave) / 1e9);
		bucket(page, metric, name, value, op, le, below);
	}
	bucket(page, metric, name, value, op, "+Inf", h->count);
	sample(page, metric, "_count", name, value, op, h->count);
	sample_seconds(page, metric, "_sum", name, value, op, h->sum);
}

/* --- peers ------------------------------------------------------------------------------ */

static const struct {
	const char *counter, *op;
} request_counters[] = {{"reads", "read"}, {"writes", "write"}, {"flushes", "flush"},
	{"zeros", "zero"}, {"others", "other"}},
  byte_counters[] = {{"read_bytes", "read"}, {"write_bytes", "write"}, {"zero_bytes", "zero"}};

static void peers_up(const struct page *page)
{
	family(page, "skerry_peer_up", "gauge", "", "1 while the peer's process lives");
	for (uint32_t i = 0; i < page->watch.peer_count; i++) {
		const struct watch_peer *peer = &page->watch.peers[i];
		sample(page, "skerry_peer_up", "", "peer", peer->view.name, NULL,
			peer->view.life != XSEG_LIFE_DEAD);
	}
}

static void peer_counter(
	const struct page *page, const char *metric, const char *counter, const char *op)
{
	for (uint32_t i = 0; i < page->watch.peer_count; i++) {
		const struct watch_peer *peer = &page->watch.peers[i];
		const struct watch_counter *c = watch_counter(peer, counter);
		if (c)
			sample(page, metric, "_total", "peer", peer->view.name, op, c->value);
	}
}

static void peers_ops(const struct page *page)
{
	family(page, "skerry_requests", "counter", "", "requests served, or sent by a front");
	for (size_t i = 0; i < countof(request_counters); i++)
		peer_counter(page, "skerry_requests", request_counters[i].counter,
			request_counters[i].op);
	family(page, "skerry_request_bytes", "counter", "bytes", "bytes of those requests");
	for (size_t i = 0; i < countof(byte_counters); i++)
		peer_counter(page, "skerry_request_bytes", byte_counters[i].counter,
			byte_counters[i].op);
	family(page, "skerry_request_duration_seconds", "histogram", "seconds",
		"from taking a request to its answer; of a front: to the answer from below");
	for (uint32_t i = 0; i < page->watch.peer_count; i++)
		for (unsigned k = 0; k < WATCH_OPS; k++) {
			const struct watch_peer *peer = &page->watch.peers[i];
			const struct watch_histogram *h =
				watch_histogram(peer, watch_ops[k].histogram);
			if (h)
				histogram(page, "skerry_request_duration_seconds", "peer",
					peer->view.name, watch_ops[k].op, h);
		}
}

static void peers_queues(const struct page *page)
{
	family(page, "skerry_requests_queued", "gauge", "",
		"requests that wait at the peer's port");
	for (uint32_t i = 0; i < page->watch.peer_count; i++)
		sample(page, "skerry_requests_queued", "", "peer", page->watch.peers[i].view.name,
			NULL, page->watch.peers[i].queued);
	family(page, "skerry_requests_taken", "gauge", "", "requests that the peer works on");
	for (uint32_t i = 0; i < page->watch.peer_count; i++)
		sample(page, "skerry_requests_taken", "", "peer", page->watch.peers[i].view.name,
			NULL, page->watch.peers[i].served);
}

/* --- counters of the tables ------------------------------------------------------------- */

static bool has_family(const char *counter)
{
	for (size_t i = 0; i < countof(request_counters); i++)
		if (!strcmp(request_counters[i].counter, counter))
			return true;
	for (size_t i = 0; i < countof(byte_counters); i++)
		if (!strcmp(byte_counters[i].counter, counter))
			return true;
	return false;
}

static const char *unit_of(const struct watch_counter *c)
{
	return !strcmp(c->unit, "B") ? "bytes" : !strcmp(c->unit, "ns") ? "seconds" : "";
}

/* "nbd_reads" of front_nbd says its role already. */
static bool says_role(const char *counter, const char *role)
{
	const char *word = strrchr(role, '_');
	size_t length = word ? strlen(word + 1) : 0;
	return length && !strncmp(counter, word + 1, length) && counter[length] == '_';
}

/* The core's counters are the same for all; a role's carry its name. "" for none. */
static void name_family(const struct watch_peer *peer, uint32_t index, char out[FAMILY_MAX])
{
	const struct watch_counter *c = &peer->counters[index];
	const char *unit = unit_of(c);
	out[0] = 0;
	if (!c->name[0] || has_family(c->name))
		return;
	bool bare = index < PEER_CORE_COUNTERS || says_role(c->name, peer->view.role);
	snprintf(out, FAMILY_MAX, "skerry_%s%s%s%s%s", bare ? "" : peer->view.role, bare ? "" : "_",
		c->name, *unit ? "_" : "", unit);
	for (char *at = out; *at; at++)
		if (!isalnum((unsigned char)*at))
			*at = '_';
}

static void name_families(struct page *page)
{
	page->families = calloc(page->watch.peer_count + 1, sizeof(*page->families));
	must(page->families);
	for (uint32_t p = 0; p < page->watch.peer_count; p++)
		for (uint32_t i = 0; i < page->watch.peers[p].counter_count; i++)
			name_family(&page->watch.peers[p], i, page->families[p][i]);
}

static void counter_sample(const struct page *page, const char *name, const struct watch_peer *peer,
	const struct watch_counter *c)
{
	const char *suffix = strcmp(c->unit, "now") ? "_total" : "";
	if (!strcmp(c->unit, "ns"))
		sample_seconds(page, name, suffix, "peer", peer->view.name, NULL, c->value);
	else
		sample(page, name, suffix, "peer", peer->view.name, NULL, c->value);
}

/* All peers that have it, and then it is done with. */
static void counters_of_family(struct page *page, uint32_t from, const char *name)
{
	for (uint32_t p = from; p < page->watch.peer_count; p++) {
		const struct watch_peer *peer = &page->watch.peers[p];
		bool shown = false;
		for (uint32_t i = 0; i < peer->counter_count; i++) {
			if (strcmp(page->families[p][i], name))
				continue;
			if (!shown)
				counter_sample(page, name, peer, &peer->counters[i]);
			shown = true;
			page->families[p][i][0] = 0;
		}
	}
}

static void peers_counters(struct page *page)
{
	name_families(page);
	for (uint32_t p = 0; p < page->watch.peer_count; p++)
		for (uint32_t i = 0; i < page->watch.peers[p].counter_count; i++) {
			const struct watch_counter *c = &page->watch.peers[p].counters[i];
			char name[FAMILY_MAX];
			memcpy(name, page->families[p][i], sizeof(name));
			if (!name[0])
				continue;
			family(page, name, strcmp(c->unit, "now") ? "counter" : "gauge", unit_of(c),
				c->help);
			counters_of_family(page, p, name);
		}
	free(page->families);
}

/* --- lanes, counted for the peers that run on them -------------------------------------- */

static void lane_family(
	const struct page *page, const char *name, const char *unit, const char *help, size_t field)
{
	family(page, name, "counter", unit, help);
	for (uint32_t p = 0; p < page->watch.peer_count; p++) {
		const struct xseg_peer_view *view = &page->watch.peers[p].view;
		uint64_t sum = 0;
		for (uint32_t i = 0; i < page->watch.lane_count; i++) {
			const struct watch_lane *lane = &page->watch.lanes[i];
			if (lane->pid == view->pid && (view->lanes >> lane->lane) & 1u)
				sum += *(
					const uint64_t *)(const void *)((const char *)lane + field);
		}
		if (*unit)
			sample_seconds(page, name, "_total", "peer", view->name, NULL, sum);
		else
			sample(page, name, "_total", "peer", view->name, NULL, sum);
	}
}

static void lanes(const struct page *page)
{
	lane_family(page, "skerry_lane_busy_seconds", "seconds",
		"time of the peer's lanes, shared with others of its process, in turns with work",
		offsetof(struct watch_lane, busy_ns));
	lane_family(page, "skerry_lane_asleep_seconds", "seconds", "time of those lanes asleep",
		offsetof(struct watch_lane, asleep_ns));
	lane_family(page, "skerry_lane_sleeps", "", "times that those lanes slept",
		offsetof(struct watch_lane, sleeps));
}

/* --- volumes ---------------------------------------------------------------------------- */

/* Its name; its id where it has none, or where an older one has it, too. */
static const char *volume_label(const struct page *page, uint32_t index, char id[24])
{
	const struct watch_volume *volume = &page->watch.volumes[index];
	bool twice = !volume->name[0];
	for (uint32_t i = 0; i < index; i++)
		twice |= !strcmp(page->watch.volumes[i].name, volume->name);
	snprintf(id, 24, "%016llx", (unsigned long long)volume->volume);
	return twice ? id : volume->name;
}

static void volumes(const struct page *page)
{
	const struct watch *watch = &page->watch;
	char id[24];
	family(page, "skerry_volume_bytes", "counter", "bytes",
		"bytes that fronts moved for a volume");
	for (uint32_t i = 0; i < watch->volume_count; i++)
		for (unsigned op = 0; op < XSEG_VOLUME_OPS; op++)
			if (op != XSEG_VOLUME_OP_FLUSH)
				sample(page, "skerry_volume_bytes", "_total", "volume",
					volume_label(page, i, id), watch_volume_ops[op],
					watch->volumes[i].bytes[op]);
	family(page, "skerry_volume_errors", "counter", "",
		"requests of a volume that ended with an error");
	for (uint32_t i = 0; i < watch->volume_count; i++)
		sample(page, "skerry_volume_errors", "_total", "volume", volume_label(page, i, id),
			NULL, watch->volumes[i].errors);
	family(page, "skerry_volume_requests_in_flight", "gauge", "",
		"requests of a volume under way");
	for (uint32_t i = 0; i < watch->volume_count; i++)
		sample(page, "skerry_volume_requests_in_flight", "", "volume",
			volume_label(page, i, id), NULL, watch->volumes[i].sent);
	family(page, "skerry_volume_duration_seconds", "histogram", "seconds",
		"from a front's sending a request of a volume to its answer");
	for (uint32_t i = 0; i < watch->volume_count; i++)
		for (unsigned op = 0; op < XSEG_VOLUME_OPS; op++)
			histogram(page, "skerry_volume_duration_seconds", "volume",
				volume_label(page, i, id), watch_volume_ops[op],
				&watch->volumes[i].latency[op]);
}

/* --- the segment ------------------------------------------------------------------------ */

static void gauge(const struct page *page, const char *name, const char *unit, const char *help,
	uint64_t value)
{
	family(page, name, "gauge", unit, help);
	sample(page, name, "", NULL, NULL, NULL, value);
}

static void segment(const struct page *page)
{
	const struct xseg_usage *u = &page->watch.usage;
	gauge(page, "skerry_segment_bytes", "bytes", "size of the segment", u->size);
	gauge(page, "skerry_pages", "", "pages of 4 KiB in the segment", u->pages);
	gauge(page, "skerry_pages_free", "", "pages that nobody has", u->pages_free);
	gauge(page, "skerry_pages_held", "", "pages in requests or kept ready", u->pages_held);
	gauge(page, "skerry_pages_stored", "", "pages that a peer stores", u->pages_stored);
	gauge(page, "skerry_pages_kept", "", "pages that outlive their peer: of a cache",
		u->pages_kept);
	gauge(page, "skerry_pages_retired", "", "dropped pages that are still read",
		u->pages_retired);
	gauge(page, "skerry_request_slots", "", "slots of the request table", u->requests);
	gauge(page, "skerry_request_slots_free", "", "slots that nobody has",
		u->requests_by_state[XSEG_REQUEST_FREE]);
}

char *metrics_text(const struct xseg *seg, enum metrics_format format, size_t *size)
{
	char *text = NULL;
	struct page page = {
		.out = open_memstream(&text, size), .format = format, .segment = seg->name};
	must(page.out);
	watch_take(seg, &page.watch);
	segment(&page);
	peers_up(&page);
	peers_ops(&page);
	peers_queues(&page);
	peers_counters(&page);
	lanes(&page);
	volumes(&page);
	if (format == METRICS_OPEN)
		fputs("# EOF\n", page.out);
	watch_free(&page.watch);
	must(fclose(page.out) == 0);
	return text;
}
