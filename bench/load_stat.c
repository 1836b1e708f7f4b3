/* SPDX-License-Identifier: Apache-2.0 */
/* What the load found out: fine histograms, one line for people, one file for programs. */
#include <base/clock.h>
#include <base/log.h>
#include <base/time.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load.h"

static const char *const stat_kinds[LOAD_KINDS] = {"read", "write", "flush"};

/* --- histograms ---------------------------------------------------------------- */

static uint32_t fine_index(uint64_t value)
{
	if (value < 1u << LOAD_FINE_BITS)
		return (uint32_t)value;
	unsigned shift = 63u - (unsigned)__builtin_clzll(value) - LOAD_FINE_BITS;
	uint64_t index = ((uint64_t)shift << LOAD_FINE_BITS) + (value >> shift);
	return index < LOAD_FINE_BUCKETS ? (uint32_t)index : LOAD_FINE_BUCKETS - 1;
}

static double fine_floor(uint32_t index)
{
	if (index < 2u << LOAD_FINE_BITS)
		return index;
	unsigned shift = (index >> LOAD_FINE_BITS) - 1;
	return (double)((uint64_t)(index - (shift << LOAD_FINE_BITS)) << shift);
}

void load_fine_add(struct load_fine *fine, uint64_t value)
{
	fine->count++;
	fine->bucket[fine_index(value)]++;
	if (value > fine->max)
		fine->max = value;
}

/* The middle of the bucket that it falls into. */
double load_fine_quantile(const struct load_fine *fine, double share)
{
	uint64_t below = (uint64_t)(share * (double)fine->count), seen = 0;
	if (fine->count == 0)
		return 0;
	if (below >= fine->count)
		below = fine->count - 1;
	for (uint32_t i = 0; i < LOAD_FINE_BUCKETS; i++) {
		seen += fine->bucket[i];
		if (seen > below)
			return (fine_floor(i) + fine_floor(i + 1)) / 2;
	}
	return (double)fine->max;
}

static void fine_join(struct load_fine *to, const struct load_fine *from)
{
	to->count += from->count;
	if (from->max > to->max)
		to->max = from->max;
	for (uint32_t i = 0; i < LOAD_FINE_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
}

uint64_t load_cpu_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return time_of(&t);
}

/* --- all shards ------------------------------------------------------------------- */

struct report {
	struct load_stat sum;
	uint64_t ops, bytes;
	double seconds, steady, cpu_us;
};

static void report_sum(
	struct report *r, const struct load_shared *shared, unsigned shards, uint64_t chunk)
{
	uint64_t end = shared->begin_ns;
	for (unsigned i = 0; i < shards; i++) {
		const struct load_stat *stat = shared->stat[i];
		for (unsigned k = 0; k < LOAD_KINDS; k++) {
			r->sum.ops[k] += stat->ops[k];
			r->sum.bytes[k] += stat->bytes[k];
			fine_join(&r->sum.latency[k], &stat->latency[k]);
		}
		r->sum.errors += stat->errors;
		r->sum.verify_errors += stat->verify_errors;
		r->sum.rounds += stat->rounds;
		double ns = load_fine_quantile(&stat->chunk, 0.5);
		r->steady += ns > 0 ? (double)chunk * 1e9 / ns : 0;
		end = stat->end_ns > end ? stat->end_ns : end;
	}
	for (unsigned k = 0; k < LOAD_KINDS; k++) {
		r->ops += r->sum.ops[k];
		r->bytes += r->sum.bytes[k];
	}
	r->seconds = (double)(end - shared->begin_ns) / 1e9;
	if (r->ops)
		r->cpu_us = (double)(load_cpu_ns() - shared->begin_cpu_ns) / 1e3 / (double)r->ops;
}

static double per_second(double what, double seconds) { return seconds > 0 ? what / seconds : 0; }

static void report_line(const struct report *r, const struct peer *peer)
{
	printf("%s: %llu ops in %.3f s, %.0f/s, %.1f MB/s, CPU %.3f us/op", peer->name,
		(unsigned long long)r->ops, r->seconds, per_second((double)r->ops, r->seconds),
		per_second((double)r->bytes / 1e6, r->seconds), r->cpu_us);
	for (unsigned k = 0; k < LOAD_KINDS; k++)
		if (r->sum.ops[k])
			printf("; %s p50 %.2f p99 %.2f us", stat_kinds[k],
				load_fine_quantile(&r->sum.latency[k], 0.5) / 1e3,
				load_fine_quantile(&r->sum.latency[k], 0.99) / 1e3);
	printf("; %llu errors, %llu verify errors\n", (unsigned long long)r->sum.errors,
		(unsigned long long)r->sum.verify_errors);
	fflush(stdout);
}

static void report_kind(FILE *out, const struct report *r, unsigned kind)
{
	static const struct {
		const char *name;
		double share;
	} points[] = {{"p50_ns", 0.5}, {"p90_ns", 0.9}, {"p99_ns", 0.99}, {"p99_9_ns", 0.999}};
	const struct load_fine *fine = &r->sum.latency[kind];
	fprintf(out, ",\n  \"%s\": {\"ops\": %llu, \"bytes\": %llu, \"samples\": %llu",
		stat_kinds[kind], (unsigned long long)r->sum.ops[kind],
		(unsigned long long)r->sum.bytes[kind], (unsigned long long)fine->count);
	for (unsigned i = 0; i < countof(points); i++)
		fprintf(out, ", \"%s\": %.0f", points[i].name,
			load_fine_quantile(fine, points[i].share));
	fprintf(out, ", \"max_ns\": %llu}", (unsigned long long)fine->max);
}

static int report_file(const struct report *r, const struct peer *peer, const char *path)
{
	FILE *out = fopen(path, "we");
	if (!out)
		return -errno;
	fprintf(out,
		"{\n  \"schema_version\": 1, \"name\": \"%s\", \"lanes\": %u,\n"
		"  \"ops\": %llu, \"bytes\": %llu, \"seconds\": %.6f, \"rounds\": %llu,\n"
		"  \"ops_per_second\": %.1f, \"bytes_per_second\": %.1f,\n"
		"  \"ops_per_second_steady\": %.1f, \"cpu_us_per_op\": %.4f,\n"
		"  \"errors\": %llu, \"verify_errors\": %llu",
		peer->name, peer->shards, (unsigned long long)r->ops, (unsigned long long)r->bytes,
		r->seconds, (unsigned long long)r->sum.rounds,
		per_second((double)r->ops, r->seconds), per_second((double)r->bytes, r->seconds),
		r->steady, r->cpu_us, (unsigned long long)r->sum.errors,
		(unsigned long long)r->sum.verify_errors);
	for (unsigned k = 0; k < LOAD_KINDS; k++)
		report_kind(out, r, k);
	fprintf(out, "\n}\n");
	return fclose(out) ? -errno : 0;
}

int64_t load_report(const struct load_shared *shared, const struct peer *peer)
{
	const struct load_options *options = peer->options;
	struct report *r = calloc(1, sizeof(*r));
	if (!r)
		return -1;
	report_sum(r, shared, peer->shards, options->chunk);
	report_line(r, peer);
	int64_t bad = (int64_t)(r->sum.errors + r->sum.verify_errors);
	int error = options->report && *options->report ? report_file(r, peer, options->report) : 0;
	if (error) {
		log_error("load", "cannot write %s: %s", options->report, strerror(-error));
		bad = -1;
	}
	free(r);
	return bad;
}
