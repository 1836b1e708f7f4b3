/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bare.h"

#include <base/clock.h>
#include <base/hash.h>
#include <base/must.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void bare_fail(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

void bare_parse(struct bare *bare, char **words)
{
	bare->reads = strcmp(words[0], "read") == 0;
	bare->block = (uint32_t)atoi(words[1]);
	bare->depth = (uint32_t)atoi(words[2]);
	bare->seconds = atof(words[3]);
	bare->size = strtoull(words[4], NULL, 10);
	must(bare->block > 0 && bare->block <= BARE_OBJECT && bare->size >= bare->block);
	must(bare->depth > 0 && bare->depth <= BARE_DEPTH_MAX);
}

static double cpu_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

void bare_run(const struct bare *bare)
{
	uint64_t blocks = bare->size / bare->block, next = 1;
	uint32_t done = 0;
	double used = cpu_us();
	uint64_t from = clock_now_ns(), until = from + (uint64_t)(bare->seconds * 1e9);
	for (uint32_t slot = 0; slot < bare->depth; slot++)
		bare->submit(bare, slot, hash_u64(next++) % blocks * bare->block);
	for (; clock_now_ns() < until; done++)
		bare->submit(bare, bare->collect(), hash_u64(next++) % blocks * bare->block);
	double seconds = (double)(clock_now_ns() - from) / 1e9;
	printf("{\"ops_per_second\": %.1f, \"cpu_us_per_op\": %.2f}\n", done / seconds,
		(cpu_us() - used) / (done ? done : 1));
	fflush(stdout);
	for (uint32_t slot = 0; slot < bare->depth; slot++)
		bare->collect();
}
