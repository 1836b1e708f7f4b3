/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the cache's figures stand beside: a bare ring round trip, and copies of 4 KiB by one thread
 * from pages in no order to pages that are used again and again, as the copy path makes them.
 */
#include <string.h>
#include <sys/mman.h>
#include <xseg/ring.h>

#include "bench/common.h"

#define TRIPS 2000u
#define SOURCE ((size_t)64 << 20)
#define PAGE 4096u
#define TARGETS 256u /* pages that take turns */
#define BURST 256u   /* copied at a time: short, so that few are disturbed */

/* --- the ring ---------------------------------------------------------------- */

struct ends {
	struct xseg_ring_tx tx;
	struct xseg_ring_rx rx;
};

static int echo(void *arg)
{
	struct ends *far = arg;
	struct xseg_hint_message m;
	bench_pin(1);
	for (;;) {
		while (!xseg_ring_get(&far->rx, &m))
			;
		while (!xseg_ring_put(&far->tx, m.request, m.kind))
			;
		if (m.request == XSEG_NONE)
			return 0;
	}
}

static void attach(struct ends *ends, const struct xseg *seg, uint32_t self, uint32_t other)
{
	xseg_ring_tx_attach(&ends->tx, &seg->rings[other * seg->lane_count + self]);
	xseg_ring_rx_attach(&ends->rx, &seg->rings[self * seg->lane_count + other]);
}

static double trip(struct ends *near, uint32_t what)
{
	struct xseg_hint_message m;
	uint64_t start = clock_now_ns();
	while (!xseg_ring_put(&near->tx, what, XSEG_HINT_SUBMIT))
		;
	while (!xseg_ring_get(&near->rx, &m))
		;
	return (double)(clock_now_ns() - start);
}

static void ring(struct bench *bench)
{
	struct xseg seg;
	struct ends near, far;
	struct samples samples;
	unsigned bursts = bench_pick(bench, 100, 20);
	scratch_segment_unnamed(&seg, 16u << 20, 2, 64);
	attach(&near, &seg, 0, 1);
	attach(&far, &seg, 1, 0);
	pid_t child = child_start(echo, &far);
	samples_init(&samples, bursts * TRIPS);
	for (unsigned i = 0; i < bursts * TRIPS; i++)
		samples_add(&samples, trip(&near, 0));
	trip(&near, XSEG_NONE);
	must(child_end(child) == 0);
	bench_row(bench, "ring round trip, p50", samples_median(&samples), "ns", 0, NULL);
	samples_fini(&samples);
}

/* --- copies -------------------------------------------------------------------- */

static uint8_t *pages(size_t size)
{
	uint8_t *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	must(at != MAP_FAILED);
	memset(at, 1, size);
	return at;
}

/* Pages of the source in an order of no meaning; MB/s. */
static double copies(uint8_t *to, const uint8_t *from, uint32_t *next)
{
	uint64_t start = clock_now_ns();
	for (uint32_t i = 0; i < BURST; i++) {
		/* odd, and the count is a power of two: each once */
		uint32_t page = (*next)++ * 2654435761u % (uint32_t)(SOURCE / PAGE);
		memcpy(to + (size_t)(i % TARGETS) * PAGE, from + (size_t)page * PAGE, PAGE);
	}
	return BURST * PAGE * 1e3 / (double)(clock_now_ns() - start);
}

static void copy(struct bench *bench)
{
	struct samples samples;
	unsigned bursts = bench_pick(bench, 4000, 1000);
	uint32_t next = 0;
	uint8_t *from = pages(SOURCE), *to = pages(TARGETS * PAGE);
	samples_init(&samples, bursts);
	for (unsigned i = 0; i < bursts; i++)
		samples_add(&samples, copies(to, from, &next));
	bench_row(bench, "memcpy of 4 KiB, one thread", samples_median(&samples), "MB/s", 0, NULL);
	samples_fini(&samples);
	munmap(from, SOURCE);
	munmap(to, TARGETS * PAGE);
}

int main(int argc, char **argv)
{
	struct bench bench;
	bench_begin(&bench, "bench_cache: a ring, a copy", argc, argv);
	if (bench_cpus() < 2) {
		printf("needs two CPUs\n");
		return 77;
	}
	must(bench_pin(0));
	ring(&bench);
	copy(&bench);
	return bench_end(&bench);
}
