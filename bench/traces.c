/* SPDX-License-Identifier: Apache-2.0 */
/* Reads or makes a trace and runs it through a policy. */
#include "bench/traces.h"

#include <base/must.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/fixture.h"

#define ZIPF_BUCKETS 100000u
#define ZIPF_ACCESSES 1000000u
#define ZIPF_EXPONENT 0.9
#define ACCESSES_MAX 6000000u
#define BUCKET_MAX (1u << 26)

const char *const trace_names[TRACES] = {"zipf 0.9", "cloudphysics-io", "cloudphysics-w106"};
const struct xcache_policy *const trace_policies[TRACE_POLICIES] = {
	&xcache_lru, &xcache_s3fifo, &xcache_clock2q};
const double trace_shares[TRACE_SIZES] = {.01, .05, .10, .20, .40};

/*
 * Source: libcachesim 0.3.5 (PyPI), LRU, S3FIFO and Clock2QPlus with the parameters that its Python
 * classes set, each access one object of size 1, cache sizes trace_entries().
 */
static const double references[TRACES][TRACE_POLICIES][TRACE_SIZES] = {
	[TRACE_ZIPF] = {{0.666849, 0.497375, 0.409693, 0.311414, 0.205120},
		{0.557029, 0.411745, 0.343121, 0.270254, 0.188954},
		{0.564588, 0.419961, 0.350775, 0.277300, 0.193529}},
	[TRACE_IO] = {{0.896869, 0.887102, 0.874098, 0.812914, 0.599704},
		{0.893850, 0.866235, 0.819189, 0.729821, 0.554452},
		{0.892916, 0.861865, 0.817252, 0.756157, 0.553313}},
	[TRACE_W106] = {{0.202099, 0.143217, 0.082275, 0.066185, 0.062137},
		{0.187501, 0.123458, 0.077273, 0.066988, 0.058094},
		{0.176067, 0.113619, 0.072128, 0.060975, 0.056019}},
};

double trace_reference(enum trace_name name, unsigned policy, unsigned size)
{
	return references[name][policy][size];
}

static void add(struct trace *trace, uint64_t bucket)
{
	must(trace->count < ACCESSES_MAX && bucket < BUCKET_MAX);
	trace->bucket[trace->count++] = (uint32_t)bucket;
	if (bucket > trace->bucket_max)
		trace->bucket_max = (uint32_t)bucket;
}

static void count_footprint(struct trace *trace)
{
	uint8_t *seen = calloc(trace->bucket_max + 1, 1);
	must(seen);
	for (uint32_t i = 0; i < trace->count; i++)
		seen[trace->bucket[i]] = 1;
	for (uint32_t i = 0; i <= trace->bucket_max; i++)
		trace->footprint += seen[i];
	free(seen);
}

/* --- made: ranks by the inverse of the distribution, spread over the numbers --------- */

