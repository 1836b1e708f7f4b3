/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a loop on librados with nothing around it gets out of a pool: the limit that blocker_rados
 * is measured against by bench/stores.py.
 *
 *   bench_rados POOL read|write BLOCK DEPTH SECONDS SIZE      objects of 4 MiB, made when missing
 *
 * prints JSON: operations a second, and CPU microseconds of each. CEPH_CONF says which cluster.
 */
#include <base/clock.h>
#include <base/hash.h>
#include <base/must.h>
#include <rados/librados.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OBJECT (4u << 20)
#define DEPTH_MAX 256

struct slot {
	rados_completion_t completion;
	char *bytes;
};

static struct slot slots[DEPTH_MAX];
static sem_t ended;
static uint32_t finished[DEPTH_MAX];
static _Atomic uint32_t finished_count;

static _Noreturn void fail(const char *what, int error)
{
	fprintf(stderr, "bench_rados: %s: %s\n", what, strerror(-error));
	exit(1);
}

static void called_back(rados_completion_t completion, void *context)
{
	(void)completion;
	uint32_t place = atomic_fetch_add(&finished_count, 1);
	finished[place % DEPTH_MAX] = (uint32_t)((struct slot *)context - slots);
	sem_post(&ended);
}

static rados_ioctx_t reach(const char *pool)
{
	rados_t cluster;
	rados_ioctx_t io;
	int error = rados_create2(&cluster, "ceph", "client.admin", 0);
	error = error ? error : rados_conf_read_file(cluster, NULL);
	error = error ? error : rados_connect(cluster);
	error = error ? error : rados_ioctx_create(cluster, pool, &io);
	if (error)
		fail(pool, error);
	rados_ioctx_set_namespace(io, "bare");
	return io;
}

static void fill(rados_ioctx_t io, uint64_t size)
{
	char name[32], *bytes = malloc(OBJECT);
	uint64_t found;
	time_t changed;
	must(bytes);
	memset(bytes, 7, OBJECT);
	for (uint64_t i = 0; i < size / OBJECT; i++) {
		snprintf(name, sizeof(name), "o.%llu", (unsigned long long)i);
		if (rados_stat(io, name, &found, &changed) == 0)
			continue;
		int error = rados_write_full(io, name, bytes, OBJECT);
		if (error)
			fail("fill", error);
	}
	free(bytes);
}

static void submit(rados_ioctx_t io, struct slot *slot, bool reads, uint32_t block, uint64_t at)
{
	char name[32];
	snprintf(name, sizeof(name), "o.%llu", (unsigned long long)(at / OBJECT));
	must(rados_aio_create_completion2(slot, called_back, &slot->completion) == 0);
	int error =
		reads ? rados_aio_read(io, name, slot->completion, slot->bytes, block, at % OBJECT)
		      : rados_aio_write(
				io, name, slot->completion, slot->bytes, block, at % OBJECT);
	if (error)
		fail("submit", error);
}

static void collect(uint32_t number)
{
	sem_wait(&ended);
	struct slot *slot = &slots[finished[number % DEPTH_MAX]];
	int rc = rados_aio_get_return_value(slot->completion);
	if (rc < 0)
		fail("a request", rc);
	rados_aio_release(slot->completion);
	slot->completion = NULL;
}

static double cpu_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	if (argc != 7) {
		fprintf(stderr, "usage: bench_rados POOL read|write BLOCK DEPTH SECONDS SIZE\n");
		return 2;
	}
	bool reads = strcmp(argv[2], "read") == 0;
	uint32_t block = (uint32_t)atoi(argv[3]), depth = (uint32_t)atoi(argv[4]), done = 0,
		 out = 0;
	uint64_t size = strtoull(argv[6], NULL, 10), blocks = size / block, next = 1;
	must(block > 0 && depth > 0 && depth <= DEPTH_MAX && blocks > 0);
	rados_ioctx_t io = reach(argv[1]);
	sem_init(&ended, 0, 0);
	fill(io, size);
	for (uint32_t i = 0; i < depth; i++) {
		slots[i].bytes = calloc(1, block);
		must(slots[i].bytes);
	}
	double used = cpu_us();
	uint64_t from = clock_now_ns(), until = from + (uint64_t)(atof(argv[5]) * 1e9);
	while (clock_now_ns() < until) {
		for (uint32_t i = 0; i < depth; i++)
			if (!slots[i].completion) {
				submit(io, &slots[i], reads, block,
					hash_u64(next++) % blocks * block);
				out++;
			}
		collect(done++);
	}
	double seconds = (double)(clock_now_ns() - from) / 1e9;
	printf("{\"ops_per_second\": %.1f, \"cpu_us_per_op\": %.2f}\n", done / seconds,
		(cpu_us() - used) / done);
	fflush(stdout);
	while (done < out)
		collect(done++);
	return 0;
}
