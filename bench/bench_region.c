/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does memory cost that is a volume? Beside userfaultfd alone, in the same run, turn by turn:
 * a handler that copies each page out of memory of its own, as the least that anybody can do.
 *
 *   bench_region [--quick] [--json FILE]     BENCH_SEGMENT, BENCH_VOLUME: 256 MiB, in a warm cache
 */
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xseg/region.h>

#include "bench/common.h"

#define PAGE 4096u
#define SIZE (256u << 20)
#define CHUNK (64u << 10)

/* Newer than the headers of Debian 12: Linux 6.7. */
#define WP_ASYNC (1u << 15)
#define WP_UNPOPULATED (1u << 13)
struct page_region {
	uint64_t start, end, categories;
};
struct scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, any,
		wanted;
};
#define PAGEMAP_SCAN _IOWR('f', 16, struct scan)
#define SCAN_WRITTEN 2u
#define SCAN_PROTECT 3u /* what matches, and only where writes are noticed so */

static double now_us(void) { return (double)clock_now_ns() / 1000.0; }

/* --- userfaultfd alone --------------------------------------------------------------- */

struct bare {
	uint8_t *memory, *source;
	int fd;
	bool spins;
	_Atomic bool stop;
	pthread_t thread;
};

static void *bare_serve(void *context)
{
	struct bare *bare = context;
	struct uffd_msg message;
	while (!atomic_load_explicit(&bare->stop, memory_order_relaxed)) {
		struct pollfd ready = {.fd = bare->fd, .events = POLLIN};
		if (!bare->spins && poll(&ready, 1, 20) <= 0)
			continue;
		if (read(bare->fd, &message, sizeof(message)) != (ssize_t)sizeof(message))
			continue;
		uint64_t at = message.arg.pagefault.address / PAGE * PAGE;
		struct uffdio_copy copy = {.dst = at,
			.src = (uintptr_t)bare->source + (at - (uintptr_t)bare->memory),
			.len = PAGE};
		must(ioctl(bare->fd, UFFDIO_COPY, &copy) == 0);
	}
	return NULL;
}

static int bare_fd(void *memory, size_t size, uint64_t features, uint64_t mode)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	struct uffdio_api api = {.api = UFFD_API, .features = features};
	struct uffdio_register range = {
		.range = {.start = (uintptr_t)memory, .len = size}, .mode = mode};
	if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &range) == 0)
		return fd;
	close(fd);
	return -1;
}

static void *shared_memory(size_t size)
{
	int fd = memfd_create("bare", MFD_CLOEXEC);
	must(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(memory != MAP_FAILED);
	close(fd);
	return memory;
}

static void bare_begin(struct bare *bare, uint8_t *source, size_t size, bool spins)
{
	*bare = (struct bare){.source = source, .spins = spins, .memory = shared_memory(size)};
	bare->fd = bare_fd(bare->memory, size, 0, UFFDIO_REGISTER_MODE_MISSING);
	must(bare->fd >= 0);
	must(pthread_create(&bare->thread, NULL, bare_serve, bare) == 0);
	usleep(1000);
}

static void bare_end(struct bare *bare, size_t size)
{
	atomic_store(&bare->stop, true);
	pthread_join(bare->thread, NULL);
	munmap(bare->memory, size);
	close(bare->fd);
}

/* --- one page at a time ------------------------------------------------------------------ */

static void touch_at_random(struct samples *samples, volatile uint8_t *memory, uint32_t *order,
	uint32_t count, bool write)
{
	for (uint32_t i = 0; i < count; i++) {
		volatile uint8_t *at = memory + (size_t)order[i] * PAGE;
		double begin = now_us();
		if (write)
			*at = 1;
		else
			(void)*at;
		samples_add(samples, now_us() - begin);
	}
}

/* `count` pages of the whole, each once. */
static uint32_t *random_order(uint32_t count)
{
	uint32_t pages = SIZE / PAGE, *order = malloc(pages * sizeof(*order));
	must(order);
	for (uint32_t i = 0; i < pages; i++)
		order[i] = i;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t j = i + (uint32_t)rand() % (pages - i), page = order[i];
		order[i] = order[j];
		order[j] = page;
	}
	return order;
}

