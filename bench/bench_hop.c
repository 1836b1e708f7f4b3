/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does a request cost: submit, accept, respond, receive, state word and all? Against a
 * bare ring of the same run; between two processes, on one lane, and with more peers than CPUs.
 */
#include <string.h>

#include "bench/hop.h"

#define BURSTS 200u	 /* of one round */
#define SETTLING 100000u /* requests, 30 ms and more */

static struct xseg seg;

/* --- the bare ring, as reference ---------------------------------------------------- */

struct bare {
	struct xseg_ring_tx tx;
	struct xseg_ring_rx rx;
};

static int echo(void *arg)
{
	struct bare *b = arg;
	struct xseg_hint_message m;
	must(bench_pin(1));
	for (;;) {
		while (!xseg_ring_get(&b->rx, &m))
			;
		while (!xseg_ring_put(&b->tx, m.request, m.kind))
			;
		if (m.request == XSEG_NONE)
			return 0;
	}
}

/* The last two lanes' rings, which nobody else uses. */
static pid_t bare_start(struct bare *near)
{
	uint32_t a = seg.lane_count - 1, b = seg.lane_count - 2;
	struct xseg_ring *there = &seg.rings[b * seg.lane_count + a];
	struct xseg_ring *back = &seg.rings[a * seg.lane_count + b];
	struct bare far;
	xseg_ring_init(there);
	xseg_ring_init(back);
	xseg_ring_tx_attach(&near->tx, there);
	xseg_ring_rx_attach(&near->rx, back);
	xseg_ring_rx_attach(&far.rx, there);
	xseg_ring_tx_attach(&far.tx, back);
	return child_start(echo, &far);
}

static void bare_trips(struct bare *near, unsigned count, uint32_t what, struct samples *samples)
{
	struct xseg_hint_message m;
	for (unsigned i = 0; i < count; i++) {
		uint64_t start = clock_now_ns();
		while (!xseg_ring_put(&near->tx, what, XSEG_HINT_SUBMIT))
			;
		while (!xseg_ring_get(&near->rx, &m))
			;
		samples_add(samples, (double)(clock_now_ns() - start));
	}
}

/* One burst of bare round trips, the child started and ended around it. */
static void bare_burst(unsigned count, struct samples *samples)
{
	struct bare near;
	struct samples none;
	samples_init(&none, 1);
	pid_t child = bare_start(&near);
	bare_trips(&near, 200, 0, &none);
	bare_trips(&near, count, 0, samples);
	bare_trips(&near, 1, XSEG_NONE, &none);
	must(child_end(child) == 0);
	samples_fini(&none);
}

/* --- two processes, a CPU each --------------------------------------------------------- */

struct pair {
	struct samples bare, one[2], many[2]; /* [0] polling, [1] waiting */
};

static void pair_burst(struct bench *bench, struct pair *pair, bool waits)
{
	struct samples warm;
	struct hop_client client;
	struct hop_peer null = {.seg = &seg, .name = "null", .cpu = 1, .waits = waits};
	samples_init(&warm, 1);
	pid_t pid = hop_start(&null);
	hop_client_init(&client, &seg, "null", waits);
	hop_one_by_one(&client, 2000, &warm);
	hop_one_by_one(&client, bench_pick(bench, 10000, 4000), &pair->one[waits]);
	hop_many(&client, 10000, 256);
	for (unsigned i = 0; i < bench_pick(bench, BURSTS, BURSTS / 4); i++)
		samples_add(&pair->many[waits], hop_many(&client, 2560, 256));
	hop_client_fini(&client);
	hop_stop(&null, pid);
	samples_fini(&warm);
}

static double two_processes(struct bench *bench)
{
	unsigned rounds = bench_pick(bench, 20, 4);
	struct pair p;
	samples_init(&p.bare, rounds * 10000);
	for (unsigned w = 0; w < 2; w++) {
		samples_init(&p.one[w], rounds * 10000);
		samples_init(&p.many[w], rounds * BURSTS);
	}
	must(bench_pin(0));
	for (unsigned i = 0; i < rounds; i++) {
		bare_burst(bench_pick(bench, 10000, 4000), &p.bare);
		pair_burst(bench, &p, false);
		pair_burst(bench, &p, true);
	}
	double bare = samples_median(&p.bare);
	bench_row(bench, "bare ring round trip, p50", bare, "ns", 0, NULL);
	for (unsigned w = 0; w < 2; w++) {
		bench_row(bench, w ? "hop QD1 p50, sleeps when idle" : "hop QD1 p50, polls only",
			samples_median(&p.one[w]), "ns", bare, "bare ring p50");
		bench_goal(bench, BENCH_AT_MOST, 2.5);
		bench_row(bench, w ? "hop QD1 p99, sleeps when idle" : "hop QD1 p99, polls only",
			samples_quantile(&p.one[w], 0.99), "ns", samples_quantile(&p.bare, 0.99),
			"bare ring p99");
	}
	for (unsigned w = 0; w < 2; w++) {
		bench_row(bench, w ? "hop QD256, sleeps when idle" : "hop QD256, polls only",
			samples_median(&p.many[w]), "M/s", 0, NULL);
		bench_goal(bench, BENCH_AT_LEAST, 6);
	}
	for (unsigned w = 0; w < 2; w++) {
		samples_fini(&p.one[w]);
		samples_fini(&p.many[w]);
	}
	samples_fini(&p.bare);
	return bare;
}

