/* SPDX-License-Identifier: Apache-2.0 */
/* events: what the keeper has noted: who started, died, was restarted, given up, stuck. */
#include <base/must.h>
#include <base/path.h>
#include <base/time.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/ctl/ctl_hook.h"
#include "tools/ctl/ctl_output.h"
#include "tools/ctl/ctl_watch.h"

#define LOOK_NS 200000000u
#define RUN_LOOK_NS 100000000u

static const struct ctl_option option_follow = {
	"follow", 'f', NULL, "go on with what comes, until ^C", NULL};
static const struct ctl_option option_since = {
	"since", 0, "WHEN", "only later ones: 10m (ago), or a time as events have it", NULL};
static const struct ctl_option option_peer = {"peer", 'p', "NAME", "only of this peer", NULL};
static const struct ctl_option option_kind = {"event", 'e', "KIND", "only this kind", NULL};

static const struct ctl_option option_run = {"run", 'r', "COMMAND",
	"with --follow: run it for each that comes; SKERRY_EVENT, SKERRY_PEER, SKERRY_REASON and "
	"SKERRY_TIME say what it is",
	NULL};

static const struct ctl_column columns[] = {{"time", "TIME", CTL_TEXT},
	{"event", "EVENT", CTL_TEXT}, {"peer", "PEER", CTL_TEXT}, {"pid", "PID", CTL_COUNT},
	{"reason", "REASON", CTL_TEXT}};

struct follow {
	char path[PATH_LENGTH_MAX];
	FILE *file;
	ino_t inode;
	char since[40]; /* compares as text: ISO 8601, UTC; "" all */
	const char *peer, *kind, *run;
	json_t *rows; /* NULL: print at once */
};

/* ISO 8601 with milliseconds, as the keeper writes it. */
static void iso_text(const struct timespec *at, char out[40])
{
	struct tm tm;
	char seconds[24];
	gmtime_r(&at->tv_sec, &tm);
	strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(out, 40, "%s.%03ldZ", seconds, at->tv_nsec / 1000000);
}

static void iso_now(char out[40])
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	iso_text(&now, out);
}