static void run_faults(struct bench *bench, struct region *region, uint8_t *source)
{
	uint32_t count = bench_pick(bench, 4000, 500), rounds = bench_pick(bench, 5, 2);
	struct samples ours, writes, sleeps, spins;
	struct samples *const all[] = {&ours, &writes, &sleeps, &spins};
	for (unsigned i = 0; i < 4; i++)
		samples_init(all[i], count * rounds);
	region_advise(region, 0, 0, REGION_RANDOM);
	for (uint32_t round = 0; round < rounds; round++) {
		uint32_t *order = random_order(count);
		struct bare bare;
		must(region_advise(region, 0, 0, REGION_DROP) == 0);
		touch_at_random(&ours, region_memory(region), order, count, false);
		touch_at_random(&writes, region_memory(region), order, count, true);
		for (unsigned i = 0; i < 2; i++) {
			bare_begin(&bare, source, SIZE, i == 1);
			touch_at_random(i ? &spins : &sleeps, bare.memory, order, count, false);
			bare_end(&bare, SIZE);
		}
		free(order);
	}
	region_advise(region, 0, 0, REGION_NORMAL);
	bench_row(bench, "bare fault, handler sleeps, p50", samples_median(&sleeps), "us", 0, NULL);
	bench_row(bench, "bare fault, handler spins, p50", samples_median(&spins), "us", 0, NULL);
	bench_row(bench, "fault from a warm cache, p50", samples_median(&ours), "us",
		samples_median(&sleeps), "bare, handler sleeps");
	bench_goal(bench, BENCH_AT_MOST, 2);
	bench_row(bench, "the same", samples_median(&ours), "us", samples_median(&spins),
		"bare, handler spins");
	bench_goal(bench, BENCH_AT_MOST, 2);
	bench_row(bench, "the same, p99", samples_quantile(&ours, 0.99), "us",
		samples_quantile(&sleeps, 0.99), "bare, handler sleeps");
	bench_row(bench, "first write to a page that is there, p50", samples_median(&writes), "us",
		samples_median(&sleeps), "bare, handler sleeps");
	for (unsigned i = 0; i < 4; i++)
		samples_fini(all[i]);
}

/* --- all of it, in order ------------------------------------------------------------------- */

static double touch_all(const volatile uint8_t *memory)
{
	double begin = now_us();
	for (size_t at = 0; at < SIZE; at += PAGE)
		(void)memory[at];
	return SIZE / (now_us() - begin);
}

static double write_all(uint8_t *memory, struct region *region)
{
	double begin = now_us();
	memset(memory, 7, SIZE);
	if (region)
		must(region_sync(region, 0, 0) == 0);
	return SIZE / (now_us() - begin);
}

static double copy_all(const uint8_t *source)
{
	uint8_t *memory = shared_memory(SIZE);
	int fd = bare_fd(memory, SIZE, 0, UFFDIO_REGISTER_MODE_MISSING);
	must(fd >= 0);
	double begin = now_us();
	for (size_t at = 0; at < SIZE; at += CHUNK) {
		struct uffdio_copy copy = {
			.dst = (uintptr_t)memory + at, .src = (uintptr_t)source + at, .len = CHUNK};
		must(ioctl(fd, UFFDIO_COPY, &copy) == 0);
	}
	double rate = SIZE / (now_us() - begin);
	munmap(memory, SIZE);
	close(fd);
	return rate;
}

static void run_order(struct bench *bench, struct region *region, const uint8_t *source)
{
	uint32_t rounds = bench_pick(bench, 5, 2);
	struct samples fetched, alone, copied, written, again;
	struct samples *const all[] = {&fetched, &alone, &copied, &written, &again};
	for (unsigned i = 0; i < 5; i++)
		samples_init(all[i], rounds);
	for (uint32_t round = 0; round < rounds; round++) {
		must(region_advise(region, 0, 0, REGION_DROP) == 0);
		must(region_prefetch(region, 0, 0) == 0);
		samples_add(&fetched, touch_all(region_memory(region)));
		must(region_advise(region, 0, 0, REGION_DROP) == 0);
		samples_add(&alone, touch_all(region_memory(region)));
		samples_add(&copied, copy_all(source));
		samples_add(&written, write_all(region_memory(region), region));
		samples_add(&again, touch_all(region_memory(region)));
	}
	bench_row(bench, "UFFDIO_COPY, 64 KiB each", samples_median(&copied), "MB/s", 0, NULL);
	bench_row(bench, "touch all in order, prefetched meanwhile", samples_median(&fetched),
		"MB/s", samples_median(&copied), "UFFDIO_COPY");
	bench_goal(bench, BENCH_AT_LEAST, 0.7);
	bench_row(bench, "the same without region_prefetch()", samples_median(&alone), "MB/s",
		samples_median(&copied), "UFFDIO_COPY");
	bench_row(bench, "write all, and sync", samples_median(&written), "MB/s",
		samples_median(&copied), "UFFDIO_COPY");
	bench_row(bench, "touch all once it is there", samples_median(&again), "MB/s", 0, NULL);
	for (unsigned i = 0; i < 5; i++)
		samples_fini(all[i]);
}

