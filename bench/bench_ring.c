/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does a slot ring cost beside a bare cache-line ping-pong, and how many messages a second
 * go one way? Two processes pinned to two CPUs, both polling; bursts of all kinds interleaved.
 */
#include <string.h>
#include <xseg/ring.h>

#include "bench/common.h"

#define TRIPS 2000u /* of one burst */
#define CHUNK 4096u /* messages timed together */
#define CHUNKS 32u  /* of one burst */
#define MESSAGES (CHUNK * CHUNKS)

enum play { PLAY_IDLE, PLAY_BARE, PLAY_RING, PLAY_FLOOD, PLAY_END };

/* Shared with the child: a page of the segment. */
struct board {
	_Alignas(128) _Atomic uint32_t play; /* enum play | round << 8 */
	_Alignas(128) _Atomic uint32_t ready;
	_Alignas(128) _Atomic uint64_t there;
	_Alignas(128) _Atomic uint64_t back;
};

struct side {
	struct board *board;
	struct xseg_ring_tx tx;
	struct xseg_ring_rx rx;
	uint64_t bare; /* trips so far */
};

static void put_must(struct side *side, uint32_t request)
{
	while (!xseg_ring_put(&side->tx, request, XSEG_HINT_SUBMIT))
		cpu_relax();
}

/* As a lane waits when nothing is there: giving way for a moment lets the producer get ahead. */
static uint32_t get_relaxed(struct side *side)
{
	struct xseg_hint_message m;
	while (!xseg_ring_get(&side->rx, &m))
		cpu_relax();
	return m.request;
}

static uint32_t get_must(struct side *side)
{
	struct xseg_hint_message m;
	while (!xseg_ring_get(&side->rx, &m))
		;
	return m.request;
}

/* --- the far side ------------------------------------------------------------ */

static void echo(struct side *side, unsigned play)
{
	switch (play) {
	case PLAY_BARE:
		for (unsigned i = 0; i < TRIPS; i++) {
			side->bare++;
			while (atomic_load_explicit(&side->board->there, memory_order_acquire) !=
				side->bare)
				;
			atomic_store_explicit(&side->board->back, side->bare, memory_order_release);
		}
		break;
	case PLAY_RING:
		for (unsigned i = 0; i < TRIPS; i++)
			put_must(side, get_must(side));
		break;
	case PLAY_FLOOD:
		for (unsigned i = 0; i < MESSAGES; i++)
			must(get_relaxed(side) == i);
		xseg_ring_publish(&side->rx);
		put_must(side, 0); /* "all have come" */
		break;
	default: break;
	}
}

static int far_side(void *arg)
{
	struct side *side = arg;
	must(bench_pin(1));
	for (uint32_t last = 0, now;; last = now) {
		while ((now = atomic_load_explicit(&side->board->play, memory_order_acquire)) ==
			last)
			cpu_relax();
		if ((now & 0xff) == PLAY_END)
			return 0;
		atomic_store_explicit(&side->board->ready, now, memory_order_release);
		echo(side, now & 0xff);
	}
}

/* --- the near side ------------------------------------------------------------- */

static void start(struct side *side, enum play play)
{
	static uint32_t round;
	uint32_t word = (uint32_t)play | ++round << 8;
	atomic_store_explicit(&side->board->play, word, memory_order_release);
	while (atomic_load_explicit(&side->board->ready, memory_order_acquire) != word)
		cpu_relax();
}

/* Mean of a burst, ns a round trip. */
static double burst_bare(struct side *side)
{
	start(side, PLAY_BARE);
	uint64_t t = clock_now_ns();
	for (unsigned i = 0; i < TRIPS; i++) {
		side->bare++;
		atomic_store_explicit(&side->board->there, side->bare, memory_order_release);
		while (atomic_load_explicit(&side->board->back, memory_order_acquire) != side->bare)
			;
	}
	return (double)(clock_now_ns() - t) / TRIPS;
}

static double burst_ring(struct side *side)
{
	start(side, PLAY_RING);
	uint64_t t = clock_now_ns();
	for (unsigned i = 0; i < TRIPS; i++) {
		put_must(side, i);
		must(get_must(side) == i);
	}
	return (double)(clock_now_ns() - t) / TRIPS;
}

/* M messages a second, each published by itself; one sample for each chunk. */
static void burst_flood(struct side *side, struct samples *samples)
{
	start(side, PLAY_FLOOD);
	uint64_t t = clock_now_ns();
	for (unsigned i = 0; i < MESSAGES; i++) {
		put_must(side, i);
		if ((i + 1) % CHUNK == 0) {
			uint64_t now = clock_now_ns();
			samples_add(samples, CHUNK * 1e3 / (double)(now - t));
			t = now;
		}
	}
	get_must(side);
}

static void attach(struct side *side, const struct xseg *seg, uint32_t self, uint32_t other)
{
	memset(side, 0, sizeof(*side));
	side->board = (void *)xseg_page_address(seg, seg->page_count - 1);
	xseg_ring_tx_attach(&side->tx, &seg->rings[other * seg->lane_count + self]);
	xseg_ring_rx_attach(&side->rx, &seg->rings[self * seg->lane_count + other]);
}

static void measure(struct bench *bench, struct side *near)
{
	unsigned bursts = bench_pick(bench, 300, 40);
	struct samples bare, ring, flood;
	samples_init(&bare, bursts);
	samples_init(&ring, bursts);
	samples_init(&flood, bursts * CHUNKS);
	for (unsigned i = 0; i < bursts; i++) {
		samples_add(&bare, burst_bare(near));
		samples_add(&ring, burst_ring(near));
		burst_flood(near, &flood);
	}
	double b = samples_median(&bare), r = samples_median(&ring);
	bench_row(bench, "bare cache-line ping-pong", b, "ns", 0, NULL);
	bench_row(bench, "slot ring round trip", r, "ns", b, "bare ping-pong");
	bench_goal(bench, BENCH_AT_MOST, 2.5);
	bench_row(bench, "slot ring round trip, 90th of 100 bursts", samples_quantile(&ring, 0.9),
		"ns", samples_quantile(&bare, 0.9), "bare ping-pong, 90th");
	bench_row(bench, "one way, batch 1", samples_median(&flood), "M/s", 0, NULL);
	bench_goal(bench, BENCH_AT_LEAST, 60);
	bench_row(bench, "one way, batch 1, 25th of 100 chunks", samples_quantile(&flood, 0.25),
		"M/s", 2e3 / b, "line transfers a second");
	samples_fini(&bare);
	samples_fini(&ring);
	samples_fini(&flood);
}

int main(int argc, char **argv)
{
	struct bench bench;
	struct xseg seg;
	struct side near, far;
	bench_begin(&bench, "bench_ring: slot rings between two lanes", argc, argv);
	if (bench_cpus() < 2) {
		printf("needs two CPUs\n");
		return 77;
	}
	scratch_segment_unnamed(&seg, 64u << 20, 2, 64);
	memset(xseg_page_address(&seg, seg.page_count - 1), 0, XSEG_PAGE);
	attach(&near, &seg, 0, 1);
	attach(&far, &seg, 1, 0);
	pid_t child = child_start(far_side, &far);
	must(bench_pin(0));
	measure(&bench, &near);
	atomic_store(&near.board->play, (uint32_t)PLAY_END | 0xff00u << 8);
	must(child_end(child) == 0);
	return bench_end(&bench);
}
