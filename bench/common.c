/* SPDX-License-Identifier: Apache-2.0 */
/* Options, medians, the table and its JSON, for all benches. */
#include "bench/common.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <string.h>

#define ROWS_MAX 64

struct bench_row {
	char name[64], unit[16], reference_name[48];
	double value, reference, load;
	double limit;
	int goal; /* enum bench_goal, -1: none */
};

static cpu_set_t all_cpus;

static double load_average(void)
{
	double load = 0;
	return getloadavg(&load, 1) == 1 ? load : 0;
}

static void print_machine(void)
{
	char line[256], model[200] = "unknown CPU";
	FILE *f = fopen("/proc/cpuinfo", "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "model name : %199[^\n]", model) == 1)
			break;
	if (f)
		fclose(f);
	char release[100] = "";
	f = fopen("/proc/sys/kernel/osrelease", "re");
	if (f) {
		if (fscanf(f, "%99s", release) != 1)
			release[0] = 0;
		fclose(f);
	}
	printf("machine: %s, %u CPUs, Linux %s, load average %.2f\n\n", model, bench_cpus(),
		release, load_average());
}

static void usage(const char *program, int status)
{
	fprintf(status ? stderr : stdout, "usage: %s [--quick] [--json FILE]\n", program);
	exit(status);
}

void bench_begin(struct bench *bench, const char *title, int argc, char **argv)
{
	static const struct option options[] = {{"quick", no_argument, NULL, 'q'},
		{"json", required_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0}};
	memset(bench, 0, sizeof(*bench));
	bench->title = title;
	for (int c; (c = getopt_long(argc, argv, "qj:h", options, NULL)) != -1;)
		switch (c) {
		case 'q': bench->quick = true; break;
		case 'j': bench->json = optarg; break;
		case 'h': usage(argv[0], 0); break;
		default: usage(argv[0], 2);
		}
	if (optind != argc)
		usage(argv[0], 2);
	bench->rows = calloc(ROWS_MAX, sizeof(*bench->rows));
	must(bench->rows);
	must(sched_getaffinity(0, sizeof(all_cpus), &all_cpus) == 0);
	printf("%s\n", title);
	print_machine();
	fflush(stdout);
}

void bench_row(struct bench *bench, const char *name, double value, const char *unit,
	double reference, const char *reference_name)
{
	must(bench->count < ROWS_MAX);
	struct bench_row *row = &bench->rows[bench->count++];
	snprintf(row->name, sizeof(row->name), "%s", name);
	snprintf(row->unit, sizeof(row->unit), "%s", unit);
	snprintf(row->reference_name, sizeof(row->reference_name), "%s",
		reference_name ? reference_name : "");
	row->value = value;
	row->reference = reference;
	row->load = load_average();
	row->goal = -1;
}

void bench_goal(struct bench *bench, enum bench_goal goal, double limit)
{
	must(bench->count > 0);
	bench->rows[bench->count - 1].goal = (int)goal;
	bench->rows[bench->count - 1].limit = limit;
}

static double ratio_of(const struct bench_row *row)
{
	return row->reference > 0 ? row->value / row->reference : 0;
}

static bool goal_met(const struct bench_row *row)
{
	double what = row->reference > 0 ? ratio_of(row) : row->value;
	return row->goal == BENCH_AT_MOST ? what <= row->limit : what >= row->limit;
}

static void print_row(struct bench *bench, const struct bench_row *row)
{
	char ratio[32] = "", goal[48] = "";
	if (row->reference > 0)
		snprintf(ratio, sizeof(ratio), "%.2f", ratio_of(row));
	if (row->goal >= 0) {
		bool met = goal_met(row);
		bench->missed += !met;
		snprintf(goal, sizeof(goal), "%s %g: %s",
			row->goal == BENCH_AT_MOST ? "at most" : "at least", row->limit,
			met ? "met" : "MISSED");
	}
	printf("%-46s %12.4g %-8s %7s  %-30s %s\n", row->name, row->value, row->unit, ratio,
		row->reference_name, goal);
}

static int write_json(const struct bench *bench)
{
	FILE *f = fopen(bench->json, "we");
	if (!f) {
		fprintf(stderr, "%s: cannot write: %s\n", bench->json, strerror(errno));
		return 1;
	}
	fprintf(f, "[");
	for (unsigned i = 0; i < bench->count; i++) {
		const struct bench_row *row = &bench->rows[i];
		fprintf(f, "%s\n  {\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"",
			i ? "," : "", row->name, row->value, row->unit);
		if (row->reference > 0)
			fprintf(f, ", \"reference\": %.6g, \"ratio\": %.4g", row->reference,
				ratio_of(row));
		else
			fprintf(f, ", \"reference\": null, \"ratio\": null");
		fprintf(f, ", \"load1\": %.2f}", row->load);
	}
	fprintf(f, "\n]\n");
	return fclose(f) == 0 ? 0 : 1;
}

int bench_end(struct bench *bench)
{
	printf("%-46s %12s %-8s %7s  %-30s %s\n", "what", "value", "unit", "ratio", "to", "goal");
	for (unsigned i = 0; i < bench->count; i++)
		print_row(bench, &bench->rows[i]);
	printf("\nload average now %.2f", load_average());
	if (bench->missed)
		printf("; %d goal(s) missed", bench->missed);
	printf("\n");
	int rc = bench->json ? write_json(bench) : 0;
	free(bench->rows);
	return rc;
}

void samples_init(struct samples *samples, uint32_t max)
{
	must(max > 0 && max <= BENCH_SAMPLES_MAX);
	samples->value = malloc(max * sizeof(*samples->value));
	must(samples->value);
	/* touched now, not while it is measured */
	memset(samples->value, 0, max * sizeof(*samples->value));
	samples->count = 0;
	samples->max = max;
}

void samples_add(struct samples *samples, double value)
{
	if (samples->count < samples->max)
		samples->value[samples->count++] = value;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

double samples_quantile(struct samples *samples, double share)
{
	if (samples->count == 0)
		return 0;
	qsort(samples->value, samples->count, sizeof(*samples->value), by_value);
	uint32_t at = (uint32_t)(share * samples->count);
	return samples->value[at < samples->count ? at : samples->count - 1];
}

void samples_fini(struct samples *samples)
{
	free(samples->value);
	samples->value = NULL;
}

unsigned bench_cpus(void)
{
	cpu_set_t set;
	must(sched_getaffinity(0, sizeof(set), &set) == 0);
	return (unsigned)CPU_COUNT(&set);
}

bool bench_pin(int cpu)
{
	if (cpu < 0)
		return sched_setaffinity(0, sizeof(all_cpus), &all_cpus) == 0;
	int seen = 0;
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (!CPU_ISSET(i, &all_cpus) || seen++ != cpu)
			continue;
		cpu_set_t one;
		CPU_ZERO(&one);
		CPU_SET(i, &one);
		return sched_setaffinity(0, sizeof(one), &one) == 0;
	}
	return false;
}
