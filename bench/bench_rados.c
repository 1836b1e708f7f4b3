/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a loop on librados with nothing around it gets out of a pool: the limit that blocker_rados
 * is measured against by bench/stores.py.
 *
 *   bench_rados POOL read|write BLOCK DEPTH SECONDS SIZE      objects of 4 MiB, made when missing
 *
 * prints JSON: operations a second, and CPU microseconds of each. CEPH_CONF says which cluster.
 */
#include <base/must.h>
#include <rados/librados.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bare.h"

struct slot {
	rados_completion_t completion;
	char *bytes;
};

static rados_ioctx_t io;
static struct slot slots[BARE_DEPTH_MAX];
static sem_t ended;
static uint32_t finished[BARE_DEPTH_MAX];
static _Atomic uint32_t finished_count;

static _Noreturn void fail(const char *what, int error) { bare_fail(what, strerror(-error)); }

static void called_back(rados_completion_t completion, void *context)
{
	(void)completion;
	uint32_t place = atomic_fetch_add(&finished_count, 1);
	finished[place % BARE_DEPTH_MAX] = (uint32_t)((struct slot *)context - slots);
	sem_post(&ended);
}

static void reach(const char *pool)
{
	rados_t cluster;
	int error = rados_create2(&cluster, "ceph", "client.admin", 0);
	error = error ? error : rados_conf_read_file(cluster, NULL);
	error = error ? error : rados_connect(cluster);
	error = error ? error : rados_ioctx_create(cluster, pool, &io);
	if (error)
		fail(pool, error);
	rados_ioctx_set_namespace(io, "bare");
}

static void fill(uint64_t size)
{
	char name[32], *bytes = malloc(BARE_OBJECT);
	uint64_t found;
	time_t changed;
	must(bytes);
	memset(bytes, 7, BARE_OBJECT);
	for (uint64_t i = 0; i < size / BARE_OBJECT; i++) {
		snprintf(name, sizeof(name), "o.%llu", (unsigned long long)i);
		if (rados_stat(io, name, &found, &changed) == 0)
			continue;
		int error = rados_write_full(io, name, bytes, BARE_OBJECT);
		if (error)
			fail("fill", error);
	}
	free(bytes);
}

static void submit(const struct bare *bare, uint32_t number, uint64_t at)
{
	struct slot *slot = &slots[number];
	char name[32];
	snprintf(name, sizeof(name), "o.%llu", (unsigned long long)(at / BARE_OBJECT));
	must(rados_aio_create_completion2(slot, called_back, &slot->completion) == 0);
	int error = bare->reads ? rados_aio_read(io, name, slot->completion, slot->bytes,
					  bare->block, at % BARE_OBJECT)
				: rados_aio_write(io, name, slot->completion, slot->bytes,
					  bare->block, at % BARE_OBJECT);
	if (error)
		fail("submit", error);
}

static uint32_t collect(void)
{
	static uint32_t number;
	while (sem_wait(&ended))
		;
	uint32_t which = finished[number++ % BARE_DEPTH_MAX];
	int rc = rados_aio_get_return_value(slots[which].completion);
	if (rc < 0)
		fail("a request", rc);
	rados_aio_release(slots[which].completion);
	return which;
}

int main(int argc, char **argv)
{
	struct bare bare = {.submit = submit, .collect = collect};
	if (argc != 7) {
		fprintf(stderr, "usage: bench_rados POOL read|write BLOCK DEPTH SECONDS SIZE\n");
		return 2;
	}
	bare_parse(&bare, argv + 2);
	reach(argv[1]);
	sem_init(&ended, 0, 0);
	fill(bare.size);
	for (uint32_t i = 0; i < bare.depth; i++) {
		slots[i].bytes = calloc(1, bare.block);
		must(slots[i].bytes);
	}
	bare_run(&bare);
	return 0;
}
