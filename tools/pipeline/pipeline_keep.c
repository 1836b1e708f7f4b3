/* SPDX-License-Identifier: Apache-2.0 */
/* How processes are kept: the keeper's own keys of a pipeline, checked and read. */
#include "tools/pipeline/pipeline_keep.h"

#include <base/must.h>
#include <base/time.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pipeline/pipeline_edit.h"

/* Sleeping lanes move once a second: more often nobody can tell. */
#define WATCHDOG_MIN_NS 2500000000ull

static const char *const restart_words[] = {"always", "on-failure", "never", NULL};
static const char *const action_words[] = {"event", "restart", NULL};

static int read_word(const char *const *words, const char *value)
{
	for (int i = 0; words[i]; i++)
		if (!strcmp(words[i], value))
			return i;
	return -EINVAL;
}

/* "0" is a time here: at once, or not at all. */
static int read_time(const char *value, uint64_t *ns)
{
	char *end;
	if (strtod(value, &end) == 0 && end != value && strspn(end, "numsih") == strlen(end)) {
		*ns = 0;
		return 0;
	}
	return time_parse_positive(value, ns);
}

/* --- one key each ----------------------------------------------------------------------- */

static int set_restart(struct pipeline_keep *keep, const char *value)
{
	int word = read_word(restart_words, value);
	keep->restart = word < 0 ? PIPELINE_RESTART_ALWAYS : (enum pipeline_restart)word;
	return word < 0 ? word : 0;
}

static int set_delay(struct pipeline_keep *keep, const char *value)
{
	return read_time(value, &keep->delay_ns);
}

static int set_delay_max(struct pipeline_keep *keep, const char *value)
{
	return read_time(value, &keep->delay_max_ns);
}

static int set_limit(struct pipeline_keep *keep, const char *value)
{
	char *end;
	unsigned long n = strtoul(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end || n > PIPELINE_RESTARTS_MAX)
		return -EINVAL;
	keep->limit = (unsigned)n;
	return 0;
}

static int set_window(struct pipeline_keep *keep, const char *value)
{
	return time_parse_positive(value, &keep->window_ns);
}

static int set_watchdog(struct pipeline_keep *keep, const char *value)
{
	int rc = read_time(value, &keep->watchdog_ns);
	return rc || !keep->watchdog_ns || keep->watchdog_ns >= WATCHDOG_MIN_NS ? rc : -ERANGE;
}

static int set_action(struct pipeline_keep *keep, const char *value)
{
	int word = read_word(action_words, value);
	keep->watchdog_restarts = word == 1;
	return word < 0 ? word : 0;
}

static int set_request(struct pipeline_keep *keep, const char *value)
{
	return read_time(value, &keep->request_ns);
}

static const struct {
	const char *key, *expected;
	int (*set)(struct pipeline_keep *keep, const char *value);
} keys[] = {
	{"restart", "always, on-failure or never", set_restart},
	{"restart-delay", "a time, e.g. 0s", set_delay},
	{"restart-delay-max", "a time, e.g. 5s", set_delay_max},
	{"restart-limit", "a number from 0 (no limit) to 100", set_limit},
	{"restart-window", "a time, e.g. 60s", set_window},
	{"watchdog", "a time from 2500ms, or 0 (off)", set_watchdog},
	{"watchdog-action", "event or restart", set_action},
	{"request-limit", "a time, e.g. 10s, or 0 (off)", set_request},
};

/* --- all of them ------------------------------------------------------------------------ */

bool pipeline_keep_fallback(const char *key) { return !strncmp(key, "fallback.", 9); }

bool pipeline_keep_key(const char *key)
{
	for (size_t i = 0; i < countof(keys); i++)
		if (!strcmp(keys[i].key, key))
			return true;
	return pipeline_keep_fallback(key);
}

struct reading {
	const struct pipeline *pipeline;
	const struct pipeline_option *given[countof(keys)];
	struct pipeline_keep *keep;
	struct fault *fault;
};

static int complain(
	const struct reading *reading, const struct pipeline_option *option, const char *text)
{
	const struct pipeline *pipeline = reading->pipeline;
	char place[PATH_MAX + 16] = "";
	if (option->file < pipeline->file_count)
		snprintf(place, sizeof(place), "%s:%u: ", pipeline->files[option->file],
			option->line);
	return fault_set(reading->fault, FAULT_USAGE, option->key, NULL, "%s%s=%s: %s", place,
		option->key, option->value, text);
}

static int read_option(struct reading *reading, const struct pipeline_option *option)
{
	char text[128];
	for (size_t i = 0; i < countof(keys); i++) {
		if (strcmp(keys[i].key, option->key))
			continue;
		const struct pipeline_option *before = reading->given[i];
		if (before && strcmp(before->value, option->value)) {
			snprintf(text, sizeof(text), "the same process is given %s=%.32s too",
				before->key, before->value);
			return complain(reading, option, text);
		}
		reading->given[i] = option;
		if (!keys[i].set(reading->keep, option->value))
			return 0;
		snprintf(text, sizeof(text), "write %s", keys[i].expected);
		return complain(reading, option, text);
	}
	return 0;
}

int pipeline_keep_read(const struct pipeline *pipeline, unsigned host, struct pipeline_keep *keep,
	struct fault *fault)
{
	struct reading reading = {.pipeline = pipeline, .keep = keep, .fault = fault};
	const struct pipeline_host *process = &pipeline->hosts[host];
	int rc = 0;
	*keep = (struct pipeline_keep){.limit = 10,
		.delay_max_ns = 5000000000u,
		.window_ns = 60000000000u,
		.watchdog_ns = 10000000000u,
		.request_ns = 10000000000u};
	for (unsigned i = 0; !rc && i < process->option_count; i++)
		rc = read_option(&reading, &process->options[i]);
	for (unsigned i = 0; i < pipeline->peer_count; i++) {
		const struct pipeline_peer *peer = &pipeline->peers[i];
		for (unsigned j = 0; !rc && peer->host == host && j < peer->option_count; j++)
			rc = read_option(&reading, &peer->options[j]);
	}
	return rc;
}

static bool says(const struct pipeline_peer *peer, const char *key)
{
	for (unsigned i = 0; i < peer->option_count; i++)
		if (!strcmp(peer->options[i].key, key))
			return true;
	return false;
}

void pipeline_keep_copy(const struct pipeline *pipeline, const struct pipeline_peer *from,
	struct pipeline_peer *to, struct pipeline_host *process)
{
	const struct pipeline_host *host = &pipeline->hosts[from->host];
	for (unsigned i = 0; i < from->option_count; i++)
		if (pipeline_keep_key(from->options[i].key) && !says(to, from->options[i].key))
			pipeline_option_add(to, from->options[i].key, from->options[i].value,
				PIPELINE_FILES_MAX, 0);
	for (unsigned i = 0; i < host->option_count; i++)
		must(!pipeline_host_option_add(process, host->options[i].key,
			host->options[i].value, PIPELINE_FILES_MAX, 0));
	process->lanes = host->lanes;
	process->workers = host->workers;
}

const char *pipeline_keep_second(
	const struct pipeline *pipeline, const char *name, const char *edge)
{
	const struct pipeline_peer *peer = pipeline_peer_find(pipeline, name);
	for (unsigned i = 0; peer && i < peer->option_count; i++)
		if (pipeline_keep_fallback(peer->options[i].key) &&
			!strcmp(peer->options[i].key + 9, edge))
			return peer->options[i].value;
	return NULL;
}
