/* SPDX-License-Identifier: Apache-2.0 */
/* The progress bar, and its plainer relatives. */
#include "tools/ctl/ctl_progress.h"

#include <base/clock.h>
#include <base/size.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BAR_MAX 40
#define BAR_INTERVAL_NS 100000000u
#define LINE_INTERVAL_NS 1000000000u

static enum ctl_progress_mode mode_of(const struct ctl *ctl)
{
	const char *how = ctl_option_value(ctl, "progress");
	bool terminal = isatty(STDERR_FILENO) == 1;
	if (!how || !strcmp(how, "auto"))
		return terminal ? CTL_PROGRESS_BAR : CTL_PROGRESS_NONE;
	if (!strcmp(how, "bar"))
		return CTL_PROGRESS_BAR;
	if (!strcmp(how, "plain"))
		return CTL_PROGRESS_PLAIN;
	return !strcmp(how, "json") ? CTL_PROGRESS_JSON : CTL_PROGRESS_NONE;
}

void ctl_progress_begin(struct ctl_progress *progress, const struct ctl *ctl, const char *operation,
	const char *object, uint64_t total)
{
	*progress = (struct ctl_progress){.mode = mode_of(ctl),
		.operation = operation,
		.object = object,
		.total = total,
		.start_ns = clock_now_ns()};
}

double ctl_progress_rate(const struct ctl_progress *progress, uint64_t done)
{
	uint64_t ns = clock_now_ns() - progress->start_ns;
	return ns ? (double)done * 1e3 / (double)ns : 0;
}

static int percent_of(const struct ctl_progress *progress, uint64_t done)
{
	if (!progress->total)
		return 0;
	return done >= progress->total ? 100 : (int)((double)done * 100 / (double)progress->total);
}

static void show_bar(const struct ctl_progress *progress, uint64_t done)
{
	char bar[BAR_MAX + 1], size[32];
	struct winsize window = {0};
	int percent = percent_of(progress, done), width = BAR_MAX;
	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
		width = window.ws_col < 90 ? 10 : BAR_MAX;
	for (int i = 0; i < width; i++)
		bar[i] = i * 100 < percent * width ? '=' : ' ';
	bar[width] = 0;
	fprintf(stderr, "\r%s %s [%s] %3d%%  %s  %.0f MB/s\033[K", progress->operation,
		progress->object, bar, percent, size_format(done, size, sizeof(size)),
		ctl_progress_rate(progress, done));
	fflush(stderr);
}

static void show_plain(const struct ctl_progress *progress, uint64_t done)
{
	char size[32];
	fprintf(stderr, "%s %s: %d%%, %s, %.0f MB/s\n", progress->operation, progress->object,
		percent_of(progress, done), size_format(done, size, sizeof(size)),
		ctl_progress_rate(progress, done));
}

static void show_json(const struct ctl_progress *progress, uint64_t done)
{
	json_t *line = json_pack("{s:i, s:s, s:s, s:I, s:I, s:f}", "schema_version",
		CTL_SCHEMA_VERSION, "operation", progress->operation, "object", progress->object,
		"done", (json_int_t)done, "total", (json_int_t)progress->total, "mb_per_s",
		ctl_progress_rate(progress, done));
	json_dumpf(line, stderr, JSON_COMPACT);
	fputc('\n', stderr);
	json_decref(line);
}

static void show(const struct ctl_progress *progress, uint64_t done)
{
	if (progress->mode == CTL_PROGRESS_BAR)
		show_bar(progress, done);
	else if (progress->mode == CTL_PROGRESS_PLAIN)
		show_plain(progress, done);
	else if (progress->mode == CTL_PROGRESS_JSON)
		show_json(progress, done);
}

void ctl_progress_show(struct ctl_progress *progress, uint64_t done)
{
	uint64_t now_ns = clock_now_ns();
	uint64_t interval_ns =
		progress->mode == CTL_PROGRESS_BAR ? BAR_INTERVAL_NS : LINE_INTERVAL_NS;
	if (progress->mode == CTL_PROGRESS_NONE || now_ns - progress->shown_ns < interval_ns)
		return;
	progress->shown_ns = now_ns;
	show(progress, done);
}

void ctl_progress_end(struct ctl_progress *progress, uint64_t done)
{
	show(progress, done);
	if (progress->mode == CTL_PROGRESS_BAR)
		fputc('\n', stderr);
}