static int since_value(struct ctl *ctl, char out[40])
{
	const char *text = ctl_option_value(ctl, "since");
	uint64_t ago_ns;
	struct timespec now;
	if (!text)
		return 0;
	/* "2026-01-31" or more of it: what is missing compares as the beginning */
	if (strlen(text) >= 10 && strlen(text) < 40 && text[4] == '-' && text[7] == '-') {
		snprintf(out, 40, "%s", text);
		if (out[10] == ' ')
			out[10] = 'T';
		return 0;
	}
	if (time_parse_positive(text, &ago_ns))
		return fault_set(&ctl->fault, FAULT_USAGE, text,
			"write e.g. 10m, 2h, 2026-01-31 or 2026-01-31T12:00:00",
			"--since: '%s' is not a time", text);
	clock_gettime(CLOCK_REALTIME, &now);
	uint64_t ns = time_of(&now);
	ns = ns > ago_ns ? ns - ago_ns : 0;
	now = (struct timespec){
		.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
	iso_text(&now, out);
	return 0;
}

static bool wanted(const struct follow *follow, const json_t *event)
{
	const char *time = json_string_value(json_object_get(event, "time"));
	const char *peer = json_string_value(json_object_get(event, "peer"));
	const char *kind = json_string_value(json_object_get(event, "event"));
	if (!time || !kind || strcmp(time, follow->since) < 0)
		return false;
	return (!follow->peer || (peer && !strcmp(peer, follow->peer))) &&
	       (!follow->kind || !strcmp(kind, follow->kind));
}

static void print_one(struct ctl *ctl, const json_t *event)
{
	char cell[512];
	if (ctl_output_is_json(ctl)) {
		ctl_output_json(ctl, ctl_output_versioned(json_copy((json_t *)event)));
		return;
	}
	for (size_t i = 0; i < countof(columns); i++) {
		ctl_output_cell(event, &columns[i], false, cell, sizeof(cell));
		printf("%s%s", i ? "  " : "", cell);
	}
	putchar('\n');
}

static void export_field(const json_t *event, const char *field, const char *variable)
{
	const char *value = json_string_value(json_object_get(event, field));
	setenv(variable, value ? value : "", 1);
}

/* One after the other, so that whoever notes them has them in order. */
static void run_for(const struct follow *follow, const json_t *event)
{
	struct ctl_hook hook;
	export_field(event, "event", "SKERRY_EVENT");
	export_field(event, "peer", "SKERRY_PEER");
	export_field(event, "reason", "SKERRY_REASON");
	export_field(event, "time", "SKERRY_TIME");
	fflush(stdout);
	ctl_hook_start(&hook, follow->run, NULL);
	while (!ctl_hook_wait(&hook, ctl_ask_interrupted(), RUN_LOOK_NS)) {
	}
	if (hook.status != 0)
		fprintf(stderr, "xsegctl: --run failed for %s (exit status %d)\n",
			getenv("SKERRY_EVENT"), hook.status);
}

/* Whole lines only: the keeper may be in the middle of one. */
static void read_lines(struct ctl *ctl, struct follow *follow)
{
	char *line = NULL;
	size_t room = 0;
	for (;;) {
		long start = ftell(follow->file);
		ssize_t n = getline(&line, &room, follow->file);
		if (n <= 0 || line[n - 1] != '\n') {
			clearerr(follow->file);
			fseek(follow->file, start, SEEK_SET);
			break;
		}
		/* a line that a kill cut in two, or a disk that was full: the others still count */
		json_t *event = json_loadb(line, (size_t)n, 0, NULL);
		if (json_is_object(event) && wanted(follow, event)) {
			if (follow->rows)
				json_array_append(follow->rows, event);
			else
				print_one(ctl, event);
			if (follow->run)
				run_for(follow, event);
		}
		json_decref(event);
	}
	free(line);
	fflush(stdout);
}

static bool open_file(struct follow *follow, const char *path)
{
	struct stat st;
	follow->file = fopen(path, "re");
	if (!follow->file || fstat(fileno(follow->file), &st))
		return false;
	follow->inode = st.st_ino;
	return true;
}

static void close_file(struct follow *follow)
{
	if (follow->file)
		fclose(follow->file);
	follow->file = NULL;
}

/* The keeper has begun a new file: what is left of the old one first. */
static void look(struct ctl *ctl, struct follow *follow)
{
	struct stat st;
	if (follow->file) {
		bool moved = stat(follow->path, &st) || st.st_ino != follow->inode;
		read_lines(ctl, follow);
		if (!moved)
			return;
		close_file(follow);
	}
	if (open_file(follow, follow->path))
		read_lines(ctl, follow);
}

static void read_old(struct ctl *ctl, struct follow *follow)
{
	char old[PATH_LENGTH_MAX + 4];
	snprintf(old, sizeof(old), "%s.1", follow->path);
	if (open_file(follow, old))
		read_lines(ctl, follow);
	close_file(follow);
}

static void finish(struct ctl *ctl, struct follow *follow)
{
	ctl_output_rows(ctl, "events", follow->rows, columns, countof(columns));
	follow->rows = NULL;
}

static int run(struct ctl *ctl)
{
	char name[NAME_LENGTH_MAX + 1];
	struct follow follow = {.peer = ctl_option_value(ctl, "peer"),
		.kind = ctl_option_value(ctl, "event"),
		.run = ctl_option_value(ctl, "run")};
	bool goes_on = ctl_option_given(ctl, "follow");
	int rc = ctl_join_segment_name(ctl, name);
	if (!rc)
		rc = since_value(ctl, follow.since);
	if (rc)
		return rc;
	if (follow.run && !goes_on)
		return fault_set(&ctl->fault, FAULT_USAGE, NULL, NULL, "--run needs --follow");
	if (follow.run && !follow.since[0])
		iso_now(follow.since);
	if (path_run(follow.path, name, "events.jsonl"))
		return fault_set(
			&ctl->fault, FAULT_FAILED, name, NULL, "the run folder's path is too long");
	if (ctl->format == CTL_JSON && goes_on)
		ctl->format = CTL_JSONL;
	follow.rows = goes_on ? NULL : json_array();
	read_old(ctl, &follow);
	look(ctl, &follow);
	if (!goes_on && !follow.file && !json_array_size(follow.rows)) {
		json_decref(follow.rows);
		return fault_set(&ctl->fault, FAULT_NOT_FOUND, follow.path,
			"the keeper writes it: 'xsegctl up FILE'",
			"segment '%s' has no events ('%s')", name, follow.path);
	}
	if (!goes_on)
		finish(ctl, &follow);
	else
		ctl_ask_interrupt_catch();
	while (goes_on && !ferror(stdout) && ctl_watch_nap(LOOK_NS))
		look(ctl, &follow);
	close_file(&follow);
	return 0;
}

const struct ctl_verb ctl_events_verb = {
	"events",
	NULL,
	"",
	0,
	0,
	"what happened: starts, deaths, restarts, stuck peers",
	"\tThe keeper writes them, one JSON object a line, to events.jsonl in the run folder; the "
	"file before it is events.jsonl.1. Read without the keeper. With *--follow* it goes on "
	"until ^C, also over a keeper's restart; with *--run*, too, from now on if *--since* does "
	"not say from when.\n",
	run,
	{&option_follow, &option_since, &option_peer, &option_kind, &option_run},
	.examples = "xsegctl events --since 12h --event peer_died\n"
		    "xsegctl events --follow\n"
		    "xsegctl events --follow --run 'logger -t skerry \"$SKERRY_EVENT "
		    "$SKERRY_PEER\"'\n",
};
