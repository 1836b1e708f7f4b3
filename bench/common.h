/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the benches share: options, bursts and their medians, a table with ratios, JSON.
 *
 * Units: as each row says. Threads: one. Errors: must().
 */
#ifndef SKERRY_BENCH_COMMON_H
#define SKERRY_BENCH_COMMON_H

#include <base/clock.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/lib/fixture.h"

#define BENCH_SAMPLES_MAX 2000000u

struct bench {
	bool quick;	  /* --quick: a few seconds, figures only roughly right */
	const char *json; /* --json FILE */
	const char *title;
	struct bench_row *rows;
	unsigned count;
	int missed;
};

/* Parses the options, prints title and machine. */
void bench_begin(struct bench *bench, const char *title, int argc, char **argv);
/* `quick` or `full`, as was asked. */
static inline unsigned bench_pick(const struct bench *bench, unsigned full, unsigned quick)
{
	return bench->quick ? quick : full;
}

/* One row; reference 0: none. The load average is taken here. */
void bench_row(struct bench *bench, const char *name, double value, const char *unit,
	double reference, const char *reference_name);
/* Is the last row's ratio (its value, without a reference) where it should be? Only a report. */
enum bench_goal { BENCH_AT_MOST, BENCH_AT_LEAST };
void bench_goal(struct bench *bench, enum bench_goal goal, double limit);
/* Prints the table, writes the file; main's result: 0 even when a goal was missed. */
int bench_end(struct bench *bench);

/* Many short bursts: the median is what the machine does when nobody disturbs it. */
struct samples {
	double *value;
	uint32_t count, max;
};
void samples_init(struct samples *samples, uint32_t max);
void samples_add(struct samples *samples, double value);
double samples_quantile(struct samples *samples, double share);
static inline double samples_median(struct samples *samples)
{
	return samples_quantile(samples, 0.5);
}
void samples_fini(struct samples *samples);

/* cpu -1: all of those we began with. false: there is no such CPU for us. */
bool bench_pin(int cpu);
unsigned bench_cpus(void);

#endif