/* --- the real null blocker, in xsegpeer --------------------------------------------------- */

static void real_peer(struct bench *bench, double bare)
{
	struct samples one, many;
	struct hop_client client;
	struct hop_peer null = {.seg = &seg, .name = "null0", .cpu = 1};
	unsigned count = bench_pick(bench, 60000, 12000), bursts = bench_pick(bench, 1500, 200);
	must(bench_pin(0));
	pid_t pid = hop_start_peer(&null, "blocker_null");
	if (pid < 0) {
		printf("xsegpeer is not built here: the real null blocker is left out\n\n");
		return;
	}
	samples_init(&one, count);
	samples_init(&many, bursts);
	hop_client_init(&client, &seg, "null0", true);
	/* until it has tried both spinning and sleeping under this load: docs/decisions/0004 */
	hop_one_by_one(&client, SETTLING, &one);
	one.count = 0;
	hop_one_by_one(&client, count, &one);
	for (unsigned i = 0; i < bursts; i++)
		samples_add(&many, hop_many(&client, 2560, 256));
	bench_row(
		bench, "xsegpeer null QD1 p50", samples_median(&one), "ns", bare, "bare ring p50");
	bench_row(bench, "xsegpeer null QD1 p99", samples_quantile(&one, 0.99), "ns", 0, NULL);
	bench_row(bench, "xsegpeer null QD256", samples_median(&many), "M/s", 0, NULL);
	bench_goal(bench, BENCH_AT_LEAST, 6);
	hop_client_fini(&client);
	hop_stop(&null, pid);
	samples_fini(&one);
	samples_fini(&many);
}

/* --- one lane --------------------------------------------------------------------------- */

static void stacked(struct bench *bench, double bare)
{
	struct samples one, many;
	struct xseg_lane *lane;
	unsigned bursts = bench_pick(bench, 200, 40);
	samples_init(&one, bursts);
	samples_init(&many, bursts);
	must(bench_pin(0));
	must(xseg_lane_join(&seg, false, &lane) == 0);
	uint32_t port = hop_bind(lane, "stacked");
	hop_stacked(lane, port, 100000, 64);
	for (unsigned i = 0; i < bursts; i++) {
		samples_add(&one, 1e3 / hop_stacked(lane, port, 5000, 1));
		samples_add(&many, hop_stacked(lane, port, 20000, 256));
	}
	bench_row(bench, "stacked QD1, mean of a burst", samples_median(&one), "ns", 0, NULL);
	bench_goal(bench, BENCH_AT_MOST, 150);
	bench_row(bench, "stacked QD1 beside two CPUs", samples_median(&one), "ns", bare,
		"bare ring p50");
	bench_row(bench, "stacked QD256", samples_median(&many), "M/s", 0, NULL);
	bench_goal(bench, BENCH_AT_LEAST, 8);
	xseg_lane_leave(lane);
	samples_fini(&one);
	samples_fini(&many);
}

/* --- more peers than CPUs ------------------------------------------------------------------ */

static void report_p99(struct bench *bench, struct samples *samples, const char *name, double limit)
{
	char text[64];
	snprintf(text, sizeof(text), "%s, QD1 p50", name);
	bench_row(bench, text, samples_median(samples) / 1e3, "us", 0, NULL);
	snprintf(text, sizeof(text), "%s, QD1 p99", name);
	bench_row(bench, text, samples_quantile(samples, 0.99) / 1e3, "us", 0, NULL);
	if (limit > 0)
		bench_goal(bench, BENCH_AT_MOST, limit);
	snprintf(text, sizeof(text), "%s, QD1 p99.9", name);
	bench_row(bench, text, samples_quantile(samples, 0.999) / 1e3, "us", 0, NULL);
}

/* Front, forwarder and null on the CPUs there are: `cpu` for all, -1: the first two, freely. */
static void crowd(struct bench *bench, const char *name, int cpu, bool three)
{
	struct samples samples;
	struct hop_client client;
	struct hop_peer null = {.seg = &seg, .name = "null", .cpu = cpu, .waits = true};
	struct hop_peer middle = {
		.seg = &seg, .name = "middle", .next = "null", .cpu = cpu, .waits = true};
	unsigned count = bench_pick(bench, 20000, 4000);
	samples_init(&samples, count);
	must(bench_pin(cpu));
	pid_t null_pid = hop_start(&null), middle_pid = three ? hop_start(&middle) : 0;
	hop_client_init(&client, &seg, three ? "middle" : "null", true);
	hop_one_by_one(&client, count, &samples);
	hop_client_fini(&client);
	if (three)
		hop_stop(&middle, middle_pid);
	hop_stop(&null, null_pid);
	report_p99(bench, &samples, name, 300);
	samples_fini(&samples);
}

int main(int argc, char **argv)
{
	struct bench bench;
	bench_begin(&bench, "bench_hop: submit, accept, respond, receive", argc, argv);
	if (bench_cpus() < 2) {
		printf("needs two CPUs\n");
		return 77;
	}
	scratch_begin();
	scratch_segment(&seg, 64u << 20, 8, 4096);
	double bare = two_processes(&bench);
	real_peer(&bench, bare);
	stacked(&bench, bare);
	crowd(&bench, "two peers on one CPU", 0, false);
	crowd(&bench, "three peers on one CPU", 0, true);
	crowd(&bench, "three peers on two CPUs", -1, true);
	scratch_segment_end(&seg);
	scratch_end();
	return bench_end(&bench);
}
