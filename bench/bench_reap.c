/* SPDX-License-Identifier: Apache-2.0 */
/* What a death costs: one pass of the reaper over a segment whose tables and pool are full. */
#include <base/time.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <xseg/lane.h>
#include <xseg/reap.h>

#include "bench/common.h"

#define GIB (1ull << 30)
#define GOAL_MS_PER_GIB 5.0

struct scene {
	struct xseg seg;
	uint32_t port;
	uint32_t pages_each; /* of a request: nine tenths of the pool in all */
	_Atomic uint32_t
		*count; /* of requests that are where they should be; UINT32_MAX: not yet */
};

static void stay(struct scene *scene, uint32_t count)
{
	atomic_store(scene->count, count);
	for (;;)
		pause();
}

/* Every slot, with its pages, is sent to a port that nobody serves yet. */
static int client(void *context)
{
	struct scene *scene = context;
	struct xseg_lane *lane;
	uint32_t slot, count = 0;
	must(xseg_lane_join(&scene->seg, false, &lane) == 0);
	while (xseg_get(lane, &slot) == 0) {
		struct xseg_frame *frame = &xseg_at(lane, slot)->frame[0];
		*frame = (struct xseg_frame){.op = XSEG_OP_WRITE,
			.length = scene->pages_each * XSEG_PAGE,
			.lane = XSEG_LANE_ANY};
		int rc = xseg_attach_pages(lane, slot, 0, frame->length);
		must(rc == 0 || rc == -EAGAIN);
		must(xseg_submit(lane, slot, scene->port) == 0);
		count++;
	}
	stay(scene, count);
	return 0;
}

static int server(void *context)
{
	struct scene *scene = context;
	struct xseg_lane *lane;
	uint32_t peer, port, count = 0;
	uint16_t epoch;
	unsigned frame;
	must(xseg_lane_join(&scene->seg, false, &lane) == 0);
	uint8_t index = (uint8_t)lane->index;
	must(xseg_peer_join(lane->seg, "below", "bench", 1ull << index, &peer, &epoch) == 0);
	must(xseg_port_bind(lane->seg, "below", peer, epoch, &index, 1, &port) == 0);
	for (uint32_t slot = 0; slot < scene->seg.request_count; slot++)
		count += xseg_accept(lane, slot, &frame) == 0;
	stay(scene, count);
	return 0;
}

static pid_t start(struct scene *scene, int (*work)(void *), uint32_t *count)
{
	atomic_store(scene->count, UINT32_MAX);
	pid_t pid = child_start(work, scene);
	while (atomic_load(scene->count) == UINT32_MAX)
		usleep(1000);
	*count = atomic_load(scene->count);
	return pid;
}

/* As the clock on the wall has it, and as the CPU has it: steadier beside other work. */
struct pair {
	struct samples wall, cpu;
};

static uint64_t cpu_now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return time_of(&now);
}

static void reap(const struct scene *scene, struct xseg_reap_report *report, struct pair *pair)
{
	uint64_t begin = clock_now_ns(), begin_cpu = cpu_now_ns();
	must(xseg_reap(&scene->seg, report) == 0);
	samples_add(&pair->cpu, (double)(cpu_now_ns() - begin_cpu) / 1e6);
	samples_add(&pair->wall, (double)(clock_now_ns() - begin) / 1e6);
}

static void row(struct bench *bench, uint64_t gib, const char *what, struct pair *pair)
{
	char name[64];
	snprintf(name, sizeof(name), "%llu GiB: %s", (unsigned long long)gib, what);
	bench_row(bench, name, samples_median(&pair->wall) / (double)gib, "ms/GiB", 0, "");
	bench_goal(bench, BENCH_AT_MOST, GOAL_MS_PER_GIB);
	snprintf(name, sizeof(name), "%llu GiB: %s, CPU", (unsigned long long)gib, what);
	bench_row(bench, name, samples_median(&pair->cpu) / (double)gib, "ms/GiB", 0, "");
	bench_goal(bench, BENCH_AT_MOST, GOAL_MS_PER_GIB);
	samples_fini(&pair->wall);
	samples_fini(&pair->cpu);
}

static void pair_init(struct pair *pair, uint32_t max)
{
	samples_init(&pair->wall, max);
	samples_init(&pair->cpu, max);
}

static void measure(struct bench *bench, uint64_t gib)
{
	struct scene scene = {.count = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
	struct pair idle, servers, clients;
	struct xseg_reap_report report;
	unsigned rounds = bench_pick(bench, 9, 3);
	must(scene.count != MAP_FAILED);
	pair_init(&idle, rounds);
	pair_init(&servers, rounds);
	pair_init(&clients, rounds);
	scratch_segment_unnamed(&scene.seg, gib * GIB, 0, 0);
	must(xseg_port_reserve(&scene.seg, "below", &scene.port) == 0);
	scene.pages_each =
		(uint32_t)((uint64_t)scene.seg.page_count * 9 / 10 / scene.seg.request_count);
	for (unsigned i = 0; i < rounds; i++) {
		uint32_t sent, taken;
		reap(&scene, &report, &idle);
		pid_t asking = start(&scene, client, &sent),
		      serving = start(&scene, server, &taken);
		must(sent == scene.seg.request_count && taken == sent);
		child_kill(serving);
		reap(&scene, &report, &servers);
		must(report.resubmitted == sent);
		child_kill(asking);
		reap(&scene, &report, &clients);
		must(report.freed == sent && report.pending == 0);
	}
	xseg_segment_leave(&scene.seg);
	munmap(scene.count, 4096);
	row(bench, gib, "nobody died", &idle);
	row(bench, gib, "a server died, all requests taken", &servers);
	row(bench, gib, "a client died, all requests and pages", &clients);
}

int main(int argc, char **argv)
{
	struct bench bench;
	bench_begin(&bench, "reaping a full segment", argc, argv);
	measure(&bench, 1);
	if (!bench.quick)
		measure(&bench, 4);
	return bench_end(&bench);
}