static uint32_t rank_of(const double *sum, double at)
{
	uint32_t low = 0, high = ZIPF_BUCKETS - 1;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (sum[middle] < at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void make_zipf(struct trace *trace)
{
	double *sum = malloc(ZIPF_BUCKETS * sizeof(*sum)), total = 0;
	uint64_t seed = 2026;
	must(sum);
	for (uint32_t i = 0; i < ZIPF_BUCKETS; i++)
		sum[i] = total += pow(i + 1, -ZIPF_EXPONENT);
	for (uint32_t i = 0; i < ZIPF_ACCESSES; i++) {
		double at = (double)(random_next(&seed) >> 11) * 0x1p-53 * total;
		/* 77777 has no factor in common with their number */
		add(trace, (uint64_t)rank_of(sum, at) * 77777 % ZIPF_BUCKETS);
	}
	free(sum);
}

/* --- read ---------------------------------------------------------------------------- */

static FILE *unpack(const char *path, pid_t *child)
{
	int ends[2];
	must(pipe(ends) == 0);
	*child = fork();
	must(*child >= 0);
	if (*child == 0) {
		dup2(ends[1], 1);
		close(ends[0]);
		close(ends[1]);
		execlp("xz", "xz", "-dc", path, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	FILE *file = fdopen(ends[0], "r");
	must(file);
	return file;
}

/* version,time,op,size,lbn: bytes and sectors of 512; every bucket that it touches counts. */
static void read_io(struct trace *trace, FILE *file)
{
	char line[128];
	while (fgets(line, sizeof(line), file)) {
		unsigned long long size, lbn;
		if (sscanf(line, "%*u,%*u,%*x,%llu,%llu", &size, &lbn) != 2 || size == 0)
			continue;
		uint64_t last = (lbn * 512 + size - 1) / 4096;
		for (uint64_t bucket = lbn * 512 / 4096; bucket <= last; bucket++)
			add(trace, bucket);
	}
}

/* Numbers of 4 bytes, little endian. */
static void read_w106(struct trace *trace, FILE *file)
{
	uint8_t b[4];
	while (fread(b, sizeof(b), 1, file) == 1)
		add(trace,
			b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
}

static bool read_file(struct trace *trace, enum trace_name name, char *why, size_t why_size)
{
	const char *dir = getenv("SKERRY_TRACES");
	char path[500];
	if (!dir) {
		snprintf(why, why_size, "SKERRY_TRACES does not say in which folder it is");
		return false;
	}
	snprintf(path, sizeof(path), "%s/%s.%s.xz", dir, trace_names[name],
		name == TRACE_IO ? "csv" : "trace");
	if (access(path, R_OK) != 0) {
		snprintf(why, why_size, "%s cannot be read", path);
		return false;
	}
	pid_t child;
	int status;
	FILE *file = unpack(path, &child);
	(name == TRACE_IO ? read_io : read_w106)(trace, file);
	fclose(file);
	must(waitpid(child, &status, 0) == child);
	if (status == 0 && trace->count > 0)
		return true;
	snprintf(why, why_size, "xz cannot unpack %s", path);
	return false;
}

bool trace_open(struct trace *trace, enum trace_name name, char *why, size_t why_size)
{
	memset(trace, 0, sizeof(*trace));
	trace->bucket = malloc(ACCESSES_MAX * sizeof(*trace->bucket));
	must(trace->bucket);
	if (name == TRACE_ZIPF)
		make_zipf(trace);
	else if (!read_file(trace, name, why, why_size)) {
		trace_close(trace);
		return false;
	}
	count_footprint(trace);
	return true;
}

void trace_close(struct trace *trace)
{
	free(trace->bucket);
	trace->bucket = NULL;
}

/* --- run ----------------------------------------------------------------------------- */

uint32_t trace_entries(const struct trace *trace, unsigned size)
{
	return (uint32_t)(trace->footprint * trace_shares[size]);
}

static bool is_hit(struct xcache *cache, uint32_t number)
{
	struct xseg_key key = {.volume = 1, .object = number / XCACHE_BUCKETS};
	uint32_t object, entry, bucket = number % XCACHE_BUCKETS;
	must(xcache_get_object(cache, &key, &object) == 0);
	entry = xcache_lookup(cache, object, bucket);
	if (entry != XCACHE_NONE) {
		xcache_hit(cache, entry);
		return true;
	}
	must(xcache_insert(cache, object, bucket, &entry) == 0);
	return false;
}

double trace_miss_ratio(
	const struct trace *trace, const struct xcache_policy *policy, uint32_t entries)
{
	struct xcache *cache;
	uint32_t hits = 0;
	struct xcache_config config = {.objects_max = trace->bucket_max / XCACHE_BUCKETS + 1,
		.entries_max = entries,
		.policy = policy};
	must(xcache_open(&cache, &config) == 0);
	for (uint32_t i = 0; i < trace->count; i++)
		hits += is_hit(cache, trace->bucket[i]);
	xcache_close(cache);
	return 1 - (double)hits / trace->count;
}