/* --- which pages are dirty ------------------------------------------------------------------ */

/* What another way of tracking would cost: every hundredth page written, then all of it scanned. */
static void run_scan(struct bench *bench)
{
	const size_t size = (size_t)bench_pick(bench, 1024, 256) << 20;
	uint8_t *memory = shared_memory(size);
	memset(memory, 1, size);
	int fd = bare_fd(memory, size, WP_ASYNC | WP_UNPOPULATED | UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
		UFFDIO_REGISTER_MODE_WP);
	int map = open("/proc/self/pagemap", O_RDONLY);
	if (fd < 0 || map < 0) {
		printf("no PAGEMAP_SCAN here\n");
		return;
	}
	struct uffdio_writeprotect protect = {.range = {.start = (uintptr_t)memory, .len = size},
		.mode = UFFDIO_WRITEPROTECT_MODE_WP};
	must(ioctl(fd, UFFDIO_WRITEPROTECT, &protect) == 0);
	double begin = now_us();
	for (size_t at = 0; at < size; at += 100 * PAGE)
		memory[at] = 2;
	double write = (now_us() - begin) / (double)(size / PAGE / 100);
	struct page_region *found = malloc(65536 * sizeof(*found));
	begin = now_us();
	for (uint64_t at = (uintptr_t)memory, end = at + size; at < end;) {
		struct scan scan = {.size = sizeof(scan),
			.flags = SCAN_PROTECT,
			.start = at,
			.end = end,
			.vec = (uintptr_t)found,
			.vec_len = 65536,
			.mask = SCAN_WRITTEN,
			.wanted = SCAN_WRITTEN};
		must(ioctl(map, PAGEMAP_SCAN, &scan) >= 0);
		at = scan.walk_end;
	}
	double gib = (double)size / (1u << 30);
	bench_row(bench, "PAGEMAP_SCAN of 1 GiB, 1 % dirty", (now_us() - begin) / gib / 1000, "ms",
		0, NULL);
	bench_row(bench, "a first write that it will find", write, "us", 0, NULL);
	free(found);
	munmap(memory, size);
}

static void run_walk(struct bench *bench, struct region *region)
{
	struct samples samples;
	samples_init(&samples, 50);
	must(region_sync(region, 0, 0) == 0);
	for (unsigned i = 0; i < 50; i++) {
		double begin = now_us();
		must(region_sync(region, 0, 0) == 0);
		samples_add(&samples, now_us() - begin);
	}
	bench_row(bench, "sync of 1 GiB, nothing dirty (256 MiB times 4)",
		samples_median(&samples) * 4 / 1000, "ms", 0, NULL);
	samples_fini(&samples);
}

/* All is there and clean: what does the first write to each page cost, one after the other? */
static void run_upwards(struct bench *bench, struct region *region)
{
	volatile uint8_t *memory = region_memory(region);
	struct samples samples;
	uint32_t rounds = bench_pick(bench, 5, 2);
	samples_init(&samples, rounds);
	for (uint32_t round = 0; round < rounds; round++) {
		must(region_sync(region, 0, 0) == 0);
		double begin = now_us();
		for (size_t at = 0; at < SIZE; at += PAGE)
			memory[at]++;
		samples_add(&samples, (now_us() - begin) / (SIZE / PAGE));
	}
	bench_row(bench, "first write to each page, upwards", samples_median(&samples), "us", 0,
		NULL);
	samples_fini(&samples);
}

int main(int argc, char **argv)
{
	struct bench bench;
	const char *segment = getenv("BENCH_SEGMENT"), *volume = getenv("BENCH_VOLUME");
	bench_begin(&bench, "memory that is a volume", argc, argv);
	struct region *region =
		region_open(segment ? segment : "k", volume ? volume : "disk", 0, SIZE, 0);
	if (!region) {
		fprintf(stderr, "bench_region: %s\n", region_why());
		return 1;
	}
	uint8_t *source = malloc(SIZE);
	must(source);
	memset(source, 7, SIZE);
	write_all(region_memory(region), region); /* the cache is warm now */
	run_faults(&bench, region, source);
	run_order(&bench, region, source);
	run_walk(&bench, region);
	run_scan(&bench);
	run_upwards(&bench, region);
	must(region_close(region) == 0);
	return bench_end(&bench);
}
